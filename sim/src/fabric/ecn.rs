//! ECN marking by a switch: which packets get CE, by the length of their queue (RED).

use core::fmt;

use doorbell_core::units::Ratio;

use crate::engine::SimRng;
use crate::wire::codec::Ecn;

/// When a packet is marked.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum MarkAt {
    /// As it enters its queue, by what waits before it.
    Enqueue,
    /// As it leaves its queue, by what waits behind it: the sender hears of a queue as it is, not
    /// as it was when the packet came.
    #[default]
    Dequeue,
}

/// The marking curve of a class. The queue is what waits for the output port in the class, in bytes
/// on the wire; neither the packet itself nor the one being sent counts.
///
/// Chance of a mark: none up to `kmin`, 1 above `kmax`, between them from 0 to `pmax` in proportion
/// (protocol.md §7.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EcnConfig {
    /// Bytes up to which nothing is marked. Lower: shorter queues, and less throughput where the
    /// control reacts strongly.
    pub kmin: u64,
    /// Bytes above which everything is marked.
    pub kmax: u64,
    /// Chance of a mark at `kmax`, at most 1.
    pub pmax: Ratio,
    /// When.
    pub at: MarkAt,
}

impl Default for EcnConfig {
    /// 100 KB, 400 KB and 0.2 (HPCC simulator, 25 Gb/s).
    fn default() -> Self {
        let pmax = Ratio { num: 1, den: 5 };
        Self { kmin: 100_000, kmax: 400_000, pmax, at: MarkAt::default() }
    }
}

/// Why no marking is possible.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EcnError {
    /// The curve goes backwards.
    KminAboveKmax {
        /// Lower threshold.
        kmin: u64,
        /// Upper threshold.
        kmax: u64,
    },
    /// A queue never gets so long.
    KmaxAboveBuffer {
        /// Upper threshold.
        kmax: u64,
        /// Most bytes that a queue may hold.
        buffer: u64,
    },
    /// A chance of more than 1.
    PmaxAboveOne {
        /// The chance.
        pmax: Ratio,
    },
}

impl fmt::Display for EcnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KminAboveKmax { kmin, kmax } => write!(
                f,
                "ECN marking begins at {kmin} bytes (kmin) and is complete at {kmax} (kmax): kmin \
                 must not be larger"
            ),
            Self::KmaxAboveBuffer { kmax, buffer } => write!(
                f,
                "ECN marks everything above {kmax} bytes (kmax), and a queue holds {buffer} at \
                 most: lower kmax"
            ),
            Self::PmaxAboveOne { pmax } => {
                write!(f, "ECN marks with a chance of {}/{} (pmax): at most 1", pmax.num, pmax.den)
            }
        }
    }
}

impl std::error::Error for EcnError {}

impl EcnConfig {
    /// Whether the curve makes sense for a queue of at most `buffer` bytes.
    ///
    /// # Errors
    /// [`EcnError`].
    pub const fn check(&self, buffer: u64) -> Result<(), EcnError> {
        let Self { kmin, kmax, pmax, at: _ } = *self;
        if kmin > kmax {
            return Err(EcnError::KminAboveKmax { kmin, kmax });
        }
        if kmax > buffer {
            return Err(EcnError::KmaxAboveBuffer { kmax, buffer });
        }
        if pmax.num > pmax.den {
            return Err(EcnError::PmaxAboveOne { pmax });
        }
        Ok(())
    }

    /// Whether a packet is marked when `queue` bytes wait. Draws only between the thresholds.
    fn marks(&self, queue: u64, rng: &mut SimRng) -> bool {
        if queue <= self.kmin {
            return false;
        }
        if queue > self.kmax {
            return true;
        }
        let part = u128::from(self.pmax.num) * u128::from(queue - self.kmin);
        let whole = u128::from(self.pmax.den) * u128::from(self.kmax - self.kmin);
        // The chance in units of 2^-64; both are cut to 64 bits first, so that it fits.
        let cut = (128 - whole.leading_zeros()).saturating_sub(64);
        let chance = ((part >> cut) << 64) / (whole >> cut);
        u128::from(rng.next_u64()) < chance
    }
}

/// The marking of one output port: a curve per class and one random stream.
#[derive(Clone, Debug)]
pub(super) struct Marking {
    curves: Vec<Option<EcnConfig>>,
    rng: SimRng,
    /// Packets marked, by class.
    marked: Vec<u64>,
}

impl Marking {
    /// `None` when no class is marked.
    pub fn new(curves: Vec<Option<EcnConfig>>, rng: SimRng) -> Option<Self> {
        let marked = vec![0; curves.len()];
        curves.iter().any(Option::is_some).then_some(Self { curves, rng, marked })
    }

