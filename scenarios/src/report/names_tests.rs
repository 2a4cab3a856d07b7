//! Whatever an expectation can name is in the JSON.

use serde_json::Value as Json;

use super::*;
use crate::run::{Found, Metric, MetricValue, Runner, Simulator};
use crate::testing::{expanded, loaded};

/// A run with as many sections as one can have.
const RICH: &str = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\nlimit = '20ms'\n\
    [topology]\nkind = 'switch'\nhosts = 2\n[qp]\ntimeout = 6\nretry_cnt = 1\n\
    [record]\ntimeline = true\nseries = '1us'\n[[program]]\nname = 'p'\nkind = 'script'\n\
    steps = ['post write 8B x3', 'ring', 'wait', 'compute 100us', 'post write 8B', \
    'ring', 'wait', 'recv 64B x600 own']\n[[fault]]\nid = 'f'\nkind = 'link-down'\n\
    link = 'host0-switch0'\nafter = '150us'\n[[program]]\nname = 'q'\nkind = 'latency'\n\
    iterations = 2\nhost = 1\npeer = 0\n";

/// The value of a name, from the JSON of an outcome; `None`: it is not there.
fn lookup(o: &Json, name: &str) -> Option<String> {
    let by = |list: &str, key: &str, value: &str| {
        let found = o[list].as_array()?.iter().find(|row| row[key] == value)?;
        Some(found.clone())
    };
    let own = |part: &Json, key: &str| part.get(key).map(Json::to_string);
    match name {
        "exit" => return own(&o["exit"], "kind"),
        "exit.reason" => return own(&o["exit"], "reason"),
        "limiting" | "trace_hash" | "events" => return own(o, name),
        "sim_time" => return own(o, "sim_time_ps"),
        _ => {}
    }
    if let Some(found) = own(&o["metrics"], name).or_else(|| own(&o["words"], name)) {
        return Some(found);
    }
    if let Some(counter) = name.strip_prefix("counter.") {
        return own(&o["counters"], counter);
    }
    if let Some(note) = name.strip_prefix("note.") {
        let known = |n: &Json| n == note || n["name"] == note;
        let all = o["oracles"].as_array()?.iter().chain(o["notes"].as_array()?);
        return all.into_iter().any(known).then(|| "known".to_owned());
    }
    if let Some(rest) = name.strip_prefix("qp.") {
        let mut words = rest.splitn(3, '.');
        let (host, qpn, what) = (words.next()?, words.next()?, words.next()?);
        let (host, qpn): (u64, u64) = (host.parse().ok()?, qpn.parse().ok()?);
        let rows = o["qps"].as_array()?;
        let its = |r: &&Json| r["host"] == host && r["qpn"] == qpn;
        let row = rows.iter().find(its)?;
        return match what.split_once('.') {
            Some(("death", _)) if row["death"].is_null() => Some("none".to_owned()),
            Some(("death", "at")) => own(&row["death"], "at_ps"),
            Some(("death", of)) => own(&row["death"], of),
            Some(("counter", of)) => own(&row["counters"], of).or(Some("0".to_owned())),
            _ => own(row, what).or_else(|| own(row, &format!("{what}_ps"))),
        };
    }
    if let Some((of, counter)) = name.split_once(".counter.") {
        let host: u64 = of.strip_prefix("host")?.parse().ok()?;
        let ports = o["ports"].as_array()?;
        let port = ports.iter().find(|p| p["host"] == host)?;
        return own(&port["counters"], counter);
    }
    let (before, figure) = name.rsplit_once('.')?;
    if let Some(id) = before.strip_prefix("fault.") {
        return own(&by("faults", "id", id)?, figure);
    }
    // Times carry their unit in the JSON.
    let figure_of =
        |row: &Json, figure: &str| own(row, figure).or_else(|| own(row, &format!("{figure}_ps")));
    if let Some(resource) = before.strip_prefix("resource.") {
        return figure_of(&by("resources", "name", resource)?, figure);
    }
    if let Some(rest) = name.strip_prefix("series.") {
        let tracks = o["series"]["tracks"].as_array()?;
        let text = |t: &Json, key: &str| t[key].as_str().unwrap_or("?").to_owned();
        let its = |t: &&Json| {
            let name = format!("{}.{}", text(t, "subject"), text(t, "quantity"));
            rest.starts_with(&name) && t["values"].as_array().is_some_and(|v| !v.is_empty())
        };
        return tracks.iter().find(its).map(|t| text(t, "quantity"));
    }
    if let Some(rest) = name.strip_prefix("port.") {
        let mut ports = o["network_ports"].as_array()?.iter();
        let figure = |p: &Json| rest.strip_prefix(p["name"].as_str()?)?.strip_prefix('.');
        let port = ports.find(|p| figure(p).is_some())?;
        return match figure(port)? {
            // By cause, and absent where there is none; so is starvation where nothing pushes back.
            "drops" | "starved" => Some("absent".to_owned()),
            figure => figure_of(port, figure),
        };
    }
    if let Some(step) = before.strip_prefix("timeline.") {
        let slug = |s: &Json| s["step"].as_str().map(|s| s.to_lowercase().replace(' ', "-"));
        let its = |s: &&Json| slug(s).is_some_and(|s| s.split(':').next() == Some(step));
        let row = o["timeline"].as_array()?.iter().find(its)?;
        return own(row, "start_ps").and(own(row, "end_ps")).map(|_| "derived".to_owned());
    }
    if let Some(of) = before.strip_prefix("pcie") {
        let words: Vec<&str> = of.split('.').skip(1).collect();
        let its = |row: &&Json| {
            let keys = [&row["direction"], &row["cause"]];
            words.iter().zip(keys).all(|(word, key)| key == word)
        };
        let rows = o["pcie"].as_array()?.iter().filter(its);
        let sum: u64 = rows.map(|r| r[figure].as_u64().expect("a figure")).sum();
        return Some(sum.to_string());
    }
    own(&o["latencies_ps"][before], figure)
}

