//! From a file to points: variants times axes, with the command line's changes on top.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::check::{check, check_lists};
use super::flow_file::read_all;
use super::load::{Changes, Loaded, shown};
use super::sweep::scalar;
use super::{MAX_POINTS, Scenario, SettingValue};
use crate::input::{InputError, Key, Node, Table, Value};
use crate::profile::{Profile, Profiles};
use crate::run::{AxisValue, Point};

/// A point together with the tree that it was read from, for errors that come later.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// The point.
    pub point: Point,
    /// Its tree, whose values know their places.
    pub tree: Node,
}

/// All points, in the order variant, first axis, …, last axis; the last one changes fastest.
///
/// # Errors
/// When a point is wrong in itself or for its profile; the error has the place.
pub fn expand(loaded: &Loaded, profiles: &mut Profiles) -> Result<Vec<Expanded>, InputError> {
    expand_only(loaded, profiles, None)
}

/// [`expand`], of one variant if one is named: what is set for it need not suit the others. Points
/// have the numbers that they have among all.
pub(crate) fn expand_only(
    loaded: &Loaded,
    profiles: &mut Profiles,
    only: Option<&str>,
) -> Result<Vec<Expanded>, InputError> {
    let per_variant = loaded.axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.values.len()));
    let variants: Vec<Option<&Changes>> = match loaded.variants.is_empty() {
        true => vec![None],
        false => loaded.variants.iter().map(Some).collect(),
    };
    let total = per_variant.and_then(|n| n.checked_mul(variants.len()));
    let Some(per_variant) = per_variant.filter(|_| total.is_some_and(|n| n <= MAX_POINTS)) else {
        let at = loaded.axes.first().map(|a| &a.key.origin);
        return Err(InputError::new(format!("the sweep makes more than {MAX_POINTS} points"))
            .help("shorten a list, or raise a step or factor")
            .at_opt(at));
    };
    let mut typed = BTreeMap::new();
    let mut points = Vec::with_capacity(per_variant * variants.len());
    for (before, variant) in variants.into_iter().enumerate() {
        if only.is_some() && variant.map(|v| v.name.as_str()) != only {
            continue;
        }
        for combination in 0..per_variant {
            let index = before * per_variant + combination;
            points.push(point(loaded, variant, combination, index, profiles, &mut typed)?);
        }
    }
    Ok(points)
}

/// Profiles by name and settings: a sweep over messages types its profile once.
type Typed = BTreeMap<String, Arc<Profile>>;

fn point(
    loaded: &Loaded,
    variant: Option<&Changes>,
    combination: usize,
    index: usize,
    profiles: &mut Profiles,
    typed: &mut Typed,
) -> Result<Expanded, InputError> {
    let mut tree = loaded.base.clone();
    for change in variant.map_or(&[][..], |v| &v.changes) {
        change.path.set(&mut tree, &change.value, &change.key_at)?;
    }
    let mut axes = Vec::with_capacity(loaded.axes.len());
    let mut rest = combination;
    for axis in loaded.axes.iter().rev() {
        let value = &axis.values[rest % axis.values.len()];
        rest /= axis.values.len();
        axis.path.set(&mut tree, value, &axis.key.origin)?;
        axes.push(AxisValue {
            path: shown(&axis.path),
            name: loaded.axis_name(axis),
            text: value.text(),
            scalar: node_scalar(value),
        });
    }
    axes.reverse();
    for change in &loaded.sets {
        change.path.set(&mut tree, &change.value, &change.key_at)?;
    }
    let mut scenario: Scenario = tree.read()?;
    let profile = profile(&scenario, &tree, profiles, typed)?;
    scenario.apply_link();
    if !gives(&tree, "topology", "hosts") {
        scenario.topology.count_hosts(&profile);
    }
    scenario.qp.keep_defaults_within(&profile, |key| gives(&tree, "qp", key));
    check(&scenario, &profile, &tree)?;
    read_all(&mut scenario, &tree, &loaded.directory)?;
    check_lists(&scenario, &profile, &tree)?;
    let point = Point {
        index,
        seed: scenario.seed.value(),
        scenario,
        profile,
        variant: variant.map(|v| v.name.clone()),
        axes,
    };
    Ok(Expanded { point, tree })
}

/// Whether the file has this key in this table.
fn gives(tree: &Node, table: &str, key: &str) -> bool {
    let table = tree.table().ok().and_then(|t| t.get(table));
    table.and_then(|t| t.table().ok()).is_some_and(|t| t.get(key).is_some())
}

fn node_scalar(node: &Node) -> Option<crate::quantity::Scalar> {
    let setting: SettingValue = node.read().ok()?;
    scalar(&setting)
}

fn profile(
    scenario: &Scenario,
    tree: &Node,
    profiles: &mut Profiles,
    typed: &mut Typed,
) -> Result<Arc<Profile>, InputError> {
    let table = tree.table()?;
    let settings = match table.get("settings").map(|n| &n.value) {
        Some(Value::Table(settings)) => Some(settings),
        _ => None,
    };
    let text = |key| table.get(key).map_or(String::new(), Node::text);
    let key = format!("{}\n{}\n{}", scenario.profile, text("link"), text("settings"));
    if let Some(profile) = typed.get(&key) {
        return Ok(profile.clone());
    }
    let at = table.get("profile").map(|n| &n.origin);
    let linked = with_link(settings, table.get("link"))?;
    let settings = linked.as_ref().or(settings);
    let profile = Arc::new(profiles.load(&scenario.profile, at)?.with_settings(settings)?);
    typed.insert(key, profile.clone());
    Ok(profile)
}

/// The parameter that `link` replaces.
const PORT_LINK: &str = "port.link";

/// The settings with the scenario's link layer among them, if it has one.
fn with_link(settings: Option<&Table>, link: Option<&Node>) -> Result<Option<Table>, InputError> {
    let Some(link) = link else { return Ok(None) };
    let mut all = settings.cloned().unwrap_or_default();
    match all.get(PORT_LINK) {
        Some(other) if other.text() != link.text() => {
            let text = format!("`{PORT_LINK}` is {}, and `link` is {}", other.text(), link.text());
            Err(InputError::new(text).help("leave the setting out").at(&other.origin))
        }
        Some(_) => Ok(None),
        None => {
            let key = Key { name: PORT_LINK.to_owned(), origin: link.origin.clone() };
            all.entries.push((key, link.clone()));
            Ok(Some(all))
        }
    }
}
