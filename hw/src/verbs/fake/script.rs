//! What a test says to the device, and what it asks.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Release};

use doorbell_core::verbs::{AccessFlags, QpState, WcOpcode, WcStatus};

use super::config::BadWr;
use super::execute::{Arrival, Delivery, load, store};
use super::record::{Counts, Modify, PostedRecv, SentWr, Violation};
use super::world::{Key, PostFailure, Qp, Target, World};
use super::{Call, Fake, null};
use crate::verbs::sys::*;

/// What an event is about, by the numbers that the library knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Element {
    /// The queue pair of this number.
    Qp(u32),
    /// The send completion queue of the QP of this number.
    SendCq(u32),
    /// The receive completion queue of the QP of this number.
    RecvCq(u32),
    /// The shared receive queue of the QP of this number.
    Srq(u32),
    /// A port; goes to every open context.
    Port(u8),
}

/// How many objects are alive. All zero at the end of a test: `Live::default()`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is the kind of its name")]
pub struct Live {
    pub device_lists: usize,
    pub contexts: usize,
    pub pds: usize,
    pub mrs: usize,
    pub channels: usize,
    pub cqs: usize,
    pub srqs: usize,
    pub qps: usize,
    pub ahs: usize,
}

impl World {
    #[track_caller]
    fn named(&self, qpn: u32) -> Key {
        let found = self.qps.iter().find(|(_, qp)| qp.qpn == qpn);
        *found.unwrap_or_else(|| panic!("the fake has no QP {qpn}")).0
    }
}

/// Methods that name a QP by its number panic when it is not alive.
impl Fake {
    #[track_caller]
    fn on<R>(&self, qpn: u32, f: impl FnOnce(&mut World, Key) -> R) -> R {
        let mut world = self.shared().lock();
        let key = world.named(qpn);
        f(&mut world, key)
    }

    #[track_caller]
    fn of<R>(&self, qpn: u32, f: impl FnOnce(&Qp) -> R) -> R {
        self.on(qpn, |w, key| f(&w.qps[&key]))
    }

    // ---- what happens

    /// Executes at most `n` of the oldest outstanding sends; how many. Only signalled ones give
    /// a CQE. One whose local memory is not accessible fails with `LocProtErr` instead.
    #[track_caller]
    pub fn complete(&self, qpn: u32, n: usize) -> usize {
        self.on(qpn, |w, key| w.complete(key, n))
    }

    /// Fails the oldest outstanding send and flushes the rest, unsignalled ones too: an RC QP
    /// goes to ERR with both queues, another to SQE with its send queue. `false`, and nothing
    /// changed, without an outstanding send.
    #[track_caller]
    pub fn fail(&self, qpn: u32, status: WcStatus, vendor_err: u32) -> bool {
        self.fail_code(qpn, status.value(), vendor_err)
    }

    /// The same with the number of a status, known or not.
    #[track_caller]
    pub fn fail_code(&self, qpn: u32, status: u8, vendor_err: u32) -> bool {
        self.on(qpn, |w, key| w.fail(key, status, vendor_err))
    }

    /// The device moves the QP to ERR by itself and flushes it; the library is not told.
    #[track_caller]
    pub fn break_qp(&self, qpn: u32) {
        self.on(qpn, World::enter_error);
    }

    /// Flushes a QP that a modify put into ERR, with [`FlushAt::Script`](super::FlushAt::Script).
    #[track_caller]
    pub fn flush(&self, qpn: u32) {
        self.on(qpn, World::flush);
    }

    /// A SEND arrives: its bytes go into the oldest receive of the QP or of its SRQ. Immediate
    /// data in the host's byte order.
    #[track_caller]
    pub fn receive(&self, qpn: u32, bytes: &[u8], imm: Option<u32>, inv: Option<u32>) -> Delivery {
        let arrival = Arrival { imm, inv, ..Arrival::default() };
        self.on(qpn, |w, key| w.receive(key, bytes, arrival))
    }

    /// A WRITE with immediate data has arrived: it completes the oldest receive, whose buffer is
    /// untouched. Its bytes are written by [`Fake::remote_write`].
    #[track_caller]
    pub fn receive_write_imm(&self, qpn: u32, byte_len: u32, imm: u32) -> Delivery {
        let opcode = Some(WcOpcode::RecvRdmaWithImm);
        let arrival = Arrival { opcode, imm: Some(imm), inv: None, written: byte_len };
        self.on(qpn, |w, key| w.receive(key, &[], arrival))
    }

