//! Fields of a failed completion that may not be read (ydb-platform/nbs#3375, #2690, #4533): a
//! program that takes the opcode of one for a fact loses a slot of its send queue.

use std::collections::BTreeMap;

use doorbell_core::transport::*;
use doorbell_core::verbs::{QpState, WcStatus};
use doorbell_sim::host::{RawCompletion, RawCompletions};

use crate::on_sim::conformance::pair::{Pair, Spec, send};

const SENDS: u64 = 16;
const RECEIVES: u64 = 4;

/// How a program tells a send from a receive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum By {
    /// By the opcode of the completion.
    Opcode,
    /// By a bit of `wr_id`, which it has put there.
    WrId,
}

/// The `wr_id` of a slot.
const fn wr_id(slot: u64, receive: bool) -> u64 {
    slot << 1 | receive as u64
}

/// A program that keeps account of its slots.
#[derive(Debug, Default)]
struct Slots {
    /// Sends and receives that it believes to be free again, by `wr_id` of the completion.
    sends: BTreeMap<u64, u32>,
    receives: BTreeMap<u64, u32>,
}

impl Slots {
    fn completed(&mut self, c: &RawCompletion, by: By) {
        let receive = match by {
            By::Opcode => c.opcode.is_recv(),
            By::WrId => c.wr_id & 1 == 1,
        };
        let queue = if receive { &mut self.receives } else { &mut self.sends };
        *queue.entry(c.wr_id).or_default() += 1;
    }

    /// Every posted `wr_id` completes once, in the queue where it was posted.
    fn oracle(&self) -> Result<(), String> {
        for (count, receive, seen) in
            [(SENDS, false, &self.sends), (RECEIVES, true, &self.receives)]
        {
            let missing = (0..count).map(|slot| wr_id(slot, receive));
            let missing: Vec<_> = missing.filter(|id| seen.get(id) != Some(&1)).collect();
            if !missing.is_empty() {
                return Err(format!("{} of {count} slots leak: {missing:?}", missing.len()));
            }
            if seen.len() as u64 > count {
                return Err(format!("{} slots of {count} came back", seen.len()));
            }
        }
        Ok(())
    }
}

/// 16 SENDs to a peer that is no longer there, and 4 receives that nothing will fill.
fn failed() -> Vec<Completion> {
    let mut pair = Pair::connected(Spec::default());
    let side = pair.sides[0];
    for slot in 0..RECEIVES {
        pair.recv(0, wr_id(slot, true), 0, 64);
    }
    pair.go(1, QpState::Reset);
    pair.on(0, move |t, me| {
        let sge = [side.sge(0, 8)];
        for slot in 0..SENDS {
            let wr = send(SendOp::Send, wr_id(slot, false), Data::Sge(&sge));
            t.stage(me.qp, &wr).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    let mut all = vec![];
    // 8 expiries of 67 ms, in looks of 0.2 ms.
    for _ in 0..4000 {
        all.extend(pair.sent(0));
        if all.len() as u64 == SENDS {
            break;
        }
    }
    all.extend(pair.received(0));
    all
}

#[test]
fn who_trusts_the_opcode_of_a_failed_completion_leaks_slots() {
    let completions = failed();
    let statuses = completions.iter().map(|c| match c {
        Completion::Error { status, .. } => *status,
        _ => WcStatus::Success,
    });
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses.len() as u64, SENDS + RECEIVES);
    assert_eq!(statuses[0], WcStatus::RetryExcErr, "which no receive ever has");
    assert!(statuses[1..].iter().all(|s| *s == WcStatus::WrFlushErr));
    let codes = completions.iter().map(|c| match c {
        Completion::Error { vendor_err, .. } => *vendor_err,
        _ => 0,
    });
    let mut published = vec![0x81, 0xF5];
    published.resize(SENDS as usize, 0xF9);
    published.extend([0xF5, 0xF9, 0xF9, 0xF9]);
    assert_eq!(codes.collect::<Vec<_>>(), published, "each queue has a first one");
    for seed in 1..=20 {
        let mut raw = RawCompletions::new(seed, 0);
        let shown: Vec<_> = completions.iter().map(|c| raw.show(c)).collect();
        let account = |by| {
            let mut slots = Slots::default();
            shown.iter().for_each(|c| slots.completed(c, by));
            slots.oracle()
        };
        assert_eq!(account(By::WrId), Ok(()), "seed {seed}");
        let leak = account(By::Opcode).expect_err("an opcode drawn at random");
        assert!(leak.contains("slots leak"), "seed {seed}: {leak}");
    }
}
