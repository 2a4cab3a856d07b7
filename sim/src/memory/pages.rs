//! Bytes of a region, allocated where they are written.

const PAGE: usize = 4096;
/// Pages of one directory: 2 MiB.
const DIRECTORY: usize = 512;

type Page = Option<Box<[u8]>>;

/// A zeroed byte range of fixed length in which only written pages take memory. Two levels, so
/// that a huge range that nobody touches costs 8 bytes per 2 MiB.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    len: u64,
    directories: Box<[Option<Box<[Page]>>]>,
    resident: u64,
}

/// Looks at all bytes even if the first one says it: many at a time, which is sooner done.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |any, b| any | b) == 0
}

impl Pages {
    pub fn new(len: u64) -> Self {
        let count = len.div_ceil((PAGE * DIRECTORY) as u64) as usize;
        Self { len, directories: (0..count).map(|_| None).collect(), resident: 0 }
    }

    /// Bytes allocated for pages.
    pub fn resident(&self) -> u64 {
        self.resident
    }

    /// The part of `offset..offset + len` within the page of `offset`: page, place in it, length.
    fn part(offset: u64, len: usize) -> (usize, usize, usize) {
        let at = (offset % PAGE as u64) as usize;
        ((offset / PAGE as u64) as usize, at, len.min(PAGE - at))
    }

    fn page(&self, page: usize) -> Option<&[u8]> {
        self.directories[page / DIRECTORY].as_ref()?[page % DIRECTORY].as_deref()
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let left = self.len - (page / DIRECTORY * DIRECTORY * PAGE) as u64;
        let pages = left.div_ceil(PAGE as u64).min(DIRECTORY as u64);
        let directory = self.directories[page / DIRECTORY]
            .get_or_insert_with(|| (0..pages).map(|_| None).collect());
        let size = (self.len - (page * PAGE) as u64).min(PAGE as u64);
        let resident = &mut self.resident;
        directory[page % DIRECTORY].get_or_insert_with(|| {
            *resident += size;
            vec![0; size as usize].into()
        })
    }

    /// Reads; the caller has checked the bounds.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        debug_assert!(offset + to.len() as u64 <= self.len);
        let mut done = 0;
        while done < to.len() {
            let (page, at, n) = Self::part(offset + done as u64, to.len() - done);
            match self.page(page) {
                Some(bytes) => to[done..done + n].copy_from_slice(&bytes[at..at + n]),
                None => to[done..done + n].fill(0),
            }
            done += n;
        }
    }

    /// Writes; the caller has checked the bounds. Zeros written to a page that is all zero take
    /// no memory.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        debug_assert!(offset + from.len() as u64 <= self.len);
        let mut done = 0;
        while done < from.len() {
            let (page, at, n) = Self::part(offset + done as u64, from.len() - done);
            let bytes = &from[done..done + n];
            if self.page(page).is_some() || !is_zero(bytes) {
                self.page_mut(page)[at..at + n].copy_from_slice(bytes);
            }
            done += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written_across_pages_and_directories() {
        for start in [0, 1, 4090, 4096, (PAGE * DIRECTORY) as u64 - 3] {
            let mut pages = Pages::new((PAGE * DIRECTORY + 10_000) as u64);
            let data: Vec<u8> = (1..=200).collect();
            pages.write(start, &data);
            let mut back = vec![9; 202];
            let before = start.saturating_sub(1);
            pages.read(before, &mut back);
            let skip = (start - before) as usize;
            assert_eq!(&back[skip..skip + 200], &data[..]);
            assert!(back[..skip].iter().chain(&back[skip + 200..]).all(|b| *b == 0));
        }
    }

    #[test]
    fn only_written_pages_take_memory() {
        let mut pages = Pages::new(1 << 36);
        assert_eq!(pages.resident(), 0);
        pages.write(1 << 35, &[0; 5000]);
        assert_eq!(pages.resident(), 0, "zeros need no page");
        pages.write((1 << 35) + 4095, &[1, 1]);
        assert_eq!(pages.resident(), 8192);
        pages.write((1 << 35) + 4095, &[0, 0]);
        let mut back = [7; 2];
        pages.read((1 << 35) + 4095, &mut back);
        assert_eq!((back, pages.resident()), ([0, 0], 8192));
        let mut small = Pages::new(100);
        small.write(99, &[1]);
        assert_eq!(small.resident(), 100);
    }
}
