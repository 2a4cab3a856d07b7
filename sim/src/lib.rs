//! The simulator.
#![forbid(unsafe_code)]

pub mod capture;
pub mod engine;
pub mod event;
pub mod fabric;
pub mod fault;
pub mod host;
pub mod memory;
pub mod nic;
pub mod pcie;
pub mod rc;
pub mod wire;
pub mod world;
