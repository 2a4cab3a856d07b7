//! Random work over a lossy network: exactly once, in order, and always an end.

use doorbell_core::units::{Ratio, Span};
use doorbell_core::verbs::{
    AckTimeout, Psn, QpType, RetryCnt, RnrRetry, RnrTimer, SendFlags, WrOpcode,
};
use proptest::prelude::*;

use super::super::*;
use super::lossy::{Duel, Fate, Fault, Plan, Weather};
use super::{BASE, job, requester_config, responder_config};

const OPS: [WrOpcode; 8] = [
    WrOpcode::Send,
    WrOpcode::SendWithImm,
    WrOpcode::SendWithInv,
    WrOpcode::RdmaWrite,
    WrOpcode::RdmaWriteWithImm,
    WrOpcode::RdmaRead,
    WrOpcode::AtomicCmpAndSwp,
    WrOpcode::AtomicFetchAndAdd,
];

prop_compose! {
    fn wr()(
        op in 0usize..8,
        packets in prop_oneof![3 => 0u32..2, 2 => 0u32..8],
        more in 0u32..3,
        flags in 0u32..8,
    ) -> SendJob {
        let op = OPS[op];
        let atomic = op.is_read_or_atomic() && op != WrOpcode::RdmaRead;
        let len = if atomic { 8 } else { (packets * 256 + more).saturating_sub(1) };
        SendJob { flags: SendFlags::from_bits_truncate(flags), ..job(0, op, len) }
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    let delay = (0u64..30_000).prop_map(|ns| Fate::Delay(Span::from_ns(ns)));
    prop_oneof![4 => Just(Fate::Drop), 1 => Just(Fate::Duplicate), 2 => delay]
}

fn fault(packets: u32) -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (0..packets, fate()).prop_map(|(n, fate)| Fault::Forth(n, fate)),
        3 => (0..packets, fate()).prop_map(|(n, fate)| Fault::Back(n, fate)),
        1 => (0..packets / 4).prop_map(Fault::NoReceive),
    ]
}

fn timeout_mode() -> impl Strategy<Value = TimeoutMode> {
    let four = Ratio::new(4, 1).unwrap();
    prop_oneof![
        2 => Just(TimeoutMode::T),
        1 => Just(TimeoutMode::Fixed { least: Ratio::ONE, most: four }),
        1 => Just(TimeoutMode::Floor { min: Span::from_us(40) }),
        1 => Just(TimeoutMode::Adaptive { first: Span::from_us(5), most: Span::from_us(300) }),
    ]
}

fn recovery() -> impl Strategy<Value = Recovery> {
    let selective = (1u32..40, 1u32..40)
        .prop_map(|(hold, cap)| Recovery::SelectiveRepeat(SelectiveRepeat { hold, cap }));
    prop_oneof![Just(Recovery::GoBackN), selective]
}

fn rules() -> impl Strategy<Value = Rules> {
    use proptest::sample::select;
    let one = select(vec![Rules::DEFAULT, Rules::RXE]);
    let nak = select(vec![SequenceNak::Progress, SequenceNak::UsesRetry, SequenceNak::Reloads]);
    let (fence, read) = (
        select(vec![Fence::ReadAtomic, Fence::AllPrior]),
        select(vec![DuplicateRead::Subset, DuplicateRead::SameEnd]),
    );
    (one, nak, fence, read, any::<[bool; 4]>()).prop_map(|(one, sequence_nak, fence, read, b)| {
        Rules {
            sequence_nak,
            fence,
            duplicate_read: read,
            nak_during_rnr: b[0],
            duplicate_ack: if b[1] { DuplicateAck::Always } else { DuplicateAck::IfRequested },
            credits: b[2],
            limited_wqe: if b[3] { LimitedWqe::FirstPacket } else { LimitedWqe::WholeMessage },
            ..one
        }
    })
}

fn weather() -> impl Strategy<Value = Weather> {
    let per_mille = || prop_oneof![2 => Just(0u32), 1 => 0u32..30, 1 => 0u32..300];
    (per_mille(), per_mille(), per_mille(), per_mille()).prop_map(
        |(drop, duplicate, delay, no_receive)| Weather { drop, duplicate, delay, no_receive },
    )
}

fn requester() -> impl Strategy<Value = RequesterConfig> {
    let numbers = (1u8..5, prop_oneof![1u32..4, 4u32..64], 0u32..6, any::<bool>());
    let retries = (1u8..9, 0u8..8, 0u8..8, 0u64..3);
    (numbers, retries, timeout_mode(), recovery(), rules()).prop_map(
        |(numbers, retries, timeout_mode, recovery, rules)| RequesterConfig {
            max_rd_atomic: numbers.0,
            max_outstanding_packets: numbers.1,
            ack_req_every: numbers.2,
            ack_req_last: if numbers.3 { AckReqLast::Signalled } else { AckReqLast::EveryMessage },
            timeout: AckTimeout::new(retries.0).unwrap(),
            retry_cnt: RetryCnt::new(retries.1).unwrap(),
            rnr_retry: RnrRetry::new(retries.2).unwrap(),
            nak_reaction: Span::from_us(retries.3),
            implied_nak_reaction: Span::from_us(2 - retries.3),
            timeout_mode,
            recovery,
            rules,
            ..requester_config(QpType::Rc)
        },
    )
}

prop_compose! {
    fn plan(messages: usize)(
        requester in requester(),
        psn in prop_oneof![Just(0u32), Just(0xFF_FFFD), Just(0xFF_FF80), 0u32..0x100_0000],
        spare in 0u8..2,
        every in 0u32..4,
        timer in 1u8..8,
        mut jobs in prop::collection::vec(wr(), 1..messages),
        faults in prop::collection::vec(fault(messages as u32 * 4), 0..24),
        weather in weather(),
        seed: u64,
    ) -> Plan {
        for (wqe, job) in jobs.iter_mut().enumerate() {
            job.wqe = wqe as u32;
            job.remote_va = BASE + wqe as u64 * 4096;
        }
        // Nobody would ask for the ACK of an unsignalled last one.
        jobs.last_mut().unwrap().flags |= SendFlags::SIGNALED;
        let ack = match every {
            0 => AckPolicy::EachRequest,
            every => AckPolicy::Coalesce { every, delay: Span::from_us(1) },
        };
        let hold = match requester.recovery {
            Recovery::SelectiveRepeat(SelectiveRepeat { hold, .. }) => hold,
            _ => 0,
        };
        Plan {
            responder: ResponderConfig {
                rq_psn: Psn::new(psn),
                max_dest_rd_atomic: requester.max_rd_atomic + spare,
                ack,
                min_rnr_timer: RnrTimer::new(timer).unwrap(),
                hold,
                nak_repeat: (timer % 3 == 0).then(|| Span::from_us(u64::from(timer) / 2)),
                rules: requester.rules,
                ..responder_config(QpType::Rc)
            },
            requester: RequesterConfig { sq_psn: Psn::new(psn), ..requester },
            jobs,
            faults,
            weather,
            seed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_work_request_ends_once_and_in_order(plan in plan(30)) {
        Duel::new(&plan).run();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn with_patience_everything_arrives(mut plan in plan(100)) {
        // No packet is unlucky so often.
        plan.requester.rules.retry_seven = RetrySeven::Infinite;
        plan.requester.retry_cnt = RetryCnt::new(7).unwrap();
        plan.requester.rnr_retry = RnrRetry::INFINITE;
        let duel = Duel::new(&plan).run();
        prop_assert_eq!(duel.failure(), None);
    }
}
