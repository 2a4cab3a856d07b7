//! Scenario files, hardware profiles, runner and reports of the `doorbell` command.
//!
//! A scenario file asks one question: it names a profile, a topology and programs, may vary them
//! over variants and sweeps, and states what it expects. This crate reads such files strictly,
//! expands them to points, hands each point to a [`run::Runner`] and reports what came back.
#![forbid(unsafe_code)]

pub mod cli;
pub mod expect;
pub mod fidelity;
pub mod format;
pub mod input;
pub mod library;
pub mod profile;
pub mod quantity;
pub mod report;
pub mod run;
#[cfg(test)]
mod testing;
pub mod workloads;
