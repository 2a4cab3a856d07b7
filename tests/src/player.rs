//! A program that does what a plan says, and remembers what came back.

use std::sync::Arc;

use doorbell::workloads::connect::{ALL_RIGHTS, Card, Target, steps};
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{QKey, QpType, SendFlags, WcOpcode, WcStatus};

use crate::plan::{Kind, MAX_MTUS, MAX_OPS, Op, PLACE_STEP, PLACES, Plan, Side, WORDS};

/// What came back. Two back ends are equal if these are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Send completions: request, operation, bytes, slots.
    pub sent: Vec<(u64, WcOpcode, u32, u32)>,
    /// Receive completions: receive, operation, bytes, immediate data.
    pub received: Vec<(u64, WcOpcode, u32, Option<u32>)>,
    /// Errors of either queue.
    pub errors: Vec<(u64, WcStatus)>,
    /// Requests announced.
    pub rung: u64,
    /// Requests staged and not announced.
    pub unrung: u64,
    /// Bytes of READs and ATOMICs, and of receives, as they were when the completion was polled.
    pub seen: [Vec<u8>; 2],
    /// What READs and ATOMICs brought, what WRITEs left, words, receive buffers.
    pub memory: Vec<u8>,
}

/// Offsets in a rank's region, which begins on a page.
#[derive(Copy, Clone, Debug)]
pub struct Layout {
    /// Distance of buffers that belong to one operation.
    pub slot: u64,
    /// Where READs and ATOMICs bring their bytes; sources of SENDs and WRITEs come before.
    pub landings: u64,
    /// Places that the peer writes to.
    pub target: u64,
    /// Words for ATOMICs.
    pub words: u64,
    /// Receive buffers,
    pub receives: u64,
    /// and their distance.
    pub receive_slot: u64,
    /// Length of the region.
    pub end: u64,
}

impl Layout {
    /// The layout of both ranks of a plan.
    pub const fn of(plan: &Plan) -> Self {
        let slot = MAX_MTUS as u64 * plan.mtu.bytes() as u64;
        let landings = MAX_OPS as u64 * slot;
        let target = 2 * landings;
        let words = (target + PLACES * PLACE_STEP + slot).next_multiple_of(8);
        let receives = words + 8 * WORDS;
        // Room for the header of a datagram.
        let receive_slot = slot + 64;
        let end = receives + MAX_OPS as u64 * receive_slot;
        Self { slot, landings, target, words, receives, receive_slot, end }
    }
}

/// Long after the last packet of any plan, in a simulator.
const QUIET: Span = Span::from_us(200);
const QKEY: QKey = QKey(77);

const KEY_CARD: u64 = 1;
const KEY_READY: u64 = 2;
const KEY_DONE: u64 = 3;

#[derive(Copy, Clone, Debug)]
struct Objects {
    send_cq: CqId,
    recv_cq: CqId,
    mr: Mr,
    qp: QpId,
    remote: Target,
    dest: Option<UdDest>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Card,
    Ready,
    Work,
    PeerDone,
    Quiet(Time),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Player {
    plan: Arc<Plan>,
    at: Layout,
    me: usize,
    /// Rank of the pair's first program.
    first_rank: u32,
    stage: Stage,
    quiet: Span,
    objects: Option<Objects>,
    next: usize,
    staged: u64,
    /// What came back.
    pub record: Record,
    /// When the first request was about to be staged, and when the last completion was seen.
    pub worked: Option<(Time, Time)>,
}

impl Player {
    /// Rank `me` of a plan.
    pub fn new(plan: Arc<Plan>, me: usize) -> Self {
        let (stage, objects, record) = (Stage::Start, None, Record::default());
        let (at, first_rank) = (Layout::of(&plan), 0);
        Self {
            plan,
            at,
            me,
            first_rank,
            stage,
            quiet: QUIET,
            objects,
            next: 0,
            staged: 0,
            record,
            worked: None,
        }
    }

