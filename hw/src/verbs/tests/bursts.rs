//! One post call per ring, and whose memory is whose in between.

use super::*;

#[test]
fn n_rings_of_m_requests_are_n_calls() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        assert_eq!(bed.ring(), Ok(Rung { wqes: 0, by: RungBy::Nothing }));
        let mut next = 0;
        for m in [1, 5, 2, 6, 1] {
            bed.post(next..next + m);
            next += m;
            bed.fake.complete(bed.qpn(), m as usize);
            assert_eq!(bed.sent().len() as u64, m);
        }
        let counts = bed.fake.counts(bed.qpn());
        assert_eq!((counts.send_calls, counts.send_doorbells, counts.send_wrs), (5, 5, 15));
        assert_eq!(bed.ids(), (0..15).collect::<Vec<_>>(), "each once, in order");
    }
}

#[test]
fn what_is_staged_is_invisible_until_the_ring() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..3);
        assert_eq!((bed.ids(), bed.fake.counts(bed.qpn()).send_calls), (vec![], 0));
        assert_eq!(bed.t.unrung(), [(bed.qp, 3)]);
        bed.ring().unwrap();
        assert_eq!((bed.ids().len(), bed.t.unrung()), (3, vec![]));
        assert_eq!(bed.t.outstanding(), [(bed.qp, 3)]);
    }
}

#[test]
fn bytes_and_lists_are_the_callers_again_after_stage() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        let mut bytes = *b"first";
        let mut list = [bed.sge(8, 16), bed.sge(64, 1)];
        let before = list;
        bed.t.stage(bed.qp, &request(SendOp::Send, 0, Data::Inline(&bytes))).unwrap();
        bed.t.stage(bed.qp, &request(SendOp::Send, 1, Data::Sge(&list))).unwrap();
        bytes.fill(0);
        list.fill(Sge::default());
        bed.t.stage(bed.qp, &request(SendOp::Send, 2, Data::Inline(&bytes))).unwrap();
        assert_eq!(list, [Sge::default(); 2]);
        bed.ring().unwrap();
        let seen = bed.seen();
        assert_eq!(seen[0].inline.as_deref(), Some(&b"first"[..]));
        assert_eq!(seen[1].sges, before);
        assert_eq!(seen[2].inline.as_deref(), Some(&[0; 5][..]));
    }
}

#[test]
fn entries_of_the_chain_keep_nothing_of_their_earlier_use() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        let remote = Remote { addr: 1 << 40, rkey: Rkey(9) };
        let three = [bed.sge(0, 8), bed.sge(8, 8), bed.sge(16, 8)];
        let ops = [
            request(SendOp::CmpSwap { remote, compare: 3, swap: 4 }, 0, Data::Sge(&three[..1])),
            request(SendOp::SendImm(7), 1, Data::Inline(&[1; 64])),
            request(SendOp::Write(remote), 2, Data::Sge(&three)),
            request(SendOp::Send, 3, Data::Sge(&[])),
            request(SendOp::SendInv(Rkey(5)), 4, Data::Inline(b"")),
        ];
        for round in 0..5 {
            for i in 0..5 {
                bed.t.stage(bed.qp, &ops[(i + round) % 5]).unwrap();
            }
            bed.ring().unwrap();
            bed.fake.complete(bed.qpn(), 5);
            assert_eq!(bed.sent().len(), 5);
        }
        // The same request looks the same wherever in the chain it was.
        let seen = bed.seen();
        for (n, wr) in seen.iter().cloned().enumerate() {
            let which = (n % 5 + n / 5) % 5;
            let alike = seen[which].clone();
            assert_eq!(SentWr { wr_id: 0, ..wr }, SentWr { wr_id: 0, ..alike }, "{posting:?} {n}");
        }
    }
}

#[test]
fn the_chain_is_mended_after_every_length() {
    let mut bed = Bed::new(Posting::Classic);
    let mut next = 0;
    // A cut that stayed would lose what is behind it; one that was never made would post more.
    for m in [6, 1, 6, 2, 6, 5, 3, 6] {
        bed.post(next..next + m);
        next += m;
        assert_eq!(bed.ids().len() as u64, next);
        bed.fake.complete(bed.qpn(), m as usize);
        bed.sent();
    }
}

#[test]
fn queue_pairs_of_one_handle_stage_side_by_side() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        let other = bed.t.create_qp(&bed.init()).unwrap();
        let first = std::mem::replace(&mut bed.qp, other);
        bed.connect();
        bed.stage(0..2);
        bed.qp = first;
        bed.stage(0..3);
        bed.qp = other;
        assert_eq!(bed.ring().map(|r| r.wqes), Ok(2));
        let qpn = bed.qpn();
        bed.qp = first;
        assert_eq!((bed.ids(), bed.t.unrung()), (vec![], vec![(first, 3)]));
        assert_eq!(bed.ring().map(|r| r.wqes), Ok(3));
        // Completions of one queue for both say whose they are.
        bed.fake.complete(qpn, 2);
        bed.fake.complete(bed.qpn(), 3);
        let of: Vec<QpId> = bed
            .sent()
            .iter()
            .map(|c| match *c {
                Completion::Send { qp, retired: 1, .. } => qp,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(of, [other, other, first, first, first]);
    }
}
