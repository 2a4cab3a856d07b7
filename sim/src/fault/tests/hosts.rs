//! Faults of hosts, without hosts.

use super::*;
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
    assert_eq!(s.nic_put_off(us(15), HostId(1)), None, "not the NIC's");
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
    assert_eq!(s.nic_put_off(us(15), HostId(1)), Some((0, us(20))));
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
        on(&cable(), &[f]).doorbell(us(15), HostId(1), qp, bf).is_some()
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
        (0..3).map(|_| s.doorbell(us(15), HostId(1), first, false).is_some()).collect();
    assert_eq!(found, [false, true, false]);
    assert_eq!(s.doorbell(us(20), HostId(1), first, false), None, "too late");
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
