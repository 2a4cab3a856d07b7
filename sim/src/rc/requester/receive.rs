//! Responses.

use doorbell_core::units::Time;
use doorbell_core::verbs::{Msn, NakCode, Opcode, Psn, QpType, Syndrome, WcStatus, WrOpcode};

use super::super::packet::{DropReason, Ext, PacketDesc, distance, read_response};
use super::super::recovery::LossRecovery;
use super::super::rules::SequenceNak;
use super::{Received, RecoverCause, Requester};

/// Whether newly acknowledged PSNs reload the retry counters.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Reload {
    Yes,
    No,
}

impl Requester {
    /// Takes a response. Only what travels on the wire is looked at.
    pub fn on_packet(&mut self, now: Time, pkt: &PacketDesc) -> Received {
        if self.cfg.service != QpType::Rc {
            return Received::Drop(DropReason::Opcode);
        }
        if self.failed {
            return Received::Drop(DropReason::QpState);
        }
        if let Ext::Aeth { syndrome, msn } | Ext::AtomicAck { syndrome, msn, .. } = pkt.ext {
            self.take_credits(syndrome, msn);
        }
        if !self.count_nak(pkt) {
            return self.on_response(now, pkt);
        }
        let before = self.naks_used();
        let received = self.on_response(now, pkt);
        if self.naks_used() == before {
            self.counters.unused_naks += 1;
        }
        received
    }

    fn on_response(&mut self, now: Time, pkt: &PacketDesc) -> Received {
        let ahead = distance(self.una, pkt.psn);
        if ahead >= self.outstanding() + u32::from(mutant!(AckOfUnsentTaken)) {
            self.counters.stale_responses += 1;
            if mutant!(AnyPacketReloads) {
                self.reload();
            }
            return Received::Drop(DropReason::Stale);
        }
        match (pkt.opcode, pkt.ext) {
            (Opcode::RcAcknowledge, Ext::Aeth { syndrome, .. }) => {
                self.on_acknowledge(now, ahead, syndrome)
            }
            (Opcode::RcAcknowledge, Ext::Sack { held, .. }) => self.on_sack(now, ahead, held),
            (Opcode::RcAtomicAcknowledge, Ext::AtomicAck { orig, .. }) => {
                self.on_atomic_ack(now, ahead, orig)
            }
            (opcode, _) if opcode.operation().is_read_response() => {
                self.on_read_response(now, ahead, pkt)
            }
            _ => Received::Drop(DropReason::Opcode),
        }
    }

    /// Counts a NAK of the kinds that ask for something again; false: it is none.
    fn count_nak(&mut self, pkt: &PacketDesc) -> bool {
        let sequence = NakCode::PsnSequenceError;
        match pkt.ext {
            Ext::Aeth { syndrome: Syndrome::RnrNak { .. }, .. } => {
                self.counters.rnr_nak_received += 1;
            }
            Ext::Sack { .. } => self.counters.sequence_naks_received += 1,
            Ext::Aeth { syndrome: Syndrome::Nak { code }, .. } if code == sequence => {
                self.counters.sequence_naks_received += 1;
            }
            _ => return false,
        }
        true
    }

    /// Those of them that counted as what they are.
    const fn naks_used(&self) -> u64 {
        let c = &self.counters;
        c.packet_seq_err
            + c.rnr_nak_retry_err
            + c.req_transport_retries_exceeded
            + c.req_rnr_retries_exceeded
    }

    /// The limit grows with what the peer tells; it never shrinks (`protocol.md` §2.6). A repeated
    /// ACK may do nothing but this.
    fn take_credits(&mut self, syndrome: Syndrome, msn: Msn) {
        let Syndrome::Ack { credit } = syndrome else { return };
        let c = &mut self.credits;
        match credit.credits() {
            _ if c.unlimited => {}
            None => (c.unlimited, c.limited) = (true, None),
            Some(credits) => {
                let lsn = msn.add(credits + u32::from(mutant!(CreditsOffByOne)));
                if lsn.diff(c.lsn) > 0 {
                    c.lsn = lsn;
                }
                if c.ssn.diff(c.lsn) <= 0 {
                    c.limited = None;
                }
            }
        }
    }

