//! What is kept for the question why a QP died: how it came to ERR, and why its packets were
//! dropped where they arrived. Nothing here is touched while all goes well.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{PKey, Psn, QKey, QpState, QpType, Qpn, Service};

use super::{Nic, NicQp};
use crate::memory::MemoryError;
use crate::rc::{BadRequest, DropReason, Ended, Responder};
use crate::wire::{HostId, Packet, PortId};

/// What moved a QP to ERR (SQE for UC and UD).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The program asked for it.
    Modify,
    /// One of its own work requests failed: [`Death::ended`] says which.
    Requester,
    /// It refused a request of the peer.
    Responder(BadRequest),
    /// The completion queue with this index overran.
    CqOverrun(u32),
    /// The device gave it up: a planned fault, or its doorbell was damaged.
    Device,
    /// The NIC stopped: so many damaged doorbells, of whichever queue pairs, reached the threshold.
    Stopped {
        /// Damaged doorbells by then.
        errors: u64,
        /// The threshold.
        threshold: u32,
    },
}

/// The end of a QP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Death {
    /// When it came to ERR.
    pub at: Time,
    /// Why.
    pub why: Why,
    /// Where its sending half stood. `None`: it had none yet.
    pub ended: Option<Ended>,
    /// `wr_id` of the oldest work request that had not ended, if there was one.
    pub wr_id: Option<u64>,
    /// What is wrong with the memory of a work request, where that is the cause.
    pub memory: Option<MemoryError>,
}

/// Who sent a packet. The QP number of the sender does not travel, so no device could tell it; the
/// model can.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sender {
    /// Host,
    pub host: HostId,
    /// its NIC,
    pub port: PortId,
    /// and the index of the QP in that.
    pub qp: u32,
}

/// Why a packet was dropped at its destination, with the fields that did not match.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its ICRC is wrong.
    Icrc,
    /// No QP has this number here.
    UnknownQp(Qpn),
    /// The QP has another service.
    Service {
        /// Of the packet.
        packet: Service,
        /// Of the QP.
        qp: QpType,
    },
    /// Another partition, or two limited members of the same one.
    PKey {
        /// In the packet.
        sent: PKey,
        /// Of the QP.
        expected: PKey,
    },
    /// The QP is connected to another port.
    Address {
        /// Where the packet came from.
        from: (HostId, PortId),
        /// Where it would have to come from.
        expected: (HostId, PortId),
    },
    /// The QP takes no packets in this state.
    State(QpState),
    /// UD: another Q_Key.
    QKey {
        /// In the packet.
        sent: QKey,
        /// Of the QP.
        expected: QKey,
    },
    /// The receive buffer was full, and the link can hold nobody back.
    NoRoom,
    /// The transport found no use for it.
    Transport(DropReason),
    /// UC, UD: it could not be executed.
    Request(BadRequest),
}

impl Refused {
    /// Whether both are counted as one: of the same kind, and of states and reasons the same one.
    fn same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::State(a), Self::State(b)) => a == b,
            (Self::Transport(a), Self::Transport(b)) => a == b,
            (Self::Request(a), Self::Request(b)) => a == b,
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// Packets that a question is about: those of some PSNs, in some time. What happened to other
/// packets has no part in why these have no answer, and what happened later neither.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Episode {
    /// Not before the begin of the queue pair's present life: PSNs of earlier ones are other
    /// packets.
    pub since: Time,
    /// First instant that is too late; [`Time::MAX`]: nothing is.
    pub until: Time,
    /// Oldest PSN,
    pub first: Psn,
    /// and the one after the last.
    pub end: Psn,
    /// Least time between the begins of two transmissions. A packet begins one if its PSN is not
    /// beyond that of the packet that began the present one, so long before at least, or not beyond
    /// any of the present one, the last so long before: copies of one ACK, one for each packet that
    /// came twice, are of one transmission. Higher: fewer of them.
    pub apart: Span,
}

