//! What travels beside the data: the immediate of a message, and the ids of work requests.

use core::cmp::Ordering;

use crate::policy::aggregate::Place;

/// What a message is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) enum Kind {
    /// A contribution, or a sum: the chunk itself, or the news of it.
    Chunk = 0,
    /// "I have given up": what this connection still waits for will not come.
    GaveUp = 1,
}

/// The immediate: kind in 2 bits, round modulo 64, and in 24 bits the chunk, or the member because
/// of whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) struct Tag {
    pub kind: Kind,
    pub round: u8,
    pub chunk: u32,
}

const ROUNDS: u8 = 64;

impl Tag {
    /// The last word, because of a member.
    pub const fn gave_up(member: u32) -> Self {
        Self { kind: Kind::GaveUp, round: 0, chunk: member & 0xFF_FFFF }
    }

    pub const fn of(place: Place) -> Self {
        let round = (place.round % ROUNDS as u64) as u8;
        Self { kind: Kind::Chunk, round, chunk: place.chunk }
    }

    pub const fn encode(self) -> u32 {
        (self.kind as u32) << 30 | (self.round as u32) << 24 | self.chunk
    }

    pub const fn decode(imm: u32) -> Option<Self> {
        let kind = match imm >> 30 {
            0 => Kind::Chunk,
            1 => Kind::GaveUp,
            _ => return None,
        };
        Some(Self { kind, round: (imm >> 24) as u8 & (ROUNDS - 1), chunk: imm & 0xFF_FFFF })
    }

    /// Where it stands against the place that is due: neighbours are at most a round apart, so
    /// half of the numbers are behind and half are ahead.
    pub fn against(self, due: Place) -> Ordering {
        let ahead = self.round.wrapping_sub(Self::of(due).round) % ROUNDS;
        match ahead {
            0 => self.chunk.cmp(&due.chunk),
            1..32 => Ordering::Greater,
            _ => Ordering::Less,
        }
    }
}

/// Id of a READ: the lane, and the place of the child among those of the lane.
pub(in crate::policy) const fn read_id(lane: usize, child: usize) -> u64 {
    READ | (lane as u64) << 32 | child as u64
}

const READ: u64 = 1 << 60;

/// What [`read_id`] was made of; `None` for the id of a message.
pub(in crate::policy) const fn read_of(wr_id: u64) -> Option<(usize, usize)> {
    if wr_id & READ == 0 {
        return None;
    }
    Some(((wr_id >> 32) as usize & 0xFF_FFFF, wr_id as u32 as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_their_way() {
        for kind in [Kind::Chunk, Kind::GaveUp] {
            let tag = Tag { kind, round: 63, chunk: 0xFF_FFFF };
            assert_eq!(Tag::decode(tag.encode()), Some(tag));
        }
        assert_eq!((Tag::decode(2 << 30), Tag::decode(3 << 30)), (None, None));
        assert_eq!(read_of(read_id(4095, 8191)), Some((4095, 8191)));
        assert_eq!(read_of(7), None);
    }

    #[test]
    fn places_compare_across_the_wrap_of_rounds() {
        let due = Place { round: 64, chunk: 5 };
        let tag = |round, chunk| Tag::of(Place { round, chunk });
        assert_eq!(tag(64, 5).against(due), Ordering::Equal);
        assert_eq!(tag(63, 9).against(due), Ordering::Less);
        assert_eq!(tag(64, 4).against(due), Ordering::Less);
        assert_eq!(tag(64, 6).against(due), Ordering::Greater);
        assert_eq!(tag(65, 0).against(due), Ordering::Greater);
    }
}
