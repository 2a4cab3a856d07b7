//! What cores and GPU blocks pay, against closed forms on the generic profile.

use super::simulate_tests::{number, outcome, time};
use super::{Direction, ExitKind, Outcome};
use crate::testing::expanded;

const PUT: &str = "[[program]]\nkind = 'latency'\nsize = '8B'\ninline = '0B'\niterations = 20\n\
                   initiator = 'gpu'\nmemory = 'gpu'\n";

/// A time in nanoseconds.
fn ns(o: &Outcome, name: &str) -> f64 {
    number(o, name) / 1000.0
}

fn bytes(o: &Outcome, link: &str, direction: Direction, cause: &str) -> u64 {
    let here = o.pcie.iter().filter(|p| p.link == link && p.direction == direction);
    here.filter(|p| p.cause == cause).map(|p| p.bytes).sum()
}

#[test]
fn completions_go_to_the_memory_of_who_polls_them() {
    let cqe = |set: &[&str]| bytes(&outcome(PUT, set), "host0.gpu0", Direction::Down, "cqe");
    assert_eq!(cqe(&[]), 20 * 88, "64 bytes and a header each");
    assert_eq!(cqe(&["program.0.initiator=cpu"]), 0);
}

/// A core of the other socket: its doorbell and the completion cross once each, and its MMIO
/// store takes longer; the completion is then local.
#[test]
fn a_far_core_pays_for_two_crossings() {
    let p50 = |numa: &str| {
        let set = format!("program.0.numa={numa}");
        let cpu = ["program.0.initiator=cpu", "program.0.memory=host", set.as_str()];
        ns(&outcome(PUT, &cpu), "latency.p50")
    };
    let more = p50("remote") - p50("local");
    let crossings = 107.0 + 2.0 * 54.0;
    // A BlueFlame line and a completion at 60 GB/s, and a poll more or less.
    assert!(more > crossings - 15.0 && more < crossings + 15.0 + 3.0, "{more}");
}

#[test]
fn atomics_and_fences_are_counted() {
    // Build 200, two atomics 100 each, record 100, doorbell 30; the program fences.
    time(&outcome(PUT, &[]), "post_cost", 530_000);
    let o = outcome(PUT, &["gpu.wqe_atomics=3", "gpu.ring_atomics=4", "gpu.ring_fences=2"]);
    time(&o, "post_cost", 530_000 + 5 * 100_000 + 2 * 580_000);
    let p50 = |set: &[&str]| ns(&outcome(PUT, set), "latency.p50");
    let more = p50(&["gpu.poll_atomics=7", "gpu.poll_fences=1"]) - p50(&[]);
    assert!((more - 1280.0).abs() < 0.01, "{more}");
}

/// A ring that fences by itself orders the stores before it: nobody else has to.
#[test]
fn a_ring_with_fences_needs_none_of_the_program() {
    // Late stores that are there in time all the same: what is wrong is the order.
    let o = outcome(PUT, &["program.0.fence=false", "gpu.store_lag=100ns"]);
    assert_eq!((number(&o, "unordered_rings"), number(&o, "stale_wqes")), (20.0, 0.0));
    let o = outcome(PUT, &["program.0.fence=false", "gpu.ring_fences=1"]);
    assert_eq!((number(&o, "unordered_rings"), number(&o, "stale_wqes")), (0.0, 0.0));
    // The program knows, and does not fence a second time.
    let p50 = |o: &Outcome| number(o, "latency.p50");
    assert_eq!(p50(&outcome(PUT, &["gpu.ring_fences=1"])), p50(&outcome(PUT, &[])));
}

#[test]
fn threads_of_a_block_build_their_wqes_together() {
    let cost = |lanes: u32, batch: u32| {
        let (lanes, batch) = (format!("gpu.lanes={lanes}"), format!("program.0.batch={batch}"));
        let kind = ["program.0.kind=message-rate", "program.0.iterations=64"];
        ns(&outcome(PUT, &[kind[0], kind[1], &lanes, &batch]), "post_cost")
    };
    // Per WQE: 400 to build, and 130 of a ring per batch.
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.01, "{a} {b}");
    close(cost(1, 32), 400.0 + 130.0 / 32.0);
    close(cost(32, 32), (400.0 + 130.0) / 32.0);
    close(cost(31, 32), (800.0 + 130.0) / 32.0);
    close(cost(32, 1), 530.0);
}

#[test]
fn a_load_costs_what_its_memory_is_away() {
    let load = |memory: &str, socket: u32| {
        let run = |count: usize| {
            let program = format!(
                "[[program]]\nkind = 'script'\ninitiator = 'gpu'\npayload = 'data'\n\
                 memory = '{memory}'\nsteps = {:?}\n",
                vec!["load"; count]
            );
            ns(&outcome(&program, &[&format!("gpu.socket={socket}")]), "sim_time")
        };
        (run(101) - run(1)) / 100.0
    };
    // The run ends when the peer sees its end, by polls that are 15 ns apart.
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.15, "{a} {b}");
    close(load("host", 0), 700.0);
    close(load("host", 1), 700.0 + 2.0 * 54.0); // there and back over the sockets
    close(load("host-remote", 1), 700.0);
    close(load("gpu", 1), 300.0); // its own memory
}

