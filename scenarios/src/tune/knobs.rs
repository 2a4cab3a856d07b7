//! What may be varied: from `--vary`, or from the file's sweep.

use crate::format::load::{Loaded, shown};
use crate::format::{Axis, axes, check_knobs, resolve};
use crate::input::{InputError, Key, Node, Origin, Path, Source, Table, Value};

const HELP: &str = "write KEY=a,b,c or KEY=lo..hi, such as program.0.batch=1..64; lo..hi doubles, \
                    lo..hi*3/2 has another factor, lo..hi+4 a step";

/// The knobs of a file: those of `vary`, without any the axes of its sweep.
///
/// # Errors
/// When there is nothing to vary, a knob has one value, is given twice, or has a value by `--set`,
/// or together they have too many; and when the file sweeps over a key that is not varied.
pub fn knobs(loaded: &Loaded, vary: &[String]) -> Result<Vec<Axis>, InputError> {
    usable(if vary.is_empty() { loaded.axes.clone() } else { varied(loaded, vary)? })
}

/// The knobs themselves, if there is something to choose from, and not too much.
pub(super) fn usable(knobs: Vec<Axis>) -> Result<Vec<Axis>, InputError> {
    if knobs.is_empty() {
        let text = "nothing to vary: the file has no sweep and no [tune], and --vary is missing";
        return Err(InputError::new(text).help(HELP));
    }
    check_knobs(&knobs)?;
    Ok(knobs)
}

fn varied(loaded: &Loaded, vary: &[String]) -> Result<Vec<Axis>, InputError> {
    let mut knobs: Vec<Axis> = vec![];
    for text in vary {
        let axis = one(text)?;
        if loaded.holds(&axis.path) {
            let text = format!("`{}` is varied, and --set or --seed fixes it", shown(&axis.path));
            let error = InputError::new(text).help("leave one of them out");
            return Err(error.at(&axis.key.origin));
        }
        knobs.push(axis);
    }
    for axis in &loaded.axes {
        if !knobs.iter().any(|k| k.path == axis.path) {
            let text = format!("the file sweeps over `{}`, which is not varied", axis.path);
            let help = format!("add --vary {0}=..., or fix it by --set {0}=...", axis.path);
            return Err(InputError::new(text).help(help).at(&axis.key.origin));
        }
    }
    Ok(knobs)
}

/// Reads one `KEY=VALUES`.
pub(super) fn one(text: &str) -> Result<Axis, InputError> {
    let source = Source::new("--vary", text);
    let origin = |start, end| Origin { source: source.clone(), start, end };
    let Some(equals) = text.find('=') else {
        let error = InputError::new(format!("\"{text}\" names no values")).help(HELP);
        return Err(error.at(&origin(0, text.len())));
    };
    let key = Key { name: text[..equals].trim().to_owned(), origin: origin(0, equals) };
    let all = origin(equals + 1, text.len());
    let value = |part: &str| -> Result<Node, InputError> {
        if part.trim().is_empty() {
            return Err(InputError::new("a value is missing").help(HELP).at(&all));
        }
        let node = Node::parse_value(&Source::new("--vary", part.trim()), 0)?;
        Ok(Node { origin: all.clone(), ..node })
    };
    let values = &text[equals + 1..];
    let given = match values.split_once("..") {
        Some((from, rest)) => {
            let (to, by, step) = match (rest.split_once('*'), rest.split_once('+')) {
                (Some((to, factor)), None) => (to, "factor", factor),
                (None, Some((to, step))) => (to, "step", step),
                _ => (rest, "factor", "2"),
            };
            let mut table = Table::default();
            for (name, part) in [("from", from), ("to", to), (by, step)] {
                let key = Key { name: name.to_owned(), origin: all.clone() };
                table.insert(key, value(part)?);
            }
            Value::Table(table)
        }
        None => Value::Array(values.split(',').map(value).collect::<Result<_, _>>()?),
    };
    let mut table = Table::default();
    let place = key.origin.clone();
    table.insert(key, Node { origin: all.clone(), value: given });
    let root = Node { origin: all.clone(), value: Value::Table(table) };
    let helped = |e: InputError| if e.remedy().is_none() { e.help(HELP) } else { e };
    let mut axis = axes(&root).map_err(helped)?.remove(0);
    axis.path = resolve(&axis.path).map_err(|e| e.at(&place))?;
    Ok(axis)
}

