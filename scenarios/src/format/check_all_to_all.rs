//! Contradictions of `kind = "all-to-all"`.

use doorbell_core::policy::aggregate::MAX_CHUNKS;
use doorbell_core::units::Bytes;

use super::check::{Checked, check_reliable, refuse};
use super::check_hosts::check_members;
use super::{AllToAll, Initiator, Memory, Program, Scenario};
use crate::profile::Profile;
use crate::quantity::Unit;

/// Refuses exchanges that cannot be.
pub(super) fn check_all_to_all(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    path: impl Fn(&str) -> String,
) -> Checked {
    let Some(a) = &p.all_to_all else {
        let help = "write for example all_to_all = { route = \"two-hop\" }";
        let text = "an exchange without a table `all_to_all`".to_owned();
        return refuse(path("kind"), text, help);
    };
    check_members(s, profile, p, "an exchange of one host", &path)?;
    check_reliable(s, "an exchange is")?;
    if s.srq.is_some() {
        let text = "an exchange has shared receive queues of its own".to_owned();
        return refuse("srq", text, "leave [srq] out");
    }
    check_memory(p, &path)?;
    let (size, chunk) = (p.size.0, a.chunk.0);
    if size == Bytes(0) {
        let text = "nothing to exchange".to_owned();
        return refuse(path("size"), text, "a size of at least 1B");
    }
    if chunk > Bytes(1 << 30) {
        let text = format!("a `chunk` of {}", chunk.print());
        return refuse(path("all_to_all.chunk"), text, "at most 1GiB");
    }
    let pieces = size.0.div_ceil(chunk.0);
    if pieces > MAX_CHUNKS {
        let text = format!("{pieces} pieces, and {MAX_CHUNKS} can be numbered");
        return refuse(path("all_to_all.chunk"), text, "larger chunks");
    }
    let max = profile.nic.max_sge;
    if a.gather.value() > max {
        let text = format!("a `gather` of {}, and the NIC takes {max}", a.gather.value());
        return refuse(path("all_to_all.gather"), text, "lower it, or raise `nic.max_sge`");
    }
    check_tokens(p, a, path)
}

/// Completions come into the memory of who polls. In front of bytes that go to another memory they
/// say nothing.
fn check_memory(p: &Program, path: &impl Fn(&str) -> String) -> Checked {
    let (by_gpu, in_gpu) = (p.initiator == Initiator::Gpu, p.memory == Memory::Gpu);
    let (text, help) = match (by_gpu, in_gpu) {
        (false, true) => (
            "a core polls, and the bytes are on another way to a GPU's memory when it is told",
            "write `initiator = \"gpu\"`, or leave `memory` out",
        ),
        (true, false) => (
            "a GPU polls, and the bytes are on another way to host memory when it is told",
            "write `memory = \"gpu\"`, or leave `initiator` out",
        ),
        _ => return Ok(()),
    };
    refuse(path("memory"), text.to_owned(), help)
}

fn check_tokens(p: &Program, a: &AllToAll, path: impl Fn(&str) -> String) -> Checked {
    let Some(t) = &a.tokens else { return Ok(()) };
    let (experts, hosts, top) = (t.experts.value(), p.hosts.value(), t.top.value());
    if !experts.is_multiple_of(hosts) {
        let text = format!("{experts} experts on {hosts} hosts");
        return refuse(path("all_to_all.tokens"), text, "a multiple of `hosts`");
    }
    if top > experts {
        let text = format!("`top` is {top}, and there are {experts} experts");
        return refuse(path("all_to_all.tokens"), text, "at most all experts");
    }
    if let Some(moved) = t.moved.filter(|m| *m > t.each) {
        let text = format!("{} tokens move of {}", moved.value(), t.each.value());
        return refuse(path("all_to_all.tokens"), text, "`moved` of at most `each`");
    }
    Ok(())
}
