//! The tree at work: transactions, bursts, order.
//!
//! A transaction is cut into *bursts*: TLPs of one 4-KiB page that travel together. A burst is
//! at one station at a time; its head goes on while its tail still comes (switches cut
//! through). Events per burst on a single link: two for a read (data ready, data delivered),
//! one for a write (visible). Each further station costs one.

use std::collections::VecDeque;

use doorbell_core::units::{BitRate, Span, Time};

use super::burst::{Burst, NONE, Whole};
use super::config::{
    EndpointConfig, NodeKind, PcieConfig, PcieConfigError, RelaxedOrdering, TlpFormat,
};
use super::ends::{Commit, Order, Requester, Terminal};
use super::route::{Topology, socket_of};
use super::station::{Flow, Need};
use super::tlp::{Cut, MMIO_LINE, to_page_end};
use super::{Cause, Done, Kind, NodeId, PcieEvent, Target, Transaction};
use crate::engine::{Class, Out, SimRng, Slab};
use crate::memory::{MemoryPlace, MemorySystem, MemoryUse};

/// The PCIe tree of one host, with the memories at its ends.
#[derive(Debug)]
pub struct PcieTree {
    pub(super) format: TlpFormat,
    pub(super) sockets: usize,
    pub(super) names: Vec<String>,
    pub(super) topology: Topology,
    pub(super) requesters: Vec<Requester>,
    pub(super) terminals: Vec<Terminal>,
    pub(super) cross_bytes: u32,
    socket_of: Vec<u8>,
    orders: Vec<Order>,
    commits: Vec<Commit>,
    /// Most TLPs of a write burst: half of the fewest credits of a link, so that no burst waits
    /// for more credits than there are, and the next one fits beside it.
    pub(super) burst_writes: u32,
    bursts: Slab<Burst>,
    wholes: Slab<Whole>,
    pub(super) memory: MemorySystem,
    rng: SimRng,
    relaxed: RelaxedOrdering,
    relaxed_rng: SimRng,
    /// Devices and tags of reads whose data was taken from memory in the last event.
    at_memory: Vec<(NodeId, u64)>,
    /// Bytes of transactions, by cause.
    moved: [u64; Cause::ALL.len()],
    /// Nothing takes time here,
    pub(super) instant: bool,
    /// and these have ended.
    pub(super) ended: VecDeque<Transaction>,
}

impl PcieTree {
    /// Builds the tree. `seed` and `component` (the host's name) name the stream of the noise.
    ///
    /// # Errors
    /// What [`PcieConfig::validate`] finds.
    pub fn new(cfg: &PcieConfig, seed: u64, component: &str) -> Result<Self, PcieConfigError> {
        cfg.validate()?;
        let places = cfg.sockets.len() + cfg.nodes.len();
        let rates = cfg.sockets.iter().map(|s| s.dram_rate);
        let of_nodes = |of: fn(&EndpointConfig) -> BitRate| {
            cfg.nodes.iter().map(move |n| match &n.kind {
                NodeKind::Endpoint(e) => of(e),
                NodeKind::Switch { .. } => BitRate::gbps(1), // never used
            })
        };
        let rates = rates.chain(of_nodes(|e| e.memory_rate)).chain(of_nodes(|e| e.kernel_rate));
        let cuts = cfg.nodes.iter().map(|n| {
            let c = n.link.credits;
            let by_data = u64::from(c.posted_data) * 16 / u64::from(cfg.format.max_payload);
            (u64::from(c.posted_headers).min(by_data) / 2).clamp(1, 4096) as u32
        });
        Ok(Self {
            format: cfg.format,
            sockets: cfg.sockets.len(),
            names: cfg.nodes.iter().map(|n| n.name.clone()).collect(),
            requesters: (0..places).map(|p| Requester::new(cfg, p)).collect(),
            terminals: (0..places).map(|p| Terminal::new(cfg, p)).collect(),
            cross_bytes: cfg.interconnect.request_bytes,
            socket_of: (0..places).map(|p| socket_of(cfg, p) as u8).collect(),
            orders: (0..places * places).map(|_| Order::default()).collect(),
            commits: (0..places * places).map(|_| Commit::default()).collect(),
            burst_writes: cuts.min().unwrap_or(1),
            bursts: Slab::new(),
            wholes: Slab::new(),
            memory: MemorySystem::new(rates),
            rng: SimRng::stream(seed, component, "pcie read latency"),
            relaxed: cfg.relaxed,
            relaxed_rng: SimRng::stream(seed, component, "pcie relaxed writes"),
            at_memory: Vec::new(),
            moved: [0; Cause::ALL.len()],
            instant: false,
            ended: VecDeque::new(),
            topology: Topology::new(cfg),
        })
    }

