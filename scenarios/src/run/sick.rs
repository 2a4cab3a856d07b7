//! Runs that are faster than a healthy one and sick: throughput alone would recommend them. And
//! sick ones that no healthy one stands beside: their throughput says nothing about it.

use super::{ExitKind, Note, NoteKind, Outcome, Run};

/// Name of the note about a run that is faster than a healthy one.
pub(crate) const NAME: &str = "faster-but-sick";

/// Name of the note where no run of the report shows nothing.
const ALONE: &str = "sick";

/// Counters of which each says that something was lost, damaged, refused or sent twice.
pub(crate) const SIGNS: [&str; 6] = [
    "retransmitted_packets",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "rx_icrc_encapsulated",
    "local_ack_timeout_err",
    "packet_seq_err",
];

/// Says of every run that shows such signs and is faster than one that shows none, that it is so;
/// of the latter the fastest is named.
pub(super) fn compare(runs: &mut [Run]) {
    let healthy = |r: &&Run| r.outcome.exit.kind == ExitKind::Ok && signs(&r.outcome).is_empty();
    let healthy: Vec<(f64, String)> = runs
        .iter()
        .filter(healthy)
        .filter_map(|r| Some((throughput(&r.outcome)?, r.point.label())))
        .collect();
    for Run { outcome, .. } in runs.iter_mut() {
        outcome.oracles.extend([NAME, ALONE].map(str::to_owned));
        let (signs, mine) = (signs(outcome), throughput(outcome).unwrap_or(0.0));
        let slower = healthy.iter().filter(|(its, _)| *its < mine);
        let fastest = slower.max_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((_, label)) = fastest.filter(|_| !signs.is_empty()) {
            let signs = signs.join(", ");
            let text = format!("faster than {label}, which shows nothing of this: {signs}");
            let name = NAME.to_owned();
            outcome.notes.push(Note { kind: NoteKind::Warning, name, text, count: 1 });
        } else if healthy.is_empty() && !signs.is_empty() {
            let text = format!(
                "{}: no run without it is here to compare the throughput with; watch these \
                 counters beside it",
                signs.join(", ")
            );
            let name = ALONE.to_owned();
            outcome.notes.push(Note { kind: NoteKind::Info, name, text, count: 1 });
        }
    }
}

fn throughput(out: &Outcome) -> Option<f64> {
    out.metrics.get("throughput").map(|m| m.number())
}

fn signs(out: &Outcome) -> Vec<String> {
    let seen = |name: &&&str| out.counters.get(**name).is_some_and(|n| *n > 0);
    SIGNS.iter().filter(seen).map(|name| format!("{name} {}", out.counters[*name])).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Metric, Point};
    use super::*;
    use crate::testing::expanded;
    use doorbell_core::units::Span;

    fn run(bits_per_second: u64, retransmitted: u64) -> Run {
        let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'bandwidth'\n";
        let point: Point = expanded(text, &[]).unwrap().remove(0).point;
        let mut outcome = Outcome::default();
        let throughput = Metric::rate(bits_per_second / 8, Span::from_ms(1000));
        outcome.metrics.insert("throughput".into(), throughput);
        outcome.counters.insert("retransmitted_packets".into(), retransmitted);
        Run { point, outcome }
    }

    #[test]
    fn only_a_sick_run_that_is_faster_than_a_healthy_one_is_flagged() {
        let mut runs = [run(800, 0), run(880, 1), run(720, 1), run(960, 0), run(800, 5)];
        compare(&mut runs);
        let flagged = runs.each_ref().map(|r| r.outcome.notes.len());
        assert_eq!(flagged, [0, 1, 0, 0, 0], "as fast is not faster");
        assert!(runs[1].outcome.notes[0].text.ends_with("retransmitted_packets 1"));
        let mut alone = [run(800, 9)];
        compare(&mut alone);
        let [note] = &alone[0].outcome.notes[..] else { panic!("one note") };
        assert_eq!((note.name.as_str(), note.kind), (ALONE, NoteKind::Info));
        assert!(note.text.starts_with("retransmitted_packets 9: "), "{}", note.text);
        let mut well = [run(800, 0)];
        compare(&mut well);
        assert!(well[0].outcome.notes.is_empty());
        assert_eq!(alone[0].outcome.find("note.faster-but-sick").unwrap().text(), "0");
    }
}
