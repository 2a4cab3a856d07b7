//! Creation and states of QPs, CQs and SRQs. Limits and masks were checked by the caller.

use doorbell_core::transport::{QpAttr, QpCaps};
use doorbell_core::units::Time;
use doorbell_core::verbs::{Mtu, Psn, QpAttrMask, QpState, QpType};

use super::config::RcConfig;
use super::env::{Env, kind};
use super::postmortem::{Refused, Why};
use super::qp::{Context, Deferred, HostWrite, TxFifo};
use super::queues::{CompletionQueue, SendQueue};
use super::recv_queue::RecvQueue;
use super::sight::Sight;
use super::wqe::{Landing, RqWqe, Wqe};
use super::{AnswerWaits, Nic, NicQp, QpStats};
use crate::memory::RegionKind;
use crate::rc::{Requester, RequesterConfig, Responder, ResponderConfig};
use crate::wire::{HostId, PacketId, PortId, udp_source_port};

/// A QP to be made.
#[derive(Copy, Clone, Debug)]
pub struct QpRequest {
    /// Service.
    pub ty: QpType,
    /// Protection domain.
    pub pd: u32,
    /// CQ for sends.
    pub send_cq: u32,
    /// CQ for receives.
    pub recv_cq: u32,
    /// Shared receive queue.
    pub srq: Option<u32>,
    /// What is granted.
    pub caps: QpCaps,
    /// Where its work queues are.
    pub queue_space: RegionKind,
    /// Whether every send is signalled.
    pub sig_all: bool,
    /// Initiator that made it.
    pub owner: u16,
    /// First PSN that it will send, unless the caller sets another.
    pub first_psn: Psn,
    /// MTU of the port, which is the path MTU of datagrams.
    pub port_mtu: Mtu,
}

impl QpRequest {
    /// Former WQEs that its send queue keeps: what a ring that orders no stores may read.
    const fn history(&self) -> u32 {
        if self.caps.ring_orders_stores { 0 } else { self.caps.max_send_wr }
    }
}

impl Nic {
    /// Number of QPs.
    pub fn qp_count(&self) -> u32 {
        self.qps.len() as u32
    }

    /// Number of CQs that exist.
    pub fn cq_count(&self) -> u32 {
        self.cqs.len() as u32 - self.cqs_destroyed
    }

    /// Makes a QP in RESET; returns its index.
    pub fn create_qp(&mut self, r: &QpRequest) -> u32 {
        let index = self.qps.len() as u32;
        self.qps.push(Some(Box::new(NicQp {
            qpn: Self::qpn(self.port, index),
            ty: r.ty,
            pd: r.pd,
            state: QpState::Reset,
            host_state: QpState::Reset,
            life: 0,
            host_life: 0,
            queue_space: r.queue_space,
            send_cq: r.send_cq,
            recv_cq: r.recv_cq,
            srq: r.srq,
            caps: r.caps,
            attr: QpAttr { path_mtu: r.port_mtu, ..QpAttr::default() },
            peer: HostId(0),
            peer_port: PortId(0),
            owner: r.owner,
            first_psn: r.first_psn,
            sig_all: r.sig_all,
            sq: SendQueue::new(r.history(), self.rc.rules.slot_reclaim),
            rq: RecvQueue::new(if r.srq.is_some() { 0 } else { r.caps.max_recv_wr }),
            requester: None,
            responder: None,
            stats: QpStats::default(),
            waits: AnswerWaits::default(),
            last_progress: Time::ZERO,
            last_placed: Time::ZERO,
            placing: Default::default(),
            acknowledged: None,
            last_request: None,
            fill_at_rnr: None,
            reset_at: None,
            fresh_duplicates: None,
            accepts_since: None,
            death: None,
            bad_memory: None,
            pu: (index % u32::from(self.cfg.pu_count)) as u16,
            rx: (index % u32::from(self.cfg.rx_count)) as u16,
            in_pu: false,
            context: Context::Held,
            deferred: Vec::new(),
            tx_req: TxFifo::default(),
            tx_resp: TxFifo::default(),
            atomics: 0,
            rx_wait: Default::default(),
            current_recv: None,
            udp_source_port: 0,
            respond_at: Time::MAX,
            response_in_pu: false,
            held_writes: Default::default(),
            timers: Vec::new(),
            kept: Vec::new(),
            sight: Sight::default(),
            landing: [0; 2],
            tells_drained: false,
            asked_in_port: 0,
            asked_before_reset: 0,
            last_wqe_told: false,
            flushed: [false; 2],
            comm_est_told: false,
            flow: None,
            cnp_from: Time::ZERO,
            owes_becn: false,
            counters: Default::default(),
        })));
        self.apply_withheld();
        index
    }

