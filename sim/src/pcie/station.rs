//! One direction of a link (or of a socket interconnect): a FIFO server with flow control.

use std::collections::VecDeque;

use doorbell_core::units::{BitRate, PS_PER_S, Span, Time};

use super::config::Credits;
use super::{Cause, CauseAccount};

/// Times per byte have this many binary digits below the picosecond: at most 4·10⁻⁹ of error.
const FRACTION: u32 = 24;

/// What a TLP is to flow control and ordering.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// Memory write or MMIO. Passes everything that waits for other credits.
    Posted,
    /// Read request. Never passes a posted TLP.
    Request,
    /// Completion. Never passes a posted TLP; needs no credit.
    Completion,
}

/// What a burst takes from the receiver's buffers.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Need {
    pub headers: u32,
    /// Units of 16 bytes.
    pub data: u32,
}

/// Opposite directions of a link are neighbours in the table of stations, `index ^ 1`; a station
/// owes DLLPs for what its neighbour sends.
#[derive(Debug)]
pub(super) struct Station {
    ps_per_byte: u64,
    /// Part of a picosecond that the TLPs of the present busy period have used.
    fraction: u64,
    free_at: Time,
    /// When everything but completions has left. Posted TLPs wait for no more than that.
    others_free_at: Time,
    /// DLLP time owed and not yet sent.
    debt: u64,
    /// DLLP time that the opposite direction owes per byte sent here.
    dllp_per_byte: u64,
    /// Last bit sent to last bit accepted.
    pub latency: Span,
    free: Credits,
    /// Blocked bursts per flow, with their order of arrival.
    waiting: [VecDeque<(u64, u32)>; 3],
    blocked: u32,
    arrivals: u64,
    pub account: [CauseAccount; Cause::ALL.len()],
    pub busy: Span,
    pub queued: Span,
    pub credit_waits: [u64; 2],
}

impl Station {
    pub fn new(rate: BitRate, latency: Span, credits: Credits, dllp: (u32, u32)) -> Self {
        let scaled = (8 * u128::from(PS_PER_S)) << FRACTION;
        let ps_per_byte = (scaled / u128::from(rate.as_bps())) as u64;
        Self {
            ps_per_byte,
            fraction: 0,
            free_at: Time::ZERO,
            others_free_at: Time::ZERO,
            debt: 0,
            dllp_per_byte: ps_per_byte * u64::from(dllp.0) / u64::from(dllp.1),
            latency,
            free: credits,
            waiting: Default::default(),
            blocked: 0,
            arrivals: 0,
            account: Default::default(),
            busy: Span::ZERO,
            queued: Span::ZERO,
            credit_waits: [0; 2],
        }
    }

    /// Time of `wire` bytes on the idle station.
    pub fn time_for(&self, wire: u32) -> Span {
        Span::from_ps((u64::from(wire) * self.ps_per_byte) >> FRACTION)
    }

    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// DLLP time that the opposite direction owes for `wire` bytes sent here.
    pub fn dllp_for(&self, wire: u32) -> u64 {
        u64::from(wire) * self.dllp_per_byte
    }

    pub fn owe(&mut self, dllp: u64) {
        self.debt += dllp;
    }

    /// Takes the station for `wire` bytes; returns the start and the end of the service. Owed
    /// DLLPs go in idle time if there was enough, else before the burst.
    ///
    /// A posted burst goes before the completions that stand here, behind the one on the wire (at
    /// most `tlp` bytes): the root complex and every switch hold posted TLPs in a buffer of their
    /// own, and they must be able to pass (PCIe base specification, ordering rules). The
    /// completions that it passes are later by as much in sum; each keeps the time that it was
    /// told.
    pub fn reserve(&mut self, now: Time, wire: u32, flow: Flow, tlp: u32) -> (Time, Time) {
        if now > self.free_at {
            let idle = now.since(self.free_at).as_ps();
            // Comparing before shifting: `idle` may be hours.
            self.debt = match idle > (self.debt >> FRACTION) {
                true => 0,
                false => self.debt - (idle << FRACTION),
            };
            self.fraction = 0;
            self.free_at = now;
        }
        let turn = match flow {
            Flow::Posted => {
                let on_the_wire = self.free_at.min(now + self.time_for(tlp));
                on_the_wire.max(self.others_free_at)
            }
            Flow::Request | Flow::Completion => self.free_at,
        };
        self.queued += turn.since(now);
        let dllp = self.debt + self.fraction;
        self.debt = 0;
        let start = turn + Span::from_ps(dllp >> FRACTION);
        let exact = u64::from(wire) * self.ps_per_byte + (dllp & ((1 << FRACTION) - 1));
        let service = Span::from_ps(exact >> FRACTION);
        self.fraction = exact & ((1 << FRACTION) - 1);
        let end = start + service;
        self.free_at += end.since(turn);
        if flow != Flow::Completion {
            self.others_free_at = end;
        }
        self.busy += service;
        (start, end)
    }

