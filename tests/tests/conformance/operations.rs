//! What each operation does to memory, and the completions that it makes (§5.2, §5.3).

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::pair::{Pair, SIGNALED, Spec, send};

fn ok(wr_id: u64, qp: QpId, op: WcOpcode, len: u32) -> Completion {
    Completion::Send { wr_id, qp, op, len, retired: 1 }
}

#[test]
fn send_with_and_without_immediate() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    pair.write_local(0, 0, b"doorbell");
    for (wr_id, op, imm) in
        [(1, SendOp::Send, None), (2, SendOp::SendImm(0xDEAD_BEEF), Some(0xDEAD_BEEF))]
    {
        let at = 256 * wr_id;
        pair.recv(1, 10 + wr_id, at, 64);
        pair.post(0, op, wr_id, a.sge(0, 8));
        assert_eq!(pair.sent(0), [ok(wr_id, a.qp, WcOpcode::Send, 8)]);
        let (wr_id, qp, op) = (10 + wr_id, b.qp, WcOpcode::Recv);
        let recv = Completion::Recv { wr_id, qp, op, len: 8, imm, invalidated: None };
        assert_eq!(pair.received(1), [recv]);
        assert_eq!(pair.read_local(1, at, 8), b"doorbell");
    }
}

#[test]
fn send_with_invalidate_takes_the_key_away() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    let key = b.mr.rkey;
    let second = pair.on(1, |t, me| {
        t.alloc_mr(me.pd, 4096, super::pair::HOST, Spec::default().rights, Contents::Data).unwrap()
    });
    pair.on(1, move |t, me| {
        let wr = RecvWr { wr_id: 1, sge: second.sge(0, 64).unwrap() };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr]).unwrap();
    });
    pair.lab.settle();
    pair.post(0, SendOp::SendInv(key), 1, a.sge(0, 8));
    let recv = pair.received(1);
    assert!(
        matches!(recv[..], [Completion::Recv { invalidated: Some(k), imm: None, .. }] if k == key),
        "{recv:?}"
    );
    assert_eq!(pair.sent(0).len(), 1);
    pair.post(0, SendOp::Write(b.remote(0)), 2, a.sge(0, 8));
    let refused = super::pair::errors(&pair.sent(0));
    assert_eq!(refused, [(2, WcStatus::RemAccessErr)]);
}

#[test]
fn write_is_silent_at_the_peer_and_with_immediate_takes_a_receive() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    pair.write_local(0, 64, b"twelve bytes");
    pair.post(0, SendOp::Write(b.remote(512)), 1, a.sge(64, 12));
    assert_eq!(pair.sent(0), [ok(1, a.qp, WcOpcode::RdmaWrite, 12)]);
    assert_eq!(pair.received(1), []);
    assert_eq!(pair.read_local(1, 512, 12), b"twelve bytes");

    pair.write_local(1, 0, &[9; 16]);
    pair.recv(1, 5, 0, 16);
    pair.post(0, SendOp::WriteImm(b.remote(600), 7), 2, a.sge(64, 12));
    assert_eq!(pair.sent(0), [ok(2, a.qp, WcOpcode::RdmaWrite, 12)]);
    let op = WcOpcode::RecvRdmaWithImm;
    let recv =
        Completion::Recv { wr_id: 5, qp: b.qp, op, len: 12, imm: Some(7), invalidated: None };
    assert_eq!(pair.received(1), [recv]);
    assert_eq!(pair.read_local(1, 600, 12), b"twelve bytes");
    assert_eq!(pair.read_local(1, 0, 16), [9; 16], "the receive's own buffer is not touched");
}

