//! The engine room: event order, random streams, trace hash, and the small tools that every
//! simulated component uses.
//!
//! The order of events is a function of the model alone: key = (time, class, tie, origin,
//! origin's own counter). The global order of insertion is not part of it, so a run may later
//! be split at islands over threads and stay the same bit for bit. The engine knows no
//! component; an event is a small `Copy` value that the owner interprets.

mod heap;
pub mod key;
pub mod noise;
pub mod observe;
pub mod out;
mod queue;
pub mod rng;
pub mod series;
pub mod slab;
pub mod stats;
pub mod trace;
pub mod watchdog;

use std::fmt;

use doorbell_core::units::Time;

pub use key::{Class, ComponentId};
pub use noise::{NoiseTable, NoiseTableError};
pub use observe::Timeline;
pub use out::Out;
pub use rng::SimRng;
pub use slab::Slab;
pub use stats::{Busy, Counter64};
pub use trace::TraceHash;
pub(crate) use trace::fnv1a;
pub use watchdog::Progress;

use key::{Key, MAX_COMPONENTS, MAX_EVENTS_PER_COMPONENT};
pub use queue::Popped;
use queue::Queue;
use trace::ComponentTrace;

/// Events at one instant beyond which the run is taken for a livelock. A switch of 10⁴ ports
/// that handles a burst at one picosecond stays a hundred times below.
pub const LIVELOCK_EVENTS: u64 = 1_000_000;

/// Why the engine cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineError {
    /// More than [`LIVELOCK_EVENTS`] events at one instant: some component answers an event
    /// with another at the same time, for ever.
    Livelock {
        /// The instant.
        at: Time,
        /// The component that scheduled the event at which the limit was passed.
        component: String,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Livelock { at, component } => write!(
                f,
                "livelock: over {LIVELOCK_EVENTS} events at {at}, the next one by {component}"
            ),
        }
    }
}

impl std::error::Error for EngineError {}

/// What the engine keeps per component; one cache line serves a schedule and a trace.
#[derive(Clone, Debug)]
struct Component {
    /// Events scheduled so far: orders this component's events of one instant and class.
    scheduled: u64,
    trace: ComponentTrace,
    name: Box<str>,
}

/// The clock and the event queue of one run.
///
/// ```
/// use doorbell_core::units::{Span, Time};
/// use doorbell_sim::engine::{Class, Engine};
///
/// let mut engine = Engine::new(42);
/// let port = engine.add_component("switch/port0");
/// engine.schedule(port, Time::from_ps(80), Class::Arrival, 3);
/// while let Some((now, _, hops)) = engine.pop()? {
///     engine.trace(port, 0, hops, 0);
///     if hops > 0 {
///         engine.schedule(port, now + Span::from_ns(1), Class::Arrival, hops - 1);
///     }
/// }
/// assert_eq!(engine.now(), Time::from_ps(3_080));
/// println!("trace hash {}", engine.trace_hash());
/// # Ok::<(), doorbell_sim::engine::EngineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine<E: Copy> {
    seed: u64,
    now: Time,
    queue: Queue<E>,
    components: Vec<Component>,
    /// Pending events that were scheduled as periodic.
    periodic: usize,
    events: u64,
    /// Events popped at `now`.
    events_at_now: u64,
}

