//! Checks 1 and 2 of `protocol.md` §2.3 at a port: which QP a packet is for, and the order in which
//! a packet fails when several fields are wrong.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;
use doorbell_sim::nic::{NicStats, Refused, Sender};
use doorbell_sim::wire::{HostId, PortId};

use crate::on_sim::conformance::pair::{Side, Spec, attributes, send};
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

/// What the peer is made of, and what the sender believes of it.
#[derive(Copy, Clone, Debug)]
struct Case {
    /// Service of the peer's QP.
    ty: QpType,
    /// Transitions of the peer: 0 is RESET, 1 INIT, 2 RTR.
    steps: usize,
    /// Index into the P_Key table, of the sender and of the peer.
    pkeys: [u16; 2],
    /// Host that the peer takes for its peer.
    back: usize,
    /// Added to the peer's QPN.
    qpn: u32,
}

const GOOD: Case = Case { ty: QpType::Rc, steps: 2, pkeys: [0, 0], back: 0, qpn: 0 };

/// Counters of the peer's port, and why it dropped what the sender sent.
fn arrive(case: Case) -> (NicStats, Vec<Refused>) {
    let mut host = machine::quiet_host();
    host.nic.pkeys = vec![PKey::DEFAULT, PKey(0x8001), PKey(0x7FFF), PKey(0x0001)];
    let mut lab = Lab::on(machine::world_of(host, 3, 1), &[0, 1, 2]);
    let spec = Spec::default();
    let theirs = Spec { ty: case.ty, ..spec };
    let me = lab.call(0, move |t| Side::open(t, &spec));
    let peer = lab.call(1, move |t| Side::open(t, &theirs));
    let third = lab.call(2, move |t| Side::open(t, &spec));
    let back = if case.back == 0 { me.endpoint } else { third.endpoint };
    let back = Endpoint { qpn: me.endpoint.qpn, ..back };
    let there = peer.endpoint;
    let there = Endpoint { qpn: Qpn::new(there.qpn.value() + case.qpn), ..there };
    let [own, other] = case.pkeys;
    connect(&mut lab, 1, (peer, theirs), (other, back), case.steps);
    connect(&mut lab, 0, (me, spec), (own, there), 3);
    lab.call(0, move |t| {
        let wr = send(SendOp::Write(peer.remote(0)), 1, Data::Inline(&[7; 8]));
        t.stage(me.qp, &wr).unwrap();
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    lab.settle();
    let nic = lab.world().hosts()[1].nic(0);
    let from = Sender { host: HostId(0), port: PortId(0), qp: 0 };
    (nic.stats, nic.dropped_of(from).map(|d| d.why).collect())
}

fn connect(
    lab: &mut Lab,
    rank: usize,
    (side, spec): (Side, Spec),
    (pkey_index, to): (u16, Endpoint),
    steps: usize,
) {
    lab.call(rank, move |t| {
        for (attr, mask) in &attributes(&spec, &side.endpoint, &to)[..steps] {
            let attr = QpAttr { pkey_index, ..*attr };
            t.modify_qp(side.qp, &attr, *mask).unwrap();
        }
    });
    lab.settle();
}

#[track_caller]
fn dropped(case: Case, why: Refused, counter: fn(&NicStats) -> u64) {
    let (stats, all) = arrive(case);
    assert_eq!(all, [why]);
    assert_eq!((counter(&stats), stats.rx_dropped), (1, 1));
}

#[test]
fn a_packet_with_nothing_wrong_is_taken() {
    for pkeys in [[0, 0], [1, 1], [0, 2], [2, 0], [1, 3]] {
        let (stats, why) = arrive(Case { pkeys, ..GOOD });
        assert_eq!((stats.rx_dropped, &*why), (0, &[][..]), "{pkeys:?}");
    }
}

#[test]
fn each_field_has_its_counter() {
    dropped(Case { qpn: 1, ..GOOD }, Refused::UnknownQp(Qpn::new(17)), |s| s.rx_unknown_qp);
    let service = Refused::Service { packet: Service::Rc, qp: QpType::Ud };
    dropped(Case { ty: QpType::Ud, ..GOOD }, service, |s| s.rx_wrong_service);
    let pkey = Refused::PKey { sent: PKey::DEFAULT, expected: PKey(0x8001) };
    dropped(Case { pkeys: [0, 1], ..GOOD }, pkey, |s| s.bad_pkey_cntr);
    let limited = Refused::PKey { sent: PKey(0x7FFF), expected: PKey(0x7FFF) };
    dropped(Case { pkeys: [2, 2], ..GOOD }, limited, |s| s.bad_pkey_cntr);
    let address =
        Refused::Address { from: (HostId(0), PortId(0)), expected: (HostId(2), PortId(0)) };
    dropped(Case { back: 2, ..GOOD }, address, |s| s.rx_wrong_address);
    for (steps, state) in [(0, QpState::Reset), (1, QpState::Init)] {
        dropped(Case { steps, ..GOOD }, Refused::State(state), |s| s.rx_wrong_state);
    }
}

/// The first check that fails decides: destination, service, P_Key, address, state.
#[test]
fn the_first_check_that_fails_decides() {
    let all = Case { ty: QpType::Ud, steps: 1, pkeys: [0, 1], back: 2, qpn: 1 };
    dropped(all, Refused::UnknownQp(Qpn::new(17)), |s| s.rx_unknown_qp);
    let service = Refused::Service { packet: Service::Rc, qp: QpType::Ud };
    dropped(Case { qpn: 0, ..all }, service, |s| s.rx_wrong_service);
    let pkey = Refused::PKey { sent: PKey::DEFAULT, expected: PKey(0x8001) };
    dropped(Case { qpn: 0, ty: QpType::Rc, ..all }, pkey, |s| s.bad_pkey_cntr);
    let connected = Case { pkeys: [0, 1], back: 2, ..GOOD };
    dropped(connected, pkey, |s| s.bad_pkey_cntr);
    // A QP in RESET has no P_Key yet, and one in INIT no address.
    dropped(Case { steps: 0, ..connected }, Refused::State(QpState::Reset), |s| s.rx_wrong_state);
    let early = Case { steps: 1, back: 2, ..GOOD };
    dropped(early, Refused::State(QpState::Init), |s| s.rx_wrong_state);
}

#[test]
fn the_last_entry_of_the_p_key_table_exists_and_the_next_one_does_not() {
    let mut host = machine::quiet_host();
    host.nic.pkeys = vec![PKey::DEFAULT, PKey(0x8001)];
    let mut lab = Lab::on(machine::world_of(host, 2, 1), &[0, 1]);
    let spec = Spec::default();
    let me = lab.call(0, move |t| Side::open(t, &spec));
    let (attr, mask) = attributes(&spec, &me.endpoint, &me.endpoint)[0];
    let init = move |pkey_index| QpAttr { pkey_index, ..attr };
    let refused = lab.call(0, move |t| t.modify_qp(me.qp, &init(2), mask));
    assert_eq!(refused, Err(ModifyError::Value { field: "pkey_index", got: 2, max: 1 }));
    assert_eq!(lab.call(0, move |t| t.modify_qp(me.qp, &init(1), mask)), Ok(0));
}
