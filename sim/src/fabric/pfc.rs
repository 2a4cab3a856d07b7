//! Priority flow control (802.1Qbb): what pausing takes, and where it stands at a port.

use std::collections::VecDeque;

use doorbell_core::units::{BitRate, Span, Time};

use super::buffer::{PauseAt, Sharing};
use super::classes::MAX_CLASSES;
use super::line::Serve;

/// A pause frame on the wire: 64 bytes with its FCS, preamble and gap between frames.
pub const PAUSE_FRAME_BYTES: u32 = 64 + 20;

/// Bits of a quantum of pause time.
const QUANTUM_BITS: u64 = 512;

/// Interface and response delay in bit times, by rate in Gb/s (protocol.md §7.2). A rate between
/// two rows has the row above it. For 400 Gb/s no interface delay is published: it is taken to last
/// as long as at 100 Gb/s.
const DELAYS: [(u64, u64, u64); 5] = [
    (10, 8_192, 30_720),
    (25, 6_144, 40_960),
    (40, 24_576, 60_416),
    (100, 122_880, 201_728),
    (400, 4 * 122_880, 463_360),
];

/// Time from the last bit of a pause frame at a port to the last moment at which the port still
/// begins a frame: interface and response delay of the standard for the rate, the most that an
/// implementation may take.
pub fn standard_reaction(rate: BitRate) -> Span {
    let row = DELAYS.iter().find(|(gbps, ..)| rate.as_bps() <= gbps * 1_000_000_000);
    let (gbps, interface, response) = row.unwrap_or(&DELAYS[DELAYS.len() - 1]);
    // Bit times of the row's own rate: delays are those of circuits, and last as long at a rate
    // that lies below.
    Span::from_ps((interface + response) * 1_000 / gbps)
}

/// Headroom of an input queue: how much is kept for what a sender still sends after the decision
/// to pause it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Headroom {
    /// The sum of protocol.md §7.2 for the link's rate and length; see [`headroom`].
    #[default]
    Formula,
    /// So many bytes. Less than the formula: a lossless class may drop.
    Bytes(u64),
}

/// What headroom depends on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HeadroomOf {
    /// Rate of the link.
    pub rate: BitRate,
    /// Its propagation.
    pub propagation: Span,
    /// Reaction time of the sender.
    pub reaction: Span,
    /// What the switch's own input holds back from the accounts: transit, noise, and where it
    /// stores packets, the time of the largest one.
    pub pipeline: Span,
    /// Largest packet, in bytes on the wire.
    pub max_packet_bytes: u32,
    /// Classes that may be paused: a frame of each other one may stand before that of this one.
    pub classes: u32,
}

/// Bytes that may still arrive after the decision to pause: the largest packet that the pause
/// frame waits for, the pause frame, the reaction, the cable twice, and the largest packet that the
/// sender has just begun (protocol.md §7.2), with what is in the switch's own input, and a frame
/// for each other class.
pub fn headroom(of: &HeadroomOf) -> u64 {
    let HeadroomOf { rate, propagation, reaction, pipeline, max_packet_bytes, classes } = *of;
    let time = propagation * 2 + reaction + pipeline;
    let bits = u128::from(time.as_ps()) * u128::from(rate.as_bps());
    let bytes = bits.div_ceil(8 * 1_000_000_000_000) as u64;
    bytes + 2 * u64::from(max_packet_bytes) + u64::from(PAUSE_FRAME_BYTES) * u64::from(classes)
}

/// What the watchdog does about a class that is paused for too long.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum StormAction {
    /// It counts the storm.
    #[default]
    Report,
    /// The port also pays no attention to pauses of the class, until none has come for
    /// [`Watchdog::restore`].
    Ignore,
}

/// The watchdog of pause storms.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// How long a class of a port may be paused without a break.
    pub after: Span,
    /// What happens then.
    pub action: StormAction,
    /// How long no pause may be asked for until the next one counts again (the restoration time of
    /// SONiC's watchdog, which counts frames). Longer: a storm that comes back does not stop the
    /// port, and an honest pause is passed over for longer. Without use where pauses are not
    /// ignored.
    pub restore: Span,
}

impl Watchdog {
    /// Whether it ends pauses by itself.
    pub(super) const fn breaks_pauses(&self) -> bool {
        matches!(self.action, StormAction::Ignore)
    }
}

/// A shared buffer with priority flow control of the lossless classes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SharedConfig {
    /// Buffer of the switch, bytes on the wire.
    pub total_bytes: u64,
    /// How it is divided.
    pub sharing: Sharing,
    /// Of it, for each input queue alone.
    pub reserved_bytes: u64,
    /// Of it, for what arrives on a lossless class after a pause.
    pub headroom: Headroom,
    /// When a sender is paused.
    pub pause_at: PauseAt,
    /// Which packet of a class an output sends next.
    pub serve: Serve,
    /// Reaction time to a pause frame of whoever sends to this switch, `None`:
    /// [`standard_reaction`].
    pub reaction: Option<Span>,
    /// Pause time of a frame in quanta of 512 bit times, from 1.
    pub quanta: u16,
    /// Whether a pause is not refreshed: it ends by itself though the queue is still full.
    pub lapse: bool,
    /// Watchdog of the output ports.
    pub watchdog: Option<Watchdog>,
}

