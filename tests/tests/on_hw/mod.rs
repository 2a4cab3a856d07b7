//! What runs on libibverbs.

pub use doorbell_tests::lab::hw as backend;

#[path = "../conformance/mod.rs"]
mod conformance;
mod players;
mod sums;
