//! How often each PSN was seen: the retransmission round.

use std::collections::BTreeMap;

use doorbell_core::verbs::{Psn, Qpn};

use super::matcher::source_qpn;
use crate::wire::{HostId, Packet};

/// PSNs of a flow that are remembered behind the newest. A requester has far fewer without an
/// answer (128 in the Linux driver), so what is older cannot come again, but after the wrap.
const REMEMBERED: i32 = 1 << 16;

/// Packets of one direction between two QPs: requests and responses have PSNs of their own.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    source: HostId,
    source_qp: Qpn,
    dest: HostId,
    dest_qp: Qpn,
    request: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    newest: Psn,
    times: BTreeMap<u32, u32>,
}

/// The PSNs that came by at the end of one link direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    flows: BTreeMap<Flow, Seen>,
}

impl Rounds {
    /// A packet comes by: how often its PSN was seen now, 1 at the first time.
    pub fn see(&mut self, p: &Packet) -> u32 {
        let flow = Flow {
            source: p.src,
            source_qp: source_qpn(p),
            dest: p.dst,
            dest_qp: p.desc.dest,
            request: p.desc.opcode.is_request(),
        };
        let psn = p.desc.psn;
        let new = || Seen { newest: psn, times: BTreeMap::new() };
        let seen = self.flows.entry(flow).or_insert_with(new);
        if psn.diff(seen.newest) > 0 {
            seen.newest = psn;
            // What is left of the time before the wrap is another packet.
            seen.times.remove(&psn.value());
            seen.forget();
        }
        let times = seen.times.entry(psn.value()).or_default();
        *times = times.saturating_add(1);
        *times
    }
}

impl Seen {
    fn forget(&mut self) {
        if self.times.len() as i32 >= 2 * REMEMBERED {
            let newest = self.newest;
            self.times.retain(|&psn, _| Psn::new(psn).diff(newest) > -REMEMBERED);
        }
    }
}
