//! Members of an exchange: each fills its outbox, joins the round, and checks what has come.
//!
//! What is measured is the time from the start of a round, by the clock of rounds, until the member
//! has all that is for it and all of its own has gone.

use std::sync::Arc;

use doorbell_core::policy::alltoall::{
    AggregateError, AllToAll, AllToAllConfig, Schedule, Traffic,
};
use doorbell_core::transport::{Contents, Control, Next, Program, WaitSet};
use doorbell_core::units::{Span, Time};

use super::common::{Failure, Results, Window, round_start};

/// What one member has of an exchange, as planned: of all its tokens, also of those that do not
/// move in a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Tokens; 0 without.
    pub tokens: u64,
    /// Messages and bytes that begin with it, those of its relays included.
    pub traffic: Traffic,
}

/// Configuration of an [`Exchanger`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangerConfig {
    /// The exchange.
    pub all_to_all: AllToAllConfig,
    /// What goes where; all members have the same.
    pub schedule: Arc<Schedule>,
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

/// One member of an exchange. See the module.
#[derive(Clone, Debug)]
pub struct Exchanger {
    config: ExchangerConfig,
    stage: Stage,
    state: Option<AllToAll>,
    round: u64,
    results: Results,
}

impl Exchanger {
    /// A program that has not started.
    pub fn new(config: ExchangerConfig) -> Self {
        let exchanged = Exchanged { share: config.share, ..Exchanged::default() };
        let results = Results { exchanged: Some(exchanged), ..Results::default() };
        Self { config, stage: Stage::Start, state: None, round: 0, results }
    }

    /// What was measured.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        match self.stage {
            Stage::Start => {
                let c = &self.config;
                self.state = Some(AllToAll::open(t, c.all_to_all, &c.schedule)?);
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
        let now = t.now();
        self.results.sample(now.since(from), now);
        let wrong = self.is_wrong(t)?;
        let me = t.rank() - self.config.all_to_all.first_rank;
        let bytes: u64 = self.config.schedule.arrivals(me).iter().map(|a| a.bytes).sum();
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
        let (stats, r) = (state.stats(), &mut self.results);
        (r.messages, r.rings) = (stats.sent, state.rings());
        let done = r.exchanged.get_or_insert_default();
        (done.sent, done.passed, done.passed_bytes) =
            (stats.sent, stats.passed, stats.passed_bytes);
    }

    fn has_bytes(&self) -> bool {
        self.config.all_to_all.contents == Contents::Data
    }

    /// Writes what this member has for others.
    fn fill<T: Control>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        if !self.has_bytes() {
            return Ok(());
        }
        let me = t.rank() - self.config.all_to_all.first_rank;
        let outbox = self.state.as_ref().expect("opened").outbox();
        let bytes: Vec<u8> = (0..outbox.len).map(|at| byte(me, self.round, at)).collect();
        Ok(t.copy_in(outbox, &bytes)?)
    }

    /// Whether a byte that came is not the one that was sent.
    fn is_wrong<T: Control>(&self, t: &mut T) -> Result<bool, AggregateError> {
        if !self.has_bytes() {
            return Ok(false);
        }
        let me = t.rank() - self.config.all_to_all.first_rank;
        let inbox = self.state.as_ref().expect("opened").inbox();
        let mut got = vec![0; inbox.len as usize];
        t.copy_out(inbox, &mut got)?;
        Ok(self.config.schedule.arrivals(me).iter().any(|a| {
            let bytes = got[a.inbox as usize..(a.inbox + a.bytes) as usize].iter();
            (a.outbox..).zip(bytes).any(|(at, b)| *b != byte(a.from, self.round, at))
        }))
    }
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
    use super::*;
    use doorbell_core::ideal::{Ideal, Step, run};
    use doorbell_core::policy::alltoall::{Exchange, Route};

    fn exchangers(route: Route, rounds: u64) -> Vec<Exchanger> {
        let exchange = Exchange::by_counts(&[0, 0, 1, 1], &[100; 16], route).unwrap();
        let config = |m| ExchangerConfig {
            all_to_all: AllToAllConfig::default(),
            schedule: Arc::new(Schedule::new(&exchange, 64)),
            share: Share { tokens: 0, traffic: exchange.traffic_of(m) },
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
