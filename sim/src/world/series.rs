//! Queues, links and queue pairs over time.
//!
//! What is read is in two tables, a line for each quantity: [`PORT`] and [`QP`].

use doorbell_core::units::{BitRate, Span, Time};

use super::World;
use crate::cc::Control;
use crate::engine::series::{Kind, Series};
use crate::event::Event;
use crate::fabric::{EgressPort, Fabric, MAX_CLASSES, PauseCounters};
use crate::host::Host;
use crate::nic::{Nic, NicQp};
use crate::wire::{HostId, NodeId, PortId};

/// Numbers that a recorder keeps at most, over all of its tracks: 32 MiB.
pub const MAX_NUMBERS: usize = 1 << 22;

/// What is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesConfig {
    /// Time between two points, at first.
    pub interval: Span,
    /// Points at which neighbours are merged and the interval doubles; even.
    pub points: usize,
    /// Which tracks; none: all of them. See [`Selection`].
    pub select: Selection,
}

/// Which tracks are recorded: a list of patterns, in which `*` stands for any characters.
///
/// A pattern names a subject (`switch0.port3`), all below a name (`host3`: its ports and queue
/// pairs), one quantity of a subject (`switch0.port*.queue_max`), or a group (`queues`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection(pub Vec<String>);

impl Selection {
    /// Whether the track is wanted.
    pub fn takes(&self, subject: &str, quantity: &Quantity) -> bool {
        self.0.is_empty() || self.0.iter().any(|p| fits(p, subject, quantity))
    }

    /// Patterns that none of these tracks fits.
    pub fn idle<'a>(
        &self,
        tracks: impl Iterator<Item = (&'a str, &'a Quantity)> + Clone,
    ) -> Vec<&str> {
        let idle = |p: &&String| !tracks.clone().any(|(subject, q)| fits(p, subject, q));
        self.0.iter().filter(idle).map(String::as_str).collect()
    }
}

fn fits(pattern: &str, subject: &str, quantity: &Quantity) -> bool {
    let below = |name: &str| {
        let ends = name.char_indices().filter(|(_, c)| *c == '.').map(|(i, _)| i);
        ends.chain([name.len()]).any(|end| matches(pattern.as_bytes(), &name.as_bytes()[..end]))
    };
    pattern == quantity.group || below(&format!("{subject}.{}", quantity.name))
}

/// Whether a text is as a pattern with `*` has it. Goes back to the last `*` only: what an earlier
/// one could take as well, the last one can.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            back = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, from)) = back {
            (p, t) = (star, from + 1);
            back = Some((star, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Unit of a quantity.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SeriesUnit {
    /// Bytes.
    Bytes,
    /// Picoseconds.
    Time,
    /// Things.
    Count,
    /// Bits per second.
    Rate,
}

/// A quantity that is read over time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Quantity {
    /// Its group.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: SeriesUnit,
    /// What it is: a level, a peak, or a count.
    pub kind: Kind,
}

const fn quantity(
    group: &'static str,
    name: &'static str,
    unit: SeriesUnit,
    kind: Kind,
) -> Quantity {
    Quantity { group, name, unit, kind }
}

/// A port at an instant.
struct PortView<'a> {
    fabric: &'a mut Fabric,
    node: NodeId,
    port: PortId,
    now: Time,
}

impl PortView<'_> {
    fn egress(&self) -> &EgressPort {
        self.fabric.egress_of(self.node, self.port)
    }

    fn lane_credits(&self) -> Option<u64> {
        let lanes = self.fabric.hosts().first()?.classes() as u8;
        (0..lanes).filter_map(|lane| self.egress().lane_credits(lane)).map(u64::from).min()
    }

    /// Something about pauses, summed over classes; `None` where the link knows none.
    fn pauses(&self, of: fn(&PauseCounters) -> u64) -> Option<u64> {
        let egress = self.egress();
        let class = |c: usize| of(&egress.pauses(self.now, c as u8));
        egress.knows_pauses().then(|| (0..MAX_CLASSES).map(class).sum())
    }

    fn drops(&self) -> u64 {
        let lost = self.fabric.ingress_of(self.node, self.port).lost();
        self.egress().counters(self.now).dropped.total().plus(lost.total()).packets
    }
}

