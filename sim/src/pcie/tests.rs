//! The tree against closed forms, and its limits on both sides.

use doorbell_core::units::{BitRate, Span, Time};
use proptest::prelude::*;

use super::*;
use crate::engine::{ComponentId, Engine, NoiseTable, Out};

const ROOT: NodeId = NodeId(0);

/// A tree with its event queue.
struct Rig {
    tree: PcieTree,
    engine: Engine<PcieEvent>,
    me: ComponentId,
    out: Out<PcieEvent>,
    done: Vec<Done>,
    events: u32,
}

impl Rig {
    fn new(cfg: &PcieConfig) -> Self {
        let mut engine = Engine::new(1);
        let me = engine.add_component("pcie");
        let tree = PcieTree::new(cfg, 1, "host").unwrap();
        Self { tree, engine, me, out: Out::new(), done: Vec::new(), events: 0 }
    }

    fn submit_at(&mut self, now: Time, t: Transaction) {
        self.run_before(now);
        self.tree.submit(now, t, &mut self.out);
        self.engine.schedule_all(self.me, &mut self.out, |e| e);
    }

    fn run_before(&mut self, limit: Time) {
        while self.engine.peek_time().is_some_and(|t| t < limit) {
            let (now, _, ev) = self.engine.pop().unwrap().unwrap();
            self.events += 1;
            self.done.extend(self.tree.on_event(now, ev, &mut self.out));
            self.engine.schedule_all(self.me, &mut self.out, |e| e);
        }
    }

    fn finish(&mut self) {
        self.run_before(Time::MAX);
        assert_eq!(self.tree.in_flight(), 0, "everything submitted has ended");
    }

    fn end_of(&self, tag: u64) -> Time {
        self.done.iter().find(|d| d.tag == tag).expect("ended").finished
    }
}

fn link(generation: Generation, width: u8) -> LinkConfig {
    let latency = Span::from_ns(10);
    LinkConfig { generation, width, latency, credits: Credits::UNLIMITED }
}

fn socket() -> SocketConfig {
    SocketConfig {
        root_latency: Span::from_ns(50),
        llc_read: Span::from_ns(200),
        dram_extra: Span::from_ns(40),
        write_commit: Span::from_ns(100),
        mmio_latency: Span::ZERO,
        dram_rate: BitRate::gbps(480),
        noise: None,
    }
}

fn device() -> NodeKind {
    NodeKind::Endpoint(EndpointConfig {
        read_tags: 32,
        read_bytes: 32 * 512,
        read_latency: Span::from_ns(400),
        write_latency: Span::from_ns(150),
        memory_rate: BitRate::gbps(800),
        kernel_rate: BitRate::gbps(8_000),
    })
}

fn node(name: &str, parent: NodeId, kind: NodeKind) -> NodeConfig {
    NodeConfig { name: name.into(), parent, link: link(Generation::Gen3, 8), kind }
}

/// One socket, one NIC.
fn single() -> PcieConfig {
    PcieConfig {
        format: TlpFormat::PCI_SIG,
        sockets: vec![socket()],
        interconnect: InterconnectConfig {
            latency: Span::from_ns(60),
            rate: BitRate::gbps(160),
            request_bytes: 8,
        },
        peer: PeerConfig::default(),
        relaxed: RelaxedOrdering::default(),
        nodes: vec![node("nic", ROOT, device())],
    }
}

/// Two sockets; under the first a switch with NIC (3) and GPU (4), a GPU (5) at its own root
/// port; under the second a GPU (6).
fn large() -> PcieConfig {
    let switch = NodeKind::Switch { latency: Span::from_ns(120) };
    PcieConfig {
        sockets: vec![socket(), socket()],
        nodes: vec![
            node("switch", ROOT, switch),
            node("nic", NodeId(2), device()),
            node("gpu0", NodeId(2), device()),
            node("gpu1", ROOT, device()),
            node("gpu2", NodeId(1), device()),
        ],
        ..single()
    }
}

fn host(numa: u8) -> Target {
    Target::HostMemory { numa, llc: true }
}

fn t(kind: Kind, from: u16, target: Target, bytes: u32, tag: u64) -> Transaction {
    Transaction { kind, from: NodeId(from), target, bytes, addr: 0, cause: Cause::Other, tag }
}

fn ns(n: u64) -> Time {
    Time::from_ps(n * 1000)
}

/// ps of `bytes` on generation 3 x8, rounded down.
fn x8(bytes: u64) -> u64 {
    bytes * 8_000_000_000_000 / (8 * 8_000_000_000 * 128 / 130)
}

