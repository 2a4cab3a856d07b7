//! Runs a program on a handle: steps it, waits for what it waits for, and lets nothing hang.

use core::fmt;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use doorbell_core::transport::{CqId, Next, Program, QpId, Transport, WaitSet};
use doorbell_core::units::Time;

use super::objects::Errno;
use super::sys::errno;
use super::transport::HwTransport;

/// How a program waits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum WaitMode {
    /// Steps again at once: lowest latency, one core busy.
    #[default]
    Poll,
    /// Sleeps until a completion event, an asynchronous event, news of a peer or the deadline.
    /// Costs an interrupt and a wake-up, microseconds each, and a second step for each sleep.
    Event,
    /// Polls for so long, then sleeps.
    SpinThenEvent(Duration),
}

/// Limits and ways of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RunConfig {
    /// How to wait.
    pub wait: WaitMode,
    /// The whole run. Must cover the longest run that is meant: a run that reaches it is an error.
    pub limit: Duration,
    /// Time without a completion, an event or news of a peer, while the program waits without a
    /// deadline of its own. Must cover the longest pause of a peer.
    pub idle: Duration,
    /// Whether the death of a peer is the program's affair: it goes on, and sees errors of its own
    /// requests. Otherwise the run ends and names the peer.
    pub outlive_peers: bool,
}

impl Default for RunConfig {
    /// Polling, ten minutes, thirty seconds without news, and the death of a peer ends the run.
    fn default() -> Self {
        Self {
            wait: WaitMode::Poll,
            limit: Duration::from_secs(600),
            idle: Duration::from_secs(30),
            outlive_peers: false,
        }
    }
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunReport {
    /// Steps of the program.
    pub steps: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Requests that were staged and never rung, by QP.
    pub unrung: Vec<(QpId, u32)>,
    /// Requests that were rung and whose completion was not polled: the unsignalled tail, or work
    /// that the program did not wait for.
    pub outstanding: Vec<(QpId, u32)>,
}

/// A run that did not end well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunError {
    /// The program waits for a completion queue that it has not polled to empty in the same step:
    /// it could sleep on a completion that is already there.
    Unpolled {
        /// Which.
        cq: CqId,
    },
    /// The program waits for nothing, without a deadline: it could never step again.
    WaitsForNothing {
        /// Requests staged and not rung.
        unrung: Vec<(QpId, u32)>,
    },
    /// Nothing has happened for [`RunConfig::idle`].
    Idle {
        /// What the program waits for.
        on: WaitSet,
        /// For how long.
        waited: Duration,
        /// Requests staged and not rung.
        unrung: Vec<(QpId, u32)>,
        /// Requests rung and not completed.
        outstanding: Vec<(QpId, u32)>,
    },
    /// The run took longer than [`RunConfig::limit`].
    Limit {
        /// The limit.
        limit: Duration,
        /// Steps so far.
        steps: u64,
    },
    /// The connection to a peer was lost before it was done.
    PeerLost {
        /// Which.
        rank: u32,
    },
    /// The device is gone: it was removed or reset, or has failed. Everything on it is lost.
    DeviceLost {
        /// Which.
        device: String,
    },
    /// Arming a completion queue or waiting for events failed.
    Os(Errno),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpolled { cq } => {
                write!(f, "the program waits for {cq:?} and has not polled it to empty")
            }
            Self::WaitsForNothing { unrung } => {
                f.write_str("the program waits for nothing and has no deadline")?;
                each(f, unrung, "staged and not rung")
            }
            Self::Idle { on, waited, unrung, outstanding } => {
                let waited = millis(*waited);
                write!(f, "no progress for {waited} s while waiting for {on}")?;
                each(f, unrung, "staged and not rung")?;
                each(f, outstanding, "rung and not completed")?;
                f.write_str(". Is the peer alive, has it posted receives, is the doorbell rung?")
            }
            Self::Limit { limit, steps } => {
                write!(f, "not done after {} s and {steps} steps", millis(*limit))
            }
            Self::PeerLost { rank } => {
                write!(f, "the connection to rank {rank} was lost before it was done: ")?;
                f.write_str("look at its output, and whether its process or its node died")
            }
            Self::DeviceLost { device } => write!(
                f,
                "the device {device} is gone: it was removed, was reset or has failed; look at \
                 `rdma link` and at the kernel's log"
            ),
            Self::Os(e) => write!(f, "waiting for events: {e}"),
        }
    }
}

