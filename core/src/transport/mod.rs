//! The contract between programs and back ends, in verbs semantics.
//!
//! [`Transport`] is the data path, memory and time; policies are bound to it alone. [`Control`]
//! adds set-up and recovery. Both are one object, one per *initiator* (a CPU core, a GPU block),
//! `Send` and not `Sync`; dispatch is static; the data path neither allocates nor locks.
//!
//! # What each call becomes
//!
//! | Call | classic verbs | extended verbs | mlx5 | simulator | lost |
//! |---|---|---|---|---|---|
//! | [`stage`](Transport::stage) | next entry of a chain of `ibv_send_wr`; inline bytes kept aside, since they are read at post time | `ibv_wr_start` at the first, then `ibv_wr_*`, `ibv_wr_set_sge_list` or `ibv_wr_set_inline_data` | WQE segments written to SQ memory | WQE stores at the local clock | classic: the WQE is built only at the ring |
//! | [`ring`](Transport::ring) | one `ibv_post_send` of the chain | `ibv_wr_complete` | doorbell record word 1, `sfence`, then 8 bytes to the UAR, or the WQE to the BlueFlame buffer | doorbell record, write-combining flush, MMIO write at the local clock | which of the two it was, and how many (`RungBy::Provider`) |
//! | [`unstage`](Transport::unstage) | chain forgotten | `ibv_wr_abort` | producer index put back | WQEs forgotten | – |
//! | [`post_recv`](Transport::post_recv) | one `ibv_post_recv` / `ibv_post_srq_recv` of a chain | same | RQ WQEs, doorbell record word 0; no MMIO | RQ stores, visible at the local clock | – |
//! | [`poll_cq`](Transport::poll_cq) | `ibv_poll_cq` | `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` | owner bit, read barrier, CQE, consumer index | CQEs that had landed when the step began | – |
//! | [`fence`](Transport::fence) | nothing: `ring` carries the barriers | same | `dmb`/`sfence` inside the provider | the initiator's store buffer drains | GPU blocks do not exist on libibverbs |
//! | [`copy_in`](Transport::copy_in), [`copy_out`](Transport::copy_out), [`load_u64`](Transport::load_u64), [`store_u64`](Transport::store_u64), [`copy`](Transport::copy), [`reduce`](Transport::reduce) | relaxed per-byte atomics on the mapped region | same | – | stores visible at the local clock, loads as of the step's start plus own stores; core and memory bandwidth charged | – |
//! | [`supply`](Transport::supply), [`inspect`](Transport::inspect) | as `copy_in`, `copy_out` | same | – | the same visibility; free, and no counter knows of it | – |
//! | [`touch`](Transport::touch) | nothing: the work itself took its time | same | – | time of the core or of a kernel, share of the memory bandwidth | – |
//! | [`modify_qp`](Control::modify_qp) | `ibv_modify_qp` with the exact mask | same | command queue | takes effect at the local clock | – |
//! | [`share_qp`](Control::share_qp) | refused: each handle has a context of its own | refused; besides, the provider's lock is held from stage to ring | SQ spin lock | lock with a modelled cost and queue | one QP, many threads: there is none on libibverbs |
//! | [`share_mr`](Control::share_mr) | refused, as above | same | – | coherent memory of the host, with the distance of the reader | – |
//! | [`alloc_mr`](Control::alloc_mr) | pages of the process, `ibv_reg_mr` | same | memory key, translation table | a region with or without bytes | GPU memory, regions without bytes |
//! | [`watch`](Control::watch), [`Next::Wait`] | completion channel, `ppoll`; watched memory is compared | same | event queue, interrupt | level-triggered events of the model | nobody is woken by memory: it is looked at every 50 us |
//! | [`next_event`](Control::next_event) | `ibv_get_async_event`, acknowledged at once | same | event queue | events of the model | kinds of a newer library are passed over |
//! | [`port_counters`](Control::port_counters) | `hw_counters` in sysfs, of the port | same | PCIe, firmware | sums over the NIC's QPs, free | 0 for names that the driver has not; `None` without the folder |
//! | [`publish`](Control::publish), [`lookup`](Control::lookup) | TCP rendezvous | same | – | out-of-band network with a latency; the end of a program is announced over it too | – |
//! | [`destroy_cq`](Control::destroy_cq), [`destroy_srq`](Control::destroy_srq), [`destroy_ah`](Control::destroy_ah), [`dealloc_pd`](Control::dealloc_pd) | `ibv_destroy_cq`, `ibv_destroy_srq`, `ibv_destroy_ah`, `ibv_dealloc_pd`; EBUSY is [`DestroyError::Busy`] | same | command queue | the id is stale at once; the NIC's object goes at the local clock | – |
//!
//! # Finite queues
//!
//! `SqFull` and `StagedFull` are back-pressure, not failures. A polled completion tells of its WQE
//! and of every earlier one of its send queue (`retired` counts those of which none told before),
//! and their slots are back then, at the latest. That is all that is promised: a device may keep a
//! slot until that poll (mlx5, `ideal`, libibverbs as this project counts), or give it back as soon
//! as the WQE is done, so that [`sq_free`](Transport::sq_free) grows by itself (rxe, a setting of
//! the simulator). A program that signals at least one WQE per depth and polls works with both. One
//! that signals nothing fills its queue for ever on the first kind; on the second, one that never
//! polls may overrun its completion queue, since the send queue does not hold it back.

