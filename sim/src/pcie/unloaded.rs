//! The latency of a transaction on an idle tree, as a closed form.

use doorbell_core::units::{Span, Time};

use super::route::Route;
use super::tlp::{MMIO_LINE, to_page_end};
use super::tree::place;
use super::{Kind, PcieTree, Target, Transaction};

/// A burst on its way: where its head and its tail are.
#[derive(Copy, Clone)]
struct Front {
    head: Time,
    tail: Time,
}

impl PcieTree {
    /// Time from submission to the end of a transaction on an idle tree with unlimited tags and
    /// credits and the least noise. A lower bound of every latency; equal to it when nothing
    /// else is under way and the limits suffice, up to a picosecond per burst and station.
    pub fn unloaded_latency(&self, t: &Transaction) -> Span {
        let to = place(t.target);
        let out = self.topology.route(t.from.0, to);
        let back = self.topology.route(to, t.from.0);
        let terminal = &self.terminals[usize::from(to)];
        let mmio = t.kind == Kind::Mmio;
        let mut out_free = vec![Time::ZERO; usize::from(out.hops)];
        let mut back_free = vec![Time::ZERO; usize::from(back.hops)];
        let size = match t.kind {
            Kind::Read => self.requesters[usize::from(t.from.0)].burst_bytes(&self.format),
            Kind::Write => self.burst_writes * self.format.max_payload,
            Kind::Mmio => self.burst_writes * MMIO_LINE,
        };
        let begin = match usize::from(t.from.0) < self.sockets && mmio {
            true => Time::ZERO + self.terminals[usize::from(t.from.0)].mmio,
            false => Time::ZERO,
        };
        let (mut addr, mut left, mut end) = (t.addr, t.bytes, Time::ZERO);
        while left > 0 {
            let len = left.min(size).min(to_page_end(addr));
            let cut = match t.kind {
                Kind::Read => self.format.read(addr, len),
                Kind::Write => self.format.write(addr, len),
                Kind::Mmio => self.format.mmio(len),
            };
            let payload = if t.kind == Kind::Read { 0 } else { len };
            let cross = payload + cut.tlps * self.cross_bytes;
            let start = Front { head: begin, tail: begin };
            let at = self.cross(out, start, cut.wire, cross, &mut out_free);
            end = match t.kind {
                Kind::Mmio => at.tail,
                Kind::Write => at.tail + terminal.root + terminal.write,
                Kind::Read => {
                    let lag = self.lag(out, cut.wire, cross, cut.tlps, at);
                    let miss = match t.target {
                        Target::HostMemory { llc: true, .. } => Span::ZERO,
                        _ => terminal.miss,
                    };
                    let noise = terminal.noise.as_ref().map_or(Span::ZERO, |n| n.min());
                    let last = at.tail + terminal.root + terminal.read + miss + noise;
                    let data =
                        Front { head: Time::from_ps(last.as_ps() - lag.as_ps()), tail: last };
                    let cut = self.format.completions(addr, len);
                    let cross = len + cut.tlps * self.cross_bytes;
                    self.cross(back, data, cut.wire, cross, &mut back_free).tail
                }
            };
            addr += u64::from(len);
            left -= len;
        }
        end.since(Time::ZERO)
    }

    /// Sends a burst over all stations of a way whose stations are free from `free` on.
    fn cross(&self, route: Route, at: Front, wire: u32, cross: u32, free: &mut [Time]) -> Front {
        let mut at = at;
        for (i, (hop, free)) in self.topology.hops_of(route).iter().zip(free).enumerate() {
            let station = &self.topology.stations[usize::from(hop.station)];
            let before = if i == 0 { Span::ZERO } else { hop.before };
            let start = (at.head + before).max(*free);
            *free = start + station.time_for(if hop.cross { cross } else { wire });
            let end = (*free).max(at.tail + before);
            at = Front { head: start + station.latency, tail: end + station.latency };
        }
        at
    }

    /// From the first to the last request of a burst where it leaves its last station.
    fn lag(&self, route: Route, wire: u32, cross: u32, tlps: u32, at: Front) -> Span {
        let Some(hop) = self.topology.hops_of(route).last() else { return Span::ZERO };
        let wire = if hop.cross { cross } else { wire };
        let station = &self.topology.stations[usize::from(hop.station)];
        station.time_for(wire - wire / tlps).min(at.tail.since(at.head))
    }
}
