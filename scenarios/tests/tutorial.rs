//! The tutorial names files that are there, in its order, and a script that runs.

use std::path::PathBuf;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{Run, Simulator, run_points};

const PAGE: &str = include_str!("../../docs/tutorial.md");

fn run(name: &str, text: &str) -> Vec<Run> {
    let loaded = load(Source::new(name, text), PathBuf::new(), &Overrides::default()).unwrap();
    let points = expand(&loaded, &mut Profiles::beside(&loaded.directory)).unwrap();
    run_points(&Simulator, &points, |_| {}).unwrap()
}

#[test]
fn the_steps_are_files_in_their_order() {
    let commands: Vec<&str> =
        PAGE.lines().filter_map(|line| line.strip_prefix("    doorbell run scenarios/")).collect();
    let heads: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(commands.len(), heads.len(), "one file for each step");
    for (i, step) in ["e07_1_", "e07_2_", "e07_3_", "a11_"].into_iter().enumerate() {
        assert!(commands[i].starts_with(&format!("library/{step}")), "{}", commands[i]);
        assert!(heads[i].starts_with(&format!("## {}. ", i + 1)), "{}", heads[i]);
    }
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    assert!(commands.iter().all(|file| here.join(file).is_file()), "{commands:?}");
    // Scenarios that the table names.
    let named =
        PAGE.split('`').filter(|word| word.contains('_') && !word.contains([' ', '.', '=']));
    for name in named.filter(|n| n.starts_with(['a', 'd', 'c']) && n.matches('_').count() > 1) {
        assert!(here.join(format!("library/{name}.toml")).is_file(), "{name}");
    }
}

#[test]
fn the_script_runs_and_its_mistake_is_named() {
    let script: String = PAGE
        .lines()
        .skip_while(|line| *line != "    [[program]]")
        .take_while(|line| !line.is_empty())
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let head = "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'switch'\n";
    let good = run("script.toml", &format!("{head}{script}"));
    assert_eq!(good[0].outcome.exit.reason, "");
    let loaded = good[0].outcome.find("step.5.count").expect("what the load found");
    assert_eq!(loaded.text(), "7");
    let silent = run("script.toml", &format!("{head}{}", script.replace("\"ring\",", "")));
    let reason = &silent[0].outcome.exit.reason;
    assert!(reason.contains("no doorbell announced them"), "{reason}");
}
