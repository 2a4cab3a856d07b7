//! An output port: a queue per traffic class, one link direction.
//!
//! A packet occupies the queue from its arrival until its last bit has left, because a switch
//! frees the cells of a packet as it sends them. One wake-up is pending per port at most, and
//! only while a packet waits behind another.

use doorbell_core::units::{BitRate, Serialiser, Span, Time};

use super::classes::MAX_CLASSES;
use super::ecn::{EcnConfig, MarkAt, Marking};
use super::event::{ClassCounters, DropCause, Drops, FabricEvent, PortCounters, Tally};
use super::ingress::Ingress;
use super::lanes::{Senders, Starvation};
use super::noise::IngressNoise;
use super::pfc::{
    Ignored, PAUSE_FRAME_BYTES, PauseCounters, PauseFrame, PortPauses, StormAction, Watchdog,
    pause_time,
};
use super::queues::Queues;
use super::room::RoomAhead;
use super::way::Hop;
use crate::engine::{Class, Out};
use crate::wire::codec::Ecn;
use crate::wire::{NodeId, PacketId, PortId};

/// A packet in a queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Queued {
    pub packet: PacketId,
    pub wire_bytes: u32,
    /// The input port whose buffer the packet occupies; meaningless at a host.
    pub ingress: PortId,
    /// Its traffic class.
    pub class: u8,
}

/// A packet whose transmission has begun.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Started {
    pub item: Queued,
    /// When its last bit leaves.
    pub end: Time,
}

/// No room: the packet would pass the byte limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// Whether the far end takes a packet, if it has room.
fn is_open(item: &Queued, paused: u8, lanes: Option<&Senders>) -> bool {
    paused >> item.class & 1 == 0 && lanes.is_none_or(|lanes| lanes.may_send(item))
}

/// Where an output port stands and what is at the other end of its link.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    pub node: NodeId,
    pub port: PortId,
    pub peer: NodeId,
    pub peer_port: PortId,
    pub rate: BitRate,
    pub propagation: Span,
    /// Largest packet that the link takes, in bytes on the wire.
    pub max_packet_bytes: u32,
    /// The peer acts on the first bit of a packet (cut-through) and not on the last.
    pub head: bool,
    /// Transit latency of the peer. Added here, so that a hop costs one event: every packet that
    /// the peer gets is delayed alike, hence its output queues see the same order.
    pub transit: Span,
    /// Boxed: the generator is larger than the rest of the port, and often absent.
    pub noise: Option<Box<IngressNoise>>,
    /// Room at the peer for packets of this port, `None` when the peer never pushes back.
    pub credits: Option<u64>,
    /// Credits of an InfiniBand link, which has no `credits`.
    pub lanes: Option<Box<Senders>>,
    /// Most bytes that may be in the queue, `None` without limit.
    pub limit: Option<u64>,
    /// ECN marking, where a switch does it.
    pub marking: Option<Box<Marking>>,
    /// Pause frames, where the link knows them.
    pub pauses: Option<Box<PortPauses>>,
}

/// What a port counts with every packet; the rest of its [`PortCounters`] is elsewhere.
#[derive(Copy, Clone, Default, Debug)]
struct Done {
    sent: Tally,
    max_queue_bytes: u64,
    busy: Span,
    blocked: Span,
    waited: Span,
}

/// An output port of a switch, or the transmit port of a NIC.
#[derive(Clone, Debug)]
pub struct EgressPort {
    wiring: Wiring,
    serialiser: Serialiser,
    queues: Queues,
    /// Bytes that wait, without the packet being sent.
    waiting: u64,
    /// Size of the packet being sent, until `free_at`.
    in_service: u32,
    free_at: Time,
    /// A [`FabricEvent::PortFree`] is pending.
    wake: bool,
    /// Classes that are paused, a bit each.
    paused: u8,
    /// Room left at the peer; `u64::MAX` when it never pushes back.
    credits: u64,
    /// Room that comes back without an event.
    ahead: RoomAhead,
    blocked_since: Option<Time>,
    /// Arrival of the last packet, below which noise may not push the next one.
    last_arrival: Time,
    done: Done,
    /// Boxed: two cache lines that hardly any packet touches.
    dropped: Box<Drops>,
    /// Most bytes in the queue since a recorder last asked; decides nothing.
    peak: u64,
    /// Time up to which `done.waited` is right.
    settled: Time,
}

