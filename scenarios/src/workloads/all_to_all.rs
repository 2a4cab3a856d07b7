//! Members of an exchange: each fills its outbox, joins the round, and checks what has come. Where
//! sums come back it makes something of the tokens that have come, and checks those sums. None of
//! that takes time, and no copy of it is counted: it stands for an application and for its experts.
//!
//! What is measured is the time from the start of a round, by the clock of rounds, until the member
//! has all that is for it and all of its own has gone, there and back.

use std::sync::Arc;

use doorbell_core::policy::alltoall::{
    AggregateError, AllToAll, AllToAllConfig, AllToAllStats, Progress, RoundTrip, Schedule, Traffic,
};
use doorbell_core::transport::{Contents, Control, Next, Program, Range, WaitSet};
use doorbell_core::units::{Span, Time};

use super::common::{Failure, Results, Window, round_start};
use super::experts::Combine;

/// What one member has of an exchange, as planned: of all its tokens, also of those that do not
/// move in a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Tokens; 0 without.
    pub tokens: u64,
    /// Messages and bytes that begin with it, those of its relays included.
    pub traffic: Traffic,
    /// Those of the sums that come back to it.
    pub back: Traffic,
}

/// Configuration of an [`Exchanger`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangerConfig {
    /// The exchange.
    pub all_to_all: AllToAllConfig,
    /// What goes where; all members have the same.
    pub schedule: Arc<Schedule>,
    /// What comes back, if anything does; `all_to_all` has bytes then.
    pub combine: Option<Arc<Combine>>,
    /// What this member has of the plan.
    pub share: Share,
    /// Rounds.
    pub rounds: u64,
    /// When the first round starts; all have to be connected by then. `None`: each member has a
    /// clock of its own, which begins when it is connected.
    pub epoch: Option<Time>,
    /// Time from one round's start to the next one's; `None`: each member goes on when it is done.
    pub interval: Option<Span>,
}

/// What one member has exchanged.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Exchanged {
    /// Rounds that are complete.
    pub complete: u64,
    /// Complete rounds with a byte that is not the right one, where there are bytes.
    pub wrong: u64,
    /// Messages sent, those of them that pass something on, and their bytes.
    pub sent: u64,
    /// See `sent`.
    pub passed: u64,
    /// See `sent`.
    pub passed_bytes: u64,
    /// Sums that have come back, those of them that are wrong, and bytes that were added for sums.
    pub combined: u64,
    /// See `combined`.
    pub combined_wrong: u64,
    /// See `combined`.
    pub added_bytes: u64,
    /// What it has of the plan.
    pub share: Share,
}

/// Where a member stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Connecting,
    /// The outbox is full; the round has not begun.
    Ready,
    /// The round began then.
    Running(Time),
    Done,
}

/// One way, or there and back.
#[derive(Clone, Debug)]
enum Ways {
    There(Box<AllToAll>),
    Both(Box<RoundTrip>),
}

impl Ways {
    fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        match self {
            Self::There(one) => one.connect(t),
            Self::Both(trip) => trip.connect(t),
        }
    }

    fn begin(&mut self, now: Time) -> Result<(), AggregateError> {
        match self {
            Self::There(one) => one.begin(now),
            Self::Both(trip) => trip.begin(now),
        }
    }

    fn step<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        match self {
            Self::There(one) => one.step(t),
            Self::Both(trip) => trip.step(t),
        }
    }

    const fn there(&self) -> &AllToAll {
        match self {
            Self::There(one) => one,
            Self::Both(trip) => trip.there(),
        }
    }

    /// What was done both ways, and rings.
    fn done(&self) -> ([AllToAllStats; 2], u64) {
        match self {
            Self::There(one) => ([one.stats(), AllToAllStats::default()], one.rings()),
            Self::Both(trip) => {
                let ways = [trip.there(), trip.back()];
                (ways.map(AllToAll::stats), ways.iter().map(|w| w.rings()).sum())
            }
        }
    }
}

/// One member of an exchange. See the module.
#[derive(Clone, Debug)]
pub struct Exchanger {
    config: ExchangerConfig,
    stage: Stage,
    state: Option<Ways>,
    round: u64,
    /// Whether something of this round was wrong already.
    wrong: bool,
    results: Results,
}

