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
//! - RC: the requester is told when the last bit of each packet that asks for a response leaves,
//!   in the order of polling: the ack timer runs from there.
//!
//! # Example
//!
//! ```
//! use doorbell_core::units::Time;
//! use doorbell_core::verbs::*;
//! use doorbell_sim::rc::*;
//!
//! let (a, b, now) = (Qpn::new(17), Qpn::new(18), Time::ZERO);
//! let (rc, psn, mtu) = (QpType::Rc, Psn::new(100), Mtu::B1024);
//! let mut requester = Requester::new(&RequesterConfig::of(rc, a, b, psn, mtu));
//! let mut responder = Responder::new(&ResponderConfig::of(rc, a, psn, mtu));
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
//! while let Some(packet) = requester.poll_transmit() {
//!     // Fetch packet.len bytes at packet.offset of WQE packet.wqe; send them; they arrive.
//!     requester.on_departure(&packet, now);
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
//! # Recovery from loss
//!
//! - The requester notices: a sequence NAK, a response that passes by an unanswered READ or ATOMIC
//!   (implied NAK) or skips packets of a READ, an RNR NAK, or nothing at all for the time of the
//!   ack timer ([`TimeoutMode`]). It counts retries and RNR retries, each with its own limit and
//!   both reloaded by progress; used up, the oldest work request ends with `RETRY_EXC_ERR` or
//!   `RNR_RETRY_EXC_ERR` and the rest is flushed. [`time_to_retry_exc`] says when that is.
//! - A [`LossRecovery`] says which PSNs go out again: [`Recovery`] has Go-Back-N and selective
//!   repeat. Packets are described anew from (work request, index); a READ is asked for again from
//!   any of its packets.
//! - The responder classifies by PSN; duplicates are acknowledged, read again or answered from the
//!   responder resources, never executed twice. All that it owes leaves in PSN order: what is owed
//!   again goes before what is younger, since the requester throws away what passes by.
//! - Responses are not kept at the requester: after one is lost all READs and ATOMICs that are out
//!   are asked for again. One loss costs a round trip and what was in flight. A retransmission, or
//!   its answer, that is lost too is found by the timer.
//! - Where implementations differ, [`Rules`] has a setting.
//! - End-to-end credits are off ([`Rules::credits`]).

#[macro_use]
mod mutants;

mod accept;
mod config;
mod counters;
mod packet;
mod reason;
mod recovery;
mod requester;
mod responder;
mod rules;
mod timeout;

pub use accept::{Accept, ReadJob, RecvDone, Target};
pub use config::{AckPolicy, AckReqLast, MAX_UNACKED, RequesterConfig, ResponderConfig};
pub use counters::HwCounters;
pub use packet::{DropReason, Ext, PacketDesc};
pub use reason::{BadRequest, Reason};
pub use recovery::{Flight, LossRecovery, Recovery, RecoveryFactory, SelectiveRepeat};
pub use requester::{Ended, Received, RecoverCause, Requester, SendDone, SendJob, Stall, Standing};
pub use responder::Responder;
pub use rules::{
    BadInvalidate, DuplicateAck, DuplicateRead, Fence, LimitedWqe, RetrySeven, Rules, SequenceNak,
    SlotReclaim,
};
pub use timeout::{AckTimeoutMode, Interval, TimeoutMode, time_to_retry_exc};

#[cfg(test)]
mod tests;
