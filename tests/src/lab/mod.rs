//! Back ends under remote control: a test makes verbs calls one after the other, in straight
//! lines, on a handle of the back end.
//!
//! Both modules have the same names with the same signatures, so that one body serves both by
//! import (`use super::backend::…`).

pub mod ideal;
pub mod sim;
