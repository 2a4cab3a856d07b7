//! Each stage alone: the test's device is fast everywhere but in the stage that is looked at. The
//! published rows are compared elsewhere, by `doorbell fidelity`.

use doorbell_core::units::{BitRate, Span};

use super::*;
use crate::engine::NoiseTable;
use crate::pcie::{
    Credits, EndpointConfig, Generation, InterconnectConfig, LinkConfig, NodeConfig, NodeKind,
    PeerConfig, RelaxedOrdering, SocketConfig, TlpFormat, Transaction,
};

fn ns(n: u64) -> Span {
    Span::from_ns(n)
}

fn config(read_tags: u32) -> BenchConfig {
    let fast = Stage { op: Span::ZERO, rate: BitRate::gbps(1_000_000) };
    let socket = SocketConfig {
        root_latency: ns(60),
        llc_read: ns(200),
        dram_extra: ns(40),
        write_commit: ns(100),
        mmio_latency: Span::ZERO,
        dram_rate: BitRate::gbps(400),
        noise: None,
    };
    let device = EndpointConfig {
        read_tags,
        read_bytes: read_tags * 512,
        read_latency: Span::ZERO,
        write_latency: Span::ZERO,
        memory_rate: BitRate::gbps(1_000),
        kernel_rate: BitRate::gbps(1_000),
    };
    let link = LinkConfig {
        generation: Generation::Gen3,
        width: 8,
        latency: ns(40),
        credits: Credits::UNLIMITED,
    };
    BenchConfig {
        pcie: PcieConfig {
            format: TlpFormat::PCI_SIG,
            sockets: vec![socket],
            interconnect: InterconnectConfig {
                latency: ns(50),
                rate: BitRate::gbps(150),
                request_bytes: 16,
            },
            peer: PeerConfig::default(),
            relaxed: RelaxedOrdering::default(),
            nodes: vec![NodeConfig {
                name: "device".into(),
                parent: NodeId(0),
                link,
                kind: NodeKind::Endpoint(device),
            }],
        },
        device: NodeId(1),
        engine: DmaEngineConfig {
            issue: ns(60),
            notify: ns(50),
            queue: ns(70),
            read_op: Span::ZERO,
            write_op: Span::ZERO,
            mover: fast,
            port: fast,
        },
        target: Target::HostMemory { numa: 0, llc: true },
        window: 8192,
        seed: 1,
    }
}

/// The way through the tree alone.
fn unloaded(cfg: &BenchConfig, kind: Kind, bytes: u32) -> Span {
    let tree = PcieTree::new(&cfg.pcie, 1, "bench").unwrap();
    let (from, target, cause) = (cfg.device, cfg.target, Cause::Other);
    tree.unloaded_latency(&Transaction { kind, from, target, bytes, addr: 0, cause, tag: 0 })
}

/// Equal up to the picoseconds that whole picoseconds per burst cost.
fn near(a: Span, b: Span) -> bool {
    a.as_ps().abs_diff(b.as_ps()) <= 10
}

#[test]
fn a_read_is_issue_way_and_notify_and_with_dma_the_queue_and_the_mover() {
    let mut cfg = config(32);
    cfg.engine.read_op = ns(13);
    cfg.engine.mover = Stage { op: ns(5), rate: BitRate::gbps(64) };
    let way = unloaded(&cfg, Kind::Read, 64);
    let command = read_latency(&cfg, Interface::Command, 64, 3).unwrap().median();
    assert!(near(command, ns(60 + 50) + way), "{command}");
    let dma = read_latency(&cfg, Interface::Dma, 64, 3).unwrap().median();
    assert!(near(dma, ns(60 + 70 + 13 + 5 + 8 + 50) + way), "{dma}");
}

#[test]
fn a_command_read_behind_a_write_waits_until_it_is_visible() {
    let cfg = config(32);
    let (read, write) = (unloaded(&cfg, Kind::Read, 8), unloaded(&cfg, Kind::Write, 8));
    let pair = write_then_read_latency(&cfg, Interface::Command, 8, 3).unwrap().median();
    let alone = ns(60 + 50) + read;
    assert!(pair > alone && pair < alone + write, "{pair} against {alone}");
}

#[test]
fn small_writes_are_bound_by_the_engine() {
    let mut cfg = config(32);
    cfg.engine.write_op = ns(25);
    let run = bandwidth(&cfg, Mix::Write, 64, 64, 20_000).unwrap();
    assert!((run.mops() / 40.0 - 1.0).abs() < 0.01, "{}", run.mops());
}

#[test]
fn small_reads_are_bound_by_tags_over_the_round_trip() {
    for tags in [4, 8] {
        let cfg = config(tags);
        let trip = unloaded(&cfg, Kind::Read, 64);
        let bound = f64::from(tags) * 1e6 / trip.as_ps() as f64;
        let run = bandwidth(&cfg, Mix::Read, 64, 64, 20_000).unwrap();
        assert!((run.mops() / bound - 1.0).abs() < 0.02, "{} of {bound}", run.mops());
    }
}

#[test]
fn large_transfers_are_bound_by_their_mover_and_mixed_ones_by_the_port() {
    let mut cfg = config(64);
    cfg.engine.mover.rate = BitRate::gbps(32);
    cfg.engine.port.rate = BitRate::gbps(40);
    for (mix, bound) in [(Mix::Read, 32.0), (Mix::Write, 32.0), (Mix::ReadWrite, 20.0)] {
        let run = bandwidth(&cfg, mix, 2048, 64, 20_000).unwrap();
        assert!((run.gbps() / bound - 1.0).abs() < 0.02, "{mix:?}: {}", run.gbps());
    }
}

#[test]
fn memory_that_is_cold_is_farther_away() {
    let warm = config(32);
    let cold = BenchConfig { target: Target::HostMemory { numa: 0, llc: false }, ..warm.clone() };
    let median = |cfg: &BenchConfig| read_latency(cfg, Interface::Dma, 64, 3).unwrap().median();
    assert!(median(&cold) >= median(&warm) + ns(40));
}

#[test]
fn noise_repeats_with_its_seed_and_only_with_it() {
    let mut cfg = config(32);
    let table = NoiseTable::new(&[(0, ns(0)), (500_000, ns(7)), (1_000_000, ns(60))]).unwrap();
    cfg.pcie.sockets[0].noise = Some(table);
    let run = |cfg: &BenchConfig| read_latency(cfg, Interface::Dma, 64, 500).unwrap();
    let first = run(&cfg);
    assert_eq!(first, run(&cfg));
    assert!(first.quantile(0) < first.median() && first.median() < first.quantile(1_000_000));
    cfg.seed = 2;
    assert_ne!(first, run(&cfg));
}
