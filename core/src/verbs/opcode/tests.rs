//! Every opcode against an independent table of facts, every work request opcode against every
//! QP type.

use std::string::{String, ToString};
use std::vec::Vec;

use super::*;

/// code, service, operation, direction, headers after the BTH, header bytes with BTH, starts,
/// ends, payload, takes a receive WQE.
const ROWS: [&str; 87] = [
    "00 RC SEND_FIRST request - 12 1 0 =PMTU yes",
    "01 RC SEND_MIDDLE request - 12 0 0 =PMTU no",
    "02 RC SEND_LAST request - 12 0 1 1..PMTU no",
    "03 RC SEND_LAST_IMM request IMMDT 16 0 1 1..PMTU no",
    "04 RC SEND_ONLY request - 12 1 1 0..PMTU yes",
    "05 RC SEND_ONLY_IMM request IMMDT 16 1 1 0..PMTU yes",
    "06 RC RDMA_WRITE_FIRST request RETH 28 1 0 =PMTU no",
    "07 RC RDMA_WRITE_MIDDLE request - 12 0 0 =PMTU no",
    "08 RC RDMA_WRITE_LAST request - 12 0 1 1..PMTU no",
    "09 RC RDMA_WRITE_LAST_IMM request IMMDT 16 0 1 1..PMTU yes",
    "0A RC RDMA_WRITE_ONLY request RETH 28 1 1 0..PMTU no",
    "0B RC RDMA_WRITE_ONLY_IMM request RETH+IMMDT 32 1 1 0..PMTU yes",
    "0C RC RDMA_READ_REQUEST request RETH 28 1 1 0 no",
    "0D RC RDMA_READ_RESPONSE_FIRST response AETH 16 1 0 =PMTU no",
    "0E RC RDMA_READ_RESPONSE_MIDDLE response - 12 0 0 =PMTU no",
    "0F RC RDMA_READ_RESPONSE_LAST response AETH 16 0 1 1..PMTU no",
    "10 RC RDMA_READ_RESPONSE_ONLY response AETH 16 1 1 0..PMTU no",
    "11 RC ACKNOWLEDGE response AETH 16 1 1 0 no",
    "12 RC ATOMIC_ACKNOWLEDGE response AETH+ATOMICACKETH 24 1 1 0 no",
    "13 RC COMPARE_SWAP request ATOMICETH 40 1 1 0 no",
    "14 RC FETCH_ADD request ATOMICETH 40 1 1 0 no",
    "15 RC RESERVED other - 12 - - - -",
    "16 RC SEND_LAST_INVALIDATE request IETH 16 0 1 1..PMTU no",
    "17 RC SEND_ONLY_INVALIDATE request IETH 16 1 1 0..PMTU yes",
    "1C RC FLUSH request FETH+RETH 32 1 1 0 no",
    "1D RC ATOMIC_WRITE request RETH 28 1 1 =8 no",
    "20 UC SEND_FIRST request - 12 1 0 =PMTU yes",
    "21 UC SEND_MIDDLE request - 12 0 0 =PMTU no",
    "22 UC SEND_LAST request - 12 0 1 1..PMTU no",
    "23 UC SEND_LAST_IMM request IMMDT 16 0 1 1..PMTU no",
    "24 UC SEND_ONLY request - 12 1 1 0..PMTU yes",
    "25 UC SEND_ONLY_IMM request IMMDT 16 1 1 0..PMTU yes",
    "26 UC RDMA_WRITE_FIRST request RETH 28 1 0 =PMTU no",
    "27 UC RDMA_WRITE_MIDDLE request - 12 0 0 =PMTU no",
    "28 UC RDMA_WRITE_LAST request - 12 0 1 1..PMTU no",
    "29 UC RDMA_WRITE_LAST_IMM request IMMDT 16 0 1 1..PMTU yes",
    "2A UC RDMA_WRITE_ONLY request RETH 28 1 1 0..PMTU no",
    "2B UC RDMA_WRITE_ONLY_IMM request RETH+IMMDT 32 1 1 0..PMTU yes",
    "40 RD SEND_FIRST request RDETH+DETH 24 1 0 =PMTU yes",
    "41 RD SEND_MIDDLE request RDETH+DETH 24 0 0 =PMTU no",
    "42 RD SEND_LAST request RDETH+DETH 24 0 1 1..PMTU no",
    "43 RD SEND_LAST_IMM request RDETH+DETH+IMMDT 28 0 1 1..PMTU no",
    "44 RD SEND_ONLY request RDETH+DETH 24 1 1 0..PMTU yes",
    "45 RD SEND_ONLY_IMM request RDETH+DETH+IMMDT 28 1 1 0..PMTU yes",
    "46 RD RDMA_WRITE_FIRST request RDETH+DETH+RETH 40 1 0 =PMTU no",
    "47 RD RDMA_WRITE_MIDDLE request RDETH+DETH 24 0 0 =PMTU no",
    "48 RD RDMA_WRITE_LAST request RDETH+DETH 24 0 1 1..PMTU no",
    "49 RD RDMA_WRITE_LAST_IMM request RDETH+DETH+IMMDT 28 0 1 1..PMTU yes",
    "4A RD RDMA_WRITE_ONLY request RDETH+DETH+RETH 40 1 1 0..PMTU no",
    "4B RD RDMA_WRITE_ONLY_IMM request RDETH+DETH+RETH+IMMDT 44 1 1 0..PMTU yes",
    "4C RD RDMA_READ_REQUEST request RDETH+DETH+RETH 40 1 1 0 no",
    "4D RD RDMA_READ_RESPONSE_FIRST response RDETH+AETH 20 1 0 =PMTU no",
    "4E RD RDMA_READ_RESPONSE_MIDDLE response RDETH 16 0 0 =PMTU no",
    "4F RD RDMA_READ_RESPONSE_LAST response RDETH+AETH 20 0 1 1..PMTU no",
    "50 RD RDMA_READ_RESPONSE_ONLY response RDETH+AETH 20 1 1 0..PMTU no",
    "51 RD ACKNOWLEDGE response RDETH+AETH 20 1 1 0 no",
    "52 RD ATOMIC_ACKNOWLEDGE response RDETH+AETH+ATOMICACKETH 28 1 1 0 no",
    "53 RD COMPARE_SWAP request RDETH+DETH+ATOMICETH 52 1 1 0 no",
    "54 RD FETCH_ADD request RDETH+DETH+ATOMICETH 52 1 1 0 no",
    "55 RD RESYNC request RDETH+DETH 24 1 1 0 no",
    "64 UD SEND_ONLY request DETH 20 1 1 0..PMTU yes",
    "65 UD SEND_ONLY_IMM request DETH+IMMDT 24 1 1 0..PMTU yes",
    "80 CNP CNP_INFINIBAND other 16_zero_bytes 12 1 1 16 no",
    "81 CNP CNP_ROCEV2 other 16_zero_bytes 12 1 1 16 no",
    "A0 XRC SEND_FIRST request XRCETH 16 1 0 =PMTU yes",
    "A1 XRC SEND_MIDDLE request XRCETH 16 0 0 =PMTU no",
    "A2 XRC SEND_LAST request XRCETH 16 0 1 1..PMTU no",
    "A3 XRC SEND_LAST_IMM request XRCETH+IMMDT 20 0 1 1..PMTU no",
    "A4 XRC SEND_ONLY request XRCETH 16 1 1 0..PMTU yes",
    "A5 XRC SEND_ONLY_IMM request XRCETH+IMMDT 20 1 1 0..PMTU yes",
    "A6 XRC RDMA_WRITE_FIRST request XRCETH+RETH 32 1 0 =PMTU no",
    "A7 XRC RDMA_WRITE_MIDDLE request XRCETH 16 0 0 =PMTU no",
    "A8 XRC RDMA_WRITE_LAST request XRCETH 16 0 1 1..PMTU no",
    "A9 XRC RDMA_WRITE_LAST_IMM request XRCETH+IMMDT 20 0 1 1..PMTU yes",
    "AA XRC RDMA_WRITE_ONLY request XRCETH+RETH 32 1 1 0..PMTU no",
    "AB XRC RDMA_WRITE_ONLY_IMM request XRCETH+RETH+IMMDT 36 1 1 0..PMTU yes",
    "AC XRC RDMA_READ_REQUEST request XRCETH+RETH 32 1 1 0 no",
    "AD XRC RDMA_READ_RESPONSE_FIRST response AETH 16 1 0 =PMTU no",
    "AE XRC RDMA_READ_RESPONSE_MIDDLE response - 12 0 0 =PMTU no",
    "AF XRC RDMA_READ_RESPONSE_LAST response AETH 16 0 1 1..PMTU no",
    "B0 XRC RDMA_READ_RESPONSE_ONLY response AETH 16 1 1 0..PMTU no",
    "B1 XRC ACKNOWLEDGE response AETH 16 1 1 0 no",
    "B2 XRC ATOMIC_ACKNOWLEDGE response AETH+ATOMICACKETH 24 1 1 0 no",
    "B3 XRC COMPARE_SWAP request XRCETH+ATOMICETH 44 1 1 0 no",
    "B4 XRC FETCH_ADD request XRCETH+ATOMICETH 44 1 1 0 no",
    "B6 XRC SEND_LAST_INVALIDATE request XRCETH+IETH 20 0 1 1..PMTU no",
    "B7 XRC SEND_ONLY_INVALIDATE request XRCETH+IETH 20 1 1 0..PMTU yes",
];