impl Exchanger {
    /// A program that has not started.
    pub fn new(config: ExchangerConfig) -> Self {
        let exchanged = Exchanged { share: config.share, ..Exchanged::default() };
        let results = Results { exchanged: Some(exchanged), ..Results::default() };
        Self { config, stage: Stage::Start, state: None, round: 0, wrong: false, results }
    }

    /// What was measured.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        match self.stage {
            Stage::Start => {
                let c = &self.config;
                self.state = Some(match &c.combine {
                    None => Ways::There(Box::new(AllToAll::open(t, c.all_to_all, &c.schedule)?)),
                    Some(back) => {
                        let (there, back) = (&c.schedule, &back.schedule);
                        let trip = RoundTrip::open(t, c.all_to_all, there, back)?;
                        Ways::Both(Box::new(trip))
                    }
                });
                self.fill(t)?;
                self.stage = Stage::Connecting;
                Ok(Next::Again)
            }
            Stage::Connecting => {
                let next = self.state.as_mut().expect("opened").connect(t)?.next();
                if next.is_none() {
                    self.config.epoch.get_or_insert(t.now());
                    self.stage = Stage::Ready;
                }
                Ok(next.unwrap_or(Next::Again))
            }
            Stage::Ready => {
                let now = t.now();
                let epoch = self.config.epoch.expect("it is connected");
                let clock = (epoch, self.config.interval);
                let round = (self.round, Span::ZERO);
                let (from, _) = round_start(now, clock, round, self.results.last);
                if now < from {
                    return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(from) });
                }
                self.state.as_mut().expect("opened").begin(now)?;
                self.results.first.get_or_insert(from);
                self.stage = Stage::Running(from);
                self.go_on(t, from)
            }
            Stage::Running(from) => self.go_on(t, from),
            Stage::Done => Ok(Next::Done),
        }
    }

    fn go_on<T: Control>(&mut self, t: &mut T, from: Time) -> Result<Next, AggregateError> {
        let state = self.state.as_mut().expect("opened");
        if let Some(next) = state.step(t)?.next() {
            return Ok(next);
        }
        if self.turn(t)? {
            return Ok(Next::Again);
        }
        let now = t.now();
        self.results.sample(now.since(from), now);
        let wrong = self.is_wrong(t)?;
        let me = self.me(t);
        let came: u64 = self.config.schedule.arrivals(me).iter().map(|a| a.bytes).sum();
        let bytes = came + self.config.combine.as_ref().map_or(0, |back| back.bytes_of(me));
        self.sent();
        let r = &mut self.results;
        let done = r.exchanged.get_or_insert_default();
        done.complete += 1;
        done.wrong += u64::from(wrong);
        r.bytes += bytes;
        r.last = Some(now);
        let from = r.first.unwrap_or(from);
        r.window = Some(Window { from, to: now, messages: r.messages, bytes: r.bytes });
        self.round += 1;
        self.stage = Stage::Ready;
        if self.round == self.config.rounds {
            self.stage = Stage::Done;
        } else {
            self.fill(t)?;
        }
        Ok(Next::Again)
    }

    /// What it has sent so far, also of a round that is not complete.
    fn sent(&mut self) {
        let Some(state) = &self.state else { return };
        let (([there, back], rings), r) = (state.done(), &mut self.results);
        (r.messages, r.rings) = (there.sent + back.sent, rings);
        let done = r.exchanged.get_or_insert_default();
        done.sent = there.sent + back.sent;
        done.passed = there.passed + back.passed;
        done.passed_bytes = there.passed_bytes + back.passed_bytes;
        done.added_bytes = back.added_bytes;
    }

    fn me<T: Control>(&self, t: &T) -> u32 {
        t.rank() - self.config.all_to_all.first_rank
    }

    /// All has come that goes there: makes what goes back of it and turns; whether it has.
    fn turn<T: Control>(&mut self, t: &mut T) -> Result<bool, AggregateError> {
        let (Some(Ways::Both(trip)), Some(combine)) = (&self.state, &self.config.combine) else {
            return Ok(false);
        };
        if trip.has_turned() {
            return Ok(false);
        }
        let (me, back) = (self.me(t), trip.back().outbox());
        let inbox = read(t, trip.there().inbox())?;
        let wrong = self.has_wrong_bytes(me, &inbox);
        t.supply(back, &combine.make(me, &self.outbox_of(me), &inbox))?;
        self.wrong |= wrong;
        if let Some(Ways::Both(trip)) = &mut self.state {
            trip.turn(t.now())?;
        }
        Ok(true)
    }

    /// What a member has for others in this round.
    fn outbox_of(&self, member: u32) -> Vec<u8> {
        let bytes = 0..self.config.schedule.outbox_bytes(member);
        bytes.map(|at| byte(member, self.round, at)).collect()
    }

    /// Whether a byte that came is not the one that was sent.
    fn has_wrong_bytes(&self, member: u32, inbox: &[u8]) -> bool {
        self.config.schedule.arrivals(member).iter().any(|a| {
            let bytes = inbox[a.inbox as usize..(a.inbox + a.bytes) as usize].iter();
            (a.outbox..).zip(bytes).any(|(at, b)| *b != byte(a.from, self.round, at))
        })
    }

    fn has_bytes(&self) -> bool {
        self.config.all_to_all.contents == Contents::Data
    }

    /// Writes what this member has for others.
    fn fill<T: Control>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        if !self.has_bytes() {
            return Ok(());
        }
        let outbox = self.state.as_ref().expect("opened").there().outbox();
        let bytes = self.outbox_of(self.me(t));
        Ok(t.supply(outbox, &bytes)?)
    }

    /// Whether something of the round that is complete is wrong.
    fn is_wrong<T: Control>(&mut self, t: &mut T) -> Result<bool, AggregateError> {
        let (me, before) = (self.me(t), std::mem::take(&mut self.wrong));
        let state = self.state.as_ref().expect("opened");
        if let (Ways::Both(trip), Some(combine)) = (state, &self.config.combine) {
            let inbox = read(t, trip.back().inbox())?;
            let (sums, wrong) = combine.judge(me, &self.outbox_of(me), &inbox);
            let done = self.results.exchanged.get_or_insert_default();
            (done.combined, done.combined_wrong) =
                (done.combined + sums, done.combined_wrong + wrong);
            return Ok(before || wrong > 0);
        }
        if !self.has_bytes() {
            return Ok(false);
        }
        let inbox = read(t, state.there().inbox())?;
        Ok(self.has_wrong_bytes(me, &inbox))
    }
}

