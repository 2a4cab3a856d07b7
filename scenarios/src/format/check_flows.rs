//! Contradictions of `kind = "flows"`.

use doorbell_core::units::{Bytes, Span, Time};

use super::check::{Checked, check_reliable, refuse};
use super::check_congestion::fastest_port;
use super::check_hosts::{OTHER_NIC, check_range, no_such_nic};
use super::flow_file::MAX_FLOW_BYTES;
use super::{Flows, Op, Pattern, Program, Scenario};
use crate::profile::Profile;
use crate::quantity::Unit;
use crate::run::epoch;

/// Refuses flows that cannot be.
pub(super) fn check_flows(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    path: impl Fn(&str) -> String,
) -> Checked {
    let Some(flows) = &p.flows else {
        let help = "write for example flows = { pattern = \"permutation\" }";
        return refuse(path("kind"), "flows without a table `flows`".to_owned(), help);
    };
    check_keys(flows, &path)?;
    check_who(s, p, flows, &path)?;
    check_nic(s, profile, p, flows, &path)?;
    check_reliable(s, "flows are")?;
    if s.srq.is_some() {
        let text = "flows take receives of their own queue pairs".to_owned();
        return refuse("srq", text, "leave [srq] out, or send by `message-rate`");
    }
    check_bytes(s, p, flows, &path)?;
    check_time(s, profile, p, flows, &path)?;
    if p.qps.value() > profile.nic.max_qp {
        let text = format!("{} queue pairs, and the profile allows {}", p.qps.value(), {
            profile.nic.max_qp
        });
        return refuse(path("qps"), text, "lower `qps`");
    }
    Ok(())
}

/// Keys without a use in the pattern, and keys that it needs.
fn check_keys(flows: &Flows, path: &impl Fn(&str) -> String) -> Checked {
    let given = [
        ("stagger", flows.stagger.0 > Span::ZERO),
        ("sizes", flows.sizes.is_some()),
        ("load", flows.load.is_some()),
        ("duration", flows.duration.is_some()),
        ("chunk", flows.chunk.is_some()),
        ("file", flows.file.is_some()),
    ];
    let (word, keys) = (flows.pattern.word(), flows.pattern.keys());
    if let Some((key, _)) = given.iter().find(|(key, given)| *given && !keys.contains(key)) {
        let text = format!("`{key}` has no use in the pattern `{word}`");
        return refuse(path(&format!("flows.{key}")), text, "leave it out");
    }
    let needed: &[&str] = match flows.pattern {
        Pattern::Poisson => &["load", "duration"],
        Pattern::Trace => &["file"],
        _ => &[],
    };
    let missing = given.iter().find(|(key, given)| !given && needed.contains(key));
    if let Some((key, _)) = missing {
        let text = format!("the pattern `{word}` needs `{key}`");
        let help = match *key {
            "load" => "write for example load = \"50%\"",
            "duration" => "write for example duration = \"1ms\"",
            _ => "name a CSV file with the columns src,dst,bytes,start_ns",
        };
        return refuse(path("flows.pattern"), text, help);
    }
    if let Some(load) = flows.load.map(|l| l.0)
        && (load.num == 0 || load.num > load.den)
    {
        let text = format!("a load of {}", load.print());
        return refuse(path("flows.load"), text, "more than 0, at most 100%");
    }
    Ok(())
}

/// Keys of the program that say who sends, where the pattern says it.
fn check_idle(p: &Program, flows: &Flows, path: &impl Fn(&str) -> String) -> Checked {
    let listed = flows.pattern == Pattern::Trace;
    let idle = [
        ("host", listed && p.host.value() != 0),
        ("hosts", listed && p.hosts.value() != 1),
        ("peer", flows.pattern != Pattern::Incast && p.peer != super::program::peer_one()),
    ];
    let Some((key, _)) = idle.iter().find(|(_, idle)| *idle) else { return Ok(()) };
    let text = format!("`{key}` has no use in the pattern `{}`", flows.pattern.word());
    let help = if listed { "leave it out: the list names hosts" } else { "leave it out" };
    refuse(path(key), text, help)
}

/// The hosts that take part are there, and there are enough of them.
fn check_who(s: &Scenario, p: &Program, flows: &Flows, path: &impl Fn(&str) -> String) -> Checked {
    let all = s.topology.hosts.value();
    let (first, n, peer) = (p.host.value(), p.hosts.value(), p.peer.value());
    check_idle(p, flows, path)?;
    if flows.pattern == Pattern::Trace {
        return Ok(());
    }
    check_range(s, p, path)?;
    if flows.pattern != Pattern::Incast {
        if n < 2 {
            let text = format!("`{}` among {n} host", flows.pattern.word());
            return refuse(path("flows.pattern"), text, "at least 2: raise `hosts`");
        }
        return Ok(());
    }
    if peer >= all {
        let text = format!("`peer` is {peer}, and there are {all} hosts, 0 to {}", all - 1);
        return refuse(path("peer"), text, "name a host that is there");
    }
    if (first..first + n).contains(&peer) {
        let last = first + n - 1;
        let word = if p.peer == super::program::peer_one() { " (the default)" } else { "" };
        let text = format!(
            "hosts {first} to {last} send to `peer`, host {peer}{word}, which is one of them"
        );
        let free = (0..all).find(|h| !(first..=last).contains(h));
        let help = match free {
            Some(host) => format!("name a host outside of them: peer = {host}"),
            None => "all hosts send: raise `topology.hosts`, or lower `hosts`".to_owned(),
        };
        return refuse(path("peer"), text, help);
    }
    Ok(())
}

