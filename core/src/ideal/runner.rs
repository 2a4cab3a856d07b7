//! Runs several programs on one ideal fabric.

use alloc::vec::Vec;
use core::fmt;

use super::handle::Handle;
use super::state::{Cqe, Ideal};
use crate::transport::{Next, Program, WaitSet};
use crate::units::Time;

/// A program as the ideal runner sees it, so that programs of different types run together.
pub trait Step {
    /// One step.
    fn step(&mut self, t: &mut Handle<'_>) -> Next;
}

impl<P: Program> Step for P {
    fn step(&mut self, t: &mut Handle<'_>) -> Next {
        Program::step(self, t)
    }
}

/// A rank that had not finished.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// Which.
    pub rank: u32,
    /// What it wanted last.
    pub next: Next,
}

/// A run that did not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stalled {
    /// Nothing can become ready any more.
    NoProgress {
        /// Who waits.
        waiting: Vec<Blocked>,
        /// Work requests that were staged and never rung.
        unrung: usize,
        /// Work requests that were rung and wait for a receive or for the peer's state.
        blocked: usize,
    },
    /// A program waits for a completion queue that it has not polled to empty in the same step:
    /// with another back end it could sleep on a completion that is already there.
    Unpolled {
        /// Which program.
        rank: u32,
        /// Index of the queue among those of its handle.
        cq: u32,
    },
    /// The budget of steps is used up: a program that spins, or a budget that is too small.
    Budget {
        /// Steps that were made.
        steps: u64,
        /// Who had not finished.
        waiting: Vec<Blocked>,
    },
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = match self {
            Self::Unpolled { rank, cq } => {
                return write!(f, "rank {rank} waits for its queue {cq} and has not emptied it");
            }
            Self::NoProgress { waiting, unrung, blocked } => {
                write!(f, "no progress: {unrung} WQEs staged and not rung, ")?;
                write!(f, "{blocked} rung and blocked; waiting:")?;
                waiting
            }
            Self::Budget { steps, waiting } => {
                write!(f, "not finished after {steps} steps; running:")?;
                waiting
            }
        };
        waiting.iter().try_for_each(|b| match b.next {
            Next::Again => write!(f, " rank {} (runs)", b.rank),
            Next::Wait { on, until: None } => write!(f, " rank {} (for {on})", b.rank),
            Next::Wait { on, until: Some(until) } => {
                write!(f, " rank {} (for {on}, until {until})", b.rank)
            }
            Next::Done => write!(f, " rank {} (done)", b.rank),
        })
    }
}

impl core::error::Error for Stalled {}

/// Steps that [`run`] allows.
const BUDGET: u64 = 10_000_000;

/// Steps the programs round-robin, program `i` as rank `i`, until each has returned `Done`.
///
/// When none is ready the clock jumps to the earliest deadline.
///
/// # Errors
/// [`Stalled`]: nothing can become ready, a wait breaks the rules, or ten million steps did not
/// suffice.
///
/// # Panics
/// When the fabric has another number of ranks.
pub fn run(w: &mut Ideal, programs: &mut [&mut dyn Step]) -> Result<(), Stalled> {
    run_bounded(w, programs, BUDGET)
}

/// [`run`] with a budget of steps of all programs together.
///
/// # Errors
/// See [`run`].
///
/// # Panics
/// See [`run`].
pub fn run_bounded(
    w: &mut Ideal,
    programs: &mut [&mut dyn Step],
    budget: u64,
) -> Result<(), Stalled> {
    assert_eq!(programs.len(), w.ranks.len(), "one program per rank");
    let mut next = alloc::vec![Next::Again; programs.len()];
    (0..programs.len()).for_each(|rank| w.set_ended(rank, false));
    let mut steps = 0;
    loop {
        let mut stepped = false;
        for (rank, program) in programs.iter_mut().enumerate() {
            if !is_ready(w, rank, next[rank]) {
                continue;
            }
            if steps == budget {
                return Err(Stalled::Budget { steps, waiting: unfinished(&next) });
            }
            steps += 1;
            stepped = true;
            w.ranks[rank].ready = WaitSet::EMPTY;
            w.ranks[rank].polled = 0;
            next[rank] = program.step(&mut w.at(rank));
            if next[rank] == Next::Done {
                w.set_ended(rank, true);
            }
            if let Some(cq) = unpolled(w, rank, next[rank]) {
                return Err(Stalled::Unpolled { rank: rank as u32, cq });
            }
        }
        if next.iter().all(|n| *n == Next::Done) {
            return Ok(());
        }
        if stepped {
            continue;
        }
        match next.iter().filter_map(deadline).min() {
            Some(t) => w.now = w.now.max(t),
            None => {
                let waiting = unfinished(&next);
                let (unrung, blocked) = (w.unrung(), w.blocked());
                return Err(Stalled::NoProgress { waiting, unrung, blocked });
            }
        }
    }
}

fn is_ready(w: &Ideal, rank: usize, next: Next) -> bool {
    let Next::Wait { on, until } = next else { return next == Next::Again };
    let r = &w.ranks[rank];
    let completed = on.cq_indices().any(|i| {
        r.cqs.get(i as usize).is_some_and(|&c| {
            let counts = |e: &Cqe| e.solicited || !on.only_solicited(i);
            w.cqs[c].lost || w.cqs[c].entries.iter().any(counts)
        })
    });
    let event = on.intersects(WaitSet::EVENTS) && !r.events.is_empty();
    completed || event || on.intersects(r.ready) || until.is_some_and(|t| t <= w.now)
}

/// A queue that is waited for and was not polled to empty.
fn unpolled(w: &Ideal, rank: usize, next: Next) -> Option<u32> {
    let Next::Wait { on, .. } = next else { return None };
    let polled = w.ranks[rank].polled;
    on.cq_indices().find(|i| polled >> i & 1 == 0)
}

fn deadline(next: &Next) -> Option<Time> {
    match next {
        Next::Wait { until, .. } => *until,
        _ => None,
    }
}

fn unfinished(next: &[Next]) -> Vec<Blocked> {
    let running = (0..).zip(next).filter(|(_, n)| **n != Next::Done);
    running.map(|(rank, &next)| Blocked { rank, next }).collect()
}
