//! The command on a device in memory. There is no peer behind it, so messages never arrive; all
//! that comes before them does.

use std::net::TcpListener;
use std::time::Duration;

use doorbell_hw::verbs::fake::{BadWr, Call, DeviceConfig, Fake, FakeConfig};

use super::*;
use crate::cli::args::{DeviceArgs, LaunchArgs, PostingArg, Target, WaitArg};
use crate::cli::hw::options::Env;

const PING_PONG: &str = "\
title = 't'
profile = 'generic-400g'
[qp]
mtu = '1024B'
max_inline = '0B'
[[program]]
kind = 'ping-pong'
op = 'send'
iterations = 10
[[variant]]
name = 'short'
set = { 'program.0.size' = '64B' }
[[variant]]
name = 'long'
set = { 'program.0.size' = '4KiB' }
";

/// A file of its own for each test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("doorbell-hw-run-{name}-{id}.toml"));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// A run in one process, of the first variant.
    fn args(&self) -> HwRunArgs {
        let scenario = self.0.to_str().unwrap().to_owned();
        HwRunArgs {
            target: Target { scenario, set: vec![], seed: None },
            variant: Some("short".to_owned()),
            launch: LaunchArgs { local: true, rank: None, server: None, hosts: None, listen: None },
            device: DeviceArgs { device: vec![], port: None, gid: vec![] },
            wait: None,
            posting: PostingArg::Classic,
            limit: Duration::from_secs(20),
            json: false,
        }
    }

    /// One rank of two, with its server at `port`.
    fn rank(&self, rank: u32, port: u16) -> HwRunArgs {
        let server = Some(format!("127.0.0.1:{port}"));
        let launch =
            LaunchArgs { local: false, rank: Some(rank), server, hosts: None, listen: None };
        HwRunArgs { launch, ..self.args() }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn two_devices() -> Fake {
    let devices = vec![DeviceConfig::roce("fake0", 1), DeviceConfig::roce("fake1", 2)];
    Fake::new(FakeConfig { devices, ..FakeConfig::default() })
}

fn measured_with(args: &HwRunArgs, env: Env<'_>) -> Result<Report, Trouble> {
    let fake = two_devices();
    let provider: Arc<dyn Provider> = Arc::new(fake.clone());
    let result = measure(args, &provider, env);
    fake.assert_clean();
    result
}

fn measured(args: &HwRunArgs) -> Result<Report, Trouble> {
    measured_with(args, &|_| None)
}

#[track_caller]
fn refused(args: &HwRunArgs, words: &[&str]) {
    match measured(args) {
        Err(Trouble::Input(error)) => {
            let text = format!("{error}; {}", error.remedy().unwrap_or_default());
            words.iter().for_each(|w| assert!(text.contains(w), "{w:?} is not in {text}"));
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it ran"),
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn what_hinders_a_run_is_said_before_anybody_is_waited_for() {
    let file = File::new("hinders", PING_PONG);
    let with = |change: &dyn Fn(&mut HwRunArgs)| {
        let mut args = file.args();
        change(&mut args);
        args
    };
    let set = |text: &'static str| with(&move |a| a.target.set = vec![text.to_owned()]);
    refused(&with(&|a| a.variant = None), &["2 points (short; long", "--variant NAME"]);
    refused(&with(&|a| a.variant = Some("x".into())), &["no variant \"x\"", "short, long"]);
    refused(
        &with(&|a| a.device.device = vec!["fake0".into(), "mlx5_0".into()]),
        &["no RDMA device \"mlx5_0\"; there are fake0, fake1"],
    );
    refused(&with(&|a| a.device.port = Some(2)), &["no device can be used", "no port 2"]);
    refused(&set("program.0.initiator=gpu"), &["`initiator = \"gpu\"`"]);
    refused(&set("qp.sq_depth=65536"), &["65536"]);
    refused(&with(&|a| a.launch.local = false), &["which of the 2 ranks is this process?"]);
}

#[test]
fn an_mtu_above_the_ports_is_refused_at_its_place() {
    let file = File::new("mtu", PING_PONG);
    let mut devices = vec![DeviceConfig::roce("fake0", 1)];
    devices[0].port.active_mtu = doorbell_core::verbs::Mtu::B512;
    let provider: Arc<dyn Provider> =
        Arc::new(Fake::new(FakeConfig { devices, ..FakeConfig::default() }));
    let Err(Trouble::Input(error)) = measure(&file.args(), &provider, &|_| None) else {
        panic!("it ran")
    };
    assert!(error.to_string().contains(":4:"), "{error}");
    assert!(error.message().contains("`qp.mtu` is 1024B"), "{error}");
    assert!(error.remedy().unwrap().contains("--set qp.mtu=512B"));
}

#[test]
fn a_stall_is_named_and_reported() {
    let file = File::new("stall", PING_PONG);
    for wait in [WaitArg::Poll, WaitArg::Event] {
        // Long enough for the set-up on a machine that has much else to do.
        let limit = Duration::from_millis(2000);
        let report = measured(&HwRunArgs { limit, wait: Some(wait), ..file.args() }).unwrap();
        let exit = &report.outcome.exit;
        assert_eq!(exit.kind, ExitKind::NoProgress);
        let words = ["rank 0", "while exchanging messages: no progress for", "completion queue"];
        words.iter().for_each(|w| assert!(exit.reason.contains(w), "{w:?}: {}", exit.reason));
        let (text, json) = (report.to_text(), report.to_json());
        for part in [
            "measured, 2 of 2 ranks, path MTU 1024 B",
            "rank 1 (peer): fake0 port 1",
            "ignored: profile",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["measured"], &json["version"]), (&true.into(), &1.into()));
        assert_eq!(json["outcome"]["exit"]["kind"], "no-progress");
        assert_eq!(json["outcome"]["metrics"]["messages"]["value"], 0);
        assert_eq!(json["ranks"][0]["granted"]["max_send_wr"], 128);
        assert_eq!(json["ranks"][1]["wait"], wait.to_string());
    }
}

/// Rank 0 and rank 1 side by side; what each of them ran into.
fn both(zero: &HwRunArgs, one: &HwRunArgs, tokens: [&str; 2]) -> [Option<Trouble>; 2] {
    let side = |args: &HwRunArgs, token: &str| {
        let env = |name: &str| (name == "DOORBELL_TOKEN").then(|| token.to_owned());
        match measured_with(args, &env) {
            Ok(mut report) => report.ranks.swap_remove(0).1.trouble,
            Err(trouble) => Some(trouble),
        }
    };
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| side(zero, tokens[0]));
        let one = side(one, tokens[1]);
        [zero.join().unwrap(), one]
    })
}

