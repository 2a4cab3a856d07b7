//! Congestion control: how fast a flow may send.
//!
//! A control is a state machine without a clock. The NIC tells it what happened to one flow, each
//! time with the time, and asks it afterwards for a rate, a window, and the next time at which it
//! wants to be called. Anybody may write one: [`CongestionControl`] is the behaviour of one flow,
//! [`ControlFactory`] its configuration, [`Control::Custom`] the way in.
//!
//! | File | Control |
//! |---|---|
//! | `dcqcn.rs` | rate cuts by marks, recovery by timers and bytes: RoCEv2 |
//! | `ibcc.rs` | an index into a table of gaps: native InfiniBand |
//! | `timely.rs` | rate by the gradient of the round trip time |
//! | `integral.rs` | one integrator on the deviation of the round trip time |
//! | `notify.rs` | the receiver's part: when it tells the sender of marks |
//! | `swings.rs` | how a round trip time moves about its target, for the report |
//!
//! No number here is a float: rates are bits per second in `u64`, times picoseconds, and each file
//! says how wide its fractions are.

mod dcqcn;
mod ibcc;
mod integral;
mod notify;
mod swings;
mod timely;

use std::fmt::Debug;
use std::sync::Arc;

use doorbell_core::units::{BitRate, Span, Time};

pub use dcqcn::{AlphaBits, Dcqcn, DcqcnFlow};
pub use ibcc::{Ibcc, IbccFlow};
pub use integral::{Integral, IntegralFlow};
pub use notify::{CnpScope, Notification};
pub use swings::Swings;
pub use timely::{Timely, TimelyFlow};

/// What a control is told about its flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CcEvent {
    /// A packet leaves the scheduler, retransmissions included.
    Sent {
        /// Its bytes on the wire.
        bytes: u32,
    },
    /// A response has acknowledged something, or brings an echo.
    Ack {
        /// Newly acknowledged, in whole packets of the path MTU.
        bytes: u64,
        /// From the last bit of the newest acknowledged packet that asked for an ACK, at this
        /// side's port, to now. `None`: no such packet, or one that was sent twice.
        rtt: Option<Span>,
        /// It carries BECN: a packet of the flow was marked.
        ecn: bool,
    },
    /// A CNP: packets of the flow were marked.
    Cnp,
    /// A NAK, or a response that passes by a missing one: something was lost.
    Nak,
    /// The ack timer has expired.
    Timeout,
    /// The time that [`CongestionControl::next_deadline`] gave has come.
    Timer,
}

/// The congestion control of one flow.
pub trait CongestionControl: Debug + Send {
    /// Something has happened. `now` never goes back. After [`CcEvent::Timer`] the next deadline
    /// must lie later than `now`, or be gone.
    fn on_event(&mut self, now: Time, event: CcEvent);

    /// How fast the flow may send, in bits on the wire per second. `None`, or the line rate and
    /// more: as fast as it can.
    fn rate(&self) -> Option<BitRate>;

    /// Payload bytes that may be unacknowledged, rounded down to packets, at least one. It takes
    /// effect at the next packet or response. `None`: no limit. Ignored where several QPs share the
    /// flow.
    fn window(&self) -> Option<u64> {
        None
    }

    /// When it wants [`CcEvent::Timer`]. While the flow has nothing to send it may be called
    /// later, once for each deadline that has passed, with the deadline as the time.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// How the round trip time moved about its target, for the report; `None` where the control has
    /// no such target.
    fn swings(&self) -> Option<Swings> {
        None
    }

    /// Whether it looks at round trip times, which cost the NIC a note per packet.
    fn samples_rtt(&self) -> bool {
        true
    }
}

/// What shares one rate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FlowScope {
    /// Each QP has its own.
    Qp,
    /// All QPs of a port with the same service level share one, which their packets take in turn.
    Sl,
}

/// Configuration of a [`CongestionControl`]: makes one per flow.
pub trait ControlFactory: Debug + Send + Sync {
    /// The control of a new flow on a port of this rate.
    fn build(&self, line: BitRate) -> Box<dyn CongestionControl>;

