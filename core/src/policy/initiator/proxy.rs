//! The core that posts for others.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use crate::policy::{BatchStats, CqBudget, CqShare, CqTooSmall, Cue, PushError};
use crate::policy::{Sender, SenderConfig};
use crate::transport::{
    Completion, MemError, Mr, QpCaps, QpId, Remote, SendOp, SendWr, Sge, StageError, Transport,
    UdDest, WorkQueue,
};
use crate::units::{Bytes, Span, Time};
use crate::verbs::WcStatus;

use super::command::{Command, CommandQueue, Done};

/// Configuration of a [`Proxy`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ProxyConfig {
    /// How each queue pair posts. `batch.max_wrs` is the most commands that one look takes: lower,
    /// the first of them leaves earlier; higher, fewer doorbells. Only the last of a look need be
    /// signalled.
    pub sender: SenderConfig,
    /// Time of the core for each command beside what its calls cost. It bounds the rate of all
    /// writers together. Zero on hardware, where it takes what it takes.
    pub work: Span,
}

impl Default for ProxyConfig {
    /// All of the queue, up to 64 commands at a look, one ring and one completion for each look,
    /// whatever their bytes and however long it takes to read them.
    fn default() -> Self {
        let mut sender = SenderConfig { signal_last: true, ..SenderConfig::default() };
        (sender.batch.max_wrs, sender.window.signal_every) = (64, u32::MAX);
        (sender.batch.max_bytes, sender.batch.max_delay) = (Bytes(u64::MAX), Span::MAX);
        Self { sender, work: Span::ZERO }
    }
}

/// One that writes commands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ProxyClient {
    /// Where its commands are.
    pub queue: CommandQueue,
    /// The memory that its commands may name, as the proxy's handle knows it.
    pub payload: Mr,
    /// Where the peer's memory that they may name begins,
    pub remote: Remote,
    /// and its length in bytes.
    pub remote_bytes: u64,
    /// Where its datagrams go, on a queue pair of that service.
    pub dest: Option<UdDest>,
}

/// A proxy that was not made, or a look that did not end well.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProxyError {
    /// No queue pair, or nobody to post for.
    Empty,
    /// The completion queue has too few entries.
    Cq(CqTooSmall),
    /// A command queue was not read or written.
    Memory(MemError),
    /// A queue pair refused a command, or its ring failed. Its clients are told by
    /// [`Proxy::tell`]: none of them is served any more.
    Push {
        /// The queue pair.
        qp: QpId,
        /// Why.
        error: PushError,
    },
}

impl From<MemError> for ProxyError {
    fn from(e: MemError) -> Self {
        Self::Memory(e)
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a proxy needs a queue pair and a client: give one of each"),
            Self::Cq(e) => e.fmt(f),
            Self::Memory(e) => e.fmt(f),
            Self::Push { error, .. } => error.fmt(f),
        }
    }
}

impl core::error::Error for ProxyError {}

/// What a completion told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ProxyTold {
    /// The queue pair's place in the list.
    pub lane: u32,
    /// Commands that are done.
    pub done: u32,
    /// Why one behind them is not.
    pub failed: Option<WcStatus>,
}

/// What a proxy has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ProxyStats {
    /// Looks at the clients of a queue pair.
    pub looks: u64,
    /// Looks that found nothing to post.
    pub barren: u64,
    /// Commands that were posted.
    pub commands: u64,
    /// Commands that were refused, since they name what their client does not have.
    pub refused: u64,
    /// Most commands that one look posted.
    pub most: u32,
}

#[derive(Debug)]
struct Client {
    at: ProxyClient,
    /// Commands read, posted, and done.
    read: u64,
    taken: u64,
    done: u64,
    /// Commands posted and not heard of.
    open: u32,
    failed: Option<WcStatus>,
    /// Whether there is something to tell.
    changed: bool,
}

#[derive(Debug)]
struct Lane {
    sender: Sender,
    /// Clients, of whom the first is looked at first.
    clients: Box<[u32]>,
    first: usize,
    /// Client of each command that is outstanding, in the order of the posts.
    posted: VecDeque<u32>,
}

