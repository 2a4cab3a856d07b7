//! Devices: which there are, and the choice of device, port and GID.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::Arc;

use doorbell_core::transport::{Address, DeviceCaps, TransportCounters};
use doorbell_core::verbs::Mtu;
use serde::Serialize;

use super::objects::{Context, Errno, checked};
use super::open_error::{OpenError, PortState};
use super::provider::Provider;
use super::sys::*;
use crate::gid::{Gid, GidChoice, GidType, LinkLayer, choose};
use crate::sysfs::Sysfs;

/// Most inline bytes that a QP may be asked for. This is our limit, not the device's: verbs tell
/// what a device grants only when a QP is created, and drivers grant from 64 to about 1,000. A
/// larger request may still be refused by the device; what was granted is in `QpCaps`.
pub const MAX_INLINE_ASKED: u32 = 1024;

/// Entries of all GID tables of a device that there is room for. Real tables have up to 1,024.
const MAX_GIDS: usize = 1 << 14;

/// How a device is called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceName {
    /// RDMA device, such as `mlx5_0`.
    pub name: String,
    /// Its file below `/dev/infiniband`, such as `uverbs0`.
    pub uverbs: String,
}

/// What to open. The default takes the first device with an active port and a usable GID.
#[derive(Clone, Debug, Default)]
pub struct OpenConfig {
    /// Name of the device; `None`: the first that can be used.
    pub device: Option<String>,
    /// Port from 1; `None`: the first that can be used.
    pub port: Option<u8>,
    /// Which GID.
    pub gid: GidChoice,
    /// Where the kernel's trees are.
    pub sysfs: Sysfs,
}

/// A port, as `ibv_query_port` tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Port {
    /// Number, from 1.
    pub number: u8,
    /// State.
    pub state: PortState,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Path MTU in use; `None`: a code that this library does not know.
    #[serde(serialize_with = "mtu_bytes")]
    pub active_mtu: Option<Mtu>,
    /// Largest path MTU that the port could have.
    #[serde(serialize_with = "mtu_bytes")]
    pub max_mtu: Option<Mtu>,
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// Longest message in bytes.
    pub max_msg_bytes: u32,
    /// Entries of the GID table, used or not.
    pub gid_entries: u32,
}

fn mtu_bytes<S: serde::Serializer>(mtu: &Option<Mtu>, to: S) -> Result<S::Ok, S::Error> {
    mtu.map(Mtu::bytes).serialize(to)
}

/// An open device with a port and a GID.
#[derive(Debug)]
pub struct Device {
    context: Arc<Context>,
    name: DeviceName,
    port: Port,
    gid: Gid,
    caps: DeviceCaps,
    atomics: bool,
    sysfs: Sysfs,
}

/// What drivers call them: mlx5, bnxt_re, rxe. rxe has no counter of timers alone, nor of CNPs.
const RNR_NAKS: [&str; 3] = ["rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err"];
const TIMEOUTS: [&str; 2] = ["local_ack_timeout_err", "to_retransmits"];
const SEQUENCE_NAKS: [&str; 3] = ["packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"];
const CNPS: [&str; 3] = ["rp_cnp_handled", "rp_cnp_ignored", "rx_cnp_pkts"];

impl Device {
    /// Opens a device and chooses port and GID.
    ///
    /// # Errors
    /// See [`OpenError`]. When nothing in particular was asked for, why each device was refused.
    pub fn open(provider: &Arc<dyn Provider>, config: &OpenConfig) -> Result<Self, OpenError> {
        let list = List::read(provider)?;
        let all = list.devices();
        let wanted = |d: &&Listed| config.device.as_ref().is_none_or(|n| *n == d.name.name);
        let candidates: Vec<&Listed> = all.iter().filter(wanted).collect();
        if let (true, Some(name)) = (candidates.is_empty(), &config.device) {
            let there = all.iter().map(|d| d.name.name.clone()).collect();
            return Err(OpenError::NoSuchDevice { name: name.clone(), there });
        }
        first(candidates, |device| {
            let open = OpenDevice::open(&list, device, &config.sysfs)?;
            let ports = match config.port {
                Some(port) => vec![port],
                None => open.ports().collect(),
            };
            first(ports, |port| open.on(port, config))
        })
    }