fn read<T: Control>(t: &mut T, from: Range) -> Result<Vec<u8>, AggregateError> {
    let mut bytes = vec![0; from.len as usize];
    t.inspect(from, &mut bytes)?;
    Ok(bytes)
}

/// Byte `at` of a member's outbox in a round: neighbours, members and rounds differ.
const fn byte(member: u32, round: u64, at: u64) -> u8 {
    (at.wrapping_mul(31) + member as u64 * 7 + round * 3 + at / 251) as u8
}

impl Program for Exchanger {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|e| {
            self.sent();
            self.results.last = Some(t.now());
            self.results.failure = Some(Failure::Aggregate(e));
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::experts::Token;
    use super::*;
    use doorbell_core::ideal::{Ideal, Step, run};
    use doorbell_core::policy::alltoall::{Exchange, Route};
    use doorbell_core::transport::Reduce;

    fn exchangers(route: Route, rounds: u64) -> Vec<Exchanger> {
        let exchange = Exchange::by_counts(&[0, 0, 1, 1], &[100; 16], route).unwrap();
        let config = |m| ExchangerConfig {
            all_to_all: AllToAllConfig::default(),
            schedule: Arc::new(Schedule::new(&exchange, 64)),
            combine: None,
            share: Share { traffic: exchange.traffic_of(m), ..Share::default() },
            rounds,
            epoch: Some(Time::ZERO + Span::from_us(10)),
            interval: Some(Span::from_us(100)),
        };
        (0..4).map(|m| Exchanger::new(config(m))).collect()
    }

