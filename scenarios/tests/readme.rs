//! The examples of the README are a scenario, topologies, faults and a profile that read.

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
    let read = |more: &str| {
        let source = Source::new("README.md", format!("{}{more}", blocks[0]));
        let loaded = load(source, PathBuf::new(), &Overrides::default()).unwrap();
        let points = expand(&loaded, &mut Profiles::beside(&loaded.directory)).unwrap();
        assert_eq!(points.len(), 2 * 8);
        points[0].point.scenario.clone()
    };
    assert_eq!(read(blocks[1]).topology.hosts.value(), 32);
    assert_eq!(read(blocks[2]).topology.link.len(), 3);
    assert_eq!(read(&format!("[topology]\nkind = 'switch'\n{}", blocks[3])).fault.len(), 3);

    let folder = std::env::temp_dir().join(format!("doorbell-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.toml"), blocks[4]).unwrap();
    let raw = Profiles::beside(&folder).load("./p.toml", None);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(raw.unwrap().with_settings(None).unwrap().pcie.width, 8);
}
