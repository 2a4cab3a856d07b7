//! Why a queue pair died or stalled: one cause, the field that did not match if one did, and the
//! sentence that says it.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{QpState, QpType, WcStatus, WrOpcode};
use doorbell_sim::memory::MemoryError;
use doorbell_sim::nic::Why;
use doorbell_sim::rc::{BadRequest, RecoverCause, Stall};

use super::facts::{Facts, How};
use super::silence::{judge_silence, lost_both, open_faults, psn_mismatch};
use super::words::plural;
use crate::format::FaultKind;

/// The cause in one word, as expectations have it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    WrongConnectionData,
    PeerNotReady,
    PeerInError,
    HostDead,
    RequestsLost,
    AnswersLost,
    Corrupted,
    PeerSlow,
    TimerShort,
    OutOfOrder,
    NakRepeat,
    NoReceive,
    PageFault,
    Refused,
    LocalError,
    RefusedPeer,
    MovedToErr,
    CqOverrun,
    Device,
    NeverRung,
    NothingSignalled,
    NetworkStands,
    Draining,
    Credits,
    Waiting,
    Unexplained,
}

impl Cause {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::WrongConnectionData => "wrong-connection-data",
            Self::PeerNotReady => "peer-not-ready",
            Self::PeerInError => "peer-in-error",
            Self::HostDead => "host-dead",
            Self::RequestsLost => "requests-lost",
            Self::AnswersLost => "answers-lost",
            Self::Corrupted => "corrupted",
            Self::PeerSlow => "peer-slow",
            Self::TimerShort => "timer-short",
            Self::OutOfOrder => "out-of-order",
            Self::NakRepeat => "nak-repeat",
            Self::NoReceive => "no-receive",
            Self::PageFault => "page-fault",
            Self::Refused => "refused",
            Self::LocalError => "local-error",
            Self::RefusedPeer => "refused-peer",
            Self::MovedToErr => "moved-to-err",
            Self::CqOverrun => "cq-overrun",
            Self::Device => "device",
            Self::NeverRung => "never-rung",
            Self::NothingSignalled => "nothing-signalled",
            Self::NetworkStands => "network-stands",
            Self::Draining => "draining",
            Self::Credits => "credits",
            Self::Waiting => "waiting",
            Self::Unexplained => "unexplained",
        }
    }
}

/// What would have had to last longer for the queue pair to live.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// A transmission so long after the first one would have got through.
    Transmission(Span),
    /// An answer came so long after the first one, and so many transmissions had none.
    Answer { after: Span, lost: u64 },
    /// An answer takes so long and is an RNR NAK, after which the same begins anew: only a timer
    /// that never expires before it helps.
    NoExpiry(Span),
    /// Answers take up to so long, and what is sent again meanwhile makes it longer: only a timer
    /// that never expires before it helps.
    LongTimer(Span),
    /// Nothing that lasts helps.
    Never,
    /// Packets of at most so large a path MTU pass.
    PathMtu(Option<u32>),
    /// Each packet is lost with this chance.
    Chance(Ratio),
    /// The peer may have a receive from then on; `None`: nobody knows.
    Receive(Option<Time>),
    /// A sequence NAK that is repeated no sooner than this.
    NakRepeat(Span),
}

/// The verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub cause: Cause,
    /// Field of the connection data, state, or reason; empty where there is none.
    pub field: String,
    pub text: String,
    pub need: Option<Need>,
}

pub(super) fn verdict(cause: Cause, field: &str, text: String) -> Verdict {
    Verdict { cause, field: field.to_owned(), text, need: None }
}

impl Verdict {
    pub(super) fn needs(self, need: Need) -> Self {
        Self { need: Some(need), ..self }
    }
}

/// Judges.
pub(super) fn judge(f: &Facts) -> Verdict {
    let How::Died { why, status, .. } = f.how else { return judge_stall(f) };
    match (why, status) {
        (Why::Requester, Some(WcStatus::RetryExcErr)) => judge_silence(f),
        (Why::Requester, Some(WcStatus::RnrRetryExcErr)) => no_receive(f),
        (Why::Requester, Some(status)) => judge_status(f, status),
        (Why::Responder(why), _) if f.ty != QpType::Rc => {
            let text =
                format!("a receive failed, which moves it to ERR: {}", refusal(why, f.memory));
            verdict(Cause::LocalError, receive_status(why).as_str_name(), text)
        }
        (Why::Responder(why), _) => {
            let text = format!(
                "it refused a request of its peer, which moves it to ERR: {} (NAK {})",
                refusal(why, f.memory),
                why.code()
            );
            verdict(Cause::RefusedPeer, &why.code().to_string(), text)
        }
        (Why::CqOverrun(cq), _) => {
            let when = f.overran.map_or(String::new(), |n| {
                let next = n + 1;
                format!(": completion {next} came when its {n} entries held {n} not polled")
            });
            let text = format!(
                "completion queue {cq} overran, and every queue pair on it is lost{when}; poll \
                 sooner, or raise `qp.cq_depth`"
            );
            verdict(Cause::CqOverrun, "cq_depth", text)
        }
        (Why::Device, _) => {
            let doorbell = f.device_fault.as_ref().is_some_and(|f| f.1 == FaultKind::BadDoorbell);
            let why = if doorbell { "its doorbell was damaged" } else { "a planned fault did it" };
            let text = format!("the device gave it up (QP_FATAL): {why}{}", by_fault(f));
            verdict(Cause::Device, device_fault_id(f), text)
        }
        (Why::Stopped { errors, threshold }, _) => {
            let text = format!(
                "its NIC stopped (DEVICE_FATAL): damaged doorbells, {errors} of them, reached the \
                 threshold `stop_after` {threshold}{}; its own doorbells were good",
                by_fault(f)
            );
            verdict(Cause::Device, device_fault_id(f), text)
        }
        _ => verdict(Cause::MovedToErr, "", "the program moved it to ERR".to_owned()),
    }
}

