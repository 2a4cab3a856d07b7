//! Case m-04: a library finds out the inline limit of soft-RoCE by making queue pairs.

use doorbell::run::hardware;
use doorbell_core::transport::*;
use doorbell_core::verbs::QpType;
use doorbell_sim::fault::FaultPlan;
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

/// Sizes that the driver logged as refused before the probe went below 400.
const REFUSED: [u32; 6] = [512, 448, 416, 407, 404, 402];

#[test]
fn a_probe_by_halves_ends_at_400_and_leaves_nothing_behind() {
    let host = hardware::host(&machine::profile("rxe"), false);
    let config = machine::world_of(host, 2, 1);
    let mut lab = Lab::with_faults(config, &[0, 1], &FaultPlan::default());
    let (found, refused, granted) = lab.call(0, |t| {
        let pd = t.create_pd().unwrap();
        let cq = t.create_cq(16).unwrap();
        let mut made = |max_inline| {
            let size = QpSize { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_inline };
            let (ty, queue_memory) = (QpType::Rc, MemKind::Host { numa: 0 });
            let (send_cq, recv_cq, srq, sq_sig_all) = (cq, cq, None, false);
            let init = QpInit { ty, pd, send_cq, recv_cq, srq, size, sq_sig_all, queue_memory };
            let qp = t.create_qp(&init).ok()?;
            let granted = t.qp_caps(qp).unwrap().max_inline;
            t.destroy_qp(qp).unwrap();
            Some(granted)
        };
        let refused = REFUSED.map(|n| made(n).is_none());
        let (mut good, mut bad) = (0, 512);
        while bad - good > 1 {
            let middle = (good + bad) / 2;
            match made(middle) {
                Some(_) => good = middle,
                None => bad = middle,
            }
        }
        (good, refused, made(400))
    });
    assert_eq!((found, refused), (400, [true; 6]));
    assert_eq!(granted, Some(400), "after the refusals as before");
}