/// Every host that takes part has the NIC. A list may name any host.
fn check_nic(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    flows: &Flows,
    path: &impl Fn(&str) -> String,
) -> Checked {
    let (first, n, nic) = (p.host.value(), p.hosts.value(), p.nic.value());
    let hosts = match flows.pattern {
        Pattern::Trace => 0..s.topology.hosts.value(),
        _ => first..first + n,
    };
    let receiver = Some(p.peer.value()).filter(|_| flows.pattern == Pattern::Incast);
    match no_such_nic(&s.topology, profile, nic, hosts.chain(receiver)) {
        Some(text) => refuse(path("nic"), text, OTHER_NIC),
        None => Ok(()),
    }
}

/// When flows begin to start, and when the run ends, in words: it begins with the connecting of
/// queue pairs.
fn times(s: &Scenario, profile: &Profile, flows: &Flows) -> (Span, String) {
    let zero = epoch(profile.port.bootstrap_latency).since(Time::ZERO);
    let (end, zero_text) = (s.run.limit.0.print(), zero.print());
    let ends = format!("the run ends at {end}, {zero_text} of which connect queue pairs");
    (zero + flows.start.0, ends)
}

/// Each flow of a list starts and ends before the run does, at the rate of the fastest port of a
/// host.
pub(super) fn check_list(
    s: &Scenario,
    profile: &Profile,
    flows: &Flows,
    path: impl Fn(&str) -> String,
) -> Checked {
    let (first, ends) = times(s, profile, flows);
    let rate = if flows.lines.is_empty() { None } else { fastest_port(s, profile) };
    for (n, flow) in (1..).zip(flows.lines.iter()) {
        let start = first + Span::from_ps(flow.start_ps);
        let least = rate.map_or(Span::ZERO, |rate| rate.time_for(flow.bytes));
        if start + least > s.run.limit.0 {
            let text = format!(
                "flow {n} of the list has {}, starts at {} and takes {}, and {ends}",
                Bytes(flow.bytes).print(),
                Span::from_ps(flow.start_ps).print(),
                least.print(),
            );
            return refuse(path("flows.file"), text, "shorten the list, or raise `run.limit`");
        }
    }
    Ok(())
}

/// Flows start before the run ends, and each could end by then, at the rate of the fastest port of
/// a host.
fn check_time(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    flows: &Flows,
    path: &impl Fn(&str) -> String,
) -> Checked {
    let (size, limit) = (p.size.0.0, s.run.limit.0);
    let (first, ends) = times(s, profile, flows);
    if first >= limit {
        let text = format!("flows start at {}, and {ends}", flows.start.0.print());
        return refuse(path("flows.start"), text, "lower `start`, or raise `run.limit`");
    }
    if flows.duration.is_some_and(|d| first + d.0 > limit) {
        let text = format!("flows go on starting for that long, and {ends}");
        return refuse(path("flows.duration"), text, "lower `duration`, or raise `run.limit`");
    }
    if flows.pattern == Pattern::Trace || flows.sizes.is_some() {
        return Ok(());
    }
    if size > MAX_FLOW_BYTES {
        let text = format!("a flow of {}", p.size.0.print());
        return refuse(path("size"), text, format!("at most {}", Bytes(MAX_FLOW_BYTES).print()));
    }
    let Some(line) = fastest_port(s, profile) else { return Ok(()) };
    let least = line.time_for(size);
    if least > limit {
        let text = format!(
            "a flow of {} takes {} at {}, and the run ends at {}",
            p.size.0.print(),
            least.print(),
            line.print(),
            limit.print()
        );
        return refuse(path("size"), text, "lower `size`, or raise `run.limit`");
    }
    Ok(())
}

fn check_bytes(
    s: &Scenario,
    p: &Program,
    flows: &Flows,
    path: &impl Fn(&str) -> String,
) -> Checked {
    if !matches!(p.op, Op::Write | Op::Send | Op::Read) {
        let text = format!("flows by `{}`", p.op.word());
        return refuse(path("op"), text, "`write`, `send` or `read`");
    }
    let ring = flows.pattern == Pattern::RingAllreduce;
    if ring && p.op != Op::Write {
        let text = format!("a ring by `{}`", p.op.word());
        return refuse(path("op"), text, "leave it out: a ring has WRITEs with immediate data");
    }
    if ring && p.qps.value() > 1 {
        let text = "a ring with several queue pairs for each neighbour".to_owned();
        return refuse(path("qps"), text, "leave it out");
    }
    let depth = s.qp.max_rd_atomic.value().min(s.qp.max_dest_rd_atomic.value());
    if p.op == Op::Read && depth == 0 {
        let text = "`read` with no READ allowed outstanding".to_owned();
        let help = "raise `qp.max_rd_atomic` and `qp.max_dest_rd_atomic`";
        return refuse(path("op"), text, help);
    }
    let listed = flows.pattern == Pattern::Trace || flows.sizes.is_some();
    if listed && p.size != super::program::default_size() {
        let text = "`size`, and the sizes are listed".to_owned();
        return refuse(path("size"), text, "leave it, or `flows.sizes`, out");
    }
    let least = if ring { p.hosts.value() } else { p.qps.value() };
    if !listed && p.size.0.0 < least {
        let text = format!("{} for {least} parts", p.size.0.print());
        return refuse(path("size"), text, "at least a byte for each: raise `size`");
    }
    match flows.chunk.map(|c| c.0) {
        Some(chunk) if chunk > Bytes(p.size.0.0.div_ceil(p.hosts.value())) => {
            let text = format!("a `chunk` of {}", chunk.print());
            refuse(path("flows.chunk"), text, "at most the share of a host, `size` / `hosts`")
        }
        _ => Ok(()),
    }
}
