//! An initiator: a CPU core or a GPU block that runs one program.

use std::collections::{BTreeMap, VecDeque};

use doorbell_core::transport::{Address, Initiator, Mr, Next, QpId, Reduce, WaitSet};
use doorbell_core::units::{BitRate, Span, Time};
use doorbell_core::verbs::QpAttrMask;

use super::config::PollMode;
use super::copies::EngineCopy;
use super::program::SimProgram;
use crate::engine::{ComponentId, SimRng};
use crate::memory::{MemoryPlace, RegionId};
use crate::nic::{Landing, RqWqe, Wqe};
use crate::pcie::NodeId;
use crate::wire::{HostId, PortId};

/// Something that a step does at a local clock.
#[derive(Debug)]
pub(super) enum Effect {
    /// Takes the lock of a shared QP.
    Lock { qp: u32, count: u32 },
    /// Gives it back.
    Unlock { qp: u32 },
    /// Takes the next `count` slots of a shared QP, to be announced in their order.
    Ticket { qp: u32, count: u32 },
    /// Waits until the slots before them are announced.
    Turn { qp: u32 },
    /// Lets the next one have its turn.
    Advance { qp: u32, count: u32 },
    /// Leaves the doorbell to the next holder of the lock if there is one, else pays for it.
    Choose { qp: u32, cost: Span },
    /// Moves `count` staged WQEs of the local QP into the send queue and rings.
    Ring { local: u32, qp: u32, count: u32, blueflame: u32 },
    /// Posts receives.
    PostRecv { qp: u32, srq: Option<u32>, wqes: Vec<RqWqe> },
    /// Stores bytes.
    Store { region: RegionId, addr: u64, bytes: StoreBytes },
    /// Has the sum of two places, as they are now, in the first one.
    Add(Addition),
    /// Moves bytes of host memory: the step waits for its share of the bandwidth.
    Memory { place: MemoryPlace, bytes: u64, limit: BitRate, solo: Span },
    /// Has a GPU's engine copy: the step waits for its end.
    EngineCopy(EngineCopy),
    /// Drains the store buffer.
    Drain,
    /// Changes a QP.
    Modify {
        qp: u32,
        attr: Box<doorbell_core::transport::QpAttr>,
        mask: QpAttrMask,
        peer: Option<(HostId, PortId)>,
    },
    /// Destroys a QP, and what the handle still kept of it.
    Destroy { local: u32, qp: u32 },
    /// Destroys a completion queue.
    DestroyCq { cq: u32 },
    /// Destroys a shared receive queue.
    DestroySrq { srq: u32 },
    /// Ends a memory region.
    Deregister { region: RegionId },
    /// Publishes a key, to the host of one rank or to all.
    Publish { to: Option<u32>, key: u64, bytes: Box<[u8]> },
}

/// A sum that another one than the initiator makes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Addition {
    pub op: Reduce,
    /// Where the sum goes, and what is added to it.
    pub to: (RegionId, u64),
    pub from: (RegionId, u64),
    pub bytes: u64,
}

/// Bytes of a store.
#[derive(Clone, Debug)]
pub(super) enum StoreBytes {
    Word(u64),
    Many(Box<[u8]>),
}

impl StoreBytes {
    pub fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Word(w) => f(&w.to_le_bytes()),
            Self::Many(b) => f(b),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Word(_) => 8,
            Self::Many(b) => b.len(),
        }
    }
}

/// A QP as one handle knows it.
#[derive(Debug)]
pub(super) struct LocalQp {
    /// NIC index.
    pub qp: u32,
    /// Attached to, rather than created by this handle, or shared with others.
    pub shared: bool,
    /// Staged WQEs, and when their stores are visible. The first `ringing` are under a ring that
    /// has not taken effect.
    pub staged: VecDeque<(Wqe, Landing)>,
    pub ringing: u32,
    /// Destroyed by this handle: no call finds it, and rings from before still take effect.
    pub closed: bool,
    /// Stores since the last fence, none of which a ring would order.
    pub unfenced: bool,
}

