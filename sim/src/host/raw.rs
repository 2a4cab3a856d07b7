//! Completions as `ibv_wc` shows them, for programs that decide on its fields.
//!
//! Our [`Completion`] has no opcode, length or immediate on an error, so that nobody can read
//! them. A C program can: the manual calls them undefined, devices leave whatever was there. Here
//! they are drawn from the seed, so that code which trusts them is found out.

use doorbell_core::transport::{Completion, QpId};
use doorbell_core::verbs::{WcOpcode, WcStatus};

use crate::engine::SimRng;

/// A work completion with the fields of `ibv_wc`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RawCompletion {
    /// Of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What completed; undefined on an error.
    pub opcode: WcOpcode,
    /// Bytes; undefined on an error.
    pub byte_len: u32,
    /// Immediate data; undefined without the flag, and on an error.
    pub imm: u32,
    /// Vendor code.
    pub vendor_err: u32,
    /// The queue pair (`qp_num`).
    pub qp: QpId,
}

/// Makes them, with what is undefined drawn from a seed.
#[derive(Clone, Debug)]
pub struct RawCompletions {
    rng: SimRng,
}

impl RawCompletions {
    /// Draws that belong to `seed` and the program's `rank`.
    pub fn new(seed: u64, rank: u32) -> Self {
        Self { rng: SimRng::stream(seed, &format!("rank{rank}"), "undefined-wc-fields") }
    }

    /// The completion as a C program sees it.
    pub fn show(&mut self, c: &Completion) -> RawCompletion {
        let garbage = (self.rng.next_u64(), self.rng.next_u64());
        let (len_of, imm_of) = (garbage.1 as u32, (garbage.1 >> 32) as u32);
        let success = WcStatus::Success;
        let (wr_id, qp, status, opcode, byte_len, imm, vendor_err) = match *c {
            Completion::Send { wr_id, qp, op, len, .. } => (wr_id, qp, success, op, len, imm_of, 0),
            Completion::Recv { wr_id, qp, op, len, imm, .. } => {
                (wr_id, qp, success, op, len, imm.unwrap_or(imm_of), 0)
            }
            Completion::Error { wr_id, qp, status, vendor_err, .. } => {
                let all = WcOpcode::ALL;
                let opcode = all[(garbage.0 % all.len() as u64) as usize];
                (wr_id, qp, status, opcode, len_of, imm_of, vendor_err)
            }
        };
        RawCompletion { wr_id, status, opcode, byte_len, imm, vendor_err, qp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::transport::WorkQueue;

    fn error(wr_id: u64) -> Completion {
        let (qp, queue, status) = (QpId::new(0, 0, 0), WorkQueue::Send, WcStatus::RetryExcErr);
        Completion::Error { wr_id, qp, queue, status, vendor_err: 0x81, retired: 1 }
    }

    #[test]
    fn only_what_the_manual_calls_valid_is_kept() {
        let mut raw = RawCompletions::new(1, 0);
        let shown: Vec<_> = (0..100).map(|i| raw.show(&error(i))).collect();
        for (i, c) in (0..).zip(&shown) {
            assert_eq!((c.wr_id, c.status, c.vendor_err), (i, WcStatus::RetryExcErr, 0x81));
        }
        for op in [WcOpcode::Send, WcOpcode::Recv, WcOpcode::RdmaRead] {
            assert!(shown.iter().any(|c| c.opcode == op), "{op:?} in a hundred");
        }
        let mut again = RawCompletions::new(1, 0);
        assert!(shown.iter().all(|c| *c == again.show(&error(c.wr_id))), "repeatable");
        let mut other = RawCompletions::new(2, 0);
        assert!(shown.iter().any(|c| *c != other.show(&error(c.wr_id))), "another seed");
    }

    #[test]
    fn good_completions_are_shown_as_they_are() {
        let (qp, op) = (QpId::new(0, 0, 0), WcOpcode::Recv);
        let c = Completion::Recv { wr_id: 7, qp, op, len: 64, imm: Some(9), invalidated: None };
        let shown = RawCompletions::new(1, 0).show(&c);
        assert_eq!((shown.wr_id, shown.status), (7, WcStatus::Success));
        assert_eq!((shown.opcode, shown.byte_len, shown.imm), (op, 64, 9));
    }
}