    /// Listens for so long after the peer's last operation.
    pub fn quiet_for(self, quiet: Span) -> Self {
        Self { quiet, ..self }
    }

    /// One of several pairs: its ranks are `first_rank` and the next.
    pub fn in_pair(self, first_rank: u32) -> Self {
        Self { first_rank, ..self }
    }

    fn side(&self) -> &Side {
        &self.plan.sides[self.me]
    }

    fn peer(&self) -> u32 {
        self.first_rank + 1 - self.me as u32
    }

    /// Operations that a side rings, and those of them that take a receive.
    fn receives(side: &Side) -> usize {
        side.rung().iter().filter(|op| op.kind.takes_receive()).count()
    }

    fn open<T: Control>(&mut self, t: &mut T) {
        let (host, queues) = self.plan.numa;
        let (host, queues) = (MemKind::Host { numa: host }, MemKind::Host { numa: queues });
        let pd = t.create_pd().unwrap();
        let mr = t.alloc_mr(pd, self.at.end, host, ALL_RIGHTS, Contents::Data).unwrap();
        let send_cq = t.create_cq(MAX_OPS as u32 + 1).unwrap();
        let recv_cq = t.create_cq(MAX_OPS as u32 + 1).unwrap();
        let size = QpSize {
            max_send_wr: self.plan.depth,
            max_recv_wr: MAX_OPS as u32,
            max_send_sge: 3,
            max_inline: self.plan.max_inline,
        };
        let ty = self.plan.ty;
        let init = QpInit {
            ty,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            size,
            sq_sig_all: false,
            queue_memory: queues,
        };
        let qp = t.create_qp(&init).unwrap();
        let sources: Vec<u8> =
            (0..self.at.landings).map(|i| (i * 31 + i / 251 + self.me as u64) as u8).collect();
        t.copy_in(mr.range(0, self.at.landings).unwrap(), &sources).unwrap();
        for word in 0..WORDS {
            t.store_u64(mr.range(self.at.words + 8 * word, 8).unwrap(), word).unwrap();
        }
        let card = Card { endpoint: t.endpoint(qp).unwrap(), target: Target::whole(&mr) };
        t.publish(KEY_CARD, &card.encode());
        self.objects =
            Some(Objects { send_cq, recv_cq, mr, qp, remote: Target::default(), dest: None });
    }

    fn said<T: Control>(&self, t: &mut T, key: u64) -> bool {
        t.lookup(self.peer(), key, &mut []).unwrap().is_some()
    }

    /// Connects once the peer's card is there, and posts every receive that will be needed.
    fn connect<T: Control>(&mut self, t: &mut T) -> bool {
        let mut bytes = [0; Card::ENCODED_BYTES];
        if t.lookup(self.peer(), KEY_CARD, &mut bytes).unwrap().is_none() {
            return false;
        }
        let card = Card::decode(&bytes).unwrap();
        let mut o = self.objects.unwrap();
        let mut mine = t.endpoint(o.qp).unwrap();
        let mut theirs = card.endpoint;
        mine.psn = self.side().psn;
        theirs.psn = self.plan.sides[1 - self.me].psn;
        let attr = QpAttr {
            access: ALL_RIGHTS,
            path_mtu: self.plan.mtu,
            qkey: QKEY,
            max_rd_atomic: self.plan.rd_atomic,
            max_dest_rd_atomic: self.plan.rd_atomic,
            ..QpAttr::default()
        };
        for (attr, mask) in steps(self.plan.ty, attr, &mine, &theirs) {
            t.modify_qp(o.qp, &attr, mask).unwrap();
        }
        o.remote = card.target;
        if self.plan.ty == QpType::Ud {
            let pd = t.create_pd().unwrap();
            let ah = t.create_ah(pd, theirs.address).unwrap();
            o.dest = Some(UdDest { ah, qpn: theirs.qpn, qkey: QKEY });
        }
        let n = Self::receives(&self.plan.sides[1 - self.me]);
        let wrs: Vec<RecvWr> = (0..n as u64)
            .map(|wr_id| {
                let (len, at) = (self.at.receive_slot as u32, self.at.receives);
                let sge = o.mr.sge(at + wr_id * self.at.receive_slot, len).unwrap();
                RecvWr { wr_id, sge }
            })
            .collect();
        t.post_recv(RecvQueue::Qp(o.qp), &wrs).unwrap();
        t.publish(KEY_READY, &[]);
        self.objects = Some(o);
        true
    }

