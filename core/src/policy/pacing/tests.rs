//! The bucket against its closed form, and against sums over every pair of messages.

use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::units::Span;

fn pacer(num: u64, den: u64, burst: u64) -> Pacer {
    let rate = Ratio { num, den };
    Pacer::new(PaceConfig { rate, burst: Bytes(burst) }, Time::ZERO).unwrap()
}

fn at(ps: u64) -> Time {
    Time::from_ps(ps)
}

#[test]
fn each_limit_from_both_sides() {
    let check = |num, den, burst| {
        PaceConfig { rate: Ratio { num, den }, burst: Bytes(burst) }.check().map_err(|e| {
            assert_eq!(
                Pacer::new(
                    PaceConfig { rate: Ratio { num, den }, burst: Bytes(burst) },
                    Time::ZERO
                ),
                Err(e)
            );
            e.to_string()
        })
    };
    let (den, burst) = (PaceConfig::MAX_DEN, PaceConfig::MAX_BURST.0);
    for good in [(1, 1, 1), (u64::MAX, den, burst), (1, den, burst), (u64::MAX, 1, 1)] {
        assert_eq!(check(good.0, good.1, good.2), Ok(()));
    }
    let refused = |r: Result<(), std::string::String>, text: &str| {
        let e = r.unwrap_err();
        assert!(e.contains(text), "{e}");
    };
    refused(check(0, 1, 1), "leave the pace out");
    refused(check(1, 0, 1), "0 as its denominator");
    refused(check(1, den + 1, 1), "reduce the fraction, 1 to 4294967295");
    refused(check(1, 1, 0), "a burst of 0 B: give 1 B to 1099511627776 B");
    refused(check(1, 1, burst + 1), "a burst of 1099511627777 B");
}

#[test]
fn a_message_waits_until_the_bucket_holds_it_and_not_a_picosecond_longer() {
    // 8 Gb/s: a byte per nanosecond. Room for ten.
    let mut p = pacer(1_000_000_000, 1, 10);
    assert_eq!(
        [p.take(at(0), 4), p.take(at(0), 6), p.take(at(0), 1)],
        [Ok(()), Ok(()), Err(at(1000))]
    );
    assert_eq!([p.take(at(999), 1), p.take(at(1000), 1)], [Err(at(1000)), Ok(())]);
    // A pause fills it, and no more than that.
    assert_eq!(p.ready(at(1 << 40), 10), at(1 << 40));
    assert_eq!(p.take(at(1 << 40), 10), Ok(()));
    assert_eq!(p.ready(at(1 << 40), 1), at((1 << 40) + 1000));
}

#[test]
fn what_is_longer_than_the_bucket_goes_when_it_is_full_and_is_paid_for_after() {
    let mut p = pacer(1_000_000_000, 1, 10);
    assert_eq!(p.take(at(0), 25), Ok(()));
    // The next small one waits for 15 bytes of debt and for its own one.
    assert_eq!(p.ready(at(0), 1), at(16_000));
    // The next long one waits until it is full again.
    assert_eq!([p.take(at(24_999), 25), p.take(at(25_000), 25)], [Err(at(25_000)), Ok(())]);
}

#[test]
fn a_message_ahead_of_its_time_is_counted_and_a_clock_that_goes_back_gains_nothing() {
    let mut p = pacer(1_000_000_000, 1, 10);
    p.sent(at(5000), 30);
    assert_eq!(p.ready(at(5000), 10), at(35_000));
    p.sent(at(1000), 1);
    assert_eq!((p.ready(at(5000), 10), p.ready(at(35_000), 10)), (at(36_000), at(36_000)));
}

#[test]
fn hours_at_400_gbps_without_a_picosecond_of_drift() {
    // Of rates that are no whole number of picoseconds per byte, too.
    for (num, den) in [(50_000_000_000, 1), (400_000_000_000, 8), (50_000_000_001, 7), (3, 1000)] {
        let (burst, bytes) = (1 << 20, (1 << 31) - 1_u64);
        let mut p = pacer(num, den, burst);
        let mut now = Time::ZERO;
        // At 400 Gb/s 43 ms each: 4.8 hours.
        for n in 0..400_000_u64 {
            now = p.ready(now, bytes);
            assert_eq!(p.take(now, bytes), Ok(()));
            if now == Time::MAX {
                assert!(num == 3, "the clock of 213 days ends");
                break;
            }
            // Each goes when all before it are paid for, to the picosecond.
            let exact = u128::from(n) * u128::from(bytes) * u128::from(den) * 1_000_000_000_000;
            assert_eq!(u128::from(now.as_ps()), exact.div_ceil(num.into()), "message {n}");
        }
    }
}

