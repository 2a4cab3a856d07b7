//! Flag sets with the bits of `<infiniband/verbs.h>`.

use core::fmt;

use bitflags::bitflags;

bitflags! {
    /// Rights of a memory region, and of a QP as `qp_access_flags` (`enum ibv_access_flags`).
    /// Local read is always allowed.
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AccessFlags: u32 {
        /// READ targets, ATOMIC results and receive buffers need it.
        const LOCAL_WRITE = 1;
        /// A peer may WRITE; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may READ.
        const REMOTE_READ = 1 << 2;
        /// A peer may do ATOMICs; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from 0 instead of the virtual address.
        const ZERO_BASED = 1 << 5;
        /// Pages are not pinned; the device serves page faults.
        const ON_DEMAND = 1 << 6;
        /// The region is made of huge pages.
        const HUGETLB = 1 << 7;
        /// FLUSH up to global visibility is allowed.
        const FLUSH_GLOBAL = 1 << 8;
        /// FLUSH up to persistence is allowed.
        const FLUSH_PERSISTENT = 1 << 9;
        /// PCIe writes may pass each other. Optional: ignored in silence where unsupported.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl AccessFlags {
    /// The rights of which each needs `LOCAL_WRITE` on a memory region.
    pub const NEED_LOCAL_WRITE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);

    /// Checks the combination as memory registration does. For `qp_access_flags` there is no
    /// such rule.
    ///
    /// # Errors
    /// `REMOTE_WRITE` or `REMOTE_ATOMIC` without `LOCAL_WRITE` (EINVAL of `ibv_reg_mr`).
    pub fn validate(self) -> Result<(), AccessFlagsError> {
        let remote = self.intersection(Self::NEED_LOCAL_WRITE);
        if remote.is_empty() || self.contains(Self::LOCAL_WRITE) {
            Ok(())
        } else {
            Err(AccessFlagsError::NeedsLocalWrite { flags: remote })
        }
    }
}

/// Why a memory region cannot have the rights asked for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AccessFlagsError {
    /// Rights that change memory were asked for without `LOCAL_WRITE`.
    NeedsLocalWrite {
        /// The rights that need it.
        flags: AccessFlags,
    },
}

impl fmt::Display for AccessFlagsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsLocalWrite { flags } => {
                bitflags::parser::to_writer(flags, &mut *f)?;
                f.write_str(" without LOCAL_WRITE")
            }
        }
    }
}

impl core::error::Error for AccessFlagsError {}

bitflags! {
    /// Flags of a send work request (`enum ibv_send_flags`).
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Do not start before the READs and ATOMICs posted earlier on this QP have completed.
        const FENCE = 1;
        /// Give a CQE on success too; errors always give one.
        const SIGNALED = 1 << 1;
        /// The receive completion wakes a peer that waits for solicited events only.
        const SOLICITED = 1 << 2;
        /// The data is copied into the WQE when posted; lkeys are ignored.
        const INLINE = 1 << 3;
        /// The device fills the IP and L4 checksums (UD, RAW_PACKET).
        const IP_CSUM = 1 << 4;
    }
}

bitflags! {
    /// Flags of a work completion (`enum ibv_wc_flags`).
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes of the buffer hold a GRH (UD; on RoCEv2 an IP header).
        const GRH = 1;
        /// Immediate data came with the message.
        const WITH_IMM = 1 << 1;
        /// The IP checksum was verified and is right.
        const IP_CSUM_OK = 1 << 2;
        /// A key was invalidated by the peer's SEND with Invalidate.
        const WITH_INV = 1 << 3;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn bits_are_those_of_verbs_h() {
        let access: std::vec::Vec<_> =
            AccessFlags::all().iter_names().map(|(n, f)| (n, f.bits())).collect();
        let expect = [
            ("LOCAL_WRITE", 1),
            ("REMOTE_WRITE", 2),
            ("REMOTE_READ", 4),
            ("REMOTE_ATOMIC", 8),
            ("MW_BIND", 16),
            ("ZERO_BASED", 32),
            ("ON_DEMAND", 64),
            ("HUGETLB", 128),
            ("FLUSH_GLOBAL", 256),
            ("FLUSH_PERSISTENT", 512),
            ("RELAXED_ORDERING", 1 << 20),
        ];
        assert_eq!(access, expect);
        let send: std::vec::Vec<_> =
            SendFlags::all().iter_names().map(|(n, f)| (n, f.bits())).collect();
        let expect =
            [("FENCE", 1), ("SIGNALED", 2), ("SOLICITED", 4), ("INLINE", 8), ("IP_CSUM", 16)];
        assert_eq!(send, expect);
        let wc: std::vec::Vec<_> =
            WcFlags::all().iter_names().map(|(n, f)| (n, f.bits())).collect();
        assert_eq!(wc, [("GRH", 1), ("WITH_IMM", 2), ("IP_CSUM_OK", 4), ("WITH_INV", 8)]);
    }

    /// All 16 combinations of the four rights that the rule speaks of.
    #[test]
    fn rights_that_change_memory_need_local_write() {
        for bits in 0..16 {
            let f = AccessFlags::from_bits_truncate(bits);
            let remote = bits & (2 | 8);
            let legal = remote == 0 || bits & 1 != 0;
            let got = f.validate();
            assert_eq!(got.is_ok(), legal, "{f:?}");
            if let Err(AccessFlagsError::NeedsLocalWrite { flags }) = got {
                assert_eq!(flags.bits(), remote);
            }
        }
        let e = (AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC | AccessFlags::MW_BIND)
            .validate()
            .unwrap_err();
        assert_eq!(e.to_string(), "REMOTE_WRITE | REMOTE_ATOMIC without LOCAL_WRITE");
    }
}