mod caps;
mod counters;
mod error;
pub(crate) mod forward;
mod handles;
mod memory;
mod program;
mod work;

pub use caps::*;
pub use counters::*;
pub use error::*;
pub use handles::*;
pub use memory::*;
pub use program::*;
pub use work::*;

use crate::units::Time;
use crate::verbs::{AccessFlags, AsyncEventKind, QpAttrMask, QpState};

/// How a ring should reach the NIC. A request: see [`QpCaps::ring_choice`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Ring {
    /// BlueFlame when the device's rule allows it for what is staged, else a doorbell.
    #[default]
    Auto,
    /// An 8-byte doorbell.
    Doorbell,
    /// The WQE by the doorbell write itself; a doorbell if the rule forbids it.
    BlueFlame,
    /// A doorbell; but on a shared queue pair a ring of a single WQE may be left to an initiator
    /// that waits to post behind it, whose doorbell announces both. Fewer doorbells under
    /// contention, and a WQE may be announced later. A back end may ring all the same.
    Combined,
    /// A doorbell; but on a shared queue pair the ring takes its slots first and announces them in
    /// the order in which they were taken, instead of holding a lock while it writes the WQEs. All
    /// who post on the queue pair have to ring so: slots that were taken otherwise are never
    /// passed over, and whoever comes behind them waits for ever. A back end may use its lock all
    /// the same.
    Ordered,
}

/// Bytes that [`Transport::copy`] moves at a time where a back end has nothing better.
const COPY_PART: usize = 1024;

/// Data path, memory and time.
pub trait Transport {
    /// The local clock. After a contended call it is a lower bound.
    fn now(&self) -> Time;

    /// Who issues the calls.
    fn initiator(&self) -> Initiator;

    /// What was granted to `qp`. Policies keep the copy.
    ///
    /// # Errors
    /// A stale or foreign id.
    fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle>;

    /// Work requests that can still be staged before `SqFull`; 0 for a bad handle. A poll gives
    /// slots back; whether anything else does depends on the device, as the module says.
    fn sq_free(&self, qp: QpId) -> u32;

    /// Validates a work request against the caps and copies it, its scatter list and its inline
    /// bytes. They are the caller's again on return; memory named by the scatter list belongs to
    /// the transport until the completion. A staged WQE is invisible to the NIC.
    ///
    /// # Errors
    /// See [`StageError`]; nothing changed.
    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError>;

    /// Announces everything staged on `qp`, in one burst.
    ///
    /// # Errors
    /// See [`RingError`]: a prefix may have been posted. Nothing is staged afterwards: the rest was
    /// discarded, or, after [`RingCause::Indeterminate`], nobody can tell.
    fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError>;

    /// Forgets what is staged; returns how many work requests that were.
    fn unstage(&mut self, qp: QpId) -> u32;

    /// Posts receives, with one update of the doorbell record.
    ///
    /// # Errors
    /// See [`PostRecvError`]: a prefix may have been posted.
    fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError>;

    /// Appends completions to `out` until it is full or the queue is seen empty.
    ///
    /// # Errors
    /// See [`PollError`].
    fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError>;

    /// Orders this initiator's earlier stores before its later ones.
    fn fence(&mut self, scope: FenceScope);

    /// Work that takes time and touches nothing.
    fn compute(&mut self, work: Work);

    /// Copies bytes into a region. Large copies cost core time and memory bandwidth.
    ///
    /// # Errors
    /// See [`MemError`].
    fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError>;

    /// Copies bytes out of a region, as of the step's start plus own stores.
    ///
    /// # Errors
    /// See [`MemError`]; reading a virtual region is one.
    fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError>;

    /// Puts bytes into a region for whoever is to have made them: data of a test, which stand for
    /// what an application computes. Visible as a [`copy_in`](Transport::copy_in) is. A back end
    /// that charges copies charges nothing here and counts nothing, so that what is measured is
    /// the transfer and not its rehearsal; what an application really moves is `copy_in`.
    ///
    /// # Errors
    /// As [`copy_in`](Transport::copy_in).
    fn supply(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        self.copy_in(to, from)
    }