    /// `ahead`: PSNs between the oldest unacknowledged one and the one that the packet names.
    fn on_acknowledge(&mut self, now: Time, ahead: u32, syndrome: Syndrome) -> Received {
        match syndrome {
            Syndrome::Ack { .. } => match self.acknowledge(now, ahead + 1, Reload::Yes) {
                Ok(()) => Received::Nothing,
                Err(other) => other,
            },
            Syndrome::RnrNak { timer } => match self.acknowledge(now, ahead, Reload::Yes) {
                Ok(()) => self.on_rnr(now, timer),
                Err(other) => other,
            },
            Syndrome::Nak { code: NakCode::PsnSequenceError } => {
                match self.acknowledge(now, ahead, self.reload_by_nak()) {
                    Ok(()) if mutant!(SequenceNakIgnored) => Received::Nothing,
                    Ok(()) => self.lose(now, RecoverCause::SequenceNak),
                    Err(other) => other,
                }
            }
            Syndrome::Nak { code } => self.on_fatal_nak(now, ahead, code),
            Syndrome::Reserved { .. } => Received::Drop(DropReason::Syndrome),
        }
    }

    fn reload_by_nak(&self) -> Reload {
        match self.cfg.rules.sequence_nak {
            SequenceNak::UsesRetry => Reload::No,
            SequenceNak::Progress | SequenceNak::Reloads => Reload::Yes,
        }
    }

    /// A sequence NAK that names a packet beyond the gap.
    fn on_sack(&mut self, now: Time, ahead: u32, held: Psn) -> Received {
        let passed = self.acknowledge(now, ahead, self.reload_by_nak()).err();
        if self.failed || passed.is_some() && self.recovery.sends_all_again() {
            return passed.unwrap_or(Received::Nothing);
        }
        if held == self.una || !self.flight().contains(held) {
            self.counters.stale_responses += 1;
            return Received::Drop(DropReason::Stale);
        }
        let (first, count) = self.held_by_peer(held);
        if self.recovery.on_sack(self.flight(), first, count) && passed.is_none() {
            return self.begin_round(now, RecoverCause::SequenceNak);
        }
        if let Some(passed) = passed {
            return passed;
        }
        self.count(RecoverCause::SequenceNak);
        Received::Recover { psn: self.una, cause: RecoverCause::SequenceNak }
    }

    /// NAK Invalid Request, Remote Access or Remote Operational (`protocol.md` §2.4, §4.2).
    fn on_fatal_nak(&mut self, now: Time, ahead: u32, code: NakCode) -> Received {
        let status = match code.requester_status() {
            Some(status) if code != NakCode::InvalidRdRequest => status,
            _ => return Received::Drop(DropReason::Syndrome),
        };
        if let Err(other) = self.acknowledge(now, ahead, Reload::Yes) {
            return other;
        }
        match code {
            NakCode::InvalidRequest => self.counters.req_remote_invalid_request += 1,
            NakCode::RemoteAccessError => self.counters.req_remote_access_errors += 1,
            _ => {}
        }
        self.enter_error(status)
    }

    fn on_atomic_ack(&mut self, now: Time, ahead: u32, orig: u64) -> Received {
        if let Err(other) = self.acknowledge(now, ahead, Reload::Yes) {
            return other;
        }
        let entry = &self.queue[self.done];
        let wqe = entry.job.wqe;
        if !entry.answered() || entry.job.op == WrOpcode::RdmaRead {
            return self.enter_error(WcStatus::BadRespErr);
        }
        self.una = self.una.next();
        self.rd_atomic -= 1;
        self.end_front();
        self.end_executed();
        self.moved(now, Reload::Yes);
        Received::AtomicResult { wqe, orig }
    }