/// Without other noise, latencies spread by at most one packet's time at each of two inputs.
#[test]
fn noise_of_the_switch_is_bounded_by_its_parameter() {
    let spread = |noise: &str| {
        let set = format!("port.switch_noise={noise}");
        let cpu = ["program.0.initiator=cpu", "program.0.memory=host", "run.noise=on"];
        let more = ["program.0.iterations=300", "topology.kind=switch", set.as_str()];
        let o = outcome(PUT, &[cpu[0], cpu[1], cpu[2], more[0], more[1], more[2]]);
        ns(&o, "latency.max") - ns(&o, "latency.min")
    };
    assert_eq!(spread("0"), 0.0);
    // A packet of 4224 bytes at 400 Gb/s takes 84.5 ns; polls are 15 ns apart.
    let (whole, half) = (spread("1"), spread("1/2"));
    assert!(whole > 120.0 && whole < 2.0 * 84.5 + 15.0, "{whole}");
    assert!(half > 60.0 && half < 84.5 + 15.0, "{half}");
}

/// Where the device takes no doorbell of a GPU, a core runs what names it, and the report says so.
#[test]
fn a_core_in_the_place_of_a_gpu_does_what_a_core_does() {
    let sum = "[topology]\nkind = 'switch'\nhosts = 2\n[[program]]\nkind = 'aggregate'\n\
               hosts = 2\nsize = '64KiB'\niterations = 2\ninitiator = 'gpu'\nmemory = 'gpu'\n\
               aggregate = { plan = 'direct', reduce_on = 'gpu' }\n";
    let rate = "[[program]]\nkind = 'message-rate'\nop = 'write'\niterations = 500\n\
                initiator = 'gpu'\nmemory = 'gpu'\ninline = '0B'\n";
    for text in [sum, rate] {
        let fallen = outcome(text, &["program.0.fallback=cpu", "nic.gpu_doorbell=false"]);
        assert_eq!(number(&fallen, "gpu_fallbacks"), 1.0);
        assert_eq!(number(&fallen, "note.gpu-fallback"), 1.0);
        let core = outcome(text, &["program.0.initiator=cpu"]);
        assert_eq!(fallen.trace_hash, core.trace_hash);
        let needless = outcome(text, &["program.0.fallback=cpu"]);
        assert_eq!(number(&needless, "gpu_fallbacks"), 0.0);
        assert_eq!(needless.trace_hash, outcome(text, &[]).trace_hash);
        assert_ne!(needless.trace_hash, core.trace_hash);
    }
    let kernels = outcome(sum, &["program.0.fallback=cpu", "nic.gpu_doorbell=false"]);
    assert_eq!((number(&kernels, "gpu_kernels"), number(&kernels, "sums_wrong")), (2.0, 0.0));
}

/// A command that was not fenced before its flag is read too early and refused, and its producer
/// hears of it: nobody waits for ever.
#[test]
fn a_producer_hears_of_a_command_that_was_refused() {
    let produce = "[[program]]\nkind = 'produce'\nop = 'write'\ninitiator = 'cpu-proxy'\n\
                   memory = 'gpu'\nsize = '64B'\niterations = 200\nslots = 1\ninterval = '5us'\n";
    let o = outcome(produce, &["gpu.store_lag=1us"]);
    assert_eq!(o.exit.kind, ExitKind::Ok, "{}", o.exit.reason);
    let o = outcome(produce, &["gpu.store_lag=1us", "program.0.fence=false"]);
    assert_eq!(o.exit.kind, ExitKind::Violation, "{}", o.exit.reason);
}

/// A proxy whose queue pair died ends, and each producer hears of it, also where messages behind
/// the failed one are still open, or where the failure is told with what was done before it.
#[test]
fn producers_hear_that_their_proxy_ends() {
    let produce = |more: &str| {
        format!(
            "[qp]\ntimeout = 6\nretry_cnt = 1\n[[program]]\nkind = 'produce'\nop = 'write'\n\
             initiator = 'cpu-proxy'\nmemory = 'gpu'\nsize = '64KiB'\n{more}"
        )
    };
    let told = |text: &str, ranks: u32| {
        let o = outcome(text, &[]);
        assert_eq!(o.exit.kind, ExitKind::Violation, "{}", o.exit.reason);
        for rank in 0..ranks {
            assert!(o.exit.reason.contains(&format!("(rank {rank},")), "{}", o.exit.reason);
        }
    };
    let dead = "[[fault]]\nid = 'f'\nkind = 'peer-dead'\nhost = 1\nafter = '130us'\n";
    let open = |n: u32| {
        produce(&format!("threads = {n}\niterations = 64\nper_round = 16\nslots = 16\n{dead}"))
    };
    told(&open(1), 2);
    told(&open(3), 4);
    for us in 113..=121 {
        let down = format!(
            "iterations = 40\nper_round = 2\nslots = 2\n[[fault]]\nid = 'g'\nkind = 'link-down'\n\
             link = 'host0-host1'\nafter = '{us}us'\nbefore = '20ms'\n"
        );
        told(&produce(&down), 2);
    }
}

/// A round of more messages than the proxy's queue holds goes as far as there is room, and the rest
/// behind its completions. A producer that posts by itself has its rounds whole (#6).
#[test]
fn a_proxy_waits_for_room_in_its_queue() {
    let text = "[[program]]\nkind = 'produce'\nsize = '64B'\niterations = 200\nper_round = 50\n\
                slots = 100\ninitiator = 'cpu-proxy'\nmemory = 'gpu'\npayload = 'data'\n\
                [qp]\nsq_depth = 16\n";
    let o = outcome(text, &[]);
    assert_eq!((o.exit.kind, number(&o, "messages")), (ExitKind::Ok, 200.0), "{}", o.exit.reason);
    assert_eq!(number(&o, "data_errors"), 0.0);
    let own = text.replace("'cpu-proxy'", "'gpu'");
    let refused = expanded(&format!("title = 't'\nprofile = 'generic-400g'\n{own}"), &[]);
    let e = refused.expect_err("50 do not fit 16").to_string();
    assert!(e.contains("`per_round` is 50, and `qp.sq_depth` is 16"), "{e}");
}
