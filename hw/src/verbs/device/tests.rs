//! What needs no device: translation of what the library says.

use super::*;

fn zeroed<T>() -> T {
    // SAFETY: used for plain C structures only, for which all-zero is a valid value.
    unsafe { core::mem::zeroed() }
}

#[test]
fn limits_are_clamped_to_their_types() {
    let mut attr: ibv_device_attr = zeroed();
    attr.max_qp = 7;
    attr.max_cq = -1;
    (attr.max_qp_init_rd_atom, attr.max_qp_rd_atom) = (16, 256);
    let caps = caps(&attr, 99, Mtu::B2048);
    assert_eq!((caps.max_qp, caps.max_cq), (7, 0));
    assert_eq!((caps.max_rd_atomic, caps.max_dest_rd_atomic), (16, 255));
    assert_eq!((caps.max_msg_bytes, caps.active_mtu), (99, Mtu::B2048));
    assert!(!atomics(&attr));
    attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_HCA;
    assert!(atomics(&attr));
}

#[test]
fn ports_of_every_link_layer() {
    let mut attr: ibv_port_attr = zeroed();
    (attr.lid, attr.active_mtu, attr.max_mtu, attr.gid_tbl_len) = (5, 3, 6, -1);
    for (layer, expected, lid) in [
        (0, Some(LinkLayer::InfiniBand), 5),
        (1, Some(LinkLayer::InfiniBand), 5),
        (2, Some(LinkLayer::Ethernet), 0),
        (3, None, 0),
    ] {
        attr.link_layer = layer;
        let got = port(1, &attr);
        assert_eq!(got.as_ref().map(|p| p.link_layer), expected);
        assert_eq!(got.map_or(0, |p| p.lid), lid);
    }
    attr.link_layer = 2;
    let got = port(1, &attr).unwrap();
    assert_eq!((got.active_mtu, got.max_mtu, got.gid_entries), (Some(Mtu::B1024), None, 0));
}

#[test]
fn entries_of_unknown_type_and_empty_ones_are_left_out() {
    let mut entry: ibv_gid_entry = zeroed();
    (entry.gid_index, entry.gid_type) = (3, IBV_GID_TYPE_ROCE_V2);
    assert_eq!(gid(&entry), None);
    entry.gid.raw = [1; 16];
    assert_eq!(gid(&entry), Some(Gid { index: 3, raw: [1; 16], ty: GidType::RoceV2 }));
    entry.gid_type = 9;
    assert_eq!(gid(&entry), None);
}

#[test]
fn one_refusal_speaks_for_itself_and_several_are_listed() {
    let refuse = |n: u8| {
        let device = format!("d{n}");
        Err::<(), _>(OpenError::PortNotActive { device, port: 1, state: PortState(1) })
    };
    assert!(matches!(first(vec![1], refuse), Err(OpenError::PortNotActive { .. })));
    let text = first(vec![1, 2], refuse).unwrap_err().to_string();
    assert!(
        text.contains("\n  port 1 of d1 is DOWN") && text.contains("\n  port 1 of d2"),
        "{text}"
    );
    let nested = first(vec![0, 2], |n| first(vec![n, n + 1], refuse)).unwrap_err();
    assert!(matches!(nested, OpenError::NoneUsable(all) if all.len() == 4));
    assert_eq!(first(vec![1, 2, 3], |n| if n == 2 { Ok(n) } else { refuse(n).map(|()| 0) }), Ok(2));
}
