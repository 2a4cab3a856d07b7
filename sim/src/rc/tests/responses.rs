//! Lost responses: what passes by tells of the loss, and one loss costs one round trip and what was
//! in flight behind it. The responder sends one response per tick, so requests that come again find
//! it in the middle of its work.

use std::collections::{BTreeSet, VecDeque};

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{NakCode, Opcode, Psn, QpType, Syndrome, WcStatus, WrOpcode};
use proptest::prelude::*;

use super::super::*;
use super::{NOW, job, requester_config, respond_all, responder_config};

/// Payload of a packet, bytes.
const MTU: u32 = 256;
/// One way, in ticks.
const WAY: u64 = 20;
const TICK: Span = Span::from_ns(50);
/// Ticks of a run; the longest seen is below a tenth.
const LIMIT: u64 = 200_000;

type Wire = VecDeque<(u64, PacketDesc)>;

/// Two halves, a FIFO each way, and a list of responses that are lost when they are first sent.
struct Run {
    requester: Requester,
    responder: Responder,
    forth: Wire,
    back: Wire,
    /// Requests that the responder keeps beyond a gap.
    kept: Vec<PacketDesc>,
    lost: BTreeSet<u32>,
    /// The same for requests.
    lost_requests: BTreeSet<u32>,
    /// Responses that left, acknowledgements excepted, and those of them that were lost.
    sent: u64,
    losses: u64,
    /// Ticks in which something was under way.
    ticks: u64,
    /// What passed by an unanswered request since something has moved.
    passed: bool,
    /// A sequence NAK has named the oldest PSN since something has moved or was lost.
    named: bool,
    done: Vec<SendDone>,
}

/// A mix of operations and how they go.
#[derive(Clone, Debug)]
struct Plan {
    ops: Vec<(WrOpcode, u32)>,
    depth: u8,
    first: u32,
    recovery: Recovery,
    ack: AckPolicy,
    /// Places in the PSNs of the run, in 1/1000.
    lost: Vec<u32>,
    lost_requests: Vec<u32>,
}

impl Plan {
    fn psns(&self) -> u32 {
        self.ops.iter().map(|(_, len)| len.div_ceil(MTU).max(1)).sum()
    }

    fn run(&self, lossy: bool) -> Run {
        let (sq_psn, rq_psn) = (Psn::new(self.first), Psn::new(self.first));
        let mut run = Run {
            requester: Requester::new(&RequesterConfig {
                sq_psn,
                payload: MTU,
                max_rd_atomic: self.depth,
                max_outstanding_packets: WINDOW,
                recovery: self.recovery.clone(),
                ..requester_config(QpType::Rc)
            }),
            responder: Responder::new(&ResponderConfig {
                rq_psn,
                payload: MTU,
                max_dest_rd_atomic: self.depth,
                hold: self.recovery.hold(),
                ack: self.ack,
                ..responder_config(QpType::Rc)
            }),
            forth: Wire::new(),
            back: Wire::new(),
            kept: Vec::new(),
            lost: BTreeSet::new(),
            lost_requests: BTreeSet::new(),
            sent: 0,
            losses: 0,
            ticks: 0,
            passed: false,
            named: false,
            done: Vec::new(),
        };
        if lossy {
            let at = |per_mille: &u32| sq_psn.add(self.psns() * per_mille / 1000).value();
            run.lost = self.lost.iter().map(at).collect();
            run.lost_requests = self.lost_requests.iter().map(at).collect();
        }
        for (i, (op, len)) in self.ops.iter().enumerate() {
            run.requester.push(job(i as u32, *op, *len));
        }
        run.until_done();
        let good = |done: &SendDone| done.status == WcStatus::Success;
        assert!(run.done.len() == self.ops.len() && run.done.iter().all(good), "{:?}", run.done);
        assert!(run.done.is_sorted_by_key(|done| done.wqe));
        run
    }
}

