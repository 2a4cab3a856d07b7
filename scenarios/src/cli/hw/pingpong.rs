//! `doorbell hw pingpong`: half a round trip between two hosts, or with `ibv_rc_pingpong`.

#![allow(clippy::disallowed_types, reason = "hardware runs on the wall clock")]

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use doorbell_core::transport::{QpAttr, QpSize};
use doorbell_core::units::Span;
use doorbell_core::verbs::Mtu;
use doorbell_hw::bootstrap::Bootstrap;
use doorbell_hw::rc_pingpong::{ExchangeError, Listener, MTU, Session};
use doorbell_hw::sysfs::Sysfs;
use doorbell_hw::verbs::device::Device;
use doorbell_hw::verbs::provider::{Libibverbs, Provider};
use doorbell_hw::verbs::{HwConfig, WaitMode};
use serde_json::json;

use super::options::{Env, open_config, pair};
use super::rank::{Ended, Facts, Job, run as run_rank, span};
use super::rc_pingpong::ToolBootstrap;
use super::report::{Counters, NOT_TOLD, counted, port_counters, rank_json, rank_text};
use super::run::join_over_tcp;
use super::trouble::Trouble;
use crate::cli::ExitStatus;
use crate::cli::args::HwPingpongArgs;
use crate::cli::common::print;
use crate::input::InputError;
use crate::run::{Exit, LatencyRecorder, LatencySummary, Metric};
use crate::workloads::{LinkConfig, LocalConfig, PingPong, PingPongConfig};

/// Raised when a key is taken away or changes its meaning; new keys do not raise it.
const REPORT_VERSION: u32 = 1;

/// Round trips before those that are measured. The tool has none.
const WARM_UP: u64 = 16;

/// Plays one side, and prints what it measured.
pub(super) fn pingpong(args: &HwPingpongArgs) -> ExitStatus {
    let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
    match measure(args, &provider, &|name| std::env::var(name).ok()) {
        Ok(report) => report.print(args),
        Err(trouble) => trouble.complain(),
    }
}

struct Report {
    ended: Ended,
    counters: Counters,
    latency: Option<LatencySummary>,
}

fn measure(
    args: &HwPingpongArgs,
    provider: &Arc<dyn Provider>,
    env: Env<'_>,
) -> Result<Report, Trouble> {
    // Host 0 is the server's.
    let client = args.host.is_some();
    let device = Device::open(provider, &open_config(&args.device, client.into()))?;
    let facts = [Facts::of(&device)];
    check_device(args, &device)?;
    let (bootstrap, failure) = if args.interop {
        let (bootstrap, failure) = meet_tool(args)?;
        (bootstrap, Some(failure))
    } else {
        let host = args.host.as_deref();
        let config = pair(host, args.port_number, args.listen, args.limit, env)?;
        (join_over_tcp(&config, args.limit)?, None)
    };
    let peer = 1 - bootstrap.rank();
    let before = port_counters(&Sysfs::default(), &facts);
    let terms = format!("a ping-pong of {} round trips of {} B", args.iterations, args.size);
    let mut ended = run_rank(Job {
        workload: PingPong::new(config(args, peer, client)).into(),
        device,
        config: HwConfig::default(),
        wait: if args.events { WaitMode::Event } else { WaitMode::Poll },
        bootstrap,
        terms: (!args.interop).then_some(terms),
        limit: args.limit,
        expects_news: true,
        group: false,
        epoch: Instant::now(),
    });
    // The program saw only that its peer is gone; the exchange knows why.
    if let Some(error) = failure.as_ref().and_then(|f| f.get()) {
        ended.trouble = Some(error.into());
    }
    if matches!(ended.trouble, Some(Trouble::Input(_))) {
        return Err(ended.trouble.expect("it has some"));
    }
    let mut recorder = LatencyRecorder::new();
    ended.results.latencies.iter().for_each(|l| recorder.record(*l));
    let counters = counted(&before, &port_counters(&Sysfs::default(), &facts));
    Ok(Report { ended, counters, latency: recorder.summary() })
}

/// Sizes that the device refuses without a reason.
fn check_device(args: &HwPingpongArgs, device: &Device) -> Result<(), InputError> {
    let (caps, name) = (device.caps(), &device.name().name);
    if args.size > caps.max_msg_bytes {
        let text = format!("--size {}B, and messages of {name} end at {}B", args.size, {
            caps.max_msg_bytes
        });
        return Err(InputError::new(text).help("a smaller --size"));
    }
    if args.interop && caps.active_mtu < MTU {
        let (active, port) = (caps.active_mtu, device.port().number);
        let text = format!(
            "ibv_rc_pingpong has a path MTU of {MTU} B by default, and port {port} of {name} only \
             {active} B"
        );
        return Err(InputError::new(text).help("raise the MTU of the port, or of its netdev"));
    }
    Ok(())
}