/// Posts for clients what they write into their command queues: a GPU whose doorbell the device
/// does not take, say, or cores that leave it to one.
///
/// A step of the program that runs it takes completions ([`completion`](Proxy::completion)), says
/// so to the clients ([`tell`](Proxy::tell)), then looks for commands ([`serve`](Proxy::serve)).
///
/// What it promises:
///
/// - Clients are dealt to the queue pairs in turn, and those of one are looked at in turn when a
///   look cannot take all. Commands of one client are posted in its order, each once.
/// - A command that names what its client does not have is not posted. The client is told the
///   status that a device would have given, behind all commands before it.
/// - Neither queue overruns; what does not fit waits in the command queues, which are bounded too.
/// - All that one look finds for a queue pair is rung at once, and a completion tells of it.
#[derive(Debug)]
pub struct Proxy {
    config: ProxyConfig,
    lanes: Box<[Lane]>,
    clients: Box<[Client]>,
    /// Clients of the commands that a look takes.
    work: Vec<u32>,
    stats: ProxyStats,
}

/// Of a work request: its client, and the number of its command in the lower 40 bits.
const fn number(client: u32, command: u64) -> u64 {
    (client as u64) << 40 | command & ((1 << 40) - 1)
}

impl Proxy {
    /// A proxy that posts on `qps`, with what was granted to each. Nothing may be outstanding on
    /// them. Takes entries of their completion queue from `budget`.
    ///
    /// # Errors
    /// See [`ProxyError`]; the budget is as before.
    pub fn new(
        config: ProxyConfig,
        qps: &[(QpId, QpCaps)],
        clients: &[ProxyClient],
        budget: &mut CqBudget,
    ) -> Result<Self, ProxyError> {
        if qps.is_empty() || clients.is_empty() {
            return Err(ProxyError::Empty);
        }
        let mut lanes: Vec<Lane> = Vec::with_capacity(qps.len());
        for (l, (qp, caps)) in qps.iter().enumerate() {
            let wished = config.sender.window.max_wrs;
            let entries = if wished == 0 { caps.max_send_wr } else { wished.min(caps.max_send_wr) };
            let share = match budget.take(entries) {
                Ok(share) => share,
                Err(e) => {
                    lanes.into_iter().for_each(|l| budget.give_back(l.sender.into_share()));
                    return Err(ProxyError::Cq(e));
                }
            };
            let sender = Sender::new(config.sender, *qp, caps, share);
            let posted = VecDeque::with_capacity(sender.window().max_wrs() as usize);
            let its = (0..clients.len() as u32).skip(l).step_by(qps.len()).collect();
            lanes.push(Lane { sender, clients: its, first: 0, posted });
        }
        let most = lanes.iter().map(|l| l.sender.max_batch()).max().unwrap_or(0);
        let client = |at: &ProxyClient| Client {
            at: *at,
            read: 0,
            taken: 0,
            done: 0,
            open: 0,
            failed: None,
            changed: false,
        };
        Ok(Self {
            config,
            lanes: lanes.into(),
            clients: clients.iter().map(client).collect(),
            work: Vec::with_capacity(most as usize),
            stats: ProxyStats::default(),
        })
    }

    /// Commands of a client that are done; 0 for one that is not there.
    pub fn done(&self, client: u32) -> u64 {
        self.clients.get(client as usize).map_or(0, |c| c.done)
    }

    /// Why a client is not served any more.
    pub fn failed(&self, client: u32) -> Option<WcStatus> {
        self.clients.get(client as usize).and_then(|c| c.failed)
    }

    /// Takes so much of the core for each command from now on: see [`ProxyConfig::work`].
    pub const fn set_work(&mut self, work: Span) {
        self.config.work = work;
    }

    /// What it has done.
    pub const fn stats(&self) -> ProxyStats {
        self.stats
    }

    /// What was rung on all queue pairs.
    pub fn rung(&self) -> BatchStats {
        let mut sum = BatchStats::default();
        self.lanes.iter().for_each(|l| sum += l.sender.stats());
        sum
    }

