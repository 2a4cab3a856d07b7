//! What the properties of this folder have found, each as the smallest run that shows it.

use std::sync::Arc;

use doorbell_core::transport::Ring;
use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{Mtu, Psn, QpType, SendFlags};
use doorbell_sim::engine::NoiseTable;
use doorbell_sim::fault::{
    Chance, HostAction, HostFault, Matcher, PacketClass, PacketFault, PacketVerdict, What, Window,
};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, WorldConfig};
use doorbell_tests::machine;
use doorbell_tests::plan::{Kind, Op, Plan, Side};

use super::faults::run_under;
use super::{LIMIT, idealise, records_of, same, same_records, simulate_on, together};

fn op(kind: Kind, len: u32, place: u64) -> Op {
    let (elements, inline, flags) = (1, false, SendFlags::SIGNALED);
    Op { kind, len, elements, inline, flags, place, ring: None }
}

fn plan(numa: (u8, u8), ops: [Vec<Op>; 2]) -> Arc<Plan> {
    let side = |ops| Side { ops, unrung: 0, poll: 4, psn: Psn::new(0xFF_FFFE) };
    Arc::new(Plan {
        ty: QpType::Rc,
        mtu: Mtu::B256,
        depth: 64,
        max_inline: 0,
        rd_atomic: 16,
        numa,
        sides: ops.map(side),
        seed: 1,
    })
}

fn quiet() -> WorldConfig {
    machine::world_of(machine::quiet_host(), 2, 1)
}

/// Memory reads that take up to five microseconds now and then.
fn noisy() -> WorldConfig {
    let mut config = quiet();
    let table = [(0, Span::ZERO), (700_000, Span::from_ns(300)), (1_000_000, Span::from_us(5))];
    for host in &mut config.hosts {
        for socket in &mut host.pcie.sockets {
            socket.noise = NoiseTable::new(&table).ok();
        }
    }
    config
}

fn check(plan: &Arc<Plan>, config: &WorldConfig) {
    let world = simulate_on(plan, config, machine::core(0));
    same(&world, idealise(plan)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn wqe_fetches_that_end_in_another_order() {
    let mut ops: Vec<Op> = (0..40).map(|i| op(Kind::Write, 100, i % 8)).collect();
    ops.iter_mut().for_each(|op| op.ring = Some(Ring::Doorbell));
    check(&plan((0, 0), [ops, vec![]]), &noisy());
}

#[test]
fn a_clock_that_speeds_up() {
    let ops = || (0..40).map(|i| op(Kind::Send, 100, i % 8)).collect();
    let plan = plan((0, 0), [ops(), ops()]);
    // Twenty times slower until some moment of the exchange.
    for fast in (30..70).map(|i| Time::ZERO + Span::from_ns(500) * i) {
        let mut config = quiet();
        for host in &mut config.hosts {
            let at = |t, n| (t, Ratio::new(n, 1).unwrap());
            host.nic.clock = vec![at(Time::ZERO, 20), at(fast, 1)];
        }
        check(&plan, &config);
    }
}

#[test]
fn atomics_on_a_word_whose_lock_is_released_early() {
    let ops = (0..30).map(|_| op(Kind::Add, 8, 0)).collect();
    let mut config = noisy();
    config.hosts[1].nic.atomic.hold_over_pcie = false;
    check(&plan((0, 0), [ops, vec![]]), &config);
}

#[test]
fn a_read_of_what_was_written_while_the_other_half_waits_for_a_wqe() {
    // Rank 1 has more READs outstanding than its NIC keeps WQEs for; rank 0 writes and reads back.
    let mut ops = Vec::new();
    for place in 0..8 {
        ops.push(op(Kind::Write, 600, place));
        ops.push(op(Kind::ReadBack, 600, place));
    }
    for write in ops.iter_mut().filter(|op| op.kind == Kind::Write) {
        write.flags |= SendFlags::FENCE;
    }
    let reads = (0..30).map(|i| op(Kind::Read, 700, i % 8)).collect();
    let mut config = quiet();
    config.hosts[1].nic.wqe_cache = 1;
    check(&plan((0, 0), [ops, reads]), &config);
}

#[test]
fn a_completion_never_precedes_its_payload_to_the_other_socket() {
    let sends = (0..20).map(|i| op(Kind::Send, 10 + 30 * i, 0)).collect();
    let reads = (0..20).map(|i| op(Kind::Read, 10 + 30 * i as u32, i % 8)).collect();
    check(&plan((1, 0), [sends, reads]), &quiet());
}

#[test]
fn packets_that_wait_for_a_context_stay_behind_those_that_wait_for_room() {
    let ops = |kind, n| (0..n).map(|i| op(kind, 600, i % 8)).collect::<Vec<Op>>();
    let plans = [
        plan((0, 0), [ops(Kind::Write, 40), ops(Kind::Read, 30)]),
        plan((0, 0), [ops(Kind::Send, 40), ops(Kind::Send, 40)]),
    ];
    let mut config = quiet();
    for host in &mut config.hosts {
        host.nic.qp_cache = 1;
        host.nic.tx_buffer = 300;
        host.nic.rx_buffer = 300;
        // So slow a slot that the receive buffer is always full.
        for node in &mut host.pcie.nodes {
            (node.link.width, node.link.credits.posted_headers) = (1, 1);
        }
    }
    let mut world = together(&plans, &config, machine::core);
    assert_eq!(world.run(LIMIT), RunEnd::Done);
    for (first, plan) in [(0, &plans[0]), (2, &plans[1])] {
        same_records(records_of(&world, first), idealise(plan)).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn packets(class: PacketClass, nth: Option<u64>, verdict: PacketVerdict) -> What {
    let matcher = Matcher { class: Some(class), nth, ..Matcher::default() };
    What::Packets(PacketFault { matcher, chance: Chance::Always, verdict })
}

#[test]
fn a_late_rnr_nak_for_what_was_executed_is_no_stall() {
    // The SEND takes the last receive, and its ACK is lost: the sender waits and resends to a peer
    // without receives, which answers all the same.
    let plan = plan((0, 0), [vec![op(Kind::Send, 100, 0)], vec![]]);
    let us = Span::from_us;
    let late = |delay| {
        let window = Window { after: Time::ZERO, before: Time::ZERO + us(60) };
        let action = HostAction::Rnr { qp: None };
        let none = What::Host(HostFault { host: HostId(1), nic: None, window, action });
        let naks = packets(PacketClass::RnrNak, None, PacketVerdict::Delay(delay));
        let lost = packets(PacketClass::Ack, Some(1), PacketVerdict::Drop);
        let faults = machine::perhaps([none, naks, lost]);
        let world = run_under(&plan, &faults, false);
        same(&world, idealise(&plan)).unwrap_or_else(|e| panic!("{e}"));
        let sides = [0, 1].map(|h: usize| world.hosts()[h].nic(0).hw_counters());
        u32::from(sides[0].rnr_nak_retry_err > 0 && sides[1].duplicate_request > 0)
    };
    let met: u32 = (5..120).step_by(5).map(|n| late(us(n))).sum();
    assert!(met > 0, "no RNR NAK came last");
}
