//! The report of a machine made by hand.

use std::collections::BTreeMap;

use doorbell_core::verbs::Mtu;
use doorbell_hw::gid::{Gid, GidType, LinkLayer};
use doorbell_hw::sysfs::{DeviceFacts, PcieLink};
use doorbell_hw::verbs::PortState;
use doorbell_hw::verbs::device::{DeviceName, Port};
use doorbell_hw::verbs::info::{NOT_TOLD, Warning};

use super::*;

fn name(name: &str, uverbs: &str) -> DeviceName {
    DeviceName { name: name.to_owned(), uverbs: uverbs.to_owned() }
}

fn nic() -> DeviceInfo {
    let pcie = PcieLink { width: 8, max_width: 16, mt_per_s: 2500, max_mt_per_s: 16_000 };
    let gid = |index, ty| Gid { index, raw: [0x20; 16], ty };
    let port = Port {
        number: 1,
        state: PortState::ACTIVE,
        link_layer: LinkLayer::Ethernet,
        active_mtu: Some(Mtu::B1024),
        max_mtu: Some(Mtu::B4096),
        lid: 0,
        max_msg_bytes: 1 << 30,
        gid_entries: 256,
    };
    let counter = |name: &str, n: u64| (name.to_owned(), n);
    DeviceInfo {
        name: name("mlx5_0", "uverbs0"),
        facts: DeviceFacts {
            pci: Some("0000:3b:00.0".to_owned()),
            numa: None,
            pcie: Some(pcie),
            driver: Some("mlx5_core".to_owned()),
            firmware: Some("20.31.1014".to_owned()),
        },
        limits: Some(Limits {
            max_qp: 131_072,
            max_qp_wr: 32_768,
            max_sge: 30,
            max_cq: 16_777_216,
            max_cqe: 4_194_303,
            max_srq_wr: 32_767,
            max_mr: 16_777_216,
            max_qp_init_rd_atom: 16,
            max_qp_rd_atom: 15,
            atomics: true,
        }),
        ports: vec![PortInfo {
            port,
            rate: Some("100 Gb/sec (4X EDR)".to_owned()),
            netdev: Some("eth4".to_owned()),
            netdev_mtu: Some(1500),
            gids: vec![gid(0, GidType::RoceV1), gid(3, GidType::RoceV2)],
            chosen_gid: Some(3),
            hw_counters: BTreeMap::from([counter("out_of_sequence", 7), counter("rnr_nak", 0)]),
            warnings: vec![],
        }],
        warnings: vec![Warning::PcieWidth { width: 8, max_width: 16 }],
    }
}

fn soft() -> DeviceInfo {
    let reason = "no permission to open /dev/infiniband/uverbs1".to_owned();
    DeviceInfo {
        name: name("rxe0", "uverbs1"),
        facts: DeviceFacts::default(),
        limits: None,
        ports: vec![],
        warnings: vec![Warning::Refused { reason }],
    }
}

fn machine() -> Info {
    Info {
        memlock: Some(Memlock { soft: Some(8 << 20), hard: None }),
        devices: vec![nic(), soft()],
        not_told: NOT_TOLD.to_vec(),
        warnings: vec![Warning::NumaUnknown],
    }
}

const TEXT: &str = "\
mlx5_0 (uverbs0)
  PCI address       0000:3b:00.0
  NUMA node         unknown
  PCIe link         x8 of x16, 2.5 of 16 GT/s
  driver            mlx5_core
  firmware          20.31.1014
  at most           131072 QPs of 32768 WRs, 30 SGEs
                    16777216 CQs of 4194303 entries
                    16777216 MRs, SRQs of 32767 WRs
                    16 READs out, 15 in, per QP
  ATOMICs           yes
  WARNING           PCIe has 8 of 16 lanes: the slot is narrow or the card sits badly; see \
                    `lspci -vv`
  port 1: ACTIVE, Ethernet
    rate            100 Gb/sec (4X EDR)
    MTU             1024 active, 4096 at most
    netdev          eth4, MTU 1500
    longest message 1073741824 B
    GIDs            0 2020:2020:2020:2020:2020:2020:2020:2020 RoCE v1
                    3 2020:2020:2020:2020:2020:2020:2020:2020 RoCE v2  <- chosen
    counters        out_of_sequence 7
rxe0 (uverbs1)
  PCI address       none: a software device
  WARNING           no permission to open /dev/infiniband/uverbs1
this machine
  memlock limit     8192 KiB
  WARNING           NUMA node unknown: place threads and memory by measurement, or set it in \
                    the firmware
not told by libibverbs
  BlueFlame: its size, and whether a post used it
  doorbells: how many MMIO writes a post makes
  inline bytes: granted per QP, known when one is created
";

#[test]
fn the_report_of_a_machine() {
    assert_eq!(to_text(&machine()), TEXT);
}

#[test]
fn long_tables_of_gids_are_cut() {
    let mut info = machine();
    let gid = info.devices[0].ports[0].gids[0].clone();
    info.devices[0].ports[0].gids = vec![gid; GIDS];
    assert!(!to_text(&info).contains("more (--json"));
    let gid = info.devices[0].ports[0].gids[0].clone();
    info.devices[0].ports[0].gids.push(gid);
    assert!(to_text(&info).contains("                    and 1 more (--json shows all)\n"));
}

#[test]
fn json_has_the_same_facts() {
    let json: serde_json::Value = serde_json::from_str(&to_json(&machine())).unwrap();
    assert_eq!(json["version"], 1);
    let info = &json["info"];
    let device = &info["devices"][0];
    assert_eq!(device["name"], "mlx5_0");
    assert_eq!(device["pci"], "0000:3b:00.0");
    assert_eq!(device["numa"], serde_json::Value::Null, "absent, not -1 and not 0");
    assert_eq!(device["pcie"]["mt_per_s"], 2500);
    assert_eq!(device["warnings"][0]["kind"], "pcie-width");
    let port = &device["ports"][0];
    assert_eq!(port["state"], "ACTIVE");
    assert_eq!(port["link_layer"], "ethernet");
    assert_eq!((&port["active_mtu"], &port["max_mtu"]), (&1024.into(), &4096.into()));
    assert_eq!(port["gids"][1]["type"], "roce-v2");
    assert_eq!(port["gids"][1]["address"], "2020:2020:2020:2020:2020:2020:2020:2020");
    assert_eq!(port["hw_counters"]["rnr_nak"], 0);
    assert_eq!(info["not_told"].as_array().unwrap().len(), NOT_TOLD.len());
    assert_eq!(info["memlock"]["hard"], serde_json::Value::Null);
}
