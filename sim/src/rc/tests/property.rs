//! Random work over the ideal link equals an ideal model that executes it in order.

use doorbell_core::units::Span;
use doorbell_core::verbs::{Mtu, Psn, QpType, Rkey, SendFlags, WcOpcode, WcStatus, WrOpcode};
use proptest::prelude::*;

use super::super::*;
use super::link::{Link, Outcome, Wr};
use super::{BASE, job, requester_config, responder_config};

const REMOTE: usize = 4096;

#[derive(Clone, Debug)]
struct Plan {
    requester: RequesterConfig,
    responder: ResponderConfig,
    wrs: Vec<Wr>,
    schedule: u64,
}

/// Executes the work requests one after the other.
fn ideal(plan: &Plan, mut remote: Vec<u8>) -> Outcome {
    let mut local: Vec<_> = plan.wrs.iter().map(|wr| wr.local.clone()).collect();
    let mut recvs = Vec::new();
    for (wr, mine) in plan.wrs.iter().zip(&mut local) {
        let job = wr.job;
        let len = job.len as usize;
        let at = (job.remote_va - BASE) as usize;
        let mut recv = |op, imm, invalidate, bytes: &[u8]| {
            let solicited = job.flags.contains(SendFlags::SOLICITED);
            recvs.push((RecvDone { op, len: job.len, imm, invalidate, solicited }, bytes.to_vec()));
        };
        let imm = job.imm_or_inv;
        match job.op {
            WrOpcode::Send => recv(WcOpcode::Recv, None, None, mine),
            WrOpcode::SendWithImm => recv(WcOpcode::Recv, Some(imm), None, mine),
            WrOpcode::SendWithInv => {
                recv(WcOpcode::Recv, None, Some(Rkey(imm)), mine);
            }
            WrOpcode::RdmaWriteWithImm => {
                remote[at..at + len].copy_from_slice(mine);
                recv(WcOpcode::RecvRdmaWithImm, Some(imm), None, &vec![0; len]);
            }
            WrOpcode::RdmaWrite => remote[at..at + len].copy_from_slice(mine),
            WrOpcode::RdmaRead => mine.copy_from_slice(&remote[at..at + len]),
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => {
                let word: [u8; 8] = remote[at..at + 8].try_into().unwrap();
                mine.copy_from_slice(&word);
                let old = u64::from_le_bytes(word);
                let new = match job.op {
                    WrOpcode::AtomicFetchAndAdd => old.wrapping_add(job.swap_add),
                    _ if old == job.compare => job.swap_add,
                    _ => old,
                };
                remote[at..at + 8].copy_from_slice(&new.to_le_bytes());
            }
            other => panic!("{other:?} is no work of this test"),
        }
    }
    Outcome { remote, local, recvs }
}

const RC_OPS: [WrOpcode; 8] = [
    WrOpcode::Send,
    WrOpcode::SendWithImm,
    WrOpcode::SendWithInv,
    WrOpcode::RdmaWrite,
    WrOpcode::RdmaWriteWithImm,
    WrOpcode::RdmaRead,
    WrOpcode::AtomicCmpAndSwp,
    WrOpcode::AtomicFetchAndAdd,
];

/// Lengths on both sides of every multiple of the MTU, and any others.
fn length() -> impl Strategy<Value = u32> {
    let near = (0u32..6, 0u32..3).prop_map(|(n, d)| (n * 256 + d).saturating_sub(1));
    prop_oneof![2 => near, 1 => 0u32..1500, 2 => 0u32..64]
}

prop_compose! {
    fn wr()(op in 0usize..8, len in length(), at in 0u64..2048, flags in 0u32..8, add in 0u64..3)
        -> SendJob
    {
        let op = RC_OPS[op];
        let atomic = matches!(op, WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd);
        SendJob {
            len: if atomic { 8 } else { len },
            // Few words, so that a compare meets an equal value now and then.
            remote_va: BASE + if atomic { at % 4 * 8 } else { at },
            flags: SendFlags::from_bits_truncate(flags),
            swap_add: add,
            compare: add + 1,
            ..job(0, op, 0)
        }
    }
}

fn ack_policy() -> impl Strategy<Value = AckPolicy> {
    let coalesce = (1u32..5, 0u64..3)
        .prop_map(|(every, us)| AckPolicy::Coalesce { every, delay: Span::from_us(us) });
    prop_oneof![Just(AckPolicy::EachRequest), coalesce]
}

