//! Which messages of a producer have come, where a service loses, repeats and reorders them.

/// The numbers of one producer that a receiver of an unreliable service has seen.
///
/// A message that comes late is as good as any. One that is whole and has come before is either
/// the same packet twice, or an old work request or buffer in the place of the message that was
/// due: which of them is known only at the end, when that message has come as well or has not.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// A bit for each number.
    seen: Vec<u64>,
    /// Behind the highest number that has come.
    next: u64,
    /// Numbers since then that told no new number.
    behind: u64,
    /// The numbers in whose place a message was that had come before.
    again: Vec<u64>,
}

impl Numbers {
    /// Whether message `n` has come.
    pub fn has(&self, n: u64) -> bool {
        self.seen.get((n / 64) as usize).is_some_and(|w| w >> (n % 64) & 1 == 1)
    }

    /// The number behind the highest one that has come.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Message `n` has come; whether it is the first time.
    pub fn take(&mut self, n: u64) -> bool {
        if self.has(n) {
            self.again.push(self.next + self.behind);
            self.behind += 1;
            return false;
        }
        let word = (n / 64) as usize;
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= 1 << (n % 64);
        if n >= self.next {
            (self.next, self.behind) = (n + 1, 0);
        }
        true
    }

    /// A message has come whose number nobody knows.
    pub const fn take_unknown(&mut self) {
        self.behind += 1;
    }

    /// Messages that came again.
    pub const fn again(&self) -> u64 {
        self.again.len() as u64
    }

    /// Messages that came again: those in whose place one of the `sent` never came, and the rest.
    pub fn repeated(&self, sent: u64) -> (u64, u64) {
        let instead = self.again.iter().filter(|n| **n < sent && !self.has(**n)).count() as u64;
        (instead, self.again.len() as u64 - instead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Numbers {
        let mut a = Numbers::default();
        numbers.iter().for_each(|n| _ = a.take(*n));
        a
    }

    #[test]
    fn what_came_again_is_a_copy_unless_the_message_due_never_came() {
        let cases: [(&[u64], (u64, u64)); 6] = [
            (&[0, 1, 2, 3], (0, 0)),
            (&[0, 2, 1, 3], (0, 0)),
            (&[0, 1, 1, 2, 3], (0, 1)),
            (&[0, 1, 1, 3], (1, 0)),
            (&[0, 1, 1, 3, 2], (0, 1)),
            (&[0, 1, 2, 3, 3], (0, 1)),
        ];
        for (numbers, repeated) in cases {
            assert_eq!(of(numbers).repeated(4), repeated, "{numbers:?}");
        }
        assert_eq!(of(&[0, 0, 0, 3]).repeated(4), (2, 0), "in the place of 1 and of 2");
        assert_eq!(of(&[200, 64]).next(), 201);
        assert!(of(&[200, 64]).has(64) && !of(&[200, 64]).has(63));
    }
}
