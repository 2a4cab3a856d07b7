//! Policies: what a communication layer decides on top of the verbs.
//!
//! Each is a struct with a config, bound to [`Transport`](crate::transport::Transport) alone, so
//! that it runs unchanged on every back end. A policy takes `now` once per call and returns
//! deadlines; it never sleeps, and it allocates nothing after it was made.
//!
//! | Policy | Decides |
//! |---|---|
//! | [`Batcher`] | when to ring, and by BlueFlame or doorbell |
//! | [`Sender`] | both of the above and below for one queue pair, so that nothing overruns |
//! | [`SendWindow`] | what still fits a send queue, and what has to be signalled |
//! | [`QueueEstimate`] | how many work requests only wait in the NIC |
//! | [`CqBudget`] | who may fill how many entries of a completion queue |
//! | [`SendBuffers`] | which buffer is free again |
//! | [`InlineChoice`] | what goes inline |
//! | [`WrTemplate`] | nothing: it is a work request of which most fields stay |
//! | [`RecvPool`] | when receives are posted again |
//! | [`Lanes`] | which queue pair of which class and peer takes a message |
//! | [`PostConfig`](initiator::PostConfig) | who posts: a core, a GPU's leaders, a core for a GPU |
//! | [`CommandWriter`](initiator::CommandWriter) | nothing: a GPU leaves posting to a core by it |
//! | [`Proxy`](initiator::Proxy) | what of that is posted next, and rung together |
//! | [`Pacer`] | when the next message may go |
//! | [`CreditGate`], [`CreditIssuer`] | how many messages may be under way, and when to say so |
//! | [`Tuner`](tuner::Tuner) | the numbers that the others have, from what a program observes |

pub mod aggregate;
pub mod alltoall;
mod batch;
mod buffers;
mod cq;
mod credit;
pub mod initiator;
mod inline;
pub mod lanes;
mod mesh;
mod pacing;
mod queueing;
mod recv_pool;
mod sender;
mod template;
pub mod tuner;
mod window;

pub use batch::{BatchConfig, BatchMode, BatchStats, Batcher, Cue, PushError, Pushed};
pub use buffers::SendBuffers;
pub use cq::{CqBudget, CqShare, CqTooSmall};
pub use credit::{CreditGate, CreditIssuer};
pub use inline::{InlineChoice, InlineConfig};
pub use lanes::Lanes;
pub use pacing::{PaceConfig, PaceError, Pacer};
pub use queueing::QueueEstimate;
pub use recv_pool::{RecvPool, RecvPoolConfig, RecvPoolError, RecvPoolStats, ReleaseError};
pub use sender::{Sender, SenderConfig};
pub use template::WrTemplate;
pub use window::{SendWindow, WindowConfig};
