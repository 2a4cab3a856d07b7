//! Members on the ideal back end: what comes, and what goes wrong.

mod faults;
mod rounds;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::ideal::{Ideal, Step, run};
use crate::transport::{Next, Program, QpAttr};
use crate::units::Span;
use crate::verbs::{QpAttrMask, QpState};

/// What goes wrong at one member, at its step of the given number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fault {
    /// It stops for good.
    Dies(u32),
    /// It sleeps, then goes on.
    Sleeps(u32, Span),
    /// One of its queue pairs goes to ERR.
    QpError(u32, usize),
    /// It believes that it has sent a message that it has not.
    Skips(u32),
    /// It begins a round before it may.
    Rushes(u32),
}

/// One member and what became of it.
struct Member {
    config: AllToAllConfig,
    schedule: Arc<Schedule>,
    rounds: u64,
    fault: Option<Fault>,
    /// Steps in which it does nothing are drawn from here.
    lazy: u64,
    state: Option<AllToAll>,
    steps: u32,
    began: Vec<Time>,
    /// Inboxes of complete rounds.
    got: Vec<Vec<u8>>,
    end: Option<(Time, Result<AllToAllStats, AggregateError>)>,
}

/// Later than every deadline.
const NEVER: Span = Span::from_ms(1_000_000);