    /// A peer WRITEs; `false` when key, range or right do not allow it.
    pub fn remote_write(&self, rkey: u32, addr: u64, bytes: &[u8]) -> bool {
        let world = self.shared().lock();
        let to = world.remote(rkey, addr, bytes.len(), AccessFlags::REMOTE_WRITE);
        // SAFETY: registered memory, which the program touches atomically only.
        to.inspect(|&to| unsafe { store(to, bytes) }).is_some()
    }

    /// A peer WRITEs 8 bytes at once; what the device wrote before is visible to who sees them.
    /// `false` when key, range, right or alignment do not allow it.
    pub fn remote_write_u64(&self, rkey: u32, addr: u64, value: u64) -> bool {
        let world = self.shared().lock();
        let to = world.remote(rkey, addr, 8, AccessFlags::REMOTE_WRITE);
        let to = to.map(<*mut u8>::cast::<u64>).filter(|to| to.is_aligned());
        // SAFETY: registered memory, aligned, which the program touches atomically only.
        to.inspect(|&to| unsafe { AtomicU64::from_ptr(to) }.store(value, Release)).is_some()
    }

    /// A peer READs; `None` when key, range or right do not allow it.
    pub fn remote_read(&self, rkey: u32, addr: u64, len: usize) -> Option<Vec<u8>> {
        let world = self.shared().lock();
        let from = world.remote(rkey, addr, len, AccessFlags::REMOTE_READ)?;
        // SAFETY: registered memory of that length.
        Some(unsafe { load(from, len) })
    }

    /// Payload of a send as it is in memory now; `None` when the device could not read it.
    #[track_caller]
    pub fn payload(&self, qpn: u32, wr: &SentWr) -> Option<Vec<u8>> {
        self.on(qpn, |w, key| w.payload(w.qps[&key].pd, wr))
    }

    /// The response to a READ or ATOMIC arrives in its scatter elements; completing it is another
    /// call. `false` when they do not take it.
    #[track_caller]
    pub fn respond(&self, qpn: u32, wr: &SentWr, bytes: &[u8]) -> bool {
        self.on(qpn, |w, key| w.scatter(w.qps[&key].pd, &wr.sges, bytes).is_ok())
    }

    /// Raises an asynchronous event; `kind` is any integer, known or not.
    #[track_caller]
    pub fn raise(&self, kind: u32, element: Element) {
        let mut w = self.shared().lock();
        let qpn = match element {
            Element::Port(port) => {
                let contexts: Vec<Key> = w.contexts.keys().copied().collect();
                for context in contexts {
                    w.raise_on(context, kind, Target::Port(port.into()));
                }
                return;
            }
            Element::Qp(n) | Element::SendCq(n) | Element::RecvCq(n) | Element::Srq(n) => n,
        };
        let key = w.named(qpn);
        let qp = &w.qps[&key];
        let context = w.pds[&qp.pd].context;
        let target = match element {
            Element::SendCq(_) => Target::Cq(qp.send_cq),
            Element::RecvCq(_) => Target::Cq(qp.recv_cq),
            Element::Srq(_) => Target::Srq(qp.srq.expect("the QP has an SRQ")),
            Element::Qp(_) | Element::Port(_) => Target::Qp(key),
        };
        w.raise_on(context, kind, target);
    }

    // ---- what will fail

    /// Refuses the work request with index `n` of the next classic post of sends that is long
    /// enough. Those before it are taken. With [`BadWr::Null`] and [`BadWr::Untouched`] a
    /// shorter chain is taken whole, and the call fails all the same.
    pub fn fail_post_send_at(&self, n: usize, errno: c_int, bad: BadWr) {
        self.shared().lock().script.send = Some(PostFailure { at: n, errno, bad });
    }

    /// The same for receives.
    pub fn fail_post_recv_at(&self, n: usize, errno: c_int, bad: BadWr) {
        self.shared().lock().script.recv = Some(PostFailure { at: n, errno, bad });
    }

    /// The next `wr_complete` fails and posts nothing.
    pub fn fail_wr_complete(&self, errno: c_int) {
        self.shared().lock().script.complete = Some(errno);
    }

    /// Fails one call of this kind after `skip` that succeed.
    pub fn fail_call(&self, call: Call, skip: usize, errno: c_int) {
        self.shared().lock().script.calls.push((call, skip, errno));
    }

