//! Why nobody answered: status 12, and requests that wait for an answer at the end of a run.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{PKey, Psn, QpState, WcStatus};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::nic::{Dropped, Refused, Why};
use doorbell_sim::rc::RecoverCause;

use super::super::faults::HostTrouble;
use super::facts::{Facts, PeerQp};
use super::fates::{Fates, Loss};
use super::verdict::{Cause, Need, Verdict, verdict};
use super::words::{
    at, between, gap, least, plural, port_name, qp_name, refused_word, since_nak, time,
};
use crate::format::FaultKind;

/// What became of most of the transmissions that were not answered in time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Most {
    /// They were answered, too late.
    Late,
    RequestsLost,
    RequestsRefused,
    /// Their answers were lost, or refused by this side.
    AnswersGone,
}

/// Counted in transmissions, since a message has many packets and one ACK. Of as many the one that
/// got farthest: what was answered had arrived.
fn most(f: &Facts) -> Option<Most> {
    let cause = f.standing.and_then(|s| s.last_cause).filter(|_| f.died_of_nak());
    // What came behind the death of a NAK is no answer that an expiry was too early for.
    let late = cause.map_or(f.late_answers.rounds_refused(), |_| 0);
    // The peer names a request that it misses, whatever became of its answers.
    let gone = f.answers.rounds_lost() + f.answers.rounds_refused();
    let gone = if cause == Some(RecoverCause::SequenceNak) { 0 } else { gone };
    let all = [
        (late, Most::Late),
        (f.requests.rounds_lost(), Most::RequestsLost),
        (f.requests.rounds_refused(), Most::RequestsRefused),
        (gone, Most::AnswersGone),
    ];
    all.into_iter().filter(|(n, _)| *n > 0).max_by_key(|(n, _)| *n).map(|(_, most)| most)
}

/// Nobody answered in time. The questions, in this order, about what was before the death:
///
/// 1. Did NAKs for one gap, faster than it could be closed, use up the retries?
/// 2. Did most transmissions not arrive, or was the peer not one to take them?
/// 3. Do both sides mean the same PSNs?
/// 4. Did the answers to most not arrive, or come too late?
/// 5. Was anybody there? Did a NAK use the last retry? Is something still on its way?
pub(super) fn judge_silence(f: &Facts) -> Verdict {
    let most = most(f);
    let under_way = f.requests_under_way > 0 || !f.late_requests.is_empty();
    if let Some(v) = naks_repeated(f) {
        return v;
    }
    match (most, f.requests.most_lost(), f.requests.most_refused()) {
        (Some(Most::RequestsLost), Some(l), _) => {
            return timer_short(f, l).unwrap_or_else(|| requests_lost(f, l));
        }
        (Some(Most::RequestsRefused), _, Some((host, d))) => return judge_refused(f, *host, d),
        _ => {}
    }
    if let Some(v) = f.peer_then().and_then(|q| psn_mismatch(f, q)) {
        return v;
    }
    match most {
        Some(Most::AnswersGone) => answers_gone(f),
        Some(Most::Late) => slow(f),
        _ if f.host_dead() => host_dead(f),
        _ if f.died_of_nak() => out_of_order(f),
        _ if heard(f) || under_way => slow(f),
        _ => {
            let text = "no answer came, and no packet was seen to be lost or dropped";
            let text = format!("{text}{}", open_faults(f, |_| true));
            verdict(Cause::Unexplained, "", text)
        }
    }
}

/// Whether the peer took a packet of those that are awaited, be it after the death.
fn heard(f: &Facts) -> bool {
    let last = f.peer.qp.as_ref().and_then(|q| q.last_request);
    let answered = [&f.answers, &f.late_answers].iter().any(|fates| !fates.is_empty());
    answered || f.executed() || last.is_some_and(|t| t >= f.since())
}

/// The planned faults that were open while it failed, as the end of a sentence.
pub(super) fn open_faults(f: &Facts, which: impl Fn(&HostTrouble) -> bool) -> String {
    let these: Vec<HostTrouble> = f.troubles.iter().filter(|t| which(t)).cloned().collect();
    trouble_words(&these)
}

/// The planned faults, as the end of a sentence.
pub(in crate::run) fn trouble_words(all: &[HostTrouble]) -> String {
    let mut text = String::new();
    for t in all {
        let place = t.host.map_or("of packets".to_owned(), |h| format!("of host {h}"));
        let to = t.to.map_or("without end".to_owned(), |to| format!("to {}", at(to)));
        let from = if t.from == Time::ZERO { "the start".to_owned() } else { at(t.from) };
        let (id, kind) = (&t.id, t.kind.word());
        text += &format!("; fault `{id}` ({kind} {place}) was open from {from} {to}");
    }
    text
}

