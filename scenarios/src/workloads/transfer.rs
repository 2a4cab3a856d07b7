//! Messages of an application by a path that is stated as a whole: how their memory comes to be
//! known to the NIC, what copies them on the way, or the kernel's TCP.
//!
//! Both sides run this program; one of them sends. A message is cut into segments, each a SEND,
//! so that what is done to one overlaps with the way of another. When the other side's application
//! has the whole message where it wants it, that side says so by a SEND of no bytes. So no more
//! than `window` messages are under way, and a latency is the time from the hand-over of a message
//! to that word.
//!
//! The path `Tcp` is a model of what the kernel costs: calls, copies between application and
//! kernel, each segment's and packet's way through the stack, wake-ups. Its bytes cross the same
//! NIC and network, reliably and without loss; TCP's own congestion control is not in it.

use std::collections::VecDeque;

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, FenceScope, MemKind, Mr, MrId, Next, Program,
    RecvWr, Ring, Sge, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AccessFlags, SendFlags};

use super::common::{Failure, Message, Op, Poster, Results, Shape, Window, element, failed, part};
use super::connect::{Client, Lane, LinkConfig, LocalConfig};

/// What the kernel costs a core, beside copies and interrupts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TcpCosts {
    /// A call that sends or receives, without the copy.
    pub syscall: Span,
    /// Waking the thread that sleeps in a call.
    pub context_switch: Span,
    /// Sending a segment.
    pub tx_segment: Span,
    /// Receiving a segment.
    pub rx_segment: Span,
    /// Each packet received.
    pub rx_packet: Span,
    /// Payload of a full packet, at least 1.
    pub packet_bytes: u32,
}

/// How a message gets to the NIC, and from the NIC to the peer's application.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TransferPath {
    /// The application's memory is registered beforehand, on both sides.
    Registered,
    /// The application works in buffers of a registered pool: it takes one for each message and
    /// gives it back.
    Pool,
    /// Each message is copied into a registered buffer, and at the peer out of one.
    Copy,
    /// The sender registers the memory of each message and deregisters it. The receiver has done so
    /// beforehand.
    PerMessage,
    /// The application's memory is a GPU's, and the GPU copies each segment to host memory; at the
    /// peer the other way round.
    Staged,
    /// By the kernel's TCP.
    Tcp(TcpCosts),
}

/// Configuration of [`Transfer`]; both sides have the same but for `starts`, memory and `peer`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TransferConfig {
    /// The application's memory and its queues.
    pub local: LocalConfig,
    /// The link; only its first QP is used.
    pub link: LinkConfig,
    /// Whether this side sends. Exactly one of the two does.
    pub starts: bool,
    /// Bytes of a message, at least 1.
    pub size: u32,
    /// Bytes of a segment, at least 1. Smaller: copies overlap better with the wire, and each
    /// message has more work requests.
    pub segment: u32,
    /// Messages under way, at least 1. More: their steps overlap.
    pub window: u32,
    /// Measured messages, at least 1.
    pub iterations: u64,
    /// Messages before the measured ones.
    pub warm_up: u64,
    /// The path.
    pub path: TransferPath,
    /// Host memory for pools, staging and kernel buffers.
    pub near: MemKind,
}

impl TransferConfig {
    /// 1,000 messages of 4 KiB in one segment, one at a time, from memory that is registered.
    pub fn to(peer: u32, starts: bool) -> Self {
        let local = LocalConfig { contents: Contents::Virtual, ..LocalConfig::default() };
        Self {
            local,
            link: LinkConfig::to(peer),
            starts,
            size: 4096,
            segment: 4096,
            window: 1,
            iterations: 1000,
            warm_up: 1,
            path: TransferPath::Registered,
            near: MemKind::Host { numa: 0 },
        }
    }

    /// Segments of a message.
    pub const fn segments(&self) -> u32 {
        self.size.div_ceil(self.segment)
    }

    /// Bytes of segment `k`.
    fn segment_bytes(&self, k: u32) -> u32 {
        self.segment.min(self.size - k * self.segment)
    }

    /// Bytes of the buffers of all messages under way.
    pub fn region_bytes(&self) -> u64 {
        self.stride() * u64::from(self.window)
    }

    fn stride(&self) -> u64 {
        u64::from(self.size).next_multiple_of(64)
    }

    /// Whether bytes pass a buffer that is not the application's.
    const fn is_bounced(&self) -> bool {
        matches!(self.path, TransferPath::Copy | TransferPath::Staged | TransferPath::Tcp(_))
    }
}

