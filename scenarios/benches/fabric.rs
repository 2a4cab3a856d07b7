//! Speed of networks: the reference workloads, host `ideal`, observers off, one core.
//!
//! `cargo bench -p doorbell --bench fabric [-- S2b …]`. Prints wire hops, events and the last
//! completion (exact and repeatable) and user CPU seconds, hops per CPU second and peak memory of
//! the process so far (of this machine; name one workload for its own). Asserts no time. A CSV path
//! runs that list on the network of 128 hosts.
//!
//! `-- dcqcn` runs the three incasts with DCQCN over twelve seeds, with both sets that have the
//! published parameters, and says how far the last flow's end is from that of other simulators.

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, find, load};
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, Runner, Simulator};

/// Id, list, whether it is for the fat tree of 1,024 hosts.
const WORKLOADS: [(&str, &str, bool); 7] = [
    ("S1", "one-128-100m", false),
    ("S2a", "incast16-128-4m", false),
    ("S2b", "incast32-128-4m", false),
    ("S2c", "incast127-128-1m", false),
    ("S6", "perm-128-16m", false),
    ("S7a", "perm-1024-2m", true),
    ("S7b", "incast256-1024-1m", true),
];

/// Incasts with DCQCN, and when their last flow ends elsewhere, microseconds: two code bases for 32
/// senders, three seeds of one for 16, one run for 127.
const DCQCN: [(&str, &[f64]); 3] = [
    ("incast16-128-4m", &[5736.0, 5860.0]),
    ("incast32-128-4m", &[11_611.8, 11_619.0]),
    ("incast127-128-1m", &[10_547.1]),
];

/// Seeds of each of them.
const SEEDS: u64 = 12;

/// User CPU time of this process in hundredths of a second: field 14 of `/proc/self/stat`.
fn user_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name in parentheses, may hold spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()
}

/// Peak resident memory in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn run(set: Vec<String>, seed: Option<u64>) -> Outcome {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/fabric.toml");
    let (source, directory) = find(scenario).expect("the file of the benchmark");
    let mut profiles = Profiles::beside(&directory);
    let overrides = Overrides { set, seed };
    let loaded = load(source, directory, &overrides).expect("it is valid");
    let point = expand(&loaded, &mut profiles).expect("it expands").remove(0).point;
    Simulator.run(&point).expect("it runs")
}

fn last_us(outcome: &Outcome) -> f64 {
    outcome.metrics["last_completion"].number() / 1e6
}

fn dcqcn(parameters: &str, list: &str, published: &[f64]) {
    let network = "{ kind = \"leaf-spine\", leaves = 16, hosts_per_leaf = 8, spines = 8, \
                   rate = \"100Gbps\", propagation = \"1us\", switch = \"pfc\" }";
    let marks = "{ kmin = \"100KB\", kmax = \"400KB\", pmax = \"20%\" }";
    let set = vec![
        format!("program.0.flows.file=\"../workloads/{list}.csv\""),
        format!("topology={network}"),
        format!("switch={{ buffer = \"32MiB\", ecn = {marks} }}"),
        format!("congestion={{ control = \"dcqcn\", parameters = \"{parameters}\" }}"),
    ];
    let mut ends: Vec<f64> =
        (1..=SEEDS).map(|seed| last_us(&run(set.clone(), Some(seed)))).collect();
    ends.sort_by(f64::total_cmp);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let off = |us: f64| 100.0 * (us / mean(published) - 1.0);
    let (least, most) = (ends[0], ends[ends.len() - 1]);
    print!("{list:>17} {parameters:>6} {:>10.1} {least:>10.1} {most:>10.1}", mean(&ends));
    let [middle, low, high] = [mean(&ends), least, most].map(off);
    println!(" {:>10.1} {middle:>+6.1} {low:>+6.1} {high:>+6.1}", mean(published));
}

fn measure(id: &str, file: &str, tree: bool) {
    let mut set = vec![format!("program.0.flows.file=\"{file}\"")];
    if tree {
        let topology = "{ kind = \"fat-tree\", k = 16, rate = \"100Gbps\", propagation = \"1us\", \
                        buffer = \"2MB\" }";
        set.push(format!("topology={topology}"));
    }
    let before = user_ticks();
    let outcome = run(set, None);
    let seconds = user_ticks().zip(before).map_or(f64::NAN, |(a, b)| (a - b) as f64 / 100.0);
    let hops = outcome.metrics["wire_hops"].number();
    let last = last_us(&outcome);
    println!(
        "{id:>4} {hops:>12.0} {:>12} {last:>12.1} {seconds:>9.2} {:>10.2} {:>9}",
        outcome.events,
        hops / seconds / 1e6,
        peak_kib().map_or(0, |k| k / 1024)
    );
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if asked.iter().any(|a| a == "dcqcn") {
        println!("             list    set    mean us      least       most  published   off %");
        for (list, published) in DCQCN {
            dcqcn("paper", list, published);
            dcqcn("hpcc", list, published);
        }
        return;
    }
    println!("  id         hops       events  last end us   user s  Mhops/s      MiB");
    for (id, list, tree) in WORKLOADS {
        if asked.is_empty() || asked.iter().any(|a| a == id) {
            measure(id, &format!("../workloads/{list}.csv"), tree);
        }
    }
    for path in asked.iter().filter(|a| a.ends_with(".csv")) {
        let path = std::fs::canonicalize(path).expect("the list is there");
        measure("list", &path.display().to_string(), false);
    }
}
