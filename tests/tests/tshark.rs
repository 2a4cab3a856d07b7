//! tshark reads what we write: every packet is InfiniBand to it, none is malformed but those that
//! its heuristics are known for, and field by field it reads what our own decoder reads.
//!
//! Without tshark it says so and passes, save in CI.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use doorbell::report::PcapNg;
use doorbell::run::MetricValue;
use doorbell_core::units::{BitRate, Time};
use doorbell_core::verbs::{
    FlowLabel, Msn, Opcode, Operation, Psn, QKey, QpType, Qpn, Rkey, Service, Syndrome,
};
use doorbell_sim::capture::{CaptureSink, Direction, Interface, LinkType, Seen, ib_outer, outer};
use doorbell_sim::rc::{Ext, PacketDesc};
use doorbell_sim::wire::codec::{
    BthBits, Decoded, IbDecoded, LRH_BYTES, Lrh, VCRC_BYTES, decode, decode_ib, encode, encode_ib,
};
use doorbell_sim::wire::{Encapsulation, HostId, Packet, Payload, PortId, udp_source_port};
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::captured::{Shared, built_in, captured, points, records};
use doorbell_tests::command::Folder;
use doorbell_tests::machine;
use doorbell_tests::plan::{Plan, plans};
use doorbell_tests::player::Player;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Fields that both list, in this order.
const FIELDS: [&str; 34] = [
    "frame.interface_name",
    "frame.time_epoch",
    "frame.comment",
    "udp.srcport",
    "infiniband.lrh.vl",
    "infiniband.lrh.lver",
    "infiniband.lrh.sl",
    "infiniband.lrh.lnh",
    "infiniband.lrh.dlid",
    "infiniband.lrh.pktlen",
    "infiniband.lrh.slid",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.invariant.crc",
    "infiniband.variant.crc",
];

