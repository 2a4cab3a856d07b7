//! A vector cut into chunks, dealt to lanes in turn.

/// The cut of a vector: chunk `c` has the bytes from `c * chunk` on and belongs to lane
/// `c % lanes`.
///
/// A lane's chunks follow each other round after round; their place in that sequence is what both
/// ends of a connection count.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Chunks {
    bytes: u64,
    chunk: u32,
    lanes: u32,
    /// Chunks of the vector: asked for with every message, so divided once.
    count: u32,
}

/// Most chunks of a vector: their number travels in 24 bits of an immediate.
pub const MAX_CHUNKS: u64 = 1 << 24;

/// A place in the sequence of a lane.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which round, from 0.
    pub round: u64,
    /// Which chunk of the vector.
    pub chunk: u32,
}

impl Chunks {
    /// `bytes` in chunks of `chunk` bytes, the last one shorter.
    ///
    /// # Panics
    /// When one of the three is 0, or there are more than [`MAX_CHUNKS`].
    pub const fn new(bytes: u64, chunk: u32, lanes: u32) -> Self {
        assert!(bytes > 0 && chunk > 0 && lanes > 0, "nothing to cut");
        let count = bytes.div_ceil(chunk as u64);
        assert!(count <= MAX_CHUNKS, "more chunks than can be numbered");
        Self { bytes, chunk, lanes, count: count as u32 }
    }

    /// Bytes of the vector.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks of the vector.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Lanes.
    pub const fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Chunks of a lane in one round.
    pub const fn of_lane(&self, lane: u32) -> u64 {
        self.count.saturating_sub(lane).div_ceil(self.lanes) as u64
    }

    /// Bytes of a lane in one round.
    pub const fn bytes_of_lane(&self, lane: u32) -> u64 {
        let full = self.of_lane(lane) * self.chunk as u64;
        let last = self.count - 1;
        // The last chunk of the vector is short by so much.
        let short = self.count as u64 * self.chunk as u64 - self.bytes;
        if last % self.lanes == lane { full - short } else { full }
    }

    /// First byte of a chunk.
    pub const fn offset(&self, chunk: u32) -> u64 {
        chunk as u64 * self.chunk as u64
    }

    /// Bytes of a chunk.
    pub const fn len(&self, chunk: u32) -> u32 {
        let left = self.bytes - self.offset(chunk);
        if left < self.chunk as u64 { left as u32 } else { self.chunk }
    }

    /// Number `seq` in the sequence of `lane`, which must have chunks.
    pub const fn at(&self, lane: u32, seq: u64) -> Place {
        let each = self.of_lane(lane);
        Place { round: seq / each, chunk: (seq % each) as u32 * self.lanes + lane }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_vector_of_ten_bytes_in_chunks_of_four() {
        let c = Chunks::new(10, 4, 2);
        assert_eq!((c.count(), c.of_lane(0), c.of_lane(1)), (3, 2, 1));
        assert_eq!((c.bytes_of_lane(0), c.bytes_of_lane(1)), (6, 4));
        assert_eq!((c.offset(2), c.len(2), c.len(1)), (8, 2, 4));
        assert_eq!(c.at(0, 3), Place { round: 1, chunk: 2 });
        assert_eq!(c.at(1, 3), Place { round: 3, chunk: 1 });
    }

    #[test]
    #[should_panic(expected = "more chunks")]
    fn one_chunk_too_many() {
        let _ = Chunks::new(MAX_CHUNKS + 1, 1, 1);
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_chunk_of_one_lane(
            bytes in 1_u64..5_000, chunk in 1_u32..600, lanes in 1_u32..9
        ) {
            let c = Chunks::new(bytes, chunk, lanes);
            let mut seen = Vec::new();
            for lane in 0..lanes {
                let its = (0..c.of_lane(lane)).map(|seq| c.at(lane, seq));
                let chunks: Vec<u32> = its.map(|p| p.chunk).collect();
                let sum: u64 = chunks.iter().map(|n| u64::from(c.len(*n))).sum();
                prop_assert_eq!(sum, c.bytes_of_lane(lane));
                seen.extend(chunks);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..c.count()).collect::<Vec<_>>());
            let end = c.offset(c.count() - 1) + u64::from(c.len(c.count() - 1));
            prop_assert_eq!(end, bytes);
        }
    }
}
