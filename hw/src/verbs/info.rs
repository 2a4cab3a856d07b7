//! What there is to know of the devices of a machine, and what looks wrong.

use std::sync::Arc;

use doorbell_core::verbs::Mtu;
use serde::Serialize;

use super::device::{DeviceName, List, Listed, OpenDevice, Port, atomics, text};
use super::open_error::{OpenError, PortState};
use super::provider::Provider;
use crate::gid::{Gid, GidChoice, LinkLayer, choose};
use crate::limits::Memlock;
use crate::sysfs::{DeviceFacts, PcieLink, PortFacts, Sysfs};

/// What libibverbs does not tell. The report has no figure for these, rather than a guess.
pub const NOT_TOLD: [&str; 3] = [
    "BlueFlame: its size, and whether a post used it",
    "doorbells: how many MMIO writes a post makes",
    "inline bytes: granted per QP, known when one is created",
];

/// The report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Info {
    /// Limit on locked memory; `None`: the kernel does not tell.
    pub memlock: Option<Memlock>,
    /// Devices in the library's order.
    pub devices: Vec<DeviceInfo>,
    /// What cannot be told.
    pub not_told: Vec<&'static str>,
    /// What looks wrong with the machine.
    pub warnings: Vec<Warning>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceInfo {
    /// Names.
    #[serde(flatten)]
    pub name: DeviceName,
    /// What the kernel shows.
    #[serde(flatten)]
    pub facts: DeviceFacts,
    /// Limits; absent when it could not be opened.
    pub limits: Option<Limits>,
    /// Ports; none when it could not be opened.
    pub ports: Vec<PortInfo>,
    /// What looks wrong with the device.
    pub warnings: Vec<Warning>,
}

/// Limits that the device grants at most.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[expect(missing_docs, reason = "each is the field of `ibv_device_attr` with its name")]
pub struct Limits {
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_srq_wr: u32,
    pub max_mr: u32,
    pub max_qp_init_rd_atom: u8,
    pub max_qp_rd_atom: u8,
    /// Whether it has ATOMICs.
    pub atomics: bool,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortInfo {
    /// What verbs tell.
    #[serde(flatten)]
    pub port: Port,
    /// Rate in the kernel's words.
    pub rate: Option<String>,
    /// Network interface.
    pub netdev: Option<String>,
    /// MTU of that interface in bytes.
    pub netdev_mtu: Option<u32>,
    /// Valid entries of the GID table.
    pub gids: Vec<Gid>,
    /// Index of the one that is chosen when nothing is said.
    pub chosen_gid: Option<u32>,
    /// Counters of the transport, by the kernel's names.
    pub hw_counters: std::collections::BTreeMap<String, u64>,
    /// What looks wrong with the port.
    pub warnings: Vec<Warning>,
}

/// Something that costs speed, or that will fail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Fewer lanes than the device has.
    #[error(
        "PCIe has {width} of {max_width} lanes: the slot is narrow or the card sits badly; see \
         `lspci -vv`"
    )]
    PcieWidth {
        /// Lanes in use.
        width: u32,
        /// Lanes of the device.
        max_width: u32,
    },
    /// Slower lanes than the device has.
    #[error(
        "PCIe runs at {} of {} GT/s: the slot is of an older generation, or the link was trained \
         down; see `lspci -vv`", Gt(*.mt_per_s), Gt(*.max_mt_per_s)
    )]
    PcieSpeed {
        /// MT/s in use.
        mt_per_s: u32,
        /// MT/s of the device.
        max_mt_per_s: u32,
    },
    /// The device is in a slot, but nobody says of which NUMA node.
    #[error(
        "NUMA node unknown: place threads and memory by measurement, or set it in the firmware"
    )]
    NumaUnknown,
    /// It could not be opened, or a port could not be queried.
    #[error("{reason}")]
    Refused {
        /// Why, and the remedy.
        reason: String,
    },
    /// The port takes no packets.
    #[error("the port is {state}, not ACTIVE: look at the cable and `ip link`")]
    PortNotActive {
        /// Its state.
        state: PortState,
    },
    /// Packets are smaller than they could be.
    #[error("active MTU {active} of {max}: more packets than needed{}", Raise(*.netdev_mtu))]
    MtuBelowMax {
        /// Bytes in use.
        active: u32,
        /// Bytes that the port could have.
        max: u32,
        /// MTU of the netdev, where there is one.
        netdev_mtu: Option<u32>,
    },
    /// The MTU of the port and that of its netdev do not belong together.
    #[error(
        "active MTU {active} does not fit MTU {netdev_mtu} of {netdev}: set the netdev's MTU \
         again (`ip link set {netdev} mtu N`), and the switch's"
    )]
    MtuMismatch {
        /// Bytes in use by RDMA.
        active: u32,
        /// The interface.
        netdev: String,
        /// Its MTU in bytes.
        netdev_mtu: u32,
    },
    /// No GID that can be used.
    #[error("{reason}")]
    NoGid {
        /// Why, and the remedy.
        reason: String,
    },
    /// Little memory can be registered.
    #[error(
        "memlock limit of {} KiB: registration fails beyond it unless the process has \
         CAP_IPC_LOCK; raise it (`ulimit -l unlimited`, /etc/security/limits.conf, \
         LimitMEMLOCK= of the service)", .bytes >> 10
    )]
    MemlockLow {
        /// The limit.
        bytes: u64,
    },
}

