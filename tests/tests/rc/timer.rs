//! The ack timer (2.5): it counts from a packet's last bit, and only for what asks for an answer.

use doorbell_core::transport::SendOp;
use doorbell_core::units::BitRate;
use doorbell_core::verbs::{AckTimeout, Mtu};
use doorbell_sim::fault::PacketClass;

use super::{Setup, burst, counted, good};
use crate::on_sim::conformance::pair::Spec;

/// 256 KiB take 21 us at 100 Gb/s, more than T of code 1 (8.2 us) and of code 2 (16.4 us).
fn long_write(code: u8) -> Setup {
    let mut setup = Setup::new(Spec { region: 1 << 18, mtu: Mtu::B4096, ..Spec::default() });
    setup.rate = BitRate::gbps(100);
    setup.attr.timeout = AckTimeout::new(code).unwrap();
    setup
}

#[test]
fn a_long_write_on_an_idle_cable_is_never_sent_again() {
    for code in [1, 2, 3] {
        let mut pair = long_write(code).connect();
        let to = pair.sides[1].remote(0);
        burst(&mut pair, SendOp::Write(to), 1, 1 << 18);
        pair.lab.settle();
        assert_eq!(good(&pair.sent(0)), [0]);
        let c = counted(&pair, 0);
        assert_eq!((c.local_ack_timeout_err, c.retransmitted_packets), (0, 0), "code {code}");
        assert_eq!(counted(&pair, 1).duplicate_request, 0, "code {code}");
    }
}

#[test]
fn neither_is_what_a_sequence_nak_makes_it_send_again() {
    for code in [1, 2] {
        // The second packet of 64 is lost: 63 go out again, 21 us of them.
        let mut pair = long_write(code).lose(PacketClass::Write, 2).connect();
        let to = pair.sides[1].remote(0);
        burst(&mut pair, SendOp::Write(to), 1, 1 << 18);
        pair.lab.settle();
        assert_eq!(good(&pair.sent(0)), [0]);
        let c = counted(&pair, 0);
        assert_eq!((c.packet_seq_err, c.local_ack_timeout_err), (1, 0), "code {code}");
        assert_eq!(c.retransmitted_packets, 63, "code {code}");
    }
}

#[test]
fn a_lost_last_packet_is_found_by_the_timer_and_only_once() {
    for code in [1, 2] {
        let mut pair = long_write(code).lose(PacketClass::Write, 64).connect();
        let to = pair.sides[1].remote(0);
        burst(&mut pair, SendOp::Write(to), 1, 1 << 18);
        pair.lab.settle();
        assert_eq!(good(&pair.sent(0)), [0]);
        let c = counted(&pair, 0);
        assert_eq!((c.packet_seq_err, c.local_ack_timeout_err), (0, 1), "code {code}");
        // Nothing of it is acknowledged, so all of it goes out again.
        assert_eq!(c.retransmitted_packets, 64, "code {code}");
    }
}
