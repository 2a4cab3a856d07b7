//! A made-up machine in a temporary folder.

use super::*;
use std::os::unix::fs::symlink;

/// A machine of a test's own, removed in the end.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let name = format!("doorbell-sysfs-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(self, path: &str, content: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
        self
    }

    fn link(self, path: &str, to: &str) -> Self {
        let (path, to) = (self.0.join(path), self.0.join(to));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(&to).unwrap();
        symlink(to, path).unwrap();
        self
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::below(&self.0)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PCI: &str = "sys/devices/pci0000:3a/0000:3b:00.0";
const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

fn nic(name: &str) -> Machine {
    let pci = |file: &str| format!("{PCI}/{file}");
    let port = |file: &str| format!("{PORT}/{file}");
    Machine::new(name)
        .with(&pci("numa_node"), "1")
        .with(&pci("current_link_width"), "8")
        .with(&pci("max_link_width"), "16")
        .with(&pci("current_link_speed"), "8.0 GT/s PCIe")
        .with(&pci("max_link_speed"), "16.0 GT/s PCIe")
        .link(&pci("driver"), "sys/bus/pci/drivers/mlx5_core")
        .link("sys/class/infiniband/mlx5_0/device", PCI)
        .with("sys/class/infiniband/mlx5_0/fw_ver", "20.31.1014")
        .with(&port("state"), "4: ACTIVE")
        .with(&port("link_layer"), "Ethernet")
        .with(&port("rate"), "100 Gb/sec (4X EDR)")
        .with(&port("gid_attrs/ndevs/0"), "eth4")
        .with("sys/class/net/eth4/mtu", "4200")
        .with(&port("hw_counters/out_of_sequence"), "7")
        .with(&port("hw_counters/lifespan"), "12")
        .with(&port("hw_counters/broken"), "many")
        .with(&port("gids/10"), "0000:0000:0000:0000:0000:ffff:0a00:0001")
        .with(&port("gids/2"), "fe80:0000:0000:0000:0000:0000:0000:0001")
        .with(&port("gids/3"), "0000:0000:0000:0000:0000:0000:0000:0000")
        .with(&port("gids/4"), "fe80:0000:0000:0000:0000:0000:0000:0002")
        .with(&port("gid_attrs/types/2"), "IB/RoCE v1")
        .with(&port("gid_attrs/types/3"), "RoCE v2")
        .with(&port("gid_attrs/types/10"), "RoCE v2")
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn a_nic_with_everything() {
    let machine = nic("all");
    let facts = machine.sysfs().device("mlx5_0");
    let pcie = PcieLink { width: 8, max_width: 16, mt_per_s: 8000, max_mt_per_s: 16_000 };
    let expected = DeviceFacts {
        pci: Some("0000:3b:00.0".to_owned()),
        numa: Some(1),
        pcie: Some(pcie),
        driver: Some("mlx5_core".to_owned()),
        firmware: Some("20.31.1014".to_owned()),
    };
    assert_eq!(facts, expected);
    let expected = PortFacts {
        state: Some("ACTIVE".to_owned()),
        link_layer: Some(LinkLayer::Ethernet),
        rate: Some("100 Gb/sec (4X EDR)".to_owned()),
        netdev: Some("eth4".to_owned()),
        netdev_mtu: Some(4200),
        hw_counters: BTreeMap::from([("out_of_sequence".to_owned(), 7)]),
    };
    assert_eq!(machine.sysfs().port("mlx5_0", 1), expected);
    assert_eq!(machine.sysfs().port("mlx5_0", 2), PortFacts::default());
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn valid_gids_by_number_with_types() {
    let gids: Vec<String> =
        nic("gids").sysfs().gids("mlx5_0", 1).iter().map(ToString::to_string).collect();
    // 3 is empty, 4 has no type, and 10 comes after 2.
    assert_eq!(gids, ["2 fe80::1 RoCE v1", "10 ::ffff:10.0.0.1 RoCE v2"]);
    let machine = nic("ib").with(&format!("{PORT}/link_layer"), "InfiniBand");
    assert_eq!(machine.sysfs().gids("mlx5_0", 1)[0].ty, GidType::Ib);
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn one_counter_is_read_by_its_name() {
    let sysfs = nic("counter").sysfs();
    let machine = nic("one-counter");
    assert_eq!(sysfs.hw_counter("mlx5_0", 1, "out_of_sequence"), None, "the folder is gone");
    let counter = |port, name| machine.sysfs().hw_counter("mlx5_0", port, name);
    assert_eq!(counter(1, "out_of_sequence"), Some(7));
    assert_eq!(
        [counter(1, "broken"), counter(1, "none"), counter(2, "out_of_sequence")],
        [None; 3]
    );
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn what_is_not_there_is_absent() {
    let machine = Machine::new("soft")
        .with("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN")
        .with("sys/class/infiniband/odd/device/numa_node", "-1")
        .with("sys/class/infiniband/odd/device/current_link_width", "0")
        .with("sys/class/infiniband/odd/device/max_link_width", "16")
        .with("sys/class/infiniband/odd/device/current_link_speed", "Unknown")
        .with("sys/class/infiniband/odd/device/max_link_speed", "Unknown");
    let sysfs = machine.sysfs();
    for device in ["rxe0", "odd", "nobody"] {
        assert_eq!(sysfs.device(device), DeviceFacts::default(), "{device}");
    }
    let down = PortFacts { state: Some("DOWN".to_owned()), ..PortFacts::default() };
    assert_eq!(sysfs.port("rxe0", 1), down);
    assert!(sysfs.gids("rxe0", 1).is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn the_netdev_of_a_pci_device_is_named_only_if_it_is_certain() {
    let net = |name: &str, port: &str| {
        (format!("sys/class/infiniband/ib/device/net/{name}/dev_port"), port.to_owned())
    };
    let one = net("a", "0");
    let machine = Machine::new("net").with(&one.0, &one.1);
    assert_eq!(machine.sysfs().port("ib", 1).netdev.as_deref(), Some("a"));
    assert_eq!(machine.sysfs().port("ib", 2).netdev.as_deref(), Some("a"), "it is the only one");
    let two = net("b", "1");
    let machine = machine.with(&two.0, &two.1);
    assert_eq!(machine.sysfs().port("ib", 2).netdev.as_deref(), Some("b"));
    let third = net("c", "1");
    let machine = machine.with(&third.0, &third.1);
    assert_eq!(machine.sysfs().port("ib", 2).netdev, None, "two claim port 2");
}

#[test]
fn speeds_and_addresses() {
    let known = [("2.5 GT/s PCIe", 2500), ("5 GT/s", 5000), ("64.0 GT/s PCIe", 64_000)];
    for (text, expected) in known {
        assert_eq!(mt_per_s(text), Some(expected));
    }
    for text in ["Unknown", "", "16.0", "x GT/s", "2.55 GT/s", "99999999 GT/s"] {
        assert_eq!(mt_per_s(text), None, "{text}");
    }
    assert!(is_pci_address("0000:3b:00.0") && is_pci_address("10000:e1:00.0"));
    for name in ["3b:00.0", "0000:3b:00", "v0", "0000:3b:0g.0", "0000.3b.00.00"] {
        assert!(!is_pci_address(name), "{name}");
    }
}
