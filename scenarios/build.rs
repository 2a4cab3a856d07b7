//! Lists the scenario and profile files for `library.rs`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut text = String::new();
    for (constant, folder, ending, what) in [
        ("SCENARIOS", "library", "toml", "scenarios"),
        ("PROFILES", "profiles", "toml", "profiles"),
        ("CALIBRATIONS", "calibration", "toml", "calibrations"),
        ("SIZES", "sizes", "csv", "distributions of flow sizes"),
        ("FLOW_LISTS", "workloads", "csv", "lists of flows"),
    ] {
        println!("cargo::rerun-if-changed={folder}");
        writeln!(text, "/// Name and text of the built-in {what}, sorted by name.").unwrap();
        writeln!(text, "pub const {constant}: &[(&str, &str)] = &[").unwrap();
        for (name, path) in files(&root.join(folder), ending) {
            writeln!(text, "    ({name:?}, include_str!({:?})),", path.display()).unwrap();
        }
        writeln!(text, "];").unwrap();
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("library.rs"), text).expect("the build folder can be written");
}

/// Name and path of each file with this ending, sorted by name.
fn files(folder: &Path, ending: &str) -> Vec<(String, PathBuf)> {
    let files = fs::read_dir(folder).expect("the folder is part of the package");
    let mut found: Vec<(String, PathBuf)> = files
        .map(|file| file.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .map(|path| {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            (name, path)
        })
        .collect();
    found.sort();
    found
}
