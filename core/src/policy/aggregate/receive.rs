//! What comes in: contributions, sums, bytes that were read; and the adding.

use core::cmp::Ordering;

use super::Aggregate;
use super::config::Method;
use super::error::AggregateError;
use crate::policy::mesh::{Class, Heard, Tag, read_of};
use crate::transport::{RecvQueue, RecvWr, Transport};
use crate::units::Time;

/// A message that has come.
#[derive(Copy, Clone)]
struct Message {
    /// The connection.
    channel: usize,
    /// Number of the receive's buffer.
    buffer: u64,
    tag: Tag,
    /// Bytes.
    len: u32,
}

impl Aggregate {
    /// Takes what one poll gives.
    pub(super) fn receive<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
    ) -> Result<(), AggregateError> {
        for n in 0..self.mesh.poll(t)? {
            match self.mesh.hear(n)? {
                Heard::Sent { wr_id } => {
                    if let Some((lane, child)) = read_of(wr_id) {
                        self.reading -= 1;
                        self.lanes[lane].tally.arrive(child);
                    }
                }
                Heard::Chunk { channel, wr_id: buffer, tag, len } => {
                    self.take(Message { channel, buffer, tag, len }, now)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, m: Message, now: Time) -> Result<(), AggregateError> {
        let known = m.tag.chunk < self.cut.count();
        match self.mesh.channels[m.channel].class {
            Class::FromChild if known => self.contribution(m),
            Class::FromSource if known => self.sum(m, now),
            _ => Err(AggregateError::Stray { rank: self.mesh.channels[m.channel].peer }),
        }
    }

    /// A child's chunk, or that it can be read.
    fn contribution(&mut self, m: Message) -> Result<(), AggregateError> {
        let rank = self.mesh.channels[m.channel].peer;
        let lane = (m.tag.chunk % self.cut.lanes()) as usize;
        let children = &self.lanes[lane].children;
        let child = children.iter().position(|c| c.channel == m.channel);
        let child = child.ok_or(AggregateError::Stray { rank })?;
        let seq = children[child].heard;
        // A chunk beyond the window has overwritten a slot, or taken another child's buffer.
        let fits = seq < self.lanes[lane].tally.added(child) + self.window;
        let pulls = self.config.method == Method::Read;
        self.check(m, lane, seq, (!pulls, fits))?;
        self.lanes[lane].children[child].heard += 1;
        match self.config.method {
            Method::Send => self.lanes[lane].children[child].held.push_back(m.buffer as u32),
            Method::Write => self.free.push(self.receive_into(m.buffer)),
            Method::Read => {
                self.free.push(self.receive_into(m.buffer));
                self.pulls.push_back((lane as u32, child as u32));
                return Ok(());
            }
        }
        self.lanes[lane].tally.arrive(child);
        Ok(())
    }

    /// The sum of a chunk, or that it is complete.
    fn sum(&mut self, m: Message, now: Time) -> Result<(), AggregateError> {
        let rank = self.mesh.channels[m.channel].peer;
        let lane = (m.tag.chunk % self.cut.lanes()) as usize;
        if self.lanes[lane].source != Some(m.channel) {
            return Err(AggregateError::Stray { rank });
        }
        let seq = self.lanes[lane].done;
        // A sum to which this member has not contributed is none.
        let ours = seq < self.lanes[lane].sent;
        self.check(m, lane, seq, (self.config.broadcast, ours))?;
        let l = &mut self.lanes[lane];
        (l.done, l.since) = (seq + 1, now);
        self.mesh.channels[m.channel].taken += 1;
        Ok(())
    }

    /// Whether a message is the chunk that is due, with or without its bytes.
    fn check(
        &self,
        m: Message,
        lane: usize,
        seq: u64,
        (carries, due): (bool, bool),
    ) -> Result<(), AggregateError> {
        let (rank, chunk) = (self.mesh.channels[m.channel].peer, m.tag.chunk);
        let place = self.cut.at(lane as u32, seq);
        match m.tag.against(place) {
            Ordering::Less => return Err(AggregateError::Duplicate { rank, chunk }),
            Ordering::Greater => return Err(AggregateError::OutOfTurn { rank, chunk }),
            Ordering::Equal if !due => return Err(AggregateError::OutOfTurn { rank, chunk }),
            Ordering::Equal => {}
        }
        let need = if carries { self.cut.len(chunk) } else { 0 };
        match m.len == need {
            true => Ok(()),
            false => Err(AggregateError::WrongLength { rank, chunk, got: m.len, need }),
        }
    }

    /// Adds one contribution that is here; whether there was one. One at a time, since adding
    /// takes a while and others may wait for what has come meanwhile.
    pub(super) fn add_one<T: Transport>(&mut self, t: &mut T) -> Result<bool, AggregateError> {
        let lanes = self.lanes.len();
        for lane in (0..lanes).map(|n| (self.turn + n) % lanes) {
            let Some((child, seq)) = self.lanes[lane].tally.next(self.limit(lane)) else {
                continue;
            };
            let chunk = self.cut.at(lane as u32, seq).chunk;
            let len = u64::from(self.cut.len(chunk));
            let c = &mut self.lanes[lane].children[child];
            let held = match self.config.method {
                Method::Send => c.held.pop_front(),
                Method::Write | Method::Read => None,
            };
            let buffer = held.map_or(c.slot + seq % self.window, u64::from);
            let from = self.mesh.mr.range(self.buffers + buffer * self.stride, len);
            let to = self.mesh.mr.range(self.cut.offset(chunk), len);
            let both = to.zip(from).expect("chunks and buffers lie in the region");
            t.reduce(self.config.op, both.0, both.1)?;
            self.lanes[lane].tally.add(child);
            held.iter().for_each(|b| self.free.push(self.receive_into(u64::from(*b))));
            self.stats.added = self.stats.added.saturating_add(1);
            self.stats.added_bytes = self.stats.added_bytes.saturating_add(len);
            self.turn = (lane + 1) % lanes;
            return Ok(true);
        }
        Ok(false)
    }

    /// A receive for contributions: with its buffer of the pool, or without one.
    pub(super) fn receive_into(&self, buffer: u64) -> RecvWr {
        let (offset, len) = match self.config.method {
            Method::Send => (self.buffers + buffer * self.stride, self.cut.len(0)),
            Method::Write | Method::Read => (0, 0),
        };
        RecvWr {
            wr_id: buffer,
            sge: self.mesh.mr.sge(offset, len).expect("buffers lie in the region"),
        }
    }

    /// Posts receives that are free again.
    pub(super) fn post_free<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        if !self.free.is_empty() {
            t.post_recv(RecvQueue::Srq(self.mesh.srq), &self.free)?;
            self.free.clear();
        }
        Ok(())
    }
}
