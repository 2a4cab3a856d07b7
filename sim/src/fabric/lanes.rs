//! Credit flow control of InfiniBand links: the states of [`credits`](super::credits) at both ends
//! of a link, one per virtual lane (traffic class), with the times at which they learn of each
//! other.
//!
//! A packet takes its blocks at its start. They come back when its last bit has left the buffer and
//! the return delay has passed, by a flow-control packet that takes the cable's propagation. The
//! receiver tells every change of its limit. A packet that a fault takes from the cable takes its
//! credit along until the sender's next regular flow-control packet; those are never lost here.

use std::sync::Arc;

use doorbell_core::units::{BitRate, Span, Time};

use super::credits::{CreditReceiver, CreditSender, blocks};
use super::egress::Queued;

/// Bytes of four lanes in 65,536 symbols of eight data bits: a flow-control packet goes at least as
/// often (`protocol.md` §7.1).
const REFRESH_BYTES: u64 = 4 * 65_536;

/// Flow control of the InfiniBand links of a network. What each receiver holds is in
/// [`Buffering::Credits`](super::Buffering::Credits) and
/// [`ReceiveBuffer::Credits`](super::ReceiveBuffer::Credits).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CreditConfig {
    /// From a packet's last bit out of a buffer to the flow-control packet that says so. Higher:
    /// a link needs more credit to stay busy, its rate times this.
    pub return_delay: Span,
    /// From these times on, which rise, it is another: new firmware.
    pub changes: Vec<(Time, Span)>,
    /// Bytes of a flow-control packet on the wire. If not 0, it takes their time, and waits for the
    /// packet that is being sent the other way; it takes nothing from the rate of what follows.
    pub packet_bytes: u32,
    /// Bytes on the wire around a packet that are not between LRH and VCRC: delimiters, which take
    /// no credit.
    pub framing_bytes: u32,
}

impl CreditConfig {
    /// The return delay at a time.
    pub fn delay_at(&self, at: Time) -> Span {
        let so_far = self.changes.iter().take_while(|(from, _)| *from <= at);
        so_far.last().map_or(self.return_delay, |(_, delay)| *delay)
    }

    /// Blocks of a packet of this size on the wire.
    pub(super) const fn blocks(&self, wire_bytes: u32) -> u16 {
        blocks(wire_bytes.saturating_sub(self.framing_bytes))
    }
}

/// What a lane of an output port has suffered for lack of credit.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Starvation {
    /// How often a packet had to wait for credit.
    pub times: u64,
    /// Time for which one waited for credit, without the transmission that was under way when it
    /// began.
    pub starved: Span,
    /// Part of `starved` for which the far end had nothing of the lane, neither in a queue nor
    /// leaving it: all credit was on the cable, or on its way back, and a link behind it had time
    /// for more. Large: more credits help. Small: what holds the credit waits for a link behind.
    pub late: Span,
    /// Fewest credits that the lane ever had, in blocks.
    pub least: u16,
}

impl Starvation {
    /// With a wait from `since` to `now`; none if the credit came before the port could send.
    /// `idle`: time in which the far end had nothing of the lane, around that wait.
    fn after(self, since: Time, now: Time, idle: Span) -> Self {
        if now <= since {
            return self;
        }
        let wait = now.since(since);
        let (times, starved) = (self.times + 1, self.starved + wait);
        Self { times, starved, late: self.late + wait.min(idle), ..self }
    }
}

/// Bits of a picosecond count that the record of a far end's work leaves out, so that it fits
/// beside a limit in 16 bytes of event: a unit of 256 ps, which wraps after 1.1 s. Between two
/// flow-control packets that is more than any link takes.
const BUSY_SHIFT: u32 = 8;

/// What the far end of a lane was heard to have worked, and when.
#[derive(Copy, Clone, Default, Debug)]
struct Heard {
    at: Time,
    busy: u32,
}

impl Heard {
    /// Of the time up to `now`, that in which the far end, which has worked `busy` by then, had
    /// nothing of the lane.
    fn idle(self, now: Time, busy: u32) -> Span {
        let worked = u64::from(busy.wrapping_sub(self.busy)) << BUSY_SHIFT;
        now.since(self.at).saturating_sub(Span::from_ps(worked))
    }
}

#[derive(Clone, Debug)]
struct Sender {
    credits: CreditSender,
    since: Option<Time>,
    suffered: Starvation,
    /// By the last flow-control packet,
    heard: Heard,
    /// and by the last one before the wait that lasts.
    before: Heard,
}

/// The lanes of an output port.
#[derive(Clone, Debug)]
pub(super) struct Senders {
    config: Arc<CreditConfig>,
    lanes: Vec<Sender>,
}

impl Senders {
    /// Lanes that may send as much as the other end has just granted.
    pub fn new(config: Arc<CreditConfig>, lanes: usize, room: u32) -> Self {
        let mut credits = CreditSender::default();
        credits.limit(CreditReceiver::new(room).fccl());
        let suffered = Starvation { least: credits.credits(), ..Starvation::default() };
        let (heard, before) = (Heard::default(), Heard::default());
        Self {
            config,
            lanes: vec![Sender { credits, since: None, suffered, heard, before }; lanes],
        }
    }