    /// Takes note of a completion that was polled at `now`; `None` for one of another queue.
    pub fn completion(&mut self, c: &Completion, now: Time) -> Option<ProxyTold> {
        let (qp, error) = match *c {
            Completion::Send { qp, .. } => (qp, None),
            Completion::Error { qp, queue: WorkQueue::Send, status, .. } => (qp, Some(status)),
            _ => return None,
        };
        let at = self.lanes.iter().position(|l| l.sender.qp() == qp)?;
        let lane = &mut self.lanes[at];
        let retired = lane.sender.completion(c, now);
        let done = if error.is_some() { retired.saturating_sub(1) } else { retired };
        for n in 0..retired {
            let Some(client) = lane.posted.pop_front() else { break };
            let client = &mut self.clients[client as usize];
            client.open -= 1;
            client.changed = true;
            match error.filter(|_| n == done) {
                Some(status) => client.failed = client.failed.or(Some(status)),
                None => client.done += 1,
            }
        }
        Some(ProxyTold { lane: at as u32, done, failed: error })
    }

    /// Tells each client of whom something is new how far it is.
    ///
    /// # Errors
    /// A command queue was not written; call again for the others.
    pub fn tell(&mut self, t: &mut impl Transport) -> Result<(), MemError> {
        for client in self.clients.iter_mut().filter(|c| c.changed) {
            client.changed = false;
            // A failure is told behind what is done before it.
            let failed = client.failed.filter(|_| client.open == 0);
            client.at.queue.say_done(t, Done { count: client.done, failed })?;
        }
        Ok(())
    }

    /// Gives up all clients, whatever is outstanding, and tells them: for a proxy that ends early
    /// and takes no more completions. Those that had not failed are told that they were flushed.
    ///
    /// # Errors
    /// A command queue was not written; the others are told.
    pub fn abandon(&mut self, t: &mut impl Transport) -> Result<(), MemError> {
        for at in 0..self.lanes.len() {
            self.fail(at, WcStatus::WrFlushErr);
        }
        let mut told = Ok(());
        while let Err(e) = self.tell(t) {
            told = Err(e);
        }
        told
    }

    /// Looks for commands, and posts what fits: at most a batch for each queue pair. Whether there
    /// is more to post at once.
    ///
    /// # Errors
    /// See [`ProxyError`]; call again for the other queue pairs.
    pub fn serve(&mut self, t: &mut impl Transport) -> Result<bool, ProxyError> {
        let mut more = false;
        for lane in 0..self.lanes.len() {
            more |= self.serve_lane(t, lane)?;
        }
        Ok(more)
    }

    /// Ends it, as after its queue pairs were reset or destroyed: gives back their shares of the
    /// completion queue.
    pub fn into_shares(self) -> impl Iterator<Item = CqShare> {
        Vec::from(self.lanes).into_iter().map(|l| l.sender.into_share())
    }

    fn serve_lane(&mut self, t: &mut impl Transport, at: usize) -> Result<bool, ProxyError> {
        self.stats.looks = self.stats.looks.saturating_add(1);
        let left_over = self.look(t, at)?;
        let before = self.lanes[at].sender.stats().wqes;
        let posted = self.post(t, at);
        let rung = (self.lanes[at].sender.stats().wqes - before) as u32;
        self.stats.commands = self.stats.commands.saturating_add(rung.into());
        self.stats.barren = self.stats.barren.saturating_add(u64::from(rung == 0));
        self.stats.most = self.stats.most.max(rung);
        if let Err(error) = posted {
            let (qp, status) = (self.lanes[at].sender.qp(), WcStatus::WrFlushErr);
            self.fail(at, status);
            return Err(ProxyError::Push { qp, error });
        }
        let window = self.lanes[at].sender.window();
        Ok(left_over && window.used() < window.max_wrs())
    }