impl EgressPort {
    pub(super) fn new(wiring: Wiring, queues: Queues) -> Self {
        Self {
            serialiser: Serialiser::new(wiring.rate),
            queues,
            waiting: 0,
            in_service: 0,
            free_at: Time::ZERO,
            wake: false,
            paused: 0,
            credits: wiring.credits.unwrap_or(u64::MAX),
            ahead: RoomAhead::default(),
            blocked_since: None,
            last_arrival: Time::ZERO,
            done: Done::default(),
            dropped: Box::default(),
            peak: 0,
            settled: Time::ZERO,
            wiring,
        }
    }

    /// The node and port at the other end of the link.
    pub const fn peer(&self) -> (NodeId, PortId) {
        (self.wiring.peer, self.wiring.peer_port)
    }

    /// Rate of the link.
    pub const fn rate(&self) -> BitRate {
        self.wiring.rate
    }

    /// The link as a packet meets it.
    pub(super) const fn hop(&self) -> Hop {
        let Wiring { node, port, rate, propagation, transit, head, .. } = &self.wiring;
        let delay = Span::from_ps(propagation.as_ps() + transit.as_ps());
        Hop { from: (*node, *port), rate: *rate, all: *rate, delay, cut_through: *head }
    }

    /// Whether the link takes a packet of this size.
    pub(super) const fn takes(&self, wire_bytes: u32) -> bool {
        wire_bytes <= self.wiring.max_packet_bytes
    }

    /// When the last bit of what is being sent now leaves. Packets that wait come after it.
    pub const fn free_at(&self) -> Time {
        self.free_at
    }

    /// Bytes that wait, without the packet being sent.
    pub const fn waiting_bytes(&self) -> u64 {
        self.waiting
    }

    /// Bytes of a traffic class that wait, without the packet being sent.
    pub fn waiting_bytes_of(&self, class: u8) -> u64 {
        self.queues.bytes_of(class).unwrap_or(self.waiting)
    }

    /// By which curve packets of a traffic class are marked here; `None`: not at all.
    pub fn curve(&self, class: u8) -> Option<EcnConfig> {
        self.wiring.marking.as_ref().and_then(|m| m.curve(class))
    }

    /// Packets of a traffic class that got an ECN mark here.
    pub fn marked(&self, class: u8) -> u64 {
        self.wiring.marking.as_ref().map_or(0, |m| m.marked(class))
    }

    /// Packets that wait, without the one being sent.
    pub fn waiting_packets(&self) -> usize {
        self.queues.len()
    }

    /// Bytes in the queue, the packet being sent included until its last bit has left.
    #[inline]
    pub fn queue_bytes(&self, now: Time) -> u64 {
        if now < self.free_at { self.waiting + u64::from(self.in_service) } else { self.waiting }
    }

    /// Whether a packet waits only because the far end has no room.
    pub const fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Bytes that the far end is known at `now` to have room for, `None` when it never pushes back.
    pub fn credits(&self, now: Time) -> Option<u64> {
        self.wiring.credits.map(|_| self.credits + self.ahead.by(now))
    }

    /// Virtual lanes with credits of their own; 0 when this is no InfiniBand link.
    pub fn lanes(&self) -> u8 {
        self.wiring.lanes.as_ref().map_or(0, |l| l.count())
    }

    /// Whether the far end can hold packets back: by room, by pauses, or by credits of lanes.
    pub const fn pushes_back(&self) -> bool {
        self.wiring.credits.is_some() || self.wiring.pauses.is_some() || self.wiring.lanes.is_some()
    }

    /// Credits of a virtual lane, in blocks; `None` when this is no InfiniBand link.
    pub fn lane_credits(&self, lane: u8) -> Option<u16> {
        self.wiring.lanes.as_deref().map(|l| l.credits(lane))
    }