    /// The memories: place `i` is the memory of `NodeId(i)`, a socket's DRAM or a device's own;
    /// behind them are those of [`Self::kernel_place`].
    /// Copies and reductions of cores and GPU blocks run here beside the DMA.
    pub fn memory_mut(&mut self) -> &mut MemorySystem {
        &mut self.memory
    }

    /// The memories, to read their accounts.
    pub const fn memory(&self) -> &MemorySystem {
        &self.memory
    }

    /// What the memory of each socket has served, and the time that its rate takes for it.
    pub fn socket_memories(&self) -> impl Iterator<Item = (usize, MemoryUse, Span)> {
        (0..self.sockets).map(|socket| {
            let place = MemoryPlace(socket as u16);
            let used = self.memory.used(place);
            let bytes = used.access_bytes + used.bulk_bytes;
            (socket, used, self.memory.rate(place).time_for(bytes))
        })
    }

    /// The memory of a device as its own kernels see it.
    ///
    /// # Panics
    /// When `node` is a socket.
    pub fn kernel_place(&self, node: NodeId) -> MemoryPlace {
        assert!(usize::from(node.0) >= self.sockets, "a socket runs no kernels");
        MemoryPlace(node.0 + self.names.len() as u16)
    }

    /// What kernels have moved in the memory of each device that ran some: its name, the account,
    /// and the time that the rate takes for it.
    pub fn kernel_memories(&self) -> impl Iterator<Item = (&str, MemoryUse, Span)> {
        let all = self.names.iter().zip(self.sockets as u16..).map(|(name, node)| {
            let place = self.kernel_place(NodeId(node));
            let used = self.memory.used(place);
            (name.as_str(), used, self.memory.rate(place).time_for(used.bulk_bytes))
        });
        all.filter(|(_, used, _)| used.bulk_jobs > 0)
    }

    /// The socket under which a node hangs: the near one for its DMA and for cores' MMIO.
    pub fn socket_of(&self, node: NodeId) -> u8 {
        self.socket_of[usize::from(node.0)]
    }

    /// When everything that `node` has sent so far has left its port (waiting bursts not
    /// counted): in the past for an idle port.
    ///
    /// # Panics
    /// When `node` is a socket.
    pub fn port_free_at(&self, node: NodeId) -> Time {
        let index = usize::from(node.0).checked_sub(self.sockets).expect("a socket has no port");
        self.topology.stations[2 * index].free_at()
    }

    /// Bytes of all transactions of a cause that were submitted, without headers.
    pub const fn moved(&self, cause: Cause) -> u64 {
        self.moved[cause as usize]
    }

    /// Transactions under way, waiting ones included; 0 when everything submitted has ended.
    pub fn in_flight(&self) -> usize {
        self.bursts.len() + self.wholes.len() + self.ended.len()
    }

    /// Starts a transaction at `now`.
    ///
    /// # Panics
    /// On a length of zero, an MMIO write to host memory, a read by a socket, and a transfer
    /// from a place to itself: errors of the calling room.
    pub fn submit(&mut self, now: Time, t: Transaction, out: &mut Out<PcieEvent>) {
        assert!(t.bytes > 0, "a PCIe transaction of no bytes");
        debug_assert!(place(t.target) != t.from.0, "a transaction from a place to itself");
        self.moved[t.cause as usize] += u64::from(t.bytes);
        match t.kind {
            _ if self.instant => self.end_at_once(t),
            Kind::Read => self.submit_read(now, t, out),
            Kind::Write | Kind::Mmio => self.submit_posted(now, t, out),
        }
    }

