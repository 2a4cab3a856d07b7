//! Memory of idle connections: a counting allocator, in a binary of its own.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use doorbell::workloads::connect::{ALL_RIGHTS, steps};
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{QpState, QpType};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Live bytes of the process.
fn live_bytes() -> usize {
    let s = ALLOCATOR.stats();
    s.bytes_allocated - s.bytes_deallocated
}

/// Most bytes of an idle connected pair, both ends together.
const LIMIT: usize = 8 * 1024;

/// Makes `pairs` QPs and connects each to the peer's of the same number; then does nothing.
struct Idle {
    peer: u32,
    pairs: u32,
    qps: Vec<QpId>,
    linked: usize,
    done: Arc<AtomicUsize>,
}

impl Idle {
    fn open<T: Control>(&mut self, t: &mut T) {
        let pd = t.create_pd().unwrap();
        let cq = t.create_cq(4096).unwrap();
        let host = MemKind::Host { numa: 0 };
        let size = QpSize { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 1, max_inline: 64 };
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
        for i in 0..self.pairs {
            let qp = t.create_qp(&init).unwrap();
            t.publish(i.into(), &t.endpoint(qp).unwrap().encode());
            self.qps.push(qp);
        }
    }
}

impl Program for Idle {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if self.qps.is_empty() && self.pairs > 0 {
            self.open(t);
        }
        while let Some(&qp) = self.qps.get(self.linked) {
            let mut bytes = [0; Endpoint::ENCODED_BYTES];
            if t.lookup(self.peer, self.linked as u64, &mut bytes).unwrap().is_none() {
                return Next::Wait { on: WaitSet::BOOTSTRAP, until: None };
            }
            let (me, peer) = (t.endpoint(qp).unwrap(), Endpoint::decode(&bytes).unwrap());
            let attr = QpAttr { access: ALL_RIGHTS, path_mtu: me.mtu, ..QpAttr::default() };
            for (attr, mask) in steps(QpType::Rc, attr, &me, &peer) {
                t.modify_qp(qp, &attr, mask).unwrap();
            }
            self.linked += 1;
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Next::Wait { on: WaitSet::EMPTY, until: Some(t.now() + Span::from_ms(1000)) }
    }
}

/// Live bytes of a world with `pairs` connections, when all are up.
fn live(pairs: u32) -> usize {
    let before = live_bytes();
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    for rank in 0..2 {
        let (qps, linked) = (vec![], 0);
        let program = Idle { peer: 1 - rank, pairs, qps, linked, done: done.clone() };
        world.add_program(HostId(rank), machine::core(0), Time::ZERO, program);
    }
    assert_eq!(world.run(Time::ZERO + Span::from_ms(500)), RunEnd::TimeLimit);
    assert_eq!(done.load(Ordering::Relaxed), 2, "both sides are connected");
    for host in world.hosts() {
        assert_eq!(host.nic(0).qp_count(), pairs);
        assert!(host.nic(0).qps().all(|(_, q)| q.state == QpState::Rts));
    }
    live_bytes() - before
}

#[test]
fn an_idle_connected_pair_takes_at_most_8_kib() {
    const PAIRS: usize = 1_000;
    // What the first run of anything allocates once is in neither figure.
    live(1);
    let (few, many) = (live(0), live(PAIRS as u32));
    let each = (many - few) / PAIRS;
    println!("{each} bytes per idle connected QP pair ({PAIRS} pairs, {few} bytes without)");
    assert!(each <= LIMIT, "{each} bytes");
    assert!(each >= 1_000, "{each} bytes: too few to hold two QPs, so something was not counted");
}
