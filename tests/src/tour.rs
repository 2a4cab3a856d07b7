//! A program that visits the trait, the same on every back end: a ping-pong by SEND, a loop of
//! WRITEs behind the doorbell batcher, a READ. Every byte that arrives is checked.

use doorbell::workloads::Failure;
use doorbell::workloads::connect::{Client, Lane, LinkConfig, Local, LocalConfig, Topic, key};
use doorbell_core::policy::{BatchConfig, Batcher, Cue, PushError};
use doorbell_core::transport::*;
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::SendFlags;

/// How long a tour is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TourConfig {
    /// Round trips.
    pub pings: u32,
    /// WRITEs of each side.
    pub writes: u32,
    /// Work requests of a batch.
    pub batch: u32,
    /// Length of the READ in bytes.
    pub read_bytes: u32,
    /// How long any wait may take.
    pub patience: Span,
}

impl Default for TourConfig {
    /// 50 round trips, 500 WRITEs in batches of 16, a READ of 100,000 bytes, 20 s.
    fn default() -> Self {
        let patience = Span::from_ms(20_000);
        Self { pings: 50, writes: 500, batch: 16, read_bytes: 100_000, patience }
    }
}

/// What a tour saw. It is the same on every back end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TourReport {
    /// Messages of the peer whose bytes were right.
    pub pings: u32,
    /// WRITEs that were announced, and the rings that it took.
    pub writes: u64,
    /// Never more than one ring for a batch, and one for the rest.
    pub rings: u64,
    /// WRITEs of the peer that were found complete in memory.
    pub written: u32,
    /// Bytes of the READ that were right.
    pub read_bytes: u32,
}

const PING: u32 = 256;
const WRITE: u32 = 64;
const RECEIVES: u32 = 8;
/// Signals every so many WRITEs.
const SIGNAL_EVERY: u32 = 16;
const DEPTH: u32 = 64;
/// Says that all WRITEs are complete.
const WRITTEN: u32 = 0xD0E_BE11;

// Offsets in the region.
const PING_OUT: u64 = 0;
const PING_IN: u64 = 4 << 10;
const SOURCE: u64 = 64 << 10;
const TARGET: u64 = 256 << 10;
const SHELF: u64 = 512 << 10;
const LANDING: u64 = 768 << 10;

/// Byte `i` of message `n` of `rank`.
fn byte(rank: u32, n: u32, i: u32) -> u8 {
    (i.wrapping_mul(31) ^ n.wrapping_mul(7).wrapping_add(rank * 101) ^ i >> 8) as u8
}

fn message(rank: u32, n: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| byte(rank, n, i)).collect()
}

/// Posts the receive of a slot.
fn receive<T: Transport>(t: &mut T, mr: &Mr, qp: QpId, slot: u64) -> Result<(), Failure> {
    let sge = mr.sge(PING_IN + slot * u64::from(PING), PING).expect("in the region");
    Ok(t.post_recv(RecvQueue::Qp(qp), &[RecvWr { wr_id: slot, sge }])?)
}

/// Fills the sources and posts the receives, before the peer may send.
fn prepare<T: Control>(t: &mut T, c: &TourConfig, l: &Local, to: &Lane) -> Result<(), Failure> {
    let me = t.rank();
    let mut fill = |at: u64, bytes: &[u8]| {
        t.copy_in(l.mr.range(at, bytes.len() as u64).expect("in the region"), bytes)
    };
    for n in 0..c.writes {
        fill(SOURCE + u64::from(n * WRITE), &message(me, n, WRITE))?;
    }
    fill(SHELF, &message(me, 77, c.read_bytes))?;
    (0..RECEIVES.into()).try_for_each(|slot| receive(t, &l.mr, to.qp, slot))
}

/// Where a tour is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Finding the peer.
    Connect,
    /// Ping-pong by SEND.
    Ping,
    /// WRITEs.
    Write,
    /// The READ.
    Read,
    /// Waiting for the peer to have read.
    Bye,
}

impl Phase {
    /// The phase of that name, in lower case.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Connect, Self::Ping, Self::Write, Self::Read, Self::Bye];
        all.into_iter().find(|p| format!("{p:?}").to_lowercase() == name)
    }
}

/// See the module. The two ranks are 0 and 1; rank 0 serves.
#[derive(Debug)]
pub struct Tour {
    config: TourConfig,
    client: Client,
    phase: Phase,
    polled: Completions,
    batcher: Option<Batcher>,
    /// Messages sent, and messages of the peer.
    sent: u32,
    heard: u32,
    /// WRITEs pushed, and work requests confirmed since the phase began.
    pushed: u32,
    confirmed: u32,
    told: bool,
    peer_wrote: bool,
    asked: bool,
    since: Time,
    /// What it saw.
    pub report: TourReport,
    /// Why it ended early.
    pub failure: Option<String>,
}

