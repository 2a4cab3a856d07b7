//! Profiles as files: the built-in ones are complete, mistakes are named with their place.

use std::path::Path;

use super::*;
use crate::input::{InputError, Node, Source, Table};
use crate::library;

fn settings(text: &str) -> Table {
    let node = Node::parse(&Source::new("s.toml", text)).unwrap();
    node.table().unwrap().clone()
}

fn generic(set: &str) -> Result<Profile, InputError> {
    let mut profiles = Profiles::beside(Path::new("/nowhere"));
    let raw = profiles.load("generic-400g", None)?;
    raw.with_settings(Some(&settings(set)))
}

/// A folder of this test's own with one profile file, removed when dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("doorbell-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }

    fn load(&self, name: &str) -> Result<Profile, InputError> {
        let mut profiles = Profiles::beside(&self.0);
        profiles.load(name, None)?.with_settings(None)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fails(name: &str, text: &str, place: &str, message: &str, help: &str) {
    let folder = Folder::with(name, &[("p.toml", text)]);
    let e = folder.load("./p.toml").expect_err(text);
    let shown = e.to_string();
    assert!(shown.contains(place), "{shown}");
    assert!(shown.contains(message), "{shown}");
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

#[test]
fn every_built_in_profile_is_complete() {
    let mut profiles = Profiles::beside(Path::new("/nowhere"));
    for (name, _) in library::PROFILES {
        let profile = profiles.load(name, None).and_then(|raw| raw.with_settings(None));
        let profile = profile.unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
        assert_eq!(profile.values().len(), PARAMETERS.len());
        assert_eq!(profile.provenance.len(), PARAMETERS.len());
    }
}

#[test]
fn shown_values_read_back_the_same() {
    let profile = generic("").unwrap();
    let lines: Vec<String> = profile
        .values()
        .iter()
        .map(|(path, value)| match value.parse::<f64>().is_ok() || value.starts_with('[') {
            true => format!("\"{path}\" = {value}"),
            false if value == "true" || value == "false" => format!("\"{path}\" = {value}"),
            false => format!("\"{path}\" = \"{value}\""),
        })
        .collect();
    let again = generic(&lines.join("\n")).unwrap();
    assert_eq!(again.values(), profile.values());
}

#[test]
fn settings_replace_values_and_say_so() {
    let profile = generic("\"pcie.width\" = 8").unwrap();
    assert_eq!(profile.pcie.width, 8);
    let from = &profile.provenance["pcie.width"];
    assert_eq!((from.source.as_str(), from.confidence), ("set in s.toml", Confidence::Set));
    assert_eq!(profile.provenance["pcie.mps"].confidence, Confidence::Assumed);
}

#[test]
fn the_cap_of_selective_repeat_goes_from_one_to_half_of_the_sequence_numbers() {
    for cap in [1, 8_388_607] {
        let set = format!("\"rc.recovery\" = \"selective-repeat\"\n\"rc.recovery_cap\" = {cap}");
        assert_eq!(generic(&set).unwrap().rc.recovery_cap, cap);
    }
}

#[test]
fn wrong_settings_are_named() {
    let fails = |set: &str, message: &str, help: &str| {
        let e = generic(set).expect_err(set);
        assert_eq!(e.to_string(), message);
        assert_eq!(e.remedy().unwrap_or(""), help);
    };
    let unknown = "s.toml:1:1: unknown parameter `pcie.widht`";
    fails("\"pcie.widht\" = 8", unknown, "did you mean `pcie.width`?");
    let width = "s.toml:1:16: impossible value: `pcie.width` is 3";
    fails("\"pcie.width\" = 3", width, "it must be one of 1, 2, 4, 8, 16");
    let mps = "s.toml:1:14: \"256\" has no unit, expected a size in bytes";
    let units = "B, KB, KiB, MB, MiB, GB, GiB, TB, TiB";
    let help = format!("write a size in bytes such as \"256B\"; its units are {units}");
    fails("\"pcie.mps\" = 256", mps, &help);
    let rcb = "s.toml:1:14: `pcie.rcb` is 128, more than `pcie.c_rc` with 64";
    fails("\"pcie.rcb\" = \"128B\"\n\"pcie.c_rc\" = \"64B\"", rcb, "");
    for cap in [0, 8_388_608] {
        let text = format!("s.toml:1:21: impossible value: `rc.recovery_cap` is {cap}");
        let help = "it must be from 1 to 8388607";
        fails(&format!("\"rc.recovery_cap\" = {cap}"), &text, help);
    }
    let lag = "s.toml:1:23: impossible value: `pcie.link_latency` is 0ns";
    fails("\"pcie.link_latency\" = \"0ns\"", lag, "it must be more than zero");
}

#[test]
fn a_base_gives_what_is_not_given() {
    let child = "title = 'x'\nbase = 'generic-400g'\n[pcie]\n\
                 width = { value = 8, source = 'C-1', confidence = 'read' }\n";
    let folder = Folder::with("base", &[("child.toml", child)]);
    let profile = folder.load("./child.toml").unwrap();
    assert_eq!((profile.name.as_str(), profile.pcie.width), ("child", 8));
    assert_eq!(profile.provenance["pcie.width"].profile, "child");
    assert_eq!(profile.provenance["pcie.mps"].profile, "generic-400g");
}

#[test]
fn mistakes_in_a_profile_have_a_place() {
    let t = "title = 'x'\nbase = 'generic-400g'\n";
    let w = |entry: &str| format!("{t}[pcie]\nwidth = {entry}\n");
    fails("f1", &w("8"), "p.toml:4:9", "no source and confidence", "source = \"C-PCIE-003\"");
    fails("f2", &w("{ value = 8 }"), ":4:9", "`source` is missing", "source = ");
    fails("f3", &w("{ value = 8, source = 'x' }"), ":4:9", "`confidence` is missing", "");
    let entry = "{ value = 8, source = 'x', confidence = 'reed' }";
    fails("f4", &w(entry), ":4:49", "unknown confidence \"reed\"", "did you mean `read`?");
    let entry = "{ value = 8, source = 'assumed: x', confidence = 'read' }";
    fails("f5", &w(entry), ":4:31", "the confidence read", "only that");
    let entry = "{ value = 8, source = ' ', confidence = 'read' }";
    fails("f6", &w(entry), ":4:31", "the source is empty", "calibration row");
    fails("f7", &format!("{t}[pci]\n"), ":3:2", "unknown key `pci`", "did you mean `pcie`?");
    let text = format!("{t}[pcie]\nwitdh = {{ value = 8, source = 'x', confidence = 'read' }}\n");
    fails("f8", &text, ":4:1", "unknown parameter `pcie.witdh`", "did you mean `width`?");
    let text = w("{ valu = 8, source = 'x', confidence = 'read' }");
    fails("f9", &text, ":4:11", "unknown key `valu`", "did you mean `value`?");
    fails("f10", "title = 'x'\n", "p.toml:1:1", "lacks", "add cpu.post_call, ");
    fails("f11", "base = 'generic-400g'\n", "p.toml:1:1", "has no title", "title = ");
    fails("f12", "title = 'x'\nbase = 'generic-40g'\n", ":2:8", "there is no profile", "generic");
    fails("f13", "title = 'x'\nbase = './p.toml'\n", ":2:8", "based on each other", "");
}

#[test]
fn the_schema_lists_every_parameter() {
    let schema = profile_schema();
    for parameter in PARAMETERS {
        let (group, name) = parameter.path.split_once('.').unwrap();
        let entry = &schema["properties"][group]["properties"][name];
        assert_eq!(entry["type"], "object", "{}", parameter.path);
        assert!(!entry["description"].as_str().unwrap().is_empty(), "{}", parameter.path);
    }
}
