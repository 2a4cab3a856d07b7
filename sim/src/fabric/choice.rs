//! Which of several equally short ways a packet takes.

use doorbell_core::verbs::Psn;

use super::config::{HashSeed, Routing};
use crate::engine::key::mix64;
use crate::wire::{Head, PortId};

/// Distance of the seeds of neighbouring switches: 2^64 by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A switch's rule among the output ports that lead to a destination. Asked only when there is
/// more than one, so that the hop of a packet with one way costs no hash.
#[derive(Copy, Clone, Debug)]
pub(super) enum Choice {
    Destination,
    Hash(u64),
    LeastLoaded(u64),
}

impl Choice {
    /// The rule of switch `index` in a run with `seed`.
    pub(super) fn of(routing: Routing, seed: u64, index: usize) -> Self {
        let own = mix64(mix64(seed.wrapping_add(STEP)) ^ (index as u64 + 1).wrapping_mul(STEP));
        match routing {
            Routing::Destination => Self::Destination,
            Routing::Ecmp(HashSeed::PerSwitch) => Self::Hash(own),
            Routing::Ecmp(HashSeed::Same) => Self::Hash(0),
            Routing::Adaptive => Self::LeastLoaded(own),
        }
    }

    /// The way that all packets of a flow take, if it does not depend on what else goes on.
    pub(super) fn of_flow(self, ways: &[PortId], address: usize, tuple: u64) -> Option<PortId> {
        match self {
            Self::Destination => Some(by_destination(ways, address)),
            Self::Hash(seed) => Some(by_hash(ways, seed, tuple)),
            Self::LeastLoaded(_) => None,
        }
    }

    /// One of at least two `ways`; `psn` is the packet's, `load` is what waits at a port.
    pub(super) fn among(
        self,
        ways: &[PortId],
        head: &Head,
        psn: impl FnOnce() -> Psn,
        load: impl Fn(PortId) -> u64,
    ) -> PortId {
        match self {
            Self::Destination => by_destination(ways, head.dst.index() + head.dst_port.index()),
            Self::Hash(seed) => by_hash(ways, seed, head.five_tuple()),
            Self::LeastLoaded(seed) => {
                let least = ways.iter().map(|w| load(*w)).min().expect("at least two ways");
                let mut equal = ways.iter().copied().filter(|w| load(*w) == least);
                let psn = u64::from(psn().value()).wrapping_mul(STEP);
                let nth = scale(mix64(head.five_tuple() ^ seed ^ psn), equal.clone().count());
                equal.nth(nth).expect("below their number")
            }
        }
    }
}

/// The way of everything with one five-tuple.
fn by_hash(ways: &[PortId], seed: u64, tuple: u64) -> PortId {
    ways[scale(mix64(tuple ^ seed), ways.len())]
}

/// The way of everything for one address.
pub(super) fn by_destination(ways: &[PortId], address: usize) -> PortId {
    ways[address % ways.len()]
}

/// A number below `n` from the upper half of a hash, each as often as the others.
const fn scale(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_scaled_to_every_number_below_n() {
        for n in 1..=17usize {
            assert_eq!(scale(0, n), 0);
            assert_eq!(scale(u64::MAX, n), n - 1);
            let step = (1u64 << 32).div_ceil(n as u64);
            for i in 0..n {
                assert_eq!(scale((step * i as u64) << 32, n), i, "{i} of {n}");
            }
        }
    }

    #[test]
    fn seeds_differ_by_switch_and_by_run_unless_they_are_the_same() {
        let seed = |routing, run, switch| match Choice::of(routing, run, switch) {
            Choice::Hash(s) | Choice::LeastLoaded(s) => s,
            Choice::Destination => panic!("no seed"),
        };
        let own = Routing::Ecmp(HashSeed::PerSwitch);
        assert_ne!(seed(own, 1, 0), seed(own, 1, 1));
        assert_ne!(seed(own, 1, 0), seed(own, 2, 0));
        assert_eq!(seed(own, 1, 7), seed(Routing::Adaptive, 1, 7));
        let same = Routing::Ecmp(HashSeed::Same);
        assert_eq!(seed(same, 1, 0), seed(same, 2, 9));
    }
}
