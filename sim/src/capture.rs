//! The recorder of packets: what a capture on each port of the network would show.
//!
//! | Port | Shows | Time stamp |
//! |---|---|---|
//! | of a host | what it sends | its last bit has left |
//! | | what it receives | its last bit has arrived |
//! | of a switch | what it sends (as a mirror of its egress does) | its last bit has left |
//! | | what its full queue dropped, marked | it found no room |
//! | | what it had no route for, marked, at the port it came by | it looked for one |
//! | | what was too large for a link, marked, at the port it came by | it came |
//!
//! Pause frames of priority flow control are shown like packets, where a port sends one and where a
//! host receives one; the class is the priority.
//!
//! So a packet through one switch is there three times, and one that a switch dropped twice, the
//! second time with a comment. What a fault takes from the cable is there where the cable ends,
//! with a comment that names the fault. What a fault damages has a wrong ICRC from the end of that
//! link on, also where a switch passes it on, and a comment at each port.
//!
//! A capture returns nothing to the model, draws nothing and schedules nothing: a run with it has
//! the same trace hash as one without. It holds at most one frame per port, the one being sent,
//! and hands frames to its [`CaptureSink`] in the order of their time stamps.
//!
//! The bytes are those of RoCEv2 ([`wire::codec`](crate::wire::codec)): a payload of a virtual
//! region is zeros; addresses are made of host and port number ([`addresses`]); P_Key is 0xFFFF,
//! MigReq 1, ECN 10 (ECT). Where every host speaks native InfiniBand the packets are those of its
//! links, LRH to VCRC, and LIDs are made of the numbers ([`lid`]). RoCEv1, and headers that are a
//! mere number of bytes, are shown as RoCEv2 over IPv4, so there the frames are longer than what
//! the model counts; [`Interface::note`] says so.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::io;

use doorbell_core::units::{BitRate, Time};
use doorbell_core::verbs::{NakCode, Service, Syndrome};

use crate::engine::Out;
use crate::fabric::{Dropped, EgressPort, Fabric, FabricEvent};
use crate::rc::{Ext, PacketDesc};
use crate::wire::codec::{
    BthBits, Ecn, Ethernet, ICRC_BYTES, IbOuter, Ip, Lrh, Mac, Outer, Udp, UdpChecksum, VCRC_BYTES,
    close, encode, encode_ib, encode_pause,
};
use crate::wire::{Encapsulation, HostId, NodeId, Packet, PacketId, Packets, PortId, address};

/// What the bytes of packets begin with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header; preamble and FCS are not there.
    Ethernet,
    /// A local route header of InfiniBand; they end with the VCRC.
    InfiniBand,
}

/// One port of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// `host0.port0`, `switch0.port3`.
    pub name: String,
    /// Rate of its link.
    pub rate: BitRate,
    /// What its packets begin with.
    pub link: LinkType,
    /// What a reader should know of its frames.
    pub note: Option<&'static str>,
}

/// Which way a packet went at a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The port received it.
    Inbound,
    /// The port sent it.
    Outbound,
}

/// One packet at one port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Seen<'a> {
    /// When; never earlier than the one before.
    pub at: Time,
    /// Where: the number of the [`Interface`], from 0 in the order of their announcement.
    pub interface: u32,
    /// Which way.
    pub direction: Direction,
    /// The bytes, as [`Interface::link`] says.
    pub frame: &'a [u8],
    /// Why the model sent it, and whether it was lost here.
    pub comment: Option<&'a str>,
}

/// Where the packets go, a file for instance.
pub trait CaptureSink {
    /// Announces a port. All are announced before the first packet.
    fn interface(&mut self, interface: &Interface);

