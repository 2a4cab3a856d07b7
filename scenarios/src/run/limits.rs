//! What is behind the limit of a run: flows that share a link between switches, and READs that
//! wait for an answer, send queues that are full, and timers, where no resource is busy.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AckTimeout, QpState, QpType, RnrTimer};
use doorbell_sim::fabric::End;
use doorbell_sim::fault::LinkEnd;
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::rc::{AckTimeoutMode, TimeoutMode};
use doorbell_sim::wire::{HostId, PortId};
use doorbell_sim::world::{SwitchPortUse, World};

use super::deaths::{plural, qp_name};
use super::early;
use super::network::routing_mode;
use super::programs::{Placed, Role};
use super::windows::{self, Window};
use super::{Metric, Note, NoteKind, Outcome, Point};
use crate::format::{Op, QpKind, RoutingMode, TopologyKind};
use crate::profile::RecoveryKind;
use crate::workloads::Results;

/// Flows named in a note; the rest is counted.
const MAX_NAMED: usize = 8;

/// Name of the note about flows that share a link.
const SHARED: &str = "shared-link";

/// Name of the note about READs that wait for answers.
const WINDOW: &str = "read-window";

/// Name of the note about send queues that are full.
const FULL: &str = "send-queue-full";

/// Name of the note about queue pairs that wait for timers.
const TIMERS: &str = "timer-waits";

/// Share of its time in percent from which a resource leaves nobody else to be the limit: what is
/// less busy stands still now and then, and something else makes it.
const SATURATED_PERCENT: u128 = 95;

/// Whether what limits is busy all the time. What is no resource has been looked at already.
fn saturated(out: &Outcome) -> bool {
    let Some(name) = &out.limiting else { return false };
    let resource = out.resources.iter().find(|r| r.name == *name);
    resource.is_none_or(|r| {
        u128::from(r.busy.as_ps()) * 100 >= u128::from(r.of.as_ps()) * SATURATED_PERCENT
    })
}

/// The name of an output port of a switch among the resources.
pub(super) fn port_name(p: &SwitchPortUse) -> String {
    let to = LinkEnd { node: p.peer, port: None };
    format!("switch{}.port{} to {to}", p.switch, p.port.0)
}

/// Says more about the limit, once it is known. `duration`: the measured time.
pub(super) fn collect(
    world: &World,
    point: &Point,
    all: &[(&Placed, &Results)],
    duration: Span,
    out: &mut Outcome,
) {
    out.oracles.extend([SHARED, WINDOW].map(str::to_owned));
    if !saturated(out) {
        window(world, point, all, duration, out);
    }
    let Some(limiting) = &out.limiting else { return };
    let report = world.report_after_set_up();
    let port = report.switch_ports.iter().find(|p| port_name(p) == *limiting);
    if let Some(p) = port.filter(|p| matches!(p.peer, End::Switch(_))) {
        shared(world, point, p, out);
    }
}

/// A queue pair's port.
fn own_port(host: usize, q: &NicQp) -> (HostId, PortId) {
    (HostId(host as u32), Nic::port_of(q.qpn))
}

/// Payload that a queue pair has sent, requests and answers: what its peer has taken. Datagrams
/// have no peer: what it has sent of them.
pub(super) fn sent(world: &World, host: u32, q: &NicQp) -> u64 {
    if q.ty == QpType::Ud {
        return q.stats.datagram_bytes;
    }
    early::peer_of(world, host, q).map_or(0, |p| p.stats.rx_payload)
}

