//! Loss recovery: which PSNs go out again after a loss.
//!
//! The requester finds out *that* something was lost (NAK, passed-by response, timeout) and
//! counts retries; a recovery decides *what* is sent again, by PSN. Anybody may write one:
//! [`LossRecovery`] is the behaviour of one QP, [`RecoveryFactory`] its configuration.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use doorbell_core::verbs::Psn;

use super::packet::distance;
use super::requester::RecoverCause;

/// PSNs that were sent and are not acknowledged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Flight {
    /// The oldest.
    pub una: Psn,
    /// The first that was never sent. Equal to `una` when there are none.
    pub next: Psn,
}

impl Flight {
    /// How many.
    pub const fn len(&self) -> u32 {
        distance(self.una, self.next)
    }

    /// None.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `psn` is one of them.
    pub const fn contains(&self, psn: Psn) -> bool {
        distance(self.una, psn) < self.len()
    }
}

/// What one QP sends again.
pub trait LossRecovery: Debug + Send {
    /// What lies before `flight.una` is acknowledged, and that PSN is missing. `true`: a new round
    /// begins, which uses a retry.
    fn on_loss(&mut self, flight: Flight, cause: RecoverCause) -> bool;

    /// The peer holds `count` PSNs from `first` on, beyond one that it misses. `true`: a new round
    /// begins, which uses a retry.
    fn on_sack(&mut self, flight: Flight, first: Psn, count: u32) -> bool;

    /// After [`on_loss`](Self::on_loss), where what was lost may be a response: the READ or ATOMIC
    /// that the `count` PSNs from `first` on belong to has no answer yet, and one that comes before
    /// that of `flight.una` is thrown away. Called for each of them, oldest first, unless
    /// it [sends everything again](Self::sends_all_again).
    fn on_unanswered(&mut self, _flight: Flight, _first: Psn) {}

    /// After [`on_loss`](Self::on_loss): a response that passed by `flight.una` tells that the peer
    /// has executed the SENDs and WRITEs of the `count` PSNs from `first` on. Not called either
    /// where everything is sent again.
    fn on_executed(&mut self, _flight: Flight, _first: Psn, _count: u32) {}

    /// Whether it sends everything again from `flight.una` on. Such a one is not told of what is
    /// unanswered or executed, nor what the peer keeps beyond a response that passed by.
    fn sends_all_again(&self) -> bool {
        false
    }

    /// `flight.una` has moved on.
    fn on_ack(&mut self, flight: Flight);

    /// The next PSN to send again, within `flight`; `None`: new packets may go. Called often.
    fn next(&self, flight: Flight) -> Option<Psn>;

    /// `count` PSNs from `psn` on, which [`next`](Self::next) gave, have been sent again.
    fn on_sent(&mut self, flight: Flight, psn: Psn, count: u32);

    /// PSNs that may be in flight, beside the requester's own window.
    fn cap(&self) -> u32 {
        u32::MAX
    }
}

/// Configuration of a [`LossRecovery`]: makes one per QP.
pub trait RecoveryFactory: Debug + Send + Sync {
    /// The recovery of a new QP.
    fn build(&self) -> Box<dyn LossRecovery>;

    /// Packets beyond a gap that the responder keeps, and tells of by [`Ext::Sack`]; 0: none.
    ///
    /// [`Ext::Sack`]: super::Ext::Sack
    fn hold(&self) -> u32 {
        0
    }
}

/// The recovery of a QP; both sides have to have the same.
#[derive(Clone, Debug)]
pub enum Recovery {
    /// From the missing packet on, everything goes out again: RC as specified.
    GoBackN,
    /// Only what is missing goes out again.
    SelectiveRepeat(SelectiveRepeat),
    /// Somebody else's.
    Custom(Arc<dyn RecoveryFactory>),
}

impl Recovery {
    /// Packets beyond a gap that a responder keeps.
    pub fn hold(&self) -> u32 {
        match self {
            Self::GoBackN => 0,
            Self::SelectiveRepeat(cfg) => cfg.hold,
            Self::Custom(factory) => factory.hold(),
        }
    }

