//! Times of flows in a network that has nothing else to carry.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Mtu, Opcode};
use doorbell_sim::fabric::{Fabric, Hop, time_alone, times_alone};
use doorbell_sim::nic::{Nic, NicQp, RcConfig};
use doorbell_sim::wire::{HostId, PortId};
use doorbell_sim::world::World;

use super::super::Point;
use super::super::flows::{Flow, ring_step};
use super::super::programs::{FlowShape, Placed, flow_shape};
use crate::format::Pattern;
use crate::workloads::{Op, Results};

/// The queue pairs of a flow at its source and at its destination, as they were connected.
#[derive(Clone, Default)]
pub(super) struct Pairs<'a> {
    src: Vec<&'a NicQp>,
    dst: Vec<&'a NicQp>,
}

impl<'a> Pairs<'a> {
    /// Those of all flows of a program.
    pub fn of(
        world: &'a World,
        list: &[Flow],
        index: usize,
        all: &[(&Placed, &Results)],
    ) -> Vec<Self> {
        let mut pairs = vec![Self::default(); list.len()];
        for (p, results) in all.iter().filter(|(p, _)| p.program == index) {
            let nic = world.hosts()[p.host as usize].nic(usize::from(p.nic));
            for (flow, qpn) in &results.flows.qps {
                let at = *flow as usize;
                let Some(qp) = Nic::qp_index(*qpn).and_then(|i| nic.qp(i)) else { continue };
                let side = match list[at].dst == p.host {
                    true => &mut pairs[at].dst,
                    false => &mut pairs[at].src,
                };
                side.push(qp);
            }
        }
        pairs
    }

    /// Those at its destination.
    pub fn at_destination(&self) -> impl Iterator<Item = &'a NicQp> {
        self.dst.iter().copied()
    }
}

/// A flow, its bytes on the wire and its ways.
struct Alone<'a> {
    flow: &'a Flow,
    shape: FlowShape,
    pairs: &'a Pairs<'a>,
    fabric: &'a Fabric,
    rc: &'a RcConfig,
    payload: u32,
    /// NIC of both hosts.
    nic: PortId,
}

impl<'a> Alone<'a> {
    fn of(
        point: &Point,
        world: &'a World,
        index: usize,
        flow: &'a Flow,
        pairs: &'a Pairs<'a>,
    ) -> Self {
        let nic = point.scenario.program[index].nic.value() as u16;
        let rc = world.hosts()[flow.src as usize].nic(usize::from(nic)).rc_config();
        let mtu = Mtu::from_bytes(point.scenario.qp.mtu.0.0 as u32).expect("checked when loaded");
        let (shape, payload) = (flow_shape(point, index, flow), rc.payload_of(mtu));
        Self { flow, shape, pairs, fabric: world.fabric(), rc, payload, nic: PortId(nic) }
    }

    /// For each queue pair, the time until the last bit of its part of so many bytes has arrived.
    fn arrivals(&self, bytes: u64) -> Vec<Span> {
        let FlowShape { op, qps, message } = self.shape;
        let (mut parts, mut packet) = (Vec::new(), 0);
        for q in 0..qps {
            let share = bytes / qps + u64::from(q < bytes % qps);
            let mut bytes = 0;
            for (len, n) in [(message, share / message), (share % message, 1)] {
                if len > 0 && n > 0 {
                    bytes += n * message_bytes(self.rc, op, len, self.payload);
                    packet = packet.max(first_bytes(self.rc, op, len, self.payload));
                }
            }
            let way = self.way((self.flow.src, self.flow.dst), &self.pairs.src, q as usize);
            parts.extend(way.filter(|_| bytes > 0).map(|way| (way, bytes)));
        }
        times_alone(&parts, packet)
    }

    /// Time of a transfer of so many bytes: the last of its queue pairs to be acknowledged.
    fn time(&self, bytes: u64) -> Span {
        let answer = match self.shape.op {
            Op::Read => self.rc.wire_bytes(Opcode::RcRdmaReadRequest, 0),
            _ => self.rc.wire_bytes(Opcode::RcAcknowledge, 0),
        };
        let back = |q| {
            let way = self.way((self.flow.dst, self.flow.src), &self.pairs.dst, q);
            way.map_or(Span::ZERO, |way| time_alone(&way, answer.into(), answer.into()))
        };
        let there = self.arrivals(bytes).into_iter().enumerate();
        there.map(|(q, there)| there + back(q)).max().unwrap_or(Span::ZERO)
    }

