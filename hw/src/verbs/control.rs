//! Set-up and recovery on libibverbs.

use std::sync::Arc;

use doorbell_core::transport::*;
use doorbell_core::verbs::{
    AccessFlags, Lkey, Mtu, Psn, QpAttrMask, QpState, QpType, Qpn, Rkey, check_transition,
};

use super::convert::{self, Path};
use super::objects::{Ah, Cq, Errno, Pd, Posting, Qp, QpParts, Srq};
use super::queue_pair::{Facts, QueuePair};
use super::region::{Region, RegionError};
use super::sys::{ibv_qp_cap, ibv_srq_attr};
use super::transport::{CqSlot, HwTransport, QpSlot, SrqSlot, Watch};
use crate::gid::LinkLayer;
use crate::limits::Memlock;

/// How a handle works.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HwConfig {
    /// Who it is, for programs that ask.
    pub initiator: Initiator,
    /// Classic or extended verbs.
    pub posting: Posting,
    /// Work requests that may be staged on a QP before a ring. Higher: larger batches with one
    /// call, and memory: about 128 bytes, 16 for each SGE and the inline bytes, for each.
    pub max_staged: u32,
}

impl Default for HwConfig {
    /// Core 0 of NUMA node 0, classic verbs, 64 staged requests.
    fn default() -> Self {
        Self {
            initiator: Initiator::Cpu { core: 0, numa: 0 },
            posting: Posting::Classic,
            max_staged: 64,
        }
    }
}

/// Largest range of [`Control::watch`] in bytes. Watched memory is compared byte by byte before
/// each wait: a flag or a counter is meant, not a buffer.
pub const MAX_WATCHED_BYTES: u64 = 4096;

const GPU: Unsupported =
    Unsupported { capability: "GPU memory", reason: "this back end registers host memory only" };
const VIRTUAL: Unsupported = Unsupported {
    capability: "a virtual region",
    reason: "memory of hardware has bytes: Contents::Data",
};
const SHARING: Unsupported = Unsupported {
    capability: "sharing",
    reason: "each handle has a context of its own: give each thread its own queue pairs",
};

/// Attributes that may be named in a mask and that [`QpAttr`] has no field for. A device would take
/// what happens to stand in the structure.
const NOT_IN_THE_TRAIT: QpAttrMask = QpAttrMask::ALT_PATH
    .union(QpAttrMask::PATH_MIG_STATE)
    .union(QpAttrMask::CAP)
    .union(QpAttrMask::RATE_LIMIT)
    .union(QpAttrMask::EN_SQD_ASYNC_NOTIFY);
const NO_ATTRIBUTE: Unsupported = Unsupported {
    capability: "an alternate path, migration, resizing, a rate limit or SQD notification",
    reason: "the attributes of the trait have no field for it",
};

fn limit(field: &'static str, got: u32, min: u32, max: u32) -> Result<(), CreateError> {
    let known = (min..=max).contains(&got);
    let (got, max) = (got.into(), max.into());
    if known { Ok(()) } else { Err(CreateError::Limit { field, got, max }) }
}

/// One more object than there may be.
fn full(field: &'static str, max: u32) -> CreateError {
    CreateError::Limit { field, got: u64::from(max) + 1, max: max.into() }
}

const fn os(e: Errno) -> CreateError {
    CreateError::Os(e.0)
}

impl HwTransport {
    fn path(&self) -> Path {
        let (port, gid) = (self.device.port(), self.device.gid());
        Path {
            port: port.number,
            // The field of verbs is one byte; the choice of the GID sees to it.
            sgid_index: u8::try_from(gid.index).expect("chosen below 256"),
            global: port.link_layer == LinkLayer::Ethernet,
        }
    }

    fn active_mtu(&self) -> Mtu {
        self.device.caps().active_mtu
    }

    fn region_error(&self, e: RegionError, len: u64) -> MemError {
        match e {
            RegionError::Memory { available } => {
                MemError::TooLarge { asked: len, available: available.unwrap_or(0) }
            }
            RegionError::Numa(e) => MemError::Os(e.0),
            RegionError::Register(Errno(libc::ENOMEM | libc::EAGAIN)) => {
                match Memlock::read().and_then(|m| m.soft) {
                    Some(limit) => MemError::Memlock { limit },
                    None => MemError::Os(libc::ENOMEM),
                }
            }
            RegionError::Register(e) => MemError::Os(e.0),
        }
    }

