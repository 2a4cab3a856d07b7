//! `doorbell explain`: what will run, with all defaults and sources.

use std::fmt::Write as _;

use super::ExitStatus;
use super::args::ExplainArgs;
use super::common::{complain, print, ready};
use crate::format::expand::Expanded;
use crate::input::InputError;
use crate::profile::{Confidence, PARAMETERS, Profile};

/// Points listed by name.
const MAX_LISTED: usize = 20;

/// Prints the expanded scenario and its profile.
pub(super) fn explain(args: &ExplainArgs) -> ExitStatus {
    let ready = match ready(&args.target) {
        Ok(ready) => ready,
        Err(error) => return complain(&error),
    };
    let Some(Expanded { point, .. }) = ready.points.get(args.point) else {
        let text = format!("there is no point {}", args.point);
        let help = format!("the scenario has points 0 to {}", ready.points.len() - 1);
        return complain(&InputError::new(text).help(help));
    };
    let mut out = points_text(&ready.points, args.point);
    match toml::to_string(&point.scenario) {
        Ok(text) => out.push_str(&text),
        Err(error) => return complain(&InputError::new(error.to_string())),
    }
    out.push_str(&profile_text(&point.profile));
    print(&out)
}

fn points_text(points: &[Expanded], shown: usize) -> String {
    if points.len() == 1 {
        return String::new();
    }
    let mut out = format!("# {} points; this is point {shown}\n", points.len());
    for Expanded { point, .. } in points.iter().take(MAX_LISTED) {
        let _ = writeln!(out, "#   {}: {}", point.index, point.label());
    }
    if points.len() > MAX_LISTED {
        let _ = writeln!(out, "#   and {} more", points.len() - MAX_LISTED);
    }
    out.push('\n');
    out
}

/// Every parameter with what it is, its value and where that comes from.
fn profile_text(profile: &Profile) -> String {
    let mut out = format!("\n# profile {}: {}\n", profile.name, profile.title);
    let mut group = "";
    for ((path, value), info) in profile.values().iter().zip(PARAMETERS) {
        let (of, name) = path.split_once('.').unwrap_or(("", path));
        if of != group {
            group = of;
            let _ = writeln!(out, "#\n# [{group}]");
        }
        let from = &profile.provenance[*path];
        let inherited = match from.profile == profile.name {
            true => String::new(),
            false => format!(", from {}", from.profile),
        };
        // What is assumed says so in its source already.
        let source = match from.confidence {
            Confidence::Assumed => from.source.clone(),
            confidence => format!("{}: {}", confidence.word(), from.source),
        };
        let _ = writeln!(out, "# {name} = {value}  ({source}{inherited})");
        let _ =
            writeln!(out, "#     {}", info.doc.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    out
}
