//! Host and device memory: bandwidth as a shared resource, and registered regions.

mod bandwidth;
mod pages;
mod region;

pub use bandwidth::{BulkDone, MemoryEvent, MemoryPlace, MemorySystem, MemoryUse};
pub use region::{
    Contents, DataError, MemoryError, Pd, Region, RegionId, RegionKind, RegionTable, RegisterError,
};

use doorbell_core::units::Span;

/// What a load or store of a core takes, apart from bandwidth.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CoreLatency {
    /// Load of a line that is in the core's own cache.
    pub cached: Span,
    /// Load of a line that is in the socket's last-level cache: what a poll pays when DMA has
    /// just written the line.
    pub llc: Span,
    /// Load of a line from DRAM.
    pub dram: Span,
    /// Added when the line belongs to the other socket (UPI, xGMI). A higher distance makes
    /// polling, posting and DMA of the wrong socket dearer.
    pub remote: Span,
}

/// Where a line is that a core loads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// In the core's own cache.
    Cached,
    /// In the last-level cache.
    Llc,
    /// In DRAM.
    Dram,
}

impl CoreLatency {
    /// Time of one load. A line in the core's own cache is never remote.
    pub fn load(&self, line: Line, remote: bool) -> Span {
        let far = if remote { self.remote } else { Span::ZERO };
        match line {
            Line::Cached => self.cached,
            Line::Llc => self.llc + far,
            Line::Dram => self.dram + far,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_only_outside_the_own_cache() {
        let ns = Span::from_ns;
        let l = CoreLatency { cached: ns(1), llc: ns(20), dram: ns(80), remote: ns(60) };
        let loads = [Line::Cached, Line::Llc, Line::Dram];
        assert_eq!(loads.map(|x| l.load(x, false)), [ns(1), ns(20), ns(80)]);
        assert_eq!(loads.map(|x| l.load(x, true)), [ns(1), ns(80), ns(140)]);
    }
}