    /// The open context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its name.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The port, active when the device was opened.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// The GID: index for `sgid_index`, and address.
    pub fn gid(&self) -> &Gid {
        &self.gid
    }

    /// What peers put into an address vector: the LID (0 on Ethernet) and the GID.
    pub fn address(&self) -> Address {
        Address { lid: self.port.lid, gid: self.gid.raw, ..Address::default() }
    }

    /// Limits. `max_inline` is [`MAX_INLINE_ASKED`].
    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// Counters of the port as they stand, by the names of its driver; `None` where it shows none
    /// of them.
    pub fn counters(&self) -> Option<TransportCounters> {
        let (device, port) = (&self.name.name, self.port.number);
        let one = |name: &&str| self.sysfs.hw_counter(device, port, name);
        let of = |names: &[&str]| names.iter().find_map(one);
        let (rnr, timeouts, sequence) = (of(&RNR_NAKS), of(&TIMEOUTS), of(&SEQUENCE_NAKS));
        // mlx5 has two, which together are all; who has another has only that.
        let cnps = CNPS.iter().filter_map(one).reduce(u64::saturating_add);
        rnr.or(timeouts).or(sequence).or(cnps)?;
        Some(TransportCounters {
            rnr_nak_retry_err: rnr.unwrap_or(0),
            local_ack_timeout_err: timeouts.unwrap_or(0),
            packet_seq_err: sequence.unwrap_or(0),
            cnps: cnps.unwrap_or(0),
        })
    }

    /// Whether ATOMICs work, at least between QPs of this device.
    pub fn atomics(&self) -> bool {
        self.atomics
    }
}

/// The first that works; else the only error, or all of them.
fn first<C, T>(
    candidates: Vec<C>,
    mut open: impl FnMut(C) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let mut refused = Vec::new();
    for candidate in candidates {
        match open(candidate) {
            Ok(found) => return Ok(found),
            Err(OpenError::NoneUsable(more)) => refused.extend(more),
            Err(error) => refused.push(error),
        }
    }
    Err(match refused.len() {
        1 => refused.remove(0),
        _ => OpenError::NoneUsable(refused),
    })
}

/// The devices of this machine, in the library's order.
///
/// # Errors
/// [`OpenError::NoDevices`], or what the library says.
pub fn list(provider: &Arc<dyn Provider>) -> Result<Vec<DeviceName>, OpenError> {
    Ok(List::read(provider)?.devices().into_iter().map(|d| d.name).collect())
}

/// The library's list, freed in the end. Devices are opened while it lives.
pub(super) struct List<'a> {
    provider: &'a Arc<dyn Provider>,
    at: *mut *mut ibv_device,
    count: usize,
}

/// A device of a [`List`].
pub(super) struct Listed {
    device: *mut ibv_device,
    pub(super) name: DeviceName,
}

impl<'a> List<'a> {
    /// A list of at least one device.
    pub(super) fn read(provider: &'a Arc<dyn Provider>) -> Result<Self, OpenError> {
        set_errno(0);
        let (at, count) = provider.get_device_list();
        let errno = Errno(errno());
        match (at.is_null(), errno.0) {
            (true, libc::ENOSYS) => Err(OpenError::NoDevices { supported: false }),
            (true, 0) => Err(OpenError::NoDevices { supported: true }),
            (true, _) => Err(OpenError::List(errno)),
            (false, _) => {
                let list = Self { provider, at, count };
                if count == 0 {
                    return Err(OpenError::NoDevices { supported: true });
                }
                Ok(list)
            }
        }
    }