/// How many packets of each direction were lost, and when.
pub(super) fn lost_both(f: &Facts) -> String {
    lost_words(&[&f.requests], &[&f.answers])
}

fn lost_words(requests: &[&Fates], answers: &[&Fates]) -> String {
    let all = || requests.iter().chain(answers).flat_map(|fates| &fates.lost);
    let packets = |of: &[&Fates]| of.iter().map(|fates| fates.packets_lost()).sum();
    let count = match (packets(requests), packets(answers)) {
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
            (Some(end), _) => v.needs(Need::Transmission(gap(end, f.row()))),
            (None, Some(chance)) if chance.num < chance.den => v.needs(Need::Chance(chance)),
            _ if matches!(cause, DropCause::LinkDown | DropCause::SwitchReboot) => {
                v.needs(Need::Never)
            }
            _ => v,
        },
        _ => v,
    }
}

/// Why two P_Keys of one partition do not match.
fn limited(sent: PKey, expected: PKey) -> Option<String> {
    (sent.partition() == expected.partition()).then(|| {
        format!(
            "the P_Keys are of one partition (sent {sent}, expected {expected}), and both are \
             those of limited members (bit 15 is 0), which never match: one side has to be a full \
             member"
        )
    })
}

/// The P_Key of a packet that a port dropped, and the one that it should have had.
pub(super) fn pkey_words(sent: PKey, expected: PKey) -> String {
    let differ = || format!("P_Key {sent}, expected {expected}");
    limited(sent, expected).unwrap_or_else(differ)
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
            match limited(sent, expected) {
                Some(why) => format!("{port}: {why}"),
                None => {
                    format!("{port}: the P_Key does not match (sent {sent}, expected {expected})")
                }
            },
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
        Refused::Icrc => {
            verdict(Cause::Corrupted, "icrc", format!("{port}: wrong ICRC; a link damages packets"))
        }
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
            (after, Need::Transmission(gap(t, f.row())))
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
        (Why::Stopped { .. }, _) => "its NIC stopped".to_owned(),
        _ => "its program moved it there".to_owned(),
    }
}

fn requests_lost(f: &Facts, l: &Loss) -> Verdict {
    let before = f.peer.qp.as_ref().is_some_and(|q| q.requests > 0);
    let seen = match (heard(f), before) {
        (true, _) => "the peer saw only some packets",
        (false, true) => "the peer saw none of these packets",
        (false, false) => "the peer never saw a packet",
    };
    let what = match l.cause {
        DropCause::LinkDown => format!("{} was down", l.place.trim_start_matches("on ")),
        DropCause::SwitchReboot => format!("a switch rebooted, and they got lost {}", l.place),
        cause => format!("they got lost {}, {}", l.place, cause.name()),
    };
    by_loss(f, l, Cause::RequestsLost, &format!("{seen}: {what}"))
}

/// A full queue dropped the requests, and the ack timer had filled it: it expires before answers
/// can have come, and sends again what has come already.
fn timer_short(f: &Facts, l: &Loss) -> Option<Verdict> {
    let early = f.early.filter(|_| l.cause == DropCause::TailDrop)?;
    let text = format!(
        "the ack timer expires after {}, and answers came up to {} after its start: {} too early, \
         each with what was in flight sent again, until a queue was full; {}, {}",
        time(early.waits),
        time(early.needed()),
        if early.expiries == 1 { "once".to_owned() } else { format!("{} times", early.expiries) },
        lost_both(f),
        l.place
    );
    Some(verdict(Cause::TimerShort, "timeout", text).needs(Need::LongTimer(f.longest_answer)))
}