#[test]
fn read_brings_the_peers_bytes_to_a_scatter_list() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    let bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
    pair.write_local(1, 1000, &bytes);
    let remote = b.remote(1000);
    pair.on(0, move |t, me| {
        let list = [me.sge(0, 1), me.sge(5000, 2000), me.sge(100, 999)];
        t.stage(me.qp, &send(SendOp::Read(remote), 3, Data::Sge(&list))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0), [ok(3, a.qp, WcOpcode::RdmaRead, 3000)]);
    assert_eq!(pair.read_local(0, 0, 1), bytes[..1]);
    assert_eq!(pair.read_local(0, 5000, 2000), bytes[1..2001]);
    assert_eq!(pair.read_local(0, 100, 999), bytes[2001..]);
}

#[test]
fn atomics_give_the_old_value_and_change_the_word_once() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    pair.write_local(1, 8, &5u64.to_le_bytes());
    let remote = b.remote(8);
    let ops = [
        (SendOp::FetchAdd { remote, add: 3 }, WcOpcode::FetchAdd, 5, 8),
        (SendOp::CmpSwap { remote, compare: 7, swap: 1 }, WcOpcode::CompSwap, 8, 8),
        (SendOp::CmpSwap { remote, compare: 8, swap: 100 }, WcOpcode::CompSwap, 8, 100),
        (SendOp::FetchAdd { remote, add: u64::MAX }, WcOpcode::FetchAdd, 100, 99),
    ];
    for (i, (op, wc, old, new)) in (0..).zip(ops) {
        pair.post(0, op, i, a.sge(64, 8));
        assert_eq!(pair.sent(0), [ok(i, a.qp, wc, 8)]);
        let word = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(word(pair.read_local(0, 64, 8)), old, "{op:?}");
        assert_eq!(word(pair.read_local(1, 8, 8)), new, "{op:?}");
    }
}

#[test]
fn messages_of_no_bytes() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    pair.recv(1, 1, 0, 64);
    // Zero bytes need no valid key on either side (§5.1).
    let nowhere = Remote { addr: 1, rkey: Rkey(0xBAD) };
    for (i, op, wc) in [
        (1, SendOp::Send, WcOpcode::Send),
        (2, SendOp::Write(nowhere), WcOpcode::RdmaWrite),
        (3, SendOp::Read(nowhere), WcOpcode::RdmaRead),
    ] {
        pair.on(0, move |t, me| {
            t.stage(me.qp, &send(op, i, Data::Sge(&[]))).unwrap();
            t.ring(me.qp, Ring::Auto).unwrap();
        });
        assert_eq!(pair.sent(0), [ok(i, a.qp, wc, 0)]);
    }
    let op = WcOpcode::Recv;
    let recv = Completion::Recv { wr_id: 1, qp: b.qp, op, len: 0, imm: None, invalidated: None };
    assert_eq!(pair.received(1), [recv]);
}

#[test]
fn messages_around_the_mtu_in_every_service() {
    needs_peer!();
    for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut pair = Pair::connected(Spec { ty, ..Spec::default() });
        let a = pair.sides[0];
        let header = if ty == QpType::Ud { 40 } else { 0 };
        for (i, len) in (0..).zip([1, 255, 256, 1023, 1024, 1025, 2047, 2048, 2049, 4096]) {
            let bytes: Vec<u8> = (0..len).map(|b| (b * 7 + i) as u8).collect();
            pair.write_local(0, 0, &bytes);
            pair.recv(1, i.into(), 8192, 8192);
            pair.post(0, SendOp::Send, i.into(), a.sge(0, len));
            assert_eq!(pair.sent(0), [ok(i.into(), a.qp, WcOpcode::Send, len)], "{ty} {len}");
            let got = pair.received(1);
            let whole = len + header;
            assert!(
                matches!(got[..], [Completion::Recv { len, .. }] if len == whole),
                "{ty} {len}: {got:?}"
            );
            let at = 8192 + u64::from(header);
            assert_eq!(pair.read_local(1, at, len.into()), bytes, "{ty} {len}");
        }
    }
}

