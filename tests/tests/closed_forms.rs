//! Whole messages against formulas: PCIe bytes of protocol reference 6.5, and a latency that no
//! machine can beat.

use std::sync::Arc;

use doorbell_core::transport::Ring;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Mtu, Psn, QpType, SendFlags, WrOpcode};
use doorbell_sim::host::HostConfig;
use doorbell_sim::nic::WQEBB;
use doorbell_sim::pcie::{Direction, Kind as Transfer, PcieTree, Target, TlpFormat, Transaction};
use doorbell_sim::wire::{HostId, wire_bytes};
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use doorbell_tests::plan::{Kind, Op, Plan, Side};
use doorbell_tests::player::{Layout, Player};
use proptest::prelude::*;

/// Equal messages of rank 0, announced in batches.
#[derive(Copy, Clone, Debug)]
struct Series {
    kind: Kind,
    len: u32,
    inline: bool,
    how: Ring,
    /// Messages per ring, at most what one WQE fetch brings.
    batch: u32,
    rings: u32,
    mtu: Mtu,
}

/// Bytes per message or per series, towards the device and away from it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct Bytes {
    down: u64,
    up: u64,
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, o: Self) {
        self.down += o.down;
        self.up += o.up;
    }
}

fn read(f: &TlpFormat, addr: u64, len: u32) -> Bytes {
    if len == 0 {
        return Bytes::default();
    }
    let (down, up) = (f.completions(addr, len).wire.into(), f.read(addr, len).wire.into());
    Bytes { down, up }
}

fn write(f: &TlpFormat, addr: u64, len: u32) -> Bytes {
    Bytes { down: 0, up: if len == 0 { 0 } else { f.write(addr, len).wire.into() } }
}

/// Bytes of a WQE (protocol reference 6.1).
fn wqe_blocks(s: &Series) -> u32 {
    let remote = if matches!(s.kind, Kind::Send | Kind::SendImm) { 0 } else { 16 };
    let data = match (s.inline, s.len) {
        (true, 0) => 0,
        (true, n) => (4 + n).next_multiple_of(16),
        // An element of no bytes still is one.
        (false, _) => 16,
    };
    (16u32 + remote + data).div_ceil(WQEBB)
}

/// What the formulas of 6.5 give for both sides.
fn expected(s: &Series, host: &HostConfig, layout: &Layout) -> [Bytes; 2] {
    let f = &host.pcie.format;
    let (mut me, mut peer) = (Bytes::default(), Bytes::default());
    let blocks = wqe_blocks(s);
    let size = blocks * WQEBB;
    let takes_recv = s.kind.takes_receive();
    let (n, cqe) = (u64::from(s.batch * s.rings), host.nic.cqe_bytes);
    let bf_fits = size <= host.nic.bf_bytes && (s.inline || host.nic.prefer_bf);
    let blueflame = s.batch == 1 && s.how != Ring::Doorbell && bf_fits;
    for ring in 0..s.rings {
        if blueflame {
            me.down += u64::from(f.mmio(size).wire);
        } else {
            me.down += u64::from(f.mmio(8).wire);
            let first = u64::from(ring * s.batch) * u64::from(WQEBB);
            me += read(f, first, size * s.batch);
        }
    }
    for i in 0..n {
        me += write(f, 0, cqe);
        let (local, remote) = match s.kind {
            Kind::Read => (layout.landings + i * layout.slot, 0),
            Kind::Write | Kind::WriteImm => (i * layout.slot, layout.target),
            _ => (i * layout.slot, layout.receives + i * layout.receive_slot),
        };
        for p in 0..s.mtu.packets_for(s.len) {
            let at = p * s.mtu.bytes();
            let len = (s.len - at).min(s.mtu.bytes());
            let (local, remote) = (local + u64::from(at), remote + u64::from(at));
            match (s.kind, s.inline) {
                (Kind::Read, _) => {
                    peer += read(f, remote, len);
                    me += write(f, local, len);
                }
                (_, inline) => {
                    me += if inline { Bytes::default() } else { read(f, local, len) };
                    peer += write(f, remote, len);
                }
            }
        }
        peer += if takes_recv { write(f, 0, cqe) } else { Bytes::default() };
    }
    // Receive WQEs are read as many at a time as fit a fetch, while some are left.
    let mut left = if takes_recv { n } else { 0 };
    while left > 0 {
        let some = left.min(host.nic.rq_fetch.into());
        peer += read(f, 0, some as u32 * host.nic.rq_wqe_bytes);
        left -= some;
    }
    [me, peer]
}

