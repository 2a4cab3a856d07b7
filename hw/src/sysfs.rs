//! What the kernel shows of RDMA devices below `/sys` and `/dev`, and libibverbs does not tell.
//!
//! A fact that is not there is `None`, never a guess: software devices have no PCI address, and
//! many machines do not say which NUMA node a slot belongs to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::gid::{Gid, GidType, LinkLayer};

/// Most entries of a GID table that are looked at; real tables have up to 1,024.
const MAX_GIDS: u32 = 4096;

/// Where the kernel's two trees are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sysfs {
    sys: PathBuf,
    dev: PathBuf,
}

impl Default for Sysfs {
    /// `/sys` and `/dev`.
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

/// A PCIe link, now and at best.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PcieLink {
    /// Lanes in use.
    pub width: u32,
    /// Lanes that the device has.
    pub max_width: u32,
    /// Transfer rate of a lane in use, in MT/s: 16,000 is generation 4.
    pub mt_per_s: u32,
    /// Transfer rate that the device has.
    pub max_mt_per_s: u32,
}

/// What the kernel knows of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeviceFacts {
    /// PCI address, such as `0000:3b:00.0`; absent for software devices.
    pub pci: Option<String>,
    /// NUMA node of its slot.
    pub numa: Option<u32>,
    /// PCIe link.
    pub pcie: Option<PcieLink>,
    /// Kernel driver of the PCI device.
    pub driver: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
}

/// What the kernel knows of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortFacts {
    /// Logical state, such as `ACTIVE`.
    pub state: Option<String>,
    /// Link layer.
    pub link_layer: Option<LinkLayer>,
    /// Rate in the kernel's words, such as `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
    /// Network interface of the port.
    pub netdev: Option<String>,
    /// MTU of that interface in bytes.
    pub netdev_mtu: Option<u32>,
    /// Counters of the transport, by the kernel's names.
    pub hw_counters: BTreeMap<String, u64>,
}

impl Sysfs {
    /// The trees `sys` and `dev` below `root`.
    pub fn below(root: &Path) -> Self {
        Self { sys: root.join("sys"), dev: root.join("dev") }
    }

    fn device_dir(&self, device: &str) -> PathBuf {
        self.sys.join("class/infiniband").join(device)
    }

    fn port_dir(&self, device: &str, port: u8) -> PathBuf {
        self.device_dir(device).join("ports").join(port.to_string())
    }

    /// The character device that verbs of `uverbs` (such as `uverbs0`) go through.
    pub fn uverbs_path(&self, uverbs: &str) -> PathBuf {
        self.dev.join("infiniband").join(uverbs)
    }

    /// Facts of a device; those that are not there are absent.
    pub fn device(&self, device: &str) -> DeviceFacts {
        let dir = self.device_dir(device);
        let parent = dir.join("device");
        let name_of = |link: PathBuf| {
            let target = fs::canonicalize(link).ok()?;
            Some(target.file_name()?.to_str()?.to_owned())
        };
        DeviceFacts {
            pci: name_of(parent.clone()).filter(|name| is_pci_address(name)),
            // -1 where the firmware does not say.
            numa: number(&parent.join("numa_node")),
            pcie: pcie_link(&parent),
            driver: name_of(parent.join("driver")),
            firmware: text(&dir.join("fw_ver")),
        }
    }

    /// Facts of a port, counted from 1; those that are not there are absent.
    pub fn port(&self, device: &str, port: u8) -> PortFacts {
        let dir = self.port_dir(device, port);
        let netdev = self.netdev(device, port);
        let mtu = |name: &String| number(&self.sys.join("class/net").join(name).join("mtu"));
        PortFacts {
            // "4: ACTIVE"
            state: text(&dir.join("state")).and_then(|s| Some(s.split_once(": ")?.1.to_owned())),
            link_layer: self.link_layer(device, port),
            rate: text(&dir.join("rate")),
            netdev_mtu: netdev.as_ref().and_then(mtu),
            netdev,
            hw_counters: counters(&dir.join("hw_counters")),
        }
    }

    /// A counter of the transport of a port, counted from 1, by the kernel's name.
    pub fn hw_counter(&self, device: &str, port: u8, name: &str) -> Option<u64> {
        number(&self.port_dir(device, port).join("hw_counters").join(name))
    }

