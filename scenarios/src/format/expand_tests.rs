//! Variants, axes and the command line's changes: which points come out, in which order.

use super::SettingValue;
use crate::testing::{expanded, loaded};

const BASE: &str = "title = 't'\nprofile = 'generic-400g'\n\
    [[program]]\nname = 'a'\nkind = 'bandwidth'\n[[program]]\nname = 'b'\nkind = 'bandwidth'\n";

fn labels(more: &str, set: &[&str]) -> Vec<String> {
    let points = expanded(&format!("{BASE}{more}"), set);
    let points = points.unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    points.iter().map(|e| e.point.label()).collect()
}

const GRID: &str = "[[variant]]\nname = 'x'\n[[variant]]\nname = 'y'\nset = { seed = 9 }\n\
    [sweep]\n'program.0.size' = ['8B', '16B']\n'pcie.width' = [8, 16]\n";

#[test]
fn one_point_without_variants_and_sweep() {
    assert_eq!(labels("", &[]), [""]);
}

#[test]
fn the_last_axis_changes_fastest() {
    let names = labels(GRID, &[]);
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "x, size=8B, pcie.width=8");
    assert_eq!(names[1], "x, size=8B, pcie.width=16");
    assert_eq!(names[2], "x, size=16B, pcie.width=8");
    assert_eq!(names[4], "y, size=8B, pcie.width=8");
}

#[test]
fn changes_reach_scenario_profile_and_seed() {
    let points = expanded(&format!("{BASE}{GRID}"), &[]).unwrap();
    let last = &points[7].point;
    assert_eq!((last.index, last.seed, last.profile.pcie.width), (7, 9, 16));
    assert_eq!(last.scenario.program[0].size.0.0, 16);
    assert_eq!(last.scenario.program[1].size.0.0, 8, "the default");
    assert_eq!(points[0].point.profile.pcie.width, 8);
    let settings = &points[0].point.scenario.settings;
    assert_eq!(settings["pcie.width"], SettingValue::Integer(8));
}

#[test]
fn axes_of_one_last_key_keep_their_paths() {
    let sweep = "[sweep]\n'program.0.size' = ['8B']\n'program.1.size' = ['16B']\n";
    assert_eq!(labels(sweep, &[]), ["program.0.size=8B, program.1.size=16B"]);
}

#[test]
fn a_star_changes_every_program() {
    let points = expanded(&format!("{BASE}[sweep]\n'program.*.size' = ['64B']\n"), &[]).unwrap();
    assert!(points[0].point.scenario.program.iter().all(|p| p.size.0.0 == 64));
}

#[test]
fn the_command_line_wins_and_ends_a_sweep() {
    let names = labels(GRID, &["settings.pcie.width=4", "seed=5"]);
    assert_eq!(names, ["x, size=8B", "x, size=16B", "y, size=8B", "y, size=16B"]);
    let text = format!("{BASE}{GRID}");
    let set = ["settings.pcie.width=4", "seed=5"];
    let points = expanded(&text, &set).unwrap();
    assert!(points.iter().all(|p| p.point.seed == 5 && p.point.profile.pcie.width == 4));
    assert_eq!(loaded(&text, &set).unwrap().fixed_axes, ["pcie.width"]);
}

#[test]
fn settings_may_be_nested_or_flat() {
    for settings in ["'pcie.width' = 4", "pcie.width = 4", "pcie = { width = 4 }"] {
        let text = format!("{BASE}[settings]\n{settings}\n");
        let points = expanded(&text, &[]).unwrap_or_else(|e| panic!("{settings}: {e}"));
        assert_eq!(points[0].point.profile.pcie.width, 4, "{settings}");
    }
    let twice = format!("{BASE}[settings]\n'pcie.width' = 4\npcie.width = 8\n");
    let e = expanded(&twice, &[]).unwrap_err();
    assert!(e.to_string().ends_with("`pcie.width` is set twice"), "{e}");
}

#[test]
fn the_expanded_scenario_reads_back_the_same() {
    let more = "[topology]\nkind = 'switch'\nhosts = 3\nbuffer = '1MB'\n[settings]\n\
                'pcie.width' = 8\n'memory.ddio' = false\n[qp]\ncq_depth = 9\n\
                [record]\ntimeline = true\n";
    let script =
        "[[program]]\nname = 'c'\nkind = 'script'\nsteps = ['post write 16B x2', 'ring']\n";
    let first = expanded(&format!("{BASE}{script}{more}"), &[]).unwrap().remove(0).point;
    let written = toml::to_string(&first.scenario).unwrap();
    // Keys that a script has no use for are written with their defaults, which are no wishes.
    let again = expanded(&written, &[]).unwrap_or_else(|e| panic!("{e}\n{written}")).remove(0);
    assert_eq!(toml::to_string(&again.point.scenario).unwrap(), written);
    assert_eq!(again.point.profile.pcie.width, 8);
}
