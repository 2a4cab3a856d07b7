//! Handles: small copyable ids, checked on every use.
//!
//! A handle names an object by index, generation and the transport handle that issued it. A stale
//! or foreign one is answered with [`BadHandle`], never with somebody else's object. Handles that
//! borrow the transport do not work: a program could not own its transport together with its
//! queue pairs.

use core::fmt;

/// The id is stale (its object was destroyed) or was issued by another transport handle.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BadHandle;

impl fmt::Display for BadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stale handle, or a handle of another initiator")
    }
}

impl core::error::Error for BadHandle {}

/// Bits of a handle that hold the index: 262,144 objects of a kind per transport handle.
const INDEX_BITS: u32 = 18;
/// Bits that hold the issuing transport handle: 128 initiators per host.
const ISSUER_BITS: u32 = 7;
/// Bits that hold the generation: 128 re-uses before a stale handle could pass for a fresh one.
const GENERATION_BITS: u32 = 7;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// Largest index that fits.
            pub const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;

            /// Builds a handle; for back ends.
            ///
            /// # Panics
            /// When `index` or `issuer` is out of range. `generation` wraps.
            pub const fn new(index: u32, generation: u32, issuer: u32) -> Self {
                assert!(index <= Self::MAX_INDEX, "more objects than a handle can name");
                assert!(issuer < 1 << ISSUER_BITS, "more initiators than a handle can name");
                let generation = generation & ((1 << GENERATION_BITS) - 1);
                Self(index | issuer << INDEX_BITS | generation << (INDEX_BITS + ISSUER_BITS))
            }

            /// Position in the issuer's table.
            pub const fn index(self) -> u32 {
                self.0 & Self::MAX_INDEX
            }

            /// The transport handle that issued this id.
            pub const fn issuer(self) -> u32 {
                self.0 >> INDEX_BITS & ((1 << ISSUER_BITS) - 1)
            }

            /// How often the table slot had been re-used, modulo 128.
            pub const fn generation(self) -> u32 {
                self.0 >> (INDEX_BITS + ISSUER_BITS)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    concat!(stringify!($name), "({}.{}@{})"),
                    self.index(),
                    self.generation(),
                    self.issuer()
                )
            }
        }
    };
}

handle!(
    /// A protection domain.
    PdId
);
handle!(
    /// A memory region.
    MrId
);
handle!(
    /// A completion queue.
    CqId
);
handle!(
    /// A shared receive queue.
    SrqId
);
handle!(
    /// A queue pair.
    QpId
);
handle!(
    /// An address handle (UD).
    AhId
);
handle!(
    /// A watched range of memory.
    WatchId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_generation_wraps() {
        let h = QpId::new(QpId::MAX_INDEX, 129, 127);
        assert_eq!((h.index(), h.generation(), h.issuer()), (QpId::MAX_INDEX, 1, 127));
        assert_ne!(QpId::new(1, 0, 0), QpId::new(1, 1, 0));
        assert_ne!(QpId::new(1, 0, 0), QpId::new(1, 0, 1));
    }

    #[test]
    #[should_panic(expected = "more objects")]
    fn one_index_too_many() {
        let _ = CqId::new(CqId::MAX_INDEX + 1, 0, 0);
    }
}
