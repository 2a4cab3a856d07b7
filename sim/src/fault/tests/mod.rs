//! The plan at work, without a run: packets are shown to it one by one.

mod chance;
mod counts;
mod hosts;
mod matcher;
mod network;

use doorbell_core::units::{BitRate, Time};
use doorbell_core::verbs::{Opcode, Psn, Qpn};

use super::state::{Decision, FaultState};
use super::{Fault, FaultPlan, Matcher, PacketVerdict, PlanError};
use crate::fabric::{DropCause, Fabric, FabricConfig, Link, SwitchConfig};
use crate::rc::{Ext, PacketDesc};
use crate::wire::codec::Ecn;
use crate::wire::{HostId, NodeId, Packet, Payload, PortId};

/// Where packets from host 0 to host 1 arrive when a cable joins them.
const AT_1: (NodeId, PortId) = (NodeId(1), PortId(0));
/// And back.
const AT_0: (NodeId, PortId) = (NodeId(0), PortId(0));

const LOST: Option<(Option<u32>, Decision)> = Some((Some(0), Decision::Lose(DropCause::Fault)));

fn link() -> Link {
    Link::with_length_mm(BitRate::gbps(100), 3_000)
}

fn cable() -> Fabric {
    Fabric::new(&FabricConfig::back_to_back(link()), 1).unwrap()
}

fn star(hosts: u32) -> Fabric {
    let config = FabricConfig::single_switch(hosts, link(), SwitchConfig::default());
    Fabric::new(&config, 1).unwrap()
}

fn plan(faults: &[Fault]) -> FaultPlan {
    FaultPlan { faults: faults.to_vec() }
}

fn on(fabric: &Fabric, faults: &[Fault]) -> FaultState {
    FaultState::new(&plan(faults), fabric, 7).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(fabric: &Fabric, faults: &[Fault]) -> PlanError {
    FaultState::new(&plan(faults), fabric, 7).map(|_| ()).unwrap_err()
}

/// A fault "f" that drops.
fn drop(matcher: Matcher) -> Fault {
    Fault::packets("f", matcher, PacketVerdict::Drop)
}

const fn us(n: u64) -> Time {
    Time::from_ps(n * 1_000_000)
}

/// A packet from QP 16 of host 0 to QP 17 of host 1.
fn packet(opcode: Opcode, psn: u32) -> Packet {
    Packet {
        src: HostId(0),
        src_port: PortId(0),
        dst: HostId(1),
        dst_port: PortId(0),
        udp_source_port: 0,
        src_qp: 0,
        sl: 0,
        ecn: Ecn::Ect0,
        becn: false,
        expiries: 0,
        pkey: Default::default(),
        remark: None,
        desc: PacketDesc {
            opcode,
            psn: Psn::new(psn),
            dest: Qpn::new(17),
            ack_req: false,
            solicited: false,
            wqe: 0,
            offset: 0,
            len: 0,
            ext: Ext::None,
        },
        payload: Payload::None,
    }
}

fn write(psn: u32) -> Packet {
    packet(Opcode::RcRdmaWriteOnly, psn)
}
