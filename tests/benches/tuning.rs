//! `doorbell tune` against a full grid: scenarios of the library, two to four of their keys, and
//! what a search finds in a tenth of the grid's runs.
//!
//! `cargo bench -p doorbell-tests --bench tuning`. For each case the table has the combinations,
//! the best of all of them, what the search finds with a tenth of the runs (the file as it stands
//! included), and how far that is from the best; the worst of several seeds of the search. All of
//! it is simulated and repeats; no time of this machine is in it. It ends with status 1 unless six
//! cases are within 5 % at every seed.

use std::path::PathBuf;
use std::process::ExitCode;

use doorbell::format::load::{Overrides, find, load};
use doorbell::profile::Profiles;
use doorbell::run::Simulator;
use doorbell::tune::{Goal, Keep, Method, Objective, Tuned, Tuning, knobs, tune};

/// Seeds of the search.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Runs of the search are the grid's by this.
const PART: usize = 10;
/// Cases that have to be within [`NEAR`].
const WANTED: usize = 6;
/// Parts of the best that the search may miss.
const NEAR: f64 = 0.05;
/// Runs at a time; no figure depends on it.
const JOBS: usize = 2;

struct Case {
    scenario: &'static str,
    variant: Option<&'static str>,
    set: &'static [&'static str],
    vary: &'static [&'static str],
    objective: &'static str,
    keep: &'static [&'static str],
}

const CASES: [Case; 9] = [
    // Few doorbells, and nobody waits for long.
    Case {
        scenario: "a04_batch_and_window",
        variant: Some("near"),
        set: &[],
        vary: &[
            "program.0.batch=1..256",
            "program.0.batch_delay=250ns..16us",
            "program.0.signal_every=1..64",
        ],
        objective: "min latency.p99",
        keep: &["doorbells <= 200"],
    },
    // The most messages within a latency.
    Case {
        scenario: "a17_batch_of_64",
        variant: Some("one-by-one"),
        set: &["program.0.size=1KiB"],
        vary: &["program.0.batch=1..128", "program.0.window=2..128", "program.0.poll_batch=1..64"],
        objective: "max message_rate",
        keep: &["latency.p99 <= 6us"],
    },
    // The most messages in a given memory for send queues.
    Case {
        scenario: "b16_send_queue_depth",
        variant: None,
        set: &[],
        vary: &["qp.sq_depth=8..8192", "program.0.qps=1..16", "program.0.batch=1..8"],
        objective: "max message_rate",
        keep: &["sq_memory <= 64KiB"],
    },
    // The shortest tail in a given memory for receives.
    Case {
        scenario: "b08_receive_pool_and_bursts",
        variant: Some("code-1"),
        set: &["program.0.interval=250ns"],
        vary: &["qp.rq_depth=16..1024", "program.0.repost_batch=1..16", "qp.min_rnr_timer=1..13+2"],
        objective: "min latency.max",
        keep: &["receive_memory <= 4KiB"],
    },
    // Long messages over a path that loses one packet in 200.
    Case {
        scenario: "b19_mtu_and_loss",
        variant: Some("4k-1-in-200"),
        set: &["program.0.iterations=60"],
        vary: &["qp.mtu=256B..4KiB", "qp.timeout=1..10+1", "program.0.window=4..64"],
        objective: "max throughput",
        keep: &[],
    },
    // The gain of a control loop.
    Case {
        scenario: "c05_best_gain_over_round_trip",
        variant: Some("5.02us"),
        set: &[],
        vary: &[
            "congestion.gain=20000/s..300000/s*5/4",
            "congestion.start_rate=5Gbps..80Gbps",
            "rc.ack_every=1..4",
        ],
        objective: "min rtt_deviation",
        keep: &[],
    },
    // Two hops that should overlap.
    Case {
        scenario: "d02_chunks",
        variant: None,
        set: &[],
        vary: &[
            "program.0.aggregate.chunk=4KiB..1MiB",
            "program.0.aggregate.window=1..64",
            "program.0.aggregate.aggregators=1..3+1",
        ],
        objective: "min latency.max",
        keep: &[],
    },
    // READs by the host that adds.
    Case {
        scenario: "d03_push_or_pull",
        variant: Some("pull"),
        set: &["program.0.aggregate.jitter=0us", "program.0.iterations=2"],
        vary: &[
            "program.0.aggregate.chunk=2KiB..256KiB",
            "program.0.aggregate.reads=1..16",
            "program.0.aggregate.window=1..16",
        ],
        objective: "min latency.max",
        keep: &[],
    },
    // A control of rates and the marks that it goes by.
    Case {
        scenario: "c16_rate_control_of_an_incast",
        variant: Some("dcqcn"),
        set: &["program.0.size=1MB", "program.0.hosts=16"],
        vary: &[
            "switch.ecn.kmin=25KB..400KB",
            "switch.ecn.pmax=5%,10%,20%,40%,80%",
            "congestion.rpg_ai_rate=5Mbps..320Mbps",
        ],
        objective: "min fct_max",
        keep: &[],
    },
];

