//! Registered memory, and the only code that touches its bytes.
//!
//! A NIC writes registered memory at any moment, so no Rust reference to it may exist, not even
//! for a moment. Bytes move between it and ordinary memory through raw pointers, with the meaning
//! of relaxed atomic accesses, byte by byte: by the processor's string copy where there is one
//! (it is opaque to the compiler, and as fast as `memcpy`), by atomic words elsewhere and under
//! Miri.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::alloc::Layout;
use std::sync::Arc;

use doorbell_core::transport::{MemError, Reduce};

use super::objects::{Errno, Pd};
use super::sys::{errno, ibv_mr};

/// Regions begin on a page, as large ones of any allocator do; it also serves every element.
const PAGE: usize = 4096;

/// Regions up to here are not compared with the memory of the machine.
const WORTH_A_LOOK: u64 = 64 << 20;

/// `MemAvailable` of the kernel.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory that belongs to one registration, and the registration.
#[derive(Debug)]
pub struct Region {
    bytes: NonNull<u8>,
    len: u64,
    layout: Layout,
    mr: *mut ibv_mr,
    pd: Arc<Pd>,
}

// SAFETY: the memory is reached through raw pointers and atomics only, and libibverbs may be
// called from any thread.
unsafe impl Send for Region {}

impl Region {
    /// Allocates `len` zeroed bytes, at least one, on NUMA node `numa`, and registers them.
    pub fn alloc(pd: &Arc<Pd>, len: u64, numa: u8, access: i32) -> Result<Self, RegionError> {
        let size = usize::try_from(len).ok().and_then(|n| n.checked_next_multiple_of(PAGE));
        let layout = size.and_then(|n| Layout::from_size_align(n, PAGE).ok());
        let layout = layout.ok_or(RegionError::Memory { available: None })?;
        if layout.size() == 0 {
            return Err(RegionError::Register(Errno(libc::EINVAL)));
        }
        // The kernel promises memory that it has not, and ends somebody when a registration pins
        // it.
        if layout.size() as u64 > WORTH_A_LOOK
            && let Some(available) = available_bytes().filter(|n| *n < layout.size() as u64)
        {
            return Err(RegionError::Memory { available: Some(available) });
        }
        let bytes = pages::map(layout)
            .ok_or_else(|| RegionError::Memory { available: available_bytes() })?;
        // From here on the drop of `memory` frees the bytes.
        let mut memory = Self { bytes, len, layout, mr: core::ptr::null_mut(), pd: pd.clone() };
        numa::prefer(bytes, layout.size(), numa).map_err(RegionError::Numa)?;
        let (at, provider) = (bytes.as_ptr().cast::<c_void>(), pd.context().provider());
        // SAFETY: the domain is alive, and the bytes are ours until the registration ends. Fewer
        // bytes than were allocated are registered: keys end where the region ends.
        let mr = unsafe { provider.reg_mr(pd.as_ptr(), at, len as usize, access) };
        if mr.is_null() {
            return Err(RegionError::Register(Errno(errno())));
        }
        memory.mr = mr;
        Ok(memory)
    }

