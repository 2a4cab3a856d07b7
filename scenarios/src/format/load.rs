//! Reading a scenario file, apart into the scenario itself, its variants, axes and expectations.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use super::expect_check::check_expectations;
use super::paths::resolve;
use super::sweep::axes;
use super::tune::plan;
use super::{Axis, Expect, TunePlan, Variant};
use crate::input::{
    InputError, Key, Node, Origin, Path, Source, Table, Value, read_file, suggestion,
};
use crate::library;

/// Changes from the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `path=value`, in the order given.
    pub set: Vec<String>,
    /// The seed, if it was given.
    pub seed: Option<u64>,
}

/// One change of one value.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) path: Path,
    pub(crate) key_at: Origin,
    pub(crate) value: Node,
}

/// A variant with its changes, each with its place.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub(crate) name: String,
    pub(crate) changes: Vec<Change>,
}

/// A scenario file that is read but not expanded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The text.
    pub source: Arc<Source>,
    /// Folder that profiles are looked for from.
    pub directory: PathBuf,
    /// Axes of the sweep, without those that the command line fixes.
    pub axes: Vec<Axis>,
    /// What `doorbell tune` looks for, if the file says so.
    pub tune: Option<TunePlan>,
    /// Expectations.
    pub expects: Vec<Expect>,
    /// Axes that the command line fixes, by their names.
    pub fixed_axes: Vec<String>,
    pub(crate) base: Node,
    pub(crate) variants: Vec<Changes>,
    pub(crate) sets: Vec<Change>,
}

impl Loaded {
    /// Names of the variants.
    pub fn variant_names(&self) -> Vec<&str> {
        self.variants.iter().map(|v| v.name.as_str()).collect()
    }

    /// The name by which reports call the axis: the last key where that is enough.
    pub fn axis_name(&self, axis: &Axis) -> String {
        let last = axis.path.last();
        let same = self.axes.iter().filter(|a| a.path.last() == last).count();
        if same == 1 { last } else { shown(&axis.path) }
    }
}

impl Loaded {
    /// Gives these keys their values, where the command line does not, and ends the sweep over
    /// them.
    pub(crate) fn hold(&mut self, changes: Vec<Change>) {
        changes.iter().for_each(|change| fix_axis(self, &change.path));
        self.sets.splice(..0, changes);
    }

    /// Whether this key has one value by [`hold`](Self::hold) or the command line.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.sets.iter().any(|change| change.path == *path)
    }
}

/// A settings path is shown without `settings`.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string();
    text.strip_prefix("settings.").map(str::to_owned).unwrap_or(text)
}

/// Finds the scenario `target`, a file or the name of a built-in one.
///
/// # Errors
/// When there is no such file or it cannot be read.
pub fn find(target: &str) -> Result<(Arc<Source>, PathBuf), InputError> {
    let path = FilePath::new(target);
    let is_path = target.ends_with(".toml") || target.contains(['/', '\\']) || path.exists();
    if !is_path {
        if let Some(text) = library::scenario(target) {
            return Ok((Source::new(format!("library/{target}.toml"), text), PathBuf::new()));
        }
        let known = library::SCENARIOS.iter().map(|(name, _)| *name);
        return Err(InputError::new(format!("there is no file and no scenario \"{target}\""))
            .help(suggestion(target, known, "built-in scenarios")));
    }
    let directory = path.parent().map(FilePath::to_owned).unwrap_or_default();
    Ok((read_file(path)?, directory))
}

/// Reads the text and applies nothing yet.
///
/// # Errors
/// When the file is no scenario; the error has the place.
pub fn load(
    source: Arc<Source>,
    directory: PathBuf,
    overrides: &Overrides,
) -> Result<Loaded, InputError> {
    let base = Node::parse(&source)?;
    load_node(base, source, directory, overrides)
}

/// [`load`] of a table that stands in a larger file.
pub(crate) fn load_node(
    mut base: Node,
    source: Arc<Source>,
    directory: PathBuf,
    overrides: &Overrides,
) -> Result<Loaded, InputError> {
    let Value::Table(table) = &mut base.value else {
        return Err(InputError::new("not a table"));
    };
    let variant = table.remove("variant");
    let sweep = table.remove("sweep");
    let tune = table.remove("tune");
    let expect = table.remove("expect");
    flatten_settings(table)?;
    let mut loaded = Loaded {
        source,
        directory,
        axes: Vec::new(),
        tune: None,
        expects: Vec::new(),
        fixed_axes: Vec::new(),
        base,
        variants: Vec::new(),
        sets: Vec::new(),
    };
    if let Some((_, node)) = &variant {
        loaded.variants = read_variants(node)?;
    }
    if let Some((_, node)) = &sweep {
        loaded.axes = axes(node)?;
        for axis in &mut loaded.axes {
            axis.path = resolve(&axis.path).map_err(|e| e.at(&axis.key.origin))?;
        }
        refuse_doubles(&loaded.axes)?;
    }
    if let Some((_, node)) = &tune {
        loaded.tune = Some(plan(&loaded, node)?);
    }
    if let Some((_, node)) = &expect {
        loaded.expects = node.read()?;
        check_expectations(&loaded, node)?;
    }
    apply_overrides(&mut loaded, overrides)?;
    Ok(loaded)
}

