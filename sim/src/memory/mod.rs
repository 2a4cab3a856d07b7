//! Host and device memory: bandwidth as a shared resource, and registered regions.

mod bandwidth;

pub use bandwidth::{BulkDone, MemoryEvent, MemoryPlace, MemorySystem, MemoryUse};
