//! Set-up: objects, the exchange of endpoints, the first receives.

use alloc::vec;
use alloc::vec::Vec;

use super::schedule::{Origin, Stream};
use super::{
    AggregateError, AllToAll, AllToAllConfig, AllToAllStats, Opening, Out, Peer, Progress, Schedule,
};
use crate::policy::Batcher;
use crate::policy::aggregate::channel::{Channel, Class, announce, is_ready, link, publish};
use crate::policy::aggregate::config::RIGHTS;
use crate::policy::aggregate::{ConfigError, MAX_CHUNKS};
use crate::transport::{Completions, Control, QpInit, QpSize, Remote, Transport, WaitSet};
use crate::units::Time;
use crate::verbs::QpType;

/// Completions taken by one poll. Higher: fewer calls; a burst is handled later.
const POLL_BATCH: usize = 64;

/// What a member has to know of a peer before there is a connection.
struct Need<'a> {
    member: u32,
    out: &'a Stream,
    /// What comes from there.
    back: &'a Stream,
}

impl AllToAll {
    /// Creates the objects of this member and publishes its endpoints.
    ///
    /// # Errors
    /// Settings that cannot be; what the back end refuses.
    pub fn open<T: Control>(
        t: &mut T,
        config: AllToAllConfig,
        schedule: &Schedule,
    ) -> Result<Self, AggregateError> {
        let rank = t.rank();
        let me = config.member(rank, schedule.members())?;
        let needs = needs(schedule, me);
        let pieces = |s: &Stream| s.pieces.len() as u64;
        let largest = needs.iter().map(|n| pieces(n.out).max(pieces(n.back))).max().unwrap_or(0);
        if largest > MAX_CHUNKS {
            return Err(ConfigError::Chunks { got: largest }.into());
        }
        // A peer may be a round ahead, and has a last word.
        let receives: u64 = needs.iter().map(|n| 2 * pieces(n.back) + 1).sum();
        let receives = u32::try_from(receives.max(1)).unwrap_or(u32::MAX);
        let sends: u64 = needs.iter().map(|n| u64::from(depth(&config, n.out)) + 2).sum();
        let entries = u64::from(receives).saturating_add(sends).min(u32::MAX.into()) as u32;
        let (outbox_bytes, inbox_bytes) = (schedule.outbox_bytes(me), schedule.inbox_bytes(me));
        let inboxes = outbox_bytes.next_multiple_of(64);
        let stride = inbox_bytes.next_multiple_of(64);
        let pd = t.create_pd()?;
        let bytes = (inboxes + 2 * stride).max(8);
        let mr = t.alloc_mr(pd, bytes, config.memory, RIGHTS, config.contents)?;
        let (cq, srq) = (t.create_cq(entries)?, t.create_srq(pd, receives)?);
        let mut member = Self {
            rank,
            chunk: schedule.chunk,
            hops: schedule.hops(),
            fingerprint: schedule.fingerprint,
            pd,
            mr,
            outbox_bytes,
            inbox_bytes,
            inboxes,
            stride,
            cq,
            srq,
            peers: vec![],
            by_qp: vec![],
            opening: Opening::Linking(0),
            rounds: 0,
            began: t.now(),
            polled: Completions::with_capacity(POLL_BATCH),
            sges: Vec::with_capacity(config.gather as usize),
            taken: receives,
            failed: None,
            stats: AllToAllStats::default(),
            config,
        };
        for need in &needs {
            member.add_peer(t, schedule, me, need)?;
        }
        member.post_taken(t)?;
        Ok(member)
    }

