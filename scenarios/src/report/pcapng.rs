//! Packets of a run as a pcapng file, for Wireshark and tshark.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use doorbell_core::units::Time;
use doorbell_sim::capture::{CaptureSink, Direction, Interface, LinkType, Seen};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::SectionHeaderBlock;
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};

/// Time stamps count units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Bytes of a comment; the length of an option has 16 bits.
const MAX_COMMENT: usize = 1024;

/// Bytes of the header that an extensible record format (ERF) puts before a packet.
pub const ERF_BYTES: usize = 16;

/// ERF type of a packet of InfiniBand, LRH to VCRC.
const ERF_INFINIBAND: u8 = 21;

/// ERF flag: the record is as long as its packet.
const ERF_VARIABLE: u8 = 1 << 2;

/// Writes pcapng as packets come: one section, one interface per port, time stamps in nanoseconds
/// (picoseconds are cut off) since the start of the run, direction and comment as options. Packets
/// of native InfiniBand are ERF records (link type 197), since readers know no other form.
pub struct PcapNg<W: Write> {
    /// Link type of each interface.
    links: Vec<LinkType>,
    /// The record being written.
    record: Vec<u8>,
    writer: Option<PcapNgWriter<W>>,
    error: Option<io::Error>,
}

impl<W: Write> PcapNg<W> {
    /// Writes the head of the file. An error shows at the [`finish`](CaptureSink::finish).
    pub fn new(writer: W) -> Self {
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            major_version: 1,
            minor_version: 0,
            section_length: -1,
            options: vec![],
        };
        match PcapNgWriter::with_section_header(writer, section) {
            Ok(writer) => Self::of(Some(writer), None),
            Err(error) => Self::of(None, Some(io_error(error))),
        }
    }

    const fn of(writer: Option<PcapNgWriter<W>>, error: Option<io::Error>) -> Self {
        Self { links: Vec::new(), record: Vec::new(), writer, error }
    }

    /// Writes a block; after the first error nothing more.
    fn write<'a>(&mut self, block: impl PcapNgBlock<'a>) {
        let Some(writer) = self.writer.as_mut() else { return };
        if let Err(error) = writer.write_pcapng_block(block) {
            (self.writer, self.error) = (None, Some(io_error(error)));
        }
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// Simulated time as pcapng has it.
const fn stamp(at: Time) -> Duration {
    Duration::from_nanos(at.as_ps() / 1_000)
}

/// Puts a packet of InfiniBand into an ERF record (`protocol.md` §1.7). Its time stamp counts
/// seconds in units of 2^-32, rounded up so that a reader who cuts off finds the nanosecond again.
fn erf(out: &mut Vec<u8>, at: Time, packet: &[u8]) {
    let stamp = stamp(at);
    let fraction = (u64::from(stamp.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    out.clear();
    out.extend_from_slice(&(stamp.as_secs() << 32 | fraction).to_le_bytes());
    out.extend_from_slice(&[ERF_INFINIBAND, ERF_VARIABLE]);
    let on_wire = packet.len() as u16;
    out.extend_from_slice(&(on_wire + ERF_BYTES as u16).to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&on_wire.to_be_bytes());
    out.extend_from_slice(packet);
}

fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_COMMENT)).rev().find(|i| text.is_char_boundary(*i));
    &text[..end.unwrap_or(0)]
}

impl<W: Write> CaptureSink for PcapNg<W> {
    fn interface(&mut self, interface: &Interface) {
        use InterfaceDescriptionOption as Option;
        let mut options = vec![
            Option::IfName(Cow::Borrowed(&interface.name)),
            Option::IfTsResol(NANOSECONDS),
            Option::IfSpeed(interface.rate.as_bps()),
        ];
        options.extend(interface.note.map(|note| Option::IfDescription(Cow::Borrowed(note))));
        let linktype = match interface.link {
            LinkType::Ethernet => DataLink::ETHERNET,
            LinkType::InfiniBand => DataLink::ERF,
        };
        self.links.push(interface.link);
        self.write(InterfaceDescriptionBlock { linktype, snaplen: 0, options });
    }

    fn packet(&mut self, seen: &Seen<'_>) {
        let flags = match seen.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        let comment = seen.comment.map(shortened);
        options.extend(comment.map(|c| EnhancedPacketOption::Comment(Cow::Borrowed(c))));
        let mut record = std::mem::take(&mut self.record);
        let data = match self.links[seen.interface as usize] {
            LinkType::Ethernet => seen.frame,
            LinkType::InfiniBand => {
                erf(&mut record, seen.at, seen.frame);
                &record
            }
        };
        self.write(EnhancedPacketBlock {
            interface_id: seen.interface,
            timestamp: stamp(seen.at),
            original_len: data.len() as u32,
            data: Cow::Borrowed(data),
            options,
        });
        self.record = record;
    }

    fn finish(&mut self) -> io::Result<()> {
        match (self.error.take(), self.writer.as_mut()) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.get_mut().flush(),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picoseconds_are_cut_off() {
        assert_eq!(stamp(Time::from_ps(1_999)), Duration::from_nanos(1));
        assert_eq!(stamp(Time::from_ps(999)), Duration::ZERO);
    }

    #[test]
    fn an_erf_record_keeps_the_nanosecond() {
        let mut record = Vec::new();
        for ns in [0, 1, 999_999_999, 1_000_000_000, 7_123_456_789_u64] {
            erf(&mut record, Time::from_ps(ns * 1_000 + 999), &[0xAB; 30]);
            let stamp = u64::from_le_bytes(record[..8].try_into().unwrap());
            let fraction = (u128::from(stamp & 0xFFFF_FFFF) * 1_000_000_000) >> 32;
            assert_eq!(
                (stamp >> 32, fraction),
                (ns / 1_000_000_000, u128::from(ns % 1_000_000_000))
            );
            assert_eq!(record[8..16], [21, 4, 0, 46, 0, 0, 0, 30]);
            assert_eq!(record[16..], [0xAB; 30]);
        }
    }

    #[test]
    fn comments_end_at_a_character() {
        assert_eq!(shortened("retransmission"), "retransmission");
        let long = format!("{}é", "x".repeat(MAX_COMMENT - 1));
        assert_eq!(shortened(&long), "x".repeat(MAX_COMMENT - 1));
        let fits = "x".repeat(MAX_COMMENT);
        assert_eq!(shortened(&format!("{fits}y")), fits);
    }

    /// A file on a full disk.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_error_of_the_file_comes_at_the_end() {
        let frame = [0; 60];
        let seen = Seen {
            at: Time::ZERO,
            interface: 0,
            direction: Direction::Outbound,
            frame: &frame,
            comment: None,
        };
        let rate = doorbell_core::units::BitRate::gbps(100);
        let link = LinkType::Ethernet;
        let interface = Interface { name: "host0.port0".into(), rate, link, note: None };
        for (room, fits) in [(0, false), (100, false), (10_000, true)] {
            let mut file = PcapNg::new(Full(room));
            file.interface(&interface);
            (0..3).for_each(|_| file.packet(&seen));
            let kind = file.finish().map_err(|e| e.kind());
            let want = if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull) };
            assert_eq!(kind, want, "{room} bytes");
        }
    }
}