    pub fn count(&mut self, cause: Cause, tlps: u32, wire: u32) {
        let account = &mut self.account[cause as usize];
        account.tlps += u64::from(tlps);
        account.bytes += u64::from(wire);
    }

    /// Whether nothing waits here, so that whoever arrives and has credits may go.
    pub fn is_clear(&self) -> bool {
        self.blocked == 0
    }

    pub fn has_credits(&self, flow: Flow, need: Need) -> bool {
        match flow {
            Flow::Posted => {
                need.headers <= self.free.posted_headers && need.data <= self.free.posted_data
            }
            Flow::Request => need.headers <= self.free.nonposted_headers,
            Flow::Completion => true,
        }
    }

    pub fn take_credits(&mut self, flow: Flow, need: Need) {
        match flow {
            Flow::Posted => {
                self.free.posted_headers -= need.headers;
                self.free.posted_data -= need.data;
            }
            Flow::Request => self.free.nonposted_headers -= need.headers,
            Flow::Completion => {}
        }
    }

    pub fn give_credits(&mut self, flow: Flow, need: Need) {
        match flow {
            Flow::Posted => {
                self.free.posted_headers += need.headers;
                self.free.posted_data += need.data;
            }
            Flow::Request => self.free.nonposted_headers += need.headers,
            Flow::Completion => {}
        }
    }

    /// Puts a burst that must not go now behind those that wait.
    pub fn block(&mut self, flow: Flow, burst: u32) {
        self.waiting[flow as usize].push_back((self.arrivals, burst));
        self.arrivals += 1;
        self.blocked += 1;
        if flow != Flow::Completion {
            self.credit_waits[flow as usize] += 1;
        }
    }

    /// The burst that may go next, with its flow: of the three heads the one that has waited
    /// longest, except that only a posted one passes others, and others never pass a posted one.
    pub fn next(&self, mut need: impl FnMut(u32) -> Need) -> Option<(Flow, u32)> {
        let mut best: Option<(u64, Flow, u32)> = None;
        let posted = self.waiting[Flow::Posted as usize].front().map_or(u64::MAX, |w| w.0);
        for flow in [Flow::Posted, Flow::Request, Flow::Completion] {
            let Some(&(arrival, burst)) = self.waiting[flow as usize].front() else { continue };
            let ordered = flow == Flow::Posted || arrival < posted;
            let first = best.is_none_or(|b| arrival < b.0);
            if ordered && first && self.has_credits(flow, need(burst)) {
                best = Some((arrival, flow, burst));
            }
        }
        best.map(|(_, flow, burst)| (flow, burst))
    }

