//! The programs that scenario files name.
//!
//! They are written against [`doorbell_core::transport`] alone: the same code runs on the ideal
//! back end, in the simulator and on hardware. Each has a config and [`Results`].

mod common;
pub mod connect;
mod latency;
mod responder;
pub mod script;

pub use common::*;
pub use latency::{Latency, LatencyConfig};
pub use responder::{Responder, ResponderConfig, ResponderLink};
