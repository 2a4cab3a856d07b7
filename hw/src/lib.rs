//! The hardware back end of doorbell: the transport of `doorbell-core` on libibverbs.
//!
//! A program or a policy that is written against [`Transport`] and [`Control`] runs here unchanged,
//! on whatever NIC libibverbs knows; the simulator is the other place where it runs. The two never
//! see each other: a figure from here was measured, one from there is tagged *simulated*.
//!
//! # Rooms
//!
//! | Room | What it does | Needs libibverbs |
//! |---|---|---|
//! | [`bootstrap`] | how programs find each other: over TCP, as threads, by a launcher | no |
//! | [`gid`], [`sysfs`], [`limits`] | which GID, what the kernel tells, what may be locked | no |
//! | [`rc_pingpong`] | the exchange of the public `ibv_rc_pingpong` | no |
//! | `verbs` | the binding: devices, objects, the handle, the runner | yes |
//! | `verbs::fake` | a scripted device in memory behind the same calls | yes |
//!
//! # One rank
//!
//! ```no_run
//! # #[cfg(feature = "verbs")] {
//! use std::sync::Arc;
//! use doorbell_core::transport::{Control, Next, Program};
//! use doorbell_hw::bootstrap::tcp::{Config, Tcp};
//! use doorbell_hw::verbs::device::{Device, OpenConfig};
//! use doorbell_hw::verbs::provider::{Libibverbs, Provider};
//! use doorbell_hw::verbs::{HwConfig, HwTransport, RunConfig, run};
//!
//! struct Nothing;
//! impl Program for Nothing {
//!     fn step<T: Control>(&mut self, t: &mut T) -> Next {
//!         println!("rank {} of {}", t.rank(), t.size());
//!         Next::Done
//!     }
//! }
//!
//! let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
//! let device = Device::open(&provider, &OpenConfig::default()).unwrap();
//! let bootstrap = Tcp::join(Config::new(0, 1, "127.0.0.1", 0)).unwrap();
//! let mut t = HwTransport::new(device, HwConfig::default(), Box::new(bootstrap)).unwrap();
//! run(&mut t, &mut Nothing, &RunConfig::default()).unwrap();
//! # }
//! ```
//!
//! # What it cannot tell
//!
//! How many doorbells a post made, whether it was a BlueFlame write, how large the BlueFlame buffer
//! is, how many 64-byte blocks a WQE takes: libibverbs keeps that to the provider. It is reported
//! as absent ([`RungBy::Provider`], `bf_bytes` 0, `sq_blocks` `None`), never guessed.
//!
//! # What it does not do
//!
//! GPU memory, regions without bytes, queue pairs or regions shared between handles, attributes
//! that the trait has no field for (alternate path, rate limit): each is `Unsupported` with the
//! reason, never a silent no-op. XRC, DC, memory windows, on-demand paging, `rdma_cm`: absent.
//!
//! # Unsafe code
//!
//! This is the only crate of the workspace that may hold `unsafe`, and only `verbs` and [`limits`]
//! do. Each block states in a `// SAFETY:` comment which contract it relies on and who upholds it;
//! the workspace lints deny a block without one. Miri runs the tests on the fake device.
//!
//! [`Transport`]: doorbell_core::transport::Transport
//! [`Control`]: doorbell_core::transport::Control
//! [`RungBy::Provider`]: doorbell_core::transport::RungBy::Provider

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
