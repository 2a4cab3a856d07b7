//! The back end on the fake: what the provider sees, and what the program is told.
//!
//! Every test ends with its objects destroyed and [`Fake::assert_clean`].

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::device::{Device, OpenConfig};
use super::fake::{DeviceConfig, Fake, FakeConfig, SentWr};
use super::objects::Posting;
use super::positions::SendId;
use super::provider::Provider;
use super::{HwConfig, HwTransport};
use crate::bootstrap::{Bootstrap, local};

mod attributes;
mod bursts;
mod chains;
mod completions;
mod creation;
mod devices;
mod events;
mod handles;
mod life;
mod memory;
mod receives;
mod regressions;
mod rings;
mod runner;
mod slots;
mod states;
mod wakes;

const HOST: MemKind = MemKind::Host { numa: 0 };
const BOTH: [Posting; 2] = [Posting::Classic, Posting::Extended];
const REGION: u64 = 4096;
const ALL_RIGHTS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Ends a test: whatever else the bed holds is gone by then.
struct Clean(Option<Fake>);

impl Drop for Clean {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.iter().for_each(Fake::assert_clean);
        }
    }
}

/// What a test asks for.
#[derive(Clone)]
struct Spec {
    fake: FakeConfig,
    posting: Posting,
    ty: QpType,
    size: QpSize,
    cq_depth: u32,
    /// Depth of a shared receive queue.
    srq: Option<u32>,
    sig_all: bool,
    max_staged: u32,
    rank: usize,
    /// The bootstrap has a descriptor, and no news.
    quiet: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            fake: FakeConfig::default(),
            posting: Posting::Classic,
            ty: QpType::Rc,
            size: QpSize { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 3, max_inline: 64 },
            cq_depth: 64,
            srq: None,
            sig_all: false,
            max_staged: 6,
            rank: 0,
            quiet: false,
        }
    }
}

/// A handle of a fake device with one queue pair in RTS.
struct Bed {
    t: HwTransport,
    pd: PdId,
    cq: CqId,
    recv_cq: CqId,
    srq: Option<SrqId>,
    mr: Mr,
    qp: QpId,
    ty: QpType,
    /// The other ranks of the bootstrap.
    peers: Vec<local::Local>,
    fake: Fake,
    _clean: Clean,
}

fn open(fake: &Fake, config: HwConfig, bootstrap: impl Bootstrap + 'static) -> HwTransport {
    let provider: Arc<dyn Provider> = fake.provider();
    let device = Device::open(&provider, &OpenConfig::default()).unwrap();
    HwTransport::new(device, config, Box::new(bootstrap)).unwrap()
}

/// A bootstrap with a descriptor that never becomes readable, as a connection without news has.
/// One without a descriptor is looked at every few microseconds, which would hide a sleep that
/// nothing else ends.
#[derive(Debug)]
struct Quiet {
    inner: local::Local,
    ours: UnixStream,
    /// Open, or the descriptor would become readable with the end of the connection.
    _theirs: UnixStream,
}

impl Quiet {
    fn new(inner: local::Local) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        Self { inner, ours, _theirs: theirs }
    }
}

impl Bootstrap for Quiet {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        self.inner.publish(key, bytes);
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        self.inner.lookup(peer, key, out)
    }

    fn poll(&mut self) -> bool {
        self.inner.poll()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ours.as_fd())
    }

    fn lost_peer(&self) -> Option<u32> {
        self.inner.lost_peer()
    }

    fn finish(&mut self, deadline: std::time::Instant) {
        self.inner.finish(deadline);
    }
}

impl Bed {
    fn new(posting: Posting) -> Self {
        Self::of(Spec { posting, ..Spec::default() })
    }

    fn of(spec: Spec) -> Self {
        let mut bed = Self::reset(spec);
        bed.connect();
        bed
    }

    /// The queue pair is in RESET.
    fn reset(spec: Spec) -> Self {
        Self::on(Fake::new(spec.fake.clone()), spec)
    }

    fn on(fake: Fake, spec: Spec) -> Self {
        let mut peers = local::group(2);
        let own = peers.remove(spec.rank);
        let config =
            HwConfig { posting: spec.posting, max_staged: spec.max_staged, ..HwConfig::default() };
        let mut t = if spec.quiet {
            open(&fake, config, Quiet::new(own))
        } else {
            open(&fake, config, own)
        };
        let pd = t.create_pd().unwrap();
        let (cq, recv_cq) =
            (t.create_cq(spec.cq_depth).unwrap(), t.create_cq(spec.cq_depth).unwrap());
        let srq = spec.srq.map(|depth| t.create_srq(pd, depth).unwrap());
        let mr = t.alloc_mr(pd, REGION, HOST, ALL_RIGHTS, Contents::Data).unwrap();
        let init = QpInit {
            ty: spec.ty,
            pd,
            send_cq: cq,
            recv_cq,
            srq,
            size: spec.size,
            sq_sig_all: spec.sig_all,
            queue_memory: HOST,
        };
        let qp = t.create_qp(&init).unwrap();
        let (clean, ty) = (Clean(Some(fake.clone())), spec.ty);
        Self { t, pd, cq, recv_cq, srq, mr, qp, ty, peers, fake, _clean: clean }
    }