/// Both sides of the run; the client starts and measures.
fn config(args: &HwPingpongArgs, peer: u32, starts: bool) -> PingPongConfig {
    let base = PingPongConfig::to(peer, starts);
    let room = 4 * u64::from(args.size).next_multiple_of(64) + 4096;
    let link = LinkConfig {
        path_mtu: args.interop.then_some(MTU),
        size: QpSize { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_inline: 0 },
        attr: QpAttr { path_mtu: Mtu::B1024, ..base.link.attr },
        deadline: span(args.limit),
        ..base.link
    };
    PingPongConfig {
        local: LocalConfig { region_bytes: room, cq_depth: 64, ..base.local },
        link,
        size: args.size,
        iterations: args.iterations,
        warm_up: if args.interop { 0 } else { WARM_UP },
        // The tool sends what it likes.
        check: !args.interop,
        ..base
    }
}

type Meeting = (Box<dyn Bootstrap>, Arc<OnceLock<ExchangeError>>);

/// Finds the tool, in the same role.
fn meet_tool(args: &HwPingpongArgs) -> Result<Meeting, Trouble> {
    let session = match &args.host {
        None => {
            let listen = args.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
            let listener = Listener::bind(SocketAddr::new(listen, args.port_number));
            listener.and_then(|l| l.accept(args.limit))
        }
        Some(host) => Session::connect(resolve(host, args.port_number)?, args.limit),
    };
    let session = session.map_err(|e| Trouble::from(&e))?;
    let bootstrap = ToolBootstrap::new(session, MTU);
    let failure = bootstrap.failure();
    Ok((Box::new(bootstrap), failure))
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, InputError> {
    let unknown = |why: String| InputError::new(format!("no address of host \"{host}\": {why}"));
    let mut all = (host, port).to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
    all.next().ok_or_else(|| unknown("it has none".to_owned()))
}

impl Report {
    fn print(&self, args: &HwPingpongArgs) -> ExitStatus {
        let printed = print(&if args.json { self.to_json(args) } else { self.to_text(args) });
        let status = self.ended.trouble.as_ref().map_or(ExitStatus::Ok, Trouble::status);
        if let (Some(trouble), true) = (&self.ended.trouble, args.json) {
            // The report says it too, but people look at the other stream.
            eprintln!("error: {}", trouble.text());
        }
        status.max(printed)
    }

    fn to_text(&self, args: &HwPingpongArgs) -> String {
        let Self { ended, counters, latency } = self;
        let role = if args.host.is_some() { "client" } else { "server" };
        let with = if args.interop { " with ibv_rc_pingpong" } else { "" };
        let (n, size) = (args.iterations, args.size);
        let mut out = format!("measured: {n} round trips of {size} B by SEND{with}\n");
        out += &rank_text(role, ended);
        out += &format!("not told by hardware: {}\n", NOT_TOLD.join("; "));
        let heard = ended.results.received;
        out += &format!("{heard} messages came, {} were sent", ended.results.messages);
        out += match (args.interop, ended.results.data.corrupt) {
            (true, _) => ", their data is not checked\n",
            (false, 0) if ended.trouble.is_none() => ", data of the last one is right\n",
            (false, 0) => "\n",
            (false, _) => ", DATA OF THE LAST ONE IS WRONG\n",
        };
        if let Some(l) = latency {
            let text = |ps| Metric::time(Span::from_ps(ps)).text();
            let (min, p50, p99, max) = (text(l.min), text(l.p50), text(l.p99), text(l.max));
            out += &format!("half a round trip: min {min}, p50 {p50}, p99 {p99}, max {max}\n");
        } else if args.host.is_none() {
            out += "half a round trip: measured by the client\n";
        }
        let counted = counters.iter().filter(|(_, n)| **n > 0).map(|(k, n)| format!("{k} {n}"));
        let counted: Vec<String> = counted.collect();
        if !counted.is_empty() {
            out += &format!("counters of the port: {}\n", counted.join(", "));
        }
        if let Some(trouble) = &ended.trouble {
            out += &format!("exit: {}\n", trouble.text());
        }
        out
    }

    fn to_json(&self, args: &HwPingpongArgs) -> String {
        let Self { ended, counters, latency } = self;
        let r = &ended.results;
        let exit = ended
            .trouble
            .as_ref()
            .map_or_else(Exit::default, |t| Exit { kind: t.kind(), reason: t.text() });
        let json = json!({
            "format": "doorbell-hw-pingpong",
            "version": REPORT_VERSION,
            "measured": true,
            "role": if args.host.is_some() { "client" } else { "server" },
            "interop": args.interop,
            "size_bytes": args.size,
            "iterations": args.iterations,
            "rank": rank_json(ended),
            "not_told": NOT_TOLD,
            "messages": r.messages,
            "received": r.received,
            "data_errors": (!args.interop).then_some(r.data.wrong()),
            "latency_ps": latency,
            "counters": counters,
            "exit": exit,
        });
        format!("{json:#}\n")
    }
}

#[cfg(all(test, feature = "hw-fake"))]
mod tests;
