//! Speed of networks: the reference workloads, host `ideal`, observers off, one core.
//!
//! `cargo bench -p doorbell --bench fabric [-- S2b …]`. Prints wire hops, events and the last
//! completion (exact and repeatable) and user CPU seconds, hops per CPU second and peak memory of
//! the process so far (of this machine; name one workload for its own). Asserts no time. A CSV path
//! runs that list on the network of 128 hosts.
//!
//! `-- shares` runs n equal flows onto one host with pauses, and says how much later the last one
//! ends than the first, by buffer and by the order in which an output serves its inputs.
//!
//! `-- P9` runs the tie between two equal senders in its four variants, 20 seeds of each, and says
//! which share of the lost packets was the second sender's: 40 to 60 % is fair.
//!
//! `-- dcqcn` runs the three incasts with DCQCN over twelve seeds, with both sets that have the
//! published parameters, and says how far the last flow's end is from that of other simulators.
//! `-- dcqcn S6` measures the workload with DCQCN, the paper's parameters, pauses and marks; only
//! on the network of 128 hosts.

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

/// DCQCN with pauses and marks as the other simulators had them, on the network of 128 hosts.
fn controlled(parameters: &str) -> Vec<String> {
    let network = "{ kind = \"leaf-spine\", leaves = 16, hosts_per_leaf = 8, spines = 8, \
                   rate = \"100Gbps\", propagation = \"1us\", switch = \"pfc\" }";
    let marks = "{ kmin = \"100KB\", kmax = \"400KB\", pmax = \"20%\" }";
    vec![
        format!("topology={network}"),
        format!("switch={{ buffer = \"32MiB\", ecn = {marks} }}"),
        format!("congestion={{ control = \"dcqcn\", parameters = \"{parameters}\" }}"),
    ]
}