impl core::error::Error for RunError {}

/// Seconds to the millisecond, so that nobody reads rounding as precision.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

fn each(f: &mut fmt::Formatter<'_>, list: &[(QpId, u32)], what: &str) -> fmt::Result {
    list.iter().try_for_each(|(qp, n)| write!(f, "; {qp:?}: {n} {what}"))
}

/// Steps `program` until it is done.
///
/// # Errors
/// See [`RunError`]. The handle can be used afterwards.
pub fn run<P: Program>(
    t: &mut HwTransport,
    program: &mut P,
    config: &RunConfig,
) -> Result<RunReport, RunError> {
    let started = Instant::now();
    let mut run = Run {
        t,
        config: *config,
        started,
        looked: started,
        quiet_since: started,
        busy: true,
        happened: 0,
        report: RunReport::default(),
    };
    loop {
        let next = run.step(program)?;
        let (on, until) = match next {
            Next::Done => return Ok(run.finish()),
            Next::Again => {
                run.busy = true;
                continue;
            }
            Next::Wait { on, until } => (on, until),
        };
        run.check(on, until)?;
        if run.wants_sleep() {
            // Whatever became ready between the poll and the arming is seen by the second step.
            run.t.arm(on).map_err(RunError::Os)?;
            match run.step(program)? {
                Next::Done => return Ok(run.finish()),
                Next::Again => run.busy = true,
                Next::Wait { on: now_on, until } => {
                    run.check(now_on, until)?;
                    if now_on == on {
                        run.sleep(on, until)?;
                    }
                }
            }
        }
    }
}

struct Run<'a> {
    t: &'a mut HwTransport,
    config: RunConfig,
    started: Instant,
    /// When limits, peers and events were looked at last.
    looked: Instant,
    /// When something happened last, or when the program began to wait without a deadline.
    quiet_since: Instant,
    /// The program has done something else than to wait without a deadline since then.
    busy: bool,
    happened: u64,
    report: RunReport,
}