    /// What shares one control.
    fn scope(&self) -> FlowScope {
        FlowScope::Qp
    }
}

/// The congestion control of a NIC.
#[derive(Clone, Debug, Default)]
pub enum Control {
    /// Every flow sends as fast as it can; CNPs are counted as ignored.
    #[default]
    None,
    /// Data Center QCN.
    Dcqcn(Dcqcn),
    /// The congestion control of native InfiniBand.
    Ibcc(Arc<Ibcc>),
    /// By the gradient of the round trip time.
    Timely(Timely),
    /// By an integrator.
    Integral(Integral),
    /// Somebody else's.
    Custom(Arc<dyn ControlFactory>),
}

impl Control {
    /// What shares one rate.
    pub fn scope(&self) -> FlowScope {
        match self {
            Self::Ibcc(cfg) => cfg.scope,
            Self::Custom(factory) => factory.scope(),
            _ => FlowScope::Qp,
        }
    }

    /// The control of a new flow on a port of this rate; `None` for [`Control::None`].
    pub fn build(&self, line: BitRate) -> Option<Flow> {
        Some(match self {
            Self::None => return None,
            Self::Dcqcn(cfg) => Flow::Dcqcn(Box::new(cfg.build(line))),
            Self::Ibcc(cfg) => Flow::Ibcc(Ibcc::build(cfg, line)),
            Self::Timely(cfg) => Flow::Timely(Box::new(cfg.build(line))),
            Self::Integral(cfg) => Flow::Integral(Box::new(cfg.build(line))),
            Self::Custom(factory) => Flow::Custom(factory.build(line)),
        })
    }
}

/// Both sides of congestion control on a NIC.
#[derive(Clone, Debug, Default)]
pub struct Congestion {
    /// What a sender does.
    pub control: Control,
    /// What a receiver does with marked packets. `None`: it only counts them.
    pub notify: Option<Notification>,
    /// A change of the rate leaves the gap that runs as it is, and holds from the next packet on.
    /// Otherwise what is left of the gap stretches or shrinks with it. On: a flow that was cut to
    /// 100 Mb/s, 83 us for a packet of 1 KB, comes back up to so much later, and flows that are
    /// given back their rates together do not come together. The HPCC simulator does so.
    pub keep_gap: bool,
}

impl Congestion {
    /// No control; marks are counted and nothing else.
    pub const NONE: Self = Self { control: Control::None, notify: None, keep_gap: false };
}

/// A control at work. Built-ins cost no dynamic call per packet.
#[derive(Debug)]
pub enum Flow {
    /// DCQCN.
    Dcqcn(Box<DcqcnFlow>),
    /// Native InfiniBand's.
    Ibcc(IbccFlow),
    /// TIMELY.
    Timely(Box<TimelyFlow>),
    /// The integrator.
    Integral(Box<IntegralFlow>),
    /// Somebody else's.
    Custom(Box<dyn CongestionControl>),
}

macro_rules! each {
    ($self:expr, $c:ident => $call:expr) => {
        match $self {
            Flow::Dcqcn($c) => $call,
            Flow::Ibcc($c) => $call,
            Flow::Timely($c) => $call,
            Flow::Integral($c) => $call,
            Flow::Custom($c) => $call,
        }
    };
}

impl CongestionControl for Flow {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        each!(self, c => c.on_event(now, event));
    }
    fn rate(&self) -> Option<BitRate> {
        each!(self, c => c.rate())
    }
    fn window(&self) -> Option<u64> {
        each!(self, c => c.window())
    }
    fn next_deadline(&self) -> Option<Time> {
        each!(self, c => c.next_deadline())
    }
    fn samples_rtt(&self) -> bool {
        each!(self, c => c.samples_rtt())
    }
    fn swings(&self) -> Option<Swings> {
        each!(self, c => c.swings())
    }
}

/// `value * num / den`, without overflow in between; saturates.
const fn mul_div(value: u64, num: u64, den: u64) -> u64 {
    let v = value as u128 * num as u128 / den as u128;
    if v > u64::MAX as u128 { u64::MAX } else { v as u64 }
}