impl Run {
    fn until_done(&mut self) {
        let mut now = Time::ZERO;
        for tick in 0..LIMIT {
            now += TICK;
            self.tick(tick, now);
            if self.requester.idle() {
                return;
            }
            self.ticks += 1;
            let owes = self.responder.peek_transmit(now);
            let quiet = self.forth.is_empty() && self.back.is_empty() && !owes;
            if quiet && let Some(due) = self.requester.next_deadline() {
                now = now.max(due);
                let told = self.requester.on_timer(now);
                assert!(matches!(told, Received::Recover { cause: RecoverCause::Timeout, .. }));
                let told = self.passed || self.named;
                assert!(!told, "a response had told of the loss: {:?}", self.requester);
            }
        }
        panic!("still under way after {LIMIT} ticks: {:?}", self.requester);
    }

    fn request(&mut self, now: Time, desc: PacketDesc) {
        match self.responder.on_packet(now, &desc, true) {
            Accept::Atomic { job, .. } => {
                self.responder.atomic_result(job, u64::from(desc.psn.value()));
            }
            Accept::Hold => self.kept.push(desc),
            _ => {}
        }
    }

    fn tick(&mut self, tick: u64, now: Time) {
        while let Some(desc) = arrived(&mut self.forth, tick) {
            self.request(now, desc);
            while let Some(psn) = self.responder.take_held() {
                let i = self.kept.iter().position(|desc| desc.psn == psn).expect("it was kept");
                let desc = self.kept.swap_remove(i);
                self.request(now, desc);
            }
        }
        while let Some(desc) = arrived(&mut self.back, tick) {
            let (una, out) = (self.requester.unacked_psn(), self.requester.outstanding());
            let ahead = desc.psn.diff(una);
            self.passed |= 0 < ahead && (ahead as u32) < out;
            let nak = Syndrome::Nak { code: NakCode::PsnSequenceError };
            self.named |= match desc.ext {
                Ext::Sack { .. } => true,
                Ext::Aeth { syndrome, .. } => syndrome == nak,
                _ => false,
            };
            self.requester.on_packet(now, &desc);
            self.passed &= self.requester.unacked_psn() == una;
            self.named &= self.requester.unacked_psn() == una;
        }
        loop {
            let new = self.requester.next_psn();
            let Some(desc) = self.requester.poll_transmit() else { break };
            self.requester.on_departure(&desc, now);
            if desc.psn == new && self.lost_requests.remove(&desc.psn.value()) {
                (self.losses, self.named) = (self.losses + 1, false);
            } else {
                self.forth.push_back((tick + WAY, desc));
            }
        }
        if let Some(desc) = self.responder.poll_transmit(now) {
            let answer = desc.opcode != Opcode::RcAcknowledge;
            self.sent += u64::from(answer);
            if answer && self.lost.remove(&desc.psn.value()) {
                (self.losses, self.named) = (self.losses + 1, false);
            } else {
                self.back.push_back((tick + WAY, desc));
            }
        }
        self.done.extend(std::iter::from_fn(|| self.requester.poll_completion()));
    }
}

fn arrived(wire: &mut Wire, tick: u64) -> Option<PacketDesc> {
    wire.pop_front_if(|(at, _)| *at <= tick).map(|(_, desc)| desc)
}

fn operation() -> impl Strategy<Value = (WrOpcode, u32)> {
    prop_oneof![
        3 => (1u32..17).prop_map(|n| (WrOpcode::RdmaRead, n * MTU - 1)),
        2 => Just((WrOpcode::AtomicFetchAndAdd, 8)),
        2 => (1u32..4).prop_map(|n| (WrOpcode::RdmaWrite, n * MTU)),
        1 => Just((WrOpcode::Send, 8)),
    ]
}

/// PSNs that may be in flight when a READ is sent, and that may be in flight.
const WINDOW: u32 = 256;
const FLIGHT: u64 = WINDOW as u64 + 16;

prop_compose! {
    fn plan()(
        ops in prop::collection::vec(operation(), 1..60),
        depth in prop::sample::select(vec![1u8, 2, 3, 16]),
        first in prop_oneof![Just(0u32), Just(0xFF_FFF0), 0u32..0x100_0000],
        cap in prop::option::of(prop::sample::select(vec![4u32, 64, 1024])),
        each: bool,
        lost in prop::collection::vec(0u32..1000, 0..6),
    ) -> Plan {
        let recovery = cap.map_or(Recovery::GoBackN, |cap| {
            Recovery::SelectiveRepeat(SelectiveRepeat { hold: 1024, cap })
        });
        let ack = if each { AckPolicy::EachRequest } else { AckPolicy::IMMEDIATE };
        Plan { ops, depth, first, recovery, ack, lost, lost_requests: Vec::new() }
    }
}

