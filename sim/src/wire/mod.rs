//! The packet as the network sees it: who sent it to whom, how many bytes it takes on the wire,
//! and the bytes it carries where a run moves real data. [`codec`] writes and reads it as the bytes
//! of a RoCEv2 frame.

pub mod codec;
mod encap;
mod entropy;
mod id;
mod packet;
mod packets;

pub use encap::{Encapsulation, frame_bytes, wire_bytes};
pub use entropy::{UDP_SOURCE_PORT_MIN, five_tuple_of, flow_label, udp_source_port};
pub use id::{HostId, NodeId, PacketId, PortId, address};
pub use packet::{Packet, Payload, Remark, SMALL_PAYLOAD};
pub use packets::{Head, Packets};
