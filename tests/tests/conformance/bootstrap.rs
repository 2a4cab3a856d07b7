//! Publications on the out-of-band network.

use doorbell_core::transport::*;

use super::backend::Lab;

const KEY: u64 = 7;

#[test]
fn a_lookup_has_nothing_until_the_value_has_come() {
    let mut lab = Lab::pair();
    let mut some = [9; 4];
    assert_eq!(lab.call(1, move |t| t.lookup(0, KEY, &mut some)), Ok(None));
    lab.call(0, |t| t.publish(KEY, &[1, 2, 3]));
    lab.settle();
    let (found, some) = lab.call(1, move |t| (t.lookup(0, KEY, &mut some), some));
    assert_eq!((found, some), (Ok(Some(3)), [1, 2, 3, 9]));
    // Another key, and another rank's.
    assert_eq!(lab.call(1, |t| t.lookup(0, KEY + 1, &mut [])), Ok(None));
    assert_eq!(lab.call(0, |t| t.lookup(1, KEY, &mut [])), Ok(None));
    // The publisher hears itself.
    assert_eq!(lab.call(0, |t| t.lookup(0, KEY, &mut [])), Ok(Some(3)));
}

#[test]
fn the_last_value_counts() {
    let mut lab = Lab::pair();
    for value in [&[1, 1, 1][..], &[2], &[]] {
        lab.call(0, move |t| t.publish(KEY, value));
        lab.settle();
        let (found, some) = lab.call(1, |t| {
            let mut some = [0; 3];
            (t.lookup(0, KEY, &mut some), some)
        });
        assert_eq!(found, Ok(Some(value.len())));
        assert_eq!(&some[..value.len()], value);
    }
    lab.call(0, |t| {
        t.publish(KEY, &[4]);
        t.publish(KEY, &[5, 6]);
    });
    lab.settle();
    let mut some = [0; 2];
    let found = lab.call(1, move |t| (t.lookup(0, KEY, &mut some), some));
    assert_eq!(found, (Ok(Some(2)), [5, 6]));
}

#[test]
fn a_short_buffer_takes_the_front_and_learns_the_length() {
    let mut lab = Lab::pair();
    lab.call(0, |t| t.publish(KEY, &[1, 2, 3, 4]));
    lab.settle();
    for len in 0..6 {
        let (found, some) = lab.call(1, move |t| {
            let mut some = vec![9; len];
            (t.lookup(0, KEY, &mut some), some)
        });
        assert_eq!(found, Ok(Some(4)), "buffer of {len}");
        assert_eq!(some, [1, 2, 3, 4, 9, 9][..len]);
    }
}

#[test]
fn ranks_end_at_the_size() {
    let mut lab = Lab::pair();
    let found = lab.call(0, |t| {
        assert_eq!(t.size(), 2);
        [1, 2, u32::MAX].map(|rank| t.lookup(rank, KEY, &mut []))
    });
    let nobody = |rank| Err(LookupError::NoSuchRank { rank, size: 2 });
    assert_eq!(found, [Ok(None), nobody(2), nobody(u32::MAX)]);
}

#[test]
fn the_longest_value_passes() {
    let mut lab = Lab::pair();
    lab.call(0, |t| t.publish(KEY, &vec![5; MAX_PUBLISHED_BYTES]));
    lab.settle();
    let mut last = vec![0; MAX_PUBLISHED_BYTES];
    let (found, last) = lab.call(1, move |t| (t.lookup(0, KEY, &mut last), last.pop()));
    assert_eq!((found, last), (Ok(Some(MAX_PUBLISHED_BYTES)), Some(5)));
}

#[test]
#[should_panic(expected = "a published value of 65537 B")]
fn a_longer_value_is_a_mistake() {
    Lab::pair().call(0, |t| t.publish(KEY, &vec![5; MAX_PUBLISHED_BYTES + 1]));
}
