//! The libibverbs back end of doorbell. **Empty so far**: nothing here talks to a NIC yet.
//!
//! # What will be here
//!
//! One implementation of [`Transport`] and [`Control`], the traits that the simulator implements
//! too, so that a program or a policy written against them runs unchanged on a real NIC:
//!
//! - Devices, protection domains, memory regions (host and device memory), completion queues,
//!   shared receive queues and queue pairs, addressed by the same `Copy` handles.
//! - `stage` copies a work request and its inline bytes; `ring` posts everything staged in one
//!   call, as a chain of `ibv_post_send` or as one `ibv_wr_start` .. `ibv_wr_complete` batch. How
//!   many doorbells the provider rings for it is the provider's affair, so the result of a ring
//!   is `RungBy::Provider` and MMIO counts are reported as absent, never guessed.
//! - What the hardware or the driver cannot do is a value with a reason, never a silent no-op.
//! - Bootstrap (how peers learn QPN, PSN, address and rkey) as a TCP rendezvous.
//!
//! # What it will never do
//!
//! Model anything. A figure from this crate was measured; a figure from `doorbell-sim` is tagged
//! *simulated*. The two crates never see each other: they meet at the traits of `doorbell-core`.
//!
//! # Building
//!
//! The `hw` feature of the `doorbell` package compiles this crate in. Everything else of the
//! workspace, its tests included, builds on a machine with Rust only and must stay so: the
//! bindings to libibverbs need its headers and libclang at build time, so that dependency will be
//! optional *here* and switched on by `doorbell/hw`, because `cargo test --workspace` builds
//! every member.
//!
//! # Unsafe code
//!
//! This is the only crate of the workspace that may hold `unsafe`. Each block states in a
//! `// SAFETY:` comment which contract of libibverbs it relies on and who upholds it; the
//! workspace lints deny a block without one.
//!
//! [`Transport`]: doorbell_core::transport::Transport
//! [`Control`]: doorbell_core::transport::Control

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "hardware runs on the wall clock; nothing here decides in the simulator"
)]

pub mod bootstrap;
pub mod gid;
pub mod limits;
pub mod rc_pingpong;
pub mod sysfs;
#[cfg(feature = "verbs")]
pub mod verbs;
