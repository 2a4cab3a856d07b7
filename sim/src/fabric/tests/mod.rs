//! Tests of the room as a whole, on the engine's own event queue.

mod balance;
mod classes;
mod closed_forms;
mod config;
mod credits;
mod faults;
mod graphs;
mod harness;
mod link_credits;
mod loss;
mod oversize;
mod pauses;
mod pfc;
mod properties;
mod resets;
mod routing;
mod shapes;
mod shares;
