//! From the steps of a scenario file to the lines of a script.

use doorbell_core::transport::FenceScope;
use doorbell_core::verbs::{
    AccessFlags, AckTimeout, Mtu, Psn, QKey, QpState, Qpn, RetryCnt, RnrRetry, SendFlags,
};
use doorbell_sim::host::address_of;
use doorbell_sim::wire::{HostId, PortId};

use super::config::{op, ring};
use crate::format::{
    KeyWord, PostStep, RecvBuffer, Right, Spot, StateStep, Step, StepPsn, StepState,
};
use crate::workloads::connect::ALL_RIGHTS;
use crate::workloads::overrides::{Overrides, PsnChoice};
use crate::workloads::script::EndStep;
use crate::workloads::{Aim, Buffer, Origin, PeerKey, Place, ScriptStep, Shape};

/// What a step of the file asks of the program. `inline`: payloads up to this size go inline.
/// `nic`: that of the peer, and of every host that a step names.
pub(super) fn script_step(s: &Step, inline: Option<u64>, nic: u8) -> ScriptStep {
    match s {
        Step::Post(post) => {
            let op = op(post.op);
            let fits = inline.is_some_and(|limit| post.size.0 <= limit);
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, post.signaled);
            flags.set(SendFlags::FENCE, post.fence);
            flags.set(SendFlags::SOLICITED, post.solicited);
            let inline = post.inline || fits && post.op.takes_inline();
            ScriptStep::Post {
                qp: post.qp,
                count: post.count,
                shape: Shape { op, size: post.size.0 as u32, inline },
                flags,
                pd: post.pd,
                local: post.local.at.0,
                place: Place { remote: post.remote.at.0, sges: post.sge },
                aim: aim(post),
            }
        }
        Step::Recv { size, count, own: true, qp, .. } => {
            ScriptStep::PostRecv { qp: *qp, count: *count, bytes: size.0 as u32 }
        }
        Step::Recv { size, count, own: false, qp, buffer, .. } => ScriptStep::PeerRecv {
            qp: *qp,
            count: *count,
            bytes: size.0 as u32,
            buffer: match buffer {
                RecvBuffer::Offered => Buffer::Offered,
                RecvBuffer::ReadOnly => Buffer::ReadOnly,
                RecvBuffer::Foreign => Buffer::Foreign,
            },
        },
        Step::Dereg { own: true, .. } => ScriptStep::Dereg,
        Step::Dereg { own: false, after } => ScriptStep::PeerDereg { after: *after },
        Step::AwaitSlots { count, qp } => ScriptStep::AwaitSlots { qp: *qp, count: *count },
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
        Step::State(state) => state_step(state, nic),
        Step::Compute { time } => ScriptStep::Compute { time: *time },
        Step::Fence => ScriptStep::Fence { scope: FenceScope::System },
        Step::Load { at } => ScriptStep::Load { at: at.0 },
        Step::Store { value, at } => ScriptStep::Store { at: at.0, value: u64::from(*value) },
    }
}

/// A transition, of the own queue pair or of the peer's.
fn state_step(s: &StateStep, nic: u8) -> ScriptStep {
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
        path: a.gid.map(|host| address_of(HostId(host), PortId(nic.into()))),
        psn: a.psn.map(|psn| match psn {
            StepPsn::Is(n) => PsnChoice::Is(Psn::new(n)),
            StepPsn::Off(by) => PsnChoice::Off(by),
        }),
        timeout: a.timeout.and_then(|n| AckTimeout::new(n as u8)),
        retry_cnt: a.retry_cnt.and_then(|n| RetryCnt::new(n as u8)),
        rnr_retry: a.rnr_retry.and_then(|n| RnrRetry::new(n as u8)),
        with: a.with,
        without: a.without,
    };
    match s.peer {
        true => ScriptStep::PeerModify { qp, to, set },
        false => ScriptStep::Modify { qp, to, set },
    }
}
/// How a post names its memory.
fn aim(post: &PostStep) -> Aim {
    let origin = |spot: &Spot| if spot.from_end { Origin::End } else { Origin::Start };
    Aim {
        rkey: match post.rkey {
            KeyWord::Offered => PeerKey::Offered,
            KeyWord::Wrong => PeerKey::Wrong,
            KeyWord::Stale => PeerKey::Stale,
            KeyWord::Foreign => PeerKey::Foreign,
            KeyWord::Number(n) => PeerKey::Number(n),
        },
        lkey_wrong: post.lkey_wrong,
        local: origin(&post.local),
        remote: origin(&post.remote),
    }
}

/// The flags of a list of rights; without a list, all.
pub(super) fn access(rights: Option<&Vec<Right>>) -> AccessFlags {
    rights.map_or(ALL_RIGHTS, |rights| {
        rights.iter().fold(AccessFlags::empty(), |all, right| {
            all | match right {
                Right::LocalWrite => AccessFlags::LOCAL_WRITE,
                Right::RemoteWrite => AccessFlags::REMOTE_WRITE,
                Right::RemoteRead => AccessFlags::REMOTE_READ,
                Right::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
                Right::OnDemand => AccessFlags::ON_DEMAND,
            }
        })
    })
}
