//! Entries of a completion queue, given out so that it cannot overrun.

use core::fmt;

/// Entries that one user of a completion queue may fill. It cannot be copied: who holds it may have
/// so many work requests whose completions have not been polled.
#[derive(PartialEq, Eq, Debug)]
pub struct CqShare(u32);

impl CqShare {
    /// Entries.
    pub const fn entries(&self) -> u32 {
        self.0
    }
}

/// A completion queue has not so many entries left.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CqTooSmall {
    /// Entries asked for.
    pub asked: u32,
    /// Entries that nobody has.
    pub left: u32,
}

impl fmt::Display for CqTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, left } = self;
        write!(
            f,
            "{asked} entries of a completion queue that has {left} left: create it with {} more",
            asked.saturating_sub(*left)
        )
    }
}

impl core::error::Error for CqTooSmall {}

/// Gives out the entries of one completion queue.
///
/// When a queue pair fails, *every* outstanding work request completes, those that were not
/// signalled too. So what each user needs is an entry for every work request that it may have
/// outstanding, sends and receives, and no fewer because it signals rarely. [`Sender`] and
/// [`RecvPool`] keep to their share; a queue whose users all do cannot overrun.
///
/// [`Sender`]: super::Sender
/// [`RecvPool`]: super::RecvPool
///
/// ```
/// use doorbell_core::policy::CqBudget;
///
/// let mut budget = CqBudget::new(256);
/// let sends = budget.take(128).unwrap();
/// let receives = budget.take(128).unwrap();
/// assert_eq!(budget.take(1).unwrap_err().left, 0);
/// budget.give_back(sends);
/// assert_eq!((budget.left(), receives.entries()), (128, 128));
/// ```
#[derive(PartialEq, Eq, Debug)]
pub struct CqBudget {
    left: u32,
}

impl CqBudget {
    /// The entries of a completion queue of that depth.
    pub const fn new(depth: u32) -> Self {
        Self { left: depth }
    }

    /// Entries that nobody has.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Takes entries out.
    ///
    /// # Errors
    /// Fewer are left; nothing was taken.
    pub const fn take(&mut self, entries: u32) -> Result<CqShare, CqTooSmall> {
        match self.left.checked_sub(entries) {
            Some(left) => {
                self.left = left;
                Ok(CqShare(entries))
            }
            None => Err(CqTooSmall { asked: entries, left: self.left }),
        }
    }

    /// Puts a share back. Its user must have polled all its completions, or destroyed its queue
    /// pair and polled what was left.
    pub fn give_back(&mut self, share: CqShare) {
        self.left += share.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn the_message_names_what_is_missing() {
        let mut b = CqBudget::new(3);
        assert!(b.take(3).is_ok());
        let e = b.take(2).unwrap_err();
        assert_eq!(e, CqTooSmall { asked: 2, left: 0 });
        assert!(e.to_string().ends_with("create it with 2 more"), "{e}");
    }

    proptest! {
        /// Whoever comes and goes, no more entries are given out than there are.
        #[test]
        fn shares_and_what_is_left_are_the_whole(
            depth in 0..200_u32, ops in prop::collection::vec((any::<bool>(), 0..80_u32), 0..60)
        ) {
            let (mut budget, mut shares) = (CqBudget::new(depth), Vec::new());
            for (take, n) in ops {
                if take {
                    let left = budget.left();
                    match budget.take(n) {
                        Ok(share) => shares.push(share),
                        Err(e) => prop_assert_eq!(e, CqTooSmall { asked: n, left }),
                    }
                } else if !shares.is_empty() {
                    budget.give_back(shares.swap_remove(n as usize % shares.len()));
                }
                let out: u32 = shares.iter().map(CqShare::entries).sum();
                prop_assert_eq!(out + budget.left(), depth);
            }
        }
    }
}
