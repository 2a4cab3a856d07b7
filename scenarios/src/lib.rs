//! Scenario files, hardware profiles, runner and reports of the `doorbell` command.
//!
//! A scenario file asks one question: it names a profile, a topology and programs, may vary them
//! over variants and sweeps, and states what it expects. This crate reads such files strictly,
//! expands them to points, hands each point to a [`run::Runner`] and reports what came back.
//!
//! # One program on all back ends
//!
//! A program ([`Program`](doorbell_core::transport::Program)) knows only the transport trait.
//! Here it is one of [`workloads`]; [`doorbell_core::ideal`] shows how to write one.
//!
//! ```
//! use std::path::Path;
//!
//! use doorbell::profile::Profiles;
//! use doorbell::run::hardware;
//! use doorbell::workloads::{PingPong, PingPongConfig};
//! use doorbell_core::ideal::{self, Ideal};
//! use doorbell_core::transport::Initiator;
//! use doorbell_core::units::{Span, Time};
//! use doorbell_sim::fabric::{FabricConfig, Link};
//! use doorbell_sim::host::{InitiatorConfig, PollMode};
//! use doorbell_sim::wire::HostId;
//! use doorbell_sim::world::{RunEnd, World, WorldConfig};
//!
//! /// The program of each of the two ranks; rank 0 starts.
//! fn program(rank: u32) -> PingPong {
//!     PingPong::new(PingPongConfig::to(1 - rank, rank == 0))
//! }
//!
//! // Without time: an ideal fabric in memory.
//! let (mut a, mut b) = (program(0), program(1));
//! ideal::run(&mut Ideal::new(2), &mut [&mut a, &mut b])?;
//! assert_eq!(a.results().failure, None);
//!
//! // Simulated: two hosts of a profile, and a cable.
//! let profile = Profiles::beside(Path::new(".")).load("generic-400g", None)?;
//! let profile = profile.with_settings(None)?;
//! let port = &profile.port;
//! let mut world = World::new(&WorldConfig {
//!     seed: 1,
//!     hosts: vec![hardware::host(&profile, false); 2],
//!     fabric: FabricConfig::back_to_back(Link::new(port.rate, port.propagation)),
//!     mtu: hardware::max_mtu(&profile),
//!     bootstrap_latency: port.bootstrap_latency,
//!     timeline: 0,
//! })?;
//! for rank in 0..2 {
//!     let who = Initiator::Cpu { core: 0, numa: 0 };
//!     let on = InitiatorConfig { who, poll: PollMode::Busy, nic: 0 };
//!     world.add_program(HostId(rank), on, Time::ZERO, program(rank));
//! }
//! assert_eq!(world.run(Time::ZERO + Span::from_ms(100)), RunEnd::Done);
//! let half = world.program::<PingPong>(0).unwrap().results().latencies[0];
//! assert!(half > Span::from_ns(500));
//!
//! // Measured, with `--features hw`: one process for each rank, or a thread.
//! #[cfg(feature = "hw")]
//! fn measured(
//!     rank: u32,
//!     bootstrap: Box<dyn doorbell_hw::bootstrap::Bootstrap>,
//! ) -> Result<Vec<Span>, Box<dyn std::error::Error>> {
//!     use doorbell_hw::verbs::{HwConfig, HwTransport, RunConfig, device, provider, run};
//!     let provider: std::sync::Arc<dyn provider::Provider> =
//!         std::sync::Arc::new(provider::Libibverbs);
//!     let device = device::Device::open(&provider, &device::OpenConfig::default())?;
//!     let mut transport = HwTransport::new(device, HwConfig::default(), bootstrap)?;
//!     let mut program = program(rank);
//!     run(&mut transport, &mut program, &RunConfig::default())?;
//!     Ok(program.results().latencies.clone())
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cli;
pub mod expect;
pub mod fidelity;
pub mod format;
pub mod input;
pub mod library;
pub mod profile;
pub mod quantity;
pub mod report;
pub mod run;
#[cfg(test)]
mod testing;
pub mod tune;
pub mod workloads;
