//! From a pattern to a list of flows.
//!
//! Everything drawn comes from streams that are named after the program and the host, so that
//! another program, or one host more, moves nobody's draws.

mod poisson;

use doorbell_core::units::{BitRate, Span};
use doorbell_sim::engine::SimRng;

use super::{Point, RunError};
use crate::format::{Flows, Pattern, Program};
use crate::workloads::MAX_FLOW_MESSAGE;
use poisson::Gaps;

pub use crate::format::flow_file::MAX_FLOWS;

/// A transfer from one host to another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Host that has the bytes.
    pub src: u32,
    /// Host that gets them.
    pub dst: u32,
    /// How many.
    pub bytes: u64,
    /// When it starts, after the epoch.
    pub start: Span,
}

/// The flows of program `index`, by ascending start, those of one moment in the order of the list.
///
/// # Errors
/// When there are none, or more than [`MAX_FLOWS`].
pub fn flows(point: &Point, index: usize) -> Result<Vec<Flow>, RunError> {
    let p = &point.scenario.program[index];
    let f = p.flows.as_ref().expect("checked when loaded");
    let (first, n) = (p.host.value() as u32, p.hosts.value() as u32);
    let stream = |who: &str| {
        SimRng::stream(point.seed, &format!("program {index}"), &format!("flows {who}"))
    };
    let mut list = match f.pattern {
        Pattern::Trace => {
            let flow = |l: &crate::format::flow_file::FlowLine| {
                let start = Span::from_ps(l.start_ps);
                Flow { src: l.src, dst: l.dst, bytes: l.bytes, start }
            };
            f.lines.iter().map(flow).collect()
        }
        Pattern::Poisson => {
            let mut list = Vec::new();
            let (mean, rate) = (mean_bytes(p, f), link_rate(point));
            let load = f.load.expect("checked when loaded").0;
            let gaps = Gaps::new(mean, rate, load);
            for h in 0..n {
                let mut rng = stream(&format!("of host {}", first + h));
                poisson_of(p, f, (first, n, h), &gaps, &mut rng, &mut list);
                too_many(index, list.len())?;
            }
            list
        }
        pattern => {
            let pairs = pairs(pattern, p, &mut stream("permutation"));
            too_many(index, pairs.len())?;
            let bytes = match pattern {
                Pattern::RingAllreduce => ring_bytes(p),
                _ => p.size.0.0,
            };
            let at = |i: u64| f.stagger.0 * i;
            let flow = |(i, (src, dst))| Flow { src, dst, bytes, start: at(i) };
            (0..).zip(pairs).map(flow).collect()
        }
    };
    for flow in &mut list {
        flow.start += f.start.0;
    }
    list.sort_by_key(|flow| flow.start);
    if list.is_empty() {
        return Err(RunError::BadInput {
            path: format!("program.{index}.flows.duration"),
            message: "no flow starts in that time".into(),
            help: "raise `duration` or `load`".into(),
        });
    }
    Ok(list)
}

fn too_many(index: usize, n: usize) -> Result<(), RunError> {
    if n <= MAX_FLOWS {
        return Ok(());
    }
    Err(RunError::BadInput {
        path: format!("program.{index}.flows"),
        message: format!("more than {MAX_FLOWS} flows"),
        help: "take fewer hosts, or a shorter time".into(),
    })
}

/// Bytes that each host of a ring sends: a share in each of 2 (n - 1) steps.
fn ring_bytes(p: &Program) -> u64 {
    let (messages, bytes) = ring_step(p);
    messages * bytes * 2 * (p.hosts.value() - 1)
}

/// Messages of one step of a ring, and the bytes of each: the share of one host in chunks of like
/// size, both rounded up.
pub(super) fn ring_step(p: &Program) -> (u64, u64) {
    let share = p.size.0.0.div_ceil(p.hosts.value()).max(1);
    let chunk = p.flows.as_ref().and_then(|f| f.chunk).map_or(share, |c| c.0.0);
    let messages = share.div_ceil(chunk.min(MAX_FLOW_MESSAGE));
    (messages, share.div_ceil(messages))
}