    pub(super) fn devices(&self) -> Vec<Listed> {
        let device = |i| {
            // SAFETY: the list has `count` entries and was not freed.
            let device = unsafe { self.at.add(i).read() };
            // SAFETY: entries point to devices that live at least as long as the list; their
            // names never change.
            let (name, uverbs) = unsafe {
                ((&raw const (*device).name).read(), (&raw const (*device).dev_name).read())
            };
            Listed { device, name: DeviceName { name: text(&name), uverbs: text(&uverbs) } }
        };
        (0..self.count).map(device).collect()
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        // SAFETY: the provider made it, and it is freed nowhere else.
        unsafe { self.provider.free_device_list(self.at) };
    }
}

/// The text before the NUL of a C array.
pub(super) fn text(chars: &[core::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c.cast_unsigned()).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An open device whose port is not chosen yet.
pub(super) struct OpenDevice {
    pub(super) name: DeviceName,
    pub(super) attr: ibv_device_attr,
    context: Arc<Context>,
}

impl OpenDevice {
    /// Opens and queries an element of the list.
    pub(super) fn open(list: &List<'_>, device: &Listed, sysfs: &Sysfs) -> Result<Self, OpenError> {
        let (name, provider) = (device.name.clone(), list.provider);
        // SAFETY: the caller took it from the list, which is still there.
        let context = unsafe { Context::open(provider.clone(), device.device) };
        let context = context.map_err(|errno| {
            let path = sysfs.uverbs_path(&name.uverbs);
            // The library looks for the file in a second way when the first is denied, and then
            // reports ENOENT: the file itself tells.
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&path);
            match (errno.0, file.map_err(|e| e.kind())) {
                (libc::EACCES | libc::EPERM, _) | (_, Err(ErrorKind::PermissionDenied)) => {
                    OpenError::Permission { path }
                }
                (libc::ENOENT, Err(ErrorKind::NotFound)) => OpenError::NoDeviceFile { path },
                _ => os("ibv_open_device", &name, errno),
            }
        })?;
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open, and there is room for the answer.
        let rc = unsafe { provider.query_device(context.as_ptr(), &raw mut attr) };
        checked(rc).map_err(|errno| os("ibv_query_device", &name, errno))?;
        Ok(Self { name, attr, context })
    }

    /// Numbers of its ports.
    pub(super) fn ports(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.attr.phys_port_cnt
    }

    /// `ibv_query_port`.
    pub(super) fn port(&self, number: u8) -> Result<Port, OpenError> {
        let device = || self.name.name.clone();
        if !self.ports().contains(&number) {
            let ports = self.attr.phys_port_cnt;
            return Err(OpenError::NoSuchPort { device: device(), port: number, ports });
        }
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open.
        let rc = unsafe { query_port(self.context.as_ptr(), number, &mut attr) };
        checked(rc).map_err(|errno| os("ibv_query_port", &self.name, errno))?;
        port(number, &attr).ok_or_else(|| OpenError::LinkLayer {
            device: device(),
            port: number,
            layer: attr.link_layer,
        })
    }

    /// The valid GIDs of a port.
    pub(super) fn gids(&self, port: &Port, sysfs: &Sysfs) -> Result<Vec<Gid>, OpenError> {
        // One call fetches the tables of all ports, so there must be room for all.
        let entries_of = |p| self.port(p).map_or(0, |port| port.gid_entries as usize);
        let entries: usize = self.ports().map(entries_of).sum();
        let room = entries.clamp(1, MAX_GIDS);
        let mut room: Vec<_> = (0..room).map(|_| MaybeUninit::uninit()).collect();
        let provider = self.context.provider();
        // SAFETY: the context is open.
        let n = unsafe { provider.query_gid_table(self.context.as_ptr(), &mut room) };
        if n < 0 {
            let errno = Errno(i32::try_from(n.unsigned_abs()).unwrap_or(i32::MAX));
            return match errno.0 {
                libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EPROTONOSUPPORT => {
                    Ok(sysfs.gids(&self.name.name, port.number))
                }
                _ => Err(os("ibv_query_gid_table", &self.name, errno)),
            };
        }
        // SAFETY: the call says that it has filled the first `n`.
        let filled = room.iter().take(n.unsigned_abs()).map(|e| unsafe { e.assume_init_read() });
        let mut gids: Vec<Gid> = filled
            .filter(|e| e.port_num == u32::from(port.number))
            .filter_map(|e| gid(&e))
            .collect();
        gids.sort_unstable_by_key(|g| g.index);
        Ok(gids)
    }

    /// Chooses a port and its GID.
    fn on(&self, number: u8, config: &OpenConfig) -> Result<Device, OpenError> {
        let device = || self.name.name.clone();
        let port = self.port(number)?;
        if port.state != PortState::ACTIVE {
            let state = port.state;
            return Err(OpenError::PortNotActive { device: device(), port: number, state });
        }
        let Some(mtu) = port.active_mtu else {
            return Err(OpenError::Mtu { device: device(), port: number });
        };
        let gids = self.gids(&port, &config.sysfs)?;
        let gid = choose(port.link_layer, config.gid, &gids).map_err(|cause| OpenError::Gid {
            device: device(),
            port: number,
            cause,
        })?;
        Ok(Device {
            context: self.context.clone(),
            name: self.name.clone(),
            caps: caps(&self.attr, port.max_msg_bytes, mtu),
            atomics: atomics(&self.attr),
            sysfs: config.sysfs.clone(),
            port,
            gid,
        })
    }
}