#[test]
fn the_largest_numbers_overflow_nothing() {
    for (num, den) in [(1, PaceConfig::MAX_DEN), (u64::MAX, 1), (u64::MAX, PaceConfig::MAX_DEN)] {
        let mut p = pacer(num, den, PaceConfig::MAX_BURST.0);
        p.sent(Time::ZERO, 1 << 40);
        p.sent(Time::ZERO, u64::MAX);
        assert!(p.ready(Time::MAX, u64::MAX) <= Time::MAX);
        p.sent(Time::MAX, u64::MAX);
        p.set(PaceConfig::of(BitRate::gbps(1), Bytes(1)), Time::MAX).unwrap();
        assert!(p.ready(Time::ZERO, 1) > Time::ZERO);
    }
}

#[test]
fn another_rate_keeps_the_debt() {
    let mut p = pacer(1_000_000_000, 1, 10);
    p.sent(at(0), 10);
    // Four bytes came back; six are missing. At twice the rate, of another denominator, one more
    // waits for nothing, seven wait for three.
    p.set(PaceConfig::of(BitRate::gbps(16), Bytes(10)), at(4000)).unwrap();
    assert_eq!((p.ready(at(4000), 4), p.ready(at(4000), 7)), (at(4000), at(5500)));
    assert_eq!(p.config().rate, Ratio { num: 16_000_000_000, den: 8 });
    let bad = PaceConfig { rate: Ratio { num: 0, den: 1 }, burst: Bytes(1) };
    let before = p.clone();
    assert_eq!(p.set(bad, at(9000)), Err(PaceError::NoRate));
    assert_eq!(p, before);
}

#[derive(Clone, Debug)]
struct Msg {
    bytes: u64,
    /// How long after it was possible the message is sent.
    late: u64,
}

fn messages() -> impl Strategy<Value = Vec<Msg>> {
    let late = prop_oneof![3 => Just(0), 1 => 0..100_000_u64, 1 => 0..50_000_000_u64];
    let one = (0..20_000_u64, late).prop_map(|(bytes, late)| Msg { bytes, late });
    prop::collection::vec(one, 1..80)
}

proptest! {
    #[test]
    fn no_stretch_is_above_rate_and_burst_and_no_message_waits_in_vain(
        (num, den, burst) in (1..80_000_000_000_u64, 1..1000_u64, 1..30_000_u64),
        list in messages(),
    ) {
        let mut p = pacer(num, den, burst);
        let (num, unit) = (u128::from(num), u128::from(den) * 1_000_000_000_000);
        let mut sent: Vec<(u128, u128)> = Vec::new();
        let mut now = Time::ZERO;
        for m in list {
            let ready = p.ready(now, m.bytes);
            if ready > now {
                let just_before = at(ready.as_ps() - 1);
                prop_assert_eq!(p.take(just_before, m.bytes), Err(ready));
                // A picosecond earlier some stretch would have been above the bound.
                let (t, b) = (u128::from(just_before.as_ps()), u128::from(m.bytes));
                let most = u128::from(burst).max(b) * unit;
                let mut sum = b * unit;
                let breaks = sent.iter().rev().any(|&(from, bytes)| {
                    sum += bytes * unit;
                    sum > most + num * (t - from)
                });
                prop_assert!(breaks, "{m:?} could have gone at {just_before}");
            }
            now = ready + Span::from_ps(m.late);
            prop_assert_eq!(p.take(now, m.bytes), Ok(()));
            sent.push((now.as_ps().into(), m.bytes.into()));
            let (t, b) = (u128::from(now.as_ps()), u128::from(m.bytes));
            let most = u128::from(burst).max(b) * unit;
            let mut sum = 0;
            for &(from, bytes) in sent.iter().rev() {
                sum += bytes * unit;
                prop_assert!(sum < most + num * (t - from + 1), "{sent:?}");
            }
        }
    }
}