    fn add_peer<T: Control>(
        &mut self,
        t: &mut T,
        schedule: &Schedule,
        me: u32,
        need: &Need<'_>,
    ) -> Result<(), AggregateError> {
        let depth = depth(&self.config, need.out);
        let qp = t.create_qp(&QpInit {
            ty: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: Some(self.srq),
            size: QpSize {
                max_send_wr: depth + 2,
                max_recv_wr: 1,
                max_send_sge: self.config.gather,
                max_inline: 0,
            },
            sq_sig_all: true,
            queue_memory: self.config.queue_memory,
        })?;
        let channel = Channel {
            peer: self.config.first_rank + need.member,
            class: Class::Both,
            qp,
            batcher: Batcher::new(self.config.batch, qp, &t.qp_caps(qp)?),
            remote: Remote::default(),
            depth,
            outstanding: 0,
            taken: 0,
        };
        let memory =
            Remote { addr: self.mr.addr + self.inboxes + need.back.base, rkey: self.mr.rkey };
        publish(t, &self.config.wiring(), &channel, memory, self.fingerprint)?;
        let index = qp.index() as usize;
        self.by_qp.resize(self.by_qp.len().max(index + 1), u32::MAX);
        self.by_qp[index] = self.peers.len() as u32;
        self.peers.push(Peer {
            channel,
            passed_on: schedule.passes_on(me, need.member),
            out: outs(schedule, me, need.out),
            stride: schedule.inbox_bytes(need.member).next_multiple_of(64),
            lens: need.back.pieces.iter().map(|p| p.len).collect(),
            sent: 0,
            arrived: 0,
        });
        Ok(())
    }

    /// Connects to the peers as they appear.
    ///
    /// # Errors
    /// A peer that does not appear before the deadline, has ended, or has another exchange.
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        self.go_on(t).inspect_err(|e| self.failed = Some(*e))
    }

    fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        let wiring = self.config.wiring();
        while let Opening::Linking(n) = self.opening {
            let Some(peer) = self.peers.get_mut(n) else {
                let peers = self.peers.iter().map(|p| p.channel.peer);
                peers.for_each(|peer| announce(t, &wiring, peer));
                self.opening = Opening::Announced;
                break;
            };
            if !link(t, &wiring, &mut peer.channel, self.fingerprint)? {
                let rank = peer.channel.peer;
                return self.wait_for(t, rank);
            }
            self.opening = Opening::Linking(n + 1);
        }
        if self.opening == Opening::Announced {
            for peer in 0..self.peers.len() {
                let rank = self.peers[peer].channel.peer;
                if !is_ready(t, &wiring, rank)? {
                    return self.wait_for(t, rank);
                }
            }
            self.opening = Opening::Open;
        }
        Ok(Progress::Complete)
    }

    fn wait_for<T: Transport>(&self, t: &T, rank: u32) -> Result<Progress, AggregateError> {
        let until: Time = self.began + self.config.connect_deadline;
        if t.now() >= until {
            return Err(AggregateError::NoPeer { rank });
        }
        Ok(Progress::Wait { on: WaitSet::BOOTSTRAP, until })
    }
}

/// The peers of a member: first those that come after it, so that not all begin with the same.
fn needs(schedule: &Schedule, me: u32) -> Vec<Need<'_>> {
    let out = schedule.streams.range((me, 0)..=(me, u32::MAX));
    let mut needs: Vec<_> = out
        .map(|((_, member), out)| Need {
            member: *member,
            out,
            back: &schedule.streams[&(*member, me)],
        })
        .collect();
    let after = needs.iter().position(|n| n.member > me).unwrap_or(0);
    needs.rotate_left(after);
    needs
}

/// Messages outstanding on a stream.
fn depth(config: &AllToAllConfig, out: &Stream) -> u32 {
    (out.pieces.len() as u64).min(config.window.into()) as u32
}

/// The pieces of a stream as this member sees them.
fn outs(schedule: &Schedule, me: u32, out: &Stream) -> Vec<Out> {
    let peers = needs(schedule, me);
    let mut to = 0;
    let outs = out.pieces.iter().map(|p| {
        let (at, needs) = match p.origin {
            Origin::Outbox(at) => (at, None),
            Origin::Inbox { from, offset, after } => {
                let peer = peers.iter().position(|n| n.member == from);
                let peer = peer.expect("who writes to a relay is its peer");
                (peers[peer].back.base + offset, Some((peer as u32, after)))
            }
        };
        let out = Out { len: p.len, at, to, needs };
        to += u64::from(p.len);
        out
    });
    outs.collect()
}
