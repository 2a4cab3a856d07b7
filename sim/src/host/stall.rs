//! Why a run made no progress.

use std::collections::BTreeMap;
use std::fmt;

use doorbell_core::transport::Initiator;
use doorbell_core::units::Time;
use doorbell_core::verbs::{QpState, Qpn};

use super::initiator::Activity;
use super::island::Host;
use crate::nic::NicQp;

/// One reason, with the object and what is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StallReason {
    /// WQEs were staged and never rung: no doorbell, no execution.
    UnrungWqes {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// WQEs staged and not rung.
        staged: u32,
        /// Producer index: WQEs staged so far.
        producer: u32,
        /// Producer index of the last ring.
        last_ring: u32,
    },
    /// The NIC has executed what the queue held before the initiator's stores were there.
    StaleWqes {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// WQEs that were read too early.
        count: u64,
    },
    /// Packets found no receive.
    NoReceivePosted {
        /// Host.
        host: u32,
        /// Queue pair of the receiver.
        qpn: Qpn,
        /// RNR NAKs that it sent.
        rnr_naks: u64,
    },
    /// The send queue is full and nothing in it was signalled, so no completion can free a slot.
    FullUnsignalled {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// Slots in use.
        used: u32,
    },
    /// A QP is in ERR.
    QpInError {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
    },
    /// Requests that nobody answers.
    Unanswered {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// Packets without an answer.
        packets: u32,
        /// Oldest PSN.
        psn: u32,
    },
    /// A QP sends again and again, nothing answers, and its `retry_cnt` has no limit.
    ResendsWithoutEnd {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// Times that its ack timer has expired since the last progress.
        expired: u32,
        /// Oldest PSN.
        psn: u32,
    },
    /// Work requests were executed, and none of them was signalled.
    NothingSignalled {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// WQEs executed and not confirmed.
        executed: u32,
    },
    /// A QP is in SQD: what was posted is not started.
    Draining {
        /// Host.
        host: u32,
        /// Queue pair.
        qpn: Qpn,
        /// WQEs posted and not started.
        waiting: u32,
    },
    /// A program waits and nothing will come.
    Waiting {
        /// Its rank.
        rank: u32,
        /// Who runs it.
        who: Initiator,
        /// Since it last did something.
        since: Time,
        /// What for.
        on: String,
        /// Looks since then that found nothing, of one that looks at times of its own; else 0.
        looks: u32,
    },
    /// Posters wait for their turn behind slots of a shared QP that nobody announces in order.
    TurnNeverCame {
        /// Host.
        host: u32,
        /// QP.
        qpn: Qpn,
        /// First slot that is not announced in order.
        ready: u32,
        /// First slot of those that wait.
        next: u32,
        /// Posters that wait.
        waiting: usize,
    },
    /// A program blocked inside a step.
    BlockedInStep {
        /// Its rank.
        rank: u32,
    },
    /// A step made more calls than its budget.
    CallBudget {
        /// Its rank.
        rank: u32,
    },
    /// A program stepped a million times in a row without doing anything.
    IdleSteps {
        /// Its rank.
        rank: u32,
    },
    /// A program was woken for a queue and did not poll it, three times in a row.
    Barren {
        /// Its rank.
        rank: u32,
        /// The completion queue.
        cq: u32,
    },
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnrungWqes { host, qpn, staged, producer, last_ring } => write!(
                f,
                "host {host}, QP {}: {staged} WQEs are staged and no doorbell announced them \
                 (producer index {producer}, last ring at {last_ring}); ring after the last post",
                qpn.value()
            ),
            Self::StaleWqes { host, qpn, count } => write!(
                f,
                "host {host}, QP {}: {count} WQEs were read before their stores {LATE}",
                qpn.value()
            ),
            Self::NoReceivePosted { host, qpn, rnr_naks } => write!(
                f,
                "host {host}, QP {}: no receive is posted (RNR NAKs sent: {rnr_naks}); post \
                 receives before the peer sends",
                qpn.value()
            ),
            Self::FullUnsignalled { host, qpn, used } => write!(
                f,
                "host {host}, QP {}: all {used} slots of the send queue are in use {UNFREED}",
                qpn.value()
            ),
            Self::QpInError { host, qpn } => {
                write!(f, "host {host}, QP {} is in ERR", qpn.value())
            }
            Self::Unanswered { host, qpn, packets, psn } => write!(
                f,
                "host {host}, QP {}: {packets} packets from PSN {psn:#x} on {UNANSWERED}",
                qpn.value()
            ),
            Self::ResendsWithoutEnd { host, qpn, expired, psn } => write!(
                f,
                "host {host}, QP {}: the ack timer has expired {expired} times for PSN {psn:#x}, \
                 {UNLIMITED}",
                qpn.value()
            ),
            Self::NothingSignalled { host, qpn, executed } => write!(
                f,
                "host {host}, QP {}: none of the executed WQEs ({executed}) was signalled, so no \
                 completion comes; signal the last one",
                qpn.value()
            ),
            Self::Draining { host, qpn, waiting } => write!(
                f,
                "host {host}, QP {} is in SQD: {waiting} posted WQEs are not started; move it \
                 back to RTS",
                qpn.value()
            ),
            Self::Waiting { rank, who, since, on, looks } => {
                write!(f, "program {rank} ({}) {}", name_of(*who), waits(*since, on, *looks))
            }
            Self::TurnNeverCame { host, qpn, ready, next, waiting } => write!(
                f,
                "host {host}, QP {}: {waiting} posters wait for their turn from slot {next} on, \
                 and the ready index stands at {ready}: {BYPASSED}",
                qpn.value()
            ),
            Self::BlockedInStep { rank } => write!(f, "program {rank} is blocked inside a step"),
            Self::CallBudget { rank } => write!(f, "program {rank} {ENDLESS}"),
            Self::IdleSteps { rank } => {
                write!(f, "program {rank} stepped a million times and did nothing")
            }
            Self::Barren { rank, cq } => write!(
                f,
                "program {rank} was woken for completion queue {cq} three times and never polled it"
            ),
        }
    }
}

