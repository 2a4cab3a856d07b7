//! Paths such as `program.0.size` and `program.*.size`, and changing a value by its path.

use std::fmt;

use super::{InputError, Key, Node, Origin, Table, Value};

/// Keys of a file that are lists of tables, whose elements a name may stand for.
const LISTS: [&str; 2] = ["program", "fault"];

/// A path into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    segments: Vec<Segment>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a table.
    Key(String),
    /// The n-th element of a list, from zero. A key stands for the element with this `id`.
    Index(usize),
    /// Every element of a list.
    All,
}

impl Path {
    /// Reads `a.b.0.c`.
    ///
    /// # Errors
    /// When a segment is empty.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let segment = |s: &str| match s.trim() {
            "" => Err(InputError::new(format!("\"{text}\" is not a path"))
                .help("a path is keys with points between them, such as `program.0.size`")),
            "*" => Ok(Segment::All),
            s => Ok(s.parse().map_or_else(|_| Segment::Key(s.to_owned()), Segment::Index)),
        };
        Ok(Self { segments: text.split('.').map(segment).collect::<Result<_, _>>()? })
    }

    /// A path of these segments.
    pub fn from_segments(segments: Vec<Segment>) -> Self {
        Self { segments }
    }

    /// The segments; never empty.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The first segment, if it is a key.
    pub fn first(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Key(key)) => Some(key),
            _ => None,
        }
    }

    /// The last key, as a short name.
    pub fn last(&self) -> String {
        self.segments.last().map(Segment::to_string).unwrap_or_default()
    }

    /// Sets the value at this path in `root`; tables on the way are made, list elements are not.
    ///
    /// # Errors
    /// When the path leads through a value that is no table or list, or past a list's end.
    pub fn set(&self, root: &mut Node, value: &Node, key_at: &Origin) -> Result<(), InputError> {
        self.set_from(0, root, value, key_at)
    }

    fn set_from(
        &self,
        depth: usize,
        node: &mut Node,
        value: &Node,
        key_at: &Origin,
    ) -> Result<(), InputError> {
        let Some(segment) = self.segments.get(depth) else {
            *node = value.clone();
            return Ok(());
        };
        match (&mut node.value, segment) {
            (Value::Table(table), Segment::Key(name)) => {
                if table.get(name).is_none() {
                    let below = self.segments.get(depth + 1);
                    let list = matches!(below, Some(Segment::Index(_) | Segment::All));
                    if list || depth == 0 && below.is_some() && LISTS.contains(&name.as_str()) {
                        let list = Self { segments: self.segments[..=depth].to_vec() };
                        let why = format!(
                            "the file has no such list: write a `[[{list}]]` into it, whose keys \
                             can then be changed"
                        );
                        return Err(self.no_way(depth + 1, why, key_at));
                    }
                    let key = Key { name: name.clone(), origin: key_at.clone() };
                    let empty = Value::Table(Table::default());
                    table.insert(key, Node { origin: key_at.clone(), value: empty });
                }
                let child = table.get_mut(name).expect("just made");
                self.set_from(depth + 1, child, value, key_at)
            }
            (Value::Array(items), Segment::All) => {
                items.iter_mut().try_for_each(|item| self.set_from(depth + 1, item, value, key_at))
            }
            (Value::Array(items), Segment::Index(n)) => {
                let len = items.len();
                match items.get_mut(*n) {
                    Some(item) => self.set_from(depth + 1, item, value, key_at),
                    None => Err(self.no_way(depth, format!("it has {len} elements"), key_at)),
                }
            }
            (Value::Array(items), Segment::Key(name)) => {
                let known = ids(items);
                match items.iter_mut().find(|item| id(item) == Some(name)) {
                    Some(item) => self.set_from(depth + 1, item, value, key_at),
                    None => Err(self.no_way(depth, by_what(&known), key_at)),
                }
            }
            (Value::Table(_), Segment::Index(_) | Segment::All) => {
                let above = Self { segments: self.segments[..depth].to_vec() };
                let why = format!("it is one table; a list of tables is written `[[{above}]]`");
                Err(self.no_way(depth, why, key_at))
            }
            (other, _) => Err(self.no_way(depth, format!("it is {}", other.name()), key_at)),
        }
    }

    fn no_way(&self, depth: usize, why: String, at: &Origin) -> InputError {
        let before = Self { segments: self.segments[..depth].to_vec() };
        let found = &self.segments[depth];
        InputError::new(format!("`{self}` leads nowhere: `{before}` has no `{found}`"))
            .help(why)
            .at(at)
    }

    /// The place of the value at this path, or of the nearest table or list above it.
    pub fn origin<'a>(&self, root: &'a Node) -> Option<&'a Origin> {
        let mut node = root;
        let mut found = None;
        for segment in &self.segments {
            let next = match (&node.value, segment) {
                (Value::Table(table), Segment::Key(name)) => table.get(name),
                (Value::Array(items), Segment::Index(n)) => items.get(*n),
                (Value::Array(items), Segment::All) => items.first(),
                (Value::Array(items), Segment::Key(name)) => {
                    items.iter().find(|item| id(item) == Some(name))
                }
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
            found = Some(&node.origin);
        }
        found
    }
}