#[test]
fn an_event_is_8_bytes() {
    assert!(size_of::<PcieEvent>() <= 8);
}

#[test]
fn read_write_and_mmio_on_one_link_in_closed_form_and_few_events() {
    let cases = [
        // Request, link, root and LLC, completion, link.
        (Kind::Read, 64, x8(24) + 260_000 + x8(84) + 10_000, 2),
        (Kind::Read, 512, x8(24) + 260_000 + x8(512 + 2 * 20) + 10_000, 2),
        (Kind::Write, 64, x8(88) + 10_000 + 150_000, 1),
        (Kind::Write, 257, x8(257 + 48) + 10_000 + 150_000, 1),
    ];
    for (kind, bytes, ps, events) in cases {
        let mut rig = Rig::new(&single());
        let t = t(kind, 1, host(0), bytes, 9);
        assert!(rig.tree.unloaded_latency(&t).as_ps().abs_diff(ps) <= 2, "{kind:?} {bytes}");
        rig.submit_at(ns(5), t);
        rig.finish();
        assert_eq!(rig.end_of(9), ns(5) + rig.tree.unloaded_latency(&t));
        assert_eq!(rig.events, events, "{kind:?} {bytes}");
    }
    let mut rig = Rig::new(&single());
    let doorbell = t(Kind::Mmio, 0, Target::Node(NodeId(1)), 8, 1);
    rig.submit_at(ns(0), doorbell);
    rig.finish();
    assert!(rig.end_of(1).as_ps().abs_diff(x8(32) + 10_000) <= 1);
    assert_eq!(rig.events, 1);
}

#[test]
fn dram_noise_and_mmio_latency_add_what_the_config_says() {
    let mut cfg = single();
    cfg.sockets[0].mmio_latency = Span::from_ns(70);
    cfg.sockets[0].noise = Some(NoiseTable::constant(Span::from_ns(9)));
    let cold = Target::HostMemory { numa: 0, llc: false };
    let mut rig = Rig::new(&cfg);
    rig.submit_at(ns(0), t(Kind::Read, 1, cold, 64, 1));
    rig.submit_at(ns(10_000), t(Kind::Mmio, 0, Target::Node(NodeId(1)), 8, 2));
    rig.finish();
    let read = x8(24) + 260_000 + 40_000 + 9_000 + x8(84) + 10_000;
    assert!(rig.end_of(1).as_ps().abs_diff(read) <= 2);
    assert!(rig.end_of(2).since(ns(10_000)).as_ps().abs_diff(x8(32) + 80_000) <= 1);
}

#[test]
fn ways_through_switches_root_complexes_and_sockets() {
    let (nic, gpu0, gpu1, gpu2) = (3, 4, 5, 6);
    let x = x8(88);
    let to = |n: u16| Target::Node(NodeId(n));
    let cross = (64 + 8) * 8 * 1000 / 160;
    let one = 10_000;
    let cases = [
        // Own memory is 150 ns behind the device's port. Cut-through: one serialisation.
        (gpu0, x + 120_000 + 2 * one + 150_000, "common switch"),
        (gpu1, x + 120_000 + 50_000 + 3 * one + 150_000, "root complex"),
        (gpu2, x + 120_000 + 3 * one + 60_000 + 50_000 + 150_000, "two sockets"),
    ];
    for (peer, ps, name) in cases {
        let mut rig = Rig::new(&large());
        let write = t(Kind::Write, nic, to(peer), 64, 1);
        rig.submit_at(ns(0), write);
        rig.finish();
        assert!(rig.end_of(1).as_ps().abs_diff(ps) <= 3, "{name}: {} {ps}", rig.end_of(1));
        assert_eq!(rig.end_of(1).since(ns(0)), rig.tree.unloaded_latency(&write), "{name}");
    }
    // A read through the switch: the data of 84 bytes comes back the same way.
    let mut rig = Rig::new(&large());
    rig.submit_at(ns(0), t(Kind::Read, nic, to(gpu0), 64, 1));
    rig.finish();
    let ps = x8(24) + x8(84) + 2 * (120_000 + 2 * one) + 400_000;
    assert!(rig.end_of(1).as_ps().abs_diff(ps) <= 3, "{} {ps}", rig.end_of(1));
    // Remote memory: the write crosses, and the serialisation overlaps.
    let mut rig = Rig::new(&large());
    let write = t(Kind::Write, gpu1, host(1), 64, 1);
    rig.submit_at(ns(0), write);
    rig.finish();
    let ps = x + one + 60_000 + 150_000;
    assert!(rig.end_of(1).as_ps().abs_diff(ps) <= 2 && cross < x);
}

