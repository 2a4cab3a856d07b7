//! RC, UC and UD as state machines without I/O.

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