fn os(call: &'static str, device: &DeviceName, errno: Errno) -> OpenError {
    OpenError::Os { call, device: device.name.clone(), errno }
}

/// `None` for a link layer that did not exist when this was written.
fn port(number: u8, attr: &ibv_port_attr) -> Option<Port> {
    let link_layer = match attr.link_layer {
        // Drivers from before RoCE say nothing.
        0 | 1 => LinkLayer::InfiniBand,
        2 => LinkLayer::Ethernet,
        _ => return None,
    };
    let mtu = |code: u32| u8::try_from(code).ok().and_then(|c| Mtu::try_from(c).ok());
    Some(Port {
        number,
        state: PortState(attr.state),
        link_layer,
        active_mtu: mtu(attr.active_mtu),
        max_mtu: mtu(attr.max_mtu),
        lid: if link_layer == LinkLayer::Ethernet { 0 } else { attr.lid },
        max_msg_bytes: attr.max_msg_sz,
        gid_entries: count(attr.gid_tbl_len),
    })
}

/// `None` for an empty entry, or a type that did not exist when this was written.
fn gid(entry: &ibv_gid_entry) -> Option<Gid> {
    let ty = match entry.gid_type {
        IBV_GID_TYPE_IB => GidType::Ib,
        IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
        IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
        _ => return None,
    };
    // SAFETY: every bit pattern is a valid value of each member of the union.
    let raw = unsafe { entry.gid.raw };
    (raw != [0; 16]).then_some(Gid { index: entry.gid_index, raw, ty })
}

/// A count of the library: an `int`, never negative but in broken drivers.
fn count(n: core::ffi::c_int) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

/// Limits in the words of the trait.
pub(super) fn caps(attr: &ibv_device_attr, max_msg_bytes: u32, active_mtu: Mtu) -> DeviceCaps {
    let depth = |n| u8::try_from(count(n)).unwrap_or(u8::MAX);
    DeviceCaps {
        max_qp: count(attr.max_qp),
        max_qp_wr: count(attr.max_qp_wr),
        max_sge: count(attr.max_sge),
        max_cq: count(attr.max_cq),
        max_cqe: count(attr.max_cqe),
        max_srq_wr: count(attr.max_srq_wr),
        max_mr: count(attr.max_mr),
        // Initiator depth and responder resources have names that are easily taken for each other.
        max_rd_atomic: depth(attr.max_qp_init_rd_atom),
        max_dest_rd_atomic: depth(attr.max_qp_rd_atom),
        max_inline: MAX_INLINE_ASKED,
        max_msg_bytes,
        active_mtu,
        // Plain verbs map neither queues nor the doorbell register into a GPU.
        gpu_doorbell: false,
    }
}

/// Whether the device has ATOMICs.
pub(super) fn atomics(attr: &ibv_device_attr) -> bool {
    attr.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE
}

#[cfg(test)]
mod tests;