/// What a program waits for, or how often it has looked in vain.
fn waits(since: Time, on: &str, looks: u32) -> String {
    match looks {
        0 => format!("waits for {on} since {since}"),
        _ => format!("waits since {since}: it has looked {looks} times and found nothing"),
    }
}

/// What a program that does not return did, and what to do.
const ENDLESS: &str = "made more than a million calls in one step: a loop that waits inside a step \
                       never ends; return Next::Wait";

/// What becomes of WQEs that are read too early, and what to do.
const LATE: &str = "had landed, so something else was executed in their place; fence before the \
                    ring";

/// Why a send queue stays full, and what to do.
const UNFREED: &str = "and none of them was signalled, so no completion can free one; signal at \
                       least one WQE per queue depth";

/// Why answers never come.
const UNANSWERED: &str = "have no answer; the peer has no receive for them and `rnr_retry` 7 \
                          repeats for ever, it refuses them, or `timeout` is 0 and nothing sends \
                          them again";

/// Why an ack timer expires again and again, and what to do.
const UNLIMITED: &str = "nothing answers, and `retry_cnt` 7 is without limit (`rc.retry_seven`), \
                         so it goes on for ever; a smaller `retry_cnt` ends it";

/// Why a turn never comes, and what to do.
const BYPASSED: &str = "the slots between were taken by a poster that does not submit in order, so \
                        the index never passes them; let all posters of the queue pair ring \
                        `ordered`, or none";

/// An initiator as reports call it.
fn name_of(who: Initiator) -> String {
    match who {
        Initiator::Cpu { core, numa } => format!("core {core} on NUMA node {numa}"),
        Initiator::GpuBlock { gpu, block } => format!("GPU {gpu} block {block}"),
    }
}

impl StallReason {
    /// Causes before what follows from them: a missing receive before the packets without an
    /// answer, these before the programs that wait.
    pub const fn rank_of_cause(&self) -> u8 {
        match self {
            Self::CallBudget { .. } | Self::IdleSteps { .. } | Self::Barren { .. } => 0,
            Self::TurnNeverCame { .. } => 0,
            Self::UnrungWqes { .. } | Self::StaleWqes { .. } => 1,
            Self::NoReceivePosted { .. } => 2,
            Self::FullUnsignalled { .. }
            | Self::NothingSignalled { .. }
            | Self::Draining { .. }
            | Self::QpInError { .. } => 3,
            Self::Unanswered { .. } | Self::ResendsWithoutEnd { .. } => 4,
            Self::BlockedInStep { .. } | Self::Waiting { .. } => 5,
        }
    }
}

impl Host {
    /// Posters of shared QPs whose turn to announce their slots never comes.
    fn missed_turns(&self, out: &mut Vec<StallReason>) {
        let host = self.id.0;
        for ((nic, qp), lock) in &self.locks {
            let first = lock.in_order.keys().next();
            if let (Some(&next), Some(q)) = (first, self.nic((*nic).into()).qp(*qp)) {
                let (ready, waiting, qpn) = (lock.ready, lock.in_order.len(), q.qpn);
                out.push(StallReason::TurnNeverCame { host, qpn, ready, next, waiting });
            }
        }
    }

