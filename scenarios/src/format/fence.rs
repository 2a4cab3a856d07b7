//! The scope of the fence in front of a doorbell.

use std::borrow::Cow;
use std::fmt;

use doorbell_core::transport::FenceScope;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What orders a GPU's stores before its doorbell or flag.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Fence {
    /// Nothing.
    None,
    /// A fence towards other threads of the GPU. A NIC that reads over PCIe is no such thread.
    Device,
    /// A fence towards every observer, the NIC among them.
    #[default]
    System,
}

impl Fence {
    const WORDS: [(Self, &'static str); 3] =
        [(Self::None, "none"), (Self::Device, "device"), (Self::System, "system")];

    /// The fence of the transport, if there is one.
    pub const fn scope(self) -> Option<FenceScope> {
        match self {
            Self::None => None,
            Self::Device => Some(FenceScope::Device),
            Self::System => Some(FenceScope::System),
        }
    }
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let word = Self::WORDS.iter().find(|(f, _)| f == self).map_or("", |(_, word)| word);
        to.serialize_str(word)
    }
}

struct FenceVisitor;

impl Visitor<'_> for FenceVisitor {
    type Value = Fence;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one of \"none\", \"device\", \"system\", or true or false")
    }

    fn visit_bool<E: de::Error>(self, fenced: bool) -> Result<Fence, E> {
        Ok(if fenced { Fence::System } else { Fence::None })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Fence, E> {
        let found = Fence::WORDS.iter().find(|(_, word)| *word == text).map(|(f, _)| *f);
        found.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FenceVisitor)
    }
}

impl JsonSchema for Fence {
    fn schema_name() -> Cow<'static, str> {
        "Fence".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What orders a GPU's stores before its doorbell or flag; true is \
                            \"system\", false is \"none\".",
            "enum": ["none", "device", "system", true, false]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Holder {
        fence: Fence,
    }

    fn read(text: &str) -> Result<Fence, String> {
        toml::from_str::<Holder>(&format!("fence = {text}"))
            .map(|h| h.fence)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn words_and_truth_values_are_read_and_words_are_written() {
        for (text, fence) in [
            ("'none'", Fence::None),
            ("'device'", Fence::Device),
            ("'system'", Fence::System),
            ("true", Fence::System),
            ("false", Fence::None),
        ] {
            assert_eq!(read(text), Ok(fence), "{text}");
            let written = toml::to_string(&Holder { fence }).unwrap();
            assert_eq!(toml::from_str::<Holder>(&written).unwrap().fence, fence);
        }
    }

    #[test]
    fn another_word_gets_the_list() {
        for text in ["'gpu'", "1", "'System'"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("\"none\", \"device\", \"system\""), "{text}: {error}");
        }
    }
}
