//! The state behind the C objects, keyed by their addresses.
//!
//! The C objects are raw allocations that are reached only through the pointers kept here and
//! handed out; no reference to one ever exists, so the program may hold its pointers as it
//! likes. A call with a pointer whose address is not in a table is a use after destruction and
//! is recorded without touching the memory.

use core::ffi::c_int;
use std::collections::{BTreeMap, VecDeque};
use std::thread::ThreadId;

use doorbell_core::transport::Sge;
use doorbell_core::verbs::{AccessFlags, Lkey, QpState, QpType};

use super::config::{BadWr, FakeConfig, Rounding};
use super::context::{ContextObj, CqObj, QpObj};
use super::record::{Counts, Modify, PostedRecv, SentWr, Violation};
use super::signal::Signal;
use crate::verbs::sys::*;

/// Address of a C object.
pub(super) type Key = usize;

/// Records kept per QP; older ones are dropped.
pub(super) const RECORDS_MAX: usize = 1 << 16;

/// Violations kept; more of them say nothing new.
const VIOLATIONS_MAX: usize = 256;

/// What an asynchronous event is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Cq(Key),
    Qp(Key),
    Srq(Key),
    Port(c_int),
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Event {
    pub kind: u32,
    pub target: Target,
}

pub(super) struct Device {
    pub ptr: *mut ibv_device,
    /// Index in the configuration.
    pub index: usize,
    /// The list that it came in, while that is not freed, and open contexts.
    pub holders: u32,
}

pub(super) struct Context {
    pub ptr: *mut ContextObj,
    pub device: Key,
    pub signal: Signal,
    pub events: VecDeque<Event>,
}

pub(super) struct Pd {
    pub ptr: *mut ibv_pd,
    pub context: Key,
}

pub(super) struct Mr {
    pub ptr: *mut ibv_mr,
    pub pd: Key,
    /// With the provenance that the program registered.
    pub addr: *mut u8,
    pub len: usize,
    pub access: AccessFlags,
    pub lkey: Lkey,
}

pub(super) struct Channel {
    pub ptr: *mut ibv_comp_channel,
    pub context: Key,
    pub signal: Signal,
    pub queue: VecDeque<Key>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Armed {
    No,
    Solicited,
    Any,
}

pub(super) struct Cq {
    pub ptr: *mut CqObj,
    pub context: Key,
    pub channel: Option<Key>,
    pub depth: usize,
    pub entries: VecDeque<Cqe>,
    pub armed: Armed,
    pub overrun: bool,
    pub completions_unacked: u32,
    pub async_unacked: u32,
}

/// Which slot a polled CQE gives back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Frees {
    /// Every send up to this position.
    Send(u64),
    Recv,
    Srq(Key),
    /// The slot is free: its queue pair was reset or destroyed.
    Nothing,
}

/// A completion in the queue. Fields that are invalid on error are filled with junk at the poll.
#[derive(Clone, Debug)]
pub(super) struct Cqe {
    pub qp: Key,
    pub qpn: u32,
    pub wr_id: u64,
    pub status: u8,
    pub vendor_err: u32,
    pub opcode: u8,
    pub byte_len: u32,
    /// Immediate data or invalidated key, as it stands in the field.
    pub data: Option<u32>,
    pub flags: u32,
    pub src_qp: Option<u32>,
    /// Whether it wakes a CQ that is armed for solicited events.
    pub solicited: bool,
    pub frees: Frees,
}

pub(super) struct Srq {
    pub ptr: *mut ibv_srq,
    pub pd: Key,
    pub max_wr: u32,
    pub max_sge: u32,
    pub limit: u32,
    pub posted: VecDeque<PostedRecv>,
    /// Slots in use: posted, or consumed and not polled.
    pub used: u32,
    pub counts: Counts,
    pub async_unacked: u32,
}

/// A send that the device has not executed.
pub(super) struct Wqe {
    pub wr: SentWr,
    pub position: u64,
    pub signalled: bool,
}

/// What is built between `wr_start` and `wr_complete`.
pub(super) struct Building {
    pub thread: ThreadId,
    pub wrs: Vec<SentWr>,
}

pub(super) struct Qp {
    pub ptr: *mut QpObj,
    pub pd: Key,
    pub send_cq: Key,
    pub recv_cq: Key,
    pub srq: Option<Key>,
    pub qpn: u32,
    pub ty: QpType,
    /// The device's; the copy in the C object follows at modify and query.
    pub state: QpState,
    pub cap: ibv_qp_cap,
    pub sig_all: bool,
    /// Made by `create_qp_ex` with operations for `ibv_wr_*`.
    pub extended: bool,
    pub building: Option<Building>,
    pub sq: VecDeque<Wqe>,
    /// Position of the next send, and the first whose slot is not free again.
    pub head: u64,
    pub tail: u64,
    pub rq: VecDeque<PostedRecv>,
    pub rq_used: u32,
    pub attr: ibv_qp_attr,
    pub modifies: VecDeque<Modify>,
    pub sent: VecDeque<SentWr>,
    pub received: VecDeque<PostedRecv>,
    pub counts: Counts,
    pub async_unacked: u32,
}