    /// Whether a program waits for what completes into a queue of a NIC.
    fn waits_for_sends(&self, nic: u16, cq: u32) -> bool {
        self.initiators.iter().filter(|i| u16::from(i.nic) == nic).any(|i| {
            let Activity::Waiting { on, .. } = i.activity else { return false };
            on.cq_indices().any(|c| i.handles.cqs.get(c) == Some(&cq))
        })
    }

    /// Everything in this host that keeps it from going on.
    pub fn stall_reasons(&self, out: &mut Vec<StallReason>) {
        if self.dead {
            return;
        }
        let host = self.id.0;
        out.extend(self.fault.clone());
        let mut staged_of: BTreeMap<(u16, u32), u32> = BTreeMap::new();
        for i in &self.initiators {
            for l in i.handles.qps.0.iter().flatten() {
                *staged_of.entry((i.nic.into(), l.qp)).or_default() += l.staged.len() as u32;
            }
        }
        let qps = self.nics().flat_map(|n| n.qps().map(|(i, q)| (n.port(), i, q)));
        for (port, index, q) in qps {
            let qpn = q.qpn;
            let staged = staged_of.get(&(port.0, index)).copied().unwrap_or(0);
            if staged > 0 {
                let last_ring = q.sq.prod();
                let producer = last_ring.wrapping_add(staged);
                out.push(StallReason::UnrungWqes { host, qpn, staged, producer, last_ring });
            }
            let count = q.stats.stale_wqes;
            if count > 0 {
                out.push(StallReason::StaleWqes { host, qpn, count });
            }
            let queue = q.srq.and_then(|srq| self.nic(port.index()).srq(srq)).unwrap_or(&q.rq);
            if q.hw_counters().rnr_nak_sent > 0 && queue.is_empty() {
                let rnr_naks = q.hw_counters().rnr_nak_sent;
                out.push(StallReason::NoReceivePosted { host, qpn, rnr_naks });
            }
            if q.state == QpState::Err {
                out.push(StallReason::QpInError { host, qpn });
            }
            let unanswered = q.requester.as_ref().map_or(0, |r| r.outstanding());
            if unanswered > 0 && q.state == QpState::Rts && q.has_awaited_answers() {
                out.push(unanswered_of(host, q));
            }
            let used = q.sq.used;
            let untold = q.sq.untold();
            let silent = untold > 0 && !q.sq.any_signalled() && staged == 0;
            if silent && used >= q.caps.max_send_wr {
                out.push(StallReason::FullUnsignalled { host, qpn, used });
            } else if silent
                && unanswered == 0
                && q.state == QpState::Rts
                && self.waits_for_sends(port.0, q.send_cq)
            {
                out.push(StallReason::NothingSignalled { host, qpn, executed: untold });
            }
            let waiting = q.sq.prod().wrapping_sub(q.sq.started);
            if q.state == QpState::Sqd && waiting > 0 {
                out.push(StallReason::Draining { host, qpn, waiting });
            }
        }
        self.missed_turns(out);
        for i in &self.initiators {
            let rank = i.rank;
            match i.activity {
                Activity::Waiting { on, until, .. } => {
                    let (who, since, on) = (i.who, i.idle_since, describe(on));
                    let looks = if until.is_some() && i.looks_in_vain() { i.idle_polls } else { 0 };
                    out.push(StallReason::Waiting { rank, who, since, on, looks });
                }
                Activity::Blocked { .. } => out.push(StallReason::BlockedInStep { rank }),
                _ => {}
            }
        }
    }
}

/// A QP waits for answers: those that it has asked for again without limit are a reason of their
/// own.
fn unanswered_of(host: u32, q: &NicQp) -> StallReason {
    let (qpn, r) = (q.qpn, q.requester.as_ref().expect("it has sent requests"));
    let psn = r.unacked_psn().value();
    if r.silent_without_limit() && !r.refused_without_limit() {
        return StallReason::ResendsWithoutEnd { host, qpn, expired: r.standing().expired, psn };
    }
    StallReason::Unanswered { host, qpn, packets: r.outstanding(), psn }
}

fn describe(on: doorbell_core::transport::WaitSet) -> String {
    use doorbell_core::transport::WaitSet;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(on.cq_indices().map(|c| format!("completion queue {c}")));
    parts.extend(on.watch_indices().map(|w| format!("memory watch {w}")));
    if on.intersects(WaitSet::EVENTS) {
        parts.push("an asynchronous event".into());
    }
    if on.intersects(WaitSet::BOOTSTRAP) {
        parts.push("the bootstrap".into());
    }
    if parts.is_empty() { "nothing".into() } else { parts.join(" or ") }
}
