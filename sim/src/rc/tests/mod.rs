//! Tests of requester and responder against each other over an ideal link, and each alone.

mod errors;
mod limits;
mod link;
mod lossy;
mod property;
mod recovery;
mod replies;
mod requester;
mod responder;
mod responses;
mod survivors;
mod timer;
mod unreliable;

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    AccessFlags, Mtu, Opcode, Psn, QKey, QpType, Qpn, Rkey, RnrTimer, SendFlags, WrOpcode,
};

use super::*;

const NOW: Time = Time::ZERO;
/// Start of the remote memory of the tests.
const BASE: u64 = 0x1000_0000;
const RKEY: Rkey = Rkey(0x55);
const QKEY: QKey = QKey(0x1111_1111);

fn requester_config(service: QpType) -> RequesterConfig {
    RequesterConfig {
        service,
        qpn: Qpn::new(17),
        dest: Qpn::new(18),
        sq_psn: Psn::ZERO,
        payload: Mtu::B256.bytes(),
        max_rd_atomic: 4,
        max_outstanding_packets: 128,
        ack_req_every: 64,
        ack_req_last: AckReqLast::EveryMessage,
        ..RequesterConfig::of(service, Qpn::new(17), Qpn::new(18), Psn::ZERO, Mtu::B256)
    }
}

fn responder_config(service: QpType) -> ResponderConfig {
    ResponderConfig {
        service,
        dest: Qpn::new(17),
        rq_psn: Psn::ZERO,
        payload: Mtu::B256.bytes(),
        max_dest_rd_atomic: 4,
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
        ack: AckPolicy::IMMEDIATE,
        min_rnr_timer: RnrTimer::new(12).unwrap(),
        qkey: QKEY,
        ..ResponderConfig::of(service, Qpn::new(17), Psn::ZERO, Mtu::B256)
    }
}

/// A signalled work request on the start of the remote memory.
fn job(wqe: u32, op: WrOpcode, len: u32) -> SendJob {
    SendJob {
        wqe,
        op,
        len,
        remote_va: BASE,
        rkey: RKEY,
        imm_or_inv: 0x0A0B_0C00 + wqe,
        swap_add: 5,
        compare: 7,
        flags: SendFlags::SIGNALED,
        dest: Qpn::new(19),
        qkey: QKEY,
    }
}

/// A request packet with the extended header that belongs to its opcode.
fn request(opcode: Opcode, psn: Psn, len: u32, dma_len: u32) -> PacketDesc {
    let (va, rkey, imm) = (BASE, RKEY, 1);
    let ext = match opcode {
        o if o.has_atomic_eth() => Ext::Atomic { va, rkey, swap_add: 1, compare: 0 },
        o if o.has_reth() && o.has_imm() => Ext::RethImm { va, rkey, dma_len, imm },
        o if o.has_reth() => Ext::Reth { va, rkey, dma_len },
        o if o.has_deth() && o.has_imm() => Ext::DethImm { qkey: QKEY, src: Qpn::new(17), imm },
        o if o.has_deth() => Ext::Deth { qkey: QKEY, src: Qpn::new(17) },
        o if o.has_imm() => Ext::Imm(imm),
        o if o.has_ieth() => Ext::Invalidate(rkey),
        _ => Ext::None,
    };
    PacketDesc {
        opcode,
        psn,
        dest: Qpn::new(18),
        ack_req: true,
        solicited: false,
        wqe: 0,
        offset: 0,
        len,
        ext,
    }
}

fn transmit_all(requester: &mut Requester) -> Vec<PacketDesc> {
    transmit_all_at(requester, NOW)
}

/// All that may be sent; their last bits leave at `at`.
fn transmit_all_at(requester: &mut Requester, at: Time) -> Vec<PacketDesc> {
    std::iter::from_fn(|| transmit_at(requester, at)).collect()
}

fn transmit_at(requester: &mut Requester, at: Time) -> Option<PacketDesc> {
    let desc = requester.poll_transmit()?;
    requester.on_departure(&desc, at);
    Some(desc)
}

fn respond_all(responder: &mut Responder) -> Vec<PacketDesc> {
    std::iter::from_fn(|| responder.poll_transmit(NOW)).collect()
}

fn complete_all(requester: &mut Requester) -> Vec<SendDone> {
    std::iter::from_fn(|| requester.poll_completion()).collect()
}
