//! Registered memory regions of a host: keys, rights, bytes.
//!
//! The checks are those of protocol reference 5.1, in its order: key, protection domain,
//! rights, range. The QP's own `qp_access_flags` are checked before, by the responder.

use std::collections::VecDeque;
use std::fmt;

use doorbell_core::verbs::{AccessFlags, Lkey, Rkey};

use super::bandwidth::MemoryPlace;
use super::pages::Pages;
use super::paging::{Paging, PagingCosts, PagingStats};

/// A protection domain of the host.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pd(pub u32);

/// A region, also after its deregistration (then every use fails).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId {
    index: u32,
    generation: u32,
}

/// Which memory a region is in.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// Host memory of a socket.
    Host {
        /// The socket.
        numa: u8,
    },
    /// Memory of a device, `NodeId` of the PCIe tree.
    Gpu {
        /// The device.
        node: u16,
    },
}

impl RegionKind {
    /// The memory that accesses to the region use.
    pub const fn place(self) -> MemoryPlace {
        match self {
            Self::Host { numa } => MemoryPlace(numa as u16),
            Self::Gpu { node } => MemoryPlace(node),
        }
    }
}

/// Whether a region has bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Contents {
    /// Bytes are stored and move when the simulated transfer happens.
    Data,
    /// Only the length counts: for scale. Reading its bytes is an error.
    Virtual,
}

/// What a region is. Plain data; a copy outlives the region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Identity.
    pub id: RegionId,
    /// First address.
    pub addr: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
    /// Key for the owner's work requests.
    pub lkey: Lkey,
    /// Key for peers; never equal to any `lkey`, so that a mix-up shows.
    pub rkey: Rkey,
    /// Protection domain.
    pub pd: Pd,
    /// Rights.
    pub access: AccessFlags,
    /// Where it is.
    pub kind: RegionKind,
    /// Whether it has bytes.
    pub contents: Contents,
}

/// Why a region cannot be registered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// A length of zero.
    Empty,
    /// REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE.
    NeedsLocalWrite,
    /// 2²⁴ regions are registered, or the 2⁴⁷ bytes of address space are used up.
    Exhausted,
}

/// Why an access is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MemoryError {
    /// No region has the key (any more), or it is the other kind of key.
    InvalidKey,
    /// The region is of another protection domain.
    PdMismatch {
        /// The region's.
        region: Pd,
    },
    /// The region lacks rights.
    AccessDenied {
        /// The missing ones.
        missing: AccessFlags,
    },
    /// The range is not inside the region, or wraps around.
    OutOfRange,
}

/// Why bytes cannot be read, written or changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DataError {
    /// The region was deregistered since it was checked.
    Gone,
    /// The range is not inside the region.
    OutOfRange,
    /// The region has no bytes.
    Virtual,
    /// An atomic at an address that is no multiple of 8.
    Misaligned,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a region of no bytes"),
            Self::NeedsLocalWrite => {
                write!(f, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")
            }
            Self::Exhausted => write!(f, "no key or no address space left"),
        }
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey => write!(f, "no region has this key"),
            Self::PdMismatch { region } => {
                write!(f, "the region is of protection domain {}", region.0)
            }
            Self::AccessDenied { missing } => write!(f, "the region lacks {missing:?}"),
            Self::OutOfRange => write!(f, "the range is not inside the region"),
        }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the region is deregistered",
            Self::OutOfRange => "the range is not inside the region",
            Self::Virtual => "the region has no bytes (it was registered as virtual)",
            Self::Misaligned => "an atomic needs an address that is a multiple of 8",
        })
    }
}

impl std::error::Error for RegisterError {}
impl std::error::Error for MemoryError {}
impl std::error::Error for DataError {}

/// Key = index << 8 | variant. The lowest index keeps keys clear of 0 and of 0x100, which ends
/// a scatter list in mlx5 receive WQEs.
const FIRST_INDEX: u32 = 8;
const MAX_REGIONS: usize = (1 << 24) - FIRST_INDEX as usize;
/// Regions begin on pages, with at least one unused page between them, so that a transfer that
/// runs over an end never hits the neighbour.
const PAGE: u64 = 4096;
const FIRST_ADDR: u64 = 0x1000_0000;
const LAST_ADDR: u64 = 1 << 47;

