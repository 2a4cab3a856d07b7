//! Whether a window is what limits a run: READs without an answer, or slots of a send queue.
//!
//! A window of W messages, each of which keeps its slot for L at least, needs L / W for a message,
//! whatever the rest could do; a resource that is busy for s with each needs s. The larger of the
//! two limits (the bound of a closed queueing network). Both are summed over the run here, so that
//! its start and its end do not count, in which neither is full: of a short run they are a good
//! part, and a link that had work from its first packet to its last is no idle one.

use doorbell_core::units::Span;

use super::programs::{Placed, Role};
use super::{Outcome, ResourceUse};
use crate::workloads::Results;

/// Share of the window's own time, in percent, up to which the busiest resource may be busy and the
/// window is the limit: a least answer is somewhat below the usual one.
const TIGHTER_PERCENT: u128 = 95;

/// Messages that went through a window.
#[derive(Copy, Clone, Debug)]
pub(super) struct Window {
    /// How many.
    pub messages: u64,
    /// Most of them at a time.
    pub slots: u64,
    /// Time for which one has its slot, when nothing else is under way; `None`: not measured.
    pub answer: Option<Span>,
    /// Time for which slots waited for those that come back together with them, over the run.
    pub mates: Span,
    /// Time from the first message to the end of the last.
    pub took: Span,
}

impl Window {
    /// Time that all messages take through the window alone: no more than they took.
    fn alone(&self) -> Span {
        let Some(answer) = self.answer else { return self.took };
        let rounds = u128::from(answer.as_ps()) * u128::from(self.messages);
        let ps = rounds / u128::from(self.slots.max(1));
        self.took.min(Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX)) + self.mates)
    }

    /// Whether the window is a tighter limit than the resource that was busiest in the `duration`
    /// of the run. Where there is no resource it is.
    pub fn is_tighter(&self, duration: Span, out: &Outcome) -> bool {
        let Some(busy) = busiest(duration, out) else { return true };
        let alone = u128::from(self.alone().as_ps());
        u128::from(busy.as_ps()) * 100 < alone * TIGHTER_PERCENT
    }
}

/// Time for which the resource was busy that was busy for the largest part of its time.
pub(super) fn busiest(duration: Span, out: &Outcome) -> Option<Span> {
    let busy = |r: &ResourceUse| {
        let share = u128::from(r.busy.as_ps()) * u128::from(duration.as_ps());
        Span::from_ps((share / u128::from(r.of.as_ps()).max(1)) as u64)
    };
    out.resources.iter().map(busy).max()
}

/// The least latency of a message of these senders: from its hand-over to its completion, with
/// nothing before it in a queue. `None`: none was measured.
pub(super) fn least_answer(
    all: &[(&Placed, &Results)],
    of: impl Fn(&Placed) -> bool,
) -> Option<Span> {
    let senders = all.iter().filter(|(p, _)| p.role == Role::Sender && of(p));
    senders.flat_map(|(_, r)| r.latencies.iter().copied()).min()
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::simulate_tests::{number, outcome};

    /// Share of its time for which the busiest resource was busy, in percent.
    fn share(o: &Outcome) -> u64 {
        let r = &o.resources[0];
        r.busy.as_ps() * 100 / r.of.as_ps()
    }

    fn limit(o: &Outcome) -> &str {
        o.limiting.as_deref().unwrap_or("")
    }

    /// READs over 5.5 us of cable: as long as the depth covers the loop, the port is what limits,
    /// however short the run; below, the depth is.
    #[test]
    fn reads_that_fill_the_line_have_no_window_for_a_limit() {
        for (size, loop_reads) in [(32, 10.3), (128, 3.3)] {
            for depth in [1, 2, 4, 8, 16] {
                for iterations in [40, 60, 200] {
                    let text = format!(
                        "[topology]\nrate = '200Gbps'\npropagation = '5475ns'\n[qp]\n\
                         max_rd_atomic = {depth}\nmax_dest_rd_atomic = {depth}\n[[program]]\n\
                         kind = 'bandwidth'\nop = 'read'\nsize = '{size}KiB'\nwindow = 64\n\
                         iterations = {iterations}\n"
                    );
                    let o = outcome(&text, &[]);
                    let window = limit(&o) == "host0.max_rd_atomic of QP 16";
                    let ratio = f64::from(depth) / loop_reads;
                    let what = format!("{size} KiB, {depth}, {iterations}: {:?}", o.limiting);
                    assert!(window || ratio > 0.9, "{what}");
                    assert!(!window || ratio < 1.1, "{what}");
                    assert_eq!(number(&o, "note.read-window") > 0.0, window, "{what}");
                    if !window && iterations == 200 {
                        assert_eq!(limit(&o), "host1.port transmit", "{what}");
                    }
                }
            }
        }
    }

    /// WRITEs over 5 us of cable: a deeper queue makes a run faster where the queue is named, and
    /// nowhere else.
    #[test]
    fn a_send_queue_is_named_where_a_deeper_one_gains() {
        let run = |size: u32, depth: u32, rest: &str| {
            let text = format!(
                "[topology]\npropagation = '5us'\n[qp]\nsq_depth = {depth}\n[[program]]\n\
                 kind = 'bandwidth'\nop = 'write'\nsize = '{size}KiB'\niterations = 1500\n{rest}"
            );
            outcome(&text, &[])
        };
        let mut above = 0;
        for (size, depths) in [(64, &[4, 8, 9, 10, 16, 32][..]), (4, &[16, 64, 80, 88, 128, 256])] {
            let most = number(&run(size, 1024, ""), "throughput");
            for &depth in depths {
                for rest in ["", "batch = 4\n", "signal_every = 4\n"] {
                    let o = run(size, depth, rest);
                    let gains = most / number(&o, "throughput");
                    let named = limit(&o) == "host0.sq_depth of program 0";
                    let what = format!("{size} KiB, {depth}, {rest}: {:?}, {gains}", o.limiting);
                    // What is posted in batches costs the core less for each.
                    assert!(named || gains < 1.08, "{what}");
                    assert!(!named || gains > 1.02 || rest.starts_with("batch"), "{what}");
                    assert_eq!(number(&o, "note.send-queue-full") > 0.0, named, "{what}");
                    above += u32::from(named && share(&o) >= 80);
                }
            }
        }
        assert!(above >= 3, "{above} of them beside a resource that is busy for 80 %");
    }
}
