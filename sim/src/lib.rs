//! The simulator.
#![forbid(unsafe_code)]

pub mod engine;
pub mod fabric;
pub mod memory;
pub mod pcie;
pub mod rc;
pub mod wire;
