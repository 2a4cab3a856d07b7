//! Scenarios.
pub mod workloads;
