//! Closed forms of loss recovery, and the points at which runs are held against them: on a
//! [line](crate::line), where all that the forms leave out is absent, and on whole
//! [machines](machine).
//!
//! All times are in packets' times at the port. W: packets in the loop from a loss to its
//! retransmission; p: loss of requests; q: loss of NAKs; T: what the ack timer waits; C: packets in
//! flight at most.

pub mod machine;

use doorbell_core::units::{Ratio, Span};
use doorbell_sim::rc::{Recovery, SelectiveRepeat};

use crate::line::Line;

/// How far a point may be from its form, as a share of the form.
pub const BOUND: f64 = 0.05;
/// Most that chance may add to a point (one standard deviation), as a share of the form.
const CHANCE: f64 = 0.015;
/// Timeouts of a point at which waiting for the timer is more than [`BOUND`] of the form.
pub const TIMEOUTS: u64 = 100;

/// A closed form at a point.
#[derive(Copy, Clone, Debug)]
pub struct Form {
    /// Mean time of a delivered packet.
    pub per_packet: f64,
    /// The part of it that is waiting for the ack timer.
    pub timer: f64,
    /// Packets to deliver, so that chance does not decide about the point.
    pub packets: u64,
}

/// Go-Back-N: a loss costs the loop, and T when its retransmission or its NAK is lost too:
/// (1 + (W - 1) p) / (1 - p) + p (p + q) T.
pub fn go_back_n(w: f64, p: f64, q: f64, t: f64) -> Form {
    form((1.0 + (w - 1.0) * p) / (1.0 - p), (p, w), (p * (p + q), t))
}

/// Go-Back-N with the NAK repeated for a packet that comes `every` packets after the last one, for
/// few losses (p W well below 1): time of a delivered packet. The retransmission comes W - 1
/// packets behind the one that showed the gap, so there are floor((W - 2) / every) repetitions;
/// each makes the sender go back anew, and what it sent since the last time was sent for nothing.
/// 1 + p (W - 1 + every floor((W - 2) / every)).
pub fn go_back_n_repeated(w: f64, p: f64, every: f64) -> f64 {
    1.0 + p * (w - 1.0 + every * ((w - 2.0) / every).floor())
}

/// Selective repeat, as [`SelectiveRepeat`] derives it.
pub fn selective_repeat(w: f64, c: f64, p: f64, t: f64) -> Form {
    let short = (2.0 * w - c).max(0.0);
    let stalls = p / (1.0 + p * c);
    let together = 1.0 + p * p * c;
    let waits = p * p / together / (1.0 - p * together);
    form(1.0 / (1.0 - p) + stalls * short, (stalls, short), (waits, (t + 2.0 * w - c).max(0.0)))
}

/// Of the time without timeouts, and rate and cost of stalls and of timeouts.
fn form(without: f64, stalls: (f64, f64), timeouts: (f64, f64)) -> Form {
    let timer = timeouts.0 * timeouts.1;
    let per_packet = without + timer;
    // Both come as Poisson processes: their variances add.
    let variance = |(rate, cost): (f64, f64)| rate * cost * cost;
    let wanted = CHANCE * per_packet;
    let calm = (variance(stalls) + variance(timeouts)) / (wanted * wanted);
    // Half as many again as have to be seen.
    let seen = if timer > BOUND * per_packet { 1.5 * TIMEOUTS as f64 / timeouts.0 } else { 0.0 };
    Form { per_packet, timer, packets: calm.max(seen).max(200.0 / stalls.0) as u64 }
}

/// Packets in the loop at which Go-Back-N leaves `share` of the line; `None`: not even the shortest
/// loop leaves it.
pub fn loop_that_leaves(share: f64, p: f64, q: f64, t: f64) -> Option<f64> {
    let left = 1.0 / share - p * (p + q) * t;
    Some(1.0 + (left * (1.0 - p) - 1.0) / p).filter(|w| *w >= 1.0)
}

/// A point on the line.
#[derive(Clone, Debug)]
pub struct Point {
    /// The run.
    pub line: Line,
    /// What the closed form says.
    pub form: Form,
    /// Packets in flight at most, for selective repeat.
    pub cap: Option<u32>,
}

/// Time of a packet on the line of these points. The forms do not depend on it.
const PACKET: Span = Span::from_ns(80);

fn value(r: Ratio) -> f64 {
    r.num as f64 / r.den as f64
}

fn per_mille(n: u64) -> Ratio {
    Ratio::new(n, 1000).expect("a thousand is not zero")
}

/// A point whose form and packets are still to be said.
fn on_line(recovery: Recovery, loop_packets: u32, loss: u64, nak_loss: u64, loops: u64) -> Line {
    Line {
        recovery,
        loop_packets,
        packet: PACKET,
        timeout: PACKET * (u64::from(loop_packets) * loops),
        nak_repeat: None,
        loss: per_mille(loss),
        nak_loss: per_mille(nak_loss),
        packets: 0,
        seed: 1,
    }
}

/// Go-Back-N: four loops, four losses, and four pairs of a loss of NAKs and a timer in loops.
pub fn go_back_n_points() -> Vec<Point> {
    let mut points = Vec::new();
    for w in [20, 75, 150, 370] {
        for loss in [1, 3, 10, 20] {
            for (nak_loss, loops) in [(0, 10), (0, 100), (100, 20), (300, 10)] {
                let mut line = on_line(Recovery::GoBackN, w, loss, nak_loss, loops);
                let t = f64::from(w) * loops as f64;
                let form = go_back_n(w.into(), value(line.loss), value(line.nak_loss), t);
                line.packets = form.packets;
                points.push(Point { line, form, cap: None });
            }
        }
    }
    points
}

/// Selective repeat: three loops, four losses, and five pairs of a cap in half loops and a timer in
/// loops.
pub fn selective_repeat_points() -> Vec<Point> {
    let mut points = Vec::new();
    for w in [20, 100, 250] {
        for loss in [1, 3, 10, 20] {
            for (halves, loops) in [(2, 20), (3, 20), (4, 20), (8, 20), (8, 100)] {
                let cap = w * halves / 2;
                let recovery = SelectiveRepeat { hold: cap, cap };
                let recovery = Recovery::SelectiveRepeat(recovery);
                let mut line = on_line(recovery, w, loss, 0, loops);
                let t = f64::from(w) * loops as f64;
                let form = selective_repeat(w.into(), cap.into(), value(line.loss), t);
                line.packets = form.packets;
                points.push(Point { line, form, cap: Some(cap) });
            }
        }
    }
    points
}
