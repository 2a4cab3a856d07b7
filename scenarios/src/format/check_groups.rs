//! What all members of groups have in common: they size their own queues, and what they send has to
//! find room.

use doorbell_core::units::Bytes;

use super::check::{Checked, refuse};
use super::{Program, Qp, Scenario};
use crate::quantity::Unit;

/// Most bytes that all members of a group may have together, which a simulation really keeps.
/// Higher: larger vectors, and a machine that has less memory ends the command.
const MAX_DATA: Bytes = Bytes(8 << 30);

/// Most bytes of one member, data or not: half of what its host has addresses for.
const MAX_MEMBER: Bytes = Bytes(1 << 46);

/// Keys of the queue pairs that have no use where every program is a group.
pub(super) fn check_queue_keys(s: &Scenario) -> Checked {
    if !s.program.iter().all(|p| p.kind.is_group()) {
        return Ok(());
    }
    let (qp, usual) = (&s.qp, Qp::default());
    let given = [
        ("qp.sq_depth", qp.sq_depth != usual.sq_depth),
        ("qp.rq_depth", qp.rq_depth != usual.rq_depth),
        ("qp.cq_depth", qp.cq_depth.is_some()),
        ("qp.max_send_sge", qp.max_send_sge != usual.max_send_sge),
        ("qp.max_inline", qp.max_inline != usual.max_inline),
        ("qp.sig_all", qp.sig_all != usual.sig_all),
    ];
    let Some((key, _)) = given.iter().find(|(_, given)| *given) else { return Ok(()) };
    let text = format!("`{key}` has no use: aggregations and exchanges size their own queues");
    refuse(*key, text, "leave it out; `window` and `chunk` of their tables say how much")
}

/// Refuses more bytes than can be kept: `each` of the largest member, and `all` together where
/// they have contents. Both may be lower bounds.
pub(super) fn check_room(
    p: &Program,
    (each, all): (u128, u128),
    path: &impl Fn(&str) -> String,
) -> Checked {
    let limits = [
        (each, MAX_MEMBER, "one host has", "a smaller `size` or fewer `hosts`"),
        (all, MAX_DATA, "the hosts have together", "a smaller `size` or fewer `hosts`"),
    ];
    let Some((bytes, limit, who, help)) =
        limits.into_iter().find(|(bytes, limit, ..)| *bytes > u128::from(limit.0))
    else {
        return Ok(());
    };
    let (size, limit) = (p.size.0.print(), limit.print());
    let text = format!("with a `size` of {size} {who} {bytes} B, and at most {limit} are kept");
    refuse(path("size"), text, help)
}
