//! The binding to libibverbs.

#[cfg(feature = "fake")]
pub mod fake;
pub mod objects;
pub mod provider;
pub mod sys;
