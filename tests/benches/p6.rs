//! P6: simulated 8-byte WRITEs per CPU second, with every PCIe stage.
//!
//! `cargo bench -p doorbell-tests --bench p6`. Two hosts of `generic-400g`, one QP, one WRITE in
//! 16 signalled, batches of 1, 16 and 64. First what does not depend on the machine it runs on:
//! events per WRITE and the trace hash; then user CPU time. Nothing is asserted about time.

use std::fs;

use doorbell::workloads::connect::{LinkConfig, LocalConfig};
use doorbell::workloads::{Rate, RateConfig, Responder, ResponderConfig, Shape, Stop};
use doorbell_core::transport::QpSize;
use doorbell_core::units::Time;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;

const MESSAGES: u64 = 2_000_000;

/// User CPU time of this process in seconds; 0 where the system does not tell in this way.
fn user_seconds() -> f64 {
    // Field 14 of proc(5), counted behind the command's name in parentheses, in ticks of 10 ms.
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = behind.split_whitespace().nth(11).and_then(|t| t.parse().ok()).unwrap_or(0);
    ticks as f64 / 100.0
}

fn world(batch: u32, inline: bool) -> World {
    let config = machine::world_of(machine::quiet_host(), 2, 1);
    let mut world = World::new(&config).expect("it builds");
    let local = LocalConfig { region_bytes: 1 << 16, cq_depth: 4096, ..LocalConfig::default() };
    let mut link = LinkConfig::to(1);
    link.size = QpSize { max_send_wr: 256, max_recv_wr: 16, max_send_sge: 1, max_inline: 64 };
    let config = RateConfig {
        local,
        link,
        shape: Shape { inline, ..Shape::default() },
        depth: 256,
        batch,
        signal_every: 16,
        poll_batch: 16,
        stop: Stop::Messages(MESSAGES),
        latencies: false,
        ..RateConfig::to(1)
    };
    world.add_program(HostId(0), machine::core(0), Time::ZERO, Rate::new(config));
    let responder = Responder::new(ResponderConfig::to(0));
    world.add_program(HostId(1), machine::core(0), Time::ZERO, responder);
    world
}

fn main() {
    println!(
        "batch  payload  events/WRITE  trace hash        CPU s  million WRITEs per CPU second"
    );
    for inline in [false, true] {
        for batch in [1, 16, 64] {
            let mut world = world(batch, inline);
            let before = user_seconds();
            let end = world.run(Time::MAX);
            let cpu = user_seconds() - before;
            assert_eq!(end, RunEnd::Done);
            let done = world.hosts()[0].nic().stats.wqes;
            assert_eq!(done, MESSAGES);
            println!(
                "{batch:5}  {:7}  {:12.2}  {}  {cpu:5.2}  {:.2}",
                if inline { "inline" } else { "gather" },
                world.events() as f64 / done as f64,
                world.trace_hash(),
                done as f64 / cpu.max(0.01) / 1e6
            );
        }
    }
}