/// Names the flows that the switches' choice has put on one link, with the largest first.
fn shared(world: &World, point: &Point, link: &SwitchPortUse, out: &mut Outcome) {
    let (mut flows, mut without_choice) = (Vec::new(), 0_u64);
    for (h, host) in world.hosts().iter().enumerate() {
        for (_, q) in host.qps() {
            let from = own_port(h, q);
            let bytes = sent(world, h as u32, q);
            if bytes == 0 {
                continue;
            }
            let connection = (q.peer, q.peer_port, q.udp_source_port);
            let (peer, peer_port, source) = q.stats.last_datagram.unwrap_or(connection);
            let turns = world.fabric().turns(from, (peer, peer_port), source);
            let Some(at) =
                turns.iter().position(|t| (t.switch, t.port) == (link.switch, link.port))
            else {
                continue;
            };
            // A choice further up leads here as well: what comes down has one way only.
            match turns[..=at].iter().any(|t| t.ways > 1) {
                true => flows.push((bytes, h as u32, q.qpn, peer.0)),
                false => without_choice += 1,
            }
        }
    }
    if flows.len() < 2 {
        return;
    }
    flows.sort_by_key(|(bytes, h, qpn, _)| (std::cmp::Reverse(*bytes), *h, *qpn));
    let name = |(bytes, h, qpn, to): &(u64, u32, _, u32)| {
        format!("{} to host {to} ({})", qp_name(*h, *qpn), Metric::bytes(*bytes).text())
    };
    let first: Vec<_> = flows.iter().take(MAX_NAMED).map(name).collect();
    let more = match flows.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let forced = match without_choice {
        0 => String::new(),
        n => format!("; {n} others have no other way"),
    };
    let text = format!(
        "{} limits, and the switches' choice among equally short ways puts {} flows on it: {}{more}\
         {forced}; {}",
        port_name(link),
        flows.len(),
        first.join(", "),
        spread(point)
    );
    let (name, count) = (SHARED.to_owned(), flows.len() as u64);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

/// What spreads flows over equally short ways.
fn spread(point: &Point) -> String {
    let by_hash = routing_mode(&point.scenario.topology, &point.profile) == RoutingMode::Ecmp;
    // Ways chosen for each packet let some overtake others. Go-Back-N sends windows again for it,
    // and what has no recovery loses messages.
    let unreliable = point.scenario.qp.kind != QpKind::Rc;
    let routes = point.scenario.topology.kind == TopologyKind::Explicit;
    let adaptive = match point.profile.rc.recovery {
        _ if unreliable => None,
        RecoveryKind::SelectiveRepeat => Some("`topology.routing = \"adaptive\"`"),
        RecoveryKind::GoBackN => Some(
            "`topology.routing = \"adaptive\"` together with `rc.recovery = \
             \"selective-repeat\"` under [settings]",
        ),
    };
    match (by_hash, adaptive) {
        (true, Some(adaptive)) => {
            format!("more queue pairs for each pair of hosts spread them, or {adaptive}")
        }
        (true, None) => "more queue pairs for each pair of hosts spread them".to_owned(),
        // A table knows hosts, and no queue pairs; only explicit networks take routes of their own.
        (false, Some(adaptive)) if routes => {
            format!("{adaptive} spreads them, or a `[[topology.route]]`")
        }
        (false, Some(adaptive)) => format!("{adaptive} spreads them"),
        (false, None) if routes => {
            "a `[[topology.route]]` for some of the hosts spreads them".to_owned()
        }
        (false, None) => "a table has one way to each host: let other hosts send, or more of them \
                          receive"
            .to_owned(),
    }
}

/// READs and atomics that waited most of the time for an answer to an earlier one, while nothing
/// was busy all the time: names the queue pair that began most of them as what limits.
fn window(
    world: &World,
    point: &Point,
    all: &[(&Placed, &Results)],
    duration: Span,
    out: &mut Outcome,
) {
    let mut waiting: Vec<(u64, u32, &NicQp)> = Vec::new();
    let (mut began, mut waits, mut slots) = (0, 0, 0);
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, q) in host.qps() {
            let s = &q.stats;
            // The last ones have nothing behind them.
            if s.rd_atomics > 1 && s.rd_atomic_waits * 2 > s.rd_atomics {
                waiting.push((s.rd_atomics, h, q));
                began += s.rd_atomics;
                waits += s.rd_atomic_waits;
                slots += u64::from(q.attr.max_rd_atomic);
            }
        }
    }
    let Some(&(_, h, q)) =
        waiting.iter().max_by_key(|(n, h, q)| (*n, std::cmp::Reverse((*h, q.qpn))))
    else {
        return;
    };
    let program = |p: &Placed| &point.scenario.program[p.program];
    let asks = |p: &Placed| matches!(program(p).op, Op::Read) || program(p).op.is_atomic();
    let here = |p: &Placed| asks(p) && waiting.iter().any(|(_, h, _)| *h == p.host);
    let answer = windows::least_answer(all, here);
    let window = Window { messages: began, slots, answer, mates: Span::ZERO, took: duration };
    if !window.is_tighter(duration, out) {
        return;
    }
    let depth = u64::from(q.attr.max_rd_atomic);
    // Little's law: so many were unanswered all the time, and so many were answered in it.
    let each = Span::from_ps(duration.as_ps() / began * slots);
    let max = point.profile.nic.max_rd_atomic;
    let more = match depth < max {
        true => format!(
            "raise `qp.max_rd_atomic` and `qp.max_dest_rd_atomic` (the device has {max}), or use \
             more queue pairs"
        ),
        false => "the device has no more: use more queue pairs, or larger READs".to_owned(),
    };
    let text = format!(
        "{waits} of {began} READs and atomics were ready and waited for an answer to an earlier \
         one: a queue pair may have {depth} without an answer, and an answer takes {}, so no more \
         come in that time, whatever the link could carry; {more}",
        Metric::time(each).text(),
    );
    out.limiting = Some(format!("host{h}.max_rd_atomic of QP {}", q.qpn.value()));
    out.notes.push(Note { kind: NoteKind::Info, name: WINDOW.to_owned(), text, count: waits });
}

