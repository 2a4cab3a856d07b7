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
    let points = |text: String| {
        let source = Source::new("README.md", text);
        let loaded = load(source, PathBuf::new(), &Overrides::default()).unwrap();
        expand(&loaded, &mut Profiles::beside(&loaded.directory)).unwrap()
    };
    let read = |more: &str| {
        let points = points(format!("{}{more}", blocks[0]));
        assert_eq!(points.len(), 2 * 8);
        points[0].point.scenario.clone()
    };
    let lanes = points(format!("title = 't'\nprofile = 'generic-400g'\n{}", blocks[1]));
    assert_eq!(lanes[0].point.scenario.program[0].all_qps(), 5);
    let hosts = "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'switch'\nhosts = 64\n";
    let experts = points(format!("{hosts}{}", blocks[2]));
    assert!(experts[0].point.scenario.program[0].all_to_all.is_some());
    let sends = "[[program]]\nkind = 'message-rate'\nop = 'send'\n";
    let shared = points(format!("title = 't'\nprofile = 'generic-400g'\n{}{sends}", blocks[3]));
    assert_eq!(shared[0].point.scenario.srq.as_ref().unwrap().limit.value(), 64);
    assert!(shared[0].point.profile.rc.credits);
    assert!(read(blocks[4]).record.series.is_some());
    assert_eq!(read(blocks[5]).topology.hosts.value(), 32);
    assert_eq!(read(blocks[6]).topology.link.len(), 3);
    let joined = ["host0..7-switch0", "host8..15-switch2", "switch0-switch1", "switch1-switch2"];
    let links = joined.map(|l| format!("[[topology.link]]\nbetween = '{l}'\n")).concat();
    let explicit = format!("[topology]\nkind = 'explicit'\nhosts = 16\nswitches = 3\n{links}");
    assert_eq!(read(&format!("{explicit}{}", blocks[7])).topology.route.len(), 1);
    let rails = points(format!("title = 't'\nprofile = 'generic-400g'\n{}", blocks[8]));
    assert_eq!(rails[0].point.scenario.program[0].nic.value(), 1);
    assert_eq!(read(&format!("[topology]\nkind = 'switch'\n{}", blocks[9])).fault.len(), 3);

    let folder = std::env::temp_dir().join(format!("doorbell-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.toml"), blocks[10]).unwrap();
    let raw = Profiles::beside(&folder).load("./p.toml", None);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(raw.unwrap().with_settings(None).unwrap().pcie.width, 8);
}