impl Default for SharedConfig {
    /// 32 MiB, dynamic with alpha 1/16 (benchmarks.md), headroom by the formula, the longest
    /// pause, refreshed; two of the largest packets between pause and resume; one FIFO for all
    /// inputs.
    fn default() -> Self {
        Self {
            total_bytes: 32 << 20,
            sharing: Sharing::Dynamic { alpha: doorbell_core::units::Ratio { num: 1, den: 16 } },
            reserved_bytes: 0,
            headroom: Headroom::Formula,
            pause_at: PauseAt::Share { hysteresis: 2 * 4_224 },
            serve: Serve::Arrival,
            reaction: None,
            quanta: u16::MAX,
            lapse: false,
            watchdog: None,
        }
    }
}

/// Time of so many quanta.
pub(super) fn pause_time(rate: BitRate, quanta: u16) -> Span {
    rate.time_for(u64::from(quanta) * QUANTUM_BITS / 8)
}

/// What a port has done about pauses in one class.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct PauseCounters {
    /// Pause frames sent because the input was full, refreshes included.
    pub xoff_sent: u64,
    /// Frames sent that let the sender go on.
    pub xon_sent: u64,
    /// Pause frames received, refreshes included.
    pub xoff_received: u64,
    /// Frames received that let this port go on.
    pub xon_received: u64,
    /// Time for which the class was paused at this output.
    pub paused: Span,
    /// Times that it was paused for longer than the watchdog allows.
    pub storms: u64,
    /// Times that pauses counted again after a storm.
    pub restores: u64,
}

impl PauseCounters {
    /// The count of frames that say so many quanta; 0 lets the sender go on.
    pub(super) const fn sent(&mut self, quanta: u16) -> &mut u64 {
        if quanta == 0 { &mut self.xon_sent } else { &mut self.xoff_sent }
    }
}

/// A pause frame that waits for its turn at a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct PauseFrame {
    pub class: u8,
    pub quanta: u16,
}

/// A class that is paused.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Paused {
    pub since: Time,
    pub until: Time,
    /// The watchdog has found this pause too long.
    pub storm: bool,
    /// And pays no attention to the class.
    pub ignored: Option<Ignored>,
}

/// Pauses that nobody heeds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Ignored {
    /// Until when the far end has asked for a pause.
    pub asked: Time,
    /// From then on, time after which the next one counts again.
    pub restore: Span,
}

/// Pause frames at a port that knows them.
#[derive(Clone, Default, Debug)]
pub(super) struct PortPauses {
    /// To be sent before anything else.
    pub frames: VecDeque<PauseFrame>,
    /// Reaction time of the far end.
    pub reaction: Span,
    pub paused: [Paused; MAX_CLASSES],
    pub counters: [PauseCounters; MAX_CLASSES],
    /// Time for which some class was paused, without the pause that lasts, and since when it does.
    pub any: Span,
    pub any_since: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of protocol.md §7.2, with two packets of one size: 100 Gb/s, 100 m.
    #[test]
    fn headroom_is_the_sum_of_the_standard() {
        let rate = BitRate::gbps(100);
        let of = HeadroomOf {
            rate,
            propagation: Span::from_ns(500),
            reaction: standard_reaction(rate),
            pipeline: Span::ZERO,
            max_packet_bytes: 4_220,
            classes: 1,
        };
        let bits = 2 * 33_760 + 672 + 122_880 + 2 * 50_000 + 201_728;
        assert_eq!(headroom(&of), bits / 8);
        // A metre more, both ways: 1000 bits.
        let longer = HeadroomOf { propagation: Span::from_ns(505), ..of };
        assert_eq!(headroom(&longer) - headroom(&of), 125);
        // A frame of each class, of 84 bytes on the wire.
        let classes = HeadroomOf { classes: 3, ..of };
        assert_eq!(headroom(&classes) - headroom(&of), 2 * 84);
        // What is in the switch's own input counts too, rounded up.
        let deeper = HeadroomOf { pipeline: Span::from_ps(1), ..of };
        assert_eq!(headroom(&deeper) - headroom(&of), 1);
    }

    #[test]
    fn reactions_follow_the_table_and_the_row_above() {
        let ns = |gbps| standard_reaction(BitRate::gbps(gbps)).as_ps() / 1_000;
        assert_eq!(ns(10), (8_192 + 30_720) / 10);
        assert_eq!(ns(25), (6_144 + 40_960) / 25);
        assert_eq!(ns(100), (122_880 + 201_728) / 100);
        assert_eq!(ns(101), ns(400));
        assert_eq!(ns(800), ns(400), "the last row for everything above");
    }

    #[test]
    fn the_longest_pause_is_that_of_the_standard() {
        let us = |gbps| pause_time(BitRate::gbps(gbps), u16::MAX).as_ps() / 1_000;
        assert_eq!((us(100), us(400)), (335_539, 83_884), "335.5 and 83.9 us");
    }
}