    pub fn count(&self) -> u8 {
        self.lanes.len() as u8
    }

    pub fn may_send(&self, item: &Queued) -> bool {
        let lane = &self.lanes[usize::from(item.class)];
        lane.credits.may_send(self.config.blocks(item.wire_bytes))
    }

    pub fn sent(&mut self, item: &Queued) {
        let blocks = self.config.blocks(item.wire_bytes);
        let lane = &mut self.lanes[usize::from(item.class)];
        lane.credits.sent(blocks);
        lane.suffered.least = lane.suffered.least.min(lane.credits.credits());
    }

    /// The far end has said how far to go, and how long it has worked.
    pub fn limit(&mut self, at: Time, lane: u8, (fccl, busy): (u16, u32)) {
        let lane = &mut self.lanes[usize::from(lane)];
        let new = lane.credits.limit(fccl);
        lane.heard = Heard { at, busy };
        debug_assert!(new, "only changes are told");
    }

    pub fn credits(&self, lane: u8) -> u16 {
        self.lanes[usize::from(lane)].credits.credits()
    }

    /// Looks again at whether the head of a lane waits for credit; `from` is when the port would
    /// have sent it.
    pub fn watch(&mut self, now: Time, from: Time, lane: u8, head: Option<&Queued>) {
        let starves = head.is_some_and(|item| !self.may_send(item));
        let lane = &mut self.lanes[usize::from(lane)];
        match (lane.since, starves) {
            (None, true) => {
                lane.since = Some(from);
                lane.before = lane.heard;
            }
            (Some(since), false) => {
                let idle = lane.before.idle(lane.heard.at, lane.heard.busy);
                lane.suffered = lane.suffered.after(since, now, idle);
                lane.since = None;
            }
            _ => {}
        }
    }

    /// Since when the head of a lane has waited for credit.
    pub fn since(&self, lane: u8) -> Option<Time> {
        self.lanes[usize::from(lane)].since
    }

    /// Whether both ends of a lane know the same, and its packets that `wait` at the far end take
    /// all that is in use there.
    pub fn held<'a>(
        &self,
        far: &Receivers,
        lane: u8,
        wait: impl Iterator<Item = &'a Queued>,
    ) -> bool {
        let (own, far) = (&self.lanes[usize::from(lane)], &far.lanes[usize::from(lane)]);
        let granted = far.credits.fccl().wrapping_sub(far.credits.abr()) & 0xFFF;
        let blocks: u32 = wait.map(|q| u32::from(self.config.blocks(q.wire_bytes))).sum();
        own.credits.fctbs() == far.credits.abr()
            && own.credits.credits() == granted
            && blocks == far.credits.used()
    }

    /// What a lane has suffered up to `now`, a wait that lasts included; the far end has worked
    /// `busy` by then.
    pub fn suffered(&self, now: Time, lane: u8, busy: u32) -> Starvation {
        let lane = &self.lanes[usize::from(lane)];
        let with = |since| lane.suffered.after(since, now, lane.before.idle(now, busy));
        lane.since.map_or(lane.suffered, with)
    }
}

#[derive(Copy, Clone, Debug)]
struct Receiver {
    credits: CreditReceiver,
    /// The limit that the sender was told last.
    told: u16,
    /// Blocks that were lost on the cable and whose sender has not said so yet.
    lost: u16,
    work: Work,
    /// What `work` was when the last packet left of which this lane knows.
    busy: u32,
}

/// For how long packets of a lane have been in the queues of a node, or were leaving it.
#[derive(Copy, Clone, Default, Debug)]
struct Work {
    waiting: u32,
    /// The last bit of what has begun to leave leaves then.
    until: Time,
    done: Span,
    /// Time up to which `done` is right.
    settled: Time,
}

impl Work {
    fn by(&self, now: Time) -> Span {
        let to = if self.waiting > 0 { now } else { self.until.min(now) };
        self.done + to.max(self.settled).since(self.settled)
    }

    fn settle(&mut self, now: Time) {
        (self.done, self.settled) = (self.by(now), now);
    }
}

/// The lanes of an input port.
#[derive(Clone, Debug)]
pub(super) struct Receivers {
    config: Arc<CreditConfig>,
    lanes: Vec<Receiver>,
}

impl Receivers {
    pub fn new(config: Arc<CreditConfig>, lanes: usize, room: u32) -> Self {
        let credits = CreditReceiver::new(room);
        let told = credits.fccl();
        let receiver = Receiver { credits, told, lost: 0, work: Work::default(), busy: 0 };
        Self { config, lanes: vec![receiver; lanes] }
    }

    /// Blocks in use, all lanes together.
    pub fn used(&self) -> u64 {
        self.lanes.iter().map(|l| u64::from(l.credits.used())).sum()
    }

    /// Room of each lane, in blocks.
    pub fn room(&self) -> u32 {
        self.lanes.first().map_or(0, |l| l.credits.buffer())
    }

    pub fn arrived(&mut self, lane: u8, wire_bytes: u32) {
        let blocks = self.config.blocks(wire_bytes);
        self.lanes[usize::from(lane)].credits.received(blocks);
    }

