//! What the tuners of programs did.

use doorbell_core::policy::tuner::Knob;
use doorbell_core::units::Span;

use super::figures::by_name;
use super::programs::Placed;
use super::{LatencyRecorder, Metric, MetricValue, Note, NoteKind, Outcome, Point};
use crate::tune::TuneStep;
use crate::workloads::{Results, TuningResults};

/// A program with what its tuner did.
type Tuned<'a> = (&'a Results, &'a TuningResults);

const SECOND: Span = Span::from_ms(1000);

/// Part of a run, in percent, that trials may cost before a note says so: what a tuner is to be
/// within of the best.
const COST_PERCENT: u128 = 5;

/// Steps and figures of all tuners.
pub(super) fn collect(point: &Point, all: &[(&Placed, &Results)], out: &mut Outcome) {
    let with = all.iter().filter_map(|(p, r)| Some((*p, *r, r.tuning.as_ref()?)));
    let with: Vec<(&Placed, &Results, &TuningResults)> = with.collect();
    let mut programs: Vec<usize> = with.iter().map(|(p, ..)| p.program).collect();
    programs.sort_unstable();
    programs.dedup();
    for (p, _, tuning) in &with {
        let named = |mut step: TuneStep| {
            if programs.len() > 1 {
                step.what = format!("program.{} {}", p.program, step.what);
            }
            step
        };
        out.tuning.extend(tuning.steps.iter().map(TuneStep::from).map(named));
    }
    let members = with.iter().map(|(p, results, tuning)| (p.program, (*results, *tuning)));
    for (prefix, group) in by_name(point, members) {
        figures(&prefix, &group, out);
    }
    for index in programs {
        let its = with.iter().filter(|(p, ..)| p.program == index).map(|(.., tuning)| *tuning);
        out.notes.extend(costly(index, its));
    }
}

/// Figures of tuners together: sums of steps and rates, means of what they turned.
fn figures(prefix: &str, group: &[Tuned<'_>], out: &mut Outcome) {
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}tuner.{name}"), m);
    let steps = group.iter().map(|(_, tuning)| tuning.steps.len() as u64).sum();
    put("steps", Metric::count(steps));
    for (knob, value) in means(group) {
        put(
            knob.word(),
            match knob {
                Knob::MaxDelay => Metric::time(Span::from_ps(value)),
                Knob::Pace => Metric::rate(value, Span::from_ms(8_000)),
                _ => Metric::count(value),
            },
        );
    }
    let rested = |(r, tuning): &Tuned<'_>| Some((tuning.rest?, r.last?));
    let Some(rested) = group.iter().map(rested).collect::<Option<Vec<_>>>() else { return };
    let mut recorder = LatencyRecorder::new();
    let mut sum = 0;
    for ((results, _), ((since, before), last)) in group.iter().zip(rested) {
        let rate = Metric::per_second(results.messages - before, last.since(since));
        if let MetricValue::Integer(n) = rate.value {
            sum += n;
        }
        let times = results.latency_times.iter().zip(&results.latencies);
        times.filter(|(at, _)| **at > since).for_each(|(_, l)| recorder.record(*l));
    }
    put("rate", Metric::per_second(sum, SECOND));
    if let Some(summary) = recorder.summary() {
        put("p99", Metric::time(Span::from_ps(summary.p99)));
    }
}

/// Each knob with the mean of its last values, rounded down. All tuners of a group that turn it
/// count, those of other programs under the same name too.
fn means(group: &[Tuned<'_>]) -> Vec<(Knob, u64)> {
    let mut sums: Vec<(Knob, u128, u128)> = vec![];
    for (knob, value) in group.iter().flat_map(|(_, tuning)| &tuning.values) {
        match sums.iter_mut().find(|(k, ..)| k == knob) {
            Some((_, sum, n)) => (*sum, *n) = (*sum + u128::from(*value), *n + 1),
            None => sums.push((*knob, (*value).into(), 1)),
        }
    }
    sums.into_iter().map(|(knob, sum, n)| (knob, (sum / n) as u64)).collect()
}

/// What to say of tuners whose trials cost more than they may.
fn costly<'a>(index: usize, all: impl Iterator<Item = &'a TuningResults>) -> Option<Note> {
    let (mut looked, mut lost, mut back) = (0_u128, 0_u128, 0);
    for tuning in all {
        looked += u128::from(tuning.cost.0.as_ps());
        lost += u128::from(tuning.cost.1.as_ps());
        back += tuning.taken_back();
    }
    if lost * 100 <= looked * COST_PERCENT {
        return None;
    }
    let percent = lost * 100 / looked;
    let text = format!(
        "program.{index}: {percent} % of the time of its `tuner` went into trials that it took \
         back: they delivered that much less than the settings before them. A run without it shows \
         what the settings give; longer runs make trials cheaper, and a `pace` that begins too low \
         costs less than one too high"
    );
    let (kind, name) = (NoteKind::Warning, "tuner-trials".to_owned());
    Some(Note { kind, name, text, count: back })
}

