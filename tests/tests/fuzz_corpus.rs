//! The corpora of the fuzz targets, replayed: each input, and what becomes of it when a byte
//! changes or the end is missing.

use std::fs;
use std::path::Path;

use doorbell_sim::engine::SimRng;
use doorbell_sim::wire::codec::{decode, icrc};

#[path = "../../fuzz/checks/decode.rs"]
mod checks;
#[path = "../../fuzz/checks/engine.rs"]
mod engine;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
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
    let corpus = corpus("decode");
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

#[test]
fn programs_of_the_engine_hold_and_so_do_their_neighbours() {
    let corpus = corpus("engine");
    assert!(corpus.len() >= 20, "{} programs", corpus.len());
    for bytes in &corpus {
        engine::check(bytes);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= [1, 2, 16, 255][at % 4];
            engine::check(&other);
            other.truncate(at);
            engine::check(&other);
        }
    }
}

/// Changes some bytes, cuts a piece out, or puts a piece of another input in.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut SimRng) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 if !other.is_empty() => {
                let from = rng.below(other.len() as u64) as usize;
                let piece = &other[from..(from + 1 + rng.below(24) as usize).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            1 => {
                let end = (at + rng.below(9) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.next_u64() as u8;
                }
            }
        }
    }
    bytes.truncate(600);
}

/// Inputs of each corpus in the minute of `.ci/run fuzz`.
const ROUNDS: [(&str, u64); 2] = [("decode", DECODES), ("engine", PROGRAMS)];
const DECODES: u64 = 48_000_000;
const PROGRAMS: u64 = 12_000_000;

#[test]
#[ignore = "takes a minute; .ci/run fuzz runs it"]
fn a_minute_of_both_corpora() {
    for (target, rounds) in ROUNDS {
        let (corpus, mut rng) = (corpus(target), SimRng::stream(1, "replay", target));
        for _ in 0..rounds {
            let mut pick = || &corpus[rng.below(corpus.len() as u64) as usize];
            let (mut bytes, other) = (pick().clone(), pick().clone());
            mutate(&mut bytes, &other, &mut rng);
            if target == "engine" {
                engine::check(&bytes);
            } else {
                checks::check(&bytes);
                if bytes.len() > 72 {
                    checks::check(&sealed(&bytes));
                }
            }
        }
        println!("{target}: {rounds} inputs made of {}", corpus.len());
    }
}