    /// The way of a queue pair. Flows that never began have none: any way then.
    fn way(&self, (from, to): (u32, u32), side: &[&NicQp], q: usize) -> Option<Vec<Hop>> {
        let port = side.get(q).map_or(0, |q| q.udp_source_port);
        self.fabric.way((HostId(from), self.nic), (HostId(to), self.nic), port)
    }
}

/// Times of the flows of a program.
pub(super) fn times(
    point: &Point,
    world: &World,
    index: usize,
    list: &[Flow],
    pairs: &[Pairs<'_>],
) -> Vec<Span> {
    let program = &point.scenario.program[index];
    let all = list.iter().zip(pairs).map(|(f, pairs)| Alone::of(point, world, index, f, pairs));
    match program.flows.as_ref().is_some_and(|f| f.pattern == Pattern::RingAllreduce) {
        true => ring(ring_step(program), all),
        false => all.map(|alone| alone.time(alone.flow.bytes)).collect(),
    }
}

/// One host of a ring.
#[derive(Copy, Clone)]
struct Member {
    start: Time,
    /// From the start of a message to its arrival.
    message: Span,
    /// From the start of a step to that of the next one, if nothing has to be waited for.
    step: Span,
    /// From the start of the last step to its last acknowledgement.
    last: Span,
}

/// Times of a ring that has the network for itself: a host begins a step when it has sent all of
/// the one before, and when the first message of it has come from its neighbour.
fn ring<'a>((messages, bytes): (u64, u64), all: impl Iterator<Item = Alone<'a>>) -> Vec<Span> {
    let member = |alone: Alone<'_>| {
        let arrival = |messages: u64| {
            let all = alone.arrivals(messages * bytes);
            all.into_iter().max().unwrap_or(Span::ZERO)
        };
        Member {
            start: Time::ZERO + alone.flow.start,
            message: arrival(1),
            step: arrival(2 * messages).saturating_sub(arrival(messages)),
            last: alone.time(messages * bytes),
        }
    };
    let members: Vec<Member> = all.map(member).collect();
    let n = members.len();
    let mut begins: Vec<Time> = members.iter().map(|m| m.start).collect();
    // One step is begun already.
    for _ in 1..2 * (n - 1) {
        let come: Vec<Time> = begins.iter().zip(&members).map(|(b, m)| *b + m.message).collect();
        for (i, begin) in begins.iter_mut().enumerate() {
            *begin = (*begin + members[i].step).max(come[(i + n - 1) % n]);
        }
    }
    begins.iter().zip(&members).map(|(begin, m)| (*begin + m.last).since(m.start)).collect()
}

/// First, middle, last and only packet of an operation.
const fn opcodes(op: Op) -> [Opcode; 4] {
    use Opcode as O;
    match op {
        Op::Read => [
            O::RcRdmaReadResponseFirst,
            O::RcRdmaReadResponseMiddle,
            O::RcRdmaReadResponseLast,
            O::RcRdmaReadResponseOnly,
        ],
        Op::Send => [O::RcSendFirst, O::RcSendMiddle, O::RcSendLast, O::RcSendOnly],
        Op::WriteImm => [
            O::RcRdmaWriteFirst,
            O::RcRdmaWriteMiddle,
            O::RcRdmaWriteLastImm,
            O::RcRdmaWriteOnlyImm,
        ],
        _ => [O::RcRdmaWriteFirst, O::RcRdmaWriteMiddle, O::RcRdmaWriteLast, O::RcRdmaWriteOnly],
    }
}

/// Bytes on the wire of a message.
pub(in crate::run) fn message_bytes(rc: &RcConfig, op: Op, len: u64, payload: u32) -> u64 {
    let [first, middle, last, only] = opcodes(op);
    let packets = len.div_ceil(payload.into());
    let wire = |opcode, bytes: u64| u64::from(rc.wire_bytes(opcode, bytes as u32));
    if packets == 1 {
        return wire(only, len);
    }
    let full = u64::from(payload);
    let rest = len - (packets - 1) * full;
    wire(first, full) + (packets - 2) * wire(middle, full) + wire(last, rest)
}

