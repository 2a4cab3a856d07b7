//! Contradictions of lanes, paces and stripes.

use doorbell_core::policy::PaceConfig;
use doorbell_core::units::Bytes;

use super::check::{Checked, Given, check_granted, check_name, check_op, refuse};
use super::{Fence, Lane, Program, QpKind, Scenario, Spread};
use crate::profile::Profile;
use crate::quantity::Unit;
use crate::workloads::connect::{MAX_LANES, MAX_QPS_OF_LANE};

/// Keys of a loop that lanes have not.
fn not_with_lanes(p: &Program) -> Option<(&'static str, &'static str)> {
    if p.share_qp {
        Some(("share_qp", "lanes have queue pairs of their own: leave it out"))
    } else if p.poll_interval.is_some() {
        Some(("poll_interval", "lanes are polled at once: leave it out"))
    } else if p.fence != Fence::System {
        Some(("fence", "lanes fence where it is needed: leave it out"))
    } else {
        None
    }
}

/// Lanes, and the keys that make a program one lane.
pub(super) fn check_lanes(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    let burst = |pace: bool, size: Bytes, burst: Option<Bytes>, path: String| match burst {
        Some(_) if !pace => {
            let text = "`burst` without `pace`".to_owned();
            refuse(path, text, "say how fast: pace = \"50Gbps\", or leave it out")
        }
        Some(b) if b < size => {
            let text = format!("a burst of {} and messages of {}", b.print(), size.print());
            refuse(path, text, "at least one message, or smaller messages")
        }
        Some(b) if b > PaceConfig::MAX_BURST => {
            let text = format!("a burst of {}", b.print());
            refuse(path, text, format!("at most {}", PaceConfig::MAX_BURST.print()))
        }
        _ => Ok(()),
    };
    burst(p.pace.is_some(), p.size.0, p.burst.map(|b| b.0), path("burst"))?;
    if !p.is_laned() {
        return Ok(());
    }
    if let Some((key, help)) = not_with_lanes(p) {
        let text = format!("`{key}` in a program that posts by lanes");
        return refuse(path(key), text, help);
    }
    let paces = p.lanes.iter().map(|l| l.pace).chain([p.pace]).flatten().count();
    if p.tuner.is_some() && paces != 1 {
        let text = format!("`tuner` in a program with {paces} paces");
        let help = "it turns the `pace` of the one lane that has one: leave out the others, or it";
        return refuse(path("tuner"), text, help);
    }
    if s.qp.kind == QpKind::Ud {
        let text = "lanes with UD queue pairs".to_owned();
        return refuse("qp.type", text, "write `type = \"RC\"`: a datagram names its queue pair");
    }
    if p.lanes.is_empty() {
        return Ok(());
    }
    if p.lanes.len() > MAX_LANES {
        let text = format!("{} lanes of one program", p.lanes.len());
        return refuse(path("lanes"), text, format!("at most {MAX_LANES}; use two programs"));
    }
    if p.pace.is_some() {
        let text = "`pace` beside `lanes`".to_owned();
        return refuse(path("pace"), text, "each lane has its own: say it there");
    }
    for (i, lane) in p.lanes.iter().enumerate() {
        let at = |key: &str| path(&format!("lanes.{i}.{key}"));
        check_lane(s, p, i, at)?;
        let size = lane.size.map_or(p.size.0, |q| q.0);
        burst(lane.pace.or(lane.peer_pace).is_some(), size, lane.burst.map(|b| b.0), at("burst"))?;
    }
    Ok(())
}

/// The lanes of a thread have one completion queue, with an entry for each work request that may
/// be outstanding.
pub(super) fn check_entries(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    given: &Given,
) -> Checked {
    let depth = s.qp.sq_depth.value();
    let entries = |l: &Lane| {
        let window = l.window.or(p.window).map_or(depth, |w| w.value());
        l.qps.map_or(p.qps.value(), |n| n.value()) * window
    };
    let need: u64 = p.all_lanes().iter().map(entries).sum();
    let most = s.qp.cq_depth.map_or(profile.nic.max_cq_depth, |d| d.value());
    if need <= most {
        return Ok(());
    }
    let key = if s.qp.cq_depth.is_some() { "qp.cq_depth" } else { "nic.max_cq_depth" };
    let text = format!("{need} work requests may be outstanding, and `{key}` is {most}");
    let at = if p.lanes.is_empty() { "qps" } else { "lanes" };
    refuse(given.path(at), text, "fewer `qps`, or a smaller `window`")
}

fn check_lane(s: &Scenario, p: &Program, i: usize, at: impl Fn(&str) -> String) -> Checked {
    let lane: &Lane = &p.lanes[i];
    check_name(&lane.name, &at("name"))?;
    if lane.name.is_empty() {
        let text = format!("lane {i} has no name");
        return refuse(at("name"), text, "each needs a `name` for its results");
    }
    if p.lanes[..i].iter().any(|l| l.name == lane.name) {
        let text = format!("two lanes are called \"{}\"", lane.name);
        return refuse(at("name"), text, "give each a name of its own");
    }
    let qps = lane.qps.map_or(p.qps.value(), |q| q.value());
    if qps > MAX_QPS_OF_LANE {
        let text = format!("{qps} queue pairs of one lane");
        let key = if lane.qps.is_some() { "qps" } else { "name" };
        return refuse(at(key), text, format!("`qps` of at most {MAX_QPS_OF_LANE}"));
    }
    let depth = s.qp.sq_depth.value();
    let window = lane.window.or(p.window).map_or(depth, |w| w.value());
    if window > depth {
        let text = format!("`window` is {window}, and `qp.sq_depth` is {depth}");
        return refuse(at("window"), text, format!("at most {depth}, or raise the depth"));
    }
    let keys = [
        ("batch", lane.batch, p.batch.value()),
        ("signal_every", lane.signal_every, p.signal_every.value()),
    ];
    for (key, own, of_program) in keys {
        let n = own.map_or(of_program, |n| n.value());
        if n > window {
            let text = format!("`{key}` is {n}, and the window is {window}");
            let key = if own.is_some() { key } else { "window" };
            return refuse(at(key), text, format!("at most {window}, or a larger `window`"));
        }
    }
    if lane.batch_delay.is_some() && lane.batch.unwrap_or(p.batch).value() == 1 {
        let text = "`batch_delay` waits for a batch to fill, and `batch` is 1".to_owned();
        return refuse(at("batch_delay"), text, "raise `batch`, or leave the delay out");
    }
    let spread = lane.spread.or(p.spread).unwrap_or_default();
    if lane.flows.value() > 1 && spread != Spread::Ordered {
        let text = "`flows` where messages of a flow have no order".to_owned();
        return refuse(at("flows"), text, "write `spread = \"ordered\"`, or leave it out");
    }
    if let Some(size) = lane.size {
        check_op(s, p.op, size.0, &at("size"), &at("size"))?;
    }
    match lane.inline {
        Some(inline) => check_granted(s, inline.0, &at("inline")),
        None => Ok(()),
    }
}
