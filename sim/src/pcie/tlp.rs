//! How many TLPs a transfer takes and how many bytes they are on a link.
//!
//! Closed forms, no state. Protocol reference 6.5: a write of L bytes is `ceil(L/MPS)` TLPs, a
//! read `ceil(L/MRRS)` requests and between `ceil(L/MPS)` and `ceil(L/RCB) + 1` completions per
//! request; no TLP crosses a 4-KiB line.

use doorbell_core::units::BitRate;

use super::config::{Generation, TlpFormat};

/// No TLP crosses a multiple of this address.
pub const PAGE: u32 = 4096;

/// Payload of one MMIO TLP: a write-combining line, or less.
pub const MMIO_LINE: u32 = 64;

/// TLPs and the bytes that they occupy on a link, headers and payload.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Cut {
    /// Number of TLPs.
    pub tlps: u32,
    /// Bytes on the link.
    pub wire: u32,
}

/// Bytes from `addr` to the next 4-KiB line.
pub const fn to_page_end(addr: u64) -> u32 {
    PAGE - (addr as u32 & (PAGE - 1))
}

/// TLPs of at most `size` bytes that `len` bytes from `addr` take; `size` divides 4 KiB.
const fn pieces(addr: u64, len: u32, size: u32) -> u32 {
    let first = to_page_end(addr);
    if len <= first {
        return len.div_ceil(size);
    }
    // From the first line on, everything is aligned, and `size` divides the 4 KiB.
    first.div_ceil(size) + (len - first).div_ceil(size)
}

impl TlpFormat {
    /// Protocol reference 6.5 with MPS 256, MRRS 512, RCB 64; completions combined up to MPS, no
    /// DLLP and SKIP bytes.
    pub const PCI_SIG: Self = Self {
        write_header: 24,
        read_header: 24,
        completion_header: 20,
        max_payload: 256,
        max_read_request: 512,
        read_completion_boundary: 64,
        completion_combine: 256,
        dllp_bytes: 0,
        dllp_interval: 1,
        skip_bytes: 0,
        skip_interval: 1,
    };

    /// Kalia et al., ATC'16, generation 3: 26 and 22 bytes, completions of 128 bytes.
    pub const KALIA_GEN3: Self = Self {
        write_header: 26,
        read_header: 26,
        completion_header: 22,
        completion_combine: 128,
        ..Self::PCI_SIG
    };

    /// A DMA write.
    pub const fn write(&self, addr: u64, len: u32) -> Cut {
        let tlps = pieces(addr, len, self.max_payload);
        Cut { tlps, wire: len + tlps * self.write_header }
    }

    /// A write by a core: 64-byte lines, the last one shorter when `len` is no multiple. Whoever
    /// copies whole lines (BlueFlame) passes the rounded length.
    pub const fn mmio(&self, len: u32) -> Cut {
        let tlps = len.div_ceil(MMIO_LINE);
        Cut { tlps, wire: len + tlps * self.write_header }
    }

    /// The requests of a read.
    pub const fn read(&self, addr: u64, len: u32) -> Cut {
        let tlps = pieces(addr, len, self.max_read_request);
        Cut { tlps, wire: tlps * self.read_header }
    }

    /// Largest completion: what the host combines, bounded by MPS.
    pub const fn completion_size(&self) -> u32 {
        if self.completion_combine < self.max_payload {
            self.completion_combine
        } else {
            self.max_payload
        }
    }

    /// The completions of a read: each request is answered by pieces that end at multiples of
    /// the completion size, except at its own ends.
    pub const fn completions(&self, addr: u64, len: u32) -> Cut {
        let first = to_page_end(addr);
        let tlps = if len <= first {
            self.completions_in_page(addr, len)
        } else {
            // After the first 4-KiB line requests and completions are aligned.
            let rest = len - first;
            let unit = if self.completion_size() < self.max_read_request {
                self.completion_size()
            } else {
                self.max_read_request
            };
            self.completions_in_page(addr, first) + rest.div_ceil(unit)
        };
        Cut { tlps, wire: len + tlps * self.completion_header }
    }

