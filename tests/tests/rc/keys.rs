//! Keys (5.1, check 8 of 2.3): rights and range at the first packet, validity at every packet.

use doorbell_core::transport::{Control, SendOp};
use doorbell_core::units::BitRate;
use doorbell_core::verbs::*;

use super::{Setup, burst, counted, first_qp};
use crate::on_sim::conformance::pair::{Pair, Spec, errors};

const MIB: u32 = 1 << 20;

/// A message of 1 MiB takes 840 us at 10 Gb/s; the peer's region goes after some 400.
fn half_way(op: fn(doorbell_core::transport::Remote) -> SendOp, rank: usize) -> Pair {
    let mut setup = Setup::new(Spec { region: 1 << 20, mtu: Mtu::B4096, ..Spec::default() });
    setup.rate = BitRate::gbps(10);
    let mut pair = setup.connect();
    pair.write_local(0, 0, &[7; MIB as usize]);
    pair.write_local(1, 0, &[3; MIB as usize]);
    let remote = pair.sides[1].remote(0);
    burst(&mut pair, op(remote), 1, MIB);
    (0..2).for_each(|_| pair.lab.settle());
    pair.on(rank, |t, me| t.dereg_mr(me.mr.id).unwrap());
    (0..4).for_each(|_| pair.lab.settle());
    pair
}

#[test]
fn a_region_deregistered_halfway_through_a_write() {
    let mut pair = half_way(SendOp::Write, 1);
    assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::RemAccessErr)]);
    let resp = counted(&pair, 1);
    assert_eq!((resp.resp_remote_access_errors, resp.rx_write_requests), (1, 1));
    assert_eq!(counted(&pair, 0).req_remote_access_errors, 1);
    let placed = super::nic(&pair, 1).stats.rx_payload;
    let packets = placed / 4096;
    assert!((50..200).contains(&packets), "{placed} bytes of the prefix were placed");
    assert_eq!(placed % 4096, 0);
    let (psn, first) = (first_qp(&pair, 1).responder.as_ref().unwrap().expected_psn(), packets);
    let sent = first_qp(&pair, 0).attr.sq_psn.add(first as u32);
    assert_eq!(psn, sent, "nothing after the refused packet was executed");
    assert_eq!(pair.state(0), QpState::Err);
}

#[test]
fn a_region_deregistered_halfway_through_a_read() {
    let mut pair = half_way(SendOp::Read, 1);
    assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::RemAccessErr)]);
    assert_eq!(counted(&pair, 1).resp_remote_access_errors, 1);
    let placed = super::nic(&pair, 0).stats.rx_payload;
    assert!((50 * 4096..200 * 4096).contains(&placed), "{placed}");
    let got = pair.read_local(0, 0, MIB.into());
    let at = placed as usize;
    assert!(got[..at].iter().all(|b| *b == 3) && got[at..].iter().all(|b| *b == 7));
}

#[test]
fn a_local_region_deregistered_halfway() {
    for op in [SendOp::Write, SendOp::Read] {
        let mut pair = half_way(op, 0);
        assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::LocProtErr)], "{op:?}");
        assert_eq!(pair.state(0), QpState::Err);
    }
}

#[test]
fn a_bad_key_of_a_uc_write_counts_where_it_is_found() {
    let mut pair = Setup::new(Spec { ty: QpType::Uc, ..Spec::default() }).connect();
    let to = pair.sides[1].remote(0);
    let bad = doorbell_core::transport::Remote { rkey: Rkey(1), ..to };
    burst(&mut pair, SendOp::Write(bad), 1, 8);
    assert_eq!(errors(&pair.sent(0)), []);
    assert_eq!(counted(&pair, 1).resp_remote_access_errors, 1);
}
