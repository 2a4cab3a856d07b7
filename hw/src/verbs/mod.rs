//! The binding to libibverbs.

pub mod device;
pub mod info;
pub mod objects;
pub mod open_error;
pub mod provider;
pub mod sys;
