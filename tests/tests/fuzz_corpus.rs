//! The corpus of the fuzz target `decode`, replayed: each input, and what becomes of it when a byte
//! changes or the end is missing.

use std::fs;
use std::path::Path;

use doorbell_sim::wire::codec::{decode, icrc};

#[path = "../../fuzz/checks/decode.rs"]
mod checks;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/decode");
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|p| fs::read(p).expect("a file")).collect()
}

/// `frame` with the ICRC that its bytes ask for, if its last four bytes are one.
fn sealed(frame: &[u8]) -> Vec<u8> {
    let (mut out, at) = (frame.to_vec(), frame.len() - 4);
    out[at..].copy_from_slice(&icrc(&frame[14..at]).to_le_bytes());
    out
}

#[test]
fn corpus_holds_and_so_do_its_neighbours() {
    let corpus = corpus();
    let taken = corpus.iter().filter(|bytes| decode(bytes).is_ok()).count();
    assert!(taken >= 13, "the golden frames are in it: {taken} of {}", corpus.len());
    let mut deep = 0;
    for bytes in &corpus {
        checks::check(bytes);
        (0..bytes.len()).for_each(|end| checks::check(&bytes[..end]));
        for at in 0..bytes.len().min(110) {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                checks::check(&other);
                if other.len() > 72 && at > 14 {
                    let sealed = sealed(&other);
                    deep += usize::from(decode(&sealed).is_ok());
                    checks::check(&sealed);
                }
            }
        }
    }
    assert!(deep > 1_000, "changed fields that are legal: {deep}");
}
