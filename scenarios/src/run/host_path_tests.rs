//! Paths of a host beside verbs, each against its closed form and against its absence.

use super::Outcome;
use super::simulate_tests::{ended as outcome, number, outcome as unchecked};

/// A transfer of 64 KiB by `path`, one at a time.
fn transfer(path: &str, set: &[&str]) -> Outcome {
    let text = format!(
        "[[program]]\nkind = 'transfer'\nsize = '64KiB'\niterations = 10\nwarmup = 2\n\
         transfer = {{ path = '{path}' }}\n"
    );
    outcome(&text, set)
}

const GPUS: [&str; 2] = ["program.0.memory=gpu", "program.0.peer_memory=gpu"];

fn p50(o: &Outcome) -> f64 {
    number(o, "latency.p50") * 1e-3
}

#[test]
fn a_registration_costs_its_call_and_its_pages_behind_the_first_ring() {
    let base = p50(&transfer("registered", &[]));
    let own = transfer("per-message", &[]);
    assert!((p50(&own) - base - (16_000.0 + 16.0 * 246.0)).abs() < 30.0);
    // The first of twelve came before the first ring, with everything that is set up.
    assert_eq!(number(&own, "registrations"), 11.0);
    let free = ["cpu.register_call=0ns", "cpu.register_page=0ns"];
    assert!((p50(&transfer("per-message", &free)) - base).abs() < 30.0);
    let gpu = transfer("per-message", &GPUS);
    let direct = p50(&transfer("registered", &GPUS));
    assert!((p50(&gpu) - direct - 60_500.0).abs() < 60.0, "one page of 64 KiB of a GPU");
}

#[test]
fn a_gpu_copies_over_its_link_and_the_core_waits() {
    let direct = transfer("registered", &GPUS);
    let slow = |more: &[&str]| transfer("staged", &[&GPUS[..], more].concat());
    let staged = slow(&[]);
    // Two launches, and 64 KiB at 460.9 Gb/s on each side, with the way to memory and back; the
    // rest is between host memories.
    let copies = p50(&staged) - p50(&transfer("registered", &[]));
    let pure = 2.0 * (6_000.0 + 65_536.0 * 8.0 / 460.9);
    assert!(copies > pure && copies < pure + 2_500.0, "{copies} ns, {pure} at least");
    assert_eq!(number(&staged, "bytes_copied_by_engines"), 2.0 * 12.0 * 65_536.0);
    assert_eq!(number(&direct, "bytes_copied_by_engines"), 0.0);
    // A quarter of the lanes: four times as long on the link.
    let narrow = p50(&slow(&["gpu.width=4"])) - p50(&staged);
    assert!(narrow > 2.0 * 3.0 * 65_536.0 * 8.0 / 470.0, "{narrow} ns");
    // Copies of four cores by one GPU follow each other: on one lane that is what limits.
    let four = slow(&["gpu.width=1", "program.0.threads=4"]);
    let link = 4.0 * 65_536.0 * 8.0 / (460.9 / 16.0);
    assert!(p50(&four) > 0.99 * link, "{} ns, {link} on the link", p50(&four));
}

#[test]
fn the_kernel_takes_what_its_parts_say() {
    let free = [
        "kernel.syscall=0ns",
        "kernel.context_switch=0ns",
        "kernel.tx_segment=0ns",
        "kernel.rx_segment=0ns",
        "kernel.rx_packet=0ns",
    ];
    let base = p50(&transfer("tcp", &free));
    // One call on each side; one packet of answer and 64 of 1024 bytes; one segment on each side.
    for (at, parameter, times) in
        [(0, "syscall", 2.0), (2, "tx_segment", 1.0), (3, "rx_segment", 1.0)]
    {
        let mut set = free.map(str::to_owned);
        set[at] = format!("kernel.{parameter}=1us");
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let more = p50(&transfer("tcp", &set)) - base;
        assert!((more - 1000.0 * times).abs() < 30.0, "{parameter}: {more} ns");
    }
    let o = transfer("tcp", &[]);
    assert_eq!((number(&o, "syscalls"), number(&o, "moves_per_byte")), (24.0, 4.0));
    assert_eq!(number(&o, "bytes_copied"), 2.0 * 12.0 * 65_536.0);
}

/// WRITEs of 8 bytes, a hundred times, into or from pages on demand.
const WRITES: &str = "[qp]\nmax_inline = '0B'\n[[program]]\nkind = 'latency'\niterations = 100\n\
                      interval = '10us'\n";

