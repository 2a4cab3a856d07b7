//! Encoded fields of RC: timeouts, retry counts, credits, and the service level. Each type knows
//! its code and what the code means.

use core::fmt;

use super::OutOfRange;
use crate::units::Span;

macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        impl $name {
            /// The largest code.
            pub const MAX_CODE: u8 = $max;

            /// The value with this code; `None` when the code does not fit the field.
            pub const fn new(code: u8) -> Option<Self> {
                if code > Self::MAX_CODE { None } else { Some(Self(code)) }
            }

            /// The code.
            pub const fn code(self) -> u8 {
                self.0
            }

            /// Every value, in the order of the codes.
            pub fn all() -> impl Iterator<Item = Self> {
                (0..=Self::MAX_CODE).map(Self)
            }
        }

        impl TryFrom<u8> for $name {
            type Error = OutOfRange;
            fn try_from(code: u8) -> Result<Self, OutOfRange> {
                Self::new(code).ok_or(OutOfRange {
                    field: $field,
                    got: code.into(),
                    max: Self::MAX_CODE.into(),
                })
            }
        }

        impl From<$name> for u8 {
            fn from(v: $name) -> u8 {
                v.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

field! {
    /// Local ACK timeout of the requester (`timeout`, 5 bits): T = 4.096 us * 2^code, 0 = no
    /// timer. One step up doubles the time to notice a lost last packet; too low gives
    /// retransmissions of packets that were not lost. Code 14 is 67.1 ms.
    ///
    /// IBTA allows detection anywhere in T ..= 4T (recalled), and NICs have floors: what a
    /// device does with the code is a matter of its profile.
    AckTimeout, "timeout", 31
}

impl AckTimeout {
    /// No timer: a lost last packet is never noticed.
    pub const NONE: Self = Self(0);
    /// 4.096 us, the factor of 2^code.
    pub const UNIT: Span = Span::from_ps(4_096_000);

    /// T; `None` for code 0, which switches the timer off.
    pub const fn duration(self) -> Option<Span> {
        match self.0 {
            0 => None,
            code => Some(Span::from_ps(Self::UNIT.as_ps() << code)),
        }
    }

    /// The smallest code whose T is at least `span`; `None` when even code 31 (8796 s) is less.
    pub fn at_least(span: Span) -> Option<Self> {
        Self::all().find(|t| t.duration().is_some_and(|d| d >= span))
    }
}

impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(d) => write!(f, "{} ({d})", self.0),
            None => write!(f, "0 (no timer)"),
        }
    }
}

field! {
    /// RNR NAK timer of the responder (`min_rnr_timer`, 5 bits): travels in the RNR NAK, and the
    /// requester waits at least so long. **Code 0 is the longest**, 655.36 ms. Codes from 1 up
    /// grow from 10 us: lower retries sooner and uses up `rnr_retry` faster.
    /// Source: Linux `ib_verbs.h`, `enum ib_rnr_timeout`; code 25 there is 61.44 ms, rxe waits
    /// 61.41 ms.
    RnrTimer, "min_rnr_timer", 31
}

/// Units of 10 us.
const RNR_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl RnrTimer {
    /// The time that the requester waits at least.
    pub const fn duration(self) -> Span {
        Span::from_us(RNR_10US[self.0 as usize] as u64 * 10)
    }

    /// The code of the shortest timer that is at least `span`; `None` above 655.36 ms.
    pub fn at_least(span: Span) -> Option<Self> {
        Self::all().filter(|t| t.duration() >= span).min_by_key(|t| t.duration())
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.duration())
    }
}

field! {
    /// End-to-end credit code of an ACK (5 bits): how many receive WQEs are free, rounded down to
    /// a table value; 31 = no limit. Source: Linux hfi1 `credit_table`.
    CreditCode, "credit code", 31
}

const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536,
    2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768,
];

impl CreditCode {
    /// No end-to-end flow control: always with an SRQ, and on most NICs.
    pub const NO_LIMIT: Self = Self(31);

    /// The code of the largest table value that is at most `free`.
    pub fn encode(free: u32) -> Self {
        // Never empty: the first value is 0. At most 31, so it fits.
        Self(CREDITS.partition_point(|&c| c <= free) as u8 - 1)
    }