type OfPort = fn(&mut PortView<'_>) -> Option<u64>;
type OfQp = fn(&Nic, &NicQp) -> Option<u64>;

use Kind::{Count, Level, Peak};
use SeriesUnit::{Bytes, Count as Things, Rate, Time as Duration};

/// What is read of each port. `None` where the port has no such thing, now and ever.
///
/// | Name | |
/// |---|---|
/// | `queue` | bytes in the queue, the packet being sent included |
/// | `queue_max` | most of them since the last point |
/// | `sent` | bytes whose transmission has begun |
/// | `busy` | time spent sending |
/// | `starved` | time for which a packet waited and only the far end held it back: no room, or a pause |
/// | `credits` | bytes that the far end still has room for |
/// | `lane_credits` | credits of the virtual lane with the fewest, in blocks of 64 bytes |
/// | `marks` | packets that got an ECN mark |
/// | `paused` | time for which some class was paused |
/// | `pause_frames` | pause frames sent because an input was full, refreshes included |
/// | `drops` | packets that found no room, and those that faults took from the link behind it |
const PORT: [(Quantity, OfPort); 11] = [
    (quantity("queues", "queue", Bytes, Level), |v| Some(v.egress().queue_bytes(v.now))),
    (quantity("queues", "queue_max", Bytes, Peak), |v| {
        Some(v.fabric.take_peak(v.now, v.node, v.port))
    }),
    (quantity("links", "sent", Bytes, Count), |v| Some(v.egress().counters(v.now).sent.bytes)),
    (quantity("links", "busy", Duration, Count), |v| Some(v.egress().busy(v.now).as_ps())),
    (quantity("links", "starved", Duration, Count), |v| {
        v.egress().pushes_back().then(|| v.egress().counters(v.now).blocked.as_ps())
    }),
    (quantity("links", "credits", Bytes, Level), |v| v.egress().credits(v.now)),
    (quantity("links", "lane_credits", Things, Level), |v| v.lane_credits()),
    (quantity("links", "marks", Things, Count), |v| v.egress().marks()),
    (quantity("links", "paused", Duration, Count), |v| {
        v.egress().knows_pauses().then(|| v.egress().paused(v.now).as_ps())
    }),
    (quantity("links", "pause_frames", Things, Count), |v| v.pauses(|p| p.xoff_sent)),
    (quantity("links", "drops", Things, Count), |v| Some(v.drops())),
];

/// What is read of each queue pair.
///
/// | Name | |
/// |---|---|
/// | `delivered` | payload that arrived: of the peer's requests, and of answers to its own |
/// | `retransmitted` | packets that it sent again |
/// | `outstanding` | packets that it sent and that have no answer yet |
/// | `rate` | what its congestion control allows it; 0: the rate of the line |
const QP: [(Quantity, OfQp); 4] = [
    (quantity("rates", "delivered", Bytes, Count), |_, q| Some(q.stats.rx_payload)),
    (quantity("rates", "retransmitted", Things, Count), |_, q| {
        Some(q.hw_counters().retransmitted_packets)
    }),
    (quantity("rates", "outstanding", Things, Level), |_, q| {
        Some(q.requester.as_ref().map_or(0, |r| r.outstanding().into()))
    }),
    (quantity("rates", "rate", Rate, Level), |nic, q| {
        let controlled = !matches!(nic.rc_config().congestion.control, Control::None);
        controlled.then(|| nic.rate_of(q).map_or(0, BitRate::as_bps))
    }),
];

/// Where a track is read.
#[derive(Copy, Clone, Debug)]
enum Source {
    Port { node: NodeId, port: PortId, of: usize },
    Qp { host: HostId, nic: usize, index: u32, of: usize },
}

impl Source {
    fn quantity(&self) -> &'static Quantity {
        match *self {
            Self::Port { of, .. } => &PORT[of].0,
            Self::Qp { of, .. } => &QP[of].0,
        }
    }

    fn read(self, fabric: &mut Fabric, hosts: &[Host], now: Time) -> u64 {
        match self {
            Self::Port { node, port, of } => {
                PORT[of].1(&mut PortView { fabric, node, port, now }).unwrap_or(0)
            }
            Self::Qp { host, nic, index, of } => {
                let nic = hosts[host.index()].nic(nic);
                nic.qp(index).and_then(|q| QP[of].1(nic, q)).unwrap_or(0)
            }
        }
    }
}

