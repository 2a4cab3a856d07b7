//! Planned faults cost time and nothing else: random programs under random plans, which shrink to
//! the fault that matters. Everything arrives once and in order, and the counters of both sides
//! tell the same story.

use super::*;
use doorbell_core::units::Ratio;
use doorbell_core::verbs::QpType;
use doorbell_sim::fault::{
    Chance, FaultPlan, Hold, HostAction, HostFault, Matcher, PacketClass, PacketFault,
    PacketVerdict, What, Window,
};
use doorbell_sim::host::PollMode;
use doorbell_sim::rc::{Recovery, RetrySeven, SelectiveRepeat, TimeoutMode};

/// Copies that a duplicating fault makes.
const COPIES: u32 = 2;

fn verdict() -> impl Strategy<Value = PacketVerdict> {
    let us = |n: u64| Span::from_us(n);
    prop_oneof![
        4 => Just(PacketVerdict::Drop),
        1 => Just(PacketVerdict::Corrupt),
        1 => Just(PacketVerdict::Duplicate(COPIES)),
        2 => (1..60u64).prop_map(move |n| PacketVerdict::Delay(us(n))),
        2 => (1..8u32, 1..60u64)
            .prop_map(move |(behind, n)| PacketVerdict::Reorder { behind, within: us(n) }),
    ]
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let host = proptest::option::of((0..2u32).prop_map(HostId));
    let class = proptest::option::of(proptest::sample::select(PacketClass::ALL.to_vec()));
    let round = proptest::option::weighted(0.3, 1..4u32);
    (host, class, round).prop_map(|(source, class, round)| Matcher {
        source,
        class,
        round,
        ..Matcher::default()
    })
}

/// The n-th packet that matches, or some of them by chance.
pub(super) fn packets() -> impl Strategy<Value = What> {
    let listed = (1..30u64).prop_map(|n| (Some(n), Chance::Always));
    let by_chance =
        (1..120u64).prop_map(|n| (None, Chance::Ratio(Ratio::new(n, 1000).expect("a thousand"))));
    let which = prop_oneof![3 => listed, 1 => by_chance];
    (matcher(), which, verdict()).prop_map(|(matcher, (nth, chance), verdict)| {
        What::Packets(PacketFault { matcher: Matcher { nth, ..matcher }, chance, verdict })
    })
}

/// Some time of the work, which begins after about 100 us.
fn windows() -> impl Strategy<Value = Window> {
    let at = |us| Time::ZERO + Span::from_us(us);
    (0..150u64, 1..100u64)
        .prop_map(move |(from, long)| Window { after: at(from), before: at(from + long) })
}

fn no_receives() -> impl Strategy<Value = What> {
    (0..2u32, windows()).prop_map(|(host, window)| {
        let (host, action) = (HostId(host), HostAction::Rnr { qp: None });
        What::Host(HostFault { host, nic: None, window, action })
    })
}

/// What stands still or is cut for a time: links, packets at the end of one, NICs, programs, and
/// what hides completions and receives.
pub(super) fn harsh() -> impl Strategy<Value = What> {
    let host = (0..2u32, windows(), 0..3usize).prop_map(|(host, window, which)| {
        let stalls = [
            HostAction::ProgramStall { rank: None },
            HostAction::NicStall,
            HostAction::CqNotPolled { cq: None },
        ];
        let (host, action) = (HostId(host), stalls[which]);
        What::Host(HostFault { host, nic: None, window, action })
    });
    let cut = (matcher(), windows(), any::<bool>()).prop_map(|(m, window, down)| {
        let (matcher, verdict) = match down {
            // A link that is down takes all.
            true => (Matcher { source: m.source, ..Matcher::default() }, PacketVerdict::LinkDown),
            false => (m, PacketVerdict::Hold(Hold::Until(window.before))),
        };
        let matcher = Matcher { window, ..matcher };
        What::Packets(PacketFault { matcher, chance: Chance::Always, verdict })
    });
    prop_oneof![3 => host, 2 => cut, 1 => no_receives()]
}

fn harsh_plans() -> impl Strategy<Value = FaultPlan> {
    let what = prop_oneof![4 => packets(), 3 => harsh()];
    proptest::collection::vec(what, 0..10).prop_map(machine::perhaps)
}

pub(super) fn fault_plans() -> impl Strategy<Value = FaultPlan> {
    let what = prop_oneof![8 => packets(), 1 => no_receives()];
    proptest::collection::vec(what, 0..12).prop_map(machine::perhaps)
}

fn reliable_plans() -> impl Strategy<Value = Plan> {
    plans().prop_filter("not RC", |plan| plan.ty == QpType::Rc)
}

pub(super) fn recovery(selective: bool) -> Recovery {
    match selective {
        true => Recovery::SelectiveRepeat(SelectiveRepeat { hold: 256, cap: 64 }),
        false => Recovery::GoBackN,
    }
}

pub(super) fn run_under(plan: &Arc<Plan>, faults: &FaultPlan, selective: bool) -> World {
    run_waiting(plan, faults, selective, PollMode::Busy)
}

