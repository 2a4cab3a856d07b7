//! The page about status 12 shows what the command prints.

use std::path::PathBuf;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::report::{Report, Rows, to_text};
use doorbell::run::{Simulator, run_points};

#[test]
fn the_page_shows_the_report_as_it_is() {
    let text = include_str!("../library/status12.toml");
    let source = Source::new("status12.toml", text);
    let loaded = load(source, PathBuf::new(), &Overrides::default()).unwrap();
    let points = expand(&loaded, &mut Profiles::beside(&loaded.directory)).unwrap();
    let runs = run_points(&Simulator, &points, |_| {}).unwrap();
    let report = to_text(&Report::new("status12".to_owned(), &loaded, runs), Rows::First);
    let begin = report.find("host 0 QP 16").expect("it died");
    let end = begin + report[begin..].find("\n\n").expect("something follows");
    let page = include_str!("../../docs/status12.md");
    let shown = page.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert!(shown == &report[begin..end], "docs/status12.md should show:\n{}", &report[begin..end]);
}
