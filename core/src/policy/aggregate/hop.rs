//! What goes out: contributions, sums, READs.

use super::config::Method;
use super::error::AggregateError;
use super::{Aggregate, Place};
use crate::policy::mesh::{Tag, read_id};
use crate::transport::{Data, RecvQueue, SendOp, SendWr, Transport};
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
        let nothing = self.mesh.receive_of_nothing();
        for c in &mut self.mesh.channels {
            while c.taken > 0 {
                t.post_recv(RecvQueue::Qp(c.qp), &[nothing])?;
                c.taken -= 1;
            }
            c.flush(t)?;
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
        while self.lanes[lane].sent < end && self.mesh.channels[channel].has_room(t) {
            let seq = self.lanes[lane].sent;
            let place = self.cut.at(lane as u32, seq);
            let imm = Tag::of(place).encode();
            let op = match self.config.method {
                Method::Send | Method::Read => SendOp::SendImm(imm),
                Method::Write => {
                    let offset = (slot + seq % self.window) * self.stride;
                    SendOp::WriteImm(self.mesh.channels[channel].remote_at(offset), imm)
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
                if seq == l.done || !self.mesh.channels[channel].has_room(t) {
                    break;
                }
                let place = self.cut.at(lane as u32, seq);
                let (imm, offset) = (Tag::of(place).encode(), self.cut.offset(place.chunk));
                let what = match self.config.broadcast {
                    true => {
                        let to = self.mesh.channels[channel].remote_at(offset);
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
            let room = self.reading < self.config.reads && self.mesh.channels[channel].has_room(t);
            if seq >= self.limit(lane as usize) || !room {
                return Ok(());
            }
            let place = self.cut.at(lane, seq);
            let from = self.mesh.channels[channel].remote_at(self.cut.offset(place.chunk));
            let to = self.buffers + slot * self.stride;
            let sge =
                self.mesh.mr.sge(to, self.cut.len(place.chunk)).expect("slots lie in the region");
            let (op, data) = (SendOp::Read(from), Data::Sge(core::slice::from_ref(&sge)));
            let wr_id = read_id(lane as usize, child as usize);
            let wr = SendWr { wr_id, op, data, flags: SendFlags::SIGNALED, dest: None };
            self.mesh.channels[channel].push(t, now, &wr)?;
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
            self.mesh.mr.sge(offset, len).expect("chunks lie in the vector")
        });
        let data = Data::Sge(sge.as_slice());
        let wr = SendWr { wr_id: 0, op, data, flags: SendFlags::SIGNALED, dest: None };
        self.mesh.channels[channel].push(t, now, &wr)?;
        self.stats.sent = self.stats.sent.saturating_add(1);
        Ok(())
    }
}
