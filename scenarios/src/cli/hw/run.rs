//! `doorbell hw run`: a scenario on hardware, each rank the program that it has in the simulator.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "hardware runs on the wall \
    clock"
)]

use std::sync::Arc;
use std::time::Instant;

use doorbell_core::transport::Initiator;
use doorbell_hw::bootstrap::{Bootstrap, local, tcp};
use doorbell_hw::sysfs::Sysfs;
use doorbell_hw::verbs::device::Device;
use doorbell_hw::verbs::provider::{Libibverbs, Provider};
use doorbell_hw::verbs::{HwConfig, WaitMode};
use doorbell_sim::host::PollMode;
use serde_json::json;

use super::options::{Place, open_config, place, posting, wait_mode};
use super::rank::{Ended, Facts, Job, run as run_rank, span};
use super::report::{Counters, NOT_TOLD, counted, port_counters, rank_json, rank_text};
use super::settings;
use super::trouble::Trouble;
use crate::cli::ExitStatus;
use crate::cli::args::HwRunArgs;
use crate::cli::common::{Ready, print, ready_of};
use crate::format::expand::Expanded;
use crate::input::InputError;
use crate::report::measured_text;
use crate::run::{
    Clock, Effective, Exit, ExitKind, Outcome, Placed, Planned, Role, at_setting, by_name,
    exchanges, group_metrics, plan, refused_step, sums,
};

/// Raised when a key is taken away or changes its meaning; new keys do not raise it.
const REPORT_VERSION: u32 = 1;

/// Runs this process's part, and prints what it measured.
pub(super) fn run(args: &HwRunArgs) -> ExitStatus {
    let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
    match measure(args, &provider, &|name| std::env::var(name).ok()) {
        Ok(report) => report.print(args.json),
        Err(trouble) => trouble.complain(),
    }
}

/// What is printed.
struct Report {
    ready: Ready,
    /// Ranks of the whole run.
    size: u32,
    /// Those of this process.
    ranks: Vec<(Placed, Ended)>,
    outcome: Outcome,
}

fn measure(
    args: &HwRunArgs,
    provider: &Arc<dyn Provider>,
    env: super::options::Env<'_>,
) -> Result<Report, Trouble> {
    let ready = ready_of(&args.target, args.variant.as_deref())?;
    check_one(&ready)?;
    let Expanded { point, tree } = &ready.points[0];
    let of_file = |e| Trouble::from(at_setting(e, tree));
    settings::check(point).map_err(of_file)?;
    let mut planned = plan(point, span(args.limit), Clock::OfEach).map_err(of_file)?;
    let size = planned.len() as u32;
    let place = place(&args.launch, size, args.limit, env)?;
    if let Place::Rank(config) = &place {
        planned = vec![planned.swap_remove(config.rank as usize)];
    }
    let open = |p: &Planned| {
        let device = Device::open(provider, &open_config(&args.device, p.placed.host))?;
        check_mtu(&ready.points[0], &device)?;
        check_size(&ready.points[0], p.placed.program, device.caps().max_msg_bytes)?;
        Ok(device)
    };
    // Before anybody is waited for: who has no device says so at once.
    let devices: Vec<Device> = planned.iter().map(open).collect::<Result<_, Trouble>>()?;
    let facts: Vec<Facts> = devices.iter().map(Facts::of).collect();
    let bootstraps = join(&place, size, args)?;
    let before = port_counters(&Sysfs::default(), &facts);
    let placed: Vec<Placed> = planned.iter().map(|p| p.placed).collect();
    let jobs = jobs(args, &ready, planned, devices, bootstraps);
    let ended = side_by_side(jobs);
    let counters = counted(&before, &port_counters(&Sysfs::default(), &facts));
    let ranks: Vec<(Placed, Ended)> = placed.into_iter().zip(ended).collect();
    let (ranks, outcome) = outcome(&ready.points[0], ranks, counters)?;
    Ok(Report { ready, size, ranks, outcome })
}

/// There must be one point.
fn check_one(ready: &Ready) -> Result<(), InputError> {
    if ready.points.len() == 1 {
        return Ok(());
    }
    let shown: Vec<String> = ready.points.iter().take(4).map(|p| p.point.label()).collect();
    let error = InputError::new(format!(
        "the scenario has {} points ({}, …), and hardware runs one at a time",
        ready.points.len(),
        shown.join("; ")
    ));
    Err(error.help("name one by --variant NAME, and fix the axes of a sweep by --set PATH=VALUE"))
}

