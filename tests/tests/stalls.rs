//! Programs that can make no progress: each ends, with the reason's name.

use doorbell::workloads::connect::{Client, LinkConfig, LocalConfig};
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;
use doorbell_sim::host::StallReason;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;

/// What a program does wrong once it is connected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mistake {
    /// Stages three WRITEs after its last ring and waits for them.
    Unrung,
    /// Sends to a peer that has posted nothing.
    NoReceive,
    /// Fills the queue with unsignalled WRITEs and waits for a slot.
    FullUnsignalled,
    /// `Again`, without a call.
    Again,
    /// `Again`, with a poll that finds nothing.
    AgainPolling,
    /// Waits inside a step for a slot, for the clock, for a completion, for a state, for a peer.
    SpinOnSlots,
    SpinOnClock,
    SpinOnPoll,
    SpinOnState,
    SpinOnLookup,
    /// Is woken for a completion and does not poll.
    Barren,
    /// Is woken for one queue and polls the other.
    BarrenOther,
    /// Waits for nothing, without a deadline.
    Nothing,
    /// Waits for a watch that nobody fires.
    Watch,
}

struct Stuck {
    mistake: Mistake,
    client: Client,
    posted: bool,
    watch: Option<WatchId>,
}

impl Stuck {
    fn new(rank: u32, mistake: Mistake) -> Self {
        let local = LocalConfig { region_bytes: 4096, cq_depth: 64, ..LocalConfig::default() };
        let mut link = LinkConfig::to(1 - rank);
        link.size = QpSize { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_inline: 16 };
        Self { mistake, client: Client::new(local, link), posted: false, watch: None }
    }

    fn stage<T: Control>(&self, t: &mut T, send: bool, n: u64, flags: SendFlags) {
        let lane = self.client.lanes()[0];
        let op = if send { SendOp::Send } else { SendOp::Write(lane.remote.at(0)) };
        let data = Data::Inline(&[1; 8]);
        for wr_id in 0..n {
            t.stage(lane.qp, &SendWr { wr_id, op, data, flags, dest: None }).unwrap();
        }
    }

    /// What is posted before it gets stuck.
    fn prepare<T: Control>(&mut self, t: &mut T) {
        let qp = self.client.lanes()[0].qp;
        let quiet = SendFlags::empty();
        match self.mistake {
            Mistake::Unrung => {
                self.stage(t, false, 1, SendFlags::SIGNALED);
                t.ring(qp, Ring::Auto).unwrap();
                self.stage(t, false, 3, SendFlags::SIGNALED);
            }
            Mistake::NoReceive => {
                self.stage(t, true, 1, SendFlags::SIGNALED);
                t.ring(qp, Ring::Auto).unwrap();
            }
            Mistake::FullUnsignalled | Mistake::SpinOnSlots => {
                self.stage(t, false, 8, quiet);
                t.ring(qp, Ring::Auto).unwrap();
            }
            Mistake::Barren | Mistake::BarrenOther => {
                self.stage(t, false, 1, SendFlags::SIGNALED);
                t.ring(qp, Ring::Auto).unwrap();
            }
            Mistake::Watch => {
                let range = self.client.local().mr.range(0, 8).unwrap();
                self.watch = t.watch(range).ok();
            }
            _ => {}
        }
        self.posted = true;
    }

    fn stick<T: Control>(&mut self, t: &mut T) -> Next {
        let local = *self.client.local();
        let qp = self.client.lanes()[0].qp;
        let mut some = Completions::with_capacity(4);
        let both = WaitSet::cq(local.send_cq).or(WaitSet::cq(local.recv_cq));
        let forever = |on| Next::Wait { on, until: None };
        match self.mistake {
            Mistake::Again => Next::Again,
            Mistake::AgainPolling => {
                t.poll_cq(local.send_cq, &mut some).unwrap();
                Next::Again
            }
            Mistake::SpinOnSlots => {
                while t.sq_free(qp) == 0 {}
                Next::Done
            }
            Mistake::SpinOnClock => {
                let until = t.now() + Span::from_us(1);
                while t.now() < until {}
                Next::Done
            }
            Mistake::SpinOnPoll => {
                while some.as_slice().is_empty() {
                    t.poll_cq(local.send_cq, &mut some).unwrap();
                }
                Next::Done
            }
            Mistake::SpinOnState => {
                while t.qp_state(qp) == Ok(doorbell_core::verbs::QpState::Rts) {}
                Next::Done
            }
            Mistake::SpinOnLookup => {
                while t.lookup(1, 4711, &mut []) == Ok(None) {}
                Next::Done
            }
            Mistake::Barren => forever(both),
            Mistake::BarrenOther => {
                t.poll_cq(local.recv_cq, &mut some).unwrap();
                forever(both)
            }
            Mistake::Nothing => forever(WaitSet::EMPTY),
            Mistake::Watch => forever(WaitSet::watch(self.watch.unwrap())),
            Mistake::Unrung | Mistake::NoReceive | Mistake::FullUnsignalled => {
                t.poll_cq(local.send_cq, &mut some).unwrap();
                forever(both)
            }
        }
    }
}