/// What the kernel did for a program.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelUse {
    /// Calls.
    pub syscalls: u64,
    /// Switches to a thread that slept.
    pub switches: u64,
    /// Segments sent and received.
    pub segments: u64,
    /// Packets received.
    pub packets: u64,
    /// Time of all that; copies and interrupts are counted by the host.
    pub time: Span,
}

/// A message under way.
#[derive(Copy, Clone, Debug)]
struct Pending {
    since: Time,
    /// Its region, where it has one of its own.
    own: Option<MrId>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Transfer {
    config: TransferConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    up: bool,
    must_fence: bool,
    /// Buffers beside the application's, and the pool's list of free ones.
    bounce: Option<Mr>,
    list: Option<Mr>,
    pending: VecDeque<Pending>,
    /// Messages handed over, completed, and known to be with the peer's application.
    posted: u64,
    completed: u64,
    answered: u64,
    /// Completions of segments that are no whole message yet.
    sent: u32,
    /// Segments received, and answers sent whose completion has not been seen.
    heard: u64,
    unseen: u64,
    /// When the last step ended with a wait, whether this one began later than that, and whether it
    /// found completions.
    waits_since: Option<Time>,
    slept: bool,
    found: bool,
    /// When the measured time began, at the receiver.
    window_from: Option<Time>,
}

impl Transfer {
    /// A program that has not started.
    pub fn new(config: TransferConfig) -> Self {
        let shape = Shape { op: Op::Send, size: config.segment, inline: false };
        Self {
            config,
            client: Client::new(config.local, config.link),
            poster: Poster::new(shape),
            polled: Completions::with_capacity(32),
            results: Results::default(),
            up: false,
            must_fence: false,
            bounce: None,
            list: None,
            pending: VecDeque::new(),
            posted: 0,
            completed: 0,
            answered: 0,
            sent: 0,
            heard: 0,
            unseen: 0,
            waits_since: None,
            slept: false,
            found: false,
            window_from: None,
        }
    }

    /// What was measured; latencies from hand-over to the peer's word, at the side that sends.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn total(&self) -> u64 {
        self.config.warm_up + self.config.iterations
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.size == 0 || c.segment == 0 || c.window == 0 {
            return Err(Failure::Config("size, segment and window count from 1"));
        }
        let needed = u64::from(c.window) * u64::from(c.segments());
        let size = c.link.size;
        if needed > u64::from(size.max_send_wr.min(size.max_recv_wr)) {
            return Err(Failure::Config("the segments of a window do not fit the queues"));
        }
        if matches!(c.path, TransferPath::Tcp(costs) if costs.packet_bytes == 0) {
            return Err(Failure::Config("packets of no bytes"));
        }
        Ok(())
    }

