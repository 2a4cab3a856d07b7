//! Running the points of a scenario one after the other.

use super::{Outcome, Point, RunError, Runner};

/// A point with what came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was run.
    pub point: Point,
    /// What came of it.
    pub outcome: Outcome,
}

/// Runs all points in order; `progress` is told the point before each run.
///
/// # Errors
/// The first point that cannot be run, with its error.
pub fn run_points(
    runner: &dyn Runner,
    points: Vec<Point>,
    mut progress: impl FnMut(&Point),
) -> Result<Vec<Run>, (Box<Point>, RunError)> {
    let mut runs = Vec::with_capacity(points.len());
    for point in points {
        progress(&point);
        match runner.run(&point) {
            Ok(outcome) => runs.push(Run { point, outcome }),
            Err(error) => return Err((Box::new(point), error)),
        }
    }
    Ok(runs)
}
