//! The programs that scenario files name.
//!
//! They are written against [`doorbell_core::transport`] alone: the same code runs on the ideal
//! back end, in the simulator and on hardware. Each has a config and [`Results`].

mod common;
pub mod connect;
mod latency;
mod pingpong;
mod rate;
mod responder;
pub mod script;
mod sharing;

pub use common::*;
pub use latency::{Latency, LatencyConfig};
pub use pingpong::{PingPong, PingPongBy, PingPongConfig};
pub use rate::{Arrivals, Rate, RateConfig, Stop};
pub use responder::{Responder, ResponderConfig, ResponderLink};
pub use sharing::Sharing;