fn dcqcn(parameters: &str, list: &str, published: &[f64]) {
    let mut set = controlled(parameters);
    set.push(format!("program.0.flows.file=\"../workloads/{list}.csv\""));
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

/// Shared buffers: the default, one that headroom nearly fills, and thresholds by hand.
const BUFFERS: [(&str, &str); 4] = [
    ("32 MiB", "buffer = \"32MiB\""),
    ("6 MB", "buffer = \"6MB\""),
    ("xoff 200 KB", "xoff = \"200KB\""),
    ("xoff, xon 60 KB", "xoff = \"60KB\", xon = \"60KB\""),
];

/// Senders, and bytes of each.
const EQUAL: [(u32, &str); 6] =
    [(8, "2MB"), (8, "16MB"), (32, "1MB"), (32, "4MB"), (32, "16MB"), (64, "500KB")];

/// How much later than the first the last of equal flows ends, percent.
fn spread(senders: u32, size: &str, switch: &str, seed: u64) -> f64 {
    let set = vec![
        format!(
            "topology={{ kind = \"switch\", hosts = {}, rate = \"100Gbps\", \
             propagation = \"1us\", switch = \"pfc\" }}",
            senders + 1
        ),
        format!("switch={{ {switch} }}"),
        "program.0.flows={ pattern = \"incast\" }".to_owned(),
        "program.0.host=1".to_owned(),
        format!("program.0.hosts={senders}"),
        "program.0.peer=0".to_owned(),
        format!("program.0.size={size}"),
        "run.noise=on".to_owned(),
    ];
    let flows = run(set, Some(seed)).flows.expect("flows").flows;
    let ends: Vec<f64> = flows.iter().map(|f| f.fct_ps.expect("it ends") as f64).collect();
    let (first, last) = ends.iter().fold((f64::MAX, 0f64), |(a, b), e| (a.min(*e), b.max(*e)));
    100.0 * (last / first - 1.0)
}

fn shares() {
    println!("         buffer  flows   size  inputs %  arrival %");
    for (name, switch) in BUFFERS {
        for (senders, size) in EQUAL {
            let of = |serve: &str| {
                let switch = format!("{switch}, serve = \"{serve}\"");
                (1..=3).map(|seed| spread(senders, size, &switch, seed)).fold(0.0, f64::max)
            };
            let (inputs, arrival) = (of("inputs"), of("arrival"));
            println!("{name:>15} {senders:>6} {size:>6} {inputs:>9.2} {arrival:>10.2}");
        }
    }
}

/// Variants of P9: what the second sender has later, and how much longer its cable is, both ns.
const TIES: [(&str, u64, u64); 4] =
    [("same instant", 0, 0), ("1 ns later", 1, 0), ("40 ns later", 40, 0), ("1 m longer", 0, 5)];

/// Seeds of each of them.
const TIE_SEEDS: u64 = 20;

/// Share of the packets lost that were the second sender's, parts per hundred.
fn tie(later_ns: u64, longer_ns: u64, seed: u64) -> f64 {
    let link = |host: u32, ns: u64| {
        format!(
            "{{ between = \"host{host}-switch0\", rate = \"100Gbps\", propagation = \"{ns}ns\" }}"
        )
    };
    let links = [link(0, 1_000), link(1, 1_000), link(2, 1_000 + longer_ns)].join(", ");
    let set = vec![
        format!(
            "topology={{ kind = \"explicit\", hosts = 3, switches = 1, switch = \"tail-drop\", \
             buffer = \"5.2MB\", link = [{links}] }}"
        ),
        format!("program.0.flows={{ pattern = \"incast\", stagger = \"{later_ns}ns\" }}"),
        "program.0.host=1".to_owned(),
        "program.0.hosts=2".to_owned(),
        "program.0.peer=0".to_owned(),
        "program.0.size=32MiB".to_owned(),
        "run.noise=on".to_owned(),
    ];
    let flows = run(set, Some(seed)).flows.expect("flows").flows;
    let lost: Vec<f64> = flows.iter().map(|f| f.lost as f64).collect();
    assert!(lost[0] + lost[1] > 100.0, "two full lines into one lose packets");
    100.0 * lost[1] / (lost[0] + lost[1])
}

fn ties() {
    println!("     variant  seeds  least %  mean %  most %");
    for (name, later, longer) in TIES {
        let shares: Vec<f64> = (1..=TIE_SEEDS).map(|seed| tie(later, longer, seed)).collect();
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        let most = shares.iter().copied().fold(f64::MIN, f64::max);
        let mean = shares.iter().sum::<f64>() / TIE_SEEDS as f64;
        println!("{name:>12} {TIE_SEEDS:>6} {least:>8.1} {mean:>7.1} {most:>7.1}");
    }
}

fn measure(id: &str, file: &str, tree: bool, mut set: Vec<String>) {
    set.push(format!("program.0.flows.file=\"{file}\""));
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
    let control = asked.iter().any(|a| a == "dcqcn");
    let workloads: Vec<_> =
        WORKLOADS.iter().filter(|(id, ..)| asked.iter().any(|a| a == id)).collect();
    if control && workloads.is_empty() {
        println!("             list    set    mean us      least       most  published   off %");
        for (list, published) in DCQCN {
            dcqcn("paper", list, published);
            dcqcn("hpcc", list, published);
        }
        return;
    }
    if asked.iter().any(|a| a == "shares") {
        return shares();
    }
    if asked.iter().any(|a| a == "P9") {
        return ties();
    }
    println!("  id         hops       events  last end us   user s  Mhops/s      MiB");
    for (id, list, tree) in WORKLOADS {
        let named = asked.is_empty() || workloads.iter().any(|w| w.0 == id);
        if named && !(control && tree) {
            let set = if control { controlled("paper") } else { Vec::new() };
            measure(id, &format!("../workloads/{list}.csv"), tree, set);
        }
    }
    for path in asked.iter().filter(|a| a.ends_with(".csv")) {
        let path = std::fs::canonicalize(path).expect("the list is there");
        measure("list", &path.display().to_string(), false, Vec::new());
    }
}
