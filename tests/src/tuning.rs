//! Random machines: results may not depend on any of these numbers, only times may.

use doorbell_core::transport::Initiator;
use doorbell_core::units::{Ratio, Span, Time};
use doorbell_sim::engine::NoiseTable;
use doorbell_sim::fabric::{Buffering, FabricConfig, Forwarding, Link, Noise, SwitchConfig};
use doorbell_sim::host::{InitiatorConfig, PollMode};
use doorbell_sim::pcie::{Credits, NodeKind};
use doorbell_sim::rc::{AckPolicy, AckReqLast};
use doorbell_sim::wire::Encapsulation;
use doorbell_sim::world::WorldConfig;
use proptest::prelude::*;

use crate::machine;

/// Numbers of a machine.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Blocks of a WQE fetch, fetches under way, WQEs on the chip.
    pub fetch: (u32, u32, u32),
    /// Processing units that send and that receive.
    pub units: (u16, u16),
    /// Receive WQEs of one fetch, and those that are fetched ahead of need.
    pub rq_fetch: (u32, u32),
    /// WQEs of outstanding READs on the chip.
    pub wqe_cache: u32,
    /// QP contexts on the chip.
    pub qp_cache: u32,
    /// Bytes between memory and wire.
    pub tx_buffer: u32,
    /// When ACKs leave.
    pub ack: AckPolicy,
    /// Spacing of requests for an ACK; whether each message end asks.
    pub ask: (u32, AckReqLast),
    /// Window in packets.
    pub outstanding: u32,
    /// Speeds of the NIC's clock, every five microseconds another.
    pub clock: Vec<u64>,
    /// Lock buckets of ATOMICs, and whether they are held over PCIe.
    pub atomics: (u32, bool),
    /// PCIe: MPS, MRRS, tags, credits for headers and for data.
    pub pcie: (u32, u32, u32, u32, u32),
    /// DMA to the cache.
    pub llc: bool,
    /// Programs sleep instead of polling.
    pub event: bool,
    /// Socket of the programs.
    pub socket: u8,
    /// Noise of memory reads.
    pub noise: bool,
    /// What is between the hosts.
    pub network: Network,
    /// Bytes that BlueFlame carries.
    pub bf_bytes: u32,
}

/// What is between the hosts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// A cable.
    Cable,
    /// A switch that cuts through and never drops.
    CutThrough,
    /// A switch that stores and forwards, with room for three packets.
    Store,
}

fn acks() -> impl Strategy<Value = AckPolicy> {
    prop_oneof![
        Just(AckPolicy::EachRequest),
        Just(AckPolicy::IMMEDIATE),
        (2..9u32, 0..2000u64)
            .prop_map(|(every, ns)| AckPolicy::Coalesce { every, delay: Span::from_ns(ns) }),
    ]
}

fn asks() -> impl Strategy<Value = (u32, AckReqLast)> {
    let every = proptest::sample::select(vec![0, 1, 2, 7, 64]);
    let last = proptest::sample::select(vec![AckReqLast::EveryMessage, AckReqLast::Signalled]);
    (every, last)
}

fn pcie() -> impl Strategy<Value = (u32, u32, u32, u32, u32)> {
    let mps = proptest::sample::select(vec![128, 256, 512]);
    let mrrs = proptest::sample::select(vec![64, 128, 512, 4096]);
    (mps, mrrs, 1..20u32, 1..20u32, 0..200u32)
}

/// Any machine.
pub fn tunings() -> impl Strategy<Value = Tuning> {
    let nic = (
        (1..17u32, 1..5u32, 1..20u32),
        (1..5u16, 1..5u16),
        (1..9u32, 0..40u32),
        (1..6u32, 1..5u32),
        1..70_000u32,
        (1..5u32, any::<bool>()),
        proptest::sample::select(vec![0, 64, 128, 256]),
    );
    let clock = proptest::collection::vec(1..9u64, 0..6);
    let rc = (acks(), asks(), 1..300u32, clock);
    let network =
        proptest::sample::select(vec![Network::Cable, Network::CutThrough, Network::Store]);
    let host = (pcie(), any::<bool>(), any::<bool>(), 0..2u8, any::<bool>(), network);
    (nic, rc, host).prop_map(|(nic, rc, host)| Tuning {
        fetch: nic.0,
        units: nic.1,
        rq_fetch: nic.2,
        wqe_cache: nic.3.0,
        qp_cache: nic.3.1,
        tx_buffer: nic.4,
        atomics: nic.5,
        bf_bytes: nic.6,
        ack: rc.0,
        ask: rc.1,
        outstanding: rc.2,
        clock: rc.3,
        pcie: host.0,
        llc: host.1,
        event: host.2,
        socket: host.3,
        noise: host.4,
        network: host.5,
    })
}