impl Run<'_> {
    fn step<P: Program>(&mut self, program: &mut P) -> Result<Next, RunError> {
        // Looking at the bootstrap and at events costs more than a poll that finds nothing; both
        // are about waiting, so they need not happen in each step, unless steps are long.
        if self.report.steps.is_multiple_of(16) || self.looked.elapsed() >= LOOK {
            self.look()?;
        }
        self.report.steps += 1;
        self.t.begin_step();
        Ok(program.step(self.t))
    }

    /// News of peers, and the limits.
    fn look(&mut self) -> Result<(), RunError> {
        if self.t.bootstrap.poll() {
            self.t.happened += 1;
        }
        if let (Some(rank), false) = (self.t.bootstrap.lost_peer(), self.config.outlive_peers) {
            return Err(RunError::PeerLost { rank });
        }
        // One that the program does not wait for would keep the descriptor readable for ever.
        self.t.take_events();
        if self.t.device_lost {
            return Err(RunError::DeviceLost { device: self.t.device().name().name.clone() });
        }
        let now = Instant::now();
        self.looked = now;
        if self.t.happened != self.happened {
            (self.happened, self.quiet_since) = (self.t.happened, now);
        }
        if now - self.started >= self.config.limit {
            let (limit, steps) = (self.config.limit, self.report.steps);
            return Err(RunError::Limit { limit, steps });
        }
        Ok(())
    }

    /// The rules of a wait.
    fn check(&mut self, on: WaitSet, until: Option<Time>) -> Result<(), RunError> {
        let unpolled = on.cq_indices().find(|i| self.t.emptied >> i & 1 == 0);
        if let Some(i) = unpolled {
            let cq = self.t.cqs.at_mut(i as usize).map_or(CqId::new(i, 0, 0), |(id, _)| id);
            return Err(RunError::Unpolled { cq });
        }
        if until.is_some() {
            self.busy = true;
            return Ok(());
        }
        if core::mem::take(&mut self.busy) {
            self.quiet_since = Instant::now();
        }
        if on.is_empty() {
            return Err(RunError::WaitsForNothing { unrung: self.t.unrung() });
        }
        let waited = self.quiet_since.elapsed();
        if waited >= self.config.idle && self.t.happened == self.happened {
            let (unrung, outstanding) = (self.t.unrung(), self.t.outstanding());
            return Err(RunError::Idle { on, waited, unrung, outstanding });
        }
        Ok(())
    }

    fn wants_sleep(&self) -> bool {
        match self.config.wait {
            WaitMode::Poll => false,
            WaitMode::Event => true,
            WaitMode::SpinThenEvent(spin) => {
                self.t.happened == self.happened && self.quiet_since.elapsed() >= spin
            }
        }
    }

    /// Sleeps until a descriptor is readable, the deadline has come, or a limit is due.
    fn sleep(&mut self, on: WaitSet, until: Option<Time>) -> Result<(), RunError> {
        let before = self.t.happened;
        self.look()?;
        // What that look has taken in would wake nobody any more.
        if self.t.happened != before
            || self.t.changed(on)
            || on.intersects(WaitSet::EVENTS) && !self.t.events.is_empty()
        {
            return Ok(());
        }
        let mut most = self.config.idle.min(SLEEP);
        if let Some(until) = until {
            let left = until.as_ps().saturating_sub(self.t.now().as_ps());
            most = most.min(Duration::from_nanos(left / 1000));
        }
        // Memory has no descriptor, and some bootstraps have none.
        let unseen = on.watch_indices().next().is_some() || self.t.bootstrap.fd().is_none();
        if unseen {
            most = most.min(GLANCE);
        }
        let bootstrap = self.t.bootstrap.fd().map_or(-1, |fd| fd.as_raw_fd());
        let mut fds = [self.t.channel.fd(), self.t.device.context().async_fd(), bootstrap]
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let timeout = libc::timespec {
            tv_sec: most.as_secs().cast_signed(),
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        // SAFETY: the descriptors are open (a negative one is skipped), the timeout is ours.
        let rc = unsafe {
            libc::ppoll(fds.as_mut_ptr(), fds.len() as u64, &raw const timeout, core::ptr::null())
        };
        self.report.sleeps += 1;
        if rc < 0 && errno() != libc::EINTR {
            return Err(RunError::Os(Errno(errno())));
        }
        if rc > 0 && fds[1].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            self.t.device_lost = true;
        }
        self.t.drain_channel();
        self.look()
    }

    fn finish(self) -> RunReport {
        let (unrung, outstanding) = (self.t.unrung(), self.t.outstanding());
        RunReport { unrung, outstanding, ..self.report }
    }
}

/// Longest sleep: limits are looked at so often. In tests so long that a sleep which nobody ends
/// shows as silence.
const SLEEP: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 200 });
/// Longest time between two looks at limits, peers and events.
const LOOK: Duration = Duration::from_millis(1);
/// Longest sleep while something is waited for that wakes nobody.
const GLANCE: Duration = Duration::from_micros(50);

impl HwTransport {
    /// What a step sees begins here.
    fn begin_step(&mut self) {
        self.emptied = 0;
        let Self { watches, mrs, happened, .. } = self;
        for (_, watch) in watches.iter_mut() {
            let Ok(region) = mrs.get(watch.range.mr) else { continue };
            let now = &mut watch.now;
            // The range was checked when the watch was made.
            if region.copy_out(watch.range.offset, now).is_ok() && *now != watch.seen {
                core::mem::swap(now, &mut watch.seen);
                *happened += 1;
            }
        }
    }

    /// Whether memory that is watched differs from what the step began with.
    fn changed(&mut self, on: WaitSet) -> bool {
        let Self { watches, mrs, .. } = self;
        watches.iter_mut().filter(|(id, _)| on.intersects(WaitSet::watch(*id))).any(|(_, w)| {
            let region = mrs.get(w.range.mr);
            region.is_ok_and(|r| r.copy_out(w.range.offset, &mut w.now).is_ok() && w.now != w.seen)
        })
    }

    /// Requests staged and not rung.
    pub fn unrung(&self) -> Vec<(QpId, u32)> {
        let staged = self.qps.iter().map(|(id, slot)| (id, slot.pair.staged()));
        staged.filter(|(_, n)| *n > 0).collect()
    }

    /// Requests rung and not retired.
    pub fn outstanding(&self) -> Vec<(QpId, u32)> {
        let rung = self.qps.iter().map(|(id, slot)| (id, slot.pair.outstanding()));
        rung.filter(|(_, n)| *n > 0).collect()
    }
}
