//! Whole-system tests live in `tests/`.