impl Tuning {
    /// Two hosts with these numbers.
    pub fn world(&self, seed: u64) -> WorldConfig {
        let mut host = machine::quiet_host();
        (host.nic.wqe_fetch_blocks, host.nic.wqe_fetches, host.nic.wqe_window) = self.fetch;
        (host.nic.pu_count, host.nic.rx_count) = self.units;
        (host.nic.rq_fetch, host.nic.rq_ahead) = self.rq_fetch;
        host.nic.wqe_cache = self.wqe_cache;
        host.nic.qp_cache = self.qp_cache;
        host.nic.tx_buffer = self.tx_buffer;
        host.nic.rx_buffer = self.tx_buffer;
        (host.nic.atomic.buckets, host.nic.atomic.hold_over_pcie) = self.atomics;
        host.nic.bf_bytes = self.bf_bytes;
        let steps = (1..).zip(&self.clock).map(|(i, &n)| {
            let at = Time::ZERO + Span::from_us(5) * i;
            (at, Ratio::new(n, 4).expect("not zero"))
        });
        host.nic.clock = steps.collect();
        host.rc.ack = self.ack;
        (host.rc.ack_req_every, host.rc.ack_req_last) = self.ask;
        host.rc.max_outstanding_packets = self.outstanding;
        host.rc.encapsulation =
            if self.llc { Encapsulation::RoceV2Ipv4 } else { Encapsulation::IbLocal };
        host.llc = self.llc;
        self.tune_pcie(&mut host.pcie);
        let mut config = machine::world_of(host, 2, seed);
        config.fabric = self.fabric();
        config
    }

    fn tune_pcie(&self, pcie: &mut doorbell_sim::pcie::PcieConfig) {
        let (mps, mrrs, tags, headers, data) = self.pcie;
        pcie.format.max_payload = mps;
        pcie.format.max_read_request = mrrs;
        pcie.format.completion_combine = mps;
        for node in &mut pcie.nodes {
            node.link.credits = Credits {
                posted_headers: headers,
                posted_data: mps / 16 + data,
                nonposted_headers: headers,
            };
            if let NodeKind::Endpoint(e) = &mut node.kind {
                e.read_tags = tags;
                e.read_bytes = mrrs * 2;
            }
        }
        if self.noise {
            let table =
                [(0, Span::ZERO), (900_000, Span::from_ns(300)), (1_000_000, Span::from_us(5))];
            for socket in &mut pcie.sockets {
                socket.noise = NoiseTable::new(&table).ok();
            }
        }
    }

    fn fabric(&self) -> FabricConfig {
        let p = machine::profile("generic-400g").port;
        let link = Link::new(p.rate, p.propagation);
        let mut fabric = match self.network {
            Network::Cable => FabricConfig::back_to_back(link),
            Network::CutThrough => FabricConfig::single_switch(
                2,
                link,
                SwitchConfig {
                    buffering: Buffering::Lossless { port_bytes: 1 << 20 },
                    ..SwitchConfig::default()
                },
            ),
            Network::Store => FabricConfig::single_switch(
                2,
                link,
                SwitchConfig {
                    forwarding: Forwarding::StoreAndForward,
                    buffering: Buffering::Lossless { port_bytes: 3 * 4224 },
                    ..SwitchConfig::default()
                },
            ),
        };
        fabric.noise = if self.noise { Noise::OnePacket } else { Noise::Off };
        fabric
    }

    /// Where a program runs.
    pub const fn initiator(&self) -> InitiatorConfig {
        let poll = if self.event { PollMode::Event } else { PollMode::Busy };
        InitiatorConfig { who: Initiator::Cpu { core: 0, numa: self.socket }, poll, nic: 0 }
    }

    /// Where the program of pair `pair` runs: each has a core of its own.
    pub const fn initiator_of(&self, pair: u16) -> InitiatorConfig {
        let InitiatorConfig { poll, .. } = self.initiator();
        InitiatorConfig { who: Initiator::Cpu { core: pair, numa: self.socket }, poll, nic: 0 }
    }
}