/// A queue pair that lives and stood still for half of the run or more, while nothing was busy,
/// because timers of recovery ran: the worst one, and how many there are. `first`: when the first
/// message was handed over. After the queue pairs that died or stalled are known: what those waited
/// for is told with them.
pub(super) fn timers(world: &World, first: Time, out: &mut Outcome) {
    out.oracles.push(TIMERS.to_owned());
    if out.limiting.is_some() {
        return;
    }
    let run = world.now().since(first);
    let lost = |h: u32, q: &NicQp| {
        let mut rows = out.qps.iter().filter(|r| (r.host, r.qpn) == (h, q.qpn.value()));
        q.state == QpState::Err || rows.any(|r| r.death.is_some())
    };
    let mut worst: Option<(Span, u32, &NicQp)> = None;
    let mut count = 0;
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, q) in host.qps() {
            let stood = q.stats.ack_timer_waited + q.stats.rnr_waited;
            if stood > Span::ZERO && stood * 2 >= run && !lost(h, q) {
                count += 1;
                if worst.is_none_or(|(most, ..)| stood > most) {
                    worst = Some((stood, h, q));
                }
            }
        }
    }
    let Some((time, h, q)) = worst else { return };
    let s = &q.stats;
    let parts = [
        (s.ack_timer_waits, s.ack_timer_waited, ["expiry", "expiries"], "of the ack timer"),
        (s.rnr_waits, s.rnr_waited, ["wait", "waits"], "for RNR NAKs"),
    ];
    let part = |(n, took, words, what): &(u64, Span, [&str; 2], &str)| {
        let word = words[usize::from(*n != 1)];
        format!("{n} {word} {what} took {}", Metric::time(*took).text())
    };
    let parts: Vec<_> = parts.iter().filter(|(n, ..)| *n > 0).map(part).collect();
    // The longer of both waits first: its cure is worth more.
    let mut cures = Vec::new();
    if s.ack_timer_waits > 0 {
        cures.push((s.ack_timer_waited, ack_cure(world, h, q)));
    }
    if s.rnr_waits > 0 {
        cures.push((s.rnr_waited, rnr_cure(world, h, q)));
    }
    cures.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    let cures: Vec<String> = cures.into_iter().map(|(_, cure)| cure).collect();
    let text = format!(
        "{} stood still for at least {} of {} while timers ran: {}. {}",
        qp_name(h, q.qpn),
        Metric::time(time).text(),
        Metric::time(run).text(),
        parts.join(", "),
        cures.join(". ")
    );
    out.notes.push(Note { kind: NoteKind::Info, name: TIMERS.to_owned(), text, count });
}

