//! An ideal back end in memory: a fabric without time.
//!
//! Every ring executes at once and in order, data is copied, completions appear at once, and
//! receives are taken in the order in which they were posted. What does not take time stays as in
//! the verbs: WQEs that were not rung are invisible, slots of a send queue come back when a
//! completion is polled, the state machine and its attribute masks are checked, keys and rights
//! are checked, a message without a receive waits (RC) or is lost (UC, UD), and an error flushes
//! both queues. There is no loss, no timeout and no limit of retries: what can never happen ends
//! as a named stall.
//!
//! It serves unit tests of policies and programs, and as the reference to which the simulator must
//! be equal in the absence of faults: same completions per queue, same bytes.
//!
//! The clock moves only with `compute` and with the deadlines of waits.
//!
//! ```
//! use doorbell_core::ideal::{Ideal, Step, run};
//! use doorbell_core::transport::*;
//! use doorbell_core::units::Span;
//! use doorbell_core::verbs::{AccessFlags, Lkey, QpType, SendFlags};
//!
//! /// Rank 0 sends one message of eight inline bytes to rank 1.
//! #[derive(Default)]
//! struct Hello {
//!     link: Option<(CqId, QpId, Mr)>,
//!     connected: bool,
//!     heard: Vec<u8>,
//! }
//!
//! impl Hello {
//!     fn open<T: Control>(t: &mut T) -> (CqId, QpId, Mr) {
//!         let pd = t.create_pd().unwrap();
//!         let host = MemKind::Host { numa: 0 };
//!         let mr = t.alloc_mr(pd, 4096, host, AccessFlags::LOCAL_WRITE, Contents::Data).unwrap();
//!         let cq = t.create_cq(16).unwrap();
//!         let size = QpSize { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_inline: 8 };
//!         let init = QpInit { ty: QpType::Rc, pd, send_cq: cq, recv_cq: cq, srq: None, size,
//!             sq_sig_all: false, queue_memory: host };
//!         let qp = t.create_qp(&init).unwrap();
//!         t.publish(0, &t.endpoint(qp).unwrap().encode());
//!         (cq, qp, mr)
//!     }
//!
//!     /// INIT, RTR, RTS as soon as the peer's endpoint is known.
//!     fn connect<T: Control>(&mut self, t: &mut T, qp: QpId, mr: &Mr) -> bool {
//!         let mut bytes = [0; Endpoint::ENCODED_BYTES];
//!         if t.lookup(1 - t.rank(), 0, &mut bytes).unwrap().is_none() {
//!             return false;
//!         }
//!         let (local, peer) = (t.endpoint(qp).unwrap(), Endpoint::decode(&bytes).unwrap());
//!         for (attr, mask) in (RcParams { attr: QpAttr::default() }).steps(&local, &peer) {
//!             t.modify_qp(qp, &attr, mask).unwrap();
//!         }
//!         if t.rank() == 1 {
//!             let receive = RecvWr { wr_id: 7, sge: mr.sge(0, 8).unwrap() };
//!             t.post_recv(RecvQueue::Qp(qp), &[receive]).unwrap();
//!         } else {
//!             let data = Data::Inline(b"doorbell");
//!             let wr = SendWr { wr_id: 1, op: SendOp::Send, data, flags: SendFlags::SIGNALED,
//!                 dest: None };
//!             t.stage(qp, &wr).unwrap();
//!             assert_eq!(t.ring(qp, Ring::Auto).unwrap().wqes, 1);
//!         }
//!         true
//!     }
//! }
//!
//! impl Program for Hello {
//!     fn step<T: Control>(&mut self, t: &mut T) -> Next {
//!         let (cq, qp, mr) = match self.link {
//!             Some(l) => l,
//!             None => *self.link.insert(Self::open(t)),
//!         };
//!         let mut polled = Completions::with_capacity(4);
//!         t.poll_cq(cq, &mut polled).unwrap();
//!         match polled.as_slice() {
//!             [] => {}
//!             [Completion::Recv { len: 8, .. }] => {
//!                 self.heard.resize(8, 0);
//!                 t.copy_out(mr.range(0, 8).unwrap(), &mut self.heard).unwrap();
//!                 return Next::Done;
//!             }
//!             [Completion::Send { wr_id: 1, retired: 1, .. }] => return Next::Done,
//!             other => panic!("{other:?}"),
//!         }
//!         self.connected = self.connected || self.connect(t, qp, &mr);
//!         let until = Some(t.now() + Span::from_ms(100));
//!         Next::Wait { on: WaitSet::cq(cq).or(WaitSet::BOOTSTRAP), until }
//!     }
//! }
//!
//! let (mut a, mut b) = (Hello::default(), Hello::default());
//! run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
//! assert_eq!(b.heard, b"doorbell");
//! ```

mod control;
mod exec;
mod handle;
mod runner;
mod state;
#[cfg(test)]
mod tests;

pub use handle::Handle;
pub use runner::{Blocked, Stalled, Step, run, run_bounded};
pub use state::{Ideal, Limits, Place};
