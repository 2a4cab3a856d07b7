//! With which round members go on that are left.
//!
//! Nobody is more than one round ahead of another, but who had its sum before the error came is
//! one ahead of who had not. They go back to the lower number: everybody can fill its vector for it
//! again, and nobody can give away a sum in whose place the next vector is.

use alloc::vec::Vec;

use super::config::AggregateConfig;
use super::error::AggregateError;
use super::{Plan, Progress};
use crate::policy::mesh::{Mesh, Word};
use crate::transport::Control;

/// The lowest number of a next round, up the tree of the first lane and down again.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    /// Ranks above and below.
    up: Option<u32>,
    down: Vec<u32>,
    /// How many of those below have told theirs.
    heard: usize,
    told: bool,
    /// Own number, and the lowest one with the rank that told it.
    own: u64,
    lowest: (u64, u32),
    done: bool,
}

impl Agreement {
    /// Members of a plan in which nobody is absent have agreed by their settings.
    pub fn of(config: &AggregateConfig, plan: &Plan, me: u32) -> Self {
        let rank = |m: u32| config.first_rank + m;
        let down: Vec<u32> = plan.children(0, me).into_iter().map(rank).collect();
        Self {
            up: plan.parent(0, me).map(rank),
            down,
            heard: 0,
            told: false,
            own: config.first_round,
            lowest: (config.first_round, rank(me)),
            done: plan.absent().is_empty(),
        }
    }

    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The number of the first round; the own one before all have agreed.
    pub const fn first_round(&self) -> u64 {
        self.lowest.0
    }

    pub fn go_on<T: Control>(
        &mut self,
        t: &mut T,
        mesh: &Mesh,
    ) -> Result<Progress, AggregateError> {
        if self.done {
            return Ok(Progress::Complete);
        }
        while let Some(&rank) = self.down.get(self.heard) {
            let Some(number) = mesh.told(t, rank, Word::Asked)? else {
                return mesh.wait_for(t, rank);
            };
            self.lowest = self.lowest.min((number, rank));
            self.heard += 1;
        }
        if let Some(rank) = self.up {
            if !self.told {
                mesh.tell(t, rank, Word::Asked, self.lowest.0);
                self.told = true;
            }
            let Some(number) = mesh.told(t, rank, Word::Agreed)? else {
                return mesh.wait_for(t, rank);
            };
            self.lowest = self.lowest.min((number, rank));
        }
        self.down.iter().for_each(|rank| mesh.tell(t, *rank, Word::Agreed, self.lowest.0));
        let (number, rank) = self.lowest;
        if self.own > number + 1 {
            // Not a round of the same aggregation.
            return Err(AggregateError::Mismatch { rank });
        }
        self.done = true;
        Ok(Progress::Complete)
    }
}
