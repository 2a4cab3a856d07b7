//! The simulator.
#![forbid(unsafe_code)]

pub mod rc;
