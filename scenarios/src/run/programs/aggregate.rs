//! Members of an aggregation: which host is in which group, and what each of them is told.

use std::sync::Arc;

use doorbell_core::policy::aggregate::{
    Aggregate, AggregateConfig, Group, Inside, Method, Order, Plan,
};
use doorbell_core::transport::QpAttr;
use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::SimRng;
use doorbell_sim::fabric::End;

use super::all_to_all::is_one_group;
use super::{Clock, Planner, Role, bad};
use crate::format::{self, AggregatePlan, InsidePlan, Program, SumOrder};
use crate::run::{Point, RunError, network};
use crate::workloads::{Summand, SummandConfig, Training};

/// What making a buffer takes at the most, per byte, before the clock of rounds begins: 1 GB/s, a
/// tenth of what a core copies.
const MAKE_PER_BYTE: Span = Span::from_ns(1);

/// The plan of program `index`, which is an aggregation.
///
/// # Errors
/// A topology that cannot be built, or a plan that cannot be.
pub(crate) fn plan_of(point: &Point, index: usize) -> Result<Plan, RunError> {
    let p = &point.scenario.program[index];
    let a = p.aggregate.as_ref().expect("checked when loaded");
    let n = p.hosts.value() as u32;
    let lanes = |usual: u32| a.lanes.map_or(usual, |l| l.value() as u32);
    let plan = match a.plan {
        AggregatePlan::Direct => Plan::direct(n, lanes(1)),
        AggregatePlan::Ring => Plan::ring(n),
        AggregatePlan::TwoHop => {
            Plan::two_hop(&groups(point, index)?, lanes(a.aggregators.value() as u32))
        }
        AggregatePlan::TwoLevel => {
            let (groups, sums) = (groups(point, index)?, a.aggregators.value() as u32);
            let inside = match a.inside {
                Some(InsidePlan::Ring) => Inside::Ring,
                Some(InsidePlan::Direct) | None => Inside::Direct,
            };
            Plan::two_level(&groups, inside, lanes(sums.saturating_mul(groups.len() as u32)))
        }
    };
    plan.map_err(|e| bad(index, "aggregate", e.to_string(), "change `hosts` or `lanes`"))
}

/// Whether a program with two hops has only one group, so that all take one, as in a direct plan.
pub(crate) fn has_one_group(point: &Point, index: usize) -> bool {
    let p = &point.scenario.program[index];
    let two_hop = p.aggregate.as_ref().is_some_and(|a| a.plan == AggregatePlan::TwoHop);
    let one = || groups(point, index).is_ok_and(|all| all.len() == 1);
    let exchange = p.all_to_all.as_ref();
    (two_hop && one()) || exchange.is_some_and(|a| is_one_group(point, p, a))
}

/// Groups of a size, or those of the nodes or switches. Of a group that is smaller than others all
/// hosts add, if need be.
fn groups(point: &Point, index: usize) -> Result<Vec<Group>, RunError> {
    let p = &point.scenario.program[index];
    let a = p.aggregate.as_ref().expect("checked when loaded");
    let (n, sums) = (p.hosts.value() as u32, a.aggregators.value() as u32);
    let groups = match a.group {
        Some(size) => Group::by_place(&vec![0; n as usize], size.value() as u32, sums),
        None => Group::by_place(&places_of(point, p)?, n, sums),
    };
    let largest = groups.iter().map(|g| g.members.len()).max().unwrap_or(0);
    if sums as usize > largest {
        let text = format!("{sums} aggregators, and no group has more than {largest} hosts");
        let help =
            "at most all hosts of a group; without `group` those of a node, or at one switch";
        return Err(bad(index, "aggregate.aggregators", text, help));
    }
    Ok(groups)
}

/// The node that each member is in, or, where there are none, the switch at which its NIC is; 0 on
/// a cable.
pub(super) fn places_of(point: &Point, p: &Program) -> Result<Vec<u32>, RunError> {
    let members = p.host.value() as u32..(p.host.value() + p.hosts.value()) as u32;
    if let Some(node) = point.scenario.topology.node {
        return Ok(members.map(|host| host / node.value() as u32).collect());
    }
    let fabric = network::network_of(&point.scenario, &point.profile);
    let fabric = fabric.map_err(|w| RunError::BadInput {
        path: w.path,
        message: w.message,
        help: w.help,
    })?;
    let (first, nic) = (members.start, p.nic.value());
    // Of each member the links that were met, up to that of its NIC, and what is at the last one:
    // one pass, since a large network has many links.
    let mut met = vec![(0, 0); members.len()];
    for (end, other) in fabric.links.iter().flat_map(|l| [(l.a, l.b), (l.b, l.a)]) {
        let End::Host(host) = end else { continue };
        let member = host.checked_sub(first).and_then(|m| met.get_mut(m as usize));
        if let Some((links, switch)) = member.filter(|(links, _)| *links <= nic) {
            *links += 1;
            *switch = if let End::Switch(s) = other { s } else { 0 };
        }
    }
    Ok(met.into_iter().map(|(_, switch)| switch).collect())
}

