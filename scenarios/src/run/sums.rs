//! Figures of aggregations.

use doorbell_core::policy::aggregate::{Chunks, Load};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::Mtu;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::figures::{Member, by_name};
use super::flow_figures::message_bytes;
use super::programs::{has_one_group, plan_of, sparse_of};
use super::{Metric, Note, NoteKind, Outcome, Point};
use crate::format::{self, Program, ProgramKind};
use crate::workloads::{Kept, Op, StepTimes};

/// Adds the figures of all aggregations of a run. Members come with the index of their program.
pub(crate) fn collect<'a>(
    point: &Point,
    all: impl Iterator<Item = (usize, Member<'a>)>,
    out: &mut Outcome,
) {
    let ours = all.filter(|(_, (_, r))| r.sums.is_some());
    for (prefix, group) in by_name(point, ours) {
        counts(&prefix, &group, out);
    }
}

/// Says of which programs the second hop leads nowhere.
pub(crate) fn one_group(point: &Point, out: &mut Outcome) {
    let programs = 0..point.scenario.program.len();
    out.notes.extend(programs.filter(|index| has_one_group(point, *index)).map(|index| {
        let text = format!(
            "program {index}: `two-hop` finds all hosts in one group, so nothing takes two hops, \
             as in `direct`: `group` makes smaller ones, a network of several switches or nodes too"
        );
        Note { kind: NoteKind::Info, name: "one-group".into(), text, count: 1 }
    }));
}

/// Adds the bounds that the bytes of aggregations set on a simulated network.
pub(super) fn byte_bounds(point: &Point, world: &World, out: &mut Outcome) {
    if point.scenario.topology.node.is_some() {
        // What stays in a node crosses no port.
        return;
    }
    let programs = point.scenario.program.iter().enumerate();
    let bounds = programs
        .filter(|(_, p)| p.kind == ProgramKind::Aggregate)
        .map(|(index, p)| (index, byte_bound(point, world, (index, p))));
    for (prefix, group) in by_name(point, bounds) {
        let most = group.into_iter().max().unwrap_or(Span::ZERO);
        out.metrics.insert(format!("{prefix}byte_bound"), Metric::time(most));
    }
}

