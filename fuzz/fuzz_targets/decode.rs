//! The frame decoder on arbitrary bytes: `cargo +nightly fuzz run decode`.
#![no_main]

#[path = "../checks/decode.rs"]
mod checks;

use doorbell_sim::wire::codec::icrc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::check(bytes);
    // A CRC is not found by chance: the same bytes with a right one go deeper.
    if bytes.len() > 14 + 40 + 8 + 5 + 4 {
        let mut sealed = bytes.to_vec();
        let at = sealed.len() - 4;
        let crc = icrc(&sealed[14..at]);
        sealed[at..].copy_from_slice(&crc.to_le_bytes());
        checks::check(&sealed);
    }
});
