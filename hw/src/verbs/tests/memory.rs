//! Registered memory: ranges, elements, rights, limits.

use super::super::fake::Call;
use super::*;
use crate::limits::Memlock;

#[test]
fn bytes_go_in_and_out_at_every_offset() {
    let mut bed = Bed::new(Posting::Classic);
    for len in [0, 1, 7, 8, 9, 64] {
        for at in [0, 1, 63, REGION - len] {
            let bytes: Vec<u8> = (0..len).map(|i| (i + at) as u8 | 1).collect();
            bed.t.copy_in(bed.range(at, len), &bytes).unwrap();
            let mut out = vec![0; len as usize];
            bed.t.copy_out(bed.range(at, len), &mut out).unwrap();
            assert_eq!(out, bytes);
            let lkey_sees = bed.fake.remote_read(bed.mr.rkey.0, bed.mr.addr + at, len as usize);
            assert_eq!(lkey_sees, Some(bytes), "the device sees the same");
        }
    }
}

#[test]
fn fresh_memory_is_zero_and_keys_end_where_it_ends() {
    let mut bed = Bed::new(Posting::Classic);
    let mr = bed.t.alloc_mr(bed.pd, 100, HOST, ALL_RIGHTS, Contents::Data).unwrap();
    assert_eq!(bed.fake.remote_read(mr.rkey.0, mr.addr, 100), Some(vec![0; 100]));
    assert_eq!(bed.fake.remote_read(mr.rkey.0, mr.addr, 101), None);
    let over = MemError::OutOfRange { offset: 93, len: 8, region: 100 };
    let range = Range { mr: mr.id, offset: 93, len: 8 };
    assert_eq!(bed.t.copy_in(range, &[1; 8]), Err(over));
    assert_eq!((mr.len, mr.addr % 64), (100, 0));
    assert_ne!(mr.lkey.0, mr.rkey.0);
}

#[test]
fn ranges_lengths_and_alignment_are_checked() {
    let mut bed = Bed::new(Posting::Classic);
    let out = |offset, len| Err(MemError::OutOfRange { offset, len, region: REGION });
    assert_eq!(bed.t.copy_in(bed.range(REGION, 1), &[1]), out(REGION, 1));
    assert_eq!(bed.t.copy_in(bed.range(REGION, 0), &[]), Ok(()));
    assert_eq!(bed.t.copy_out(bed.range(u64::MAX, 2), &mut [0; 2]), out(u64::MAX, 2));
    let wrong = |range, buffer| Err(MemError::LengthMismatch { range, buffer });
    assert_eq!(bed.t.copy_in(bed.range(0, 8), &[1; 7]), wrong(8, 7));
    assert_eq!(bed.t.copy_out(bed.range(0, 0), &mut [0; 1]), wrong(0, 1));
    let (a, b) = (bed.range(0, 8), bed.range(8, 16));
    assert_eq!(bed.t.reduce(Reduce::SumI64, a, b), wrong(8, 16));
    let odd = |element| Err(MemError::Misaligned { element });
    for at in [bed.range(4, 8), bed.range(0, 4), bed.range(1, 8), bed.range(0, 0)] {
        assert_eq!(bed.t.load_u64(at).map(drop), odd(8));
        assert_eq!(bed.t.store_u64(at, 1), odd(8));
    }
    assert_eq!(bed.t.load_u64(bed.range(REGION, 8)).map(drop), out(REGION, 8));
    let end = u64::MAX - 7;
    assert_eq!(bed.t.store_u64(bed.range(end, 8), 1), out(end, 8));
    for (op, element) in [(Reduce::SumF32, 4), (Reduce::SumI64, 8), (Reduce::SumF64, 8)] {
        let mr = bed.mr.id;
        let range = |offset, len| Range { mr, offset, len };
        let (to, from) = (range(0, element), range(element, element));
        let (off, long) = (range(element / 2, element), range(0, element + element / 2));
        assert_eq!(bed.t.reduce(op, off, from), odd(element));
        let off = range(element / 2, element);
        assert_eq!(bed.t.reduce(op, to, off), odd(element));
        assert_eq!(bed.t.reduce(op, long, long), odd(element));
        let last = range(REGION, element);
        assert_eq!(bed.t.reduce(op, to, last), out(REGION, element));
    }
}

