//! What `doorbell tune` is to look for in a file that says so itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::load::{Change, Loaded, change, shown};
use super::settings::SettingValue;
use super::sweep::{Axis, Sweep, axes};
use super::{MAX_POINTS, resolve};
use crate::input::{InputError, Node, Value, suggestion};
use crate::quantity::Count;
use crate::tune::{Goal, Keep, Objective};

/// Table `[tune]`: what `doorbell tune FILE` looks for without flags. A run knows nothing of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tune {
    /// What is sought: `"max METRIC"` or `"min METRIC"`.
    pub objective: String,
    /// What has to hold: `"METRIC <= VALUE"` or `"METRIC >= VALUE"`.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Keys and their values, at least two each, as in `[sweep]`; a value stands where the file's
    /// own does. Without any the axes of the sweep are varied.
    #[serde(default)]
    pub vary: Sweep,
    /// The variant to tune; a file without variants has none to name.
    #[serde(default)]
    pub variant: Option<String>,
    /// Values by path that hold while tuning, such as fewer iterations. Without any the file is
    /// tuned as it stands.
    #[serde(default)]
    pub set: BTreeMap<String, SettingValue>,
    /// Most runs, the file as it stands included. Without it a tenth of all combinations, at least
    /// 12. More: better chances where what is sought has several peaks.
    #[serde(default)]
    pub runs: Option<Count<2, 10_000>>,
}

/// A `[tune]` table, checked.
#[derive(Clone, Debug)]
pub struct TunePlan {
    /// What is sought.
    pub goal: Goal,
    /// Keys and their values, at least one.
    pub knobs: Vec<Axis>,
    /// The variant.
    pub variant: Option<String>,
    /// Most runs, if it says so.
    pub runs: Option<usize>,
    pub(crate) sets: Vec<Change>,
}

/// Reads the table of a file whose variants and axes are known.
///
/// # Errors
/// When it is wrong in itself or for the file; the error has the place.
pub(crate) fn plan(loaded: &Loaded, node: &Node) -> Result<TunePlan, InputError> {
    let table = node.table()?;
    let of = |key: &str| table.get(key);
    // Keys of `vary` may be nested tables, as those of a sweep, which are read as such.
    let mut rest = table.clone();
    rest.remove("vary");
    let rest = Node { origin: node.origin.clone(), value: Value::Table(rest) };
    let tune: Tune = rest.read()?;
    let objective = of("objective").map_or(&node.origin, |n| &n.origin);
    let objective = Objective::read(&tune.objective, objective)?;
    let mut keeps = vec![];
    if let Some(Value::Array(items)) = of("keep").map(|n| &n.value) {
        for (text, item) in tune.keep.iter().zip(items) {
            keeps.push(Keep::read(text, &item.origin)?);
        }
    }
    let mut sets = vec![];
    if let Some(set) = of("set") {
        for (key, value) in &set.table()?.entries {
            sets.push(change(key, value)?);
        }
    }
    let knobs = knobs(loaded, of("vary"), &sets, node)?;
    variant(loaded, tune.variant.as_deref())
        .map_err(|e| e.at_opt(of("variant").map(|n| &n.origin)).at(&node.origin))?;
    let runs = tune.runs.map(|n| n.value() as usize);
    Ok(TunePlan { goal: Goal { objective, keeps }, knobs, variant: tune.variant, runs, sets })
}

fn knobs(
    loaded: &Loaded,
    vary: Option<&Node>,
    sets: &[Change],
    tune: &Node,
) -> Result<Vec<Axis>, InputError> {
    let mut knobs = vary.map_or(Ok(vec![]), axes)?;
    for knob in &mut knobs {
        knob.path = resolve(&knob.path).map_err(|e| e.at(&knob.key.origin))?;
    }
    let is_set = |axis: &&Axis| !sets.iter().any(|s| s.path == axis.path);
    let swept: Vec<&Axis> = loaded.axes.iter().filter(is_set).collect();
    if knobs.is_empty() {
        knobs = swept.into_iter().cloned().collect();
    } else if let Some(axis) =
        swept.into_iter().find(|axis| knobs.iter().all(|k| k.path != axis.path))
    {
        let name = shown(&axis.path);
        let text = format!("the file sweeps over `{name}`, which [tune] does not vary");
        let help = format!("add \"{name}\" to `tune.vary`, or give it a value in `tune.set`");
        return Err(InputError::new(text).help(help).at(&axis.key.origin));
    }
    if knobs.is_empty() {
        let error = InputError::new("[tune] varies nothing, and the file has no sweep");
        let help = "add `vary`, such as vary = { \"qp.timeout\" = [8, 10, 12, 14] }";
        return Err(error.help(help).at(&tune.origin));
    }
    if let Some(set) = sets.iter().find(|s| knobs.iter().any(|k| k.path == s.path)) {
        let text = format!("`{}` is varied and has one value in `tune.set`", shown(&set.path));
        return Err(InputError::new(text).help("leave it out of one of them").at(&set.key_at));
    }
    check_knobs(&knobs)?;
    Ok(knobs)
}