/// A round trip and what was in flight, for each loss.
fn in_time(good: &Run, run: &Run) {
    let most = good.ticks + run.losses * (2 * WAY + FLIGHT);
    let losses = run.losses;
    assert!(run.ticks <= most, "{} ticks, {} without {losses} losses", run.ticks, good.ticks);
}

/// Each loss is one round, by the timer only where nothing passed by; a round costs a round trip
/// and what was in flight once more.
fn check(plan: &Plan) -> (Run, Run) {
    let (good, run) = (plan.run(false), plan.run(true));
    let c = run.requester.counters();
    let rounds = c.implied_nak_seq_err + c.local_ack_timeout_err;
    assert!(rounds <= run.losses, "{} losses, {c:?}", run.losses);
    assert_eq!((run.losses > 0, c.packet_seq_err), (rounds > 0, 0));
    in_time(&good, &run);
    assert!(run.sent <= good.sent + rounds * FLIGHT, "{} and {}", run.sent, good.sent);
    (good, run)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_lost_response_costs_a_round_trip(plan in plan()) {
        check(&plan);
    }

    /// As [`Run::until_done`] holds, the timer has to help only where nothing tells of a loss.
    #[test]
    fn requests_may_be_lost_as_well(
        plan in plan(),
        lost_requests in prop::collection::vec(0u32..1000, 1..4),
    ) {
        let plan = Plan { lost_requests, ..plan };
        in_time(&plan.run(false), &plan.run(true));
    }
}

fn selective() -> Recovery {
    Recovery::SelectiveRepeat(SelectiveRepeat { hold: 1024, cap: 1024 })
}

fn both() -> [Recovery; 2] {
    [Recovery::GoBackN, selective()]
}

/// `count` READs of 16 packets, or ATOMICs, of which the responses at `lost` per mille are lost.
fn many(op: WrOpcode, count: usize, recovery: &Recovery, lost: &[u32]) -> Plan {
    let len = if op == WrOpcode::RdmaRead { 16 * MTU } else { 8 };
    Plan {
        ops: vec![(op, len); count],
        depth: 16,
        first: 0xFF_FF00,
        recovery: recovery.clone(),
        ack: AckPolicy::IMMEDIATE,
        lost: lost.to_vec(),
        lost_requests: Vec::new(),
    }
}

/// Closed form: the response comes a round trip after the one behind it, which told of its loss.
/// What was sent meanwhile, a round trip's worth and no more, is sent again.
#[test]
fn sixteen_reads_in_flight_lose_one_response() {
    for recovery in both() {
        let (good, run) = check(&many(WrOpcode::RdmaRead, 100, &recovery, &[300]));
        let c = run.requester.counters();
        assert_eq!((run.losses, c.implied_nak_seq_err, c.local_ack_timeout_err), (1, 1, 0));
        assert_eq!(c.retransmitted_packets, 16);
        let (late, again) = (run.ticks - good.ticks, run.sent - good.sent);
        assert!((2 * WAY..=2 * WAY + 2).contains(&late), "{late} ticks more");
        assert!((2 * WAY..=2 * WAY + 2).contains(&again), "{again} responses more");
    }
}

#[test]
fn sixteen_atomics_in_flight_lose_one_response() {
    for recovery in both() {
        let (good, run) = check(&many(WrOpcode::AtomicFetchAndAdd, 200, &recovery, &[300]));
        let c = run.requester.counters();
        assert_eq!((run.losses, c.implied_nak_seq_err, c.local_ack_timeout_err), (1, 1, 0));
        assert_eq!(c.retransmitted_packets, 16);
        assert_eq!(run.sent - good.sent, 16, "each once more");
    }
}

#[test]
fn several_losses_in_what_is_in_flight_are_one_round() {
    for recovery in both() {
        let (_, run) = check(&many(WrOpcode::RdmaRead, 100, &recovery, &[300, 302, 305, 310]));
        assert_eq!(run.losses, 4);
        assert_eq!(run.requester.counters().implied_nak_seq_err, 1);
    }
}

