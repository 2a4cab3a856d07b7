//! Members of a sum of sparse vectors, and what each of them is told.

use std::sync::Arc;

use doorbell_core::policy::aggregate::sparse::SparseConfig;
use doorbell_core::policy::alltoall::{AllToAllConfig, Route};
use doorbell_core::units::Span;

use super::aggregate::places_of;
use super::{Planner, Role, bad};
use crate::format::{Aggregate, AggregatePlan, Program};
use crate::run::RunError;
use crate::workloads::{SparseSummand, SparseSummandConfig, sums_by_the_book};

/// The sum, without how its messages travel.
pub(crate) fn sparse_of(p: &Program, a: &Aggregate, entries: u64) -> SparseConfig {
    let op = a.element.arithmetic();
    SparseConfig {
        exchange: AllToAllConfig::default(),
        op,
        elements: p.size.0.0 / op.element_bytes(),
        entries: entries as u32,
    }
}

impl Planner<'_> {
    /// One program on each host of a sum of sparse vectors.
    pub(super) fn sparse_sum(
        &mut self,
        index: usize,
        p: &Program,
        (a, entries): (&Aggregate, u64),
    ) -> Result<(), RunError> {
        let (first, n, rounds) = (self.next(), p.hosts.value() as u32, p.iterations.value());
        let exchange = self.sparse_exchange(index, p, a, first)?;
        let sparse = SparseConfig { exchange, ..sparse_of(p, a, entries) };
        let place_of: Vec<u32> = match a.group {
            Some(size) => (0..n).map(|m| m / size.value() as u32).collect(),
            None => places_of(self.point, p)?,
        };
        let route = match a.plan {
            AggregatePlan::TwoHop => Route::TwoHop,
            _ => Route::Direct,
        };
        let schedule = sparse
            .schedule(&place_of, route, a.chunk.0.0 as u32)
            .map_err(|e| bad(index, "aggregate.top_k", e.to_string(), "lower it"))?;
        let right = sums_by_the_book(&sparse, n, rounds)
            .map_err(|e| bad(index, "aggregate.top_k", e.to_string(), "lower it"))?;
        let (schedule, right) = (Arc::new(schedule), Arc::new(right));
        let epoch = self.clock_of_rounds(p.size.0.0);
        for member in 0..n {
            let host = p.host.value() as u32 + member;
            let config = SparseSummandConfig {
                sparse,
                schedule: schedule.clone(),
                right: right.clone(),
                epoch,
                interval: p.interval.map(|i| i.0),
                late: self.late(index, rounds, a.jitter.0, member),
            };
            let on = self.initiator(index, p, (host, p.nic.value() as u8))?;
            self.add((index, host, Role::Sender), on, SparseSummand::new(config).into())?;
        }
        Ok(())
    }

    fn sparse_exchange(
        &self,
        index: usize,
        p: &Program,
        a: &Aggregate,
        first_rank: u32,
    ) -> Result<AllToAllConfig, RunError> {
        let (link, base) = (self.link(index, p, 0)?, AllToAllConfig::default());
        // A way has two hops at the most.
        let half = Span::from_ps(a.round_deadline.0.as_ps() / 2);
        Ok(AllToAllConfig {
            gather: base.gather.min(self.point.profile.nic.max_sge as u32),
            window: a.window.value() as u32,
            hop_deadline: a.chunk_deadline.0.min(half),
            connect_deadline: self.deadline,
            memory: self.memory(index, "memory", (p.nic.value() as u8, p.memory))?,
            queue_memory: link.queue_memory,
            attr: link.attr,
            path_mtu: link.path_mtu,
            first_rank,
            ..base
        })
    }
}
