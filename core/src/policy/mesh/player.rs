//! Members of a group on the ideal back end, with everything that can go wrong: for the tests of
//! the policies that meet in one.

use std::boxed::Box;
use std::fmt::Debug;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::Mesh;
pub use super::rig::Forgery;
use super::rig::Rig;
use crate::ideal::{Ideal, Step, run};
use crate::policy::aggregate::{AggregateError, Progress};
use crate::transport::{Control, Next, Program, QpAttr, Range, WaitSet};
use crate::units::{Span, Time};
use crate::verbs::{QpAttrMask, QpState};

/// What members of a group do together, round by round.
pub trait Party {
    /// One member's policy.
    type Policy;
    /// What it says that it has done.
    type Stats: Copy + Debug + Default;
    /// Rules of its own that it may break.
    type Slip: Copy + Debug;

    fn open<T: Control>(&self, t: &mut T) -> Result<Self::Policy, AggregateError>;
    fn connect<T: Control>(p: &mut Self::Policy, t: &mut T) -> Result<Progress, AggregateError>;
    fn begin(p: &mut Self::Policy, now: Time) -> Result<(), AggregateError>;
    fn step<T: Control>(p: &mut Self::Policy, t: &mut T) -> Result<Progress, AggregateError>;
    fn stats(p: &Self::Policy) -> Self::Stats;
    fn mesh(p: &Self::Policy) -> &Mesh;
    /// Where a round's bytes go before it begins, and where they are when it is complete.
    fn memory(p: &Self::Policy) -> (Range, Range);
    fn slip(p: &mut Self::Policy, slip: Self::Slip);
    /// What a member has for a round.
    fn bytes(&self, rank: u32, round: u64) -> Vec<u8>;
    /// How long a round, and the exchange of endpoints, may take.
    fn deadlines(&self) -> (Span, Span);
}

/// What goes wrong at one member, at its step of the given number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault<S> {
    /// It stops for good.
    Dies(u32),
    /// So does its host: nobody confirms what comes.
    Vanishes(u32),
    /// It sleeps, then goes on.
    Sleeps(u32, Span),
    /// One of its queue pairs goes to ERR.
    QpError(u32, usize),
    /// Its message of that number is another one.
    Forges(u32, Forgery),
    /// It breaks a rule of its policy.
    Slips(u32, S),
}

/// One member and what became of it.
pub struct Member<P: Party> {
    pub party: P,
    pub rounds: u64,
    pub fault: Option<Fault<P::Slip>>,
    /// Steps in which it does nothing are drawn from here.
    pub lazy: u64,
    pub state: Option<P::Policy>,
    steps: u32,
    /// When each round began.
    pub began: Vec<Time>,
    /// What complete rounds have brought.
    pub got: Vec<Vec<u8>>,
    pub end: Option<(Time, Result<P::Stats, AggregateError>)>,
}

/// Later than every deadline.
pub const NEVER: Span = Span::from_ms(1_000_000);

impl<P: Party> Member<P> {
    pub fn new(party: P, rounds: u64) -> Self {
        let (began, got) = (vec![], vec![]);
        let (fault, state, end) = (None, None, None);
        Self { party, rounds, fault, lazy: 0, state, steps: 0, began, got, end }
    }

    /// The fault of this step; what to return instead of working, if anything.
    fn misbehave<T: Control>(&mut self, t: &mut T) -> Option<Next> {
        let now = t.now();
        let sleep = |span| Some(Next::Wait { on: WaitSet::EMPTY, until: Some(now + span) });
        match self.fault {
            Some(Fault::Dies(at)) if self.steps > at => return sleep(NEVER),
            Some(Fault::Vanishes(at)) if self.steps > at => {
                self.state.iter().for_each(|p| silence(t, P::mesh(p)));
                return sleep(NEVER);
            }
            Some(Fault::Sleeps(at, span)) if self.steps == at => return sleep(span),
            Some(Fault::QpError(at, which)) if self.steps == at => {
                let channels = &P::mesh(self.state.as_ref()?).channels;
                let qp = channels.get(which % channels.len().max(1))?.qp;
                let attr = QpAttr { state: QpState::Err, ..Default::default() };
                // From RESET there is no way there.
                let _refused = t.modify_qp(qp, &attr, QpAttrMask::STATE);
            }
            Some(Fault::Slips(at, slip)) if self.steps == at => P::slip(self.state.as_mut()?, slip),
            _ => {}
        }
        None
    }

    /// Works, and forges a message if it is the one.
    fn forge<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
        let Some(Fault::Forges(left, forgery)) = self.fault else { return self.run(t) };
        let mut forger = Some((left, forgery));
        let end = self.run(&mut Rig { t, forger: &mut forger });
        self.fault = forger.map(|(left, forgery)| Fault::Forges(left, forgery));
        end
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
        let state = match &mut self.state {
            Some(state) => state,
            None => self.state.insert(self.party.open(t)?),
        };
        if self.began.is_empty()
            && let Some(next) = P::connect(state, t)?.next()
        {
            return Ok(Some(next));
        }
        if self.began.len() == self.got.len() {
            let round = self.began.len() as u64;
            if round == self.rounds {
                return Ok(None);
            }
            t.copy_in(P::memory(state).0, &self.party.bytes(t.rank(), round))?;
            P::begin(state, t.now())?;
            // Who has no peers is done when it begins.
            let busy = !P::mesh(state).channels.is_empty();
            assert!(!busy || P::begin(state, t.now()) == Err(AggregateError::Busy), "two at once");
            self.began.push(t.now());
        }
        let next = P::step(state, t)?.next();
        if next.is_none() {
            assert!(P::mesh(state).is_idle(), "complete, and a work request names the memory");
            let result = P::memory(state).1;
            let mut got = vec![0; result.len as usize];
            t.copy_out(result, &mut got)?;
            self.got.push(got);
        }
        Ok(next.or(Some(Next::Again)))
    }
}

