//! The objects of a provider are trusted: who makes them has to say so.

use std::sync::Arc;

use doorbell_hw::verbs::objects::Context;
use doorbell_hw::verbs::provider::{Libibverbs, Provider};
use doorbell_hw::verbs::sys::ibv_device;

fn open(device: *mut ibv_device) {
    let provider: Arc<dyn Provider> = Arc::new(Libibverbs);
    let _ = Context::open(provider, device);
}

#[derive(Debug)]
struct Mine;

impl Provider for Mine {}

fn main() {
    let _ = open;
}
