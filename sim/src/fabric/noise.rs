//! Noise at the input of a switch.

use doorbell_core::units::Span;

use crate::engine::SimRng;

/// The random delay that packets take to pass the input of a switch, below a bound.
///
/// It is added to a packet's own arrival and never to a delay before it, so it does not
/// accumulate; the port keeps the order of the packets.
#[derive(Clone, Debug)]
pub(super) struct IngressNoise {
    rng: SimRng,
    bound_ps: u64,
}

impl IngressNoise {
    /// Noise in `0..bound`; `None` when the bound is zero.
    pub(super) fn new(rng: SimRng, bound: Span) -> Option<Self> {
        (bound > Span::ZERO).then(|| Self { rng, bound_ps: bound.as_ps() })
    }

    pub(super) fn draw(&mut self) -> Span {
        Span::from_ps(self.rng.below(self.bound_ps))
    }
}