#[test]
fn a_remote_read_pays_the_distance_both_ways() {
    let read = |numa| {
        let mut rig = Rig::new(&large());
        rig.submit_at(ns(0), t(Kind::Read, 5, host(numa), 64, 1));
        rig.finish();
        rig.end_of(1).as_ps()
    };
    let data_over_interconnect = 72 * 8 * 1000 / 160;
    let extra = read(1) - read(0);
    // The request's 8 bytes hide behind its 24 on the link, the data is serialised first.
    assert!((120_000..=120_000 + data_over_interconnect).contains(&extra), "{extra}");
}

#[test]
fn a_doorbell_behind_a_pending_read_is_not_delayed_by_its_completion() {
    let mut rig = Rig::new(&single());
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 4096, 1));
    // The completions will hold the down link from 263 ns on; the doorbell is before them.
    rig.submit_at(ns(100), t(Kind::Mmio, 0, Target::Node(NodeId(1)), 8, 2));
    // One behind their beginning waits for the completion on the wire and passes the others.
    rig.submit_at(ns(400), t(Kind::Mmio, 0, Target::Node(NodeId(1)), 8, 3));
    rig.finish();
    assert!(rig.end_of(2).since(ns(100)).as_ps().abs_diff(x8(32) + 10_000) <= 1);
    let f = single().format;
    let tlp = u64::from(f.completion_header + f.completion_combine);
    let end = rig.end_of(3).since(ns(400)).as_ps();
    assert!(end.abs_diff(x8(tlp) + x8(32) + 10_000) <= 2, "{end}");
    assert!(rig.end_of(3) < rig.end_of(1));
}

#[test]
fn pcie_bytes_of_one_8_byte_write_by_cause_and_direction() {
    use Cause::*;
    let nic = Target::Node(NodeId(1));
    let of =
        |kind, from, target, bytes, cause| Transaction { cause, ..t(kind, from, target, bytes, 0) };
    let doorbell = of(Kind::Mmio, 0, nic, 8, Doorbell);
    let blueflame = of(Kind::Mmio, 0, nic, 64, BlueFlame);
    let wqe = of(Kind::Read, 1, host(0), 64, WqeFetch);
    let data = of(Kind::Read, 1, host(0), 8, PayloadRead);
    let cqe = of(Kind::Write, 1, host(0), 64, Cqe);
    let put = of(Kind::Write, 1, host(0), 8, PayloadWrite);
    let recv = of(Kind::Read, 1, host(0), 16, RecvWqeFetch);
    let rows: [(&[Transaction], u64, u64, u64); 7] = [
        (&[doorbell, wqe, data, cqe], 6, 144, 136),
        (&[doorbell, wqe, cqe], 4, 116, 112),
        (&[blueflame, data, cqe], 4, 116, 112),
        (&[blueflame, cqe], 2, 88, 88),
        (&[put], 1, 0, 32),
        (&[recv, put, cqe], 4, 36, 144),
        (&[data], 2, 28, 24),
    ];
    for (steps, tlps, down, up) in rows {
        let mut rig = Rig::new(&single());
        for step in steps {
            rig.submit_at(rig.engine.now(), *step);
        }
        rig.finish();
        let (u, d) = (
            rig.tree.account(NodeId(1), Direction::Up).total(),
            rig.tree.account(NodeId(1), Direction::Down).total(),
        );
        assert_eq!((u.tlps + d.tlps, d.bytes, u.bytes), (tlps, down, up));
        for step in steps {
            let link = rig.tree.account(NodeId(1), Direction::Down);
            let by_mmio = matches!(step.kind, Kind::Mmio);
            assert_eq!(link.of(step.cause).bytes > 0, by_mmio || step.kind == Kind::Read);
        }
    }
}

#[test]
fn tags_hold_on_both_sides_of_the_limit() {
    for (tags, reads, waits) in [(4, 4, 0), (4, 5, 1), (1, 3, 2)] {
        let mut cfg = single();
        let NodeKind::Endpoint(e) = &mut cfg.nodes[0].kind else { unreachable!() };
        e.read_tags = tags;
        let mut rig = Rig::new(&cfg);
        for tag in 0..reads {
            rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 64, tag));
        }
        rig.finish();
        let account = rig.tree.requester(NodeId(1));
        assert_eq!((account.reads, account.read_waits), (reads, waits));
        assert_eq!(account.peak_tags, tags.min(reads as u32));
        let order: Vec<_> = rig.done.iter().map(|d| d.tag).collect();
        assert_eq!(order, (0..reads).collect::<Vec<_>>(), "first come, first served");
        // The first one that waited starts when the first tag comes back.
        if waits > 0 {
            let late = rig.done.iter().find(|d| d.tag == u64::from(tags)).unwrap();
            assert_eq!(late.started, rig.end_of(0));
        }
    }
}

