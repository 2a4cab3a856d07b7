//! TOML input with places: a tree that knows where each value was written, a serde reader over
//! it, and errors that show line, column and remedy.
//!
//! The tree stands between the text and the typed structs because variants, sweeps and
//! `--set` change single values by path: after a change each value still knows whether it came
//! from the file or from the command line, so every error points at what the user wrote.

mod clean;
mod de;
mod error;
mod nearest;
mod node;
mod path;
mod source;

pub(crate) use clean::shown;
pub use error::InputError;
pub use nearest::{nearest, suggestion};
pub use node::{Key, Node, Table, Value};
pub use path::{Path, Segment};
pub use source::{MAX_FILE_BYTES, MAX_LIST_BYTES, Origin, Source, read_file, read_list};
