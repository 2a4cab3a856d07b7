//! Losses, timers, retry counters (`protocol.md` §2.4, §2.5).

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Opcode, Psn, QpType, RetryCnt, RnrTimer, WcStatus};

use super::super::config::packets_for;
use super::super::packet::{Ext, PacketDesc, distance};
use super::super::recovery::LossRecovery;
use super::super::rules::SequenceNak;
use super::super::timeout::{AckTimeoutMode, TimeoutMode, retry_limit};
use super::{Received, RecoverCause, Requester, Round, Stall, Timer};

/// RNR NAKs in a row without an expiry of the ack timer after which none is expected any more,
/// though they take half of its time or longer, or it did expire once. Higher: a wait without end
/// is told later. Lower: noise and other traffic may yet make it expire.
const REFUSALS_IN_A_ROW: u32 = 64;

impl Requester {
    /// When [`on_timer`](Self::on_timer) has to be called: the ack timer, the wait that an RNR NAK
    /// asked for, or the reaction to a NAK. It moves with every progress.
    pub const fn next_deadline(&self) -> Option<Time> {
        match self.timer {
            Timer::Idle => None,
            Timer::Ack(due) | Timer::Wait(due, _) => Some(due),
        }
    }

    /// When the ack timer that runs was started: the departure of what asks for an answer, or the
    /// last progress.
    pub const fn ack_timer_since(&self) -> Option<Time> {
        match self.timer {
            Timer::Ack(_) => Some(self.started),
            Timer::Idle | Timer::Wait(..) => None,
        }
    }

    /// Whether the QP goes on by itself for ever: its oldest packet was refused for want of a
    /// receive, and it retries without limit. An answer that has come during the wait moves it on
    /// to a packet that may need none.
    pub fn waits_without_end(&self) -> bool {
        matches!(self.timer, Timer::Wait(_, Stall::Rnr)) && self.refused_without_limit()
    }

    /// As [`waits_without_end`](Self::waits_without_end), whether the wait is over or not: it has
    /// sent the packet again, or is about to.
    pub fn refused_without_limit(&self) -> bool {
        let refused = self.refused == self.una && self.outstanding() > 0;
        refused && self.cfg.rnr_retry.is_infinite()
    }

    /// Whether no number of timeouts and sequence NAKs ends the QP.
    pub const fn retries_without_limit(&self) -> bool {
        retry_limit(self.cfg.retry_cnt, self.cfg.rules.retry_seven).is_none()
    }

    /// Whether the QP has sent its oldest packet again more often than any `retry_cnt` with a limit
    /// allows, and goes on.
    pub const fn silent_without_limit(&self) -> bool {
        self.retries_without_limit() && self.expired > RetryCnt::MAX_CODE as u32
    }

    /// When the last packet left that asked for an answer.
    pub const fn last_departure(&self) -> Time {
        self.asked.at
    }

    /// Whether the RNR NAKs come before the ack timer expires, and as far as anybody can tell will
    /// go on to: the last one took at most half of the shortest timer, and none has expired since
    /// the last progress; or so many have come in a row that there was no expiry between. Else
    /// `retry_cnt` runs out some time.
    pub const fn answers_come_in_time(&self) -> bool {
        let early = self.expired == 0 && self.refused_early;
        early || self.refused_in_a_row >= REFUSALS_IN_A_ROW
    }

    /// The deadline has come: `Recover` with [`RecoverCause::Timeout`], `Error` when that was the
    /// last retry, `Nothing` when a wait is over or the call came too early, which is harmless.
    pub fn on_timer(&mut self, now: Time) -> Received {
        match self.timer {
            Timer::Wait(due, Stall::Rnr) if mutant!(RnrWaitIsTimeout) && due <= now => {
                self.timer = Timer::Idle;
                self.lose(now, RecoverCause::Timeout)
            }
            Timer::Wait(due, _) if due <= now => {
                self.timer = Timer::Idle;
                self.arm(now);
                Received::Nothing
            }
            Timer::Ack(due) if due <= now => {
                self.timer = Timer::Idle;
                self.expired = self.expired.saturating_add(1);
                self.counters.roce_adp_retrans_to += u64::from(self.is_adaptive());
                self.gap_seen = false;
                self.lose(now, RecoverCause::Timeout)
            }
            _ => Received::Nothing,
        }
    }

    /// RC: the last bit of a polled packet leaves at `left`, now or soon. The ack timer runs from
    /// there if the packet asks for a response and the timer does not run yet: more packets do not
    /// start it anew (`protocol.md` §2.5).
    pub fn on_departure(&mut self, pkt: &PacketDesc, left: Time) {
        if self.cfg.service != QpType::Rc || !pkt.ack_req {
            return;
        }
        let a = &mut self.asked;
        assert!(a.inside > 0, "a packet left that was not polled: {pkt:?}");
        a.inside -= 1;
        let old = a.old > 0;
        a.old -= u32::from(old);
        a.at = left;
        let takes = match pkt.ext {
            Ext::Reth { dma_len, .. } if pkt.opcode == Opcode::RcRdmaReadRequest => {
                packets_for(dma_len, self.mtu())
            }
            _ => 1,
        };
        let end = pkt.psn.add(takes);
        let (una, out) = (self.una, self.outstanding());
        let beyond = |mark: Psn| {
            let (end, mark) = (distance(una, end), distance(una, mark));
            (1..=out).contains(&end) && (end > mark || mark > out)
        };
        if beyond(self.asked.left) {
            self.asked.left = end;
        }
        if !old && beyond(self.asked.left_again) {
            self.asked.left_again = end;
        }
        self.arm(left);
    }

