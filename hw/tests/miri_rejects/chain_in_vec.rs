//! Negative control: Miri must reject this program, else the Miri run proves nothing.
//!
//! Work requests and scatter elements in `Vec`s, linked by pointers made from `&mut`, then
//! changed through the `Vec`s before the post. Each such change says that nobody else points
//! there, so the pointers in the chain may no longer be used.
//!
//! Miri says: read access

use std::mem::zeroed;
use std::ptr;

use doorbell_hw::verbs::fake::Fake;
use doorbell_hw::verbs::objects::{Channel, Context, Cq, Pd, Posting, Qp, QpParts};
use doorbell_hw::verbs::provider::Provider;
use doorbell_hw::verbs::sys::*;

fn qp(fake: &Fake) -> Qp {
    let (list, _) = fake.get_device_list();
    // SAFETY: the first device of a list that is freed afterwards.
    let context = unsafe { Context::open(fake.provider(), *list) }.expect("the fake opens");
    // SAFETY: made above, freed once.
    unsafe { fake.free_device_list(list) };
    let pd = Pd::alloc(&context).expect("a PD");
    let channel = Channel::create(&context).expect("a channel");
    let cq = Cq::create(&channel, 4).expect("a CQ");
    let cap = ibv_qp_cap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let ty = ibv_qp_type::IBV_QPT_RC;
    let (send_cq, recv_cq, posting) = (cq.clone(), cq, Posting::Classic);
    let parts = QpParts {
        pd,
        send_cq,
        recv_cq,
        srq: None,
        ty,
        cap,
        sq_sig_all: true,
        atomics: true,
        posting,
    };
    Qp::create(parts).expect("a QP")
}

fn main() {
    let qp = qp(&Fake::null_device());
    let mut sges: Vec<ibv_sge> = (0..2).map(|i| ibv_sge { addr: i, length: 8, lkey: 1 }).collect();
    // SAFETY: all-zero is a valid value of this C structure.
    let mut wrs: Vec<ibv_send_wr> = (0..2).map(|_| unsafe { zeroed() }).collect();
    for (wr, sge) in wrs.iter_mut().zip(&mut sges) {
        wr.sg_list = sge;
        wr.num_sge = 1;
    }
    let at: Vec<*mut ibv_send_wr> = wrs.iter_mut().map(ptr::from_mut).collect();
    let first = at[0];
    // SAFETY: the pointers are into the Vec, which was not touched since they were made.
    unsafe { (*first).next = at[1] };
    // The mistake: the Vecs are used again although pointers into them wait in the chain.
    sges[1].length = 16;
    wrs[1].wr_id = 5;
    let mut bad = ptr::null_mut();
    // SAFETY: none; this is what Miri has to find.
    let rc = unsafe { ibv_post_send(qp.as_ptr(), first, &raw mut bad) };
    println!("posted: {rc}");
}
