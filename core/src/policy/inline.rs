//! Which messages go inline.

use crate::transport::{Data, QpCaps, Sge};

use super::Cue;

/// Up to which length messages are copied into their WQE.
///
/// Inline saves the NIC the read of the payload, a PCIe round trip, and the buffer is the caller's
/// again at once. It costs the core a copy and a larger WQE: more 64-byte blocks to write, and to
/// carry by BlueFlame. `scenarios/library/a20_inline_threshold.toml` has both sides.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InlineConfig {
    /// For a message that is rung alone. Higher: lower latency, until the WQE no longer fits the
    /// BlueFlame buffer; then the read is not saved but moved. Lowered to what was granted.
    pub lone_bytes: u32,
    /// For one of a batch, where the WQEs are fetched by the NIC in any case. Higher: more core
    /// time and more blocks of the send queue for each message. Lowered to what was granted.
    pub batched_bytes: u32,
}

impl Default for InlineConfig {
    /// 220 and 92 bytes: a WRITE that fills a BlueFlame buffer of 256 bytes, and one of two blocks
    /// (protocol.md §6.1).
    fn default() -> Self {
        Self { lone_bytes: 220, batched_bytes: 92 }
    }
}

/// Chooses between inline and gathered data. By default no byte goes inline.
///
/// ```
/// use doorbell_core::noop::NoOp;
/// use doorbell_core::policy::{Cue, InlineChoice, InlineConfig};
/// use doorbell_core::transport::{Data, Sge};
///
/// let choice = InlineChoice::new(InlineConfig::default(), &NoOp::caps(8));
/// let buffer = [Sge { addr: 0x1000, len: 150, ..Sge::default() }];
/// assert!(matches!(choice.data(&[7; 150], &buffer, Cue::Last), Data::Inline(_)));
/// assert!(matches!(choice.data(&[7; 150], &buffer, Cue::More), Data::Sge(_)));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct InlineChoice {
    lone: u32,
    batched: u32,
}

impl InlineChoice {
    /// The choice for a queue pair to which `caps` was granted.
    pub fn new(config: InlineConfig, caps: &QpCaps) -> Self {
        let InlineConfig { lone_bytes, batched_bytes } = config;
        let most = caps.max_inline;
        Self { lone: lone_bytes.min(most), batched: batched_bytes.min(most) }
    }

    /// Whether a message of `len` bytes goes inline.
    #[inline]
    pub const fn inlines(&self, len: usize, cue: Cue) -> bool {
        let most = match cue {
            Cue::More => self.batched,
            Cue::Urgent | Cue::Last => self.lone,
        };
        len <= most as usize
    }

    /// The same message as inline bytes or as registered memory.
    #[inline]
    pub const fn data<'a>(&self, bytes: &'a [u8], buffer: &'a [Sge], cue: Cue) -> Data<'a> {
        if self.inlines(bytes.len(), cue) { Data::Inline(bytes) } else { Data::Sge(buffer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noop::NoOp;
    use proptest::prelude::*;

    #[test]
    fn both_sides_of_each_threshold_and_of_what_was_granted() {
        let config = InlineConfig { lone_bytes: 100, batched_bytes: 40 };
        for (max_inline, lone, batched) in [(256, 100, 40), (60, 60, 40), (0, 0, 0)] {
            let c = InlineChoice::new(config, &QpCaps { max_inline, ..NoOp::caps(4) });
            for (cue, most) in [(Cue::Last, lone), (Cue::Urgent, lone), (Cue::More, batched)] {
                assert_eq!([c.inlines(most, cue), c.inlines(most + 1, cue)], [true, false]);
            }
        }
    }

    proptest! {
        /// What goes inline fits what was granted, is wanted, and so is all that is shorter.
        #[test]
        fn nothing_inline_is_longer_than_granted_or_wanted(
            (lone_bytes, batched_bytes, max_inline) in (0..400_u32, 0..400_u32, 0..400_u32),
            len in 0..500_usize,
        ) {
            let config = InlineConfig { lone_bytes, batched_bytes };
            let c = InlineChoice::new(config, &QpCaps { max_inline, ..NoOp::caps(4) });
            for (cue, wanted) in
                [(Cue::Last, lone_bytes), (Cue::Urgent, lone_bytes), (Cue::More, batched_bytes)]
            {
                prop_assert_eq!(c.inlines(len, cue), len as u32 <= wanted.min(max_inline));
            }
        }
    }
}
