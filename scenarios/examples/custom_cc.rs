//! A congestion control from outside: no file of doorbell is touched.
//!
//! AIMD by delay: a round trip of more than twice the shortest one takes an eighth off the rate, at
//! most once per round trip; any other adds a little. Two senders share one receiver.

use std::path::PathBuf;
use std::sync::Arc;

use doorbell::format::{expand, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, SimulatorWith, run_points};
use doorbell_core::units::{BitRate, Span, Time};
use doorbell_sim::cc::{CcEvent, CongestionControl, Control, ControlFactory};
use doorbell_sim::world::WorldConfig;

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
        let step = self.line / 1000;
        if rtt <= self.shortest * 2 {
            self.bps = self.line.min(self.bps + step);
        } else if now >= self.cut_from {
            (self.bps, self.cut_from) = (step.max(self.bps * 7 / 8), now + rtt);
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
        let line = line.as_bps();
        Box::new(Aimd { bps: line, line, shortest: Span::MAX, cut_from: Time::ZERO })
    }
}

const SCENARIO: &str = "
title = 'AIMD'
profile = 'generic-400g'
run = { noise = 'off', host = 'ideal' }
settings = { 'rc.ack_every' = 1 }
topology = { kind = 'switch', hosts = 3, rate = '100Gbps', propagation = '1us' }
program = [
  { name = 'a', kind = 'bandwidth', host = 0, peer = 2, size = '8MB', iterations = 1 },
  { name = 'b', kind = 'bandwidth', host = 1, peer = 2, size = '8MB', iterations = 1 } ]";

fn run() -> Outcome {
    let none = load::Overrides { set: Vec::new(), seed: None };
    let file = load::load(Source::new("aimd.toml", SCENARIO), PathBuf::from("."), &none).unwrap();
    let points = expand::expand(&file, &mut Profiles::beside(&file.directory)).unwrap();
    let control = Control::Custom(Arc::new(AimdConfig));
    let simulator = SimulatorWith(|world: &mut WorldConfig| {
        world.hosts.iter_mut().for_each(|h| h.rc.congestion.control = control.clone());
    });
    run_points(&simulator, &points, |_| {}).unwrap().remove(0).outcome
}

fn main() {
    println!("{}", run().find("throughput").unwrap().text())
}

#[test]
fn the_rates_are_cut_and_the_link_stays_busy() {
    let number = |name| run().find(name).and_then(|f| f.scalar()).unwrap().number();
    assert!(number("rate_cuts") > 2.0);
    assert!((80e9..98.1e9).contains(&number("throughput")), "4096 of 4178 bytes");
}
