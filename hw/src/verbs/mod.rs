//! The binding to libibverbs.

mod control;
mod convert;
pub mod device;
mod errno;
mod events;
#[cfg(feature = "fake")]
pub mod fake;
pub mod info;
pub mod objects;
mod open_error;
mod positions;
pub mod provider;
mod queue_pair;
mod region;
mod runner;
mod staging;
pub mod sys;
mod table;
#[cfg(all(test, feature = "fake"))]
mod tests;
mod transport;

pub use control::{HwConfig, MAX_WATCHED_BYTES};
pub use open_error::{OpenError, PortState};
pub use runner::{RunConfig, RunError, RunReport, WaitMode, run};
pub use transport::HwTransport;
