//! The trace hash: what two runs must have in common to count as the same run.

use std::fmt;
use std::str::FromStr;

use super::key::mix64;

/// One hash over everything that every component traced, in component order.
///
/// Prints as 16 hexadecimal digits. Equal for equal seeds and configurations on every platform
/// and build; it changes when the model's behaviour changes, and a change is to be explained in
/// the change log.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TraceHash(pub u64);

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not a trace hash: 16 hexadecimal digits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ParseTraceHashError;

impl fmt::Display for ParseTraceHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace hash is 16 hexadecimal digits")
    }
}

impl std::error::Error for ParseTraceHashError {}

impl FromStr for TraceHash {
    type Err = ParseTraceHashError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        // `from_str_radix` would accept a sign and any length.
        if s.len() != 16 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseTraceHashError);
        }
        u64::from_str_radix(s, 16).map(Self).map_err(|_| ParseTraceHashError)
    }
}

/// The hash of one component's own trace.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ComponentTrace {
    hash: u64,
    /// Records folded in; a component without any leaves the run's hash alone.
    records: u64,
}

impl ComponentTrace {
    /// Folds one record in. Two rounds of "exclusive or, rotate, multiply by an odd number":
    /// each round can be undone for a given record, so the history is never lost, and the
    /// factors of a round do not wait for each other.
    #[inline]
    pub(crate) fn fold(&mut self, time: u64, kind: u32, a: u64, b: u64) {
        let when = time.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(kind).wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(32);
        let what = a.wrapping_mul(0x1656_67b1_9e37_79f9)
            ^ b.wrapping_mul(0x85eb_ca77_c2b2_ae63).rotate_left(32);
        self.hash = (self.hash ^ when).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.hash = (self.hash ^ what).rotate_left(29).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.records += 1;
    }

    pub(crate) fn records(self) -> u64 {
        self.records
    }

    /// The hash of this component alone, its name included.
    pub(crate) fn named(self, name: &str) -> TraceHash {
        TraceHash(mix64(mix64(self.hash ^ fnv1a(name)) ^ self.records))
    }
}

/// Folds the hashes of components in their order. Components that traced nothing are left out,
/// so that an observer, which is a component as well, changes no hash.
pub(crate) fn fold_components<'a>(
    all: impl Iterator<Item = (&'a str, ComponentTrace)>,
) -> TraceHash {
    let traced = all.filter(|(_, trace)| trace.records > 0);
    TraceHash(traced.fold(0, |h, (name, trace)| {
        mix64(h.rotate_left(17).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ trace.named(name).0)
    }))
}

/// FNV-1a, 64 bits (draft-eastlake-fnv): stable, and names are short.
pub(crate) fn fnv1a(s: &str) -> u64 {
    s.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(records: &[(u64, u32, u64, u64)]) -> ComponentTrace {
        let mut trace = ComponentTrace::default();
        for &(time, kind, a, b) in records {
            trace.fold(time, kind, a, b);
        }
        trace
    }

    fn run(components: &[(&str, ComponentTrace)]) -> TraceHash {
        fold_components(components.iter().copied())
    }

    #[test]
    fn text_and_back() {
        for (value, text) in
            [(0, "0000000000000000"), (0xab, "00000000000000ab"), (u64::MAX, "ffffffffffffffff")]
        {
            assert_eq!(TraceHash(value).to_string(), text);
            assert_eq!(text.parse(), Ok(TraceHash(value)));
        }
        for bad in ["", "0", "+000000000000000", "00000000000000000", "000000000000000g", "0x"] {
            assert_eq!(bad.parse::<TraceHash>(), Err(ParseTraceHashError), "{bad}");
        }
    }

    #[test]
    fn every_field_of_a_record_counts() {
        let base = (5, 6, 7, 8);
        let hash = run(&[("a", traced(&[base]))]);
        for other in [
            (4, 6, 7, 8),
            (5, 7, 7, 8),
            (5, 6, 6, 8),
            (5, 6, 7, 9),
            (6, 5, 7, 8),
            (5, 6, 8, 7),
            (7, 6, 5, 8),
        ] {
            assert_ne!(run(&[("a", traced(&[other]))]), hash, "{other:?}");
        }
    }

    #[test]
    fn order_within_a_component_and_names_and_order_of_components_count() {
        let (x, y) = (traced(&[(1, 0, 0, 0)]), traced(&[(2, 0, 0, 0)]));
        assert_ne!(
            run(&[("a", traced(&[(1, 1, 0, 0), (1, 2, 0, 0)]))]),
            run(&[("a", traced(&[(1, 2, 0, 0), (1, 1, 0, 0)]))])
        );
        let all = [
            run(&[("a", x), ("b", y)]),
            run(&[("b", x), ("a", y)]),
            run(&[("b", y), ("a", x)]),
            run(&[("a", x), ("c", y)]),
            run(&[("a", x)]),
            run(&[]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
        }
    }

    /// A record of zeros must not vanish, and a zero factor must not wipe out the history.
    #[test]
    fn zeros_count() {
        let mut seen = Vec::new();
        for n in 0..100 {
            let mut trace = traced(&[(3, 1, 4, 1)]);
            for _ in 0..n {
                trace.fold(0, 0, 0, 0);
            }
            seen.push(trace.named("z"));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn small_structured_records_do_not_collide() {
        let mut seen = Vec::new();
        for time in 0..16 {
            for kind in 0..8 {
                for a in 0..16 {
                    for b in 0..16 {
                        seen.push(traced(&[(time * 1_000, kind, a, b)]).named("n"));
                    }
                }
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn a_component_that_traced_nothing_is_left_out() {
        let (x, none) = (traced(&[(1, 0, 0, 0)]), ComponentTrace::default());
        assert_eq!(run(&[("a", x)]), run(&[("a", x), ("observer", none)]));
    }

    /// Frozen: stored hashes of users depend on it. Computed a second time outside this code.
    #[test]
    fn golden() {
        let x = traced(&[(1_000, 1, 2, 3), (2_000, 4, 5, u64::MAX)]);
        let y = traced(&[(0, 0, 0, 0)]);
        assert_eq!(run(&[("host0", x), ("switch", y)]).to_string(), "0bf3230921490d7d");
    }
}
