//! Contradictions of `kind = "aggregate"`.

use doorbell_core::policy::aggregate::MAX_CHUNKS;
use doorbell_core::units::Bytes;

use super::check::{Checked, check_reliable, refuse};
use super::check_hosts::check_members;
use super::{Adder, Aggregate, AggregatePlan, Initiator, Memory, Op, Program, Scenario, SumOrder};
use crate::profile::Profile;
use crate::quantity::Unit;

/// Refuses aggregations that cannot be.
pub(super) fn check_aggregate(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    path: impl Fn(&str) -> String,
) -> Checked {
    let Some(a) = &p.aggregate else {
        let help = "write for example aggregate = { plan = \"two-hop\" }";
        return refuse(path("kind"), "an aggregation without a table `aggregate`".to_owned(), help);
    };
    check_members(s, profile, p, "a sum of one vector", &path)?;
    check_reliable(s, "an aggregation is")?;
    if s.srq.is_some() {
        let text = "an aggregation has shared receive queues of its own".to_owned();
        return refuse("srq", text, "leave [srq] out; `aggregate.pool` is their depth");
    }
    check_adder(p, a, &path)?;
    check_training(p, a, &path)?;
    check_plan(p, a, &path)?;
    check_bytes(p, a, &path)?;
    check_sparse(p, a, &path)?;
    check_method(s, p, a, &path)
}

/// Who adds has the memory, and knows what has come.
fn check_adder(p: &Program, a: &Aggregate, path: &impl Fn(&str) -> String) -> Checked {
    let (by_gpu, in_gpu) = (p.initiator == Initiator::Gpu, p.memory == Memory::Gpu);
    if by_gpu && !in_gpu {
        let text = "a GPU that adds in host memory".to_owned();
        return refuse(path("memory"), text, "write `memory = \"gpu\"`");
    }
    match a.reduce_on {
        Some(Adder::Gpu) if !in_gpu => {
            let text = "`reduce_on = \"gpu\"`, and the vectors are in host memory".to_owned();
            refuse(path("aggregate.reduce_on"), text, "write `memory = \"gpu\"`")
        }
        Some(Adder::Cpu) if by_gpu => {
            let text = "`reduce_on = \"cpu\"`, and a GPU polls".to_owned();
            refuse(path("aggregate.reduce_on"), text, "write `initiator = \"cpu\"`")
        }
        Some(Adder::Cpu) if in_gpu => {
            let text = "`reduce_on = \"cpu\"`, and the vectors are in a GPU's memory".to_owned();
            refuse(path("aggregate.reduce_on"), text, "write `memory = \"host\"`")
        }
        _ => Ok(()),
    }
}

/// Most bytes of sums that are kept to compare with.
const MAX_SUMS: Bytes = Bytes(256 << 20);

/// Sparse vectors cannot be added on the way: only some plans and keys have a meaning.
fn check_sparse(p: &Program, a: &Aggregate, path: &impl Fn(&str) -> String) -> Checked {
    let Some(top) = a.top_k.map(|k| k.value()) else { return Ok(()) };
    let elements = p.size.0.0 / a.element.arithmetic().element_bytes();
    if top > elements {
        let text = format!("the largest {top} of {elements} elements");
        return refuse(path("aggregate.top_k"), text, "at most all elements of `size`");
    }
    if !matches!(a.plan, AggregatePlan::Direct | AggregatePlan::TwoHop) {
        let text = format!("sparse vectors in the plan `{}`", a.plan.word());
        return refuse(path("aggregate.plan"), text, "`direct` or `two-hop`");
    }
    let given = [
        ("op", p.op != Op::Write, "write `op = \"write\"`"),
        ("aggregate.aggregators", a.aggregators.value() > 1, "leave it out: all hosts add"),
        ("aggregate.lanes", a.lanes.is_some(), "leave it out: all hosts add"),
        ("aggregate.order", a.order != SumOrder::Fixed, "leave it out: ranks are in order"),
        ("aggregate.broadcast", !a.broadcast, "leave it out: all hosts get all vectors"),
        ("aggregate.training", a.training.is_some(), "leave it out, or `top_k`"),
        ("aggregate.goes_on", a.goes_on, "leave it out, or `top_k`"),
        ("initiator", p.initiator != Initiator::Cpu, "write `initiator = \"cpu\"`"),
        ("memory", p.memory == Memory::Gpu, "write `memory = \"host\"`: a core chooses"),
    ];
    if let Some((key, _, help)) = given.iter().find(|(_, given, _)| *given) {
        let word = key.rsplit('.').next().unwrap_or(key);
        let text = format!("`{word}` has no such use with `top_k`");
        return refuse(path(key), text, *help);
    }
    let all = u128::from(p.size.0.0) * u128::from(p.iterations.value());
    if all > u128::from(MAX_SUMS.0) {
        let text = format!("{all} B of sums to compare with");
        let help = format!("`iterations` times `size` of at most {}", MAX_SUMS.print());
        return refuse(path("iterations"), text, help);
    }
    Ok(())
}