#[track_caller]
fn says(trouble: &Option<Trouble>, status: ExitStatus, words: &str) {
    let trouble = trouble.as_ref().expect("it cannot end well");
    assert!(trouble.text().contains(words), "{words:?} is not in {}", trouble.text());
    assert_eq!(trouble.status(), status, "{}", trouble.text());
}

const TOKEN: &str = "0123456789abcdef";

#[test]
fn ranks_of_different_scenarios_do_not_run() {
    let (file, port) = (File::new("differs", PING_PONG), free_port());
    let mut other = file.rank(1, port);
    other.target.set = vec!["program.0.iterations=11".to_owned()];
    for trouble in both(&file.rank(0, port), &other, [TOKEN; 2]) {
        says(&trouble, ExitStatus::BadInput, "runs scenario doorbell-hw-run-differs");
    }
}

#[test]
fn a_wrong_token_and_another_size_are_refused() {
    let (file, port) = (File::new("token", PING_PONG), free_port());
    let limit = Duration::from_secs(2);
    let zero = HwRunArgs { limit, ..file.rank(0, port) };
    let [zero, one] = both(&zero, &file.rank(1, port), [TOKEN, "another-token-of-it"]);
    says(&zero, ExitStatus::NoProgress, "while joining the run: 1 of 2 ranks did not join");
    says(&one, ExitStatus::BadInput, "give every rank the same DOORBELL_TOKEN");

    let four = PING_PONG.replace("iterations = 10", "iterations = 10\nthreads = 2");
    let (large, port) = (File::new("size", &four), free_port());
    let zero = HwRunArgs { limit, ..file.rank(0, port) };
    let [_, one] = both(&zero, &large.rank(1, port), [TOKEN; 2]);
    says(&one, ExitStatus::BadInput, "the server expects 2 ranks and this program 4");
}

#[test]
fn a_rank_that_stalls_ends_the_other_one() {
    let (file, port) = (File::new("lost", PING_PONG), free_port());
    let zero = HwRunArgs { limit: Duration::from_secs(2), ..file.rank(0, port) };
    let [zero, one] = both(&zero, &file.rank(1, port), [TOKEN; 2]);
    says(&zero, ExitStatus::NoProgress, "while exchanging messages: no progress for");
    says(&one, ExitStatus::NoProgress, "the connection to rank 0 was lost");
}

#[test]
fn a_message_that_the_device_does_not_take_is_refused_at_its_place() {
    let file = File::new("long", PING_PONG);
    let ready = ready_of(&file.args().target, Some("long")).unwrap();
    check_one(&ready).unwrap();
    check_size(&ready.points[0], 0, 4096).unwrap();
    let Err(Trouble::Input(error)) = check_size(&ready.points[0], 0, 4095) else {
        panic!("it fits")
    };
    let text = "`size` is 4096B, and the device takes messages up to 4095B";
    assert!(error.message().contains(text), "{error}");
    assert!(error.remedy().unwrap().contains("--set program.0.size=4095B"));
}

/// A run on a device that a test has prepared.
fn measured_on(fake: &Fake, args: &HwRunArgs) -> Result<Report, Trouble> {
    let provider: Arc<dyn Provider> = Arc::new(fake.clone());
    measure(args, &provider, &|_| None)
}