    /// Stages and rings as far as the queues let it.
    fn post<T: Control>(&mut self, t: &mut T) {
        let o = self.objects.unwrap();
        let plan = self.plan.clone();
        let side = &plan.sides[self.me];
        let rung = side.ops.len() - side.unrung;
        let now = t.now();
        self.worked.get_or_insert((now, now));
        while let Some(op) = side.ops.get(self.next) {
            if self.next == rung {
                // What follows is never announced.
                self.ring(t, o.qp, Ring::Auto);
            }
            match stage(t, &o, &self.at, self.next as u64, op) {
                Ok(()) => {
                    self.next += 1;
                    self.staged += 1;
                }
                Err(StageError::StagedFull) => {
                    assert!(self.staged > 0);
                    self.ring(t, o.qp, Ring::Doorbell);
                    continue;
                }
                Err(StageError::SqFull) => break,
                Err(e) => panic!("operation {}: {e}", self.next),
            }
            if let Some(how) = op.ring.filter(|_| self.next <= rung) {
                self.ring(t, o.qp, how);
            }
        }
        // A sender that is stopped by a full queue has to ring what it holds.
        if self.next <= rung {
            self.ring(t, o.qp, Ring::Auto);
        }
        self.record.unrung = self.staged;
    }

    fn ring<T: Control>(&mut self, t: &mut T, qp: QpId, how: Ring) {
        let rung = t.ring(qp, how).unwrap();
        assert_eq!(u64::from(rung.wqes), self.staged);
        self.record.rung += self.staged;
        self.staged = 0;
    }

    fn poll<T: Control>(&mut self, t: &mut T) -> bool {
        let o = self.objects.unwrap();
        let mut empty = true;
        for cq in [o.send_cq, o.recv_cq] {
            let mut some = Completions::with_capacity(self.side().poll);
            t.poll_cq(cq, &mut some).unwrap();
            empty &= !some.is_full();
            let now = t.now();
            if let Some((_, last)) = self.worked.as_mut().filter(|_| !some.as_slice().is_empty()) {
                *last = now;
            }
            for c in some.as_slice() {
                match *c {
                    Completion::Send { wr_id, op, len, retired, .. } => {
                        self.record.sent.push((wr_id, op, len, retired));
                        if !matches!(op, WcOpcode::Send | WcOpcode::RdmaWrite) {
                            self.see(t, 0, self.at.landings + wr_id * self.at.slot, len);
                        }
                    }
                    Completion::Recv { wr_id, op, len, imm, .. } => {
                        self.record.received.push((wr_id, op, len, imm));
                        if op == WcOpcode::Recv {
                            self.see(t, 1, self.at.receives + wr_id * self.at.receive_slot, len);
                        }
                    }
                    Completion::Error { wr_id, status, .. } => {
                        self.record.errors.push((wr_id, status));
                    }
                }
            }
        }
        empty
    }

    fn see<T: Control>(&mut self, t: &mut T, queue: usize, offset: u64, len: u32) {
        let range = self.objects.unwrap().mr.range(offset, len.into()).unwrap();
        let seen = &mut self.record.seen[queue];
        let from = seen.len();
        seen.resize(from + len as usize, 0);
        t.copy_out(range, &mut seen[from..]).unwrap();
    }

    /// Everything that will ever come has come.
    fn complete(&self) -> bool {
        let side = self.side();
        let signaled =
            side.rung().iter().filter(|op| op.flags.contains(SendFlags::SIGNALED)).count();
        self.next == side.ops.len()
            && self.record.sent.len() >= signaled
            && self.record.received.len() >= Self::receives(&self.plan.sides[1 - self.me])
    }

