//! The data path of the hardware back end allocates nothing: a counting allocator, in a binary of
//! its own with one test, so that nobody else allocates meanwhile.

use std::alloc::System;

use doorbell_core::policy::{BatchConfig, Batcher, Cue, PushError};
use doorbell_core::transport::*;
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{AccessFlags, QpType, Rkey, SendFlags};
use doorbell_hw::bootstrap::local;
use doorbell_hw::verbs::device::{Device, OpenConfig};
use doorbell_hw::verbs::fake::Fake;
use doorbell_hw::verbs::objects::Posting;
use doorbell_hw::verbs::{HwConfig, HwTransport};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WRS: u32 = 10_000;
const DEPTH: u32 = 128;
const BATCH: u32 = 16;
const HOST: MemKind = MemKind::Host { numa: 0 };

struct Bed {
    t: HwTransport,
    mr: Mr,
    cq: CqId,
    qp: QpId,
    out: Completions,
    done: u32,
}

impl Bed {
    fn new(fake: &Fake, posting: Posting) -> Self {
        let device = Device::open(&fake.provider(), &OpenConfig::default()).unwrap();
        let config = HwConfig { posting, ..HwConfig::default() };
        let bootstrap = Box::new(local::group(1).remove(0));
        let mut t = HwTransport::new(device, config, bootstrap).unwrap();
        let pd = t.create_pd().unwrap();
        let mr = t.alloc_mr(pd, 4096, HOST, AccessFlags::LOCAL_WRITE, Contents::Data).unwrap();
        let cq = t.create_cq(2 * DEPTH).unwrap();
        let size = QpSize { max_send_wr: DEPTH, max_recv_wr: 16, max_send_sge: 2, max_inline: 64 };
        let init = QpInit {
            ty: QpType::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            size,
            sq_sig_all: false,
            queue_memory: HOST,
        };
        let qp = t.create_qp(&init).unwrap();
        let end = t.endpoint(qp).unwrap();
        for (attr, mask) in (RcParams { attr: QpAttr::default() }).steps(&end, &end) {
            t.modify_qp(qp, &attr, mask).unwrap();
        }
        Self { t, mr, cq, qp, out: Completions::with_capacity(32), done: 0 }
    }

    /// Takes completions; each is of a batch.
    fn poll(&mut self) {
        self.out.clear();
        self.t.poll_cq(self.cq, &mut self.out).unwrap();
        for c in self.out.as_slice() {
            let Completion::Send { retired, .. } = *c else { panic!("{c:?}") };
            self.done += retired;
        }
    }

    /// The `n`th request: lists of no, one and two elements, and inline bytes.
    fn request<'a>(n: u32, list: &'a [Sge; 2], bytes: &'a [u8]) -> SendWr<'a> {
        let data = match n % 4 {
            3 => Data::Inline(bytes),
            k => Data::Sge(&list[..k as usize]),
        };
        let op = SendOp::Write(Remote { addr: 0x1000, rkey: Rkey(7) });
        let last = n % BATCH == BATCH - 1;
        let flags = if last { SendFlags::SIGNALED } else { SendFlags::empty() };
        SendWr { wr_id: n.into(), op, data, flags, dest: None }
    }

    fn list(&self) -> [Sge; 2] {
        [self.mr.sge(0, 8).unwrap(), self.mr.sge(100, 50).unwrap()]
    }

    fn stage_and_ring(&mut self, wrs: u32) {
        let (list, bytes) = (self.list(), [5; 64]);
        for n in 0..wrs {
            let wr = Self::request(n, &list, &bytes);
            // One poll frees a whole batch at least.
            if self.t.stage(self.qp, &wr) == Err(StageError::SqFull) {
                self.poll();
                self.t.stage(self.qp, &wr).unwrap();
            }
            if n % BATCH == BATCH - 1 {
                assert_eq!(self.t.ring(self.qp, Ring::Auto).map(|r| r.wqes), Ok(BATCH));
            }
        }
        self.poll();
    }

    fn batched(&mut self, wrs: u32) {
        let (list, bytes) = (self.list(), [5; 64]);
        let config = BatchConfig {
            max_wrs: BATCH,
            max_bytes: Bytes(1 << 30),
            max_delay: Span::from_ms(1),
            ..BatchConfig::default()
        };
        let mut batcher = Batcher::new(config, self.qp, &self.t.qp_caps(self.qp).unwrap());
        for n in 0..wrs {
            let wr = Self::request(n, &list, &bytes);
            let mut pushed = batcher.push(&mut self.t, Time::ZERO, &wr, Cue::Last);
            if matches!(pushed, Err(PushError::Refused(StageError::SqFull))) {
                self.poll();
                pushed = batcher.push(&mut self.t, Time::ZERO, &wr, Cue::Last);
            }
            pushed.unwrap();
        }
        assert_eq!(batcher.held(), 0);
        self.poll();
    }

    /// What else a data path does.
    fn receives_and_memory(&mut self, rounds: u32) {
        let wr = RecvWr { wr_id: 1, sge: self.list()[0] };
        let word = self.mr.range(0, 8).unwrap();
        let mut bytes = [1; 8];
        for _ in 0..rounds {
            self.t.post_recv(RecvQueue::Qp(self.qp), &[wr; 4]).unwrap();
            self.t.copy_in(word, &bytes).unwrap();
            self.t.copy_out(word, &mut bytes).unwrap();
            self.t.reduce(Reduce::SumI64, word, self.mr.range(8, 8).unwrap()).unwrap();
            let value = self.t.load_u64(word).unwrap();
            self.t.store_u64(word, value).unwrap();
            self.t.fence(FenceScope::System);
        }
    }
}

/// Allocations, reallocations and frees of `work`.
fn counted(bed: &mut Bed, work: fn(&mut Bed, u32), completions: u32) -> [usize; 3] {
    // What the first run of anything allocates is not counted.
    work(bed, 4 * DEPTH);
    let done = bed.done;
    let region = Region::new(ALLOCATOR);
    work(bed, WRS);
    let change = region.change();
    assert_eq!(bed.done - done, completions);
    [change.allocations, change.reallocations, change.deallocations]
}

#[test]
fn the_data_path_allocates_nothing() {
    let fake = Fake::null_device();
    for posting in [Posting::Classic, Posting::Extended] {
        let mut bed = Bed::new(&fake, posting);
        for (name, work, completions) in [
            ("stage and ring", Bed::stage_and_ring as fn(&mut Bed, u32), WRS),
            ("batcher", Bed::batched, WRS),
            ("receives and memory", Bed::receives_and_memory, 0),
        ] {
            assert_eq!(counted(&mut bed, work, completions), [0; 3], "{posting:?} {name}");
        }
    }
    // The counter counts.
    let region = Region::new(ALLOCATOR);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(region.change().allocations, 1);
    fake.assert_clean();
}