/// The `id` of a table in a list.
fn id(item: &Node) -> Option<&str> {
    match &item.value {
        Value::Table(table) => match &table.get("id")?.value {
            Value::String(id) => Some(id),
            _ => None,
        },
        _ => None,
    }
}

fn ids(items: &[Node]) -> Vec<String> {
    items.iter().filter_map(id).map(str::to_owned).collect()
}

/// How elements of a list are named.
fn by_what(ids: &[String]) -> String {
    let by_id = match ids.is_empty() {
        true => String::new(),
        false => format!(", by its id ({})", ids.join(", ")),
    };
    format!("it is a list: name an element by its number{by_id}, or all by `*`")
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(n) => write!(f, "{n}"),
            Self::All => f.write_str("*"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            let point = if i == 0 { "" } else { "." };
            write!(f, "{point}{segment}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn set(path: &str, value: &str) -> Result<String, InputError> {
        let text = "a = 1\n[t]\nx = 1\n[[p]]\nx = 1\n[[p]]\nx = 2\n";
        let mut root = Node::parse(&Source::new("t.toml", text)).unwrap();
        let source = Source::new("--set", format!("{path}={value}"));
        let node = Node::parse_value(&source, path.len() + 1).unwrap();
        Path::parse(path)?.set(&mut root, &node, &node.origin)?;
        Ok(root.text())
    }

    #[test]
    fn sets_by_path() {
        assert_eq!(set("a", "2").unwrap(), "{a=2, t={x=1}, p=[{x=1}, {x=2}]}");
        assert_eq!(set("t.y.z", "2").unwrap(), "{a=1, t={x=1, y={z=2}}, p=[{x=1}, {x=2}]}");
        assert_eq!(set("p.1.x", "5").unwrap(), "{a=1, t={x=1}, p=[{x=1}, {x=5}]}");
        assert_eq!(set("p.*.x", "5").unwrap(), "{a=1, t={x=1}, p=[{x=5}, {x=5}]}");
    }

    #[test]
    fn elements_with_an_id_have_it_as_a_name() {
        let set = |path: &str| {
            let text = "[[f]]\nid = 'a'\n[[f]]\nid = 'b-c'\n";
            let mut root = Node::parse(&Source::new("t.toml", text)).unwrap();
            let value = Node::parse_value(&Source::new("--set", "1"), 0).unwrap();
            let path = Path::parse(path)?;
            path.set(&mut root, &value, &value.origin)?;
            Ok::<_, InputError>((root.text(), path.origin(&root).cloned()))
        };
        let (text, at) = set("f.b-c.n").unwrap();
        assert_eq!(text, "{f=[{id=a}, {id=b-c, n=1}]}");
        assert_eq!(at.unwrap().source.name, "--set", "where the value stands");
        let e = set("f.b.n").unwrap_err();
        let by = "it is a list: name an element by its number, by its id (a, b-c), or all by `*`";
        assert_eq!(e.remedy(), Some(by));
    }

    #[test]
    fn a_list_that_the_file_has_not_is_to_be_written_there() {
        for path in ["t.change.0.at", "t.change.*.at"] {
            let e = set(path, "5").unwrap_err();
            assert!(e.message().contains("`t.change` has no `"), "{}", e.message());
            let remedy = e.remedy().unwrap_or("");
            assert!(remedy.starts_with("the file has no such list: write a `[[t.change]]`"));
        }
        let e = set("t.0.at", "5").unwrap_err();
        assert_eq!(e.remedy(), Some("it is one table; a list of tables is written `[[t]]`"));
    }

    #[test]
    fn refuses_ways_that_lead_nowhere() {
        let e = set("p.2.x", "5").unwrap_err();
        assert_eq!(e.message(), "`p.2.x` leads nowhere: `p` has no `2`");
        assert_eq!(e.remedy(), Some("it has 2 elements"));
        assert!(set("p.x", "5").unwrap_err().remedy().unwrap().contains("list"));
        assert!(set("a.b", "5").is_err());
        assert!(set("a..b", "5").is_err());
        assert!(set("", "5").is_err());
    }
}