/// Bytes on the wire of a full packet in the middle of it, or of its only one.
fn first_bytes(rc: &RcConfig, op: Op, len: u64, payload: u32) -> u64 {
    let [_, middle, _, only] = opcodes(op);
    let opcode = if len <= payload.into() { only } else { middle };
    rc.wire_bytes(opcode, len.min(payload.into()) as u32).into()
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    /// Two switches with a host each, joined by a way of 100 and one of 10 Gb/s. `FLOW` moves 1 MB.
    fn two_ways(routing: &str, set: &[&str]) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[settings]\nport.switch_forwarding = 'store-and-forward'\n\
             [topology]\nkind = 'explicit'\nhosts = 2\nswitches = 4\nrate = '100Gbps'\n\
             routing = '{routing}'\nlink = [{{ between = 'host0-switch0' }}, \
             {{ between = 'host1-switch2' }}, {{ between = 'switch0-switch1' }}, \
             {{ between = 'switch1-switch2' }}, \
             {{ between = 'switch0-switch3', rate = '10Gbps' }}, \
             {{ between = 'switch3-switch2', rate = '10Gbps' }}]\n\
             [qp]\ntimeout = 20\n{FLOW}"
        );
        outcome(&text, set)
    }

    const FLOW: &str = "[[program]]\nkind = 'flows'\nhosts = 1\nsize = '1MB'\n\
                        flows = { pattern = 'incast' }\n";

    /// Nothing else is there, so a flow takes the time that it takes alone, whatever way it gets.
    #[track_caller]
    fn is_alone(o: &Outcome) {
        let slowdown = number(o, "slowdown_max");
        assert!((0.99..1.02).contains(&slowdown), "{slowdown}");
        assert_eq!(number(o, "victims"), 0.0);
    }

    #[test]
    fn a_lone_flow_is_as_fast_as_alone_on_every_way() {
        let mut times = Vec::new();
        for op in ["write", "read"] {
            for seed in 1..=6 {
                let set = [&format!("seed={seed}"), &format!("program.0.op={op}")];
                let o = two_ways("ecmp", &set.map(String::as_str));
                is_alone(&o);
                times.push(number(&o, "fct_max"));
            }
        }
        let slow = times.iter().filter(|t| **t > 500e6).count();
        assert!(slow > 0 && slow < times.len(), "both ways: {times:?}");
        let o = two_ways("destination", &["program.0.peer=1"]);
        is_alone(&o);
        assert!(number(&o, "fct_max") > 800e6, "1 MB at 10 Gb/s");
    }

    /// Four links of 25 Gb/s between leaves: a flow that is spread over them is as fast as its
    /// host's link.
    #[test]
    fn a_flow_on_several_ways_at_once_is_alone_on_all_of_them() {
        let text = format!(
            "host = 'ideal'\n[settings]\nport.switch_forwarding = 'store-and-forward'\n\
             rc.recovery = 'selective-repeat'\nnic.tx_buffer = '8KiB'\n[topology]\n\
             kind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 2\nspines = 4\n\
             rate = '100Gbps'\nswitch_rate = '25Gbps'\nswitch = 'lossless'\n\
             [qp]\ntimeout = 20\n{FLOW}"
        );
        let spread = outcome(&text, &["topology.routing=adaptive", "program.0.peer=3"]);
        // Packets that overtake each other are resent.
        let slowdown = number(&spread, "slowdown_max");
        assert!((1.0..1.3).contains(&slowdown), "{slowdown}");
        assert_eq!(number(&spread, "victims"), 0.0);
        for seed in 1..=3 {
            let seed = format!("seed={seed}");
            is_alone(&outcome(&text, &["program.0.peer=3", "program.0.qps=4", &seed]));
        }
    }

    fn ring(hosts: u32, size: &str, topology: &str) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\n{topology}\n[qp]\ntimeout = 20\n[[program]]\n\
             kind = 'flows'\nhosts = {hosts}\nsize = '{size}'\n\
             flows = {{ pattern = 'ring-allreduce' }}\n"
        );
        outcome(&text, &[])
    }

    /// A ring waits for the way of a message once per step, of 2 (n - 1): whether that or its bytes
    /// take the time, it is as fast as alone when it is alone.
    #[test]
    fn a_lone_ring_is_as_fast_as_alone() {
        let star = |hosts: u32| format!("kind = 'switch'\nhosts = {hosts}");
        for (hosts, size) in [(16, "64KB"), (8, "8B"), (4, "16MB"), (2, "1MB")] {
            is_alone(&ring(hosts, size, &star(hosts)));
        }
        // Ways of two lengths: all wait for the longer ones in turn.
        let leaves = "kind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 3\nspines = 1";
        is_alone(&ring(6, "48KB", leaves));
    }
}