    /// Takes a packet. A sink that fails keeps its first error for [`finish`](Self::finish).
    fn packet(&mut self, seen: &Seen<'_>);

    /// Nothing more will come.
    ///
    /// # Errors
    /// The first error of the sink.
    fn finish(&mut self) -> io::Result<()>;
}

/// A frame that is being sent, or is on its way.
struct Pending {
    interface: u32,
    direction: Direction,
    frame: Vec<u8>,
    comment: Option<String>,
}

/// The recorder of a run.
pub struct Capture {
    sink: Box<dyn CaptureSink>,
    /// First interface of each node.
    first: Vec<u32>,
    /// Of each host.
    encapsulations: Vec<Encapsulation>,
    link: LinkType,
    /// Traffic class, on InfiniBand the virtual lane, of each service level.
    classes: [u8; 16],
    /// Frames whose last bit has not left, by time and order.
    pending: BTreeMap<(Time, u64), Pending>,
    transmissions: u64,
    frame: Vec<u8>,
    /// Names of the faults of the plan, for comments.
    faults: Vec<String>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl Capture {
    /// Announces the ports of `fabric` to `sink`. `encapsulations` are those of the hosts.
    pub fn new(
        mut sink: Box<dyn CaptureSink>,
        fabric: &Fabric,
        encapsulations: Vec<Encapsulation>,
    ) -> Self {
        let mut first = Vec::new();
        let mut count = 0;
        let native =
            |e: &Encapsulation| matches!(e, Encapsulation::IbLocal | Encapsulation::IbGlobal);
        let link = match encapsulations.iter().all(native) {
            true => LinkType::InfiniBand,
            false => LinkType::Ethernet,
        };
        for (h, host) in fabric.hosts().iter().enumerate() {
            first.push(count);
            count += host.ports() as u32;
            let note = note(encapsulations[h], link);
            for p in 0..host.ports() {
                let rate = host.egress(PortId(p as u16)).rate();
                sink.interface(&Interface { name: format!("host{h}.port{p}"), rate, link, note });
            }
        }
        for (s, switch) in fabric.switches().iter().enumerate() {
            first.push(count);
            count += switch.ports() as u32;
            for p in 0..switch.ports() {
                let rate = switch.egress(PortId(p as u16)).rate();
                let name = format!("switch{s}.port{p}");
                sink.interface(&Interface { name, rate, link, note: None });
            }
        }
        let class = |sl: usize| fabric.hosts().first().map_or(0, |host| host.class_of(sl as u8));
        Self {
            sink,
            first,
            encapsulations,
            link,
            classes: std::array::from_fn(class),
            pending: BTreeMap::new(),
            transmissions: 0,
            frame: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Tells the names of the faults of the plan, in its order.
    pub(crate) fn name_faults(&mut self, ids: Vec<String>) {
        self.faults = ids;
    }

    /// What a damaged packet has as a comment.
    fn damage(&self, packet: &Packet) -> Option<String> {
        let fault = self.faults.get(packet.corrupt()?.get() as usize - 1)?;
        Some(format!("damaged by fault `{fault}`: wrong ICRC"))
    }

    const fn interface(first: &[u32], NodeId(node): NodeId, PortId(port): PortId) -> u32 {
        first[node as usize] + port as u32
    }

    /// Hands over every frame whose last bit has left by `now`. To be called as time moves on,
    /// before anything else is told at `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(entry) = self.pending.first_entry()
            && entry.key().0 <= now
        {
            let (at, _) = *entry.key();
            let Pending { interface, direction, frame, comment } = entry.remove();
            self.sink.packet(&Seen {
                at,
                interface,
                direction,
                frame: &frame,
                comment: comment.as_deref(),
            });
        }
    }

    /// What the fabric has just asked for: each arrival among `events` is a packet that a port at
    /// the other end of the link has begun to send.
    pub fn transmissions(&mut self, events: &Out<FabricEvent>, fabric: &Fabric, packets: &Packets) {
        for (at, _, event) in events.as_slice() {
            if let FabricEvent::Pause { node, port, class, quanta } = *event {
                self.pause(fabric, *at, (node, port), (class, quanta));
            }
            let FabricEvent::Arrive { node, port, packet: PacketId(packet), .. } = *event else {
                continue;
            };
            let (from, from_port) = egress(fabric, node, port).peer();
            let end = egress(fabric, from, from_port).free_at();
            let packet = &packets[packet];
            let mut frame = Vec::new();
            let error = self.encode(packet, &mut frame);
            let reason = packet.reason().map(|r| r.to_string());
            let damage = self.damage(packet);
            let pending = Pending {
                interface: Self::interface(&self.first, from, from_port),
                direction: Direction::Outbound,
                frame,
                comment: join(&[reason.as_deref(), damage.as_deref(), error.as_deref()]),
            };
            self.pend(end, pending);
        }
    }

    fn pend(&mut self, at: Time, pending: Pending) {
        self.pending.insert((at, self.transmissions), pending);
        self.transmissions += 1;
    }

    /// A pause takes effect at a time at an output: the port at the other end of its link has just
    /// begun to send the frame. Pauses that end because a link comes up anew have no frame.
    fn pause(
        &mut self,
        fabric: &Fabric,
        at: Time,
        (node, port): (NodeId, PortId),
        (class, quanta): (u8, u16),
    ) {
        let (from, from_port) = egress(fabric, node, port).peer();
        let sender = egress(fabric, from, from_port);
        let (sent, received, effect) = sender.pause_times();
        if effect != at {
            return;
        }
        let mac = match from.index().checked_sub(fabric.hosts().len()) {
            None => addresses(HostId(from.0), from_port).0,
            Some(switch) => switch_address(switch as u16, from_port),
        };
        let mut frame = Vec::new();
        encode_pause(mac, class, quanta, &mut frame);
        let text = match quanta {
            0 => format!("class {class} may go on"),
            n => format!("class {class} shall pause for {n} quanta"),
        };
        let of = |node, port, direction| Pending {
            interface: Self::interface(&self.first, node, port),
            direction,
            frame: frame.clone(),
            comment: Some(text.clone()),
        };
        let there = of(node, port, Direction::Inbound);
        let here = of(from, from_port, Direction::Outbound);
        self.pend(sent, here);
        if node.index() < fabric.hosts().len() {
            self.pend(received, there);
        }
    }

    /// A packet has arrived at a host's port.
    pub fn received(&mut self, now: Time, host: HostId, port: PortId, packet: &Packet) {
        let HostId(node) = host;
        let text = packet.corrupt().map(|_| "dropped here");
        self.record(now, (NodeId(node), port), Direction::Inbound, packet, text);
    }

    /// A switch has dropped a packet.
    pub fn dropped(&mut self, now: Time, dropped: &Dropped, packet: &Packet) {
        use crate::fabric::DropCause;
        let Dropped { node, port, cause, .. } = *dropped;
        let direction = match cause {
            DropCause::NoRoute | DropCause::Oversize => Direction::Inbound,
            _ => Direction::Outbound,
        };
        let text = format!("dropped here: {}", cause.name());
        self.record(now, (node, port), direction, packet, Some(&text));
    }

    /// Any other packet at a port, with what happened to it there: "dropped here: ...".
    pub fn record(
        &mut self,
        now: Time,
        (node, port): (NodeId, PortId),
        direction: Direction,
        packet: &Packet,
        text: Option<&str>,
    ) {
        let mut frame = std::mem::take(&mut self.frame);
        let error = self.encode(packet, &mut frame);
        let reason = packet.reason().map(|r| r.to_string());
        let damage = match (self.damage(packet), text) {
            (Some(damage), Some(text)) => Some(format!("{damage}, {text}")),
            (damage, text) => damage.or(text.map(str::to_owned)),
        };
        let comment = join(&[reason.as_deref(), damage.as_deref(), error.as_deref()]);
        self.sink.packet(&Seen {
            at: now,
            interface: Self::interface(&self.first, node, port),
            direction,
            frame: &frame,
            comment: comment.as_deref(),
        });
        self.frame = frame;
    }

    /// The frame of a packet; what cannot be encoded is an empty frame that says why.
    fn encode(&self, packet: &Packet, frame: &mut Vec<u8>) -> Option<String> {
        // The NAK of selective repeat has no form of its own on the wire: a sequence NAK is shown.
        let ext = match packet.desc.ext {
            Ext::Sack { msn, .. } => {
                Ext::Aeth { syndrome: Syndrome::Nak { code: NakCode::PsnSequenceError }, msn }
            }
            ext => ext,
        };
        let desc = PacketDesc { ext, ..packet.desc };
        let bytes = packet.payload.bytes();
        let damaged = packet.corrupt().is_some();
        let class = self.classes[usize::from(packet.sl & 15)];
        let result = match self.link {
            LinkType::InfiniBand => {
                encode_ib(&ib_outer(packet, class), &desc, bytes, frame).map(|()| {
                    if damaged {
                        damage_ib(frame)
                    }
                })
            }
            LinkType::Ethernet => {
                let outer = outer(self.encapsulations[packet.src.index()], packet, class);
                encode(&outer, &desc, bytes, frame).map(|()| {
                    if damaged {
                        damage(&outer, frame)
                    }
                })
            }
        };
        let error = result.err();
        error.map(|e| format!("not shown: {e}"))
    }

    /// The run is over: hands over what is still being sent.
    ///
    /// # Errors
    /// The first error of the sink.
    pub fn finish(&mut self) -> io::Result<()> {
        self.advance(Time::MAX);
        self.sink.finish()
    }
}

fn egress(fabric: &Fabric, NodeId(node): NodeId, port: PortId) -> &EgressPort {
    let hosts = fabric.hosts();
    match (node as usize).checked_sub(hosts.len()) {
        None => hosts[node as usize].egress(port),
        Some(s) => fabric.switches()[s].egress(port),
    }
}

/// Turns a bit of the ICRC over, so that everything else can be read.
fn damage(outer: &Outer, frame: &mut [u8]) {
    let ip = 14 + if outer.eth.vlan.is_some() { 4 } else { 0 };
    let udp = ip + if matches!(outer.ip, Ip::V6 { .. }) { 40 } else { 20 };
    let len = usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
    frame[udp + len - ICRC_BYTES] ^= 1;
}

/// As [`damage`]; the VCRC is right again, as a switch makes it.
fn damage_ib(frame: &mut Vec<u8>) {
    frame.truncate(frame.len() - VCRC_BYTES);
    let at = frame.len() - ICRC_BYTES;
    frame[at] ^= 1;
    close(frame);
}

fn join(parts: &[Option<&str>]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().copied().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

const fn note(encapsulation: Encapsulation, link: LinkType) -> Option<&'static str> {
    use Encapsulation as E;
    match encapsulation {
        E::IbLocal if matches!(link, LinkType::InfiniBand) => None,
        E::IbGlobal if matches!(link, LinkType::InfiniBand) => Some("shown without its GRH"),
        E::RoceV2Ipv4 | E::RoceV2Ipv4Vlan | E::RoceV2Ipv6 => None,
        E::RoceV1 => Some("RoCEv1, shown as RoCEv2"),
        E::IbLocal | E::IbGlobal => Some("native InfiniBand, shown as RoCEv2 among RoCE hosts"),
        E::Custom { .. } => Some("headers are a mere number of bytes, shown as RoCEv2"),
    }
}

/// Ethernet, IPv4 and IPv6 address of a host's port: 02:00:00:n, 10.n and 2001:db8::n with the 24
/// bits n = port in bits 23 to 20, host + 1 below. Unique below 2^20 - 1 hosts of 16 ports.
pub fn addresses(host: HostId, port: PortId) -> (Mac, Ipv4Addr, Ipv6Addr) {
    let [_, a, b, c] = address(host, port).to_be_bytes();
    let (high, low) = (u16::from(a), u16::from_be_bytes([b, c]));
    let v6 = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, high, low);
    (Mac([2, 0, 0, a, b, c]), Ipv4Addr::new(10, a, b, c), v6)
}

/// Ethernet address of a switch's port, 02:01:s:p: no host has it.
pub fn switch_address(switch: u16, PortId(port): PortId) -> Mac {
    let ([a, b], [c, d]) = (switch.to_be_bytes(), port.to_be_bytes());
    Mac([2, 1, a, b, c, d])
}

/// LIDs of unicast are 1 to 0xBFFF.
const LIDS: usize = 0xBFFF;

/// Hosts whose first ports have LIDs in a row; the second ports follow.
const HOSTS: usize = 8192;

/// LID of a host's port: host + 1 + 8192 * port, from 1 again behind 0xBFFF. Unique for up to 8,192
/// hosts of five ports.
pub fn lid(host: HostId, port: PortId) -> u16 {
    1 + ((host.index() + HOSTS * port.index()) % LIDS) as u16
}

/// What a packet of native InfiniBand has around its descriptor, on a virtual lane.
pub fn ib_outer(packet: &Packet, vl: u8) -> IbOuter {
    let sl = packet.sl & Lrh::MAX;
    let (dlid, slid) = (lid(packet.dst, packet.dst_port), lid(packet.src, packet.src_port));
    let lrh = Lrh { vl, sl, dlid, slid };
    // Of the two marks a packet carries one: a switch sets FECN, the receiver answers with BECN.
    let becn = packet.desc.opcode.service() == Service::Cnp;
    let fecn = packet.ecn == Ecn::Ce && !becn;
    IbOuter { lrh, bth: BthBits { pkey: packet.pkey, fecn, becn, ..BthBits::default() } }
}

/// What the frame of a packet of a traffic class has around its descriptor. The class is in the
/// upper three bits of the DSCP, where NICs that trust the DSCP look for the priority without
/// further configuration.
pub fn outer(encapsulation: Encapsulation, packet: &Packet, class: u8) -> Outer {
    let (src_mac, src, src_v6) = addresses(packet.src, packet.src_port);
    let (dst_mac, dst, dst_v6) = addresses(packet.dst, packet.dst_port);
    let traffic_class = class << 5 | packet.ecn as u8;
    let vlan =
        matches!(encapsulation, Encapsulation::RoceV2Ipv4Vlan).then_some(u16::from(class) << 13);
    let (ip, checksum) = if encapsulation == Encapsulation::RoceV2Ipv6 {
        // The true checksum: IPv6 has no other, and readers complain of 0.
        let (src, dst) = (src_v6, dst_v6);
        let ip = Ip::V6 { traffic_class, flow_label: 0, hop_limit: 64, src, dst };
        (ip, UdpChecksum::Valid)
    } else {
        let ip = Ip::V4 { traffic_class, id: 0, dont_fragment: true, ttl: 64, src, dst };
        (ip, UdpChecksum::None)
    };
    Outer {
        eth: Ethernet { dst: dst_mac, src: src_mac, vlan },
        ip,
        udp: Udp { source: packet.udp_source_port, checksum },
        bth: BthBits { pkey: packet.pkey, becn: packet.becn, ..BthBits::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_golden_frames_and_of_the_last_host() {
        let (mac, v4, v6) = addresses(HostId(0), PortId(0));
        assert_eq!(
            (mac.to_string().as_str(), v4),
            ("02:00:00:00:00:01", Ipv4Addr::new(10, 0, 0, 1))
        );
        assert_eq!(v6, "2001:db8::1".parse::<Ipv6Addr>().unwrap());
        let (mac, v4, v6) = addresses(HostId((1 << 20) - 2), PortId(15));
        assert_eq!(mac, Mac([2, 0, 0, 0xFF, 0xFF, 0xFF]));
        assert_eq!(
            (v4, v6),
            (Ipv4Addr::new(10, 255, 255, 255), "2001:db8::ff:ffff".parse().unwrap())
        );
    }

    #[test]
    fn no_switch_has_the_address_of_a_host() {
        let mac = switch_address(0x0102, PortId(3));
        assert_eq!(mac.to_string(), "02:01:01:02:00:03");
        let hosts = [(0, 0), ((1 << 20) - 2, 15)].map(|(h, p)| addresses(HostId(h), PortId(p)).0);
        assert!(hosts.iter().all(|m| m.0[..2] == [2, 0] && *m != mac));
    }

    #[test]
    fn lids_are_unicast_and_differ() {
        assert_eq!((lid(HostId(0), PortId(0)), lid(HostId(8191), PortId(0))), (1, 8192));
        assert_eq!(lid(HostId(0), PortId(1)), 8193);
        assert_eq!(lid(HostId(8191), PortId(4)), 5 * 8192);
        assert_eq!((lid(HostId(0xBFFE), PortId(0)), lid(HostId(0xBFFF), PortId(0))), (0xBFFF, 1));
    }

    #[test]
    fn comments_are_joined() {
        assert_eq!(join(&[None, None]), None);
        assert_eq!(join(&[Some("a"), None, Some("b")]).as_deref(), Some("a; b"));
    }
}