    /// A packet of `class` passes, and `queue` bytes of the class wait.
    pub fn pass(&mut self, at: MarkAt, class: u8, queue: u64, ecn: &mut Ecn) {
        let class = usize::from(class);
        let Some(curve) = self.curves[class].filter(|c| c.at == at) else { return };
        // A packet that is marked already, or whose ends know no ECN, takes no draw.
        if matches!(ecn, Ecn::Ect0 | Ecn::Ect1) && curve.marks(queue, &mut self.rng) {
            *ecn = Ecn::Ce;
            self.marked[class] += 1;
        }
    }

    /// The curve of a class.
    pub fn curve(&self, class: u8) -> Option<EcnConfig> {
        self.curves.get(usize::from(class)).copied().flatten()
    }

    /// Packets marked in a class.
    pub fn marked(&self, class: u8) -> u64 {
        self.marked.get(usize::from(class)).copied().unwrap_or(0)
    }

    /// Packets marked in all classes.
    pub fn marked_in_all(&self) -> u64 {
        self.marked.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: EcnConfig =
        EcnConfig { kmin: 1_000, kmax: 5_000, pmax: Ratio { num: 1, den: 2 }, at: MarkAt::Enqueue };

    fn rng() -> SimRng {
        SimRng::stream(1, "switch0.port0", "ecn")
    }

    #[test]
    fn thresholds_decide_alone_outside_of_the_slope() {
        let mut r = rng();
        let next = r.clone().next_u64();
        assert!(!CURVE.marks(0, &mut r) && !CURVE.marks(1_000, &mut r));
        assert!(CURVE.marks(5_001, &mut r) && CURVE.marks(u64::MAX, &mut r));
        assert_eq!(r.next_u64(), next, "nothing was drawn");
    }

    #[test]
    fn chances_on_the_slope_are_in_proportion() {
        let mut r = rng();
        for (queue, percent) in [(1_001, 0), (2_000, 12), (3_000, 25), (4_000, 37), (5_000, 50)] {
            let n = 100_000;
            let marks = (0..n).filter(|_| CURVE.marks(queue, &mut r)).count() as u64;
            let expected = n * (queue - 1_000) / 8_000;
            assert!(marks.abs_diff(expected) < 600, "{queue}: {marks}, about {percent} %");
        }
    }

    #[test]
    fn a_step_has_no_slope() {
        let step = EcnConfig { kmax: 1_000, ..CURVE };
        let mut r = rng();
        assert!(!step.marks(1_000, &mut r) && step.marks(1_001, &mut r));
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let pmax = Ratio { num: u64::MAX / 2, den: u64::MAX };
        let c = EcnConfig { kmin: 0, kmax: u64::MAX, pmax, at: MarkAt::Enqueue };
        let mut r = rng();
        let marks = (0..10_000).filter(|_| c.marks(u64::MAX / 2, &mut r)).count();
        assert!((2_300..2_700).contains(&marks), "a quarter, not {marks}");
        let sure = EcnConfig { pmax: Ratio { num: 7, den: 7 }, ..c };
        assert!((0..1_000).all(|_| sure.marks(u64::MAX, &mut r)), "pmax 1 at kmax");
    }

    #[test]
    fn only_packets_of_ect_are_marked() {
        let mut m = Marking::new(vec![None, Some(CURVE)], rng()).expect("a curve");
        for (ecn, after) in [
            (Ecn::Ect0, Ecn::Ce),
            (Ecn::Ect1, Ecn::Ce),
            (Ecn::Ce, Ecn::Ce),
            (Ecn::NotEct, Ecn::NotEct),
        ] {
            let mut e = ecn;
            m.pass(MarkAt::Enqueue, 1, 6_000, &mut e);
            assert_eq!(e, after);
        }
        let mut e = Ecn::Ect0;
        m.pass(MarkAt::Dequeue, 1, 6_000, &mut e);
        m.pass(MarkAt::Enqueue, 0, 6_000, &mut e);
        assert_eq!(e, Ecn::Ect0, "another instant, another class");
        assert_eq!((m.marked(0), m.marked(1), m.marked_in_all()), (0, 2, 2));
        assert!(Marking::new(vec![None], rng()).is_none());
    }

    #[test]
    fn curves_are_checked_on_both_sides() {
        let ok = |kmin, kmax, num| {
            EcnConfig { kmin, kmax, pmax: Ratio { num, den: 5 }, at: MarkAt::Enqueue }.check(9)
        };
        assert_eq!(ok(9, 9, 5), Ok(()));
        assert_eq!(ok(9, 8, 1), Err(EcnError::KminAboveKmax { kmin: 9, kmax: 8 }));
        assert_eq!(ok(1, 10, 1), Err(EcnError::KmaxAboveBuffer { kmax: 10, buffer: 9 }));
        let pmax = Ratio { num: 6, den: 5 };
        assert_eq!(ok(1, 2, 6), Err(EcnError::PmaxAboveOne { pmax }));
    }
}