    /// Makes a CQ in `space`; returns its index.
    pub fn create_cq(&mut self, depth: u32, owner: u16, space: RegionKind) -> u32 {
        self.cqs.push(Some(CompletionQueue::new(depth, owner, space)));
        self.apply_hidden();
        self.cqs.len() as u32 - 1
    }

    /// Destroys a CQ that no QP uses; completions that were not polled are lost.
    pub fn destroy_cq(&mut self, cq: u32) {
        debug_assert!(self.qps().all(|(_, q)| q.send_cq != cq && q.recv_cq != cq));
        if self.cqs[cq as usize].take().is_some() {
            self.cqs_destroyed += 1;
        }
    }

    /// Destroys an SRQ that no QP uses, with its receives.
    pub fn destroy_srq(&mut self, srq: u32) {
        debug_assert!(self.qps().all(|(_, q)| q.srq != Some(srq)));
        if let Some(mut rq) = self.srqs[srq as usize].take() {
            rq.reset(&mut self.posted);
        }
    }

    /// Makes an SRQ; returns its index.
    pub fn create_srq(&mut self, depth: u32) -> u32 {
        self.srqs.push(Some(RecvQueue::new(depth)));
        self.apply_withheld();
        self.srqs.len() as u32 - 1
    }

    /// Applies attributes and moves to the state that they name.
    pub fn modify_qp(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        attr: &QpAttr,
        mask: QpAttrMask,
        peer: Option<(HostId, PortId)>,
    ) {
        let (rc, seed) = (self.rc.clone(), self.timer_seed);
        let Some(q) = self.qp_mut(qp) else { return };
        let lost = q.state == QpState::Err;
        if lost && !matches!(attr.state, QpState::Reset | QpState::Err) {
            // The device refuses: the host did not know of the error when it asked.
            return;
        }
        set_attributes(&mut q.attr, attr, mask);
        if let Some(peer) = peer {
            (q.peer, q.peer_port) = peer;
        }
        match attr.state {
            QpState::Err => return self.enter_error(env, qp, Why::Modify),
            // What it owes depends on the state that it leaves.
            QpState::Reset => self.lose_completions(env, qp, false),
            _ => {}
        }
        let Some(q) = self.qp_mut(qp) else { return };
        let from = std::mem::replace(&mut q.state, attr.state);
        env.trace(kind::STATE, u64::from(qp), attr.state as u64);
        match (from, attr.state) {
            (QpState::Init, QpState::Rtr) => {
                q.accepts_since = Some(env.now);
                let a = &q.attr;
                let label = a.path.flow_label;
                q.udp_source_port = udp_source_port(label, q.qpn.value(), a.dest_qpn.value());
                q.responder = Some(responder(q.ty, a, &rc));
                self.choose_way(qp);
                if !self.goes_inside(qp) {
                    self.join_flow(env, qp);
                }
            }
            (QpState::Rtr, QpState::Rts) => {
                q.requester = Some(requester(q, &rc, q.attr.sq_psn, seed));
            }
            (QpState::Sqe, QpState::Rts) => {
                let next = q.requester.as_ref().map_or(q.attr.sq_psn, Requester::next_psn);
                if let Some(old) = &q.requester {
                    q.counters.add(old.counters());
                }
                q.requester = Some(requester(q, &rc, next, seed));
                (q.death, q.bad_memory) = (None, None); // Its next failure has its own cause.
            }
            (QpState::Rts, QpState::Sqd) => self.begin_drain(env, qp, mask),
            (QpState::Sqd, QpState::Rts) => self.end_drain(env, qp),
            (_, QpState::Reset) => return self.reset_qp(env, qp),
            _ => {}
        }
        let Some(q) = self.qp_mut(qp) else { return };
        let a = &q.attr;
        if let Some(r) = &mut q.responder {
            r.set_attributes(a.access, a.min_rnr_timer, a.qkey);
        }
        if let Some(r) = &mut q.requester {
            r.set_attributes(a.timeout, a.retry_cnt, a.rnr_retry, a.max_rd_atomic);
        }
    }

