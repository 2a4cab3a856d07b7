//! A queue pair of a handle: what was granted, what is staged, and what may be staged.

use core::mem::ManuallyDrop;

use doorbell_core::transport::{
    CqId, Data, QpCaps, RingCause, RingError, Rung, RungBy, SendWr, StageError, Unsupported,
};
use doorbell_core::verbs::{PostVerdict, Psn, QpState, QpType, SendFlags, WrOpcode, can_post_send};

use super::objects::{Posting, Qp};
use super::positions::{Positions, Request, SendId};
use super::staging::{Builder, Chain, Destination, PostFailure};

/// What the caller sets; `INLINE` follows from the data.
const FLAGS: SendFlags = SendFlags::SIGNALED.union(SendFlags::FENCE).union(SendFlags::SOLICITED);

/// How requests reach the provider.
#[derive(Debug)]
enum Poster {
    Classic(Chain),
    /// And the thread that has begun the open burst: the provider holds a spin lock from the first
    /// stage to the ring, and only its owner may let it go.
    Extended(Builder, usize),
}

/// What tells the calling thread from the others that live.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

/// See the module.
#[derive(Debug)]
pub struct QueuePair {
    positions: Positions,
    poster: Poster,
    /// Operations that the service has, by opcode.
    ops: u32,
    datagram: bool,
    /// `SIGNALED` where every send is.
    forced: SendFlags,
    /// Longest message: the port's, or the MTU for datagrams.
    max_bytes: u32,
    caps: QpCaps,
    state: QpState,
    /// First PSN that it sends.
    pub psn: Psn,
    ty: QpType,
    /// Its completion queues, by which it keeps them busy.
    pub cqs: [CqId; 2],
    qp: ManuallyDrop<Qp>,
}

const fn is_atomic(op: WrOpcode) -> bool {
    matches!(op, WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd)
}

/// The facts of a new queue pair.
#[derive(Debug)]
pub struct Facts {
    /// Position in the handle's table.
    pub index: u32,
    /// Number of its first life; none of those that the position has had before.
    pub life: u32,
    /// Service.
    pub ty: QpType,
    /// Granted.
    pub caps: QpCaps,
    /// Longest message.
    pub max_bytes: u32,
    /// First PSN.
    pub psn: Psn,
    /// Completion queues of sends and receives.
    pub cqs: [CqId; 2],
}

impl QueuePair {
    /// A queue pair in RESET.
    pub fn new(qp: Qp, f: Facts) -> Self {
        let caps = f.caps;
        let poster = match qp.parts().posting {
            Posting::Classic => {
                Poster::Classic(Chain::new(caps.max_staged, caps.max_sge, caps.max_inline))
            }
            Posting::Extended => Poster::Extended(Builder(qp.as_ex_ptr()), 0),
        };
        let lacks = |op: &WrOpcode| is_atomic(*op) && !caps.atomics;
        let allowed = WrOpcode::ALL.iter().filter(|op| op.allowed_on(f.ty) && !lacks(op));
        Self {
            positions: Positions::new(f.index, f.life, caps.max_send_wr, caps.max_staged),
            poster,
            ops: allowed.fold(0, |set, op| set | 1 << op.value()),
            datagram: f.ty == QpType::Ud,
            forced: if qp.parts().sq_sig_all { SendFlags::SIGNALED } else { SendFlags::empty() },
            max_bytes: f.max_bytes,
            caps,
            state: QpState::Reset,
            psn: f.psn,
            ty: f.ty,
            cqs: f.cqs,
            qp: ManuallyDrop::new(qp),
        }
    }

    /// The library's object.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// What was granted.
    pub fn caps(&self) -> &QpCaps {
        &self.caps
    }

    /// Service.
    pub fn ty(&self) -> QpType {
        self.ty
    }

    /// The state as the handle has seen it.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Number of its life.
    pub fn life(&self) -> u32 {
        self.positions.life()
    }

    /// Slots that are free.
    pub fn free(&self) -> u32 {
        self.positions.free()
    }

    /// Requests staged and not rung.
    pub fn staged(&self) -> u32 {
        self.positions.staged()
    }

