//! The transport engine: RC, and the simpler UC and UD, as state machines without I/O.
//!
//! [`Requester`] turns work requests into request packets and responses into completions;
//! [`Responder`] turns request packets into memory work and responses. Both speak in
//! [`PacketDesc`]: opcode, PSN, headers, and *where* the payload lies. The owner (the NIC model)
//! fetches and places payload by DMA, puts packets on the wire and writes CQEs, each when its
//! time has come; a packet that is sent again is therefore read again from the buffer. The engine
//! knows no clock and no queue of events: time comes in with each call, and
//! [`Requester::next_deadline`] and [`Responder::next_deadline`] say when to call again.
//!
//! # What the owner promises
//!
//! - Packets of one QP half reach the wire in the order in which they were polled, whatever their
//!   payload takes to fetch. The engine never polls an ACK ahead of a READ response or ATOMIC
//!   acknowledgement with a lower PSN; the owner must not reorder them either.
//! - Memory work of the responder's verdicts is done in order, and the checks that need memory
//!   (8 and 9 of `protocol.md` §2.3: keys, receive buffers) are made at once, so that
//!   [`Responder::reject`] is the next call if one fails.
//! - A CQE is written after the payload that it announces.
//!
//! # Example
//!
//! ```
//! use doorbell_core::units::Time;
//! use doorbell_core::verbs::*;
//! use doorbell_sim::rc::*;
//!
//! let (a, b, now) = (Qpn::new(17), Qpn::new(18), Time::ZERO);
//! let mut requester = Requester::new(&RequesterConfig {
//!     service: QpType::Rc,
//!     qpn: a,
//!     dest: b,
//!     sq_psn: Psn::new(100),
//!     mtu: Mtu::B1024,
//!     max_rd_atomic: 16,
//!     max_outstanding_packets: 128,
//!     ack_req_every: 64,
//!     ack_req_last: AckReqLast::EveryMessage,
//! });
//! let mut responder = Responder::new(&ResponderConfig {
//!     service: QpType::Rc,
//!     dest: a,
//!     rq_psn: Psn::new(100),
//!     mtu: Mtu::B1024,
//!     max_dest_rd_atomic: 16,
//!     access: AccessFlags::REMOTE_WRITE,
//!     ack: AckPolicy::IMMEDIATE,
//!     min_rnr_timer: RnrTimer::new(12).unwrap(),
//!     qkey: QKey(0),
//! });
//! requester.push(SendJob {
//!     wqe: 0,
//!     op: WrOpcode::RdmaWrite,
//!     len: 1500,
//!     remote_va: 0x1000,
//!     rkey: Rkey(0x55),
//!     imm_or_inv: 0,
//!     swap_add: 0,
//!     compare: 0,
//!     flags: SendFlags::SIGNALED,
//!     dest: b,
//!     qkey: QKey(0),
//! });
//! let mut written = Vec::new();
//! while let Some(packet) = requester.poll_transmit(now) {
//!     // Fetch packet.len bytes at packet.offset of WQE packet.wqe; send them; they arrive.
//!     match responder.on_packet(now, &packet, false) {
//!         Accept::Place { target: Target::Remote { va, .. }, len, .. } => written.push((va, len)),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! assert_eq!(written, [(0x1000, 1024), (0x1400, 476)]);
//! let ack = responder.poll_transmit(now).unwrap();
//! assert_eq!(requester.on_packet(now, &ack), Received::Nothing);
//! assert_eq!(requester.poll_completion().unwrap().status, WcStatus::Success);
//! ```
//!
//! # What is here and what comes later
//!
//! Without loss the engine is complete. What follows belongs to recovery from loss; each has its
//! place already.
//!
//! - **Sequence NAK, implied NAK, READ gap, RNR NAK**: the requester takes what they acknowledge
//!   and gives [`Received::Recover`] with the PSN to go back to; nothing is sent again. A
//!   loss-recovery trait will get that cause and PSN and say what to send. Going back means to
//!   set the requester's cursor to the work request that holds the PSN and to the packet within
//!   it: packets are described from (work request, index) alone, a READ from any of its packets.
//! - **PSNs never sent** are those from `next` on; a rewind needs a high-water mark beside it.
//! - **READ responses** begin with First only at the beginning; after a restart in the middle the
//!   work request has to remember where that was.
//! - **Ack timeout and RNR wait**: [`Requester::next_deadline`] is `None`. The timer will be armed
//!   in `poll_transmit` and restarted by progress in `acknowledge`; the wait is one more
//!   [`Stall`].
//! - **Retry counters** are reloaded where `acknowledge` moves on; used up, they end in the error
//!   path that fatal NAKs take today.
//! - **Duplicates** at the responder: SEND and WRITE are acknowledged again; READ and ATOMIC get
//!   [`Accept::Duplicate`] and no answer. Their replay will find them in the responder resources,
//!   where the last `max_dest_rd_atomic` of them stay after their last response.
//! - **End-to-end credits**: ACKs carry code 31, no limit. The limit is one more [`Stall`].
//! - **Where implementations differ** (`protocol.md` §10): the fence waits for READ and ATOMIC
//!   only (row 5); no sequence NAK while an RNR NAK is open (6); duplicates are acknowledged
//!   always (7); the spacing of AckReq is a setting (10). The fixed ones become settings.

mod accept;
mod config;
mod packet;
mod requester;
mod responder;

pub use accept::{Accept, ReadJob, RecvDone, Target};
pub use config::{AckPolicy, AckReqLast, GRH_BYTES, MAX_UNACKED, RequesterConfig, ResponderConfig};
pub use packet::{DropReason, Ext, PacketDesc};
pub use requester::{Received, RecoverCause, Requester, SendDone, SendJob, Stall};
pub use responder::Responder;

#[cfg(test)]
mod tests;
