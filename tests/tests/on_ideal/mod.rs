//! The conformance bodies on the ideal back end.

pub use doorbell_tests::lab::ideal as backend;

#[path = "../conformance/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "one body, many back ends by import")]
mod conformance;