    pub fn unblock(&mut self, flow: Flow) {
        self.waiting[flow as usize].pop_front();
        self.blocked -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station() -> Station {
        // One byte per nanosecond.
        Station::new(BitRate::gbps(8), Span::ZERO, Credits::UNLIMITED, (16, 200))
    }

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1000)
    }

    #[test]
    fn fifo_without_gaps_and_without_waiting_when_idle() {
        let mut s = station();
        assert_eq!(s.reserve(ns(10), 24, Flow::Request, 0), (ns(10), ns(34)));
        assert_eq!(s.reserve(ns(11), 24, Flow::Request, 0), (ns(34), ns(58)));
        assert_eq!(s.reserve(ns(58), 1, Flow::Request, 0), (ns(58), ns(59)));
        assert_eq!(s.reserve(ns(60), 1, Flow::Request, 0), (ns(60), ns(61)));
        assert_eq!(s.busy, Span::from_ns(50));
        assert_eq!(s.queued, Span::from_ns(23));
    }

    #[test]
    fn a_long_train_does_not_drift() {
        let rate = BitRate::new(63_015_384_615).unwrap();
        let mut s = Station::new(rate, Span::ZERO, Credits::UNLIMITED, (0, 1));
        let end =
            (0..100_000).map(|_| s.reserve(Time::ZERO, 84, Flow::Request, 0).1).last().unwrap();
        let exact = rate.time_for(84 * 100_000).as_ps();
        assert!(end.as_ps().abs_diff(exact) <= exact / 100_000_000, "{end} {exact}");
    }

    #[test]
    fn dllps_go_in_idle_time_or_before_the_next_burst() {
        let mut s = station();
        let owed = s.dllp_for(200); // 16 bytes, 16 ns
        s.owe(owed);
        assert_eq!(s.reserve(ns(0), 8, Flow::Request, 0), (ns(16), ns(24)));
        s.owe(owed);
        assert_eq!(s.reserve(ns(34), 8, Flow::Request, 0), (ns(40), ns(48)));
        s.owe(owed);
        assert_eq!(s.reserve(ns(65), 8, Flow::Request, 0), (ns(65), ns(73)));
    }

    #[test]
    fn posted_passes_requests_and_nothing_passes_posted() {
        let limits = Credits { posted_headers: 1, posted_data: 4, nonposted_headers: 1 };
        let mut s = Station::new(BitRate::gbps(8), Span::ZERO, limits, (0, 1));
        let one = Need { headers: 1, data: 4 };
        s.take_credits(Flow::Posted, one);
        s.take_credits(Flow::Request, one);
        s.block(Flow::Request, 10);
        s.block(Flow::Posted, 11);
        s.block(Flow::Completion, 12);
        s.block(Flow::Request, 13);
        assert_eq!(s.next(|_| one), None, "the completion must not pass the write");
        s.give_credits(Flow::Posted, one);
        assert_eq!(s.next(|_| one), Some((Flow::Posted, 11)));
        s.unblock(Flow::Posted);
        assert_eq!(s.next(|_| one), Some((Flow::Completion, 12)));
        s.give_credits(Flow::Request, one);
        assert_eq!(s.next(|_| one), Some((Flow::Request, 10)));
        assert_eq!(s.credit_waits, [1, 2]);
    }

    #[test]
    fn credits_hold_on_both_sides_of_the_limit() {
        let limits = Credits { posted_headers: 2, posted_data: 8, nonposted_headers: 1 };
        let s = Station::new(BitRate::gbps(8), Span::ZERO, limits, (0, 1));
        assert!(s.has_credits(Flow::Posted, Need { headers: 2, data: 8 }));
        assert!(!s.has_credits(Flow::Posted, Need { headers: 3, data: 8 }));
        assert!(!s.has_credits(Flow::Posted, Need { headers: 2, data: 9 }));
        assert!(s.has_credits(Flow::Request, Need { headers: 1, data: 0 }));
        assert!(!s.has_credits(Flow::Request, Need { headers: 2, data: 0 }));
        assert!(s.has_credits(Flow::Completion, Need { headers: 99, data: 99 }));
    }
    #[test]
    fn posted_writes_pass_completions_but_not_each_other_nor_requests() {
        let mut s = station();
        let completions = s.reserve(ns(0), 4000, Flow::Completion, 276);
        assert_eq!(completions, (ns(0), ns(4000)));
        // Behind the completion that is on the wire, and behind each other.
        assert_eq!(s.reserve(ns(100), 32, Flow::Posted, 276), (ns(376), ns(408)));
        assert_eq!(s.reserve(ns(120), 32, Flow::Posted, 276), (ns(408), ns(440)));
        // What comes later stands behind all of it: no byte is lost.
        assert_eq!(s.reserve(ns(130), 10, Flow::Completion, 276), (ns(4064), ns(4074)));
        assert_eq!(s.reserve(ns(140), 24, Flow::Request, 276), (ns(4074), ns(4098)));
        assert_eq!(s.reserve(ns(150), 32, Flow::Posted, 276), (ns(4098), ns(4130)));
        assert_eq!(s.free_at(), ns(4130));
        assert_eq!(s.busy, Span::from_ns(4130));
        // Near the end of the queue there is less than a TLP to wait for.
        let mut s = station();
        s.reserve(ns(0), 300, Flow::Completion, 276);
        assert_eq!(s.reserve(ns(250), 32, Flow::Posted, 276), (ns(300), ns(332)));
    }
}