#[test]
fn a_read_above_its_tags_or_its_buffer_goes_in_parts() {
    for (tags, bytes) in [(2, 4096), (32, 512), (3, 1024)] {
        let mut cfg = single();
        let NodeKind::Endpoint(e) = &mut cfg.nodes[0].kind else { unreachable!() };
        (e.read_tags, e.read_bytes) = (tags, bytes);
        let mut rig = Rig::new(&cfg);
        rig.submit_at(ns(0), Transaction { addr: 100, ..t(Kind::Read, 1, host(0), 10_000, 1) });
        rig.finish();
        assert_eq!(rig.done.len(), 1);
        assert_eq!(rig.done[0].bytes, 10_000);
        let account = rig.tree.requester(NodeId(1));
        assert_eq!(account.read_waits, 1);
        assert!(account.peak_tags <= tags.min(bytes / 512));
        let down = rig.tree.account(NodeId(1), Direction::Down).total();
        assert!(down.bytes >= 10_000 + 20 * 10_000 / 256);
    }
}

#[test]
fn posted_credits_hold_on_both_sides_of_the_limit_and_come_back_in_order() {
    // Two headers: two single-TLP writes go at once, the third waits for the first to drain.
    for (headers, data, waits) in [(2, 1000, 1), (3, 1000, 0), (100, 8, 1), (100, 12, 0)] {
        let mut cfg = single();
        cfg.format.max_payload = 128;
        cfg.nodes[0].link.credits =
            Credits { posted_headers: headers, posted_data: data, nonposted_headers: 8 };
        let mut rig = Rig::new(&cfg);
        for tag in 0..3 {
            rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 64, tag));
        }
        rig.finish();
        let link = rig.tree.account(NodeId(1), Direction::Up);
        assert_eq!((link.posted_waits, link.total().tlps), (waits, 3));
        let order: Vec<_> = rig.done.iter().map(|d| d.tag).collect();
        assert_eq!(order, [0, 1, 2]);
        if waits > 0 {
            assert_eq!(rig.done[2].started, rig.end_of(0));
        }
    }
}

#[test]
fn a_read_waits_behind_a_blocked_write_but_a_write_passes_a_blocked_read() {
    let mut cfg = single();
    cfg.nodes[0].link.credits =
        Credits { posted_headers: 1, posted_data: 16, nonposted_headers: 1 };
    let mut rig = Rig::new(&cfg);
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 64, 0));
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 64, 1)); // blocked
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 64, 2)); // behind it
    rig.finish();
    let started = |rig: &Rig, tag| rig.done.iter().find(|d| d.tag == tag).unwrap().started;
    assert!(started(&rig, 2) > started(&rig, 1));
    assert_eq!(started(&rig, 1), rig.end_of(0));

    let mut rig = Rig::new(&cfg);
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 64, 0));
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 64, 1)); // no request credit
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 64, 2)); // passes
    rig.finish();
    assert!(started(&rig, 2) < started(&rig, 1));
    assert_eq!(rig.tree.account(NodeId(1), Direction::Up).request_waits, 1);
}

#[test]
fn a_read_sees_the_writes_before_it() {
    // The read is right behind the write: its data access begins when the write is visible.
    let mut rig = Rig::new(&single());
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 8, 0));
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 8, 1));
    rig.finish();
    let visible = rig.end_of(0);
    assert_eq!(rig.end_of(1).since(visible).as_ps().abs_diff(200_000 + x8(28) + 10_000), 0);
    // A read long after is not delayed.
    let mut rig = Rig::new(&single());
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 8, 0));
    let read = t(Kind::Read, 1, host(0), 8, 1);
    rig.submit_at(ns(110), read);
    rig.finish();
    assert_eq!(rig.end_of(1).since(ns(110)), rig.tree.unloaded_latency(&read));
}

