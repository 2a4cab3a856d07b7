//! Flows between many hosts: which end goes to which host's program.

use std::collections::BTreeMap;

use doorbell_core::transport::{Contents, MemKind};
use doorbell_core::units::{Span, Time};
use doorbell_sim::host::PollMode;

use super::{Planner, Role, bad};
use crate::format::{self, Pattern, Program};
use crate::run::flows::{Flow, flows, ring_step};
use crate::run::{Point, RunError};
use crate::workloads::{
    FlowEnd, Flows, FlowsConfig, Gate, LinkConfig, LocalConfig, MAX_FLOW_MESSAGE, Op,
};

/// When the time of flows begins to count: the endpoints have been exchanged by then.
pub(crate) fn epoch(bootstrap_latency: Span) -> Time {
    Time::ZERO + bootstrap_latency * 2
}

/// How a flow goes over the wire.
#[derive(Copy, Clone, Debug)]
pub(crate) struct FlowShape {
    /// Operation.
    pub op: Op,
    /// Queue pairs.
    pub qps: u64,
    /// Bytes of a message.
    pub message: u64,
}

/// The shape of flow `f` of program `index`.
pub(crate) fn flow_shape(point: &Point, index: usize, f: &Flow) -> FlowShape {
    let p = &point.scenario.program[index];
    let ring = p.flows.as_ref().is_some_and(|f| f.pattern == Pattern::RingAllreduce);
    let op = match p.op {
        _ if ring => Op::WriteImm,
        format::Op::Send => Op::Send,
        format::Op::Read => Op::Read,
        _ => Op::Write,
    };
    let message = if ring { ring_step(p).1 } else { f.bytes.min(MAX_FLOW_MESSAGE) };
    FlowShape { op, qps: p.qps.value(), message }
}

impl Planner<'_> {
    /// One program on each host that has an end of a flow.
    pub(super) fn flows(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        let list = flows(self.point, index)?;
        let pattern = p.flows.as_ref().expect("checked when loaded").pattern;
        let op = flow_shape(self.point, index, &list[0]).op;
        let mut ends: BTreeMap<u32, Vec<FlowEnd>> = BTreeMap::new();
        for host in list.iter().flat_map(|f| [f.src, f.dst]) {
            ends.entry(host).or_default();
        }
        let rank: BTreeMap<u32, u32> = ends.keys().copied().zip(self.next()..).collect();
        for (flow, f) in (0..).zip(&list) {
            let poster = if op == Op::Read { f.dst } else { f.src };
            let message = flow_shape(self.point, index, f).message;
            for (host, other) in [(f.src, f.dst), (f.dst, f.src)] {
                let (peer, bytes, start) = (rank[&other], f.bytes, f.start);
                let posts = host == poster;
                let end = FlowEnd { flow, peer, bytes, message, start, posts, gate: None };
                ends.get_mut(&host).expect("entered above").push(end);
            }
        }
        if pattern == Pattern::RingAllreduce {
            ends.values_mut().for_each(|ends| gate(ends, p));
        }
        for (host, ends) in ends {
            let config = self.flows_config(index, p, op, ends)?;
            let posts = config.ends.iter().any(|e| e.posts);
            let role = if posts { Role::Sender } else { Role::Peer };
            let on = self.core((host, p.nic.value() as u8), None, PollMode::Busy);
            self.add((index, host, role), on, Flows::new(config).into())?;
        }
        Ok(())
    }

    fn flows_config(
        &self,
        index: usize,
        p: &Program,
        op: Op,
        ends: Vec<FlowEnd>,
    ) -> Result<FlowsConfig, RunError> {
        let (nic, qps) = (&self.point.profile.nic, p.qps.value());
        let pairs = ends.len() as u64 * qps;
        if pairs > nic.max_qp {
            let text = format!("{pairs} queue pairs on one host, the profile has {}", nic.max_qp);
            let help = "fewer flows or `qps`, or raise \"nic.max_qp\" in [settings]";
            return Err(bad(index, "flows", text, help));
        }
        let link = self.link(index, p, 0)?;
        let depth = |e: &FlowEnd| {
            let each = e.bytes.div_ceil(qps).div_ceil(e.message);
            qps * each.min(u64::from(link.size.max_send_wr.max(link.size.max_recv_wr)))
        };
        let outstanding: u64 = ends.iter().map(depth).sum();
        let largest = ends.iter().map(|e| e.message.min(e.bytes)).max().unwrap_or(1);
        let cq_depth = outstanding.clamp(1, nic.max_cq_depth) as u32;
        Ok(FlowsConfig {
            local: LocalConfig {
                memory: MemKind::Host { numa: self.near(p.nic.value() as u8) },
                contents: Contents::Virtual,
                region_bytes: largest,
                cq_depth,
                ..LocalConfig::default()
            },
            link: LinkConfig { deadline: Span::from_ms(1000), ..link },
            op,
            epoch: epoch(self.point.profile.port.bootstrap_latency),
            ends,
        })
    }
}

/// A host of a ring passes on what comes from its neighbour: the messages of one step go at once,
/// each later one when the one a step before has come.
fn gate(ends: &mut [FlowEnd], p: &Program) {
    let behind = ends.iter().position(|e| !e.posts).expect("a ring comes back");
    let (lead, _) = ring_step(p);
    for end in ends.iter_mut().filter(|e| e.posts) {
        end.gate = Some(Gate { behind, lead });
    }
}
