//! Which device, port and GID, and the report of all of them.

use super::super::fake::{Call, Extended, GidConfig, GidType};
use super::super::info;
use super::super::open_error::{OpenError, PortState};
use super::*;
use crate::gid::{GidChoice, GidError};
use crate::sysfs::Sysfs;

fn try_open(config: FakeConfig, want: &OpenConfig) -> Result<Device, OpenError> {
    let fake = Fake::new(config);
    let result = Device::open(&fake.provider(), want);
    if result.is_err() {
        fake.assert_clean();
    }
    result
}

fn any() -> OpenConfig {
    // The kernel of the machine that runs the test has no say.
    let sysfs = Sysfs::below(std::path::Path::new("/nowhere"));
    OpenConfig { sysfs, ..OpenConfig::default() }
}

fn two(f: impl FnOnce(&mut Vec<DeviceConfig>)) -> FakeConfig {
    let mut devices = vec![DeviceConfig::roce("fake0", 1), DeviceConfig::roce("fake1", 2)];
    f(&mut devices);
    FakeConfig { devices, ..FakeConfig::default() }
}

#[test]
#[cfg_attr(miri, ignore = "writes files")]
fn counters_of_a_port_have_the_names_of_its_driver() {
    let root = std::env::temp_dir().join(format!("doorbell-counters-{}", std::process::id()));
    let folder = root.join("sys/class/infiniband/fake1/ports/1/hw_counters");
    std::fs::create_dir_all(&folder).unwrap();
    let device = |name: &str| {
        let fake = Fake::new(two(|_| {}));
        let sysfs = Sysfs::below(&root);
        let want = OpenConfig { sysfs, device: Some(name.to_owned()), ..OpenConfig::default() };
        Device::open(&fake.provider(), &want).unwrap().counters()
    };
    assert_eq!((device("fake0"), device("fake1")), (None, None), "no such files");
    let mut all = TransportCounters::default();
    std::fs::write(folder.join("rcvd_rnr_err"), "3\n").unwrap();
    all.rnr_nak_retry_err = 3;
    assert_eq!((device("fake0"), device("fake1")), (None, Some(all)), "rxe, and one of three");
    std::fs::write(folder.join("to_retransmits"), "5\n").unwrap();
    std::fs::write(folder.join("packet_seq_err"), "7\n").unwrap();
    std::fs::write(folder.join("rp_cnp_handled"), "9\n").unwrap();
    std::fs::write(folder.join("rp_cnp_ignored"), "2\n").unwrap();
    (all.local_ack_timeout_err, all.packet_seq_err, all.cnps) = (5, 7, 11);
    assert_eq!(device("fake1"), Some(all));
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn no_device_in_three_ways() {
    let none = FakeConfig { devices: vec![], ..FakeConfig::default() };
    let list = |errno| FakeConfig { list_errno: Some(errno), ..FakeConfig::default() };
    let got = |config| try_open(config, &any()).unwrap_err();
    assert_eq!(got(none), OpenError::NoDevices { supported: true });
    assert_eq!(got(list(libc::ENOSYS)), OpenError::NoDevices { supported: false });
    let failed = got(list(libc::EIO));
    assert!(matches!(&failed, OpenError::List(e) if e.0 == libc::EIO), "{failed}");
}

#[test]
fn a_device_that_may_not_be_opened_names_its_file() {
    let with = |errno| FakeConfig { open_errno: Some(errno), ..FakeConfig::default() };
    let got = |errno| try_open(with(errno), &any()).unwrap_err();
    for errno in [libc::EACCES, libc::EPERM] {
        let OpenError::Permission { path } = got(errno) else { panic!("{}", got(errno)) };
        assert!(path.starts_with("/nowhere/dev/infiniband"), "{path:?}");
    }
    assert!(matches!(got(libc::ENOENT), OpenError::NoDeviceFile { .. }));
    let OpenError::Os { call: "ibv_open_device", errno, .. } = got(libc::EBUSY) else {
        panic!("{}", got(libc::EBUSY))
    };
    assert_eq!(errno.0, libc::EBUSY);
}

#[test]
fn queries_that_fail_are_named_and_leave_nothing_open() {
    for (call, name) in [
        (Call::QueryDevice, "ibv_query_device"),
        (Call::QueryPort, "ibv_query_port"),
        (Call::QueryGids, "ibv_query_gid_table"),
    ] {
        let fake = Fake::new(FakeConfig::default());
        fake.fail_call(call, 0, libc::EIO);
        match Device::open(&fake.provider(), &any()).unwrap_err() {
            OpenError::Os { call, errno, .. } => assert_eq!((call, errno.0), (name, libc::EIO)),
            other => panic!("{other}"),
        }
        fake.assert_clean();
    }
}

#[test]
fn a_port_that_is_not_active_is_passed_over_and_named() {
    let down = |devices: &mut Vec<DeviceConfig>| devices[0].port.state = 1;
    let device = try_open(two(down), &any()).unwrap();
    assert_eq!(device.name().name, "fake1");
    let only = OpenConfig { device: Some("fake0".into()), ..any() };
    let state = PortState(1);
    let error = try_open(two(down), &only).unwrap_err();
    assert_eq!(error, OpenError::PortNotActive { device: "fake0".into(), port: 1, state });
    let all = two(|d| d.iter_mut().for_each(|d| d.port.state = 2));
    let OpenError::NoneUsable(refused) = try_open(all, &any()).unwrap_err() else { panic!() };
    assert_eq!(refused.len(), 2);
}

#[test]
fn names_and_ports_are_those_that_exist() {
    let named = |name: &str| OpenConfig { device: Some(name.into()), ..any() };
    let device = try_open(two(|_| ()), &named("fake1")).unwrap();
    assert_eq!(device.address().gid[12..], [10, 0, 0, 2]);
    let error = try_open(two(|_| ()), &named("fake7")).unwrap_err();
    let there = vec!["fake0".to_owned(), "fake1".to_owned()];
    assert_eq!(error, OpenError::NoSuchDevice { name: "fake7".into(), there });
    for port in [0, 2] {
        let want = OpenConfig { port: Some(port), ..named("fake0") };
        let error = try_open(two(|_| ()), &want).unwrap_err();
        assert_eq!(error, OpenError::NoSuchPort { device: "fake0".into(), port, ports: 1 });
    }
}

#[test]
fn a_gid_of_the_wrong_type_is_never_taken() {
    let gids = |list: &[GidConfig]| device(|d| d.port.gids = list.to_vec());
    let v1 = GidConfig::ipv4(0, GidType::RoceV1, [10, 0, 0, 1]);
    let v2 = GidConfig::ipv4(5, GidType::RoceV2, [10, 0, 0, 1]);
    let error = try_open(gids(&[v1]), &any()).unwrap_err();
    assert!(matches!(&error, OpenError::Gid { cause: GidError::NoRoceV2 { .. }, .. }), "{error}");
    let none = try_open(gids(&[]), &any()).unwrap_err();
    assert!(matches!(&none, OpenError::Gid { .. }), "{none}");
    let device = try_open(gids(&[v1, v2]), &any()).unwrap();
    assert_eq!(device.gid().index, 5, "by type, not by a fixed index");
    let index = |i| OpenConfig { gid: GidChoice::Index(i), ..any() };
    assert_eq!(try_open(gids(&[v1, v2]), &index(5)).unwrap().gid().index, 5);
    for i in [0, 1] {
        let error = try_open(gids(&[v1, v2]), &index(i)).unwrap_err();
        assert!(matches!(&error, OpenError::Gid { .. }), "{error}");
    }
}

#[test]
fn an_infiniband_port_has_a_lid_and_its_first_gid() {
    let devices = vec![DeviceConfig::infiniband("ib0", 4)];
    let device = try_open(FakeConfig { devices, ..FakeConfig::default() }, &any()).unwrap();
    assert_eq!((device.port().lid, device.gid().index), (0x14, 0));
    assert_eq!(device.address().lid, 0x14);
}

#[test]
fn old_contexts_are_opened_too() {
    for extended in [Extended::Full, Extended::NoQueryPort, Extended::NoCreateQp, Extended::Absent]
    {
        let device = try_open(FakeConfig { extended, ..FakeConfig::default() }, &any()).unwrap();
        let port = device.port();
        let facts = (port.state, port.active_mtu, port.lid);
        assert_eq!(facts, (PortState::ACTIVE, Some(Mtu::B4096), 0), "{extended:?}");
        assert_eq!(device.caps().max_msg_bytes, 1 << 31);
    }
}

#[test]
#[cfg_attr(miri, ignore = "the kernel is asked for the limit on locked memory")]
fn the_report_has_every_device_and_says_what_is_wrong_with_it() {
    let fake = Fake::new(two(|devices| {
        devices[0].port.state = 1;
        devices[1].port.active_mtu = Mtu::B1024;
        devices[1].atomics = false;
    }));
    let provider = fake.provider();
    let sysfs = any().sysfs;
    let info = info::collect(&provider, &sysfs, None).unwrap();
    let names: Vec<_> = info.devices.iter().map(|d| d.name.name.as_str()).collect();
    assert_eq!(names, ["fake0", "fake1"]);
    let said = |i: usize| -> String {
        info.devices[i].ports[0].warnings.iter().map(|w| format!("{w}\n")).collect()
    };
    assert!(said(0).contains("the port is DOWN"), "{}", said(0));
    assert!(said(1).contains("active MTU 1024 of 4096"), "{}", said(1));
    let limits = info.devices[1].limits.as_ref().unwrap();
    assert_eq!((limits.max_qp, limits.atomics), (1024, false));
    assert_eq!(info.devices[1].ports[0].chosen_gid, Some(3));
    assert_eq!(info.devices[0].ports[0].gids.len(), 4);
    fake.assert_clean();
    let one = info::collect(&provider, &sysfs, Some("fake1")).unwrap();
    assert_eq!(one.devices.len(), 1);
    let none = info::collect(&provider, &sysfs, Some("x")).unwrap_err();
    assert!(matches!(none, OpenError::NoSuchDevice { .. }));
    fake.assert_clean();
}

#[test]
#[cfg_attr(miri, ignore = "the kernel is asked for the limit on locked memory")]
fn the_report_goes_on_where_a_device_cannot_be_opened() {
    let fake = Fake::new(FakeConfig { open_errno: Some(libc::EACCES), ..FakeConfig::default() });
    let info = info::collect(&fake.provider(), &any().sysfs, None).unwrap();
    let [device] = &info.devices[..] else { panic!("{info:?}") };
    assert!(device.limits.is_none() && device.ports.is_empty());
    let said: String = device.warnings.iter().map(ToString::to_string).collect();
    assert!(said.contains("no permission to open"), "{said}");
    fake.assert_clean();
    let fake = Fake::new(FakeConfig::default());
    fake.fail_call(Call::QueryPort, 0, libc::EIO);
    let info = info::collect(&fake.provider(), &any().sysfs, None).unwrap();
    assert!(info.devices[0].limits.is_some() && info.devices[0].ports.is_empty());
    assert_eq!(info.devices[0].warnings.len(), 1);
    fake.assert_clean();
}