    /// Credits granted; `None` = no limit.
    pub const fn credits(self) -> Option<u32> {
        if self.0 == Self::NO_LIMIT.0 { None } else { Some(CREDITS[self.0 as usize]) }
    }
}

impl fmt::Display for CreditCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.credits() {
            Some(c) => write!(f, "{} ({c} credits)", self.0),
            None => write!(f, "31 (no limit)"),
        }
    }
}

field! {
    /// Transport retry count (`retry_cnt`, 3 bits): timeouts and sequence NAKs in a row that the
    /// requester survives; a packet is sent 1 + `retry_cnt` times. 0: the first one is fatal.
    /// Unlike [`RnrRetry`], 7 means seven (rxe deviates and never gives up).
    RetryCnt, "retry_cnt", 7
}

impl RetryCnt {
    /// Retries allowed, 0 ..= 7.
    pub const fn retries(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for RetryCnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

field! {
    /// RNR retry count (`rnr_retry`, 3 bits): RNR NAKs in a row that the requester survives.
    /// 0: the first one is fatal. 7: no limit.
    RnrRetry, "rnr_retry", 7
}

impl RnrRetry {
    /// Retry for ever.
    pub const INFINITE: Self = Self(7);

    /// Retries allowed; `None` = no limit.
    pub const fn retries(self) -> Option<u32> {
        if self.is_infinite() { None } else { Some(self.0 as u32) }
    }

    /// Whether the code is 7.
    pub const fn is_infinite(self) -> bool {
        self.0 == 7
    }
}

impl fmt::Display for RnrRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_infinite() { f.write_str("7 (infinite)") } else { write!(f, "{}", self.0) }
    }
}

field! {
    /// Service level of an address vector (`sl`, 4 bits): InfiniBand switches map it to a virtual
    /// lane, RoCE to a priority and by that to a traffic class. It has no order of its own; what a
    /// level gets is a matter of the switches.
    ServiceLevel, "sl", 15
}