    fn open<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.up {
            return Ok(None);
        }
        self.check()?;
        let (c, mut buffers) = (self.config, (None, None));
        let first = |t: &mut T, l: &super::connect::Local, lanes: &[Lane]| {
            let access = AccessFlags::LOCAL_WRITE;
            if c.is_bounced() {
                let bytes = c.region_bytes();
                buffers.0 = Some(t.alloc_mr(l.pd, bytes, c.near, access, c.local.contents)?);
            }
            if c.path == TransferPath::Pool {
                buffers.1 = Some(t.alloc_mr(l.pd, 64, c.near, access, Contents::Data)?);
            }
            let to = buffers.0.as_ref().unwrap_or(&l.mr);
            let count = if c.starts { c.window } else { c.window * c.segments() };
            let receives = (0..u64::from(count)).map(|i| receive(&c, to, i));
            let receives: Vec<RecvWr> = receives.collect::<Result<_, _>>()?;
            Ok(t.post_recv(l.receives_of(lanes[0].qp), &receives)?)
        };
        let next = self.client.up(t, first)?;
        self.bounce = self.bounce.or(buffers.0);
        self.list = self.list.or(buffers.1);
        if let Some(next) = next {
            return Ok(Some(next));
        }
        self.client.require(c.region_bytes())?;
        self.results.granted = t.qp_caps(self.client.lanes()[0].qp).ok();
        self.must_fence = !self.results.granted.is_none_or(|caps| caps.ring_orders_stores);
        self.up = true;
        Ok(None)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.open(t)? {
            return Ok(next);
        }
        // A wait for what is there already ends where it began, and nobody has slept.
        let (now, since) = (t.now(), self.waits_since.take());
        self.slept = since.is_some_and(|since| now > since + Span::from_ns(1));
        let full = self.poll_sends(t)? | self.poll_receives(t)?;
        // A kernel looks again before it lets the thread sleep: what came meanwhile wakes nobody.
        let again = full || self.found && matches!(self.config.path, TransferPath::Tcp(_));
        self.found = false;
        if self.config.starts {
            self.settle(t)?;
            let under_way = self.pending.len() as u32;
            if self.posted < self.total() && under_way < self.config.window {
                self.hand_over(t)?;
                return Ok(Next::Again);
            }
        }
        let done = match self.config.starts {
            true => self.posted == self.total() && self.pending.is_empty(),
            false => self.answered == self.total() && self.unseen == 0,
        };
        if done {
            return Ok(Next::Done);
        }
        if again {
            return Ok(Next::Again);
        }
        self.waits_since = Some(t.now());
        let l = self.client.local();
        Ok(Next::Wait { on: WaitSet::cq(l.recv_cq).or(WaitSet::cq(l.send_cq)), until: None })
    }

    // ---- sending -----------------------------------------------------------------------------

    /// Hands the next message over: what its path wants, segment by segment.
    fn hand_over<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let (c, app) = (self.config, self.client.local().mr);
        let since = t.now();
        self.results.first.get_or_insert(since);
        let offset = self.posted % u64::from(c.window) * c.stride();
        let (mut from, mut offset_in, mut own) = (app, offset, None);
        match c.path {
            TransferPath::Registered => {}
            TransferPath::Pool => self.pool(t)?,
            TransferPath::PerMessage => {
                let (pd, access) = (self.client.local().pd, AccessFlags::empty());
                let len = u64::from(c.size);
                from = t.alloc_mr(pd, len, app.kind, access, c.local.contents)?;
                (offset_in, own) = (0, Some(from.id));
            }
            TransferPath::Copy | TransferPath::Staged => from = self.bounce.expect("made"),
            TransferPath::Tcp(costs) => {
                from = self.bounce.expect("made");
                self.kernel(t, costs.syscall, |k| k.syscalls += 1);
            }
        }
        for k in 0..c.segments() {
            let at = u64::from(k * c.segment);
            if c.is_bounced() {
                let bytes = c.segment_bytes(k).into();
                t.copy(part(&from, offset + at, bytes)?, part(&app, offset + at, bytes)?)?;
            }
            if let TransferPath::Tcp(costs) = c.path {
                self.kernel(t, costs.tx_segment, |k| k.segments += 1);
            }
            self.post(t, &from, offset_in + at, c.segment_bytes(k))?;
        }
        self.pending.push_back(Pending { since, own });
        self.posted += 1;
        Ok(())
    }

    /// Takes a buffer from the pool's list, or gives one back.
    fn pool<T: Control>(&self, t: &mut T) -> Result<(), Failure> {
        let head = part(&self.list.expect("made"), 0, 8)?;
        let free = t.load_u64(head)?;
        Ok(t.store_u64(head, free.wrapping_add(1))?)
    }

    fn post<T: Control>(
        &mut self,
        t: &mut T,
        from: &Mr,
        offset: u64,
        bytes: u32,
    ) -> Result<(), Failure> {
        let lane = self.client.lanes()[0];
        self.poster.shape.size = bytes;
        let message = Message { wr_id: 0, n: 0, offset, flags: SendFlags::SIGNALED };
        self.poster.stage(t, &lane, from, message)?;
        if self.must_fence {
            t.fence(FenceScope::System);
        }
        t.ring(lane.qp, Ring::Auto)?;
        self.results.rings += 1;
        Ok(())
    }

    fn poll_sends<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.client.local().send_cq, &mut self.polled)?;
        for c in self.polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            self.found = true;
            if !self.config.starts {
                self.unseen -= 1;
                continue;
            }
            self.sent += 1;
            if self.sent == self.config.segments() {
                (self.sent, self.completed) = (0, self.completed + 1);
            }
        }
        Ok(self.polled.is_full())
    }

    /// Messages that are complete and answered are over.
    fn settle<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        while self.results.messages < self.completed.min(self.answered) {
            let Some(Pending { since, own }) = self.pending.pop_front() else { break };
            if let Some(mr) = own {
                t.dereg_mr(mr).map_err(|_| Failure::Config("a message's region is gone"))?;
            }
            if self.config.path == TransferPath::Pool {
                self.pool(t)?;
            }
            let now = t.now();
            self.results.completed(1, self.config.size, now);
            if self.results.messages <= self.config.warm_up {
                continue;
            }
            self.results.sample(now.since(since), now);
        }
        Ok(())
    }

    // ---- receiving ---------------------------------------------------------------------------

    fn poll_receives<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.client.local().recv_cq, &mut self.polled)?;
        let count = self.polled.as_slice().len();
        self.found |= count > 0;
        if count > 0 && self.slept {
            self.wake_up(t);
        }
        for i in 0..count {
            let c = self.polled.as_slice()[i];
            if let Some(f) = failed(&c) {
                return Err(f);
            }
            let Completion::Recv { len, .. } = c else { continue };
            match self.config.starts {
                true => self.take_answer(t)?,
                false => self.take_segment(t, len)?,
            }
        }
        Ok(self.polled.is_full())
    }

    /// The thread that slept in a call runs again.
    fn wake_up<T: Control>(&mut self, t: &mut T) {
        if let TransferPath::Tcp(costs) = self.config.path {
            self.kernel(t, costs.context_switch, |k| k.switches += 1);
        }
    }

    fn take_answer<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        if let TransferPath::Tcp(costs) = self.config.path {
            self.kernel(t, costs.rx_packet, |k| k.packets += 1);
        }
        self.answered += 1;
        self.repost(t, self.answered - 1)
    }

    fn take_segment<T: Control>(&mut self, t: &mut T, len: u32) -> Result<(), Failure> {
        let (c, app, n) = (self.config, self.client.local().mr, self.heard);
        self.heard += 1;
        self.results.first.get_or_insert(t.now());
        if let TransferPath::Tcp(costs) = c.path {
            let packets = u64::from(len.div_ceil(costs.packet_bytes));
            let work = costs.rx_segment + costs.rx_packet * packets;
            self.kernel(t, work, |k| {
                k.segments += 1;
                k.packets += packets;
            });
        }
        if let Some(bounce) = self.bounce {
            let at = place(&c, n);
            t.copy(part(&app, at, len.into())?, part(&bounce, at, len.into())?)?;
        }
        self.repost(t, n)?;
        if !self.heard.is_multiple_of(c.segments().into()) {
            return Ok(());
        }
        if let TransferPath::Tcp(costs) = c.path {
            self.kernel(t, costs.syscall, |k| k.syscalls += 1);
        }
        self.results.receive(c.size, t.now());
        self.measure();
        self.answered += 1;
        self.unseen += 1;
        self.post(t, &app, 0, 0)
    }

    /// The pace is that of messages at the receiver's application, from the last one of the warm-up
    /// on, or from the first segment of all. A sender that is in a copy sees answers late, and
    /// would find them in bursts.
    fn measure(&mut self) {
        let (r, warm_up) = (&mut self.results, self.config.warm_up);
        let Some(now) = r.last.filter(|_| r.received >= warm_up) else { return };
        let before = if warm_up == 0 { r.first } else { Some(now) };
        let (from, to) = (*self.window_from.get_or_insert(before.unwrap_or(now)), now);
        let messages = r.received - warm_up;
        let bytes = messages * u64::from(self.config.size);
        r.window = Some(Window { from, to, messages, bytes });
    }

    /// Posts the receive of arrival `n` again.
    fn repost<T: Control>(&self, t: &mut T, n: u64) -> Result<(), Failure> {
        let l = self.client.local();
        let wr = receive(&self.config, self.bounce.as_ref().unwrap_or(&l.mr), n)?;
        Ok(t.post_recv(l.receives_of(self.client.lanes()[0].qp), &[wr])?)
    }

    /// The kernel works for that time; `count` notes what it does in it.
    fn kernel<T: Control>(&mut self, t: &mut T, work: Span, count: impl FnOnce(&mut KernelUse)) {
        let used = self.results.kernel.get_or_insert_default();
        used.time += work;
        count(used);
        t.compute(work);
    }
}

