//! A message and its answer, in turn; a latency is half of the round trip.
//!
//! By SEND the other side sees a receive completion, as in perftest's `ib_send_lat`. By WRITE it
//! polls the last byte of its buffer, as in `ib_write_lat`: neither a receive nor a completion is
//! on the path. Both sides run this program; one of them starts.

use doorbell_core::transport::{
    Completions, Contents, Control, FenceScope, Mr, Next, Program, Range, RecvWr, Ring, WaitSet,
    WatchId,
};
use doorbell_core::units::Time;
use doorbell_core::verbs::{GRH_BYTES, QpType, SendFlags};

use super::common::{
    Failure, Message, Op, Poster, Results, Shape, Window, element, failed, header_bytes, part,
    retire_sends,
};
use super::connect::{Client, Lane, LinkConfig, Local, LocalConfig};

/// How the other side learns of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PingPongBy {
    /// SEND: by a receive completion.
    Send,
    /// WRITE: by polling the last byte. Needs memory with contents.
    Write,
}

/// Configuration of [`PingPong`]; both sides have the same but for `starts`, memory and `peer`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PingPongConfig {
    /// Own memory and queues.
    pub local: LocalConfig,
    /// The link; only its first QP is used.
    pub link: LinkConfig,
    /// Whether this side sends first and measures. Exactly one of the two does.
    pub starts: bool,
    /// How the other side learns of a message.
    pub by: PingPongBy,
    /// Bytes of a message, at least 1 for WRITE.
    pub size: u32,
    /// Whether the payload travels in the WQE.
    pub inline: bool,
    /// How to ring.
    pub ring: Ring,
    /// What fences stores before the ring, where the ring does not do so by itself.
    pub fence: Option<FenceScope>,
    /// Every how many messages one is signalled, at most the send queue's size. Higher: fewer
    /// completions to poll.
    pub signal_every: u32,
    /// Measured round trips, at least 1.
    pub iterations: u64,
    /// Round trips before the measured ones.
    pub warm_up: u64,
    /// Whether the messages carry a pattern, stored before the first, which each side looks for in
    /// the last one that it gets. Of SENDs with contents that are not inline; costs no measured
    /// time.
    pub check: bool,
}

impl PingPongConfig {
    /// 1,000 8-byte SENDs after 16 for warming up, each signalled.
    pub fn to(peer: u32, starts: bool) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            starts,
            by: PingPongBy::Send,
            size: 8,
            inline: false,
            ring: Ring::Auto,
            fence: Some(FenceScope::System),
            signal_every: 1,
            iterations: 1000,
            warm_up: 16,
            check: false,
        }
    }
}

/// Receives that are kept posted.
const RECEIVES: u32 = 8;

/// Offsets in the region: where messages leave from, where WRITEs and SENDs arrive. Messages end
/// at a multiple of 64, so that the last byte is the last of an aligned word.
#[derive(Copy, Clone, Debug)]
struct Layout {
    stride: u64,
    size: u64,
}

impl Layout {
    fn out(self) -> u64 {
        self.stride - self.size
    }

    fn input(self) -> u64 {
        2 * self.stride - self.size
    }

    fn receive(self) -> u64 {
        2 * self.stride
    }

    fn total(self) -> u64 {
        self.receive() + u64::from(GRH_BYTES) + self.size
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PingPong {
    config: PingPongConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    layout: Layout,
    up: bool,
    watch: Option<WatchId>,
    /// Messages sent and received.
    sent: u64,
    heard: u64,
    /// Whether the ring leaves the ordering of stores to us.
    must_fence: Option<FenceScope>,
    /// When the message that is under way was handed over.
    since: Time,
    window_from: Option<Time>,
}

impl PingPong {
    /// A program that has not started.
    pub fn new(config: PingPongConfig) -> Self {
        let op = if config.by == PingPongBy::Send { Op::Send } else { Op::Write };
        let shape = Shape { op, size: config.size, inline: config.inline };
        Self {
            config,
            client: Client::new(config.local, config.link),
            poster: Poster::new(shape),
            polled: Completions::with_capacity(RECEIVES as usize),
            results: Results::default(),
            layout: Layout { stride: shape.stride(), size: config.size.into() },
            up: false,
            watch: None,
            sent: 0,
            heard: 0,
            must_fence: None,
            since: Time::ZERO,
            window_from: None,
        }
    }

    /// What was measured; latencies, half of each round trip, at the side that starts.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn total(&self) -> u64 {
        self.config.warm_up + self.config.iterations
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.by == PingPongBy::Write && (c.local.contents == Contents::Virtual || c.size == 0) {
            return Err(Failure::Config("a WRITE is seen by its last byte: it needs contents"));
        }
        if c.signal_every == 0 || c.signal_every > c.link.size.max_send_wr {
            return Err(Failure::Config("signal_every counts from 1 to the send queue's size"));
        }
        let bare = c.by == PingPongBy::Write || c.inline || c.local.contents == Contents::Virtual;
        if c.check && bare {
            return Err(Failure::Config("only SENDs from memory with contents are checked"));
        }
        Ok(())
    }

    fn open<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.up {
            return Ok(None);
        }
        self.check()?;
        let (config, layout) = (self.config, self.layout);
        let first = |t: &mut T, l: &Local, lanes: &[Lane]| {
            if config.check {
                let out = part(&l.mr, layout.out(), layout.size)?;
                t.copy_in(out, &pattern(config.starts, layout.size))?;
            }
            if config.by == PingPongBy::Send {
                let wr = receive(&l.mr, layout, config.link.ty)?;
                let room = config.local.srq_depth.unwrap_or(config.link.size.max_recv_wr);
                t.post_recv(l.receives_of(lanes[0].qp), &vec![wr; RECEIVES.min(room) as usize])?;
            }
            Ok(())
        };
        if let Some(next) = self.client.up(t, first)? {
            return Ok(Some(next));
        }
        self.client.require(self.layout.total())?;
        if config.by == PingPongBy::Write {
            self.watch = Some(t.watch(self.word()?)?);
        }
        self.results.granted = t.qp_caps(self.client.lanes()[0].qp).ok();
        let ordered = self.results.granted.is_none_or(|c| c.ring_orders_stores);
        self.must_fence = config.fence.filter(|_| !ordered);
        self.up = true;
        Ok(None)
    }