/// Most rounds of a program.
const MAX_ROUNDS: u64 = u32::MAX as u64;

/// Training steps have a clock of their own, and every host needs the sum.
fn check_training(p: &Program, a: &Aggregate, path: &impl Fn(&str) -> String) -> Checked {
    let Some(training) = &a.training else { return Ok(()) };
    if p.interval.is_some() {
        let text = "`interval` beside `training`, which says when its buckets are ready".to_owned();
        return refuse(path("interval"), text, "leave one of them out");
    }
    if !a.broadcast {
        let text = "a training step in which only the root has the sum".to_owned();
        return refuse(path("aggregate.broadcast"), text, "leave it out, or `training`");
    }
    let rounds = p.iterations.value() * training.buckets.value();
    if rounds > MAX_ROUNDS {
        let text = format!("{rounds} sums, and {MAX_ROUNDS} can be numbered");
        return refuse(path("iterations"), text, "fewer steps or `buckets`");
    }
    Ok(())
}

/// Keys without a use in the plan.
fn check_plan(p: &Program, a: &Aggregate, path: &impl Fn(&str) -> String) -> Checked {
    let two_level = a.plan == AggregatePlan::TwoLevel;
    let grouped = two_level || a.plan == AggregatePlan::TwoHop;
    let given = [
        ("group", a.group.is_some() && !grouped),
        ("aggregators", a.aggregators.value() > 1 && !grouped),
        ("lanes", a.lanes.is_some() && a.plan == AggregatePlan::Ring),
        ("inside", a.inside.is_some() && !two_level),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
        let text = format!("`{key}` has no use in the plan `{}`", a.plan.word());
        return refuse(path(&format!("aggregate.{key}")), text, "leave it out");
    }
    let members = a.group.map_or(p.hosts.value(), |g| g.value());
    if a.aggregators.value() > members {
        let text = format!("{} aggregators in a group of {members}", a.aggregators.value());
        return refuse(path("aggregate.aggregators"), text, "at most all hosts of the group");
    }
    Ok(())
}

fn check_bytes(p: &Program, a: &Aggregate, path: &impl Fn(&str) -> String) -> Checked {
    let (size, chunk, bytes) = (p.size.0, a.chunk.0, a.element.arithmetic().element_bytes());
    if size.0 == 0 || !size.0.is_multiple_of(bytes) {
        let text = format!("a vector of {}", size.print());
        return refuse(path("size"), text, format!("a multiple of {bytes}B, above 0"));
    }
    if !chunk.0.is_multiple_of(8) || chunk > Bytes(1 << 30) {
        let text = format!("a `chunk` of {}", chunk.print());
        return refuse(path("aggregate.chunk"), text, "a multiple of 8B, at most 1GiB");
    }
    let chunks = size.0.div_ceil(chunk.0);
    if chunks > MAX_CHUNKS {
        let text = format!("{chunks} chunks, and {MAX_CHUNKS} can be numbered");
        return refuse(path("aggregate.chunk"), text, "larger chunks");
    }
    Ok(())
}

fn check_method(
    s: &Scenario,
    p: &Program,
    a: &Aggregate,
    path: &impl Fn(&str) -> String,
) -> Checked {
    if !matches!(p.op, Op::Write | Op::Send | Op::Read) {
        let text = format!("an aggregation by `{}`", p.op.word());
        return refuse(path("op"), text, "`write`, `send` or `read`");
    }
    if p.op != Op::Send && a.pool.is_some() {
        let text = format!("a `pool` for `{}`, which has a slot for each", p.op.word());
        return refuse(path("aggregate.pool"), text, "leave it out, or write `op = \"send\"`");
    }
    if a.order == SumOrder::Fixed && a.pool.is_some() {
        let text =
            "a `pool` with `order = \"fixed\"`: what is early keeps its buffer, and what is \
                    due may find none"
                .to_owned();
        return refuse(path("aggregate.pool"), text, "write `order = \"arrival\"`");
    }
    let depth = s.qp.max_rd_atomic.value().min(s.qp.max_dest_rd_atomic.value());
    if p.op == Op::Read && depth == 0 {
        let text = "`read` with no READ allowed outstanding".to_owned();
        let help = "raise `qp.max_rd_atomic` and `qp.max_dest_rd_atomic`";
        return refuse(path("op"), text, help);
    }
    Ok(())
}
