//! A device in memory behind the same calls, for tests and benchmarks without a NIC.
//!
//! [`Fake`] is a [`Provider`]: it makes the C objects of libibverbs, and the operations that the
//! inline functions of `<infiniband/verbs.h>` find in them are functions of this module. So the
//! code of the back end runs through exactly the calls that it makes on a real device.
//!
//! It is scripted, not a network: there is no peer. A test says what happens next
//! ([`Fake::complete`], [`Fake::fail`], [`Fake::receive`], [`Fake::raise`]) and what will be
//! refused ([`Fake::fail_post_send_at`], [`Fake::fail_call`]), and asks what the provider saw
//! ([`Fake::sent`], [`Fake::counts`], [`Fake::modifies`]). What the manual forbids is recorded
//! ([`Fake::violations`]), what is alive counted ([`Fake::live`]); [`Fake::assert_clean`] ends a
//! test.
//!
//! Where providers differ it is as hostile as they are: errors in either sign, `bad_wr` null or
//! untouched, sizes rounded up, junk in every field of a completion that means nothing, events
//! of unknown kinds, slots that come back only when a completion is polled. It never waits: a
//! call that would block for ever is a violation and fails.
//!
//! It runs under Miri. Memory that a program registers is touched through the pointer that it
//! registered, by relaxed atomic bytes, as a NIC that writes while the program reads.

mod config;
mod context;
mod events;
mod execute;
mod extended;
mod null;
mod objects;
mod poll;
mod post;
mod provider;
mod qp;
mod query;
mod record;
mod script;
mod signal;
mod world;

pub use config::{
    BadWr, DeviceConfig, ErrnoSign, Extended, FakeConfig, FlushAt, GidConfig, GidType, Limits,
    LinkLayer, PortConfig, Rounding,
};
pub use execute::Delivery;
pub use record::{Counts, Modify, PostedRecv, Remote, SentWr, UdTarget, Violation};
pub use script::{Element, Live};

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::provider::Provider;
use world::World;

/// A call that can be ordered to fail, with [`Fake::fail_call`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the verb of its name")]
pub enum Call {
    OpenDevice,
    QueryDevice,
    QueryPort,
    QueryGids,
    AllocPd,
    RegMr,
    CreateChannel,
    CreateCq,
    ReqNotify,
    PollCq,
    CreateSrq,
    ModifySrq,
    CreateQp,
    ModifyQp,
    QueryQp,
    CreateAh,
}

/// What all handles of a fake share.
struct Shared {
    /// Fixed at creation, read without the lock.
    is_null: bool,
    world: Mutex<World>,
}

impl Shared {
    /// A test that panicked with the lock held has failed already; its objects are still dropped.
    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fake. Clones are the same device.
///
/// ```
/// use doorbell_hw::verbs::fake::{Fake, FakeConfig};
/// use doorbell_hw::verbs::provider::Provider;
/// let fake = Fake::new(FakeConfig::default());
/// let (list, n) = fake.get_device_list();
/// assert_eq!(n, 1);
/// // SAFETY: the list was made by this provider and is freed once.
/// unsafe { fake.free_device_list(list) };
/// fake.assert_clean();
/// ```
#[derive(Clone)]
pub struct Fake(Arc<Shared>);

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fake({:?})", self.live())
    }
}

impl Fake {
    /// A fake of this configuration.
    pub fn new(config: FakeConfig) -> Self {
        Self::with(config, false)
    }

    /// One device `null0` that does as little as possible per call, for instruction counts:
    /// posts are counted and complete at once, nothing is checked or recorded, and receives
    /// never complete. A send completion queue holds at most 65,536 completions that are not
    /// polled; more overwrite the oldest.
    pub fn null_device() -> Self {
        let devices = vec![DeviceConfig::roce("null0", 1)];
        Self::with(FakeConfig { devices, ..FakeConfig::default() }, true)
    }

    fn with(config: FakeConfig, is_null: bool) -> Self {
        let world = Mutex::new(World::new(config, is_null));
        Self(Arc::new(Shared { is_null, world }))
    }

    /// The fake as what the binding is made from.
    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.clone())
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

#[cfg(test)]
mod tests;