    fn check_sizes(&self, init: &QpInit) -> Result<(), CreateError> {
        let (d, s) = (self.device.caps(), init.size);
        limit("max_send_wr", s.max_send_wr, 1, d.max_qp_wr)?;
        limit("max_recv_wr", s.max_recv_wr, 0, d.max_qp_wr)?;
        limit("max_send_sge", s.max_send_sge, 0, d.max_sge)?;
        limit("max_inline_data", s.max_inline, 0, d.max_inline)?;
        match init.queue_memory {
            MemKind::Host { .. } => Ok(()),
            MemKind::Gpu { .. } => Err(CreateError::Unsupported(GPU)),
        }
    }

    /// What the provider granted, in the words of the trait.
    fn caps(&self, init: &QpInit, cap: &ibv_qp_cap) -> QpCaps {
        let d = self.device.caps();
        QpCaps {
            max_send_wr: cap.max_send_wr,
            sq_blocks: None,
            max_recv_wr: if init.srq.is_some() { 0 } else { cap.max_recv_wr },
            max_staged: self.config.max_staged.clamp(1, cap.max_send_wr.max(1)),
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            bf_bytes: 0,
            ring_orders_stores: true,
            ring_choice: false,
            shareable: false,
            atomics: self.device.atomics() && init.ty == QpType::Rc,
            max_rd_atomic: d.max_rd_atomic,
        }
    }

    /// A first PSN that differs from QP to QP and from run to run, so that packets of an earlier
    /// connection are not taken for this one's.
    fn draw_psn(&mut self) -> Psn {
        // splitmix64, seeded by process, time and rank when the handle was made.
        self.psn_seed = self.psn_seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.psn_seed;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Psn::new((x >> 40) as u32)
    }

    /// Destroys the address handles that only a staged datagram can have kept, once there is none.
    fn release_ahs(&mut self) {
        let staged = |slot: &QpSlot| slot.pair.ty() == QpType::Ud && slot.pair.staged() > 0;
        if !self.leaving.is_empty() && !self.qps.iter().any(|(_, slot)| staged(slot)) {
            self.leaving.clear();
        }
    }

    fn check_values(&self, a: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        if mask.intersects(NOT_IN_THE_TRAIT) {
            return Err(ModifyError::Unsupported(NO_ATTRIBUTE));
        }
        let d = self.device.caps();
        let bounds = [
            (QpAttrMask::MAX_QP_RD_ATOMIC, "max_rd_atomic", a.max_rd_atomic, d.max_rd_atomic),
            (
                QpAttrMask::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                a.max_dest_rd_atomic,
                d.max_dest_rd_atomic,
            ),
            (QpAttrMask::PATH_MTU, "path_mtu", a.path_mtu.value(), self.active_mtu().value()),
        ];
        for (bit, field, got, max) in bounds {
            if mask.contains(bit) && got > max {
                return Err(ModifyError::Value { field, got: got.into(), max: max.into() });
            }
        }
        Ok(())
    }
}

impl Control for HwTransport {
    fn device_caps(&self) -> &DeviceCaps {
        self.device.caps()
    }

    fn port_counters(&self) -> Option<TransportCounters> {
        self.device.counters()
    }

    fn rank(&self) -> u32 {
        self.bootstrap.rank()
    }

    fn size(&self) -> u32 {
        self.bootstrap.size()
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        self.bootstrap.publish(key, bytes);
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        self.bootstrap.lookup(peer, key, out)
    }

    fn create_pd(&mut self) -> Result<PdId, CreateError> {
        let pd = Pd::alloc(self.device.context()).map_err(os)?;
        self.pds.insert(pd).ok_or(full("max_pd", PdId::MAX_INDEX + 1))
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        self.release_ahs();
        destroy_shared(self.pds.get(pd).map_err(gone)?)?;
        self.pds.remove(pd).map_err(gone)?;
        Ok(())
    }

