//! With chains of `ibv_send_wr`.

pub use doorbell_tests::lab::fake::classic as backend;

#[path = "../conformance/mod.rs"]
mod conformance;