    /// First address.
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    /// Local and remote key.
    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration is alive.
        unsafe { ((*self.mr).lkey, (*self.mr).rkey) }
    }

    /// The pointer to `len` bytes at `offset`.
    fn at(&self, offset: u64, len: u64) -> Result<*mut u8, MemError> {
        match offset.checked_add(len) {
            // SAFETY: inside the allocation, whose size fits `usize`.
            Some(end) if end <= self.len => Ok(unsafe { self.bytes.as_ptr().add(offset as usize) }),
            _ => Err(MemError::OutOfRange { offset, len, region: self.len }),
        }
    }

    /// Copies bytes in.
    pub fn copy_in(&self, offset: u64, from: &[u8]) -> Result<(), MemError> {
        let to = self.at(offset, from.len() as u64)?;
        // SAFETY: both ranges are valid for the length and do not overlap: a slice is never over
        // registered memory.
        unsafe { store_bytes(to, from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Copies bytes out.
    pub fn copy_out(&self, offset: u64, to: &mut [u8]) -> Result<(), MemError> {
        let from = self.at(offset, to.len() as u64)?;
        // SAFETY: as above.
        unsafe { load_bytes(to.as_mut_ptr(), from, to.len()) };
        Ok(())
    }

    /// The word at `offset`.
    fn word(&self, offset: u64, len: u64) -> Result<&AtomicU64, MemError> {
        if len != 8 || !offset.is_multiple_of(8) {
            return Err(MemError::Misaligned { element: 8 });
        }
        let at = self.at(offset, 8)?;
        // SAFETY: in bounds and aligned, since the region begins on a page; an atomic may be
        // shared with whoever else writes.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Loads 8 aligned bytes, with acquire order.
    pub fn load_u64(&self, offset: u64, len: u64) -> Result<u64, MemError> {
        Ok(u64::from_le(self.word(offset, len)?.load(Ordering::Acquire)))
    }

    /// Stores 8 aligned bytes, with release order.
    pub fn store_u64(&self, offset: u64, len: u64, value: u64) -> Result<(), MemError> {
        self.word(offset, len)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    /// `self[to..] += from[at..]`, element by element; the ranges may overlap.
    pub fn reduce(
        &self,
        op: Reduce,
        to: u64,
        from: &Self,
        at: u64,
        len: u64,
    ) -> Result<(), MemError> {
        let element = op.element_bytes();
        if [to, at, len].iter().any(|v| !v.is_multiple_of(element)) {
            return Err(MemError::Misaligned { element });
        }
        let (to, from) = (self.at(to, len)?, from.at(at, len)?);
        let count = (len / element) as usize;
        // SAFETY: both ranges are in bounds and aligned to the element.
        unsafe {
            match op {
                Reduce::SumI64 => reduce64(to, from, count, u64::wrapping_add),
                Reduce::SumF64 => {
                    reduce64(to, from, count, |a, b| {
                        Reduce::sum_f64(f64::from_bits(a), f64::from_bits(b)).to_bits()
                    });
                }
                Reduce::SumF32 => {
                    reduce32(to, from, count, |a, b| {
                        Reduce::sum_f32(f32::from_bits(a), f32::from_bits(b)).to_bits()
                    });
                }
            }
        }
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.mr.is_null() {
            // SAFETY: registered here and deregistered nowhere else; afterwards no device reaches
            // the bytes.
            let rc = unsafe { self.pd.context().provider().dereg_mr(self.mr) };
            debug_assert_eq!(rc, 0, "dereg_mr failed");
        }
        // SAFETY: mapped with this layout, and nobody uses them any more.
        unsafe { pages::unmap(self.bytes, self.layout) };
    }
}

/// Why there is no region.
#[derive(Copy, Clone, Debug)]
pub enum RegionError {
    /// Not so much memory.
    Memory {
        /// Bytes that there are, if the kernel tells.
        available: Option<u64>,
    },
    /// The NUMA node is not to be had.
    Numa(Errno),
    /// The registration failed.
    Register(Errno),
}

/// Copies to memory that a device may access at the same time.
///
/// # Safety
/// Both ranges are valid for `len` bytes; they do not overlap.
#[inline]
unsafe fn store_bytes(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    unsafe {
        copy_string(to, from, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for i in 0..len {
        // SAFETY: in range; an atomic store of the device's memory, a plain load of ours.
        unsafe {
            core::sync::atomic::AtomicU8::from_ptr(to.add(i)).store(*from.add(i), Ordering::Relaxed)
        };
    }
}

/// Copies from memory that a device may access at the same time.
///
/// # Safety
/// Both ranges are valid for `len` bytes; they do not overlap.
#[inline]
unsafe fn load_bytes(to: *mut u8, from: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    unsafe {
        copy_string(to, from, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for i in 0..len {
        // SAFETY: in range; an atomic load of the device's memory, a plain store to ours.
        unsafe {
            *to.add(i) = core::sync::atomic::AtomicU8::from_ptr(from.add(i)).load(Ordering::Relaxed)
        };
    }
}

/// The processor's own copy.
///
/// # Safety
/// Both ranges are valid for `len` bytes; they do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_string(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI says.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

macro_rules! reduce {
    ($name:ident, $word:ty, $atomic:ty) => {
        /// `to[i] = op(to[i], from[i])` on little-endian words.
        ///
        /// # Safety
        /// Both ranges hold `count` aligned words.
        unsafe fn $name(
            to: *mut u8,
            from: *mut u8,
            count: usize,
            op: impl Fn($word, $word) -> $word,
        ) {
            for i in 0..count {
                // SAFETY: in range and aligned; a device may access the same words.
                let (a, b) = unsafe {
                    let (to, from) = (to.cast::<$word>().add(i), from.cast::<$word>().add(i));
                    (<$atomic>::from_ptr(to), <$atomic>::from_ptr(from))
                };
                let sum = op(
                    <$word>::from_le(a.load(Ordering::Relaxed)),
                    <$word>::from_le(b.load(Ordering::Relaxed)),
                );
                a.store(sum.to_le(), Ordering::Relaxed);
            }
        }
    };
}

reduce!(reduce64, u64, AtomicU64);
reduce!(reduce32, u32, AtomicU32);

/// Zeroed pages that nothing has touched yet, so that their place can still be chosen: an allocator
/// would have written zeros to them.
#[cfg(not(miri))]
mod pages {
    use super::{Layout, NonNull};

    pub fn map(layout: Layout) -> Option<NonNull<u8>> {
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice, on a page as the layout wants.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), layout.size(), access, how, -1, 0) };
        if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) }
    }

    /// # Safety
    /// Mapped by [`map`] with this layout; unused from here on.
    pub unsafe fn unmap(bytes: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        let rc = unsafe { libc::munmap(bytes.as_ptr().cast(), layout.size()) };
        debug_assert_eq!(rc, 0, "munmap failed");
    }
}

/// The same from the allocator, which Miri watches more closely.
#[cfg(miri)]
mod pages {
    use super::{Layout, NonNull};

    pub fn map(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    /// # Safety
    /// Mapped by [`map`] with this layout; unused from here on.
    pub unsafe fn unmap(bytes: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(bytes.as_ptr(), layout) };
    }
}

/// Placement of memory on a NUMA node.
mod numa {
    use super::{Errno, NonNull};

    /// Asks the kernel to take the pages from `node`, before anything has touched them. On a
    /// machine with one node there is nothing to ask.
    pub fn prefer(bytes: NonNull<u8>, len: usize, node: u8) -> Result<(), Errno> {
        if cfg!(miri) || node == 0 && !std::fs::exists(NODE_1).unwrap_or(false) {
            return Ok(());
        }
        let mut mask = [0_u64; 4];
        mask[usize::from(node) / 64] |= 1 << (node % 64);
        // SAFETY: the range is ours, and the mask has the number of bits that is passed.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                bytes.as_ptr(),
                len,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                u64::BITS * mask.len() as u32,
                0,
            )
        };
        if rc == 0 { Ok(()) } else { Err(Errno(super::errno())) }
    }

    const NODE_1: &str = "/sys/devices/system/node/node1";
}