/// A queue pair whose MTU is larger than the port's is refused by the device without a reason.
fn check_mtu(Expanded { point, tree }: &Expanded, device: &Device) -> Result<(), Trouble> {
    let (asked, active) = (point.scenario.qp.mtu.0.0, device.caps().active_mtu.bytes());
    if asked <= active.into() {
        return Ok(());
    }
    let error = crate::run::RunError::BadInput {
        path: "qp.mtu".to_owned(),
        message: format!(
            "`qp.mtu` is {asked}B, and port {} of {} has an active MTU of {active}B",
            device.port().number,
            device.name().name
        ),
        help: format!("--set qp.mtu={active}B on every rank, or raise the MTU of the port"),
    };
    Err(at_setting(error, tree).into())
}

/// Messages that are too long for the device are refused before memory is taken for them.
fn check_size(
    Expanded { point, tree }: &Expanded,
    program: usize,
    max: u32,
) -> Result<(), Trouble> {
    let asked = point.scenario.program[program].size.0.0;
    if asked <= max.into() {
        return Ok(());
    }
    let path = format!("program.{program}.size");
    let error = crate::run::RunError::BadInput {
        message: format!("`size` is {asked}B, and the device takes messages up to {max}B"),
        help: format!("--set {path}={max}B on every rank, or less"),
        path,
    };
    Err(at_setting(error, tree).into())
}

/// Everybody's bootstrap, or one that has found all others.
fn join(place: &Place, size: u32, args: &HwRunArgs) -> Result<Vec<Box<dyn Bootstrap>>, Trouble> {
    match place {
        Place::Local => {
            Ok(local::group(size).into_iter().map(|b| Box::new(b) as Box<dyn Bootstrap>).collect())
        }
        Place::Rank(config) => Ok(vec![join_over_tcp(config, args.limit)?]),
    }
}

/// Joins, and waits for all.
pub(super) fn join_over_tcp(
    config: &tcp::Config,
    limit: std::time::Duration,
) -> Result<Box<dyn Bootstrap>, Trouble> {
    let deadline = Instant::now() + limit;
    let mut joined = tcp::Tcp::join(config.clone())?;
    joined.wait_for_all(deadline)?;
    Ok(Box::new(joined))
}

fn jobs(
    args: &HwRunArgs,
    ready: &Ready,
    planned: Vec<Planned>,
    devices: Vec<Device>,
    bootstraps: Vec<Box<dyn Bootstrap>>,
) -> Vec<Job> {
    let epoch = Instant::now();
    let terms = terms(ready);
    let job = |((p, device), bootstrap): ((Planned, Device), Box<dyn Bootstrap>)| {
        let (core, numa) = match p.on.who {
            Initiator::Cpu { core, numa } => (core, numa),
            Initiator::GpuBlock { .. } => unreachable!("refused before"),
        };
        let as_written = match p.on.poll {
            PollMode::Event => WaitMode::Event,
            _ => WaitMode::Poll,
        };
        Job {
            workload: p.what,
            device,
            config: HwConfig {
                initiator: Initiator::Cpu { core, numa },
                posting: posting(args.posting),
                ..HwConfig::default()
            },
            wait: args.wait.map_or(as_written, wait_mode),
            bootstrap,
            terms: Some(terms.clone()),
            limit: args.limit,
            expects_news: p.placed.role == Role::Sender,
            group: ready.points[0].point.scenario.program[p.placed.program].kind.is_group(),
            epoch,
        }
    };
    planned.into_iter().zip(devices).zip(bootstraps).map(job).collect()
}

/// What all ranks must have in common: the name is for people, the number for the rest.
fn terms(ready: &Ready) -> String {
    let scenario = &ready.points[0].point.scenario;
    let text = toml::to_string(scenario).unwrap_or_default();
    // FNV-1a: a slip of a hand is to be noticed, not an attack.
    let hash = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let name: String = ready.name.chars().take(60).collect();
    format!("scenario {name} ({hash:016x})")
}

/// One rank in this thread, several in threads of their own.
fn side_by_side(mut jobs: Vec<Job>) -> Vec<Ended> {
    if jobs.len() == 1 {
        return jobs.drain(..).map(run_rank).collect();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            jobs.drain(..).map(|job| scope.spawn(move || run_rank(job))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    })
}

