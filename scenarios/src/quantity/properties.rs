//! Properties of quantities over all values.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};
use proptest::prelude::*;

use super::{Frequency, Scalar, Unit};

/// What is printed reads back as the same value.
fn round_trip<T: Unit>(value: T) {
    assert_eq!(T::parse(&value.print()).unwrap(), value, "{}", value.print());
}

proptest! {
    #[test]
    fn printed_values_read_back(n in any::<u64>(), d in 1u64..) {
        round_trip(Span::from_ps(n));
        round_trip(Bytes(n));
        round_trip(Frequency(n));
        if let Some(rate) = BitRate::new(n) {
            round_trip(rate);
        }
        let ratio = Ratio { num: n, den: d };
        let read = Ratio::parse(&ratio.print()).unwrap();
        // Lowest terms: the cross products agree.
        prop_assert_eq!(u128::from(read.num) * u128::from(d), u128::from(n) * u128::from(read.den));
    }

    #[test]
    fn no_text_makes_a_panic(text in ".{0,40}") {
        let _ = (Span::parse(&text), Bytes::parse(&text), Ratio::parse(&text));
        let _ = Scalar::parse(&text);
    }

    #[test]
    fn decimal_and_whole_units_agree(ns in 0u64..1_000_000_000) {
        let text = format!("{}.{:03}us", ns / 1000, ns % 1000);
        prop_assert_eq!(Span::parse(&text).unwrap(), Span::from_ns(ns));
    }
}