    fn keep_memory<T: Control>(&mut self, t: &mut T) {
        let mr = self.objects.unwrap().mr;
        let (from, len) = (self.at.landings, self.at.end - self.at.landings);
        let mut bytes = vec![0; len as usize];
        t.copy_out(mr.range(from, len).unwrap(), &mut bytes).unwrap();
        self.record.memory = bytes;
    }
}

fn stage<T: Control>(
    t: &mut T,
    o: &Objects,
    at: &Layout,
    i: u64,
    op: &Op,
) -> Result<(), StageError> {
    let remote = |offset: u64| Remote { ..o.remote.at(offset) };
    let place = remote(at.target + op.place * PLACE_STEP);
    let word = remote(at.words + 8 * (op.place % WORDS));
    let imm = 0xA000_0000 + i as u32;
    let send_op = match op.kind {
        Kind::Send => SendOp::Send,
        Kind::SendImm => SendOp::SendImm(imm),
        Kind::Write => SendOp::Write(place),
        Kind::WriteImm => SendOp::WriteImm(place, imm),
        Kind::Read => SendOp::Read(remote(op.place * 200)),
        Kind::ReadBack => SendOp::Read(place),
        Kind::Add => SendOp::FetchAdd { remote: word, add: i + 1 },
        Kind::Swap => SendOp::CmpSwap { remote: word, compare: op.place, swap: 1000 + i },
    };
    let local = if op.kind.may_be_inline() { 0 } else { at.landings } + i * at.slot;
    let sges = elements(&o.mr, local, op);
    let bytes: Vec<u8> = (0..op.len).map(|b| (u64::from(b) * 13 + i) as u8).collect();
    let data = if op.inline { Data::Inline(&bytes) } else { Data::Sge(&sges) };
    t.stage(o.qp, &SendWr { wr_id: i, op: send_op, data, flags: op.flags, dest: o.dest })
}

/// The local bytes as a list of elements of about equal length; the first may be empty.
fn elements(mr: &Mr, at: u64, op: &Op) -> Vec<Sge> {
    let n = if matches!(op.kind, Kind::Add | Kind::Swap) { 1 } else { op.elements };
    let part = op.len / n;
    let mut list = Vec::new();
    let mut from = 0;
    for i in 0..n {
        let len = if i + 1 == n { op.len - from } else { part };
        list.push(mr.sge(at + u64::from(from), len).unwrap());
        from += len;
    }
    list
}

impl Program for Player {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let boot = Next::Wait { on: WaitSet::BOOTSTRAP, until: None };
        loop {
            match self.stage {
                Stage::Start => {
                    self.open(t);
                    self.stage = Stage::Card;
                }
                Stage::Card => {
                    if !self.connect(t) {
                        return boot;
                    }
                    self.stage = Stage::Ready;
                }
                Stage::Ready if !self.said(t, KEY_READY) => return boot,
                Stage::Ready => self.stage = Stage::Work,
                Stage::Work => {
                    let o = self.objects.unwrap();
                    let empty = self.poll(t);
                    self.post(t);
                    if !self.complete() {
                        let on = WaitSet::cq(o.send_cq).or(WaitSet::cq(o.recv_cq));
                        let wait = Next::Wait { on, until: None };
                        return if empty { wait } else { Next::Again };
                    }
                    t.publish(KEY_DONE, &[]);
                    self.stage = Stage::PeerDone;
                }
                Stage::PeerDone if !self.said(t, KEY_DONE) => return boot,
                Stage::PeerDone => self.stage = Stage::Quiet(t.now() + self.quiet),
                Stage::Quiet(until) if t.now() < until => {
                    return Next::Wait { on: WaitSet::EMPTY, until: Some(until) };
                }
                Stage::Quiet(_) => {
                    // Nothing more may have come.
                    self.poll(t);
                    self.keep_memory(t);
                    return Next::Done;
                }
            }
        }
    }
}
