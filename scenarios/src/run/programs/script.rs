//! From the steps of a scenario file to the lines of a script.

use doorbell_core::transport::FenceScope;
use doorbell_core::verbs::{QpState, SendFlags};

use super::config::{op, ring};
use crate::format::{Step, StepState};
use crate::workloads::script::EndStep;
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
        Step::Recv { size, count, own, qp } => {
            let (qp, count, bytes) = (*qp, *count, size.0 as u32);
            match own {
                true => ScriptStep::PostRecv { qp, count, bytes },
                false => ScriptStep::PeerRecv { qp, count, bytes },
            }
        }
        Step::Drain { limit, qp } => ScriptStep::End(EndStep::Drain { qp: *qp, deadline: *limit }),
        Step::AwaitEvent { event, limit, qp } => {
            let (qp, kind, deadline) = (*qp, event.kind(), *limit);
            ScriptStep::End(EndStep::AwaitEvent { qp, kind, deadline })
        }
        Step::Destroy { qp } => ScriptStep::End(EndStep::Destroy { qp: *qp }),
        Step::Ring { mode, qp } => ScriptStep::Ring { qp: *qp, how: ring(*mode) },
        Step::Poll { max } => ScriptStep::Poll { max: *max },
        Step::Wait { count: Some(count) } => ScriptStep::Await { count: *count, deadline: None },
        Step::Wait { count: None } => ScriptStep::AwaitAll { deadline: None },
        Step::State { state, qp } => ScriptStep::Modify {
            qp: *qp,
            to: match state {
                StepState::Reset => QpState::Reset,
                StepState::Init => QpState::Init,
                StepState::Rtr => QpState::Rtr,
                StepState::Rts => QpState::Rts,
                StepState::Sqd => QpState::Sqd,
                StepState::Err => QpState::Err,
            },
        },
        Step::Compute { time } => ScriptStep::Compute { time: *time },
        Step::Fence => ScriptStep::Fence { scope: FenceScope::System },
        Step::Load { at } => ScriptStep::Load { at: at.0 },
        Step::Store { value, at } => ScriptStep::Store { at: at.0, value: u64::from(*value) },
    }
}
