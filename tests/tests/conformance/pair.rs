//! Two ranks with one QP each, and constructors for every state.

use doorbell::workloads::connect::{ALL_RIGHTS, steps};
use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::backend::{Handle, Lab};

pub const QKEY: QKey = QKey(0x1111_1111);
pub const HOST: MemKind = MemKind::Host { numa: 0 };
pub const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// What a test asks for.
#[derive(Copy, Clone, Debug)]
pub struct Spec {
    pub ty: QpType,
    pub size: QpSize,
    pub cq_depth: u32,
    pub region: u64,
    /// Rights of the QPs.
    pub access: AccessFlags,
    /// Rights of the regions.
    pub rights: AccessFlags,
    pub mtu: Mtu,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            ty: QpType::Rc,
            size: QpSize { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 3, max_inline: 64 },
            cq_depth: 64,
            region: 1 << 16,
            access: ALL_RIGHTS,
            rights: ALL_RIGHTS,
            mtu: Mtu::B1024,
        }
    }
}

/// A program of a group of two.
pub trait Member: Sized + Send + 'static {
    type Sum: Send + 'static;
    /// The sum, when it is there.
    fn step<T: Control>(&mut self, t: &mut T) -> Result<Option<Self::Sum>, AggregateError>;
    /// Leaves no object behind.
    fn close<T: Control>(self, t: &mut T);
}

/// Runs both members until each has ended, and closes each when it has.
pub fn run_members<M: Member>(
    lab: &mut Lab,
    members: [M; 2],
) -> [Result<M::Sum, AggregateError>; 2] {
    let mut members = members.map(Some);
    let mut ends = [None, None];
    for _ in 0..100_000 {
        for rank in 0..2 {
            let Some(mut member) = members[rank].take() else { continue };
            let (member, step) = lab.call(rank, move |t| {
                let step = member.step(t);
                (member, step)
            });
            match step.transpose() {
                None => members[rank] = Some(member),
                Some(end) => {
                    lab.call(rank, move |t| member.close(t));
                    ends[rank] = Some(end);
                }
            }
        }
        lab.settle();
        if ends.iter().all(Option::is_some) {
            break;
        }
    }
    ends.map(|end| end.expect("it ends"))
}

/// What a rank holds.
#[derive(Copy, Clone, Debug)]
pub struct Side {
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    pub mr: Mr,
    pub qp: QpId,
    pub endpoint: Endpoint,
}

impl Side {
    /// Creates the objects; the QP is in RESET.
    pub fn open<T: Control>(t: &mut T, s: &Spec) -> Self {
        let pd = t.create_pd().unwrap();
        let mr = t.alloc_mr(pd, s.region, HOST, s.rights, Contents::Data).unwrap();
        let send_cq = t.create_cq(s.cq_depth).unwrap();
        let recv_cq = t.create_cq(s.cq_depth).unwrap();
        let init = QpInit {
            ty: s.ty,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            size: s.size,
            sq_sig_all: false,
            queue_memory: HOST,
        };
        let qp = t.create_qp(&init).unwrap();
        let endpoint = t.endpoint(qp).unwrap();
        Self { pd, send_cq, recv_cq, mr, qp, endpoint }
    }

    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.mr.addr + offset, rkey: self.mr.rkey }
    }

    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        self.mr.sge(offset, len).expect("inside the region")
    }
}

/// Attributes and masks of INIT, RTR and RTS.
pub fn attributes(s: &Spec, me: &Endpoint, peer: &Endpoint) -> [(QpAttr, QpAttrMask); 3] {
    let attr = QpAttr {
        access: s.access,
        path_mtu: s.mtu,
        qkey: QKEY,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ..QpAttr::default()
    };
    steps(s.ty, attr, me, peer)
}

