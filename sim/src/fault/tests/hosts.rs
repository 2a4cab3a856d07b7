//! Faults of hosts, without hosts.

use doorbell_core::units::Span;

use super::*;
use crate::fabric::{Buffering, ClassConfig, Classes, SharedConfig};
use crate::fault::{DoorbellPart, HostAction, Window};
use crate::nic::Nic;

const WINDOW: Window = Window { after: us(10), before: us(20) };

fn host(action: HostAction) -> Fault {
    Fault::host("f", HostId(1), WINDOW, action)
}

#[test]
fn steps_are_put_off_to_the_end_of_the_window() {
    let mut s = on(&cable(), &[host(HostAction::ProgramStall { rank: None })]);
    for (now, put_off) in [(9, None), (10, Some((0, us(20)))), (19, Some((0, us(20)))), (20, None)]
    {
        assert_eq!(s.step_put_off(us(now), HostId(1), 3), put_off, "{now}");
    }
    assert_eq!(s.step_put_off(us(15), HostId(0), 3), None, "another host");
    assert_eq!(s.nic_put_off(us(15), (HostId(1), 0)), None, "not the NIC's");
    assert_eq!(s.uses(|_| 0)[0].fired, 2);
}

#[test]
fn only_the_program_that_is_named() {
    let mut s = on(&cable(), &[host(HostAction::ProgramStall { rank: Some(3) })]);
    assert_eq!(s.step_put_off(us(15), HostId(1), 2), None);
    assert_eq!(s.step_put_off(us(15), HostId(1), 3), Some((0, us(20))));
}

#[test]
fn a_nic_stall_is_not_one_of_programs() {
    let mut s = on(&cable(), &[host(HostAction::NicStall)]);
    assert_eq!(s.nic_put_off(us(15), (HostId(1), 0)), Some((0, us(20))));
    assert_eq!(s.step_put_off(us(15), HostId(1), 0), None);
}

fn doorbell(qp: Option<u32>, part: DoorbellPart, nth: Option<u64>) -> Fault {
    let qp = qp.map(Qpn::new);
    host(HostAction::BadDoorbell { qp, part, nth, stop_after: Some(2) })
}

#[test]
fn doorbells_match_by_qp_part_and_number() {
    let any = |f: Fault, index, bf| {
        let qp = Nic::qpn(PortId(0), index);
        on(&cable(), &[f]).doorbell(us(15), (HostId(1), 0), qp, bf).is_some()
    };
    let (record, blueflame) = (DoorbellPart::Record, DoorbellPart::Blueflame);
    assert!(any(doorbell(None, record, None), 0, false));
    assert!(any(doorbell(Some(17), record, None), 1, true));
    assert!(!any(doorbell(Some(17), record, None), 0, true), "another QP");
    assert!(any(doorbell(None, blueflame, None), 0, true));
    assert!(!any(doorbell(None, blueflame, None), 0, false), "no BlueFlame");
    let first = Nic::qpn(PortId(0), 0);
    let mut s = on(&cable(), &[doorbell(None, record, Some(2))]);
    let found: Vec<bool> =
        (0..3).map(|_| s.doorbell(us(15), (HostId(1), 0), first, false).is_some()).collect();
    assert_eq!(found, [false, true, false]);
    assert_eq!(s.doorbell(us(20), (HostId(1), 0), first, false), None, "too late");
    assert!(s.uses(|_| 0)[0].synthetic);
}

/// What is lost with a host is lost at both ends of its links.
#[test]
fn a_dead_host_is_cut_off() {
    let dead = Some((None, Decision::Lose(DropCause::PeerDead)));
    let mut s = on(&star(3), &[host(HostAction::PeerDead)]);
    let (at_1, at_2) = ((NodeId(1), PortId(0)), (NodeId(2), PortId(0)));
    let (switch_from_1, switch_from_0) = ((NodeId(3), PortId(1)), (NodeId(3), PortId(0)));
    assert_eq!(s.judge(us(1), at_1, &write(1)), None);
    s.kill(HostId(1));
    assert_eq!(s.judge(us(1), at_1, &write(1)), dead);
    assert_eq!(s.judge(us(1), switch_from_1, &write(1)), dead);
    assert_eq!(s.judge(us(1), switch_from_0, &write(1)), None);
    assert_eq!(s.judge(us(1), at_2, &write(1)), None);
}

/// What lasts is measured by a count of the host, from opening to closing.
#[test]
fn windows_are_measured() {
    let mut s = on(&cable(), &[host(HostAction::Rnr { qp: None })]);
    assert_eq!(s.changes().len(), 2);
    assert_eq!(s.uses(|_| 9)[0].fired, 0, "not open yet");
    s.open(0, us(10), 5);
    assert_eq!(s.uses(|_| 9)[0].fired, 4, "open");
    assert_eq!(s.uses(|_| 5)[0].first, None, "open, and nothing happened");
    s.close(0, 12);
    s.close(0, 99);
    let u = &s.uses(|_| 50)[0];
    assert_eq!((u.fired, u.first), (7, Some(us(10))));
}

