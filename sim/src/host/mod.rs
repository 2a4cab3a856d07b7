//! A host's island: initiators, their stores and locks, the PCIe tree, memory and the NICs.
//!
//! Everything in a host interacts without delay, so it is one island. [`Host`] receives the
//! island's events and hands each to the room that it belongs to; [`SimTransport`] is what a
//! program sees.

mod config;
mod copies;
mod device;
mod effects;
mod faults;
mod initiator;
mod instant;
mod island;
mod program;
mod raw;
mod registration;
mod stall;
mod transport;
mod transport_control;

pub use config::{HostConfig, InitiatorConfig, InitiatorCosts, PollMode, RegistrationCosts};
pub use device::{MAX_NICS, address_of, port_of};
pub use initiator::InitiatorStats;
pub use island::{Host, Shared};
pub use program::SimProgram;
pub use raw::{RawCompletion, RawCompletions};
pub use stall::StallReason;
pub use transport::SimTransport;