fn counts(prefix: &str, group: &[Member<'_>], out: &mut Outcome) {
    let results = || group.iter().map(|(_, r)| *r);
    let sum = |f: fn(&crate::workloads::Sums) -> u64| -> u64 {
        results().filter_map(|r| r.sums.as_ref()).map(f).sum()
    };
    let failed = results().filter(|r| r.failure.is_some()).count() as u64;
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
    put("sums", Metric::count(sum(|s| s.complete)));
    put("sums_wrong", Metric::count(sum(|s| s.wrong)));
    put("sums_of_survivors", Metric::count(sum(|s| s.of_survivors)));
    let absent = results().filter_map(|r| r.sums.as_ref()).map(|s| s.absent).max();
    put("members_absent", Metric::count(absent.unwrap_or(0)));
    put("sums_replaced", Metric::count(sum(|s| s.replaced)));
    put("added_bytes", Metric::bytes(sum(|s| s.added_bytes)));
    put("members_failed", Metric::count(failed));
    sparse(group, &mut put);
    training(group, &mut put);
    let ends = results().filter(|r| r.failure.is_some()).filter_map(|r| r.last);
    if let Some(last) = ends.max() {
        put("last_failure", Metric::time(last.since(Time::ZERO)));
    }
}

fn mean(all: Span, steps: u64) -> Span {
    Span::from_ps(all.as_ps() / steps.max(1))
}

/// What was sent of sparse vectors.
fn sparse<R>(group: &[Member<'_>], put: &mut impl FnMut(&str, Metric) -> R) {
    let all = || group.iter().filter_map(|(_, r)| r.sums.as_ref()?.kept);
    let Some(most) = all().map(|k| k.message_bytes).max() else { return };
    let sum = |of: fn(&Kept) -> u64| -> u64 { all().map(|k| of(&k)).sum() };
    put("sparse_messages", Metric::count(sum(|k| k.sent.sparse)));
    put("dense_messages", Metric::count(sum(|k| k.sent.dense)));
    put("message_bytes", Metric::bytes(most));
    put("kept", Metric::ratio(sum(|k| k.sent.entries), sum(|k| k.elements)));
}

/// Mean times of training steps, of the member that takes longest.
fn training<R>(group: &[Member<'_>], put: &mut impl FnMut(&str, Metric) -> R) {
    let times = || group.iter().filter_map(|(_, r)| r.sums.as_ref()?.training);
    let most = |of: fn(StepTimes) -> Span| times().map(|t| mean(of(t), t.steps)).max();
    let steps = times().map(|t| t.steps).min();
    let all = [("exposed", most(|t| t.exposed)), ("step_time", most(|t| t.total))];
    for (name, time) in all {
        time.map(|time| put(name, Metric::time(time)));
    }
    steps.map(|n| put("training_steps", Metric::count(n)));
}

/// Time that the busiest port needs for the bytes of one round, headers included, in one direction:
/// no schedule is faster. Exact but for a last chunk that is shorter.
fn byte_bound(point: &Point, world: &World, (index, p): (usize, &Program)) -> Span {
    let a = p.aggregate.as_ref().expect("checked when loaded");
    let nic = world.hosts()[p.host.value() as usize].nic(p.nic.value() as usize);
    let mtu = Mtu::from_bytes(point.scenario.qp.mtu.0.0 as u32).expect("checked when loaded");
    let payload = nic.rc_config().payload_of(mtu);
    let wire = |op, chunk: u64, bytes: u64| {
        let each = message_bytes(nic.rc_config(), op, chunk, payload);
        (u128::from(bytes) * u128::from(each)).div_ceil(u128::from(chunk)) as u64
    };
    let time = |member: u32, bytes: u64| {
        let host = HostId(p.host.value() as u32 + member);
        let port = world.hosts()[host.index()].nic(p.nic.value() as usize).port();
        world.fabric().tx_port(host, port).rate().time_for(bytes)
    };
    let members = p.hosts.value() as u32;
    if let Some(top) = a.top_k {
        // Everybody's message has to come to everybody else.
        let sparse = sparse_of(p, a, top.value());
        let each = sparse.message_bytes().expect("it was laid out before the run") as u64;
        let all = wire(Op::WriteImm, a.chunk.0.0.min(each), each * u64::from(members - 1));
        return (0..members).map(|m| time(m, all)).max().unwrap_or(Span::ZERO);
    }
    let plan = plan_of(point, index).expect("it was planned before the run");
    let cut = Chunks::new(p.size.0.0, a.chunk.0.0 as u32, plan.lanes());
    let up = match p.op {
        format::Op::Send => Op::Send,
        format::Op::Read => Op::Read,
        _ => Op::WriteImm,
    };
    let port = |m: u32| {
        let way_up = plan.load(m, &cut, false);
        let both: Load = if a.broadcast { plan.load(m, &cut, true) } else { way_up };
        let chunk = u64::from(cut.len(0));
        let of = |up_bytes: u64, all: u64| {
            wire(up, chunk, up_bytes) + wire(Op::WriteImm, chunk, all - up_bytes)
        };
        time(m, of(way_up.sent, both.sent).max(of(way_up.received, both.received)))
    };
    (0..members).map(port).max().unwrap_or(Span::ZERO)
}

#[cfg(test)]
mod tests {
    use crate::run::simulate_tests::{number, outcome};

    /// Four hosts at one switch are one group unless `group` says otherwise.
    #[test]
    fn a_plan_of_two_hops_with_one_group_says_so() {
        let text = "[topology]\nkind = 'switch'\nhosts = 4\n[[program]]\nkind = 'aggregate'\n\
                    hosts = 4\nsize = '64KiB'\niterations = 1\n\
                    aggregate = { plan = 'two-hop' }\n";
        let notes = |set: &[&str]| {
            let all = outcome(text, set).notes;
            all.into_iter().filter(|n| n.name == "one-group").collect::<Vec<_>>()
        };
        let one = notes(&[]);
        assert!(one.len() == 1 && one[0].text.starts_with("program 0: "), "{one:?}");
        assert!(one[0].text.contains("`group` makes smaller ones"), "{one:?}");
        assert_eq!(notes(&["program.0.aggregate.group=2"]), [], "two groups");
        assert_eq!(notes(&["program.0.aggregate.plan=direct"]), [], "no second hop");
    }

    /// Each of three members adds two messages of 100 elements of 8 bytes, three times; what it
    /// adds dense is the whole vector (#6).
    #[test]
    fn what_is_added_of_sparse_vectors_is_counted() {
        let text = "[topology]\nkind = 'switch'\nhosts = 3\n[[program]]\nkind = 'aggregate'\n\
                    hosts = 3\nsize = '64KiB'\niterations = 3\n\
                    aggregate = { plan = 'direct', element = 'i64', top_k = 100 }\n";
        for (top, elements) in [("100", 100.0), ("8192", 8192.0)] {
            let o = outcome(text, &[&format!("program.0.aggregate.top_k={top}")]);
            let added = 3.0 * 3.0 * 2.0 * elements * 8.0;
            assert_eq!(number(&o, "added_bytes"), added, "{top}");
            assert_eq!(number(&o, "bytes_reduced"), added, "{top}");
        }
    }

    /// Members that wait tell others so by a number that the NIC reads again when it is lost; the
    /// next one of another connection must not lie in its place (#6).
    #[test]
    fn signs_of_a_gpu_are_not_stored_over_while_they_are_sent() {
        for broadcast in [true, false] {
            let text = format!(
                "[topology]\nkind = 'switch'\nhosts = 4\n[[program]]\n\
                 kind = 'aggregate'\nhosts = 4\nsize = '256KiB'\niterations = 40\n\
                 initiator = 'gpu'\nmemory = 'gpu'\n\
                 aggregate = {{ plan = 'direct', broadcast = {broadcast}, chunk = '16KiB' }}\n\
                 [[fault]]\nid = 'f'\nkind = 'drop'\nlink = 'host0-switch0'\nclass = 'request'\n\
                 chance = '1/100'\nmaybe = true\n"
            );
            let o = outcome(&text, &[]);
            let wrong = o.notes.iter().filter(|n| n.name == "stale-payload").count();
            assert_eq!((wrong, number(&o, "sums_wrong")), (0, 0.0), "broadcast {broadcast}");
            assert!(number(&o, "fault.f.fired") > 0.0);
        }
    }
}