#[test]
fn writes_that_wait_for_dram_keep_their_order_and_hold_back_reads() {
    let mut cfg = single();
    cfg.sockets[0].dram_rate = BitRate::gbps(1); // 8 ns per byte
    let cold = Target::HostMemory { numa: 0, llc: false };
    let mut rig = Rig::new(&cfg);
    rig.submit_at(ns(0), t(Kind::Write, 1, cold, 64, 0));
    rig.submit_at(ns(0), t(Kind::Write, 1, cold, 64, 1));
    rig.submit_at(ns(0), t(Kind::Write, 1, host(0), 64, 2));
    rig.submit_at(ns(0), t(Kind::Read, 1, host(0), 64, 3));
    rig.finish();
    let order: Vec<_> = rig.done.iter().map(|d| d.tag).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    // The second write waits for the 512 ns of the first.
    assert_eq!(rig.end_of(1), rig.end_of(0) + Span::from_ns(512));
    assert_eq!(rig.end_of(2), rig.end_of(1));
    assert!(rig.end_of(3) > rig.end_of(2) + Span::from_ns(200));
    let used = rig.tree.memory().used(crate::memory::MemoryPlace(0));
    assert_eq!((used.access_bytes, used.access_waits), (128, 1));
}

#[test]
fn a_slow_memory_pushes_back_to_the_writer() {
    let mut cfg = single();
    cfg.sockets[0].dram_rate = BitRate::gbps(8);
    cfg.nodes[0].link.credits =
        Credits { posted_headers: 8, posted_data: 128, nonposted_headers: 8 };
    let cold = Target::HostMemory { numa: 0, llc: false };
    let mut rig = Rig::new(&cfg);
    for tag in 0..200 {
        rig.submit_at(ns(0), t(Kind::Write, 1, cold, 256, tag));
    }
    rig.finish();
    let gap = rig.end_of(199).since(rig.end_of(100)).as_ps() / 99;
    assert!(gap.abs_diff(256_000) <= 100, "one write per 256 ns of memory, {gap}");
    let started: Vec<_> = rig.done.iter().map(|d| d.started).collect();
    let in_buffer = rig.done.iter().filter(|d| d.started < rig.end_of(100)).count();
    assert!(started.is_sorted() && in_buffer <= 101 + 8, "{in_buffer}");
}

#[test]
fn dllps_take_the_room_that_the_other_direction_asks_for() {
    let run = |dllp_bytes| {
        let mut cfg = single();
        (cfg.format.dllp_bytes, cfg.format.dllp_interval) = (dllp_bytes, 203);
        cfg.nodes[0].link.credits =
            Credits { posted_headers: 64, posted_data: 1024, nonposted_headers: 64 };
        let NodeKind::Endpoint(e) = &mut cfg.nodes[0].kind else { unreachable!() };
        (e.read_tags, e.read_bytes) = (4096, 4096 * 512);
        let mut rig = Rig::new(&cfg);
        // 4672 bytes up per round, 593 ns: a little more than there is room for.
        for tag in 0..500 {
            rig.submit_at(ns(560 * tag), t(Kind::Write, 1, host(0), 4096, tag));
            rig.submit_at(ns(560 * tag), t(Kind::Read, 1, host(0), 4096, 1000 + tag));
        }
        rig.finish();
        let up = rig.tree.account(NodeId(1), Direction::Up);
        let down = rig.tree.account(NodeId(1), Direction::Down);
        assert_eq!(up.dllp_bytes, down.total().bytes * u64::from(dllp_bytes) / 203);
        rig.engine.now().as_ps()
    };
    let (without, with) = (run(0), run(16));
    let ratio = with as f64 / without as f64;
    let expected = (4672.0 + 4416.0 * 16.0 / 203.0) / 4672.0;
    assert!((ratio - expected).abs() < 0.005, "{ratio} {expected}");
}

#[test]
fn a_config_that_is_no_tree_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut PcieConfig)| {
        let mut cfg = large();
        change(&mut cfg);
        PcieTree::new(&cfg, 1, "h").unwrap_err()
    };
    let width = PcieConfigError::Width { index: 1 };
    assert_eq!(refused(&|c| c.nodes[1].link.width = 0), width);
    assert_eq!(refused(&|c| c.nodes[1].link.width = 3), width);
    let parent = PcieConfigError::Parent { index: 3 };
    assert_eq!(refused(&|c| c.nodes[3].parent = NodeId(3)), parent);
    assert_eq!(refused(&|c| c.nodes[3].parent = NodeId(5)), parent);
    assert_eq!(refused(&|c| c.nodes[3].parent = NodeId(99)), parent);
    assert_eq!(refused(&|c| c.sockets.clear()), PcieConfigError::NoSocket);
    let credits = PcieConfigError::Credits { index: 0 };
    assert_eq!(refused(&|c| c.nodes[0].link.credits.posted_data = 15), credits);
    let field = PcieConfigError::Format { field: "max_payload" };
    assert_eq!(refused(&|c| c.format.max_payload = 300), field);
    assert_eq!(refused(&|c| c.format.max_payload = 64), field);
    let mut cfg = large();
    cfg.nodes[0].link.credits.posted_data = 16;
    assert!(PcieTree::new(&cfg, 1, "h").is_ok());
}

