//! The conformance bodies on the simulator.

pub use doorbell_tests::lab::sim as backend;

#[path = "../conformance/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "one body, many back ends by import")]
pub mod conformance;
