//! Contradictions about who posts: cores, GPU blocks, and a core in the place of a GPU.

use doorbell_core::units::Bytes;

use super::check::{Checked, Given, refuse};
use super::{Fallback, Initiator, Memory, Poll, Program, ProgramKind, RingMode};
use crate::profile::Profile;

pub(super) fn check_initiator(profile: &Profile, p: &Program, given: &Given) -> Checked {
    if p.initiator == Initiator::CpuProxy && p.kind != ProgramKind::Produce {
        let text = format!("`initiator = \"cpu-proxy\"` in `{}`", p.kind.word());
        return refuse(given.path("initiator"), text, "only `produce` has a proxy");
    }
    check_fallback(profile, p, given)?;
    check_shared(p, given)?;
    check_proxy(p, given)?;
    if given.has("ring_by") && p.initiator != Initiator::Gpu {
        let text = "`ring_by` is about GPU threads, and the initiator is a CPU".to_owned();
        return refuse(given.path("ring_by"), text, "write `initiator = \"gpu\"`");
    }
    if given.has("ring_by") && p.kind != ProgramKind::Produce {
        let text = format!("`ring_by` has no use in `{}`", p.kind.word());
        return refuse(given.path("ring_by"), text, "`batch` says how many messages a ring has");
    }
    let sleeps = p.poll == Poll::Event && p.initiator == Initiator::Gpu;
    if given.has("poll") && sleeps && p.fallback == Fallback::Refuse {
        let text = "`poll = \"event\"` of a GPU: its threads cannot sleep".to_owned();
        return refuse(given.path("poll"), text, "leave it out: they look all the time");
    }
    if given.has("numa") && p.initiator == Initiator::Gpu {
        let text = "`numa` is about CPU cores, and the initiator is a GPU".to_owned();
        return refuse(given.path("numa"), text, "leave it out");
    }
    let in_gpu = [p.memory, p.peer_memory].contains(&Memory::Gpu);
    if given.has("gpu") && p.initiator != Initiator::Gpu && !in_gpu {
        let text = format!("`gpu` is {}, and the program has nothing in a GPU", p.gpu.value());
        let help = "write `memory = \"gpu\"` or `initiator = \"gpu\"`, or leave it out";
        return refuse(given.path("gpu"), text, help);
    }
    // A profile without GPUs is refused where one is asked for.
    let (gpu, gpus) = (p.gpu.value(), profile.gpu.count);
    if gpus > 0 && gpu >= gpus {
        let text = format!("there is no GPU {gpu}: `gpu.count` is {gpus}");
        return refuse(given.path("gpu"), text, "raise \"gpu.count\" in [settings]");
    }
    if p.ring == RingMode::Blueflame && profile.nic.bf_bytes == Bytes(0) {
        let text = format!("profile \"{}\" has no BlueFlame", profile.name);
        return refuse(given.path("ring"), text, "write `ring = \"doorbell\"` or \"auto\"");
    }
    Ok(())
}

/// Where the device takes no doorbell of a GPU, nobody posts in its place unasked.
fn check_fallback(profile: &Profile, p: &Program, given: &Given) -> Checked {
    if p.fallback != Fallback::Refuse && p.initiator != Initiator::Gpu {
        let text = "`fallback` is about a GPU that posts, and the initiator is another".to_owned();
        return refuse(given.path("fallback"), text, "write `initiator = \"gpu\"`");
    }
    if p.fallback == Fallback::CpuProxy && p.kind != ProgramKind::Produce {
        let text = format!("`fallback = \"cpu-proxy\"` in `{}`", p.kind.word());
        let help = "only `produce` has a proxy: write `fallback = \"cpu\"`";
        return refuse(given.path("fallback"), text, help);
    }
    let refused = p.initiator == Initiator::Gpu && !profile.nic.gpu_doorbell;
    if !refused || p.falls_back(profile).is_some() {
        return Ok(());
    }
    let text = format!("the device of profile \"{}\" takes no doorbell of a GPU", profile.name);
    let help = match p.kind {
        ProgramKind::Produce => {
            "write `fallback = \"cpu-proxy\"` for a core that posts in its place, or \
             \"nic.gpu_doorbell\" = true in [settings] for a device that does"
        }
        _ => {
            "write `fallback = \"cpu\"` for a core that runs it in its place, or \
             \"nic.gpu_doorbell\" = true in [settings] for a device that does"
        }
    };
    refuse(given.path("initiator"), text, help)
}

/// Threads that bypass the order need one.
fn check_shared(p: &Program, given: &Given) -> Checked {
    let bypass = p.bypass.value();
    if bypass > 0 && !(p.share_qp && p.ring == RingMode::Ordered) {
        let text = "`bypass` without an order that could be bypassed".to_owned();
        let help = "write `share_qp = true` and `ring = \"ordered\"`";
        return refuse(given.path("bypass"), text, help);
    }
    let threads = p.threads.value();
    if bypass > 0 && bypass >= threads {
        let text = format!("`bypass` is {bypass}, and `threads` is {threads}");
        return refuse(given.path("bypass"), text, "leave at least one that keeps the order");
    }
    Ok(())
}

/// Keys of a proxy need one, be it as a fallback.
fn check_proxy(p: &Program, given: &Given) -> Checked {
    // A fallback that is not needed has no proxy, and keeps its keys for where it is.
    let may = p.initiator == Initiator::CpuProxy || p.fallback == Fallback::CpuProxy;
    let produce = p.kind == ProgramKind::Produce;
    let asked =
        [("proxy_work", p.proxy_work.is_some()), ("poll_interval", p.poll_interval.is_some())];
    match asked.into_iter().find(|(_, asked)| *asked && produce && !may) {
        Some((key, _)) => {
            let text = format!("`{key}` is of a proxy's core, and there is none");
            refuse(given.path(key), text, "write `initiator = \"cpu-proxy\"`, or leave it out")
        }
        None => Ok(()),
    }
}
