//! The transport engine on arbitrary calls and packets: `cargo +nightly fuzz run engine`.
#![no_main]

#[path = "../checks/engine.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
