//! Host and device memory: bandwidth as a shared resource, and registered regions.

mod bandwidth;
mod pages;
mod paging;
mod region;

pub use bandwidth::{BulkDone, MemoryEvent, MemoryPlace, MemorySystem, MemoryUse};
pub use paging::{Paging, PagingCosts, PagingStats};
pub use region::{
    Contents, DataError, MemoryError, Pd, Region, RegionId, RegionKind, RegionTable, RegisterError,
};
