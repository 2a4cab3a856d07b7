//! The simulator.
#![forbid(unsafe_code)]

pub mod engine;
pub mod pcie;
