//! Application-level credits: a sender never has more messages under way than its peer has
//! receives for.

use super::RecvPoolConfig;

/// The sending side: how many messages it may still send.
///
/// The receiver says a *total*: how many messages it has had receives for since the beginning. So a
/// grant that is late, lost or repeated does no harm; the next one says it all again. Totals wrap
/// at 2^32.
///
/// ```
/// use doorbell_core::policy::{CreditGate, CreditIssuer};
///
/// let (mut gate, mut issuer) = (CreditGate::new(4), CreditIssuer::new(4, 2));
/// assert!((0..4).all(|_| gate.spend()) && !gate.spend());
/// assert_eq!(issuer.reposted(1), None);
/// let total = issuer.reposted(1).unwrap();
/// assert_eq!((gate.grant(total), gate.available()), (2, 2));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CreditGate {
    sent: u32,
    total: u32,
}

impl CreditGate {
    /// A gate towards a peer that has posted `initial` receives. Not more than 2^31.
    pub const fn new(initial: u32) -> Self {
        Self { sent: 0, total: initial }
    }

    /// Messages that may be sent now.
    #[inline]
    pub const fn available(&self) -> u32 {
        self.total.wrapping_sub(self.sent)
    }

    /// Takes a credit for one message. False: there is none; wait for a grant.
    #[inline]
    pub const fn spend(&mut self) -> bool {
        let may = self.available() > 0;
        if may {
            self.sent = self.sent.wrapping_add(1);
        }
        may
    }

    /// The message for which a credit was taken was not sent after all.
    pub const fn take_back(&mut self) {
        self.sent = self.sent.wrapping_sub(1);
    }

    /// The receiver has said a total. Returns by how much it is new: 0 for an old one.
    pub const fn grant(&mut self, total: u32) -> u32 {
        let new = total.wrapping_sub(self.total);
        // Half of the numbers are ahead, half behind.
        if new > u32::MAX / 2 {
            return 0;
        }
        self.total = total;
        new
    }
}

/// The receiving side: says when the peer should hear of receives that were posted again.
///
/// How the total travels is the program's affair. An RDMA WRITE of 4 bytes into the peer's memory
/// costs it no receive. A SEND takes one, for which the peer keeps receives aside that its own
/// gates do not count; else both sides may wait for each other's credits for ever.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CreditIssuer {
    total: u32,
    said: u32,
    every: u32,
}

impl CreditIssuer {
    /// `initial` receives are posted. A grant is due after `every` more. Higher: fewer messages
    /// that carry nothing else; above half of `initial` the peer may run dry before it hears.
    /// 0 counts as 1, and it is lowered to `initial`, since a peer without credits sends nothing.
    /// For receives of a [`RecvPool`](super::RecvPool) take [`of_pool`](CreditIssuer::of_pool).
    pub const fn new(initial: u32, every: u32) -> Self {
        let every = if every > initial { initial } else { every };
        Self { total: initial, said: initial, every: if every == 0 { 1 } else { every } }
    }

    /// For a filled pool with these settings, and one peer. `every` is lowered to `slots` + 1 -
    /// `batch`: up to `batch` - 1 receives wait in the pool to be posted, and a grant that waits
    /// for them never comes.
    pub const fn of_pool(pool: &RecvPoolConfig, every: u32) -> Self {
        let RecvPoolConfig { slots, batch, .. } = *pool;
        let waiting = batch.saturating_sub(1);
        let told = if waiting < slots { slots - waiting } else { 1 };
        Self::new(slots, if every > told { told } else { every })
    }

    /// `n` receives were posted again. The total to tell the peer, if that is due.
    pub const fn reposted(&mut self, n: u32) -> Option<u32> {
        self.total = self.total.wrapping_add(n);
        if self.total.wrapping_sub(self.said) < self.every {
            return None;
        }
        Some(self.say())
    }

    /// The total now: for a message to the peer that is sent anyway. Nothing is due afterwards.
    pub const fn say(&mut self) -> u32 {
        self.said = self.total;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn totals_wrap_and_old_ones_do_no_harm() {
        let mut gate = CreditGate { sent: u32::MAX - 1, total: u32::MAX };
        assert_eq!(gate.available(), 1);
        assert_eq!((gate.grant(2), gate.available()), (3, 4));
        assert_eq!([gate.grant(2), gate.grant(u32::MAX), gate.grant(1)], [0; 3]);
        assert!((0..4).all(|_| gate.spend()) && !gate.spend());
        gate.take_back();
        assert!(gate.spend() && !gate.spend());
    }

    #[test]
    fn a_grant_is_due_at_its_number_and_not_one_before() {
        let mut issuer = CreditIssuer::new(8, 3);
        assert_eq!([issuer.reposted(2), issuer.reposted(1)], [None, Some(11)]);
        assert_eq!([issuer.reposted(5), issuer.reposted(0)], [Some(16), None]);
        assert_eq!((issuer.reposted(1), issuer.say(), issuer.reposted(2)), (None, 17, None));
        assert_eq!(CreditIssuer::new(8, 0).reposted(1), Some(9));
        assert_eq!(CreditIssuer::new(2, 99).reposted(2), Some(4));
    }

    proptest! {
        /// Grants arrive late, in any order, twice or never: messages under way never exceed the
        /// receives, and once all grants but the last are lost nothing is stuck.
        #[test]
        fn messages_never_exceed_receives(
            (initial, every) in (1..10u32, 0..12u32),
            ops in prop::collection::vec((0..4u8, 0..8usize), 0..120),
        ) {
            let mut gate = CreditGate::new(initial);
            let mut issuer = CreditIssuer::new(initial, every);
            let (mut posted, mut used) = (initial, 0);
            let mut grants: Vec<u32> = Vec::new();
            for (op, n) in ops {
                match op {
                    0 | 1 => if gate.spend() {
                        prop_assert!(posted > 0, "a message without a receive");
                        posted -= 1;
                        used += 1;
                    },
                    2 => if used > 0 {
                        posted += 1;
                        used -= 1;
                        grants.extend(issuer.reposted(1));
                    },
                    _ => if let Some(total) = grants.get(n) {
                        gate.grant(*total);
                    },
                }
                prop_assert!(gate.available() <= posted);
            }
            for _ in 0..used {
                posted += 1;
                grants.extend(issuer.reposted(1));
            }
            gate.grant(issuer.say());
            prop_assert_eq!((gate.available(), posted), (initial, initial));
        }
    }
}
