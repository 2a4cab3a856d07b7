//! A run of a fabric alone: flows that send all their packets at one instant.

use doorbell_core::units::{BitRate, Span, Time};
use doorbell_core::verbs::{Opcode, Psn, Qpn};

use crate::engine::{Class, ComponentId, Engine, Out};
use crate::fabric::*;
use crate::rc::{Ext, PacketDesc};
use crate::wire::codec::Ecn;
use crate::wire::{HostId, Packet, PacketId, Packets, Payload, PortId};

/// `packets` packets of `wire_bytes` from `src` to `dst`, all given to the NIC at `start`.
#[derive(Copy, Clone, Debug)]
pub struct Flow {
    pub src: u32,
    pub dst: u32,
    pub start: Time,
    pub packets: u32,
    pub wire_bytes: u32,
    pub udp_source_port: u16,
    pub sl: u8,
}

impl Flow {
    pub fn new(src: u32, dst: u32, packets: u32, wire_bytes: u32) -> Self {
        Self { src, dst, start: Time::ZERO, packets, wire_bytes, udp_source_port: 0, sl: 0 }
    }
}

/// An event of a run.
#[derive(Copy, Clone)]
pub enum Ev {
    Start(u32),
    Fabric(FabricEvent),
}

/// A packet at the end of its way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct End {
    pub at: Time,
    pub flow: u32,
    pub seq: u32,
    /// Why it did not arrive.
    pub lost: Option<DropCause>,
}

/// What a test does to a packet that arrives.
#[derive(Copy, Clone)]
pub enum Meddle {
    Pass,
    Lose(DropCause),
    /// A second one arrives behind it.
    Copy,
}

pub struct Net {
    pub engine: Engine<Ev>,
    pub fabric: Fabric,
    pub packets: Packets,
    pub ends: Vec<End>,
    pub ready: Vec<(Time, HostId, PortId)>,
    /// Events that the fabric asked for.
    pub fabric_events: u64,
    /// Leaves out the events that need not come.
    pub expects: bool,
    flows: Vec<Flow>,
    /// Flow and number of the packet at each arena index.
    names: Vec<(u32, u32)>,
    out: Out<FabricEvent>,
    /// Of each packet, save its PSN.
    desc: PacketDesc,
}

impl Net {
    pub fn new(config: &FabricConfig, seed: u64, flows: &[Flow]) -> Self {
        let fabric = Fabric::new(config, seed).expect("a legal configuration");
        let mut engine = Engine::new(seed);
        for i in 0..config.hosts.len() {
            engine.add_component(&format!("host{i}"));
        }
        for i in 0..config.switches.len() {
            engine.add_component(&format!("switch{i}"));
        }
        for (i, f) in flows.iter().enumerate() {
            let start = Ev::Start(i as u32);
            engine.schedule(ComponentId(f.src), f.start, Class::Program, start);
        }
        Self {
            engine,
            fabric,
            packets: Packets::new(),
            ends: Vec::new(),
            ready: Vec::new(),
            fabric_events: 0,
            expects: false,
            flows: flows.to_vec(),
            names: Vec::new(),
            out: Out::new(),
            desc: PacketDesc {
                opcode: Opcode::RcRdmaWriteMiddle,
                psn: Psn::new(0),
                dest: Qpn::new(0),
                ack_req: false,
                solicited: false,
                wqe: 0,
                offset: 0,
                len: 0,
                ext: Ext::None,
            },
        }
    }

