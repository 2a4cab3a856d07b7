//! What the policy layer costs per work request: instructions of `stage` and `ring`, of the
//! batcher, and of a sender with a template, on a transport that counts and does nothing else.
//!
//! ```sh
//! cargo bench -p doorbell-core --bench policy_cost -- WAY BATCH WQES
//! ```
//!
//! `WAY` is `stage`, `batcher`, `adaptive`, `sender` or `lanes`. `.ci/instructions` runs it under
//! callgrind with N and 2N work requests and prints the differences. All ways signal one of 16 and
//! poll for it when the queue is full.

use std::process::ExitCode;

use doorbell_core::noop::NoOp;
use doorbell_core::policy::lanes::*;
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{Lkey, Rkey, SendFlags, WcOpcode};

const DEPTH: u32 = 256;
const SIGNAL_EVERY: u32 = 16;

/// A queue of [`DEPTH`] slots whose WQEs are done when they are rung.
#[derive(Default)]
struct Null {
    staged: u32,
    used: u32,
    /// What was staged, so that the work request is not optimised away.
    sum: u64,
}

impl Transport for Null {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn initiator(&self) -> Initiator {
        Initiator::Cpu { core: 0, numa: 0 }
    }

    fn qp_caps(&self, _qp: QpId) -> Result<QpCaps, BadHandle> {
        Ok(NoOp::caps(DEPTH))
    }

    fn sq_free(&self, _qp: QpId) -> u32 {
        DEPTH - self.used
    }

    #[inline]
    fn stage(&mut self, _qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        if self.used == DEPTH {
            return Err(StageError::SqFull);
        }
        (self.used, self.staged) = (self.used + 1, self.staged + 1);
        let Data::Sge([sge]) = wr.data else { return Err(StageError::BadHandle) };
        let SendOp::Write(to) = wr.op else { return Err(StageError::BadHandle) };
        self.sum = self.sum.wrapping_add(wr.wr_id ^ sge.addr ^ to.addr ^ u64::from(sge.len));
        self.sum = self.sum.wrapping_add(u64::from(wr.flags.bits()) ^ u64::from(to.rkey.0));
        Ok(())
    }

    #[inline]
    fn ring(&mut self, _qp: QpId, _how: Ring) -> Result<Rung, RingError> {
        Ok(Rung { wqes: std::mem::take(&mut self.staged), by: RungBy::Doorbell })
    }

    fn unstage(&mut self, _qp: QpId) -> u32 {
        std::mem::take(&mut self.staged)
    }

    fn post_recv(&mut self, _q: RecvQueue, _wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        Ok(())
    }

    /// Every 16th was signalled.
    fn poll_cq(&mut self, _cq: CqId, out: &mut Completions) -> Result<(), PollError> {
        while self.used >= SIGNAL_EVERY && !out.is_full() {
            self.used -= SIGNAL_EVERY;
            let (wr_id, qp, op) = (0, QP, WcOpcode::RdmaWrite);
            out.push(Completion::Send { wr_id, qp, op, len: 64, retired: SIGNAL_EVERY });
        }
        Ok(())
    }

    fn fence(&mut self, _scope: FenceScope) {}

    fn compute(&mut self, _work: Work) {}

    fn copy_in(&mut self, _to: Range, _from: &[u8]) -> Result<(), MemError> {
        Ok(())
    }

    fn copy_out(&mut self, _from: Range, _to: &mut [u8]) -> Result<(), MemError> {
        Ok(())
    }

    fn reduce(&mut self, _op: Reduce, _to: Range, _from: Range) -> Result<(), MemError> {
        Ok(())
    }

    fn load_u64(&mut self, _at: Range) -> Result<u64, MemError> {
        Ok(0)
    }

    fn store_u64(&mut self, _at: Range, _value: u64) -> Result<(), MemError> {
        Ok(())
    }
}

const QP: QpId = QpId::new(0, 0, 0);
const CQ: CqId = CqId::new(0, 0, 0);

struct Bed {
    t: Null,
    qp: QpId,
    template: WrTemplate,
    out: Completions,
    batch: BatchConfig,
}

impl Bed {
    fn new(batch: u32, mode: BatchMode) -> Self {
        let mr = NoOp::mr(0x1000, 1 << 16);
        let to = SendOp::Write(Remote { addr: 0x8000, rkey: Rkey(7) });
        let batch = BatchConfig {
            mode,
            max_wrs: batch,
            max_bytes: Bytes(1 << 30),
            max_delay: Span::from_ms(1),
            ..BatchConfig::default()
        };
        let template = WrTemplate::new(to, &mr, SendFlags::empty());
        let out = Completions::with_capacity(16);
        Self { t: Null::default(), qp: QP, template, out, batch }
    }

    fn offset(n: u32) -> u64 {
        u64::from(n % 1024) * 64
    }

