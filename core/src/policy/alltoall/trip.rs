//! There and back: tokens go to their experts, and the sums of what those make of them come back.

use super::{AggregateError, AllToAll, AllToAllConfig, Progress, Schedule};
use crate::policy::mesh::Heard;
use crate::transport::{Control, DestroyError, Transport, WaitSet};
use crate::units::{Span, Time};

/// Distance of the bootstrap keys of the ways there and back.
const KEYS: u64 = 1 << 40;

/// Two exchanges that take turns: dispatch and combine of a mixture of experts.
///
/// Each round goes there, by [`RoundTrip::begin`] and steps until [`Progress::Complete`]; the
/// member then fills the outbox of the way back from the inbox of the way there, and goes back, by
/// [`RoundTrip::turn`] and steps. Each way has queue pairs and memory of its own. An error of one
/// way ends both, and who waits on one says so on both: so members that are in different halves of
/// a round name the one that is gone as those of one [`AllToAll`] do.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    there: AllToAll,
    back: AllToAll,
}

impl RoundTrip {
    /// Creates the objects of this member and publishes its endpoints. The bootstrap keys of the
    /// way back begin 2^40 behind those of the settings.
    ///
    /// # Errors
    /// As [`AllToAll::open`].
    pub fn open<T: Control>(
        t: &mut T,
        config: AllToAllConfig,
        there: &Schedule,
        back: &Schedule,
    ) -> Result<Self, AggregateError> {
        let there = AllToAll::open(t, config, there)?;
        let config = AllToAllConfig { key: config.key.wrapping_add(KEYS), ..config };
        Ok(Self { there, back: AllToAll::open(t, config, back)? })
    }

    /// Connects to the peers as they appear.
    ///
    /// # Errors
    /// As [`AllToAll::connect`].
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        match self.there.connect(t)? {
            Progress::Complete => self.back.connect(t),
            waits => Ok(waits),
        }
    }

    /// The way there.
    pub const fn there(&self) -> &AllToAll {
        &self.there
    }

    /// The way back.
    pub const fn back(&self) -> &AllToAll {
        &self.back
    }

    /// Whether the round that began last is on its way back, or is.
    pub const fn has_turned(&self) -> bool {
        self.there.rounds == self.back.rounds
    }

    /// Starts a round with what the outbox of the way there holds.
    ///
    /// # Errors
    /// [`AggregateError::Busy`] while a round is under way; the error that ended an earlier one.
    pub fn begin(&mut self, now: Time) -> Result<(), AggregateError> {
        self.check()?;
        if !self.has_turned() || !self.back.is_complete() {
            return Err(AggregateError::Busy);
        }
        self.there.begin(now)
    }

    /// Goes back with what the outbox of the way back holds.
    ///
    /// # Errors
    /// [`AggregateError::Busy`] before all has come that goes there, or after that; the error that
    /// ended an earlier round.
    pub fn turn(&mut self, now: Time) -> Result<(), AggregateError> {
        self.check()?;
        if self.has_turned() || !self.there.is_complete() {
            return Err(AggregateError::Busy);
        }
        self.back.begin(now)
    }

    /// Goes as far as possible: complete is a round that has come there, and then that is back.
    ///
    /// # Errors
    /// What ends the round, and every round after it.
    pub fn step<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.check()?;
        let (on, off) = match self.has_turned() {
            true => (&mut self.back, &mut self.there),
            false => (&mut self.there, &mut self.back),
        };
        let now = t.now();
        let stepped = on.step(t).and_then(|progress| {
            let until = off.attend(t, (now, on)).map_err(|e| on.excuse(e))?;
            let both = WaitSet::cq(on.mesh.cq).or(WaitSet::cq(off.mesh.cq));
            if off.mesh.has_more() {
                return Ok(Progress::Again);
            }
            Ok(match (progress, until) {
                (Progress::Wait { until, .. }, next) => {
                    Progress::Wait { on: both, until: next.map_or(until, |next| next.min(until)) }
                }
                // The other way has signs that were not confirmed, and could not begin.
                (Progress::Complete, Some(until)) if !off.mesh.is_idle() => {
                    Progress::Wait { on: both, until }
                }
                (progress, _) => progress,
            })
        });
        stepped.inspect_err(|e| {
            for way in [&mut self.there, &mut self.back] {
                if way.mesh.check().is_ok() {
                    way.mesh.fail(t, *e);
                }
            }
        })
    }

    fn check(&self) -> Result<(), AggregateError> {
        self.there.mesh.check().and_then(|()| self.back.mesh.check())
    }

    /// Destroys the objects. Peers that still send get errors.
    ///
    /// # Errors
    /// A queue that somebody else uses too.
    pub fn close<T: Control>(self, t: &mut T) -> Result<(), DestroyError> {
        self.there.close(t)?;
        self.back.close(t)
    }
}

impl AllToAll {
    /// Between two rounds, while the member is in a round of another exchange: takes what comes
    /// early, and gives signs on its behalf. When to attend again, if anything is to be done.
    fn attend<T: Transport>(
        &mut self,
        t: &mut T,
        (now, other): (Time, &Self),
    ) -> Result<Option<Time>, AggregateError> {
        self.receive(t)?;
        let hop = self.config.hop_deadline;
        let silent = self.mesh.silent(|_| true).map(|(since, at)| (since + hop, at));
        if let Some((_, at)) = silent.filter(|(until, _)| *until <= now) {
            let (rank, round) = (self.mesh.channels[at].peer, self.rounds.saturating_sub(1));
            return Err(AggregateError::Late { rank, chunk: 0, round });
        }
        let silent = silent.map(|(until, _)| until);
        if other.is_complete() {
            return Ok(silent);
        }
        let after = Span::from_ps(hop.as_ps() / 4);
        let waits = other.waits(Time::from_ps(now.as_ps().saturating_sub(after.as_ps())));
        let probe = self.mesh.probe(t, (now, other.began), after, waits)?;
        Ok([silent, probe].into_iter().flatten().min())
    }

    /// Takes what one poll gives.
    pub(super) fn receive<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        for n in 0..self.mesh.poll(t)? {
            if let Heard::Chunk { channel, tag, len, .. } = self.mesh.hear(n)? {
                let rank = self.mesh.channels[channel].peer;
                self.taken += 1;
                self.peers[channel].arrive((rank, tag), len, self.rounds)?;
            }
        }
        self.post_taken(t)
    }
}
