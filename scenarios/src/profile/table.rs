//! The machinery behind the parameter list: one definition makes the structs, the reader, the
//! schema, the documentation and the paths for `--set`.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::param::Param;
use crate::input::{InputError, Node};

/// What is known about a parameter without a profile.
#[derive(Copy, Clone)]
pub struct ParameterInfo {
    /// `group.name`
    pub path: &'static str,
    /// What it is and what raising or lowering it does.
    pub doc: &'static str,
    /// The kind of value, with an example.
    pub describe: fn() -> String,
    /// JSON schema of the value.
    pub schema: fn() -> Json,
}

/// How much a value can be trusted.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Confidence {
    /// Stands so at the source.
    Read,
    /// Read off a plot.
    Plot,
    /// Arithmetic on a source.
    Derived,
    /// A source that quotes another one.
    SecondHand,
    /// From memory.
    Recall,
    /// Chosen without a source.
    Assumed,
    /// Set by the scenario or on the command line.
    Set,
}

impl Confidence {
    /// The words of a profile file; [`Confidence::Set`] is not among them.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("read", Self::Read),
        ("plot", Self::Plot),
        ("derived", Self::Derived),
        ("second-hand", Self::SecondHand),
        ("recall", Self::Recall),
        ("assumed", Self::Assumed),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, c)| *c == self).map_or("set", |(word, _)| word)
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Calibration row, publication, or `assumed: reason`.
    pub source: String,
    /// How much it can be trusted.
    pub confidence: Confidence,
    /// The profile that gives it; a base profile for what is inherited.
    pub profile: String,
}

/// One parameter as read from a file, before its type is known.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value.
    pub value: Node,
    /// Where it comes from.
    pub provenance: Provenance,
}

/// Entries by path.
pub type Entries = BTreeMap<String, Entry>;

/// A condition on a value; the error says what is wanted.
pub(crate) type Check<'a, T> = &'a dyn Fn(&T) -> Result<(), String>;

/// Reads `path`; every path has been checked to be there.
pub(crate) fn take<T: Param>(
    entries: &Entries,
    path: &str,
    checks: &[Check<'_, T>],
) -> Result<T, InputError> {
    let Some(entry) = entries.get(path) else {
        return Err(InputError::new(format!("the parameter `{path}` is missing")));
    };
    let value = T::read(&entry.value).map_err(|e| e.at(&entry.value.origin))?;
    for check in checks {
        check(&value).map_err(|wanted| {
            InputError::new(format!("impossible value: `{path}` is {}", value.show()))
                .help(format!("it must be {wanted}"))
                .at(&entry.value.origin)
        })?;
    }
    Ok(value)
}

/// Defines groups of parameters.
///
/// `/// doc` `name: Type` and, optionally, `=> [check, …]`.
macro_rules! parameters {
    ($(
        $(#[doc = $gdoc:literal])+
        $group:ident $Group:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $ty:ty $(=> [$($check:expr),+])?,
            )+
        }
    )+) => {
        $(
            $(#[doc = $gdoc])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Group {
                $($(#[doc = $doc])+ pub $name: $ty,)+
            }
        )+

        /// A hardware profile: plain values, and where each comes from.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Profile {
            /// The name that scenarios use.
            pub name: String,
            /// What hardware it stands for.
            pub title: String,
            /// Where each parameter comes from, by path.
            pub provenance: BTreeMap<String, Provenance>,
            $($(#[doc = $gdoc])+ pub $group: $Group,)+
        }

        /// The groups of parameters, in the order of the documentation.
        pub const GROUPS: &[(&str, &str)] =
            &[$((stringify!($group), concat!($($gdoc, "\n"),+))),+];

        /// Every parameter, in the order of the documentation.
        pub const PARAMETERS: &[ParameterInfo] = &[$($(ParameterInfo {
            path: concat!(stringify!($group), ".", stringify!($name)),
            doc: concat!($($doc, "\n"),+),
            describe: <$ty as Param>::describe,
            schema: <$ty as Param>::schema,
        },)+)+];

        impl Profile {
            /// Types the entries; all paths must be there.
            pub(crate) fn from_entries(
                name: String,
                title: String,
                entries: &Entries,
            ) -> Result<Self, InputError> {
                let provenance =
                    entries.iter().map(|(k, e)| (k.clone(), e.provenance.clone())).collect();
                Ok(Self {
                    name,
                    title,
                    provenance,
                    $($group: $Group {
                        $($name: take(
                            entries,
                            concat!(stringify!($group), ".", stringify!($name)),
                            &[$($(&$check),+)?],
                        )?,)+
                    },)+
                })
            }

            /// Path and value of every parameter, as they would stand in a file.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                vec![$($((
                    concat!(stringify!($group), ".", stringify!($name)),
                    self.$group.$name.show(),
                ),)+)+]
            }
        }
    };
}
pub(crate) use parameters;
