//! Vendor codes of completions in error (`vendor_err` of `ibv_wc`).
//!
//! Devices choose theirs, and only those that somebody has published are here; every other status
//! has 0. A program must not decide by them.
//!
//! | Status | Code | Who saw it |
//! |---|---|---|
//! | 4 `LOC_PROT_ERR` | 0x51 | NVIDIA/nccl issue 214 ("4 with vendor 81") |
//! | 5 `WR_FLUSH_ERR` | 0xF5 for the first, 0xF9 for later WQEs | ConnectX-6 Dx (`protocol.md` §4.1) |
//! | 10 `REM_ACCESS_ERR` | 0x88 | ConnectX-6 Dx (§4.1); spdk/spdk issue 264; open-mpi/ompi issue 1241 (136) |
//! | 11 `REM_OP_ERR` | 0x89 | NVIDIA/nccl issue 214 ("11 with vendor 137") |
//! | 12 `RETRY_EXC_ERR` | 0x81 | ConnectX-6 Dx (§4.1) |
//!
//! The reports name no cause beyond the status, so neither does the table. "The first" is taken as
//! the first flushed WQE of a work queue since its QP was last reset.

use doorbell_core::verbs::WcStatus;

/// Whose codes a device gives.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum VendorCodes {
    /// 0 for everything: rxe; devices of which nothing is published.
    #[default]
    None,
    /// The mlx5 family, as far as published.
    Mlx5,
}

impl VendorCodes {
    /// The code of a completion. `first`: no WQE of its queue was flushed before it.
    pub const fn code(self, status: WcStatus, first: bool) -> u32 {
        match (self, status) {
            (Self::None, _) => 0,
            (Self::Mlx5, WcStatus::LocProtErr) => 0x51,
            (Self::Mlx5, WcStatus::WrFlushErr) if first => 0xF5,
            (Self::Mlx5, WcStatus::WrFlushErr) => 0xF9,
            (Self::Mlx5, WcStatus::RemAccessErr) => 0x88,
            (Self::Mlx5, WcStatus::RemOpErr) => 0x89,
            (Self::Mlx5, WcStatus::RetryExcErr) => 0x81,
            (Self::Mlx5, _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_reports_and_no_others() {
        let known = [
            (WcStatus::LocProtErr, 81),
            (WcStatus::RemAccessErr, 136),
            (WcStatus::RemOpErr, 137),
            (WcStatus::RetryExcErr, 129),
        ];
        for status in (0..=23).filter_map(|v: u32| WcStatus::try_from(v).ok()) {
            let code = known.iter().find(|(s, _)| *s == status).map_or(0, |(_, code)| *code);
            if status != WcStatus::WrFlushErr {
                assert_eq!(VendorCodes::Mlx5.code(status, true), code, "{status}");
            }
            assert_eq!(VendorCodes::None.code(status, true), 0, "{status}");
        }
        let flushed = |first| VendorCodes::Mlx5.code(WcStatus::WrFlushErr, first);
        assert_eq!((flushed(true), flushed(false)), (0xF5, 0xF9));
    }
}
