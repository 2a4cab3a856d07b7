//! Tests that need RDMA devices with a wire between them: `DOORBELL_DEVICES=rxe0,rxe1`.
//! `tests/vm/` runs them on soft-RoCE in a guest.

mod on_hw;