impl<E: Copy> Engine<E> {
    /// An engine at time zero. `seed` decides ties between equal events of different origins,
    /// and names the run's random streams.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            queue: Queue::new(seed),
            components: Vec::new(),
            periodic: 0,
            events: 0,
            events_at_now: 0,
        }
    }

    /// Registers a component. The order of registration enters ties and the trace hash, so it
    /// must follow from the configuration; observers come after all others, so that switching
    /// them on moves nobody's id.
    ///
    /// # Panics
    /// At more than [`MAX_COMPONENTS`] components.
    pub fn add_component(&mut self, name: &str) -> ComponentId {
        let id = self.components.len() as u32;
        assert!(id < MAX_COMPONENTS, "more than {MAX_COMPONENTS} components");
        let trace = ComponentTrace::default();
        self.components.push(Component { scheduled: 0, trace, name: name.into() });
        ComponentId(id)
    }

    /// The name given to [`add_component`](Self::add_component).
    pub fn component_name(&self, c: ComponentId) -> &str {
        &self.components[c.0 as usize].name
    }

    /// Components registered.
    pub fn components(&self) -> usize {
        self.components.len()
    }

    /// The present: the time of the last event popped.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Events pending.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Events popped since the start.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Some of the events that come next, in order, or none: those that it costs nothing to name.
    /// Others may still come before and between them.
    pub fn at_hand(&self) -> impl Iterator<Item = &E> {
        self.queue.at_hand()
    }

    /// When the next event happens.
    pub fn peek_time(&self) -> Option<Time> {
        self.queue.peek().map(|key| Time::from_ps(key.time))
    }

    /// Schedules `event` of `origin` at `at`. At [`Time::MAX`], "never", nothing is scheduled.
    ///
    /// # Panics
    /// When `at` is in the past: a modelling error of `origin`, which the message names.
    #[inline]
    pub fn schedule(&mut self, origin: ComponentId, at: Time, class: Class, event: E) {
        self.insert(origin, at, class, event, false);
    }

    /// As [`schedule`](Self::schedule), for an event that goes on for ever without doing any
    /// work: observation instants, housekeeping. It does not keep a run alive, see
    /// [`only_periodic_left`](Self::only_periodic_left).
    pub fn schedule_periodic(&mut self, origin: ComponentId, at: Time, class: Class, event: E) {
        self.insert(origin, at, class, event, true);
    }

    /// Schedules everything in `out` for `origin`, each event turned into the owner's by `wrap`.
    #[inline]
    pub fn schedule_all<X: Copy>(
        &mut self,
        origin: ComponentId,
        out: &mut Out<X>,
        mut wrap: impl FnMut(X) -> E,
    ) {
        out.take_each(|at, class, event| self.insert(origin, at, class, wrap(event), false));
    }

    #[inline]
    fn insert(&mut self, origin: ComponentId, at: Time, class: Class, event: E, periodic: bool) {
        if at < self.now {
            self.refuse_past(origin, at);
        }
        if at == Time::MAX {
            return;
        }
        let component = &mut self.components[origin.0 as usize];
        let counter = component.scheduled;
        component.scheduled += 1;
        assert!(counter < MAX_EVENTS_PER_COMPONENT, "too many events of {}", component.name);
        self.periodic += usize::from(periodic);
        self.queue.push(Key::new(at.as_ps(), class, origin, counter, periodic), event);
    }

    #[cold]
    fn refuse_past(&self, origin: ComponentId, at: Time) -> ! {
        let name = self.component_name(origin);
        panic!("{name} schedules an event at {at}, but it is already {}", self.now);
    }

    /// Takes the next event and moves the clock to it; `None` when nothing is pending.
    ///
    /// # Errors
    /// [`EngineError::Livelock`]; the event stays pending and the error repeats.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<(Time, Class, E)>, EngineError> {
        match self.pop_by(Time::MAX)? {
            Popped::Next(next) => Ok(Some(next)),
            Popped::Later | Popped::Nothing => Ok(None),
        }
    }

    /// As [`pop`](Self::pop), but only an event at `limit` or before.
    ///
    /// # Errors
    /// As [`pop`](Self::pop).
    #[inline]
    pub fn pop_by(&mut self, limit: Time) -> Result<Popped<(Time, Class, E)>, EngineError> {
        if self.events_at_now >= LIVELOCK_EVENTS {
            self.check_livelock()?;
        }
        let (key, event) = match self.queue.pop_by(limit.as_ps()) {
            Popped::Next(next) => next,
            Popped::Later => return Ok(Popped::Later),
            Popped::Nothing => return Ok(Popped::Nothing),
        };
        let time = Time::from_ps(key.time);
        debug_assert!(time >= self.now, "the queue went back in time");
        self.events_at_now = if time == self.now { self.events_at_now + 1 } else { 1 };
        self.now = time;
        self.events += 1;
        self.periodic -= usize::from(key.is_periodic());
        Ok(Popped::Next((time, key.class(), event)))
    }

    #[cold]
    fn check_livelock(&self) -> Result<(), EngineError> {
        match self.queue.peek() {
            Some(key) if key.time == self.now.as_ps() => Err(EngineError::Livelock {
                at: self.now,
                component: self.component_name(key.origin()).to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Of these, periodic ones.
    pub const fn periodic(&self) -> usize {
        self.periodic
    }

    /// Whether nothing is pending but periodic events (or nothing at all): then nothing will
    /// ever happen again, and unfinished work is a stall. A timer that was cancelled by a
    /// generation number counts as work until its time has come.
    pub fn only_periodic_left(&self) -> bool {
        self.queue.len() == self.periodic
    }

    /// Adds a record to the trace of `c`: the present time, a kind that the component defines,
    /// and two logical ids (host, QPN, PSN, message), never arena indices, which depend on
    /// unrelated things.
    #[inline]
    pub fn trace(&mut self, c: ComponentId, kind: u32, a: u64, b: u64) {
        let now = self.now.as_ps();
        self.components[c.0 as usize].trace.fold(now, kind, a, b);
    }

    /// The hash of the trace of one component, its name included: tells which of them differ
    /// between two runs.
    pub fn component_trace_hash(&self, c: ComponentId) -> TraceHash {
        let component = &self.components[c.0 as usize];
        component.trace.named(&component.name)
    }

    /// Records in the trace of one component.
    pub fn trace_records(&self, c: ComponentId) -> u64 {
        self.components[c.0 as usize].trace.records()
    }

    /// The hash of the run so far.
    pub fn trace_hash(&self) -> TraceHash {
        trace::fold_components(self.components.iter().map(|c| (&*c.name, c.trace)))
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