pub(super) struct Ah {
    pub ptr: *mut ibv_ah,
    pub pd: Key,
    pub attr: ibv_ah_attr,
}

/// A post that will be refused.
#[derive(Copy, Clone, Debug)]
pub(super) struct PostFailure {
    pub at: usize,
    pub errno: c_int,
    pub bad: BadWr,
}

/// Failures that were ordered.
#[derive(Default)]
pub(super) struct Script {
    pub send: Option<PostFailure>,
    pub recv: Option<PostFailure>,
    pub complete: Option<c_int>,
    /// Call, how many succeed first, `errno`.
    pub calls: Vec<(super::Call, usize, c_int)>,
}

pub(super) struct World {
    pub config: FakeConfig,
    pub script: Script,
    pub violations: Vec<Violation>,
    pub lists: BTreeMap<Key, *mut [*mut ibv_device]>,
    pub devices: BTreeMap<Key, Device>,
    pub contexts: BTreeMap<Key, Context>,
    pub pds: BTreeMap<Key, Pd>,
    pub mrs: BTreeMap<Key, Mr>,
    pub channels: BTreeMap<Key, Channel>,
    pub cqs: BTreeMap<Key, Cq>,
    pub srqs: BTreeMap<Key, Srq>,
    pub qps: BTreeMap<Key, Qp>,
    pub ahs: BTreeMap<Key, Ah>,
    /// Registered bytes.
    pub locked: u64,
    /// Whether this is the null device.
    pub is_null: bool,
    serial: u32,
}

// SAFETY: the pointers are to allocations that only the holder of the lock on this structure
// changes or frees, apart from fields that the C interface makes the program's own.
unsafe impl Send for World {}

impl World {
    pub fn new(config: FakeConfig, is_null: bool) -> Self {
        Self {
            config,
            script: Script::default(),
            violations: Vec::new(),
            lists: BTreeMap::new(),
            devices: BTreeMap::new(),
            contexts: BTreeMap::new(),
            pds: BTreeMap::new(),
            mrs: BTreeMap::new(),
            channels: BTreeMap::new(),
            cqs: BTreeMap::new(),
            srqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            ahs: BTreeMap::new(),
            locked: 0,
            is_null,
            serial: 0,
        }
    }

    /// A number never used before: handles, keys, QP numbers.
    pub fn serial(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    pub fn violation(&mut self, violation: Violation) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }

    /// The `errno` as a function returns it here.
    pub fn signed(&self, errno: c_int) -> c_int {
        match self.config.errno_sign {
            super::ErrnoSign::Positive => errno,
            super::ErrnoSign::Negative => -errno,
        }
    }

    /// Records that an object is not there; the value to return.
    pub fn missing(&mut self, call: &'static str) -> c_int {
        self.violation(Violation::NotAlive { call });
        self.signed(libc::EINVAL)
    }

    /// The ordered failure of this call, if its turn has come.
    pub fn ordered(&mut self, call: super::Call) -> Option<c_int> {
        let at = self.script.calls.iter().position(|c| c.0 == call)?;
        if self.script.calls[at].1 == 0 {
            return Some(self.script.calls.remove(at).2);
        }
        self.script.calls[at].1 -= 1;
        None
    }

    pub fn rounded(&self, asked: u32, limit: u32) -> u32 {
        match self.config.rounding {
            Rounding::Exact => asked,
            Rounding::PowerOfTwo if asked == 0 => 0,
            Rounding::PowerOfTwo => asked.checked_next_power_of_two().unwrap_or(limit).min(limit),
        }
    }

    /// Limits of the device behind a context.
    pub fn limits(&self, context: Key) -> super::Limits {
        let device = self.contexts.get(&context).and_then(|c| self.devices.get(&c.device));
        device.map(|d| self.config.devices[d.index].limits).unwrap_or_default()
    }

    /// Where the device finds the bytes of a scatter element; `None` when key, PD, range or
    /// right do not allow the access.
    pub fn resolve(&self, pd: Key, sge: &Sge, need: AccessFlags) -> Option<*mut u8> {
        let mr = self.mrs.values().find(|m| m.lkey == sge.lkey && m.pd == pd)?;
        let offset = usize::try_from(sge.addr).ok()?.checked_sub(mr.addr.addr())?;
        let end = offset.checked_add(usize::try_from(sge.len).ok()?)?;
        let allowed = end <= mr.len && mr.access.contains(need);
        allowed.then(|| mr.addr.wrapping_add(offset))
    }
}