#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    what: u8,
    from: u16,
    to: u16,
    llc: bool,
    addr: u64,
    bytes: u32,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1_u32..=64, 1_u32..=600, 3000_u32..=9000];
    let step = (0_u64..300, 0_u8..8, 3_u16..=6, 0_u16..=6, any::<bool>(), 0_u64..10_000, bytes);
    let step = step.prop_map(|(gap, what, from, to, llc, addr, bytes)| Step {
        gap,
        what,
        from,
        to,
        llc,
        addr,
        bytes,
    });
    prop::collection::vec(step, 1..80)
}

/// The transaction that a step stands for.
fn transaction(step: &Step, tag: u64) -> Transaction {
    let target = match step.to {
        0 | 1 => Target::HostMemory { numa: step.to as u8, llc: step.llc },
        // Neither a switch nor the requester itself.
        to if to == 2 || to == step.from => host(0),
        to => Target::Node(NodeId(to)),
    };
    let (kind, from, target) = match step.what {
        0 => (Kind::Mmio, step.to % 2, Target::Node(NodeId(step.from))),
        1..4 => (Kind::Write, step.from, target),
        _ => (Kind::Read, step.from, target),
    };
    let cause = Cause::ALL[(tag % 10) as usize];
    Transaction { addr: step.addr, cause, ..t(kind, from, target, step.bytes, tag) }
}

fn tight(mut cfg: PcieConfig, headers: u32, tags: u32) -> PcieConfig {
    for node in &mut cfg.nodes {
        node.link.credits =
            Credits { posted_headers: headers, posted_data: 16 * headers, nonposted_headers: 2 };
        if let NodeKind::Endpoint(e) = &mut node.kind {
            (e.read_tags, e.read_bytes) = (tags, 512 * tags);
        }
    }
    cfg
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_transaction_ends_once_and_no_earlier_than_unloaded(
        steps in steps(), headers in 1_u32..40, tags in 1_u32..40, dllp in 0_u32..17,
    ) {
        let mut cfg = tight(large(), headers, tags);
        (cfg.format.dllp_bytes, cfg.format.dllp_interval) = (dllp, 203);
        let mut rig = Rig::new(&cfg);
        let (mut now, mut sent) = (Time::ZERO, Vec::new());
        for (tag, step) in steps.iter().enumerate() {
            now += Span::from_ns(step.gap);
            let t = transaction(step, tag as u64);
            sent.push((now, t));
            rig.submit_at(now, t);
        }
        rig.finish();
        prop_assert_eq!(rig.done.len(), sent.len());
        let mut seen = vec![false; sent.len()];
        for done in &rig.done {
            let (at, t) = sent[done.tag as usize];
            prop_assert!(!std::mem::replace(&mut seen[done.tag as usize], true));
            prop_assert_eq!((done.submitted, done.bytes, done.kind), (at, t.bytes, t.kind));
            let least = rig.tree.unloaded_latency(&t);
            prop_assert!(done.finished.since(at) >= least, "{:?} {:?}", done, least);
        }
        // Writes of one way end in their order, and a read after a write sees it.
        for (i, a) in sent.iter().enumerate() {
            for (j, b) in sent.iter().enumerate().skip(i + 1) {
                let same = a.1.kind != Kind::Read
                    && a.1.from == b.1.from
                    && super::tree::place(a.1.target) == super::tree::place(b.1.target);
                prop_assert!(!same || rig.end_of(i as u64) <= rig.end_of(j as u64));
            }
        }
    }

    #[test]
    fn bytes_on_each_link_are_those_of_the_formulas(steps in steps(), headers in 1_u32..9) {
        let cfg = tight(single(), headers, 64);
        let mut rig = Rig::new(&cfg);
        let f = cfg.format;
        let (mut up, mut down) = (0, 0);
        for (tag, step) in steps.iter().enumerate() {
            let step = Step { from: 1, to: 0, ..step.clone() };
            let t = transaction(&step, tag as u64);
            match t.kind {
                Kind::Read => {
                    up += u64::from(f.read(t.addr, t.bytes).wire);
                    down += u64::from(f.completions(t.addr, t.bytes).wire);
                }
                Kind::Write => up += u64::from(f.write(t.addr, t.bytes).wire),
                Kind::Mmio => {}
            }
            if t.kind != Kind::Mmio {
                rig.submit_at(rig.engine.now(), t);
            }
        }
        rig.finish();
        prop_assert_eq!(rig.tree.account(NodeId(1), Direction::Up).total().bytes, up);
        prop_assert_eq!(rig.tree.account(NodeId(1), Direction::Down).total().bytes, down);
    }

    #[test]
    fn alone_a_transaction_takes_the_unloaded_time(steps in steps()) {
        // The bursts of one transaction must not meet in memory either.
        let (mut cfg, fast) = (large(), BitRate::gbps(1_000_000));
        cfg.sockets.iter_mut().for_each(|s| s.dram_rate = fast);
        for node in &mut cfg.nodes {
            if let NodeKind::Endpoint(e) = &mut node.kind {
                e.memory_rate = fast;
            }
        }
        let mut rig = Rig::new(&cfg);
        let mut now = Time::ZERO;
        for (tag, step) in steps.iter().enumerate() {
            let t = transaction(step, tag as u64);
            // 16 KiB are within the tags of a device, so nothing but the links limits.
            now += Span::from_us(100);
            rig.submit_at(now, t);
            rig.run_before(Time::MAX);
            let took = rig.done.last().unwrap().finished.since(now);
            let least = rig.tree.unloaded_latency(&t);
            // Parts of a picosecond add up over the bursts of a long transaction.
            let rounding = if t.bytes > to_page_end(t.addr).min(512) { 20 } else { 0 };
            prop_assert!(took.saturating_sub(least).as_ps() <= rounding, "{took} {least} {t:?}");
            prop_assert!(took >= least);
        }
    }
}

