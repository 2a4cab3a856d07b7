//! Whole-system tests, one binary. What needs a process or an allocator of its own has its own.

mod boundaries;
mod closed_forms;
mod host;
mod on_ideal;
mod on_sim;
mod properties;
mod stalls;