/// A number over time, with its name.
#[derive(Copy, Clone, Debug)]
pub struct Track<'a> {
    /// Whose: `switch0.port3`, `host1.port0`, `host1.qp16`.
    pub subject: &'a str,
    /// What.
    pub quantity: &'static Quantity,
    /// A value for each of [`Recorder::series`]' times.
    pub values: &'a [u64],
}

/// The recorder of a world. It reads at its own instants, each after everything else of that
/// instant, and changes nothing that the world goes by: hash and events are those of a run without.
#[derive(Clone, Debug)]
pub struct Recorder {
    series: Series,
    select: Selection,
    tracks: Vec<(String, Source)>,
    /// Queue pairs of each host and NIC that were looked at.
    known: Vec<Vec<u32>>,
    left_out: u64,
    most: usize,
}

impl Recorder {
    fn new(config: &SeriesConfig, fabric: &mut Fabric, hosts: usize) -> Self {
        let mut recorder = Self {
            series: Series::new(config.interval, config.points),
            select: config.select.clone(),
            tracks: Vec::new(),
            known: vec![Vec::new(); hosts],
            left_out: 0,
            most: MAX_NUMBERS / config.points,
        };
        let ports: Vec<_> = fabric.ports().collect();
        for (node, port) in ports {
            let subject = port_name(fabric, node, port);
            for (of, (_, read)) in PORT.iter().enumerate() {
                let mut view = PortView { fabric, node, port, now: Time::ZERO };
                if read(&mut view).is_some() {
                    recorder.add(&subject, Source::Port { node, port, of });
                }
            }
        }
        recorder
    }

    fn add(&mut self, subject: &str, source: Source) {
        let quantity = source.quantity();
        if !self.select.takes(subject, quantity) {
            return;
        }
        if self.tracks.len() >= self.most {
            self.left_out += 1;
            return;
        }
        let column = self.series.add(quantity.kind);
        debug_assert_eq!(column, self.tracks.len(), "a track is a column");
        self.tracks.push((subject.to_owned(), source));
    }

    /// Takes up queue pairs that were made since the last point.
    fn discover(&mut self, hosts: &[Host]) {
        for (h, host) in hosts.iter().enumerate() {
            let nics = host.nics().count();
            self.known[h].resize(nics, 0);
            for n in 0..nics {
                self.discover_on(host.nic(n), (HostId(h as u32), n));
            }
        }
    }

    fn discover_on(&mut self, nic: &Nic, (host, n): (HostId, usize)) {
        let made = nic.qps_made();
        for index in self.known[host.index()][n]..made {
            let Some(q) = nic.qp(index) else { continue };
            let subject = format!("host{}.qp{}", host.0, q.qpn.value());
            for (of, (_, read)) in QP.iter().enumerate() {
                if read(nic, q).is_some() {
                    self.add(&subject, Source::Qp { host, nic: n, index, of });
                }
            }
        }
        self.known[host.index()][n] = made;
    }

    fn point(&mut self, fabric: &mut Fabric, hosts: &[Host]) {
        self.discover(hosts);
        let now = self.series.next();
        let tracks = &self.tracks;
        self.series.point(&mut |i| tracks[i].1.read(fabric, hosts, now));
    }

