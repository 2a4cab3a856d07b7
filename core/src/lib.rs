//! Verbs vocabulary, the [`Transport`](transport::Transport) trait and policies of doorbell.
//!
//! This crate never does I/O, never reads a clock, never draws a random number and never touches
//! memory behind a raw pointer: it is `no_std`, and the compiler proves it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ideal;
pub mod noop;
pub mod policy;
pub mod transport;
pub mod units;
pub mod verbs;