/// The figures of all ranks of this process, under the names that the simulator has for them.
fn outcome(
    Expanded { point, tree }: &Expanded,
    mut ranks: Vec<(Placed, Ended)>,
    counters: Counters,
) -> Result<(Vec<(Placed, Ended)>, Outcome), Trouble> {
    for (placed, ended) in &ranks {
        if let Some(error) = refused_step(point, placed, &ended.results) {
            return Err(at_setting(error, tree).into());
        }
    }
    let is_input = |(_, e): &(Placed, Ended)| matches!(e.trouble, Some(Trouble::Input(_)));
    if let Some(at) = ranks.iter().position(is_input) {
        let (_, ended) = ranks.swap_remove(at);
        return Err(ended.trouble.expect("it has some"));
    }
    let mut out = Outcome { counters, exit: exit(&ranks), ..Outcome::default() };
    let members = || ranks.iter().map(|(p, e)| (p.program, (p.role, &e.results)));
    for (prefix, group) in by_name(point, members()) {
        group_metrics(&prefix, &group, &mut out);
    }
    sums::collect(point, members(), &mut out);
    sums::one_group(point, &mut out);
    exchanges::collect(point, members(), &mut out);
    // From one host's clock to another's: not a time.
    out.latencies.retain(|name, _| name != "delivery" && !name.ends_with(".delivery"));
    let granted = ranks.iter().find_map(|(p, e)| Some((p, e.results.granted?)));
    if let Some((p, caps)) = granted {
        let qp = &point.scenario.qp;
        let row = |name: &str, requested: u64, effective: u32| Effective {
            name: name.to_owned(),
            requested: requested.to_string(),
            effective: effective.to_string(),
            reason: String::new(),
        };
        out.effective.push(row("qp.sq_depth", qp.sq_depth.value(), caps.max_send_wr));
        out.effective.push(row("qp.max_inline", qp.max_inline.0.0, caps.max_inline));
        out.effective.push(Effective {
            name: format!("program.{}.ring", p.program),
            requested: format!("{:?}", point.scenario.program[p.program].ring).to_lowercase(),
            effective: "as the provider likes".to_owned(),
            reason: "libibverbs offers no choice of doorbell".to_owned(),
        });
    }
    Ok((ranks, out))
}

/// How the run ended for this process.
fn exit(ranks: &[(Placed, Ended)]) -> Exit {
    let mut exit = Exit::default();
    for (p, e) in ranks {
        let Some(trouble) = &e.trouble else { continue };
        let kind = trouble.kind();
        // A violation is what the others' lack of progress comes from.
        if exit.kind == ExitKind::Ok || kind == ExitKind::Violation {
            exit.kind = kind;
        }
        let line = format!("program {} (rank {}): {}", p.program, p.rank, trouble.text());
        exit.reason = [exit.reason.as_str(), &line].join("\n").trim_start().to_owned();
    }
    exit
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Sender => "sender",
        Role::Proxy => "proxy",
        Role::Peer => "peer",
    }
}

impl Report {
    fn print(&self, as_json: bool) -> ExitStatus {
        let printed = print(&if as_json { self.to_json() } else { self.to_text() });
        let troubles = self.ranks.iter().filter_map(|(_, e)| e.trouble.as_ref());
        troubles.map(Trouble::status).max().unwrap_or(ExitStatus::Ok).max(printed)
    }

    fn to_text(&self) -> String {
        let point = &self.ready.points[0].point;
        let mut out = format!("{}: {}\n", self.ready.name, point.scenario.title);
        if !point.label().is_empty() {
            out.push_str(&format!("{}\n", point.label()));
        }
        let (here, mtu) = (self.ranks.len(), point.scenario.qp.mtu.0.0);
        out.push_str(&format!("measured, {here} of {} ranks, path MTU {mtu} B\n", self.size));
        for (p, ended) in &self.ranks {
            let title = format!("rank {} ({})", p.rank, role_word(p.role));
            out.push_str(&rank_text(&title, ended));
        }
        out.push_str(&format!("ignored: {}\n", self.ignored().join(", ")));
        out.push_str(&format!("not told by hardware: {}\n\n", NOT_TOLD.join("; ")));
        out.push_str(&measured_text(&self.outcome));
        out
    }

    fn ignored(&self) -> Vec<String> {
        let Ready { points, loaded, .. } = &self.ready;
        settings::ignored(&points[0], !loaded.expects.is_empty())
    }

    fn to_json(&self) -> String {
        let point = &self.ready.points[0].point;
        let rank = |(p, ended): &(Placed, Ended)| {
            let mut rank = rank_json(ended);
            rank["rank"] = p.rank.into();
            rank["program"] = p.program.into();
            rank["role"] = role_word(p.role).into();
            rank
        };
        let out = &self.outcome;
        let json = json!({
            "format": "doorbell-hw-run",
            "version": REPORT_VERSION,
            "measured": true,
            "scenario": self.ready.name,
            "title": point.scenario.title,
            "variant": point.variant,
            "configuration": settings::as_run(point),
            "size": self.size,
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
            "ignored": self.ignored(),
            "not_told": NOT_TOLD,
            "outcome": {
                "exit": out.exit,
                "metrics": out.metrics,
                "words": out.words,
                "latencies_ps": out.latencies,
                "counters": out.counters,
                "effective": out.effective,
                "notes": out.notes,
            },
        });
        format!("{json:#}\n")
    }
}

#[cfg(all(test, feature = "hw-fake"))]
mod tests;