    pub(super) fn build(&self) -> State {
        match self {
            Self::GoBackN => State::GoBackN(GoBackN::default()),
            Self::SelectiveRepeat(cfg) => State::SelectiveRepeat(Box::new(Selective::new(cfg))),
            Self::Custom(factory) => State::Custom(factory.build()),
        }
    }
}

/// Selective repeat in the manner of IRN (Mittal et al., SIGCOMM'18). The responder keeps packets
/// beyond a gap and names each in a NAK; the requester sends again what lies before the last one
/// that was named and was not named itself, each once per round. A retransmission that is lost
/// too is found by the timer. It sends the oldest packet again and what lies before one that was
/// named; each ACK that ends within what was out then brings the next ones, twice as many as the
/// last time, so that a whole lost window of n packets costs one timeout and log2 n round trips.
///
/// # What a loss costs
///
/// In packets' times at the port, W packets in the loop from a loss to its retransmission, C in
/// flight at most (`cap`), loss p, ack timer T:
///
/// - Every packet is sent 1 / (1 - p) times.
/// - A packet that is lost is acknowledged two loops after it was sent: one until its NAK, one for
///   its retransmission. With C < 2 W the sender has to wait 2 W - C for it. Losses among the C
///   packets behind it fall into the same wait, so there is one per C + 1 / p packets.
/// - A retransmission that is lost too is found by the timer: T later, when all C packets are out,
///   so the sender stands still for T + 2 W - C. What was lost twice among these C goes out again
///   with it, m = 1 + p² C packets, so such a wait comes once per C + 1 / p² packets; and with
///   p m it is not the last, since one of these is lost a third time.
///
/// Hence, per packet,
/// 1 / (1 - p) + p max(0, 2 W - C) / (1 + p C) + p² (T + 2 W - C) / (m (1 - p m)).
/// A lost NAK costs next to nothing, since each packet that is kept brings another. The benchmark
/// `recovery` of `doorbell-tests` holds runs against this, and Go-Back-N against its own form.
///
/// # Differences
///
/// From IRN: the responder gives kept packets to memory when the gap is closed, not at
/// once; responses are not kept, so that a lost one makes the requester ask again for all READs and
/// ATOMICs from there on, SENDs and WRITEs excepted. So does a timeout.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SelectiveRepeat {
    /// PSNs beyond the expected one within which the responder keeps packets. Lower: packets that
    /// come further out of order are lost. At least the PSNs in flight to be selective at all.
    pub hold: u32,
    /// PSNs in flight at most: the path's bandwidth times its round trip, in packets (IRN's
    /// BDP-FC). Higher: longer queues in the network. At least 1.
    pub cap: u32,
}

/// The recovery at work. Built-ins cost no dynamic call per packet.
#[derive(Debug)]
pub(super) enum State {
    GoBackN(GoBackN),
    SelectiveRepeat(Box<Selective>),
    Custom(Box<dyn LossRecovery>),
}

macro_rules! each {
    ($self:expr, $r:ident => $call:expr) => {
        match $self {
            State::GoBackN($r) => $call,
            State::SelectiveRepeat($r) => $call,
            State::Custom($r) => $call,
        }
    };
}

impl LossRecovery for State {
    fn on_loss(&mut self, flight: Flight, cause: RecoverCause) -> bool {
        each!(self, r => r.on_loss(flight, cause))
    }
    fn on_sack(&mut self, flight: Flight, first: Psn, count: u32) -> bool {
        each!(self, r => r.on_sack(flight, first, count))
    }
    fn on_unanswered(&mut self, flight: Flight, first: Psn) {
        each!(self, r => r.on_unanswered(flight, first));
    }
    fn on_executed(&mut self, flight: Flight, first: Psn, count: u32) {
        each!(self, r => r.on_executed(flight, first, count));
    }
    fn sends_all_again(&self) -> bool {
        each!(self, r => r.sends_all_again())
    }
    fn on_ack(&mut self, flight: Flight) {
        each!(self, r => r.on_ack(flight));
    }
    fn next(&self, flight: Flight) -> Option<Psn> {
        each!(self, r => r.next(flight))
    }
    fn on_sent(&mut self, flight: Flight, psn: Psn, count: u32) {
        each!(self, r => r.on_sent(flight, psn, count));
    }
    fn cap(&self) -> u32 {
        each!(self, r => r.cap())
    }
}

