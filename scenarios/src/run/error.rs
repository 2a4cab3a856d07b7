//! Why a point cannot be run.

use std::fmt;

/// Why a point cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The point asks for something that the verbs or the profile refuse.
    BadInput {
        /// Path of the setting at fault, such as `program.0.steps.3`; empty: the whole file.
        path: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        help: String,
    },
    /// The simulator cannot do this.
    Unsupported {
        /// What, and why not.
        what: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadInput { path, message, .. } if path.is_empty() => f.write_str(message),
            Self::BadInput { path, message, .. } => write!(f, "`{path}`: {message}"),
            Self::Unsupported { what } => write!(f, "not supported: {what}"),
        }
    }
}

impl std::error::Error for RunError {}
