//! Why a queue pair died or stalled: one cause, the field that did not match if one did, and the
//! sentence that says it.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{Psn, QpState, QpType, WcStatus, WrOpcode};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::memory::MemoryError;
use doorbell_sim::nic::{Dropped, Refused, Why};
use doorbell_sim::rc::{BadRequest, RecoverCause, Stall};

use super::super::faults::HostTrouble;
use super::facts::{Facts, Fates, How, Loss, PeerQp};
use super::words::{at, between, gap, least, plural, port_name, qp_name, refused_word, time};
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
    /// The answer to the first one came so long after it.
    Answer(Span),
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

fn verdict(cause: Cause, field: &str, text: String) -> Verdict {
    Verdict { cause, field: field.to_owned(), text, need: None }
}

impl Verdict {
    fn needs(self, need: Need) -> Self {
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
            let text = format!("completion queue {cq} overran, and every queue pair on it is lost");
            verdict(Cause::CqOverrun, "cq_depth", text)
        }
        (Why::Device, _) => {
            let by = f.device_fault.as_ref().map_or(String::new(), |id| format!(" (fault `{id}`)"));
            let text = format!("the device gave it up (QP_FATAL): a planned fault did it{by}");
            verdict(Cause::Device, f.device_fault.as_deref().unwrap_or(""), text)
        }
        _ => verdict(Cause::MovedToErr, "", "the program moved it to ERR".to_owned()),
    }
}

// ---- status 12, and requests that nobody answers ---------------------------------------------

/// Nobody answered in time. What happened to most of the packets since the first transmission of
/// what was never acknowledged is the cause.
fn judge_silence(f: &Facts) -> Verdict {
    if let Some(v) = naks_repeated(f) {
        return v;
    }
    let refused = f.requests.refused().max_by_key(|(_, d)| d.packets);
    let lost = most_lost(&f.requests);
    let last = f.peer.qp.as_ref().and_then(|q| q.last_request);
    let heard = f.executed() || last.is_some_and(|t| t >= f.since());
    match (refused, lost) {
        (Some((host, d)), lost) if lost.is_none_or(|l| l.packets <= d.packets) => {
            judge_refused(f, *host, d)
        }
        (_, Some(l)) if !heard || f.requests.packets_lost() > answers_gone(f) => {
            requests_lost(f, l, heard)
        }
        _ if f.peer.host_dead => host_dead(f),
        _ if heard => judge_heard(f),
        _ if f.requests_under_way > 0 => slow(f, None),
        _ if nak_was_last(f) => out_of_order(f),
        _ => {
            let text = "no answer came, and no packet was seen to be lost or dropped";
            let text = format!("{text}{}", open_faults(f, |_| true));
            verdict(Cause::Unexplained, "", text)
        }
    }
}

fn most_lost(fates: &Fates) -> Option<&Loss> {
    fates.lost.iter().max_by_key(|l| l.packets)
}

/// Whether what happened then came too late to help. To one that waits nothing comes too late.
fn is_late(f: &Facts, then: Time) -> bool {
    matches!(f.how, How::Died { .. }) && then >= f.at()
}

/// Answers that did not reach this side.
fn answers_gone(f: &Facts) -> u64 {
    let refused = f.answers.refused().filter(|(_, d)| !is_late(f, d.first));
    f.answers.packets_lost() + refused.map(|(_, d)| d.packets).sum::<u64>()
}

/// The planned faults that were open while it failed, as the end of a sentence.
fn open_faults(f: &Facts, which: impl Fn(&HostTrouble) -> bool) -> String {
    let mut text = String::new();
    for t in f.troubles.iter().filter(|t| which(t)) {
        let place = t.host.map_or("of packets".to_owned(), |h| format!("of host {h}"));
        let to = t.to.map_or("without end".to_owned(), |to| format!("to {}", at(to)));
        let from = if t.from == Time::ZERO { "the start".to_owned() } else { at(t.from) };
        let (id, kind) = (&t.id, t.kind.word());
        text += &format!("; fault `{id}` ({kind} {place}) was open from {from} {to}");
    }
    text
}

