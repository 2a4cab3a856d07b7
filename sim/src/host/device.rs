//! The NICs of a host, and the addresses of their ports.

use doorbell_core::transport::Address;

use super::config::HostConfig;
use crate::engine::{ComponentId, Engine, Out};
use crate::event::Event;
use crate::nic::{Nic, NicEvent};
use crate::pcie::{PcieTree, RelaxedScope};
use crate::wire::{HostId, PortId, address};

/// Most NICs of a host: addresses and queue pair numbers have four bits for them.
pub const MAX_NICS: usize = 16;

/// A NIC and what it asks for.
#[derive(Debug)]
pub(super) struct Device {
    pub nic: Nic,
    pub out: Out<NicEvent>,
    pub id: ComponentId,
}

impl Device {
    /// NIC number `n` of the host called `name`. The first one's random streams are the host's.
    pub fn new(
        cfg: &HostConfig,
        (host, n): (HostId, usize),
        pcie: &PcieTree,
        name: &str,
        engine: &mut Engine<Event>,
    ) -> Self {
        let (component, stream) = match n {
            0 => (format!("{name}/nic"), name.to_owned()),
            n => (format!("{name}/nic{n}"), format!("{name}/nic{n}")),
        };
        let port = (host, PortId(n as u16));
        let node = cfg.nic_nodes[n];
        let slot = (node, pcie.socket_of(node));
        let nic = Nic::new(&cfg.nic, &cfg.rc, port, slot, engine.seed(), &stream);
        let relaxed = cfg.pcie.relaxed.scope != RelaxedScope::None;
        Self {
            nic: nic.with_relaxed_writes(relaxed),
            out: Out::new(),
            id: engine.add_component(&component),
        }
    }
}

/// Address of a host's port: its number in a documentation prefix.
pub fn address_of(host: HostId, port: PortId) -> Address {
    let mut gid = [0; 16];
    // An IPv4-mapped address, as RoCEv2 GIDs are.
    gid[10..12].copy_from_slice(&[0xff, 0xff]);
    gid[12..].copy_from_slice(&(0x0a00_0000 | address(host, port)).to_be_bytes());
    // Unique below 4095 hosts, or 65535 hosts of one port; nothing is routed by it.
    Address { lid: (host.0 + 1) as u16 | port.0 << 12, gid, ..Address::default() }
}

/// Host and port of an address, if it is one of [`address_of`].
pub fn port_of(to: &Address) -> Option<(HostId, PortId)> {
    let low = u32::from_be_bytes(to.gid[12..].try_into().ok()?);
    let host = HostId((low & 0xF_FFFF).checked_sub(1)?);
    let port = PortId((low >> 20 & 0xF) as u16);
    (address_of(host, port).gid == to.gid).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_others_are_nobodys() {
        for host in [0, 1, 4095, (1 << 20) - 2].map(HostId) {
            for port in [0, 1, 15].map(PortId) {
                assert_eq!(port_of(&address_of(host, port)), Some((host, port)));
            }
        }
        let plain = address_of(HostId(6), PortId(0));
        assert_eq!((plain.lid, plain.gid[12..].to_vec()), (7, vec![10, 0, 0, 7]));
        let mut other = plain;
        other.gid[0] = 0xfe;
        assert_eq!(port_of(&other), None);
        other = plain;
        other.gid[15] = 0;
        assert_eq!(port_of(&other), None, "host numbers begin at 1 there");
    }
}
