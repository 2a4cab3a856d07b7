//! A workload with what a run of several processes needs around it: before, all ranks make sure
//! that they run the same; after, nobody leaves before everybody is done, since a queue pair that
//! is gone answers no packet that has to be sent again.

use doorbell_core::transport::{
    Control, LookupError, Next, PostRecvCause, Program, RingCause, WaitSet,
};
use doorbell_core::units::{Span, Time};

use crate::workloads::{Outcome, Results, Workload};

/// Keys of our own; those of the workloads begin with the number of their topic, which is small.
const TERMS: u64 = 0xF0 << 56;
const OVER: u64 = 0xF1 << 56;

/// Longest terms in bytes.
const MAX_TERMS: usize = 256;

/// How far a rank has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The ranks compare what they run.
    Agreeing,
    /// The workload runs.
    Working,
    /// The workload is done, others are not.
    Ending,
}

/// Why the ranks do not run together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Disagreement {
    /// Another rank runs something else.
    #[error("rank {rank} runs {theirs}, and this one {mine}")]
    Differs {
        /// Who.
        rank: u32,
        /// What it runs.
        theirs: String,
        /// What this one runs.
        mine: String,
    },
    /// A rank has ended without a word.
    #[error("{0}")]
    Gone(LookupError),
    /// A rank says nothing.
    #[error("rank {rank} did not say what it runs")]
    Silent {
        /// Who.
        rank: u32,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Agreed {
    workload: Workload,
    /// What all ranks must run, in words; `None`: the peer is a tool that knows no terms.
    terms: Option<String>,
    deadline: Span,
    phase: Phase,
    /// The rank that is looked at next.
    next: u32,
    began: Option<Time>,
    disagreement: Option<Disagreement>,
    /// Entries of the workload's log that were looked at.
    looked: usize,
    refused: Option<Refused>,
    /// Whether one that has failed waits for the others too.
    stays: bool,
}

/// A step of a script that the provider refused. What it posted can never complete, so nothing
/// that waits for it ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("step {line} of the script: {what}")]
pub(super) struct Refused {
    /// Number of the step, from 0.
    line: u32,
    /// The refusal.
    what: String,
    /// Its `errno`, if it had one.
    pub(super) errno: Option<i32>,
}

/// The refusal in an entry of a script's log, if it is the provider's. Those that a state of the
/// queue pair explains may be what the script shows.
fn refusal(line: u32, outcome: &Outcome) -> Option<Refused> {
    let (what, errno) = match outcome {
        Outcome::Rang(Err(e)) => match e.cause {
            RingCause::Os(errno) => (e.to_string(), Some(errno)),
            RingCause::Full | RingCause::Indeterminate => (e.to_string(), None),
            _ => return None,
        },
        Outcome::PostedRecv(n, Some(cause)) => match cause {
            PostRecvCause::Os(errno) => (format!("receive {n}: {cause:?}"), Some(*errno)),
            PostRecvCause::Indeterminate => (format!("receive {n}: {cause:?}"), None),
            _ => return None,
        },
        _ => return None,
    };
    Some(Refused { line, what, errno })
}

impl Agreed {
    /// A workload that has not started. The others have `deadline` to say what they run.
    pub(super) fn new(workload: Workload, terms: Option<String>, deadline: Span) -> Self {
        debug_assert!(terms.as_ref().is_none_or(|t| t.len() <= MAX_TERMS));
        let phase = if terms.is_some() { Phase::Agreeing } else { Phase::Working };
        Self {
            workload,
            terms,
            deadline,
            phase,
            next: 0,
            began: None,
            disagreement: None,
            looked: 0,
            refused: None,
            stays: false,
        }
    }

    /// A member of a group that knows what to do without another one. When it fails behind its
    /// first round it waits for the others as well: they end by themselves, and what it has told
    /// them with its last words would be lost with its queue pairs.
    pub(super) fn in_group(self, is: bool) -> Self {
        Self { stays: is, ..self }
    }

    /// How far it has come.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// What the workload measured.
    pub(super) fn results(&self) -> &Results {
        self.workload.results()
    }

    /// Why it never started.
    pub(super) fn disagreement(&self) -> Option<&Disagreement> {
        self.disagreement.as_ref()
    }

    /// The step that the provider refused.
    pub(super) fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Looks for a refusal in what the last step logged.
    fn look(&mut self) {
        let log = &self.workload.results().log;
        self.refused = log[self.looked..].iter().find_map(|e| refusal(e.line, &e.outcome));
        self.looked = log.len();
    }

    /// Compares with each rank in turn; `None` when all agree.
    fn agree<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Disagreement> {
        let mine = self.terms.as_deref().unwrap_or_default();
        let began = match self.began {
            Some(began) => began,
            None => {
                t.publish(TERMS, mine.as_bytes());
                *self.began.insert(t.now())
            }
        };
        while self.next < t.size() {
            let mut out = [0; MAX_TERMS];
            let got = t.lookup(self.next, TERMS, &mut out).map_err(Disagreement::Gone)?;
            let Some(len) = got else {
                let until = began + self.deadline;
                if t.now() >= until {
                    return Err(Disagreement::Silent { rank: self.next });
                }
                return Ok(Some(Next::Wait { on: WaitSet::BOOTSTRAP, until: Some(until) }));
            };
            let theirs = String::from_utf8_lossy(&out[..len.min(MAX_TERMS)]);
            if theirs != mine {
                let (theirs, mine) = (theirs.into_owned(), mine.to_owned());
                return Err(Disagreement::Differs { rank: self.next, theirs, mine });
            }
            self.next += 1;
        }
        Ok(None)
    }

    /// Waits until each rank is over, or gone: then it will ask for nothing any more.
    fn end<T: Control>(&mut self, t: &mut T) -> Next {
        while self.next < t.size() {
            if t.lookup(self.next, OVER, &mut []) == Ok(None) {
                // With a deadline this wait is no stall, however long the others take.
                let until = Some(t.now() + self.deadline);
                return Next::Wait { on: WaitSet::BOOTSTRAP, until };
            }
            self.next += 1;
        }
        Next::Done
    }
}

impl Program for Agreed {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if self.phase == Phase::Agreeing {
            match self.agree(t) {
                Ok(None) => self.phase = Phase::Working,
                Ok(Some(next)) => return next,
                Err(e) => {
                    self.disagreement = Some(e);
                    return Next::Done;
                }
            }
        }
        if self.phase == Phase::Working {
            let next = self.workload.step(t);
            self.look();
            if self.refused.is_some() {
                return Next::Done;
            }
            let results = self.workload.results();
            let stays = self.stays && results.first.is_some();
            let failed = results.failure.is_some() && !stays;
            if next != Next::Done || failed || self.terms.is_none() {
                return next;
            }
            t.publish(OVER, &[]);
            (self.phase, self.next) = (Phase::Ending, 0);
        }
        self.end(t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{Failure, PingPong, PingPongConfig, Summand, SummandConfig};
    use doorbell_core::ideal::{Ideal, run};
    use doorbell_core::policy::aggregate::{AggregateConfig, Plan};
    use std::sync::Arc;

    fn side(peer: u32, starts: bool, terms: Option<&str>) -> Agreed {
        let workload = PingPong::new(PingPongConfig::to(peer, starts)).into();
        Agreed::new(workload, terms.map(str::to_owned), Span::from_ms(1000))
    }

    #[test]
    fn ranks_that_agree_run_and_leave_together() {
        let (mut a, mut b) = (side(1, true, Some("x")), side(0, false, Some("x")));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        for side in [a, b] {
            assert_eq!((side.phase(), side.disagreement()), (Phase::Ending, None));
            assert_eq!(side.results().messages, 1016);
        }
    }

    #[test]
    fn who_runs_something_else_is_named_by_both() {
        let (mut a, mut b) = (side(1, true, Some("x")), side(0, false, Some("y")));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        let text = |side: &Agreed| side.disagreement().unwrap().to_string();
        assert_eq!(text(&a), "rank 1 runs y, and this one x");
        assert_eq!(text(&b), "rank 0 runs x, and this one y");
        assert_eq!((a.results().messages, a.phase()), (0, Phase::Agreeing));
    }

    /// Rank 1 joins its round a second late; rank 0 waits for a millisecond.
    fn member(late: Span, group: bool) -> Agreed {
        let ms = Span::from_ms;
        let base = AggregateConfig::default();
        let aggregate = AggregateConfig { bytes: 64, chunk_deadline: ms(1), ..base };
        let config = SummandConfig {
            aggregate,
            plan: Arc::new(Plan::direct(2, 1).unwrap()),
            rounds: 1,
            epoch: None,
            interval: None,
            late: vec![late],
            goes_on: false,
            training: None,
        };
        Agreed::new(Summand::new(config).into(), Some("x".to_owned()), ms(5000)).in_group(group)
    }

    #[test]
    fn a_member_that_has_failed_stays_until_the_others_have_heard() {
        for group in [true, false] {
            let (mut a, mut b) = (member(Span::ZERO, group), member(Span::from_ms(1000), group));
            run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
            let culprits = [&a, &b].map(|side| match &side.results().failure {
                Some(Failure::Aggregate(e)) => e.culprit(),
                other => panic!("{other:?}"),
            });
            // Both name the late one, which hears it and waits for nobody itself.
            assert_eq!(culprits, [Some(1), Some(1)]);
            let phase = if group { Phase::Ending } else { Phase::Working };
            assert_eq!([a.phase(), b.phase()], [phase; 2]);
        }
    }

    #[test]
    fn a_peer_without_terms_is_not_asked() {
        let (mut a, mut b) = (side(1, true, None), side(0, false, None));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        assert_eq!((a.phase(), b.results().messages), (Phase::Working, 1016));
    }
}