/// What helps against waits for the ack timer.
fn ack_cure(world: &World, host: u32, q: &NicQp) -> String {
    let answers = early::longest_answer(world);
    let mode = early::mode_of(world, host, q);
    if early::early(world, host, q).is_some() {
        return format!(
            "The ack timer expires before answers that come up to {} after its start: {}",
            Metric::time(answers).text(),
            early::advice(mode, answers)
        );
    }
    let (code, s) = (q.attr.timeout, &q.stats);
    let tries = tries(q);
    let lower = match lower_code(mode, q, answers) {
        _ if matches!(mode, TimeoutMode::Adaptive { .. }) => {
            "this device ignores `qp.timeout`".to_owned()
        }
        Some(least) if least.code() < code.code() => format!(
            "lower `qp.timeout` ({code}): answers took up to {}, and {least} is the least that is \
             longer and whose {tries} tries outlast what it stood still for",
            Metric::time(answers).text()
        ),
        _ => format!(
            "`qp.timeout` ({code}) is not to be lowered by what was seen: {tries} tries of a \
             shorter one may be over before an answer comes"
        ),
    };
    match s.ack_timer_waits_again * 2 > s.ack_timer_waits {
        // Nothing in flight behind it would tell: the peer has told of that gap already.
        true => format!(
            "The ack timer waited mostly for what had been sent again and was lost once more, of \
             which no later packet tells: {lower}"
        ),
        false => {
            let takes = early::peer_of(world, host, q).is_some_and(|p| p.rq.posted() > 0);
            let receives = match takes {
                true => ", which takes as many receives at the peer (`qp.rq_depth`)",
                false => "",
            };
            format!(
                "The ack timer waits for what no later packet shows to be lost, the last of what \
                 is in flight: {lower}, or keep more in flight{receives}"
            )
        }
    }
}

/// Transmissions of a packet, the first included, after which no answer is death.
fn tries(q: &NicQp) -> u64 {
    u64::from(q.attr.retry_cnt.code()) + 1
}

/// The lowest code with which the queue pair would have lived as well: its timer is longer than any
/// answer that was seen, and all of its tries outlast what kept the queue pair waiting. That is
/// known to be no longer than the longest row of expiries without progress: with progress the
/// tries are all there again. `None`: no answer was seen, or no code is.
fn lower_code(mode: &TimeoutMode, q: &NicQp, answers: Span) -> Option<AckTimeout> {
    let above = early::code_above(mode, answers).filter(|_| answers > Span::ZERO)?;
    let waited = q.stats.longest_ack_row;
    let lasts = |t: &AckTimeout| mode.interval(*t, 0).map(|i| i.least * tries(q));
    let outlasts = |t: &AckTimeout| lasts(t).is_some_and(|span| span > waited);
    (above.code()..=AckTimeout::MAX_CODE).filter_map(AckTimeout::new).find(outlasts)
}

/// What helps against waits for RNR NAKs: receives, and a shorter timer where there is one. The
/// code is the receiver's; code 0 is the longest of all.
fn rnr_cure(world: &World, host: u32, q: &NicQp) -> String {
    let receives = "RNR NAKs say that no receive was posted: post receives sooner, or more of them";
    let Some(p) = early::peer_of(world, host, q) else { return receives.to_owned() };
    let (code, mode) = (p.attr.min_rnr_timer, early::mode_of(world, host, q));
    let wait = |t: RnrTimer| mode.rnr_wait(t);
    let shortest = RnrTimer::all().min_by_key(|t| (wait(*t), t.duration()));
    let shortest = shortest.expect("there are codes");
    let least = Metric::time(wait(shortest)).text();
    match code {
        _ if code == shortest => format!("{receives}; `qp.min_rnr_timer` {code} is the shortest"),
        // Of a device that counts in ticks.
        _ if wait(code) == wait(shortest) => format!(
            "{receives}; `qp.min_rnr_timer` {code} makes this device wait for {least}, and no code \
             for less"
        ),
        _ if code.code() == 0 => format!(
            "{receives}. Each costs the time of the receiver's `qp.min_rnr_timer`, and code 0 is \
             the longest, {}: raise it; {shortest} is the shortest",
            Metric::time(wait(code)).text()
        ),
        _ => format!(
            "{receives}. Each costs the time of the receiver's `qp.min_rnr_timer`, {code}: lower \
             it; {shortest} is the shortest, and 0 is no lower but the longest"
        ),
    }
}