#[test]
fn a_reboot_cuts_the_links_of_its_switch_until_the_last_is_over() {
    let fault = |id: &str| Fault::reboot(id, 0, WINDOW);
    let mut s = on(&star(3), &[fault("f"), fault("g")]);
    let inputs = [(NodeId(0), PortId(0)), (NodeId(3), PortId(2))];
    assert_eq!(s.cut(inputs[0]), None);
    s.switch_changed(0, 0, true);
    s.switch_changed(1, 0, true);
    for at in inputs {
        assert_eq!(s.cut(at), Some((Some(0), DropCause::SwitchReboot)), "{at:?}");
    }
    let ports = s.ports_changed(0, true).expect("ports of hosts go down");
    assert_eq!(ports.len(), 3);
    assert_eq!(s.ports_changed(1, true), Some(Vec::new()), "they are down already");
    s.switch_changed(0, 0, false);
    assert_eq!(s.cut(inputs[0]), Some((Some(1), DropCause::SwitchReboot)));
    s.switch_changed(1, 0, false);
    assert_eq!(s.cut(inputs[1]), None);
    // Who is dead is dead, also behind a switch that is down.
    s.switch_changed(0, 0, true);
    s.kill(HostId(1));
    assert_eq!(s.cut((NodeId(1), PortId(0))), Some((None, DropCause::PeerDead)));
}

#[test]
fn a_reboot_needs_its_switch_and_a_storm_somebody_who_heeds_it() {
    let reboot = |switch| Fault::reboot("f", switch, Window::ALWAYS);
    assert!(FaultState::new(&plan(&[reboot(0)]), &star(3), 1).is_ok());
    let unknown = PlanError::UnknownSwitch { id: "f".into(), switch: 1, switches: 1 };
    assert_eq!(refused(&star(3), &[reboot(1)]), unknown);
    assert!(unknown.to_string().contains("no switch1"), "{unknown}");
    let storm = |sl| host(HostAction::PauseStorm { sl });
    let deaf = PlanError::NoPauses { id: "f".into(), host: HostId(1) };
    assert_eq!(refused(&star(3), &[storm(None)]), deaf);
    assert!(deaf.to_string().contains("host1"), "{deaf}");
    // Level 1 is lossless, level 0 is not.
    let buffering = Buffering::Shared(SharedConfig::default());
    let switch = SwitchConfig { buffering, ..SwitchConfig::default() };
    let link = Link::new(BitRate::gbps(100), Span::from_us(1));
    let mut c = FabricConfig::single_switch(3, link, switch);
    let lossless = ClassConfig { lossless: true, ..ClassConfig::default() };
    c.classes = Classes::by_level(vec![ClassConfig::default(), lossless]);
    let fabric = Fabric::new(&c, 1).unwrap();
    for (sl, good) in [(None, true), (Some(1), true), (Some(0), false)] {
        assert_eq!(FaultState::new(&plan(&[storm(sl)]), &fabric, 1).is_ok(), good, "{sl:?}");
    }
    let endless = Window { before: Time::MAX, ..WINDOW };
    let endless = Fault::host("f", HostId(1), endless, HostAction::PauseStorm { sl: None });
    assert!(matches!(refused(&star(3), &[endless]), PlanError::NoEnd { .. }));
}

/// Two NICs at each host.
#[test]
fn a_fault_of_a_nic_leaves_the_others_alone() {
    let link = Link::new(BitRate::gbps(100), Span::from_us(1));
    let switch = SwitchConfig::default();
    let fabric = Fabric::new(&FabricConfig::single_switch(2, link, switch).with_host_links(2), 1);
    let fabric = fabric.unwrap();
    let of = |nic, action| Fault::nic("f", (HostId(1), nic), WINDOW, action);
    let state = |fault| FaultState::new(&plan(&[fault]), &fabric, 1);
    let mut s = state(of(1, HostAction::NicStall)).unwrap();
    assert_eq!(s.nic_put_off(us(15), (HostId(1), 0)), None);
    assert_eq!(s.nic_put_off(us(15), (HostId(1), 1)), Some((0, us(20))));
    let doorbell = HostAction::BadDoorbell {
        qp: None,
        part: DoorbellPart::Record,
        nth: None,
        stop_after: None,
    };
    let mut s = state(of(1, doorbell)).unwrap();
    let qpn = |port| Nic::qpn(PortId(port), 0);
    assert_eq!(s.doorbell(us(15), (HostId(1), 0), qpn(0), false), None);
    assert_eq!(s.doorbell(us(15), (HostId(1), 1), qpn(1), false), Some((0, None)));
    let Err(unknown) = state(of(2, HostAction::NicStall)) else { panic!("there are two") };
    let id = || "f".to_owned();
    assert_eq!(unknown, PlanError::UnknownNic { id: id(), host: HostId(1), nic: 2, nics: 2 });
    assert!(unknown.to_string().contains("no NIC 2 at host1"), "{unknown}");
    let dead = state(of(1, HostAction::PeerDead)).err();
    assert_eq!(dead, Some(PlanError::NotOfNic { id: id() }));
}
