//! `doorbell hw info`

use std::fmt::{self, Display, Write};
use std::sync::Arc;

use doorbell_hw::limits::Memlock;
use doorbell_hw::sysfs::Sysfs;
use doorbell_hw::verbs::info::{DeviceInfo, Gt, Info, Limits, PortInfo, collect};
use doorbell_hw::verbs::provider::{Libibverbs, Provider};

use crate::cli::ExitStatus;
use crate::cli::args::HwInfoArgs;
use crate::cli::common::{complain, print};
use crate::input::InputError;

/// GIDs that are shown before it says how many more there are.
const GIDS: usize = 8;

/// Prints what there is and what looks wrong. A warning does not change the status.
pub(super) fn info(args: &HwInfoArgs) -> ExitStatus {
    let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
    match collect(&provider, &Sysfs::default(), args.device.as_deref()) {
        Ok(info) if args.json => print(&to_json(&info)),
        Ok(info) => print(&to_text(&info)),
        Err(error) => complain(&InputError::new(error.to_string())),
    }
}

/// Version of the JSON, raised when a field changes its meaning or goes.
const JSON_VERSION: u32 = 1;

fn to_json(info: &Info) -> String {
    let json = serde_json::json!({ "version": JSON_VERSION, "info": info });
    format!("{json:#}\n")
}

/// A line of the report: what it is, and its value.
struct Lines {
    out: String,
    indent: usize,
}

impl Lines {
    fn head(&mut self, text: impl Display) {
        let _ = writeln!(self.out, "{:indent$}{text}", "", indent = self.indent.saturating_sub(2));
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let width = 20 - self.indent;
        let _ = writeln!(self.out, "{:indent$}{name:width$}{value}", "", indent = self.indent);
    }

    /// Absent facts are said to be unknown, so that nobody takes them for good ones.
    fn fact(&mut self, name: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.line(name, value),
            None => self.line(name, "unknown"),
        }
    }

    fn warnings(&mut self, warnings: &[impl Display]) {
        warnings.iter().for_each(|w| self.line("WARNING", w));
    }
}

fn to_text(info: &Info) -> String {
    let mut lines = Lines { out: String::new(), indent: 2 };
    for device in &info.devices {
        write_device(&mut lines, device);
    }
    lines.indent = 2;
    lines.head("this machine");
    lines.fact("memlock limit", info.memlock.map(Locked));
    lines.warnings(&info.warnings);
    lines.head("not told by libibverbs");
    info.not_told.iter().for_each(|what| lines.head(format_args!("  {what}")));
    lines.out
}

fn write_device(lines: &mut Lines, device: &DeviceInfo) {
    lines.indent = 2;
    let (name, facts) = (&device.name, &device.facts);
    lines.head(format_args!("{} ({})", name.name, name.uverbs));
    match &facts.pci {
        Some(pci) => {
            lines.line("PCI address", pci);
            lines.fact("NUMA node", facts.numa);
            let pcie = facts.pcie.map(|p| {
                let (now, best) = (Gt(p.mt_per_s), Gt(p.max_mt_per_s));
                format!("x{} of x{}, {now} of {best} GT/s", p.width, p.max_width)
            });
            lines.fact("PCIe link", pcie);
            lines.fact("driver", facts.driver.as_ref());
        }
        None => lines.line("PCI address", "none: a software device"),
    }
    if let Some(firmware) = &facts.firmware {
        lines.line("firmware", firmware);
    }
    if let Some(limits) = &device.limits {
        write_limits(lines, limits);
    }
    lines.warnings(&device.warnings);
    for port in &device.ports {
        lines.indent = 4;
        write_port(lines, port);
    }
}

fn write_limits(lines: &mut Lines, l: &Limits) {
    let queues = format!("{} QPs of {} WRs, {} SGEs", l.max_qp, l.max_qp_wr, l.max_sge);
    lines.line("at most", queues);
    lines.line("", format_args!("{} CQs of {} entries", l.max_cq, l.max_cqe));
    lines.line("", format_args!("{} MRs, SRQs of {} WRs", l.max_mr, l.max_srq_wr));
    let (out, inward) = (l.max_qp_init_rd_atom, l.max_qp_rd_atom);
    lines.line("", format_args!("{out} READs out, {inward} in, per QP"));
    lines.line("ATOMICs", if l.atomics { "yes" } else { "no" });
}

fn write_port(lines: &mut Lines, info: &PortInfo) {
    let port = &info.port;
    lines.head(format_args!("port {}: {}, {}", port.number, port.state, port.link_layer));
    lines.fact("rate", info.rate.as_ref());
    let bytes = |mtu: Option<doorbell_core::verbs::Mtu>| mtu.map_or("?".into(), |m| m.to_string());
    let mtu = format!("{} active, {} at most", bytes(port.active_mtu), bytes(port.max_mtu));
    lines.line("MTU", mtu);
    if let Some(netdev) = &info.netdev {
        let mtu = info.netdev_mtu.map_or("unknown".to_owned(), |m| m.to_string());
        lines.line("netdev", format_args!("{netdev}, MTU {mtu}"));
    }
    if port.lid != 0 {
        lines.line("LID", port.lid);
    }
    lines.line("longest message", format_args!("{} B", port.max_msg_bytes));
    for (i, gid) in info.gids.iter().take(GIDS).enumerate() {
        let chosen = if info.chosen_gid == Some(gid.index) { "  <- chosen" } else { "" };
        lines.line(if i == 0 { "GIDs" } else { "" }, format_args!("{gid}{chosen}"));
    }
    if let Some(more) = info.gids.len().checked_sub(GIDS).filter(|&n| n > 0) {
        lines.line("", format_args!("and {more} more (--json shows all)"));
    }
    let counted: Vec<String> =
        info.hw_counters.iter().filter(|(_, n)| **n > 0).map(|(k, n)| format!("{k} {n}")).collect();
    for (i, counter) in counted.iter().enumerate() {
        lines.line(if i == 0 { "counters" } else { "" }, counter);
    }
    lines.warnings(&info.warnings);
}

/// `RLIMIT_MEMLOCK` for people.
struct Locked(Memlock);

impl Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.soft {
            Some(bytes) => write!(f, "{} KiB", bytes >> 10),
            None => f.write_str("unlimited"),
        }
    }
}

#[cfg(test)]
mod tests;
