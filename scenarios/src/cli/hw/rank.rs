//! One rank on hardware: its device, its program, and how it ended.

#![allow(clippy::disallowed_types, reason = "hardware runs on the wall clock")]

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::transport::{
    Control, CreateError, LookupError, MemError, ModifyError, PostRecvCause, Program, RingCause,
    Transport,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::WcStatus;
use doorbell_hw::bootstrap::Bootstrap;
use doorbell_hw::gid::Gid;
use doorbell_hw::verbs::device::Device;
use doorbell_hw::verbs::objects::{Errno, Posting};
use doorbell_hw::verbs::{
    HwConfig, HwTransport, RunConfig, RunError, RunReport, WaitMode, run as drive,
};

use super::agreed::{Agreed, Disagreement, Phase};
use super::trouble::Trouble;
use crate::input::InputError;
use crate::workloads::connect::{Card, Topic, key};
use crate::workloads::{Failure, Results, Workload};

/// What a rank is to do.
pub(super) struct Job {
    /// Its program.
    pub(super) workload: Workload,
    /// On what.
    pub(super) device: Device,
    /// Who it is, and how it posts.
    pub(super) config: HwConfig,
    /// How it waits.
    pub(super) wait: WaitMode,
    /// How it finds its peers.
    pub(super) bootstrap: Box<dyn Bootstrap>,
    /// What all ranks must run; `None`: the peer is a tool that does not tell.
    pub(super) terms: Option<String>,
    /// Longest time of the run.
    pub(super) limit: Duration,
    /// Whether silence is a sign that something is wrong, long before the limit. Not for a
    /// program that only serves: WRITEs and READs do not wake it.
    pub(super) expects_news: bool,
    /// Whether it is one of a group whose members know what to do when another one is gone.
    pub(super) group: bool,
    /// When time zero of the results is.
    pub(super) epoch: Instant,
}

/// The device as reports show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// Name, such as `mlx5_0`.
    pub(super) device: String,
    /// Port, from 1.
    pub(super) port: u8,
    /// GID in use.
    pub(super) gid: Gid,
    /// Active MTU of the port in bytes.
    pub(super) mtu: u32,
}

impl Facts {
    pub(super) fn of(device: &Device) -> Self {
        Self {
            device: device.name().name.clone(),
            port: device.port().number,
            gid: device.gid().clone(),
            mtu: device.caps().active_mtu.bytes(),
        }
    }
}

/// How a rank ended.
pub(super) struct Ended {
    /// The device.
    pub(super) facts: Facts,
    /// How it posted.
    pub(super) posting: Posting,
    /// How it waited.
    pub(super) wait: WaitMode,
    /// What it measured.
    pub(super) results: Results,
    /// Steps and sleeps; `None`: it ended before its end, and nobody counted.
    pub(super) report: Option<RunReport>,
    /// Why it did not end well, if so.
    pub(super) trouble: Option<Trouble>,
}

/// Longest time without any news before a program that expects some is stuck.
const IDLE: Duration = Duration::from_secs(30);

/// A time of the wall clock for programs.
pub(super) fn span(duration: Duration) -> Span {
    Span::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 1000))
}

/// Runs a rank to its end. Peers are told how it ended by its bootstrap.
pub(super) fn run(job: Job) -> Ended {
    let Job { workload, device, config, wait, bootstrap, terms, .. } = job;
    let Job { limit, expects_news, group, epoch, .. } = job;
    let deadline = Instant::now() + limit;
    let (facts, posting, with_tool) = (Facts::of(&device), config.posting, terms.is_none());
    let ended = |results, report, trouble| {
        let facts = facts.clone();
        Ended { facts, posting, wait, results, report, trouble }
    };
    let mut t = match HwTransport::new(device, config, bootstrap) {
        Ok(t) => t,
        Err(e) => {
            let error = InputError::new(format!("no completion channel: {e}"));
            let error = error.help("see `ulimit -n`, and the kernel's log (`dmesg`)");
            return ended(Results::default(), None, Some(error.into()));
        }
    };
    let behind = span(epoch.elapsed()).as_ps().saturating_sub(t.now().since(Time::ZERO).as_ps());
    let mut program = Agreed::new(workload, terms, span(limit)).in_group(group);
    // Below the limit, so that a stall is named and not only timed out.
    let idle = if expects_news { IDLE.min(limit * 3 / 4) } else { limit };
    let config = RunConfig { wait, limit, idle, outlive_peers: group };
    let outcome = drive(&mut t, &mut program, &config);
    if matches!(outcome, Err(RunError::PeerLost { .. })) && program.phase() == Phase::Agreeing {
        // A peer that runs something else leaves at once; what it had said is still there.
        let _ = program.step(&mut t);
    }
    let bootstrap = t.bootstrap_mut();
    bootstrap.poll();
    let lost = bootstrap.lost_peer();
    let trouble = trouble(&program, &outcome, lost, with_tool);
    let trouble = match &program.results().failure {
        Some(Failure::Modify(ModifyError::Os(e))) if Errno(*e).is_unreachable() => {
            Some(unreachable(Errno(*e), when(&program), &peers(&mut t)))
        }
        _ => trouble,
    };
    let bootstrap = t.bootstrap_mut();
    // Who failed leaves without a word, which tells the peers. Wrong data is no failure to them.
    let failed = program.results().failure.is_some()
        || program.disagreement().is_some()
        || program.refused().is_some();
    if outcome.is_ok() && !failed {
        bootstrap.finish(deadline);
    }
    let mut results = program.results().clone();
    results.shift(Span::from_ps(behind));
    ended(results, outcome.ok(), trouble)
}