fn run_waiting(plan: &Arc<Plan>, faults: &FaultPlan, selective: bool, poll: PollMode) -> World {
    let mut host = machine::quiet_host();
    host.rc.recovery = recovery(selective);
    host.rc.rules.retry_seven = RetrySeven::Infinite;
    host.rc.timeout_mode =
        TimeoutMode::Adaptive { first: Span::from_us(30), most: Span::from_ms(1) };
    let config = machine::world_of(host, 2, plan.seed);
    let mut world = World::new(&config).unwrap();
    for rank in 0..2 {
        let program = Player::new(plan.clone(), rank);
        let on = InitiatorConfig { poll, ..machine::core(0) };
        world.add_program(HostId(rank as u32), on, Time::ZERO, program);
    }
    world.set_faults(faults).unwrap();
    assert_eq!(world.run(LIMIT), RunEnd::Done);
    world
}

/// What one side has sent the other has got, save for what the plan took or doubled.
fn counters_agree(world: &World, faults: &FaultPlan) -> Result<(), TestCaseError> {
    let (mut taken, mut copies) = (0, 0);
    for (used, fault) in world.fault_uses().iter().zip(&faults.faults) {
        match &fault.what {
            What::Packets(PacketFault { verdict, .. }) => match verdict {
                PacketVerdict::Drop | PacketVerdict::Corrupt | PacketVerdict::LinkDown => {
                    taken += used.fired;
                }
                PacketVerdict::Duplicate(n) => copies += used.fired * u64::from(*n),
                _ => {}
            },
            What::Host(_) | What::Reboot(_) => {}
        }
    }
    let sides = [0, 1].map(|h: usize| world.hosts()[h].nic(0).hw_counters());
    for (me, peer) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        prop_assert!(me.packet_seq_err <= peer.sequence_naks_sent + copies);
        prop_assert!(me.rnr_nak_retry_err <= peer.rnr_nak_sent + copies);
        prop_assert_eq!(peer.rnr_nak_sent, peer.out_of_buffer);
        prop_assert!(peer.sequence_naks_sent <= peer.out_of_sequence);
        let rounds = me.packet_seq_err
            + me.implied_nak_seq_err
            + me.local_ack_timeout_err
            + me.rnr_nak_retry_err;
        prop_assert!(rounds > 0 || me.retransmitted_packets == 0, "nothing was amiss: {:?}", me);
        // A duplicate is a packet that was sent again, or a copy that the plan made.
        prop_assert!(peer.duplicate_request <= me.retransmitted_packets + copies);
        prop_assert_eq!(me.req_cqe_error + me.resp_cqe_error, 0);
        prop_assert_eq!(me.req_transport_retries_exceeded + me.req_rnr_retries_exceeded, 0);
    }
    for host in world.hosts() {
        let (c, s) = (host.nic(0).hw_counters(), host.nic(0).stats);
        let naks = c.sequence_naks_received + c.rnr_nak_received;
        prop_assert_eq!(naks, c.packet_seq_err + c.rnr_nak_retry_err + c.unused_naks);
        let causes = s.rx_unknown_qp + s.rx_wrong_service + s.bad_pkey_cntr + s.rx_wrong_address;
        let causes = causes + s.rx_wrong_state + s.qkey_viol_cntr + s.rx_discards + s.rx_unused;
        prop_assert_eq!(s.rx_dropped, causes, "each drop has one cause");
    }
    let balance = world.fabric().balance().map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert!(balance.dropped.total().packets <= taken, "only the plan takes packets");
    Ok(())
}

proptest! {
    #[test]
    fn planned_faults_change_no_result(
        plan in reliable_plans(),
        faults in fault_plans(),
        selective: bool,
    ) {
        let plan = Arc::new(plan);
        let world = run_under(&plan, &faults, selective);
        same(&world, idealise(&plan))?;
        prop_assert_eq!(world.left_over(), []);
        counters_agree(&world, &faults)?;
    }
}

proptest! {
    /// Nor do faults that let links, NICs or programs stand still, however programs wait.
    #[test]
    fn what_stands_still_changes_no_result_and_wakes_all(
        plan in reliable_plans(),
        faults in harsh_plans(),
        selective: bool,
        event: bool,
    ) {
        let plan = Arc::new(plan);
        let poll = if event { PollMode::Event } else { PollMode::Busy };
        let world = run_waiting(&plan, &faults, selective, poll);
        same(&world, idealise(&plan))?;
        prop_assert_eq!(world.left_over(), []);
        counters_agree(&world, &faults)?;
    }
}

#[test]
fn the_plans_take_delay_and_double_packets() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut fired, mut again) = (0, 0);
    for _ in 0..60 {
        let plan = Arc::new(reliable_plans().new_tree(&mut runner).unwrap().current());
        let faults = fault_plans().new_tree(&mut runner).unwrap().current();
        let world = run_under(&plan, &faults, false);
        fired += world.fault_uses().iter().map(|used| used.fired).sum::<u64>();
        again += world.hosts()[0].nic(0).hw_counters().retransmitted_packets;
    }
    assert!(fired > 100 && again > 100, "{fired} faults fired, {again} packets went again");
}
