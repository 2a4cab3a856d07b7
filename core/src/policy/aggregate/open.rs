//! Set-up: objects, the exchange of endpoints, the first receives.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::channel::{Channel, Class, announce, is_ready, link, publish};
use super::chunks::Chunks;
use super::config::{AggregateConfig, Method, RIGHTS};
use super::error::AggregateError;
use super::plan::Plan;
use super::reduce::Tally;
use super::{Aggregate, AggregateStats, Child, Lane, Patience, Progress, Sink};
use crate::policy::Batcher;
use crate::transport::{
    Completions, Contents, Control, QpInit, QpSize, RecvQueue, RecvWr, Remote, Transport, WaitSet,
};
use crate::units::Time;
use crate::verbs::QpType;

/// Completions taken by one poll. Higher: fewer calls; a burst is handled later.
const POLL_BATCH: usize = 64;

/// How far the set-up is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// So many connections are up.
    Linking(usize),
    /// All are; peers were told.
    Announced,
    /// All peers take messages.
    Open,
}

/// A connection that a member needs, and the lanes that use it.
struct Need {
    class: Class,
    member: u32,
    lanes: u32,
}

/// Connections and lanes of a member.
struct Roles {
    needs: Vec<Need>,
    lanes: Vec<Lane>,
}

impl Roles {
    fn of(plan: &Plan, me: u32, config: &AggregateConfig, window: u64) -> Self {
        let mut roles = Self { needs: vec![], lanes: vec![] };
        let hops = plan.hops();
        for lane in 0..plan.lanes() {
            let up = plan.parent(lane, me);
            let parent = up.map(|m| roles.need(Class::ToParent, m));
            // Both ends count the lanes of a connection in the same order, so both know the slot.
            let parent = parent.map(|(channel, nth)| (channel, nth * window));
            let from = plan.source(lane, me);
            let source = from.map(|m| roles.need(Class::FromSource, m).0);
            let sinks = plan.sinks(lane, me).into_iter();
            let sinks = sinks.map(|m| Sink { channel: roles.need(Class::ToSink, m).0, passed: 0 });
            let sinks = sinks.collect();
            let children = plan.children(lane, me).into_iter().map(|m| {
                let (channel, nth) = roles.need(Class::FromChild, m);
                // Only SENDs take buffers of the pool, no more than the window.
                let most = if config.method == Method::Send { window as usize } else { 0 };
                let held = VecDeque::with_capacity(most);
                Child { channel, slot: nth * window, heard: 0, read: 0, held }
            });
            let children: Vec<Child> = children.collect();
            let tally = Tally::new(config.order, children.len());
            let above = hops + plan.depth(lane, me).max(1);
            let patience = Patience { below: plan.height(lane, me), above };
            let (sent, done, since) = (0, 0, Time::ZERO);
            roles.lanes.push(Lane {
                parent,
                source,
                sinks,
                children,
                tally,
                sent,
                done,
                since,
                patience,
            });
        }
        roles.place_slots(window);
        roles
    }

    /// The connection, and how many lanes have used it before.
    fn need(&mut self, class: Class, member: u32) -> (usize, u64) {
        let same = |n: &Need| n.class == class && n.member == member;
        let at = self.needs.iter().position(same).unwrap_or_else(|| {
            self.needs.push(Need { class, member, lanes: 0 });
            self.needs.len() - 1
        });
        self.needs[at].lanes += 1;
        (at, u64::from(self.needs[at].lanes) - 1)
    }

    /// Slots of one child follow those of the one before it.
    fn place_slots(&mut self, window: u64) {
        let first = self.first_slots(window);
        for child in self.lanes.iter_mut().flat_map(|l| &mut l.children) {
            child.slot += first[child.channel];
        }
    }

