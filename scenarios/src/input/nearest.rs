//! The nearest valid name to a misspelt one.

use std::cmp::Reverse;

/// Levenshtein distance with swapped neighbours counted once, in characters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// The nearest of `known` to `name`, if one is near enough to be meant: at most a third of the
/// characters differ, or one is the end or the start of the other.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let scored = known.into_iter().map(|k| {
        let candidate = k.to_lowercase();
        let mut score = distance(&wanted, &candidate);
        let related = |long: &str, short: &str| short.len() >= 3 && long.contains(short);
        if related(&candidate, &wanted) || related(&wanted, &candidate) {
            score = score.min(2);
        }
        let longest = wanted.chars().count().max(candidate.chars().count());
        (score, score <= (longest / 3).max(1), k)
    });
    let (_, near, best) = scored.min_by_key(|(score, ..)| *score)?;
    near.then_some(best)
}

/// Names printed in an error; of longer lists, the nearest.
const MAX_LISTED: usize = 8;

/// Characters of the longest text that both have.
fn common(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut last = vec![0; b.len() + 1];
    let mut most = 0;
    for x in &a {
        let mut row = vec![0; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            row[j + 1] = if x == y { last[j] + 1 } else { 0 };
            most = most.max(row[j + 1]);
        }
        last = row;
    }
    most
}

/// Those of `known` that have most in common with `name`, the nearest first.
fn ranked<'a>(name: &str, known: Vec<&'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let mut scored: Vec<_> = known
        .into_iter()
        .map(|k| {
            let candidate = k.to_lowercase();
            (Reverse(common(&wanted, &candidate)), distance(&wanted, &candidate), k)
        })
        .collect();
    // Stable: of equals, the first of the list.
    scored.sort_by_key(|(common, distance, _)| (*common, *distance));
    scored.into_iter().map(|(.., k)| k).collect()
}

/// "did you mean `x`?"; when no one is near, the known names, or of many the nearest. `what` is
/// their plural.
pub fn suggestion<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    what: &str,
) -> String {
    if let Some(best) = nearest(name, known.clone()) {
        return format!("did you mean `{best}`?");
    }
    let all: Vec<&str> = known.into_iter().collect();
    if all.is_empty() {
        return format!("no {what} are possible here");
    }
    if all.len() <= MAX_LISTED {
        return format!("the possible {what} are {}", all.join(", "));
    }
    let (n, mut nearest) = (all.len(), ranked(name, all));
    nearest.truncate(MAX_LISTED);
    format!("the nearest of {n} {what} are {}", nearest.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, d) in
            [("", "", 0), ("abc", "", 3), ("widht", "width", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), d, "{a} {b}");
            assert_eq!(distance(b, a), d, "{b} {a}");
        }
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["sq_depth", "rq_depth", "mtu", "max_inline"];
        assert_eq!(nearest("sq_dept", known), Some("sq_depth"));
        assert_eq!(nearest("inline", known), Some("max_inline"));
        assert_eq!(nearest("MTU", known), Some("mtu"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn of_many_names_the_nearest_are_listed() {
        let eight = ["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"];
        let all = suggestion("zz", eight, "keys");
        assert_eq!(all, "the possible keys are aa, bb, cc, dd, ee, ff, gg, hh");
        let nine = ["n.aaaa", "n.bb", "n.cc", "n.dd", "n.ee", "n.ff", "n.gg", "n.retried", "x.re"];
        let text = suggestion("n.retransmits", nine, "names");
        assert!(text.starts_with("the nearest of 9 names are n.retried, x.re, n."), "{text}");
        assert_eq!(text.matches(", ").count(), 7, "{text}");
    }

    #[test]
    fn a_far_name_gets_the_list() {
        assert_eq!(suggestion("zz", ["one", "two"], "keys"), "the possible keys are one, two");
        assert_eq!(suggestion("tow", ["one", "two"], "keys"), "did you mean `two`?");
    }
}