fn headers(o: Opcode) -> String {
    let parts = [
        (o.has_rdeth(), "RDETH"),
        (o.has_xrceth(), "XRCETH"),
        (o.has_deth(), "DETH"),
        (o.has_feth(), "FETH"),
        (o.has_reth(), "RETH"),
        (o.has_atomic_eth(), "ATOMICETH"),
        (o.has_aeth(), "AETH"),
        (o.has_atomic_ack_eth(), "ATOMICACKETH"),
        (o.has_imm(), "IMMDT"),
        (o.has_ieth(), "IETH"),
    ];
    let names: Vec<&str> = parts.into_iter().filter(|p| p.0).map(|p| p.1).collect();
    if names.is_empty() { "-".to_string() } else { names.join("+") }
}

fn payload(o: Opcode) -> &'static str {
    match o.payload() {
        PayloadRule::Empty => "0",
        PayloadRule::Full => "=PMTU",
        PayloadRule::OneToMtu => "1..PMTU",
        PayloadRule::ZeroToMtu => "0..PMTU",
        PayloadRule::Exact(8) => "=8",
        PayloadRule::Exact(16) => "16",
        PayloadRule::Exact(_) => "?",
    }
}

/// `SEND_LAST_IMM` of `SendLastImm`.
fn spec_name(o: Opcode) -> String {
    match o {
        Opcode::CnpInfiniband => return "CNP_INFINIBAND".to_string(),
        Opcode::CnpRoceV2 => return "CNP_ROCEV2".to_string(),
        _ => (),
    }
    let mut out = String::new();
    for c in std::format!("{:?}", o.operation()).chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

#[test]
fn every_row_of_the_table() {
    let mut defined = Vec::new();
    for row in ROWS {
        let c: Vec<&str> = row.split(' ').collect();
        let code = u8::from_str_radix(c[0], 16).unwrap();
        if c[2] == "RESERVED" {
            assert!(Opcode::try_from(code).is_err());
            continue;
        }
        let o = Opcode::try_from(code).unwrap();
        defined.push(o);
        let direction = match (o.is_request(), o.is_response()) {
            (true, false) => "request",
            (false, true) => "response",
            _ => "other",
        };
        // The zero bytes of a CNP count as payload here.
        let extra = if c[4] == "16_zero_bytes" { "-" } else { c[4] };
        assert_eq!(o.value(), code);
        assert_eq!(o.service().to_string(), c[1], "{row}");
        assert_eq!(spec_name(o), c[2], "{row}");
        assert_eq!(direction, c[3], "{row}");
        assert_eq!(headers(o), extra, "{row}");
        assert_eq!(o.header_bytes().to_string(), c[5], "{row}");
        assert_eq!(o.starts_message(), c[6] == "1", "{row}");
        assert_eq!(o.ends_message(), c[7] == "1", "{row}");
        assert_eq!(payload(o), c[8], "{row}");
        assert_eq!(o.has_payload(), c[8] != "0", "{row}");
        assert_eq!(o.consumes_recv(), c[9] == "yes", "{row}");
    }
    assert_eq!(defined, Opcode::ALL, "no opcode that the table does not have");
}

#[test]
fn bytes_without_a_row_are_refused() {
    let known = (0..=255).filter(|&b| Opcode::try_from(b).is_ok()).count();
    assert_eq!(known, Opcode::ALL.len());
    let e = Opcode::try_from(0x15).unwrap_err();
    assert_eq!(e.to_string(), "0x15 is no BTH opcode");
}

#[test]
fn service_and_operation_lead_back_to_the_opcode() {
    for &o in Opcode::ALL {
        let back = Opcode::of(o.service(), o.operation());
        let expect = (o.operation() != Operation::Cnp).then_some(o);
        assert_eq!(back, expect);
        assert_eq!(o.value() & 0xE0, o.service().base(), "{o:?}");
    }
    let pairs = Operation::ALL.len() * 6;
    let services = [Service::Rc, Service::Uc, Service::Rd, Service::Ud, Service::Cnp, Service::Xrc];
    let none = services
        .into_iter()
        .flat_map(|s| Operation::ALL.iter().map(move |&op| Opcode::of(s, op)))
        .filter(Option::is_none)
        .count();
    assert_eq!(none, pairs - (Opcode::ALL.len() - 2));
    assert_eq!(Opcode::of(Service::Cnp, Operation::SendFirst), None);
    assert_eq!(Opcode::of(Service::Ud, Operation::SendFirst), None);
    assert_eq!(Opcode::of(Service::Uc, Operation::SendOnlyInvalidate), None);
}

#[test]
fn opcodes_print_as_wireshark_does() {
    let names = [
        (Opcode::RcRdmaWriteOnlyImm, "RC RDMA Write Only Immediate"),
        (Opcode::RcRdmaReadResponseMiddle, "RC RDMA Read Response Middle"),
        (Opcode::RcAtomicAcknowledge, "RC Atomic Acknowledge"),
        (Opcode::UcSendLastImm, "UC Send Last Immediate"),
        (Opcode::UdSendOnly, "UD Send Only"),
        (Opcode::CnpRoceV2, "CNP"),
    ];
    for (o, name) in names {
        assert_eq!(o.to_string(), name);
    }
}

#[test]
fn payload_rules_on_both_sides() {
    let mtu = 1024;
    let legal = |r: PayloadRule| [0, 1, 8, 16, 1023, 1024, 1025].map(|n| r.allows(n, mtu));
    let (t, f) = (true, false);
    assert_eq!(legal(PayloadRule::Empty), [t, f, f, f, f, f, f]);
    assert_eq!(legal(PayloadRule::Full), [f, f, f, f, f, t, f]);
    assert_eq!(legal(PayloadRule::OneToMtu), [f, t, t, t, t, t, f]);
    assert_eq!(legal(PayloadRule::ZeroToMtu), [t, t, t, t, t, t, f]);
    assert_eq!(legal(PayloadRule::Exact(8)), [f, f, t, f, f, f, f]);
}

/// Name, value, QP types that take it (RC, UC, UD, RAW_PACKET, XRC_SEND, XRC_RECV, DRIVER),
/// inline, completion.
type WrRow = (WrOpcode, u8, &'static str, bool, Option<WcOpcode>);

const WR_ROWS: [WrRow; 14] = [
    (WrOpcode::RdmaWrite, 0, "xx..x..", true, Some(WcOpcode::RdmaWrite)),
    (WrOpcode::RdmaWriteWithImm, 1, "xx..x..", true, Some(WcOpcode::RdmaWrite)),
    (WrOpcode::Send, 2, "xxxxx..", true, Some(WcOpcode::Send)),
    (WrOpcode::SendWithImm, 3, "xxx.x..", true, Some(WcOpcode::Send)),
    (WrOpcode::RdmaRead, 4, "x...x..", false, Some(WcOpcode::RdmaRead)),
    (WrOpcode::AtomicCmpAndSwp, 5, "x...x..", false, Some(WcOpcode::CompSwap)),
    (WrOpcode::AtomicFetchAndAdd, 6, "x...x..", false, Some(WcOpcode::FetchAdd)),
    (WrOpcode::LocalInv, 7, "xx..x..", false, Some(WcOpcode::LocalInv)),
    (WrOpcode::BindMw, 8, "xx..x..", false, Some(WcOpcode::BindMw)),
    (WrOpcode::SendWithInv, 9, "xx..x..", true, Some(WcOpcode::Send)),
    (WrOpcode::Tso, 10, "..xx...", false, Some(WcOpcode::Tso)),
    (WrOpcode::Driver1, 11, "......x", false, None),
    (WrOpcode::Flush, 14, "x...x..", false, Some(WcOpcode::Flush)),
    (WrOpcode::AtomicWrite, 15, "x...x..", false, Some(WcOpcode::AtomicWrite)),
];

#[test]
fn every_work_request_opcode_on_every_qp_type() {
    assert_eq!(WrOpcode::ALL, WR_ROWS.map(|r| r.0));
    for (op, value, types, inline, wc) in WR_ROWS {
        assert_eq!(op.value(), value);
        assert_eq!(WrOpcode::try_from(u32::from(value)), Ok(op));
        let legal = QpType::ALL.map(|ty| if op.allowed_on(ty) { 'x' } else { '.' });
        assert_eq!(legal.iter().collect::<String>(), types, "{op}");
        assert_eq!(op.may_be_inline(), inline, "{op}");
        assert_eq!(op.wc_opcode(), wc, "{op}");
    }
    for v in [12, 13, 16, 256] {
        assert!(WrOpcode::try_from(v).is_err());
    }
}

#[test]
fn completion_opcodes_have_these_values() {
    let values: Vec<u8> = WcOpcode::ALL.iter().map(|o| o.value()).collect();
    assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 128, 129]);
    let recv: Vec<_> = WcOpcode::ALL.iter().filter(|o| o.is_recv()).collect();
    assert_eq!(recv, [&WcOpcode::Recv, &WcOpcode::RecvRdmaWithImm]);
    assert!(WcOpcode::try_from(10).is_err() && WcOpcode::try_from(130).is_err());
    assert_eq!(WcOpcode::RecvRdmaWithImm.to_string(), "IBV_WC_RECV_RDMA_WITH_IMM");
}

