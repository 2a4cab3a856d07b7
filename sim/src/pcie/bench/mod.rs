//! A device that measures PCIe from its own side, as pcie-bench does on the NFP6000.
//!
//! The device has threads that issue DMA operations and wait for their completion, a read and a
//! write engine, and a buffer memory. Its stages are few, and each explains more than one
//! published row:
//!
//! - `issue` and `notify`: a thread's command on its way to the PCIe unit, and the signal back;
//! - `queue`: the descriptor queue of the DMA engines, which the command interface avoids;
//! - `read_op`, `write_op`: how often an engine takes a descriptor: the rate of small writes;
//! - `mover`: between PCIe and buffer memory, one per direction, whole operations at a time: the
//!   slope of latency over size, and the ceiling of bandwidth below the link's;
//! - `port`: the buffer memory's port, shared by both movers: reads and writes together.
//!
//! The read tags of the tree do the rest: the rate of small reads, and what of it is lost when
//! memory is farther away.

#[cfg(test)]
mod tests;

use doorbell_core::units::{BitRate, Span, Time};

use super::{Cause, Kind, NodeId, PcieConfig, PcieConfigError, PcieEvent, PcieTree, Target};
use super::{Done, Transaction};
use crate::engine::{Busy, Class, ComponentId, Engine, Out};

/// Stages of the device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DmaEngineConfig {
    /// A thread's command to the PCIe unit.
    pub issue: Span,
    /// Completion to the thread that waits for it.
    pub notify: Span,
    /// Descriptor queue of the DMA engines; not on the way of the command interface.
    pub queue: Span,
    /// Time per descriptor of the read engine.
    pub read_op: Span,
    /// Time per descriptor of the write engine.
    pub write_op: Span,
    /// Data movers, one per direction.
    pub mover: Stage,
    /// Port of the buffer memory, shared by the movers; overlaps them.
    pub port: Stage,
}

/// A stage with a time per operation and a rate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Per operation.
    pub op: Span,
    /// Of the data.
    pub rate: BitRate,
}

impl Stage {
    fn service(&self, bytes: u32) -> Span {
        self.op + self.rate.time_for(u64::from(bytes))
    }
}

/// A device in a host, and the memory that it measures.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The host's tree.
    pub pcie: PcieConfig,
    /// The device in it.
    pub device: NodeId,
    /// Its stages.
    pub engine: DmaEngineConfig,
    /// The memory.
    pub target: Target,
    /// Operations go through a window of this many bytes, one after the other, each at a
    /// multiple of 64.
    pub window: u32,
    /// For the noise.
    pub seed: u64,
}

/// By which interface an operation is issued.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Interface {
    /// Descriptor to a DMA engine.
    Dma,
    /// PCIe command of a thread: no engine, no mover, at most 64 bytes.
    Command,
}

/// What the threads of a bandwidth run do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Alternating.
    ReadWrite,
}

/// Latencies, sorted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latencies(Vec<Span>);

impl Latencies {
    /// The latency below which `ppm` millionths of the operations are.
    pub fn quantile(&self, ppm: u32) -> Span {
        let last = self.0.len() as u64 - 1;
        self.0[(last * u64::from(ppm) / 1_000_000) as usize]
    }

    /// Half of them are below.
    pub fn median(&self) -> Span {
        self.quantile(500_000)
    }
}

/// Result of a bandwidth run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Throughput {
    /// Operations that ended; of a mix those of one direction.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first issue to the last completion.
    pub elapsed: Span,
}

impl Throughput {
    /// Payload, Gb/s; for reports.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 * 8_000.0 / self.elapsed.as_ps() as f64
    }

    /// Million operations per second; for reports.
    pub fn mops(&self) -> f64 {
        self.ops as f64 * 1e6 / self.elapsed.as_ps() as f64
    }
}

#[derive(Copy, Clone, Debug)]
enum Event {
    Pcie(PcieEvent),
    /// A descriptor is at its engine.
    Enqueued(u32),
    /// An engine has taken the descriptor.
    Taken(u32),
    /// A mover begins with the data.
    Moving(u32),
    /// Data of a write is out of the buffer memory.
    Moved(u32),
    /// A thread learns that its operation has ended.
    Signal(u32),
}

/// What a thread has under way.
#[derive(Copy, Clone, Debug)]
struct Op {
    kind: Kind,
    interface: Interface,
    addr: u64,
    bytes: u32,
    mover_end: Time,
}

/// Ends of writes in memory are of interest to the tree alone.
const NOBODY: u64 = u64::MAX;

