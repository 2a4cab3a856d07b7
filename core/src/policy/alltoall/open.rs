//! Set-up: objects, the exchange of endpoints, the first receives.

use alloc::vec::Vec;

use super::add::{Add, Term};
use super::schedule::{Origin, Stream, Written};
use super::sums::{Addition, Operand};
use super::{
    AggregateError, AllToAll, AllToAllConfig, AllToAllStats, Need, Out, Peer, Progress, Schedule,
};
use crate::policy::aggregate::{ConfigError, MAX_CHUNKS, Needs};
use crate::policy::mesh::{Class, End, Mesh, Shared};
use crate::transport::Control;
use crate::units::Time;

/// What a member has to know of a peer before there is a connection.
struct Wanted<'a> {
    member: u32,
    out: &'a Stream,
    /// What comes from there.
    back: &'a Stream,
}

/// Sizes that follow from the schedule.
fn sizes(config: &AllToAllConfig, schedule: &Schedule, me: u32, peers: &[Wanted<'_>]) -> Needs {
    let pieces = |s: &Stream| s.pieces.len() as u64;
    // A peer may be a round ahead, and has a last word.
    let receives: u64 = peers.iter().map(|n| 2 * pieces(n.back) + 1).sum();
    let receives = u32::try_from(receives.max(1)).unwrap_or(u32::MAX);
    let sends = |n: &Wanted<'_>| u64::from(Class::Both.depths(depth(config, n.out)).0);
    let entries = u64::from(receives).saturating_add(peers.iter().map(sends).sum());
    let inboxes = schedule.outbox_bytes(me).next_multiple_of(64);
    let bytes = (inboxes + 2 * schedule.inbox_bytes(me).next_multiple_of(64)).max(8);
    Needs { bytes, completions: entries.min(u32::MAX.into()) as u32, receives }
}

impl AllToAll {
    /// What a member needs of its device and memory, before anything is created.
    pub fn needs(config: &AllToAllConfig, schedule: &Schedule, member: u32) -> Needs {
        sizes(config, schedule, member, &needs(schedule, member))
    }

    /// Creates the objects of this member and publishes its endpoints.
    ///
    /// # Errors
    /// Settings that cannot be; what the back end refuses.
    pub fn open<T: Control>(
        t: &mut T,
        config: AllToAllConfig,
        schedule: &Schedule,
    ) -> Result<Self, AggregateError> {
        let me = config.member(t.rank(), schedule.members())?;
        let needs = needs(schedule, me);
        let pieces = |s: &Stream| s.pieces.len() as u64;
        let largest = needs.iter().map(|n| pieces(n.out).max(pieces(n.back))).max().unwrap_or(0);
        if largest > MAX_CHUNKS {
            return Err(ConfigError::Chunks { got: largest }.into());
        }
        let Needs { bytes, completions, receives } = sizes(&config, schedule, me, &needs);
        let (outbox_bytes, inbox_bytes) = (schedule.outbox_bytes(me), schedule.inbox_bytes(me));
        let inboxes = outbox_bytes.next_multiple_of(64);
        let stride = inbox_bytes.next_multiple_of(64);
        let mut mesh = Mesh::open(
            t,
            config.wiring(),
            schedule.fingerprint,
            Shared {
                bytes,
                contents: config.contents,
                cq: completions,
                srq: receives,
                connections: needs.len() as u32,
                peers: needs.iter().map(|n| n.member).collect(),
            },
        )?;
        for need in &needs {
            let (member, offset) = (need.member, inboxes + need.back.base);
            let (class, depth) = (Class::Both, depth(&config, need.out));
            mesh.add(t, &End { member, class, depth, sges: config.gather, offset })?;
        }
        let mut peers: Vec<Peer> = needs.iter().map(|need| peer(schedule, &needs, need)).collect();
        let adds = adds(&needs, &schedule.additions[me as usize]);
        let relayed: Vec<u32> =
            peers.iter().flat_map(|p| &p.out).flat_map(|o| by(o, &adds)).collect();
        relayed.into_iter().for_each(|from| peers[from as usize].passed_on = true);
        let mut member = Self {
            mesh,
            chunk: schedule.chunk,
            apart: schedule.apart,
            hops: schedule.hops(),
            outbox_bytes,
            inbox_bytes,
            inboxes,
            stride,
            peers,
            adds,
            first_add: 0,
            rounds: 0,
            began: Time::ZERO,
            sges: Vec::with_capacity(config.gather as usize),
            taken: receives,
            stats: AllToAllStats::default(),
            config,
        };
        member.post_taken(t)?;
        Ok(member)
    }

    /// Connects to the peers as they appear.
    ///
    /// # Errors
    /// A peer that does not appear before the deadline, has ended, or has another exchange.
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.mesh.connect(t)
    }
}