impl Tour {
    /// A tour of `rank`, 0 or 1.
    pub fn new(config: TourConfig, rank: u32) -> Self {
        let mut link = LinkConfig::to(1 - rank);
        link.size = QpSize {
            max_send_wr: DEPTH,
            max_recv_wr: 2 * RECEIVES,
            max_send_sge: 1,
            max_inline: WRITE,
        };
        link.deadline = config.patience;
        Self {
            config,
            client: Client::new(LocalConfig::default(), link),
            phase: Phase::Connect,
            polled: Completions::with_capacity(16),
            batcher: None,
            sent: 0,
            heard: 0,
            pushed: 0,
            confirmed: 0,
            told: false,
            peer_wrote: false,
            asked: false,
            since: Time::ZERO,
            report: TourReport::default(),
            failure: None,
        }
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn qp(&self) -> QpId {
        self.client.lanes()[0].qp
    }

    fn mr(&self) -> Mr {
        self.client.local().mr
    }

    fn remote(&self, offset: u64) -> Remote {
        self.client.lanes()[0].remote.at(offset)
    }

    fn wait<T: Transport>(&self, t: &T) -> Result<Next, String> {
        let until = self.since + self.config.patience;
        if t.now() >= until {
            let (sent, heard, pushed) = (self.sent, self.heard, self.pushed);
            let at = format!("{sent} sent, {heard} heard, {pushed} pushed");
            return Err(format!("no progress in phase {:?}: {at}", self.phase));
        }
        let local = self.client.local();
        let on = WaitSet::cq(local.send_cq).or(WaitSet::cq(local.recv_cq));
        Ok(Next::Wait { on: on.or(WaitSet::BOOTSTRAP), until: Some(until) })
    }

    fn enter<T: Transport>(&mut self, t: &T, phase: Phase) {
        (self.phase, self.since, self.confirmed) = (phase, t.now(), 0);
    }

    fn post<T: Transport>(&self, t: &mut T, op: SendOp, data: Data<'_>) -> Result<(), String> {
        let wr = SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED, dest: None };
        t.stage(self.qp(), &wr).map_err(|e| e.to_string())?;
        t.ring(self.qp(), Ring::Auto).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Takes in completions; both queues are empty afterwards.
    fn poll<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let local = *self.client.local();
        for cq in [local.send_cq, local.recv_cq] {
            loop {
                self.polled.clear();
                t.poll_cq(cq, &mut self.polled).map_err(|e| e.to_string())?;
                let list = self.polled.as_slice().to_vec();
                for c in &list {
                    self.completion(t, c)?;
                }
                if list.len() < 16 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn completion<T: Control>(&mut self, t: &mut T, c: &Completion) -> Result<(), String> {
        match *c {
            Completion::Send { retired, .. } => self.confirmed += retired,
            Completion::Recv { imm: Some(WRITTEN), len: 0, .. } => self.peer_wrote = true,
            Completion::Recv { wr_id, len, imm: None, .. } => {
                let (n, peer) = (self.heard, 1 - t.rank());
                self.expect(t, PING_IN + wr_id * u64::from(PING), &message(peer, n, PING), "ping")?;
                if len != PING {
                    return Err(format!("a ping of {len} bytes"));
                }
                self.heard += 1;
                self.report.pings += 1;
                receive(t, &self.mr(), self.qp(), wr_id).map_err(|e| e.to_string())?;
            }
            ref other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    /// Compares memory with what should be there.
    fn expect<T: Transport>(
        &self,
        t: &mut T,
        at: u64,
        want: &[u8],
        what: &str,
    ) -> Result<(), String> {
        let mut got = vec![0; want.len()];
        let range = self.mr().range(at, got.len() as u64).expect("in the region");
        t.copy_out(range, &mut got).map_err(|e| e.to_string())?;
        match got.iter().zip(want).position(|(a, b)| a != b) {
            Some(i) => Err(format!("{what}: byte {i} is {:#04x}, not {:#04x}", got[i], want[i])),
            None => Ok(()),
        }
    }

    /// Rank 0 speaks first, and both answer what they have heard.
    fn ping<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let turn = if t.rank() == 0 { self.sent == self.heard } else { self.sent < self.heard };
        // The buffer is free when the message before it is confirmed.
        if turn && self.sent < self.config.pings && self.confirmed == self.sent {
            let range = self.mr().range(PING_OUT, u64::from(PING)).expect("in the region");
            let bytes = message(t.rank(), self.sent, PING);
            t.copy_in(range, &bytes).map_err(|e| e.to_string())?;
            let sge = [self.mr().sge(PING_OUT, PING).expect("in the region")];
            self.post(t, SendOp::Send, Data::Sge(&sge))?;
            self.sent += 1;
        }
        let n = self.config.pings;
        if self.heard == n && self.confirmed == n {
            self.enter(t, Phase::Write);
        }
        Ok(())
    }

    fn write<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let (writes, qp) = (self.config.writes, self.qp());
        let caps = t.qp_caps(qp).map_err(|e| e.to_string())?;
        let config = BatchConfig {
            max_wrs: self.config.batch,
            max_bytes: Bytes(1 << 20),
            // Counts decide, so that the number of rings is the same on every back end.
            max_delay: self.config.patience,
            ..BatchConfig::default()
        };
        let mut batcher = self.batcher.take().unwrap_or_else(|| Batcher::new(config, qp, &caps));
        let now = t.now();
        while self.pushed < writes {
            let n = self.pushed;
            let at = u64::from(n * WRITE);
            let sge = [self.mr().sge(SOURCE + at, WRITE).expect("in the region")];
            let last = n + 1 == writes;
            let signaled = (n + 1).is_multiple_of(SIGNAL_EVERY) || last;
            let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let op = SendOp::Write(self.remote(TARGET + at));
            let cue = if last { Cue::Urgent } else { Cue::More };
            let wr = SendWr { wr_id: n.into(), op, data: Data::Sge(&sge), flags, dest: None };
            match batcher.push(t, now, &wr, cue) {
                Ok(_) => self.pushed += 1,
                Err(PushError::Refused(StageError::SqFull)) => break,
                Err(e) => return Err(e.to_string()),
            }
        }
        (self.report.writes, self.report.rings) = (batcher.stats().wqes, batcher.stats().rings);
        self.batcher = Some(batcher);
        if self.confirmed >= writes && !self.told {
            self.post(t, SendOp::SendImm(WRITTEN), Data::Inline(&[]))?;
            self.told = true;
        }
        if self.peer_wrote && self.confirmed > writes {
            let peer = 1 - t.rank();
            for n in 0..writes {
                let want = message(peer, n, WRITE);
                self.expect(t, TARGET + u64::from(n * WRITE), &want, "WRITE")?;
                self.report.written += 1;
            }
            self.enter(t, Phase::Read);
        }
        Ok(())
    }

    fn read<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let len = self.config.read_bytes;
        if !self.asked {
            let sge = [self.mr().sge(LANDING, len).expect("in the region")];
            self.post(t, SendOp::Read(self.remote(SHELF)), Data::Sge(&sge))?;
            self.asked = true;
        }
        if self.confirmed == 1 {
            let want = message(1 - t.rank(), 77, len);
            self.expect(t, LANDING, &want, "READ")?;
            self.report.read_bytes = len;
            // The peer may still be reading: stay until it is done.
            t.publish(key(Topic::Done, 1 - t.rank(), 0), &[]);
            self.enter(t, Phase::Bye);
        }
        Ok(())
    }

    fn advance<T: Control>(&mut self, t: &mut T) -> Result<Next, String> {
        if self.phase == Phase::Connect {
            let config = self.config;
            let linked = |t: &mut T, l: &Local, lanes: &[Lane]| prepare(t, &config, l, &lanes[0]);
            if let Some(next) = self.client.up(t, linked).map_err(|e| e.to_string())? {
                return Ok(next);
            }
        }
        self.poll(t)?;
        loop {
            let phase = self.phase;
            match phase {
                Phase::Connect => self.enter(t, Phase::Ping),
                Phase::Ping => self.ping(t)?,
                Phase::Write => self.write(t)?,
                Phase::Read => self.read(t)?,
                Phase::Bye => {
                    let (peer, mine) = (1 - t.rank(), key(Topic::Done, t.rank(), 0));
                    if t.lookup(peer, mine, &mut []).map_err(|e| e.to_string())?.is_some() {
                        return Ok(Next::Done);
                    }
                }
            }
            if self.phase == phase {
                return self.wait(t);
            }
        }
    }
}

impl Program for Tour {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.advance(t).unwrap_or_else(|why| {
            self.failure = Some(why);
            Next::Done
        })
    }
}