/// Byte `at` of the outbox of a member in a round.
fn byte(member: u32, round: u64, at: u64) -> u8 {
    let x = (at ^ u64::from(member) << 40 ^ round << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes()[0]
}

impl Member {
    fn misbehave<T: Control>(&mut self, t: &mut T) -> Option<Next> {
        let sleep =
            |t: &T, span| Some(Next::Wait { on: WaitSet::EMPTY, until: Some(t.now() + span) });
        match self.fault {
            Some(Fault::Dies(at)) if self.steps > at => return sleep(t, NEVER),
            Some(Fault::Sleeps(at, span)) if self.steps == at => return sleep(t, span),
            Some(Fault::QpError(at, which)) if self.steps == at => {
                let channels = &self.state.as_ref()?.mesh.channels;
                let qp = channels.get(which % channels.len().max(1))?.qp;
                let attr = QpAttr { state: QpState::Err, ..Default::default() };
                // From RESET there is no way there.
                let _refused = t.modify_qp(qp, &attr, QpAttrMask::STATE);
            }
            Some(Fault::Skips(at)) if self.steps == at => {
                self.state.as_mut()?.peers.iter_mut().for_each(|p| {
                    p.sent = (p.sent + 1).min(p.out.len());
                });
            }
            Some(Fault::Rushes(at)) if self.steps == at => {
                let state = self.state.as_mut()?;
                state.rounds += 2;
                state.peers.iter_mut().for_each(|p| p.sent = 0);
            }
            _ => {}
        }
        None
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
        let state = match &mut self.state {
            Some(state) => state,
            None => self.state.insert(AllToAll::open(t, self.config, &self.schedule)?),
        };
        if self.began.is_empty()
            && let Some(next) = state.connect(t)?.next()
        {
            return Ok(Some(next));
        }
        if self.began.len() == self.got.len() {
            let round = self.began.len() as u64;
            if round == self.rounds {
                return Ok(None);
            }
            let me = t.rank();
            let bytes: Vec<u8> = (0..state.outbox().len).map(|at| byte(me, round, at)).collect();
            t.copy_in(state.outbox(), &bytes)?;
            state.begin(t.now())?;
            self.began.push(t.now());
        }
        match state.step(t)?.next() {
            Some(next) => Ok(Some(next)),
            None => {
                let mut got = vec![0; state.inbox().len as usize];
                t.copy_out(state.inbox(), &mut got)?;
                self.got.push(got);
                Ok(Some(Next::Again))
            }
        }
    }
}

impl Program for Member {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if matches!(self.fault, Some(Fault::Dies(at)) if self.steps > at)
            && t.now() >= Time::ZERO + NEVER
        {
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
        match self.run(t) {
            Ok(Some(next)) => next,
            end => {
                let stats = self.state.as_ref().map(AllToAll::stats).unwrap_or_default();
                self.end = Some((t.now(), end.map(|_| stats)));
                Next::Done
            }
        }
    }
}

fn members(exchange: &Exchange, chunk: u32, config: AllToAllConfig, rounds: u64) -> Vec<Member> {
    let schedule = Arc::new(Schedule::new(exchange, chunk));
    let member = |_| Member {
        config,
        schedule: schedule.clone(),
        rounds,
        fault: None,
        lazy: 0,
        state: None,
        steps: 0,
        began: vec![],
        got: vec![],
        end: None,
    };
    (0..exchange.members()).map(member).collect()
}

fn run_all(members: &mut [Member]) {
    let mut ideal = Ideal::new(members.len());
    let mut steps: Vec<&mut dyn Step> = members.iter_mut().map(|m| m as &mut dyn Step).collect();
    run(&mut ideal, &mut steps).unwrap_or_else(|e| panic!("{e}"));
}

/// What each member is to have, by the book: whose bytes, and how often.
fn book(exchange: &Exchange) -> Vec<BTreeMap<(u32, u64, u64), u32>> {
    let mut all = vec![BTreeMap::new(); exchange.members() as usize];
    for p in exchange.parcels() {
        for s in exchange.slices(p) {
            let what = (p.from, p.outbox + s.offset, s.bytes);
            *all[s.to as usize].entry(what).or_default() += 1;
        }
    }
    all
}

/// All that complete rounds have brought is what the book says, bit by bit and once.
fn check(exchange: &Exchange, members: &[Member]) {
    let book = book(exchange);
    for (rank, m) in members.iter().enumerate() {
        let arrivals = m.schedule.arrivals(rank as u32);
        let mut listed = BTreeMap::new();
        for a in arrivals {
            *listed.entry((a.from, a.outbox, a.bytes)).or_default() += 1;
        }
        assert_eq!(listed, book[rank], "rank {rank}");
        for (round, got) in m.got.iter().enumerate() {
            for a in arrivals {
                let bytes = &got[a.inbox as usize..(a.inbox + a.bytes) as usize];
                let right =
                    |(n, b): (usize, &u8)| *b == byte(a.from, round as u64, a.outbox + n as u64);
                assert!(bytes.iter().enumerate().all(right), "rank {rank}, round {round}: {a:?}");
            }
        }
    }
}

/// Boxed, so that a strategy can hold it.
fn any_exchange() -> proptest::strategy::BoxedStrategy<Exchange> {
    use proptest::prelude::*;
    let route = || prop_oneof![1 => Just(Route::Direct), 2 => Just(Route::TwoHop)];
    let places = || proptest::collection::vec(0_u32..3, 2..8);
    let counts = (places(), route(), proptest::collection::vec(0_u64..40, 49));
    let counts = counts.prop_map(|(places, route, counts)| {
        let n = places.len() * places.len();
        Exchange::by_counts(&places, &counts[..n], route).unwrap()
    });
    let token = (0_u32..8, proptest::collection::vec(0_u32..8, 0..5), 1_u64..30);
    let tokens = (places(), route(), proptest::collection::vec(token, 0..12));
    let tokens = tokens.prop_map(|(places, route, tokens)| {
        let n = places.len() as u32;
        let mut e = Exchange::new(&places, route).unwrap();
        for (from, to, bytes) in tokens {
            let to: Vec<u32> = to.iter().map(|m| m % n).collect();
            e.token(from % n, &to, bytes).unwrap();
        }
        e
    });
    Box::new(prop_oneof![counts, tokens]).boxed()
}

fn any_config() -> proptest::strategy::BoxedStrategy<(AllToAllConfig, u32)> {
    use proptest::prelude::*;
    (1_u32..5, 1_u32..4, 1_u32..50)
        .prop_map(|(gather, window, chunk)| {
            (AllToAllConfig { gather, window, ..AllToAllConfig::default() }, chunk)
        })
        .boxed()
}
