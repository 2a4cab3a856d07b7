//! The objects of the ideal back end.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::transport::{
    AsyncEvent, Contents, DeviceCaps, Initiator, MemKind, QpAttr, QpCaps, QpId, RecvWr, SendOp,
    Sge, UdDest, WaitSet, WorkQueue,
};
use crate::units::Time;
use crate::verbs::{
    AccessFlags, MAX_MESSAGE_BYTES, Mtu, QpState, QpType, Rkey, WcOpcode, WcStatus,
};

/// Where a rank runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Host, from 0. Ranks of a host can share QPs and regions.
    pub host: u32,
    /// The initiator.
    pub initiator: Initiator,
}

/// Limits that the back end grants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Limits of the device.
    pub device: DeviceCaps,
    /// Work requests that may be staged before a ring. Lower: `StagedFull` comes sooner.
    pub max_staged: u32,
    /// Bytes that one BlueFlame write carries. Only reported: nothing here takes time.
    pub bf_bytes: u32,
}

impl Default for Limits {
    /// As mlx5 devices report them, rounded: 32,768 work requests per queue, 16 outstanding
    /// READs, 2^31-byte messages; 64 staged, 256 B of BlueFlame.
    fn default() -> Self {
        let device = DeviceCaps {
            max_qp: 1 << 17,
            max_qp_wr: 1 << 15,
            max_sge: 30,
            max_cq: 1 << 16,
            max_cqe: 1 << 22,
            max_srq_wr: 1 << 15,
            max_mr: 1 << 17,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            max_inline: 956,
            max_msg_bytes: MAX_MESSAGE_BYTES,
            active_mtu: Mtu::B4096,
            gpu_doorbell: true,
        };
        Self { device, max_staged: 64, bf_bytes: 256 }
    }
}

/// The whole ideal fabric: every rank, queue and byte. [`Ideal::at`] gives one rank's handle.
#[derive(Debug)]
pub struct Ideal {
    pub(super) limits: Limits,
    pub(super) now: Time,
    pub(super) ranks: Vec<Rank>,
    pub(super) qps: Vec<Qp>,
    pub(super) cqs: Vec<Cq>,
    pub(super) srqs: Vec<Srq>,
    pub(super) regions: Vec<Region>,
    pub(super) published: BTreeMap<(u32, u64), Vec<u8>>,
    pub(super) shared_qps: BTreeMap<(u32, u64), usize>,
    pub(super) shared_mrs: BTreeMap<(u32, u64), usize>,
    next_addr: u64,
}

/// One rank's tables: local index to global index, `None` once destroyed.
#[derive(Debug)]
pub(super) struct Rank {
    pub place: Place,
    /// Whether each protection domain is alive.
    pub pds: Vec<bool>,
    pub ahs: Vec<Option<Pd>>,
    pub qps: Vec<Option<usize>>,
    pub cqs: Vec<usize>,
    pub srqs: Vec<usize>,
    pub mrs: Vec<Option<usize>>,
    pub watches: Vec<Watch>,
    pub events: VecDeque<AsyncEvent>,
    /// Sources, beside CQs and events, that became ready since the last step began.
    pub ready: WaitSet,
    /// Completion queues that the current step has polled to empty, as bits.
    pub polled: u64,
    /// Whether its program has returned `Done`.
    pub ended: bool,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub region: usize,
    pub offset: u64,
    pub len: u64,
}

/// A protection domain is named by its rank and number.
pub(super) type Pd = (usize, u32);

