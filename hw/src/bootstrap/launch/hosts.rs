//! Lists of hosts: `a,b:2,n[01-03,7]`.

use thiserror::Error;

use super::super::MAX_RANKS;

/// A host and how many ranks it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Name or IPv4 address.
    pub name: String,
    /// Ranks that run there, at least 1.
    pub slots: u32,
}

/// A list of hosts that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HostListError {
    /// There is no host in it.
    #[error("it names no host")]
    Empty,
    /// A `[` without `]`, or the other way round, or one inside the other.
    #[error("`{entry}`: every [ needs its ], and no brackets stand in brackets")]
    Brackets {
        /// The entry.
        entry: String,
    },
    /// What stands in brackets is no number and no range.
    #[error("`{entry}`: `{part}` is no number and no range such as 01-16 (at most nine digits)")]
    Range {
        /// The entry.
        entry: String,
        /// The part of it.
        part: String,
    },
    /// A name is empty or has characters that no host name has.
    #[error("`{name}` is no host name: letters, digits, dots, hyphens and underscores make one")]
    Name {
        /// The name.
        name: String,
    },
    /// What follows the colon is no number of ranks.
    #[error("`{entry}`: what follows the colon is the number of ranks there, 1 to {MAX_RANKS}")]
    Slots {
        /// The entry.
        entry: String,
    },
    /// The list has too many hosts or ranks.
    #[error("it has more than {MAX_RANKS} ranks, which no run may have")]
    TooMany,
}

/// Most digits of a number in brackets. Its zeros in front count.
const MAX_DIGITS: usize = 9;

/// The hosts of a list with commas between its entries, in order: names, `name:slots`, and ranges
/// in brackets as `srun` writes them, where `n[08-10]` is n08, n09, n10.
///
/// # Errors
/// See [`HostListError`].
pub fn parse_list(text: &str) -> Result<Vec<Host>, HostListError> {
    let mut hosts = Vec::new();
    for entry in split_outside_brackets(text)? {
        let entry = entry.trim();
        if !entry.is_empty() {
            parse_entry(entry, &mut hosts)?;
        }
    }
    checked(hosts)
}

/// The hosts of a file with one entry per line. What follows `#` is a comment.
///
/// # Errors
/// See [`HostListError`].
pub fn parse_file(text: &str) -> Result<Vec<Host>, HostListError> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            parse_entry(entry, &mut hosts)?;
        }
    }
    checked(hosts)
}

fn checked(hosts: Vec<Host>) -> Result<Vec<Host>, HostListError> {
    let ranks: u64 = hosts.iter().map(|host| u64::from(host.slots)).sum();
    match ranks {
        0 => Err(HostListError::Empty),
        _ if ranks > MAX_RANKS.into() => Err(HostListError::TooMany),
        _ => Ok(hosts),
    }
}

/// The parts between commas that stand outside brackets.
fn split_outside_brackets(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut parts = Vec::new();
    let mut inside = false;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' | ']' if inside == (c == '[') => {
                let entry = text[start..].to_owned();
                return Err(HostListError::Brackets { entry });
            }
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostListError::Brackets { entry: text[start..].to_owned() });
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// Appends the hosts of one entry.
fn parse_entry(entry: &str, hosts: &mut Vec<Host>) -> Result<(), HostListError> {
    let slots_error = || HostListError::Slots { entry: entry.to_owned() };
    let (pattern, slots) = match entry.rsplit_once(':') {
        None => (entry, 1),
        Some((pattern, slots)) => (pattern, slots.parse().map_err(|_| slots_error())?),
    };
    if !(1..=MAX_RANKS).contains(&slots) {
        return Err(slots_error());
    }
    for name in expand(pattern)? {
        // Names are checked here since a bracket may stand anywhere in one.
        let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.is_empty() || !name.chars().all(good) {
            return Err(HostListError::Name { name });
        }
        if hosts.len() >= MAX_RANKS as usize {
            return Err(HostListError::TooMany);
        }
        hosts.push(Host { name, slots });
    }
    Ok(())
}

