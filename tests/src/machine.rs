//! Simulated machines for tests.

use std::path::Path;

use doorbell::profile::{Profile, Profiles};
use doorbell::run::hardware;
use doorbell_core::transport::Initiator;
use doorbell_core::units::Span;
use doorbell_sim::fabric::{FabricConfig, Link, Noise, SwitchConfig};
use doorbell_sim::fault::{Fault, FaultPlan, What};
use doorbell_sim::host::{HostConfig, InitiatorConfig, PollMode};
use doorbell_sim::world::WorldConfig;

/// The built-in profile `name`, as it stands.
///
/// # Panics
/// When there is none, or it is wrong.
pub fn profile(name: &str) -> Profile {
    let raw = Profiles::beside(Path::new(".")).load(name, None);
    let raw = raw.unwrap_or_else(|e| panic!("profile {name}: {e}"));
    raw.with_settings(None).unwrap_or_else(|e| panic!("profile {name}: {e}"))
}

/// A host of `generic-400g` without noise.
pub fn quiet_host() -> HostConfig {
    hardware::host(&profile("generic-400g"), false)
}

/// `hosts` equal hosts, two of them back to back and more on one lossless switch.
pub fn world_of(host: HostConfig, hosts: u32, seed: u64) -> WorldConfig {
    let p = profile("generic-400g");
    let link = Link::new(p.port.rate, p.port.propagation);
    let mut fabric = match hosts {
        0..=2 => FabricConfig::back_to_back(link),
        _ => FabricConfig::single_switch(hosts, link, SwitchConfig::default()),
    };
    fabric.noise = Noise::Off;
    WorldConfig {
        seed,
        hosts: vec![host; hosts.max(2) as usize],
        fabric,
        mtu: hardware::max_mtu(&p),
        bootstrap_latency: Span::from_us(1),
        timeline: 0,
    }
}

/// Core `core` of the NIC's socket, which polls.
pub const fn core(core: u16) -> InitiatorConfig {
    InitiatorConfig { who: Initiator::Cpu { core, numa: 0 }, poll: PollMode::Busy, nic: 0 }
}

/// A plan of faults none of which has to happen.
pub fn perhaps(whats: impl IntoIterator<Item = What>) -> FaultPlan {
    let fault = |(i, what)| Fault { id: format!("fault {i}"), what, budget: None, maybe: true };
    FaultPlan { faults: whats.into_iter().enumerate().map(fault).collect() }
}
