//! What a work request costs above the provider: instructions of a hand-written chain, of
//! `stage` and `ring`, and of the batcher, on a device that does next to nothing.
//!
//! ```sh
//! cargo bench -p doorbell-hw --features fake --bench wqe_cost -- WAY POSTING BATCH WQES
//! ```
//!
//! `WAY` is `hand`, `stage` or `batcher`, `POSTING` `classic` or `extended`. It does that work and
//! prints what it counted; `.ci/instructions` runs it under callgrind with N and 2N work requests
//! and prints the differences. Both ways signal one of 128 requests and poll for it.

use std::process::ExitCode;

use doorbell_core::policy::{BatchConfig, Batcher, Cue};
use doorbell_core::transport::*;
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{AccessFlags, QpType, Rkey, SendFlags};
use doorbell_hw::bootstrap::local;
use doorbell_hw::verbs::device::{Device, OpenConfig};
use doorbell_hw::verbs::fake::Fake;
use doorbell_hw::verbs::objects::Posting;
use doorbell_hw::verbs::sys::*;
use doorbell_hw::verbs::{HwConfig, HwTransport};

const DEPTH: u32 = 256;
const SIGNAL_EVERY: u32 = 128;
const BYTES: u32 = 64;

struct Bed {
    t: HwTransport,
    mr: Mr,
    cq: CqId,
    qp: QpId,
}

/// Two queue pairs of one device, the first connected to the second.
fn bed(posting: Posting) -> Bed {
    let provider = Fake::null_device().provider();
    let device = Device::open(&provider, &OpenConfig::default()).expect("the fake is usable");
    let config = HwConfig { posting, ..HwConfig::default() };
    let bootstrap = local::group(1).remove(0);
    let mut t = HwTransport::new(device, config, Box::new(bootstrap)).expect("a channel");
    let host = MemKind::Host { numa: 0 };
    let pd = t.create_pd().expect("a domain");
    let mr = t.alloc_mr(pd, 1 << 20, host, AccessFlags::LOCAL_WRITE, Contents::Data);
    let mr = mr.expect("a region");
    let cq = t.create_cq(2 * DEPTH).expect("a queue");
    let size = QpSize { max_send_wr: DEPTH, max_recv_wr: 1, max_send_sge: 1, max_inline: 0 };
    let init = QpInit {
        ty: QpType::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        size,
        sq_sig_all: false,
        queue_memory: host,
    };
    let qp = t.create_qp(&init).expect("a QP");
    let end = t.endpoint(qp).expect("just created");
    for (attr, mask) in (RcParams { attr: QpAttr::default() }).steps(&end, &end) {
        t.modify_qp(qp, &attr, mask).expect("the way to RTS");
    }
    Bed { t, mr, cq, qp }
}

/// Signals every so many.
fn flags(n: u32) -> SendFlags {
    if n % SIGNAL_EVERY == SIGNAL_EVERY - 1 { SendFlags::SIGNALED } else { SendFlags::empty() }
}

impl Bed {
    fn wr<'a>(&self, n: u32, sge: &'a [Sge]) -> SendWr<'a> {
        let op = SendOp::Write(Remote { addr: 0x1000 + u64::from(n % 64) * 64, rkey: Rkey(7) });
        SendWr { wr_id: n.into(), op, data: Data::Sge(sge), flags: flags(n), dest: None }
    }

    fn sge(&self, n: u32) -> [Sge; 1] {
        let addr = self.mr.addr + u64::from(n % 1024) * u64::from(BYTES);
        [Sge { addr, len: BYTES, lkey: self.mr.lkey }]
    }

    fn poll(&mut self, out: &mut Completions) {
        out.clear();
        self.t.poll_cq(self.cq, out).expect("nothing overruns");
    }

    fn stage(&mut self, batch: u32, wqes: u32) -> u64 {
        let (mut out, mut rings) = (Completions::with_capacity(16), 0);
        for n in 0..wqes {
            let sge = self.sge(n);
            let wr = self.wr(n, &sge);
            while self.t.stage(self.qp, &wr).is_err() {
                self.poll(&mut out);
            }
            if n % batch == batch - 1 {
                self.t.ring(self.qp, Ring::Auto).expect("a device that takes all");
                rings += 1;
            }
        }
        rings
    }

    fn batcher(&mut self, batch: u32, wqes: u32) -> u64 {
        let mut out = Completions::with_capacity(16);
        let caps = self.t.qp_caps(self.qp).expect("a QP");
        let config = BatchConfig {
            max_wrs: batch,
            max_bytes: Bytes(1 << 30),
            max_delay: Span::from_ms(1),
            ..BatchConfig::default()
        };
        let mut batcher = Batcher::new(config, self.qp, &caps);
        let now = Time::ZERO;
        for n in 0..wqes {
            let sge = self.sge(n);
            let wr = self.wr(n, &sge);
            while batcher.push(&mut self.t, now, &wr, Cue::Last).is_err() {
                self.poll(&mut out);
            }
        }
        batcher.stats().rings
    }
}

