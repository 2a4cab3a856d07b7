//! A congestion control from outside: no file of doorbell is touched.
//!
//! Delay-based AIMD: a round trip of more than twice the shortest one halves the rate, at most once
//! per round trip; any other adds a little. Two senders share one receiver behind a switch.

use std::path::PathBuf;
use std::sync::Arc;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, SimulatorWith, run_points};
use doorbell_core::units::{BitRate, Span, Time};
use doorbell_sim::cc::{CcEvent, CongestionControl, Control, ControlFactory};

#[derive(Debug)]
struct Aimd {
    bps: u64,
    line: u64,
    shortest: Span,
    cut_from: Time,
}

impl CongestionControl for Aimd {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        let CcEvent::Ack { rtt: Some(rtt), .. } = event else { return };
        self.shortest = self.shortest.min(rtt);
        if rtt <= self.shortest * 2 {
            self.bps = self.line.min(self.bps + self.line / 1000);
        } else if now >= self.cut_from {
            self.bps = (self.bps / 2).max(self.line / 1000);
            self.cut_from = now + rtt;
        }
    }

    fn rate(&self) -> Option<BitRate> {
        BitRate::new(self.bps)
    }
}

#[derive(Debug)]
struct AimdConfig;

impl ControlFactory for AimdConfig {
    fn build(&self, line: BitRate) -> Box<dyn CongestionControl> {
        let bps = line.as_bps();
        Box::new(Aimd { bps, line: bps, shortest: Span::MAX, cut_from: Time::ZERO })
    }
}

const SCENARIO: &str = "title = 'AIMD'\nprofile = 'generic-400g'\n\
    run = { noise = 'off', host = 'ideal' }\nsettings = { 'rc.ack_every' = 1 }\n\
    topology = { kind = 'switch', hosts = 3, rate = '100Gbps', propagation = '1us' }\n\
    [[program]]\nname = 'a'\nkind = 'bandwidth'\nhost = 0\npeer = 2\nsize = '8MB'\niterations = 1\n\
    [[program]]\nname = 'b'\nkind = 'bandwidth'\nhost = 1\npeer = 2\nsize = '8MB'\niterations = 1\n";

fn run() -> Outcome {
    let overrides = Overrides { set: Vec::new(), seed: None };
    let file = load(Source::new("aimd.toml", SCENARIO), PathBuf::from("."), &overrides).unwrap();
    let points = expand(&file, &mut Profiles::beside(&file.directory)).unwrap();
    let simulator = SimulatorWith(|world: &mut doorbell_sim::world::WorldConfig| {
        for host in &mut world.hosts {
            host.rc.congestion.control = Control::Custom(Arc::new(AimdConfig));
        }
    });
    run_points(&simulator, &points, |_| {}).unwrap().remove(0).outcome
}

fn main() {
    for name in ["throughput", "rate_cuts", "rate_min"] {
        println!("{name}: {}", run().find(name).unwrap().text());
    }
}

#[test]
fn the_rates_are_cut_and_the_link_stays_busy() {
    let number = |name| run().find(name).and_then(|f| f.scalar()).unwrap().number();
    assert!(number("rate_cuts") > 2.0 && number("rate_min") < 50e9);
    // 4096 of 4178 bytes are payload: 98 Gb/s at most.
    assert!((80e9..98.1e9).contains(&number("throughput")));
}
