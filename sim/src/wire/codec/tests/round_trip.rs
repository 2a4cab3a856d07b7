//! Every descriptor that the engine can make, with any outer headers, comes back as it went; and
//! what the decoder takes, the encoder gives back.

use doorbell_core::verbs::{Msn, Opcode, PKey, QKey, Rkey, Syndrome};
use proptest::prelude::*;

use super::super::MIN_FRAME;
use super::super::headers::supported;
use super::*;

fn opcodes() -> impl Strategy<Value = Opcode> {
    let all: Vec<Opcode> = Opcode::ALL.iter().copied().filter(|o| supported(*o)).collect();
    prop::sample::select(all)
}

/// The extended header of an opcode, made of any numbers.
fn ext(opcode: Opcode, (a, b, c): (u64, u64, u64)) -> Ext {
    let (va, rkey, dma_len, imm) = (a, Rkey(b as u32), c as u32, (c >> 32) as u32);
    let (syndrome, msn) = (Syndrome::decode(a as u8), Msn::new(b as u32));
    let (qkey, src) = (QKey(a as u32), Qpn::new(b as u32));
    match (opcode.has_reth(), opcode.has_deth(), opcode.has_imm()) {
        (true, _, false) => Ext::Reth { va, rkey, dma_len },
        (true, _, true) => Ext::RethImm { va, rkey, dma_len, imm },
        (_, true, false) => Ext::Deth { qkey, src },
        (_, true, true) => Ext::DethImm { qkey, src, imm },
        (false, false, true) => Ext::Imm(imm),
        _ if opcode.has_atomic_eth() => Ext::Atomic { va, rkey, swap_add: b, compare: c },
        _ if opcode.has_atomic_ack_eth() => Ext::AtomicAck { syndrome, msn, orig: c },
        _ if opcode.has_aeth() => Ext::Aeth { syndrome, msn },
        _ if opcode.has_ieth() => Ext::Invalidate(rkey),
        _ => Ext::None,
    }
}

prop_compose! {
    fn descs()(
        opcode in opcodes(),
        (dest, psn) in (any::<u32>(), any::<u32>()),
        (ack_req, solicited) in (any::<bool>(), any::<bool>()),
        len in prop_oneof![0_u32..70, 4090_u32..=4096],
        numbers in any::<(u64, u64, u64)>(),
    ) -> PacketDesc {
        let ext = ext(opcode, numbers);
        PacketDesc { ack_req, solicited, ..desc(opcode, (dest, psn), len, ext) }
    }
}

fn ips() -> impl Strategy<Value = Ip> {
    let v4 = any::<(u8, u16, bool, u8, [u8; 4], [u8; 4])>().prop_map(
        |(traffic_class, id, dont_fragment, ttl, src, dst)| Ip::V4 {
            traffic_class,
            id,
            dont_fragment,
            ttl,
            src: src.into(),
            dst: dst.into(),
        },
    );
    let v6 = (any::<u8>(), 0..=Ip::MAX_FLOW_LABEL, any::<(u8, [u8; 16], [u8; 16])>()).prop_map(
        |(traffic_class, flow_label, (hop_limit, src, dst))| Ip::V6 {
            traffic_class,
            flow_label,
            hop_limit,
            src: src.into(),
            dst: dst.into(),
        },
    );
    prop_oneof![v4, v6]
}

prop_compose! {
    fn outers()(
        (dst, src, vlan) in any::<([u8; 6], [u8; 6], Option<u16>)>(),
        ip in ips(),
        (source, valid) in any::<(u16, bool)>(),
        (pkey, mig_req, fecn, becn) in any::<(u16, bool, bool, bool)>(),
    ) -> Outer {
        let checksum = if valid { UdpChecksum::Valid } else { UdpChecksum::None };
        Outer {
            eth: Ethernet { dst: Mac(dst), src: Mac(src), vlan },
            ip,
            udp: Udp { source, checksum },
            bth: BthBits { pkey: PKey(pkey), mig_req, fecn, becn },
        }
    }
}

proptest! {
    #[test]
    fn any_descriptor_comes_back(outer in outers(), desc in descs(), fill in any::<u8>()) {
        let payload = vec![fill; desc.len as usize];
        there_and_back(&outer, &desc, &payload);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    /// A frame with bytes overwritten: what is still taken is given back byte for byte.
    #[test]
    fn what_is_taken_is_given_back(
        (outer, desc) in (outers(), descs()),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..4),
        cut in any::<u16>(),
    ) {
        let mut bytes = frame(&outer, &desc, &vec![1; desc.len as usize]);
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len().min(90);
            bytes[at] = byte;
        }
        if cut < 0x2000 {
            bytes.truncate(usize::from(cut) % (bytes.len() + 1));
        }
        if let Ok(d) = decode(&bytes) {
            let again = frame(&d.outer, &d.desc, d.payload);
            bytes.resize(bytes.len().max(MIN_FRAME), 0);
            prop_assert_eq!(again, bytes);
        }
    }
}

/// The lists above are complete: each kind of extended header is drawn for some opcode.
#[test]
fn every_supported_opcode_has_its_header() {
    let mut seen = [false; 10];
    for opcode in Opcode::ALL.iter().copied().filter(|o| supported(*o)) {
        let d = desc(opcode, (7, 8), 4, ext(opcode, (1, 2, 3 << 32 | 4)));
        there_and_back(&outer(), &d, b"abcd");
        let kind = match d.ext {
            Ext::None => 0,
            Ext::Reth { .. } => 1,
            Ext::RethImm { .. } => 2,
            Ext::Imm(_) => 3,
            Ext::Invalidate(_) => 4,
            Ext::Atomic { .. } => 5,
            Ext::Aeth { .. } => 6,
            Ext::AtomicAck { .. } => 7,
            Ext::Deth { .. } => 8,
            Ext::DethImm { .. } => 9,
            Ext::Sack { .. } => panic!("no opcode has it"),
        };
        seen[kind] = true;
    }
    assert_eq!(seen, [true; 10]);
}