#[test]
fn whatever_an_expectation_can_name_is_in_the_json() {
    let loaded = loaded(RICH, &[]).unwrap_or_else(|e| panic!("{e}"));
    let point = expanded(RICH, &[]).unwrap().remove(0).point;
    let outcome = Simulator.run(&point).unwrap_or_else(|e| panic!("{e}"));
    let report = Report::new("t".into(), &loaded, vec![Run { point, outcome }]);
    let json: Json = serde_json::from_str(&to_json(&report)).unwrap();
    let (o, outcome) = (&json["points"][0]["outcome"], &report.runs[0].outcome);
    let names = outcome.names();
    for wanted in ["p.statuses", "p.peer_statuses", "p.wr_ids", "p.step.7.result"] {
        assert!(names.iter().any(|n| n == wanted), "{wanted}: {names:?}");
    }
    let mut compared = 0;
    for name in &names {
        // Steps of a timeline are offered whether the run had them or not.
        let Some(found) = outcome.find(name) else { continue };
        let number = match found {
            Found::Number(Metric { value: MetricValue::Integer(n), .. }) => Some(n),
            _ => None,
        };
        let Some(there) = lookup(o, name) else {
            assert!(name.starts_with("timeline.") && number == Some(0), "{name} is not in it");
            continue;
        };
        match (found, number) {
            // Words and metrics stand as they are.
            (Found::Word(word), _) if o["words"].get(name).is_some() => {
                assert_eq!(there, Json::from(word).to_string(), "{name}");
            }
            (_, Some(n)) if o["metrics"].get(name).is_some() => {
                assert_eq!(o["metrics"][name]["value"], n, "{name}");
            }
            (_, Some(n)) if there.parse::<u64>().is_ok() => {
                assert_eq!(there, n.to_string(), "{name}");
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(compared > 100, "{compared}");
    let text = to_text(&report, Rows::All);
    for line in ["p.statuses: 0 x3, 12", "p.wr_ids: 0, 1, 2, 3", "p.step.7.result: "] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
