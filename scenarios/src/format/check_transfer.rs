//! Contradictions of `kind = "transfer"`.

use doorbell_core::units::Bytes;

use super::check::{Checked, check_reliable, refuse};
use super::{Memory, PeerPoll, Poll, Program, Scenario, Transfer, TransferPath};
use crate::quantity::Unit;

/// Largest message: half of what the verbs allow, as of flows.
const MAX_SIZE: Bytes = Bytes(1 << 30);

/// Refuses transfers that cannot be.
pub(super) fn check_transfer(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    let Some(x) = &p.transfer else {
        let help = "write for example transfer = { path = \"registered\" }";
        return refuse(path("kind"), "a transfer without a table `transfer`".to_owned(), help);
    };
    check_reliable(s, "a transfer is")?;
    if p.size.0 == Bytes(0) || p.size.0 > MAX_SIZE {
        let text = format!("a transfer of {}", p.size.0.print());
        return refuse(path("size"), text, "from 1B to 1GiB");
    }
    check_memory(p, x, &path)?;
    check_sleep(p, x, &path)?;
    check_room(s, p, x, &path)
}

fn check_memory(p: &Program, x: &Transfer, path: &impl Fn(&str) -> String) -> Checked {
    for (key, memory) in [("memory", p.memory), ("peer_memory", p.peer_memory)] {
        let gpu = memory == Memory::Gpu;
        if x.path == TransferPath::Staged && !gpu {
            let text = format!("`staged`, and `{key}` is not a GPU's");
            return refuse(path(key), text, "write \"gpu\", or another `transfer.path`");
        }
        if matches!(x.path, TransferPath::Copy | TransferPath::Tcp) && gpu {
            let text = format!("a core copies for `{}`, and `{key}` is a GPU's", x.path.word());
            return refuse(path(key), text, "write `transfer.path = \"staged\"`, or host memory");
        }
    }
    if x.path == TransferPath::PerMessage && p.warmup.value() == 0 {
        let text = "the first registration is set-up and costs nothing".to_owned();
        return refuse(path("warmup"), text, "at least 1 with `per-message`");
    }
    Ok(())
}

/// A program over the kernel's TCP sleeps in its calls, whatever it would do with verbs.
fn check_sleep(p: &Program, x: &Transfer, path: &impl Fn(&str) -> String) -> Checked {
    let given = [("poll", p.poll != Poll::Busy), ("peer_poll", p.peer_poll != PeerPoll::Busy)];
    match given.iter().find(|(_, given)| *given && x.path == TransferPath::Tcp) {
        None => Ok(()),
        Some((key, _)) => {
            let text = format!("`{key}` has no use by `tcp`: the kernel wakes who waits in a call");
            refuse(path(key), text, "leave it out")
        }
    }
}

/// Each segment of a window takes a place in both queues.
fn check_room(s: &Scenario, p: &Program, x: &Transfer, path: &impl Fn(&str) -> String) -> Checked {
    let segments = p.size.0.0.div_ceil(x.segment_of(p.size.0));
    let needed = segments * p.window.map_or(1, |w| w.value());
    let queues = [("qp.sq_depth", s.qp.sq_depth.value()), ("qp.rq_depth", s.qp.rq_depth.value())];
    match queues.iter().find(|(_, depth)| needed > *depth) {
        None => Ok(()),
        Some((key, depth)) => {
            let text = format!(
                "{segments} segments of each message under way are {needed} work requests, and \
                 `{key}` is {depth}"
            );
            let help = format!("raise `{key}` or `transfer.segment`, or lower `window`");
            refuse(path("transfer"), text, help)
        }
    }
}
