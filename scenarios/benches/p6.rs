//! P6: simulated WQEs per CPU second, with every stage of the host path on.
//!
//! `cargo bench -p doorbell --bench p6`. Prints, per batch size, the events per WQE (exact and
//! repeatable) and the WQEs per second of user CPU time (of this machine, median of five). Asserts
//! no time.

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, find, load};
use doorbell::profile::Profiles;
use doorbell::run::{Runner, Simulator};

/// User CPU time of this process in hundredths of a second: field 14 of `/proc/self/stat`.
fn user_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name in parentheses, may hold spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()
}

fn main() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/p6.toml");
    let (source, directory) = find(file).expect("the file of the benchmark");
    let mut profiles = Profiles::beside(&directory);
    let loaded = load(source, directory, &Overrides::default()).expect("it is valid");
    println!("batch  events/WQE  WQEs per CPU second");
    for point in expand(&loaded, &mut profiles).expect("it expands") {
        let mut rates = Vec::new();
        let mut events = 0.0;
        for _ in 0..5 {
            let before = user_ticks();
            let outcome = Simulator.run(&point.point).expect("it runs");
            let spent = user_ticks().zip(before).map(|(a, b)| a - b);
            let wqes = outcome.metrics["wqes_executed"].number();
            events = outcome.events as f64 / wqes;
            if let Some(ticks) = spent.filter(|t| *t > 0) {
                rates.push(wqes / (ticks as f64 / 100.0));
            }
        }
        rates.sort_by(f64::total_cmp);
        let rate = rates.get(rates.len() / 2);
        let rate = rate.map_or("no /proc here".into(), |r| format!("{r:.0}"));
        println!("{:>5}  {events:>10.2}  {rate:>19}", point.point.axes[0].text);
    }
}
