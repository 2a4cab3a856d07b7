//! With `ibv_wr_start` and its companions.

pub use doorbell_tests::lab::fake::extended as backend;

#[path = "../conformance/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "one body, many back ends by import")]
mod conformance;