/// How many packets of each direction were lost, and when.
fn lost_both(f: &Facts) -> String {
    let (requests, answers) = (f.requests.packets_lost(), f.answers.packets_lost());
    let all = || f.requests.lost.iter().chain(&f.answers.lost);
    let count = match (requests, answers) {
        (n, 0) => plural(n, "request packet"),
        (0, n) => plural(n, "answer"),
        (n, m) => format!("{} and {}", plural(n, "request packet"), plural(m, "answer")),
    };
    let count = least(all().any(|l| l.at_least), count);
    let first = all().map(|l| l.first).min().unwrap_or(Time::ZERO);
    let last = all().map(|l| l.last).max().unwrap_or(first);
    format!("{count} lost, {}", between(first, last))
}

/// What would have lasted against a loss.
fn against(v: Verdict, f: &Facts, l: &Loss) -> Verdict {
    match (&l.fault, l.cause) {
        (Some(fault), cause) => match (fault.end, fault.chance) {
            (Some(end), _) => v.needs(Need::Transmission(gap(end, f.since()))),
            (None, Some(chance)) if chance.num < chance.den => v.needs(Need::Chance(chance)),
            _ if matches!(cause, DropCause::LinkDown | DropCause::SwitchReboot) => {
                v.needs(Need::Never)
            }
            _ => v,
        },
        _ => v,
    }
}

/// The port of `host` dropped the requests, and says why.
fn judge_refused(f: &Facts, host: u32, d: &Dropped) -> Verdict {
    let all = least(d.at_least, plural(d.packets, "packet"));
    let port = format!("host {host} dropped {all}");
    let wrong = |field: &str, text: String| {
        verdict(Cause::WrongConnectionData, field, text).needs(Need::Never)
    };
    match d.why {
        Refused::PKey { sent, expected } => wrong(
            "pkey",
            format!("{port}: the P_Key does not match (sent {sent}, expected {expected})"),
        ),
        Refused::UnknownQp(qpn) => unknown_qp(f, host, &port, qpn.value()),
        Refused::Address { from, expected } => {
            let own = f.peer.counterpart;
            let text = match own {
                Some((h, qpn)) => format!(
                    "{port}: QP {} there is connected to host {}; the one that waits for this \
                     queue pair is {}",
                    f.peer.qpn.value(),
                    expected.0.0,
                    qp_name(h, qpn)
                ),
                None => format!(
                    "{port}: they came from {}, and the address vector there names {}",
                    port_name(from),
                    port_name(expected)
                ),
            };
            wrong("gid", text)
        }
        Refused::QKey { sent, expected } => wrong(
            "qkey",
            format!(
                "{port}: the Q_Key does not match (sent {:#x}, expected {:#x})",
                sent.0, expected.0
            ),
        ),
        Refused::Service { packet, qp } => wrong(
            "service",
            format!("{port}: QP {} there is {qp}, the packets are {packet}", f.peer.qpn.value()),
        ),
        Refused::State(QpState::Err) => peer_in_error(f, &port),
        Refused::State(state) => not_ready(f, &port, state),
        Refused::Icrc => verdict(
            Cause::Corrupted,
            "icrc",
            format!("{port}: their ICRC was wrong; a link damages packets"),
        ),
        why => verdict(Cause::Unexplained, "", format!("{port}: {}", refused_word(&why))),
    }
}

fn unknown_qp(f: &Facts, host: u32, port: &str, qpn: u32) -> Verdict {
    let other = f.peer.counterpart;
    let text = format!("{port}: dest QPN {qpn:#x} is unknown there");
    let (field, text) = match other {
        Some((h, q)) if h != host => {
            ("gid", format!("{text}; {} waits for this queue pair", qp_name(h, q)))
        }
        Some((h, q)) => ("dest_qp", format!("{text}; {} waits for this queue pair", qp_name(h, q))),
        None => ("dest_qp", text),
    };
    verdict(Cause::WrongConnectionData, field, text).needs(Need::Never)
}

fn not_ready(f: &Facts, port: &str, state: QpState) -> Verdict {
    let ready = f.peer.qp.as_ref().and_then(|q| q.accepts_since).filter(|t| *t >= f.since());
    let (later, need) = match ready {
        Some(t) => {
            let late = gap(t, f.at());
            let after = if late > Span::ZERO {
                format!("; it reached RTR {} after this one had died", time(late))
            } else {
                String::new()
            };
            (after, Need::Transmission(gap(t, f.since())))
        }
        None => ("; it never reached RTR".to_owned(), Need::Never),
    };
    let text = format!("{port}: QP {} there was in {state}{later}", f.peer.qpn.value());
    verdict(Cause::PeerNotReady, &state.to_string(), text).needs(need)
}