    /// Device and tag of a read that took its data from memory in the event handled last, until
    /// `None`: a store that comes later is not in it. A read of several bursts takes its data in
    /// several events.
    pub fn take_at_memory(&mut self) -> Option<(NodeId, u64)> {
        self.at_memory.pop()
    }

    /// Handles an event of this tree; returns a transaction that has ended by it.
    pub fn on_event(&mut self, now: Time, ev: PcieEvent, out: &mut Out<PcieEvent>) -> Option<Done> {
        self.at_memory.clear();
        match ev {
            PcieEvent::Hop(burst) => {
                self.arrive(now, burst, out);
                None
            }
            PcieEvent::Ready(burst) => {
                self.ready(now, burst, out);
                None
            }
            PcieEvent::Deliver(burst) => match self.bursts[burst].flow {
                Flow::Completion => self.completed(now, burst, out),
                _ => self.written(now, burst, out),
            },
        }
    }

    fn submit_posted(&mut self, now: Time, t: Transaction, out: &mut Out<PcieEvent>) {
        let mmio = t.kind == Kind::Mmio;
        assert!(!mmio || matches!(t.target, Target::Node(_)), "MMIO goes to a device");
        let size = if mmio { MMIO_LINE } else { self.format.max_payload };
        let most = self.burst_writes * size;
        let whole =
            if t.bytes <= most.min(to_page_end(t.addr)) { NONE } else { self.open_whole(now, t) };
        let (mut addr, mut left) = (t.addr, t.bytes);
        while left > 0 {
            let len = left.min(most).min(to_page_end(addr));
            let cut = if mmio { self.format.mmio(len) } else { self.format.write(addr, len) };
            let burst = self.new_burst(now, &t, whole, addr, len, cut);
            if mmio && usize::from(t.from.0) < self.sockets {
                let later = self.terminals[usize::from(t.from.0)].mmio;
                if later > Span::ZERO {
                    out.at(now + later, Class::Arrival, PcieEvent::Hop(burst));
                } else {
                    self.arrive(now, burst, out);
                }
            } else {
                self.arrive(now, burst, out);
            }
            addr += u64::from(len);
            left -= len;
        }
        if whole != NONE {
            self.wholes[whole].left = 0;
        }
    }

    fn submit_read(&mut self, now: Time, t: Transaction, out: &mut Out<PcieEvent>) {
        let from = usize::from(t.from.0);
        assert!(from >= self.sockets, "a socket reads no device memory in this model");
        self.requesters[from].account.reads += 1;
        if self.requesters[from].queue.is_empty()
            && self.next_read(from, t.addr, t.bytes) == t.bytes
        {
            self.send_read(now, &t, NONE, t.addr, t.bytes, out);
            return;
        }
        let whole = self.open_whole(now, t);
        self.requesters[from].queue.push_back(whole);
        self.pump_reads(now, from, out);
        let waits = self.requesters[from].queue.back() == Some(&whole);
        self.requesters[from].account.read_waits += u64::from(waits);
    }

    fn open_whole(&mut self, now: Time, transaction: Transaction) -> u32 {
        self.wholes.insert(Whole {
            transaction,
            submitted: now,
            started: Time::MAX,
            left: transaction.bytes,
            bursts: 0,
        })
    }

    /// Sends what the tags allow of the reads that wait, oldest first.
    fn pump_reads(&mut self, now: Time, from: usize, out: &mut Out<PcieEvent>) {
        while let Some(&whole) = self.requesters[from].queue.front() {
            let Whole { transaction: t, left, .. } = self.wholes[whole];
            let addr = t.addr + u64::from(t.bytes - left);
            let len = self.next_read(from, addr, left);
            if len == 0 {
                return;
            }
            self.wholes[whole].left -= len;
            if len == left {
                self.requesters[from].queue.pop_front();
            }
            self.send_read(now, &t, whole, addr, len, out);
        }
    }

    /// How much of a read of `left` bytes at `addr` may be requested now in one burst.
    fn next_read(&self, from: usize, addr: u64, left: u32) -> u32 {
        let r = &self.requesters[from];
        let mrrs = self.format.max_read_request;
        let in_page = left.min(to_page_end(addr));
        if r.tags == 0 || r.bytes < in_page.min(mrrs) {
            return 0;
        }
        let requests = r.tags.min(r.burst_requests).min((r.bytes / mrrs).max(1));
        in_page.min(requests * mrrs)
    }

