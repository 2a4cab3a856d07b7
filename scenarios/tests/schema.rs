//! The JSON schemas accept every file of the library and refuse slips, as judged by a small
//! validator that panics on keywords that it does not know.

use std::fs;
use std::path::Path;

use doorbell::format::schema::scenario_schema;
use doorbell::profile::profile_schema;
use serde_json::{Map, Value, json};

/// Why `value` does not fit `schema`; `None` when it does.
fn misfit(schema: &Value, value: &Value, root: &Value, at: &str) -> Option<String> {
    let schema = match schema {
        Value::Bool(true) => return None,
        Value::Bool(false) => return Some(format!("{at}: nothing is allowed here")),
        Value::Object(schema) => schema,
        other => panic!("{other} is no schema"),
    };
    for (keyword, rule) in schema {
        let wrong = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" | "writeOnly" => {
                None
            }
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                misfit(root.pointer(pointer).expect(pointer), value, root, at)
            }
            "type" => wrong_type(rule, value, at),
            "const" => (rule != value).then(|| format!("{at}: {value} is not {rule}")),
            "enum" => {
                let known = rule.as_array().unwrap().contains(value);
                (!known).then(|| format!("{at}: {value} is none of {rule}"))
            }
            "oneOf" | "anyOf" => {
                let schemas = rule.as_array().unwrap();
                let fits = schemas.iter().filter(|s| misfit(s, value, root, at).is_none()).count();
                let good = fits == 1 || (keyword == "anyOf" && fits > 0);
                (!good).then(|| format!("{at}: {value} fits {fits} of {}", schemas.len()))
            }
            "minimum" | "maximum" => wrong_size(keyword, rule, value, at),
            "minItems" | "maxItems" => wrong_length(keyword, rule, value, at),
            "pattern" => value.as_str().and_then(|text| {
                let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
                (!pattern.is_match(text)).then(|| format!("{at}: {text:?} against {rule}"))
            }),
            "items" => value.as_array().and_then(|items| {
                let indexed = items.iter().enumerate();
                indexed.into_iter().find_map(|(i, v)| misfit(rule, v, root, &format!("{at}/{i}")))
            }),
            "properties" | "required" | "additionalProperties" => {
                value.as_object().and_then(|o| wrong_object(schema, keyword, rule, o, root, at))
            }
            other => panic!("the validator does not know `{other}` at {at}"),
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

fn wrong_object(
    schema: &Map<String, Value>,
    keyword: &str,
    rule: &Value,
    object: &Map<String, Value>,
    root: &Value,
    at: &str,
) -> Option<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    match keyword {
        "required" => {
            let missing =
                rule.as_array().unwrap().iter().find(|k| !object.contains_key(k.as_str().unwrap()));
            missing.map(|k| format!("{at}: {k} is missing"))
        }
        "properties" => {
            object.iter().find_map(|(k, v)| misfit(rule.get(k)?, v, root, &format!("{at}/{k}")))
        }
        _ => object
            .iter()
            .filter(|(k, _)| properties.is_none_or(|p| !p.contains_key(*k)))
            .find_map(|(k, v)| misfit(rule, v, root, &format!("{at}/{k}"))),
    }
}

fn wrong_type(rule: &Value, value: &Value, at: &str) -> Option<String> {
    let of = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("no type {other}"),
    };
    let fits = rule.as_array().map_or_else(|| of(rule), |names| names.iter().any(of));
    (!fits).then(|| format!("{at}: {value} is no {rule}"))
}

fn wrong_size(keyword: &str, rule: &Value, value: &Value, at: &str) -> Option<String> {
    let (limit, number) = (rule.as_f64()?, value.as_f64()?);
    let good = if keyword == "minimum" { number >= limit } else { number <= limit };
    (!good).then(|| format!("{at}: {value} against {keyword} {rule}"))
}

fn wrong_length(keyword: &str, rule: &Value, value: &Value, at: &str) -> Option<String> {
    let (limit, length) = (rule.as_u64()?, value.as_array()?.len() as u64);
    let good = if keyword == "minItems" { length >= limit } else { length <= limit };
    (!good).then(|| format!("{at}: {length} items against {keyword} {rule}"))
}

fn toml_files(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.display().to_string(), toml::from_str(&text).unwrap())
    };
    let found: Vec<(String, Value)> = files.map(read).collect();
    assert!(!found.is_empty());
    found
}

#[test]
fn the_library_fits() {
    let schema = scenario_schema();
    for (name, value) in toml_files("library") {
        assert_eq!(misfit(&schema, &value, &schema, ""), None, "{name}");
    }
}

#[test]
fn the_profiles_fit() {
    let schema = profile_schema();
    for (name, value) in toml_files("profiles") {
        assert_eq!(misfit(&schema, &value, &schema, ""), None, "{name}");
    }
}

#[test]
fn every_kind_of_section_fits_and_slips_do_not() {
    let schema = scenario_schema();
    let good = json!({
        "title": "t", "profile": "p", "claim": ["A1", "A2"], "seed": 3,
        "settings": { "pcie.width": 8, "memory": { "ddio": true } },
        "topology": { "kind": "switch", "hosts": 3, "rate": "100Gbps", "switch": "tail-drop" },
        "qp": { "type": "RC", "mtu": "1KiB" },
        "program": [
            { "kind": "script", "steps": ["post write 16B x1", "ring"] },
            { "kind": "bandwidth", "size": "64B", "window": 4, "poll": "event" },
        ],
        "variant": [{ "name": "a", "set": { "qp.mtu": "2KiB" } }],
        "sweep": { "program.0.size": { "from": "8B", "to": "1KiB", "factor": 2 }, "seed": [1, 2] },
        "expect": [
            { "kind": "range", "why": "w", "metric": "m", "min": "2us", "in": "a" },
            { "kind": "crossover", "why": "w", "metric": "m", "over": "size", "of": "a",
              "to": "b", "between": ["8B", "64B"] },
            { "kind": "exit", "why": "w", "status": "no-progress" },
        ],
    });
    assert_eq!(misfit(&schema, &good, &schema, ""), None);
    for (pointer, bad) in [
        ("/seed", json!(-1)),
        ("/qp/mtu", json!(1024)),
        ("/qp/mtu", json!("1us")),
        ("/qp/type", json!("RD")),
        ("/topology/hosts", json!(0)),
        ("/program/0/kind", json!("scrip")),
        ("/program/0/steps/0", json!("pots write")),
        ("/program/1/window", json!(0)),
        ("/expect/0/kind", json!("rang")),
        ("/expect/2/status", json!("fine")),
        ("/variant/0", json!({ "set": {} })),
        ("/expect/1/between", json!(["8B"])),
    ] {
        let mut file = good.clone();
        *file.pointer_mut(pointer).expect(pointer) = bad;
        assert!(misfit(&schema, &file, &schema, "").is_some(), "{pointer}");
    }
    for (table, key) in [("", "sed"), ("/qp", "mtuu"), ("/program/0", "bathc"), ("/expect/0", "x")]
    {
        let mut file = good.clone();
        let table_value = file.pointer_mut(table).unwrap().as_object_mut().unwrap();
        table_value.insert(key.to_owned(), json!(1));
        assert!(misfit(&schema, &file, &schema, "").is_some(), "{table}/{key}");
    }
}