/// A rig of two sockets with relaxed ordering, and writes of payload to the far and the near one.
fn relaxed(scope: RelaxedScope, spread: u64, ends: &[(Kind, Cause, u8)]) -> Vec<u64> {
    let mut cfg = large();
    cfg.relaxed = RelaxedOrdering { scope, spread: Span::from_ns(spread) };
    let mut rig = Rig::new(&cfg);
    for (tag, &(kind, cause, numa)) in (0..).zip(ends) {
        rig.submit_at(ns(0), Transaction { cause, ..t(kind, 5, host(numa), 64, tag) });
    }
    rig.finish();
    rig.done.iter().map(|d| d.tag).collect()
}

#[test]
fn relaxed_writes_pass_and_nothing_else_does() {
    use Cause::{Atomic, Cqe, PayloadWrite};
    let far = (Kind::Write, PayloadWrite, 1);
    let near = (Kind::Write, PayloadWrite, 0);
    let (cqe, read) = ((Kind::Write, Cqe, 0), (Kind::Read, Atomic, 0));
    let orders = [
        (RelaxedScope::None, [far, near, cqe], [0, 1, 2]),
        (RelaxedScope::Payload, [far, near, cqe], [1, 0, 2]),
        (RelaxedScope::Payload, [far, cqe, near], [2, 0, 1]),
        (RelaxedScope::Payload, [near, far, cqe], [0, 1, 2]),
        (RelaxedScope::PayloadAndAtomics, [far, near, cqe], [1, 0, 2]),
    ];
    for (scope, ends, order) in orders {
        assert_eq!(relaxed(scope, 0, &ends), order, "{scope:?} {ends:?}");
    }
    // A read waits for what was sent before it, unless it carries the attribute itself: its data is
    // at the device before the far write is in memory.
    let data = |scope| {
        let mut cfg = large();
        cfg.relaxed = RelaxedOrdering { scope, spread: Span::ZERO };
        cfg.sockets[1].write_commit = Span::from_us(1);
        let mut rig = Rig::new(&cfg);
        for (tag, (kind, cause, numa)) in [(0, far), (1, read)] {
            rig.submit_at(ns(0), Transaction { cause, ..t(kind, 5, host(numa), 64, tag) });
        }
        rig.finish();
        rig.end_of(1) < rig.end_of(0)
    };
    assert!(!data(RelaxedScope::None) && !data(RelaxedScope::Payload));
    assert!(data(RelaxedScope::PayloadAndAtomics));
}