/// The same path on two axes would set one value twice.
fn refuse_doubles(axes: &[Axis]) -> Result<(), InputError> {
    for (i, axis) in axes.iter().enumerate() {
        if axes[..i].iter().any(|a| a.path == axis.path) {
            let error = InputError::new(format!("`{}` is swept twice", shown(&axis.path)));
            return Err(error.at(&axis.key.origin));
        }
    }
    Ok(())
}

fn read_variants(node: &Node) -> Result<Vec<Changes>, InputError> {
    let typed: Vec<Variant> = node.read()?;
    let Value::Array(items) = &node.value else {
        return Err(InputError::new("expected [[variant]] tables").at(&node.origin));
    };
    let mut variants: Vec<Changes> = Vec::new();
    for (variant, item) in typed.into_iter().zip(items) {
        let name_at = item.table()?.get("name").map_or(&item.origin, |n| &n.origin);
        if variant.name.trim().is_empty() {
            return Err(InputError::new("a variant needs a name").at(name_at));
        }
        if variants.iter().any(|v| v.name == variant.name) {
            let text = format!("two variants are called \"{}\"", variant.name);
            return Err(InputError::new(text).at(name_at));
        }
        let mut changes = Vec::new();
        if let Some(set) = item.table()?.get("set") {
            for (key, value) in &set.table()?.entries {
                changes.push(change(key, value)?);
            }
        }
        variants.push(Changes { name: variant.name, changes });
    }
    Ok(variants)
}

pub(crate) fn change(key: &Key, value: &Node) -> Result<Change, InputError> {
    let path = Path::parse(&key.name).and_then(|p| resolve(&p)).map_err(|e| e.at(&key.origin))?;
    Ok(Change { path, key_at: key.origin.clone(), value: value.clone() })
}

/// `[settings] pcie.width = 8` is a nested table in TOML; settings are paths, so it is made one.
fn flatten_settings(root: &mut Table) -> Result<(), InputError> {
    let Some(settings) = root.get_mut("settings") else {
        return Ok(());
    };
    settings.table()?;
    let Value::Table(table) = &mut settings.value else {
        return Ok(());
    };
    let mut flat = Table::default();
    for (key, node) in std::mem::take(&mut table.entries) {
        flatten_into(&mut flat, key, node)?;
    }
    *table = flat;
    Ok(())
}

fn flatten_into(flat: &mut Table, key: Key, node: Node) -> Result<(), InputError> {
    if let Value::Table(table) = node.value {
        for (inner, value) in table.entries {
            let name = format!("{}.{}", key.name, inner.name);
            flatten_into(flat, Key { name, origin: inner.origin }, value)?;
        }
        return Ok(());
    }
    if flat.get(&key.name).is_some() {
        return Err(InputError::new(format!("`{}` is set twice", key.name)).at(&key.origin));
    }
    flat.entries.push((key, node));
    Ok(())
}

fn apply_overrides(loaded: &mut Loaded, overrides: &Overrides) -> Result<(), InputError> {
    let sets = overrides.set.iter().map(|text| ("--set", text.clone()));
    let seed = overrides.seed.map(|seed| ("--seed", format!("seed={seed}")));
    for (flag, text) in sets.chain(seed) {
        let source = Source::new(flag, text.clone());
        let key_at = |end| Origin { source: source.clone(), start: 0, end };
        let Some(equals) = text.find('=') else {
            return Err(InputError::new(format!("\"{text}\" is not `path=value`"))
                .help("write for example --set program.0.size=64B")
                .at(&key_at(text.len())));
        };
        let name = text[..equals].trim().to_owned();
        let key = Key { name, origin: key_at(equals) };
        let value = Node::parse_value(&source, equals + 1)?;
        let change = change(&key, &value)?;
        fix_axis(loaded, &change.path);
        loaded.sets.push(change);
    }
    Ok(())
}

/// A value from the command line ends the sweep over it.
fn fix_axis(loaded: &mut Loaded, path: &Path) {
    let names: Vec<String> = loaded
        .axes
        .iter()
        .filter(|axis| axis.path == *path)
        .map(|axis| loaded.axis_name(axis))
        .collect();
    loaded.fixed_axes.extend(names);
    loaded.axes.retain(|axis| axis.path != *path);
}
