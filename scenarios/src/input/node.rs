//! The tree of values, each with the place it was written at.

use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::clean::check_texts;
use super::{InputError, Origin, Source};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The place.
    pub origin: Origin,
    /// The value.
    pub value: Value,
}

/// A TOML value. Dates are refused when a file is read: no setting is one.
#[derive(Clone, Debug)]
pub enum Value {
    /// `true`, `false`
    Bool(bool),
    /// A whole number; wide enough for both `i64` and `u64`.
    Integer(i128),
    /// A decimal number.
    Float(f64),
    /// Text.
    String(String),
    /// A list.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
}

/// A table, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Keys with their values.
    pub entries: Vec<(Key, Node)>,
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name.
    pub name: String,
    /// The place.
    pub origin: Origin,
}

impl Table {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries.iter().find(|(k, _)| k.name == name).map(|(_, v)| v)
    }

    /// The value of `name`, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|(k, _)| k.name == name).map(|(_, v)| v)
    }

    /// The key `name` as written.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.entries.iter().find(|(k, _)| k.name == name).map(|(k, _)| k)
    }

    /// Takes `name` out.
    pub fn remove(&mut self, name: &str) -> Option<(Key, Node)> {
        let at = self.entries.iter().position(|(k, _)| k.name == name)?;
        Some(self.entries.remove(at))
    }

    /// Sets `key`, in its old place if it was there.
    pub fn insert(&mut self, key: Key, value: Node) {
        match self.entries.iter_mut().find(|(k, _)| k.name == key.name) {
            Some(entry) => *entry = (key, value),
            None => self.entries.push((key, value)),
        }
    }
}

impl Node {
    /// Reads a whole file.
    ///
    /// # Errors
    /// When the text is not TOML, or holds a date, a number past 64 bits, or a character that a
    /// terminal would obey.
    pub fn parse(source: &Arc<Source>) -> Result<Self, InputError> {
        let table = DeTable::parse(&source.text).map_err(|e| syntax_error(&e, source))?;
        let span = table.span();
        let value = convert_table(table.into_inner(), source)?;
        let node = Self { origin: origin(source, &span), value: Value::Table(value) };
        check_texts(&node).map(|()| node)
    }

    /// Reads one value; text that is no TOML value is a string, so that `--set size=64B` needs
    /// no quotes inside quotes.
    ///
    /// # Errors
    /// When the text holds a date or a number past 64 bits.
    pub fn parse_value(source: &Arc<Source>, start: usize) -> Result<Self, InputError> {
        let text = &source.text[start..];
        let whole = Origin { source: source.clone(), start, end: source.text.len() };
        let node = match DeValue::parse(text) {
            Ok(value) => {
                let inner = Spanned::new(value.span(), value.into_inner());
                let mut node = convert(inner, source)?;
                // Spans inside count from the value's own start, so the whole value is shown.
                set_origin(&mut node, &whole);
                node
            }
            Err(_) => Self { origin: whole, value: Value::String(text.to_owned()) },
        };
        check_texts(&node).map(|()| node)
    }

    /// The table, or an error that names what was found instead.
    ///
    /// # Errors
    /// When the value is no table.
    pub fn table(&self) -> Result<&Table, InputError> {
        match &self.value {
            Value::Table(table) => Ok(table),
            other => Err(InputError::new(format!("found {}, expected a table", other.name()))
                .at(&self.origin)),
        }
    }

