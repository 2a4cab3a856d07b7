//! Policies: what a communication layer decides on top of the verbs.
//!
//! Each is a struct with a config, bound to [`Transport`](crate::transport::Transport) alone, so
//! that it runs unchanged on every back end. A policy takes `now` once per call and returns
//! deadlines; it never sleeps, and it allocates nothing after it was made.

pub mod aggregate;
mod batch;
mod buffers;
mod cq;
mod credit;
mod inline;
mod recv_pool;
mod sender;
mod template;
mod window;

pub use batch::{BatchConfig, BatchMode, BatchStats, Batcher, Cue, PushError, Pushed};
pub use buffers::SendBuffers;
pub use cq::{CqBudget, CqShare, CqTooSmall};
pub use credit::{CreditGate, CreditIssuer};
pub use inline::{InlineChoice, InlineConfig};
pub use recv_pool::{RecvPool, RecvPoolConfig, RecvPoolError, RecvPoolStats, ReleaseError};
pub use sender::{Sender, SenderConfig};
pub use template::WrTemplate;
pub use window::{SendWindow, WindowConfig};
