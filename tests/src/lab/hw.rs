//! Hardware, or what Linux shows as such: each rank has a handle of a device of its own.
//!
//! `DOORBELL_DEVICES` names the devices, with commas; the ranks take them in turn. Without it
//! there is no lab, and who asks for one skips and says so.

use std::sync::Arc;
use std::time::Duration;

use doorbell_hw::bootstrap::local;
use doorbell_hw::verbs::device::{Device, OpenConfig};
use doorbell_hw::verbs::objects::Posting;
use doorbell_hw::verbs::provider::{Libibverbs, Provider};
use doorbell_hw::verbs::{HwConfig, HwTransport};

/// The handle that test bodies get.
pub type Handle<'a> = &'a mut HwTransport;

/// Whether a message arrives anywhere.
pub const HAS_PEER: bool = true;
/// Whether it has all that the trait names: regions without bytes, every attribute.
pub const IS_MODEL: bool = false;

/// Where the names of the devices stand.
pub const DEVICES: &str = "DOORBELL_DEVICES";
/// Set to `extended` for extended verbs.
pub const POSTING: &str = "DOORBELL_POSTING";

/// Longer than the longest batch or message of a test takes under software emulation.
const SETTLED: Duration = Duration::from_millis(30);

/// Ranks on devices of this machine, in one process.
#[derive(Debug)]
pub struct Lab {
    ranks: Vec<HwTransport>,
}

impl Lab {
    /// One rank on each of two devices.
    pub fn pair() -> Self {
        Self::on_hosts(&[0, 1])
    }

    /// One rank per entry, on the device that it names.
    ///
    /// # Panics
    /// When a device cannot be opened.
    pub fn on_hosts(hosts: &[u32]) -> Self {
        let names = std::env::var(DEVICES).unwrap_or_else(|_| panic!("{DEVICES} is not set"));
        let names: Vec<&str> = names.split(',').collect();
        let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
        let posting = match std::env::var(POSTING).as_deref() {
            Ok("extended") => Posting::Extended,
            _ => Posting::Classic,
        };
        let open = |(host, bootstrap): (&u32, local::Local)| {
            let name = names[*host as usize % names.len()];
            let config = OpenConfig { device: Some(name.to_owned()), ..OpenConfig::default() };
            let device = Device::open(&provider, &config).unwrap_or_else(|e| panic!("{e}"));
            let config = HwConfig { posting, ..HwConfig::default() };
            HwTransport::new(device, config, Box::new(bootstrap)).unwrap_or_else(|e| panic!("{e}"))
        };
        let group = local::group(hosts.len() as u32);
        Self { ranks: hosts.iter().zip(group).map(open).collect() }
    }

    /// The handles, rank by rank.
    pub fn into_ranks(self) -> Vec<HwTransport> {
        self.ranks
    }

    /// Makes calls on the handle of `rank`.
    pub fn call<R: Send + 'static>(
        &mut self,
        rank: usize,
        body: impl FnOnce(&mut Handle<'_>) -> R + Send + 'static,
    ) -> R {
        body(&mut &mut self.ranks[rank])
    }

    /// Lets everything that was rung take place.
    #[expect(clippy::disallowed_methods, reason = "the device works on the wall clock")]
    pub fn settle(&mut self) {
        std::thread::sleep(SETTLED);
    }
}