#[cfg(test)]
mod tests {
    use crate::report::{Rows, to_json, to_text};
    use crate::run::simulate_tests::number;
    use crate::run::{Outcome, Run, Runner, Simulator};
    use crate::testing::{expanded, loaded};
    use crate::workloads::TuningResults;
    use doorbell_core::units::Span;

    const FILE: &str = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n\
        [[program]]\nkind = 'message-rate'\nsize = '64B'\niterations = 60000\ntuner = {}\n";

    fn run(text: &str) -> Run {
        let point = expanded(text, &[]).unwrap_or_else(|e| panic!("{e}")).remove(0).point;
        let outcome = Simulator.run(&point).unwrap();
        Run { point, outcome }
    }

    /// The core rings for each message at first, 180 ns; in batches the NIC's processing unit is
    /// the limit, 70 ns.
    #[test]
    fn a_core_that_rings_for_each_message_ends_up_with_batches() {
        let o = run(FILE).outcome;
        assert!(number(&o, "tuner.max_wrs") >= 8.0);
        assert!(number(&o, "tuner.rate") > 13.5e6, "{}", number(&o, "tuner.rate"));
        let first = &o.tuning[0];
        assert_eq!((&*first.what, &*first.from, &*first.to), ("max_wrs", "1", "2"));
        assert_eq!((&*first.when, &*first.why), ("now", "trial"));
        assert!(first.saw.iter().any(|s| s.name == "p99"));
        assert_eq!(number(&o, "tuner.steps"), o.tuning.len() as f64);
        let off = run(&FILE.replace("tuner = {}\n", "")).outcome;
        assert!(off.tuning.is_empty() && !off.metrics.contains_key("tuner.steps"));
    }

    /// Eight hosts at an eighth of the link each. Whoever raises its pace fills the buffer, and
    /// sees it before anything is lost; so the tuners leave what was right at the start (#6).
    fn incast(pace: &str, more: &str) -> Outcome {
        run(&format!(
            "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\nhost = 'ideal'\n\
             [topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\nswitch = 'tail-drop'\n\
             buffer = '512KiB'\n[[program]]\nkind = 'bandwidth'\nhost = 1\nhosts = 8\npeer = 0\n\
             size = '32KiB'\niterations = 1000\nwindow = 8\npace = '{pace}'\n{more}"
        ))
        .outcome
    }

    #[test]
    fn tuners_of_an_incast_leave_a_pace_that_is_right() {
        let (without, with) = (incast("12Gbps", ""), incast("12Gbps", "tuner = {}\n"));
        let rates = [&without, &with].map(|o| number(o, "throughput"));
        assert!(rates[1] >= 0.95 * rates[0], "{rates:?}");
        assert_eq!(number(&with, "counter.tail_drop"), 0.0);
        assert_eq!(number(&with, "tuner.pace"), 12e9, "the mean of eight");
        assert_eq!(number(&with, "tuner.steps"), with.tuning.len() as f64);
        assert!(with.notes.iter().all(|n| n.name != "tuner-trials"), "{:?}", with.notes);
    }

    /// Those that start apart see different queues before their trials: who is low leaves room that
    /// others take, and is not low until that is given back (#6).
    #[test]
    fn tuners_of_hosts_that_start_apart_leave_a_pace_that_is_right() {
        for apart in ["50us", "300us", "1ms"] {
            let spread = format!("start_spread = '{apart}'\n");
            let without = number(&incast("12Gbps", &spread), "throughput");
            let with = incast("12Gbps", &format!("{spread}tuner = {{}}\n"));
            let rate = number(&with, "throughput");
            assert!(rate >= 0.95 * without, "{apart}: {rate} of {without}");
        }
    }