    /// Cuts are at multiples of the completion size and where a request ends; a place where
    /// both fall together is one cut. Both sizes are powers of two, so either all cuts of the
    /// rarer kind are also of the other kind, or none is.
    const fn completions_in_page(&self, addr: u64, len: u32) -> u32 {
        let size = self.completion_size();
        let mrrs = self.max_read_request;
        let offset = addr as u32 & (PAGE - 1);
        let aligned_cuts = (offset + len - 1) / size - offset / size;
        let request_cuts = len.div_ceil(mrrs) - 1;
        let finer = if size < mrrs { size } else { mrrs };
        let rarer = if aligned_cuts < request_cuts { aligned_cuts } else { request_cuts };
        let common = if offset.is_multiple_of(finer) { rarer } else { 0 };
        1 + aligned_cuts + request_cuts - common
    }

    /// Rate that is left for TLPs on a link: encoding and SKIP symbols taken off.
    ///
    /// # Panics
    /// When `width` is zero.
    pub const fn link_rate(&self, generation: Generation, width: u8) -> BitRate {
        let raw = generation.encoded_rate(width).as_bps() as u128;
        let whole = self.skip_interval as u128 + self.skip_bytes as u128;
        let bps = raw * self.skip_interval as u128 / whole;
        match BitRate::new(bps as u64) {
            Some(rate) => rate,
            None => panic!("a link without rate"),
        }
    }
}

impl Generation {
    /// Bits per second of `width` lanes after encoding: 8b/10b, 128b/130b, or 242 of 256 FLIT
    /// bytes.
    ///
    /// # Panics
    /// When `width` is zero.
    pub const fn encoded_rate(self, width: u8) -> BitRate {
        let (lane, num, den) = match self {
            Self::Gen1 => (2_500_000_000, 8, 10),
            Self::Gen2 => (5_000_000_000, 8, 10),
            Self::Gen3 => (8_000_000_000, 128, 130),
            Self::Gen4 => (16_000_000_000, 128, 130),
            Self::Gen5 => (32_000_000_000, 128, 130),
            Self::Gen6 => (64_000_000_000_u64, 242, 256),
        };
        match BitRate::new(lane * width as u64 * num / den) {
            Some(rate) => rate,
            None => panic!("a link of no lanes"),
        }
    }