    fn send_read(
        &mut self,
        now: Time,
        t: &Transaction,
        whole: u32,
        addr: u64,
        len: u32,
        out: &mut Out<PcieEvent>,
    ) {
        let cut = self.format.read(addr, len);
        let r = &mut self.requesters[usize::from(t.from.0)];
        r.tags -= cut.tlps;
        r.bytes -= len;
        r.account.peak_tags = r.account.peak_tags.max(r.all_tags - r.tags);
        let burst = self.new_burst(now, t, whole, addr, len, cut);
        self.arrive(now, burst, out);
    }

    fn new_burst(
        &mut self,
        now: Time,
        t: &Transaction,
        whole: u32,
        addr: u64,
        len: u32,
        cut: Cut,
    ) -> u32 {
        let submitted = if whole == NONE {
            now
        } else {
            self.wholes[whole].bursts += 1;
            self.wholes[whole].submitted
        };
        let to = place(t.target);
        let read = t.kind == Kind::Read;
        self.bursts.insert(Burst {
            tag: t.tag,
            submitted,
            started: Time::MAX,
            tail: Time::ZERO,
            lag: Span::ZERO,
            access: Span::ZERO,
            after: 0,
            len,
            wire: cut.wire,
            tlps: cut.tlps,
            requests: if read { cut.tlps } else { 0 },
            whole,
            route: self.topology.route(t.from.0, to),
            hop: 0,
            offset: (addr & 0xfff) as u16,
            from: t.from.0,
            to,
            flow: if read { Flow::Request } else { Flow::Posted },
            kind: t.kind,
            cause: t.cause,
            uses_memory: t.uses_memory(),
            drained: false,
            relaxed: self.relaxed.scope.takes(t.cause),
            parked: false,
        })
    }

    /// The burst stands before its next station: it goes, or waits for credits.
    fn arrive(&mut self, now: Time, burst: u32, out: &mut Out<PcieEvent>) {
        let b = &self.bursts[burst];
        let hop = self.topology.hops[b.route.first as usize + usize::from(b.hop)];
        let station = &mut self.topology.stations[usize::from(hop.station)];
        if station.is_clear() && station.has_credits(b.flow, b.need()) {
            self.depart(now, burst, out);
        } else {
            station.block(b.flow, burst);
            self.pump(now, hop.station, out);
        }
    }

    /// Lets go who may go of those that wait at a station.
    fn pump(&mut self, now: Time, station: u16, out: &mut Out<PcieEvent>) {
        loop {
            let s = &mut self.topology.stations[usize::from(station)];
            if s.is_clear() {
                return;
            }
            let bursts = &self.bursts;
            let Some((flow, burst)) = s.next(|b| bursts[b].need()) else { return };
            s.unblock(flow);
            self.depart(now, burst, out);
        }
    }

    /// Reserves the station for the burst and sends it to the next one or to its end.
    fn depart(&mut self, now: Time, burst: u32, out: &mut Out<PcieEvent>) {
        let b = &mut self.bursts[burst];
        let at = b.route.first as usize + usize::from(b.hop);
        let hop = self.topology.hops[at];
        let index = usize::from(hop.station);
        let station = &mut self.topology.stations[index];
        let wire = if hop.cross { b.cross_wire(self.cross_bytes) } else { b.wire };
        station.take_credits(b.flow, b.need());
        station.count(b.cause, b.tlps, wire);
        let tlp = self.format.completion_header + self.format.completion_combine;
        let (start, end) = station.reserve(now, wire, b.flow, tlp);
        // Cut-through: the head went on before the tail came, but cannot overtake it.
        let end = end.max(b.tail);
        let latency = station.latency;
        let owed = station.dllp_for(wire);
        self.topology.stations[index ^ 1].owe(owed);
        let (flow, need) = (b.flow, b.need());
        if b.started == Time::MAX {
            b.started = start;
        }
        let first = b.hop == 0;
        if first {
            let commit = &mut self.commits[commit_index(b, self.sockets, self.terminals.len())];
            b.after = commit.departed;
            commit.departed += u64::from(b.flow == Flow::Posted);
        }
        if b.hop + 1 == b.route.hops {
            self.last_station(burst, (start, end), wire, out);
        } else {
            let before = self.topology.hops[at + 1].before;
            b.hop += 1;
            b.tail = end + latency + before;
            out.at(start + latency + before, Class::Arrival, PcieEvent::Hop(burst));
        }
        if !first {
            let previous = self.topology.hops[at - 1].station;
            self.release(now, previous, flow, need, out);
        }
    }

