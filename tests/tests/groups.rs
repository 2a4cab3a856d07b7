//! Members of a group on the simulator and what may happen to them: for aggregations and exchanges.

use doorbell::workloads::{Failure, Results, Workload};
use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::transport::QpAttr;
use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{AckTimeout, RetryCnt};
use doorbell_sim::fault::{
    Chance, HostAction, HostFault, Matcher, PacketFault, PacketVerdict, What, Window,
};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use proptest::prelude::*;

pub(super) const ROUNDS: u64 = 2;
/// Longest time for which a fault stalls a host.
const STALL: Span = Span::from_ms(4);

/// When rounds begin: the endpoints have been exchanged by then.
pub(super) fn epoch() -> Time {
    Time::ZERO + Span::from_us(50)
}

/// When every member has ended, whatever happened: the stated bound of each round, what a fault
/// stalls the host itself, and the last step.
pub(super) fn bound(round: Span) -> Time {
    epoch() + round * ROUNDS + STALL + Span::from_us(100)
}

/// Connections that are given up after about half a millisecond.
pub(super) fn attr(base: QpAttr) -> QpAttr {
    let timeout = AckTimeout::new(4).expect("65.5 us");
    QpAttr { timeout, retry_cnt: RetryCnt::new(7).expect("in range"), ..base }
}

/// What becomes of a member for good.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Gone {
    /// Its host dies.
    Host,
    /// Its program stops, for longer than anybody waits, and its host lives.
    Program,
}

impl Gone {
    pub(super) const BOTH: [Self; 2] = [Self::Host, Self::Program];

    /// The fault that does it so long after the epoch to a host; everybody else has ended before
    /// `bound`.
    pub(super) fn fault(self, host: u32, after: Span, bound: Span) -> What {
        let after = epoch() + after;
        let (before, action) = match self {
            Self::Host => (Window::ALWAYS.before, HostAction::PeerDead),
            Self::Program => (after + bound, HostAction::ProgramStall { rank: None }),
        };
        let window = Window { after, before };
        What::Host(HostFault { host: HostId(host), nic: None, window, action })
    }
}

/// A member on each host, and what goes wrong; returns what they have at the bound.
pub(super) fn run(
    seed: u64,
    hosts: u32,
    faults: &[What],
    bound: Time,
    member: impl Fn() -> Workload,
) -> Vec<Option<Results>> {
    let config = machine::world_of(machine::quiet_host(), hosts, seed);
    let mut world = World::new(&config).expect("a world");
    for host in 0..hosts {
        world.add_program(HostId(host), machine::core(0), Time::ZERO, member());
    }
    let faults = machine::perhaps(faults.iter().map(|what| of_hosts(what, hosts)));
    world.set_faults(&faults).expect("faults of this world");
    assert_eq!(world.run(bound), RunEnd::Done, "somebody has not ended at the bound");
    let results = |rank| world.program::<Workload>(rank).map(|w| w.results().clone());
    (0..hosts).map(results).collect()
}

/// Members with all rounds, and members with an error; none with anything else. `rounds` says how
/// many rounds of a member are complete, and how many of them are wrong.
pub(super) fn outcome(
    all: &[Option<Results>],
    dead: Option<u32>,
    rounds: impl Fn(&Results) -> (u64, u64),
) -> (usize, Vec<AggregateError>) {
    let (mut complete, mut errors) = (0, vec![]);
    for (rank, r) in (0..).zip(all) {
        let r = r.as_ref().expect("every rank has a program");
        let (done, wrong) = rounds(r);
        assert_eq!(wrong, 0, "rank {rank} has a wrong round");
        match &r.failure {
            Some(Failure::Aggregate(e)) => errors.push(*e),
            Some(other) => panic!("rank {rank}: {other}"),
            None if Some(rank) == dead => {}
            None => {
                assert_eq!(done, ROUNDS, "rank {rank} has ended without a word");
                complete += 1;
            }
        }
    }
    (complete, errors)
}

/// A fault of packets of a host that is there.
fn of_hosts(what: &What, hosts: u32) -> What {
    match what {
        What::Packets(f) => {
            let source = f.matcher.source.map(|h| HostId(h.0 % hosts));
            let matcher = Matcher { source, ..f.matcher };
            What::Packets(PacketFault { matcher, ..f.clone() })
        }
        other => other.clone(),
    }
}

pub(super) fn packets() -> impl Strategy<Value = What> {
    let verdict = prop_oneof![
        4 => Just(PacketVerdict::Drop),
        1 => Just(PacketVerdict::Corrupt),
        1 => Just(PacketVerdict::Duplicate(2)),
        2 => (1..90_u64).prop_map(|us| PacketVerdict::Delay(Span::from_us(us))),
    ];
    let source = proptest::option::of((0..4_u32).prop_map(HostId));
    (source, 1..60_u64, verdict).prop_map(|(source, n, verdict)| {
        let matcher = Matcher { source, ..Matcher::default() };
        let chance = Chance::Ratio(Ratio::new(n, 1000).expect("a thousand"));
        What::Packets(PacketFault { matcher, chance, verdict })
    })
}

/// Something that happens to a host, from the exchange of endpoints on.
pub(super) fn host_fault() -> impl Strategy<Value = HostFault> {
    let action = prop_oneof![
        2 => Just(HostAction::PeerDead),
        1 => Just(HostAction::ProgramStall { rank: None }),
        1 => Just(HostAction::NicStall),
        1 => Just(HostAction::CqNotPolled { cq: None }),
        1 => Just(HostAction::Rnr { qp: None }),
    ];
    (0..2_u32, 0..200_u64, 1..STALL.as_ps() / 1_000_000, action).prop_map(
        |(host, from, long, action)| {
            let at = |us| Time::ZERO + Span::from_us(us);
            let window = Window { after: at(from), before: at(from + long) };
            HostFault { host: HostId(host), nic: None, window, action }
        },
    )
}