    /// Lists whose commands are to be posted on a queue pair; whether some are left over.
    fn look(&mut self, t: &mut impl Transport, at: usize) -> Result<bool, MemError> {
        let lane = &mut self.lanes[at];
        let window = lane.sender.window();
        let room = lane.sender.max_batch().min(window.max_wrs() - window.used()) as usize;
        self.work.clear();
        let (n, first) = (lane.clients.len(), lane.first);
        let mut cut = None;
        for k in (first..n).chain(0..first) {
            let id = lane.clients[k];
            let client = &mut self.clients[id as usize];
            if client.failed.is_some() {
                continue;
            }
            // What the last look read and did not post is read again.
            client.read = client.taken;
            let fresh = client.at.queue.ready(t)?.wrapping_sub(client.taken);
            if fresh > client.at.queue.slots().into() {
                // More than there are slots: nobody who keeps to them says so.
                (client.failed, client.changed) = (Some(WcStatus::LocQpOpErr), true);
                continue;
            }
            let takes = (fresh as usize).min(room - self.work.len());
            self.work.extend((0..takes).map(|_| id));
            if takes < fresh as usize {
                // Who had a part of it comes last the next time.
                cut = cut.or(Some((k + usize::from(takes > 0)) % n));
            }
        }
        lane.first = cut.unwrap_or(0);
        Ok(cut.is_some())
    }

    /// Posts the commands that were listed, and rings.
    fn post(&mut self, t: &mut impl Transport, at: usize) -> Result<(), PushError> {
        let mut next = self.read(t, 0);
        while let Some((n, id, command, op, sge)) = next {
            // The last one is signalled, and the next one may be refused.
            next = self.read(t, n + 1);
            let cue = if next.is_some() { Cue::More } else { Cue::Last };
            let lane = &mut self.lanes[at];
            let client = &mut self.clients[id as usize];
            let (now, list, wr_id) = (t.now(), [sge], number(id, client.taken));
            let wr = SendWr { dest: client.at.dest, ..command.wr(wr_id, op, &list) };
            let pushed = lane.sender.push(t, now, &wr, cue);
            if matches!(pushed, Ok(_) | Err(PushError::Ring { staged: true, .. })) {
                client.taken += 1;
                client.open += 1;
                lane.posted.push_back(id);
            }
            match pushed {
                Ok(_) => {}
                // Its blocks are used up: the rest waits.
                Err(PushError::Refused(StageError::SqFull)) => break,
                Err(e) => return Err(e),
            }
        }
        let flushed = self.lanes[at].sender.flush(t);
        flushed.map(|_| ()).map_err(|error| PushError::Ring { error, rung: 0, staged: false })
    }

    /// The first command from the `n`th of the list on that can be posted. One that cannot ends its
    /// client.
    fn read(
        &mut self,
        t: &mut impl Transport,
        n: usize,
    ) -> Option<(usize, u32, Command, SendOp, Sge)> {
        for (n, id) in self.work.iter().copied().enumerate().skip(n) {
            let client = &mut self.clients[id as usize];
            if client.failed.is_some() {
                continue;
            }
            if self.config.work > Span::ZERO {
                t.compute(self.config.work);
            }
            let read = client.at.queue.read(t, client.read);
            client.read += 1;
            let command = read.ok().flatten().ok_or(WcStatus::LocQpOpErr);
            let place = (client.at.remote, client.at.remote_bytes);
            let resolved = command.and_then(|c| Ok((c, c.resolve(&client.at.payload, place)?)));
            match resolved {
                Ok((command, (op, sge))) => return Some((n, id, command, op, sge)),
                Err(status) => {
                    (client.failed, client.changed) = (Some(status), true);
                    self.stats.refused = self.stats.refused.saturating_add(1);
                }
            }
        }
        None
    }

    /// A queue pair posts nothing any more: its clients have an end.
    fn fail(&mut self, at: usize, status: WcStatus) {
        let lane = &mut self.lanes[at];
        lane.posted.clear();
        for id in &lane.clients {
            let client = &mut self.clients[*id as usize];
            client.failed = client.failed.or(Some(status));
            (client.open, client.changed) = (0, true);
        }
    }
}