/// Whether there is a tshark, or what to do without one.
fn ready() -> bool {
    let version = Command::new("tshark").arg("--version").output();
    if let Ok(version) = version {
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        println!("{}", text.lines().next().unwrap_or_default());
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI has no tshark: apt-get install tshark");
    println!("skipped: there is no tshark; apt-get install tshark");
    false
}

/// Lines of tshark about a file.
fn tshark(file: &str, options: &[&str]) -> Vec<String> {
    let out = Command::new("tshark").args(["-n", "-r", file]).args(options).output();
    let out = out.expect("tshark starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

/// A number as tshark prints it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Numbers alike whatever their base and width, everything else as it stands. Immediate data and
/// the key to invalidate are bytes to tshark, which lists them twice.
fn plain(field: &str, text: &str) -> String {
    let (first, second) = text.split_once(',').unwrap_or((text, text));
    match text {
        _ if matches!(field, "infiniband.immdt" | "infiniband.ieth")
            && first == second
            && !text.is_empty() =>
        {
            u32::from_str_radix(first, 16).expect("four bytes").to_string()
        }
        "True" => "1".into(),
        "False" => "0".into(),
        _ => number(text).map_or_else(|| text.to_owned(), |n| n.to_string()),
    }
}

/// What our decoders say of a packet.
struct Ours {
    desc: PacketDesc,
    bth: BthBits,
    /// Of RoCEv2.
    udp_source: Option<u16>,
    /// Of native InfiniBand.
    lrh: Option<Lrh>,
    /// Where the payload begins, or the ICRC of a packet without.
    payload_at: usize,
}

fn read(frame: &[u8]) -> Ours {
    if let Ok(IbDecoded { outer, desc, .. }) = decode_ib(frame) {
        let payload_at = LRH_BYTES + desc.opcode.header_bytes() as usize;
        return Ours { desc, bth: outer.bth, udp_source: None, lrh: Some(outer.lrh), payload_at };
    }
    let Decoded { outer, desc, .. } = decode(frame).expect("one of ours");
    let tag = if outer.eth.vlan.is_some() { 4 } else { 0 };
    let payload_at = 14 + tag + outer.ip.bytes() + 8 + desc.opcode.header_bytes() as usize;
    let udp_source = Some(outer.udp.source);
    Ours { desc, bth: outer.bth, udp_source, lrh: None, payload_at }
}

/// What our decoder says, in the order of `FIELDS` from `udp.srcport` on; empty where the packet
/// has no such field.
fn ours(frame: &[u8]) -> Vec<String> {
    let Ours { desc, bth, udp_source, lrh, payload_at } = read(frame);
    let mut fields = BTreeMap::new();
    let mut put = |name: &'static str, n: u64| fields.insert(name, n.to_string());
    let pad = desc.len.wrapping_neg() % 4;
    let at = payload_at + (desc.len + pad) as usize;
    let crc: [u8; 4] = frame[at..at + 4].try_into().expect("four bytes");
    if let Some(port) = udp_source {
        put("udp.srcport", port.into());
    }
    if let Some(Lrh { vl, sl, dlid, slid }) = lrh {
        put("infiniband.lrh.vl", vl.into());
        put("infiniband.lrh.lver", 0);
        put("infiniband.lrh.sl", sl.into());
        put("infiniband.lrh.lnh", 2);
        put("infiniband.lrh.dlid", dlid.into());
        put("infiniband.lrh.pktlen", (frame.len() - VCRC_BYTES) as u64 / 4);
        put("infiniband.lrh.slid", slid.into());
        let vcrc = [frame[frame.len() - 2], frame[frame.len() - 1]];
        put("infiniband.variant.crc", u16::from_be_bytes(vcrc).into());
    }
    put("infiniband.bth.opcode", desc.opcode.value().into());
    put("infiniband.bth.se", desc.solicited.into());
    put("infiniband.bth.m", bth.mig_req.into());
    put("infiniband.bth.padcnt", pad.into());
    put("infiniband.bth.tver", 0);
    put("infiniband.bth.p_key", bth.pkey.0.into());
    put("infiniband.bth.destqp", desc.dest.value().into());
    put("infiniband.bth.a", desc.ack_req.into());
    put("infiniband.bth.psn", desc.psn.value().into());
    put("infiniband.invariant.crc", u32::from_be_bytes(crc).into());
    let mut put = |name: &'static str, n: u64| fields.insert(name, n.to_string());
    match desc.ext {
        Ext::None => {}
        Ext::Reth { va, rkey, dma_len } | Ext::RethImm { va, rkey, dma_len, .. } => {
            put("infiniband.reth.va", va);
            put("infiniband.reth.r_key", rkey.0.into());
            put("infiniband.reth.dmalen", dma_len.into());
        }
        Ext::Invalidate(rkey) => {
            put("infiniband.ieth", rkey.0.into());
        }
        Ext::Atomic { va, rkey, swap_add, compare } => {
            put("infiniband.reth.va", va);
            put("infiniband.reth.r_key", rkey.0.into());
            put("infiniband.atomiceth.swapdt", swap_add);
            put("infiniband.atomiceth.cmpdt", compare);
        }
        Ext::Aeth { syndrome, msn } | Ext::AtomicAck { syndrome, msn, .. } => {
            put("infiniband.aeth.syndrome", syndrome.encode().into());
            put("infiniband.aeth.msn", msn.value().into());
        }
        Ext::Deth { qkey, src } | Ext::DethImm { qkey, src, .. } => {
            put("infiniband.deth.q_key", qkey.0.into());
            put("infiniband.deth.srcqp", src.value().into());
        }
        Ext::Imm(_) => {}
        Ext::Sack { .. } => panic!("captures show a sequence NAK in its place"),
    }
    match desc.ext {
        Ext::Imm(imm) | Ext::RethImm { imm, .. } | Ext::DethImm { imm, .. } => {
            put("infiniband.immdt", imm.into());
        }
        Ext::AtomicAck { orig, .. } => {
            put("infiniband.atomicacketh.origremdt", orig);
        }
        _ => {}
    }
    FIELDS[3..].iter().map(|f| fields.remove(f).unwrap_or_default()).collect()
}

/// Packets whose payload looks to tshark like another protocol's: an ethertype and two zeros, or
/// of a datagram the first four bits of EoIB, for which it also takes one without payload
/// (`protocol.md` §1.7). It then says nothing of the ICRC, and may find the other malformed.
fn mistaken(frame: &[u8]) -> bool {
    let Ours { desc, payload_at, .. } = read(frame);
    let first = &frame[payload_at..][..4];
    let ethertype = first[0] >= 6 && first[2..] == [0, 0];
    let eoib = desc.len == 0 || first[0] >> 4 == 0xC;
    ethertype || desc.opcode.service() == Service::Ud && eoib
}

/// Packets that tshark may call malformed: mistaken ones, and some RC SENDs, of which its
/// RPC-over-RDMA heuristic reads 16 bytes (`protocol.md` §1.7).
fn excused(frame: &[u8], heuristics: bool) -> bool {
    let desc = read(frame).desc;
    let op = desc.opcode.operation();
    let send = matches!(
        op,
        Operation::SendLast
            | Operation::SendOnly
            | Operation::SendLastInvalidate
            | Operation::SendOnlyInvalidate
    );
    match desc.opcode.service() {
        _ if mistaken(frame) => true,
        Service::Rc => heuristics && send && desc.len <= 12,
        _ => false,
    }
}

/// Holds tshark's reading of a file against ours; gives the opcodes that were in it.
fn agree(folder: &Folder, name: &str, file: &[u8]) -> BTreeMap<u8, usize> {
    let records = records(file);
    assert!(!records.is_empty(), "{name} is empty");
    let path = folder.file(&format!("{name}.pcapng"), file);
    // With the heuristic that goes wrong (see `excused`) the fields behind would be missing.
    let off = ["--disable-heuristic", "rpcrdma_infiniband"];
    let mut options = vec!["-T", "fields", "-E", "separator=/t", "-e", "frame.protocols"];
    options.extend(off);
    FIELDS.iter().for_each(|f| options.extend(["-e", f]));
    let lines = tshark(&path, &options);
    assert_eq!(lines.len(), records.len(), "{name}");
    let mut opcodes = BTreeMap::new();
    for (i, (line, record)) in lines.iter().zip(&records).enumerate() {
        let mut theirs = line.split('\t');
        let protocols = theirs.next().unwrap_or_default();
        let stack = match read(&record.frame).lrh {
            Some(_) => "erf:infiniband",
            None => ":udp:infiniband",
        };
        assert!(protocols.contains(stack), "{name}, frame {}: {line}", i + 1);
        let seconds = record.nanoseconds / 1_000_000_000;
        let stamp = format!("{seconds}.{:09}", record.nanoseconds % 1_000_000_000);
        let mut want = vec![record.interface.clone(), stamp, record.comment.clone()];
        want.extend(ours(&record.frame));
        let theirs: Vec<String> = theirs
            .enumerate()
            .map(|(k, text)| if k < 3 { text.to_owned() } else { plain(FIELDS[k], text) })
            .collect();
        let opcode = read(&record.frame).desc.opcode;
        // Of a CNP it says that the headers are unknown to it, and no more.
        let cnp = opcode.service() == Service::Cnp;
        let fields = FIELDS.len() - if cnp || mistaken(&record.frame) { 2 } else { 0 };
        for (k, field) in FIELDS.iter().enumerate().take(fields) {
            assert_eq!(theirs[k], want[k], "{name}, frame {}, {field}: {line}", i + 1);
        }
        *opcodes.entry(opcode.value()).or_default() += 1;
    }
    for heuristics in [true, false] {
        let filter = ["-Y", "_ws.malformed || _ws.expert.severity >= 0x600000"];
        let mut options = vec!["-T", "fields", "-e", "frame.number"];
        options.extend(filter);
        if !heuristics {
            options.extend(off);
        }
        for line in tshark(&path, &options) {
            let frame = &records[line.parse::<usize>().expect("a frame number") - 1].frame;
            assert!(excused(frame, heuristics), "{name}, frame {line} is malformed: {frame:02x?}");
        }
    }
    println!("{name}: {} packets, opcodes {opcodes:02x?}", records.len());
    opcodes
}

#[test]
fn captures_of_scenarios() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-scenarios");
    let names = ["hello", "case_f01_one_outstanding_read", "case_f05_atomics_share_the_read_depth"];
    let mut seen = BTreeMap::new();
    for name in names {
        let (_, file) = captured(&built_in(name)[0]);
        seen.extend(agree(&folder, name, &file));
    }
    use Opcode::*;
    for op in [RcRdmaWriteOnly, RcRdmaReadRequest, RcFetchAdd, RcAtomicAcknowledge, RcAcknowledge] {
        assert!(seen.contains_key(&op.value()), "{op:?} in {seen:?}");
    }
}

/// What is on its way when a queue pair dies leaves whole or not at all.
#[test]
fn issue_004_captures_of_queue_pairs_that_die() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-deaths");
    let refused = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
                   steps = ['post write 64B rkey=wrong', 'post write 1MiB', 'ring', 'wait', \
                   'compute 100us']\n";
    let all = points("refused", refused).into_iter().chain(built_in("case_h01_bad_or_stale_key"));
    let all = all.chain(built_in("case_h06_local_error_stays_local"));
    for (i, point) in all.enumerate() {
        let (outcome, file) = captured(&point);
        // A local error before anything left has nothing to show.
        match outcome.counters["tx_packets"] {
            0 => assert!(records(&file).is_empty(), "death{i}"),
            _ => drop(agree(&folder, &format!("death{i}"), &file)),
        }
    }
}

/// Native InfiniBand, on a cable and over a switch.
#[test]
fn captures_of_infiniband() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-infiniband");
    for (name, topology) in [("cable", ""), ("switch", "[topology]\nkind = 'switch'\n")] {
        let text = format!(
            "title = 't'\nprofile = 'cx3-qdr'\n{topology}[[program]]\nkind = 'script'\n\
             steps = ['post write 8B x3', 'post read 4KiB', 'post fetch-add', 'ring', 'wait 5']\n"
        );
        let (_, file) = captured(&points(name, &text)[0]);
        let seen = agree(&folder, name, &file);
        assert!(seen.contains_key(&Opcode::RcFetchAdd.value()), "{seen:?}");
    }
}

