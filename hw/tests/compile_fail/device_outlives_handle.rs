//! The device that a handle shows is gone with it.

use doorbell_hw::verbs::HwTransport;

fn name(t: HwTransport) -> String {
    let device = t.device();
    drop(t);
    device.name().name.clone()
}

fn main() {
    let _ = name;
}
