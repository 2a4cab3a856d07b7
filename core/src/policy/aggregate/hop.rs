//! What goes out: contributions, sums, READs, the last word.

use super::channel::Channel;
use super::config::Method;
use super::error::AggregateError;
use super::tag::{Tag, read_id};
use super::{Aggregate, Place};
use crate::policy::{Cue, PushError};
use crate::transport::{Data, RecvQueue, Remote, Ring, SendOp, SendWr, Transport};
use crate::units::Time;
use crate::verbs::SendFlags;

impl Aggregate {
    /// Sends all that may go, and rings.
    pub(super) fn send<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
    ) -> Result<(), AggregateError> {
        for lane in 0..self.lanes.len() {
            self.send_up(t, now, lane)?;
            self.send_down(t, now, lane)?;
        }
        self.pull(t, now)?;
        self.post_free(t)?;
        let nothing = self.receive_of_nothing();
        for c in &mut self.channels {
            while c.taken > 0 {
                t.post_recv(RecvQueue::Qp(c.qp), &[nothing])?;
                c.taken -= 1;
            }
            if c.batcher.held() > 0 {
                let ring = |error| PushError::Ring { error, rung: 0, staged: false };
                c.batcher.flush(t).map_err(ring)?;
            }
        }
        Ok(())
    }

    /// Chunks to which all children have contributed go to the parent; at the root they are sums.
    fn send_up<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        lane: usize,
    ) -> Result<(), AggregateError> {
        let limit = self.limit(lane);
        let l = &self.lanes[lane];
        let summed = l.tally.summed().unwrap_or(limit).min(limit);
        let Some((channel, slot)) = l.parent else {
            if summed > l.done {
                let l = &mut self.lanes[lane];
                (l.sent, l.done, l.since) = (summed, summed, now);
            }
            return Ok(());
        };
        let end = summed.min(l.done + self.window);
        while self.lanes[lane].sent < end && self.channels[channel].has_room(t) {
            let seq = self.lanes[lane].sent;
            let place = self.cut.at(lane as u32, seq);
            let imm = Tag::of(place).encode();
            let op = match self.config.method {
                Method::Send | Method::Read => SendOp::SendImm(imm),
                Method::Write => {
                    let offset = (slot + seq % self.window) * self.stride;
                    SendOp::WriteImm(shifted(self.channels[channel].remote, offset), imm)
                }
            };
            let carries = self.config.method != Method::Read;
            self.push(t, now, channel, (op, carries.then_some(place)))?;
            self.lanes[lane].sent += 1;
        }
        Ok(())
    }

    /// Sums go on, or the news that they are complete.
    fn send_down<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        lane: usize,
    ) -> Result<(), AggregateError> {
        for sink in 0..self.lanes[lane].sinks.len() {
            loop {
                let (l, channel) = (&self.lanes[lane], self.lanes[lane].sinks[sink].channel);
                let seq = l.sinks[sink].passed;
                if seq == l.done || !self.channels[channel].has_room(t) {
                    break;
                }
                let place = self.cut.at(lane as u32, seq);
                let (imm, offset) = (Tag::of(place).encode(), self.cut.offset(place.chunk));
                let what = match self.config.broadcast {
                    true => {
                        let to = shifted(self.channels[channel].remote, offset);
                        (SendOp::WriteImm(to, imm), Some(place))
                    }
                    false => (SendOp::SendImm(imm), None),
                };
                self.push(t, now, channel, what)?;
                self.lanes[lane].sinks[sink].passed += 1;
            }
        }
        Ok(())
    }

    /// Reads announced chunks, as many at a time as are allowed. Those of a round that has not
    /// begun here wait; they are behind all others.
    fn pull<T: Transport>(&mut self, t: &mut T, now: Time) -> Result<(), AggregateError> {
        while let Some(&(lane, child)) = self.pulls.front() {
            let l = &self.lanes[lane as usize];
            let c = &l.children[child as usize];
            let seq = c.read;
            let (channel, slot) = (c.channel, c.slot + seq % self.window);
            let room = self.reading < self.config.reads && self.channels[channel].has_room(t);
            if seq >= self.limit(lane as usize) || !room {
                return Ok(());
            }
            let place = self.cut.at(lane, seq);
            let from = shifted(self.channels[channel].remote, self.cut.offset(place.chunk));
            let to = self.buffers + slot * self.stride;
            let sge = self.mr.sge(to, self.cut.len(place.chunk)).expect("slots lie in the region");
            let (op, data) = (SendOp::Read(from), Data::Sge(core::slice::from_ref(&sge)));
            let wr_id = read_id(lane as usize, child as usize);
            let wr = SendWr { wr_id, op, data, flags: SendFlags::SIGNALED, dest: None };
            post(&mut self.channels[channel], t, now, &wr)?;
            self.pulls.pop_front();
            self.lanes[lane as usize].children[child as usize].read += 1;
            self.reading += 1;
            self.stats.reads = self.stats.reads.saturating_add(1);
        }
        Ok(())
    }

    /// Sends a message, with a chunk of the vector or without bytes.
    fn push<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        channel: usize,
        (op, chunk): (SendOp, Option<Place>),
    ) -> Result<(), AggregateError> {
        let sge = chunk.map(|place| {
            let (offset, len) = (self.cut.offset(place.chunk), self.cut.len(place.chunk));
            self.mr.sge(offset, len).expect("chunks lie in the vector")
        });
        let data = Data::Sge(sge.as_slice());
        let wr = SendWr { wr_id: 0, op, data, flags: SendFlags::SIGNALED, dest: None };
        post(&mut self.channels[channel], t, now, &wr)?;
        self.stats.sent = self.stats.sent.saturating_add(1);
        Ok(())
    }

    /// Tells all that wait for this member that nothing more will come. What cannot be told is
    /// noticed at the deadline.
    pub(super) fn say_goodbye<T: Transport>(&mut self, t: &mut T, why: AggregateError) {
        let because = why.culprit().unwrap_or(self.rank) - self.config.first_rank;
        let op = SendOp::SendImm(Tag::gave_up(because).encode());
        let (data, flags) = (Data::Sge(&[]), SendFlags::SIGNALED);
        let wr = SendWr { wr_id: 0, op, data, flags, dest: None };
        for c in self.channels.iter_mut().filter(|c| c.class.sends()) {
            // Of a round that has failed nothing leaves any more.
            t.unstage(c.qp);
            c.batcher.forget();
            if t.stage(c.qp, &wr).is_ok() {
                let _lost_with_the_connection = t.ring(c.qp, Ring::Auto);
            }
        }
    }
}

fn post<T: Transport>(
    channel: &mut Channel,
    t: &mut T,
    now: Time,
    wr: &SendWr<'_>,
) -> Result<(), AggregateError> {
    channel.batcher.push(t, now, wr, Cue::More)?;
    channel.outstanding += 1;
    Ok(())
}

const fn shifted(r: Remote, bytes: u64) -> Remote {
    Remote { addr: r.addr.wrapping_add(bytes), rkey: r.rkey }
}
