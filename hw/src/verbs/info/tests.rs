//! Warnings on both sides of each bound.

use super::*;
use crate::limits::LOW_MEMLOCK_BYTES;

fn facts(width: u32, mt_per_s: u32) -> DeviceFacts {
    let pcie = PcieLink { width, max_width: 16, mt_per_s, max_mt_per_s: 32_000 };
    let pci = Some("0000:3b:00.0".to_owned());
    DeviceFacts { pci, numa: Some(0), pcie: Some(pcie), ..DeviceFacts::default() }
}

#[test]
fn pcie_and_numa() {
    assert!(device_warnings(&facts(16, 32_000)).is_empty());
    let narrow = [Warning::PcieWidth { width: 8, max_width: 16 }];
    assert_eq!(device_warnings(&facts(8, 32_000)), narrow);
    let slow = [Warning::PcieSpeed { mt_per_s: 16_000, max_mt_per_s: 32_000 }];
    assert_eq!(device_warnings(&facts(16, 16_000)), slow);
    assert!(slow[0].to_string().starts_with("PCIe runs at 16 of 32 GT/s"));
    let unknown = DeviceFacts { numa: None, ..facts(16, 32_000) };
    assert_eq!(device_warnings(&unknown), [Warning::NumaUnknown]);
    assert!(device_warnings(&DeviceFacts::default()).is_empty(), "a software device");
    assert_eq!((Gt(2500).to_string(), Gt(8000).to_string()), ("2.5".to_owned(), "8".to_owned()));
}

fn port(active: Mtu) -> Port {
    Port {
        number: 1,
        state: PortState::ACTIVE,
        link_layer: LinkLayer::Ethernet,
        active_mtu: Some(active),
        max_mtu: Some(Mtu::B4096),
        lid: 0,
        max_msg_bytes: 1 << 30,
        gid_entries: 8,
    }
}

fn on_netdev(mtu: u32) -> PortFacts {
    let netdev = Some("eth4".to_owned());
    PortFacts { netdev, netdev_mtu: Some(mtu), ..PortFacts::default() }
}

#[test]
fn mtu_below_the_port_s_best() {
    assert!(port_warnings(&port(Mtu::B4096), &on_netdev(4200)).is_empty());
    let got = port_warnings(&port(Mtu::B1024), &on_netdev(1500));
    let (active, max) = (1024, 4096);
    assert_eq!(got, [Warning::MtuBelowMax { active, max, netdev_mtu: Some(1500) }]);
    let text = got[0].to_string();
    assert!(text.contains("active MTU 1024 of 4096") && text.contains("MTU is 1500"), "{text}");
    let infiniband = Port { link_layer: LinkLayer::InfiniBand, ..port(Mtu::B2048) };
    let got = port_warnings(&infiniband, &on_netdev(2044));
    assert_eq!(got, [Warning::MtuBelowMax { active: 2048, max, netdev_mtu: None }], "IPoIB's own");
}

#[test]
fn mtu_that_does_not_belong_to_the_netdev() {
    let mismatch = |active: Mtu, mtu: u32| {
        let limited = Port { max_mtu: Some(active), ..port(active) };
        !port_warnings(&limited, &on_netdev(mtu)).is_empty()
    };
    // A packet of 1,024 bytes with the shortest headers.
    assert!(mismatch(Mtu::B1024, 1067));
    assert!(!mismatch(Mtu::B1024, 1068));
    assert!(!mismatch(Mtu::B1024, 9000), "the port has no more");
    let stale = |mtu| port_warnings(&port(Mtu::B1024), &on_netdev(mtu)).len();
    // With the longest headers 2,048 bytes surely fit.
    assert_eq!((stale(2143), stale(2144)), (1, 2));
    let got = port_warnings(&port(Mtu::B4096), &on_netdev(1500));
    assert_eq!(got.len(), 1);
    assert!(got[0].to_string().contains("active MTU 4096 does not fit MTU 1500 of eth4"));
}

#[test]
fn a_port_that_is_down_is_told_once() {
    let down = Port { state: PortState(1), ..port(Mtu::B256) };
    let got = port_warnings(&down, &on_netdev(1500));
    assert_eq!(got, [Warning::PortNotActive { state: PortState(1) }]);
    assert!(got[0].to_string().starts_with("the port is DOWN"));
}

#[test]
fn memlock_is_told_with_its_figure() {
    let with = |soft| memlock_warning(Some(Memlock { soft, hard: None }));
    assert_eq!(with(None), None);
    assert_eq!(with(Some(LOW_MEMLOCK_BYTES)), None);
    let text = with(Some(8 << 20)).unwrap().to_string();
    assert!(text.starts_with("memlock limit of 8192 KiB"), "{text}");
    assert_eq!(memlock_warning(None), None);
}
