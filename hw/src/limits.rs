//! The process's limit on locked memory, which registration counts against.

use serde::Serialize;

/// Below this a warning is due: 64 MiB. The usual default of 8 MiB (or 64 KiB) is used up by a few
/// deep queues or one large buffer, and then registration fails with `ENOMEM`.
pub const LOW_MEMLOCK_BYTES: u64 = 64 << 20;

/// `RLIMIT_MEMLOCK`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Memlock {
    /// What holds now, in bytes; `None`: unlimited.
    pub soft: Option<u64>,
    /// Up to where the process may raise it; `None`: unlimited.
    pub hard: Option<u64>,
}

impl Memlock {
    /// Reads it; `None` when the kernel refuses to tell.
    pub fn read() -> Option<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: there is room for one `rlimit`, and the call keeps no pointer.
        if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0 {
            return None;
        }
        let bytes = |n: libc::rlim_t| (n != libc::RLIM_INFINITY).then_some(n);
        Some(Self { soft: bytes(limit.rlim_cur), hard: bytes(limit.rlim_max) })
    }

    /// Whether it is below [`LOW_MEMLOCK_BYTES`].
    pub fn is_low(self) -> bool {
        self.soft.is_some_and(|n| n < LOW_MEMLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the kernel is asked")]
    fn the_limit_of_this_process_is_what_the_kernel_shows() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|l| l.starts_with("Max locked memory")).unwrap();
        let mut words = line.split_whitespace().skip(3).map(|w| w.parse().ok());
        let shown = Memlock { soft: words.next().unwrap(), hard: words.next().unwrap() };
        assert_eq!(Memlock::read(), Some(shown));
    }

    #[test]
    fn low_is_below_the_bound() {
        let with = |soft| Memlock { soft, hard: None }.is_low();
        assert!(with(Some(LOW_MEMLOCK_BYTES - 1)));
        assert!(!with(Some(LOW_MEMLOCK_BYTES)));
        assert!(!with(None));
    }
}
