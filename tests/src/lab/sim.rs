//! The simulator: each rank is a core that looks for work every two microseconds.

use std::any::Any;
use std::sync::{Arc, Mutex};

use doorbell_core::transport::{Next, Transport, WaitSet};
use doorbell_core::units::{Span, Time};
use doorbell_sim::fault::FaultPlan;
use doorbell_sim::host::StallReason;
use doorbell_sim::host::{InitiatorConfig, SimProgram, SimTransport};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};

use crate::machine;

/// The handle that test bodies get.
pub type Handle<'a> = SimTransport<'a>;

/// Whether a message arrives anywhere.
pub const HAS_PEER: bool = true;
/// Whether it has all that the trait names: regions without bytes, every attribute.
pub const IS_MODEL: bool = true;

type Job = Box<dyn FnOnce(&mut Handle<'_>) + Send>;
type Mailbox = Arc<Mutex<Option<Job>>>;

const PERIOD: Span = Span::from_us(2);
/// Longer than anything that a test starts: the largest batches and messages take some 50 us.
const SETTLED: Span = Span::from_us(200);

/// Does what is in its mailbox.
struct Puppet(Mailbox);

impl SimProgram for Puppet {
    fn step_on(&mut self, t: &mut SimTransport<'_>) -> Next {
        let job = self.0.lock().expect("no test panics inside a step").take();
        if let Some(job) = job {
            job(t);
        }
        Next::Wait { on: WaitSet::EMPTY, until: Some(t.now() + PERIOD) }
    }

    fn will_act_at(&self) -> Option<Time> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Ranks on simulated hosts of `generic-400g`.
#[derive(Debug)]
pub struct Lab {
    world: World,
    boxes: Vec<MailboxOf>,
    now: Time,
}

struct MailboxOf(Mailbox);

impl std::fmt::Debug for MailboxOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mailbox")
    }
}

impl Lab {
    /// One rank on each of two hosts.
    pub fn pair() -> Self {
        Self::on_hosts(&[0, 1])
    }

    /// One rank per entry, on the host that it names.
    pub fn on_hosts(hosts: &[u32]) -> Self {
        let count = hosts.iter().max().map_or(2, |m| m + 1);
        Self::on(machine::world_of(machine::quiet_host(), count, 1), hosts)
    }

    /// The same on a world of the test's own.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn on(config: doorbell_sim::world::WorldConfig, hosts: &[u32]) -> Self {
        Self::with_faults(config, hosts, &FaultPlan::default())
    }

    /// The same, where things go wrong by a plan.
    ///
    /// # Panics
    /// When it cannot be built, or the plan does not fit it.
    pub fn with_faults(
        config: doorbell_sim::world::WorldConfig,
        hosts: &[u32],
        plan: &FaultPlan,
    ) -> Self {
        let places: Vec<_> = hosts.iter().map(|host| (*host, 0)).collect();
        Self::with_nics(config, &places, plan)
    }

    /// The same with a host and one of its NICs per rank.
    ///
    /// # Panics
    /// When it cannot be built, or the plan does not fit it.
    pub fn with_nics(
        config: doorbell_sim::world::WorldConfig,
        places: &[(u32, u8)],
        plan: &FaultPlan,
    ) -> Self {
        let on = |(core, &(host, nic))| (host, InitiatorConfig { nic, ..machine::core(core) });
        let initiators: Vec<_> = (0..).zip(places).map(on).collect();
        Self::with_initiators(config, &initiators, plan)
    }

    /// The same with a host and an initiator on it per rank.
    ///
    /// # Panics
    /// When it cannot be built, or the plan does not fit it.
    pub fn with_initiators(
        config: doorbell_sim::world::WorldConfig,
        initiators: &[(u32, InitiatorConfig)],
        plan: &FaultPlan,
    ) -> Self {
        let mut world = World::new(&config).expect("a configuration that can be built");
        world.set_faults(plan).expect("a plan of this world");
        let mut boxes = Vec::new();
        for &(host, on) in initiators {
            let mailbox = Mailbox::default();
            boxes.push(MailboxOf(mailbox.clone()));
            world.add_program(HostId(host), on, Time::ZERO, Puppet(mailbox));
        }
        Self { world, boxes, now: Time::ZERO }
    }

    /// Makes calls on the handle of `rank`.
    ///
    /// # Panics
    /// When the world comes to an end.
    pub fn call<R: Send + 'static>(
        &mut self,
        rank: usize,
        body: impl FnOnce(&mut Handle<'_>) -> R + Send + 'static,
    ) -> R {
        for _ in 0..1_000 {
            if self.boxes[rank].0.lock().expect("no test panics inside a step").is_none() {
                break;
            }
            self.pass(PERIOD);
        }
        let answer = Arc::new(Mutex::new(None));
        let to = answer.clone();
        let job: Job = Box::new(move |t| *to.lock().expect("set once") = Some(body(t)));
        *self.boxes[rank].0.lock().expect("no test panics inside a step") = Some(job);
        for _ in 0..1_000 {
            self.pass(PERIOD);
            if let Some(answer) = answer.lock().expect("read once").take() {
                return answer;
            }
        }
        panic!("rank {rank} has not stepped for 2 ms");
    }

    /// Leaves calls for the next step of `rank` and does not wait for it, so that several ranks
    /// make theirs at the same time.
    ///
    /// # Panics
    /// When calls wait there already.
    pub fn start(&mut self, rank: usize, body: impl FnOnce(&mut Handle<'_>) + Send + 'static) {
        let job: Job = Box::new(body);
        let left = self.boxes[rank].0.lock().expect("no test panics inside a step").replace(job);
        assert!(left.is_none(), "rank {rank} has not stepped yet");
    }

    /// Lets everything that was rung take place.
    pub fn settle(&mut self) {
        self.pass(SETTLED);
    }

    fn pass(&mut self, span: Span) {
        self.now += span;
        match self.world.run(self.now) {
            RunEnd::TimeLimit => {}
            // Where nobody is asked for anything, all of them look in vain.
            RunEnd::NoProgress(all)
                if all.iter().any(|r| matches!(r, StallReason::Waiting { looks: 1.., .. })) => {}
            end => panic!("the puppets never end: {end:?}"),
        }
    }

    /// The world, to look at counters.
    pub fn world(&self) -> &World {
        &self.world
    }
}
