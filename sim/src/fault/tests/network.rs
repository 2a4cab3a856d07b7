//! Plans against networks: names, contradictions, and which directions are watched.

use doorbell_core::units::{Ratio, Span};

use super::*;
use crate::fault::{Chance, Hold, HostAction, LinkEnd, LinkName, PacketFault, What, Window};

fn at_link(name: &str) -> Matcher {
    Matcher { link: Some(name.parse().unwrap()), ..Matcher::default() }
}

fn from(end: &str) -> Matcher {
    Matcher { from: Some(end.parse::<LinkEnd>().unwrap()), ..Matcher::default() }
}

/// The inputs of a star of three hosts at which the fault hits.
fn inputs(m: Matcher) -> Vec<(u32, u16)> {
    let mut s = on(&star(3), &[drop(m)]);
    let ends = (0..3).map(|h| (h, 0)).chain((0..3).map(|p| (3, p)));
    ends.filter(|&(n, p)| s.judge(us(1), (NodeId(n), PortId(p)), &write(1)).is_some()).collect()
}

#[test]
fn a_link_has_two_directions() {
    assert_eq!(inputs(at_link("host1-switch0")), [(1, 0), (3, 1)]);
    assert_eq!(inputs(at_link("switch0-host1")), [(1, 0), (3, 1)], "in either order");
    assert_eq!(inputs(at_link("switch0.port1-host1")), [(1, 0), (3, 1)]);
    assert_eq!(inputs(from("switch0")), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(inputs(from("switch0.port2")), [(2, 0)]);
    let m = Matcher { from: from("host1").from, ..at_link("host1-switch0") };
    assert_eq!(inputs(m), [(3, 1)]);
    assert_eq!(inputs(Matcher::default()).len(), 6);
}

#[test]
fn what_the_network_has_not() {
    let id = || "f".to_owned();
    for name in ["host0-host1", "host3-switch0", "host0-switch1", "host1-switch0.port0"] {
        let link: LinkName = name.parse().unwrap();
        let error = refused(&star(3), &[drop(at_link(name))]);
        assert_eq!(error, PlanError::UnknownLink { id: id(), link }, "{name}");
    }
    for end in ["host3", "switch1", "switch0.port3"] {
        let from_ = end.parse().unwrap();
        let error = refused(&star(3), &[drop(from(end))]);
        assert_eq!(error, PlanError::UnknownEnd { id: id(), from: from_ }, "{end}");
    }
    let other = Matcher { from: from("host2").from, ..at_link("host1-switch0") };
    assert!(matches!(refused(&star(3), &[drop(other)]), PlanError::UnknownEnd { .. }));
    for m in [
        Matcher { source: Some(HostId(3)), ..Matcher::default() },
        Matcher { dest: Some(HostId(3)), ..Matcher::default() },
    ] {
        let error = refused(&star(3), &[drop(m)]);
        assert_eq!(error, PlanError::UnknownHost { id: id(), host: HostId(3), hosts: 3 });
    }
    let dead = Fault::host("f", HostId(2), Window::ALWAYS, HostAction::PeerDead);
    assert!(FaultState::new(&plan(std::slice::from_ref(&dead)), &star(3), 1).is_ok());
    assert!(matches!(refused(&cable(), &[dead]), PlanError::UnknownHost { hosts: 2, .. }));
}

#[test]
fn contradictions() {
    let all = Matcher::default;
    let window = |after, before| Window { after: us(after), before: us(before) };
    let id = || "f".to_owned();
    let zero = |field| PlanError::Zero { id: id(), field };
    let verdict = |v| Fault::packets("f", all(), v);
    let within = Span::from_us(1);
    let half = Chance::Ratio(Ratio::new(1, 2).unwrap());
    let chance = |chance, matcher| Fault {
        what: What::Packets(PacketFault { matcher, chance, verdict: PacketVerdict::Drop }),
        ..drop(all())
    };
    let nth = Matcher { nth: Some(1), ..all() };
    let above = Ratio::new(3, 2).unwrap();
    let held_by = |s: &str| verdict(PacketVerdict::Hold(Hold::ReleasedBy(s.to_owned())));
    let unknown = |s: &str| PlanError::UnknownRelease { id: id(), released_by: s.to_owned() };
    let stall = |w| Fault::host("f", HostId(0), w, HostAction::NicStall);
    for (fault, error) in [
        (Fault { id: String::new(), ..drop(all()) }, PlanError::NoId { index: 0 }),
        (drop(all()).at_most(0), zero("budget")),
        (drop(Matcher { nth: Some(0), ..all() }), zero("nth")),
        (drop(Matcher { round: Some(0), ..all() }), zero("round")),
        (verdict(PacketVerdict::Delay(Span::ZERO)), zero("delay")),
        (verdict(PacketVerdict::Duplicate(0)), zero("copies")),
        (verdict(PacketVerdict::Reorder { behind: 0, within }), zero("behind")),
        (verdict(PacketVerdict::Reorder { behind: 1, within: Span::ZERO }), zero("within")),
        (
            drop(Matcher { window: window(2, 2), ..all() }),
            PlanError::EmptyWindow { id: id(), window: window(2, 2) },
        ),
        (chance(half, nth), PlanError::NthAndChance { id: id() }),
        (chance(Chance::Ratio(above), all()), PlanError::Probability { id: id(), ratio: above }),
        (held_by("f"), unknown("f")),
        (held_by("g"), unknown("g")),
        (stall(Window { after: us(1), before: Time::MAX }), PlanError::NoEnd { id: id() }),
    ] {
        assert_eq!(refused(&cable(), std::slice::from_ref(&fault)), error, "{fault:?}");
        assert!(!error.to_string().is_empty());
    }
    let double = refused(&cable(), &[drop(all()), drop(all())]);
    assert_eq!(double, PlanError::DoubleId { id: id() });
    assert!(plan(&[stall(window(1, 2))]).check().is_ok());
}

#[test]
fn a_release_finds_its_holds() {
    let hold = |id: &str, by: &str| {
        let v = PacketVerdict::Hold(Hold::ReleasedBy(by.to_owned()));
        Fault::packets(id, Matcher::default(), v)
    };
    let mut s = on(&cable(), &[drop(Matcher::default()), hold("a", "f"), hold("b", "a")]);
    assert_eq!(s.released_by(0), [1]);
    assert_eq!(s.released_by(1), [2]);
    assert_eq!(s.release(1), [] as [u32; 0]);
    assert_eq!(s.released_by(0), [] as [u32; 0], "once");
}