/// A send request from the region of `side`.
pub fn send(op: SendOp, wr_id: u64, data: Data<'_>) -> SendWr<'_> {
    SendWr { wr_id, op, data, flags: SIGNALED, dest: None }
}

/// Two connected ranks, or on their way to it.
pub struct Pair {
    pub lab: Lab,
    pub spec: Spec,
    pub sides: [Side; 2],
    pub ah: Option<[AhId; 2]>,
}

impl Pair {
    /// Both QPs in RESET.
    pub fn reset(spec: Spec) -> Self {
        let mut lab = Lab::pair();
        let sides = [0, 1].map(|rank| lab.call(rank, move |t| Side::open(t, &spec)));
        Self { lab, spec, sides, ah: None }
    }

    /// Both QPs in RTS.
    pub fn connected(spec: Spec) -> Self {
        let mut pair = Self::reset(spec);
        pair.advance(1, 3);
        pair.advance(0, 3);
        if spec.ty == QpType::Ud {
            let peers = [pair.sides[1], pair.sides[0]];
            pair.ah = Some([0, 1].map(|rank: usize| {
                let (pd, to) = (pair.sides[rank].pd, peers[rank].endpoint.address);
                pair.lab.call(rank, move |t| t.create_ah(pd, to).unwrap())
            }));
        }
        pair
    }

    pub fn rc() -> Self {
        Self::connected(Spec::default())
    }

    /// The first `n` of INIT, RTR, RTS.
    pub fn advance(&mut self, rank: usize, n: usize) {
        let (spec, me, peer) = (self.spec, self.sides[rank], self.sides[1 - rank]);
        self.lab.call(rank, move |t| {
            for (attr, mask) in &attributes(&spec, &me.endpoint, &peer.endpoint)[..n] {
                assert_eq!(t.modify_qp(me.qp, attr, *mask), Ok(0), "{}", attr.state);
            }
        });
        self.lab.settle();
    }

    /// A modify with no attribute but the state.
    pub fn go(&mut self, rank: usize, state: QpState) {
        let qp = self.sides[rank].qp;
        let attr = QpAttr { state, ..QpAttr::default() };
        let done = self.lab.call(rank, move |t| t.modify_qp(qp, &attr, QpAttrMask::STATE));
        done.unwrap_or_else(|e| panic!("{e}"));
        self.lab.settle();
    }

    /// Calls on one side.
    pub fn on<R: Send + 'static>(
        &mut self,
        rank: usize,
        body: impl FnOnce(&mut Handle<'_>, Side) -> R + Send + 'static,
    ) -> R {
        let side = self.sides[rank];
        self.lab.call(rank, move |t| body(t, side))
    }

    /// The destination of datagrams from `rank`.
    pub fn dest(&self, rank: usize) -> Option<UdDest> {
        let ah = self.ah.as_ref()?[rank];
        Some(UdDest { ah, qpn: self.sides[1 - rank].endpoint.qpn, qkey: QKEY })
    }

    /// Stages one request on `rank` and rings.
    pub fn post(&mut self, rank: usize, op: SendOp, wr_id: u64, sge: Sge) {
        let dest = self.dest(rank);
        self.on(rank, move |t, me| {
            let list = [sge];
            let wr = SendWr { dest, ..send(op, wr_id, Data::Sge(&list)) };
            t.stage(me.qp, &wr).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().wqes, 1);
        });
        self.lab.settle();
    }

    /// Posts a receive of `len` bytes at `offset`.
    pub fn recv(&mut self, rank: usize, wr_id: u64, offset: u64, len: u32) {
        self.on(rank, move |t, me| {
            let wr = RecvWr { wr_id, sge: me.sge(offset, len) };
            t.post_recv(RecvQueue::Qp(me.qp), &[wr]).unwrap_or_else(|e| panic!("{e}"));
        });
        self.lab.settle();
    }

    /// Everything in the send queue's CQ.
    pub fn sent(&mut self, rank: usize) -> Vec<Completion> {
        let cq = self.sides[rank].send_cq;
        self.poll(rank, cq)
    }

    /// Everything in the receive queue's CQ.
    pub fn received(&mut self, rank: usize) -> Vec<Completion> {
        let cq = self.sides[rank].recv_cq;
        self.poll(rank, cq)
    }

    pub fn poll(&mut self, rank: usize, cq: CqId) -> Vec<Completion> {
        self.lab.settle();
        self.lab.call(rank, move |t| drain(t, cq))
    }

    pub fn write_local(&mut self, rank: usize, offset: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.on(rank, move |t, me| {
            let range = me.mr.range(offset, bytes.len() as u64).unwrap();
            t.copy_in(range, &bytes).unwrap();
        });
        self.lab.settle();
    }

    pub fn read_local(&mut self, rank: usize, offset: u64, len: u64) -> Vec<u8> {
        self.lab.settle();
        self.on(rank, move |t, me| {
            let mut bytes = vec![0; len as usize];
            t.copy_out(me.mr.range(offset, len).unwrap(), &mut bytes).unwrap();
            bytes
        })
    }

    pub fn state(&mut self, rank: usize) -> QpState {
        self.on(rank, |t, me| t.qp_state(me.qp).unwrap())
    }

    pub fn events(&mut self, rank: usize) -> Vec<AsyncEvent> {
        self.lab.settle();
        self.lab.call(rank, |t| std::iter::from_fn(|| t.next_event()).collect())
    }
}

/// Polls until the queue is seen empty.
pub fn drain<T: Transport>(t: &mut T, cq: CqId) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        let mut some = Completions::with_capacity(7);
        t.poll_cq(cq, &mut some).unwrap();
        all.extend_from_slice(some.as_slice());
        if !some.is_full() {
            return all;
        }
    }
}

/// The status of each completion in error, by work request.
pub fn errors(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    let error = |c: &Completion| match *c {
        Completion::Error { wr_id, status, .. } => Some((wr_id, status)),
        _ => None,
    };
    completions.iter().filter_map(error).collect()
}
