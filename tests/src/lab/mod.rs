//! Back ends under remote control: a test makes verbs calls one after the other, in straight
//! lines, on a handle of the back end.
//!
//! All modules have the same names with the same signatures, so that one body serves all by
//! import (`use super::backend::…`).

#[cfg(feature = "hw")]
pub mod fake;
#[cfg(feature = "hw")]
pub mod hw;
pub mod ideal;
pub mod sim;
