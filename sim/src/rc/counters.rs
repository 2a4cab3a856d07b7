//! Counters of a QP, with the names that Linux shows under `hw_counters` (`protocol.md` §8.2).

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened to a QP, each thing on the side that sees it. They saturate.
        ///
        /// The names and meanings are those of mlx5 under Linux, save for the last ones, which
        /// Linux does not show. "Not exceeded": an event that ends the QP because its limit is
        /// used up is counted in the `*_exceeded` counter instead.
        ///
        /// So for NAKs of both kinds, RNR and sequence, taken together:
        ///
        /// - sent = received + lost on the way + arrived when the QP had left RTS and SQD;
        /// - received = not exceeded (`rnr_nak_retry_err` + `packet_seq_err`) + `unused_naks`
        ///   + 1 if the last one ended the QP.
        #[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
        pub struct HwCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl HwCounters {
            /// Adds the counters of another QP, or of the other half.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            /// Name and value of each, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Responder: WRITE requests accepted.
    rx_write_requests,
    /// Responder: READ requests accepted.
    rx_read_requests,
    /// Responder: ATOMIC requests accepted.
    rx_atomic_requests,
    /// Responder: packets that found no receive WQE, one per RNR NAK or drop.
    out_of_buffer,
    /// Responder: packets beyond the expected PSN, those included that get no answer.
    out_of_sequence,
    /// Responder: packets before the expected PSN.
    duplicate_request,
    /// Requester: sequence NAKs received, limit not exceeded. Those included that change nothing
    /// because what they ask for is under way: with selective repeat a responder answers each
    /// packet beyond a gap by one, so one loss counts as often as packets were in flight behind it.
    packet_seq_err,
    /// Requester: responses beyond an unanswered READ or ATOMIC, limit not exceeded. Those that
    /// follow the first one count again only when something has moved or was sent again.
    implied_nak_seq_err,
    /// Requester: expiries of the ack timer, limit not exceeded.
    local_ack_timeout_err,
    /// Requester: of these, those of an adaptive timer (`TimeoutMode::Adaptive`): each begins a
    /// retransmission.
    roce_adp_retrans,
    /// Requester: expiries of an adaptive timer, one that ends the QP included. The vendor's two
    /// sentences do not say more exactly what it counts apart; this is our reading.
    roce_adp_retrans_to,
    /// Requester: RNR NAKs received, limit not exceeded. Those included that come during a wait.
    rnr_nak_retry_err,
    /// Requester: the QP ended with `RETRY_EXC_ERR`.
    req_transport_retries_exceeded,
    /// Requester: the QP ended with `RNR_RETRY_EXC_ERR`.
    req_rnr_retries_exceeded,
    /// Requester: completions with an error, flushes included.
    req_cqe_error,
    /// Requester: completions with `WR_FLUSH_ERR`.
    req_cqe_flush_error,
    /// Responder: completions with an error, flushes included.
    resp_cqe_error,
    /// Responder: completions with `WR_FLUSH_ERR`.
    resp_cqe_flush_error,
    /// Requester: NAKs Invalid Request received.
    req_remote_invalid_request,
    /// Requester: NAKs Remote Access received.
    req_remote_access_errors,
    /// Responder: access errors found.
    resp_remote_access_errors,
    /// Responder: receive buffers that were too short.
    resp_local_length_error,
    /// Receiver: packets that a switch had marked (CE, or FECN).
    np_ecn_marked_roce_packets,
    /// Receiver: CNPs sent.
    np_cnp_sent,
    /// Sender: CNPs, and ACKs with BECN, that its congestion control was told of.
    rp_cnp_handled,
    /// Sender: CNPs without effect: there is no congestion control, or no such QP.
    rp_cnp_ignored,
    /// Requester: packets sent again. Not a counter of Linux.
    retransmitted_packets,
    /// Responder: RNR NAKs sent. rxe calls it `send_rnr_err`.
    rnr_nak_sent,
    /// Responder: sequence NAKs sent. Not a counter of Linux.
    sequence_naks_sent,
    /// Requester: RNR NAKs received. rxe calls it `rcvd_rnr_err`.
    rnr_nak_received,
    /// Requester: sequence NAKs received. rxe calls it `rcvd_seq_err`.
    sequence_naks_received,
    /// Requester: responses without effect: older than all that is outstanding, or never asked
    /// for. Not a counter of Linux.
    stale_responses,
    /// Requester: NAKs of both kinds, RNR and sequence, that were received and tell nothing of
    /// their own: too late to name something outstanding (`stale_responses` counts them too), or
    /// beyond an unanswered READ or ATOMIC, whose loss is what they show (`implied_nak_seq_err`
    /// counts the first of these), or beyond a work request that this side could not execute. Not
    /// a counter of Linux.
    unused_naks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_add_and_saturate() {
        let mut a = HwCounters { packet_seq_err: 3, out_of_buffer: u64::MAX, ..Default::default() };
        let b = HwCounters { packet_seq_err: 4, out_of_buffer: 1, ..Default::default() };
        a.add(&b);
        let seen: Vec<_> = a.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(seen, [("out_of_buffer", u64::MAX), ("packet_seq_err", 7)]);
    }
}
