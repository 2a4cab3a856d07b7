//! A smooth surface through values at places: what the search expects where it has not been.

use super::Place;

/// Pivots below this count as 0: places that all lie on one line or plane carry no slope across it.
const SMALL: f64 = 1e-9;

/// A sum of cubes of distances and a plane, which has the given values at the given places: among
/// all such surfaces about the one that bends least (Duchon, 1977). A step of one knob is a length
/// of 1, since of values only the order is known.
#[derive(Clone, Debug)]
pub(super) struct Surface {
    places: Vec<Place>,
    /// Of each place's cube, then of each knob, then of 1.
    weights: Vec<f64>,
}

pub(super) fn distance(a: &Place, b: &Place) -> f64 {
    let squares = a.iter().zip(b).map(|(x, y)| (x.abs_diff(*y) as f64) * (x.abs_diff(*y) as f64));
    squares.sum::<f64>().sqrt()
}

fn cube(distance: f64) -> f64 {
    distance * distance * distance
}

impl Surface {
    /// The surface through these values, at places that differ. `None` where they do not decide it:
    /// fewer than one more than there are knobs, or all in one plane.
    pub(super) fn through(places: Vec<Place>, values: &[f64]) -> Option<Self> {
        let (n, knobs) = (places.len(), places.first()?.len());
        let size = n + knobs + 1;
        let mut rows = vec![vec![0.0; size + 1]; size];
        for (i, place) in places.iter().enumerate() {
            for (j, other) in places.iter().enumerate() {
                rows[i][j] = cube(distance(place, other));
            }
            let plane = place.iter().map(|at| *at as f64).chain([1.0]);
            for (k, value) in plane.enumerate() {
                (rows[i][n + k], rows[n + k][i]) = (value, value);
            }
            rows[i][size] = values[i];
        }
        Some(Self { places, weights: solved(rows)? })
    }

    /// Its value at a place.
    pub(super) fn at(&self, place: &Place) -> f64 {
        let (cubes, plane) = self.weights.split_at(self.places.len());
        let bent = self.places.iter().zip(cubes).map(|(p, w)| w * cube(distance(p, place)));
        let flat = place.iter().map(|at| *at as f64).chain([1.0]).zip(plane).map(|(x, w)| w * x);
        bent.chain(flat).sum()
    }
}

/// Solves a system of equations, a row each with the right side last, by elimination; `None` where
/// it has no single solution.
fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = rows.len();
    for i in 0..size {
        let pivot = (i..size).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()))?;
        if rows[pivot][i].abs() < SMALL {
            return None;
        }
        rows.swap(i, pivot);
        let (above, below) = rows.split_at_mut(i + 1);
        let row = &above[i];
        for other in below {
            let factor = other[i] / row[i];
            other.iter_mut().zip(row).skip(i).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut found = vec![0.0; size];
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|k| rows[i][k] * found[k]).sum();
        found[i] = (rows[i][size] - known) / rows[i][i];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_few_places_and_places_in_a_line_have_no_surface() {
        let places = |all: &[[usize; 2]]| all.iter().map(|p| p.to_vec()).collect::<Vec<Place>>();
        assert!(Surface::through(vec![], &[]).is_none());
        assert!(Surface::through(places(&[[0, 0], [1, 3]]), &[1.0, 2.0]).is_none());
        let line = places(&[[0, 0], [1, 1], [2, 2], [5, 5]]);
        assert!(Surface::through(line, &[1.0, 2.0, 0.0, 3.0]).is_none());
        let enough = places(&[[0, 0], [1, 3], [2, 2]]);
        assert!(Surface::through(enough, &[1.0, 2.0, 0.0]).is_some());
    }

    /// A plane bends not at all, so it is what goes on through its own values.
    #[test]
    fn through_a_plane_it_is_the_plane() {
        let plane = |p: &Place| 3.0 * p[0] as f64 - 2.0 * p[1] as f64 + 7.0;
        let places: Vec<Place> = vec![vec![0, 0], vec![4, 1], vec![2, 6], vec![7, 7], vec![1, 3]];
        let values: Vec<f64> = places.iter().map(plane).collect();
        let surface = Surface::through(places, &values).unwrap();
        for place in [vec![9, 9], vec![0, 9], vec![3, 3]] {
            assert!((surface.at(&place) - plane(&place)).abs() < 1e-9, "{place:?}");
        }
    }

    proptest! {
        /// It has the values that it was made of, whatever they are.
        #[test]
        fn it_goes_through_its_values(
            places in prop::collection::btree_set(prop::array::uniform3(0..12usize), 4..40),
            values in prop::collection::vec(0.0..1.0f64, 40),
        ) {
            let places: Vec<Place> = places.iter().map(|p| p.to_vec()).collect();
            let Some(surface) = Surface::through(places.clone(), &values[..places.len()]) else {
                return Ok(());
            };
            for (place, value) in places.iter().zip(&values) {
                let off = (surface.at(place) - value).abs();
                prop_assert!(off < 1e-6, "{off} off at {place:?}");
            }
        }
    }
}
