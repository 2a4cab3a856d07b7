//! Words about rights, keys and places: `access = ["remote-read"]`, `rkey=stale`, `remote=end+1B`.
//!
//! They let a file name memory wrongly on purpose, to show what the verbs answer. A place is
//! counted from the start of a region, `64B`, or so that the message ends with it: `end`, or that
//! much beyond: `end+1B`.

use std::fmt;

use doorbell_core::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::script::{StepError, quantity, wrong};
use crate::input::suggestion;
use crate::quantity::Unit;

/// A right to a memory region, or an operation that a queue pair lets its peer do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// The NIC may write for its own host: receives, results of READs and atomics.
    LocalWrite,
    /// The peer may WRITE.
    RemoteWrite,
    /// The peer may READ.
    RemoteRead,
    /// The peer may do atomics.
    RemoteAtomic,
    /// No right: pages are not pinned, and the NIC's first access to each is a page fault. Of
    /// regions in host memory only.
    OnDemand,
}

/// A place in a region.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Spot {
    /// Counted from the start, or from where the message would end with the region.
    pub at: Bytes,
    /// Which of the two.
    pub from_end: bool,
}

impl Spot {
    pub(super) fn parse(text: &str) -> Result<Self, StepError> {
        let Some(rest) = text.strip_prefix("end") else {
            return Ok(Self { at: quantity(text)?, from_end: false });
        };
        let beyond = match rest.strip_prefix('+') {
            Some(beyond) => quantity(beyond)?,
            None if rest.is_empty() => Bytes(0),
            None => {
                let message = format!("\"{text}\" is no place");
                return wrong(message, "write for example \"64B\", \"end\" or \"end+1B\"");
            }
        };
        Ok(Self { at: beyond, from_end: true })
    }

    /// Bytes in front of the message that the region has to have.
    pub fn offset(&self) -> u64 {
        if self.from_end { 0 } else { self.at.0 }
    }

    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        match (self.from_end, self.at) {
            (false, Bytes(0)) => Ok(()),
            (false, at) => write!(f, " {name}={}", at.print()),
            (true, Bytes(0)) => write!(f, " {name}=end"),
            (true, at) => write!(f, " {name}=end+{}", at.print()),
        }
    }
}

/// The key by which a message names the peer's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum KeyWord {
    /// That of the region that the peer offers.
    #[default]
    Offered,
    /// One that no region of the peer has.
    Wrong,
    /// That of a region which the peer has deregistered before the script began.
    Stale,
    /// That of a region in another protection domain than the peer's queue pair.
    Foreign,
    /// This number.
    Number(u32),
}

impl KeyWord {
    const WORDS: [(&'static str, Self); 3] =
        [("wrong", Self::Wrong), ("stale", Self::Stale), ("foreign", Self::Foreign)];

    pub(super) fn parse(text: &str) -> Result<Self, StepError> {
        if let Some((_, key)) = Self::WORDS.into_iter().find(|(word, _)| *word == text) {
            return Ok(key);
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map(Self::Number).or_else(|_| {
            let known = Self::WORDS.map(|(word, _)| word);
            let help = suggestion(text, known, "keys");
            wrong(format!("\"rkey={text}\" is no key"), format!("{help}, or write a number"))
        })
    }

    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Number(n) = self {
            return write!(f, " rkey={n:#x}");
        }
        match Self::WORDS.iter().find(|(_, key)| key == self) {
            Some((word, _)) => write!(f, " rkey={word}"),
            None => Ok(()),
        }
    }
}

/// The buffer of the receives that a step asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum RecvBuffer {
    /// The region that the peer offers.
    #[default]
    Offered,
    /// A region without local write.
    ReadOnly,
    /// A region in another protection domain than the peer's queue pair.
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_keys_read() {
        let spot = |at, from_end| Spot { at: Bytes(at), from_end };
        for (text, expected) in [
            ("0B", spot(0, false)),
            ("4KiB", spot(4096, false)),
            ("end", spot(0, true)),
            ("end+1B", spot(1, true)),
        ] {
            assert_eq!(Spot::parse(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("wrong", KeyWord::Wrong),
            ("foreign", KeyWord::Foreign),
            ("0", KeyWord::Number(0)),
            ("0x1ff", KeyWord::Number(511)),
            ("4294967295", KeyWord::Number(u32::MAX)),
        ] {
            assert_eq!(KeyWord::parse(text), Ok(expected), "{text}");
        }
        for text in ["end-1B", "end+", "ende", "end+1"] {
            assert!(Spot::parse(text).is_err(), "{text}");
        }
        for text in ["stal", "4294967296", "-1", "0xg", ""] {
            assert!(KeyWord::parse(text).is_err(), "{text}");
        }
    }
}
