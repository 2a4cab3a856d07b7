//! The examples of the README are a scenario, its faults and a profile that read.

use std::path::PathBuf;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;

#[test]
fn the_examples_read() {
    let readme = include_str!("../README.md");
    let blocks: Vec<&str> =
        readme.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let text = format!("{}[topology]\nkind = 'switch'\n{}", blocks[0], blocks[1]);
    let source = Source::new("README.md", text);
    let loaded = load(source, PathBuf::new(), &Overrides::default()).unwrap();
    let points = expand(&loaded, &mut Profiles::beside(&loaded.directory)).unwrap();
    assert_eq!(points.len(), 2 * 8);
    assert_eq!(points[0].point.scenario.fault.len(), 3);

    let folder = std::env::temp_dir().join(format!("doorbell-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.toml"), blocks[2]).unwrap();
    let raw = Profiles::beside(&folder).load("./p.toml", None);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(raw.unwrap().with_settings(None).unwrap().pcie.width, 8);
}