    /// Reads the typed value.
    ///
    /// # Errors
    /// When the tree does not have the shape of `T`; the error has the place.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, InputError> {
        T::deserialize(self).map_err(|e| e.at(&self.origin))
    }

    /// The value as it would stand in a file, on one line.
    pub fn text(&self) -> String {
        match &self.value {
            Value::Bool(b) => b.to_string(),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::String(s) => s.clone(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(Node::text).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(table) => {
                let entries: Vec<String> =
                    table.entries.iter().map(|(k, v)| format!("{}={}", k.name, v.text())).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

impl Value {
    /// What kind of value it is, with its article.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a decimal number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

fn origin(source: &Arc<Source>, span: &std::ops::Range<usize>) -> Origin {
    Origin { source: source.clone(), start: span.start, end: span.end }
}

fn set_origin(node: &mut Node, whole: &Origin) {
    node.origin = whole.clone();
    match &mut node.value {
        Value::Array(items) => items.iter_mut().for_each(|item| set_origin(item, whole)),
        Value::Table(table) => {
            for (key, value) in &mut table.entries {
                key.origin = whole.clone();
                set_origin(value, whole);
            }
        }
        _ => {}
    }
}

fn syntax_error(e: &toml::de::Error, source: &Arc<Source>) -> InputError {
    let error = InputError::new(format!("not TOML: {}", e.message())).help(remedy(e.message()));
    let end = source.text.len();
    let span = e.span().unwrap_or(end..end);
    error.at(&origin(source, &(span.start.min(end)..span.end.min(end))))
}

/// What repairs a text that the parser refuses with this message.
fn remedy(message: &str) -> &'static str {
    let kinds = [
        ("duplicate", "write each key and each table once: take one of them out, or rename it"),
        ("unclosed", "close it: a `\"`, `]` or `}` is missing"),
        ("string values must be quoted", "a value stands behind each `=`; put texts in quotes"),
    ];
    let kind = kinds.iter().find(|(word, _)| message.contains(word));
    kind.map_or("lines are `[table]` or `key = value`, with texts in quotes", |(_, help)| *help)
}

fn convert_table(table: DeTable<'_>, source: &Arc<Source>) -> Result<Table, InputError> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let key = Key { origin: origin(source, &key.span()), name: key.into_inner().into_owned() };
        entries.push((key, convert(value, source)?));
    }
    // The parser's map is sorted by name; people expect the order that they wrote.
    entries.sort_by_key(|(key, _)| key.origin.start);
    Ok(Table { entries })
}

fn convert(value: Spanned<DeValue<'_>>, source: &Arc<Source>) -> Result<Node, InputError> {
    let origin = origin(source, &value.span());
    let value = match value.into_inner() {
        DeValue::String(s) => Value::String(s.into_owned()),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) if n >= i64::MIN.into() && n <= u64::MAX.into() => Value::Integer(n),
            _ => {
                let error = InputError::new(format!("{} does not fit 64 bits", n.as_str()));
                let help = format!("a whole number from {} to {}", i64::MIN, u64::MAX);
                return Err(error.help(help).at(&origin));
            }
        },
        DeValue::Float(x) => match x.as_str().parse() {
            Ok(x) => Value::Float(x),
            Err(_) => {
                let error = InputError::new(format!("{} is no number", x.as_str()));
                return Err(error.help("write it in digits, such as 0.5").at(&origin));
            }
        },
        DeValue::Boolean(b) => Value::Bool(b),
        DeValue::Datetime(_) => {
            let error = InputError::new("a date, but no setting is a date");
            return Err(error.help("put texts in quotes; times are such as \"10us\"").at(&origin));
        }
        DeValue::Array(items) => {
            let items: Result<_, _> = items.into_iter().map(|item| convert(item, source)).collect();
            Value::Array(items?)
        }
        DeValue::Table(table) => Value::Table(convert_table(table, source)?),
    };
    Ok(Node { origin, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Node, InputError> {
        Node::parse(&Source::new("t.toml", text))
    }

    #[test]
    fn keeps_the_order_and_the_places() {
        let node = parse("b = 1\na = \"x\"\n[c]\nd = [1, 2]\n").unwrap();
        let table = node.table().unwrap();
        let names: Vec<&str> = table.entries.iter().map(|(k, _)| k.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert_eq!(table.get("a").unwrap().origin.line_column(), (2, 5));
        let c = table.get("c").unwrap().table().unwrap();
        assert_eq!(c.get("d").unwrap().text(), "[1, 2]");
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let e = parse("a = 1\nb = = 2\n").unwrap_err();
        assert!(e.to_string().starts_with("t.toml:2:5: not TOML:"), "{e}");
        let e = parse("a = 1\na = 2\n").unwrap_err();
        assert!(e.to_string().starts_with("t.toml:2:1: not TOML: duplicate key"), "{e}");
    }

    #[test]
    fn what_cannot_be_read_comes_with_a_remedy() {
        let general = "lines are `[table]` or `key = value`, with texts in quotes";
        for (text, remedy) in [
            ("a = 1\na = 2", "take one of them out"),
            ("[a]\n[a]", "take one of them out"),
            ("a =", "a value stands behind each `=`"),
            ("a = x", "put texts in quotes"),
            ("a = { b = 1", "close it"),
            ("a = [1, 2", "close it"),
            ("a = \"x", general),
            ("a b = 1", general),
            ("a", general),
            ("a = 18446744073709551616", "to 18446744073709551615"),
            ("a = 2024-01-01", "times are such as"),
        ] {
            let e = parse(text).map(|_| ()).expect_err(text);
            let said = e.remedy().unwrap_or("");
            assert!(said.contains(remedy), "{text}: {e}: {said}");
        }
    }

    #[test]
    fn numbers_past_64_bits_and_dates_are_refused() {
        assert!(parse("a = 18446744073709551615").is_ok());
        let e = parse("a = 18446744073709551616").unwrap_err();
        assert_eq!(e.to_string(), "t.toml:1:5: 18446744073709551616 does not fit 64 bits");
        assert!(parse("a = -9223372036854775808").is_ok());
        assert!(parse("a = -9223372036854775809").is_err());
        let e = parse("a = 2024-01-01").unwrap_err();
        assert_eq!(e.to_string(), "t.toml:1:5: a date, but no setting is a date");
    }

    #[test]
    fn a_command_line_value_needs_no_quotes() {
        let value = |text: &str| {
            Node::parse_value(&Source::new("--set", format!("p={text}")), 2).unwrap().value
        };
        assert!(matches!(value("8"), Value::Integer(8)));
        assert!(matches!(value("true"), Value::Bool(true)));
        assert!(matches!(value("64B"), Value::String(s) if s == "64B"));
        assert!(matches!(value("\"64B\""), Value::String(s) if s == "64B"));
        assert!(matches!(value("1/64"), Value::String(s) if s == "1/64"));
        assert!(matches!(value("[1, 2]"), Value::Array(a) if a.len() == 2));
        assert!(matches!(value(""), Value::String(s) if s.is_empty()));
    }
}