    fn sge(n: u32) -> [Sge; 1] {
        [Sge { addr: 0x1000 + Self::offset(n), len: 64, lkey: Lkey(1) }]
    }

    fn wr(n: u32, sge: &[Sge]) -> SendWr<'_> {
        let signal = n % SIGNAL_EVERY == SIGNAL_EVERY - 1;
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        let op = SendOp::Write(Remote { addr: 0x8000 + Self::offset(n), rkey: Rkey(7) });
        SendWr { wr_id: n.into(), op, data: Data::Sge(sge), flags, dest: None }
    }

    fn stage(&mut self, wqes: u32) -> u64 {
        let mut rings = 0;
        for n in 0..wqes {
            let sge = Self::sge(n);
            let wr = Self::wr(n, &sge);
            while self.t.stage(self.qp, &wr).is_err() {
                self.out.clear();
                self.t.poll_cq(CQ, &mut self.out).expect("no overrun");
            }
            if n % self.batch.max_wrs == self.batch.max_wrs - 1 {
                self.t.ring(self.qp, Ring::Doorbell).expect("it takes all");
                rings += 1;
            }
        }
        rings
    }

    fn batcher(&mut self, wqes: u32) -> u64 {
        let mut batcher = Batcher::new(self.batch, self.qp, &NoOp::caps(DEPTH));
        for n in 0..wqes {
            let sge = Self::sge(n);
            let wr = Self::wr(n, &sge);
            while batcher.push(&mut self.t, Time::ZERO, &wr, Cue::More).is_err() {
                self.out.clear();
                self.t.poll_cq(CQ, &mut self.out).expect("no overrun");
            }
        }
        batcher.stats().rings
    }

    fn sender(&mut self, wqes: u32) -> u64 {
        let share = CqBudget::new(DEPTH).take(DEPTH).expect("all of it");
        let window = WindowConfig { max_wrs: 0, signal_every: SIGNAL_EVERY };
        let config = SenderConfig { batch: self.batch, window, signal_last: false };
        let mut sender = Sender::new(config, self.qp, &NoOp::caps(DEPTH), share);
        for n in 0..wqes {
            let wr = self.template.wr(n.into(), Self::offset(n), 64, 0).expect("in the region");
            while sender.push(&mut self.t, Time::ZERO, &wr, Cue::More).is_err() {
                self.out.clear();
                self.t.poll_cq(CQ, &mut self.out).expect("no overrun");
                for c in self.out.as_slice() {
                    sender.completion(c, Time::ZERO);
                }
            }
        }
        sender.stats().rings
    }

    /// By a lane of one queue pair without a pace.
    fn lanes(&mut self, wqes: u32) -> u64 {
        let window = WindowConfig { max_wrs: 0, signal_every: SIGNAL_EVERY };
        let sender = SenderConfig { batch: self.batch, window, signal_last: false };
        let lanes = [LaneConfig { sender, ..LaneConfig::default() }];
        let set = LanesConfig { lanes: &lanes, peers: 1, cores: 1, labels: FlowLabels::Device };
        let (qps, mut budget) = ([(self.qp, NoOp::caps(DEPTH))], CqBudget::new(DEPTH));
        let mut lanes = Lanes::new(&set, 0, &qps, &mut budget, Time::ZERO).expect("one of each");
        for n in 0..wqes {
            let wr = self.template.wr(n.into(), Self::offset(n), 64, 0).expect("in the region");
            let to = To::default();
            while lanes.push(&mut self.t, Time::ZERO, to, &wr, Cue::More).is_err() {
                self.out.clear();
                self.t.poll_cq(CQ, &mut self.out).expect("no overrun");
                for c in self.out.as_slice() {
                    lanes.completion(c, Time::ZERO);
                }
            }
        }
        lanes.stats(0).rings
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let numbers = args.get(1).zip(args.get(2)).map(|(b, n)| (b.parse(), n.parse()));
    let Some((Ok(batch), Ok(wqes))) = numbers else {
        eprintln!("usage: policy_cost stage|batcher|adaptive|sender|lanes BATCH WQES");
        // Without arguments, as `cargo bench --workspace` calls it, there is nothing to count.
        return if args.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    let mode = if args[0] == "adaptive" { BatchMode::ADAPTIVE } else { BatchMode::Fixed };
    let mut bed = Bed::new(batch, mode);
    let rings = match args[0].as_str() {
        "stage" => bed.stage(wqes),
        "batcher" | "adaptive" => bed.batcher(wqes),
        "sender" => bed.sender(wqes),
        "lanes" => bed.lanes(wqes),
        other => {
            eprintln!("no way is called {other}: stage, batcher, adaptive, sender or lanes");
            return ExitCode::from(2);
        }
    };
    println!("{} {batch} {wqes}: {rings} rings, {:x}", args[0], bed.t.sum);
    ExitCode::SUCCESS
}