/// An object table of a handle.
#[derive(Debug)]
pub(super) struct Table<T>(pub Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Table<T> {
    pub fn push(&mut self, t: T) -> u32 {
        self.0.push(Some(t));
        self.0.len() as u32 - 1
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        self.0.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    /// Takes an object out. Its place stays empty, so that its handles stay stale.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        self.0.get_mut(index as usize)?.take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

/// A watched range.
#[derive(Copy, Clone, Debug)]
pub(super) struct Watch {
    pub addr: u64,
    pub len: u64,
    /// Time of a look at it.
    pub look: Span,
}

/// What the handle holds.
#[derive(Debug, Default)]
pub(super) struct Handles {
    pub pds: Table<u32>,
    pub mrs: Table<(Mr, RegionId)>,
    pub cqs: Table<u32>,
    /// NIC index and protection domain.
    pub srqs: Table<(u32, u32)>,
    pub qps: Table<LocalQp>,
    /// Protection domain, the port that it leads to, and by which service level.
    pub ahs: Table<(u32, (HostId, PortId), Address)>,
    pub watches: Table<Watch>,
    /// Handle of each NIC QP that completes into a queue of this handle.
    pub by_nic: BTreeMap<u32, QpId>,
}

/// What an initiator waits for inside a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The lock of a shared QP.
    Lock,
    /// Its turn to announce its slots of a shared QP.
    Turn,
    /// Room in its write-combining buffers.
    Mmio,
    /// Its share of the memory bandwidth.
    Memory,
    /// A copy by a GPU's engine.
    Copy,
}

/// What an initiator does at the moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// A step is scheduled.
    Scheduled,
    /// Effects of a step are under way; then `next` counts.
    Acting { next: Next, end: Time },
    /// It waits inside a step.
    Blocked { next: Next, end: Time, since: Time, on: Cause },
    /// It waits since the given time.
    Waiting { on: WaitSet, until: Option<Time>, since: Time },
    /// Finished at.
    Done(Time),
}

/// Time and work of an initiator, for the report.
#[derive(Copy, Clone, Default, Debug)]
pub struct InitiatorStats {
    /// Steps.
    pub steps: u64,
    /// Time inside steps.
    pub work: Span,
    /// Time spent polling without result (busy polling), waits for a time included.
    pub spin: Span,
    /// Time blocked on locks, write-combining buffers and memory.
    pub blocked: Span,
    /// Rings.
    pub rings: u64,
    /// WQEs rung.
    pub wqes: u64,
    /// Calls to poll a CQ, and those that found nothing.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Completions polled.
    pub completions: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Time in `stage` and `ring`.
    pub post: Span,
    /// Time in `poll_cq`.
    pub poll: Span,
    /// Core time of interrupts.
    pub interrupt_work: Span,
    /// Time in copies and reductions, launches of engines included; what they waited for memory or
    /// an engine is in `blocked`.
    pub copy: Span,
    /// Time in registrations of memory behind the first ring.
    pub register: Span,
    /// Regions registered behind the first ring.
    pub registrations: u64,
    /// Copies: calls that moved bytes into, out of or between regions, inline payload included.
    pub copies: u64,
    /// Bytes that they moved by the initiator itself,
    pub copied_bytes: u64,
    /// and by an engine.
    pub engine_bytes: u64,
    /// Bytes of one operand of all reductions.
    pub reduced_bytes: u64,
    /// Kernels of GPUs that it had add for it.
    pub kernels: u64,
}

/// A store that is visible to its author only.
#[derive(Debug)]
pub(super) struct BufferedStore {
    pub region: RegionId,
    pub addr: u64,
    pub bytes: StoreBytes,
    /// When everybody sees it.
    pub visible_at: Time,
}

/// Stores that are not visible yet, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct StoreBuffer {
    /// `None`: visible, and kept until all before it are.
    stores: VecDeque<Option<BufferedStore>>,
    /// Free-running number of the first one.
    first: u32,
}

impl StoreBuffer {
    /// Adds a store; gives its number.
    pub fn push(&mut self, store: BufferedStore) -> u32 {
        self.stores.push_back(Some(store));
        self.first.wrapping_add(self.stores.len() as u32 - 1)
    }

    /// When the last store to a place of `store` becomes visible.
    pub fn behind(&self, store: &BufferedStore) -> Option<Time> {
        let end = store.addr + store.bytes.len() as u64;
        let overlaps =
            |s: &&BufferedStore| s.addr < end && store.addr < s.addr + s.bytes.len() as u64;
        self.iter().filter(overlaps).map(|s| s.visible_at).max()
    }

    /// Takes the store with number `entry` out, if it is still there.
    pub fn take(&mut self, entry: u32) -> Option<BufferedStore> {
        let store = self.stores.get_mut(entry.wrapping_sub(self.first) as usize)?.take();
        self.trim();
        store
    }

    /// Takes the oldest store out.
    pub fn take_first(&mut self) -> Option<BufferedStore> {
        self.trim();
        let store = self.stores.pop_front()?;
        self.first = self.first.wrapping_add(1);
        store
    }