/// Pause frames: MAC control with opcode, vector and quanta, each pause followed by a resume.
#[test]
fn captures_of_pauses() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-pauses");
    let text = "title = 't'\nprofile = 'generic-400g'\n[run]\nhost = 'ideal'\nnoise = 'off'\n\
                [topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\nswitch = 'pfc'\n\
                [switch]\nbuffer = '1MB'\n[[switch.class]]\nlossless = false\n\
                [[switch.class]]\n[qp]\nsl = 1\n[[program]]\nkind = 'bandwidth'\nhost = 1\n\
                hosts = 2\npeer = 0\nsize = '64KiB'\niterations = 40\n";
    let (outcome, file) = captured(&points("pauses", text)[0]);
    let path = folder.file("pauses.pcapng", &file);
    let fields = ["frame.interface_name", "macc.opcode", "macc.cbfc.enbv", "eth.dst"];
    let mut options = vec!["-Y", "macc", "-T", "fields"];
    let times = ["macc.cbfc.pause_time.c0", "macc.cbfc.pause_time.c1"];
    options.extend(fields.iter().chain(&times).flat_map(|f| ["-e", f]));
    let lines = tshark(&path, &options);
    let sent = lines.iter().filter(|l| l.starts_with("switch0"));
    let sent: Vec<Vec<&str>> = sent.map(|l| l.split('\t').collect()).collect();
    let number = |name: &str| match outcome.metrics[name].value {
        MetricValue::Integer(n) => n as usize,
        _ => panic!("{name} is a count"),
    };
    let (off, on) = (number("pause_frames"), number("resume_frames"));
    assert!(off > 0 && on > 0, "{lines:?}");
    let quanta = |l: &Vec<&str>| l[5].parse::<u32>().expect("quanta");
    assert_eq!(sent.iter().filter(|l| quanta(l) == 65_535).count(), off);
    assert_eq!(sent.iter().filter(|l| quanta(l) == 0).count(), on);
    for l in &sent {
        let rest = (l[1], l[2], l[3], l[4]);
        assert_eq!(rest, ("0x0101", "0x0002", "01:80:c2:00:00:01", "0"), "{l:?}");
    }
    assert_eq!(lines.len(), 2 * sent.len(), "each at the host that gets it as well");
    assert!(tshark(&path, &["-Y", "_ws.malformed"]).is_empty());
}

