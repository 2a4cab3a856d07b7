//! From the steps of a scenario file to the lines of a script.

use doorbell_core::transport::FenceScope;
use doorbell_core::verbs::{
    AckTimeout, Mtu, Psn, QKey, QpState, Qpn, RetryCnt, RnrRetry, SendFlags,
};
use doorbell_sim::host::address_of;
use doorbell_sim::wire::HostId;

use super::config::{op, ring};
use crate::format::{StateStep, Step, StepPsn, StepState};
use crate::workloads::overrides::{Overrides, PsnChoice};
use crate::workloads::{Place, ScriptStep, Shape};

/// What a step of the file asks of the program. `inline`: payloads up to this size go inline.
pub(super) fn script_step(s: &Step, inline: Option<u64>) -> ScriptStep {
    match s {
        Step::Post(post) => {
            let op = op(post.op);
            let fits = inline.is_some_and(|limit| post.size.0 <= limit);
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, post.signaled);
            flags.set(SendFlags::FENCE, post.fence);
            let inline = post.inline || fits && post.op.takes_inline();
            ScriptStep::Post {
                qp: post.qp,
                count: post.count,
                shape: Shape { op, size: post.size.0 as u32, inline },
                flags,
                pd: post.pd,
                local: post.local.0,
                place: Place { remote: post.remote.0, sges: post.sge },
            }
        }
        Step::Recv { size, count, qp } => {
            ScriptStep::PeerRecv { qp: *qp, count: *count, bytes: size.0 as u32 }
        }
        Step::Ring { mode, qp } => ScriptStep::Ring { qp: *qp, how: ring(*mode) },
        Step::Poll { max } => ScriptStep::Poll { max: *max },
        Step::Wait { count: Some(count) } => ScriptStep::Await { count: *count, deadline: None },
        Step::Wait { count: None } => ScriptStep::AwaitAll { deadline: None },
        Step::State(state) => state_step(state),
        Step::Compute { time } => ScriptStep::Compute { time: *time },
        Step::Fence => ScriptStep::Fence { scope: FenceScope::System },
        Step::Load { at } => ScriptStep::Load { at: at.0 },
        Step::Store { value, at } => ScriptStep::Store { at: at.0, value: u64::from(*value) },
    }
}

/// A transition, of the own queue pair or of the peer's.
fn state_step(s: &StateStep) -> ScriptStep {
    let to = match s.state {
        StepState::Reset => QpState::Reset,
        StepState::Init => QpState::Init,
        StepState::Rtr => QpState::Rtr,
        StepState::Rts => QpState::Rts,
        StepState::Sqd => QpState::Sqd,
        StepState::Err => QpState::Err,
    };
    let (qp, a) = (s.qp, &s.set);
    // Ranges were checked when the step was read.
    let set = Overrides {
        pkey_index: a.pkey.map(|n| n as u16),
        qkey: a.qkey.map(QKey),
        dest_qpn: a.dest_qp.map(Qpn::new),
        path_mtu: a.mtu.and_then(|mtu| Mtu::from_bytes(mtu.0 as u32)),
        path: a.gid.map(|host| address_of(HostId(host))),
        psn: a.psn.map(|psn| match psn {
            StepPsn::Is(n) => PsnChoice::Is(Psn::new(n)),
            StepPsn::Off(by) => PsnChoice::Off(by),
        }),
        timeout: a.timeout.and_then(|n| AckTimeout::new(n as u8)),
        retry_cnt: a.retry_cnt.and_then(|n| RetryCnt::new(n as u8)),
        rnr_retry: a.rnr_retry.and_then(|n| RnrRetry::new(n as u8)),
    };
    match s.peer {
        true => ScriptStep::PeerModify { qp, to, set },
        false => ScriptStep::Modify { qp, to, set },
    }
}