    /// SQD: messages that have begun go on to their end; then the program is told, if it asked.
    fn begin_drain(&mut self, env: &mut Env<'_>, qp: u32, mask: QpAttrMask) {
        let Some(q) = self.qp_mut(qp) else { return };
        q.tells_drained = mask.contains(QpAttrMask::EN_SQD_ASYNC_NOTIFY);
        if let Some(r) = &mut q.requester {
            r.hold_new_messages(true);
        }
        self.tell_drained(env, qp);
    }

    /// RTS again: what was posted goes on, whether the NIC had read it or not.
    fn end_drain(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qp_mut(qp) else { return };
        q.tells_drained = false;
        if let Some(r) = &mut q.requester {
            r.hold_new_messages(false);
        }
        self.fetch_more(env, qp);
        self.schedule(env, qp);
    }

    /// Empties the QP. What is on its way somewhere is of a former life from now on.
    fn reset_qp(&mut self, env: &mut Env<'_>, qp: u32) {
        self.leave_flow(qp);
        let Self { qps, posted, .. } = self;
        let Some(q) = qps.get_mut(qp as usize).and_then(Option::as_deref_mut) else { return };
        q.life += 1;
        q.reset_at = Some(env.now);
        q.fresh_duplicates = None;
        q.waits.reset();
        q.counters = q.hw_counters();
        q.sq.reset();
        q.rq.reset(posted);
        q.landing = [0; 2];
        (q.last_wqe_told, q.comm_est_told, q.flushed) = (false, false, [false; 2]);
        q.requester = None;
        q.responder = None;
        (q.accepts_since, q.acknowledged, q.death) = (None, None, None);
        q.bad_memory = None;
        q.current_recv = None;
        q.sight = Sight::default();
        q.atomics = 0;
        q.tells_drained = false;
        (q.cnp_from, q.owes_becn) = (Time::ZERO, false);
        q.asked_before_reset = q.asked_in_port;
        let first = q.rx_wait.front().copied();
        let mut arrived: Vec<(PacketId, u32)> =
            q.rx_wait.drain(..).map(|a| (a.packet, a.room)).collect();
        arrived.extend(q.kept.drain(..).map(|(_, packet)| (packet, 0)));
        let writes: Vec<HostWrite> = q.held_writes.drain(..).collect();
        let cqs = [q.send_cq, q.recv_cq];
        let unsent = q.tx_req.clear().chain(q.tx_resp.clear()).collect::<Vec<_>>();
        for packet in &unsent {
            let desc = &env.packets[packet.0].desc;
            self.tx_bytes -= self.rc.wire_bytes(desc.opcode, desc.len);
        }
        for packet in unsent {
            env.packets.remove(packet.0);
        }
        if let Some(first) = first {
            self.recv_queue(qp).forget(env.now, first.turn, qp);
        }
        for (packet, room) in arrived {
            self.discard(env, packet, Refused::State(QpState::Reset));
            self.rx_leaves(env, room);
        }
        for write in writes {
            match write {
                HostWrite::AwaitsWqe(id) | HostWrite::Response(id) | HostWrite::Inbound(id) => {
                    self.rx_writes.remove(id);
                }
                HostWrite::Cqe(id) => {
                    self.cqes.remove(id);
                }
            }
        }
        for cq in cqs {
            if let Some(cq) = self.cq_mut(cq) {
                cq.forget(qp);
            }
        }
        self.unblock(env);
    }

    /// Posts a WQE whose slot was reserved.
    pub fn post_send(&mut self, qp: u32, wqe: Wqe, landing: Landing) {
        if let Some(q) = self.qp_mut(qp) {
            q.sq.push(wqe, landing);
        }
    }