fn plan(s: &Series) -> Arc<Plan> {
    let ops = (0..s.batch * s.rings).map(|i| Op {
        kind: s.kind,
        len: s.len,
        elements: 1,
        inline: s.inline,
        flags: SendFlags::SIGNALED,
        place: 0,
        ring: (i % s.batch == s.batch - 1).then_some(s.how),
    });
    let side = |ops| Side { ops, unrung: 0, poll: 8, psn: Psn::new(0) };
    Arc::new(Plan {
        ty: QpType::Rc,
        mtu: s.mtu,
        depth: 64,
        max_inline: 220,
        rd_atomic: 16,
        numa: (0, 0),
        sides: [side(ops.collect()), side(vec![])],
        seed: 1,
    })
}

fn run(s: &Series, host: &HostConfig) -> World {
    let plan = plan(s);
    let mut world = World::new(&machine::world_of(host.clone(), 2, 1)).unwrap();
    for rank in 0..2 {
        let program = Player::new(plan.clone(), rank);
        world.add_program(HostId(rank as u32), machine::core(0), Time::ZERO, program);
    }
    assert_eq!(world.run(Time::ZERO + Span::from_ms(100)), RunEnd::Done);
    world
}

fn measured(world: &World, host: usize) -> Bytes {
    let h = &world.hosts()[host];
    let node = h.config().nic_nodes[0];
    let total = |d| h.pcie().account(node, d).total().bytes;
    Bytes { down: total(Direction::Down), up: total(Direction::Up) }
}

fn one(kind: Kind, inline: bool, how: Ring) -> Series {
    Series { kind, len: 8, inline, how, batch: 1, rings: 1, mtu: Mtu::B1024 }
}

/// The table of protocol reference 6.5 to the byte: (down, up) of requester and responder.
#[test]
fn pcie_bytes_of_one_8_byte_message() {
    let mut host = machine::quiet_host();
    host.nic.rq_fetch = 1;
    host.pcie.format = TlpFormat { completion_combine: 256, ..TlpFormat::PCI_SIG };
    let rows = [
        (one(Kind::Write, false, Ring::Doorbell), (144, 136), (0, 32)),
        (one(Kind::Write, true, Ring::Doorbell), (116, 112), (0, 32)),
        (one(Kind::Write, false, Ring::BlueFlame), (116, 112), (0, 32)),
        (one(Kind::Write, true, Ring::BlueFlame), (88, 88), (0, 32)),
        (one(Kind::Send, true, Ring::BlueFlame), (88, 88), (36, 144)),
        (one(Kind::Read, false, Ring::BlueFlame), (88, 120), (28, 24)),
    ];
    for (series, me, peer) in rows {
        let world = run(&series, &host);
        for (rank, (down, up)) in [me, peer].into_iter().enumerate() {
            assert_eq!(measured(&world, rank), Bytes { down, up }, "rank {rank} of {series:?}");
        }
    }
}

fn series() -> impl Strategy<Value = Series> {
    let kind = proptest::sample::select(vec![
        Kind::Send,
        Kind::SendImm,
        Kind::Write,
        Kind::WriteImm,
        Kind::Read,
    ]);
    let how = proptest::sample::select(vec![Ring::Auto, Ring::Doorbell, Ring::BlueFlame]);
    let mtu = proptest::sample::select(vec![Mtu::B256, Mtu::B1024, Mtu::B4096]);
    let len = prop_oneof![
        0..3000u32,
        proptest::sample::select(vec![28, 29, 44, 45, 92, 93, 108, 109, 220, 221, 255, 256, 257]),
    ];
    (kind, how, mtu, len, any::<bool>(), 1..5u32, 1..5u32).prop_map(
        |(kind, how, mtu, len, inline, batch, rings)| {
            let len = len.min(3 * mtu.bytes());
            let inline = inline && kind.may_be_inline() && len <= 220;
            Series { kind, len, inline, how, batch, rings, mtu }
        },
    )
}

