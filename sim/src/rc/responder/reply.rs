//! Responder resources, and the responses in their order.

use doorbell_core::units::Time;
use doorbell_core::verbs::{CreditCode, Opcode, Psn, QpType, Rkey, Syndrome};

use super::super::accept::{Accept, ReadJob};
use super::super::config::{AckPolicy, packets_for};
use super::super::packet::{Ext, PacketDesc, distance, opcode, read_response};
use super::super::reason::{BadRequest, Reason};
use super::super::rules::DuplicateRead;
use super::Responder;

/// A response that has to leave, in the order of the requests.
#[derive(Copy, Clone, Debug)]
pub(super) enum Reply {
    Acknowledge {
        psn: Psn,
        syndrome: Syndrome,
        why: Option<Reason>,
    },
    Sack {
        psn: Psn,
        held: Psn,
    },
    /// The responses of a job; at most once in the queue.
    Job(u32),
}

/// A READ or ATOMIC: an entry of the responder resources. It stays after its last response, for
/// retries, until a newer one needs its place.
#[derive(Copy, Clone, Debug)]
pub(super) struct Job {
    pub first: Psn,
    /// Responses in all.
    pub packets: u32,
    pub va: u64,
    pub rkey: Rkey,
    pub len: u32,
    pub kind: JobKind,
    /// Responses that are owed now: from packet `from` on `count` of them, up to byte `end`, of
    /// which `sent` have been polled.
    from: u32,
    count: u32,
    end: u32,
    sent: u32,
    /// They answer a duplicate.
    again: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum JobKind {
    Read,
    /// The original value, once it is known.
    Atomic(Option<u64>),
}

const fn is_ack(reply: &Reply) -> bool {
    matches!(reply, Reply::Acknowledge { syndrome: Syndrome::Ack { .. }, .. })
}

impl Job {
    fn owes(&self) -> bool {
        self.sent < self.count
    }

    pub(super) fn may_be_evicted(&self) -> bool {
        self.again || !self.owes()
    }
}

impl Responder {
    pub(super) fn begin_read(&mut self, va: u64, rkey: Rkey, len: u32) -> Accept {
        let packets = packets_for(len, self.mtu);
        let job = self.begin_job(va, rkey, len, packets, JobKind::Read);
        Accept::Read { job, va, rkey, len }
    }

    pub(super) fn begin_job(
        &mut self,
        va: u64,
        rkey: Rkey,
        len: u32,
        packets: u32,
        kind: JobKind,
    ) -> u32 {
        let depth = usize::from(self.cfg.max_dest_rd_atomic);
        if self.jobs.len() == depth || (mutant!(ResourceForgotten) && !self.jobs.is_empty()) {
            self.evict_oldest();
        }
        // The response acknowledges what an ACK that is still here would.
        let implied = matches!(self.cfg.ack, AckPolicy::Coalesce { .. });
        if implied && self.last_reply_is_ack() {
            self.replies.pop_back();
        }
        let id = self.first_job.wrapping_add(self.jobs.len() as u32);
        let first = self.expected;
        let (from, count, end, sent, again) = (0, packets, len, 0, false);
        let job = Job { first, packets, va, rkey, len, kind, from, count, end, sent, again };
        self.jobs.push_back(job);
        self.replies.push_back(Reply::Job(id));
        self.expected = self.expected.add(if mutant!(ReadTakesOnePsn) { 1 } else { packets });
        id
    }

    fn evict_oldest(&mut self) {
        let oldest = self.first_job;
        if self.jobs.pop_front().is_some_and(|job| job.owes()) {
            self.replies.retain(|reply| !matches!(reply, Reply::Job(id) if *id == oldest));
        }
        self.first_job = oldest.wrapping_add(1);
    }