    /// Starts the ack timer unless it runs or something else is waited for.
    pub(super) fn arm(&mut self, now: Time) {
        let anew = mutant!(EachPacketDelaysTimer) && matches!(self.timer, Timer::Ack(_));
        if (self.timer == Timer::Idle || anew)
            && self.awaits_response()
            && let Some(span) = self.ack_interval()
        {
            let from = now.max(self.asked.at);
            self.timer = Timer::Ack(from + span);
            self.started = from;
            let begins = self.expired == 0 && self.retries == 0;
            if begins {
                self.began = from;
            }
            if std::mem::take(&mut self.resumes) || begins {
                (self.resumed, self.spent) = (from, self.retries);
            }
        }
    }

    pub(super) fn restart_ack_timer(&mut self, now: Time) {
        if matches!(self.timer, Timer::Ack(_)) {
            self.timer = Timer::Idle;
        }
        // Kept within the window, or they would come round with the PSNs.
        if !self.in_flight_before(self.asked.left) {
            self.asked.left = self.una;
        }
        if !self.in_flight_before(self.asked.left_again) {
            self.asked.left_again = self.una;
        }
        self.arm(now);
    }

    const fn is_adaptive(&self) -> bool {
        matches!(self.cfg.timeout_mode, TimeoutMode::Adaptive { .. })
    }

    fn ack_interval(&mut self) -> Option<Span> {
        let interval = self.cfg.timeout_mode.interval(self.cfg.timeout, self.expired)?;
        Some(self.draw.between(interval))
    }

    /// Whether a packet that asked for a response has left and is not acknowledged: else no ack
    /// timer runs. While others that ask are still to leave, again or for the first time, only what
    /// left since the last loss counts: the departure of the next one starts the timer, and what
    /// left before the loss may be what was lost.
    pub fn awaits_response(&self) -> bool {
        let more = self.asked.inside > self.asked.old;
        let more = more || self.recovery.next(self.flight()).is_some();
        self.in_flight_before(if more { self.asked.left_again } else { self.asked.left })
    }

    /// Whether `mark` lies behind a PSN that is out.
    pub(super) fn in_flight_before(&self, mark: Psn) -> bool {
        (1..=self.outstanding()).contains(&distance(self.una, mark))
    }

    /// From now on only what is polled later counts as sent.
    fn count_departures_anew(&mut self) {
        self.asked.left_again = self.una;
        self.asked.old = self.asked.inside;
    }

    /// New progress: both counters are full again.
    pub(super) const fn reload(&mut self) {
        self.retries = 0;
        self.rnr_retries = 0;
        self.refused_in_a_row = 0;
    }

    /// PSN `una` is missing at the peer, or its response here.
    pub(super) fn lose(&mut self, now: Time, cause: RecoverCause) -> Received {
        let told = Received::Recover { psn: self.una, cause };
        if let Timer::Wait(_, stall) = self.timer
            && cause != RecoverCause::Timeout
        {
            // It goes back to `una` anyway when the wait is over; behind an RNR NAK, with all.
            if stall != Stall::Rnr && !self.cfg.rules.one_retry_at_a_time {
                self.recovery.on_loss(self.flight(), cause);
                self.tell_unanswered(cause);
            }
            self.count(cause);
            return told;
        }
        let retrying = self.recovery.next(self.flight()).is_some() || self.retries > 0;
        let again = cause != RecoverCause::Timeout && retrying;
        let ignored = again && self.cfg.rules.one_retry_at_a_time;
        if ignored || !self.recovery.on_loss(self.flight(), cause) {
            self.count(cause);
            return told;
        }
        self.tell_unanswered(cause);
        self.begin_round(now, cause)
    }

    /// The recovery hears which READs and ATOMICs have no answer, where a response may be what was
    /// lost. One that sends all again need not know.
    fn tell_unanswered(&mut self, cause: RecoverCause) {
        let request = matches!(cause, RecoverCause::SequenceNak | RecoverCause::Rnr(_));
        if request || self.recovery.sends_all_again() {
            return;
        }
        let flight = self.flight();
        for entry in self.queue.range(self.done..self.cursor).filter(|entry| entry.answered()) {
            let first = if flight.contains(entry.first) { entry.first } else { self.una };
            self.recovery.on_unanswered(flight, first);
        }
    }

