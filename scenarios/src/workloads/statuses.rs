//! Statuses of completions in the order in which they were polled.

use std::fmt;

use doorbell_core::transport::{Completion, WorkQueue};
use doorbell_core::verbs::WcStatus;

/// Most changes of status that are kept.
pub const MAX_RUNS: usize = 64;

/// Statuses in order, as runs of like ones, and how many there were of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statuses {
    runs: Vec<(WcStatus, u64)>,
    /// Completions behind the last run that is kept.
    rest: u64,
    counts: Vec<(WcStatus, u64)>,
    /// `wr_id` of the first sends that completed.
    sends: Vec<u64>,
    /// How many completed behind them.
    more_sends: u64,
}

impl Statuses {
    /// Adds a completion.
    pub fn add(&mut self, c: &Completion) {
        match *c {
            Completion::Send { wr_id, .. }
            | Completion::Error { wr_id, queue: WorkQueue::Send, .. } => {
                if self.sends.len() < MAX_RUNS {
                    self.sends.push(wr_id);
                } else {
                    self.more_sends += 1;
                }
            }
            _ => {}
        }
        let status = match c {
            Completion::Error { status, .. } => *status,
            Completion::Send { .. } | Completion::Recv { .. } => WcStatus::Success,
        };
        match self.counts.iter_mut().find(|(s, _)| *s == status) {
            Some((_, n)) => *n += 1,
            None => self.counts.push((status, 1)),
        }
        let room = self.runs.len() < MAX_RUNS;
        match self.runs.last_mut() {
            _ if self.rest > 0 => self.rest += 1,
            Some((s, n)) if *s == status => *n += 1,
            _ if room => self.runs.push((status, 1)),
            _ => self.rest = 1,
        }
    }

    /// `wr_id` of sends in the order of their completions: `1, 0`.
    pub fn wr_ids(&self) -> String {
        let mut all: Vec<String> = self.sends.iter().map(u64::to_string).collect();
        if self.more_sends > 0 {
            all.push(format!("and {} more", self.more_sends));
        }
        all.join(", ")
    }

    /// How many there were of each status.
    pub fn counts(&self) -> impl Iterator<Item = (WcStatus, u64)> {
        self.counts.iter().copied()
    }

    /// Whether any was an error.
    pub fn failed(&self) -> bool {
        self.counts.iter().any(|(s, _)| *s != WcStatus::Success)
    }
}

impl fmt::Display for Statuses {
    /// Numbers of `ibv_wc_status`, with the length of each run: `0 x3, 10, 5 x4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (status, n) in &self.runs {
            write!(f, "{between}{}", *status as u32)?;
            if *n > 1 {
                write!(f, " x{n}")?;
            }
            between = ", ";
        }
        if self.rest > 0 { write!(f, ", and {} more", self.rest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::transport::QpId;

    fn error(status: WcStatus) -> Completion {
        let (qp, queue) = (QpId::new(0, 0, 0), WorkQueue::Send);
        Completion::Error { wr_id: 0, qp, queue, status, vendor_err: 0, retired: 1 }
    }

    fn of(statuses: &[WcStatus]) -> Statuses {
        let mut all = Statuses::default();
        statuses.iter().for_each(|s| all.add(&error(*s)));
        all
    }

    #[test]
    fn runs_are_in_order() {
        use WcStatus::{RemAccessErr, WrFlushErr};
        assert_eq!(Statuses::default().to_string(), "");
        assert!(!Statuses::default().failed());
        let all = of(&[WrFlushErr, RemAccessErr, WrFlushErr, WrFlushErr]);
        assert_eq!(all.to_string(), "5, 10, 5 x2");
        assert!(all.failed());
        assert_eq!(all.counts().collect::<Vec<_>>(), [(WrFlushErr, 3), (RemAccessErr, 1)]);
    }

    #[test]
    fn sends_are_named_in_the_order_of_their_completions_and_receives_are_not() {
        let mut all = Statuses::default();
        for (id, queue) in [(3, WorkQueue::Send), (7, WorkQueue::Recv), (1, WorkQueue::Send)] {
            let (qp, status) = (QpId::new(0, 0, 0), WcStatus::WrFlushErr);
            let (wr_id, vendor_err, retired) = (id, 0, 1);
            all.add(&Completion::Error { wr_id, qp, queue, status, vendor_err, retired });
        }
        assert_eq!(all.wr_ids(), "3, 1");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        use WcStatus::{RemAccessErr, WrFlushErr};
        let pairs: Vec<_> = (0..MAX_RUNS / 2).flat_map(|_| [WrFlushErr, RemAccessErr]).collect();
        let mut all = of(&pairs);
        assert!(all.to_string().ends_with("5, 10"));
        all.add(&error(WrFlushErr));
        all.add(&error(RemAccessErr));
        assert!(all.to_string().ends_with("5, 10, and 2 more"));
        assert_eq!(all.counts().map(|(_, n)| n).sum::<u64>(), MAX_RUNS as u64 + 2);
        assert!(all.wr_ids().ends_with("0, and 2 more"), "{}", all.wr_ids());
    }
}
