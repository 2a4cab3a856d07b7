//! The RC engine and the NIC around it, by clauses of the protocol reference: what needs counters,
//! planned losses or a machine of the test's own, and therefore only the simulator can show.
//!
//! | Rule | Here | Elsewhere |
//! |---|---|---|
//! | PSN wrap | `sequence: …_over_the_wrap` | `sim/src/rc/tests/property.rs` |
//! | one sequence NAK per gap | `sequence: one_sequence_nak_…` | `rc/tests/responder.rs` |
//! | coalesced and implied ACKs | `sequence: one_ack_…`, `an_ack_…` | `rc/tests/replies.rs` |
//! | partial READ retry | `sequence: reads_over_…` | scenario `case_m02` |
//! | ATOMIC replay | `sequence: an_atomic_…` | `rc/tests/responder.rs` |
//! | READ depths, 0 too | `sequence: reads_wait_…`, `a_depth_…` | scenario `case_f04` |
//! | MSN | `sequence: messages_and_losses_…` | `rc/tests/lossy.rs` |
//! | fence | `sequence: a_fence_waits_…` | `conformance/operations.rs` |
//! | credits, limited WQE, code 31 | `credits` | `rc/tests/limits.rs`, tables in `core` |
//! | ack timer | `timer` | `rc/tests/timer.rs` |
//! | SQD, SQ_DRAINED | `drain` | `conformance/{flush,states}.rs` |
//! | keys at every packet | `keys` | `conformance/protection.rs` |
//! | SEND with Invalidate, both rules | `queues: a_key_…` | `conformance/operations.rs` |
//! | WRITE with immediate | – | `conformance/operations.rs`, `events.rs` |
//! | wrong state, wrong type | – | `conformance/states.rs`, `rc/tests/responder.rs` |
//! | slots on poll, on completion | `reclaim` | `conformance/limits.rs` |
//! | flush order, drain marker | `queues: a_marker_posted_in_err_…` | `conformance/flush.rs` |
//! | SRQ: limit, sharing, exhaustion, last WQE | – | `conformance/cq_srq.rs` |
//! | CQ overrun | `queues: a_lost_…`, `counters: an_entry_…` | `conformance/cq_srq.rs` |
//! | SQE and back | `counters: a_restart_from_sqe_…` | `conformance/states.rs` |
//! | UC: partial messages | `sequence: a_message_of_uc_…` | `rc/tests/unreliable.rs` |
//! | UD: Q_Key, GRH area | – | `conformance/{protection,operations}.rs` |
//! | counters of both sides | `counters` | `properties/loss.rs` |
//! | solicited-only waiting | `solicited` | – |
//! | port events | `ports` | – |

mod counters;
mod credits;
mod drain;
mod keys;
mod ports;
mod queues;
mod reclaim;
mod sequence;
mod solicited;
mod timer;

use doorbell_core::transport::*;
use doorbell_core::units::{BitRate, Time};
use doorbell_core::verbs::*;
use doorbell_sim::fabric::Link;
use doorbell_sim::fault::{Fault, FaultPlan, Matcher, PacketClass, PacketVerdict};
use doorbell_sim::host::HostConfig;
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::rc::HwCounters;
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

use crate::on_sim::conformance::pair::{Pair, Side, Spec, attributes, send};

/// Two hosts to be, each with one QP.
pub struct Setup {
    pub spec: Spec,
    pub host: HostConfig,
    /// Rate of the cable.
    pub rate: BitRate,
    pub plan: FaultPlan,
    /// What both QPs are connected with, beyond the [`Spec`].
    pub attr: QpAttr,
    /// First PSN of both directions.
    pub psn: Option<Psn>,
}

impl Setup {
    pub fn new(spec: Spec) -> Self {
        Self {
            spec,
            host: machine::quiet_host(),
            rate: BitRate::gbps(400),
            plan: FaultPlan::default(),
            attr: QpAttr { max_rd_atomic: 16, max_dest_rd_atomic: 16, ..QpAttr::default() },
            psn: None,
        }
    }

    /// The `nth` packet of a class is lost.
    pub fn lose(mut self, class: PacketClass, nth: u64) -> Self {
        let matcher = Matcher { class: Some(class), nth: Some(nth), ..Matcher::default() };
        let id = format!("{} {nth}", class.word());
        self.plan.faults.push(Fault::packets(&id, matcher, PacketVerdict::Drop));
        self
    }

    /// Both QPs in RTS.
    pub fn connect(self) -> Pair {
        let Self { spec, host, rate, plan, attr, psn } = self;
        let mut config = machine::world_of(host, 2, 1);
        let propagation = machine::profile("generic-400g").port.propagation;
        config.fabric =
            doorbell_sim::fabric::FabricConfig::back_to_back(Link::new(rate, propagation));
        let mut lab = Lab::with_faults(config, &[0, 1], &plan);
        let sides = [0, 1].map(|rank| lab.call(rank, move |t| Side::open(t, &spec)));
        for rank in [1, 0] {
            let (me, peer) = (sides[rank], sides[1 - rank]);
            lab.call(rank, move |t| {
                for (step, mask) in attributes(&spec, &me.endpoint, &peer.endpoint) {
                    let attr = QpAttr {
                        max_rd_atomic: attr.max_rd_atomic,
                        max_dest_rd_atomic: attr.max_dest_rd_atomic,
                        timeout: attr.timeout,
                        retry_cnt: attr.retry_cnt,
                        rnr_retry: attr.rnr_retry,
                        min_rnr_timer: attr.min_rnr_timer,
                        sq_psn: psn.unwrap_or(step.sq_psn),
                        rq_psn: psn.unwrap_or(step.rq_psn),
                        ..step
                    };
                    assert_eq!(t.modify_qp(me.qp, &attr, mask), Ok(0), "{}", attr.state);
                }
            });
            lab.settle();
        }
        Pair { lab, spec, sides, ah: None }
    }
}

/// The NIC of a host.
pub fn nic(pair: &Pair, host: usize) -> &Nic {
    pair.lab.world().hosts()[host].nic(0)
}

/// Its counters.
pub fn counted(pair: &Pair, host: usize) -> HwCounters {
    nic(pair, host).hw_counters()
}

/// The first QP of a host.
pub fn first_qp(pair: &Pair, host: usize) -> &NicQp {
    nic(pair, host).qp(0).expect("each has one")
}

/// Posts `n` equal requests of `len` bytes each, signalled, with one ring.
pub fn burst(pair: &mut Pair, op: SendOp, n: u64, len: u32) {
    pair.on(0, move |t, me| {
        let list = [me.sge(0, len)];
        for i in 0..n {
            t.stage(me.qp, &send(op, i, Data::Sge(&list))).unwrap();
        }
        assert_eq!(u64::from(t.ring(me.qp, Ring::Doorbell).unwrap().wqes), n);
    });
}

/// Work requests in the order of their completions, which are all good.
pub fn good(completions: &[Completion]) -> Vec<u64> {
    let id = |c: &Completion| match *c {
        Completion::Send { wr_id, .. } | Completion::Recv { wr_id, .. } => wr_id,
        Completion::Error { .. } => panic!("{c:?}"),
    };
    completions.iter().map(id).collect()
}

/// Simulated time so far.
pub fn now(pair: &Pair) -> Time {
    pair.lab.world().now()
}
