//! Captures of runs, read back by another's reader.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::library::SCENARIOS;
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, Point, Runner, Simulator};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;

/// A file in memory of which its reader keeps a copy.
#[derive(Clone, Default, Debug)]
pub struct Shared(Rc<RefCell<Vec<u8>>>);

impl Shared {
    /// What was written.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One packet at one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Name of the port.
    pub interface: String,
    /// Nanoseconds since the start of the run.
    pub nanoseconds: u128,
    /// The port sent it.
    pub outbound: bool,
    /// Ethernet frame, or a packet of InfiniBand without the header of its ERF record.
    pub frame: Vec<u8>,
    /// Comment, empty without one.
    pub comment: String,
}

/// The packets of a pcapng file.
///
/// # Panics
/// When the file is none, an interface has no name or other time stamps than nanoseconds, or an ERF
/// record is not what its header says.
pub fn records(file: &[u8]) -> Vec<Record> {
    let mut reader = PcapNgReader::new(file).expect("a section");
    let (mut ports, mut found) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.expect("a block") {
            Block::InterfaceDescription(d) => {
                assert!(d.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                let name = d.options.iter().find_map(|o| match o {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                ports.push((name.expect("a name"), d.linktype));
            }
            Block::EnhancedPacket(p) => {
                let comment = p.options.iter().find_map(|o| match o {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                let (interface, link) = ports[p.interface_id as usize].clone();
                let data = match link {
                    DataLink::ERF => packet_of_erf(&p.data).to_vec(),
                    _ => p.data.into_owned(),
                };
                found.push(Record {
                    interface,
                    nanoseconds: p.timestamp.as_nanos(),
                    outbound: p.options.contains(&EnhancedPacketOption::Flags(2)),
                    frame: data,
                    comment: comment.unwrap_or_default(),
                });
            }
            other => panic!("a block that nobody wrote: {other:?}"),
        }
    }
    found
}

/// The packet of an ERF record of InfiniBand.
fn packet_of_erf(record: &[u8]) -> &[u8] {
    let (header, packet) = record.split_at(16);
    let lengths = [record.len() as u16, 0, packet.len() as u16].map(u16::to_be_bytes);
    assert_eq!((header[8], &header[10..]), (21, &lengths.concat()[..]));
    packet
}

/// The points of a scenario's text.
///
/// # Panics
/// When it is wrong.
pub fn points(name: &str, text: &str) -> Vec<Point> {
    let overrides = Overrides { set: vec![], seed: None };
    let source = Source::new(format!("{name}.toml"), text);
    let loaded = load(source, PathBuf::new(), &overrides).unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = Profiles::beside(&loaded.directory);
    let points = expand(&loaded, &mut profiles).unwrap_or_else(|e| panic!("{e}"));
    points.into_iter().map(|e| e.point).collect()
}

/// The points of a built-in scenario.
///
/// # Panics
/// When there is none.
pub fn built_in(name: &str) -> Vec<Point> {
    let found = SCENARIOS.iter().find(|(n, _)| *n == name);
    points(name, found.unwrap_or_else(|| panic!("no scenario {name}")).1)
}

/// A run with its capture.
///
/// # Panics
/// When it cannot be run.
pub fn captured(point: &Point) -> (Outcome, Vec<u8>) {
    let file = Shared::default();
    let (outcome, written) = Simulator
        .run_captured(point, Box::new(file.clone()))
        .unwrap_or_else(|e| panic!("{}: {e}", point.label()));
    written.expect("memory is never full");
    (outcome, file.bytes())
}
