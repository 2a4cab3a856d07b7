//! One rank of the tour on a device, for two processes that find each other over TCP.
//!
//! ```sh
//! DOORBELL_RANK=0 DOORBELL_SIZE=2 DOORBELL_SERVER=127.0.0.1:24100 tour rxe0 event classic [PHASE]
//! ```
//!
//! With a phase (`connect`, `ping`, `write`, `read`, `bye`) the process dies there, as if killed.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use doorbell_core::transport::{Control, Next, Program};
use doorbell_hw::bootstrap::launch;
use doorbell_hw::bootstrap::tcp::{Config, Tcp};
use doorbell_hw::verbs::device::{Device, OpenConfig};
use doorbell_hw::verbs::objects::Posting;
use doorbell_hw::verbs::provider::{Libibverbs, Provider};
use doorbell_hw::verbs::{HwConfig, HwTransport, RunConfig, WaitMode, run};
use doorbell_tests::tour::{Phase, Tour, TourConfig};

/// A tour that may die on the way.
struct Mortal {
    tour: Tour,
    dies_in: Option<Phase>,
}

impl Program for Mortal {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let next = self.tour.step(t);
        if self.dies_in == Some(self.tour.phase()) {
            std::process::abort();
        }
        next
    }
}

#[expect(clippy::disallowed_types, reason = "the device works on the wall clock")]
fn tour(
    device: &str,
    wait: WaitMode,
    posting: Posting,
    dies_in: Option<Phase>,
) -> Result<Tour, String> {
    let get = |name: &str| std::env::var(name).ok();
    let launch = launch::from_env(get).map_err(|e| e.to_string())?.ok_or("no rank was given")?;
    let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
    let open = OpenConfig { device: Some(device.to_owned()), ..OpenConfig::default() };
    let device = Device::open(&provider, &open).map_err(|e| e.to_string())?;
    let config = Config::new(launch.rank, launch.size, launch.server, launch.port);
    let bootstrap = Tcp::join(config).map_err(|e| e.to_string())?;
    let config = HwConfig { posting, ..HwConfig::default() };
    let mut t = HwTransport::new(device, config, Box::new(bootstrap)).map_err(|e| e.to_string())?;
    let mut tour = Mortal { tour: Tour::new(TourConfig::default(), launch.rank), dies_in };
    let limits = RunConfig { wait, limit: Duration::from_secs(60), ..RunConfig::default() };
    let report = run(&mut t, &mut tour, &limits).map_err(|e| e.to_string())?;
    t.bootstrap_mut().finish(std::time::Instant::now() + Duration::from_secs(10));
    eprintln!("rank {}: {} steps, {} sleeps", launch.rank, report.steps, report.sleeps);
    Ok(tour.tour)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (device, wait, posting, dies_in) = match args.as_slice() {
        [device, wait, posting] => (device, wait, posting, None),
        [device, wait, posting, phase] if Phase::named(phase).is_some() => {
            (device, wait, posting, Phase::named(phase))
        }
        _ => {
            eprintln!("usage: tour DEVICE poll|event classic|extended [PHASE]");
            return ExitCode::from(2);
        }
    };
    let wait = if wait == "event" { WaitMode::Event } else { WaitMode::Poll };
    let posting = if posting == "extended" { Posting::Extended } else { Posting::Classic };
    match tour(device, wait, posting, dies_in) {
        Ok(Tour { failure: None, report, .. }) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Ok(Tour { failure: Some(why), .. }) | Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
