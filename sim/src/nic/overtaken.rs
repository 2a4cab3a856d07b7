//! Completions that come into memory before the payload that they tell of.
//!
//! PCIe keeps the order of writes on one way. Payload for a GPU and a CQE for host memory go
//! different ways, so nothing orders them (protocol.md §5.5, §6.6): a program that goes by the CQE
//! may read what was there before. Found here by counting, whether a program reads or not.

use doorbell_core::units::{Span, Time};

use super::Nic;
use super::queues::{Cqe, CqeKind};

/// Payload writes of a queue pair, those of its responder and those of its requester. The counts
/// wrap; fewer than 2³¹ are under way.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Placing {
    issued: [u32; 2],
    landed: [u32; 2],
}

/// A completion whose payload is under way.
#[derive(Copy, Clone, Debug)]
struct Early {
    qp: u32,
    half: usize,
    /// Payload writes that were issued before it.
    mark: u32,
    at: Time,
}

/// What a NIC knows of them.
#[derive(Clone, Default, Debug)]
pub struct Overtaken {
    open: Vec<Early>,
    /// Successful completions that landed before payload that was written ahead of them.
    pub completions: u64,
    /// The longest time from such a completion to the last byte of its payload.
    pub longest: Span,
}

/// Which half of a queue pair a write is of.
const fn half(inbound: bool) -> usize {
    inbound as usize
}

impl Placing {
    /// Whether payload that was issued before `mark` has not landed.
    const fn lacks(&self, half: usize, mark: u32) -> bool {
        mark.wrapping_sub(self.landed[half]).cast_signed() > 0
    }
}

impl Nic {
    /// A payload write starts. `inbound`: of a request of the peer.
    pub(super) fn payload_issued(&mut self, qp: u32, inbound: bool) {
        if let Some(q) = self.qp_mut(qp) {
            let n = &mut q.placing.issued[half(inbound)];
            *n = n.wrapping_add(1);
        }
    }

    /// A payload write has landed.
    pub(super) fn payload_landed(&mut self, now: Time, qp: u32, inbound: bool) {
        let half = half(inbound);
        let Some(q) = self.qp_mut(qp) else { return };
        let n = &mut q.placing.landed[half];
        *n = n.wrapping_add(1);
        let placing = q.placing;
        let Overtaken { open, longest, .. } = &mut self.overtaken;
        open.retain(|e| {
            let waits = (e.qp, e.half) != (qp, half) || placing.lacks(half, e.mark);
            if !waits {
                *longest = (*longest).max(now.since(e.at));
            }
            waits
        });
    }

    /// How many payload writes a CQE that is issued now follows.
    pub(super) fn payload_before(&self, cqe: &Cqe) -> u32 {
        self.qp(cqe.qp).map_or(0, |q| q.placing.issued[half(cqe.is_receive())])
    }

    /// A CQE has landed; one of an error promises nothing about payload.
    pub(super) fn completion_landed(&mut self, now: Time, cqe: &Cqe) {
        let (qp, half, mark) = (cqe.qp, half(cqe.is_receive()), cqe.follows);
        let good = !matches!(cqe.kind, CqeKind::Error { .. });
        if good && self.qp(qp).is_some_and(|q| q.placing.lacks(half, mark)) {
            self.overtaken.completions += 1;
            self.overtaken.open.push(Early { qp, half, mark, at: now });
        }
    }
}