#[test]
fn the_spread_is_a_bound_and_mixes_writes_to_one_memory() {
    let write = (Kind::Write, Cause::PayloadWrite, 0);
    let all = [write; 32];
    let sorted: Vec<u64> = (0..32).collect();
    assert_eq!(relaxed(RelaxedScope::Payload, 0, &all), sorted, "each takes the same time");
    assert_eq!(relaxed(RelaxedScope::None, 100, &all), sorted, "only what carries the attribute");
    let order = relaxed(RelaxedScope::Payload, 100, &all);
    assert_ne!(order, sorted);
    // 88 bytes take 11.2 ns: what left 100 ns later, 9 writes, is never seen before.
    for (i, tag) in (0i64..).zip(&order) {
        assert!((i - *tag as i64).abs() <= 9, "{order:?}");
    }
}

/// Ends transactions in a tree without time as they are submitted.
fn instantly(cfg: &PcieConfig, all: &[Transaction]) -> PcieTree {
    let mut tree = PcieTree::new(cfg, 1, "host").unwrap();
    tree.make_instant();
    let mut out = Out::new();
    for one in all {
        tree.submit(ns(5), *one, &mut out);
        assert!(out.is_empty(), "without time there is no event");
        assert_eq!(tree.in_flight(), 1);
        assert_eq!(tree.take_ended(), Some(*one));
        assert_eq!((tree.take_ended(), tree.in_flight()), (None, 0));
    }
    tree
}

proptest! {
    /// Without time the same bytes cross the same links, and the same memories.
    #[test]
    fn a_tree_without_time_counts_the_same(
        all in prop::collection::vec(
            (0u8..3, 0u8..5, 1u32..20_000, 0u64..5000, any::<bool>()),
            1..8,
        )
    ) {
        let cfg = large();
        let all: Vec<Transaction> = (0..).zip(all).map(|(tag, (kind, to, bytes, addr, llc))| {
            let kind = [Kind::Read, Kind::Write, Kind::Mmio][usize::from(kind)];
            let target = match (kind, to) {
                (Kind::Mmio, _) => Target::Node(NodeId(3)),
                (_, 0 | 1) => Target::HostMemory { numa: to, llc },
                _ => Target::Node(NodeId(u16::from(to) + 2)),
            };
            let from = if kind == Kind::Mmio { u16::from(to & 1) } else { 3 };
            Transaction { addr, ..t(kind, from, target, bytes, tag) }
        }).collect();
        let mut rig = Rig::new(&cfg);
        all.iter().for_each(|one| rig.submit_at(ns(0), *one));
        rig.finish();
        let tree = instantly(&cfg, &all);
        for (a, b) in rig.tree.accounts().zip(tree.accounts()) {
            prop_assert_eq!(a.by_cause, b.by_cause);
            prop_assert_eq!(a.dllp_bytes, b.dllp_bytes);
            prop_assert_eq!((b.busy, b.queued), (Span::ZERO, Span::ZERO));
        }
        let bytes = |t: &PcieTree| -> Vec<_> {
            t.socket_memories().map(|m| m.1.access_bytes).collect()
        };
        prop_assert_eq!(bytes(&rig.tree), bytes(&tree));
        let reads = |t: &PcieTree| t.requester(NodeId(3)).reads;
        prop_assert_eq!(reads(&rig.tree), reads(&tree));
    }
}

#[test]
fn a_root_complex_limits_what_it_forwards_between_devices_and_nothing_else() {
    let time = |cfg: &PcieConfig, kind, target| {
        let tree = PcieTree::new(cfg, 1, "host0").unwrap();
        tree.unloaded_latency(&t(kind, 3, target, 4096, 0)).as_ps() / 1000
    };
    let (free, mut cfg) = (large(), large());
    // A byte per nanosecond, and half of one.
    cfg.peer = PeerConfig { same: BitRate::gbps(8), across: BitRate::gbps(4) };
    for kind in [Kind::Read, Kind::Write] {
        for target in [host(0), host(1), Target::Node(NodeId(4))] {
            assert_eq!(time(&cfg, kind, target), time(&free, kind, target), "{kind:?} {target:?}");
        }
        for (node, least) in [(5, 4096), (6, 8192)] {
            let slow = time(&cfg, kind, Target::Node(NodeId(node)));
            let header = slow - least;
            assert!(slow > least && header < 2400, "{kind:?} {node}: {slow} ns");
            assert!(time(&free, kind, Target::Node(NodeId(node))) < least);
        }
    }
    // A limit above the links is none: no station, no event.
    cfg.peer = PeerConfig { same: BitRate::gbps(100), ..PeerConfig::default() };
    let to = Target::Node(NodeId(5));
    assert_eq!(time(&cfg, Kind::Write, to), time(&free, Kind::Write, to));
}