/// Where segment number `n` of the stream lies among the buffers of a window.
fn place(c: &TransferConfig, n: u64) -> u64 {
    let segments = u64::from(c.segments());
    n / segments % u64::from(c.window) * c.stride() + n % segments * u64::from(c.segment)
}

/// The receive for arrival `n`: a segment, or at the sender an answer of no bytes.
fn receive(c: &TransferConfig, to: &Mr, n: u64) -> Result<RecvWr, Failure> {
    if c.starts {
        return Ok(RecvWr { wr_id: n, sge: Sge { addr: to.addr, len: 0, lkey: to.lkey } });
    }
    let (at, len) = (place(c, n), c.segment_bytes((n % u64::from(c.segments())) as u32));
    Ok(RecvWr { wr_id: n, sge: element(to, at, len)? })
}

impl Program for Transfer {
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

    const COSTS: TcpCosts = TcpCosts {
        syscall: Span::from_ns(400),
        context_switch: Span::from_ns(1500),
        tx_segment: Span::from_ns(1500),
        rx_segment: Span::from_ns(1000),
        rx_packet: Span::from_ns(300),
        packet_bytes: 1448,
    };

    fn play(change: impl Fn(&mut TransferConfig)) -> (Results, Results) {
        let side = |peer, starts| {
            let mut c = TransferConfig::to(peer, starts);
            c.local.contents = Contents::Data;
            change(&mut c);
            c.local.region_bytes = c.region_bytes().max(64);
            Transfer::new(c)
        };
        let (mut a, mut b) = (side(1, true), side(0, false));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        (a.results, b.results)
    }