fn device_fault_id(f: &Facts) -> &str {
    f.device_fault.as_ref().map_or("", |(id, _)| id)
}

fn by_fault(f: &Facts) -> String {
    f.device_fault.as_ref().map_or(String::new(), |(id, _)| format!(" (fault `{id}`)"))
}

// ---- other statuses --------------------------------------------------------------------------

fn no_receive(f: &Facts) -> Verdict {
    let naks = f.standing.map_or(0, |s| s.rnr_retries) + 1;
    let peer = f.peer.qp.as_ref();
    if peer.is_some_and(|q| q.page_fault_naks > 0 && q.fill_at_rnr.is_none()) {
        let text = format!(
            "a page of the receiver's memory was missing at the last of {naks} tries{}: pin the \
             region, or wait longer by `min_rnr_timer` or `rnr_retry`",
            rnr_code(f)
        );
        return verdict(Cause::PageFault, "rnr_retry", text);
    }
    let lost = match f.requests.packets_lost() + f.answers.packets_lost() {
        0 => String::new(),
        _ => format!("; {}", lost_both(f)),
    };
    let text = format!(
        "the receiver had no receive posted: {} came{}, and rnr_retry {} allows no more{lost}{}{}",
        plural(naks.into(), "RNR NAK"),
        rnr_code(f),
        f.attr.rnr_retry,
        withheld(f),
        receiver_faults(f)
    );
    verdict(Cause::NoReceive, "rnr_retry", text).needs(receive_from(f))
}

/// What the peer's queue held when it last refused for want of a receive.
fn withheld(f: &Facts) -> String {
    let fill = f.peer.qp.as_ref().and_then(|q| q.fill_at_rnr);
    match fill.filter(|n| *n > 0) {
        Some(n) => {
            format!("; {} posted at the last try, and withheld", plural(n.into(), "receive"))
        }
        None => String::new(),
    }
}

/// Faults for which the peer posts no receive, or posts it late.
fn receiver_faults(f: &Facts) -> String {
    open_faults(f, |t| t.host == Some(f.peer.host))
}

/// When the faults of the peer's host end.
fn receive_from(f: &Facts) -> Need {
    let there = f.troubles.iter().filter(|t| t.host == Some(f.peer.host));
    let ends: Option<Vec<Time>> = there.map(|t| t.to).collect();
    Need::Receive(ends.and_then(|e| e.into_iter().max()))
}

fn rnr_code(f: &Facts) -> String {
    match f.standing.and_then(|s| s.last_cause) {
        Some(RecoverCause::Rnr(timer)) => format!(", RNR timer code {timer}"),
        _ => String::new(),
    }
}

/// The path MTU differs, and the work request is longer than the smaller one: a WRITE or SEND is
/// refused for its length, and the answers of a READ are not those that this side waits for.
fn unequal_mtu(f: &Facts, status: WcStatus) -> Option<Verdict> {
    let (q, w) = (f.peer_then().filter(|_| f.mutual())?, f.work?);
    let (own, theirs) = (f.attr.path_mtu, q.attr.path_mtu);
    if own == theirs || w.bytes <= own.min(theirs).bytes() {
        return None;
    }
    let refused = match q.death {
        Some((_, Why::Responder(why), _)) => why == BadRequest::Length,
        _ => true,
    };
    let what = match status {
        WcStatus::RemInvReqErr if refused && w.op != WrOpcode::RdmaRead => {
            "which refuses what is longer than one packet"
        }
        WcStatus::BadRespErr if w.op == WrOpcode::RdmaRead => {
            "which cuts its answers into packets of another length than this side waits for"
        }
        _ => return None,
    };
    let text = format!(
        "small messages pass and large ones do not: the path MTU is {} B here and {} B at the \
         peer, {what}",
        own.bytes(),
        theirs.bytes()
    );
    Some(verdict(Cause::WrongConnectionData, "mtu", text).needs(Need::Never))
}