    /// Gives one packet of `flow` to its NIC.
    pub fn send(&mut self, flow: u32, seq: u32, to: PortId) -> Result<(), TxQueueFull> {
        let f = self.flows[flow as usize];
        let id = self.packets.insert(Packet {
            src: HostId(f.src),
            src_port: PortId(0),
            dst: HostId(f.dst),
            dst_port: to,
            udp_source_port: f.udp_source_port,
            src_qp: 0,
            sl: f.sl,
            ecn: Ecn::Ect0,
            becn: false,
            expiries: 0,
            pkey: Default::default(),
            remark: None,
            desc: PacketDesc { psn: Psn::new(seq), ..self.desc },
            payload: Payload::Lengths,
        });
        self.names.resize(self.names.len().max(id as usize + 1), (0, 0));
        self.names[id as usize] = (flow, seq);
        let now = self.engine.now();
        let from = (HostId(f.src), PortId(0));
        let (bytes, out) = (f.wire_bytes, &mut self.out);
        let sent = self.fabric.send(now, from, PacketId(id), bytes, f.sl, out);
        self.hand_on(ComponentId(f.src));
        if sent.is_err() {
            self.packets.remove(id);
        }
        sent.map(|_| ())
    }

    /// What a node wants to happen.
    fn hand_on(&mut self, origin: ComponentId) {
        let Self { engine, fabric, out, expects, .. } = self;
        let now = engine.now();
        out.take_each(|at, class, ev| {
            if !(*expects && fabric.expect(now, at, ev)) {
                engine.schedule(origin, at, class, Ev::Fabric(ev));
            }
        });
    }

    fn end(&mut self, packet: PacketId, lost: Option<DropCause>) {
        let (flow, seq) = self.names[packet.index()];
        self.packets.remove(packet.0);
        self.ends.push(End { at: self.engine.now(), flow, seq, lost });
    }

    /// One event; false when none is left.
    pub fn step(&mut self) -> bool {
        self.step_with(&mut |_| Meddle::Pass)
    }

    /// As [`step`](Self::step), with somebody who may meddle with packets that arrive.
    pub fn step_with(&mut self, meddle: &mut dyn FnMut(PacketId) -> Meddle) -> bool {
        let Some((now, _, ev)) = self.engine.pop().expect("no livelock") else {
            return false;
        };
        match ev {
            Ev::Start(flow) => {
                for seq in 0..self.flows[flow as usize].packets {
                    self.send(flow, seq, PortId(0)).expect("a queue without limit");
                }
            }
            Ev::Fabric(ev) => {
                self.fabric_events += 1;
                if let FabricEvent::Arrive { node, port, packet, wire_bytes } = ev {
                    match meddle(packet) {
                        Meddle::Pass => {}
                        Meddle::Lose(cause) => {
                            let size = (wire_bytes, self.packets[packet.0].sl);
                            self.fabric.lose(now, (node, port), cause, size, &mut self.out);
                            self.hand_on(ComponentId(node.0));
                            self.end(packet, Some(cause));
                            return true;
                        }
                        Meddle::Copy => {
                            let name = self.names[packet.index()];
                            let packet = self.packets.insert(self.packets[packet.0].clone());
                            let len = self.names.len().max(packet as usize + 1);
                            self.names.resize(len, (0, 0));
                            self.names[packet as usize] = name;
                            let sl = self.packets[packet].sl;
                            self.fabric.copy((node, port), (wire_bytes, sl));
                            let packet = PacketId(packet);
                            let copy = FabricEvent::Arrive { node, port, packet, wire_bytes };
                            let origin = ComponentId(node.0);
                            self.engine.schedule(origin, now, Class::Arrival, Ev::Fabric(copy));
                        }
                    }
                }
                let outcome = self.fabric.on_event(now, ev, &mut self.packets, &mut self.out);
                let origin = ComponentId(ev.node().0);
                self.hand_on(origin);
                match outcome {
                    Outcome::Nothing => {}
                    Outcome::Delivered(d) => self.end(d.packet, None),
                    Outcome::Dropped(d) => self.end(d.packet, Some(d.cause)),
                    Outcome::TxReady { host, port } => self.ready.push((now, host, port)),
                }
            }
        }
        true
    }

    /// The watchdogs look at every switch.
    pub fn watch(&mut self) {
        let (now, hosts) = (self.engine.now(), self.fabric.hosts().len());
        for switch in 0..self.fabric.switches().len() {
            self.fabric.watch(now, switch, &mut self.packets, &mut self.out);
            let origin = ComponentId((hosts + switch) as u32);
            self.hand_on(origin);
        }
    }