    #[test]
    fn every_message_is_answered_once() {
        use TransferPath::{Copy, PerMessage, Pool, Registered, Staged, Tcp};
        for path in [Registered, Pool, PerMessage, Copy, Staged, Tcp(COSTS)] {
            for (size, segment, window) in [(1, 1, 1), (4096, 4096, 4), (10_000, 4096, 3)] {
                let (a, b) = play(|c| {
                    (c.path, c.size, c.segment, c.window) = (path, size, segment, window);
                    (c.iterations, c.warm_up) = (50, 5);
                });
                assert_eq!((a.failure, b.failure), (None, None), "{path:?} {size}");
                assert_eq!((a.messages, b.received, a.latencies.len()), (55, 55, 50));
                assert_eq!(b.received_bytes, 55 * u64::from(size));
                let segments = u64::from(size.div_ceil(segment));
                assert_eq!((a.rings, b.rings), (55 * segments, 55));
            }
        }
    }

    #[test]
    fn the_kernel_is_asked_once_for_each_message_on_each_side() {
        let (a, b) = play(|c| {
            (c.path, c.size, c.segment) = (TransferPath::Tcp(COSTS), 10_000, 4096);
            (c.iterations, c.warm_up) = (10, 0);
        });
        let (a, b) = (a.kernel.unwrap(), b.kernel.unwrap());
        assert_eq!((a.syscalls, b.syscalls), (10, 10));
        // Segments of 4096, 4096 and 1808 bytes; an answer is a packet.
        assert_eq!((a.segments, a.packets), (30, 10));
        assert_eq!((b.segments, b.packets), (30, 80));
        let at_b = COSTS.syscall * 10 + COSTS.rx_segment * 30 + COSTS.rx_packet * 80;
        assert_eq!(b.time, at_b + COSTS.context_switch * b.switches);
        let (none, _) = play(|c| c.iterations = 3);
        assert_eq!(none.kernel, None, "verbs ask nobody");
    }

    #[test]
    fn a_window_that_the_queues_do_not_hold_is_refused() {
        let (a, _) = play(|c| (c.size, c.segment, c.window) = (129, 1, 1));
        assert!(matches!(a.failure, Some(Failure::Config(text)) if text.contains("segments")));
        let (a, _) = play(|c| (c.size, c.segment, c.window) = (128, 1, 1));
        assert_eq!(a.failure, None);
        let (a, _) = play(|c| c.size = 0);
        assert!(matches!(a.failure, Some(Failure::Config(_))));
        let bare = TcpCosts { packet_bytes: 0, ..COSTS };
        let (a, _) = play(|c| c.path = TransferPath::Tcp(bare));
        assert!(matches!(a.failure, Some(Failure::Config(_))));
    }

    #[test]
    fn segments_of_a_window_lie_side_by_side() {
        let mut c = TransferConfig::to(1, true);
        (c.size, c.segment, c.window) = (10_000, 4096, 2);
        let places: Vec<u64> = (0..7).map(|n| place(&c, n)).collect();
        assert_eq!(places, [0, 4096, 8192, 10_048, 14_144, 18_240, 0]);
        assert_eq!((0..3).map(|k| c.segment_bytes(k)).collect::<Vec<_>>(), [4096, 4096, 1808]);
    }
}