/// A value as it stands in a file.
pub(crate) fn toml_text(node: &Node) -> String {
    match &node.value {
        Value::String(s) => toml::Value::String(s.clone()).to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml_text).collect::<Vec<_>>().join(", "))
        }
        Value::Table(_) | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => node.text(),
    }
}

/// The index of the value that a configuration has, if it is one of the knob's. `tree` is the file
/// with all defaults.
pub(crate) fn index_in(tree: &toml::Value, knob: &Axis) -> Option<usize> {
    let path: &Path = &knob.path;
    let mut at = tree;
    for segment in path.segments() {
        let name = segment.to_string();
        at = match at {
            toml::Value::Table(table) => table.get(&name)?,
            toml::Value::Array(items) if name == "*" => items.first()?,
            toml::Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    let text = match at {
        toml::Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let scalar = |text: &str| {
        let count = text.parse().ok().map(crate::quantity::Scalar::Count);
        count.or_else(|| crate::quantity::Scalar::parse(text))
    };
    knob.values.iter().position(|v| match (scalar(&v.text()), scalar(&text)) {
        (Some(a), Some(b)) => a.same_kind(b) && a.number() == b.number(),
        _ => v.text() == text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::loaded;

    const FILE: &str =
        "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'message-rate'\n";

    fn read(file: &str, vary: &[&str]) -> Result<Vec<String>, InputError> {
        let vary: Vec<String> = vary.iter().map(|s| (*s).to_owned()).collect();
        let show = |a: &Axis| {
            let values: Vec<String> = a.values.iter().map(toml_text).collect();
            format!("{} {}", a.path, values.join(" "))
        };
        Ok(knobs(&loaded(file, &[]).unwrap(), &vary)?.iter().map(show).collect())
    }

    #[test]
    fn lists_and_ranges_of_the_command_line() {
        let vary = ["program.0.batch=1..8", "qp.mtu=1KiB,4KiB", "nic.pu_wqe=20ns..60ns+20ns"];
        let found = read(FILE, &vary).unwrap();
        assert_eq!(
            found,
            [
                "program.0.batch 1 2 4 8",
                "qp.mtu \"1KiB\" \"4KiB\"",
                "settings.nic.pu_wqe \"20ns\" \"40ns\" \"60ns\"",
            ]
        );
        assert_eq!(read(FILE, &["program.0.batch=4..9*3/2"]).unwrap(), ["program.0.batch 4 6 9"]);
    }

    #[test]
    fn without_any_the_sweep_of_the_file_is_varied() {
        let file = format!("{FILE}[sweep]\n'program.0.batch' = [1, 2]\n");
        assert_eq!(read(&file, &[]).unwrap(), ["program.0.batch 1 2"]);
        let e = read(&file, &["program.0.window=1..4"]).unwrap_err();
        assert!(e.to_string().contains("sweeps over `program.0.batch`"), "{e}");
        assert!(e.remedy().unwrap().contains("--set program.0.batch="));
    }

    #[test]
    fn bad_knobs_are_refused_with_their_place() {
        for (vary, message) in [
            (&[][..], "nothing to vary"),
            (&["program.0.batch"], "names no values"),
            (&["program.0.batch=4"], "has one value"),
            (&["program.0.batch=4..4"], "has one value"),
            (&["program.0.batch=8..4"], "less than `from`"),
            (&["program.0.batch=4.."], "a value is missing"),
            (&["program.0.batch="], "a value is missing"),
            (&["program.0.batch=1,,4"], "a value is missing"),
            (&["program.0.batch=0..4"], "`from` more than 0"),
            (&["program.0.batch=a..4"], "no whole number"),
            (&["programm.0.batch=1,2"], "unknown key `programm`"),
            (&["expect.0.min=1,2"], "cannot be changed"),
            (&["program.0.batch=1,2", "program.0.batch=4,8"], "varied twice"),
            (&["program.0.batch=1..200+1", "program.0.window=1..200+1"], "more than 10000"),
        ] {
            let e = read(FILE, vary).expect_err(message);
            assert!(e.message().contains(message), "{vary:?}: {e}");
            assert!(vary.is_empty() || e.to_string().starts_with("--vary:1:"), "{e}");
            assert!(e.remedy().is_some(), "{vary:?}");
        }
    }
}
