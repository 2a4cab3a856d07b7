//! Congestion control of native InfiniBand (`protocol.md` §7.5): the source CA's part.
//!
//! The source remembers an index, CCTI, into a table of gaps, the CCT. BECN moves the index up, a
//! timer moves it down by one; the gap behind each packet is the table's entry. There is no memory
//! of a rate that was good.
//!
//! **Difference.** The gap of an entry is for a packet of the largest size; here it scales with
//! the packet, so that an entry is a share of the line rate for packets of any size.

use std::sync::Arc;

use doorbell_core::units::{BitRate, Span, Time};

use super::{CcEvent, CongestionControl, FlowScope, mul_div};

/// Unit of the CCTI timer.
const TIMER_UNIT: Span = Span::from_ns(1024);

/// Parameters, by their names in the management datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ibcc {
    /// The table: bits 15 and 14 a shift, the others a multiplier, so that the rate is
    /// line / (1 + multiplier / 2^shift). `ccti_limit` is its last index.
    pub cct: Vec<u16>,
    /// Steps up per BECN. Twice of it: a mark slows twice as much.
    pub ccti_increase: u16,
    /// Time until a step down, in units of 1.024 us. Twice of it: recovery takes twice as long.
    pub ccti_timer: u16,
    /// Index below which no step down goes.
    pub ccti_min: u16,
    /// BECNs that leave the index here or above are logged.
    pub trigger_threshold: u16,
    /// What shares an index: bit 0 of `port_control`.
    pub scope: FlowScope,
}

impl Ibcc {
    /// A table whose entry i is the rate line / (1 + i / 2^shift).
    pub fn table(shift: u8, entries: u16) -> Vec<u16> {
        (0..entries.min(1 << 14)).map(|i| u16::from(shift.min(3)) << 14 | i).collect()
    }

    /// A flow on a port of this rate.
    ///
    /// # Panics
    /// When the table is empty, or the timer is 0.
    pub fn build(cfg: &Arc<Self>, line: BitRate) -> IbccFlow {
        assert!(!cfg.cct.is_empty(), "a CCT without entries; its first entry is the full rate");
        assert!(cfg.ccti_timer > 0, "ccti_timer 0 never ends; at least 1");
        IbccFlow { cfg: cfg.clone(), line, ccti: cfg.ccti_min, expires: None, triggered: 0 }
    }

    fn limit(&self) -> u16 {
        (self.cct.len() - 1) as u16
    }
}

/// One flow, or all of a service level.
#[derive(Clone, Debug)]
pub struct IbccFlow {
    cfg: Arc<Ibcc>,
    line: BitRate,
    ccti: u16,
    /// End of the running timer.
    expires: Option<Time>,
    triggered: u64,
}

impl IbccFlow {
    /// The index.
    pub const fn ccti(&self) -> u16 {
        self.ccti
    }

    /// BECNs that left the index at the trigger threshold or above.
    pub const fn triggered(&self) -> u64 {
        self.triggered
    }

    fn period(&self) -> Span {
        TIMER_UNIT * u64::from(self.cfg.ccti_timer)
    }

    fn on_becn(&mut self, now: Time) {
        let up = self.ccti.saturating_add(self.cfg.ccti_increase);
        self.ccti = up.min(self.cfg.limit()).max(self.ccti);
        self.triggered += u64::from(self.ccti >= self.cfg.trigger_threshold);
        if self.expires.is_none() && self.ccti > self.cfg.ccti_min {
            self.expires = Some(now + self.period());
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.expires.is_none_or(|due| due > now) {
            return;
        }
        self.ccti = self.ccti.saturating_sub(1).max(self.cfg.ccti_min);
        self.expires = (self.ccti > self.cfg.ccti_min).then(|| now + self.period());
    }
}

impl CongestionControl for IbccFlow {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        match event {
            CcEvent::Cnp | CcEvent::Ack { ecn: true, .. } => self.on_becn(now),
            CcEvent::Timer => self.on_timer(now),
            _ => {}
        }
    }

    fn rate(&self) -> Option<BitRate> {
        let entry = self.cfg.cct.get(usize::from(self.ccti))?;
        let (unit, mult) = (1_u64 << (entry >> 14), u64::from(entry & 0x3FFF));
        if mult == 0 {
            return None;
        }
        BitRate::new(mul_div(self.line.as_bps(), unit, unit + mult).max(1))
    }

    fn next_deadline(&self) -> Option<Time> {
        self.expires
    }

    fn samples_rtt(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: BitRate = BitRate::gbps(60);

    fn cfg(cct: Vec<u16>) -> Arc<Ibcc> {
        Arc::new(Ibcc {
            cct,
            ccti_increase: 1,
            ccti_timer: 100,
            ccti_min: 0,
            trigger_threshold: 2,
            scope: FlowScope::Qp,
        })
    }

    #[test]
    fn entries_are_shares_of_the_line() {
        // Shift 0, 1, 2 with multiplier 1: 1/2, 2/3, 4/5 (`protocol.md` §7.5).
        for (shift, gbps) in [(0, 30), (1, 40), (2, 48)] {
            let mut flow = Ibcc::build(&cfg(vec![0, shift << 14 | 1]), LINE);
            assert_eq!(flow.rate(), None);
            flow.on_event(Time::ZERO, CcEvent::Cnp);
            assert_eq!(flow.rate(), Some(BitRate::gbps(gbps)));
        }
        let mut flow = Ibcc::build(&cfg(Ibcc::table(2, 9)), LINE);
        for i in 1..9_u64 {
            flow.on_event(Time::ZERO, CcEvent::Cnp);
            assert_eq!(flow.rate().unwrap().as_bps(), 60_000_000_000 * 4 / (4 + i));
        }
    }

    #[test]
    fn the_index_stays_in_its_range_and_each_expiry_takes_one() {
        let mut flow = Ibcc::build(&cfg(Ibcc::table(0, 4)), LINE);
        let echo = CcEvent::Ack { bytes: 0, rtt: None, ecn: true };
        for _ in 0..9 {
            flow.on_event(Time::ZERO, echo);
        }
        assert_eq!((flow.ccti(), flow.triggered()), (3, 8), "3 is the last index");
        let period = Span::from_ns(102_400);
        for left in [2, 1, 0] {
            let due = Time::ZERO + period * (3 - left);
            assert_eq!(flow.next_deadline(), Some(due));
            flow.on_event(due, CcEvent::Timer);
            assert_eq!(u64::from(flow.ccti()), left);
        }
        assert_eq!((flow.next_deadline(), flow.rate()), (None, None));
    }

    #[test]
    fn a_mark_does_not_start_the_timer_anew() {
        let mut flow = Ibcc::build(&cfg(Ibcc::table(0, 9)), LINE);
        flow.on_event(Time::ZERO, CcEvent::Cnp);
        let due = flow.next_deadline();
        flow.on_event(Time::from_ps(5), CcEvent::Cnp);
        assert_eq!((flow.next_deadline(), flow.ccti()), (due, 2));
        flow.on_event(Time::from_ps(6), CcEvent::Ack { bytes: 1, rtt: None, ecn: false });
        flow.on_event(Time::from_ps(6), CcEvent::Timer);
        assert_eq!(flow.ccti(), 2, "neither an ACK without BECN nor an early call counts");
    }
}