impl Program for Stuck {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        match self.client.up(t, |_, _, _| Ok(())).unwrap() {
            Some(next) => return next,
            None if t.rank() == 1 => return Next::Done,
            None if !self.posted => self.prepare(t),
            None => {}
        }
        self.stick(t)
    }
}

/// Runs rank 0 with a mistake against a rank 1 that is done at once. No time limit.
fn reasons(mistake: Mistake) -> Vec<StallReason> {
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
    for rank in 0..2 {
        let program = Stuck::new(rank, mistake);
        world.add_program(HostId(rank), machine::core(0), Time::ZERO, program);
    }
    match world.run(Time::MAX) {
        RunEnd::NoProgress(reasons) => reasons,
        other => panic!("{mistake:?}: {other:?}"),
    }
}

fn text(mistake: Mistake) -> String {
    reasons(mistake).iter().map(|r| format!("{r}\n")).collect()
}

#[test]
fn what_was_never_rung() {
    let r = reasons(Mistake::Unrung);
    assert!(
        matches!(r[0], StallReason::UnrungWqes { host: 0, staged: 3, producer: 4, .. }),
        "{r:?}"
    );
    assert!(matches!(r[1], StallReason::Waiting { rank: 0, .. }), "{r:?}");
    assert_eq!(r.len(), 2, "{r:?}");
    let said = text(Mistake::Unrung);
    assert!(said.contains("3 WQEs are staged and no doorbell announced them"), "{said}");
}

#[test]
fn no_receive_posted() {
    let r = reasons(Mistake::NoReceive);
    let named = |r: &&StallReason| matches!(r, StallReason::NoReceivePosted { host: 1, .. });
    assert_eq!(r.iter().filter(named).count(), 1, "{r:?}");
}

#[test]
fn a_full_queue_in_which_nothing_was_signalled() {
    let r = reasons(Mistake::FullUnsignalled);
    assert!(matches!(r[0], StallReason::FullUnsignalled { host: 0, used: 8, .. }), "{r:?}");
}

#[test]
fn again_for_ever() {
    for mistake in [Mistake::Again, Mistake::AgainPolling] {
        let r = reasons(mistake);
        assert_eq!(r[0], StallReason::IdleSteps { rank: 0 }, "{mistake:?}: {r:?}");
    }
}

#[test]
fn loops_inside_a_step_end_at_the_call_budget() {
    for mistake in [
        Mistake::SpinOnSlots,
        Mistake::SpinOnClock,
        Mistake::SpinOnPoll,
        Mistake::SpinOnState,
        Mistake::SpinOnLookup,
    ] {
        let r = reasons(mistake);
        assert_eq!(r[0], StallReason::CallBudget { rank: 0 }, "{mistake:?}: {r:?}");
    }
}

#[test]
fn barren_wake_ups() {
    for mistake in [Mistake::Barren, Mistake::BarrenOther] {
        let r = reasons(mistake);
        assert_eq!(r[0], StallReason::Barren { rank: 0, cq: 0 }, "{mistake:?}: {r:?}");
    }
}

#[test]
fn waits_that_nothing_can_end() {
    for (mistake, on) in [(Mistake::Nothing, "nothing"), (Mistake::Watch, "memory watch 0")] {
        let r = reasons(mistake);
        let [StallReason::Waiting { rank: 0, on: what, .. }] = &r[..] else { panic!("{r:?}") };
        assert_eq!(what, on, "{mistake:?}");
    }
}

#[test]
fn a_run_that_is_not_stuck_is_cut_at_its_limit_and_goes_on() {
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
    for rank in 0..2 {
        let program = Stuck::new(rank, Mistake::Nothing);
        world.add_program(HostId(rank), machine::core(0), Time::ZERO, program);
    }
    // The programs connect within a few microseconds; before that, the limit is what ends it.
    for ns in [1, 10, 100, 1000] {
        assert_eq!(world.run(Time::ZERO + Span::from_ns(ns)), RunEnd::TimeLimit);
        assert!(world.now() <= Time::ZERO + Span::from_ns(ns));
    }
    assert!(matches!(world.run(Time::MAX), RunEnd::NoProgress(_)));
    assert!(matches!(world.run(Time::MAX), RunEnd::NoProgress(_)), "and stays so");
}