/// Comments of retransmissions and NAKs: tshark shows them as they were written.
#[test]
fn captures_of_losses_have_reasons() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-losses");
    let mut reasons = 0;
    let (read, receive) = ("case_m02_ack_over_a_read", "case_b04_rnr_retry_0");
    let atomic = "case_h05_misaligned_atomic";
    for (name, variant) in [(read, "third-of-4"), (receive, "retry-3"), (atomic, "qp-right")] {
        let points = built_in(name);
        let (_, file) = captured(points.iter().find(|p| p.label() == variant).expect(variant));
        agree(&folder, name, &file);
        let path = folder.file("again.pcapng", &file);
        let filter = "frame.comment matches \"^(retransmission|duplicate|RNR NAK|NAK)\"";
        reasons += tshark(&path, &["-Y", filter]).len();
    }
    // Each at both ports: 3 of the READ, 4 RNR NAKs with 3 retransmissions, and a NAK.
    assert_eq!(reasons, 2 * (3 + 7 + 1));
}

fn plan(ty: QpType, runner: &mut TestRunner) -> Arc<Plan> {
    let plans = plans();
    let mut draws = (0..).map(|_| plans.new_tree(runner).expect("no filters").current());
    Arc::new(draws.find(|p| p.ty == ty).expect("each service is drawn"))
}