    /// A duplicate of a READ: its data is read and sent again from the packet that it asks for,
    /// if the READ is remembered and the range is a part of it (`protocol.md` §2.3.1).
    pub(super) fn read_again(&mut self, psn: Psn, va: u64, rkey: Rkey, len: u32) -> Accept {
        let covers =
            |job: &Job| job.kind == JobKind::Read && distance(job.first, psn) < job.packets;
        let Some(index) = self.jobs.iter().position(covers) else { return Accept::Duplicate };
        let job = self.jobs[index];
        let from = if mutant!(ReadAgainFromStart) { 0 } else { distance(job.first, psn) };
        let offset = from * self.mtu;
        let part = rkey == job.rkey
            && va == job.va.wrapping_add(offset.into())
            && len <= job.len - offset.min(job.len);
        let ends = len.checked_add(offset) == Some(job.len);
        if !part || (self.cfg.rules.duplicate_read == DuplicateRead::SameEnd && !ends) {
            return Accept::Duplicate;
        }
        let count = packets_for(len, self.mtu);
        self.owe_again(index, (from, count, offset + len));
        self.before = super::Before { psn, expected: self.expected, msn: self.msn };
        let job = self.first_job.wrapping_add(index as u32);
        Accept::Read { job, va, rkey, len }
    }

    /// A duplicate of an ATOMIC: the result that it had, never a second execution.
    pub(super) fn answer_again(&mut self, psn: Psn) {
        let same = |job: &Job| matches!(job.kind, JobKind::Atomic(Some(_))) && job.first == psn;
        if let Some(index) = self.jobs.iter().position(same) {
            self.owe_again(index, (0, 1, 8));
        }
    }

    /// A job is answered again, in its place: responses leave in PSN order (`protocol.md` §2.2),
    /// and the requester throws away what passes by one that it misses. So what has begun to be
    /// answered behind it begins anew, and what lies between it and something that is still to
    /// leave is answered once more, or that would pass by it. A job whose responses are all still
    /// to leave has its place already.
    fn owe_again(&mut self, index: usize, (from, count, end): (u32, u32, u32)) {
        let job = &mut self.jobs[index];
        let queued = job.owes();
        let to_come = queued && from >= job.from + job.sent && end <= job.end;
        if to_come && job.sent > 0 {
            return;
        }
        (job.from, job.count, job.end, job.sent) = (from, count, end, 0);
        job.again |= !queued;
        if to_come {
            return;
        }
        let owed_last = self.replies.back().map(|reply| self.age(reply));
        if !queued {
            self.enqueue(index);
        }
        for later in index + 1..self.jobs.len() {
            let age = self.age_of(self.jobs[later].first);
            let job = &mut self.jobs[later];
            let passed = !job.owes() && owed_last.is_some_and(|last| age > last);
            if passed || job.owes() {
                job.sent = 0;
            }
            if passed {
                job.again = true;
                self.enqueue(later);
            }
        }
    }

    /// How many PSNs lie between `psn` and the expected one.
    fn age_of(&self, psn: Psn) -> u32 {
        distance(psn, self.expected)
    }

    /// The age of the PSN before which a reply answers everything, its own responses excepted: it
    /// leaves when nothing older is owed.
    fn age(&self, reply: &Reply) -> u32 {
        self.age_of(match reply {
            Reply::Acknowledge { psn, syndrome: Syndrome::Ack { .. }, .. } => psn.next(),
            Reply::Acknowledge { psn, .. } | Reply::Sack { psn, .. } => *psn,
            Reply::Job(id) => self.job(*id).map_or(self.expected, |job| job.first),
        })
    }

    /// Where a reply of such an age belongs: behind what is not younger.
    fn place_of(&self, age: u32) -> usize {
        let younger = |reply: &Reply| self.age(reply) < age;
        self.replies.iter().rposition(|reply| !younger(reply)).map_or(0, |i| i + 1)
    }

    fn enqueue(&mut self, index: usize) {
        let at = self.place_of(self.age_of(self.jobs[index].first));
        self.replies.insert(at, Reply::Job(self.first_job.wrapping_add(index as u32)));
    }

    /// Undoes what the packet with `psn` put into the queue of responses. Of a duplicate: neither
    /// it nor a later request is answered.
    pub(super) fn take_back(&mut self, psn: Psn) {
        let age = self.age_of(psn);
        let mut replies = std::mem::take(&mut self.replies);
        replies.retain(|reply| match reply {
            Reply::Job(id) => {
                self.job(*id).is_some_and(|job| self.age_of(job.first.add(job.from)) > age)
            }
            reply => !is_ack(reply) || self.age(reply) >= age,
        });
        self.replies = replies;
        if psn == self.before.expected && self.jobs.back().is_some_and(|job| job.first == psn) {
            self.jobs.pop_back();
        }
    }