#[test]
fn words_are_little_endian_and_extremes_pass() {
    let mut bed = Bed::new(Posting::Classic);
    for value in [0, 1, u64::MAX, 0x0102_0304_0506_0708] {
        bed.t.store_u64(bed.range(REGION - 8, 8), value).unwrap();
        assert_eq!(bed.t.load_u64(bed.range(REGION - 8, 8)), Ok(value));
        let mut bytes = [0; 8];
        bed.t.copy_out(bed.range(REGION - 8, 8), &mut bytes).unwrap();
        assert_eq!(bytes, value.to_le_bytes());
    }
}

/// Against the arithmetic of the trait's own definition.
#[test]
fn reductions_agree_with_their_definition() {
    let mut bed = Bed::new(Posting::Classic);
    let words = |seed: u64| -> Vec<u8> {
        let word = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        (0..8).flat_map(word).collect()
    };
    let floats = |seed: u32| -> Vec<u8> {
        (0..8).flat_map(|i| f64::from(i * 7 + seed).to_le_bytes()).collect()
    };
    for (op, a, b) in [
        (Reduce::SumI64, words(1), words(2)),
        (Reduce::SumF64, floats(1), floats(9)),
        (Reduce::SumF32, words(3), words(4)),
    ] {
        bed.t.copy_in(bed.range(64, 64), &a).unwrap();
        bed.t.copy_in(bed.range(256, 64), &b).unwrap();
        bed.t.reduce(op, bed.range(64, 64), bed.range(256, 64)).unwrap();
        let mut got = [0; 64];
        bed.t.copy_out(bed.range(64, 64), &mut got).unwrap();
        let mut want = a;
        op.apply(&mut want, &b);
        assert_eq!(got[..], want[..], "{op:?}");
    }
    bed.t.reduce(Reduce::SumF32, bed.range(0, 0), bed.range(8, 0)).unwrap();
}

#[test]
fn a_reduction_of_overlapping_ranges_goes_element_by_element() {
    let mut bed = Bed::new(Posting::Classic);
    let ones: Vec<u8> = (0..4).flat_map(|_| 1_u64.to_le_bytes()).collect();
    bed.t.copy_in(bed.range(0, 32), &ones).unwrap();
    bed.t.reduce(Reduce::SumI64, bed.range(8, 24), bed.range(0, 24)).unwrap();
    let word = |bed: &mut Bed, i: u64| bed.t.load_u64(bed.range(8 * i, 8)).unwrap();
    assert_eq!([0, 1, 2, 3].map(|i| word(&mut bed, i)), [1, 2, 3, 4]);
    bed.t.reduce(Reduce::SumI64, bed.range(0, 32), bed.range(0, 32)).unwrap();
    assert_eq!([0, 1, 2, 3].map(|i| word(&mut bed, i)), [2, 4, 6, 8]);
}

#[test]
fn what_a_peer_writes_is_seen() {
    let mut bed = Bed::new(Posting::Classic);
    assert!(bed.fake.remote_write(bed.mr.rkey.0, bed.mr.addr + 8, b"written!"));
    assert!(bed.fake.remote_write_u64(bed.mr.rkey.0, bed.mr.addr + 64, 77));
    let mut bytes = [0; 8];
    bed.t.copy_out(bed.range(8, 8), &mut bytes).unwrap();
    assert_eq!((&bytes, bed.t.load_u64(bed.range(64, 8))), (b"written!", Ok(77)));
    assert!(!bed.fake.remote_write(bed.mr.lkey.0, bed.mr.addr, b"x"), "not the local key");
}