    fn finish(&mut self, end: Time, fabric: &mut Fabric, hosts: &[Host]) {
        self.discover(hosts);
        let tracks = &self.tracks;
        self.series.finish(end, &mut |i| tracks[i].1.read(fabric, hosts, end));
    }

    /// Times and interval.
    pub const fn series(&self) -> &Series {
        &self.series
    }

    /// Which tracks were asked for.
    pub const fn selection(&self) -> &Selection {
        &self.select
    }

    /// The tracks: ports of hosts, ports of switches, queue pairs in the order in which they were
    /// made.
    pub fn tracks(&self) -> impl Iterator<Item = Track<'_>> + Clone {
        self.tracks.iter().enumerate().map(|(i, (subject, source))| Track {
            subject,
            quantity: source.quantity(),
            values: self.series.values(i),
        })
    }

    /// Tracks that were asked for and found no room among [`MAX_NUMBERS`].
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// `host1.port0`, `switch0.port3`.
pub fn port_name(fabric: &Fabric, NodeId(node): NodeId, PortId(port): PortId) -> String {
    match node.checked_sub(fabric.hosts().len() as u32) {
        None => format!("host{node}.port{port}"),
        Some(switch) => format!("switch{switch}.port{port}"),
    }
}

impl World {
    /// Records from now on numbers over time. To be called before the run.
    ///
    /// # Panics
    /// As [`Series::new`].
    pub fn record_series(&mut self, config: &SeriesConfig) {
        let hosts = self.hosts.len();
        let recorder = Recorder::new(config, &mut self.shared.fabric, hosts);
        self.point_at = recorder.series.next();
        self.series = Some(Box::new(recorder));
    }

    /// Ends the recording of numbers over time, if there is one, at the time of the last event that
    /// changed something.
    pub fn end_series(&mut self) -> Option<Recorder> {
        self.point_at = Time::MAX;
        let mut recorder = self.series.take()?;
        recorder.finish(self.reached, &mut self.shared.fabric, &self.hosts);
        Some(*recorder)
    }

    /// Points that lie before `now`, the time of an event that is about to be handled. What was
    /// overtaken changes nothing, and may come long after the run has got to its end.
    #[cold]
    #[inline(never)]
    pub(super) fn points_before(&mut self, now: Time, event: &Event) {
        if let Event::Host(host, ev) = *event
            && self.hosts[host.index()].is_overtaken(now, ev)
        {
            return;
        }
        let Some(recorder) = &mut self.series else { return };
        while recorder.series.next() < now {
            recorder.point(&mut self.shared.fabric, &self.hosts);
        }
        self.point_at = recorder.series.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(pattern: &str, subject: &str) -> bool {
        Selection(vec![pattern.into()]).takes(subject, &PORT[1].0)
    }

    #[test]
    fn a_pattern_names_a_subject_all_below_a_name_a_quantity_or_a_group() {
        for pattern in [
            "switch0.port3",
            "switch0",
            "switch*",
            "*.port3",
            "switch0.port3.queue_max",
            "*.queue_max",
            "*queue*",
            "queues",
            "*",
        ] {
            assert!(takes(pattern, "switch0.port3"), "{pattern}");
        }
        for pattern in
            ["switch", "switch0.port", "switch0.port33", "*.queue", "links", "port3", "", "host*"]
        {
            assert!(!takes(pattern, "switch0.port3"), "{pattern}");
        }
        assert!(Selection::default().takes("host0.qp16", &QP[0].0), "no pattern: all");
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "ac", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*bb", "abab", false),
            ("a*ab", "aaab", true),
            ("a", "", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn quantities_have_names_of_their_own() {
        let names = PORT.iter().map(|(q, _)| q.name).chain(QP.iter().map(|(q, _)| q.name));
        let mut names: Vec<_> = names.collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
