//! Set-up: objects, the exchange of endpoints, the first receives.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::agree::Agreement;
use super::chunks::Chunks;
use super::config::{AggregateConfig, Method};
use super::error::AggregateError;
use super::plan::Plan;
use super::reduce::Tally;
use super::{Aggregate, AggregateStats, Child, Lane, Needs, Patience, Progress, Sink};
use crate::policy::mesh::{Class, End, Mesh, Shared};
use crate::transport::{Contents, Control};
use crate::units::Time;

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
            // Where sums come another way than contributions go, who owes one may wait for a sum:
            // it is given time to say so, and its neighbours to probe for whom it waits.
            let more = u32::from(!plan.is_mirrored(lane));
            let above = hops + plan.depth(lane, me).max(1) + more;
            let patience = Patience { below: plan.height(lane, me) + more, above };
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

    /// Members that it is connected to.
    fn peers(&self) -> Vec<u32> {
        let mut peers: Vec<u32> = self.needs.iter().map(|n| n.member).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
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
        // What is beyond 32 bits is beyond every device.
        let few = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let wide = |n: u32| u64::from(n) * u64::from(window);
        let slots = few(children().map(|n| wide(n.lanes)).sum());
        // Beside its chunks a child may say that it gives up.
        let most = slots.saturating_add(children().count() as u32);
        let by_send = config.method == Method::Send;
        let pulls = if config.method == Method::Read { slots } else { 0 };
        let receives = if by_send { config.receives(most.max(1))? } else { most.max(1) };
        let count = u64::from(if by_send { receives } else { slots });
        let buffers = cut.bytes().next_multiple_of(64);
        let stride = u64::from(cut.len(0)).next_multiple_of(64);
        let queues = roles.needs.iter().map(|n| {
            let (sends, receives) = n.class.depths(n.lanes.saturating_mul(window));
            u64::from(sends) + u64::from(receives)
        });
        let cq = few(u64::from(receives) + queues.sum::<u64>());
        Ok(Self { receives, pulls, buffers, stride, region: buffers + count * stride, cq })
    }
}

impl Aggregate {
    /// What a member of a plan needs of its device and memory, before anything is created.
    ///
    /// # Errors
    /// Settings that cannot be.
    pub fn needs(
        config: &AggregateConfig,
        plan: &Plan,
        member: u32,
    ) -> Result<Needs, AggregateError> {
        let cut = config.cut(plan)?;
        let window = u64::from(config.window).min(cut.of_lane(0)) as u32;
        let roles = Roles::of(plan, member, config, window.into());
        let sizes = Sizes::of(config, &cut, &roles, window)?;
        Ok(Needs { bytes: sizes.region, completions: sizes.cq, receives: sizes.receives })
    }

    /// Creates the objects of this member and publishes its endpoints.
    ///
    /// # Errors
    /// Settings that cannot be; what the back end refuses.
    pub fn open<T: Control>(
        t: &mut T,
        config: AggregateConfig,
        plan: &Plan,
    ) -> Result<Self, AggregateError> {
        let cut = config.cut(plan)?;
        let me = config.member(t.rank(), plan)?;
        // Lane 0 has most chunks.
        let window = u64::from(config.window).min(cut.of_lane(0)) as u32;
        let roles = Roles::of(plan, me, &config, window.into());
        let sizes = Sizes::of(&config, &cut, &roles, window)?;
        let mut mesh = Mesh::open(
            t,
            config.wiring(),
            config.fingerprint(plan),
            Shared {
                bytes: sizes.region,
                contents: Contents::Data,
                cq: sizes.cq,
                srq: sizes.receives,
                connections: roles.needs.len() as u32,
                peers: roles.peers(),
            },
        )?;
        for (need, slot) in roles.needs.iter().zip(roles.first_slots(window.into())) {
            let Need { class, member, lanes } = *need;
            // Children write into their slots; parents read, and sources write, the vector.
            let offset = match class {
                Class::FromChild if config.method == Method::Write => {
                    sizes.buffers + slot * sizes.stride
                }
                _ => 0,
            };
            let depth = lanes.saturating_mul(window);
            mesh.add(t, &End { member, class, depth, sges: 1, offset })?;
        }
        let mut member = Self {
            mesh,
            absent: plan.absent().iter().map(|m| config.first_rank + m).collect(),
            cut,
            window: window.into(),
            buffers: sizes.buffers,
            stride: sizes.stride,
            lanes: roles.lanes,
            agreement: Agreement::of(&config, plan, me),
            rounds: 0,
            began: Time::ZERO,
            turn: 0,
            free: vec![],
            pulls: VecDeque::with_capacity(sizes.pulls as usize),
            reading: 0,
            stats: AggregateStats::default(),
            config,
        };
        member.free = (0..sizes.receives).map(|n| member.receive_into(n.into())).collect();
        member.post_free(t)?;
        Ok(member)
    }

    /// Connects to the neighbours in the plan as they appear. Members that go on without others
    /// then agree on [`Aggregate::first_round`].
    ///
    /// # Errors
    /// A neighbour that does not appear before the deadline, has ended, or has other settings.
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        match self.mesh.connect(t)? {
            Progress::Complete => {
                let agreed = self.agreement.go_on(t, &self.mesh);
                agreed.inspect_err(|e| self.mesh.end(*e))
            }
            progress => Ok(progress),
        }
    }
}
