//! Where the UDP source port of a RoCEv2 packet comes from: the only part of its five-tuple that
//! differs between the QPs of two hosts, hence all the entropy that ECMP has.

use doorbell_core::verbs::FlowLabel;

use super::id::{HostId, PortId, address};

/// The 20-bit flow label that Linux gives a QP whose address vector leaves it zero.
///
/// Symmetric in its arguments: both directions of a connection hash alike.
pub const fn flow_label(local_qpn: u32, remote_qpn: u32) -> FlowLabel {
    let mut v = local_qpn as u64 * remote_qpn as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    let low = v as u32 & FlowLabel::MAX.value();
    FlowLabel::new(low).expect("twenty bits")
}

/// UDP source port of a connection: from the address vector's `label` unless that is zero, else
/// from the QP numbers. In 49152..=65535.
///
/// Fourteen bits remain of twenty, so QPs with different labels may still share a port, and then
/// a path.
pub const fn udp_source_port(label: FlowLabel, local_qpn: u32, remote_qpn: u32) -> u16 {
    let given = !label.is_zero();
    let label = if given { label } else { flow_label(local_qpn, remote_qpn) };
    label.udp_source_port()
}

/// What differs between the five-tuples of packets from a port to another, without loss: source
/// address in bits 63 to 40, destination address in 39 to 16, UDP source port below. Protocol (17)
/// and destination port (4791) are the same for every packet.
///
/// The label is the same in both directions of a connection, the five-tuple is not: requests and
/// acknowledgements may take different ways.
pub fn five_tuple_of(from: (HostId, PortId), to: (HostId, PortId), udp_source_port: u16) -> u64 {
    let (src, dst) = (address(from.0, from.1), address(to.0, to.1));
    u64::from(src) << 40 | u64::from(dst) << 16 | u64::from(udp_source_port)
}

#[cfg(test)]
mod tests {
    use doorbell_core::verbs::UDP_SOURCE_PORT_MIN;

    use super::*;

    fn port(label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
        udp_source_port(FlowLabel::new(label).expect("twenty bits"), local_qpn, remote_qpn)
    }

    #[test]
    fn label_of_the_address_vector_wins() {
        assert_eq!(port(1, 77, 99), 0xC001);
        assert_eq!(port(0x4000, 77, 99), 0xC001, "bit 14 folds onto bit 0");
        assert_eq!(port(0x4001, 77, 99), 0xC000, "and cancels it");
        assert_eq!(port(0xF_FFFF, 77, 99), 0xFFC0);
    }

    #[test]
    fn without_label_the_qp_numbers_decide() {
        assert_eq!(port(0, 17, 18), 0xC000 | (17 * 18));
        // 0xFFFFFF * 0xFFFFFF = 0xFFFFFE000001; the shifts work on all 48 bits.
        let v: u64 = 0xFFFF_FE00_0001;
        let v = v ^ (v >> 20);
        let v = v ^ (v >> 40);
        let label = flow_label(0xFF_FFFF, 0xFF_FFFF).value();
        assert_eq!((label, label), ((v & 0xF_FFFF) as u32, 0xF_FF1E));
        assert_eq!(port(0, 0, 5), 0xC000, "a QP number of zero gives the first port");
    }

    #[test]
    fn both_directions_agree_and_stay_in_range() {
        for a in [1u32, 2, 17, 4097, 0x1234, 0xFF_FFFE] {
            for b in [3u32, 18, 0x8000, 0xABCDEF] {
                let p = port(0, a, b);
                assert_eq!(p, port(0, b, a));
                assert!(p >= UDP_SOURCE_PORT_MIN);
            }
        }
    }
}
