//! Characters that a terminal obeys instead of showing: they could move the cursor, change colours,
//! or turn a line around, so that a report says something else than it means.

use super::{InputError, Node, Value};

/// Whether a terminal obeys the character. Line breaks and tabs are layout.
fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Marks that change the direction of what follows them.
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// Refuses texts that hold such a character, anywhere in a file.
///
/// # Errors
/// Names the first of them, at the place of its text.
pub(super) fn check_texts(node: &Node) -> Result<(), InputError> {
    let refuse = |text: &str, at| match text.chars().find(|c| is_obeyed(*c)) {
        None => Ok(()),
        Some(c) => {
            let text = format!("the text holds U+{:04X}, which a terminal obeys", u32::from(c));
            Err(InputError::new(text).help("leave the character out").at(at))
        }
    };
    match &node.value {
        Value::String(text) => refuse(text, &node.origin),
        Value::Array(items) => items.iter().try_for_each(check_texts),
        Value::Table(table) => table.entries.iter().try_for_each(|(key, value)| {
            refuse(&key.name, &key.origin)?;
            check_texts(value)
        }),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => Ok(()),
    }
}

/// The text with marks in the place of such characters. As many bytes as before, so that places in
/// it stay where they are.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut all = text.chars().peekable();
    while let Some(c) = all.next() {
        match c.len_utf8() {
            _ if !is_obeyed(c) || c == '\r' && all.peek() == Some(&'\n') => out.push(c),
            3 => out.push(char::REPLACEMENT_CHARACTER),
            n => (0..n).for_each(|_| out.push('?')),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_refused_wherever_it_stands() {
        for (text, place) in [
            ("title = \"a\\u001b[31mb\"", "t.toml:1:9: the text holds U+001B"),
            ("title = \"a\u{202E}b\"", "t.toml:1:9: the text holds U+202E"),
            ("a = 1\n[b]\nc = [1, \"\\u009b\"]", "t.toml:3:9: the text holds U+009B"),
            ("a = 1\n\"\\u2066\" = 2", "t.toml:2:1: the text holds U+2066"),
            ("a = \"\\r\"", "t.toml:1:5: the text holds U+000D"),
        ] {
            let e = Node::parse(&Source::new("t.toml", text)).unwrap_err();
            assert!(e.to_string().starts_with(place), "{text:?}: {e}");
            assert_eq!(e.remedy(), Some("leave the character out"));
        }
        for text in ["a = \"µs, tab\\t, line\\n, \u{5D0}\u{200F}\"", "a = \"\u{2065}\u{206A}\""] {
            assert!(Node::parse(&Source::new("t.toml", text)).is_ok(), "{text:?}");
        }
        assert!(Node::parse_value(&Source::new("--set", "t=\u{1b}[2J"), 2).is_err());
    }

    #[test]
    fn what_is_shown_has_its_length_and_is_not_obeyed() {
        let text = "a\u{1b}[0mb\u{202E}c\u{9b}d\r\n\té\r";
        let clean = shown(text);
        assert_eq!(clean, "a?[0mb\u{FFFD}c??d\r\n\té?");
        assert_eq!(clean.len(), text.len());
    }
}