/// A program that had messages to send and no room in its send queues for most of the time in which
/// nothing was busy: that queue is what limits, where it alone explains the time of the run.
pub(super) fn send_queue(
    point: &Point,
    all: &[(&Placed, &Results)],
    duration: Span,
    out: &mut Outcome,
) {
    out.oracles.push(FULL.to_owned());
    // Behind a queue pair that stands still, or is dead, any queue is full.
    let stands = out.notes.iter().any(|n| n.name == TIMERS);
    if saturated(out) || stands || out.qps.iter().any(|q| q.death.is_some()) {
        return;
    }
    let depth = point.scenario.qp.sq_depth.value();
    let program = |p: &Placed| &point.scenario.program[p.program];
    let busy = windows::busiest(duration, out).unwrap_or(Span::ZERO);
    let idle = duration.saturating_sub(busy);
    // A window that is less than the queue is what the program asks for.
    let bound = |p: &Placed| program(p).window.as_ref().is_none_or(|w| w.value() >= depth);
    let full = |(p, r): &&(&Placed, &Results)| {
        p.role == Role::Sender && bound(p) && r.no_room * 2 >= idle && r.no_room > Span::ZERO
    };
    let tight = |(p, r): &&(&Placed, &Results)| {
        let each = program(p);
        // A slot comes back with the others of its completion, or is filled with them.
        let mates = each.signal_every.value().max(each.batch.value()).min(depth) - 1;
        let mates = Span::from_ps(busy.as_ps() / depth * mates);
        let answer = windows::least_answer(all, |other| other.rank == p.rank);
        let slots = each.qps.value() * depth;
        let took = r.first.zip(r.last).map_or(duration, |(first, last)| last.since(first));
        Window { messages: r.messages, slots, answer, mates, took }.is_tighter(duration, out)
    };
    let found = all.iter().filter(full).filter(tight);
    let Some((p, r)) = found.clone().max_by_key(|(p, r)| (r.no_room, std::cmp::Reverse(p.rank)))
    else {
        return;
    };
    let qps = program(p).qps.value();
    let text = format!(
        "program {} had messages to send and no room in its send queues for {} of {}: a queue that \
         is full waits for completions, so {} of {depth} (`qp.sq_depth`) sends {} each time round \
         and no more, whatever the link carries; raise `qp.sq_depth`, or use more queue pairs \
         (`qps`)",
        p.program,
        Metric::time(r.no_room).text(),
        Metric::time(duration).text(),
        plural(qps, "queue pair"),
        qps * depth,
    );
    let (name, count) = (FULL.to_owned(), found.count() as u64);
    // The link was taken for the limit, and flows that share it are no matter where it has room.
    out.notes.retain(|n| n.name != SHARED);
    out.limiting = Some(format!("host{}.sq_depth of program {}", p.host, p.program));
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::simulate_tests::{number, outcome};

    fn note<'a>(o: &'a Outcome, name: &str) -> &'a str {
        let note = o.notes.iter().find(|n| n.name == name);
        &note.unwrap_or_else(|| panic!("no {name}: {:?}", o.notes)).text
    }

    fn reads(depth: u32, window: u32) -> Outcome {
        let text = format!(
            "[qp]\nmax_rd_atomic = {depth}\nmax_dest_rd_atomic = {depth}\n[[program]]\n\
             kind = 'bandwidth'\nop = 'read'\nsize = '4KiB'\niterations = 200\nwindow = {window}\n"
        );
        outcome(&text, &[])
    }

    #[test]
    fn a_window_of_reads_is_what_limits_when_reads_wait_for_it() {
        let o = reads(1, 16);
        assert_eq!(o.limiting.as_deref(), Some("host0.max_rd_atomic of QP 16"));
        assert!(number(&o, "note.read-window") > 190.0);
        assert!(note(&o, "read-window").contains("raise `qp.max_rd_atomic`"));
        // The program itself asks for one at a time.
        let o = reads(1, 1);
        assert_eq!((o.limiting.as_deref(), number(&o, "note.read-window")), (None, 0.0));
        // Enough for the link.
        let o = reads(16, 32);
        assert_eq!(number(&o, "note.read-window"), 0.0, "{:?}", o.limiting);
        assert!(!o.limiting.as_deref().unwrap_or("").contains("max_rd_atomic"));
    }

    /// A receive at a time keeps one message in flight, and of that one no later packet shows a
    /// loss: the ack timer does. With more of them the next message does.
    #[test]
    fn time_that_passes_in_timers_is_named() {
        let lossy = |depth: u32, chance: &str| {
            let program = |host: u32| {
                format!(
                    "[[program]]\nname = 'p{host}'\nkind = 'message-rate'\nop = 'send'\n\
                     size = '64B'\niterations = 300\nhost = {host}\npeer = {}\n",
                    1 - host
                )
            };
            let fault =
                format!("[[fault]]\nid = 'f'\nkind = 'drop'\nchance = '{chance}'\nmaybe = true\n");
            let text = format!("[qp]\nrq_depth = {depth}\n{}{}{fault}", program(0), program(1));
            outcome(&text, &[])
        };
        let o = lossy(1, "1/50");
        assert!(number(&o, "note.timer-waits") >= 1.0, "{:?}", o.notes);
        let text = note(&o, "timer-waits");
        assert!(
            text.contains("waits for RNR NAKs took") && text.contains("`qp.rq_depth`"),
            "{text}"
        );
        assert_eq!(number(&lossy(512, "1/1000000000"), "note.timer-waits"), 0.0);
    }

    /// The two times of the note, in picoseconds: how long it stood still, and of what.
    fn stood(text: &str) -> (u64, u64) {
        let (_, rest) = text.split_once("at least ").expect(text);
        let (stood, rest) = rest.split_once(" of ").expect(text);
        let (run, _) = rest.split_once(" while").expect(text);
        let ps = |t: &str| {
            let (number, unit) = t.split_once(' ').expect(t);
            let unit = match unit {
                "ps" => 1.0,
                "ns" => 1e3,
                "us" => 1e6,
                "ms" => 1e9,
                _ => 1e12,
            };
            (number.parse::<f64>().expect(t) * unit) as u64
        };
        (ps(stood), ps(run))
    }

    #[test]
    fn a_wait_is_never_longer_than_the_run_and_the_dead_wait_for_nothing() {
        let script = |qp: &str, steps: &str, more: &str| {
            let text = format!(
                "[qp]\nmin_rnr_timer = 12\ntimeout = 6\n{qp}[[program]]\nkind = 'script'\n\
                 receives = 'none'\nsteps = [{steps}]\n{more}"
            );
            outcome(&text, &["run.limit=30ms"])
        };
        let send = "'post send 64B', 'ring', 'wait'";
        let dead = script("rnr_retry = 3\n", send, "");
        assert_eq!((number(&dead, "qps_in_error"), number(&dead, "note.timer-waits")), (1.0, 0.0));
        // The receive comes after 2 ms, in the fourth wait of 0.64 ms, and lost answers cost more.
        let rnr = "[[fault]]\nid = 'f'\nkind = 'rnr'\nhost = 1\nbefore = '2ms'\n";
        let sends = "'recv 64B x4', 'post send 64B x4', 'ring', 'wait'";
        let lost = "[[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'ack'\nbudget = 3\n";
        for more in [rnr, lost] {
            let o = script("", sends, more);
            assert_eq!(number(&o, "note.timer-waits"), 1.0, "{:?}", o.notes);
            let text = note(&o, "timer-waits");
            let (stood, run) = stood(text);
            assert!(stood <= run && stood * 2 >= run, "{text}");
        }
        // A wait that had not passed when the run ended.
        let cut = "'post send 64B', 'ring', 'compute 100us'";
        let o = script("rnr_retry = 7\n", cut, "");
        assert_eq!(number(&o, "note.timer-waits"), 0.0, "{:?}", o.notes);
    }

    /// Two leaves, two spines; a flow from each of two hosts of a leaf to the other leaf.
    fn fabric(routing: &str, seed: u64) -> Outcome {
        let pair = |host: u32| {
            format!(
                "[[program]]\nname = 'p{host}'\nkind = 'bandwidth'\nsize = '64KiB'\n\
                 iterations = 200\nhost = {host}\npeer = {}\n",
                host + 2
            )
        };
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
             hosts_per_leaf = 2\nspines = 2\nrate = '100Gbps'\nrouting = '{routing}'\n{}{}",
            pair(0),
            pair(1)
        );
        outcome(&text, &[&format!("seed={seed}")])
    }

    #[test]
    fn flows_that_share_a_link_by_the_switches_choice_are_named() {
        // With one queue pair each, both fall on one spine for some seeds and not for all.
        let mut seen = [0; 2];
        for seed in 1..=8 {
            let o = fabric("ecmp", seed);
            let rate = number(&o, "throughput") / 1e9;
            let shared = number(&o, "note.shared-link");
            assert_eq!(shared, if rate < 110.0 { 2.0 } else { 0.0 }, "seed {seed}: {rate} Gb/s");
            seen[usize::from(shared > 0.0)] += 1;
            if shared > 0.0 {
                let (text, limit) = (note(&o, "shared-link"), o.limiting.as_deref().unwrap());
                assert!(text.starts_with(&format!("{limit} limits, ")), "{text}");
                assert!(text.contains("host 0 QP 16 to host 2") && text.contains("host 1 QP 16"));
                assert_eq!(number(&fabric("adaptive", seed), "note.shared-link"), 0.0);
            }
        }
        assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
    }
}