/// Whether there is something to choose from, and not too much.
pub(crate) fn check_knobs(knobs: &[Axis]) -> Result<(), InputError> {
    for (i, knob) in knobs.iter().enumerate() {
        let name = shown(&knob.path);
        if knob.values.len() < 2 {
            let text = format!("`{name}` has one value: there is nothing to choose from");
            let help = "give it several, or leave it out";
            return Err(InputError::new(text).help(help).at(&knob.key.origin));
        }
        if knobs[..i].iter().any(|k| k.path == knob.path) {
            let error = InputError::new(format!("`{name}` is varied twice"));
            return Err(error.help("name all its values in one place").at(&knob.key.origin));
        }
    }
    let points = knobs.iter().try_fold(1usize, |n, k| n.checked_mul(k.values.len()));
    if points.is_none_or(|n| n > MAX_POINTS) {
        let text = format!("the values make more than {MAX_POINTS} combinations");
        let error = InputError::new(text).help("name fewer values, or vary fewer keys");
        return Err(error.at_opt(knobs.first().map(|k| &k.key.origin)));
    }
    Ok(())
}

/// Whether this is the one of the file's variants that tuning is about.
pub(crate) fn variant(loaded: &Loaded, name: Option<&str>) -> Result<(), InputError> {
    let names = loaded.variant_names();
    match name {
        None if names.is_empty() => Ok(()),
        None => {
            let text = "the file has variants, and tuning is about one of them";
            let help = format!("name one by --variant or `tune.variant`: {}", names.join(", "));
            Err(InputError::new(text).help(help))
        }
        Some(name) if names.contains(&name) => Ok(()),
        Some(name) => {
            let error = InputError::new(format!("the file has no variant \"{name}\""));
            Err(error.help(match names.is_empty() {
                true => "it has no variants: leave the name out".to_owned(),
                false => suggestion(name, names.iter().copied(), "variants"),
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::loaded;
    use crate::tune::toml_text;

    const FILE: &str = "title = 't'\nprofile = 'generic-400g'\n\
        [[program]]\nkind = 'message-rate'\n\
        [tune]\nobjective = 'max message_rate'\n";
    const VARY: &str = "vary = { 'program.0.batch' = [1, 2] }\n";

    fn error(text: &str) -> (String, String) {
        let e = loaded(text, &[]).expect_err(text);
        (e.to_string(), e.remedy().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_table_is_read_and_a_run_does_not_see_it() {
        let more = "keep = ['latency.p99 <= 6us']\nruns = 9\nset = { 'program.0.size' = '1KiB' }\n\
                    [tune.vary]\nprogram.0.batch = { from = 1, to = 8, factor = 2 }\n\
                    'pcie.width' = [8, 16]\n";
        let l = loaded(&format!("{FILE}{more}"), &[]).unwrap();
        let plan = l.tune.as_ref().unwrap();
        let knob = |k: &Axis| (k.path.to_string(), k.values.iter().map(toml_text).collect());
        let knobs: Vec<(String, Vec<String>)> = plan.knobs.iter().map(knob).collect();
        let own = |v: &[&str]| v.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(knobs[0], ("program.0.batch".into(), own(&["1", "2", "4", "8"])));
        assert_eq!(knobs[1], ("settings.pcie.width".into(), own(&["8", "16"])));
        assert_eq!(plan.goal.objective.to_string(), "max message_rate");
        assert_eq!(plan.goal.keeps[0].to_string(), "latency.p99 <= 6us");
        assert_eq!((plan.runs, plan.variant.clone(), plan.sets.len()), (Some(9), None, 1));
        let with = crate::testing::expanded(&format!("{FILE}{more}"), &[]).unwrap();
        assert_eq!((with.len(), with[0].point.scenario.program[0].size.0.0), (1, 8), "not 1 KiB");
        assert!(loaded(&FILE.replace("[tune]", "[[variant]]\nname = 'v'"), &[]).is_err());
    }

    #[test]
    fn without_keys_the_sweep_is_varied() {
        let sweep = "[sweep]\n'program.0.batch' = [1, 2, 3]\nqp.timeout = [8, 9]\n";
        let keys = |more: &str| -> Vec<String> {
            let plan = loaded(&format!("{FILE}{more}{sweep}"), &[]).unwrap().tune.unwrap();
            plan.knobs.iter().map(|k| k.path.to_string()).collect()
        };
        assert_eq!(keys(""), ["program.0.batch", "qp.timeout"]);
        assert_eq!(keys("set = { 'qp.timeout' = 9 }\n"), ["program.0.batch"]);
        let (message, help) = error(&format!("{FILE}{VARY}{sweep}"));
        assert!(message.starts_with("t.toml:10:4: the file sweeps over `qp.timeout`"), "{message}");
        assert!(help.contains("`tune.set`"), "{help}");
    }

    #[test]
    fn what_is_wrong_is_named_with_place_and_remedy() {
        for (more, place, message, remedy) in [
            ("", "5:1", "varies nothing", "add `vary`"),
            ("vary = {}\n", "5:1", "varies nothing", "add `vary`"),
            ("varry = 1\n", "7:1", "unknown key `varry`", "`vary`"),
            ("vary = { 'programm.0.batch' = [1, 2] }\n", "7:10", "unknown key", "`program`"),
            ("vary = { 'expect.0.min' = [1, 2] }\n", "7:10", "cannot be changed", "edit"),
            ("vary = { 'tune.runs' = [1, 2] }\n", "7:10", "cannot be changed", "edit"),
            ("vary = { 'qp.timeout' = [1] }\n", "7:10", "has one value", "several"),
            ("vary = { 'qp.timeout' = 1 }\n", "7:25", "expected a list", "write a list"),
            (
                "vary = { 'pcie.width' = [8, 16], 'settings.pcie.width' = [8, 16] }\n",
                "7:34",
                "varied twice",
                "one place",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nset = { 'qp.timeout' = 1 }\n",
                "8:9",
                "is varied and has one value",
                "leave it out",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nset = { 'qq.timeout' = 1 }\n",
                "8:9",
                "unknown key `qq`",
                "qp",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nkeep = ['a <= 1', 'time']\n",
                "8:19",
                "no condition",
                "METRIC <= VALUE",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nvariant = 'v'\n",
                "8:11",
                "has no variant \"v\"",
                "leave the name out",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nruns = 1\n",
                "8:8",
                "impossible value: found 1",
                "2",
            ),
            (
                "vary = { 'qp.timeout' = [1, 2] }\nruns = 10001\n",
                "8:8",
                "impossible value: found 10001",
                "10000",
            ),
        ] {
            let (shown, help) = error(&format!("{FILE}{more}"));
            assert!(shown.starts_with(&format!("t.toml:{place}: ")), "{more}: {shown}");
            assert!(shown.contains(message), "{more}: {shown}");
            assert!(help.contains(remedy), "{more}: {help}");
        }
        let objective = |text: &str| error(&FILE.replace("max message_rate", text)).0;
        assert!(objective("most rate").starts_with("t.toml:6:13: \"most rate\" is no objective"));
        let (missing, _) = error(&FILE.replace("objective = 'max message_rate'\n", VARY));
        assert!(missing.contains("objective"), "{missing}");
        assert!(error("title = 't'\ntune = 3\n").0.starts_with("t.toml:2:8: "));
    }

    #[test]
    fn both_sides_of_the_limits() {
        for runs in [2, 10_000] {
            let l = loaded(&format!("{FILE}{VARY}runs = {runs}\n"), &[]).unwrap();
            assert_eq!(l.tune.unwrap().runs, Some(runs));
        }
        let grid = |n| {
            let range = format!("{{ from = 1, to = {n}, step = 1 }}");
            format!("{FILE}[tune.vary]\nprogram.0.batch = {range}\nseed = {range}\n")
        };
        assert!(loaded(&grid(100), &[]).is_ok());
        let (message, help) = error(&grid(101));
        assert!(message.contains("more than 10000 combinations"), "{message}");
        assert!(help.contains("fewer"));
    }

    #[test]
    fn a_file_with_variants_names_one_of_them() {
        let variants = "[[variant]]\nname = 'near'\n[[variant]]\nname = 'far'\n";
        let (message, help) = error(&format!("{FILE}{VARY}{variants}"));
        assert!(message.starts_with("t.toml:5:1: the file has variants"), "{message}");
        assert!(help.contains("near, far"), "{help}");
        let (message, help) = error(&format!("{FILE}{VARY}variant = 'neat'\n{variants}"));
        assert!(message.starts_with("t.toml:8:11: ") && help.contains("`near`"), "{help}");
        assert!(loaded(&format!("{FILE}{VARY}variant = 'far'\n{variants}"), &[]).is_ok());
    }
}