/// Random programs of each service: every operation that they post, at every length.
#[test]
fn captures_of_random_programs() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-programs");
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for i in 0..3 {
            let plan = plan(ty, &mut runner);
            let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
            let file = Shared::default();
            world.capture_to(Box::new(PcapNg::new(file.clone())));
            for rank in 0..2 {
                let program = Player::new(plan.clone(), rank);
                world.add_program(HostId(rank as u32), machine::core(0), Time::ZERO, program);
            }
            assert_eq!(world.run(Time::MAX), RunEnd::Done);
            world.end_capture().unwrap();
            if !records(&file.bytes()).is_empty() {
                seen.extend(agree(&folder, &format!("{ty:?}-{i}"), &file.bytes()));
            }
        }
    }
    use Opcode::*;
    let wanted = [
        RcSendOnlyImm,
        RcSendFirst,
        RcRdmaReadResponseMiddle,
        RcCompareSwap,
        UcRdmaWriteOnlyImm,
        UdSendOnly,
        UdSendOnlyImm,
    ];
    for op in wanted {
        assert!(seen.contains_key(&op.value()), "{op:?} in {seen:02x?}");
    }
}

/// The extended header that an opcode has.
fn ext(opcode: Opcode, syndrome: u8) -> Ext {
    let (va, rkey, dma_len, imm) = (0x1122_3344_5566_7788, Rkey(0xAABB_CCDD), 0x99, 0xA1B2_C3D4);
    let (syndrome, msn) = (Syndrome::decode(syndrome), Msn::new(0xAB_CDEF));
    let (qkey, src) = (QKey(0x8001_0002), Qpn::new(0x12_3456));
    match (opcode.has_reth(), opcode.has_deth(), opcode.has_imm()) {
        (true, _, false) => Ext::Reth { va, rkey, dma_len },
        (true, _, true) => Ext::RethImm { va, rkey, dma_len, imm },
        (_, true, false) => Ext::Deth { qkey, src },
        (_, true, true) => Ext::DethImm { qkey, src, imm },
        (false, false, true) => Ext::Imm(imm),
        _ if opcode.has_atomic_eth() => Ext::Atomic { va, rkey, swap_add: 5, compare: u64::MAX },
        _ if opcode.has_atomic_ack_eth() => Ext::AtomicAck { syndrome, msn, orig: va },
        _ if opcode.has_aeth() => Ext::Aeth { syndrome, msn },
        _ if opcode.has_ieth() => Ext::Invalidate(rkey),
        _ => Ext::None,
    }
}

