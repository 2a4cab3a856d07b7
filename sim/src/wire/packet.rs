//! A packet in flight.

use core::fmt;

use super::id::{HostId, PortId};

/// Payloads up to this size are kept inside the packet; longer ones on the heap. Holds inline
/// words, immediates and atomics, and keeps [`Payload`] at 32 bytes.
pub const SMALL_PAYLOAD: usize = 30;

/// The payload bytes that a packet carries.
///
/// The length is in the packet's descriptor; here are only the bytes, and only where a region is
/// real. A packet from a virtual region takes the same time on the wire and carries nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Payload {
    /// The packet has no payload.
    #[default]
    None,
    /// The payload comes from a virtual region: it has a length and no bytes.
    Lengths,
    /// Few bytes.
    Small {
        /// How many of `bytes` count.
        len: u8,
        /// The bytes, zero from `len` on.
        bytes: [u8; SMALL_PAYLOAD],
    },
    /// Many bytes.
    Heap(Box<[u8]>),
}

impl Payload {
    /// A copy of `data`; allocates only above [`SMALL_PAYLOAD`] bytes.
    pub fn copy_from(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self::None;
        }
        if data.len() > SMALL_PAYLOAD {
            return Self::Heap(data.into());
        }
        let mut bytes = [0; SMALL_PAYLOAD];
        bytes[..data.len()].copy_from_slice(data);
        Self::Small { len: data.len() as u8, bytes }
    }

    /// The bytes: `None` for a virtual region, empty without payload.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::None => Some(&[]),
            Self::Lengths => None,
            Self::Small { len, bytes } => Some(&bytes[..usize::from(*len)]),
            Self::Heap(bytes) => Some(bytes),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            None => write!(f, "virtual"),
            Some(b) => write!(f, "{} bytes", b.len()),
        }
    }
}

/// A packet. It lives in the run's arena from its transmission to its arrival or its loss.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The sending host,
    pub src: HostId,
    /// and its port.
    pub src_port: PortId,
    /// The destination,
    pub dst: HostId,
    /// and its port.
    pub dst_port: PortId,
    /// Bytes on the wire, everything included.
    pub wire_bytes: u32,
    /// UDP source port of RoCEv2, the entropy of the path choice; native InfiniBand: unused.
    pub udp_source_port: u16,
    /// The payload bytes.
    pub payload: Payload,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_stays_small() {
        assert_eq!(core::mem::size_of::<Payload>(), 32);
    }

    #[test]
    fn payload_moves_to_the_heap_above_its_limit() {
        let data: Vec<u8> = (0..=SMALL_PAYLOAD as u8).collect();
        let small = Payload::copy_from(&data[..SMALL_PAYLOAD]);
        assert!(matches!(small, Payload::Small { len, .. } if usize::from(len) == SMALL_PAYLOAD));
        assert_eq!(small.bytes(), Some(&data[..SMALL_PAYLOAD]));
        let heap = Payload::copy_from(&data);
        assert!(matches!(heap, Payload::Heap(_)));
        assert_eq!(heap.bytes(), Some(&data[..]));
    }

    #[test]
    fn no_payload_is_not_a_virtual_one() {
        assert_eq!(Payload::copy_from(&[]), Payload::None);
        assert_eq!(Payload::None.bytes(), Some(&[][..]));
        assert_eq!(Payload::Lengths.bytes(), None);
    }
}
