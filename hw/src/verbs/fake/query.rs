//! What a device, its port and its GID table say about themselves.

use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of, size_of};
use core::ptr;

use super::Call;
use super::config::{DeviceConfig, PortConfig};
use super::context::{fill, shared_of, zeroed};
use super::world::{Key, World};
use crate::verbs::sys::*;

impl World {
    pub fn device_config(&self, context: Key) -> Option<&DeviceConfig> {
        let context = self.contexts.get(&context)?;
        Some(&self.config.devices[self.devices.get(&context.device)?.index])
    }

    pub fn query_device(&mut self, context: Key) -> Result<ibv_device_attr, c_int> {
        if let Some(errno) = self.ordered(Call::QueryDevice) {
            return Err(self.signed(errno));
        }
        let Some(config) = self.device_config(context) else {
            return Err(self.missing("query_device"));
        };
        let l = &config.limits;
        let mut attr: ibv_device_attr = zeroed();
        fill(&mut attr.fw_ver, "1.0.0");
        attr.node_guid = config.node_guid.to_be();
        attr.sys_image_guid = config.node_guid.to_be();
        attr.max_mr_size = l.max_mr_size;
        attr.page_size_cap = 0x1000;
        attr.phys_port_cnt = 1;
        attr.max_pkeys = 1;
        attr.atomic_cap = match config.atomics {
            true => ibv_atomic_cap::IBV_ATOMIC_HCA,
            false => ibv_atomic_cap::IBV_ATOMIC_NONE,
        };
        attr.max_qp = l.max_qp.cast_signed();
        attr.max_qp_wr = l.max_qp_wr.cast_signed();
        attr.max_sge = l.max_sge.cast_signed();
        attr.max_sge_rd = l.max_sge.cast_signed();
        attr.max_cq = l.max_cq.cast_signed();
        attr.max_cqe = l.max_cqe.cast_signed();
        attr.max_mr = l.max_mr.cast_signed();
        attr.max_pd = l.max_pd.cast_signed();
        attr.max_ah = c_int::MAX;
        attr.max_srq = l.max_srq.cast_signed();
        attr.max_srq_wr = l.max_srq_wr.cast_signed();
        attr.max_srq_sge = l.max_srq_sge.cast_signed();
        attr.max_qp_rd_atom = l.max_qp_rd_atom.cast_signed();
        attr.max_qp_init_rd_atom = l.max_qp_init_rd_atom.cast_signed();
        attr.max_res_rd_atom = l.max_qp_rd_atom.saturating_mul(l.max_qp).cast_signed();
        Ok(attr)
    }

    fn query_port(&mut self, context: Key, port: u8) -> Result<ibv_port_attr, c_int> {
        if let Some(errno) = self.ordered(Call::QueryPort) {
            return Err(self.signed(errno));
        }
        let Some(config) = self.device_config(context) else {
            return Err(self.missing("query_port"));
        };
        if port == 1 { Ok(port_attr(&config.port)) } else { Err(self.signed(libc::EINVAL)) }
    }

    /// Number of entries, or a negative `errno`; the kernel refuses a table that is too small.
    pub fn query_gid_table(
        &mut self,
        context: Key,
        entries: &mut [MaybeUninit<ibv_gid_entry>],
    ) -> isize {
        if let Some(errno) = self.ordered(Call::QueryGids) {
            return -(errno as isize);
        }
        let Some(config) = self.device_config(context) else {
            return -(self.missing("query_gid_table").abs() as isize);
        };
        let gids = &config.port.gids;
        if gids.len() > entries.len() {
            return -(libc::EINVAL as isize);
        }
        for (to, from) in entries.iter_mut().zip(gids) {
            to.write(ibv_gid_entry {
                gid: ibv_gid { raw: from.gid },
                gid_index: from.index,
                port_num: 1,
                gid_type: from.ty as u32,
                ndev_ifindex: from.ndev_ifindex,
            });
        }
        gids.len().cast_signed()
    }
}

fn port_attr(port: &PortConfig) -> ibv_port_attr {
    let mut attr: ibv_port_attr = zeroed();
    attr.state = port.state;
    attr.max_mtu = port.max_mtu.value().into();
    attr.active_mtu = port.active_mtu.value().into();
    let table = port.gids.iter().map(|g| g.index + 1).max().unwrap_or(0);
    attr.gid_tbl_len = table.cast_signed();
    attr.max_msg_sz = 1 << 31;
    attr.pkey_tbl_len = 1;
    attr.lid = port.lid;
    attr.max_vl_num = 1;
    attr.active_width = port.active_width;
    attr.active_speed = port.active_speed;
    attr.phys_state = if port.state == ibv_port_state::IBV_PORT_DOWN { 3 } else { 5 };
    attr.link_layer = port.link_layer as u8;
    attr
}

/// Fills at most `len` bytes of the attributes, as a library that is newer than its caller.
pub(super) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the caller's context is open.
    let answer = unsafe { shared_of(context) }.lock().query_port(context.addr(), port);
    match answer {
        Ok(from) => {
            let len = len.min(size_of::<ibv_port_attr>());
            // SAFETY: the caller has room for `len` bytes.
            unsafe { ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), attr.cast(), len) };
            0
        }
        Err(rc) => rc,
    }
}

/// The form without flags and second capabilities, which end the structure.
pub(super) unsafe extern "C" fn compat_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's context is open and the structure reaches to the field `flags`.
    unsafe { query_port(context, port, attr.cast(), offset_of!(ibv_port_attr, flags)) }
}