/// Opcodes whose fields tshark 4.0 finds: RC up to SEND with Invalidate, UC, UD, and the CNP.
fn known() -> impl Iterator<Item = Opcode> {
    let services = [Service::Rc, Service::Uc, Service::Ud, Service::Cnp];
    let all = Opcode::ALL.iter().copied().filter(move |o| services.contains(&o.service()));
    all.filter(|o| !matches!(o, Opcode::RcFlush | Opcode::RcAtomicWrite))
}

/// Every opcode, payloads around each limit, every syndrome, all encapsulations, both ends of PSN
/// and QP number.
#[test]
fn a_catalogue_of_packets() {
    if !ready() {
        return;
    }
    let folder = Folder::new("tshark-catalogue");
    let file = Shared::default();
    let mut sink = PcapNg::new(file.clone());
    let (rate, note) = (BitRate::gbps(400), Some("a catalogue"));
    for (name, link) in [("host0.port0", LinkType::Ethernet), ("host1.port0", LinkType::InfiniBand)]
    {
        sink.interface(&Interface { name: name.into(), rate, link, note });
    }
    let mut count = 0;
    let mut add = |encap, desc: &PacketDesc| {
        let (from, to) = ((HostId(0), PortId(0)), (HostId(1), PortId(0)));
        let port = udp_source_port(FlowLabel::ZERO, 17, desc.dest.value());
        let packet = Packet::new(from, to, *desc, Payload::Lengths, port);
        let bytes = vec![0x5A; desc.len as usize];
        let mut frame = Vec::new();
        let native = encap == Encapsulation::IbLocal;
        if native {
            encode_ib(&ib_outer(&packet, 0), desc, Some(&bytes), &mut frame).unwrap();
        } else {
            encode(&outer(encap, &packet, 0), desc, Some(&bytes), &mut frame).unwrap();
        }
        count += 1;
        let comment = format!("packet {count}, retransmission 2 of 7, ack timeout");
        sink.packet(&Seen {
            at: Time::from_ps(count * 1_234_567_891),
            interface: native.into(),
            direction: Direction::Outbound,
            frame: &frame,
            comment: (count % 2 == 0).then_some(&comment),
        });
    };
    let encaps = [
        Encapsulation::RoceV2Ipv4,
        Encapsulation::RoceV2Ipv4Vlan,
        Encapsulation::RoceV2Ipv6,
        Encapsulation::IbLocal,
    ];
    for encap in encaps {
        for opcode in known() {
            let lens: &[u32] = if opcode.service() == Service::Cnp {
                &[16]
            } else if opcode.has_payload() {
                &[0, 1, 2, 3, 4, 12, 13, 16, 4096]
            } else {
                &[0]
            };
            for (i, len) in lens.iter().copied().enumerate() {
                let (dest, psn) = if i % 2 == 0 { (2, 0) } else { (0xFF_FFFF, 0xFF_FFFF) };
                let (ack_req, solicited) = (i % 2 == 0, i % 3 == 0);
                let (dest, psn, ext) = (Qpn::new(dest), Psn::new(psn), ext(opcode, 0x1F));
                let (wqe, offset) = (0, 0);
                let d = PacketDesc { opcode, psn, dest, ack_req, solicited, wqe, offset, len, ext };
                add(encap, &d);
                for syndrome in 0..=255_u8 {
                    if opcode == Opcode::RcAcknowledge {
                        add(encap, &PacketDesc { ext: self::ext(opcode, syndrome), ..d });
                    }
                }
            }
        }
    }
    sink.finish().unwrap();
    let seen = agree(&folder, "catalogue", &file.bytes());
    assert_eq!(seen.len(), known().count());
}