/// Why a run did not end well.
fn trouble(
    program: &Agreed,
    outcome: &Result<RunReport, RunError>,
    lost: Option<u32>,
    with_tool: bool,
) -> Option<Trouble> {
    let results = program.results();
    if let Some(e) = program.disagreement() {
        return Some(disagreement(e));
    }
    if let Some(refused) = program.refused() {
        return Some(Trouble::Violation(with_name(&refused.to_string(), refused.errno)));
    }
    if let Some(f) = &results.failure {
        return Some(failure(f, when(program), lost, with_tool));
    }
    if let Err(e) = outcome {
        return Some(Trouble::NoProgress(format!("{}: {e}", when(program))));
    }
    let checked = results.checked.map_or(0, |m| m.wrong);
    let (wrong, missing) = (results.data.wrong() + checked, results.data.missing);
    if wrong + missing > 0 {
        let text = format!("data errors: {wrong} messages came wrong, {missing} never");
        return Some(Trouble::Violation(text));
    }
    let sums = results.sums.map_or(0, |s| s.wrong);
    let rounds = sums + results.exchanged.map_or(0, |e| e.wrong);
    (rounds > 0).then(|| Trouble::Violation(format!("data errors: {rounds} rounds ended wrong")))
}

/// What the rank was doing.
fn when(program: &Agreed) -> &'static str {
    let r = program.results();
    match program.phase() {
        // It had failed before it waited.
        Phase::Ending if r.failure.is_some() => "while exchanging messages",
        Phase::Agreeing => "while comparing what the ranks run",
        Phase::Ending => "while waiting for the other ranks to end",
        Phase::Working if r.granted.is_some() || r.first.is_some() || r.received > 0 => {
            "while exchanging messages"
        }
        Phase::Working => "while connecting, or serving its peer",
    }
}

fn disagreement(e: &Disagreement) -> Trouble {
    match e {
        Disagreement::Differs { .. } => {
            let help = "start every rank with the same file, options and build";
            InputError::new(e.to_string()).help(help).into()
        }
        Disagreement::Gone(_) | Disagreement::Silent { .. } => {
            Trouble::NoProgress(format!("while comparing what the ranks run: {e}"))
        }
    }
}

const LIMITS: &str = "ask for less in [qp], such as --set qp.max_inline=0B; `doorbell hw info` \
                      shows the limits of the device";

/// The `errno` in a failure.
fn errno_of(f: &Failure) -> Option<i32> {
    match f {
        Failure::Create(CreateError::Os(e))
        | Failure::Memory(MemError::Os(e))
        | Failure::Modify(ModifyError::Os(e)) => Some(*e),
        Failure::Ring(e) => match e.cause {
            RingCause::Os(e) => Some(e),
            _ => None,
        },
        Failure::PostRecv(e) => match e.cause {
            PostRecvCause::Os(e) => Some(e),
            _ => None,
        },
        _ => None,
    }
}

/// A message with the number of its `errno` replaced by name and text, which the packages without
/// an operating system do not have.
fn with_name(text: &str, errno: Option<i32>) -> String {
    let Some(errno) = errno else { return text.to_owned() };
    let name = Errno(errno).to_string();
    text.replace(&format!("errno {errno}"), &name).replace(&format!("Os({errno})"), &name)
}