/// A request is cut into packets that agree with it: the first starts, the last ends, and
/// exactly one takes a receive WQE when the request does.
#[test]
fn packets_of_each_request() {
    for &w in WrOpcode::ALL {
        let Some(only) = w.packet(true, true) else {
            assert!(
                !w.allowed_on(QpType::Rc) || matches!(w, WrOpcode::LocalInv | WrOpcode::BindMw)
            );
            continue;
        };
        assert!(only.starts_message() && only.ends_message());
        assert!(Opcode::of(Service::Rc, only).is_some_and(Opcode::is_request), "{w}");
        assert_eq!(only.consumes_recv(), w.consumes_recv(), "{w}");
        assert_eq!(only.is_atomic() || only == Operation::RdmaReadRequest, w.is_read_or_atomic());
        let parts = [w.packet(true, false), w.packet(false, false), w.packet(false, true)];
        if !w.may_be_inline() {
            assert_eq!(parts, [None; 3], "{w}");
            continue;
        }
        let [first, middle, last] = parts.map(|p| p.unwrap());
        assert!(first.starts_message() && !first.ends_message());
        assert!(!middle.starts_message() && !middle.ends_message());
        assert!(!last.starts_message() && last.ends_message());
        let taken = [first, middle, last].into_iter().filter(|p| p.consumes_recv()).count();
        assert_eq!(taken, usize::from(w.consumes_recv()), "{w}");
        assert_eq!((last.has_imm(), last.has_ieth()), (only.has_imm(), only.has_ieth()));
        assert_eq!(first.has_reth(), only.has_reth());
        assert_eq!(only.is_send(), first.is_send() && middle.is_send() && last.is_send());
        assert_ne!(only.is_send(), only.is_rdma_write());
    }
}