    /// Requests rung and not retired.
    pub fn outstanding(&self) -> u32 {
        self.positions.outstanding()
    }

    /// The device has moved to `state`.
    pub fn enter(&mut self, state: QpState) {
        if state == QpState::Reset {
            self.positions.reset();
        }
        self.state = state;
        self.reopen();
    }

    /// The room that state and free slots leave.
    #[inline(always)]
    fn reopen(&mut self) {
        if can_post_send(self.state) == PostVerdict::Refused {
            self.positions.close();
        } else {
            self.positions.open();
        }
    }

    /// Checks and copies a request. `to` is there for datagrams.
    #[inline(always)]
    pub fn stage(&mut self, wr: &SendWr<'_>, to: Option<Destination>) -> Result<(), StageError> {
        // One look for state, free slots and staging area; whatever does not fit is sorted out by
        // `refusal`, off the path.
        let opcode = wr.op.opcode();
        let (fits, len) = match wr.data {
            Data::Sge([one]) => (self.caps.max_sge > 0, u64::from(one.len)),
            Data::Sge(list) => (list.len() <= self.caps.max_sge as usize, wr.data.len()),
            Data::Inline(bytes) => (
                bytes.len() <= self.caps.max_inline as usize && opcode.may_be_inline(),
                bytes.len() as u64,
            ),
        };
        let allowed = self.ops >> opcode.value() & 1 == 1
            && to.is_some() == self.datagram
            && len <= u64::from(self.max_bytes);
        if !(fits && allowed) || self.positions.room() == 0 {
            return Err(self.refusal(wr));
        }
        let flags = wr.flags & FLAGS | self.forced;
        let i = self.positions.staged();
        let request = Request { wr_id: wr.wr_id, len: len as u32, op: opcode };
        let wr_id = self.positions.stage(request);
        match &mut self.poster {
            Poster::Classic(chain) => {
                chain.put(i, wr_id, wr, flags);
                if let Some(to) = to {
                    chain.address(i, to);
                }
            }
            // SAFETY: the queue pair lives as long as this object and belongs to this handle
            // alone; the request fits what was granted.
            Poster::Extended(b, begun) => unsafe {
                if i == 0 {
                    *begun = this_thread();
                }
                b.put(i == 0, wr_id, wr, flags, to);
            },
        }
        Ok(())
    }

    /// Why a request cannot be staged: the order in which every back end looks.
    #[cold]
    fn refusal(&self, wr: &SendWr<'_>) -> StageError {
        let op = wr.op.opcode();
        let unsupported =
            |reason| StageError::Unsupported(Unsupported { capability: op.as_str_name(), reason });
        if self.ops >> op.value() & 1 == 0 {
            return unsupported(match op.allowed_on(self.ty) {
                true => "the device has no ATOMICs",
                false => "not on a QP of this type",
            });
        }
        if self.datagram != wr.dest.is_some() {
            return unsupported("a destination belongs to datagrams and to nothing else");
        }
        if can_post_send(self.state) == PostVerdict::Refused {
            return StageError::BadState { state: self.state };
        }
        match wr.data {
            Data::Inline(_) if !op.may_be_inline() => return unsupported("has no inline form"),
            Data::Inline(b) if b.len() > self.caps.max_inline as usize => {
                return StageError::InlineTooLong {
                    got: u32::try_from(b.len()).unwrap_or(u32::MAX),
                    max: self.caps.max_inline,
                };
            }
            Data::Sge(s) if s.len() > self.caps.max_sge as usize => {
                return StageError::TooManySge {
                    got: u32::try_from(s.len()).unwrap_or(u32::MAX),
                    max: self.caps.max_sge,
                };
            }
            _ => {}
        }
        let (got, max) = (wr.data.len(), self.max_bytes);
        if got > u64::from(max) {
            return StageError::TooLong { got, max };
        }
        if self.positions.free() == 0 { StageError::SqFull } else { StageError::StagedFull }
    }