    #[test]
    fn tuners_of_an_incast_better_a_pace_that_is_too_slow() {
        let rates = ["", "tuner = {}\n"].map(|more| number(&incast("6Gbps", more), "throughput"));
        assert!(rates[1] > 1.4 * rates[0], "{rates:?}");
    }

    #[test]
    fn trials_that_cost_much_are_told() {
        let of = |lost| TuningResults {
            cost: (Span::from_us(100), Span::from_ns(lost)),
            ..TuningResults::default()
        };
        let note = |lost: &[u64]| {
            let all: Vec<TuningResults> = lost.iter().map(|ns| of(*ns)).collect();
            super::costly(3, all.iter())
        };
        assert!(note(&[5_000]).is_none() && note(&[]).is_none() && note(&[9_000, 1_000]).is_none());
        let text = note(&[5_001]).unwrap().text;
        assert!(text.starts_with("program.3: 5 % "), "{text}");
    }

    #[test]
    fn a_report_has_the_steps() {
        let one = run(FILE);
        let n = one.outcome.tuning.len();
        let report = crate::report::Report::new("t".into(), &loaded(FILE, &[]).unwrap(), vec![one]);
        let json: serde_json::Value = serde_json::from_str(&to_json(&report)).unwrap();
        let steps = &json["points"][0]["outcome"]["tuning"];
        assert_eq!((steps.as_array().unwrap().len(), &steps[0]["what"]), (n, &"max_wrs".into()));
        assert!(to_text(&report, Rows::All).contains("takes effect"));
    }

    /// A message every microsecond on a path of 2 us: waiting for others only costs time.
    #[test]
    fn messages_that_come_one_by_one_do_not_wait_for_others() {
        let text = FILE.replace("iterations = 60000", "iterations = 20000")
            + "interval = '1us'\nbatch = 16\nbatch_delay = '8us'\n";
        let o = run(&text.replace("tuner = {}", "tuner = { window = '200us' }")).outcome;
        assert!(number(&o, "tuner.p99") < 3e6, "{}", number(&o, "tuner.p99"));
        assert_eq!(number(&o, "tuner.max_wrs"), 1.0);
    }

    /// The one proposal for the next queue pair, which is the last step.
    fn proposal(o: &Outcome) -> [&str; 5] {
        let s = o.tuning.last().unwrap();
        assert_eq!(o.tuning.iter().filter(|s| s.when == "at the next QP").count(), 1, "{s:?}");
        [&s.what, &s.from, &s.to, &s.when, &s.why]
    }

    fn saw(o: &Outcome, name: &str) -> Option<u64> {
        let saw = &o.tuning.last().unwrap().saw;
        saw.iter().find(|s| s.name == name).map(|s| s.value.parse().unwrap())
    }

    /// 128 SENDs may be outstanding, and the peer has 4 receives.
    #[test]
    fn rnr_naks_ask_for_more_receives_at_the_next_queue_pair() {
        let short = FILE.replace("iterations = 60000", "iterations = 20000");
        let text = format!("{short}op = 'send'\n[qp]\nrq_depth = 4\nmin_rnr_timer = 1\n");
        let o = run(&text).outcome;
        assert_eq!(proposal(&o), ["recv_depth", "4", "8", "at the next QP", "RNR NAKs"]);
        assert!(saw(&o, "rnr_naks").unwrap() > 0);
        assert_eq!(o.metrics.get("tuner.recv_depth"), None, "nothing was turned");
        let o = run(&text.replace("rq_depth = 4", "rq_depth = 1024")).outcome;
        assert!(o.tuning.iter().all(|s| s.when == "now"), "{:?}", o.tuning);
    }