impl Case {
    fn tune(&self, seed: u64, method: impl Fn(usize) -> Method) -> Tuned {
        let (source, _) = find(self.scenario).expect("a scenario of the library");
        let own = |texts: &[&str]| texts.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        // What the file sweeps over and is not varied here has the value that the file has.
        let overrides = Overrides { set: own(self.set), seed: None };
        let mut loaded = load(source, PathBuf::new(), &overrides).expect("a good file");
        loaded.axes.clear();
        let knobs = knobs(&loaded, &own(self.vary)).unwrap_or_else(|e| panic!("{e}"));
        let grid = knobs.iter().map(|k| k.values.len()).product();
        let keeps = self.keep.iter().map(|k| Keep::parse(k).expect("a condition")).collect();
        let objective = Objective::parse(self.objective).expect("an objective");
        let tuning = Tuning {
            loaded,
            variant: self.variant.map(str::to_owned),
            knobs,
            goal: Goal { objective, keeps },
            method: method(grid),
            jobs: JOBS,
            seed,
        };
        let mut profiles = Profiles::beside(&PathBuf::new());
        tune(&Simulator, tuning, &mut profiles).unwrap_or_else(|e| panic!("{}: {e}", self.scenario))
    }

    /// Prints the rows; whether the search is near the best at every seed.
    fn table(&self) -> bool {
        let all = self.tune(1, |_| Method::Grid);
        let number = |t: &Tuned| t.best().metrics.first().map_or(f64::NAN, |(_, m)| m.number());
        let text = |t: &Tuned| t.best().metrics.first().map_or(String::new(), |(_, m)| m.text());
        let values = |t: &Tuned| t.best().values.join(" ");
        println!("{}: {} {}", self.scenario, self.objective, self.keep.join(", "));
        let first = all.tried[0].metrics.first().map_or(String::new(), |(_, m)| m.text());
        println!("  as it stands {first}");
        println!("  grid    {:4} runs  {:>12}  {}", all.grid, text(&all), values(&all));
        let mut near = all.grid >= 100 && all.best().rank.is_good();
        for seed in SEEDS {
            let some = self.tune(seed, |grid| Method::Search { runs: grid / PART });
            let off = (number(&some) - number(&all)).abs() / number(&all);
            let good = some.best().rank.is_good() && off <= NEAR;
            near &= good && some.tried.len() * PART <= all.grid;
            let (runs, percent) = (some.tried.len(), 100.0 * off);
            let mark = if good { "" } else { "  too far" };
            println!(
                "  seed {seed}  {runs:4} runs  {:>12}  {}  {percent:.1} % off{mark}",
                text(&some),
                values(&some)
            );
        }
        near
    }
}

fn main() -> ExitCode {
    let near = CASES.iter().filter(|case| case.table()).count();
    println!("{near} of {} cases within {} % at every seed", CASES.len(), 100.0 * NEAR);
    if near >= WANTED { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