    /// Looks at bytes of a region to judge them, and sees what a
    /// [`copy_out`](Transport::copy_out) would. Free, as [`supply`](Transport::supply) is.
    ///
    /// # Errors
    /// As [`copy_out`](Transport::copy_out).
    fn inspect(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        self.copy_out(from, to)
    }

    /// Tells of work of the caller's own that reads and writes so many bytes of memory, each access
    /// counted, in host memory or a GPU's: choosing or adding elements of its own variables, say.
    /// Back ends with a clock of their own charge what an addition costs that moves as many bytes:
    /// a core, or where a core asks for a GPU's memory a kernel of that GPU, for which it waits.
    /// Elsewhere the work itself has taken its time.
    fn touch(&mut self, memory: MemKind, bytes: u64) {
        let _the_work_took_its_time = (memory, bytes);
    }

    /// Copies bytes from one region to another, perhaps in another memory of the host: staging a
    /// GPU's data in host memory, say. Between host memory and a GPU's it is the GPU that moves
    /// them, and the caller waits. Where ranges overlap, what comes of it is not defined.
    ///
    /// # Errors
    /// See [`MemError`]; a part may have been copied. Regions without bytes are copied only where
    /// both are such, by back ends that have them.
    fn copy(&mut self, to: Range, from: Range) -> Result<(), MemError> {
        if to.len != from.len {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len });
        }
        let (mut part, mut done) = ([0; COPY_PART], 0);
        loop {
            let len = (to.len - done).min(COPY_PART as u64);
            let at = |r: Range| Range { offset: r.offset.saturating_add(done), len, ..r };
            let part = &mut part[..len as usize];
            self.copy_out(at(from), part)?;
            self.copy_in(at(to), part)?;
            done += len;
            if done == to.len {
                return Ok(());
            }
        }
    }

    /// `to[i] += from[i]`, element by element.
    ///
    /// Where `to` is in a GPU's memory and the initiator is a core, a kernel of that GPU adds, and
    /// the caller waits. The kernel finds what NICs wrote in front of completions that the caller
    /// has polled; the caller's own loads may find neither that nor the sum before its next step.
    ///
    /// # Errors
    /// See [`MemError`].
    fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError>;

    /// Loads 8 aligned bytes, little-endian, with acquire order.
    ///
    /// # Errors
    /// See [`MemError`].
    fn load_u64(&mut self, at: Range) -> Result<u64, MemError>;

    /// Stores 8 aligned bytes, little-endian, with release order.
    ///
    /// # Errors
    /// See [`MemError`].
    fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError>;
}

/// An asynchronous event and the object that it concerns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// The QP, for QP events.
    pub qp: Option<QpId>,
    /// The CQ, for CQ events.
    pub cq: Option<CqId>,
    /// The SRQ, for SRQ events.
    pub srq: Option<SrqId>,
}

/// Longest value of [`Control::publish`], in bytes. Enough for 2,000 endpoints; what is longer
/// belongs on the data path.
pub const MAX_PUBLISHED_BYTES: usize = 64 << 10;

/// Set-up and recovery.
pub trait Control: Transport {
    /// Limits of the device.
    fn device_caps(&self) -> &DeviceCaps;

    /// Counters of the handle's port as they stand; `None` where the back end has none. On hardware
    /// it reads some files, tens of microseconds: ask now and then, not in each step. On the
    /// simulator it takes no time.
    fn port_counters(&self) -> Option<TransportCounters> {
        None
    }

    /// This program's number among those of the run.
    fn rank(&self) -> u32;

    /// How many programs take part.
    fn size(&self) -> u32;

    /// Makes `bytes` known to every peer under `key`, on the out-of-band network. A key that is
    /// published again has the new value.
    ///
    /// # Panics
    /// When there are more than [`MAX_PUBLISHED_BYTES`].
    fn publish(&mut self, key: u64, bytes: &[u8]);

    /// Makes `bytes` known to `peer` under `key`; the others may or may not learn of it. For
    /// exchanges of pairs in large runs, where telling everybody costs the square of their number.
    ///
    /// # Panics
    /// As [`Control::publish`].
    fn publish_to(&mut self, peer: u32, key: u64, bytes: &[u8]) {
        let _everybody_is_peer_too = peer;
        self.publish(key, bytes);
    }

    /// Copies what `peer` published under `key` into `out`, and returns the length of the *whole*
    /// value: when it is above that of `out`, only the front was copied. `None` until the value has
    /// arrived: wait on [`WaitSet::BOOTSTRAP`], with a deadline; a new value and the end of a
    /// program wake.
    ///
    /// # Errors
    /// See [`LookupError`]: the value can never come. What a peer published before its end can
    /// still be looked up.
    fn lookup(&mut self, peer: u32, key: u64, out: &mut [u8])
    -> Result<Option<usize>, LookupError>;