/// All names of a pattern with any number of brackets, the last one counting fastest.
fn expand(pattern: &str) -> Result<Vec<String>, HostListError> {
    let brackets = || HostListError::Brackets { entry: pattern.to_owned() };
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((fixed, behind)) = rest.split_once('[') {
        let (inside, after) = behind.split_once(']').ok_or_else(brackets)?;
        if fixed.contains(']') || inside.contains('[') {
            return Err(brackets());
        }
        let mut next = Vec::new();
        for name in &names {
            for part in inside.split(',') {
                let (first, last, width) = range(pattern, part)?;
                // Before anything is made of it: [0-999999999] is small to write.
                let count = u64::from(last - first) + 1;
                if next.len() as u64 + count > MAX_RANKS.into() {
                    return Err(HostListError::TooMany);
                }
                next.extend((first..=last).map(|n| format!("{name}{fixed}{n:0width$}")));
            }
        }
        names = next;
        rest = after;
    }
    if rest.contains(']') {
        return Err(brackets());
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// First, last and width of `7` or `01-16`.
fn range(entry: &str, part: &str) -> Result<(u32, u32, usize), HostListError> {
    let error = || HostListError::Range { entry: entry.to_owned(), part: part.to_owned() };
    let number = |text: &str| {
        let good = (1..=MAX_DIGITS).contains(&text.len());
        let digits = good && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten().ok_or_else(error)
    };
    let (low, high) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(low)?, number(high)?);
    if first > last { Err(error()) } else { Ok((first, last, low.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<String, HostListError> {
        let hosts = parse_list(text)?;
        let shown = hosts.iter().map(|h| match h.slots {
            1 => h.name.clone(),
            n => format!("{}:{n}", h.name),
        });
        Ok(shown.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn brackets_are_expanded_as_srun_means_them() {
        for (text, expected) in [
            ("a", "a"),
            ("a,b,c", "a b c"),
            (" a , b,", "a b"),
            ("n[01-03,7],m5", "n01 n02 n03 n7 m5"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("n[5-5]-ib", "n5-ib"),
            ("r[1-2]n[3,5]x", "r1n3x r1n5x r2n3x r2n5x"),
            ("[1-2]", "1 2"),
            ("n[0-1]:4,b:2", "n0:4 n1:4 b:2"),
            ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        ] {
            assert_eq!(names(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_told_apart() {
        use HostListError as E;
        let brackets = |e: &E| matches!(e, E::Brackets { .. });
        let range = |e: &E| matches!(e, E::Range { .. });
        let name = |e: &E| matches!(e, E::Name { .. });
        let slots = |e: &E| matches!(e, E::Slots { .. });
        for text in ["n[1", "n1]", "n[1-2]]", "n[[1]]", "a,n[1,b", "n[1]2]", "]n["] {
            assert!(names(text).is_err_and(|e| brackets(&e)), "{text}: {:?}", names(text));
        }
        for text in ["n[]", "n[a]", "n[1-]", "n[-1]", "n[2-1]", "n[1-2-3]", "n[+1]", "n[ 1]"] {
            assert!(names(text).is_err_and(|e| range(&e)), "{text}: {:?}", names(text));
        }
        assert!(names("n[1234567890]").is_err_and(|e| range(&e)), "ten digits");
        assert!(names("n[123456789]").is_ok(), "nine digits");
        for text in ["a b", "a/b", "ä", "a$(b)", "::1:2"] {
            assert!(names(text).is_err_and(|e| name(&e)), "{text}: {:?}", names(text));
        }
        for text in ["a:", "a:0", "a:x", "a:-1", "a:65537", "a:99999999999"] {
            assert!(names(text).is_err_and(|e| slots(&e)), "{text}: {:?}", names(text));
        }
        for text in ["", ",", " , "] {
            assert_eq!(names(text), Err(E::Empty), "{text:?}");
        }
    }

    #[test]
    fn a_list_ends_at_the_largest_run() {
        assert_eq!(parse_list("n[0-65535]").map(|h| h.len()), Ok(65536));
        assert_eq!(parse_list("a:65536").map(|h| h[0].slots), Ok(65536));
        for text in [
            "n[0-65536]",
            "n[0-999999999]",
            "r[0-999]n[0-999]",
            "n[0-65535],m",
            "n[0-40000,0-40000]",
            "a:65536,b",
            "n[0-1]:65535",
        ] {
            assert_eq!(parse_list(text), Err(HostListError::TooMany), "{text}");
        }
    }

    #[test]
    fn a_file_has_one_entry_per_line() {
        let text = "# two machines\n\na:2   # big\n  n[1-2]\r\n";
        let hosts = parse_file(text).unwrap();
        let shown: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.slots)).collect();
        assert_eq!(shown, [("a", 2), ("n1", 1), ("n2", 1)]);
        assert_eq!(parse_file("# nothing\n"), Err(HostListError::Empty));
        assert!(matches!(parse_file("a b"), Err(HostListError::Name { .. })));
        assert!(matches!(parse_file("a]"), Err(HostListError::Brackets { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in "[a-c0-9,:\\[\\]-]{0,30}") {
            if let Ok(hosts) = parse_list(&text) {
                let ranks: u32 = hosts.iter().map(|h| h.slots).sum();
                proptest::prop_assert!((1..=MAX_RANKS).contains(&ranks));
            }
        }
    }
}