    /// The word that ends with the last byte of an incoming WRITE.
    fn word(&self) -> Result<Range, Failure> {
        let mr = &self.client.local().mr;
        part(mr, 2 * self.layout.stride - 8, 8)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.open(t)? {
            return Ok(next);
        }
        let (cq, size) = (self.client.local().send_cq, self.config.size);
        retire_sends(t, cq, &mut self.polled, size, &mut self.results)?;
        let full = match self.config.by {
            PingPongBy::Send => self.poll_receives(t)?,
            PingPongBy::Write => {
                self.look(t)?;
                false
            }
        };
        // The one who starts is a message ahead; the other answers what it has heard.
        let due = if self.config.starts { self.heard + 1 } else { self.heard };
        if self.sent < due.min(self.total()) {
            self.send(t)?;
        }
        if self.heard == self.total() && self.sent == self.total() && self.retired() {
            return Ok(Next::Done);
        }
        if full {
            return Ok(Next::Again);
        }
        let local = self.client.local();
        let on = match self.watch {
            Some(w) => WaitSet::watch(w),
            None => WaitSet::cq(local.recv_cq),
        };
        // Own completions matter only when slots are short or at the end.
        let free = t.sq_free(self.client.lanes()[0].qp);
        let on = if free == 0 || self.heard == self.total() {
            on.or(WaitSet::cq(local.send_cq))
        } else {
            on
        };
        Ok(Next::Wait { on, until: None })
    }

    /// Whether nothing signalled is outstanding: the last message is.
    fn retired(&self) -> bool {
        self.results.messages == self.sent
    }

    fn poll_receives<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        let (local, lane) = (*self.client.local(), self.client.lanes()[0]);
        self.polled.clear();
        t.poll_cq(local.recv_cq, &mut self.polled)?;
        let wr = receive(&local.mr, self.layout, self.config.link.ty)?;
        for i in 0..self.polled.as_slice().len() {
            if let Some(f) = failed(&self.polled.as_slice()[i]) {
                return Err(f);
            }
            t.post_recv(local.receives_of(lane.qp), &[wr])?;
            self.hear(t.now());
            if self.config.check && self.heard == self.total() {
                self.check_last(t, &local.mr)?;
            }
        }
        Ok(self.polled.is_full())
    }

    /// All receives share a buffer; after the last message nothing more comes into it.
    fn check_last<T: Control>(&mut self, t: &mut T, mr: &Mr) -> Result<(), Failure> {
        let Layout { size, .. } = self.layout;
        let header = u64::from(header_bytes(self.config.link.ty));
        let mut got = vec![0; size as usize];
        t.copy_out(part(mr, self.layout.receive() + header, size)?, &mut got)?;
        // The other side is the one that starts if this one does not.
        self.results.data.corrupt += u64::from(got != pattern(!self.config.starts, size));
        Ok(())
    }

    /// Looks at the last byte: message `n` ends with the low byte of `n + 1`.
    fn look<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let last = t.load_u64(self.word()?)?.to_le_bytes()[7];
        if self.heard < self.total() && last == stamp(self.heard) {
            self.hear(t.now());
        }
        Ok(())
    }

    fn hear(&mut self, now: Time) {
        self.heard += 1;
        self.results.receive(self.config.size, now);
        if !self.config.starts || self.heard <= self.config.warm_up {
            return;
        }
        let round = now.since(self.since).as_ps();
        self.results.sample(doorbell_core::units::Span::from_ps(round / 2), now);
        let from = *self.window_from.get_or_insert(self.since);
        let messages = self.heard - self.config.warm_up;
        let bytes = messages * u64::from(self.config.size);
        self.results.window = Some(Window { from, to: now, messages, bytes });
    }

    fn send<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let (lane, mr, layout) = (self.client.lanes()[0], self.client.local().mr, self.layout);
        self.since = t.now();
        self.results.first.get_or_insert(self.since);
        if self.config.by == PingPongBy::Write {
            self.write_stamp(t, &mr)?;
        }
        let last = self.sent + 1 == self.total();
        let signal = last || (self.sent + 1).is_multiple_of(self.config.signal_every.into());
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        // A WRITE goes from the out part to the in part of the peer.
        let shift = layout.input() - layout.out();
        let lane = Lane { remote: lane.remote.shifted(shift), ..lane };
        let message = Message { wr_id: self.sent, n: self.sent, offset: layout.out(), flags };
        self.poster.stage(t, &lane, &mr, message)?;
        if let Some(scope) = self.must_fence {
            t.fence(scope);
        }
        t.ring(lane.qp, self.config.ring)?;
        self.results.rings += 1;
        self.sent += 1;
        Ok(())
    }

    fn write_stamp<T: Control>(&mut self, t: &mut T, mr: &Mr) -> Result<(), Failure> {
        let byte = stamp(self.sent);
        if self.config.inline {
            *self.poster.inline_bytes().last_mut().expect("at least a byte") = byte;
            return Ok(());
        }
        t.copy_in(part(mr, self.layout.stride - 1, 1)?, &[byte])?;
        Ok(())
    }
}

