//! A cable: rate and propagation delay, the same in both directions.

use doorbell_core::units::{BitRate, Span};

/// Propagation delay of a metre of fibre or copper, 5 ns: light in glass takes 4.9 ns.
pub const PROPAGATION_PER_MM: Span = Span::from_ps(5);

/// A full-duplex link. Both directions carry the full rate at the same time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Data rate of one direction, after line coding (FDR: 54.5 Gb/s, not 56).
    pub rate: BitRate,
    /// Time from a bit's departure to its arrival; at least 1 ps, because what is joined by a
    /// link of no delay could not be simulated apart.
    pub propagation: Span,
    /// Largest packet that the link takes, in bytes on the wire; a larger one is dropped with
    /// [`DropCause::Oversize`](super::DropCause::Oversize). `None`: any. An MTU in the words of a
    /// link layer becomes such a number by
    /// [`Encapsulation::largest_packet`](crate::wire::Encapsulation::largest_packet).
    pub max_packet_bytes: Option<u32>,
    /// Whether its two ports send and obey pause frames, where there is priority flow control. With
    /// `false` a lossless class is lossy here.
    pub pfc: bool,
}

impl Link {
    /// A link of the given delay.
    pub const fn new(rate: BitRate, propagation: Span) -> Self {
        Self { rate, propagation, max_packet_bytes: None, pfc: true }
    }

    /// A link of `mm` millimetres at [`PROPAGATION_PER_MM`].
    pub const fn with_length_mm(rate: BitRate, mm: u32) -> Self {
        Self::new(rate, Span::from_ps(PROPAGATION_PER_MM.as_ps() * mm as u64))
    }

    /// The same link, which takes no packet of more than `bytes` on the wire.
    #[must_use]
    pub const fn up_to(self, bytes: u32) -> Self {
        Self { max_packet_bytes: Some(bytes), ..self }
    }

    /// The same link, whose ports know no pause frames.
    #[must_use]
    pub const fn without_pfc(self) -> Self {
        Self { pfc: false, ..self }
    }

    /// Largest packet, with a number for "any".
    pub(super) fn limit(&self) -> u32 {
        self.max_packet_bytes.unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metre_is_five_nanoseconds() {
        let l = Link::with_length_mm(BitRate::gbps(100), 1_000);
        assert_eq!(l.propagation, Span::from_ns(5));
        assert_eq!(Link::with_length_mm(BitRate::gbps(100), 0).propagation, Span::ZERO);
    }
}
