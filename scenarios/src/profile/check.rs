//! Conditions on parameters.

use std::cell::LazyCell;
use std::fmt::Display;

use doorbell_core::units::{Bytes, Span};

use super::{Confidence, Param, Profile, RecoveryKind, TimeoutKind};
use crate::quantity::Unit;

/// At least `min`.
pub(crate) fn at_least(min: u64) -> impl Fn(&u64) -> Result<(), String> {
    move |n| wanted(*n >= min, || format!("at least {min}"))
}

/// From `min` to `max`.
pub(crate) fn within(min: u64, max: u64) -> impl Fn(&u64) -> Result<(), String> {
    move |n| wanted((min..=max).contains(n), || format!("from {min} to {max}"))
}

/// One of `allowed`.
pub(crate) fn one_of(allowed: &'static [u64]) -> impl Fn(&u64) -> Result<(), String> {
    move |n| wanted(allowed.contains(n), || format!("one of {}", list(allowed)))
}

/// A size that is one of `allowed`.
pub(crate) fn size_of(allowed: &'static [u64]) -> impl Fn(&Bytes) -> Result<(), String> {
    move |b| wanted(allowed.contains(&b.0), || format!("one of {} bytes", list(allowed)))
}

/// A size from `min` to `max` bytes.
pub(crate) fn size_within(min: u64, max: u64) -> impl Fn(&Bytes) -> Result<(), String> {
    move |b| {
        let range = || format!("from {} to {}", Bytes(min).print(), Bytes(max).print());
        wanted((min..=max).contains(&b.0), range)
    }
}

/// More than nothing.
pub(crate) fn positive<T: Unit>(value: &T) -> Result<(), String> {
    wanted(!value.is_zero(), || "more than zero".to_owned())
}

/// At most one millisecond: a longer latency of a host component is a slip of the unit.
pub(crate) fn short(span: &Span) -> Result<(), String> {
    up_to(Span::from_ms(1))(span)
}

/// At most so long.
pub(crate) fn up_to(most: Span) -> impl Fn(&Span) -> Result<(), String> {
    move |span| wanted(*span <= most, || format!("at most {most}"))
}

fn wanted(holds: bool, what: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A contradiction between parameters: the one to point at, and what is wrong.
pub(crate) struct Contradiction {
    pub(crate) path: &'static str,
    pub(crate) message: String,
}

/// A parameter of the ack timer that a scenario sets and that the mode of the timer does not use:
/// it would change nothing, and look as if it did.
/// `base`: the profile without the scenario's settings. What is set to the value that it has is no
/// request.
pub(crate) fn unused_timer(
    p: &Profile,
    base: impl FnOnce() -> Option<Profile>,
) -> Option<Contradiction> {
    use TimeoutKind::{Adaptive, Fixed, Floor, Ticks};
    let users: [(&'static str, &[TimeoutKind], &str); 4] = [
        ("rc.timeout_most", &[Fixed], "\"fixed\""),
        ("rc.timeout_least", &[Floor, Adaptive], "\"floor\" or \"adaptive\""),
        ("rc.timeout_ceiling", &[Adaptive], "\"adaptive\""),
        ("rc.timer_tick", &[Ticks], "\"ticks\""),
    ];
    let set = |path: &str| p.provenance.get(path).is_some_and(|f| f.confidence == Confidence::Set);
    let base = LazyCell::new(base);
    let value = |p: &Profile, path: &str| p.values().into_iter().find(|(at, _)| *at == path);
    let unused = |(path, modes, _): &&(&str, &[TimeoutKind], &str)| {
        let without = !modes.contains(&p.rc.timeout_mode);
        set(path) && without && base.as_ref().is_none_or(|b| value(b, path) != value(p, path))
    };
    let (path, _, modes) = users.iter().find(unused)?;
    let message = format!(
        "`{path}` has no effect with `rc.timeout_mode` \"{}\": leave it out, or set the mode to \
         {modes}",
        p.rc.timeout_mode.show()
    );
    Some(Contradiction { path, message })
}

/// Checks that need more than one parameter.
pub(crate) fn contradictions(p: &Profile) -> Option<Contradiction> {
    let at_most = |path, value: u64, limit_path: &str, limit: u64| {
        (value > limit).then(|| Contradiction {
            path,
            message: format!("`{path}` is {value}, more than `{limit_path}` with {limit}"),
        })
    };
    let pcie = &p.pcie;
    if p.rc.place_on_arrival && p.rc.recovery == RecoveryKind::GoBackN {
        let message = "`rc.place_on_arrival` is true, and `rc.recovery` \"go-back-n\" keeps no \
                       packet beyond a gap: take \"selective-repeat\"";
        return Some(Contradiction { path: "rc.place_on_arrival", message: message.into() });
    }
    let (first, most) = (p.rc.timeout_least, p.rc.timeout_ceiling);
    if p.rc.timeout_mode == TimeoutKind::Adaptive && most < first {
        let message = format!(
            "the adaptive timer begins with `rc.timeout_least`, {}, and `rc.timeout_ceiling` is \
             {}: raise the ceiling or lower the first timer",
            first.print(),
            most.print()
        );
        return Some(Contradiction { path: "rc.timeout_ceiling", message });
    }
    at_most("pcie.rcb", pcie.rcb.0, "pcie.c_rc", pcie.c_rc.0)
        .or_else(|| at_most("pcie.mrrs", pcie.mrrs.0, "pcie.read_buffer", pcie.read_buffer.0))
        .or_else(|| {
            let credit = pcie.posted_data_credits.saturating_mul(16);
            at_most("pcie.mps", pcie.mps.0, "16 · pcie.posted_data_credits", credit)
        })
        .or_else(|| at_most("gpu.socket", p.gpu.socket, "memory.sockets - 1", p.memory.sockets - 1))
}
