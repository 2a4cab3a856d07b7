//! Adaptive batching against every fixed batch size, at the same budget for the 99th percentile of
//! the latency.
//!
//! `cargo bench -p doorbell-tests --bench batching`. Messages of 64 bytes arrive at random times,
//! whether or not one core keeps up. For each machine and budget a sweep finds the fixed batch size
//! that keeps the budget at the highest load; then, at loads from 1 % to 95 % of that, the table
//! has the 99th percentile of that size and of the adaptive mode, and what each delivers within
//! the budget. Everything is simulated and repeats; no time of this machine is in it.

use doorbell::workloads::{LinkConfig, Responder, ResponderConfig};
use doorbell_core::policy::*;
use doorbell_core::transport::{Initiator, QpSize};
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_sim::host::{HostConfig, InitiatorConfig, PollMode};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use doorbell_tests::traffic::{Kind, Pushed, Pusher, PusherConfig, poisson};

const MESSAGES: usize = 6_000;
/// Messages at the start that do not count.
const WARM_UP: usize = 500;
const BYTES: u32 = 64;
const FIXED: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LOADS: [u64; 10] = [1, 5, 10, 20, 35, 50, 65, 80, 90, 95];
const LIMIT: Time = Time::from_ps(1_000_000_000_000);

struct Machine {
    name: &'static str,
    host: HostConfig,
    qps: u32,
    numa: u8,
}

impl Machine {
    fn all() -> Vec<Self> {
        let host = machine::quiet_host();
        let mut slow = host.clone();
        slow.nic.doorbell = Span::from_ns(250);
        vec![
            Self { name: "one QP", host: host.clone(), qps: 1, numa: 0 },
            Self { name: "four QPs", host: host.clone(), qps: 4, numa: 0 },
            Self { name: "four QPs, core of the far socket", host, qps: 4, numa: 1 },
            // No product: a device whose doorbells and nothing else are the limit.
            Self { name: "four QPs, 4 M doorbells/s (synthetic)", host: slow, qps: 4, numa: 0 },
        ]
    }

    /// What comes of messages every `gap` on average.
    fn run(&self, batch: BatchConfig, gap: Span) -> Pushed {
        let mut link = LinkConfig::to(1);
        link.qps = self.qps;
        link.size = QpSize { max_send_wr: 512, max_recv_wr: 1, max_send_sge: 1, max_inline: 220 };
        let config = PusherConfig {
            link,
            cq_depth: 512 * self.qps,
            sender: SenderConfig { batch, window: WindowConfig::default(), signal_last: true },
            inline: InlineConfig { lone_bytes: 0, batched_bytes: 0 },
            kind: Kind::Write,
            arrivals: poisson(7, MESSAGES, gap, BYTES).into(),
            buffers: 512,
        };
        let mut world = World::new(&machine::world_of(self.host.clone(), 2, 1)).expect("a pair");
        let on = InitiatorConfig {
            who: Initiator::Cpu { core: 0, numa: self.numa },
            poll: PollMode::Busy,
            nic: 0,
        };
        world.add_program(HostId(0), on, Time::ZERO, Pusher::new(config));
        let mut peer = ResponderConfig::to(0);
        peer.links[0].link.qps = self.qps;
        peer.local.region_bytes = 1 << 20;
        world.add_program(HostId(1), machine::core(0), Time::ZERO, Responder::new(peer));
        assert_eq!(world.run(LIMIT), RunEnd::Done, "{}", self.name);
        let pusher = world.program::<Pusher>(0).expect("a pusher");
        assert_eq!(pusher.failure, None);
        pusher.seen.clone()
    }
}

fn batch(mode: BatchMode, max_wrs: u32, budget: Span) -> BatchConfig {
    // The budget's half may be spent on waiting for others; both modes have the same.
    let max_delay = Span::from_ps(budget.as_ps() / 2);
    BatchConfig { mode, max_wrs, max_bytes: Bytes(1 << 20), max_delay, ..BatchConfig::default() }
}

fn p99(seen: &Pushed) -> Span {
    let mut all = seen.latencies[WARM_UP..].to_vec();
    all.sort();
    all[all.len() * 99 / 100]
}

/// Mean gap at a load in units of a thousand messages per second.
fn gap(kilo: u64) -> Span {
    Span::from_ps(1_000_000_000 / kilo)
}

/// Messages per second that were told of within the budget, in thousands.
fn within(seen: &Pushed, budget: Span) -> u64 {
    let good = seen.latencies.iter().filter(|l| **l <= budget).count() as u64;
    good * 1_000_000_000 / seen.end.as_ps()
}

/// The highest load at which `config` keeps the budget, to 1 %.
fn highest(m: &Machine, config: BatchConfig, budget: Span) -> u64 {
    let keeps = |kilo| p99(&m.run(config, gap(kilo))) <= budget;
    let (mut low, mut high) = (0, 60_000);
    while high - low > (low / 100).max(50) {
        let middle = (low + high) / 2;
        if keeps(middle) { low = middle } else { high = middle }
    }
    low
}

/// The table of a machine and a budget. Returns the least of the adaptive mode's throughput within
/// the budget, in percent of that of the best fixed size; 0 where it does not keep the budget.
fn table(m: &Machine, budget: Span, adaptive: BatchMode) -> u64 {
    let fixed = |n| batch(BatchMode::Fixed, n, budget);
    let sweep = FIXED.map(|n| (highest(m, fixed(n), budget), n));
    let (top, best) = *sweep.iter().max_by_key(|(top, n)| (*top, u32::MAX - n)).expect("sizes");
    println!("{}, p99 within {budget}: highest load by batch size", m.name);
    let line: Vec<_> = sweep.iter().map(|(t, n)| format!("{n}: {t} k/s")).collect();
    println!("  {}; best {best}", line.join(", "));
    println!("  load %   offered k/s   p99 fixed   p99 adaptive   within: fixed  adaptive");
    let ours = batch(adaptive, 128, budget);
    let mut least = u64::MAX;
    for percent in LOADS {
        let kilo = (top * percent / 100).max(1);
        let (f, a) = (m.run(fixed(best), gap(kilo)), m.run(ours, gap(kilo)));
        let (good, mine) = (within(&f, budget), within(&a, budget));
        // What is within the budget counts for nothing where the 99th percentile is not.
        let (score, kept) = (mine * 100 / good.max(1), p99(&a) <= budget);
        least = least.min(if kept { score } else { 0 });
        let over = if kept { "" } else { ", p99 over the budget" };
        let [fixed, adaptive] = [p99(&f), p99(&a)].map(|s| s.to_string());
        let per_ring = a.rings.wqes / a.rings.rings.max(1);
        println!(
            "  {percent:>6} {kilo:>13} {fixed:>11} {adaptive:>14} {good:>15} {mine:>9}  \
             {score} % in {per_ring} WQEs per ring{over}"
        );
    }
    println!(
        "  adaptive keeps the budget up to {} k/s, {least} % at least",
        highest(m, ours, budget)
    );
    least
}

fn main() {
    // Another number of waiting WQEs for each that is held: `SHARE=1 cargo bench …`.
    let share = std::env::var("SHARE").ok().and_then(|s| s.parse().ok());
    let adaptive = share.map_or(BatchMode::ADAPTIVE, |share| BatchMode::Adaptive { share });
    for m in Machine::all() {
        let least = [3, 5, 10].map(|us| table(&m, Span::from_us(us), adaptive));
        let least = least.into_iter().min().expect("three budgets");
        println!("{}: at least {least} % of the best fixed batch, 90 are wanted\n", m.name);
    }
}