    fn last_reply_is_ack(&self) -> bool {
        self.replies.back().is_some_and(is_ack)
    }

    /// An ACK up to `psn` has to leave.
    pub(super) fn acknowledge(&mut self, now: Time, psn: Psn, why: Option<Reason>) {
        // Credit code and MSN are those of the moment at which the ACK leaves.
        let syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };
        let mut at = self.place_of(self.age_of(psn.next()));
        let last = at == self.replies.len();
        let merges = at > 0 && is_ack(&self.replies[at - 1]);
        match self.cfg.ack {
            AckPolicy::Coalesce { .. } if merges => {
                at -= 1;
                self.replies.remove(at);
                self.asked += u32::from(last);
            }
            AckPolicy::Coalesce { delay, .. } if last => {
                self.asked = 1;
                self.ack_due = now + delay;
            }
            AckPolicy::Coalesce { .. } | AckPolicy::EachRequest => {}
        }
        self.replies.insert(at, Reply::Acknowledge { psn, syndrome, why });
    }

    /// The newest PSN that may be acknowledged on behalf of a duplicate of `psn`: that before the
    /// expected one, but none beyond a READ or ATOMIC behind the duplicate. The requester has not
    /// had its response, or it would not have gone back so far: the ACK would pass by it, and
    /// count as another loss (`protocol.md` §2.2).
    pub(super) fn newest_behind(&self, psn: Psn) -> Psn {
        let age = self.age_of(psn);
        let behind = self.jobs.iter().find(|job| self.age_of(job.first) < age);
        behind.map_or(self.expected, |job| job.first).prev()
    }

    pub(super) fn reply(&mut self, psn: Psn, syndrome: Syndrome, why: Option<Reason>) {
        self.replies.push_back(Reply::Acknowledge { psn, syndrome, why });
    }

    fn tell_credit(&mut self) -> CreditCode {
        let free = self.receives.filter(|_| self.cfg.rules.credits);
        self.told_none = free == Some(0);
        free.map_or(CreditCode::NO_LIMIT, CreditCode::encode)
    }

