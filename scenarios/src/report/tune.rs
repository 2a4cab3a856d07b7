//! What came of tuning, as text, JSON and TOML.

use serde::Serialize;

use super::table::{Align, Table};
use crate::run::{MODEL_VERSION, Metric};
use crate::tune::{Tried, TuneStep, Tuned};

/// Raised when a key is taken away or changes its meaning; new keys do not raise it.
pub const TUNE_VERSION: u32 = 1;

/// Rows of a table of combinations.
const ROWS: usize = 12;

#[derive(Serialize)]
struct JsonTuned<'a> {
    format: &'static str,
    version: u32,
    model: u32,
    scenario: &'a str,
    objective: String,
    keep: Vec<String>,
    keys: &'a [String],
    combinations: usize,
    runs: usize,
    /// Index into `tried`.
    best: usize,
    changes: Vec<JsonChange<'a>>,
    steps: &'a [TuneStep],
    tried: Vec<JsonTried<'a>>,
}

#[derive(Serialize)]
struct JsonChange<'a> {
    key: &'a str,
    /// As TOML.
    value: &'a str,
}

#[derive(Serialize)]
struct JsonTried<'a> {
    /// As TOML; empty for the file as it stands, if its values are none of those to choose from.
    values: &'a [String],
    keeps: bool,
    metrics: Vec<JsonMetric<'a>>,
    note: &'a str,
}

#[derive(Serialize)]
struct JsonMetric<'a> {
    name: &'a str,
    #[serde(flatten)]
    value: &'a Metric,
}

/// The result as JSON, version [`TUNE_VERSION`]; nothing in it depends on the machine.
pub fn tuned_json(scenario: &str, t: &Tuned) -> String {
    let tried = t.tried.iter().map(|one| JsonTried {
        values: &one.values,
        keeps: one.rank.is_good(),
        metrics: one.metrics.iter().map(|(name, value)| JsonMetric { name, value }).collect(),
        note: &one.note,
    });
    let changes = t.changes().into_iter().map(|(key, value)| JsonChange { key, value });
    let report = JsonTuned {
        format: "doorbell-tune",
        version: TUNE_VERSION,
        model: MODEL_VERSION,
        scenario,
        objective: t.goal.objective.to_string(),
        keep: t.goal.keeps.iter().map(ToString::to_string).collect(),
        keys: &t.keys,
        combinations: t.grid,
        runs: t.tried.len(),
        best: t.best,
        changes: changes.collect(),
        steps: &t.steps,
        tried: tried.collect(),
    };
    serde_json::to_string_pretty(&report).expect("no map has other keys than texts") + "\n"
}

/// Steps of tuning as a table: those of a search, or of a program's own tuner.
pub(super) fn steps_table(steps: &[TuneStep], indent: usize) -> String {
    let mut table = Table::new(&[
        ("at", Align::Left),
        ("what", Align::Left),
        ("from", Align::Right),
        ("to", Align::Right),
        ("takes effect", Align::Left),
        ("why", Align::Left),
        ("seen", Align::Left),
    ]);
    for s in steps {
        let cells = [&s.at, &s.what, &s.from, &s.to, &s.when, &s.why];
        table.row(cells.into_iter().cloned().chain([s.saw_text()]).collect());
    }
    table.render(indent)
}

/// The result for people: what to change, how the search got there, and the best combinations.
pub fn tuned_text(scenario: &str, t: &Tuned) -> String {
    let mut out = format!("{scenario}: {}", t.goal);
    let runs = t.tried.len();
    out.push_str(&format!("\n{runs} runs of {} combinations\n\n", t.grid));
    let metrics = |one: &Tried| {
        let each = one.metrics.iter().map(|(name, m)| format!("{name} {}", m.text()));
        each.collect::<Vec<_>>().join(", ")
    };
    out.push_str(&format!("as it stands  {}\n", metrics(&t.tried[0])));
    let broken = if t.best().rank.is_good() { "" } else { "  (does not keep the conditions)" };
    out.push_str(&format!("best          {}{broken}\n", metrics(t.best())));
    if !t.steps.is_empty() {
        out.push_str("\nsteps\n");
        out.push_str(&steps_table(&t.steps, 2));
    }
    out.push_str("\nthe best of what was tried\n");
    out.push_str(&ranking(t));
    out.push('\n');
    out.push_str(&tuned_toml(t));
    out
}

/// The best combinations, the best first, those that are alike in the order of their runs.
fn ranking(t: &Tuned) -> String {
    let mut order: Vec<usize> = (0..t.tried.len()).collect();
    order.sort_by(|a, b| {
        let (x, y) = (t.tried[*a].rank, t.tried[*b].rank);
        y.beats(x).cmp(&x.beats(y)).then(a.cmp(b))
    });
    let names: Vec<&String> = t.tried[0].metrics.iter().map(|(name, _)| name).collect();
    let keys = t.keys.iter().map(|k| (k.as_str(), Align::Right));
    let columns: Vec<(&str, Align)> = std::iter::once(("run", Align::Right))
        .chain(keys)
        .chain(names.iter().map(|n| (n.as_str(), Align::Right)))
        .chain([("limiting", Align::Left)])
        .collect();
    let mut table = Table::new(&columns);
    for i in order.iter().take(ROWS) {
        let one = &t.tried[*i];
        let value = |k: usize| one.values.get(k).map_or("as it stands", |v| v.trim_matches('"'));
        let values = (0..t.keys.len()).map(|k| value(k).to_owned());
        let found = |name: &&String| one.metrics.iter().find(|(n, _)| n == *name);
        let cells = names.iter().map(|n| found(n).map_or(String::new(), |(_, m)| m.text()));
        let run = std::iter::once(i.to_string());
        table.row(run.chain(values).chain(cells).chain([one.note.clone()]).collect());
    }
    let mut out = table.without_empty_columns().render(2);
    if t.tried.len() > ROWS {
        out.push_str(&format!("  and {} more, see --json\n", t.tried.len() - ROWS));
    }
    out
}

/// The best combination to paste into the file, as a variant; a line that says so where nothing is
/// better than the file as it stands.
pub fn tuned_toml(t: &Tuned) -> String {
    let changes = t.changes();
    if changes.is_empty() {
        return "# nothing that was tried is better than the file as it stands\n".to_owned();
    }
    let set = changes.iter().map(|(key, value)| {
        let key = toml::Value::String((*key).to_owned());
        format!("{key} = {value}")
    });
    let set = set.collect::<Vec<_>>().join(", ");
    format!("[[variant]]\nname = \"tuned\"\nset = {{ {set} }}\n")
}