/// A loss decided: a dead host and a packet that is too long speak for themselves, else `what` is
/// said with the fault that did it.
fn by_loss(f: &Facts, l: &Loss, cause: Cause, what: &str) -> Verdict {
    match l.cause {
        DropCause::PeerDead => return host_dead(f),
        DropCause::Oversize => return oversize(f, l),
        _ => {}
    }
    let by = l.fault.as_ref().map_or(String::new(), |fault| format!(" (fault `{}`)", fault.id));
    let text = format!("{what}{by}; {}", lost_both(f));
    let field = l.fault.as_ref().map_or("", |fault| &fault.id);
    against(verdict(cause, field, text), f, l)
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

/// The peer answered, and the answers went astray.
fn answers_gone(f: &Facts) -> Verdict {
    if let Some((host, d)) = f.answers.most_refused()
        && f.answers.rounds_refused() > f.answers.rounds_lost()
    {
        return answers_refused(*host, d);
    }
    let Some(l) = f.answers.most_lost() else { return slow(f) };
    let what = format!("the peer answered, and answers got lost {}", l.place);
    by_loss(f, l, Cause::AnswersLost, &what)
}

/// The peer told of one gap again and again, faster than it could be closed, until no retry was
/// left. What was lost no more often than once for each retry would not have been enough.
fn naks_repeated(f: &Facts) -> Option<Verdict> {
    let (q, s) = (f.peer.qp.as_ref()?, f.standing?);
    let repeat = q.nak_repeat.filter(|repeat| *repeat < f.round_trip)?;
    let naks = f.died_of_nak() && s.last_cause == Some(RecoverCause::SequenceNak);
    let several = s.expired == 0 && s.retries > 0;
    if !naks || !several || f.requests.rounds_lost() > u64::from(s.retries) {
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
            wrong("pkey", format!("{port}: {}", pkey_words(sent, expected)))
        }
        Refused::Address { from, expected } => {
            let (from, expected) = (port_name(from), port_name(expected));
            wrong("gid", format!("{port}: they came from {from}, expected {expected}"))
        }
        Refused::Icrc => verdict(Cause::Corrupted, "icrc", format!("{port}: wrong ICRC")),
        why => verdict(Cause::AnswersLost, "", format!("{port}: {}", refused_word(&why))),
    }
}

/// Both sides name each other and not the same PSN.
pub(super) fn psn_mismatch(f: &Facts, q: &PeerQp) -> Option<Verdict> {
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
fn slow(f: &Facts) -> Verdict {
    let faults = open_faults(f, |t| t.kind != FaultKind::Rnr && t.kind != FaultKind::CqNotPolled);
    let slow = |text| verdict(Cause::PeerSlow, "timeout", text);
    if let Some(t) = f.late_answers.refused().map(|(_, d)| d.first).min() {
        let ((lost, n), took) = (lost_all(f), gap(t, f.row()));
        let rnr = match f.standing.map_or(0, |s| s.rnr_retries) {
            0 => String::new(),
            n => format!("; {} had come before", plural(n.into(), "RNR NAK")),
        };
        let text = format!(
            "the peer is alive but slow: an answer came {} after the last expiry, {} after the \
             first transmission{}{rnr}{lost}{faults}",
            time(gap(t, f.at())),
            time(took),
            since_nak(f),
        );
        let need = match f.gets_rnr_naks() {
            true => Need::NoExpiry(took.max(f.round_trip)),
            // What an expiry sends again waits in the same queue, and makes it longer.
            false if waits_in_queues(f, took) => Need::LongTimer(f.longest_answer.max(took)),
            false => Need::Answer { after: took, lost: n },
        };
        return slow(text).needs(need);
    }
    if let Some(later) = became_later(f) {
        // Whether they would have been answered in time nobody knows.
        return slow(format!("its packets, or their answers, were on their way: {later}{faults}"));
    }
    let packets = plural(f.requests_under_way + f.answers_under_way, "packet");
    let v = slow(format!("nothing was lost, {packets} on their way{faults}"));
    let stalls = f.troubles.iter().filter(|t| t.kind == FaultKind::NicStall);
    match stalls.filter_map(|t| t.to).max() {
        Some(end) => v.needs(Need::Answer { after: gap(end, f.row()), lost: 0 }),
        None => v,
    }
}

/// Whether an answer that took so long waited in queues for most of it: no fault made it late, and
/// links alone take less than half of the time.
fn waits_in_queues(f: &Facts, after: Span) -> bool {
    f.troubles.is_empty() && after > f.round_trip * 2
}

/// What was lost though it is not the cause, as the end of a sentence; and of how many
/// transmissions.
fn lost_all(f: &Facts) -> (String, u64) {
    let (requests, answers) = ([&f.requests, &f.late_requests], [&f.answers, &f.late_answers]);
    let n: u64 = requests.iter().chain(&answers).map(|fates| fates.rounds_lost()).sum();
    let text = match n {
        0 => String::new(),
        _ => format!("; {}", lost_words(&requests, &answers)),
    };
    (text, n + f.requests.rounds_refused() + f.answers.rounds_refused())
}

/// What became of packets after the death, and before any answer came.
fn became_later(f: &Facts) -> Option<String> {
    if let Some((host, d)) = f.late_requests.refused().min_by_key(|(_, d)| d.first) {
        let (all, then) = (plural(d.packets, "packet"), between(d.first, d.last));
        let why = refused_word(&d.why);
        return Some(format!("host {host} dropped {all} after it had died, {then}: {why}"));
    }
    let (requests, answers) = (&f.late_requests, &f.late_answers);
    let any = !requests.lost.is_empty() || !answers.lost.is_empty();
    any.then(|| format!("after it had died, {}", lost_words(&[requests], &[answers])))
}