#[test]
fn a_page_on_demand_faults_once_and_holds_the_message() {
    let pinned = outcome(WRITES, &[]);
    assert_eq!(number(&pinned, "page_faults"), 0.0);
    let fault = "nic.page_fault=50us";
    let home = outcome(WRITES, &["program.0.access=['on-demand']", fault]);
    let more = number(&home, "latency.max") - number(&pinned, "latency.max");
    assert!((more * 1e-3 - 50_130.0).abs() < 1.0, "{more} ps");
    assert_eq!((number(&home, "page_faults"), number(&home, "counter.rnr_nak_sent")), (1.0, 0.0));
    let there = "program.0.peer_access=['local-write', 'remote-write', 'on-demand']";
    // Code 1 is 10 us: four waits are too short, and a fifth is enough.
    let peer = outcome(WRITES, &[there, fault, "qp.min_rnr_timer=1", "qp.rnr_retry=7"]);
    assert_eq!(number(&peer, "page_faults"), 1.0);
    let naks = number(&peer, "counter.rnr_nak_sent");
    assert!((4.0..=5.0).contains(&naks), "{naks} RNR NAKs");
    assert!(number(&peer, "latency.p50") == number(&pinned, "latency.p50"));
    assert_eq!(number(&peer, "counter.out_of_buffer"), 0.0, "receives had nothing to do with it");
    assert_eq!(number(&peer, "note.receives-too-few"), 0.0);
    let set = [there, fault, "qp.min_rnr_timer=1", "qp.rnr_retry=2"];
    let dead = unchecked(WRITES, &set).find("qp.0.16.death.cause").unwrap().text();
    assert_eq!(dead, "page-fault", "three tries in 22 us");
}

#[test]
fn pages_leave_the_table_and_fault_again() {
    let home = "program.0.access=['on-demand']";
    let o = outcome(WRITES, &[home, "nic.page_fault=50us", "memory.page_keep=200us"]);
    // A hundred messages in a millisecond and the time of the faults: every 250 us at the most.
    let faults = number(&o, "page_faults");
    assert!((4.0..=7.0).contains(&faults), "{faults}");
}

#[test]
fn what_is_not_hidden_behind_the_backward_pass_is_exposed() {
    let text = "[topology]\nkind = 'switch'\nhosts = 2\n[[program]]\nkind = 'aggregate'\n\
                hosts = 2\nsize = '64KiB'\nop = 'write'\niterations = 2\n\
                aggregate = { plan = 'ring', training = { backward = '4ms', buckets = 4 } }\n";
    let long = outcome(text, &[]);
    let (least, most) = (number(&long, "latency.min"), number(&long, "latency.max"));
    let exposed = number(&long, "exposed");
    assert!(least > 0.0 && (least..=most).contains(&exposed), "{least} {exposed} {most}");
    assert!((number(&long, "step_time") - 4e9 - exposed).abs() < 2.0);
    // A bucket in no time: all four sums follow each other.
    let short = outcome(text, &["program.0.aggregate.training.backward=4ns"]);
    let all = number(&short, "exposed");
    assert!(all > 4.0 * least && all < 4.5 * most, "{least} {all} {most}");
    assert_eq!(number(&short, "training_steps"), 2.0);
}

/// A host's vector of 1 MiB goes to the other one in one piece, which adds it.
const ONE_SUM: &str = "[topology]\nkind = 'switch'\nhosts = 2\n[[program]]\nname = 'a'\n\
                       kind = 'aggregate'\nhosts = 2\nsize = '1MiB'\niterations = 1\n\
                       memory = 'gpu'\naggregate = { plan = 'direct', broadcast = false, \
                       chunk = '1MiB', reduce_on = 'gpu' }\n";

#[test]
fn a_kernel_adds_after_its_launch_at_the_bandwidth_of_its_memory() {
    let with = |launch: &str, rate: &str| {
        let set = [format!("gpu.kernel_launch={launch}"), format!("gpu.kernel_bandwidth={rate}")];
        let o = outcome(ONE_SUM, &[&set[0], &set[1]]);
        assert_eq!((number(&o, "sums_wrong"), number(&o, "gpu_kernels")), (0.0, 1.0));
        number(&o, "latency.max") * 1e-6
    };
    let base = with("1us", "1000TB/s");
    let late = with("7us", "1000TB/s") - base;
    assert!((late - 6.0).abs() < 0.02, "{late} us of launching");
    // Two reads and a write of 1 MiB.
    let slow = with("1us", "100GB/s") - base;
    assert!((slow - 31.46).abs() < 0.02, "{slow} us of adding");
    // A block of the GPU launches nothing.
    let block = outcome(ONE_SUM, &["program.0.initiator=gpu", "gpu.kernel_launch=1ms"]);
    assert_eq!(number(&block, "gpu_kernels"), 0.0);
    assert!(number(&block, "latency.max") * 1e-6 < base + 200.0);
}

#[test]
fn kernels_of_one_gpu_share_its_memory() {
    let slow = "gpu.kernel_bandwidth=10GB/s";
    let alone = number(&outcome(ONE_SUM, &[slow]), "latency.max");
    let other = ONE_SUM.split("[[program]]").nth(1).unwrap().replace("'a'", "'b'");
    let two = format!("{ONE_SUM}[[program]]{other}");
    let both = outcome(&two, &[slow]);
    // 314.6 us each, at the same time but for the wire.
    let more = (number(&both, "latency.max") - alone) * 1e-6;
    assert!((260.0..340.0).contains(&more), "{more} us");
    assert_eq!(number(&both, "sums_wrong"), 0.0);
}