    /// A burst has left the buffer behind a station.
    fn release(
        &mut self,
        now: Time,
        station: u16,
        flow: Flow,
        need: Need,
        out: &mut Out<PcieEvent>,
    ) {
        self.topology.stations[usize::from(station)].give_credits(flow, need);
        self.pump(now, station, out);
    }

    /// The burst is on its last station: when will it have its effect?
    fn last_station(
        &mut self,
        burst: u32,
        (start, end): (Time, Time),
        wire: u32,
        out: &mut Out<PcieEvent>,
    ) {
        let b = &mut self.bursts[burst];
        let hop = self.topology.hops[b.route.first as usize + usize::from(b.hop)];
        let station = &self.topology.stations[usize::from(hop.station)];
        let arrived = end + station.latency;
        let terminal = &self.terminals[usize::from(b.to)];
        let order =
            &mut self.orders[usize::from(b.from) * self.terminals.len() + usize::from(b.to)];
        match b.flow {
            Flow::Completion => out.at(arrived, Class::Arrival, PcieEvent::Deliver(burst)),
            Flow::Posted => {
                let effect =
                    if b.kind == Kind::Mmio { Span::ZERO } else { terminal.root + terminal.write };
                if b.relaxed {
                    let late = self.relaxed_rng.below(self.relaxed.spread.as_ps() + 1);
                    let at = arrived + effect + Span::from_ps(late);
                    return out.at(at, Class::Arrival, PcieEvent::Deliver(burst));
                }
                order.visible = order.visible.max(arrived + effect);
                out.at(order.visible, Class::Arrival, PcieEvent::Deliver(burst));
            }
            Flow::Request => {
                let others = wire - wire / b.requests;
                b.lag = station.time_for(others).min(end.since(start));
                let noise = terminal.noise.as_ref().map_or(Span::ZERO, |n| n.draw(&mut self.rng));
                let miss = if b.uses_memory { terminal.miss } else { Span::ZERO };
                b.access = terminal.read + miss + noise;
                let first = Time::from_ps(arrived.as_ps() - b.lag.as_ps());
                let before = if b.relaxed { Time::ZERO } else { order.visible };
                let ready = (first + terminal.root).max(before) + b.access;
                out.at(ready, Class::Stage, PcieEvent::Ready(burst));
            }
        }
    }

    /// The first data of a read is there, if the writes before it are; completions go back.
    fn ready(&mut self, now: Time, burst: u32, out: &mut Out<PcieEvent>) {
        let b = &mut self.bursts[burst];
        let commit = &mut self.commits[commit_index(b, self.sockets, self.terminals.len())];
        if commit.committed < b.after && !b.relaxed {
            // Those of the near socket come before earlier ones of the far one: sorted.
            let at = commit.waiting_reads.partition_point(|&(after, _)| after <= b.after);
            commit.waiting_reads.insert(at, (b.after, burst));
            return;
        }
        if b.uses_memory && !b.drained {
            b.drained = true;
            let wait = self.memory.access(now, MemoryPlace(b.to), b.len);
            if wait > Span::ZERO {
                out.at(now + wait, Class::Stage, PcieEvent::Ready(burst));
                return;
            }
        }
        self.at_memory.push((NodeId(b.from), b.tag));
        let last = b.route.first as usize + usize::from(b.route.hops) - 1;
        let (held, need) = (self.topology.hops[last].station, b.need());
        let cut = self.format.completions(u64::from(b.offset), b.len);
        b.flow = Flow::Completion;
        (b.tlps, b.wire) = (cut.tlps, cut.wire);
        b.route = self.topology.route(b.to, b.from);
        b.hop = 0;
        b.tail = now + b.lag;
        self.release(now, held, Flow::Request, need, out);
        self.arrive(now, burst, out);
    }