    /// Since when a lane has lacked credit for its next packet; of a port without lanes, since when
    /// the port has been held back for lack of room.
    pub(super) fn starved_since(&self, lane: u8) -> Option<Time> {
        match &self.wiring.lanes {
            Some(lanes) => lanes.since(lane),
            None => self.blocked_since.filter(|_| self.wiring.credits.is_some()),
        }
    }

    /// Whether all credit that the port, or a lane of it, has spent is held by the packets that
    /// `wait` behind the far end's input: none is on the cable, and none on its way back.
    pub(super) fn credit_is_held<'a>(
        &self,
        far: &Ingress,
        lane: u8,
        wait: impl Iterator<Item = &'a Queued>,
    ) -> bool {
        match (&self.wiring.lanes, &far.lanes, self.wiring.credits) {
            (Some(own), Some(far), _) => own.held(far, lane, wait),
            (None, None, Some(all)) => {
                all - self.credits == wait.map(|q| u64::from(q.wire_bytes)).sum::<u64>()
            }
            _ => false,
        }
    }

    /// What a virtual lane has suffered for lack of credit up to `now`, when the far end had worked
    /// `busy`; `None` when this is no InfiniBand link.
    pub(super) fn starvation(&self, now: Time, lane: u8, busy: u32) -> Option<Starvation> {
        self.wiring.lanes.as_deref().map(|l| l.suffered(now, lane, busy))
    }

    /// What the port has done up to `now`, a block that still lasts and packets that still wait
    /// included.
    pub fn counters(&self, now: Time) -> PortCounters {
        let Done { sent, max_queue_bytes, busy, blocked, waited } = self.done;
        let still_blocked = self.blocked_since.map_or(Span::ZERO, |since| now.since(since));
        PortCounters {
            sent,
            dropped: *self.dropped,
            max_queue_bytes,
            busy,
            blocked: blocked + still_blocked,
            waited: waited + self.unsettled(now),
            marked: self.wiring.marking.as_ref().map_or(0, |m| m.marked_in_all()),
        }
    }

    /// Time spent sending up to `now`, without what is left of the packet being sent.
    pub fn busy(&self, now: Time) -> Span {
        self.done.busy.saturating_sub(self.free_at.since(now))
    }

    /// What the port has done in a traffic class; `None` where there is only one, whose counters
    /// are those of the port.
    pub fn class_counters(&self, class: u8) -> Option<ClassCounters> {
        self.queues.counters(class)
    }

    /// Packets that got an ECN mark here; `None` where no packet gets one.
    pub fn marks(&self) -> Option<u64> {
        self.wiring.marking.as_ref().map(|m| m.marked_in_all())
    }

    /// Largest packet that the link takes, in bytes on the wire; `None`: any.
    pub const fn max_packet_bytes(&self) -> Option<u32> {
        match self.wiring.max_packet_bytes {
            u32::MAX => None,
            bytes => Some(bytes),
        }
    }

    /// Most bytes that were in the queue since this was last asked.
    pub(crate) fn take_peak(&mut self, now: Time) -> u64 {
        let level = self.queue_bytes(now);
        std::mem::replace(&mut self.peak, level)
    }

    /// Time that the packets in the queue have waited and that is not counted yet.
    fn unsettled(&self, now: Time) -> Span {
        now.since(self.settled) * self.queues.len() as u64
    }

    /// Counts the waiting so far; to be called before the length of the queue changes.
    fn settle(&mut self, now: Time) {
        self.done.waited += self.unsettled(now);
        self.settled = now;
    }

    pub(super) fn sent(&self) -> Tally {
        self.done.sent
    }

    pub(super) fn dropped(&self) -> &Drops {
        &self.dropped
    }

    /// Packets that wait, those of one input in the order in which they leave, each with the port
    /// that it came in by, which means nothing at a host, and its class.
    pub fn waiting(&self) -> impl Iterator<Item = (PacketId, PortId, u8)> {
        self.queued().map(|q| (q.packet, q.ingress, q.class))
    }

    pub(super) fn queued(&self) -> impl Iterator<Item = &Queued> {
        self.queues.iter()
    }

    /// Takes a packet: sends it at once or lets it wait. Gives what was sent.
    ///
    /// # Errors
    /// [`Full`] when it would pass the byte limit; the port is as before.
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        item: Queued,
        out: &mut Out<FabricEvent>,
    ) -> Result<Option<Started>, Full> {
        let filled = self.queue_bytes(now) + u64::from(item.wire_bytes);
        if self.wiring.limit.is_some_and(|limit| filled > limit) {
            return Err(Full);
        }
        self.take_credits(now);
        self.done.max_queue_bytes = self.done.max_queue_bytes.max(filled);
        self.peak = self.peak.max(filled);
        // What waits at a port that could send is held back by the far end.
        let idle = now >= self.free_at && !self.wake;
        // Classes that share the far end's room ask for it in their turn.
        let shared = self.wiring.credits.is_some() && !self.queues.is_empty();
        if idle && !shared && self.may_go(&item) && self.queues.is_empty_of(item.class) {
            // Packets of other classes may be held back; now they wait for this one.
            self.unblock(now);
            let started = self.start(now, item, out);
            self.wake_if_waiting(out);
            return Ok(Some(started));
        }
        if idle && self.blocked_since.is_none() {
            self.block(now, out);
        }
        self.settle(now);
        self.queues.push(item);
        self.waiting += u64::from(item.wire_bytes);
        self.watch_credit(now, item.class);
        if idle && shared {
            return Ok(self.go_on(now, out));
        }
        self.wake_if_waiting(out);
        Ok(None)
    }

    /// Whether the far end takes a packet now.
    #[inline]
    fn may_go(&self, item: &Queued) -> bool {
        u64::from(item.wire_bytes) <= self.credits
            && is_open(item, self.paused, self.wiring.lanes.as_deref())
    }

    /// Looks again at whether a lane starves for credit.
    #[inline]
    fn watch_credit(&mut self, now: Time, lane: u8) {
        if let Some(lanes) = &mut self.wiring.lanes {
            lanes.watch(now, self.free_at.max(now), lane, self.queues.head_of(lane));
        }
    }

    /// Marks a packet, or not, as it passes a queue of `queue` bytes.
    pub(super) fn mark(&mut self, at: MarkAt, class: u8, queue: u64, ecn: &mut Ecn) {
        if let Some(m) = &mut self.wiring.marking {
            m.pass(at, class, queue, ecn);
        }
    }

    pub(super) fn count_drop(&mut self, cause: DropCause, item: &Queued) {
        self.dropped.add(cause, item.wire_bytes);
        self.queues.count(item.class, |c| c.dropped.add(item.wire_bytes));
    }

    /// The last bit of a packet has left: gives the next one if the far end has room.
    pub(super) fn on_free(&mut self, now: Time, out: &mut Out<FabricEvent>) -> Option<Started> {
        assert!(self.wake && now == self.free_at, "a wake-up that was not asked for");
        self.wake = false;
        if let Some(frame) = self.wiring.pauses.as_mut().and_then(|p| p.frames.pop_front()) {
            self.start_frame(now, frame, out);
            return None;
        }
        self.next(now, out)
    }

    /// The far end has room for `bytes` more.
    pub(super) fn on_credit(
        &mut self,
        now: Time,
        bytes: u32,
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        self.credits += u64::from(bytes);
        self.ahead.heard(now);
        self.take_credits(now);
        assert!(
            self.wiring.credits.is_some_and(|all| self.credits <= all),
            "more credits came back than were spent"
        );
        self.go_on(now, out)
    }

    /// The far end will have room for `bytes` more at `at`. True: the port counts it when it next
    /// looks, since nothing waits for it; false: it has to be told [then](Self::on_credit).
    pub(super) fn expect_credit(&mut self, now: Time, at: Time, bytes: u32) -> bool {
        // A port that has nothing more to send would note them for ever.
        self.take_credits(now);
        self.ahead.expect(at, bytes, self.blocked_since.is_some())
    }

    /// When the last credit comes that nobody is told of, up to `limit`.
    pub(super) fn last_quiet_credit(&self, limit: Time) -> Option<Time> {
        self.ahead.last_by(limit)
    }

    #[inline]
    fn take_credits(&mut self, now: Time) {
        self.credits += self.ahead.take(now);
    }

    /// What waits is held back by the far end from now on: the port wants to hear of room.
    fn block(&mut self, now: Time, out: &mut Out<FabricEvent>) {
        self.blocked_since = Some(now);
        if let Some((at, bytes)) = self.ahead.ask() {
            let Wiring { node, port, .. } = self.wiring;
            out.at(at, Class::Release, FabricEvent::Credit { node, port, bytes });
        }
    }

    /// What held the port back is gone, or less.
    fn go_on(&mut self, now: Time, out: &mut Out<FabricEvent>) -> Option<Started> {
        if self.unblock(now) { self.next(now, out) } else { None }
    }

    // ---- pauses ------------------------------------------------------------------------------

    /// Whether some class is paused.
    pub(super) const fn is_paused_at_all(&self) -> bool {
        self.paused != 0
    }

    /// Whether a class is paused.
    pub const fn is_paused(&self, class: u8) -> bool {
        self.paused >> class & 1 == 1
    }

    /// Of a pause frame that the port is sending: when its last bit leaves, when it arrives, and
    /// when it takes effect.
    pub(crate) fn pause_times(&self) -> (Time, Time, Time) {
        let arrives = self.free_at + self.wiring.propagation;
        let reaction = self.wiring.pauses.as_ref().map_or(Span::ZERO, |p| p.reaction);
        (self.free_at, arrives, arrives + reaction)
    }

    /// Whether the port sends and obeys pause frames.
    pub const fn knows_pauses(&self) -> bool {
        self.wiring.pauses.is_some()
    }

    /// Time up to `now` for which some class was paused here: pauses of several classes at once
    /// count once.
    pub fn paused(&self, now: Time) -> Span {
        let Some(p) = &self.wiring.pauses else { return Span::ZERO };
        match self.is_paused_at_all() {
            true => p.any + now.since(p.any_since),
            false => p.any,
        }
    }

    /// What the port has done about pauses in a class up to `now`.
    pub fn pauses(&self, now: Time, class: u8) -> PauseCounters {
        let Some(p) = &self.wiring.pauses else { return PauseCounters::default() };
        let mut c = p.counters[usize::from(class)];
        if self.is_paused(class) {
            c.paused += now.since(p.paused[usize::from(class)].since);
        }
        c
    }

    /// Sends a pause frame before everything that waits; `quanta` 0 lets the far end go on.
    pub(super) fn send_pause(
        &mut self,
        now: Time,
        class: u8,
        quanta: u16,
        out: &mut Out<FabricEvent>,
    ) {
        let p = self.wiring.pauses.as_mut().expect("the link knows pauses");
        let counters = &mut p.counters[usize::from(class)];
        *counters.sent(quanta) += 1;
        // One frame of a class waits at most, and says what holds when it leaves: an input that
        // crosses its threshold with each small packet would queue so many that the one that
        // counts comes too late for the headroom.
        if let Some(waiting) = p.frames.iter_mut().find(|f| f.class == class) {
            *counters.sent(waiting.quanta) -= 1;
            waiting.quanta = quanta;
            return;
        }
        let frame = PauseFrame { class, quanta };
        if now >= self.free_at && !self.wake {
            return self.start_frame(now, frame, out);
        }
        p.frames.push_back(frame);
        self.wake(out);
    }

    fn start_frame(&mut self, now: Time, frame: PauseFrame, out: &mut Out<FabricEvent>) {
        // What is held back by the far end waits for this frame now.
        self.unblock(now);
        let time = self.serialiser.next(u64::from(PAUSE_FRAME_BYTES));
        self.free_at = now + time;
        self.in_service = 0;
        self.done.busy += time;
        let Wiring { peer: node, peer_port: port, propagation, .. } = self.wiring;
        let p = self.wiring.pauses.as_ref().expect("it sends a pause");
        let PauseFrame { class, quanta } = frame;
        let more = !p.frames.is_empty();
        let at = self.free_at + propagation + p.reaction;
        out.at(at, Class::Arrival, FabricEvent::Pause { node, port, class, quanta });
        if more {
            self.wake(out);
        }
        self.wake_if_waiting(out);
    }

    /// A pause frame of the far end takes effect.
    pub(super) fn on_pause(
        &mut self,
        now: Time,
        class: u8,
        quanta: u16,
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        let Wiring { node, port, rate, .. } = self.wiring;
        let p = self.wiring.pauses.as_mut()?;
        let c = &mut p.counters[usize::from(class)];
        *(if quanta == 0 { &mut c.xon_received } else { &mut c.xoff_received }) += 1;
        let pause = &mut p.paused[usize::from(class)];
        if let Some(ignored) = &mut pause.ignored {
            let quiet = now.since(ignored.asked);
            ignored.asked = now + pause_time(rate, quanta);
            if quiet < ignored.restore {
                return None;
            }
            pause.ignored = None;
            c.restores += 1;
        }
        if quanta == 0 {
            return self.end_pause(now, class, out);
        }
        pause.until = now + pause_time(rate, quanta);
        out.at(pause.until, Class::Timer, FabricEvent::PauseEnd { node, port, class });
        if self.paused >> class & 1 == 0 {
            pause.since = now;
            if self.paused == 0 {
                p.any_since = now;
            }
            self.paused |= 1 << class;
        }
        None
    }

    /// Whether the end of a pause has been put off, or has come already.
    pub(super) fn pause_goes_on(&self, now: Time, class: u8) -> bool {
        let p = self.wiring.pauses.as_ref();
        !self.is_paused(class) || p.is_none_or(|p| now < p.paused[usize::from(class)].until)
    }

    /// The time of a pause is over, unless another one came.
    pub(super) fn on_pause_end(
        &mut self,
        now: Time,
        class: u8,
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        if self.pause_goes_on(now, class) { None } else { self.end_pause(now, class, out) }
    }

    fn end_pause(&mut self, now: Time, class: u8, out: &mut Out<FabricEvent>) -> Option<Started> {
        if !self.is_paused(class) {
            return None;
        }
        self.paused &= !(1 << class);
        let p = self.wiring.pauses.as_mut().expect("it was paused");
        let pause = &mut p.paused[usize::from(class)];
        p.counters[usize::from(class)].paused += now.since(pause.since);
        pause.storm = false;
        if self.paused == 0 {
            p.any += now.since(p.any_since);
        }
        self.go_on(now, out)
    }

    /// The port forgets the pauses of the far end and sends none of its own that still wait: its
    /// link comes up anew. What it may send by that begins.
    pub(super) fn forget_pauses(
        &mut self,
        now: Time,
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        self.wiring.pauses.as_mut()?.frames.clear();
        let mut freed = None;
        for class in 0..MAX_CLASSES as u8 {
            freed = freed.or(self.end_pause(now, class, out));
            if let Some(p) = &mut self.wiring.pauses {
                p.paused[usize::from(class)].ignored = None;
            }
        }
        freed
    }

    /// Everything that waits, which is dropped for this cause.
    pub(super) fn clear(&mut self, now: Time, cause: DropCause) -> Vec<Queued> {
        self.settle(now);
        self.unblock(now);
        let mut items = Vec::with_capacity(self.queues.len());
        while let Some(item) = self.queues.pop(u64::MAX, |_| true) {
            self.count_drop(cause, &item);
            items.push(item);
        }
        self.waiting = 0;
        for lane in 0..self.lanes() {
            self.watch_credit(now, lane);
        }
        items
    }

    /// The watchdog looks at the pauses of the port: one that has lasted for `watchdog.after` is a
    /// storm.
    pub(super) fn watch(
        &mut self,
        now: Time,
        watchdog: &Watchdog,
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        let mut freed = None;
        if !self.is_paused_at_all() {
            return freed;
        }
        for class in 0..MAX_CLASSES as u8 {
            let paused = self.is_paused(class);
            let Some(p) = self.wiring.pauses.as_mut().filter(|_| paused) else { continue };
            let pause = &mut p.paused[usize::from(class)];
            if pause.storm || now.since(pause.since) < watchdog.after {
                continue;
            }
            pause.storm = true;
            let Watchdog { action, restore, .. } = *watchdog;
            let ignored = Ignored { asked: pause.until, restore };
            pause.ignored = (action == StormAction::Ignore).then_some(ignored);
            p.counters[usize::from(class)].storms += 1;
            if pause.ignored.is_some() {
                freed = freed.or(self.end_pause(now, class, out));
            }
        }
        freed
    }

    /// A flow-control packet says how far a virtual lane may go.
    pub(super) fn on_flow_control(
        &mut self,
        now: Time,
        lane: u8,
        told: (u16, u32),
        out: &mut Out<FabricEvent>,
    ) -> Option<Started> {
        let lanes = self.wiring.lanes.as_mut().expect("only InfiniBand links have them");
        lanes.limit(now, lane, told);
        self.watch_credit(now, lane);
        self.go_on(now, out)
    }

    /// The port is not held back any more, if it was.
    #[inline]
    fn unblock(&mut self, now: Time) -> bool {
        let since = self.blocked_since.take();
        self.done.blocked += since.map_or(Span::ZERO, |since| now.since(since));
        since.is_some()
    }

    fn next(&mut self, now: Time, out: &mut Out<FabricEvent>) -> Option<Started> {
        self.take_credits(now);
        let (credits, paused) = (self.credits, self.paused);
        let waited = self.unsettled(now);
        let lanes = self.wiring.lanes.as_deref();
        let Some(item) = self.queues.pop(credits, |item| is_open(item, paused, lanes)) else {
            if !self.queues.is_empty() {
                self.block(now, out);
            }
            return None;
        };
        self.done.waited += waited;
        self.settled = now;
        self.waiting -= u64::from(item.wire_bytes);
        let started = self.start(now, item, out);
        self.watch_credit(now, item.class);
        self.wake_if_waiting(out);
        Some(started)
    }

    #[inline]
    fn wake_if_waiting(&mut self, out: &mut Out<FabricEvent>) {
        if self.blocked_since.is_none() && !self.queues.is_empty() {
            self.wake(out);
        }
    }

    /// Asks for the moment at which the port is free, once.
    #[inline]
    fn wake(&mut self, out: &mut Out<FabricEvent>) {
        if self.wake {
            return;
        }
        self.wake = true;
        let Wiring { node, port, .. } = self.wiring;
        out.at(self.free_at, Class::Release, FabricEvent::PortFree { node, port });
    }

    fn start(&mut self, now: Time, item: Queued, out: &mut Out<FabricEvent>) -> Started {
        debug_assert!(now >= self.free_at && self.may_go(&item));
        if self.wiring.credits.is_some() {
            self.credits -= u64::from(item.wire_bytes);
        }
        if let Some(lanes) = &mut self.wiring.lanes {
            lanes.sent(&item);
        }
        let time = self.serialiser.next(u64::from(item.wire_bytes));
        let end = now + time;
        self.free_at = end;
        self.in_service = item.wire_bytes;
        self.done.busy += time;
        self.done.sent.add(item.wire_bytes);
        self.queues.count(item.class, |c| c.sent.add(item.wire_bytes));
        let w = &mut self.wiring;
        let mut arrival = if w.head { now } else { end } + w.propagation + w.transit;
        if let Some(noise) = &mut w.noise {
            arrival = (arrival + noise.draw()).max(self.last_arrival);
            self.last_arrival = arrival;
        }
        let (packet, wire_bytes) = (item.packet, item.wire_bytes);
        let ev = FabricEvent::Arrive { node: w.peer, port: w.peer_port, packet, wire_bytes };
        out.at(arrival, Class::Arrival, ev);
        Started { item, end }
    }
}
