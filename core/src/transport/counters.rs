//! Counters of a port, as far as a program may read them.

/// What went wrong on the port of a handle, by the names that Linux shows under `hw_counters`, as
/// the counters stand. On hardware they are the port's: those of everybody who uses it, since the
/// device came up. So only differences mean something, and only to who is alone or nearly so.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TransportCounters {
    /// Requester: RNR NAKs received, retry limit not exceeded.
    pub rnr_nak_retry_err: u64,
    /// Requester: expiries of the ack timer, retry limit not exceeded.
    pub local_ack_timeout_err: u64,
    /// Requester: sequence NAKs received, retry limit not exceeded.
    pub packet_seq_err: u64,
    /// Sender: CNPs received, those included that no congestion control was there to obey:
    /// `rp_cnp_handled` and `rp_cnp_ignored`.
    pub cnps: u64,
}

impl TransportCounters {
    /// What was added since `before`; 0 where a counter was reset in between.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        let Self { rnr_nak_retry_err, local_ack_timeout_err, packet_seq_err, cnps } = self;
        Self {
            rnr_nak_retry_err: rnr_nak_retry_err.saturating_sub(before.rnr_nak_retry_err),
            local_ack_timeout_err: local_ack_timeout_err
                .saturating_sub(before.local_ack_timeout_err),
            packet_seq_err: packet_seq_err.saturating_sub(before.packet_seq_err),
            cnps: cnps.saturating_sub(before.cnps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_those_of_each_counter_and_never_below_zero() {
        let of = |a, b, c, d| TransportCounters {
            rnr_nak_retry_err: a,
            local_ack_timeout_err: b,
            packet_seq_err: c,
            cnps: d,
        };
        assert_eq!(of(9, 5, 7, 8).since(of(4, 5, 1, 6)), of(5, 0, 6, 2));
        assert_eq!(of(1, 1, 1, 1).since(of(2, 0, 3, 4)), of(0, 1, 0, 0), "three were reset");
    }
}