#[derive(Clone, Debug)]
struct Slot {
    region: Option<Region>,
    generation: u32,
    bytes: Option<Pages>,
}

/// All regions of a host. Lookups by key take constant time.
#[derive(Clone, Debug)]
pub struct RegionTable {
    slots: Vec<Slot>,
    /// Oldest first: a key comes back as late as possible.
    free: VecDeque<u32>,
    next_addr: u64,
    /// Those with pages on demand.
    pub(crate) paging: Paging,
}

impl Default for RegionTable {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            next_addr: FIRST_ADDR,
            paging: Paging::default(),
        }
    }
}

impl RegionTable {
    /// No regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// No regions; faults of those with pages on demand will cost so much.
    pub fn with_paging(costs: PagingCosts) -> Self {
        Self { paging: Paging::new(costs), ..Self::default() }
    }

    /// Faults of regions with pages on demand.
    pub const fn faults(&self) -> PagingStats {
        self.paging.stats
    }

    /// Allocates addresses and registers them. The bytes of a data region are zero and take
    /// memory only where something else is written.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing is registered then.
    pub fn register(
        &mut self,
        pd: Pd,
        len: u64,
        kind: RegionKind,
        access: AccessFlags,
        contents: Contents,
    ) -> Result<Region, RegisterError> {
        if len == 0 {
            return Err(RegisterError::Empty);
        }
        access.validate().map_err(|_| RegisterError::NeedsLocalWrite)?;
        let addr = self.next_addr;
        let end = addr.checked_add(len).filter(|e| *e <= LAST_ADDR - 2 * PAGE);
        let end = end.ok_or(RegisterError::Exhausted)?;
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() < MAX_REGIONS => {
                self.slots.push(Slot { region: None, generation: 0, bytes: None });
                self.slots.len() as u32 - 1
            }
            None => return Err(RegisterError::Exhausted),
        };
        self.next_addr = end.next_multiple_of(PAGE) + PAGE;
        let slot = &mut self.slots[index as usize];
        let key = (index + FIRST_INDEX) << 8 | (slot.generation << 1 & 0xff);
        let region = Region {
            id: RegionId { index, generation: slot.generation },
            addr,
            len,
            lkey: Lkey(key),
            rkey: Rkey(key | 1),
            pd,
            access,
            kind,
            contents,
        };
        slot.region = Some(region);
        slot.bytes = (contents == Contents::Data).then(|| Pages::new(len));
        if access.contains(AccessFlags::ON_DEMAND) {
            self.paging.add(addr, len);
        }
        Ok(region)
    }

    /// Ends a region: its keys are invalid from now on, its bytes are gone, and accesses that
    /// were checked before find [`DataError::Gone`].
    ///
    /// # Errors
    /// [`DataError::Gone`] when it was deregistered before.
    pub fn deregister(&mut self, id: RegionId) -> Result<(), DataError> {
        let addr = self.get(id).ok_or(DataError::Gone)?.addr;
        self.paging.remove(addr);
        let slot = &mut self.slots[id.index as usize];
        slot.region = None;
        slot.bytes = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(id.index);
        Ok(())
    }

    /// The region, unless it was deregistered.
    pub fn get(&self, id: RegionId) -> Option<&Region> {
        let slot = self.slots.get(id.index as usize)?;
        slot.region.as_ref().filter(|r| r.id == id)
    }

    fn by_key(&self, key: u32) -> Option<&Region> {
        let index = (key >> 8).checked_sub(FIRST_INDEX)?;
        self.slots.get(index as usize)?.region.as_ref()
    }

    /// The region of a local key.
    pub fn by_lkey(&self, lkey: Lkey) -> Option<&Region> {
        self.by_key(lkey.0).filter(|r| r.lkey == lkey)
    }

    /// The region of a remote key.
    pub fn by_rkey(&self, rkey: Rkey) -> Option<&Region> {
        self.by_key(rkey.0).filter(|r| r.rkey == rkey)
    }

    /// Checks an access of the owner: an SGE of a send (`need` empty) or of a receive, a READ
    /// or an ATOMIC result (`need` = LOCAL_WRITE). Callers skip SGEs of no bytes, for which no
    /// key is checked.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn check_local(
        &self,
        lkey: Lkey,
        pd: Pd,
        addr: u64,
        len: u64,
        need: AccessFlags,
    ) -> Result<&Region, MemoryError> {
        check(self.by_lkey(lkey), pd, addr, len, need)
    }

    /// Checks an access of a peer. `len` is the whole RETH length of the message.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn check_remote(
        &self,
        rkey: Rkey,
        pd: Pd,
        addr: u64,
        len: u64,
        need: AccessFlags,
    ) -> Result<&Region, MemoryError> {
        check(self.by_rkey(rkey), pd, addr, len, need)
    }

    fn bytes(&self, id: RegionId, addr: u64, len: u64) -> Result<(u64, &Pages), DataError> {
        let region = self.get(id).ok_or(DataError::Gone)?;
        let offset = offset_in(region, addr, len).ok_or(DataError::OutOfRange)?;
        let pages = self.slots[id.index as usize].bytes.as_ref().ok_or(DataError::Virtual)?;
        Ok((offset, pages))
    }

    fn bytes_mut(
        &mut self,
        id: RegionId,
        addr: u64,
        len: u64,
    ) -> Result<(u64, &mut Pages), DataError> {
        let (offset, _) = self.bytes(id, addr, len)?;
        let pages = self.slots[id.index as usize].bytes.as_mut().ok_or(DataError::Virtual)?;
        Ok((offset, pages))
    }

    /// Copies bytes out of a data region.
    ///
    /// # Errors
    /// See [`DataError`].
    pub fn read(&self, id: RegionId, addr: u64, to: &mut [u8]) -> Result<(), DataError> {
        let (offset, pages) = self.bytes(id, addr, to.len() as u64)?;
        pages.read(offset, to);
        Ok(())
    }

    /// Copies bytes into a data region.
    ///
    /// # Errors
    /// See [`DataError`]; nothing is written then.
    pub fn write(&mut self, id: RegionId, addr: u64, from: &[u8]) -> Result<(), DataError> {
        let (offset, pages) = self.bytes_mut(id, addr, from.len() as u64)?;
        pages.write(offset, from);
        Ok(())
    }

    /// Adds to the 8 bytes at `addr` (little endian, as an x86 or Arm host has them), modulo
    /// 2⁶⁴, and returns the value before.
    ///
    /// # Errors
    /// See [`DataError`].
    pub fn fetch_add(&mut self, id: RegionId, addr: u64, add: u64) -> Result<u64, DataError> {
        self.atomic(id, addr, |old| Some(old.wrapping_add(add)))
    }

    /// Writes `swap` to the 8 bytes at `addr` if they hold `compare`, and returns the value
    /// before.
    ///
    /// # Errors
    /// See [`DataError`].
    pub fn cmp_swap(
        &mut self,
        id: RegionId,
        addr: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, DataError> {
        self.atomic(id, addr, |old| (old == compare).then_some(swap))
    }

    fn atomic(
        &mut self,
        id: RegionId,
        addr: u64,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, DataError> {
        if !addr.is_multiple_of(8) {
            return Err(DataError::Misaligned);
        }
        let (offset, pages) = self.bytes_mut(id, addr, 8)?;
        let mut word = [0; 8];
        pages.read(offset, &mut word);
        let old = u64::from_le_bytes(word);
        if let Some(new) = change(old) {
            pages.write(offset, &new.to_le_bytes());
        }
        Ok(old)
    }

    /// Regions registered.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no region is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of this process that the contents of all regions take.
    pub fn resident_bytes(&self) -> u64 {
        self.slots.iter().filter_map(|s| s.bytes.as_ref()).map(Pages::resident).sum()
    }
}

/// Offset of a range in a region, `None` when it is not wholly inside or wraps around.
fn offset_in(region: &Region, addr: u64, len: u64) -> Option<u64> {
    let offset = addr.checked_sub(region.addr)?;
    let end = offset.checked_add(len)?;
    (end <= region.len).then_some(offset)
}

fn check(
    region: Option<&Region>,
    pd: Pd,
    addr: u64,
    len: u64,
    need: AccessFlags,
) -> Result<&Region, MemoryError> {
    let region = region.ok_or(MemoryError::InvalidKey)?;
    if region.pd != pd {
        return Err(MemoryError::PdMismatch { region: region.pd });
    }
    let missing = need.difference(region.access);
    if !missing.is_empty() {
        return Err(MemoryError::AccessDenied { missing });
    }
    offset_in(region, addr, len).ok_or(MemoryError::OutOfRange)?;
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: Pd = Pd(1);
    const HOST: RegionKind = RegionKind::Host { numa: 0 };
    const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
        .union(AccessFlags::REMOTE_WRITE)
        .union(AccessFlags::REMOTE_READ)
        .union(AccessFlags::REMOTE_ATOMIC);

    fn data(t: &mut RegionTable, len: u64) -> Region {
        t.register(PD, len, HOST, ALL, Contents::Data).unwrap()
    }

    #[test]
    fn ranges_on_both_sides_of_both_ends_and_without_wrap() {
        let mut t = RegionTable::new();
        let r = data(&mut t, 100);
        let ok = |addr, len| t.check_local(r.lkey, PD, addr, len, AccessFlags::empty()).is_ok();
        assert!(ok(r.addr, 100) && ok(r.addr, 0) && ok(r.addr + 100, 0) && ok(r.addr + 99, 1));
        assert!(!ok(r.addr, 101) && !ok(r.addr - 1, 1) && !ok(r.addr + 100, 1));
        assert!(!ok(r.addr + 1, u64::MAX) && !ok(u64::MAX, 2));
        let mut byte = [0];
        assert_eq!(t.read(r.id, r.addr + 99, &mut byte), Ok(()));
        assert_eq!(t.read(r.id, r.addr + 100, &mut byte), Err(DataError::OutOfRange));
        assert_eq!(t.write(r.id, r.addr - 1, &[1]), Err(DataError::OutOfRange));
    }

    #[test]
    fn checks_come_in_the_order_key_pd_rights_range() {
        let mut t = RegionTable::new();
        let r = t.register(PD, 64, HOST, AccessFlags::REMOTE_READ, Contents::Data).unwrap();
        let need = AccessFlags::REMOTE_WRITE;
        let check = |rkey, pd, need, len| t.check_remote(rkey, pd, r.addr, len, need).err();
        let missing = MemoryError::AccessDenied { missing: need };
        assert_eq!(check(Rkey(r.lkey.0), Pd(2), need, 65), Some(MemoryError::InvalidKey));
        let other_pd = MemoryError::PdMismatch { region: PD };
        assert_eq!(check(r.rkey, Pd(2), need, 65), Some(other_pd));
        assert_eq!(check(r.rkey, PD, need, 65), Some(missing));
        let read = AccessFlags::REMOTE_READ;
        assert_eq!(check(r.rkey, PD, read, 65), Some(MemoryError::OutOfRange));
        assert_eq!(check(r.rkey, PD, read, 64), None);
    }

    #[test]
    fn keys_find_their_region_and_no_other() {
        let mut t = RegionTable::new();
        let all: Vec<_> = (0..100).map(|i| data(&mut t, i + 1)).collect();
        for r in &all {
            assert_eq!(t.by_lkey(r.lkey), Some(r));
            assert_eq!(t.by_rkey(r.rkey), Some(r));
            assert_eq!(t.by_lkey(Lkey(r.rkey.0)), None);
            assert_eq!(t.by_rkey(Rkey(r.lkey.0)), None);
        }
        for key in [0, 1, 0x100, 0x7ff, 0x800 + 100 * 256, u32::MAX] {
            assert_eq!((t.by_lkey(Lkey(key)), t.by_rkey(Rkey(key))), (None, None), "{key:x}");
        }
        for pair in all.windows(2) {
            assert!(pair[0].addr + pair[0].len + PAGE <= pair[1].addr, "a gap between regions");
            assert_eq!(pair[1].addr % PAGE, 0);
        }
    }

    #[test]
    fn a_deregistered_region_is_gone_for_keys_ids_and_bytes() {
        let mut t = RegionTable::new();
        let r = data(&mut t, 64);
        t.write(r.id, r.addr, &[1; 64]).unwrap();
        assert_eq!(t.deregister(r.id), Ok(()));
        assert_eq!(t.deregister(r.id), Err(DataError::Gone));
        let local = t.check_local(r.lkey, PD, r.addr, 1, AccessFlags::empty());
        assert_eq!(local, Err(MemoryError::InvalidKey));
        assert_eq!(t.read(r.id, r.addr, &mut [0]), Err(DataError::Gone));
        assert_eq!((t.len(), t.resident_bytes()), (0, 0));
        // The slot is used again under other keys, and the old ones stay dead.
        let again = data(&mut t, 64);
        assert_ne!((again.lkey, again.id), (r.lkey, r.id));
        assert_eq!(t.by_lkey(r.lkey), None);
        let mut bytes = [9; 64];
        t.read(again.id, again.addr, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64], "no bytes of the region before");
    }

    #[test]
    fn rights_that_contradict_and_empty_regions_are_refused() {
        let mut t = RegionTable::new();
        let refused = |t: &mut RegionTable, len, access| {
            t.register(PD, len, HOST, access, Contents::Data).unwrap_err()
        };
        for flags in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
            assert_eq!(refused(&mut t, 1, flags), RegisterError::NeedsLocalWrite);
        }
        assert_eq!(refused(&mut t, 0, ALL), RegisterError::Empty);
        assert_eq!(refused(&mut t, u64::MAX, ALL), RegisterError::Exhausted);
        assert_eq!(refused(&mut t, 1 << 47, ALL), RegisterError::Exhausted);
        assert!(t.is_empty());
    }

    #[test]
    fn virtual_regions_have_lengths_but_no_bytes() {
        let mut t = RegionTable::new();
        let gpu = RegionKind::Gpu { node: 4 };
        let r = t.register(PD, 1 << 40, gpu, ALL, Contents::Virtual).unwrap();
        assert!(t.check_remote(r.rkey, PD, r.addr, 1 << 40, ALL).is_ok());
        assert_eq!(t.read(r.id, r.addr, &mut [0]), Err(DataError::Virtual));
        assert_eq!(t.write(r.id, r.addr, &[0]), Err(DataError::Virtual));
        assert_eq!(t.fetch_add(r.id, r.addr, 1), Err(DataError::Virtual));
        assert_eq!(r.kind.place(), MemoryPlace(4));
    }

    #[test]
    fn atomics_change_8_aligned_bytes_and_return_the_old_value() {
        let mut t = RegionTable::new();
        let r = data(&mut t, 24);
        assert_eq!(t.fetch_add(r.id, r.addr + 8, u64::MAX), Ok(0));
        assert_eq!(t.fetch_add(r.id, r.addr + 8, 2), Ok(u64::MAX));
        assert_eq!(t.cmp_swap(r.id, r.addr + 8, 0, 7), Ok(1), "no match, no change");
        assert_eq!(t.cmp_swap(r.id, r.addr + 8, 1, 0x0102), Ok(1));
        let mut bytes = [0xff; 24];
        t.read(r.id, r.addr, &mut bytes).unwrap();
        assert_eq!(bytes[..8], [0; 8]);
        assert_eq!(bytes[8..16], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..], [0; 8]);
        assert_eq!(t.fetch_add(r.id, r.addr + 4, 1), Err(DataError::Misaligned));
        assert_eq!(t.fetch_add(r.id, r.addr + 16, 1), Ok(0));
        assert_eq!(t.fetch_add(r.id, r.addr + 24, 1), Err(DataError::OutOfRange));
    }
}