struct Bench {
    tree: PcieTree,
    events: Engine<Event>,
    me: ComponentId,
    out: Out<PcieEvent>,
    engine: DmaEngineConfig,
    device: NodeId,
    target: Target,
    window: u32,
    /// Read, write.
    engines: [Busy; 2],
    movers: [Busy; 2],
    port: Busy,
    /// One per thread.
    ops: Vec<Op>,
    next_addr: u64,
}

impl Bench {
    fn new(cfg: &BenchConfig, threads: u32) -> Result<Self, PcieConfigError> {
        let mut events = Engine::new(cfg.seed);
        let me = events.add_component("bench");
        let idle = Op {
            kind: Kind::Read,
            interface: Interface::Dma,
            addr: 0,
            bytes: 1,
            mover_end: Time::ZERO,
        };
        Ok(Self {
            tree: PcieTree::new(&cfg.pcie, cfg.seed, "bench")?,
            events,
            me,
            out: Out::new(),
            engine: cfg.engine,
            device: cfg.device,
            target: cfg.target,
            window: cfg.window,
            engines: [Busy::new(); 2],
            movers: [Busy::new(); 2],
            port: Busy::new(),
            ops: vec![idle; threads as usize],
            next_addr: 0,
        })
    }

    fn at(&mut self, t: Time, class: Class, event: Event) {
        self.events.schedule(self.me, t, class, event);
    }

    fn next_addr(&mut self, bytes: u32) -> u64 {
        let addr = self.next_addr;
        let stride = u64::from(bytes.next_multiple_of(64));
        let next = addr + stride;
        self.next_addr = if next + stride > u64::from(self.window) { 0 } else { next };
        addr
    }

    /// A thread issues an operation now.
    fn issue(&mut self, thread: u32, kind: Kind, interface: Interface, addr: u64, bytes: u32) {
        self.ops[thread as usize] = Op { kind, interface, addr, bytes, mover_end: Time::ZERO };
        let now = self.events.now() + self.engine.issue;
        match interface {
            Interface::Dma => {
                self.at(now + self.engine.queue, Class::Arrival, Event::Enqueued(thread));
            }
            Interface::Command => self.at(now, Class::Arrival, Event::Moved(thread)),
        }
    }

    /// Data is before its mover.
    fn queue_for_mover(&mut self, now: Time, thread: u32) {
        let Op { kind, bytes, .. } = self.ops[thread as usize];
        let mover = &mut self.movers[usize::from(kind != Kind::Read)];
        let (start, end) = mover.reserve(now, self.engine.mover.service(bytes));
        self.ops[thread as usize].mover_end = end;
        self.at(start, Class::Stage, Event::Moving(thread));
    }

    /// The mover begins, and takes its turn at the port that it shares.
    fn moving(&mut self, now: Time, thread: u32) {
        let Op { kind, bytes, mover_end, .. } = self.ops[thread as usize];
        let (_, port_end) = self.port.reserve(now, self.engine.port.service(bytes));
        let end = mover_end.max(port_end);
        if kind == Kind::Read {
            self.at(end + self.engine.notify, Class::Stage, Event::Signal(thread));
        } else {
            self.at(end, Class::Stage, Event::Moved(thread));
        }
    }

    fn submit(&mut self, now: Time, thread: u32) {
        let op = self.ops[thread as usize];
        let tag = if op.kind == Kind::Read { u64::from(thread) } else { NOBODY };
        let t = Transaction {
            kind: op.kind,
            from: self.device,
            target: self.target,
            bytes: op.bytes,
            addr: op.addr,
            cause: Cause::Other,
            tag,
        };
        self.tree.submit(now, t, &mut self.out);
        self.schedule();
        if op.kind != Kind::Read {
            // A write is over for the device when it has left.
            let left = self.tree.port_free_at(self.device).max(now);
            self.at(left + self.engine.notify, Class::Stage, Event::Signal(thread));
        }
    }

    fn schedule(&mut self) {
        self.events.schedule_all(self.me, &mut self.out, Event::Pcie);
    }