/// Everything from the missing packet on.
#[derive(Clone, Default, Debug)]
pub(super) struct GoBackN {
    /// Next PSN to send again, within the flight.
    at: Option<Psn>,
}

impl LossRecovery for GoBackN {
    fn on_loss(&mut self, flight: Flight, _cause: RecoverCause) -> bool {
        self.at = Some(flight.una).filter(|_| !flight.is_empty());
        if mutant!(GoBackNSkipsFirst) && flight.len() > 1 {
            self.at = Some(flight.una.next());
        }
        true
    }

    /// A peer that keeps packets meets a requester that resends all: only the gap counts.
    fn on_sack(&mut self, flight: Flight, _first: Psn, _count: u32) -> bool {
        self.on_loss(flight, RecoverCause::SequenceNak)
    }

    fn sends_all_again(&self) -> bool {
        true
    }

    fn on_ack(&mut self, flight: Flight) {
        if let Some(at) = self.at
            && !flight.contains(at)
        {
            // What was to be sent again has arrived after all.
            self.at = Some(flight.una).filter(|_| !flight.is_empty());
        }
    }

    fn next(&self, _flight: Flight) -> Option<Psn> {
        self.at
    }

    fn on_sent(&mut self, flight: Flight, psn: Psn, count: u32) {
        let early = u32::from(mutant!(GoBackNStopsEarly));
        self.at = Some(psn.add(count)).filter(|at| distance(*at, flight.next) > early);
    }
}

/// What is missing before something that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Selective {
    cap: u32,
    /// What the peer holds: first PSN and count, in order, apart from each other.
    held: Vec<(Psn, u32)>,
    /// End of the round: PSNs before it were sent before it began. `None`: nothing is missing.
    round: Option<Psn>,
    /// What was sent again in this round, or is held, ends here,
    at: Psn,
    /// but for these beyond: READs and ATOMICs, asked for before it was their turn. First PSN and
    /// count, in order.
    ahead: Vec<(Psn, u32)>,
    /// PSNs before this one count as lost unless they are held.
    lost_end: Psn,
    /// Packets from `una` on that go out again when an ACK moves it within a round of the timer,
    /// about which no peer has said anything. 0: another round.
    blind: u32,
    /// First PSN of each READ and ATOMIC that has to be asked for again, in order.
    ask: VecDeque<Psn>,
}

impl Selective {
    fn new(cfg: &SelectiveRepeat) -> Self {
        assert!(cfg.cap > 0, "selective repeat with cap 0 sends nothing; use at least 1");
        Self {
            cap: cfg.cap,
            held: Vec::new(),
            round: None,
            at: Psn::ZERO,
            ahead: Vec::new(),
            lost_end: Psn::ZERO,
            blind: 0,
            ask: VecDeque::new(),
        }
    }

    fn begin(&mut self, flight: Flight, lost_end: Psn) {
        (self.round, self.at, self.lost_end) = (Some(flight.next), flight.una, lost_end);
        self.ahead.clear();
        self.blind = 0;
    }

    /// Forgets what lies before `una`.
    fn trim(&mut self, flight: Flight) {
        let trim = |(first, count): &mut (Psn, u32)| {
            if !flight.contains(*first) {
                let past = distance(*first, flight.una);
                if past >= *count {
                    return false;
                }
                *first = flight.una;
                *count -= past;
            }
            true
        };
        self.held.retain_mut(trim);
        self.ahead.retain_mut(trim);
    }

    fn hold(&mut self, flight: Flight, first: Psn, count: u32) {
        let start = distance(flight.una, first);
        let offset = |psn: Psn| distance(flight.una, psn);
        let at = self.held.partition_point(|(f, n)| offset(*f) + n < start);
        let (mut from, mut to) = (start, start + count);
        let mut end = at;
        while let Some((f, n)) = self.held.get(end)
            && offset(*f) <= to
        {
            (from, to) = (from.min(offset(*f)), to.max(offset(*f) + n));
            end += 1;
        }
        self.held.splice(at..end, [(flight.una.add(from), to - from)]);
    }