/// The device writes while the program reads: no torn word, no undefined behaviour.
#[test]
fn a_flag_behind_data_is_seen_after_the_data() {
    let mut bed = Bed::new(Posting::Classic);
    let (fake, rkey, addr) = (bed.fake.clone(), bed.mr.rkey.0, bed.mr.addr);
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let writer = std::thread::spawn(move || {
        for round in 1..=rounds {
            assert!(fake.remote_write(rkey, addr + 8 * round, &[round as u8; 8]));
            assert!(fake.remote_write_u64(rkey, addr, round));
        }
    });
    let mut seen = 0;
    // The writer ends by itself; as many looks as it can take.
    for _ in 0..u32::MAX {
        seen = bed.t.load_u64(bed.range(0, 8)).unwrap();
        if seen > 0 {
            let data = bed.t.load_u64(bed.range(8 * seen, 8)).unwrap();
            assert_eq!(data, u64::from_le_bytes([seen as u8; 8]));
        }
        if seen == rounds {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(seen, rounds);
    writer.join().unwrap();
}

#[test]
fn rights_that_contradict_each_other_and_lengths_that_cannot_be() {
    let mut bed = Bed::new(Posting::Classic);
    let (pd, data) = (bed.pd, Contents::Data);
    let writable = AccessFlags::REMOTE_WRITE;
    assert_eq!(bed.t.alloc_mr(pd, 64, HOST, writable, data), Err(MemError::InvalidAccess));
    let rights = AccessFlags::LOCAL_WRITE;
    let nothing = bed.t.alloc_mr(pd, 0, HOST, rights, data);
    assert_eq!(nothing, Err(MemError::Os(libc::EINVAL)));
    for asked in [u64::MAX, u64::MAX - 4095] {
        let refused = bed.t.alloc_mr(pd, asked, HOST, rights, data);
        assert_eq!(refused, Err(MemError::TooLarge { asked, available: 0 }));
    }
    bed.fake.fail_call(Call::RegMr, 0, libc::EIO);
    assert_eq!(bed.t.alloc_mr(pd, 64, HOST, rights, data), Err(MemError::Os(libc::EIO)));
    assert_eq!(bed.fake.live().mrs, 1);
}

#[test]
#[cfg_attr(miri, ignore = "the kernel is asked")]
fn more_than_the_machine_has_is_refused_before_it_is_touched() {
    let mut bed = Bed::new(Posting::Classic);
    let asked = 1 << 46;
    let refused = bed.t.alloc_mr(bed.pd, asked, HOST, AccessFlags::LOCAL_WRITE, Contents::Data);
    let Err(e @ MemError::TooLarge { asked: said, available }) = refused else {
        panic!("{refused:?}")
    };
    assert!(said == asked && (1 << 20..asked).contains(&available), "{e}");
    assert!(e.to_string().starts_with("a region of 70368744177664 B asked for, and "), "{e}");
}

#[test]
#[cfg_attr(miri, ignore = "the kernel is asked for the limit")]
fn the_limit_on_locked_memory_is_named() {
    let fake = FakeConfig { memlock: Some(2 * REGION), ..FakeConfig::default() };
    let mut bed = Bed::of(Spec { fake, ..Spec::default() });
    let rights = AccessFlags::LOCAL_WRITE;
    let alloc = |bed: &mut Bed, len| bed.t.alloc_mr(bed.pd, len, HOST, rights, Contents::Data);
    let want = match Memlock::read().and_then(|m| m.soft) {
        Some(limit) => MemError::Memlock { limit },
        None => MemError::Os(libc::ENOMEM),
    };
    assert_eq!(alloc(&mut bed, REGION + 1), Err(want));
    let mr = alloc(&mut bed, REGION).unwrap();
    assert_eq!(alloc(&mut bed, 1), Err(want));
    bed.t.dereg_mr(mr.id).unwrap();
    alloc(&mut bed, 1).unwrap();
}

#[test]
fn watches_are_few_and_small() {
    let mut bed = Bed::new(Posting::Classic);
    let mr = bed.t.alloc_mr(bed.pd, 8192, HOST, ALL_RIGHTS, Contents::Data).unwrap();
    let long = Range { mr: mr.id, offset: 0, len: 4097 };
    assert_eq!(bed.t.watch(long), Err(MemError::NoMemory { max: 4096 }));
    bed.t.watch(Range { len: 4096, ..long }).unwrap();
    for _ in 1..MAX_WAIT_WATCHES {
        bed.t.watch(bed.range(0, 8)).unwrap();
    }
    let full = MemError::NoMemory { max: MAX_WAIT_WATCHES.into() };
    assert_eq!(bed.t.watch(bed.range(0, 8)), Err(full));
}