/// The READ between two WRITEs: the ACK of the second one has come, and must not be forgotten.
#[test]
fn what_passed_by_a_read_is_not_sent_again_by_selective_repeat() {
    let ops = vec![(WrOpcode::RdmaWrite, 8), (WrOpcode::RdmaRead, 8), (WrOpcode::RdmaWrite, 8)];
    for (recovery, resent) in both().into_iter().zip([2, 1]) {
        let plan = Plan { ops: ops.clone(), ..many(WrOpcode::RdmaRead, 0, &recovery, &[334]) };
        let (_, run) = check(&plan);
        let c = run.requester.counters();
        assert_eq!((c.implied_nak_seq_err, c.local_ack_timeout_err), (1, 0));
        assert_eq!(c.retransmitted_packets, resent);
    }
}

/// READs are asked for at once; what lies before or behind them and was lost goes all the same.
#[test]
fn a_read_that_goes_again_leaves_no_hole() {
    let (write, read) = ((WrOpcode::RdmaWrite, 8), (WrOpcode::RdmaRead, 8));
    let add = (WrOpcode::AtomicFetchAndAdd, 8);
    let place = |i: u32| (1000 * i + 500) / 6;
    // Each with a response and a request behind it.
    let mixes = [
        (vec![write, write, write, read, write, write], 3, 4),
        (vec![write, read, read, write, add, write], 1, 3),
        (vec![write, write, add, write, write, read], 2, 4),
    ];
    for (recovery, (ops, response, request)) in
        both().into_iter().flat_map(|r| mixes.clone().map(|mix| (r.clone(), mix)))
    {
        let plan = Plan { ops, ..many(WrOpcode::RdmaRead, 0, &recovery, &[]) };
        let whole = Plan { lost_requests: (0..6).map(place).collect(), ..plan.clone() }.run(true);
        assert_eq!((whole.losses, whole.requester.counters().local_ack_timeout_err), (6, 1));
        let (lost, lost_requests) = (vec![place(response)], vec![place(request)]);
        let both = Plan { lost, lost_requests, ..plan }.run(true);
        assert_eq!((both.losses, both.requester.counters().local_ack_timeout_err), (2, 0));
    }
}

/// The ACK of a duplicate must not pass by the READ behind it, which is about to be answered again.
#[test]
fn a_duplicate_is_acknowledged_up_to_the_next_read() {
    let ops = vec![(WrOpcode::RdmaRead, 8), (WrOpcode::RdmaWrite, 8), (WrOpcode::RdmaRead, 8)];
    for ack in [AckPolicy::IMMEDIATE, AckPolicy::EachRequest] {
        let plan = Plan { ops: ops.clone(), ack, ..many(WrOpcode::RdmaRead, 0, &both()[0], &[0]) };
        let (_, run) = check(&plan);
        let c = run.requester.counters();
        assert_eq!((c.implied_nak_seq_err, c.retransmitted_packets), (1, 3));
    }
}

#[test]
fn a_read_that_comes_again_goes_before_what_is_owed() {
    let mut responder = Responder::new(&ResponderConfig {
        rq_psn: Psn::new(0),
        payload: MTU,
        ..responder_config(QpType::Rc)
    });
    let read = |psn: u32| super::request(Opcode::RcRdmaReadRequest, Psn::new(psn), 0, 3 * MTU);
    let psns = |list: Vec<PacketDesc>| list.iter().map(|p| p.psn.value()).collect::<Vec<_>>();
    for psn in [0, 3, 6, 9] {
        responder.on_packet(NOW, &read(psn), true);
    }
    // Seven leave: two READs, and one packet of the third.
    let first: Vec<_> = (0..7).filter_map(|_| responder.poll_transmit(NOW)).collect();
    assert_eq!(psns(first), [0, 1, 2, 3, 4, 5, 6]);
    responder.on_packet(NOW, &read(0), true);
    // The second READ is owed again though nobody has asked yet: the third would pass by it.
    responder.on_packet(NOW, &read(3), true);
    assert_eq!(psns(respond_all(&mut responder)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    // With nothing owed behind it, a READ is answered alone.
    responder.on_packet(NOW, &read(3), true);
    assert_eq!(psns(respond_all(&mut responder)), [3, 4, 5]);
}