    fn trim(&mut self) {
        while self.stores.pop_front_if(|s| s.is_none()).is_some() {
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &BufferedStore> {
        self.stores.iter().flatten()
    }
}

pub(super) struct InitiatorState {
    pub id: ComponentId,
    pub who: Initiator,
    /// The NIC that its handle is of.
    pub nic: u8,
    pub poll: PollMode,
    pub node: NodeId,
    pub numa: u8,
    pub rank: u32,
    pub program: Option<Box<dyn SimProgram>>,
    pub handles: Handles,
    pub effects: VecDeque<(Time, Effect)>,
    /// How much the rest of the step has been delayed by waits.
    pub delay: Span,
    pub activity: Activity,
    pub generation: u32,
    /// Step events that have not come, and whether one of them is of the present generation.
    pub pending_steps: u32,
    pub will_step: bool,
    /// Watches that changed since the last step began.
    pub changed: WaitSet,
    pub mmio_lines: u32,
    /// Whether the next ring posts without a doorbell: another initiator's will announce it.
    pub leaves_doorbell: bool,
    /// First of the slots of a shared QP that it took last.
    pub ticket: u32,
    pub store_rng: Option<SimRng>,
    pub jitter_rng: Option<SimRng>,
    /// Stores that are visible to their author only.
    pub store_buffer: StoreBuffer,
    pub stats: InitiatorStats,
    /// Wake-ups in a row that polled nothing while a named CQ was ready.
    pub barren: u8,
    /// Steps in a row that did nothing and asked for the next one at once.
    pub idle_steps: u32,
    /// Steps since the last one that did something, which did nothing and waited for a time.
    pub idle_polls: u32,
    /// Whether the last step did nothing, and will do nothing by itself.
    pub idle: bool,
    /// When the wait began that is not over: idle steps do not end it.
    pub idle_since: Time,
    pub bootstrap_seen: bool,
}

impl std::fmt::Debug for InitiatorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitiatorState")
            .field("who", &self.who)
            .field("rank", &self.rank)
            .field("activity", &self.activity)
            .field("effects", &self.effects.len())
            .finish_non_exhaustive()
    }
}

/// When a program that looks again and again since `since`, each look taking `look` and `gap`
/// passing before the next, acts on what is there since `ready`.
///
/// A look sees what is there at half of its time. One that began shortly before `ready` finds it,
/// and counts as if it began at `ready`: a step sees the state at its start.
pub(super) fn first_look(ready: Time, since: Time, look: Span, gap: Span) -> Time {
    let period = (look + gap).as_ps().max(1);
    let waited = ready.since(since).as_ps().saturating_sub(look.as_ps() / 2);
    let at = since + Span::from_ps(waited.div_ceil(period) * period);
    at.max(ready)
}

#[cfg(test)]
mod tests {
    use doorbell_core::verbs::AccessFlags;

    use super::*;
    use crate::memory::{Contents, Pd, RegionKind, RegionTable};

    #[test]
    fn a_store_waits_for_older_ones_to_its_place_and_for_no_others() {
        let mut regions = RegionTable::new();
        let kind = RegionKind::Host { numa: 0 };
        let right = AccessFlags::LOCAL_WRITE;
        let region = regions.register(Pd(0), 64, kind, right, Contents::Data).unwrap().id;
        let store = |addr, at| BufferedStore {
            region,
            addr,
            bytes: StoreBytes::Word(addr),
            visible_at: Time::from_ps(at),
        };
        let mut b = StoreBuffer::default();
        let (x, y) = (b.push(store(0, 500)), b.push(store(8, 90)));
        assert_eq!(b.behind(&store(0, 1)), Some(Time::from_ps(500)));
        assert_eq!(b.behind(&store(7, 1)), Some(Time::from_ps(500)), "one byte of each");
        assert_eq!(b.behind(&store(8, 1)), Some(Time::from_ps(90)));
        assert_eq!(b.behind(&store(16, 1)), None);
        assert_eq!(b.take(y).map(|s| s.addr), Some(8));
        assert_eq!(b.take(y).map(|s| s.addr), None, "once only");
        let z = b.push(store(8, 600));
        assert_eq!(b.iter().map(|s| s.addr).collect::<Vec<_>>(), [0, 8]);
        assert_eq!(b.take(x).map(|s| s.addr), Some(0));
        assert_eq!(b.take_first().map(|s| s.addr), Some(8));
        assert_eq!(b.take(z).map(|s| s.addr), None);
        assert!(b.take_first().is_none());
    }

    #[test]
    fn a_look_sees_what_comes_before_its_middle() {
        let t = |ns: u64| Time::ZERO + Span::from_ns(ns);
        // Looks of 800 ns that begin at 0, 850, 1700, …
        let at = |ready| first_look(t(ready), t(0), Span::from_ns(800), Span::from_ns(50));
        assert_eq!(at(400), t(400), "in the middle of the first");
        assert_eq!(at(401), t(850), "after it");
        assert_eq!(at(849), t(850));
        assert_eq!(at(1250), t(1250), "in the middle of the second");
        assert_eq!(at(1251), t(1700));
    }

    #[test]
    fn looks_that_take_no_time_see_everything_at_once() {
        let t = Time::from_ps;
        let at = |ready| first_look(t(ready), t(5), Span::ZERO, Span::ZERO);
        assert_eq!((at(5), at(6), at(1000)), (t(5), t(6), t(1000)));
    }
}