impl Episode {
    /// Whether a packet with this PSN at this time belongs to it.
    pub fn holds(&self, at: Time, psn: Psn) -> bool {
        (self.since..self.until).contains(&at) && self.offset(psn) < self.offset(self.end)
    }

    /// How many PSNs `psn` is behind the first one.
    fn offset(&self, psn: Psn) -> u32 {
        Psn::new(psn.value().wrapping_sub(self.first.value())).value()
    }
}

/// Packets of one kind, with their PSNs: the latest ones, so that long runs stay bounded, and of
/// the earlier ones how many, when, and between which PSNs.
#[derive(Clone, Debug, Default)]
pub(crate) struct PsnLog {
    latest: VecDeque<(Time, Psn)>,
    earlier: Option<Earlier>,
}

/// Packets that a log no longer has one by one.
#[derive(Copy, Clone, Debug)]
struct Earlier {
    packets: u64,
    first: Time,
    last: Time,
    /// PSN of the first one, and how far the lowest and the highest are from it.
    psn: Psn,
    low: i32,
    high: i32,
}

impl Earlier {
    fn add(&mut self, at: Time, psn: Psn) {
        let off = psn.diff(self.psn);
        (self.packets, self.last) = (self.packets + 1, at);
        (self.low, self.high) = (self.low.min(off), self.high.max(off));
    }

    /// Whether every one of them belongs to the episode.
    fn all_within(&self, e: &Episode) -> bool {
        let psn = |off: i32| Psn::new(self.psn.value().wrapping_add_signed(off));
        let (low, high) = (e.offset(psn(self.low)), e.offset(psn(self.high)));
        let times = e.holds(self.first, psn(self.high)) && self.last < e.until;
        times && low + self.high.abs_diff(self.low) == high
    }
}

/// Packets of an episode.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Within {
    pub packets: u64,
    pub rounds: u64,
    pub first: Time,
    pub last: Time,
    /// There may have been more, before the first one.
    pub at_least: bool,
}

impl PsnLog {
    /// Packets that are kept of each kind: 64 Ki, 1 MiB.
    const MOST: usize = 1 << 16;

    pub(crate) fn add(&mut self, at: Time, psn: Psn) {
        if self.latest.len() == Self::MOST
            && let Some((at, psn)) = self.latest.pop_front()
        {
            let none = Earlier { packets: 0, first: at, last: at, psn, low: 0, high: 0 };
            self.earlier.get_or_insert(none).add(at, psn);
        }
        self.latest.push_back((at, psn));
    }

    /// How many belong to the episode, of how many transmissions, and when the first and the last
    /// of them was.
    pub(crate) fn within(&self, e: &Episode) -> Option<Within> {
        let mut late: Option<Within> = None;
        // Where the present transmission began, and the highest PSN of it.
        let mut begun = (Time::ZERO, e.first);
        let mut highest = e.first;
        for &(at, psn) in self.latest.iter().filter(|(at, psn)| e.holds(*at, *psn)) {
            let none = Within { packets: 0, rounds: 0, first: at, last: at, at_least: false };
            let w = late.get_or_insert(none);
            let anew = psn.diff(begun.1) <= 0 && at >= begun.0 + e.apart;
            // An ACK of what came twice has the highest PSN of all.
            let again = psn.diff(highest) <= 0 && at >= w.last + e.apart;
            if w.packets == 0 || anew || again {
                (w.rounds, begun, highest) = (w.rounds + 1, (at, psn), psn);
            }
            highest = if psn.diff(highest) > 0 { psn } else { highest };
            (w.packets, w.last) = (w.packets + 1, at);
        }
        match (self.earlier, late) {
            (Some(g), late) if g.all_within(e) => {
                let w = late.map_or((0, 0, g.last), |w| (w.packets, w.rounds, w.last));
                // As many as there can have been, and not more than packets.
                let most = g.last.since(g.first).as_ps().checked_div(e.apart.as_ps());
                let rounds = most.map_or(g.packets, |most| g.packets.min(most + 1));
                let (packets, rounds, last) = (w.0 + g.packets, w.1 + rounds, w.2);
                Some(Within { packets, rounds, first: g.first, last, at_least: false })
            }
            (Some(g), Some(w)) => {
                Some(Within { at_least: g.last >= e.since && g.first < e.until, ..w })
            }
            (_, late) => late,
        }
    }
}

