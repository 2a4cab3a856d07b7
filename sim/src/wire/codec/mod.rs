//! RoCEv2 frames, and packets of native InfiniBand, as bytes: encoding and decoding of every packet
//! that RC, UC and UD send, and of the CNP.
//!
//! A frame is Ethernet (at most one 802.1Q tag, no FCS), IPv4 without options or IPv6 without
//! extension headers, UDP to port 4791, BTH, extended headers, payload, pad, ICRC. What the
//! transport says is a [`PacketDesc`] and a payload; what else travels, and the simulator has no
//! use for, is an [`Outer`]: addresses, traffic class, P_Key, MigReq, FECN and BECN.
//!
//! The decoder is strict: what it accepts, the encoder gives back byte for byte (save that frames
//! below Ethernet's minimum come back padded). So it refuses set reserved bits, which a receiver
//! would ignore. The lengths of payloads it does not judge beyond the largest path MTU: a legal
//! length depends on the QP, and the responder answers for it.
//!
//! A packet of native InfiniBand ([`encode_ib`], [`decode_ib`]) has an LRH in front and a VCRC
//! behind the ICRC instead.
//!
//! Not there: GRH, RoCEv1, FLUSH, Reliable Datagram, XRC.
//!
//! ```
//! use doorbell_core::verbs::Opcode;
//! use doorbell_sim::wire::codec::{DecodeError, decode, encode};
//!
//! // An ACK from 10.0.0.1 to 10.0.0.2.
//! let mut frame = [
//!     0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, 0x45, 0x02, 0, 0x30, 0, 0, 0x40,
//!     0, 0x40, 0x11, 0x26, 0xb9, 0x0a, 0, 0, 0x01, 0x0a, 0, 0, 0x02, 0xc1, 0x23, 0x12, 0xb7, 0,
//!     0x1c, 0, 0, 0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0, 0, 0, 0x0c, 0x1f, 0, 0, 0x05, 0xb5,
//!     0x32, 0x90, 0xf4,
//! ];
//! let ack = decode(&frame)?;
//! assert_eq!((ack.desc.opcode, ack.desc.psn.value()), (Opcode::RcAcknowledge, 12));
//!
//! let mut again = Vec::new();
//! encode(&ack.outer, &ack.desc, Some(ack.payload), &mut again)?;
//! assert_eq!(again, frame);
//!
//! frame[53] ^= 1;
//! assert!(matches!(decode(&frame), Err(DecodeError::Icrc { offset: 58, .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`PacketDesc`]: crate::rc::PacketDesc

mod decode;
mod encode;
mod error;
mod headers;
mod ib;
mod icrc;
mod ip;
mod pause;
#[cfg(test)]
mod tests;

pub use decode::{Decoded, decode};
pub use encode::encode;
pub use error::{DecodeError, EncodeError, Field};
pub(crate) use ib::close;
pub use ib::{IbDecoded, IbOuter, LRH_BYTES, Lrh, VCRC_BYTES, decode_ib, encode_ib};
pub use icrc::{icrc, icrc_ib, vcrc};
pub use ip::{BthBits, Ecn, Ethernet, Ip, Mac, Outer, Udp, UdpChecksum};
pub use pause::{MAC_CONTROL, encode_pause};

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;

/// Most payload bytes of a packet: the largest path MTU.
pub const MAX_PAYLOAD: u32 = 4096;

/// Zero bytes behind the BTH of a CNP; the descriptor counts them as payload.
pub const CNP_BODY: u32 = 16;

/// Shortest Ethernet frame without its FCS; shorter ones are padded with zeros.
pub const MIN_FRAME: usize = 60;

const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const PROTOCOL_UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
pub(crate) const ICRC_BYTES: usize = 4;