prop_compose! {
    fn plan()(
        mtu in prop_oneof![Just(Mtu::B256), Just(Mtu::B512)],
        psn in prop_oneof![Just(0u32), Just(0xFF_FFFD), 0u32..0x100_0000],
        depth in 1u8..5,
        spare in 0u8..2,
        window in prop_oneof![1u32..4, 4u32..64],
        every in 0u32..6,
        signalled: bool,
        ack in ack_policy(),
        jobs in prop::collection::vec(wr(), 1..30),
        schedule: u64,
    ) -> Plan {
        let ack_req_last =
            if signalled { AckReqLast::Signalled } else { AckReqLast::EveryMessage };
        Plan {
            requester: RequesterConfig {
                payload: mtu.bytes(),
                sq_psn: Psn::new(psn),
                max_rd_atomic: depth,
                max_outstanding_packets: window,
                ack_req_every: every,
                ack_req_last,
                ..requester_config(QpType::Rc)
            },
            responder: ResponderConfig {
                payload: mtu.bytes(),
                rq_psn: Psn::new(psn),
                max_dest_rd_atomic: depth + spare,
                ack,
                ..responder_config(QpType::Rc)
            },
            wrs: finish(jobs),
            schedule,
        }
    }
}

/// Numbers the work requests and gives them bytes. A change of memory that an unfenced READ may
/// still be reading gets a fence: without it the result is open (`protocol.md` §5.5). The last
/// one is signalled, or nobody would ask for its ACK.
fn finish(mut jobs: Vec<SendJob>) -> Vec<Wr> {
    let mut reading: Vec<(u64, u64)> = Vec::new();
    jobs.last_mut().unwrap().flags |= SendFlags::SIGNALED;
    let mut wrs = Vec::new();
    for (wqe, mut job) in jobs.into_iter().enumerate() {
        job.wqe = wqe as u32;
        let range = (job.remote_va, job.remote_va + u64::from(job.len));
        let is_write = matches!(job.op, WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm);
        let changes = is_write || (job.op.is_read_or_atomic() && job.op != WrOpcode::RdmaRead);
        if changes && reading.iter().any(|r| r.0 < range.1 && range.0 < r.1) {
            job.flags |= SendFlags::FENCE;
        }
        if job.flags.contains(SendFlags::FENCE) {
            reading.clear();
        }
        if job.op == WrOpcode::RdmaRead {
            reading.push(range);
        }
        let local = (0..job.len).map(|i| (wqe as u32 * 31 + i * 7 + 1) as u8).collect();
        wrs.push(Wr { job, local });
    }
    wrs
}

fn check(plan: &Plan) {
    let remote: Vec<u8> = (0..REMOTE).map(|i| if i < 32 { 0 } else { (i * 5) as u8 }).collect();
    let mut link = Link::new(&plan.requester, &plan.responder, &plan.wrs, &remote);
    let mut state = plan.schedule | 1;
    link.run(|n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % n
    });
    assert!(link.requester.idle(), "blocked by {:?}", link.requester.blocked_by());
    assert_eq!(link.requester.outstanding(), 0);
    assert_eq!(link.requester.next_psn(), link.responder.expected_psn());
    assert_eq!(link.responder.msn().value() as usize, plan.wrs.len());
    for (wr, done) in plan.wrs.iter().zip(&link.completions) {
        let SendJob { wqe, op, len, flags, .. } = wr.job;
        let signalled = flags.contains(SendFlags::SIGNALED);
        let expected = SendDone { wqe, op, len, status: WcStatus::Success, signalled };
        assert_eq!(*done, expected);
    }
    assert_eq!(link.completions.len(), plan.wrs.len());
    for (wr, written) in plan.wrs.iter().zip(&link.written) {
        assert!(written.iter().all(|&n| n == 1), "bytes of {:?} written {written:?}", wr.job);
    }
    assert_eq!(link.outcome, ideal(plan, remote));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_work_equals_work_in_order(plan in plan()) {
        check(&plan);
    }
}

#[test]
fn a_long_run_wraps_all_numbers() {
    for start in [0xFF_FFFD, 0xFF_FFFE, 0xFF_FFFF, 0] {
        let jobs = (0..40).map(|i| job(0, RC_OPS[i % 8], if i % 8 > 5 { 8 } else { 700 }));
        let wrs = finish(jobs.collect());
        let mut plan = Plan {
            requester: requester_config(QpType::Rc),
            responder: responder_config(QpType::Rc),
            wrs,
            schedule: u64::from(start) * 977,
        };
        plan.requester.sq_psn = Psn::new(start);
        plan.responder.rq_psn = Psn::new(start);
        check(&plan);
    }
}