    fn link_layer(&self, device: &str, port: u8) -> Option<LinkLayer> {
        match text(&self.port_dir(device, port).join("link_layer"))?.as_str() {
            "InfiniBand" => Some(LinkLayer::InfiniBand),
            "Ethernet" => Some(LinkLayer::Ethernet),
            _ => None,
        }
    }

    /// The interface that the first GID belongs to; else the one of the PCI device, if only one
    /// can be meant.
    fn netdev(&self, device: &str, port: u8) -> Option<String> {
        let ndevs = self.port_dir(device, port).join("gid_attrs/ndevs");
        if let Some(name) = text(&ndevs.join("0")) {
            return Some(name);
        }
        let net = self.device_dir(device).join("device/net");
        let all = names(&net);
        let of_port =
            |n: &&String| number::<u32>(&net.join(n).join("dev_port")) == Some(u32::from(port) - 1);
        let mut candidates = all.iter().filter(|n| all.len() == 1 || of_port(n));
        let first = candidates.next()?;
        candidates.next().is_none().then(|| first.clone())
    }

    /// The valid entries of a port's GID table, in the order of their indices.
    pub fn gids(&self, device: &str, port: u8) -> Vec<Gid> {
        let dir = self.port_dir(device, port);
        let layer = self.link_layer(device, port);
        let mut indices: Vec<u32> =
            names(&dir.join("gids")).iter().filter_map(|n| n.parse().ok()).collect();
        indices.sort_unstable();
        indices.retain(|&index| index < MAX_GIDS);
        let entry = |index: u32| {
            let raw = text(&dir.join("gids").join(index.to_string()))?;
            let raw = raw.parse::<std::net::Ipv6Addr>().ok()?.octets();
            // The type of an empty entry cannot be read.
            let ty = text(&dir.join("gid_attrs/types").join(index.to_string()))?;
            let ty = match (ty.as_str(), layer) {
                ("RoCE v2", _) => GidType::RoceV2,
                ("IB/RoCE v1", Some(LinkLayer::Ethernet)) => GidType::RoceV1,
                ("IB/RoCE v1", Some(LinkLayer::InfiniBand)) => GidType::Ib,
                _ => return None,
            };
            (raw != [0; 16]).then_some(Gid { index, raw, ty })
        };
        indices.into_iter().filter_map(entry).collect()
    }
}

/// The trimmed text of an attribute; `None` when it cannot be read or is empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn number<N: std::str::FromStr>(path: &Path) -> Option<N> {
    text(path)?.parse().ok()
}

/// The names in a folder, sorted; none when it cannot be read.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn counters(dir: &Path) -> BTreeMap<String, u64> {
    // `lifespan` is a setting: for how many milliseconds the kernel keeps what it has read.
    let all = names(dir).into_iter().filter(|name| name != "lifespan");
    all.filter_map(|name| number(&dir.join(&name)).map(|n| (name, n))).collect()
}

/// `dddd:bb:dd.f`
fn is_pci_address(name: &str) -> bool {
    let hex = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let widths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
    parts.iter().all(|p| hex(p)) && widths.len() == 4 && widths[1..] == [2, 2, 1] && widths[0] >= 4
}

fn pcie_link(device: &Path) -> Option<PcieLink> {
    let width = |file| number(&device.join(file)).filter(|&w: &u32| w > 0);
    let speed = |file| mt_per_s(&text(&device.join(file))?);
    Some(PcieLink {
        width: width("current_link_width")?,
        max_width: width("max_link_width")?,
        mt_per_s: speed("current_link_speed")?,
        max_mt_per_s: speed("max_link_speed")?,
    })
}

/// `16.0 GT/s PCIe` in MT/s; `None` for `Unknown`.
fn mt_per_s(text: &str) -> Option<u32> {
    let (value, _) = text.split_once(" GT/s")?;
    let (whole, tenths) = value.split_once('.').unwrap_or((value, "0"));
    let tenths = (tenths.len() == 1).then(|| tenths.parse::<u32>().ok())??;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(tenths * 100)
}

#[cfg(test)]
mod tests;