#[test]
fn inline_bytes_are_the_callers_again_at_once() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    let to = b.remote(0);
    pair.on(0, move |t, me| {
        let mut bytes = *b"first!!!";
        t.stage(me.qp, &send(SendOp::Write(to), 1, Data::Inline(&bytes))).unwrap();
        bytes.copy_from_slice(b"changed!");
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0), [ok(1, a.qp, WcOpcode::RdmaWrite, 8)]);
    assert_eq!(pair.read_local(1, 0, 8), b"first!!!");
}

#[test]
fn reads_and_writes_of_one_queue_take_effect_in_order() {
    needs_peer!();
    let mut pair = Pair::rc();
    let [a, b] = pair.sides;
    pair.write_local(0, 0, &[1; 4096]);
    pair.write_local(0, 4096, &[2; 4096]);
    let (from, to) = (b.remote(0), b.remote(0));
    // WRITE 1, READ, then a fenced WRITE 2: the READ sees 1 and not 2.
    pair.on(0, move |t, me| {
        let write = |wr_id, at, flags| (wr_id, SendOp::Write(to), me.sge(at, 4096), flags);
        let fence = SIGNALED | SendFlags::FENCE;
        for (wr_id, op, sge, flags) in [
            write(1, 0, SIGNALED),
            (2, SendOp::Read(from), me.sge(16384, 4096), SIGNALED),
            write(3, 4096, fence),
        ] {
            let list = [sge];
            let wr = SendWr { flags, ..send(op, wr_id, Data::Sge(&list)) };
            t.stage(me.qp, &wr).unwrap();
        }
        assert_eq!(t.ring(me.qp, Ring::Doorbell).unwrap().wqes, 3);
    });
    let ids: Vec<_> = pair.sent(0).iter().map(wr_id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(pair.read_local(0, 16384, 4096), [1; 4096]);
    assert_eq!(pair.read_local(1, 0, 4096), [2; 4096]);
    assert_eq!(a.mr.len, 1 << 16);
}

#[test]
fn a_write_behind_an_atomic_comes_after_it() {
    needs_peer!();
    let mut pair = Pair::rc();
    let b = pair.sides[1];
    pair.write_local(1, 0, &5u64.to_le_bytes());
    let remote = b.remote(0);
    pair.on(0, move |t, me| {
        for i in 0..4 {
            let list = [me.sge(64 + 8 * i, 8)];
            let add = SendOp::FetchAdd { remote, add: 1 };
            t.stage(me.qp, &send(add, 1, Data::Sge(&list))).unwrap();
        }
        let word = 1000u64.to_le_bytes();
        t.stage(me.qp, &send(SendOp::Write(remote), 2, Data::Inline(&word))).unwrap();
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    assert_eq!(pair.sent(0).len(), 5);
    for i in 0..4 {
        let old = pair.read_local(0, 64 + 8 * i, 8);
        assert_eq!(old, (5 + i).to_le_bytes(), "SEND, WRITE and ATOMIC are in order");
    }
    assert_eq!(pair.read_local(1, 0, 8), 1000u64.to_le_bytes());
}

#[test]
fn a_write_behind_a_long_read_still_completes() {
    let mut pair = Pair::rc();
    let b = pair.sides[1];
    let (from, to) = (b.remote(0), b.remote(60_000));
    pair.on(0, move |t, me| {
        for i in 0..3 {
            let list = [me.sge(0, 30_000)];
            t.stage(me.qp, &send(SendOp::Read(from), 2 * i, Data::Sge(&list))).unwrap();
            let inline = Data::Inline(&[7; 8]);
            t.stage(me.qp, &send(SendOp::Write(to), 2 * i + 1, inline)).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    let ids: Vec<_> = pair.sent(0).iter().map(wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}

fn wr_id(c: &Completion) -> u64 {
    match *c {
        Completion::Send { wr_id, .. }
        | Completion::Recv { wr_id, .. }
        | Completion::Error { wr_id, .. } => wr_id,
    }
}