    fn alloc_mr(
        &mut self,
        pd: PdId,
        len: u64,
        kind: MemKind,
        access: AccessFlags,
        contents: Contents,
    ) -> Result<Mr, MemError> {
        let pd = self.pds.get(pd).map_err(|_| MemError::BadHandle)?;
        access.validate().map_err(|_| MemError::InvalidAccess)?;
        let MemKind::Host { numa } = kind else { return Err(MemError::Unsupported(GPU)) };
        if contents == Contents::Virtual {
            return Err(MemError::Unsupported(VIRTUAL));
        }
        if self.mrs.is_full() {
            return Err(MemError::NoMemory { max: self.device.caps().max_mr.into() });
        }
        let flags = access.bits().cast_signed();
        let region = Region::alloc(pd, len, numa, flags).map_err(|e| self.region_error(e, len))?;
        let (addr, (lkey, rkey)) = (region.addr(), region.keys());
        let id = self
            .mrs
            .insert(region)
            .ok_or(MemError::NoMemory { max: self.device.caps().max_mr.into() })?;
        Ok(Mr { id, addr, len, lkey: Lkey(lkey), rkey: Rkey(rkey), kind })
    }

    fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle> {
        self.mrs.remove(mr).map(drop)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError> {
        let d = *self.device.caps();
        limit("cqe", depth, 1, d.max_cqe)?;
        if self.cqs.is_full() {
            return Err(full("max_cq", d.max_cq));
        }
        let cq = Cq::create(&self.channel, depth.cast_signed()).map_err(os)?;
        self.cqs.insert(CqSlot { cq, lost: false }).ok_or(full("max_cq", d.max_cq))
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        destroy_shared(&self.cqs.get(cq).map_err(gone)?.cq)?;
        self.drain_channel();
        self.take_events();
        self.cqs.remove(cq).map_err(gone)?;
        Ok(())
    }

    fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError> {
        let pd = self.pds.get(pd).map_err(|_| CreateError::BadHandle)?;
        limit("max_wr", depth, 1, self.device.caps().max_srq_wr)?;
        let mut sizes = ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let srq = Srq::create(pd, &mut sizes).map_err(os)?;
        let slot = SrqSlot { srq, depth: sizes.max_wr };
        self.srqs.insert(slot).ok_or(full("max_srq", SrqId::MAX_INDEX + 1))
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        destroy_shared(&self.srqs.get(srq).map_err(gone)?.srq)?;
        self.take_events();
        self.srqs.remove(srq).map_err(gone)?;
        Ok(())
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError> {
        self.check_sizes(init)?;
        let bad = CreateError::BadHandle;
        let full = full("max_qp", self.device.caps().max_qp);
        let srq = init.srq.map(|id| self.srqs.get(id).map(|s| s.srq.clone()));
        let parts = QpParts {
            pd: self.pds.get(init.pd).map_err(|_| bad)?.clone(),
            send_cq: self.cqs.get(init.send_cq).map_err(|_| bad)?.cq.clone(),
            recv_cq: self.cqs.get(init.recv_cq).map_err(|_| bad)?.cq.clone(),
            srq: srq.transpose().map_err(|_| bad)?,
            ty: init.ty.value().into(),
            cap: ibv_qp_cap {
                max_send_wr: init.size.max_send_wr,
                max_recv_wr: if init.srq.is_some() { 0 } else { init.size.max_recv_wr },
                max_send_sge: init.size.max_send_sge,
                max_recv_sge: 1,
                max_inline_data: init.size.max_inline,
            },
            sq_sig_all: init.sq_sig_all,
            atomics: self.device.atomics(),
            posting: self.config.posting,
        };
        if self.qps.is_full() {
            return Err(full);
        }
        let qp = Qp::create(parts).map_err(os)?;
        let (caps, number) = (self.caps(init, qp.cap()), qp.num());
        let max_bytes = match init.ty {
            QpType::Ud => self.active_mtu().bytes(),
            _ => self.device.caps().max_msg_bytes,
        };
        let facts = Facts {
            index: self.qps.next_index(),
            ty: init.ty,
            caps,
            max_bytes,
            psn: self.draw_psn(),
            life: self.lives.get(&self.qps.next_index()).copied().unwrap_or(0),
            cqs: [init.send_cq, init.recv_cq],
        };
        let pair = QueuePair::new(qp, facts);
        let slot = QpSlot { pair, srq: init.srq };
        let id = self.qps.insert(slot).ok_or(full)?;
        self.by_number.insert(number, id.index());
        Ok(id)
    }

    fn create_ah(&mut self, pd: PdId, to: Address) -> Result<AhId, CreateError> {
        self.release_ahs();
        let pd = self.pds.get(pd).map_err(|_| CreateError::BadHandle)?;
        let ah = Ah::create(pd, &mut self.path().towards(&to)).map_err(os)?;
        self.ahs.insert(ah).ok_or(full("max_ah", AhId::MAX_INDEX + 1))
    }

    fn destroy_ah(&mut self, ah: AhId) -> Result<(), DestroyError> {
        let ah = self.ahs.remove(ah).map_err(gone)?;
        // A chain that is not posted yet points to it.
        self.leaving.push(ah);
        self.release_ahs();
        Ok(())
    }

    fn modify_qp(&mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask) -> Result<u32, ModifyError> {
        let slot = self.qps.get(qp).map_err(|_| ModifyError::BadHandle)?;
        let (ty, from) = (slot.pair.ty(), slot.pair.state());
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_state != from {
            return Err(ModifyError::CurState { actual: from });
        }
        let to = if mask.contains(QpAttrMask::STATE) { attr.state } else { from };
        check_transition(ty, from, to, mask).map_err(ModifyError::Transition)?;
        self.check_values(attr, mask)?;
        let mut attributes = self.path().attributes(attr);
        let pair = &mut self.qps.get_mut(qp).map_err(|_| ModifyError::BadHandle)?.pair;
        let unstaged = pair.unstage();
        if let Err(Errno(errno)) = pair.qp().modify(&mut attributes, convert::mask(mask)) {
            // The device may have moved on since this handle looked last.
            pair.learn_state();
            let actual = pair.state();
            let moved = actual != from;
            return Err(if moved {
                ModifyError::CurState { actual }
            } else {
                ModifyError::Os(errno)
            });
        }
        pair.enter(to);
        Ok(unstaged)
    }

    fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle> {
        Ok(self.qps.get(qp)?.pair.state())
    }

    fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle> {
        let pair = &self.qps.get(qp)?.pair;
        let qpn = Qpn::new(pair.qp().num());
        let (address, psn, mtu) = (self.device.address(), pair.psn, self.active_mtu());
        Ok(Endpoint { address, qpn, psn, mtu })
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        let slot = self.srqs.get(srq).map_err(|_| ModifyError::BadHandle)?;
        if limit > slot.depth {
            let (got, max) = (limit.into(), slot.depth.into());
            return Err(ModifyError::Value { field: "srq_limit", got, max });
        }
        slot.srq.arm(limit).map_err(|e| ModifyError::Os(e.0))
    }

    fn next_event(&mut self) -> Option<AsyncEvent> {
        self.take_events();
        self.events.pop_front()
    }

    fn watch(&mut self, range: Range) -> Result<WatchId, MemError> {
        if range.len > MAX_WATCHED_BYTES {
            return Err(MemError::NoMemory { max: MAX_WATCHED_BYTES });
        }
        let mut seen = vec![0; range.len as usize];
        self.copy_out(range, &mut seen)?;
        let full = MemError::NoMemory { max: MAX_WAIT_WATCHES.into() };
        self.watches.insert(Watch { range, now: seen.clone(), seen }).ok_or(full)
    }

    fn share_qp(&mut self, _qp: QpId, _key: u64) -> Result<(), Unsupported> {
        Err(SHARING)
    }

    fn attach_qp(&mut self, _owner: u32, _key: u64) -> Result<QpId, AttachError> {
        Err(AttachError::Unsupported(SHARING))
    }

    fn share_mr(&mut self, _mr: MrId, _key: u64) -> Result<(), Unsupported> {
        Err(SHARING)
    }

    fn attach_mr(&mut self, _owner: u32, _key: u64) -> Result<Mr, AttachError> {
        Err(AttachError::Unsupported(SHARING))
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), BadHandle> {
        // Events of the QP must be acknowledged first, or the library waits for them for ever.
        self.qps.get(qp)?;
        self.take_events();
        let slot = self.qps.remove(qp)?;
        self.by_number.remove(&slot.pair.qp().num());
        self.lives.insert(qp.index(), slot.pair.life().wrapping_add(1));
        Ok(())
    }
}

const fn gone(_: BadHandle) -> DestroyError {
    DestroyError::BadHandle
}

/// An object that others were made from stays: it is busy.
fn destroy_shared<T>(object: &Arc<T>) -> Result<(), DestroyError> {
    if Arc::strong_count(object) > 1 { Err(DestroyError::Busy) } else { Ok(()) }
}
