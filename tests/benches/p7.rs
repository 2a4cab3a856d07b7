//! P7: two-host property cases per second of user CPU time. A case is 100 messages with random
//! drops, reordering and refused receives, checked to the end.
//!
//! `cargo bench -p doorbell-tests --bench p7 [-- engines | hosts] [cases]`. Three kinds: the
//! engines of two hosts against each other over a network that loses by a plan (all eight
//! operations, each step checked), and two whole hosts of `generic-400g`, programs and NICs
//! included, whose bytes are compared: with `host = "ideal"`, as in the other benchmarks of speed,
//! and with the stages of PCIe. Asserts no time.

mod rc {
    pub use doorbell_sim::rc::*;
}
#[path = "../../sim/src/rc/tests/lossy.rs"]
#[expect(dead_code, reason = "the tests of the engine use all of it, this a part")]
mod lossy;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{ExitKind, Runner, Simulator};
use doorbell_core::units::Span;
use doorbell_core::verbs::{
    AckTimeout, Mtu, Psn, QKey, QpType, Qpn, RetryCnt, Rkey, RnrTimer, SendFlags, WrOpcode,
};
use doorbell_sim::engine::SimRng;
use lossy::{Duel, Plan, Weather};
use rc::{
    AckPolicy, Recovery, RequesterConfig, ResponderConfig, RetrySeven, Rules, SelectiveRepeat,
    SendJob,
};

const MESSAGES: u32 = 100;

const FILE: &str = r#"
title = "100 messages with drops, reordering and refused receives"
profile = "generic-400g"
[qp]
timeout = 3
retry_cnt = 7
rnr_retry = 7
min_rnr_timer = 1
[[program]]
kind = "bandwidth"
op = "send"
size = "1000B"
payload = "data"
window = 32
iterations = 100
[[fault]]
id = "drop"
kind = "drop"
chance = "1/50"
maybe = true
[[fault]]
id = "reorder"
kind = "reorder"
behind = 3
chance = "1/50"
maybe = true
[[fault]]
id = "rnr"
kind = "rnr"
host = 1
after = "108us"
before = "115us"
maybe = true
"#;

/// User CPU time of this process in hundredths of a second: field 14 of `/proc/self/stat`.
fn user_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name in parentheses, may hold spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()
}

/// Runs cases and prints how many of them a second of user CPU time holds.
fn measure(name: &str, cases: u64, mut case: impl FnMut(u64) -> u64) {
    let before = user_ticks();
    let work: u64 = (0..cases).map(&mut case).sum();
    let spent = user_ticks().zip(before).map(|(a, b)| a - b);
    let rate = spent.filter(|t| *t > 0).map(|t| cases as f64 / (t as f64 / 100.0));
    let rate = rate.map_or("no /proc here".into(), |r| format!("{r:.0}"));
    println!("{name:<12} {cases:>7} {:>17.1} {rate:>21}", work as f64 / cases as f64);
}

const OPS: [WrOpcode; 8] = [
    WrOpcode::Send,
    WrOpcode::SendWithImm,
    WrOpcode::SendWithInv,
    WrOpcode::RdmaWrite,
    WrOpcode::RdmaWriteWithImm,
    WrOpcode::RdmaRead,
    WrOpcode::AtomicCmpAndSwp,
    WrOpcode::AtomicFetchAndAdd,
];

fn job(wqe: u32, rng: &mut SimRng) -> SendJob {
    let op = OPS[rng.below(8) as usize];
    let atomic = op.is_read_or_atomic() && op != WrOpcode::RdmaRead;
    SendJob {
        wqe,
        op,
        len: if atomic { 8 } else { rng.below(2000) as u32 },
        remote_va: u64::from(wqe) * 4096,
        rkey: Rkey(1),
        imm_or_inv: 7,
        swap_add: 1,
        compare: 0,
        flags: SendFlags::SIGNALED,
        dest: Qpn::new(18),
        qkey: QKey(0),
    }
}