    fn on_read_response(&mut self, now: Time, ahead: u32, pkt: &PacketDesc) -> Received {
        if let Err(other) = self.acknowledge(now, ahead, Reload::Yes) {
            return other;
        }
        let entry = &self.queue[self.done];
        let wqe = entry.job.wqe;
        let index = distance(entry.first, self.una);
        let offset = index * self.mtu();
        let last = index + 1 == entry.packets;
        let len = (entry.job.len - offset).min(self.mtu());
        // Packets of the response to an earlier request may still arrive after a restart.
        let operation = pkt.opcode.operation();
        let in_place = operation == read_response(index, entry.packets)
            || (index == entry.restart && operation == read_response(0, entry.packets - index));
        if entry.job.op != WrOpcode::RdmaRead || !in_place || pkt.len != len {
            return self.enter_error(WcStatus::BadRespErr);
        }
        self.una = self.una.next();
        if last {
            self.rd_atomic -= 1;
            self.end_front();
            self.end_executed();
        }
        self.moved(now, Reload::Yes);
        Received::Place { wqe, offset, len, last }
    }

    /// Acknowledges the `count` oldest PSNs. Only its own response can answer a READ or ATOMIC:
    /// one that is passed by has lost it.
    fn acknowledge(&mut self, now: Time, count: u32, reload: Reload) -> Result<(), Received> {
        let (mut left, before) = (count, self.una);
        let executed = before.add(count);
        let mut end = Ok(());
        while left > 0 {
            let entry = &self.queue[self.done];
            let rest = distance(self.una, entry.first.add(entry.packets));
            if entry.answered() && !mutant!(AckCompletesRead) {
                let within = entry.job.op == WrOpcode::RdmaRead && left < rest;
                end = Err(if within { RecoverCause::ReadGap } else { RecoverCause::ImpliedNak });
                break;
            }
            let step = rest.min(left);
            self.una = self.una.add(step);
            left -= step;
            let uncovered = if step == rest { self.end_front() } else { None };
            if let Some((wqe, status)) = uncovered {
                return Err(Received::Error { wqe, status });
            }
        }
        if self.una != before {
            self.moved(now, reload);
        }
        end.map_err(|cause| self.missed(now, cause, executed))
    }

    /// What a response told that passed by a READ or ATOMIC holds for the SENDs and WRITEs behind
    /// it, once that has its answer: where they do not go out again, nothing else would.
    fn end_executed(&mut self) {
        while !self.failed && self.in_flight_before(self.passed) {
            let entry = &self.queue[self.done];
            if entry.answered() {
                return;
            }
            let rest = distance(self.una, entry.first.add(entry.packets));
            let step = distance(self.una, self.passed).min(rest);
            self.una = self.una.add(step);
            if step == rest {
                self.end_front();
            }
        }
    }

    /// `una` has moved on.
    fn moved(&mut self, now: Time, reload: Reload) {
        if self.failed {
            return;
        }
        if let Some(psn) = self.credits.limited
            && !self.flight().contains(psn.prev())
        {
            // Its first packet was taken by a receive: the rest is not limited.
            self.credits.limited = None;
        }
        self.recovery.on_ack(self.flight());
        // Kept within the window, or it would come round with the PSNs.
        if !self.in_flight_before(self.passed) {
            self.passed = self.una;
        }
        self.gap_seen = false;
        self.expired = 0;
        if reload == Reload::Yes && !mutant!(ProgressReloadsNothing) {
            self.reload();
        }
        if !mutant!(ProgressKeepsTimer) {
            self.restart_ack_timer(now);
        }
    }

    /// A response has passed by an unanswered READ or ATOMIC; the peer has executed what lies
    /// before `executed`. Those behind it pass by as well: only the first one counts, until
    /// something moves.
    fn missed(&mut self, now: Time, cause: RecoverCause, executed: Psn) -> Received {
        let known = std::mem::replace(&mut self.gap_seen, true) || mutant!(ImpliedNakIgnored);
        let told = if known { Received::Nothing } else { self.lose(now, cause) };
        self.tell_executed(executed);
        told
    }
}