/// Packets of one sender that were dropped for one reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Why, with the fields of the first one.
    pub why: Refused,
    /// Requests; else responses.
    pub request: bool,
    /// The QP that they were for.
    pub dest: Qpn,
    /// How many.
    pub packets: u64,
    /// Of an episode: of how many transmissions they are ([`Episode::apart`]).
    pub rounds: u64,
    /// When the first one came,
    pub first: Time,
    /// and the last one.
    pub last: Time,
    /// Of an episode: there may have been more, before the first one, that are not told apart any
    /// more from those of other times.
    pub at_least: bool,
}

/// All that a NIC dropped, by sender. Bounded by senders times reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Drops(BTreeMap<Sender, Vec<(Dropped, PsnLog)>>);

impl Drops {
    pub(super) fn add(&mut self, now: Time, p: Arrived, why: Refused) {
        let Arrived { from, dest, request, psn } = p;
        let of = self.0.entry(from).or_default();
        let same = |d: &Dropped| (d.request, d.dest) == (request, dest) && d.why.same_kind(&why);
        let at = of.iter().position(|(d, _)| same(d)).unwrap_or_else(|| {
            let (packets, rounds, first, last, at_least) = (0, 0, now, now, false);
            let new = Dropped { why, request, dest, packets, rounds, first, last, at_least };
            of.push((new, PsnLog::default()));
            of.len() - 1
        });
        let (d, log) = &mut of[at];
        (d.packets, d.last) = (d.packets.saturating_add(1), now);
        log.add(now, psn);
    }

    pub(super) fn of(&self, from: Sender) -> impl Iterator<Item = &(Dropped, PsnLog)> {
        self.0.get(&from).into_iter().flatten()
    }
}

impl Sender {
    /// Who sent `p`.
    pub const fn of(p: &Packet) -> Self {
        Self { host: p.src, port: p.src_port, qp: p.src_qp }
    }
}

/// What is remembered of a packet that is dropped.
#[derive(Copy, Clone, Debug)]
pub(super) struct Arrived {
    pub from: Sender,
    pub dest: Qpn,
    pub request: bool,
    pub psn: Psn,
}

impl Arrived {
    pub(super) const fn of(p: &Packet) -> Self {
        let from = Sender::of(p);
        let request = p.desc.opcode.is_request();
        Self { from, dest: p.desc.dest, request, psn: p.desc.psn }
    }
}

impl NicQp {
    /// Records the end; only the first one of a life counts.
    pub(super) fn died(&mut self, at: Time, why: Why) {
        if self.death.is_some() {
            return;
        }
        let ended = self.requester.as_ref().and_then(|r| r.ended().copied());
        let oldest = ended.and_then(|e| e.oldest).map(|(wqe, ..)| wqe);
        let wr_id = oldest.and_then(|wqe| self.sq.slot(wqe)).map(|slot| slot.wqe.wr_id);
        self.death = Some(Box::new(Death { at, why, ended, wr_id, memory: self.bad_memory }));
    }
}

impl Nic {
    /// A packet with a wrong ICRC has arrived.
    pub(crate) fn corrupt_packet(&mut self, now: Time, p: &Packet) {
        self.stats.rx_packets += 1;
        self.refuse_packet(now, Arrived::of(p), Refused::Icrc);
    }

    /// A packet was refused for want of a receive: how many the queue holds all the same. Or of a
    /// page, whatever the queue holds.
    pub(super) fn note_fill(&mut self, qp: u32) {
        let Some(q) = self.qp(qp) else { return };
        let page = q.responder.as_ref().is_some_and(Responder::awaits_page);
        let fill = q.srq.and_then(|srq| self.srq(srq)).unwrap_or(&q.rq).len();
        if let Some(q) = self.qps[qp as usize].as_deref_mut() {
            q.fill_at_rnr = (!page).then_some(fill);
            q.stats.page_fault_naks += u64::from(page);
        }
    }

