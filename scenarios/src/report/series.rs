//! Series as files of comma-separated values, and as a table of their figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use doorbell_sim::engine::series::Kind;

use super::Rows;
use super::table::{Align, Table};
use crate::run::{Metric, NetworkPort, Outcome, SeriesTable, SeriesTrack};
use doorbell_core::units::Span;

/// Ports and series shown in text; the rest of the ports by `--full`, of both in JSON and CSV.
const MAX_ROWS: usize = 10;

/// One file for each group: its name, and the text. The first line names columns and units, the
/// first column is the end of the interval.
pub fn series_csv(table: &SeriesTable) -> BTreeMap<&'static str, String> {
    let mut groups: BTreeMap<&'static str, Vec<&SeriesTrack>> = BTreeMap::new();
    for track in &table.tracks {
        groups.entry(track.quantity.group).or_default().push(track);
    }
    groups.into_iter().map(|(group, tracks)| (group, csv(&table.times, &tracks))).collect()
}

fn csv(times: &[Span], tracks: &[&SeriesTrack]) -> String {
    let mut out = "time [us]".to_owned();
    for track in tracks {
        let per = if track.quantity.kind == Kind::Count { " per interval" } else { "" };
        let _ = write!(out, ",{} [{}{per}]", track.name(), track.unit().symbol());
    }
    out.push('\n');
    for (i, time) in times.iter().enumerate() {
        let ps = time.as_ps();
        let _ = write!(out, "{}.{:06}", ps / 1_000_000, ps % 1_000_000);
        for track in tracks {
            let _ = write!(out, ",{}", track.values[i]);
        }
        out.push('\n');
    }
    out
}

/// How the points lie, in one line.
pub(super) fn points_line(table: &SeriesTable) -> String {
    let time = |span| Metric::time(span).text();
    let mut line = format!(
        "series of {} numbers, {} points of {}",
        table.tracks.len(),
        table.times.len(),
        time(table.interval)
    );
    if table.interval > table.asked {
        let _ = write!(
            line,
            " ({} was asked for; neighbours were merged to stay below `record.series_points`)",
            time(table.asked)
        );
    }
    if table.left_out > 0 {
        let _ = write!(
            line,
            "; {} more found no room: name fewer in `record.series_of`, or lower \
             `record.series_points`",
            table.left_out
        );
    }
    line
}

/// The figures of the series that moved most, group by group.
pub(super) fn series_text(outcome: &Outcome) -> String {
    let Some(series) = &outcome.series else { return String::new() };
    let mut table = Table::new(&[
        ("series", Align::Left),
        ("min", Align::Right),
        ("mean", Align::Right),
        ("max", Align::Right),
        ("total", Align::Right),
    ]);
    let tracks = liveliest(series, MAX_ROWS);
    for track in &tracks {
        let figure = |figure: &str| {
            let metric = series.figure(&format!("{}.{figure}", track.name()));
            metric.map(|m| m.text()).unwrap_or_default()
        };
        let cells = ["min", "mean", "max", "total"].map(figure);
        table.row([track.name()].into_iter().chain(cells).collect());
    }
    let mut out = points_line(series) + "\n";
    if !table.is_empty() {
        out += &table.without_empty_columns().render(0);
    }
    let shown = tracks.len();
    let moved = series.tracks.iter().filter(|t| moves(t)).count();
    if moved > shown {
        let _ = writeln!(out, "  and {} more", moved - shown);
    }
    out
}

fn moves(track: &SeriesTrack) -> bool {
    track.values.iter().any(|v| *v > 0)
}

/// Of each quantity in turn the series with the largest value, until `most` are named.
pub(super) fn liveliest(series: &SeriesTable, most: usize) -> Vec<&SeriesTrack> {
    let mut quantities: Vec<Vec<&SeriesTrack>> = Vec::new();
    for track in series.tracks.iter().filter(|t| moves(t)) {
        match quantities.iter_mut().find(|q| q[0].quantity.name == track.quantity.name) {
            Some(known) => known.push(track),
            None => quantities.push(vec![track]),
        }
    }
    for of in &mut quantities {
        of.sort_by_key(|t| std::cmp::Reverse(t.values.iter().max().copied()));
    }
    let longest = quantities.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|i| quantities.iter().filter_map(move |q| q.get(i)));
    let mut chosen: Vec<&SeriesTrack> = in_turn.take(most).copied().collect();
    let place = |t: &SeriesTrack| quantities.iter().position(|q| q[0].quantity == t.quantity);
    chosen.sort_by_key(|t| place(t));
    chosen
}

