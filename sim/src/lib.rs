//! The simulator.
#![forbid(unsafe_code)]

pub mod engine;
pub mod memory;
pub mod pcie;
