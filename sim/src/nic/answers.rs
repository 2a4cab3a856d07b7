//! Which transmission an answer answers, and how long the ack timer would have had to run for it.
//!
//! A device cannot tell: a packet and its copies have one PSN. The model can: each packet has with
//! it how often the ack timer of its sender had expired before ([`Packet::expiries`]), and an
//! answer has the highest number that the peer had seen when it made it. An answer with a lower
//! number than an expiry is to a transmission before that, so nothing was lost and the timer was
//! too early; one that the peer made after the copies had come is taken for an answer to them.
//!
//! [`Packet::expiries`]: crate::wire::Packet::expiries

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::QpState;

use super::{Nic, NicQp};
use crate::rc::Ext;
use crate::wire::Packet;

/// Expiries since the last progress that are kept, the latest ones. As many as there can be unless
/// retries have no limit.
const MOST: usize = 16;

/// The ack timer of a QP beside the answers that came.
#[derive(Clone, Default, Debug)]
pub struct AnswerWaits {
    /// The longest time from a start of the ack timer to the answer that moved the QP on. Where the
    /// timer had expired between the transmission and its answer: from the start of the one that
    /// expired first. A timer that is longer would have expired for nothing but a loss.
    pub longest: Span,
    /// Expiries before an answer to what had been sent before them: what they sent again for had
    /// arrived, and its answer as well.
    pub early: u64,
    /// Of these the one that the timer would have had to be longest for: from its start to the
    /// answer.
    pub worst_early: Option<(Time, Time)>,
    /// Expiries so far; it wraps.
    expiries: u8,
    /// Most expiries of the peer, by a packet that came from it.
    seen: u8,
    /// Expiries since the last progress: number, and when that timer was started.
    pending: Vec<(u8, Time)>,
}

/// Whether the number of expiries `a` is more than `b`: they wrap, and what is still under way is
/// not half a turn old.
const fn more(a: u8, b: u8) -> bool {
    matches!(a.wrapping_sub(b), 1..=127)
}

impl AnswerWaits {
    /// What a packet that leaves has with it.
    pub(super) const fn of_packet(&self, request: bool) -> u8 {
        if request { self.expiries } else { self.seen }
    }

    /// A request came that had this with it.
    pub(super) const fn came(&mut self, expiries: u8) {
        if more(expiries, self.seen) {
            self.seen = expiries;
        }
    }

    /// The ack timer that was started at `since` has expired.
    pub(super) fn expired(&mut self, since: Time) {
        self.expiries = self.expiries.wrapping_add(1);
        if self.pending.len() == MOST {
            self.pending.remove(0);
        }
        self.pending.push((self.expiries, since));
    }

    /// An answer that moves the QP on, and what it had with it. `since`: the start of the ack timer
    /// that runs.
    pub(super) fn answered(&mut self, now: Time, expiries: u8, since: Option<Time>) {
        let early = || self.pending.iter().filter(|(n, _)| more(*n, expiries));
        let (count, first) = (early().count() as u64, early().map(|(_, since)| *since).next());
        self.early += count;
        if let Some(since) = first.or(since) {
            let wait = now.max(since).since(since);
            self.longest = self.longest.max(wait);
            let worst = self.worst_early.map_or(Span::ZERO, |(from, to)| to.since(from));
            if first.is_some() && wait > worst {
                self.worst_early = Some((since, now));
            }
        }
        self.pending.clear();
    }

    /// The QP begins anew: what it waited for is of a former life.
    pub(super) fn reset(&mut self) {
        self.pending.clear();
    }
}

impl NicQp {
    /// A packet came after the QP had failed: whether it is the answer that was waited for.
    fn note_late(&mut self, now: Time, p: &Packet) {
        let Some(ended) = self.death.as_ref().and_then(|d| d.ended) else { return };
        let (una, next) = (ended.standing.una, ended.standing.next);
        let awaited = p.desc.psn.diff(una) >= 0 && p.desc.psn.diff(next) < 0;
        let nak = match p.desc.ext {
            Ext::Aeth { syndrome, .. } | Ext::AtomicAck { syndrome, .. } => syndrome.is_nak(),
            Ext::Sack { .. } => true,
            _ => false,
        };
        if awaited && !p.desc.opcode.is_request() && !nak {
            self.waits.answered(now, p.expiries, None);
        }
    }
}

impl Nic {
    /// A packet is about to be dropped, since its QP has failed.
    pub(super) fn note_late_answer(&mut self, now: Time, p: &Packet) {
        let index = self.own_qp_index(p.desc.dest);
        let q = index.and_then(|i| self.qps.get_mut(i as usize)?.as_deref_mut());
        if let Some(q) = q.filter(|q| q.state == QpState::Err) {
            q.note_late(now, p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Span::from_us(n)
    }

    #[test]
    fn an_expiry_is_early_when_the_answer_is_to_what_was_sent_before_it() {
        let mut w = AnswerWaits::default();
        // In time: the timer that runs is what counts.
        w.answered(us(3), 0, Some(us(1)));
        assert_eq!((w.longest, w.early), (Span::from_us(2), 0));
        // To the first transmission, and twice too late.
        w.expired(us(10));
        w.expired(us(20));
        w.answered(us(35), 0, Some(us(30)));
        assert_eq!((w.longest, w.early), (Span::from_us(25), 2));
        // To the second one: what went before it was lost.
        w.expired(us(40));
        w.expired(us(50));
        w.answered(us(61), 3, Some(us(60)));
        assert_eq!((w.early, w.worst_early), (3, Some((us(10), us(35)))));
        assert_eq!(w.longest, Span::from_us(25), "11 us since the second timer");
        // To the last one, of which nothing is known but that the timer was long enough.
        w.expired(us(70));
        w.answered(us(99), 5, Some(us(98)));
        assert_eq!((w.early, w.longest), (3, Span::from_us(25)));
        // What was waited for in a former life is not answered in this one.
        w.expired(us(100));
        w.reset();
        w.answered(us(200), 0, None);
        assert_eq!(w.early, 3);
    }

    #[test]
    fn of_expiries_without_end_the_latest_are_kept_and_their_number_wraps() {
        let mut w = AnswerWaits::default();
        (0..257).for_each(|n| w.expired(us(n)));
        assert_eq!((w.pending.len(), w.of_packet(true)), (MOST, 1));
        // To what was sent after the one before the last but one.
        w.answered(us(300), 255, None);
        assert_eq!((w.early, w.longest), (2, Span::from_us(300 - 255)));
        for (came, most) in [(7, 7), (5, 7), (130, 130), (250, 250), (2, 2), (250, 2)] {
            w.came(came);
            assert_eq!(w.of_packet(false), most);
        }
    }
}
