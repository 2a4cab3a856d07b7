//! What was given to another thread cannot be posted through here.

use doorbell_core::transport::{QpId, Ring, Transport};
use doorbell_hw::verbs::HwTransport;

fn give(t: HwTransport) {
    drop(t);
}

fn both(mut t: HwTransport, qp: QpId) {
    give(t);
    let _ = t.ring(qp, Ring::Auto);
}

fn main() {
    let _ = both;
}
