//! Pause frames of priority flow control (IEEE 802.1Qbb), as bytes.

use super::ip::Mac;

/// Where frames of MAC control go: no bridge passes them on.
pub const MAC_CONTROL: Mac = Mac([0x01, 0x80, 0xC2, 0, 0, 0x01]);

/// Ethertype of MAC control.
const ETHERTYPE: u16 = 0x8808;

/// Opcode of the pause by priority.
const OPCODE: u16 = 0x0101;

/// Priorities of the vector.
const PRIORITIES: usize = 8;

/// An Ethernet frame without its FCS is at least so long.
const SHORTEST: usize = 60;

/// The frame, without preamble and FCS, by which a port says for how long the far end shall not
/// send in a class: `quanta` of 512 bit times, 0 for "go on". The other priorities are not enabled,
/// so it says nothing of them (`protocol.md` §7.2).
///
/// # Panics
/// When there is no such priority: they are 0 to 7.
pub fn encode_pause(src: Mac, priority: u8, quanta: u16, frame: &mut Vec<u8>) {
    let class = usize::from(priority);
    assert!(class < PRIORITIES, "priority {priority} of 0 to 7");
    let mut times = [0; PRIORITIES];
    times[class] = quanta;
    frame.clear();
    frame.extend(MAC_CONTROL.0);
    frame.extend(src.0);
    for word in [ETHERTYPE, OPCODE, 1 << priority].into_iter().chain(times) {
        frame.extend(word.to_be_bytes());
    }
    frame.resize(SHORTEST, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_priority_3_byte_by_byte() {
        let mut frame = vec![9; 100];
        encode_pause(Mac([2, 0, 0, 0, 0, 1]), 3, 0xABCD, &mut frame);
        let mut expected = vec![0x01, 0x80, 0xC2, 0, 0, 0x01, 2, 0, 0, 0, 0, 1];
        expected.extend([0x88, 0x08, 0x01, 0x01, 0, 0b1000]);
        expected.extend([0, 0, 0, 0, 0, 0, 0xAB, 0xCD, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.resize(60, 0);
        assert_eq!(frame, expected);
        encode_pause(Mac([2, 0, 0, 0, 0, 1]), 7, 0, &mut frame);
        assert_eq!((frame[17], &frame[18..34]), (0x80, &[0; 16][..]), "priority 7 goes on");
    }

    #[test]
    #[should_panic(expected = "priority 8")]
    fn there_is_no_priority_8() {
        encode_pause(Mac([0; 6]), 8, 1, &mut Vec::new());
    }
}
