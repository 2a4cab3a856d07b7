//! A capture that does not keep up: what an analyser of so many packets per second has of a port.
//!
//! It is a server with one place to wait: the time of a packet is one over the rate, and what comes
//! while one is written and one waits is missed. So of a stream above its rate it has that rate,
//! whatever the stream's rhythm is.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use doorbell_core::units::{Span, Time};
use doorbell_sim::capture::{CaptureSink, Direction, Interface, Seen};
use doorbell_sim::world::World;

use super::{Metric, Outcome};
use crate::format::Record;

/// Picoseconds of a second.
const SECOND: u64 = 1_000_000_000_000;

/// What one direction of a port showed.
#[derive(Copy, Clone, Default)]
struct Stream {
    /// When all that was taken is written.
    free_at: Time,
    seen: u64,
    recorded: u64,
}

/// Streams by port and direction; `true`: what the port received.
type Streams = BTreeMap<(u32, bool), Stream>;

/// What the taps of a run have counted.
#[derive(Clone, Default)]
pub(super) struct Taps {
    names: Arc<Mutex<Vec<String>>>,
    streams: Arc<Mutex<Streams>>,
}

/// The tap in front of a file, or of nothing.
struct Tap {
    each: Span,
    taps: Taps,
    inner: Option<Box<dyn CaptureSink>>,
}

/// Lets the world be captured: to `inner` if there is one, through a tap if the file has one.
pub(super) fn start(
    record: &Record,
    inner: Option<Box<dyn CaptureSink>>,
    world: &mut World,
) -> Option<Taps> {
    let Some(rate) = record.tap else {
        inner.into_iter().for_each(|sink| world.capture_to(sink));
        return None;
    };
    let each = Span::from_ps((SECOND / rate.0.0).max(1));
    let taps = Taps::default();
    world.capture_to(Box::new(Tap { each, taps: taps.clone(), inner }));
    Some(taps)
}

impl Taps {
    /// What of each port and direction that had packets was seen and recorded.
    pub fn report(&self, out: &mut Outcome) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for ((port, inbound), s) in streams.iter() {
            let way = if *inbound { "in" } else { "out" };
            let name = format!("tap.{}.{way}", names[*port as usize]);
            let mut put = |what: &str, m| out.metrics.insert(format!("{name}.{what}"), m);
            put("seen", Metric::count(s.seen));
            put("recorded", Metric::count(s.recorded));
            put("share", Metric::ratio(s.recorded, s.seen));
        }
    }
}

impl CaptureSink for Tap {
    fn interface(&mut self, interface: &Interface) {
        let mut names = self.taps.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(interface.name.clone());
        if let Some(inner) = &mut self.inner {
            inner.interface(interface);
        }
    }

    fn packet(&mut self, seen: &Seen<'_>) {
        let key = (seen.interface, seen.direction == Direction::Inbound);
        let mut streams = self.taps.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let s = streams.entry(key).or_default();
        s.seen += 1;
        // One is written until then, at most, and this one would wait.
        if s.free_at > seen.at + self.each {
            return;
        }
        s.free_at = s.free_at.max(seen.at) + self.each;
        s.recorded += 1;
        if let Some(inner) = &mut self.inner {
            inner.packet(seen);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.finish())
    }
}

#[cfg(test)]
mod tests {
    use crate::run::simulate_tests::{number, outcome};

    /// A stream of 100 Gb/s in packets of 4178 B, 2.99 M/s, for 65 us and more.
    const TEXT: &str = "host = 'ideal'\n[topology]\nrate = '100Gbps'\n[[program]]\n\
                        kind = 'bandwidth'\nsize = '64KiB'\niterations = 200\nwindow = 8\n";

    #[test]
    fn a_tap_has_its_rate_of_a_faster_stream_and_all_of_a_slower_one() {
        let o = outcome(TEXT, &["record.tap=500K/s"]);
        let of = |what: &str| number(&o, &format!("tap.host1.port0.in.{what}"));
        assert_eq!(of("seen"), 3200.0);
        let share = of("share");
        assert!((share - 0.5e6 * 334.24e-9).abs() < 0.003, "{share}");
        assert_eq!(of("recorded"), (share * 3200.0).round());
        assert!(number(&o, "tap.host1.port0.out.seen") >= 200.0, "acknowledgements");
        let o = outcome(TEXT, &["record.tap=3M/s"]);
        assert_eq!(number(&o, "tap.host1.port0.in.share"), 1.0);
        let without = outcome(TEXT, &[]);
        assert!(without.find("tap.host1.port0.in.seen").is_none());
        assert_eq!(without.trace_hash, o.trace_hash, "a tap changes nothing");
    }
}