fn peer_in_error(f: &Facts, port: &str) -> Verdict {
    let death = f.peer.qp.as_ref().and_then(|q| q.death);
    let because = match death {
        Some((at, why, status)) => {
            format!("since {}, because {}", time(at.since(Time::ZERO)), reason(why, status))
        }
        None => "and has left it since".to_owned(),
    };
    let text = format!("{port}: QP {} there was in ERR {because}", f.peer.qpn.value());
    verdict(Cause::PeerInError, "ERR", text).needs(Need::Never)
}

/// Why the other queue pair is in ERR, in half a sentence.
fn reason(why: Why, status: Option<WcStatus>) -> String {
    match (why, status) {
        (Why::Requester, Some(status)) => format!("a work request of its own ended with {status}"),
        (Why::Responder(code), _) => format!("it refused a request with {code}"),
        (Why::CqOverrun(cq), _) => format!("its completion queue {cq} overran"),
        (Why::Device, _) => "its device gave it up".to_owned(),
        _ => "its program moved it there".to_owned(),
    }
}

fn requests_lost(f: &Facts, l: &Loss, heard: bool) -> Verdict {
    if l.cause == DropCause::PeerDead {
        return host_dead(f);
    }
    let before = f.peer.qp.as_ref().is_some_and(|q| q.requests > 0);
    let seen = match (heard, before) {
        (true, _) => "the peer saw only some packets",
        (false, true) => "the peer saw none of these packets",
        (false, false) => "the peer never saw a packet",
    };
    if l.cause == DropCause::Oversize {
        return oversize(f, l);
    }
    let by = l.fault.as_ref().map_or(String::new(), |fault| format!(" (fault `{}`)", fault.id));
    let what = match l.cause {
        DropCause::LinkDown => format!("{} was down", l.place.trim_start_matches("on ")),
        DropCause::SwitchReboot => format!("a switch rebooted, and they got lost {}", l.place),
        cause => format!("they got lost {}, {}", l.place, cause.name()),
    };
    let text = format!("{seen}: {what}{by}; {}", lost_both(f));
    let field = l.fault.as_ref().map_or("", |fault| &fault.id);
    against(verdict(Cause::RequestsLost, field, text), f, l)
}

/// A link takes smaller packets only.
fn oversize(f: &Facts, l: &Loss) -> Verdict {
    let link = f.small_link.as_ref();
    let name = link.map_or("a link".to_owned(), |s| s.name.clone());
    let text = format!(
        "the path MTU is {} B, and {name} takes no such packets: {} dropped {}, {}; what is small \
         passes",
        f.attr.path_mtu.bytes(),
        least(l.at_least, plural(l.packets, "packet")),
        l.place,
        between(l.first, l.last)
    );
    let path = link.and_then(|s| s.path);
    verdict(Cause::RequestsLost, "mtu", text).needs(Need::PathMtu(path))
}

fn host_dead(f: &Facts) -> Verdict {
    let text = format!("host {} is dead: nothing there answers", f.peer.host);
    verdict(Cause::HostDead, "", text).needs(Need::Never)
}

/// The peer took packets, and this side has no answer that it can use.
fn judge_heard(f: &Facts) -> Verdict {
    let Some(q) = &f.peer.qp else { return slow(f, None) };
    if let Some(v) = psn_mismatch(f, q) {
        return v;
    }
    if let Some(l) = most_lost(&f.answers) {
        if l.cause == DropCause::PeerDead {
            return host_dead(f);
        }
        if l.cause == DropCause::Oversize {
            return oversize(f, l);
        }
        let by = l.fault.as_ref().map_or(String::new(), |l| format!(" (fault `{}`)", l.id));
        let text =
            format!("the peer answered, and answers got lost {}{by}; {}", l.place, lost_both(f));
        let field = l.fault.as_ref().map_or("", |fault| &fault.id);
        return against(verdict(Cause::AnswersLost, field, text), f, l);
    }
    let before = f.answers.refused().filter(|(_, d)| !is_late(f, d.first));
    if let Some((host, d)) = before.max_by_key(|(_, d)| d.packets) {
        return answers_refused(*host, d);
    }
    let late = f.answers.refused().filter(|(_, d)| is_late(f, d.last)).map(|(_, d)| d.first);
    // What came behind the death of a NAK is no answer that an expiry was too early for.
    if nak_was_last(f) { out_of_order(f) } else { slow(f, late.min()) }
}