#[derive(Debug)]
pub(super) struct Region {
    pub pd: Pd,
    pub addr: u64,
    pub len: u64,
    pub kind: MemKind,
    pub access: AccessFlags,
    /// `None`: virtual.
    pub bytes: Option<Vec<u8>>,
    pub alive: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Payload {
    Sge(Vec<Sge>),
    Inline(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Wqe {
    pub wr_id: u64,
    pub op: SendOp,
    pub data: Payload,
    pub signaled: bool,
    pub solicited: bool,
    pub dest: Option<UdDest>,
    /// Rank that staged it: a ring announces only its own.
    pub rank: usize,
}

impl Wqe {
    pub fn len(&self) -> u64 {
        match &self.data {
            Payload::Sge(s) => s.iter().map(|s| u64::from(s.len)).sum(),
            Payload::Inline(b) => b.len() as u64,
        }
    }
}

#[derive(Debug)]
pub(super) struct Qp {
    pub id: QpId,
    pub rank: usize,
    pub ty: QpType,
    pub pd: Pd,
    pub send_cq: usize,
    pub recv_cq: usize,
    pub srq: Option<usize>,
    pub caps: QpCaps,
    pub sig_all: bool,
    pub state: QpState,
    pub attr: QpAttr,
    /// Staged and not rung, in order per rank.
    pub staged: Vec<Wqe>,
    /// Rung and not executed.
    pub sq: VecDeque<Wqe>,
    /// Work requests executed since the last RESET.
    pub executed: u64,
    /// Work requests whose slots came back.
    pub retired: u64,
    /// Counts RESETs, so that completions of an earlier life retire nothing.
    pub life: u32,
    pub rq: VecDeque<RecvWr>,
    pub alive: bool,
}

impl Qp {
    /// Slots of the send queue in use.
    pub fn used(&self) -> u64 {
        self.executed - self.retired + (self.sq.len() + self.staged.len()) as u64
    }
}

#[derive(Debug)]
pub(super) struct Srq {
    pub rank: usize,
    pub pd: Pd,
    pub alive: bool,
    pub depth: u32,
    pub rq: VecDeque<RecvWr>,
    /// Armed limit, 0 for none.
    pub limit: u32,
}

/// A completion in a queue; the number of retired slots is known only when it is polled.
#[derive(Debug)]
pub(super) struct Cqe {
    pub qp: usize,
    pub wr_id: u64,
    pub what: What,
    /// Wakes who waits for solicited completions only.
    pub solicited: bool,
    /// Life of the QP and number of send slots that are free after it; send queue only.
    pub frees: Option<(u32, u64)>,
}

#[derive(Debug)]
pub(super) enum What {
    Send { op: WcOpcode, len: u32 },
    Recv { op: WcOpcode, len: u32, imm: Option<u32>, invalidated: Option<Rkey> },
    Error { queue: WorkQueue, status: WcStatus },
}

#[derive(Debug)]
pub(super) struct Cq {
    pub rank: usize,
    pub alive: bool,
    pub depth: u32,
    pub entries: VecDeque<Cqe>,
    pub lost: bool,
}

/// Alignment of regions, so that no two share a page of their address space.
const PAGE: u64 = 4096;

impl Ideal {
    /// A fabric of `ranks` hosts with one CPU core each, and [`Limits::default`].
    pub fn new(ranks: usize) -> Self {
        let place = |host| Place { host, initiator: Initiator::Cpu { core: 0, numa: 0 } };
        let places: Vec<_> = (0..ranks as u32).map(place).collect();
        Self::with_places(&places, Limits::default())
    }

    /// A fabric with one rank per entry of `places`.
    pub fn with_places(places: &[Place], limits: Limits) -> Self {
        let rank = |&place: &Place| Rank {
            place,
            pds: vec![],
            ahs: vec![],
            qps: vec![],
            cqs: vec![],
            srqs: vec![],
            mrs: vec![],
            watches: vec![],
            events: VecDeque::new(),
            ready: WaitSet::EMPTY,
            polled: 0,
            ended: false,
        };
        Self {
            limits,
            now: Time::ZERO,
            ranks: places.iter().map(rank).collect(),
            qps: vec![],
            cqs: vec![],
            srqs: vec![],
            regions: vec![],
            published: BTreeMap::new(),
            shared_qps: BTreeMap::new(),
            shared_mrs: BTreeMap::new(),
            next_addr: PAGE,
        }
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Work requests of all QPs that are staged and not rung: nothing will ever execute them.
    pub fn unrung(&self) -> usize {
        self.qps.iter().map(|q| q.staged.len()).sum()
    }

    /// Work requests that were rung and wait: for a receive, a peer's state, or the end of SQD.
    pub fn blocked(&self) -> usize {
        self.qps.iter().map(|q| q.sq.len()).sum()
    }

    pub(super) fn add_region(
        &mut self,
        pd: Pd,
        len: u64,
        kind: MemKind,
        access: AccessFlags,
        contents: Contents,
    ) -> usize {
        let addr = self.next_addr;
        self.next_addr += len.div_ceil(PAGE).max(1) * PAGE + PAGE;
        let bytes = (contents == Contents::Data).then(|| vec![0; len as usize]);
        self.regions.push(Region { pd, addr, len, kind, access, bytes, alive: true });
        self.regions.len() - 1
    }

    /// The key of a region, local and remote alike. 0 is no key.
    pub(super) fn key_of(region: usize) -> u32 {
        (region as u32 + 1) << 8
    }

    /// The live region that a key names.
    pub(super) fn region_of(&self, key: u32) -> Option<usize> {
        let i = (key >> 8).checked_sub(1)? as usize;
        (key & 0xFF == 0 && self.regions.get(i)?.alive).then_some(i)
    }

    /// The program of `rank` has ended, or begins; whoever waits for what it publishes is told.
    pub(super) fn set_ended(&mut self, rank: usize, ended: bool) {
        self.ranks[rank].ended = ended;
        self.wake_bootstrap();
    }

    pub(super) fn wake_bootstrap(&mut self) {
        for r in &mut self.ranks {
            r.ready = r.ready.or(WaitSet::BOOTSTRAP);
        }
    }

    /// Tells the watches of every rank but `by` that bytes changed.
    pub(super) fn touched(&mut self, region: usize, offset: u64, len: u64, by: Option<usize>) {
        for (r, rank) in self.ranks.iter_mut().enumerate() {
            if Some(r) == by {
                continue;
            }
            for (i, w) in rank.watches.iter().enumerate() {
                if w.region == region && offset < w.offset + w.len && w.offset < offset + len {
                    let id = crate::transport::WatchId::new(i as u32, 0, 0);
                    rank.ready = rank.ready.or(WaitSet::watch(id));
                }
            }
        }
    }
}