    /// Announces what is staged, with one call to the provider.
    #[inline(always)]
    pub fn ring(&mut self) -> Result<Rung, RingError> {
        let wqes = self.positions.staged();
        if wqes == 0 {
            return Ok(Rung { wqes, by: RungBy::Nothing });
        }
        assert!(!self.begun_elsewhere(), "{BEGUN_ELSEWHERE}");
        // SAFETY: the queue pair lives as long as this object and belongs to this handle alone,
        // something is staged, and this thread has begun it.
        let done = unsafe {
            match &mut self.poster {
                Poster::Classic(chain) => chain.post(self.qp.as_ptr(), wqes),
                Poster::Extended(b, _) => b.complete(),
            }
        };
        match done {
            Ok(()) => {
                self.positions.rung(0);
                self.reopen();
                Ok(Rung { wqes, by: RungBy::Provider })
            }
            Err(failure) => Err(self.ring_failed(wqes, failure)),
        }
    }

    #[cold]
    fn ring_failed(&mut self, wqes: u32, failure: PostFailure) -> RingError {
        let discarded = failure.posted.map_or(0, |posted| wqes - posted);
        self.positions.rung(discarded);
        self.learn_state();
        self.reopen();
        let refused = can_post_send(self.state) == PostVerdict::Refused;
        let cause = match failure.errno {
            _ if failure.posted.is_none() => RingCause::Indeterminate,
            _ if refused => RingCause::BadState(self.state),
            libc::ENOMEM => RingCause::Full,
            errno => RingCause::Os(errno),
        };
        RingError { posted: failure.posted.unwrap_or(0), discarded, cause }
    }

    /// Whether an open burst of extended verbs was begun on another thread.
    #[inline(always)]
    fn begun_elsewhere(&self) -> bool {
        match self.poster {
            Poster::Extended(_, begun) => self.positions.staged() > 0 && begun != this_thread(),
            Poster::Classic(_) => false,
        }
    }

    /// Forgets what is staged.
    pub fn unstage(&mut self) -> u32 {
        let n = self.positions.staged();
        if n > 0 {
            assert!(!self.begun_elsewhere(), "{BEGUN_ELSEWHERE}");
            if let Poster::Extended(b, _) = self.poster {
                // SAFETY: the queue pair is alive and ours, and this thread has begun a burst.
                unsafe { b.abort() };
            }
            self.positions.rung(n);
            self.reopen();
        }
        n
    }

    /// The request that a completion ends, and the slots that come back.
    #[inline(always)]
    pub fn retire(&mut self, id: SendId) -> Option<(Request, u32)> {
        let retired = self.positions.retire(id)?;
        self.reopen();
        Some(retired)
    }

    /// A send in error was seen. RC goes to ERR; UC and UD go to SQE by an error of their own
    /// request, so the device is asked.
    #[cold]
    pub fn send_failed(&mut self) {
        if self.state == QpState::Err {
            return;
        }
        if self.ty == QpType::Rc {
            self.enter(QpState::Err);
        } else {
            self.learn_state();
        }
    }

    /// A receive in error was seen, or an event of the queue pair. Neither tells of which life it
    /// is, and that one may be over; so the device is asked.
    #[cold]
    pub fn perhaps_failed(&mut self) {
        if self.state != QpState::Err {
            self.learn_state();
        }
    }

    /// Asks the device for the state.
    pub fn learn_state(&mut self) {
        let answer = self.qp.query_state().ok().and_then(|s| QpState::try_from(s).ok());
        // RESET is entered by this handle alone, which has forgotten everything then.
        if let Some(state) = answer.filter(|s| *s != QpState::Reset) {
            self.state = state;
        }
        self.reopen();
    }
}

const BEGUN_ELSEWHERE: &str = "requests of extended verbs were staged on another thread: ring or \
                               unstage before a handle changes threads";

impl Drop for QueuePair {
    /// An open burst of extended verbs holds the provider's lock, which only its thread may let
    /// go: on another one the queue pair is left behind, with what it was made from.
    fn drop(&mut self) {
        if self.begun_elsewhere() {
            return;
        }
        self.unstage();
        // SAFETY: dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.qp) };
    }
}