/// MT/s as GT/s, with a decimal only where there is one.
pub struct Gt(pub u32);

impl std::fmt::Display for Gt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            rest => write!(f, "{}.{}", self.0 / 1000, rest / 100),
        }
    }
}

/// How to raise an MTU.
struct Raise(Option<u32>);

impl std::fmt::Display for Raise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(mtu) => {
                write!(f, "; the netdev's MTU is {mtu}, 4200 is enough for 4096, on every hop")
            }
            None => Ok(()),
        }
    }
}

/// Collects the report of all devices, or of the one called `only`.
///
/// # Errors
/// [`OpenError::NoDevices`], [`OpenError::NoSuchDevice`], or what the library says. A device that
/// cannot be opened is no error: it is in the report, with a warning.
pub fn collect(
    provider: &Arc<dyn Provider>,
    sysfs: &Sysfs,
    only: Option<&str>,
) -> Result<Info, OpenError> {
    let list = List::read(provider)?;
    let all = list.devices();
    let wanted: Vec<&Listed> =
        all.iter().filter(|d| only.is_none_or(|name| name == d.name.name)).collect();
    if let (true, Some(name)) = (wanted.is_empty(), only) {
        let there = all.iter().map(|d| d.name.name.clone()).collect();
        return Err(OpenError::NoSuchDevice { name: name.to_owned(), there });
    }
    let memlock = Memlock::read();
    Ok(Info {
        memlock,
        devices: wanted.into_iter().map(|d| device(&list, d, sysfs)).collect(),
        not_told: NOT_TOLD.to_vec(),
        warnings: memlock_warning(memlock).into_iter().collect(),
    })
}

fn device(list: &List<'_>, listed: &Listed, sysfs: &Sysfs) -> DeviceInfo {
    let name = listed.name.clone();
    let mut facts = sysfs.device(&name.name);
    let mut warnings = device_warnings(&facts);
    let refused = |error: OpenError| Warning::Refused { reason: error.to_string() };
    let (mut limits, mut ports) = (None, Vec::new());
    match OpenDevice::open(list, listed, sysfs) {
        Ok(open) => {
            let firmware = Some(text(&open.attr.fw_ver)).filter(|v| !v.is_empty());
            facts.firmware = facts.firmware.or(firmware);
            limits = Some(limits_of(&open));
            for number in open.ports() {
                match port(&open, number, sysfs) {
                    Ok(port) => ports.push(port),
                    Err(error) => warnings.push(refused(error)),
                }
            }
        }
        Err(error) => warnings.push(refused(error)),
    }
    DeviceInfo { name, facts, limits, ports, warnings }
}