/// With what a receive ends that could not take its message.
pub(super) const fn receive_status(why: BadRequest) -> WcStatus {
    match why {
        BadRequest::LocalMemory => WcStatus::LocProtErr,
        _ => WcStatus::LocLenErr,
    }
}

fn judge_status(f: &Facts, status: WcStatus) -> Verdict {
    if let Some(v) = unequal_mtu(f, status) {
        return v;
    }
    let code = match status {
        WcStatus::RemInvReqErr => "invalid request",
        WcStatus::RemAccessErr => "remote access error",
        WcStatus::RemOpErr => "remote operational error",
        _ => {
            let memory = f.memory.map_or(String::new(), |e| format!(": {e} (of a local buffer)"));
            let text = format!("this side could not execute the work request: {status}{memory}");
            return verdict(Cause::LocalError, status.as_str_name(), text);
        }
    };
    if status == WcStatus::RemInvReqErr
        && let Some(q) = f.peer_then().filter(|_| f.mutual())
        && let Some(v) = psn_mismatch(f, q)
    {
        return v;
    }
    let why = f.peer.qp.as_ref().and_then(|q| match q.death {
        Some((_, Why::Responder(why), _)) => Some(refusal(why, q.memory)),
        _ => None,
    });
    let why = why.map_or(code.to_owned(), |why| format!("{why} ({code})"));
    verdict(Cause::Refused, code, format!("the peer refused the request: {why}"))
}

/// Which check of a responder failed, and what of its own memory, where it was that.
fn refusal(why: BadRequest, memory: Option<MemoryError>) -> String {
    match (why, memory) {
        (BadRequest::LocalMemory, Some(e)) => format!("{why}: {e}"),
        _ => why.to_string(),
    }
}

// ---- stalls ----------------------------------------------------------------------------------

/// The questions, in this order: does it wait for a receive, or for its program? Was anything of
/// what it waits for lost, or does it stand in the network? Does it wait for a credit, for an
/// answer that it never asked for, or for one that it did ask for? Or has it nothing to send?
fn judge_stall(f: &Facts) -> Verdict {
    let How::Stalled { unrung, waiting, blocked, silent } = f.how else {
        return verdict(Cause::Unexplained, "", String::new());
    };
    let awaits = f.standing.is_some_and(|s| s.una != s.next);
    if f.waits_for_receive() {
        let on = match f.attr.rnr_retry.is_infinite() {
            true => "goes on until it has",
            false => "was not used up when the run ended",
        };
        let text = format!(
            "the peer has no receive posted{}; `rnr_retry` {} {on}{}{}",
            rnr_code(f),
            f.attr.rnr_retry,
            withheld(f),
            receiver_faults(f)
        );
        return verdict(Cause::NoReceive, "rnr_retry", text).needs(receive_from(f));
    }
    if f.state == QpState::Sqd {
        let text = format!("it is in SQD: {waiting} posted entries are not started");
        return verdict(Cause::Draining, "SQD", text);
    }
    if awaits && f.hurt() {
        return judge_waiting(f);
    }
    if let Some(why) = f.stands.as_ref().filter(|_| awaits && !f.host_dead()) {
        let faults = open_faults(f, |_| true);
        let text = format!("its packets stand in the network, and no port there sends: {why}");
        return verdict(Cause::NetworkStands, "", text + &faults);
    }
    if blocked == Some(Stall::Credits) {
        let text = "it waits for an end-to-end credit: the peer posts no receive".to_owned();
        return verdict(Cause::Credits, "credits", text);
    }
    if awaits && !f.asked && f.amid_message {
        let faults = open_faults(f, |_| true);
        let text = format!("packets of a message that it has begun are not sent{faults}");
        return verdict(Cause::Waiting, "", text);
    }
    if awaits && !f.asked && f.requests_under_way == 0 {
        let text = "what it sent last is not signalled and asked for no ACK (`rc.ack_ask`), so \
                    none comes, and no timer runs";
        return verdict(Cause::NothingSignalled, "signaled", text.to_owned());
    }
    if awaits {
        return judge_waiting(f);
    }
    if unrung > 0 {
        let text = format!(
            "entries posted but never doorbelled: {unrung}, and the NIC knows of none of them"
        );
        return verdict(Cause::NeverRung, "doorbell", text);
    }
    if silent {
        let text = "everything was executed and nothing signalled, so no completion comes";
        return verdict(Cause::NothingSignalled, "signaled", text.to_owned());
    }
    let faults = open_faults(f, |_| true);
    let text = format!("{waiting} announced entries are not started{faults}");
    verdict(Cause::Waiting, "", text)
}

/// It waits for an answer, and why none came says what happened to its packets.
fn judge_waiting(f: &Facts) -> Verdict {
    let mut v = judge_silence(f);
    if f.attr.timeout.code() == 0 {
        v.text += "; `timeout` 0 is no timer, so nothing sends them again";
    } else if !f.asked {
        v.text += "; no ACK was asked for, so no timer runs";
    }
    v
}