/// Packets sent.
fn engines(seed: u64) -> u64 {
    let mut rng = SimRng::stream(seed, "p7", "case");
    let (a, b, mtu) = (Qpn::new(17), Qpn::new(18), Mtu::B1024);
    let psn = Psn::new(0xFF_FFF0 + rng.below(16) as u32);
    let selective = seed.is_multiple_of(2);
    let recovery = SelectiveRepeat { hold: 64, cap: 64 };
    let recovery = if selective { Recovery::SelectiveRepeat(recovery) } else { Recovery::GoBackN };
    let rules = Rules { retry_seven: RetrySeven::Infinite, ..Rules::DEFAULT };
    let plan = Plan {
        responder: ResponderConfig {
            ack: AckPolicy::IMMEDIATE,
            min_rnr_timer: RnrTimer::new(1).expect("a code"),
            hold: recovery.hold(),
            rules,
            ..ResponderConfig::of(QpType::Rc, a, psn, mtu)
        },
        requester: RequesterConfig {
            timeout: AckTimeout::new(3).expect("a code"),
            retry_cnt: RetryCnt::new(7).expect("a code"),
            timer_seed: seed,
            recovery,
            rules,
            ..RequesterConfig::of(QpType::Rc, a, b, psn, mtu)
        },
        jobs: (0..MESSAGES).map(|wqe| job(wqe, &mut rng)).collect(),
        faults: Vec::new(),
        weather: Weather { drop: 20, duplicate: 5, delay: 20, no_receive: 20 },
        seed,
    };
    let duel = Duel::new(&plan).run();
    assert_eq!(duel.failure(), None, "case {seed}");
    assert!(duel.now.since(doorbell_core::units::Time::ZERO) > Span::from_us(1));
    let (forth, back) = duel.sent();
    u64::from(forth + back)
}

fn main() {
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let number = words.iter().find_map(|w| w.parse().ok());
    let is_asked = |name: &str| words.iter().all(|w| w == name || w.parse::<u64>().is_ok());
    println!("hosts          cases  packets or events  cases per CPU second");
    if is_asked("engines") {
        measure("engines", number.unwrap_or(20_000), engines);
    }
    if is_asked("hosts") {
        let cases = number.unwrap_or(10_000);
        // Without PCIe the 100 messages begin sooner.
        let rnr = ["fault.2.after=100500ns", "fault.2.before=101500ns"];
        hosts("hosts, ideal", cases, &["run.host=ideal", rnr[0], rnr[1]]);
        hosts("hosts, PCIe", cases, &[]);
    }
}

/// Cases of two whole hosts, with changes to the file.
fn hosts(name: &str, cases: u64, set: &[&str]) {
    let overrides = Overrides { set: set.iter().map(|s| (*s).into()).collect(), seed: None };
    let loaded = load(Source::new("p7", FILE), ".".into(), &overrides).expect("it is valid");
    let mut profiles = Profiles::beside(".".as_ref());
    let mut point = expand(&loaded, &mut profiles).expect("it expands").remove(0).point;
    let counters = ["fault_drop", "out_of_sequence", "rnr_nak_sent"];
    let mut met = [0; 3];
    measure(name, cases, |seed| {
        point.seed = seed;
        let outcome = Simulator.run(&point).expect("it runs");
        assert_eq!(outcome.exit.kind, ExitKind::Ok, "case {seed}: {}", outcome.exit.reason);
        assert_eq!(outcome.metrics["data_errors"].number(), 0.0, "case {seed}");
        for (met, counter) in met.iter_mut().zip(counters) {
            *met += outcome.counters.get(counter).copied().unwrap_or(0);
        }
        outcome.events
    });
    for (met, counter) in met.iter().zip(counters) {
        assert!(*met > 0, "no case of {name} had {counter}");
    }
}
