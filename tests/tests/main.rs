//! Whole-system tests, one binary. What needs a process or an allocator of its own has its own.

mod on_ideal;
mod on_sim;
mod properties;