/// Whether a missing packet that the peer told of, and no expiry, used up the last retry.
fn nak_was_last(f: &Facts) -> bool {
    use RecoverCause::{ImpliedNak, ReadGap, SequenceNak};
    let cause = f.standing.and_then(|s| s.last_cause);
    matches!(cause, Some(SequenceNak | ImpliedNak | ReadGap))
}

/// The peer told of one gap again and again, faster than it could be closed, until no retry was
/// left. What was lost no more often than once for each retry would not have been enough.
fn naks_repeated(f: &Facts) -> Option<Verdict> {
    let (q, s) = (f.peer.qp.as_ref()?, f.standing?);
    let repeat = q.nak_repeat?;
    let naks = s.last_cause == Some(RecoverCause::SequenceNak) && s.expired == 0;
    if !naks || f.requests.packets_lost() > u64::from(s.retries) {
        return None;
    }
    let lost = match f.requests.packets_lost() {
        0 => "packets were out of order".to_owned(),
        n => format!("{} lost", plural(n, "request packet")),
    };
    let text = format!(
        "the peer repeats a sequence NAK after {} while a gap stands (`rc.nak_repeat`), and what \
         is sent again takes {} at least to arrive: {lost}, and each repetition used one of \
         retry_cnt {}{}",
        time(repeat),
        time(f.round_trip),
        f.attr.retry_cnt,
        open_faults(f, |_| true)
    );
    Some(verdict(Cause::NakRepeat, "rc.nak_repeat", text).needs(Need::NakRepeat(f.round_trip)))
}

/// Nothing was lost, and the peer, or this side, missed a packet all the same.
fn out_of_order(f: &Facts) -> Verdict {
    let missed = match f.standing.and_then(|s| s.last_cause) {
        Some(RecoverCause::SequenceNak) => "a sequence NAK came, and no timer had expired",
        _ => "a response was missing before others, and no timer had expired",
    };
    let faults = open_faults(f, |_| true);
    let text = format!(
        "packets overtook each other on the way: {missed}; it needed one retry more than \
         retry_cnt {}{faults}",
        f.attr.retry_cnt
    );
    verdict(Cause::OutOfOrder, "retry_cnt", text)
}

/// The answers went astray: what the peer has for this side is wrong.
fn answers_refused(host: u32, d: &Dropped) -> Verdict {
    let all = least(d.at_least, plural(d.packets, "answer"));
    let port = format!("the peer answered, and host {host} dropped {all}");
    let wrong = |field: &str, text: String| {
        verdict(Cause::WrongConnectionData, field, text).needs(Need::Never)
    };
    match d.why {
        Refused::UnknownQp(qpn) => {
            wrong("dest_qp", format!("{port}: the peer sends them to QPN {:#x}", qpn.value()))
        }
        Refused::PKey { sent, expected } => {
            wrong("pkey", format!("{port}: P_Key {sent}, expected {expected}"))
        }
        Refused::Address { from, expected } => {
            let (from, expected) = (port_name(from), port_name(expected));
            wrong("gid", format!("{port}: they came from {from}, expected {expected}"))
        }
        Refused::Icrc => verdict(Cause::Corrupted, "icrc", format!("{port}: their ICRC was wrong")),
        why => verdict(Cause::AnswersLost, "", format!("{port}: {}", refused_word(&why))),
    }
}

/// Both sides name each other and not the same PSN.
fn psn_mismatch(f: &Facts, q: &PeerQp) -> Option<Verdict> {
    let (sent, expected) = (f.attr.sq_psn, q.attr.rq_psn);
    let signs = q.counters.out_of_sequence + q.counters.duplicate_request;
    if !f.mutual() || signs == 0 {
        return None;
    }
    if sent == expected {
        return connected_again(f, q).or_else(|| began_anew(f, q));
    }
    let by = sent.diff(expected);
    let what = if by > 0 { "missing before them" } else { "taken for duplicates" };
    let text = format!(
        "the first PSN does not match (sent {:#x}, expected {:#x}, {by:+}): {} out of sequence \
         and {} duplicates at the peer; packets are {what}",
        sent.value(),
        expected.value(),
        q.counters.out_of_sequence,
        q.counters.duplicate_request,
    );
    Some(verdict(Cause::WrongConnectionData, "psn", text).needs(Need::Never))
}

