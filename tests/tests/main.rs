//! Whole-system tests, one binary. What needs a process or an allocator of its own has its own.

mod admission;
mod bad_input;
mod boundaries;
mod capture;
mod closed_forms;
mod congestion;
mod determinism;
mod devices;
mod events;
mod failed_completions;
mod fuzz_corpus;
mod host;
mod inline_probe;
mod loss_forms;
mod many_senders;
mod no_progress;
mod on_ideal;
mod on_sim;
mod peer_gone;
mod properties;
mod rc;
mod revoked;
mod srq;
mod stalls;
mod tour;
mod variants;
