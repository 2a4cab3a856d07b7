//! The binding to libibverbs.

pub mod objects;
pub mod provider;
pub mod sys;