/// Source and destination of each flow of a pattern.
fn pairs(pattern: Pattern, p: &Program, rng: &mut SimRng) -> Vec<(u32, u32)> {
    let (first, n) = (p.host.value() as u32, p.hosts.value() as u32);
    let hosts = first..first + n;
    match pattern {
        Pattern::Incast => hosts.map(|src| (src, p.peer.value() as u32)).collect(),
        Pattern::Permutation => {
            let to = derangement(n, rng);
            hosts.map(|src| (src, first + to[(src - first) as usize])).collect()
        }
        Pattern::AllToAll => {
            // In turns: in each, every host sends to another one.
            let turn = |k: u32| (0..n).map(move |h| (first + h, first + (h + k) % n));
            (1..n).flat_map(turn).collect()
        }
        Pattern::RingAllreduce => (0..n).map(|h| (first + h, first + (h + 1) % n)).collect(),
        Pattern::Poisson | Pattern::Trace => unreachable!("lists of their own"),
    }
}

/// A permutation of `0..n` without a fixed point, each as probable as any other: orders are drawn
/// until one has none, which takes e draws on average.
fn derangement(n: u32, rng: &mut SimRng) -> Vec<u32> {
    let mut to: Vec<u32> = (0..n).collect();
    while (0..).zip(&to).any(|(i, t)| i == *t) {
        rng.shuffle(&mut to);
    }
    to
}

fn mean_bytes(p: &Program, f: &Flows) -> u64 {
    f.cdf.as_ref().map_or(p.size.0.0, |cdf| cdf.mean())
}

/// Rate of a host's link.
fn link_rate(point: &Point) -> BitRate {
    point.scenario.topology.rate.map_or(point.profile.port.rate, |r| r.0)
}

/// Flows that host `h` of the `n` from `first` on starts.
fn poisson_of(
    p: &Program,
    f: &Flows,
    (first, n, h): (u32, u32, u32),
    gaps: &Gaps,
    rng: &mut SimRng,
    list: &mut Vec<Flow>,
) {
    let end = f.duration.expect("checked when loaded").0;
    let mut start = gaps.draw(rng);
    while start < end && list.len() <= MAX_FLOWS {
        let other = rng.below(u64::from(n) - 1) as u32;
        let dst = first + if other < h { other } else { other + 1 };
        let share = rng.below(1_000_000) as u32;
        let bytes = f.cdf.as_ref().map_or(p.size.0.0, |cdf| cdf.size(share));
        list.push(Flow { src: first + h, dst, bytes, start });
        start += gaps.draw(rng);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derangement_moves_everyone_and_all_are_drawn() {
        let mut rng = SimRng::stream(1, "test", "derangement");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..400 {
            let to = derangement(4, &mut rng);
            assert!((0..).zip(&to).all(|(i, t)| i != *t), "{to:?}");
            seen.insert(to);
        }
        assert_eq!(seen.len(), 9, "there are 9 derangements of 4");
        assert_eq!(derangement(2, &mut rng), [1, 0]);
    }

    fn program(hosts: u64) -> Program {
        let mut p = Program::of_kind(crate::format::ProgramKind::Flows);
        p.host = crate::quantity::Count::new(3).unwrap();
        p.hosts = crate::quantity::Count::new(hosts).unwrap();
        p.size.0.0 = 10;
        p
    }

    #[test]
    fn every_pair_once() {
        let mut rng = SimRng::stream(1, "test", "pairs");
        let p = program(5);
        let mut all = pairs(Pattern::AllToAll, &p, &mut rng);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20);
        assert!(all.iter().all(|(a, b)| a != b && (3..8).contains(a) && (3..8).contains(b)));
        let ring = pairs(Pattern::RingAllreduce, &p, &mut rng);
        assert_eq!(ring, [(3, 4), (4, 5), (5, 6), (6, 7), (7, 3)]);
        assert_eq!((ring_step(&p), ring_bytes(&p)), ((1, 2), 16));
    }
}