    /// Runs one event; returns the thread whose operation ended.
    fn step(&mut self) -> Option<u32> {
        let (now, _, event) = self.events.pop().expect("no livelock")?;
        match event {
            Event::Pcie(ev) => {
                let done = self.tree.on_event(now, ev, &mut self.out);
                self.schedule();
                if let Some(done) = done.filter(|d| d.tag != NOBODY) {
                    self.data_arrived(now, done);
                }
                None
            }
            Event::Enqueued(thread) => {
                let read = self.ops[thread as usize].kind == Kind::Read;
                let service = if read { self.engine.read_op } else { self.engine.write_op };
                let (_, end) = self.engines[usize::from(!read)].reserve(now, service);
                self.at(end, Class::Stage, Event::Taken(thread));
                None
            }
            Event::Taken(thread) => {
                let op = self.ops[thread as usize];
                if op.kind == Kind::Read {
                    self.submit(now, thread);
                } else {
                    self.queue_for_mover(now, thread);
                }
                None
            }
            Event::Moving(thread) => {
                self.moving(now, thread);
                None
            }
            Event::Moved(thread) => {
                self.submit(now, thread);
                None
            }
            Event::Signal(thread) => Some(thread),
        }
    }

    fn data_arrived(&mut self, now: Time, done: Done) {
        let thread = done.tag as u32;
        match self.ops[thread as usize].interface {
            Interface::Dma => self.queue_for_mover(now, thread),
            Interface::Command => {
                self.at(now + self.engine.notify, Class::Stage, Event::Signal(thread));
            }
        }
    }

    /// Runs until the operation of `thread` has ended.
    fn wait(&mut self, thread: u32) {
        while self.step() != Some(thread) {
            assert!(self.events.pending() > 0, "an operation that never ends");
        }
    }
}

/// Latencies of `samples` reads of `bytes`, one at a time.
///
/// # Errors
/// A tree that is none.
pub fn read_latency(
    cfg: &BenchConfig,
    interface: Interface,
    bytes: u32,
    samples: u32,
) -> Result<Latencies, PcieConfigError> {
    sample(cfg, 1, samples, |bench| {
        let addr = bench.next_addr(bytes);
        bench.issue(0, Kind::Read, interface, addr, bytes);
        bench.wait(0);
    })
}

/// Latencies of `samples` writes of `bytes`, each followed by a read of the same bytes.
///
/// With the DMA engines a thread waits for the write's completion before it issues the read,
/// since their queues have no common order. Commands keep their order, so that both are issued
/// at once, and the read waits at the root complex until the write is visible.
///
/// # Errors
/// A tree that is none.
pub fn write_then_read_latency(
    cfg: &BenchConfig,
    interface: Interface,
    bytes: u32,
    samples: u32,
) -> Result<Latencies, PcieConfigError> {
    sample(cfg, 2, samples, |bench| {
        let addr = bench.next_addr(bytes);
        bench.issue(0, Kind::Write, interface, addr, bytes);
        if interface == Interface::Dma {
            bench.wait(0);
        }
        bench.issue(1, Kind::Read, interface, addr, bytes);
        bench.wait(1);
    })
}

fn sample(
    cfg: &BenchConfig,
    threads: u32,
    samples: u32,
    mut one: impl FnMut(&mut Bench),
) -> Result<Latencies, PcieConfigError> {
    let mut bench = Bench::new(cfg, threads)?;
    let mut all = Vec::with_capacity(samples as usize);
    for _ in 0..samples {
        let begin = bench.events.now();
        one(&mut bench);
        all.push(bench.events.now().since(begin));
        // What is left of the write ends before the next sample.
        while bench.events.pending() > 0 {
            bench.step();
        }
    }
    all.sort_unstable();
    Ok(Latencies(all))
}

/// Throughput of `ops` operations of `bytes` by `threads` threads, each of which issues the next
/// one when its last has ended.
///
/// # Errors
/// A tree that is none.
pub fn bandwidth(
    cfg: &BenchConfig,
    mix: Mix,
    bytes: u32,
    threads: u32,
    ops: u64,
) -> Result<Throughput, PcieConfigError> {
    let mut bench = Bench::new(cfg, threads)?;
    let (mut issued, mut ended) = (0, 0);
    let mut issue = |bench: &mut Bench, thread| {
        if issued < ops {
            // Of a mix, even operations write and odd ones read, whichever thread it is.
            let read = mix == Mix::Read || (mix == Mix::ReadWrite && issued % 2 == 1);
            let kind = if read { Kind::Read } else { Kind::Write };
            let addr = bench.next_addr(bytes);
            bench.issue(thread, kind, Interface::Dma, addr, bytes);
            issued += 1;
        }
    };
    for thread in 0..threads {
        issue(&mut bench, thread);
    }
    while ended < ops {
        if let Some(thread) = bench.step() {
            ended += 1;
            issue(&mut bench, thread);
        }
    }
    let ops = if mix == Mix::ReadWrite { ops / 2 } else { ops };
    let elapsed = bench.events.now().since(Time::ZERO);
    Ok(Throughput { ops, bytes: ops * u64::from(bytes), elapsed })
}