    /// As a NIC that takes a held packet out of the receive buffer.
    pub fn rx_done(&mut self, host: u32, wire_bytes: u32) {
        let now = self.engine.now();
        self.fabric.rx_done(now, HostId(host), PortId(0), wire_bytes, &mut self.out);
        self.hand_on(ComponentId(host));
    }

    /// A host pauses these classes of its link for a reason, and no others.
    pub fn pause(&mut self, host: u32, reason: PauseReason, classes: u8) {
        let now = self.engine.now();
        let node = self.fabric.host_mut(HostId(host));
        node.pause(now, PortId(0), reason, classes, &mut self.out);
        self.hand_on(ComponentId(host));
    }

    /// A fault takes a switch down.
    pub fn switch_down(&mut self, switch: usize) {
        let now = self.engine.now();
        let origin = ComponentId((self.fabric.hosts().len() + switch) as u32);
        for d in self.fabric.switch_down(now, switch, &mut self.out) {
            self.end(d.packet, Some(d.cause));
        }
        self.hand_on(origin);
    }

    /// It is over.
    pub fn switch_up(&mut self, switch: usize) {
        let now = self.engine.now();
        let origin = ComponentId((self.fabric.hosts().len() + switch) as u32);
        self.fabric.switch_up(now, switch, &mut self.out);
        self.hand_on(origin);
    }

    /// Runs to the end and checks what must hold for every run.
    pub fn run(&mut self) {
        while self.step() {}
        let b = self.fabric.balance().expect("the balance holds");
        assert_eq!(b.in_flight(), Tally::default(), "nothing is left on the way");
        assert!(self.packets.is_empty(), "every packet came back to its owner");
        let lost = self.ends.iter().filter(|e| e.lost.is_some()).count() as u64;
        assert_eq!(b.dropped.total().packets, lost);
        assert_eq!(b.delivered.packets, self.ends.len() as u64 - lost);
    }

    pub fn arrivals(&self, flow: u32) -> Vec<Time> {
        let mine = self.ends.iter().filter(|e| e.flow == flow && e.lost.is_none());
        mine.map(|e| e.at).collect()
    }

    pub fn last_arrival(&self) -> Time {
        self.ends.iter().filter(|e| e.lost.is_none()).map(|e| e.at).max().expect("an arrival")
    }

    pub fn losses(&self, flow: u32) -> usize {
        self.ends.iter().filter(|e| e.flow == flow && e.lost.is_some()).count()
    }

    /// Packets of a flow arrive in the order in which they were sent.
    pub fn assert_fifo(&self) {
        let mut next = vec![0; self.flows.len()];
        for e in self.ends.iter().filter(|e| e.lost.is_none()) {
            let n = &mut next[e.flow as usize];
            assert!(e.seq >= *n, "flow {} packet {} after {}", e.flow, e.seq, *n - 1);
            *n = e.seq + 1;
        }
    }
}

/// Runs `flows` to the end.
pub fn run(config: &FabricConfig, seed: u64, flows: &[Flow]) -> Net {
    let mut net = Net::new(config, seed, flows);
    net.run();
    net
}

/// Rates from 1 GB/s to 800 Gb/s, among them one without whole picoseconds per byte.
pub fn rates() -> [BitRate; 5] {
    let fdr = BitRate::new(54_500_000_000).expect("not zero");
    [BitRate::gbps(8), BitRate::gbps(25), fdr, BitRate::gbps(100), BitRate::gbps(800)]
}

/// One switch without noise.
pub fn star(hosts: u32, link: Link, forwarding: Forwarding, buffering: Buffering) -> FabricConfig {
    let transit = Span::from_ns(130);
    let switch = SwitchConfig { forwarding, transit, buffering };
    FabricConfig { noise: Noise::Off, ..FabricConfig::single_switch(hosts, link, switch) }
}

pub const AMPLE: Buffering = Buffering::TailDrop { port_bytes: 1 << 40 };
