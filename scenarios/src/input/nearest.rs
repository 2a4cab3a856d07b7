//! The nearest valid name to a misspelt one.

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

/// Longer lists are not printed in an error.
const MAX_LISTED: usize = 40;

/// "did you mean `x`?", with the known names when no one is near. `what` is their plural.
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
    let more = if all.len() > MAX_LISTED { ", …" } else { "" };
    let listed: Vec<&str> = all.into_iter().take(MAX_LISTED).collect();
    format!("the possible {what} are {}{more}", listed.join(", "))
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
    fn a_far_name_gets_the_list() {
        assert_eq!(suggestion("zz", ["one", "two"], "keys"), "the possible keys are one, two");
        assert_eq!(suggestion("tow", ["one", "two"], "keys"), "did you mean `two`?");
    }
}
