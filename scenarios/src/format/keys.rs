//! The keys of scenario files as a page, from the schema and the parameter sets: what stands
//! at a key's definition is what the page says.

use std::fmt::Write as _;

use doorbell_sim::cc::Dcqcn;
use serde_json::Value as Json;

use super::schema::scenario_schema;
use super::{Congestion, ControlKind, ParameterSet};
use crate::quantity::Unit;
use crate::run::congestion::{Keys, settings};

/// Tables of the page: how a file writes them, and their name in the schema.
pub(crate) const TABLES: [(&str, &str); 26] = [
    ("the file itself, above all tables", ROOT),
    ("[run]", "RunOptions"),
    ("[qp]", "Qp"),
    ("[[program]]", "Program"),
    ("[srq]", "Srq"),
    ("[record]", "Record"),
    ("[topology]", "Topology"),
    ("[topology.credits]", "Credits"),
    ("[[topology.credits.change]]", "CreditChange"),
    ("[[topology.link]]", "TopologyLink"),
    ("[[topology.route]]", "TopologyRoute"),
    ("[[topology.nic]]", "NicPlace"),
    ("[switch]", "Switch"),
    ("[[switch.class]]", "TrafficClass"),
    ("[switch.ecn], and `ecn` of a class", "Ecn"),
    ("[[switch.exception]]", "EcnException"),
    ("[congestion]", "Congestion"),
    ("flows, of a program", "Flows"),
    ("lanes, of a program", "Lane"),
    ("transfer, of a program", "Transfer"),
    ("aggregate, of a program", "Aggregate"),
    ("training, of `aggregate`", "Training"),
    ("all_to_all, of a program", "AllToAll"),
    ("tokens, of `all_to_all`", "Tokens"),
    ("tuner, of a program", "TunerTable"),
    ("[tune]", "Tune"),
];

/// The whole file, which is no definition of the schema but the schema itself.
const ROOT: &str = "Scenario";

/// Longest line.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Keys of scenario files

Every key at the top of a file, of `[run]`, `[qp]`, `[[program]]`, `[srq]`, `[record]`, of the
network's tables (`[topology]`, `[switch]`, `[congestion]`), of a program's tables (`flows`,
`lanes`, `transfer`, `aggregate`, `all_to_all`, `tuner`) and of `[tune]`, with its unit, what
holds without it, and what raising it does. Faults, steps of scripts and expectations:
[scenarios](../scenarios/README.md). Sizes are written as `\"4KiB\"` or `\"400KB\"`, times as
`\"2us\"`, rates as `\"100Gbps\"`, lengths as `\"20m\"`, shares as `\"1/16\"`, `\"5%\"` or a number.
This page is made of the definitions in the code: `doorbell schema keys > docs/keys.md`. How they
work together: [fabric.md](fabric.md), [flows.md](flows.md).
";

/// The whole page, `docs/keys.md`.
pub fn keys_markdown() -> String {
    let schema = scenario_schema();
    let mut out = HEAD.to_owned();
    for (title, name) in TABLES {
        let table = table(&schema, name);
        let plain = name == ROOT || title.contains('`');
        let title = if plain { title.to_owned() } else { format!("`{title}`") };
        let _ = write!(out, "\n## {title}\n\n");
        wrap(&mut out, "", &text(table));
        out.push('\n');
        let keys = table["properties"].as_object().into_iter().flatten();
        for (key, of) in keys {
            let value = value(&schema, of);
            let usual = usual(&schema, name, key, of);
            wrap(&mut out, "- ", &format!("**`{key}`** ({value}{usual}): {}", text(of)));
            for (word, meaning) in words(&schema, of) {
                wrap(&mut out, "  - ", &format!("`\"{word}\"`: {meaning}"));
            }
        }
    }
    out
}

/// The schema of a table.
fn table<'a>(schema: &'a Json, name: &str) -> &'a Json {
    if name == ROOT { schema } else { &schema["$defs"][name] }
}