/// Peers that have to write something before it can go on.
fn by(out: &Out, adds: &[Add]) -> Vec<u32> {
    match out.needs {
        None => Vec::new(),
        Some(Need::Pieces(peer, _)) => [peer].to_vec(),
        Some(Need::Addition(n)) => {
            let add = &adds[n as usize];
            let terms = add.from.iter().chain([&add.to]);
            terms.filter_map(|t| t.needs).map(|(peer, _)| peer).collect()
        }
    }
}

/// What goes to a peer and comes from it, before the first round.
fn peer(schedule: &Schedule, needs: &[Wanted<'_>], need: &Wanted<'_>) -> Peer {
    Peer {
        passed_on: false,
        out: outs(needs, need.out),
        stride: schedule.inbox_bytes(need.member).next_multiple_of(64),
        lens: need.back.pieces.iter().map(|p| p.len).collect(),
        sent: 0,
        arrived: 0,
    }
}

/// The peers of a member: first those that come after it, so that not all begin with the same.
fn needs(schedule: &Schedule, me: u32) -> Vec<Wanted<'_>> {
    let need = |(member, out)| Wanted { member, out, back: &schedule.streams[&(member, me)] };
    let mut needs: Vec<_> = schedule.streams_of(me).map(need).collect();
    let after = needs.iter().position(|n| n.member > me).unwrap_or(0);
    needs.rotate_left(after);
    needs
}

/// Where some bytes are in the inbox, and which peer has written them.
fn found(peers: &[Wanted<'_>], w: Written) -> (u64, u32) {
    let peer = peers.iter().position(|n| n.member == w.from);
    let peer = peer.expect("who writes to a relay is its peer");
    (peers[peer].back.base + w.offset, peer as u32)
}

/// What a member adds, resolved for it.
fn adds(peers: &[Wanted<'_>], additions: &[Addition]) -> Vec<Add> {
    let at = |w: Written| {
        let (at, peer) = found(peers, w);
        Term { at, needs: Some((peer, w.after)) }
    };
    let add = |a: &Addition| {
        let from = a.from.iter().map(|operand| match *operand {
            Operand::Outbox(at) => Term { at, needs: None },
            Operand::Inbox(w) => at(w),
        });
        Add { op: a.op, len: a.len, to: at(a.to), from: from.collect(), next: 0 }
    };
    additions.iter().map(add).collect()
}

/// Messages outstanding on a stream.
fn depth(config: &AllToAllConfig, out: &Stream) -> u32 {
    (out.pieces.len() as u64).min(config.window.into()) as u32
}

/// The pieces of a stream as this member sees them.
fn outs(peers: &[Wanted<'_>], out: &Stream) -> Vec<Out> {
    let mut to = 0;
    let outs = out.pieces.iter().map(|p| {
        let (at, needs) = match p.origin {
            Origin::Outbox(at) => (at, None),
            Origin::Inbox(written) => {
                let (at, peer) = found(peers, written);
                (at, Some(Need::Pieces(peer, written.after)))
            }
            Origin::Sum { from, offset, addition } => {
                let (at, _) = found(peers, Written { from, offset, after: 0 });
                (at, Some(Need::Addition(addition)))
            }
        };
        let out = Out { len: p.len, at, to, needs };
        to += u64::from(p.len);
        out
    });
    outs.collect()
}
