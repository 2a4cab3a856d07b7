//! What the commands say about ranks: device, port, GID, what was granted, and what nobody can
//! tell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use doorbell_core::transport::QpCaps;
use doorbell_hw::sysfs::Sysfs;
use doorbell_hw::verbs::objects::Posting;
use serde_json::{Value, json};

use super::options::wait_word;
use super::rank::{Ended, Facts};
use crate::cli::args::PostingArg;

/// Figures of the simulator that hardware does not have.
pub(super) const NOT_TOLD: [&str; 5] = [
    "doorbells and MMIO writes",
    "whether BlueFlame was used",
    "PCIe traffic",
    "cost of a post, busy resources",
    "delivery: the clocks of two hosts differ",
];

/// The word of a way to post.
pub(super) fn posting_word(posting: Posting) -> &'static str {
    match posting {
        Posting::Classic => PostingArg::Classic,
        Posting::Extended => PostingArg::Extended,
    }
    .word()
}

/// Two lines for a rank: what it ran on, and what its queue pair was granted.
pub(super) fn rank_text(title: &str, e: &Ended) -> String {
    let Facts { device, port, gid, mtu } = &e.facts;
    let (posting, wait) = (posting_word(e.posting), wait_word(e.wait));
    let mut out = format!(
        "{title}: {device} port {port}, GID {gid}, active MTU {mtu}; posting {posting}, wait {wait}"
    );
    if let Some(r) = &e.report {
        let _ = write!(out, ", {} steps, {} sleeps", r.steps, r.sleeps);
    }
    out.push('\n');
    if let Some(c) = &e.results.granted {
        let (sends, receives, sges) = (c.max_send_wr, c.max_recv_wr, c.max_sge);
        let _ = writeln!(
            out,
            "  granted: {sends} sends, {receives} receives, {sges} SGEs, {} B inline, {} staged, \
             {} READs out",
            c.max_inline, c.max_staged, c.max_rd_atomic
        );
    }
    out
}

/// The same as JSON.
pub(super) fn rank_json(e: &Ended) -> Value {
    let Facts { device, port, gid, mtu } = &e.facts;
    json!({
        "device": device,
        "port": port,
        "gid": gid,
        "mtu_bytes": mtu,
        "posting": posting_word(e.posting),
        "wait": wait_word(e.wait),
        "steps": e.report.as_ref().map(|r| r.steps),
        "sleeps": e.report.as_ref().map(|r| r.sleeps),
        "granted": e.results.granted.as_ref().map(caps_json),
        "trouble": e.trouble.as_ref().map(|t| t.text()),
    })
}

fn caps_json(c: &QpCaps) -> Value {
    json!({
        "max_send_wr": c.max_send_wr,
        "max_recv_wr": c.max_recv_wr,
        "max_sge": c.max_sge,
        "max_inline": c.max_inline,
        "max_staged": c.max_staged,
        "max_rd_atomic": c.max_rd_atomic,
        "atomics": c.atomics,
    })
}

/// Counters of ports, by name, summed.
pub(super) type Counters = BTreeMap<String, u64>;

/// The kernel's counters of the ports that are used. They count for the whole port, whoever uses
/// it.
pub(super) fn port_counters(sysfs: &Sysfs, used: &[Facts]) -> Counters {
    let mut ports: Vec<(&str, u8)> = used.iter().map(|f| (f.device.as_str(), f.port)).collect();
    ports.sort_unstable();
    ports.dedup();
    let mut sums = Counters::new();
    for (device, port) in ports {
        for (name, n) in sysfs.port(device, port).hw_counters {
            *sums.entry(name).or_default() += n;
        }
    }
    sums
}

/// What was counted between two readings.
pub(super) fn counted(before: &Counters, after: &Counters) -> Counters {
    let since = |(name, n): (&String, &u64)| {
        let then = before.get(name).copied().unwrap_or(0);
        (name.clone(), n.saturating_sub(then))
    };
    after.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_does_not_count() {
        let of = |list: &[(&str, u64)]| list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        let (before, after) = (of(&[("a", 3), ("c", 9)]), of(&[("a", 5), ("b", 1), ("c", 8)]));
        assert_eq!(counted(&before, &after), of(&[("a", 2), ("b", 1), ("c", 0)]));
    }
}
