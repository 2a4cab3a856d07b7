//! The ideal back end of `doorbell-core`: calls take no time.

use doorbell_core::ideal::{Ideal, Place};
use doorbell_core::transport::Initiator;

/// The handle that test bodies get.
pub type Handle<'a> = doorbell_core::ideal::Handle<'a>;

/// Whether a message arrives anywhere.
pub const HAS_PEER: bool = true;
/// Whether it has all that the trait names: regions without bytes, every attribute.
pub const IS_MODEL: bool = true;

/// Ranks on an ideal fabric.
#[derive(Debug)]
pub struct Lab(Ideal);

impl Lab {
    /// One rank on each of two hosts.
    pub fn pair() -> Self {
        Self::on_hosts(&[0, 1])
    }

    /// One rank per entry, on the host that it names.
    pub fn on_hosts(hosts: &[u32]) -> Self {
        let place = |(core, &host): (u16, &u32)| Place {
            host,
            initiator: Initiator::Cpu { core, numa: 0 },
        };
        let places: Vec<Place> = (0..).zip(hosts).map(place).collect();
        Self(Ideal::with_places(&places, Default::default()))
    }

    /// Makes calls on the handle of `rank`.
    pub fn call<R: Send + 'static>(
        &mut self,
        rank: usize,
        body: impl FnOnce(&mut Handle<'_>) -> R + Send + 'static,
    ) -> R {
        body(&mut self.0.at(rank))
    }

    /// Lets everything that was rung take place.
    pub fn settle(&mut self) {}
}