    /// 16 messages are under way for 11.4 us, 1.41 M/s, and 1.33 M/s come: 15 of 16 slots.
    #[test]
    fn a_queue_in_front_of_which_messages_wait_should_be_deeper() {
        let text = FILE.replace("iterations = 60000", "iterations = 20000")
            + "interval = '750ns'\n[qp]\nsq_depth = 16\n[topology]\npropagation = '5us'\n";
        let o = run(&text.replace("64B'", "64B'\nwindow = 16")).outcome;
        let deeper = ["send_depth", "16", "32", "at the next QP", "the send queue is full"];
        assert_eq!(proposal(&o), deeper);
        assert!(saw(&o, "queue").unwrap() >= 14, "{:?}", o.tuning.last());
    }

    /// The link loses everything from 500 us on; the queue pair dies of it after two timers.
    #[test]
    fn a_queue_pair_that_dies_of_timeouts_leaves_a_proposal() {
        let fault = "[qp]\nretry_cnt = 1\ntimeout = 5\n[[fault]]\nkind = 'drop'\nid = 'cut'\n\
                     chance = 1\nafter = '500us'\n";
        let o = run(&format!("{FILE}{fault}")).outcome;
        assert_eq!(proposal(&o), ["timeout", "5", "6", "at the next QP", "timeouts"]);
        assert_eq!(saw(&o, "timeouts"), Some(2), "one that was counted, one that was too many");
    }

    /// A message every microsecond on a path that takes 745 K/s: the backlog grows all the time. So
    /// it does however short a window is said to be, and no step is then judged by one message.
    #[test]
    fn a_steady_overload_is_left_alone() {
        let text = FILE.replace("64B", "4KiB") + "interval = '1us'\n[topology]\nrate = '25Gbps'\n";
        for window in ["50us", "1ps"] {
            let o = run(&text.replace("tuner = {}", &format!("tuner = {{ window = '{window}' }}")));
            let steps = &o.outcome.tuning;
            assert!(number(&o.outcome, "message_rate") < 0.75e6, "an overload");
            let last: u64 = steps.last().unwrap().at.trim_start_matches("window ").parse().unwrap();
            assert!(steps.len() <= 12 && last < 100, "{window}: {} to {last}", steps.len());
        }
    }

    /// One sender may raise its pace as it likes; the other has 60 of the 98 Gb/s of payload that
    /// the port carries, and what is more is dropped.
    #[test]
    fn a_pace_that_the_network_does_not_take_is_lowered() {
        let text = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n[topology]\n\
            kind = 'switch'\nhosts = 3\nrate = '100Gbps'\nswitch = 'tail-drop'\n\
            buffer = '256KiB'\n[qp]\ntimeout = 8\n\
            [[program]]\nkind = 'bandwidth'\nname = 'a'\nhost = 1\npeer = 0\nsize = '4KiB'\n\
            iterations = 40000\npace = '60Gbps'\ntuner = { window = '200us' }\n\
            [[program]]\nkind = 'bandwidth'\nname = 'b'\nhost = 2\npeer = 0\nsize = '4KiB'\n\
            iterations = 80000\npace = '60Gbps'\n";
        let o = run(text).outcome;
        let first = &o.tuning[0];
        assert_eq!((&*first.what, &*first.from, &*first.when), ("pace", "60Gbps", "now"));
        let congested = |s: &&crate::tune::TuneStep| s.why == "congestion";
        assert!(o.tuning.iter().any(|s| congested(&s)), "{:?}", o.tuning);
        assert!(number(&o, "a.tuner.pace") <= 48e9, "{:?}", o.tuning);
    }

    #[test]
    fn programs_that_have_no_use_for_a_tuner_are_refused() {
        let error = |text: &str| expanded(text, &[]).unwrap_err();
        let e = error(&FILE.replace("message-rate", "latency"));
        assert!(e.to_string().starts_with("t.toml:9:") && e.message().contains("`tuner`"), "{e}");
        assert!(e.remedy().unwrap().contains("only `bandwidth` and `message-rate`"));
        let e = error(&(FILE.to_owned() + "threads = 2\nshare_qp = true\n"));
        assert!(e.message().contains("`tuner` with `share_qp`"), "{e}");
        let e = error(&FILE.replace("tuner = {}", "tuner = { window = '0us' }"));
        assert!(e.to_string().starts_with("t.toml:9:"), "{e}");
        let e = error(&FILE.replace("tuner = {}", "tuner = { widow = '9us' }"));
        assert!(e.message().contains("unknown key `widow`"), "{e}");
    }
}