/// Last byte of message `n`; differs from that of the message before, and from fresh memory.
fn stamp(n: u64) -> u8 {
    (n % 255) as u8 + 1
}

/// What the messages of a side carry. The period is no power of two, so that a packet in the place
/// of another one shows.
fn pattern(starts: bool, size: u64) -> Vec<u8> {
    let first = if starts { 1 } else { 128 };
    (0..size).map(|i| (first + i % 251) as u8).collect()
}

fn receive(mr: &Mr, layout: Layout, ty: QpType) -> Result<RecvWr, Failure> {
    let bytes = header_bytes(ty) + layout.size as u32;
    Ok(RecvWr { wr_id: 0, sge: element(mr, layout.receive(), bytes)? })
}

impl Program for PingPong {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::ideal::{Ideal, run};

    fn play(change: impl Fn(&mut PingPongConfig)) -> (Results, Results) {
        let side = |peer, starts| {
            let mut c = PingPongConfig::to(peer, starts);
            change(&mut c);
            PingPong::new(c)
        };
        let (mut a, mut b) = (side(1, true), side(0, false));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        (a.results, b.results)
    }

    #[test]
    fn every_message_is_answered_by_either_means() {
        for by in [PingPongBy::Send, PingPongBy::Write] {
            for size in [1, 7, 8, 64, 65, 4096] {
                for (inline, signal_every) in [(false, 1), (size <= 64, 100)] {
                    let (a, b) = play(|c| {
                        (c.by, c.size, c.inline) = (by, size, inline);
                        (c.signal_every, c.iterations) = (signal_every, 600);
                        c.link.size.max_inline = 64;
                    });
                    assert_eq!((a.failure, b.failure), (None, None), "{by:?} {size}");
                    assert_eq!((a.latencies.len(), b.latencies.len()), (600, 0));
                    assert_eq!((a.received, b.received, a.messages), (616, 616, 616));
                    assert_eq!(a.window.unwrap().messages, 600);
                }
            }
        }
    }

    #[test]
    fn the_last_message_is_checked() {
        for ty in [QpType::Rc, QpType::Ud] {
            for size in [0, 1, 252, 4096] {
                let (a, b) = play(|c| (c.link.ty, c.size, c.check) = (ty, size, true));
                assert_eq!((a.failure, b.failure), (None, None), "{ty:?} {size}");
                assert_eq!((a.data.corrupt, b.data.corrupt), (0, 0), "{ty:?} {size}");
            }
        }
        // A side that stores no pattern sends zeros.
        let (a, b) = play(|c| (c.size, c.check) = (64, c.starts));
        assert_eq!((a.data.corrupt, b.data.corrupt), (1, 0));
        let (a, _) = play(|c| (c.inline, c.check, c.link.size.max_inline) = (true, true, 64));
        assert!(matches!(a.failure, Some(Failure::Config(_))));
    }

    #[test]
    fn unconnected_types_play_as_well() {
        for ty in [QpType::Uc, QpType::Ud] {
            let (a, _) = play(|c| c.link.ty = ty);
            assert_eq!((a.failure, a.latencies.len()), (None, 1000));
        }
    }

    #[test]
    fn a_write_without_bytes_cannot_be_seen() {
        let (a, _) = play(|c| (c.by, c.size) = (PingPongBy::Write, 0));
        assert!(matches!(a.failure, Some(Failure::Config(_))));
        let (a, _) = play(|c| (c.by, c.local.contents) = (PingPongBy::Write, Contents::Virtual));
        assert!(matches!(a.failure, Some(Failure::Config(_))));
    }

    #[test]
    fn stamps_of_neighbours_differ_and_are_never_zero() {
        assert!((0..1000).all(|n| stamp(n) != stamp(n + 1) && stamp(n) != 0));
    }
}