    /// The first PSN from `at` on that the peer does not hold and that was not sent ahead.
    fn missing(&self, flight: Flight) -> Psn {
        let offset = |psn: Psn| distance(flight.una, psn);
        let past = |spans: &[(Psn, u32)], psn: Psn| {
            let i = spans.partition_point(|(f, n)| offset(*f) + n <= offset(psn));
            spans.get(i).filter(|(f, _)| offset(*f) <= offset(psn)).map(|(f, n)| f.add(*n))
        };
        let held: &[_] = if mutant!(SelectiveResendsHeld) { &[] } else { &self.held };
        let mut psn = self.at;
        while let Some(end) = past(held, psn).or_else(|| past(&self.ahead, psn)) {
            psn = end;
        }
        psn
    }
}

impl LossRecovery for Selective {
    fn on_loss(&mut self, flight: Flight, cause: RecoverCause) -> bool {
        self.trim(flight);
        // The peer misses `una`, whatever it has said.
        if let Some((first, count)) = self.held.first_mut()
            && *first == flight.una
        {
            (*first, *count) = (first.next(), *count - 1);
        }
        self.held.retain(|(_, count)| *count > 0);
        let held_end = self.held.last().map(|(first, _)| *first);
        let lost_end = match cause {
            // The peer keeps nothing while it has no receive, and a NAK without a name comes from
            // a peer that keeps nothing at all.
            RecoverCause::Rnr(_) | RecoverCause::SequenceNak => flight.next,
            RecoverCause::ImpliedNak | RecoverCause::ReadGap => held_end.unwrap_or(flight.una),
            RecoverCause::Timeout => held_end.unwrap_or(flight.una.next()),
        };
        self.begin(flight, lost_end);
        self.blind = u32::from(cause == RecoverCause::Timeout);
        self.ask.clear();
        !flight.is_empty()
    }

    fn on_unanswered(&mut self, _flight: Flight, first: Psn) {
        self.ask.push_back(first);
    }

    fn on_executed(&mut self, flight: Flight, first: Psn, count: u32) {
        self.hold(flight, first, count);
    }

    fn on_sack(&mut self, flight: Flight, first: Psn, count: u32) -> bool {
        self.trim(flight);
        self.hold(flight, first, count);
        let offset = |psn: Psn| distance(flight.una, psn);
        if self.round.is_some() {
            if offset(first) > offset(self.lost_end) && !mutant!(SelectiveForgetsHole) {
                self.lost_end = first;
            }
            return false;
        }
        self.begin(flight, first);
        true
    }

    fn on_ack(&mut self, flight: Flight) {
        let Some(round) = self.round else { return };
        self.trim(flight);
        while let Some(psn) = self.ask.front()
            && !flight.contains(*psn)
        {
            self.ask.pop_front();
        }
        let inside = |psn: Psn| distance(flight.una, psn) <= flight.len();
        if !inside(self.at) {
            self.at = flight.una;
        }
        if !inside(self.lost_end) {
            self.lost_end = flight.una;
        }
        if !inside(round) || round == flight.una {
            self.round = (!self.held.is_empty()).then_some(flight.next);
            self.blind = 0;
        } else if self.blind > 0 && self.lost_end == flight.una {
            // The peer misses `una`, which went out before the timer expired.
            self.blind = self.blind.saturating_mul(2);
            self.lost_end = flight.una.add(self.blind.min(distance(flight.una, round)));
        }
    }

    fn next(&self, flight: Flight) -> Option<Psn> {
        self.round?;
        let offset = |psn: Psn| distance(flight.una, psn);
        let lost = Some(self.missing(flight)).filter(|at| offset(*at) < offset(self.lost_end));
        lost.into_iter().chain(self.ask.front().copied()).min_by_key(|psn| offset(*psn))
    }

    fn on_sent(&mut self, flight: Flight, psn: Psn, count: u32) {
        let offset = |psn: Psn| distance(flight.una, psn);
        if offset(psn) <= offset(self.missing(flight)) {
            self.at = psn.add(count);
        } else {
            self.ahead.push((psn, count));
        }
        while let Some(asked) = self.ask.front()
            && offset(*asked) < offset(psn) + count
        {
            self.ask.pop_front();
        }
    }

    fn cap(&self) -> u32 {
        self.cap
    }
}
