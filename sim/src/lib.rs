//! The simulator.
#![forbid(unsafe_code)]

pub mod fabric;
pub mod wire;