    /// A packet of an unreliable service could not be executed, and its sender learns nothing.
    /// `told`: a receive completed with an error.
    pub(super) fn note_unplaced(
        &mut self,
        now: Time,
        qp: u32,
        p: Arrived,
        (why, told): (BadRequest, bool),
    ) {
        let why = Refused::Request(why);
        match self.qp(qp).map(|q| q.ty) {
            None | Some(QpType::Rc) => {}
            Some(_) if told => self.drops.add(now, p, why),
            Some(_) => self.refuse_packet(now, p, why),
        }
    }

    /// What this NIC dropped of the packets of a sender, reason by reason.
    pub fn dropped_of(&self, from: Sender) -> impl Iterator<Item = &Dropped> {
        self.drops.of(from).map(|(d, _)| d)
    }

    /// As [`dropped_of`](Self::dropped_of), of the packets of an episode only, which may depend on
    /// why they were dropped.
    pub fn dropped_within(
        &self,
        from: Sender,
        of: impl Fn(&Dropped) -> Episode,
    ) -> impl Iterator<Item = Dropped> {
        self.drops.of(from).filter_map(move |(d, log)| {
            let Within { packets, rounds, first, last, at_least } = log.within(&of(d))?;
            Some(Dropped { packets, rounds, first, last, at_least, ..*d })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + doorbell_core::units::Span::from_us(n)
    }

    #[test]
    fn drops_are_told_apart_by_sender_direction_and_reason() {
        let mut drops = Drops::default();
        let sender = |h, qp| Sender { host: HostId(h), port: PortId(0), qp };
        let (a, b) = (sender(0, 0), sender(0, 1));
        let dest = Qpn::new(16);
        let pkey = |sent| Refused::PKey { sent: PKey(sent), expected: PKey::DEFAULT };
        let mut add = |n, from, request, why| {
            drops.add(us(n), Arrived { from, dest, request, psn: Psn::new(n as u32) }, why);
        };
        add(1, a, true, pkey(1));
        add(2, a, true, pkey(2));
        add(3, a, false, pkey(1));
        add(4, a, true, Refused::State(QpState::Init));
        add(5, a, true, Refused::State(QpState::Err));
        add(6, b, true, Refused::Icrc);
        let (first, last) = (us(1), us(2));
        let (why, packets, rounds, at_least) = (pkey(1), 2, 0, false);
        let first = Dropped { why, request: true, dest, packets, rounds, first, last, at_least };
        let of = |from| drops.of(from).map(|(d, _)| *d).collect::<Vec<_>>();
        assert_eq!(of(a)[0], first, "the fields are those of the first one");
        assert_eq!((of(a).len(), of(b).len()), (4, 1));
        assert_eq!(of(sender(1, 0)), []);
    }

    #[test]
    fn an_episode_has_its_psns_over_the_wrap_and_no_earlier_life() {
        let (since, until, apart) = (us(5), us(10), Span::ZERO);
        let (first, end) = (Psn::new(0xFF_FFFF), Psn::new(1));
        let e = Episode { since, until, first, end, apart };
        let inside = [(5, 0xFF_FFFF), (9, 0)];
        let outside = [(4, 0), (5, 0xFF_FFFE), (5, 1), (10, 0)];
        let mut log = PsnLog::default();
        for (at, psn) in inside {
            assert!(e.holds(us(at), Psn::new(psn)), "{at} {psn}");
            log.add(us(at), Psn::new(psn));
        }
        for (at, psn) in outside {
            assert!(!e.holds(us(at), Psn::new(psn)), "{at} {psn}");
            log.add(us(at), Psn::new(psn));
        }
        let (packets, rounds, first, last, at_least) = (2, 1, us(5), us(9), false);
        let within = Within { packets, rounds, first, last, at_least };
        assert_eq!(log.within(&e), Some(within));
        assert_eq!(log.within(&Episode { end: e.first, ..e }), None, "nothing is awaited");
    }

    /// Seven tries of a message of two packets, of which the first was lost, and of each later one
    /// both were answered with the same PSN.
    #[test]
    fn copies_of_one_answer_are_of_one_transmission() {
        let (since, until, apart) = (us(0), Time::MAX, Span::from_us(5));
        let (first, end) = (Psn::new(7), Psn::new(9));
        let e = Episode { since, until, first, end, apart };
        let (mut requests, mut answers) = (PsnLog::default(), PsnLog::default());
        requests.add(us(10), Psn::new(7));
        requests.add(us(11), Psn::new(8));
        for n in 2..8 {
            answers.add(us(10 * n), Psn::new(8));
            answers.add(us(10 * n + 1), Psn::new(8));
        }
        let rounds = |log: &PsnLog, e| log.within(&e).map(|w| (w.packets, w.rounds));
        assert_eq!((rounds(&requests, e), rounds(&answers, e)), (Some((2, 1)), Some((12, 6))));
        let e = Episode { apart: Span::from_us(10), ..e };
        assert_eq!(rounds(&answers, e), Some((12, 6)), "so long before is long enough");
        let e = Episode { apart: Span::from_us(11), ..e };
        assert_eq!(rounds(&answers, e), Some((12, 4)));
    }

    /// The answers to three packets are lost, and then those to what came again, which name the
    /// last packet only: each try is a transmission.
    #[test]
    fn answers_to_what_came_again_are_of_transmissions_of_their_own() {
        let (since, until, apart) = (us(0), Time::MAX, Span::from_us(5));
        let (first, end) = (Psn::new(7), Psn::new(10));
        let e = Episode { since, until, first, end, apart };
        let mut answers = PsnLog::default();
        for (n, psn) in [(10, 7), (11, 8), (12, 9), (20, 9), (21, 9), (30, 9), (40, 8)] {
            answers.add(us(n), Psn::new(psn));
        }
        assert_eq!(answers.within(&e).map(|w| (w.packets, w.rounds)), Some((7, 4)));
    }

    /// What a log has no longer one by one still counts, where all of it belongs to the episode; a
    /// part of it makes the count a least one.
    #[test]
    fn a_log_keeps_the_latest_and_counts_the_others() {
        let mut log = PsnLog::default();
        let more = PsnLog::MOST as u32 + 100;
        let psn = |n: u32| Psn::new(0xFF_FFF0 + n % 64);
        for n in 0..more {
            log.add(us(n.into()), psn(n));
        }
        let (since, until, apart) = (us(0), Time::MAX, Span::from_us(64));
        let all = Episode { since, until, first: psn(0), end: psn(63).next(), apart };
        let (packets, first, last) = (more.into(), us(0), us(u64::from(more) - 1));
        // Of 64 PSNs each: two of the hundred, and one begins anew behind them.
        let rounds = 2 + u64::from((more - 100).div_ceil(64));
        let within = |packets, rounds, first, last| {
            Some(Within { packets, rounds, first, last, at_least: false })
        };
        assert_eq!(log.within(&all), within(packets, rounds, first, last));
        for part in [
            Episode { end: psn(63), ..all },
            Episode { first: psn(1), ..all },
            Episode { since: us(1), ..all },
        ] {
            let some = log.within(&part).expect("most of them");
            assert!(some.at_least && some.packets < packets && some.first >= us(100), "{some:?}");
        }
        // Some, or all, of the latest ones came too late; then some of the others.
        for until in [101, 100] {
            let some = log.within(&Episode { until: us(until), ..all });
            assert_eq!(some, within(until, 2 + until - 100, us(0), us(until - 1)));
        }
        assert_eq!(log.within(&Episode { until: us(99), ..all }), None, "not told apart any more");
        // None of the others is of this life.
        let late = Episode { since: us(100), ..all };
        assert_eq!(log.within(&late), within(1 << 16, rounds - 2, us(100), last));
    }
}