    /// The first slot of each connection.
    fn first_slots(&self, window: u64) -> Vec<u64> {
        let mut next = 0;
        let slots = self.needs.iter().map(|n| {
            let first = next;
            next += if n.class == Class::FromChild { u64::from(n.lanes) * window } else { 0 };
            first
        });
        slots.collect()
    }
}

/// Sizes that follow from the roles.
struct Sizes {
    /// Receives for contributions.
    receives: u32,
    /// Announced chunks that may wait to be read.
    pulls: u32,
    /// Where the buffers begin, and the distance of two of them.
    buffers: u64,
    stride: u64,
    /// Bytes of the region.
    region: u64,
    /// Entries of the completion queue: everything that can be outstanding at once.
    cq: u32,
}

impl Sizes {
    fn of(
        config: &AggregateConfig,
        cut: &Chunks,
        roles: &Roles,
        window: u32,
    ) -> Result<Self, AggregateError> {
        let children = || roles.needs.iter().filter(|n| n.class == Class::FromChild);
        let slots: u32 = children().map(|n| n.lanes * window).sum();
        // Beside its chunks a child may say that it gives up.
        let most = slots + children().count() as u32;
        let by_send = config.method == Method::Send;
        let pulls = if config.method == Method::Read { slots } else { 0 };
        let receives = if by_send { config.receives(most.max(1))? } else { most.max(1) };
        let count = u64::from(if by_send { receives } else { slots });
        let buffers = cut.bytes().next_multiple_of(64);
        let stride = u64::from(cut.len(0)).next_multiple_of(64);
        let queues = roles.needs.iter().map(|n| {
            let (sends, receives) = depths(n.class, n.lanes * window);
            sends + receives
        });
        let cq = receives + queues.sum::<u32>();
        Ok(Self { receives, pulls, buffers, stride, region: buffers + count * stride, cq })
    }
}

/// Depths of the send and the receive queue of a connection with so many chunks under way. Each
/// end may have a last word beside them.
const fn depths(class: Class, chunks: u32) -> (u32, u32) {
    match class {
        Class::FromSource => (1, chunks + 1),
        Class::FromChild | Class::ToParent | Class::ToSink | Class::Both => (chunks + 2, 1),
    }
}

impl Aggregate {
    /// Creates the objects of this member and publishes its endpoints.
    ///
    /// # Errors
    /// Settings that cannot be; what the back end refuses.
    pub fn open<T: Control>(
        t: &mut T,
        config: AggregateConfig,
        plan: &Plan,
    ) -> Result<Self, AggregateError> {
        let (rank, cut) = (t.rank(), config.cut(plan)?);
        let me = config.member(rank, plan)?;
        // Lane 0 has most chunks.
        let window = u64::from(config.window).min(cut.of_lane(0)) as u32;
        let roles = Roles::of(plan, me, &config, window.into());
        let sizes = Sizes::of(&config, &cut, &roles, window)?;
        let pd = t.create_pd()?;
        let mr = t.alloc_mr(pd, sizes.region, config.memory, RIGHTS, Contents::Data)?;
        let (cq, srq) = (t.create_cq(sizes.cq)?, t.create_srq(pd, sizes.receives)?);
        let mut member = Self {
            rank,
            absent: plan.absent().iter().map(|m| config.first_rank + m).collect(),
            cut,
            window: window.into(),
            fingerprint: config.fingerprint(plan),
            pd,
            mr,
            cq,
            srq,
            buffers: sizes.buffers,
            stride: sizes.stride,
            channels: vec![],
            by_qp: vec![],
            lanes: vec![],
            opening: Opening::Linking(0),
            rounds: 0,
            began: t.now(),
            turn: 0,
            polled: Completions::with_capacity(POLL_BATCH),
            free: vec![],
            pulls: VecDeque::with_capacity(sizes.pulls as usize),
            reading: 0,
            failed: None,
            stats: AggregateStats::default(),
            config,
        };
        let first = roles.first_slots(window.into());
        for (need, slot) in roles.needs.iter().zip(first) {
            member.add_channel(t, need, slot)?;
        }
        member.lanes = roles.lanes;
        member.free = (0..sizes.receives).map(|n| member.receive_into(n.into())).collect();
        member.post_free(t)?;
        Ok(member)
    }

