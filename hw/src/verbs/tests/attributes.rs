//! Attributes of a modify, address vectors, PSNs.

use super::super::fake::DeviceConfig;
use super::*;

#[test]
fn every_attribute_is_where_verbs_has_it() {
    let mut bed = Bed::reset(Spec::default());
    let attr = QpAttr {
        access: AccessFlags::REMOTE_READ,
        path_mtu: Mtu::B2048,
        max_dest_rd_atomic: 3,
        max_rd_atomic: 5,
        min_rnr_timer: RnrTimer::new(11).unwrap(),
        timeout: AckTimeout::new(17).unwrap(),
        retry_cnt: RetryCnt::new(6).unwrap(),
        rnr_retry: RnrRetry::new(2).unwrap(),
        ..attr()
    };
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let from = bed.t.qp_state(bed.qp).unwrap();
        let mask = required(QpType::Rc, from, to).unwrap();
        bed.t.modify_qp(bed.qp, &QpAttr { state: to, ..attr }, mask).unwrap();
    }
    let a = bed.fake.attr(bed.qpn());
    assert_eq!((a.qp_access_flags, a.port_num, a.pkey_index), (4, 1, 0));
    assert_eq!((a.path_mtu, a.dest_qp_num), (4, 0x77));
    assert_eq!((a.rq_psn, a.sq_psn), (0x00AB_CDEF, 0x0012_3456));
    assert_eq!((a.max_dest_rd_atomic, a.max_rd_atomic), (3, 5));
    assert_eq!((a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry), (11, 17, 6, 2));
    let mut ud = Bed::reset(Spec { ty: QpType::Ud, ..Spec::default() });
    ud.connect();
    assert_eq!(ud.fake.attr(ud.qpn()).qkey, 0x1234_5678);
}

#[test]
fn an_address_vector_has_a_grh_on_ethernet_and_a_lid_on_infiniband() {
    let infiniband =
        FakeConfig { devices: vec![DeviceConfig::infiniband("ib0", 3)], ..FakeConfig::default() };
    for (fake, global, index) in [(FakeConfig::default(), 1, 3), (infiniband, 0, 0)] {
        let mut bed = Bed::of(Spec { fake, ..Spec::default() });
        let peer = Address { lid: 9, gid: [7; 16], ..Address::default() };
        let av = bed.fake.attr(bed.qpn()).ah_attr;
        assert_eq!((av.is_global, av.grh.sgid_index, av.port_num), (global, index, 1));
        assert_eq!((av.dlid, av.sl, av.grh.hop_limit, av.grh.flow_label), (9, 5, 64, 0x1_2345));
        // SAFETY: every bit pattern is a valid value of each member of the union.
        assert_eq!(unsafe { av.grh.dgid.raw }, peer.gid);
        assert!(bed.t.create_ah(bed.pd, peer).is_ok());
    }
}

#[test]
fn an_endpoint_is_what_a_peer_needs() {
    let bed = Bed::new(Posting::Classic);
    let end = bed.t.endpoint(bed.qp).unwrap();
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1];
    assert_eq!((end.address, end.mtu), (Address { gid, ..Address::default() }, Mtu::B4096));
    assert_eq!(bed.fake.qpns(), [end.qpn.value()]);
    let config =
        FakeConfig { devices: vec![DeviceConfig::infiniband("ib0", 3)], ..FakeConfig::default() };
    let bed = Bed::of(Spec { fake: config, ..Spec::default() });
    assert_eq!(bed.t.endpoint(bed.qp).unwrap().address.lid, 0x13);
}

#[test]
fn first_psns_differ_and_stay() {
    let mut bed = Bed::new(Posting::Classic);
    let mut psns = vec![];
    for _ in 0..20 {
        let qp = bed.t.create_qp(&bed.init()).unwrap();
        psns.push(bed.t.endpoint(qp).unwrap().psn.value());
        assert_eq!(bed.t.endpoint(qp).unwrap().psn.value(), psns[psns.len() - 1]);
    }
    assert!(psns.iter().all(|psn| *psn < 1 << 24));
    psns.sort_unstable();
    psns.dedup();
    // Two of twenty are alike once in 80,000 runs; three never.
    assert!(psns.len() >= 19, "{psns:?}");
    let before = bed.t.endpoint(bed.qp).unwrap();
    bed.go(QpState::Reset).unwrap();
    assert_eq!(bed.t.endpoint(bed.qp), Ok(before), "what was published stays true");
}
