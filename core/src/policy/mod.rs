//! Policies: what a communication layer decides on top of the verbs.
//!
//! Each is a struct with a config, bound to [`Transport`](crate::transport::Transport) alone, so
//! that it runs unchanged on every back end. A policy takes `now` once per call and returns
//! deadlines; it never sleeps, and it allocates nothing after it was made.

pub mod aggregate;
mod batch;

pub use batch::{BatchConfig, BatchStats, Batcher, PushError, Pushed};