/// The ranks that have published an endpoint for this one, with the address of their GID.
fn peers(t: &mut HwTransport) -> Vec<(u32, Ipv6Addr)> {
    let (me, size) = (t.rank(), t.size());
    let card = |rank: u32| {
        let mut bytes = [0; Card::ENCODED_BYTES];
        t.lookup(rank, key(Topic::Card, me, 0), &mut bytes).ok()??;
        Some((rank, Ipv6Addr::from(Card::decode(&bytes)?.endpoint.address.gid)))
    };
    (0..size).filter_map(card).collect()
}

/// The provider did not find a peer in the network.
fn unreachable(errno: Errno, when: &str, peers: &[(u32, Ipv6Addr)]) -> Trouble {
    let of = |(rank, gid): &(u32, Ipv6Addr)| match gid.to_ipv4_mapped() {
        Some(ip) => format!("rank {rank}, GID {gid} ({ip})"),
        None => format!("rank {rank}, GID {gid}"),
    };
    let who: Vec<String> = peers.iter().map(of).collect();
    Trouble::NoProgress(format!(
        "{when}: modify to RTR: {errno}: the address of the peer does not resolve ({}): look at \
         `ip neigh`, the routes and the cable",
        who.join("; ")
    ))
}

/// A failure of a group's set-up that is not about the group.
fn of_one(f: &Failure) -> Failure {
    match f {
        Failure::Aggregate(AggregateError::Create(e)) => Failure::Create(*e),
        Failure::Aggregate(AggregateError::Memory(e)) => Failure::Memory(*e),
        Failure::Aggregate(AggregateError::Modify(e)) => Failure::Modify(*e),
        other => *other,
    }
}

fn failure(f: &Failure, when: &str, lost: Option<u32>, with_tool: bool) -> Trouble {
    let f = &of_one(f);
    let text = with_name(&f.to_string(), errno_of(f));
    let input = |help: &str| InputError::new(text.clone()).help(help).into();
    match f {
        Failure::Create(_) | Failure::Modify(ModifyError::Value { .. }) => input(LIMITS),
        Failure::Modify(_) => input(
            "compare [qp], the GIDs (--gid) and the active MTUs of both sides by `doorbell hw \
             info`; the kernel's log (`dmesg`) may say more",
        ),
        Failure::Memory(MemError::TooLarge { .. }) => input(
            "smaller messages or windows, such as --set program.0.size=1MiB; `free` shows the \
             memory",
        ),
        Failure::Memory(_) => input("smaller messages or windows; see `ulimit -l`"),
        Failure::Stage(_)
        | Failure::Config(_)
        | Failure::Share(_)
        | Failure::Attach(_)
        | Failure::Lanes(_)
        | Failure::Proxy(_) => input("change the program so that the verbs allow it"),
        Failure::OwnRegion { .. } | Failure::PeerRegion { .. } => input("smaller messages"),
        Failure::BadCard { .. } | Failure::Lookup(LookupError::NoSuchRank { .. }) => {
            input("start the same build of doorbell everywhere")
        }
        Failure::NoPeer { .. }
        | Failure::Lookup(LookupError::PeerGone { .. })
        | Failure::Aggregate(_) => {
            Trouble::NoProgress(format!("{when}: {f}; see what that rank printed"))
        }
        Failure::Completion { .. }
        | Failure::Ring(_)
        | Failure::Lane(_)
        | Failure::PostRecv(_)
        | Failure::Poll(_) => broken(f, when, lost, with_tool),
    }
}

/// A queue pair in error: because the peer is gone, or because of what it was asked.
fn broken(f: &Failure, when: &str, lost: Option<u32>, with_tool: bool) -> Trouble {
    let text = with_name(&f.to_string(), errno_of(f));
    if let Some(rank) = lost {
        return Trouble::NoProgress(format!("{when}: rank {rank} was lost, and then {text}"));
    }
    let silent = [WcStatus::RetryExcErr, WcStatus::RnrRetryExcErr];
    match f {
        Failure::Completion { status, .. } if with_tool && silent.contains(status) => {
            Trouble::NoProgress(format!(
                "{when}: {text}; ibv_rc_pingpong has ended, or is not reached"
            ))
        }
        Failure::Completion { .. } if with_tool => Trouble::Violation(format!(
            "{when}: {text}; both sides need the same size and path MTU (`-s`, `-m`)"
        )),
        _ => Trouble::Violation(format!("{when}: {text}")),
    }
}

#[cfg(test)]
mod tests;