    /// Receives were posted, and so many are there now. With credits on, a peer that was told last
    /// that there are none hears of it by an ACK that nobody asked for ("ghost ACK",
    /// `protocol.md` §2.6): one, however many receives follow. True: it waits to be polled.
    pub fn offer_credits(&mut self, posted: u32) -> bool {
        // What is about to leave tells of them anyway.
        if !self.told_none || posted == 0 || self.failed || !self.replies.is_empty() {
            return false;
        }
        self.told_none = false;
        if let AckPolicy::Coalesce { every, .. } = self.cfg.ack {
            // It is not held back.
            self.asked = every;
        }
        let syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };
        self.reply(self.expected.prev(), syndrome, Some(Reason::Credit));
        true
    }

    /// The memory of a READ response cannot be read any more: a NAK takes the place of the packet
    /// with `psn`, nothing follows it, and the QP is in the error state.
    pub fn refuse_response(&mut self, psn: Psn) {
        self.counters.resp_remote_access_errors += 1;
        self.replies.clear();
        self.refuse(psn, BadRequest::UnknownKey);
    }

    /// The original value of the word that an ATOMIC changed; its response can leave. No effect
    /// when the job is gone because the QP failed meanwhile, or has its result.
    pub fn atomic_result(&mut self, job: u32, orig: u64) {
        let index = job.wrapping_sub(self.first_job) as usize;
        let waiting = self.jobs.get_mut(index).filter(|j| j.kind == JobKind::Atomic(None));
        if let Some(job) = waiting {
            job.kind = JobKind::Atomic(Some(orig));
        }
    }

    /// The next response, in PSN order: ACK, NAK, READ response or ATOMIC acknowledgement.
    /// `None`: none is due; an ATOMIC without result holds back all behind it.
    ///
    /// Its MSN is the present one, as its credit code is: how many messages are completed when it
    /// leaves, be it an answer to a duplicate or to a request that others have followed since
    /// (`protocol.md` §2.1). So the MSN never goes back on the wire.
    pub fn poll_transmit(&mut self, now: Time) -> Option<PacketDesc> {
        if !self.peek_transmit(now) {
            return None;
        }
        match *self.replies.front()? {
            Reply::Acknowledge { psn, mut syndrome, why } => {
                self.replies.pop_front();
                self.reason = why;
                if let Syndrome::Ack { credit } = &mut syndrome {
                    *credit = self.tell_credit();
                }
                let ext = Ext::Aeth { syndrome, msn: self.msn };
                Some(self.response(Opcode::RcAcknowledge, psn, 0, ext))
            }
            Reply::Sack { psn, held } => {
                self.replies.pop_front();
                let (expected, got, kept) = (psn, held, true);
                self.reason = Some(Reason::SequenceNak { expected, got, kept });
                let ext = Ext::Sack { msn: self.msn, held };
                Some(self.response(Opcode::RcAcknowledge, psn, 0, ext))
            }
            Reply::Job(id) => self.job_response(id),
        }
    }

    /// Why the response that was polled last left, where that is more than its bytes say.
    pub const fn reason(&self) -> Option<Reason> {
        self.reason
    }

    fn job_response(&mut self, id: u32) -> Option<PacketDesc> {
        let index = id.wrapping_sub(self.first_job) as usize;
        let job = self.jobs.get_mut(index)?;
        let index_now = job.from + job.sent;
        let nth = job.sent;
        job.sent += 1;
        let job = *job;
        self.reason = job.again.then_some(Reason::AnsweredAgain);
        if !job.owes() {
            self.replies.pop_front();
        }
        let syndrome = Syndrome::Ack { credit: self.tell_credit() };
        let (psn, msn) = (job.first.add(index_now), self.msn);
        if let JobKind::Atomic(orig) = job.kind {
            let ext = Ext::AtomicAck { syndrome, msn, orig: orig? };
            return Some(self.response(Opcode::RcAtomicAcknowledge, psn, id, ext));
        }
        let operation = read_response(nth, job.count);
        let ext = if operation.has_aeth() { Ext::Aeth { syndrome, msn } } else { Ext::None };
        let offset = index_now * self.mtu;
        let len = (job.end - offset).min(self.mtu);
        let desc = self.response(opcode(QpType::Rc, operation)?, psn, id, ext);
        Some(PacketDesc { offset, len, ..desc })
    }

    fn response(&self, opcode: Opcode, psn: Psn, job: u32, ext: Ext) -> PacketDesc {
        PacketDesc {
            opcode,
            psn,
            dest: self.cfg.dest,
            ack_req: false,
            solicited: false,
            wqe: job,
            offset: 0,
            len: 0,
            ext,
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would give a packet at `now`.
    pub fn peek_transmit(&self, now: Time) -> bool {
        match self.replies.front() {
            None => false,
            Some(Reply::Acknowledge { .. }) => self.held_until().is_none_or(|due| due <= now),
            Some(Reply::Sack { .. }) => true,
            Some(Reply::Job(id)) => {
                self.job(*id).is_some_and(|job| job.kind != JobKind::Atomic(None))
            }
        }
    }

    /// Whether the next response is one of a READ, whose payload has to be fetched.
    pub fn peek_read(&self) -> bool {
        match self.replies.front() {
            Some(Reply::Job(id)) => self.job(*id).is_some_and(|job| job.kind == JobKind::Read),
            _ => false,
        }
    }

    /// Until when the only reply, an ACK, waits for further requests.
    fn held_until(&self) -> Option<Time> {
        let AckPolicy::Coalesce { every, .. } = self.cfg.ack else { return None };
        let alone = self.replies.len() == 1 && self.last_reply_is_ack();
        (alone && self.asked < every).then_some(self.ack_due)
    }

    /// When [`poll_transmit`](Self::poll_transmit) has to be called though nothing has happened:
    /// an ACK is being held back until then. Read it when `poll_transmit` has given `None`.
    pub fn next_deadline(&self) -> Option<Time> {
        self.held_until()
    }

    fn job(&self, id: u32) -> Option<&Job> {
        self.jobs.get(id.wrapping_sub(self.first_job) as usize)
    }

    /// What READ `job` wants, as long as it is remembered.
    pub fn read_job(&self, job: u32) -> Option<ReadJob> {
        let job = self.job(job).filter(|job| job.kind == JobKind::Read)?;
        Some(ReadJob { va: job.va, rkey: job.rkey, len: job.len })
    }
}