    /// The recovery hears of the SENDs and WRITEs before `end` that it has not heard of.
    pub(super) fn tell_executed(&mut self, end: Psn) {
        if self.failed || self.recovery.sends_all_again() {
            return;
        }
        let flight = self.flight();
        let from = if self.in_flight_before(self.passed) { self.passed } else { self.una };
        let (told, new) = (distance(self.una, from), distance(self.una, end));
        if new > flight.len() || new <= told {
            return;
        }
        let mut left = new - told;
        self.passed = end;
        let (mut i, mut psn) = (self.locate(from).0, from);
        while left > 0 {
            let entry = &self.queue[i];
            let count = distance(psn, entry.first.add(entry.packets)).min(left);
            if !entry.answered() {
                self.recovery.on_executed(flight, psn, count);
            }
            (i, psn, left) = (i + 1, psn.add(count), left - count);
        }
    }

    /// A round of retransmissions begins: it uses a retry, or finds none left.
    pub(super) fn begin_round(&mut self, now: Time, cause: RecoverCause) -> Received {
        let limit = retry_limit(self.cfg.retry_cnt, self.cfg.rules.retry_seven);
        let limit = limit.filter(|limit| *limit != 7 || !mutant!(RetrySevenIsInfinite));
        let nth = self.retries.saturating_add(1);
        self.round = Some(Round { cause, nth, limit: limit.map(|n| n as u8) });
        let more = u32::from(mutant!(OneRetryMore));
        if limit.is_some_and(|limit| self.retries >= limit + more) {
            self.counters.req_transport_retries_exceeded += 1;
            return self.enter_error(WcStatus::RetryExcErr);
        }
        self.retries = nth;
        self.refused_in_a_row = 0;
        self.count(cause);
        if cause != RecoverCause::Timeout {
            self.resumes = true;
        }
        if cause == RecoverCause::SequenceNak && self.cfg.rules.sequence_nak == SequenceNak::Reloads
        {
            self.reload();
        }
        self.pause(now, cause);
        Received::Recover { psn: self.una, cause }
    }

    /// An event that the QP survives.
    pub(super) const fn count(&mut self, cause: RecoverCause) {
        let adaptive = self.is_adaptive() as u64;
        let c = &mut self.counters;
        match cause {
            RecoverCause::SequenceNak => c.packet_seq_err += 1,
            RecoverCause::ImpliedNak | RecoverCause::ReadGap => c.implied_nak_seq_err += 1,
            RecoverCause::Timeout => {
                c.local_ack_timeout_err += 1;
                c.roce_adp_retrans += adaptive;
            }
            RecoverCause::Rnr(_) => c.rnr_nak_retry_err += 1,
        }
    }

    /// The ack timer starts anew with the first packet that asks again; with a recovery that has
    /// nothing to send, at once.
    fn pause(&mut self, now: Time, cause: RecoverCause) {
        self.timer = Timer::Idle;
        self.count_departures_anew();
        let reaction = match cause {
            RecoverCause::SequenceNak => self.cfg.nak_reaction,
            RecoverCause::ImpliedNak | RecoverCause::ReadGap => self.cfg.implied_nak_reaction,
            RecoverCause::Timeout | RecoverCause::Rnr(_) => Span::ZERO,
        };
        if reaction > Span::ZERO {
            self.timer = Timer::Wait(now + reaction, Stall::NakReaction);
        } else {
            self.arm(now);
        }
    }

    /// An RNR NAK for `una`: the ack timer stops, and nothing is sent until the peer's timer has
    /// run. Its copies during the wait change nothing.
    pub(super) fn on_rnr(&mut self, now: Time, timer: RnrTimer) -> Received {
        let cause = RecoverCause::Rnr(timer);
        let told = Received::Recover { psn: self.una, cause };
        self.refused = self.una;
        if matches!(self.timer, Timer::Wait(_, Stall::Rnr)) {
            self.count(cause);
            return told;
        }
        let limit = self.cfg.rnr_retry.retries().or(mutant!(RnrSevenIsSeven).then_some(7));
        let limit = limit.filter(|_| !mutant!(RnrRetryIgnored));
        let nth = self.rnr_retries.saturating_add(1);
        self.round = Some(Round { cause, nth, limit: limit.map(|n| n as u8) });
        if limit.is_some_and(|limit| self.rnr_retries >= limit) {
            self.counters.req_rnr_retries_exceeded += 1;
            return self.enter_error(WcStatus::RnrRetryExcErr);
        }
        self.rnr_retries = nth;
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let took = now.max(self.resumed).since(self.resumed);
        let interval = self.cfg.timeout_mode.interval(self.cfg.timeout, 0);
        self.refused_early = interval.is_none_or(|i| took * 2 <= i.least);
        self.count(cause);
        self.recovery.on_loss(self.flight(), cause);
        let wrong = mutant!(RnrTimerEntryWrong) && timer.code() == 17;
        let wait = self.cfg.timeout_mode.rnr_wait(timer);
        let wait = wait * if wrong { 2 } else { u64::from(!mutant!(NoRnrWait)) };
        self.retries += u32::from(mutant!(RnrUsesTransportRetry));
        self.resumes = true;
        self.count_departures_anew();
        self.timer = Timer::Wait(now + wait, Stall::Rnr);
        told
    }
}