    fn run_all(all: &mut [Exchanger]) {
        let mut ideal = Ideal::new(all.len());
        let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|p| p as &mut dyn Step).collect();
        run(&mut ideal, &mut steps).unwrap();
    }

    #[test]
    fn bytes_are_right_and_rounds_keep_the_clock() {
        for route in [Route::Direct, Route::TwoHop] {
            let mut all = exchangers(route, 3);
            run_all(&mut all);
            for r in all.iter().map(Exchanger::results) {
                assert_eq!(r.failure, None);
                let done = r.exchanged.unwrap();
                assert_eq!((done.complete, done.wrong), (3, 0));
                // Three others, 100 bytes from each, whatever way they took.
                assert_eq!((r.bytes, r.messages), (3 * 300, done.sent));
                assert!(r.rings > 0 && r.rings <= r.messages, "{} rings", r.rings);
                let us = |t: Option<Time>| t.unwrap().since(Time::ZERO);
                assert_eq!((us(r.first), us(r.last)), (Span::from_us(10), Span::from_us(210)));
                let far = if route == Route::Direct { 2 } else { 1 };
                assert_eq!(done.share.traffic.between, far);
                assert_eq!(done.passed > 0, route == Route::TwoHop);
            }
        }
    }

    /// Two nodes of two; a token of each member for all, whose sums come back.
    fn travellers(route: Route, rounds: u64) -> Vec<Exchanger> {
        let (places, all) = ([0, 0, 1, 1], [0, 1, 2, 3]);
        let mut exchange = Exchange::new(&places, route).unwrap();
        all.iter().for_each(|m| exchange.token(*m, &all, 64).unwrap());
        let there = Schedule::new(&exchange, 40);
        let tokens = all.map(|home| Token { home, at: 0, to: all.to_vec() });
        let of = (Reduce::SumF32, 64);
        let back = Combine::new((&places, route), of, &tokens, &there, 40).unwrap();
        let (there, back) = (Arc::new(there), Arc::new(back));
        let config = |_| ExchangerConfig {
            all_to_all: AllToAllConfig::default(),
            schedule: there.clone(),
            combine: Some(back.clone()),
            share: Share::default(),
            rounds,
            epoch: Some(Time::ZERO + Span::from_us(10)),
            interval: None,
        };
        (0..4).map(|m| Exchanger::new(config(m))).collect()
    }

    #[test]
    fn sums_come_back_and_are_right() {
        for route in [Route::Direct, Route::TwoHop] {
            let mut all = travellers(route, 3);
            run_all(&mut all);
            for r in all.iter().map(Exchanger::results) {
                assert_eq!(r.failure, None);
                let done = r.exchanged.unwrap();
                assert_eq!((done.complete, done.wrong), (3, 0));
                assert_eq!((done.combined, done.combined_wrong), (3, 0));
                // Three tokens and a sum. Adding: three parts to the first, in two places or one.
                assert_eq!((r.bytes, done.added_bytes), (3 * 4 * 64, 3 * 3 * 64));
            }
        }
    }

    #[test]
    fn a_wrong_byte_makes_a_wrong_sum() {
        let mut all = travellers(Route::TwoHop, 1);
        // Rank 3 believes that it is another round: its token is another one for all, and its sum.
        all[3].round = 1;
        all[3].config.rounds = 2;
        run_all(&mut all);
        let done = |p: &Exchanger| p.results().exchanged.unwrap();
        let wrong: Vec<_> = all.iter().map(|p| (done(p).wrong, done(p).combined_wrong)).collect();
        // What the others make of it is right for what they got.
        assert_eq!(wrong, [(1, 0); 4]);
    }

    #[test]
    fn a_wrong_byte_is_counted_where_it_comes() {
        let mut all = exchangers(Route::TwoHop, 1);
        // Rank 3 believes that it is another round.
        all[3].round = 1;
        all[3].config.rounds = 2;
        all[3].config.interval = None;
        run_all(&mut all);
        let wrong: Vec<u64> = all.iter().map(|p| p.results().exchanged.unwrap().wrong).collect();
        assert_eq!(wrong, [1, 1, 1, 1]);
    }
}