    /// Creates a protection domain.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn create_pd(&mut self) -> Result<PdId, CreateError>;

    /// Allocates and registers memory, zeroed.
    ///
    /// # Errors
    /// See [`MemError`].
    fn alloc_mr(
        &mut self,
        pd: PdId,
        len: u64,
        kind: MemKind,
        access: AccessFlags,
        contents: Contents,
    ) -> Result<Mr, MemError>;

    /// Deregisters. Remote accesses that come later get NAK 2.
    ///
    /// # Errors
    /// A stale or foreign id.
    fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle>;

    /// Creates a completion queue with `depth` entries. The caller owns its polling.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError>;

    /// Creates a shared receive queue for `depth` receives.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError>;

    /// Creates a QP in RESET. What was granted is read back with `qp_caps`.
    ///
    /// # Errors
    /// See [`CreateError`]; the field and the limit are named.
    fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError>;

    /// Creates an address handle for UD sends to a port.
    ///
    /// # Errors
    /// See [`CreateError`].
    fn create_ah(&mut self, pd: PdId, to: Address) -> Result<AhId, CreateError>;

    /// Changes state and attributes with the exact mask. Unstages first, and returns how many work
    /// requests were staged.
    ///
    /// # Errors
    /// See [`ModifyError`]; nothing changed. Where the device itself refuses (`Os`, `CurState`),
    /// what was staged may be gone: on libibverbs it is.
    fn modify_qp(&mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask) -> Result<u32, ModifyError>;

    /// The QP's state as this handle has seen it.
    ///
    /// # Errors
    /// A stale or foreign id.
    fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle>;

    /// What a peer needs to know of the QP.
    ///
    /// # Errors
    /// A stale or foreign id.
    fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle>;

    /// Arms the SRQ's limit event, one-shot.
    ///
    /// # Errors
    /// See [`ModifyError`].
    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError>;

    /// The next asynchronous event.
    fn next_event(&mut self) -> Option<AsyncEvent>;

    /// Watches a range of memory for changes, for [`WaitSet::watch`].
    ///
    /// # Errors
    /// See [`MemError`].
    fn watch(&mut self, range: Range) -> Result<WatchId, MemError>;

    /// Offers `qp` under `key` to the other initiators of this host, and wakes those that wait on
    /// [`WaitSet::BOOTSTRAP`]. The completions stay with the queues of this handle. A key that is
    /// offered again names the new object.
    ///
    /// # Errors
    /// `Unsupported` where the provider cannot share, or for a bad handle.
    fn share_qp(&mut self, qp: QpId, key: u64) -> Result<(), Unsupported>;

    /// Attaches the QP that `owner` (a rank of this host) offers under `key`, with a local id.
    /// What this handle stages is its own until the ring, where positions in the send queue are
    /// given; [`sq_free`](Transport::sq_free) counts the slots of all sharers.
    ///
    /// # Errors
    /// See [`AttachError`]; [`AttachError::NotShared`] may pass.
    fn attach_qp(&mut self, owner: u32, key: u64) -> Result<QpId, AttachError>;

    /// Offers a memory region under `key`, as [`share_qp`](Control::share_qp) does with a QP.
    ///
    /// # Errors
    /// `Unsupported` where the back end cannot share, or for a bad handle.
    fn share_mr(&mut self, mr: MrId, key: u64) -> Result<(), Unsupported>;

    /// Attaches the region that `owner` (a rank of this host) offers under `key`: the same address
    /// and keys with a local id, for loads, stores, watches and scatter lists of this handle.
    ///
    /// # Errors
    /// See [`AttachError`]; [`AttachError::NotShared`] may pass.
    fn attach_mr(&mut self, owner: u32, key: u64) -> Result<Mr, AttachError>;

    /// Destroys a QP. Work requests that have not completed are lost.
    ///
    /// # Errors
    /// A stale or foreign id.
    fn destroy_qp(&mut self, qp: QpId) -> Result<(), BadHandle>;

    /// Destroys a completion queue. Completions that were not polled are lost. Sets of later waits
    /// must not name it.
    ///
    /// # Errors
    /// See [`DestroyError`]; `Busy` while a QP completes into it.
    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError>;

    /// Destroys a shared receive queue. Its receives are lost, without completions.
    ///
    /// # Errors
    /// See [`DestroyError`]; `Busy` while a QP takes its receives from it.
    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError>;

    /// Destroys an address handle. Sends that were staged with it go on.
    ///
    /// # Errors
    /// See [`DestroyError`].
    fn destroy_ah(&mut self, ah: AhId) -> Result<(), DestroyError>;

    /// Frees a protection domain.
    ///
    /// # Errors
    /// See [`DestroyError`]; `Busy` while a QP, region, SRQ or address handle belongs to it.
    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError>;
}
