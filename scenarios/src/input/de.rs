//! Reading typed structs from the tree through serde.
//!
//! Written by hand because errors must carry places, and because a table with a `kind` key reads
//! as an enum: serde's own internally tagged enums copy the table first and lose every place.

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::{InputError, Key, Node, Value};

/// The key that says which variant of an enum a table is.
const TAG: &str = "kind";

impl<'de> Deserializer<'de> for &'de Node {
    type Error = InputError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InputError> {
        let result = match &self.value {
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Integer(n) => match i64::try_from(*n) {
                Ok(n) => visitor.visit_i64(n),
                Err(_) => visitor.visit_u64(*n as u64),
            },
            Value::Float(x) => visitor.visit_f64(*x),
            Value::String(s) => visitor.visit_borrowed_str(s),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter() }),
            Value::Table(table) => visitor.visit_map(Entries::new(&table.entries, None)),
        };
        result.map_err(|e| e.at(&self.origin))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InputError> {
        visitor.visit_some(self).map_err(|e: InputError| e.at(&self.origin))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, InputError> {
        visitor.visit_newtype_struct(self).map_err(|e: InputError| e.at(&self.origin))
    }

    /// Only a table is a struct; serde itself would take a list of its fields too.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InputError> {
        if let Value::Array(_) = self.value {
            let error = InputError::new("wrong type: found a list").help("expected a table");
            return Err(error.at(&self.origin));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InputError> {
        let (tag, content) = match &self.value {
            Value::String(tag) => (Tag { text: tag, node: self }, None),
            Value::Table(table) => match table.get(TAG) {
                Some(node @ Node { value: Value::String(tag), .. }) => {
                    (Tag { text: tag, node }, Some(self))
                }
                Some(node) => {
                    let found = node.value.name();
                    let error = InputError::new(format!("found {found}, expected a string"));
                    return Err(error.help(one_of(variants)).at(&node.origin));
                }
                None => {
                    let error = InputError::missing_field(TAG).help(one_of(variants));
                    return Err(error.at(&self.origin));
                }
            },
            other => {
                let error = InputError::new(format!("wrong type: found {}", other.name()));
                return Err(error.help(one_of(variants)).at(&self.origin));
            }
        };
        visitor.visit_enum(Enum { tag, content }).map_err(|e| e.at(&self.origin))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

fn one_of(variants: &[&str]) -> String {
    format!("expected one of {}", variants.join(", "))
}

impl<'de> IntoDeserializer<'de, InputError> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Node>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = InputError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, InputError> {
        let Some(node) = self.items.next() else {
            return Ok(None);
        };
        seed.deserialize(node).map(Some).map_err(|e| e.at(&node.origin))
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    skip: Option<&'static str>,
    value: Option<&'de Node>,
}

impl<'de> Entries<'de> {
    fn new(entries: &'de [(Key, Node)], skip: Option<&'static str>) -> Self {
        Self { entries: entries.iter(), skip, value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = InputError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, InputError> {
        let skip = self.skip;
        let Some((key, value)) = self.entries.find(|(k, _)| Some(k.name.as_str()) != skip) else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<'_, InputError> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|e| e.at(&key.origin))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, InputError> {
        let node = self.value.take().expect("serde asks for a value only after its key");
        seed.deserialize(node).map_err(|e| e.at(&node.origin))
    }
}

struct Tag<'de> {
    text: &'de str,
    node: &'de Node,
}

struct Enum<'de> {
    tag: Tag<'de>,
    content: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Enum<'de> {
    type Error = InputError;
    type Variant = Content<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content<'de>), InputError> {
        let name: StrDeserializer<'_, InputError> = self.tag.text.into_deserializer();
        let variant = seed.deserialize(name).map_err(|e| e.at(&self.tag.node.origin))?;
        Ok((variant, Content { name: self.tag.text, node: self.content }))
    }
}

struct Content<'de> {
    name: &'de str,
    node: Option<&'de Node>,
}

/// The content of a table without its tag.
struct Untagged<'de>(&'de Node);

impl<'de> Deserializer<'de> for Untagged<'de> {
    type Error = InputError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InputError> {
        let table = self.0.table()?;
        visitor.visit_map(Entries::new(&table.entries, Some(TAG)))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any option
        newtype_struct enum
    }
}

impl<'de> VariantAccess<'de> for Content<'de> {
    type Error = InputError;

    fn unit_variant(self) -> Result<(), InputError> {
        let Some(node) = self.node else {
            return Ok(());
        };
        match node.table()?.entries.iter().find(|(k, _)| k.name != TAG) {
            None => Ok(()),
            Some((key, _)) => {
                let text = format!("`{}` has no keys, found `{}`", self.name, key.name);
                Err(InputError::new(text).at(&key.origin))
            }
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, InputError> {
        match self.node {
            Some(node) => seed.deserialize(Untagged(node)).map_err(|e| e.at(&node.origin)),
            None => Err(InputError::new(format!(
                "`{}` needs a table with `kind = \"{}\"`",
                self.name, self.name
            ))),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, InputError> {
        Err(InputError::new("a list of values has no place here"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InputError> {
        match self.node {
            Some(node) => Untagged(node).deserialize_any(visitor).map_err(|e| e.at(&node.origin)),
            None => Err(InputError::new(format!("`{}` needs a table", self.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Top {
        #[serde(default)]
        width: Option<u32>,
        #[serde(default)]
        shape: Option<Shape>,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Shape {
        Point,
        Circle(Circle),
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Circle {
        radius: u64,
    }

    fn read(text: &str) -> Result<Top, InputError> {
        Node::parse(&Source::new("t.toml", text)).unwrap().read()
    }

    fn fails(text: &str, message: &str, help: &str) {
        let e = read(text).expect_err(text);
        assert_eq!((e.to_string().as_str(), e.remedy().unwrap_or("")), (message, help));
    }

    #[test]
    fn tagged_tables_and_bare_names_are_enums() {
        let circle = Some(Shape::Circle(Circle { radius: 2 }));
        assert_eq!(read("[shape]\nkind='circle'\nradius=2").unwrap().shape, circle);
        assert_eq!(read("shape = 'point'").unwrap().shape, Some(Shape::Point));
        assert_eq!(read("[shape]\nkind='point'").unwrap().shape, Some(Shape::Point));
    }

    #[test]
    fn errors_stand_at_the_innermost_place() {
        fails("\nwidht = 2", "t.toml:2:1: unknown key `widht`", "did you mean `width`?");
        fails("width = 'x'", "t.toml:1:9: wrong type: found the string \"x\"", "expected u32");
        fails("[[shape]]", "t.toml:1:1: wrong type: found a list", "expected one of point, circle");
        fails("width = -1", "t.toml:1:9: impossible value: found -1", "expected u32");
        let kinds = "expected one of point, circle";
        fails("[shape]\nradius=2", "t.toml:1:1: the key `kind` is missing", kinds);
        fails("shape = 3", "t.toml:1:9: wrong type: found a whole number", kinds);
        let text = "[shape]\nkind='circle'\nradius=2\nx=1";
        fails(text, "t.toml:4:1: unknown key `x`", "the possible keys are radius");
        let add = "write `radius = ...` in this table; `doorbell schema` says what it may be";
        fails("[shape]\nkind='circle'", "t.toml:1:1: the key `radius` is missing", add);
        fails("[shape]\nkind='point'\nx=1", "t.toml:3:1: `point` has no keys, found `x`", "");
        let text = "[shape]\nkind='cirle'";
        fails(text, "t.toml:2:6: unknown value \"cirle\"", "did you mean `circle`?");
    }
}