    /// A write has reached memory or registers.
    fn written(&mut self, now: Time, burst: u32, out: &mut Out<PcieEvent>) -> Option<Done> {
        let b = &mut self.bursts[burst];
        let order =
            &mut self.orders[usize::from(b.from) * self.terminals.len() + usize::from(b.to)];
        if b.parked {
            // Its turn has come.
        } else if !b.drained {
            b.drained = true;
            let wait = match b.uses_memory {
                true => self.memory.access(now, MemoryPlace(b.to), b.len),
                false => Span::ZERO,
            };
            if b.relaxed && wait > Span::ZERO {
                out.at(now + wait, Class::Arrival, PcieEvent::Deliver(burst));
                return None;
            }
            // A cached write behind one that waits for DRAM waits as well: same order.
            if !b.relaxed && (wait > Span::ZERO || order.draining > 0) {
                order.draining += 1;
                order.drained_at = order.drained_at.max(now + wait);
                order.visible = order.visible.max(order.drained_at);
                out.at(order.drained_at, Class::Arrival, PcieEvent::Deliver(burst));
                return None;
            }
        } else if !b.relaxed {
            order.draining -= 1;
        }
        let commit = &mut self.commits[commit_index(b, self.sockets, self.terminals.len())];
        if b.after != commit.committed && !b.relaxed {
            b.parked = true;
            commit.parked.insert(b.after, burst);
            return None;
        }
        commit.reached(b.after);
        if let Some(next) = commit.parked.remove(&commit.committed) {
            out.at(now, Class::Arrival, PcieEvent::Deliver(next));
        }
        while let Some(&(after, read)) = commit.waiting_reads.front() {
            if after > commit.committed {
                break;
            }
            commit.waiting_reads.pop_front();
            out.at(now + self.bursts[read].access, Class::Stage, PcieEvent::Ready(read));
        }
        let b = &self.bursts[burst];
        let last = b.route.first as usize + usize::from(b.route.hops) - 1;
        let (held, need) = (self.topology.hops[last].station, b.need());
        self.release(now, held, Flow::Posted, need, out);
        self.finish(now, burst)
    }

    /// The completions of a burst are at the requester.
    fn completed(&mut self, now: Time, burst: u32, out: &mut Out<PcieEvent>) -> Option<Done> {
        let b = &self.bursts[burst];
        let from = usize::from(b.from);
        let r = &mut self.requesters[from];
        r.tags += b.requests;
        r.bytes += b.len;
        if !self.requesters[from].queue.is_empty() {
            self.pump_reads(now, from, out);
        }
        self.finish(now, burst)
    }

    /// Removes a burst; the last one of a transaction ends it.
    fn finish(&mut self, now: Time, burst: u32) -> Option<Done> {
        let b = self.bursts.remove(burst);
        let mut done = Done {
            device: NodeId(if b.kind == Kind::Mmio { b.to } else { b.from }),
            tag: b.tag,
            kind: b.kind,
            cause: b.cause,
            bytes: b.len,
            submitted: b.submitted,
            started: b.started,
            finished: now,
        };
        if b.whole == NONE {
            return Some(done);
        }
        let w = &mut self.wholes[b.whole];
        w.bursts -= 1;
        w.started = w.started.min(b.started);
        if w.left > 0 || w.bursts > 0 {
            return None;
        }
        done.started = w.started;
        done.bytes = w.transaction.bytes;
        self.wholes.remove(b.whole);
        Some(done)
    }
}

/// Where the order of a burst is kept: one for all host memory, since a root complex makes the
/// writes of a device visible in their order whichever socket they go to, and one for each peer.
fn commit_index(b: &Burst, sockets: usize, places: usize) -> usize {
    let to = usize::from(b.to);
    usize::from(b.from) * places + if to < sockets { 0 } else { to }
}

/// The place of a target in the tree.
pub(super) fn place(target: Target) -> u16 {
    match target {
        Target::HostMemory { numa, .. } => u16::from(numa),
        Target::Node(node) => node.0,
    }
}
