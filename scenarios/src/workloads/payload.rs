//! Messages that prove themselves: number, time of readiness, checksum, and a body that follows
//! from the number. A receiver tells a whole message from one whose bytes belong to another
//! message or to none.

use doorbell_core::units::Time;

/// Bytes of number, time and checksum: the shortest message.
pub const HEADER_BYTES: usize = 24;

/// Who made a message, and which one it is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Label {
    /// Number of the producer, below 2^16.
    pub source: u16,
    /// Number of the message of that producer, from 0, below 2^48.
    pub n: u64,
}

impl Label {
    const N_BITS: u32 = 48;

    fn word(self) -> u64 {
        debug_assert!(self.n < 1 << Self::N_BITS);
        u64::from(self.source) << Self::N_BITS | self.n
    }

    fn from_word(w: u64) -> Self {
        Self { source: (w >> Self::N_BITS) as u16, n: w & ((1 << Self::N_BITS) - 1) }
    }
}

/// One step of the checksum. Not cryptographic: it has to notice bytes of other messages.
const fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// Word `i` of the body of the message with label word `label`.
const fn body_word(label: u64, i: u64) -> u64 {
    mix(label, i.wrapping_add(1))
}

/// The last part of a body may be shorter than a word.
fn word_of(chunk: &[u8]) -> u64 {
    let mut w = [0; 8];
    w[..chunk.len()].copy_from_slice(chunk);
    u64::from_le_bytes(w)
}

fn checksum(label: u64, ready: u64, body: &[u8]) -> u64 {
    // The start keeps memory that was never written from being a message.
    let start = mix(mix(1, label), ready);
    body.chunks(8).fold(start, |sum, chunk| mix(sum, word_of(chunk)))
}

/// Fills `buffer` with message `label`, ready at `ready`.
///
/// # Panics
/// When it is shorter than [`HEADER_BYTES`].
pub fn write(buffer: &mut [u8], label: Label, ready: Time) {
    let (header, body) = buffer.split_at_mut(HEADER_BYTES);
    let word = label.word();
    for (i, chunk) in (0..).zip(body.chunks_mut(8)) {
        let bytes = body_word(word, i).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    let sum = checksum(word, ready.as_ps(), body);
    for (chunk, w) in header.chunks_exact_mut(8).zip([word, ready.as_ps(), sum]) {
        chunk.copy_from_slice(&w.to_le_bytes());
    }
}

/// What the first bytes say of whose message it is, be it whole or not.
///
/// # Panics
/// When it is shorter than a word.
pub fn label(buffer: &[u8]) -> Label {
    Label::from_word(word_of(&buffer[..8]))
}

/// The label and time of a whole message; `None` for anything else.
pub fn read(buffer: &[u8]) -> Option<(Label, Time)> {
    let (header, body) = buffer.split_at_checked(HEADER_BYTES)?;
    let word = |i: usize| word_of(&header[8 * i..8 * i + 8]);
    let whole = checksum(word(0), word(1), body) == word(2);
    whole.then(|| (Label::from_word(word(0)), Time::from_ps(word(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fresh_memory_is_no_message() {
        for len in [0, 23, 24, 25, 4096] {
            assert_eq!(read(&vec![0; len]), None);
        }
    }

    proptest! {
        #[test]
        fn a_message_is_read_back_and_any_changed_byte_is_noticed(
            source: u16, n in 0_u64..1 << 48, ready: u64, len in 24_usize..300,
            at: prop::sample::Index, flip in 1_u8..,
        ) {
            let mut b = vec![0; len];
            let label = Label { source, n };
            write(&mut b, label, Time::from_ps(ready));
            prop_assert_eq!(read(&b), Some((label, Time::from_ps(ready))));
            b[at.index(len)] ^= flip;
            prop_assert_eq!(read(&b), None);
        }

        /// The tail of an older message under the head of a newer one.
        #[test]
        fn halves_of_two_messages_are_no_message(n in 0_u64..1000, cut in 25_usize..63) {
            let (mut a, mut b) = ([0; 64], [0; 64]);
            write(&mut a, Label { source: 0, n }, Time::ZERO);
            write(&mut b, Label { source: 0, n: n + 1 }, Time::ZERO);
            b[cut..].copy_from_slice(&a[cut..]);
            prop_assert_eq!(read(&b), None);
        }
    }
}
