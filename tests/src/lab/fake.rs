//! The hardware back end on devices in memory: every call is made as on hardware, and nobody is
//! behind the wire.
//!
//! Sends complete without an effect on the peer. [`classic`] and [`extended`] are the two ways to
//! post.

use doorbell_core::verbs::QpState;
use doorbell_hw::bootstrap::local;
use doorbell_hw::verbs::device::{Device, MAX_INLINE_ASKED, OpenConfig};
use doorbell_hw::verbs::fake::{DeviceConfig, Fake, FakeConfig};
use doorbell_hw::verbs::objects::Posting;
use doorbell_hw::verbs::{HwConfig, HwTransport};

/// The handle that test bodies get.
pub type Handle<'a> = &'a mut HwTransport;

/// Ranks on devices of one fake; `EXTENDED` says how they post.
#[derive(Debug)]
pub struct OnFake<const EXTENDED: bool> {
    ranks: Vec<HwTransport>,
    fake: Fake,
}

/// With chains of `ibv_send_wr`.
pub mod classic {
    pub use super::{HAS_PEER, Handle, IS_MODEL};
    /// See [`OnFake`](super::OnFake).
    pub type Lab = super::OnFake<false>;
}

/// With `ibv_wr_start` and its companions.
pub mod extended {
    pub use super::{HAS_PEER, Handle, IS_MODEL};
    /// See [`OnFake`](super::OnFake).
    pub type Lab = super::OnFake<true>;
}

/// Whether a message arrives anywhere.
pub const HAS_PEER: bool = false;
/// Whether it has all that the trait names: regions without bytes, every attribute.
pub const IS_MODEL: bool = false;

impl<const EXTENDED: bool> OnFake<EXTENDED> {
    /// One rank on each of two devices.
    pub fn pair() -> Self {
        Self::on_hosts(&[0, 1])
    }

    /// One rank per entry, on the device that it names.
    ///
    /// # Panics
    /// When a host is neither 0 nor 1.
    pub fn on_hosts(hosts: &[u32]) -> Self {
        let mut devices = vec![DeviceConfig::roce("fake0", 1), DeviceConfig::roce("fake1", 2)];
        for device in &mut devices {
            // The device caps tell no less than what may be asked for, so it must be granted here.
            device.limits.max_inline = MAX_INLINE_ASKED;
        }
        let fake = Fake::new(FakeConfig { devices, ..FakeConfig::default() });
        let posting = if EXTENDED { Posting::Extended } else { Posting::Classic };
        let open = |(host, bootstrap): (&u32, local::Local)| {
            let name = Some(format!("fake{host}"));
            let config = OpenConfig { device: name, ..OpenConfig::default() };
            let device = Device::open(&fake.provider(), &config).unwrap_or_else(|e| panic!("{e}"));
            let config = HwConfig { posting, ..HwConfig::default() };
            HwTransport::new(device, config, Box::new(bootstrap)).unwrap_or_else(|e| panic!("{e}"))
        };
        let group = local::group(hosts.len() as u32);
        Self { ranks: hosts.iter().zip(group).map(open).collect(), fake }
    }

    /// Makes calls on the handle of `rank`.
    pub fn call<R: Send + 'static>(
        &mut self,
        rank: usize,
        body: impl FnOnce(&mut Handle<'_>) -> R + Send + 'static,
    ) -> R {
        body(&mut &mut self.ranks[rank])
    }

    /// Lets everything that was rung complete.
    pub fn settle(&mut self) {
        for qpn in self.fake.qpns() {
            if self.fake.state(qpn) == QpState::Rts {
                self.fake.complete(qpn, usize::MAX);
            }
        }
    }
}

impl<const EXTENDED: bool> Drop for OnFake<EXTENDED> {
    /// What the manual forbids was not done, and nothing is left.
    fn drop(&mut self) {
        self.ranks.clear();
        if !std::thread::panicking() {
            self.fake.assert_clean();
        }
    }
}