    fn add_channel<T: Control>(
        &mut self,
        t: &mut T,
        need: &Need,
        slot: u64,
    ) -> Result<(), AggregateError> {
        let depth = need.lanes * self.window as u32;
        let (max_send_wr, max_recv_wr) = depths(need.class, depth);
        let qp = t.create_qp(&QpInit {
            ty: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: (need.class == Class::FromChild).then_some(self.srq),
            size: QpSize { max_send_wr, max_recv_wr, max_send_sge: 1, max_inline: 0 },
            sq_sig_all: true,
            queue_memory: self.config.queue_memory,
        })?;
        let channel = Channel {
            peer: self.config.first_rank + need.member,
            class: need.class,
            qp,
            batcher: Batcher::new(self.config.batch, qp, &t.qp_caps(qp)?),
            remote: Remote::default(),
            depth,
            outstanding: 0,
            taken: 0,
        };
        // Children write into their slots; parents read, and sources write, the vector.
        let offset = match need.class {
            Class::FromChild if self.config.method == Method::Write => {
                self.buffers + slot * self.stride
            }
            _ => 0,
        };
        let memory = Remote { addr: self.mr.addr + offset, rkey: self.mr.rkey };
        publish(t, &self.config.wiring(), &channel, memory, self.fingerprint)?;
        let index = qp.index() as usize;
        self.by_qp.resize(self.by_qp.len().max(index + 1), u32::MAX);
        self.by_qp[index] = self.channels.len() as u32;
        self.channels.push(channel);
        Ok(())
    }

    /// Connects to the neighbours in the plan as they appear.
    ///
    /// # Errors
    /// A neighbour that does not appear before the deadline, has ended, or has other settings.
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        self.go_on(t).inspect_err(|e| self.failed = Some(*e))
    }

    fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        let wiring = self.config.wiring();
        while let Opening::Linking(n) = self.opening {
            let Some(channel) = self.channels.get_mut(n) else {
                self.post_first(t)?;
                self.peers().into_iter().for_each(|peer| announce(t, &wiring, peer));
                self.opening = Opening::Announced;
                break;
            };
            if !link(t, &wiring, channel, self.fingerprint)? {
                let rank = channel.peer;
                return self.wait_for(t, rank);
            }
            self.opening = Opening::Linking(n + 1);
        }
        if self.opening == Opening::Announced {
            for peer in self.peers() {
                if !is_ready(t, &wiring, peer)? {
                    return self.wait_for(t, peer);
                }
            }
            self.opening = Opening::Open;
        }
        Ok(Progress::Complete)
    }

    fn wait_for<T: Transport>(&self, t: &T, rank: u32) -> Result<Progress, AggregateError> {
        let until = self.began + self.config.connect_deadline;
        if t.now() >= until {
            return Err(AggregateError::NoPeer { rank });
        }
        Ok(Progress::Wait { on: WaitSet::BOOTSTRAP, until })
    }

    /// Ranks that it is connected to.
    fn peers(&self) -> Vec<u32> {
        let mut peers: Vec<u32> = self.channels.iter().map(|c| c.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Receives for sums. Those for contributions are there since the shared queue is.
    fn post_first<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        for c in self.channels.iter().filter(|c| c.class == Class::FromSource) {
            let receives = vec![self.receive_of_nothing(); c.depth as usize + 1];
            t.post_recv(RecvQueue::Qp(c.qp), &receives)?;
        }
        Ok(())
    }

    /// A receive for a message whose bytes, if any, go elsewhere.
    pub(super) fn receive_of_nothing(&self) -> RecvWr {
        RecvWr { wr_id: 0, sge: self.mr.sge(0, 0).expect("no bytes") }
    }
}