/// Ports of a network of switches, and of any where something was dropped or waited for room.
pub(super) fn ports_text(outcome: &Outcome, rows: Rows) -> String {
    let ports = &outcome.network_ports;
    let told = |p: &NetworkPort| {
        p.name.starts_with("switch") || p.dropped() > 0 || p.starved_ps.unwrap_or(0) > 0
    };
    let used = |p: &&NetworkPort| p.packets > 0 || p.dropped() > 0;
    if !ports.iter().any(told) {
        return String::new();
    }
    let mut table = Table::new(&[
        ("network port", Align::Left),
        ("to", Align::Left),
        ("busy", Align::Right),
        ("queue max", Align::Right),
        ("starved", Align::Right),
        ("marks", Align::Right),
        ("pauses sent", Align::Right),
        ("drops", Align::Left),
    ]);
    let most = rows.most(MAX_ROWS);
    for p in ports.iter().filter(used).take(most) {
        table.row(port_cells(p));
    }
    let mut out =
        if table.is_empty() { String::new() } else { table.without_empty_columns().render(0) };
    let more = ports.iter().filter(used).count().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more: --full shows them");
    }
    out
}

/// A port as cells of a table: name, far end, busy, queue, starved, marks, pause frames, drops by
/// cause and direction; what there is none of is empty.
pub(super) fn port_cells(p: &NetworkPort) -> Vec<String> {
    let out = p.drops.iter().map(|(cause, n)| format!("{cause} {n}"));
    // They came the other way: "to" is not where they went.
    let coming_in = p.drops_coming_in.iter().map(|(cause, n)| format!("{cause} {n} coming in"));
    let causes: Vec<String> = out.chain(coming_in).collect();
    let some = |n: u64| if n > 0 { n.to_string() } else { String::new() };
    let starved = p.starved_ps.map(|ps| Metric::time(Span::from_ps(ps)).text());
    let busy = match p.to.is_empty() {
        true => String::new(),
        false => format!("{:.1} %", p.busy().number() * 100.0),
    };
    vec![
        p.name.clone(),
        p.to.clone(),
        busy,
        Metric::bytes(p.queue_max).text(),
        starved.unwrap_or_default(),
        some(p.marks),
        some(p.pause_frames),
        causes.join(", "),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use doorbell_sim::world::{Quantity, SeriesUnit};

    const fn quantity(group: &'static str, name: &'static str, kind: Kind) -> Quantity {
        Quantity { group, name, unit: SeriesUnit::Bytes, kind }
    }

    static QUEUE: Quantity = quantity("queues", "queue", Kind::Level);
    static SENT: Quantity = quantity("links", "sent", Kind::Count);

    pub(in crate::report) fn table() -> SeriesTable {
        let track = |subject: &str, quantity, values: [u64; 3]| SeriesTrack {
            subject: subject.into(),
            quantity,
            values: values.to_vec(),
            weights: None,
        };
        SeriesTable {
            asked: Span::from_us(1),
            interval: Span::from_us(2),
            times: [2_000_000, 4_000_000, 4_500_001].map(Span::from_ps).to_vec(),
            tracks: vec![
                track("switch0.port1", &QUEUE, [0, 100, 7]),
                track("switch0.port1", &SENT, [250, 0, 1]),
                track("switch0.port2", &QUEUE, [0, 900, 0]),
                track("switch0.port3", &QUEUE, [0, 0, 0]),
            ],
            left_out: 0,
        }
    }

    #[test]
    fn a_file_for_each_group_with_units_in_its_first_line() {
        let files = series_csv(&table());
        assert_eq!(files.keys().copied().collect::<Vec<_>>(), ["links", "queues"]);
        let wanted = "time [us],switch0.port1.sent [B per interval]\n2.000000,250\n4.000000,0\n\
                      4.500001,1\n";
        assert_eq!(files["links"], wanted);
        let first = files["queues"].lines().next().unwrap();
        assert!(first.contains(",switch0.port1.queue [B],switch0.port2.queue [B],"), "{first}");
    }

    #[test]
    fn the_liveliest_of_each_quantity_come_first_and_the_dead_never() {
        let table = table();
        let names = |most| liveliest(&table, most).iter().map(|t| t.name()).collect::<Vec<_>>();
        assert_eq!(names(2), ["switch0.port2.queue", "switch0.port1.sent"]);
        assert_eq!(names(9).len(), 3);
    }

    #[test]
    fn a_doubled_interval_and_missing_series_are_said() {
        let mut table = table();
        let line = points_line(&table);
        assert!(line.contains("3 points of 2 us (1 us was asked for"), "{line}");
        assert!(!line.contains("no room"));
        table.asked = table.interval;
        table.left_out = 9;
        let line = points_line(&table);
        assert!(!line.contains("asked for") && line.contains("9 more found no room"), "{line}");
    }
}
