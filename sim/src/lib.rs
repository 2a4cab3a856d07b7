//! The simulator: hosts with cores, PCIe trees, NICs and memory, and the network between them.
//!
//! A [`world::World`] is built from a [`world::WorldConfig`]: [`host::HostConfig`]s, a
//! [`fabric::FabricConfig`] and a seed. Programs, which know only the transport trait of
//! `doorbell-core`, are added to hosts; [`world::World::run`] runs them to their end and says how
//! it came, [`world::World::report`] what was used and counted. Same configuration and seed: same
//! [`world::World::trace_hash`].
//!
//! This crate has no numbers of its own for real hardware: they come from the profiles of the
//! package `doorbell`, whose `run::hardware::host` makes a host of a profile. The documentation of
//! that package (`scenarios/src/lib.rs`) begins with a program that runs on two such hosts, and on
//! the other back ends; `scenarios/src/run/simulate.rs` builds the worlds of scenario files.
#![forbid(unsafe_code)]

pub mod capture;
pub mod cc;
pub mod engine;
pub mod event;
pub mod fabric;
pub mod fault;
pub mod host;
pub mod memory;
pub mod nic;
pub mod pcie;
pub mod rc;
pub mod wire;
pub mod world;
