//! From the parameters of a profile to the rules of the RC engine.

use doorbell_sim::rc::{
    BadInvalidate, DuplicateAck, DuplicateRead, Fence, LimitedWqe, RetrySeven, Rules, SequenceNak,
    SlotReclaim,
};

use crate::profile::{
    BadInvalidateKind, DuplicateAckKind, DuplicateReadKind, FenceKind, LimitedWqeKind,
    NakDuringRnrKind, Rc, ReclaimKind, RetrySevenKind, RuleSet, SequenceNakKind,
};

/// The choices of a profile: those of its set of rules, but for those that it makes itself.
pub(super) fn rules(rc: &Rc) -> Rules {
    let set = match rc.rules {
        RuleSet::Reference => Rules::DEFAULT,
        RuleSet::Rxe => Rules::RXE,
    };
    Rules {
        retry_seven: match rc.retry_seven {
            RetrySevenKind::ByRules => set.retry_seven,
            RetrySevenKind::Seven => RetrySeven::Seven,
            RetrySevenKind::Infinite => RetrySeven::Infinite,
        },
        sequence_nak: match rc.sequence_nak {
            SequenceNakKind::ByRules => set.sequence_nak,
            SequenceNakKind::Progress => SequenceNak::Progress,
            SequenceNakKind::UsesRetry => SequenceNak::UsesRetry,
            SequenceNakKind::Reloads => SequenceNak::Reloads,
        },
        fence: match rc.fence {
            FenceKind::ByRules => set.fence,
            FenceKind::ReadAtomic => Fence::ReadAtomic,
            FenceKind::AllPrior => Fence::AllPrior,
        },
        nak_during_rnr: match rc.nak_during_rnr {
            NakDuringRnrKind::ByRules => set.nak_during_rnr,
            NakDuringRnrKind::Silence => false,
            NakDuringRnrKind::Nak => true,
        },
        duplicate_ack: match rc.duplicate_ack {
            DuplicateAckKind::ByRules => set.duplicate_ack,
            DuplicateAckKind::Always => DuplicateAck::Always,
            DuplicateAckKind::IfRequested => DuplicateAck::IfRequested,
        },
        duplicate_read: match rc.duplicate_read {
            DuplicateReadKind::ByRules => set.duplicate_read,
            DuplicateReadKind::Subset => DuplicateRead::Subset,
            DuplicateReadKind::SameEnd => DuplicateRead::SameEnd,
        },
        limited_wqe: match rc.limited_wqe {
            LimitedWqeKind::ByRules => set.limited_wqe,
            LimitedWqeKind::FirstPacket => LimitedWqe::FirstPacket,
            LimitedWqeKind::WholeMessage => LimitedWqe::WholeMessage,
        },
        bad_invalidate: match rc.bad_invalidate {
            BadInvalidateKind::ByRules => set.bad_invalidate,
            BadInvalidateKind::Error => BadInvalidate::Error,
            BadInvalidateKind::PlainSend => BadInvalidate::PlainSend,
        },
        slot_reclaim: match rc.slot_reclaim {
            ReclaimKind::OnPoll => SlotReclaim::OnPoll,
            ReclaimKind::OnCompletion => SlotReclaim::OnCompletion,
        },
        credits: rc.credits,
        last_wqe_event: rc.last_wqe_event,
        flush_late_sends: rc.flush_late_sends,
        flush_receives: rc.flush_receives,
        ..set
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate_tests::number;
    use super::super::{Outcome, Runner, Simulator};
    use super::*;
    use crate::testing::expanded;

    fn with(set: &[&str]) -> Rules {
        let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n";
        let set: Vec<String> = set.iter().map(|s| format!("settings.{s}")).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let points = expanded(text, &set).unwrap_or_else(|e| panic!("{set:?}: {e}"));
        rules(&points[0].point.profile.rc)
    }

    #[test]
    fn each_row_is_a_setting_of_its_own() {
        let d = Rules::DEFAULT;
        for (set, rules) in [
            ("rc.retry_seven=infinite", Rules { retry_seven: RetrySeven::Infinite, ..d }),
            ("rc.sequence_nak=uses-retry", Rules { sequence_nak: SequenceNak::UsesRetry, ..d }),
            ("rc.sequence_nak=reloads", Rules { sequence_nak: SequenceNak::Reloads, ..d }),
            ("rc.fence=all-prior", Rules { fence: Fence::AllPrior, ..d }),
            ("rc.nak_during_rnr=nak", Rules { nak_during_rnr: true, ..d }),
            (
                "rc.duplicate_ack=if-requested",
                Rules { duplicate_ack: DuplicateAck::IfRequested, ..d },
            ),
            ("rc.duplicate_read=same-end", Rules { duplicate_read: DuplicateRead::SameEnd, ..d }),
            ("rc.limited_wqe=whole-message", Rules { limited_wqe: LimitedWqe::WholeMessage, ..d }),
            (
                "rc.bad_invalidate=plain-send",
                Rules { bad_invalidate: BadInvalidate::PlainSend, ..d },
            ),
        ] {
            assert_ne!(rules, d);
            assert_eq!(with(&[set]), rules, "{set}");
            let row = set.split_once('=').map(|(row, _)| format!("{row}=by-rules")).unwrap();
            assert_eq!(with(&[&row]), d, "{row}");
        }
    }

    fn run(steps: &str, set: &[&str]) -> Outcome {
        let text = format!(
            "title = 't'\nprofile = 'rxe'\n[run]\nnoise = 'off'\n[qp]\nmtu = '1KiB'\n\
             [[program]]\nkind = 'script'\nreceives = 'none'\nsteps = [{steps}, 'wait']\n\
             [[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'write'\nbudget = 1\nmaybe = true\n\
             nth = 1\n"
        );
        let points = expanded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
        Simulator.run(&points[0].point).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Row 10: the 66th packet asks, since the driver counts to more than 64 of them without.
    #[test]
    fn rxe_asks_with_the_66th_packet_and_the_last() {
        for (packets, acks) in [(1, 1), (65, 1), (66, 1), (67, 2), (127, 2)] {
            let steps = format!("'post write {packets}KiB', 'ring'");
            let o = run(&steps, &["fault.f.nth=1000"]);
            assert_eq!(o.counters["tx_acks"], acks, "{packets} packets");
        }
    }

    /// Row 17: no wait is shorter than a jiffy, neither for an answer nor for a receive.
    #[test]
    fn rxe_waits_for_whole_jiffies() {
        let ended = |o: &Outcome| {
            assert_eq!(o.exit.reason, "");
            number(o, "sim_time") / 1e9
        };
        let set = |code: &str| [format!("qp.timeout={code}"), format!("qp.min_rnr_timer={code}")];
        for (code, ms) in [("1", 4.0..4.3), ("10", 8.0..8.3)] {
            let set = set(code);
            let o = run("'post write 8B', 'ring'", &[&set[0]]);
            assert_eq!(o.counters["local_ack_timeout_err"], 1);
            let took = ended(&o);
            assert!(ms.contains(&took), "timeout {code}: {took} ms");
            let fixed = ended(&run("'post write 8B', 'ring'", &[&set[0], "rc.timeout_mode=fixed"]));
            assert!(fixed < took - 1.0, "timeout {code}: {fixed} ms");
        }
        for (code, ms) in [("1", 4.0..4.3), ("18", 8.0..8.3)] {
            let set = set(code);
            let late = "'post send 8B', 'ring', 'compute 20us', 'recv 64B'";
            let o = run(late, &[&set[1], "qp.timeout=20"]);
            assert_eq!(o.counters["rnr_nak_retry_err"], 1);
            let took = ended(&o);
            assert!(ms.contains(&took), "RNR timer {code}: {took} ms");
        }
    }

    #[test]
    fn a_row_stands_above_the_set_of_rules() {
        let kept = ["rc.rules=rxe", "rc.slot_reclaim=on-completion", "rc.last_wqe_event=false"];
        assert_eq!(with(&kept), Rules::RXE);
        let one = [&kept[..], &["rc.fence=read-atomic", "rc.nak_during_rnr=silence"]].concat();
        let rules = Rules { fence: Fence::ReadAtomic, nak_during_rnr: false, ..Rules::RXE };
        assert_eq!(with(&one), rules);
    }
}
