//! A request borrows its scatter list until it is staged.

use doorbell_core::transport::{Data, QpId, SendOp, SendWr, Sge, Transport};
use doorbell_core::verbs::SendFlags;
use doorbell_hw::verbs::HwTransport;

fn stage(t: &mut HwTransport, qp: QpId) {
    let wr = {
        let list = [Sge::default()];
        let flags = SendFlags::SIGNALED;
        SendWr { wr_id: 1, op: SendOp::Send, data: Data::Sge(&list), flags, dest: None }
    };
    let _ = t.stage(qp, &wr);
}

fn main() {
    let _ = stage;
}