impl<P: Party> Program for Member<P> {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let dead = |at| self.steps > at && t.now() >= Time::ZERO + NEVER;
        if matches!(self.fault, Some(Fault::Dies(at) | Fault::Vanishes(at)) if dead(at)) {
            return Next::Done;
        }
        self.steps += 1;
        if let Some(next) = self.misbehave(t) {
            return next;
        }
        // A linear congruence decides who is faster in this step.
        self.lazy = self.lazy.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.lazy & 1);
        if self.lazy >> 62 == 1 {
            return Next::Again;
        }
        match self.forge(t) {
            Ok(Some(next)) => next,
            end => {
                let stats = self.state.as_ref().map(P::stats).unwrap_or_default();
                self.end = Some((t.now(), end.map(|_| stats)));
                Next::Done
            }
        }
    }
}

/// From now on nobody confirms what comes to a member.
pub fn silence<T: Control>(t: &mut T, mesh: &Mesh) {
    let attr = QpAttr { state: QpState::Reset, ..Default::default() };
    for c in &mesh.channels {
        t.modify_qp(c.qp, &attr, QpAttrMask::STATE).expect("RESET is near from everywhere");
    }
}

/// Each member is fast and slow at steps of its own.
pub fn make_lazy<P: Party>(members: &mut [Member<P>], lazy: u64) {
    (0..).zip(members).for_each(|(m, member)| member.lazy = lazy.wrapping_add(m) | 1);
}

/// Runs programs, one per rank, to their ends.
pub fn run_all<P: Program>(all: &mut [P]) {
    let mut ideal = Ideal::new(all.len());
    let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|m| m as &mut dyn Step).collect();
    run(&mut ideal, &mut steps).unwrap_or_else(|e| panic!("{e}"));
}

/// What became of each member.
pub fn ends<P: Party>(members: &[Member<P>]) -> Vec<Result<(), AggregateError>> {
    members.iter().map(|m| m.end.map_or(Ok(()), |(_, end)| end.map(|_| ()))).collect()
}

/// What a member that had no error says that it has done.
pub fn stats<P: Party>(members: &[Member<P>], rank: usize) -> P::Stats {
    members[rank].end.unwrap().1.unwrap()
}

/// Every member has completed every round.
pub fn all_done<P: Party>(members: &[Member<P>]) {
    for (rank, m) in members.iter().enumerate() {
        let (_, end) = m.end.expect("it ended");
        assert!(end.is_ok(), "rank {rank}: {}", end.unwrap_err());
        assert_eq!(m.got.len() as u64, m.rounds);
    }
}

/// No survivor ends without a word, or later than it may.
pub fn all_end_in_time<P: Party>(members: &[Member<P>]) {
    for (rank, m) in members.iter().enumerate() {
        let dead = matches!(m.fault, Some(Fault::Dies(_) | Fault::Vanishes(_)));
        let Some((at, end)) = m.end else {
            assert!(dead, "rank {rank} ended without a word");
            continue;
        };
        assert_eq!(end.is_ok(), m.got.len() as u64 == m.rounds, "rank {rank}: {end:?}");
        let slept = match m.fault {
            Some(Fault::Sleeps(_, span)) => span,
            _ => Span::ZERO,
        };
        let (of_round, to_connect) = m.party.deadlines();
        let bound = match m.began.last() {
            Some(began) => *began + of_round,
            None => Time::ZERO + to_connect,
        };
        assert!(at <= bound + slept, "rank {rank} ended at {at}, bound {bound}");
    }
}

/// Boxed, so that a strategy can hold it.
pub fn any_fault<S: Copy + Debug + 'static>() -> BoxedStrategy<Fault<S>> {
    let forgery = prop_oneof![
        (1_u32..4).prop_map(Forgery::Earlier),
        (1_u32..4).prop_map(Forgery::Later),
        Just(Forgery::Short(8)),
        Just(Forgery::Unknown),
    ];
    Box::new(prop_oneof![
        (0_u32..60).prop_map(Fault::Dies),
        (0_u32..60).prop_map(Fault::Vanishes),
        (0_u32..60, 1_u64..2_000).prop_map(|(at, ms)| Fault::Sleeps(at, Span::from_ms(ms))),
        (0_u32..60, 0_usize..8).prop_map(|(at, which)| Fault::QpError(at, which)),
        (0_u32..40, forgery).prop_map(|(at, forgery)| Fault::Forges(at, forgery)),
    ])
    .boxed()
}
