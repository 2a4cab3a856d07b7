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

    #[test]
    fn a_row_stands_above_the_set_of_rules() {
        let kept = ["rc.rules=rxe", "rc.slot_reclaim=on-completion", "rc.last_wqe_event=false"];
        assert_eq!(with(&kept), Rules::RXE);
        let one = [&kept[..], &["rc.fence=read-atomic", "rc.nak_during_rnr=silence"]].concat();
        let rules = Rules { fence: Fence::ReadAtomic, nak_during_rnr: false, ..Rules::RXE };
        assert_eq!(with(&one), rules);
    }
}