    /// Posts receives into the QP's or the shared queue.
    pub fn post_recv(&mut self, env: &mut Env<'_>, qp: u32, srq: Option<u32>, wqes: &[RqWqe]) {
        match srq {
            Some(srq) => {
                if let Some(rq) = self.srq_mut(srq) {
                    wqes.iter().for_each(|w| rq.push(*w));
                    wqes.iter().for_each(|w| self.posted.add(w));
                }
            }
            None => {
                if let Some(q) = self.qp_mut(qp) {
                    wqes.iter().for_each(|w| q.rq.push(*w));
                    wqes.iter().for_each(|w| self.posted.add(w));
                }
                self.recv_posted(env, qp);
            }
        }
    }

    /// Destroys a QP; what it had under way is lost.
    pub fn destroy_qp(&mut self, env: &mut Env<'_>, qp: u32) {
        self.lose_completions(env, qp, true);
        self.reset_qp(env, qp);
        if let Some(q) = self.qp(qp) {
            let (counters, posted) = (q.hw_counters(), u64::from(q.sq.prod()));
            self.gone.add(&counters);
            self.stats.posted_by_gone += posted;
        }
        if let Some(deferred) = self.qp_mut(qp).map(|q| std::mem::take(&mut q.deferred)) {
            for d in deferred {
                if let Deferred::Rx(packet) = d {
                    let dest = env.packets[packet.0].desc.dest;
                    self.discard(env, packet, Refused::UnknownQp(dest));
                }
            }
        }
        if let Some(slot) = self.qps.get_mut(qp as usize) {
            *slot = None;
        }
        self.contexts.remove(u64::from(qp));
    }
}

fn responder(service: QpType, a: &QpAttr, rc: &RcConfig) -> Responder {
    Responder::new(&ResponderConfig {
        service,
        dest: a.dest_qpn,
        rq_psn: a.rq_psn,
        payload: rc.payload_of(a.path_mtu),
        max_dest_rd_atomic: a.max_dest_rd_atomic,
        access: a.access,
        ack: rc.ack,
        min_rnr_timer: a.min_rnr_timer,
        qkey: a.qkey,
        hold: rc.recovery.hold(),
        nak_repeat: rc.nak_repeat,
        rules: rc.rules,
    })
}

/// The sending half of `q`, beginning at `psn`.
fn requester(q: &NicQp, rc: &RcConfig, psn: Psn, seed: u64) -> Requester {
    Requester::new(&RequesterConfig {
        service: q.ty,
        qpn: q.qpn,
        dest: q.attr.dest_qpn,
        sq_psn: psn,
        payload: rc.payload_of(q.attr.path_mtu),
        max_rd_atomic: q.attr.max_rd_atomic,
        max_outstanding_packets: rc.max_outstanding_packets,
        ack_req_every: rc.ack_req_every,
        ack_req_last: rc.ack_req_last,
        timeout: q.attr.timeout,
        retry_cnt: q.attr.retry_cnt,
        rnr_retry: q.attr.rnr_retry,
        timeout_mode: rc.timeout_mode.clone(),
        timer_seed: seed ^ u64::from(q.qpn.value()),
        nak_reaction: rc.nak_reaction,
        implied_nak_reaction: rc.implied_nak_reaction,
        recovery: rc.recovery.clone(),
        rules: rc.rules,
    })
}

/// Copies the attributes that the mask names.
fn set_attributes(to: &mut QpAttr, from: &QpAttr, mask: QpAttrMask) {
    use QpAttrMask as M;
    let set = |m: QpAttrMask| mask.contains(m);
    macro_rules! copy {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if set(M::$bit) { to.$field = from.$field; })*
        };
    }
    copy! {
        STATE => state, CUR_STATE => cur_state, ACCESS_FLAGS => access, PKEY_INDEX => pkey_index,
        PORT => port, QKEY => qkey, AV => path, PATH_MTU => path_mtu, TIMEOUT => timeout,
        RETRY_CNT => retry_cnt, RNR_RETRY => rnr_retry, RQ_PSN => rq_psn,
        MAX_QP_RD_ATOMIC => max_rd_atomic, MIN_RNR_TIMER => min_rnr_timer, SQ_PSN => sq_psn,
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic, DEST_QPN => dest_qpn,
    }
}