    fn connect(&mut self) {
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            assert_eq!(self.go(to), Ok(0), "{to}");
        }
    }

    /// To the state with exactly the attributes that it needs.
    fn go(&mut self, to: QpState) -> Result<u32, ModifyError> {
        let from = self.t.qp_state(self.qp).unwrap();
        let mask = required(self.ty, from, to).expect("a transition of the table");
        self.t.modify_qp(self.qp, &QpAttr { state: to, ..attr() }, mask)
    }

    fn qpn(&self) -> u32 {
        self.t.endpoint(self.qp).unwrap().qpn.value()
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        self.mr.sge(offset, len).expect("inside the region")
    }

    fn range(&self, offset: u64, len: u64) -> Range {
        Range { mr: self.mr.id, offset, len }
    }

    fn init(&self) -> QpInit {
        QpInit {
            ty: self.ty,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.recv_cq,
            srq: None,
            size: Spec::default().size,
            sq_sig_all: false,
            queue_memory: HOST,
        }
    }

    /// Stages signalled SENDs with these ids.
    fn stage(&mut self, ids: std::ops::Range<u64>) {
        for id in ids {
            self.t.stage(self.qp, &send(id)).unwrap_or_else(|e| panic!("{id}: {e}"));
        }
    }

    fn ring(&mut self) -> Result<Rung, RingError> {
        self.t.ring(self.qp, Ring::Auto)
    }

    /// Stages and rings; all are taken.
    fn post(&mut self, ids: std::ops::Range<u64>) {
        let wqes = (ids.end - ids.start) as u32;
        self.stage(ids);
        assert_eq!(self.ring(), Ok(Rung { wqes, by: RungBy::Provider }));
    }

    fn recv(&mut self, wr_id: u64, offset: u64, len: u32) -> Result<(), PostRecvError> {
        let wr = RecvWr { wr_id, sge: self.sge(offset, len) };
        self.t.post_recv(self.queue(), &[wr])
    }

    fn queue(&self) -> RecvQueue {
        self.srq.map_or(RecvQueue::Qp(self.qp), RecvQueue::Srq)
    }

    fn poll(&mut self, cq: CqId) -> Vec<Completion> {
        let mut out = Completions::with_capacity(64);
        self.t.poll_cq(cq, &mut out).unwrap();
        assert!(!out.is_full());
        out.as_slice().to_vec()
    }

    fn sent(&mut self) -> Vec<Completion> {
        self.poll(self.cq)
    }

    fn received(&mut self) -> Vec<Completion> {
        self.poll(self.recv_cq)
    }

    /// What the provider took, by position in the queue.
    fn seen(&self) -> Vec<SentWr> {
        let mut all = self.fake.sent(self.qpn());
        for wr in &mut all {
            wr.wr_id = SendId::decode(wr.wr_id).position.into();
        }
        all
    }

    fn ids(&self) -> Vec<u64> {
        self.seen().iter().map(|wr| wr.wr_id).collect()
    }

    fn events(&mut self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.t.next_event()).collect()
    }
}

/// Attributes with a value for every bit.
fn attr() -> QpAttr {
    QpAttr {
        access: ALL_RIGHTS,
        dest_qpn: Qpn::new(0x77),
        qkey: QKey(0x1234_5678),
        path: Address {
            lid: 9,
            gid: [7; 16],
            sl: ServiceLevel::new(5).expect("in range"),
            flow_label: FlowLabel::new(0x1_2345).expect("in range"),
        },
        rq_psn: Psn::new(0x00AB_CDEF),
        sq_psn: Psn::new(0x0012_3456),
        ..QpAttr::default()
    }
}

/// A signalled SEND of 4 bytes.
fn send(wr_id: u64) -> SendWr<'static> {
    request(SendOp::Send, wr_id, Data::Inline(b"ring"))
}

fn request(op: SendOp, wr_id: u64, data: Data<'_>) -> SendWr<'_> {
    SendWr { wr_id, op, data, flags: SendFlags::SIGNALED, dest: None }
}

/// Id and status of each completion in error of a queue.
fn errors(completions: &[Completion], of: WorkQueue) -> Vec<(u64, WcStatus)> {
    let error = |c: &Completion| match *c {
        Completion::Error { wr_id, status, queue, .. } if queue == of => Some((wr_id, status)),
        _ => None,
    };
    completions.iter().filter_map(error).collect()
}

/// All; one of `n` where an interpreter runs the test.
fn thinned<T>(all: impl Iterator<Item = T>, n: usize) -> impl Iterator<Item = T> {
    all.step_by(if cfg!(miri) { n } else { 1 })
}

/// One device with other facts.
fn device(f: impl FnOnce(&mut DeviceConfig)) -> FakeConfig {
    let mut device = DeviceConfig::roce("fake0", 1);
    f(&mut device);
    FakeConfig { devices: vec![device], ..FakeConfig::default() }
}