    /// Payload rate when every TLP carries `payload` bytes with `header` bytes around them and
    /// `control` bytes of DLLPs follow every `tlps` TLPs in the same direction: the planning
    /// formula of UCX (calibration rows C-PCIE-037 to 040).
    pub const fn usable_rate(
        self,
        width: u8,
        payload: u32,
        header: u32,
        control: u32,
        tlps: u32,
    ) -> BitRate {
        let rate = self.encoded_rate(width).as_bps() as u128;
        let sent = (payload as u128 + header as u128) * tlps as u128 + control as u128;
        match BitRate::new((rate * payload as u128 * tlps as u128 / sent) as u64) {
            Some(rate) => rate,
            None => panic!("a link without payload"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: TlpFormat = TlpFormat::PCI_SIG;

    /// Counts completions byte by byte, straight from the rule.
    fn completions_by_hand(f: &TlpFormat, addr: u64, len: u32) -> u32 {
        let mut tlps = 0;
        let mut request_left = 0;
        let mut at = addr;
        let end = addr + u64::from(len);
        let mut open = false;
        while at < end {
            if request_left == 0 {
                let page = PAGE - (at % u64::from(PAGE)) as u32;
                request_left = f.max_read_request.min(page).min((end - at) as u32);
                open = false;
            }
            if !open {
                tlps += 1;
                open = true;
            }
            at += 1;
            request_left -= 1;
            if at.is_multiple_of(u64::from(f.completion_size())) {
                open = false;
            }
        }
        tlps
    }

    #[test]
    fn requester_cost_of_an_8_byte_write_table() {
        // Protocol reference 6.5, (down, up) bytes of each mode.
        let doorbell = F.mmio(8).wire;
        let blueflame = F.mmio(64).wire;
        let wqe = (F.completions(0, 64).wire, F.read(0, 64).wire);
        let data = (F.completions(0, 8).wire, F.read(0, 8).wire);
        let cqe = F.write(0, 64).wire;
        assert_eq!((doorbell + wqe.0 + data.0, wqe.1 + data.1 + cqe), (144, 136));
        assert_eq!((doorbell + wqe.0, wqe.1 + cqe), (116, 112));
        assert_eq!((blueflame + data.0, data.1 + cqe), (116, 112));
        assert_eq!((blueflame, cqe), (88, 88));
        // Responder: WRITE, SEND, READ.
        assert_eq!(F.write(0, 8).wire, 32);
        let rq = (F.completions(0, 16).wire, F.read(0, 16).wire);
        assert_eq!((rq.0, rq.1 + F.write(0, 8).wire + cqe), (36, 144));
        assert_eq!(data, (28, 24));
    }

    #[test]
    fn ten_wqes_of_65_bytes_are_1800_or_1534_bytes() {
        let k = TlpFormat::KALIA_GEN3;
        let mmio: u32 = (0..10).map(|_| k.mmio(65_u32.next_multiple_of(64)).wire).sum();
        assert_eq!(mmio, 1800); // C-PCIE-041
        let fetch = k.mmio(8).wire + k.completions(0, 10 * 128).wire;
        assert_eq!(fetch, 1534); // C-PCIE-042
        let one_by_one: u32 = (0..10).map(|i| k.completions(i * 128, 128).wire).sum();
        assert_eq!(k.mmio(8).wire + one_by_one, 1534);
    }

    #[test]
    fn both_sides_of_mps_mrrs_rcb_and_4_kib() {
        assert_eq!(F.write(0, 256).tlps, 1);
        assert_eq!(F.write(0, 257).tlps, 2);
        assert_eq!(F.read(0, 512).tlps, 1);
        assert_eq!(F.read(0, 513).tlps, 2);
        assert_eq!(F.write(4096 - 64, 64).tlps, 1);
        assert_eq!(F.write(4096 - 64, 65).tlps, 2);
        assert_eq!(F.read(4096 - 64, 65).tlps, 2);
        assert_eq!(F.completions(0, 256).tlps, 1);
        assert_eq!(F.completions(0, 257).tlps, 2);
        assert_eq!(F.completions(255, 2).tlps, 2);
        let line = TlpFormat { completion_combine: 64, ..F };
        assert_eq!(line.completions(0, 64).tlps, 1);
        assert_eq!(line.completions(1, 64).tlps, 2);
        assert_eq!(line.completions(63, 512).tlps, 512 / 64 + 1);
        assert_eq!(F.mmio(64).tlps, 1);
        assert_eq!(F.mmio(65).tlps, 2);
    }

    #[test]
    fn completions_equal_a_count_by_hand() {
        for (mps, mrrs, combine) in
            [(256, 512, 256), (128, 128, 64), (512, 4096, 512), (256, 64, 256), (512, 256, 128)]
        {
            let f = TlpFormat {
                max_payload: mps,
                max_read_request: mrrs,
                completion_combine: combine,
                ..F
            };
            for addr in [0, 1, 63, 64, 65, 128, 255, 256, 500, 4000, 4095, 4096, 70_001] {
                for len in [1, 2, 63, 64, 65, 127, 128, 256, 257, 511, 512, 513, 4096, 9000] {
                    let by_hand = completions_by_hand(&f, addr, len);
                    assert_eq!(f.completions(addr, len).tlps, by_hand, "{f:?} {addr} {len}");
                }
            }
        }
    }

    #[test]
    fn link_rates() {
        // Kalia et al.: 500 and 984.6 MB/s per lane; protocol 6.5: 126.0, 252.1, 504.1 Gb/s x16.
        assert_eq!(Generation::Gen2.encoded_rate(1).as_bps(), 8 * 500_000_000);
        assert_eq!(Generation::Gen3.encoded_rate(1).as_bps() / 8 / 100_000, 9846);
        for (generation, tenths) in
            [(Generation::Gen3, 1260), (Generation::Gen4, 2521), (Generation::Gen5, 5041)]
        {
            let bps = generation.encoded_rate(16).as_bps();
            assert_eq!((bps + 50_000_000) / 100_000_000, tenths);
        }
        assert_eq!(Generation::Gen6.encoded_rate(16).as_bps(), 968_000_000_000);
        let skip = TlpFormat { skip_bytes: 4, skip_interval: 1538, ..F };
        let (with, without) =
            (skip.link_rate(Generation::Gen3, 8), F.link_rate(Generation::Gen3, 8));
        assert_eq!(with.as_bps(), without.as_bps() * 1538 / 1542);
    }

    #[test]
    fn usable_rates_of_ucx() {
        // C-PCIE-037 to 040, hundredths of Gb/s.
        let rows = [
            (Generation::Gen3, 8, 5641),
            (Generation::Gen4, 8, 11281),
            (Generation::Gen4, 16, 22562),
            (Generation::Gen5, 16, 45124),
        ];
        for (generation, width, hundredths) in rows {
            let bps = generation.usable_rate(width, 256, 26, 16, 4).as_bps();
            assert!((bps / 1_000_000).abs_diff(hundredths * 10) <= 15, "{generation:?} {bps}");
        }
    }
}