impl Planner<'_> {
    /// One program on each host of an aggregation.
    pub(super) fn aggregate(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        let a = p.aggregate.as_ref().expect("checked when loaded");
        if let Some(top) = a.top_k {
            return self.sparse_sum(index, p, (a, top.value()));
        }
        let plan = Arc::new(plan_of(self.point, index)?);
        let (first, n) = (self.next(), p.hosts.value() as u32);
        let aggregate = self.aggregate_config(index, p, first)?;
        let needs = (0..n).filter_map(|m| Aggregate::needs(&aggregate, &plan, m).ok());
        let keys = "fewer `lanes`, a smaller `window`, or larger chunks";
        self.check_needs(index, "aggregate", needs, keys)?;
        let epoch = self.clock_of_rounds(p.size.0.0);
        let rounds = p.iterations.value() * a.training.map_or(1, |x| x.buckets.value());
        for member in 0..n {
            let host = p.host.value() as u32 + member;
            let root = (0..plan.lanes()).any(|lane| plan.root(lane) == member);
            let config = SummandConfig {
                aggregate,
                plan: plan.clone(),
                rounds,
                epoch,
                interval: p.interval.map(|i| i.0),
                late: self.late(index, rounds, a.jitter.0, member),
                goes_on: a.goes_on,
                training: a.training.map(|x| Training {
                    forward: x.forward.0,
                    backward: x.backward.0,
                    buckets: x.buckets.value() as u32,
                }),
            };
            let role = if a.broadcast || root { Role::Sender } else { Role::Peer };
            let on = self.initiator(index, p, (host, p.nic.value() as u8))?;
            self.add((index, host, role), on, Summand::new(config).into())?;
        }
        Ok(())
    }

    /// When the clock of rounds begins, if there is one for all: members are connected by then, and
    /// each has made a buffer of at most so many bytes.
    pub(super) fn clock_of_rounds(&self, bytes: u64) -> Option<Time> {
        let latency = self.point.profile.port.bootstrap_latency;
        let common = Time::ZERO + latency * 4 + MAKE_PER_BYTE * bytes;
        (self.clock == Clock::Common).then_some(common)
    }

    /// When a member joins each round: a stream of its own, so that more hosts draw nobody else's.
    pub(super) fn late(&self, index: usize, rounds: u64, jitter: Span, member: u32) -> Vec<Span> {
        if jitter == Span::ZERO {
            return vec![];
        }
        let (seed, purpose) = (self.point.seed, format!("member {member}"));
        let mut draws = SimRng::stream(seed, &format!("program {index}"), &purpose);
        let draw = |_| Span::from_ps(draws.below(jitter.as_ps()));
        (0..rounds).map(draw).collect()
    }

    fn aggregate_config(
        &self,
        index: usize,
        p: &Program,
        first_rank: u32,
    ) -> Result<AggregateConfig, RunError> {
        let a = p.aggregate.as_ref().expect("checked when loaded");
        let (link, base) = (self.link(index, p, 0)?, AggregateConfig::default());
        Ok(AggregateConfig {
            bytes: p.size.0.0,
            op: a.element.arithmetic(),
            order: match a.order {
                SumOrder::Fixed => Order::Fixed,
                SumOrder::Arrival => Order::Arrival,
            },
            method: match p.op {
                format::Op::Send => Method::Send,
                format::Op::Read => Method::Read,
                _ => Method::Write,
            },
            broadcast: a.broadcast,
            chunk: a.chunk.0.0 as u32,
            window: a.window.value() as u32,
            pool: a.pool.map(|n| n.value() as u32),
            reads: a.reads.value() as u32,
            chunk_deadline: a.chunk_deadline.0,
            round_deadline: a.round_deadline.0,
            connect_deadline: self.deadline,
            memory: self.memory(index, "memory", (p.nic.value() as u8, p.memory))?,
            queue_memory: link.queue_memory,
            attr: QpAttr { access: base.attr.access, ..link.attr },
            path_mtu: link.path_mtu,
            first_rank,
            ..base
        })
    }
}
