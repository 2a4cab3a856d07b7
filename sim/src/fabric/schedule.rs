//! Which class sends next: strict priority first, then deficit round robin.

/// How a class gets its turn among the classes of a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Service {
    /// Before every class that is not strict; of two strict ones the higher class goes first.
    Strict,
    /// Bytes in proportion to the weight, at least 1, among the classes that have something to
    /// send.
    Weighted(u32),
}

impl Default for Service {
    fn default() -> Self {
        Self::Weighted(1)
    }
}

/// A class that shares by weight.
#[derive(Copy, Clone, Debug)]
struct Share {
    class: u8,
    /// Bytes that it gets per round.
    quantum: u64,
    /// Bytes that it may still send in this round.
    deficit: u64,
}

/// The scheduler of a port. It knows no queue: it asks for the size of the packet at the head of
/// each.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Highest first.
    strict: Vec<u8>,
    shares: Vec<Share>,
    /// Whose turn it is.
    turn: usize,
}

impl Schedule {
    /// A scheduler of classes 0, 1, … A round gives each weighted class its weight times
    /// `max_packet_bytes`, hence at least one packet.
    ///
    /// # Panics
    /// At a weight or a largest packet of 0: the class would never send.
    pub fn new(services: &[Service], max_packet_bytes: u32) -> Self {
        assert!(max_packet_bytes > 0, "packets without bytes");
        let (mut strict, mut shares) = (Vec::new(), Vec::new());
        for (class, service) in services.iter().enumerate() {
            let class = class as u8;
            match service {
                Service::Strict => strict.insert(0, class),
                Service::Weighted(weight) => {
                    assert!(*weight > 0, "a class of weight 0 never sends");
                    let quantum = u64::from(*weight) * u64::from(max_packet_bytes);
                    shares.push(Share { class, quantum, deficit: 0 });
                }
            }
        }
        if let Some(first) = shares.first_mut() {
            first.deficit = first.quantum;
        }
        Self { strict, shares, turn: 0 }
    }

    /// The class that sends next; `head` gives the bytes of the packet at the head of a class, or
    /// `None` when it has none that may go now. The packet counts as sent.
    ///
    /// A class that has nothing to send when its turn comes loses what it has saved.
    pub fn pick(&mut self, head: impl Fn(u8) -> Option<u32>) -> Option<u8> {
        if let Some(class) = self.strict.iter().find(|class| head(**class).is_some()) {
            return Some(*class);
        }
        // A quantum holds a packet of any size, so the second time round each has had enough.
        for _ in 0..=2 * self.shares.len() {
            let share = self.shares.get_mut(self.turn)?;
            match head(share.class).map(u64::from) {
                Some(bytes) if bytes <= share.deficit => {
                    share.deficit -= bytes;
                    return Some(share.class);
                }
                Some(_) => {}
                None => share.deficit = 0,
            }
            self.turn = (self.turn + 1) % self.shares.len();
            let next = &mut self.shares[self.turn];
            next.deficit += next.quantum;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Service::{Strict, Weighted};
    use proptest::prelude::*;

    #[test]
    fn strict_classes_go_first_the_highest_before_the_others() {
        let mut s = Schedule::new(&[Weighted(1), Strict, Strict], 100);
        assert_eq!(s.pick(|_| Some(100)), Some(2));
        assert_eq!(s.pick(|c| (c < 2).then_some(100)), Some(1));
        assert_eq!(s.pick(|c| (c < 1).then_some(100)), Some(0));
        assert_eq!(s.pick(|_| None), None);
        assert_eq!(Schedule::new(&[Strict], 100).pick(|_| None), None);
    }

    #[test]
    fn weights_share_bytes_and_not_packets() {
        let sizes = [1_000, 250, 100];
        let mut s = Schedule::new(&[Weighted(1), Weighted(2), Weighted(5)], 1_000);
        let mut sent = [0u64; 3];
        for _ in 0..80_000 {
            let c = usize::from(s.pick(|c| Some(sizes[usize::from(c)])).expect("all have some"));
            sent[c] += u64::from(sizes[c]);
        }
        for (class, weight) in [(1, 2), (2, 5)] {
            let (got, want) = (sent[class], sent[0] * weight);
            assert!(got.abs_diff(want) <= 5_000, "class {class}: {got} bytes, not {want}");
        }
    }

    #[test]
    fn the_capacity_of_an_idle_class_goes_to_the_others() {
        let mut s = Schedule::new(&[Weighted(1), Weighted(9)], 1_000);
        assert!((0..100).all(|_| s.pick(|c| (c == 0).then_some(900)) == Some(0)));
        // It has saved nothing while it was idle: one round, then the other's turn.
        let turns: Vec<_> = (0..20).map(|_| s.pick(|_| Some(1_000)).expect("both")).collect();
        assert_eq!(turns.iter().filter(|c| **c == 0).count(), 2, "{turns:?}");
    }

    proptest! {
        /// Whatever is ready and however large, somebody sends, and only who may.
        #[test]
        fn somebody_who_may_is_always_found(
            weights in prop::collection::vec(0u32..4, 1..8),
            steps in prop::collection::vec((any::<u8>(), 1u32..1_000), 1..200),
        ) {
            let services: Vec<_> =
                weights.iter().map(|w| if *w == 0 { Strict } else { Weighted(*w) }).collect();
            let mut s = Schedule::new(&services, 1_000);
            for (ready, bytes) in steps {
                let may = |c: u8| (ready >> c & 1 == 1).then_some(bytes);
                let any = (0..services.len() as u8).any(|c| may(c).is_some());
                let picked = s.pick(may);
                prop_assert_eq!(picked.is_some(), any);
                prop_assert!(picked.is_none_or(|c| may(c).is_some()));
            }
        }
    }
}
