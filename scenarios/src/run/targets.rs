//! Controls by round trip times whose goal no rate can meet: the empty path takes longer.

use doorbell_core::units::Span;
use doorbell_sim::nic::NicQp;
use doorbell_sim::world::World;

use super::congestion::Keys;
use super::deaths::{qp_name, round_trip};
use super::{Metric, Note, NoteKind, Outcome};
use crate::format::{ControlKind, Scenario};

/// Name of the note.
const NAME: &str = "target-below-path";

/// Name of the note about segments that no flow fills.
const SEGMENT: &str = "segment-too-long";

/// Looks at what a control by round trip times is to reach.
pub(super) fn collect(s: &Scenario, world: &World, out: &mut Outcome) {
    out.oracles.extend([NAME, SEGMENT].map(str::to_owned));
    let c = &s.congestion;
    if !matches!(c.control, ControlKind::Timely | ControlKind::Integral) {
        return;
    }
    let senders = || {
        let hosts = (0u32..).zip(world.hosts());
        let all = hosts.flat_map(|(h, host)| host.qps().map(move |(_, q)| (h, q)));
        all.filter(|(_, q)| q.stats.first_sent.is_some())
    };
    let times: Vec<_> = senders().map(|(h, q)| (round_trip(world, h, q), h, q)).collect();
    let Some(&longest) = times.iter().max_by_key(|(t, h, q)| (*t, std::cmp::Reverse((*h, q.qpn))))
    else {
        return;
    };
    let beyond = |goal: Span| times.iter().filter(|(t, ..)| *t >= goal).count() as u64;
    let found = match c.control {
        ControlKind::Integral => below(c.integral().target, longest).map(|who| {
            let target = c.integral().target;
            let text = format!(
                "`congestion.target` is {}, {who}: the rate falls to `congestion.min_rate` \
                 whatever the queue is; write `congestion.target = \"{}\"` or more",
                time(target),
                above(longest.0)
            );
            (text, beyond(target))
        }),
        _ => timely(c.timely().t_low, c.timely().t_high, longest)
            .map(|(text, goal)| (text, beyond(goal))),
    };
    if let Some((text, count)) = found {
        out.notes.push(Note { kind: NoteKind::Warning, name: NAME.to_owned(), text, count });
    }
    if c.control == ControlKind::Timely {
        segment(c.timely().segment, world, senders(), out);
    }
}

/// What is said of the thresholds of TIMELY, and the one that is too low.
fn timely(low: Span, high: Span, longest: (Span, u32, &NicQp)) -> Option<(String, Span)> {
    if let Some(who) = below(high, longest) {
        let text = format!(
            "`congestion.t_high` is {}, {who}: each segment cuts the rate, down to \
             `congestion.min_rate`; write `congestion.t_high = \"{}\"` or more",
            time(high),
            above(longest.0 * 2)
        );
        return Some((text, high));
    }
    let who = below(low, longest)?;
    let text = format!(
        "`congestion.t_low` is {}, {who}: no rate rises but by the gradient, on an empty path too; \
         write `congestion.t_low = \"{}\"` or more, up to `congestion.t_high`",
        time(low),
        above(longest.0)
    );
    Some((text, low))
}

/// Says whose path takes as long as a goal, or longer, if one does.
fn below(goal: Span, (path, host, q): (Span, u32, &NicQp)) -> Option<String> {
    (goal <= path).then(|| {
        let name = qp_name(host, q.qpn);
        let took = time(path);
        format!("and a packet of {name} and its ACK take {took} over an empty path")
    })
}

/// Flows that end before TIMELY has decided anything.
fn segment<'a>(
    segment: u64,
    world: &World,
    senders: impl Iterator<Item = (u32, &'a NicQp)>,
    out: &mut Outcome,
) {
    let sent = |(h, q): (u32, &NicQp)| super::limits::sent(world, h, q);
    let (mut count, mut most) = (0, 0);
    for bytes in senders.map(sent).filter(|bytes| *bytes > 0) {
        (count, most) = (count + 1, most.max(bytes));
    }
    if count == 0 || most >= segment {
        return;
    }
    let text = format!(
        "`congestion.segment` is {}, and no queue pair sent more than {}: TIMELY decides nothing \
         before so much is acknowledged, so rates are those of the line; write \
         `congestion.segment = \"{}B\"` or less",
        Metric::bytes(segment).text(),
        Metric::bytes(most).text(),
        most
    );
    let name = SEGMENT.to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}

fn time(span: Span) -> String {
    Metric::time(span).text()
}

/// A time above this one, as a file has it.
fn above(span: Span) -> String {
    format!("{}ns", span.as_ps() / 1_000 + 1)
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    /// A flow over links of 2 us: a packet there, with two links, and its ACK back take 8.3 us of
    /// cable and switch, and less than a microsecond of bytes.
    fn run(congestion: &str) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[settings]\nrc.ack_every = 1\nport.switch_latency = '150ns'\n\
             [topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\npropagation = '2us'\n\
             [[program]]\nkind = 'flows'\nhost = 1\nhosts = 2\npeer = 0\nsize = '1MB'\n\
             flows = {{ pattern = 'incast' }}\n[congestion]\n{congestion}\n"
        );
        outcome(&text, &[])
    }

    fn text<'a>(o: &'a Outcome, name: &str) -> &'a str {
        let note = o.notes.iter().find(|n| n.name == name);
        &note.unwrap_or_else(|| panic!("no {name}: {:?}", o.notes)).text
    }

    #[test]
    fn issue_005_a_target_below_the_empty_path_is_named_with_both_times() {
        let o = run("control = 'integral'\ngain = '10000/s'\ntarget = '8us'");
        let found = text(&o, "target-below-path");
        assert!(found.contains("`congestion.target` is 8"), "{found}");
        assert!(found.contains("take 8.") && found.contains("congestion.min_rate"), "{found}");
        assert_eq!(number(&o, "note.target-below-path"), 2.0);
        let o = run("control = 'integral'\ngain = '10000/s'\ntarget = '12us'");
        assert_eq!(number(&o, "note.target-below-path"), 0.0, "{:?}", o.notes);
    }

    #[test]
    fn issue_005_thresholds_of_timely_below_the_empty_path_are_named() {
        let base = "control = 'timely'\nmin_rtt = '8us'";
        let o = run(&format!("{base}\nt_low = '2us'\nt_high = '8us'"));
        let found = text(&o, "target-below-path");
        assert!(found.contains("`congestion.t_high` is 8"), "{found}");
        let o = run(&format!("{base}\nt_low = '2us'\nt_high = '80us'"));
        let found = text(&o, "target-below-path");
        assert!(found.contains("`congestion.t_low` is 2"), "{found}");
        let o = run(&format!("{base}\nt_low = '15us'\nt_high = '80us'"));
        assert_eq!(number(&o, "note.target-below-path"), 0.0, "{:?}", o.notes);
    }

    #[test]
    fn issue_005_a_segment_that_no_flow_fills_is_named() {
        let o = run("control = 'timely'\nt_low = '15us'\nsegment = '1000001B'");
        assert!(text(&o, "segment-too-long").contains("`congestion.segment = \"1000000B\"`"));
        let o = run("control = 'timely'\nt_low = '15us'\nsegment = '1000000B'");
        assert_eq!(number(&o, "note.segment-too-long"), 0.0);
    }
}
