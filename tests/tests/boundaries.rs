//! Numbers at which arithmetic or a table ends.

use doorbell_core::transport::{Contents, Data, Mr, Ring, SendOp, SendWr, Transport};
use doorbell_core::units::Span;
use doorbell_core::verbs::{Mtu, Opcode, QpType};
use doorbell_sim::wire::{HostId, PortId, wire_bytes};
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

use crate::on_sim::conformance::pair::{HOST, Pair, Spec, send};

/// Registers `bytes` without contents on both sides.
fn large(pair: &mut Pair, bytes: u64) -> [Mr; 2] {
    let rights = Spec::default().rights;
    [0, 1].map(|rank| {
        pair.on(rank, move |t, me| {
            use doorbell_core::transport::Control;
            t.alloc_mr(me.pd, bytes, HOST, rights, Contents::Virtual).unwrap()
        })
    })
}

/// 2.3 MB is where bytes × 8 × 10¹² leaves 64 bits.
#[test]
fn a_message_whose_bits_in_picoseconds_overflow_64_bits() {
    const BYTES: u32 = 3_000_000;
    assert!(u64::from(BYTES).checked_mul(8 * 1_000_000_000_000).is_none());
    let mut pair = Pair::connected(Spec { mtu: Mtu::B4096, ..Spec::default() });
    let [from, to] = large(&mut pair, BYTES.into());
    let remote = doorbell_core::transport::Remote { addr: to.addr, rkey: to.rkey };
    pair.on(0, move |t, me| {
        let list = [from.sge(0, BYTES).unwrap()];
        t.stage(me.qp, &send(SendOp::Write(remote), 1, Data::Sge(&list))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0).len(), 1);
    // The port was busy for exactly the bytes of all packets.
    let encap = machine::quiet_host().rc.encapsulation;
    let packets = Mtu::B4096.packets_for(BYTES);
    let bytes: u64 = (0..packets)
        .map(|i| {
            let len = (BYTES - i * 4096).min(4096);
            let opcode = match i {
                0 => Opcode::RcRdmaWriteFirst,
                i if i + 1 == packets => Opcode::RcRdmaWriteLast,
                _ => Opcode::RcRdmaWriteMiddle,
            };
            u64::from(wire_bytes(encap, opcode, len))
        })
        .sum();
    let world = pair.lab.world();
    let port = world.fabric().tx_port(HostId(0), PortId(0)).counters(world.now());
    assert_eq!((port.sent.packets, port.sent.bytes), (packets.into(), bytes));
    assert_eq!(port.busy, Span::from_ps(20 * bytes), "20 ps a byte at 400 Gb/s");
}

/// Producer and consumer indices are 16 bits on the device; ours run on.
#[test]
fn a_queue_that_wraps_many_times() {
    let mut pair = Pair::connected(Spec { cq_depth: 256, ..Spec::default() });
    let to = pair.sides[1].remote(0);
    let mut done = 0;
    for _ in 0..100 {
        pair.on(0, move |t, me| {
            for i in 0..16 {
                let wr = SendWr { ..send(SendOp::Write(to), i, Data::Inline(&[7; 40])) };
                t.stage(me.qp, &wr).unwrap();
            }
            t.ring(me.qp, Ring::Doorbell).unwrap();
        });
        done += pair.sent(0).len();
    }
    assert_eq!(done, 1600);
}

#[test]
fn programs_on_one_host_up_to_what_a_handle_can_name() {
    let mut lab = Lab::on_hosts(&[0; 128]);
    let ids = [0, 127].map(|rank| lab.call(rank, |t| t.initiator()));
    assert_ne!(ids[0], ids[1]);
    let [first, last] = [0, 127].map(|rank| {
        use doorbell_core::transport::Control;
        lab.call(rank, |t| t.create_cq(4).unwrap())
    });
    assert_ne!(first, last, "handles of different ranks differ");
}

#[test]
fn services_have_their_largest_messages() {
    // RC and UC: what the device allows; the ideal number is 2³¹, of which no region is needed.
    for ty in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::connected(Spec { ty, ..Spec::default() });
        let [from, to] = large(&mut pair, 1 << 32);
        let remote = doorbell_core::transport::Remote { addr: to.addr, rkey: to.rkey };
        pair.on(0, move |t, me| {
            use doorbell_core::transport::{Control, StageError};
            let max = t.device_caps().max_msg_bytes;
            let list = [from.sge(0, max + 1).unwrap()];
            let refused = t.stage(me.qp, &send(SendOp::Write(remote), 1, Data::Sge(&list)));
            assert_eq!(refused, Err(StageError::TooLong { got: u64::from(max) + 1, max }));
            let list = [from.sge(0, max).unwrap()];
            t.stage(me.qp, &send(SendOp::Write(remote), 1, Data::Sge(&list))).unwrap();
            assert_eq!(t.unstage(me.qp), 1);
        });
    }
}