    /// Changes the state of the port of a device of the list, by its index: 1 down, 4 active.
    /// No event is raised.
    ///
    /// # Panics
    /// There is no such device.
    pub fn set_port_state(&self, device: usize, state: u32) {
        self.shared().lock().config.devices[device].port.state = state;
    }

    // ---- what was seen

    /// Numbers of the QPs that are alive, in the order of their creation.
    pub fn qpns(&self) -> Vec<u32> {
        let mut qpns: Vec<u32> = self.shared().lock().qps.values().map(|qp| qp.qpn).collect();
        qpns.sort_unstable();
        qpns
    }

    /// State of a QP in the device, which the program may not know yet.
    #[track_caller]
    pub fn state(&self, qpn: u32) -> QpState {
        self.of(qpn, |qp| qp.state)
    }

    /// Granted sizes.
    #[track_caller]
    pub fn granted(&self, qpn: u32) -> ibv_qp_cap {
        self.of(qpn, |qp| qp.cap)
    }

    /// Sends taken and not executed.
    #[track_caller]
    pub fn outstanding(&self, qpn: u32) -> usize {
        self.of(qpn, |qp| qp.sq.len())
    }

    /// Receives posted and not consumed, in the queue of the QP or in its SRQ.
    #[track_caller]
    pub fn receives(&self, qpn: u32) -> usize {
        self.on(qpn, |w, key| {
            let qp = &w.qps[&key];
            qp.srq.map_or(qp.rq.len(), |srq| w.srqs[&srq].posted.len())
        })
    }

    /// Every send taken since the QP was created, oldest first; of very many, the newest.
    #[track_caller]
    pub fn sent(&self, qpn: u32) -> Vec<SentWr> {
        self.of(qpn, |qp| qp.sent.iter().cloned().collect())
    }

    /// Every receive posted to the queue of the QP itself, oldest first.
    #[track_caller]
    pub fn received(&self, qpn: u32) -> Vec<PostedRecv> {
        self.of(qpn, |qp| qp.received.iter().cloned().collect())
    }

    /// Calls and work requests of a QP.
    #[track_caller]
    pub fn counts(&self, qpn: u32) -> Counts {
        let is_null = self.shared().is_null;
        self.of(qpn, |qp| {
            // SAFETY: the QP is in the table, so it is alive.
            if is_null { unsafe { null::counts(qp.ptr) } } else { qp.counts }
        })
    }

    /// Calls and work requests of the SRQ of a QP; `None` without one.
    #[track_caller]
    pub fn srq_counts(&self, qpn: u32) -> Option<Counts> {
        self.on(qpn, |w, key| Some(w.srqs[&w.qps[&key].srq?].counts))
    }

    /// Every modify of a QP, refused ones too, oldest first.
    #[track_caller]
    pub fn modifies(&self, qpn: u32) -> Vec<Modify> {
        self.of(qpn, |qp| qp.modifies.iter().cloned().collect())
    }

    /// The attributes that are in force: those of all modifies that succeeded since RESET.
    #[track_caller]
    pub fn attr(&self, qpn: u32) -> ibv_qp_attr {
        self.of(qpn, |qp| super::record::copy_attr(&qp.attr))
    }

    /// Attributes of the address handle with this `ibv_ah.handle`, while it is alive.
    pub fn ah(&self, handle: u32) -> Option<ibv_ah_attr> {
        let world = self.shared().lock();
        // SAFETY: they are in the table, so they are alive; the field is never written.
        world.ahs.values().find(|ah| unsafe { (*ah.ptr).handle } == handle).map(|ah| ah.attr)
    }

    /// Bytes registered now.
    pub fn locked_bytes(&self) -> u64 {
        self.shared().lock().locked
    }

    /// What the manual forbids and the program did, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared().lock().violations.clone()
    }

    /// How many objects are alive.
    pub fn live(&self) -> Live {
        let w = self.shared().lock();
        Live {
            device_lists: w.lists.len(),
            contexts: w.contexts.len(),
            pds: w.pds.len(),
            mrs: w.mrs.len(),
            channels: w.channels.len(),
            cqs: w.cqs.len(),
            srqs: w.srqs.len(),
            qps: w.qps.len(),
            ahs: w.ahs.len(),
        }
    }

    /// For the end of a test.
    ///
    /// # Panics
    /// There are violations, or objects that are alive.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.violations(), []);
        assert_eq!(self.live(), Live::default());
    }
}