/// They did name the same PSN, and the peer has begun anew since.
fn connected_again(f: &Facts, q: &PeerQp) -> Option<Verdict> {
    let (again, last) = (q.accepts_since?, f.acknowledged?);
    let (una, expected) = (f.standing?.una.value(), q.expected_psn?);
    if again <= last || una == expected {
        return None;
    }
    let text = format!(
        "the peer was reset and connected again at {}: it expects PSN {expected:#x}, and this side \
         goes on at {una:#x}",
        time(gap(again, Time::ZERO))
    );
    Some(verdict(Cause::WrongConnectionData, "psn", text).needs(Need::Never))
}

/// They did name the same PSN, and this side has begun anew since: the peer is further on than
/// anything that was sent in this life.
fn began_anew(f: &Facts, q: &PeerQp) -> Option<Verdict> {
    let (next, expected) = (f.standing?.next, Psn::new(q.expected_psn?));
    if expected.diff(next) <= 0 {
        return None;
    }
    let text = format!(
        "this side was reset and connected again, and the peer was not: it expects PSN {:#x}, \
         beyond all that was sent since (next {:#x}), and takes the packets for duplicates",
        expected.value(),
        next.value()
    );
    Some(verdict(Cause::WrongConnectionData, "psn", text).needs(Need::Never))
}

/// The peer lives, and its answer takes longer than this side waits.
fn slow(f: &Facts, late: Option<Time>) -> Verdict {
    let faults = open_faults(f, |t| t.kind != FaultKind::Rnr && t.kind != FaultKind::CqNotPolled);
    match late {
        Some(t) => {
            let after = time(gap(t, f.at()));
            let text = format!(
                "the peer is alive but slow: an answer came {after} after the last expiry, {} \
                 after the first transmission{faults}",
                time(gap(t, f.since()))
            );
            let need = Need::Answer(gap(t, f.since()));
            verdict(Cause::PeerSlow, "timeout", text).needs(need)
        }
        None => {
            let packets = plural(f.requests_under_way + f.answers_under_way, "packet");
            let text = format!("nothing was lost, {packets} on their way{faults}");
            let v = verdict(Cause::PeerSlow, "timeout", text);
            let stalls = f.troubles.iter().filter(|t| t.kind == FaultKind::NicStall);
            match stalls.filter_map(|t| t.to).max() {
                Some(end) => v.needs(Need::Answer(gap(end, f.since()))),
                None => v,
            }
        }
    }
}

// ---- other statuses --------------------------------------------------------------------------

fn no_receive(f: &Facts) -> Verdict {
    let tries = f.standing.map_or(0, |s| s.rnr_retries) + 1;
    let code = rnr_code(f);
    let peer = f.peer.qp.as_ref();
    if peer.is_some_and(|q| q.page_fault_naks > 0 && q.fill_at_rnr.is_none()) {
        let text = format!(
            "a page of the receiver's memory was missing at the last of {tries} tries{code}: pin \
             the region, or wait longer by `min_rnr_timer` or `rnr_retry`"
        );
        return verdict(Cause::PageFault, "rnr_retry", text);
    }
    let text = format!(
        "the receiver had no receive posted for {tries} of {tries} tries{code}{}{}",
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
    let (q, w) = (f.peer.qp.as_ref().filter(|_| f.mutual())?, f.work?);
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
        && let Some(q) = f.peer.qp.as_ref().filter(|_| f.mutual())
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

fn judge_stall(f: &Facts) -> Verdict {
    let How::Stalled { unrung, waiting, blocked, silent } = f.how else {
        return verdict(Cause::Unexplained, "", String::new());
    };
    if f.waits_for_receive() {
        let text = format!(
            "the peer has no receive posted{}; `rnr_retry` {} goes on until it has{}{}",
            rnr_code(f),
            f.attr.rnr_retry,
            withheld(f),
            receiver_faults(f)
        );
        return verdict(Cause::NoReceive, "rnr_retry", text);
    }
    if f.state == QpState::Sqd {
        let text = format!("it is in SQD: {waiting} posted entries are not started");
        return verdict(Cause::Draining, "SQD", text);
    }
    if blocked == Some(Stall::Credits) {
        let text = "it waits for an end-to-end credit: the peer posts no receive".to_owned();
        return verdict(Cause::Credits, "credits", text);
    }
    if f.standing.is_some_and(|s| s.una != s.next) {
        let mut v = judge_silence(f);
        if f.attr.timeout.code() == 0 {
            v.text += "; `timeout` 0 is no timer, so nothing sends them again";
        }
        return v;
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