/// A description on one line.
fn text(of: &Json) -> String {
    let text = of["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds a paragraph, with lines behind the first one below its text.
fn wrap(out: &mut String, first: &str, text: &str) {
    let indent = " ".repeat(first.len());
    let mut line = first.to_owned();
    for word in text.split(' ') {
        let empty = line.trim_start().is_empty() || line == first;
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line.clone_from(&indent);
        } else if !empty {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// The definition behind a key that names one, alone or beside `null`.
fn definition<'a>(schema: &'a Json, of: &'a Json) -> Option<&'a Json> {
    let any = of["anyOf"].as_array().into_iter().flatten();
    let named = std::iter::once(of).chain(any).find_map(|one| one["$ref"].as_str())?;
    schema.pointer(named.trim_start_matches('#'))
}

/// Words that a key can have, with what they mean.
fn words<'a>(schema: &'a Json, of: &'a Json) -> Vec<(&'a str, String)> {
    let all = definition(schema, of).and_then(|d| d["oneOf"].as_array());
    let word = |one: &'a Json| Some((one["const"].as_str()?, text(one)));
    all.into_iter().flatten().filter_map(word).collect()
}

/// Kinds of quantity, by a unit in their patterns in the schema.
const KINDS: [(&str, &str); 5] =
    [("bps", "rate"), ("TiB", "size"), ("Hz", "frequency"), ("mm|", "length"), ("us|", "time")];

/// What kind of value a key has.
fn value(schema: &Json, of: &Json) -> String {
    if let Some(definition) = definition(schema, of) {
        return match (definition["oneOf"].is_array(), definition["type"].as_str()) {
            (true, _) => "a word".to_owned(),
            (_, Some("object")) => "table".to_owned(),
            _ => "text".to_owned(),
        };
    }
    if let Some(items) = of.get("items") {
        return format!("list of {}", plural(&value(schema, items)));
    }
    if let Some(pattern) = of["pattern"].as_str() {
        let kind = KINDS.iter().find(|(unit, _)| pattern.contains(unit));
        return kind.map_or("text", |(_, kind)| kind).to_owned();
    }
    let types: Vec<&str> = match &of["type"] {
        Json::Array(types) => types.iter().filter_map(Json::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if types.contains(&"object") {
        return "table".to_owned();
    }
    match (types.contains(&"integer"), types.contains(&"boolean"), types.contains(&"number")) {
        (true, ..) => format!("{} to {}", of["minimum"], of["maximum"]),
        (_, true, _) => "true or false".to_owned(),
        (.., true) => "share".to_owned(),
        _ => "text".to_owned(),
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "a word" => "words".to_owned(),
        "text" => "texts".to_owned(),
        "table" => "tables".to_owned(),
        numbers => format!("numbers, {numbers}"),
    }
}

/// What a key is without a word, where the schema or the parameter sets know it.
fn usual(schema: &Json, table: &str, key: &str, of: &Json) -> String {
    let plain = |value: &Json| match value {
        Json::String(text) => Some(format!("`\"{text}\"`")),
        Json::Number(_) | Json::Bool(_) => Some(format!("`{value}`")),
        _ => None,
    };
    if let Some(default) = of.get("default").and_then(plain) {
        return format!("; {default} without it");
    }
    if table != "Congestion" {
        return String::new();
    }
    let values: Vec<(&str, String)> = parameter_sets(schema)
        .filter_map(|(word, parameters)| {
            let (control, parameters) = (ControlKind::Dcqcn, Some(parameters));
            let c = Congestion { control, parameters, ..Congestion::default() };
            let all = dcqcn(&c.dcqcn()).into_iter().chain(notification(&c));
            all.into_iter().find(|(name, _)| *name == key).map(|(_, value)| (word, value))
        })
        .collect();
    match values.first() {
        Some((_, first)) if values.iter().all(|(_, value)| value == first) => format!("; {first}"),
        Some(_) => {
            let each: Vec<String> = values.iter().map(|(set, v)| format!("{set} {v}")).collect();
            format!("; {}", each.join(", "))
        }
        None => others(key).map_or(String::new(), |value| format!("; {value}")),
    }
}

/// The parameter sets, with their words.
fn parameter_sets(schema: &Json) -> impl Iterator<Item = (&str, ParameterSet)> {
    let all = schema["$defs"]["ParameterSet"]["oneOf"].as_array().into_iter().flatten();
    all.filter_map(|one| {
        let set = serde_json::from_value(one["const"].clone()).ok()?;
        Some((one["const"].as_str()?, set))
    })
}

/// Parameters of DCQCN.
fn dcqcn(d: &Dcqcn) -> Vec<(&'static str, String)> {
    let none = || "none".to_owned();
    let max = d.rpg_max_rate.map_or_else(|| "the port's".to_owned(), Unit::print);
    let first = d.rate_to_set_on_first_cnp.map_or_else(none, Unit::print);
    let bytes = d.rpg_byte_reset.map_or_else(none, |bytes| format!("{bytes}B"));
    vec![
        ("rpg_ai_rate", d.rpg_ai_rate.print()),
        ("rpg_hai_rate", d.rpg_hai_rate.print()),
        ("rpg_gd", d.rpg_gd.to_string()),
        ("rpg_min_dec_fac", d.rpg_min_dec_fac.to_string()),
        ("rpg_min_rate", d.rpg_min_rate.print()),
        ("rpg_max_rate", max),
        ("rate_to_set_on_first_cnp", first),
        ("rpg_threshold", d.rpg_threshold.to_string()),
        ("rpg_time_reset", d.rpg_time_reset.print()),
        ("rpg_byte_reset", bytes),
        ("initial_alpha_value", d.initial_alpha_value.to_string()),
        ("dce_tcp_g", d.dce_tcp_g.to_string()),
        ("dce_tcp_rtt", d.dce_tcp_rtt.print()),
        ("rate_reduce_monitor_period", d.rate_reduce_monitor_period.print()),
        ("clamp_tgt_rate", d.clamp_tgt_rate.to_string()),
        ("clamp_tgt_rate_after_time_inc", d.clamp_tgt_rate_after_time_inc.to_string()),
        ("cut_on_clock", d.cut_on_clock.to_string()),
        ("keep_limiter", d.keep_limiter.to_string()),
    ]
}

/// What receivers do about marks.
fn notification(c: &Congestion) -> Vec<(&'static str, String)> {
    let Some(n) = c.notification() else { return Vec::new() };
    let scope = serde_json::to_value(super::CnpScopeKind::from(n.scope)).unwrap_or_default();
    vec![
        ("min_time_between_cnps", n.min_time_between_cnps.print()),
        ("cnp_scope", scope.as_str().unwrap_or_default().to_owned()),
        ("cnp_delay", n.delay.print()),
        ("cnp_sl", n.sl.map_or_else(|| "the packet's".to_owned(), |sl| sl.to_string())),
        ("cnp_with_nak", n.with_nak.to_string()),
        ("becn_in_acks", n.becn_in_acks.to_string()),
        ("keep_gap", settings(c).keep_gap.to_string()),
    ]
}

/// Parameters of the other controls.
fn others(key: &str) -> Option<String> {
    let c = Congestion::default();
    let (timely, ibcc) = (c.timely(), c.ibcc());
    let in_1024 = |n: u16| format!("{n}/1024");
    Some(match key {
        "t_low" => timely.t_low.print(),
        "t_high" => timely.t_high.print(),
        "add_step" => timely.add_step.print(),
        "beta" => in_1024(timely.beta),
        "ewma" => in_1024(timely.ewma),
        "min_rtt" => timely.min_rtt.print(),
        "hai_threshold" => timely.hai_threshold.to_string(),
        "segment" => format!("{}B", timely.segment),
        "min_rate" => timely.min_rate.print(),
        "ccti_increase" => ibcc.ccti_increase.to_string(),
        "ccti_timer" => ibcc.ccti_timer.to_string(),
        "ccti_min" => ibcc.ccti_min.to_string(),
        "ccti_limit" => (ibcc.cct.len() - 1).to_string(),
        "cct_shift" => "0".to_owned(),
        "scope" => "qp".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/keys.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let text = "docs/keys.md is out of date: cargo run --release -- schema keys > docs/keys.md";
        assert!(page == keys_markdown(), "{text}");
    }

    /// Every key says what it is, and what holds where it is left out.
    #[test]
    fn every_key_is_described_with_what_holds_without_it() {
        let schema = scenario_schema();
        let mut silent = Vec::new();
        for (_, name) in TABLES {
            let table = table(&schema, name);
            let needed = table["required"].as_array().cloned().unwrap_or_default();
            for (key, of) in table["properties"].as_object().expect(name) {
                let said = text(of);
                let list = of["type"] == "array" || of["type"] == "boolean";
                let known =
                    list || !usual(&schema, name, key, of).is_empty() || said.contains("ithout");
                // Shapes, patterns and controls have keys of their own, which they need or refuse.
                let own =
                    said.starts_with('`') && ["Topology", "Flows", "Congestion"].contains(&name);
                let told = known || own || needed.contains(&Json::from(key.as_str()));
                if !told || !said.ends_with('.') {
                    silent.push(format!("{name}.{key}: {said:?}"));
                }
            }
        }
        assert!(silent.is_empty(), "{silent:#?}");
    }

    #[test]
    fn lines_are_as_long_as_those_of_other_pages() {
        for line in keys_markdown().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}