#[test]
fn a_peer_whose_address_does_not_resolve_is_named() {
    let (file, fake) = (File::new("far", PING_PONG), two_devices());
    // The first two put the queue pairs into INIT.
    fake.fail_call(Call::ModifyQp, 2, 110);
    let limit = Duration::from_secs(5);
    let report = measured_on(&fake, &HwRunArgs { limit, ..file.args() }).unwrap();
    let texts: Vec<_> = report.ranks.iter().filter_map(|(_, e)| e.trouble.as_ref()).collect();
    let of = |t: &&&Trouble| t.text().contains("ETIMEDOUT, Connection timed out");
    let trouble = texts.iter().find(of).unwrap_or_else(|| panic!("{texts:?}"));
    assert_eq!(trouble.status(), ExitStatus::NoProgress);
    for part in ["does not resolve (rank ", "GID ::ffff:", "`ip neigh`"] {
        assert!(trouble.text().contains(part), "{part:?} is not in {}", trouble.text());
    }
    assert_eq!(report.outcome.exit.kind, ExitKind::NoProgress);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let failed = report.ranks.iter().position(|(_, e)| e.report.is_none());
    if let Some(at) = failed {
        assert!(json["ranks"][at]["steps"].is_null() && !report.to_text().contains(" 0 steps"));
    }
    assert_eq!(json["configuration"]["program"][0]["payload"], "data");
}

#[test]
fn another_refused_modify_is_no_matter_of_sizes() {
    let (file, fake) = (File::new("modify", PING_PONG), two_devices());
    fake.fail_call(Call::ModifyQp, 2, 22);
    let limit = Duration::from_secs(5);
    let Err(Trouble::Input(error)) = measured_on(&fake, &HwRunArgs { limit, ..file.args() }) else {
        panic!("it ran")
    };
    assert!(error.message().contains("EINVAL, Invalid argument"), "{error}");
    assert!(error.remedy().unwrap().contains("--gid"), "{error:?}");
}

#[test]
fn a_post_that_the_provider_refuses_ends_a_script() {
    let script = "\
title = 't'
profile = 'generic-400g'
[qp]
mtu = '1024B'
max_inline = '0B'
[[program]]
kind = 'script'
payload = 'data'
steps = ['post write 64B', 'ring', 'wait']
";
    let (file, fake) = (File::new("refused", script), two_devices());
    fake.fail_post_send_at(0, 22, BadWr::Points);
    let args = HwRunArgs { variant: None, ..file.args() };
    let began = Instant::now();
    let report = measured_on(&fake, &args).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it waited");
    let trouble = report.ranks[0].1.trouble.as_ref().unwrap();
    assert_eq!(trouble.status(), ExitStatus::Violated);
    let words = ["step 1 of the script", "0 posted, 1 discarded", "EINVAL, Invalid argument"];
    words.iter().for_each(|w| assert!(trouble.text().contains(w), "{w:?}: {}", trouble.text()));
    assert_eq!(report.outcome.exit.kind, ExitKind::Violation);
}

/// Nobody is behind the wire: each of four members names whom it waits for, in the time that the
/// file allows, and a sum is reported as not there.
#[test]
fn a_group_ends_by_its_own_deadlines() {
    let sum = "\
title = 't'
profile = 'generic-400g'
[qp]
mtu = '1024B'
[topology]
kind = 'switch'
hosts = 4
[[program]]
kind = 'aggregate'
hosts = 4
size = '4KiB'
iterations = 1
aggregate = { plan = 'two-hop', group = 2, chunk_deadline = '20ms' }
";
    let file = File::new("sum", sum);
    let began = Instant::now();
    let report = measured(&HwRunArgs { variant: None, ..file.args() }).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it waited for the limit");
    assert_eq!((report.size, report.ranks.len()), (4, 4));
    for (placed, ended) in &report.ranks {
        let trouble = ended.trouble.as_ref().expect("no sum can come");
        assert_eq!(trouble.status(), ExitStatus::NoProgress);
        let text = trouble.text();
        assert!(text.contains("while exchanging messages"), "{text}");
        assert!(text.contains("was waited for; see what that rank printed"), "{text}");
        assert!(placed.role == Role::Sender);
    }
    let metric = |name: &str| report.outcome.metrics[name];
    assert_eq!(metric("sums"), crate::run::Metric::count(0));
    assert_eq!(metric("members_failed"), crate::run::Metric::count(4));
    assert!(!report.outcome.metrics.contains_key("byte_bound"), "a model's");
}

#[test]
fn an_exchange_needs_bytes_to_check() {
    let exchange = "\
title = 't'
profile = 'generic-400g'
[topology]
kind = 'switch'
hosts = 3
[[program]]
kind = 'all-to-all'
hosts = 3
all_to_all = { route = 'direct' }
";
    let file = File::new("exchange", exchange);
    let args = HwRunArgs { variant: None, ..file.args() };
    refused(&args, &["`payload = \"virtual\"` on hardware", "program.0.payload=data"]);
}