proptest! {
    #[test]
    fn pcie_bytes_equal_the_closed_form(s in series()) {
        let host = machine::quiet_host();
        let world = run(&s, &host);
        let [me, peer] = expected(&s, &host, &Layout::of(&plan(&s)));
        prop_assert_eq!(measured(&world, 0), me, "requester");
        prop_assert_eq!(measured(&world, 1), peer, "responder");
    }

    #[test]
    fn no_message_is_faster_than_its_stages(s in series()) {
        let s = Series { batch: 1, rings: 1, ..s };
        let host = machine::quiet_host();
        let floor = floor(&s, &host);
        let took = latency(&run(&s, &host));
        prop_assert!(took >= floor, "{} < {}", took, floor);
        // And nothing waits for anything else: the rest is polling and rounding.
        prop_assert!(took <= floor + Span::from_us(1), "{} > {} + 1 us", took, floor);
    }
}

/// From the begin of the first stage to the end of the poll of the only message.
fn latency(world: &World) -> Span {
    let config = world.hosts()[0].config();
    assert_eq!(config.numa_nodes, 2);
    let (first, last) = world.program::<Player>(0).unwrap().worked.expect("it posted something");
    last.since(first)
}

/// The least time of one message: every stage alone, none waiting.
fn floor(s: &Series, host: &HostConfig) -> Span {
    let (c, n) = (&host.cpu, &host.nic);
    let tree = PcieTree::new(&host.pcie, 1, "floor").unwrap();
    let memory = Target::HostMemory { numa: 0, llc: host.llc };
    let nic = host.nic_nodes[0];
    let transfer = |kind, from, target, bytes| {
        let cause = doorbell_sim::pcie::Cause::Other;
        let t = Transaction { kind, from, target, bytes, addr: 0, cause, tag: 0 };
        if bytes == 0 { Span::ZERO } else { tree.unloaded_latency(&t) }
    };
    let size = wqe_blocks(s) * WQEBB;
    let bf_fits = size <= n.bf_bytes && (s.inline || n.prefer_bf);
    let blueflame = s.how != Ring::Doorbell && bf_fits;
    let mmio = if blueflame { size } else { 8 };
    let packets = s.mtu.packets_for(s.len);
    let first = s.len.min(s.mtu.bytes());
    let mut t = c.post_wqe + c.ring;
    t += transfer(Transfer::Mmio, doorbell_sim::pcie::NodeId(0), Target::Node(nic), mmio);
    t += n.doorbell + n.doorbell_latency;
    if !blueflame {
        t += transfer(Transfer::Read, nic, memory, size);
    }
    t += n.pu_wqe + n.pu_packet;
    let gathered = if s.inline || s.kind == Kind::Read { 0 } else { first };
    t += transfer(Transfer::Read, nic, memory, gathered);
    // The wire both ways, and every packet of the message on it.
    let (forth, back) = wire(s, host, packets);
    t += forth + back + n.rx_packet * 2 + n.pipeline_latency * 2 + n.ack_latency;
    if s.kind == Kind::Read {
        t += n.pu_response + transfer(Transfer::Read, nic, memory, first);
    }
    t += n.completion_latency + transfer(Transfer::Write, nic, memory, n.cqe_bytes);
    t + c.poll_call
}

/// Serialisation and propagation of the requests and of the responses.
fn wire(s: &Series, host: &HostConfig, packets: u32) -> (Span, Span) {
    let port = machine::profile("generic-400g").port;
    let e = host.rc.encapsulation;
    let op = match s.kind {
        Kind::Send => WrOpcode::Send,
        Kind::SendImm => WrOpcode::SendWithImm,
        Kind::Write => WrOpcode::RdmaWrite,
        Kind::WriteImm => WrOpcode::RdmaWriteWithImm,
        _ => WrOpcode::RdmaRead,
    };
    assert!(op.wc_opcode().is_some());
    let least = |len| wire_bytes(e, doorbell_core::verbs::Opcode::RcSendMiddle, len);
    let full = u64::from(least(s.mtu.bytes())) * u64::from(packets - 1);
    let message = full + u64::from(least(s.len - (packets - 1) * s.mtu.bytes()));
    let small = u64::from(wire_bytes(e, doorbell_core::verbs::Opcode::RcAcknowledge, 0));
    let time = |bytes| port.rate.time_for(bytes) + port.propagation;
    match s.kind {
        Kind::Read => (time(small), time(message)),
        _ => (time(message), time(small)),
    }
}