/// What a careful C programmer writes: a linked array, cut for each post.
fn hand(bed: &Bed, batch: u32, wqes: u32) -> u64 {
    let (qp, cq) = bed.t.raw(bed.qp, bed.cq).expect("both are alive");
    let count = batch as usize;
    // SAFETY: all-zero is a valid value of these plain C structures.
    let (mut wrs, mut sges): (Vec<ibv_send_wr>, Vec<ibv_sge>) = unsafe {
        let wr = || core::mem::zeroed::<ibv_send_wr>();
        ((0..count).map(|_| wr()).collect(), vec![core::mem::zeroed(); count])
    };
    let (wr, sge) = (wrs.as_mut_ptr(), sges.as_mut_ptr());
    let (mut outstanding, mut rings) = (0, 0);
    // SAFETY: elements of the two arrays above, which live until the end; the QP and the CQ are
    // alive and used by nobody else.
    unsafe {
        for i in 0..count {
            (*wr.add(i)).sg_list = sge.add(i);
            (*wr.add(i)).num_sge = 1;
            (*wr.add(i)).next = if i + 1 < count { wr.add(i + 1) } else { core::ptr::null_mut() };
        }
        let mut wc: [ibv_wc; 16] = core::mem::zeroed();
        for n in 0..wqes {
            let i = (n % batch) as usize;
            let (w, s) = (wr.add(i), sge.add(i));
            (*s).addr = bed.mr.addr + u64::from(n % 1024) * u64::from(BYTES);
            (*s).length = BYTES;
            (*s).lkey = bed.mr.lkey.0;
            (*w).wr_id = n.into();
            (*w).opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            (*w).send_flags = flags(n).bits();
            (*w).wr.rdma = rdma_t { remote_addr: 0x1000 + u64::from(n % 64) * 64, rkey: 7 };
            if i + 1 == count {
                let mut bad = core::ptr::null_mut();
                assert_eq!(ibv_post_send(qp, wr, &raw mut bad), 0);
                rings += 1;
                outstanding += batch;
                while outstanding + batch > DEPTH {
                    let polled = ibv_poll_cq(cq, 16, wc.as_mut_ptr());
                    outstanding -= polled as u32 * SIGNAL_EVERY;
                }
            }
        }
    }
    rings
}

/// The same with extended verbs.
fn hand_extended(bed: &Bed, batch: u32, wqes: u32) -> u64 {
    let (qp, cq) = bed.t.raw(bed.qp, bed.cq).expect("both are alive");
    let (mut outstanding, mut rings) = (0, 0);
    // SAFETY: the QP was made for extended posting; it and the CQ are alive and used by nobody
    // else. All-zero is a valid value of a completion.
    unsafe {
        let qp = ibv_qp_to_qp_ex_of(qp);
        let mut wc: [ibv_wc; 16] = core::mem::zeroed();
        for n in 0..wqes {
            if n % batch == 0 {
                ibv_wr_start(qp);
            }
            (*qp).wr_id = n.into();
            (*qp).wr_flags = flags(n).bits();
            ibv_wr_rdma_write(qp, 7, 0x1000 + u64::from(n % 64) * 64);
            let addr = bed.mr.addr + u64::from(n % 1024) * u64::from(BYTES);
            ibv_wr_set_sge(qp, bed.mr.lkey.0, addr, BYTES);
            if n % batch == batch - 1 {
                assert_eq!(ibv_wr_complete(qp), 0);
                rings += 1;
                outstanding += batch;
                while outstanding + batch > DEPTH {
                    let polled = ibv_poll_cq(cq, 16, wc.as_mut_ptr());
                    outstanding -= polled as u32 * SIGNAL_EVERY;
                }
            }
        }
    }
    rings
}

/// An `ibv_qp` that was made for extended posting is the first member of an `ibv_qp_ex`.
const fn ibv_qp_to_qp_ex_of(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    qp.cast()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [way, posting, batch, wqes] = args.as_slice() else {
        eprintln!("usage: wqe_cost hand|stage|batcher classic|extended BATCH WQES");
        return ExitCode::from(2);
    };
    let posting = match posting.as_str() {
        "extended" => Posting::Extended,
        _ => Posting::Classic,
    };
    let (Ok(batch), Ok(wqes)) = (batch.parse::<u32>(), wqes.parse::<u32>()) else {
        eprintln!("BATCH and WQES are numbers");
        return ExitCode::from(2);
    };
    let mut bed = bed(posting);
    let rings = match way.as_str() {
        "hand" if posting == Posting::Extended => hand_extended(&bed, batch, wqes),
        "hand" => hand(&bed, batch, wqes),
        "stage" => bed.stage(batch, wqes),
        _ => bed.batcher(batch, wqes),
    };
    println!("{way} {batch} {wqes}: {rings} posts");
    ExitCode::SUCCESS
}
