//! Running the points of a scenario one after the other.

use super::{Outcome, Point, RunError, Runner, sick};
use crate::format::expand::Expanded;
use crate::input::{InputError, Node, Path};

/// A point with what came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was run.
    pub point: Point,
    /// What came of it.
    pub outcome: Outcome,
}

/// Runs all points in order; `progress` is told each point before it runs.
///
/// # Errors
/// The first refusal of the runner, at the place of the setting that it is about.
pub fn run_points(
    runner: &dyn Runner,
    points: &[Expanded],
    mut progress: impl FnMut(&Point),
) -> Result<Vec<Run>, InputError> {
    let run = |Expanded { point, tree }: &Expanded| {
        progress(point);
        let outcome = runner.run(point).map_err(|e| at_setting(e, tree))?;
        Ok(Run { point: point.clone(), outcome })
    };
    let mut runs = points.iter().map(run).collect::<Result<Vec<_>, _>>()?;
    sick::compare(&mut runs);
    Ok(runs)
}

/// The refusal at the place of the setting that it is about.
pub(crate) fn at_setting(error: RunError, tree: &Node) -> InputError {
    match error {
        RunError::BadInput { path, message, help } => {
            let at = Path::parse(&path).ok().and_then(|p| p.origin(tree).cloned());
            InputError::new(message).help(help).at_opt(at.as_ref()).at(&tree.origin)
        }
        RunError::Unsupported { what } => InputError::new(format!("not supported: {what}")),
    }
}