impl Default for ServiceLevel {
    /// 0, as drivers have it.
    fn default() -> Self {
        Self(0)
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn each_field_takes_its_range_and_no_more() {
        assert_eq!(AckTimeout::all().count(), 32);
        assert_eq!(RnrTimer::all().count(), 32);
        assert_eq!(CreditCode::all().count(), 32);
        assert_eq!(RetryCnt::all().count(), 8);
        assert_eq!(RnrRetry::all().count(), 8);
        assert_eq!(AckTimeout::new(31).map(AckTimeout::code), Some(31));
        assert_eq!(AckTimeout::new(32), None);
        assert_eq!(RnrTimer::new(32), None);
        assert_eq!(CreditCode::new(32), None);
        assert_eq!(RetryCnt::new(7).map(u8::from), Some(7));
        assert_eq!(RnrRetry::new(8), None);
        let e = RetryCnt::try_from(8).unwrap_err();
        assert_eq!(e.to_string(), "retry_cnt is 8, at most 7 fits");
    }

    #[test]
    fn ack_timeout_is_exact_for_every_code() {
        assert_eq!(AckTimeout::NONE.duration(), None);
        let mut t_ps = 4_096_000_u64;
        for code in 1..=31 {
            t_ps *= 2;
            let t = AckTimeout::new(code).unwrap();
            assert_eq!(t.duration(), Some(Span::from_ps(t_ps)), "code {code}");
            assert_eq!(AckTimeout::at_least(Span::from_ps(t_ps)), Some(t));
            let above = AckTimeout::at_least(Span::from_ps(t_ps + 1));
            assert_eq!(above, AckTimeout::new(code + 1));
        }
        let ms = |c| AckTimeout::new(c).unwrap().duration().unwrap().as_ps() / 1_000_000_000;
        assert_eq!((ms(14), ms(20), ms(31)), (67, 4_294, 8_796_093));
        assert_eq!(AckTimeout::at_least(Span::ZERO), AckTimeout::new(1));
        assert_eq!(AckTimeout::new(14).unwrap().to_string(), "14 (67.108 ms)");
        assert_eq!(AckTimeout::NONE.to_string(), "0 (no timer)");
    }

    #[test]
    fn rnr_timer_has_these_32_durations() {
        let ns: [u64; 32] = [
            655_360_000,
            10_000,
            20_000,
            30_000,
            40_000,
            60_000,
            80_000,
            120_000,
            160_000,
            240_000,
            320_000,
            480_000,
            640_000,
            960_000,
            1_280_000,
            1_920_000,
            2_560_000,
            3_840_000,
            5_120_000,
            7_680_000,
            10_240_000,
            15_360_000,
            20_480_000,
            30_720_000,
            40_960_000,
            61_440_000,
            81_920_000,
            122_880_000,
            163_840_000,
            245_760_000,
            327_680_000,
            491_520_000,
        ];
        for (t, ns) in RnrTimer::all().zip(ns) {
            assert_eq!(t.duration(), Span::from_ns(ns), "{t:?}");
            assert_eq!(RnrTimer::at_least(Span::from_ns(ns)), Some(t));
            assert_ne!(RnrTimer::at_least(Span::from_ps(ns * 1_000 + 1)), Some(t));
        }
        assert_eq!(RnrTimer::at_least(Span::ZERO), RnrTimer::new(1));
        // Above 491.52 ms only code 0 is left, above that nothing.
        assert_eq!(RnrTimer::at_least(Span::from_ms(492)), RnrTimer::new(0));
        assert_eq!(RnrTimer::at_least(Span::from_ms(656)), None);
        assert_eq!(RnrTimer::new(0).unwrap().to_string(), "0 (655.360 ms)");
        assert_eq!(RnrTimer::new(12).unwrap().to_string(), "12 (640 us)");
    }

    /// (credits, largest free count with this code).
    const CREDIT_ROWS: [(u32, u32); 31] = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 5),
        (6, 7),
        (8, 11),
        (12, 15),
        (16, 23),
        (24, 31),
        (32, 47),
        (48, 63),
        (64, 95),
        (96, 127),
        (128, 191),
        (192, 255),
        (256, 383),
        (384, 511),
        (512, 767),
        (768, 1_023),
        (1_024, 1_535),
        (1_536, 2_047),
        (2_048, 3_071),
        (3_072, 4_095),
        (4_096, 6_143),
        (6_144, 8_191),
        (8_192, 12_287),
        (12_288, 16_383),
        (16_384, 24_575),
        (24_576, 32_767),
        (32_768, 32_768),
    ];

    #[test]
    fn credit_codes_on_both_sides_of_every_step() {
        for (code, (credits, upto)) in (0..31).zip(CREDIT_ROWS) {
            let c = CreditCode::new(code).unwrap();
            assert_eq!(c.credits(), Some(credits));
            assert_eq!(CreditCode::encode(credits), c, "first of code {code}");
            assert_eq!(CreditCode::encode(upto), c, "last of code {code}");
            if code < 30 {
                assert_eq!(CreditCode::encode(upto + 1).code(), code + 1);
            }
        }
        assert_eq!(CreditCode::encode(u32::MAX).code(), 30, "never the code for no limit");
        assert_eq!(CreditCode::NO_LIMIT.credits(), None);
        assert_eq!(CreditCode::NO_LIMIT.to_string(), "31 (no limit)");
        assert_eq!(CreditCode::encode(7).to_string(), "5 (6 credits)");
    }

    #[test]
    fn seven_is_seven_for_retry_cnt_and_no_limit_for_rnr_retry() {
        let cnt: Vec<_> = RetryCnt::all().map(RetryCnt::retries).collect();
        assert_eq!(cnt, [0, 1, 2, 3, 4, 5, 6, 7]);
        let rnr: Vec<_> = RnrRetry::all().map(RnrRetry::retries).collect();
        let six = (0..7).map(Some).chain([None]).collect::<Vec<_>>();
        assert_eq!(rnr, six);
        assert!(RnrRetry::INFINITE.is_infinite());
        assert_eq!(RnrRetry::INFINITE.to_string(), "7 (infinite)");
        assert_eq!(RnrRetry::new(6).unwrap().to_string(), "6");
        assert_eq!(RetryCnt::new(7).unwrap().to_string(), "7");
    }
}