    /// A packet of a lane has come into a queue.
    pub fn queued(&mut self, now: Time, lane: u8) {
        let work = &mut self.lanes[usize::from(lane)].work;
        work.settle(now);
        work.waiting += 1;
    }

    /// One of them has left its queue; its last bit is gone at `end`.
    pub fn leaves_queue(&mut self, now: Time, end: Time, lane: u8) {
        let work = &mut self.lanes[usize::from(lane)].work;
        work.settle(now);
        work.waiting -= 1;
        work.until = work.until.max(end);
    }

    /// For how long there have been packets of a lane in queues or leaving at a time, which may be
    /// the end of one that is leaving; modulo 2^32 units.
    pub fn busy(&self, at: Time, lane: u8) -> u32 {
        (self.lanes[usize::from(lane)].work.by(at).as_ps() >> BUSY_SHIFT) as u32
    }

    /// When a packet whose last bit leaves the buffer at `end` gives its credit back.
    pub fn returned_at(&self, end: Time) -> Time {
        end + self.config.delay_at(end)
    }

    pub fn freed(&mut self, lane: u8, wire_bytes: u32, busy: u32) {
        let blocks = self.config.blocks(wire_bytes);
        let lane = &mut self.lanes[usize::from(lane)];
        lane.credits.freed(blocks);
        lane.busy = busy;
    }

    /// A packet was lost on the cable. Gives when the sender's next regular flow-control packet
    /// tells of it, unless that is waited for already.
    pub fn lost(&mut self, now: Time, rate: BitRate, lane: u8, wire_bytes: u32) -> Option<Time> {
        let blocks = self.config.blocks(wire_bytes);
        let lane = &mut self.lanes[usize::from(lane)];
        let first = lane.lost == 0;
        lane.lost += blocks;
        let period = rate.time_for(REFRESH_BYTES).as_ps();
        let next = (now.as_ps() / period + 1) * period;
        first.then_some(Time::from_ps(next))
    }

    /// The sender's regular flow-control packet: its total counts what came and what was lost.
    pub fn refresh(&mut self, lane: u8) {
        let lane = &mut self.lanes[usize::from(lane)];
        let sent = lane.credits.abr().wrapping_add(lane.lost);
        let missing = lane.credits.total_sent(sent);
        debug_assert_eq!(missing, lane.lost, "what was lost is what is missing");
        lane.lost = 0;
    }

    /// A fault has added a copy of a packet, which is about to arrive.
    pub fn copied(&mut self, lane: u8, wire_bytes: u32) {
        let blocks = self.config.blocks(wire_bytes);
        self.lanes[usize::from(lane)].credits.copied(blocks);
    }

    /// The limit of a lane, if the sender does not know it yet, with the record of its work; now
    /// it does.
    pub fn news(&mut self, lane: u8) -> Option<(u16, u32)> {
        let lane = &mut self.lanes[usize::from(lane)];
        let fccl = lane.credits.fccl();
        (std::mem::replace(&mut lane.told, fccl) != fccl).then_some((fccl, lane.busy))
    }

    /// When a flow-control packet that is ready now has left; what is being sent on the way back
    /// ends at `free_at`.
    pub fn departs_at(&self, now: Time, free_at: Time, rate: BitRate) -> Time {
        match self.config.packet_bytes {
            0 => now,
            bytes => now.max(free_at) + rate.time_for(u64::from(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    #[test]
    fn a_change_holds_from_its_instant_on() {
        let (first, second) = ((at(100), Span::from_ns(410)), (at(200), Span::from_ns(90)));
        let c = CreditConfig {
            return_delay: Span::from_ns(320),
            changes: vec![first, second],
            ..CreditConfig::default()
        };
        let delays = [(0, 320), (99, 320), (100, 410), (199, 410), (200, 90), (9_000, 90)];
        for (ns, delay) in delays {
            assert_eq!(c.delay_at(at(ns)), Span::from_ns(delay), "{ns} ns");
        }
    }

    #[test]
    fn delimiters_take_no_credit() {
        let c = CreditConfig { framing_bytes: 18, ..CreditConfig::default() };
        assert_eq!((c.blocks(64 + 18), c.blocks(65 + 18), c.blocks(82 + 64)), (1, 2, 2));
    }

    #[test]
    fn a_regular_flow_control_packet_comes_every_65536_symbols() {
        // Four lanes of 8 Gb/s: a symbol takes 1 ns.
        let rate = BitRate::gbps(32);
        let mut r = Receivers::new(Arc::new(CreditConfig::default()), 1, 100);
        assert_eq!(r.lost(at(0), rate, 0, 640), Some(at(65_536)));
        assert_eq!(r.lost(at(7), rate, 0, 640), None, "one tells of both");
        assert_eq!(r.news(0), None, "the receiver knows of nothing yet");
        r.refresh(0);
        assert_eq!(r.news(0), Some((120, 0)));
        assert_eq!(r.news(0), None);
        assert_eq!(r.lost(at(65_536), rate, 0, 640), Some(at(2 * 65_536)));
    }
}