fn limits_of(open: &OpenDevice) -> Limits {
    // Message size and MTU are the port's and are shown there.
    let c = super::device::caps(&open.attr, 0, Mtu::B256);
    Limits {
        max_qp: c.max_qp,
        max_qp_wr: c.max_qp_wr,
        max_sge: c.max_sge,
        max_cq: c.max_cq,
        max_cqe: c.max_cqe,
        max_srq_wr: c.max_srq_wr,
        max_mr: c.max_mr,
        max_qp_init_rd_atom: c.max_rd_atomic,
        max_qp_rd_atom: c.max_dest_rd_atomic,
        atomics: atomics(&open.attr),
    }
}

fn port(open: &OpenDevice, number: u8, sysfs: &Sysfs) -> Result<PortInfo, OpenError> {
    let port = open.port(number)?;
    let gids = open.gids(&port, sysfs)?;
    let facts = sysfs.port(&open.name.name, number);
    let chosen = choose(port.link_layer, GidChoice::Auto, &gids);
    let mut warnings = port_warnings(&port, &facts);
    if let Err(error) = &chosen {
        warnings.push(Warning::NoGid { reason: error.to_string() });
    }
    Ok(PortInfo {
        port,
        rate: facts.rate,
        netdev: facts.netdev,
        netdev_mtu: facts.netdev_mtu,
        gids,
        chosen_gid: chosen.ok().map(|g| g.index),
        hw_counters: facts.hw_counters,
        warnings,
    })
}

fn memlock_warning(memlock: Option<Memlock>) -> Option<Warning> {
    let bytes = memlock.filter(|m| m.is_low())?.soft?;
    Some(Warning::MemlockLow { bytes })
}

fn device_warnings(facts: &DeviceFacts) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let Some(PcieLink { width, max_width, mt_per_s, max_mt_per_s }) = facts.pcie {
        if width < max_width {
            warnings.push(Warning::PcieWidth { width, max_width });
        }
        if mt_per_s < max_mt_per_s {
            warnings.push(Warning::PcieSpeed { mt_per_s, max_mt_per_s });
        }
    }
    // A software device has no slot, and runs where its caller runs.
    if facts.pci.is_some() && facts.numa.is_none() {
        warnings.push(Warning::NumaUnknown);
    }
    warnings
}

/// Bytes around the payload of a RoCEv2 packet inside an Ethernet frame: the least, IPv4 20,
/// UDP 8, BTH 12 and ICRC 4; and what the kernel sets aside at most, with IPv6 and the longest
/// extended headers.
const HEADERS_MIN: u32 = 44;
const HEADERS_MAX: u32 = 96;

fn port_warnings(port: &Port, facts: &PortFacts) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if port.state != PortState::ACTIVE {
        // Its MTU says nothing yet.
        warnings.push(Warning::PortNotActive { state: port.state });
        return warnings;
    }
    let Some(active) = port.active_mtu else { return warnings };
    let ethernet = port.link_layer == LinkLayer::Ethernet;
    let netdev_mtu = facts.netdev_mtu.filter(|_| ethernet);
    if let Some(max) = port.max_mtu.filter(|&max| active < max) {
        let (active, max) = (active.bytes(), max.bytes());
        warnings.push(Warning::MtuBelowMax { active, max, netdev_mtu });
    }
    if let (Some(netdev), Some(netdev_mtu)) = (&facts.netdev, netdev_mtu) {
        let within = |headers| Mtu::largest_within(netdev_mtu.saturating_sub(headers));
        let limit = port.max_mtu.unwrap_or(Mtu::B4096);
        let least = within(HEADERS_MAX).map(|m| m.min(limit));
        if Some(active) < least || Some(active) > within(HEADERS_MIN) {
            let (active, netdev) = (active.bytes(), netdev.clone());
            warnings.push(Warning::MtuMismatch { active, netdev, netdev_mtu });
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
