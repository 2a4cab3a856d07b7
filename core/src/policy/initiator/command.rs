//! What a GPU asks a core to post, and where in memory it says so.

use core::fmt;

use crate::transport::{Data, MemError, Mr, Range, Remote, SendOp, SendWr, Sge, Transport};
use crate::verbs::{SendFlags, WcStatus};

/// Bytes from one command to the next: a cache line, so that none is in two.
pub const COMMAND_BYTES: u64 = 64;

/// What is written of a command.
const WRITTEN_BYTES: usize = 40;
/// Where the commands begin: behind a line that the writer has and one that the proxy has.
const FIRST: u64 = 128;
/// Where the number of commands that are ready is; the writer's.
const READY: u64 = 0;
/// Where the number of commands that are done is, and a status above it; the proxy's.
const DONE: u64 = 64;
/// The bits of the number that is done.
const DONE_BITS: u32 = 56;

/// What a command does. Places are relative: see [`Command`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CommandOp {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates the R_Key of the peer's memory.
    SendInv,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteImm(u32),
    /// RDMA READ.
    Read,
    /// ATOMIC compare and swap.
    CmpSwap {
        /// Expected value.
        compare: u64,
        /// New value if it matched.
        swap: u64,
    },
    /// ATOMIC fetch and add.
    FetchAdd(u64),
}

impl CommandOp {
    const fn encode(self) -> (u8, u64, u64) {
        match self {
            Self::Send => (1, 0, 0),
            Self::SendImm(imm) => (2, imm as u64, 0),
            Self::SendInv => (3, 0, 0),
            Self::Write => (4, 0, 0),
            Self::WriteImm(imm) => (5, imm as u64, 0),
            Self::Read => (6, 0, 0),
            Self::CmpSwap { compare, swap } => (7, compare, swap),
            Self::FetchAdd(add) => (8, add, 0),
        }
    }

    const fn decode(code: u8, a: u64, b: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Send,
            2 => Self::SendImm(a as u32),
            3 => Self::SendInv,
            4 => Self::Write,
            5 => Self::WriteImm(a as u32),
            6 => Self::Read,
            7 => Self::CmpSwap { compare: a, swap: b },
            8 => Self::FetchAdd(a),
            _ => return None,
        })
    }

    const fn names_remote(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm(_) | Self::SendInv)
    }

    const fn aimed(self, remote: Remote) -> SendOp {
        match self {
            Self::Send => SendOp::Send,
            Self::SendImm(imm) => SendOp::SendImm(imm),
            Self::SendInv => SendOp::SendInv(remote.rkey),
            Self::Write => SendOp::Write(remote),
            Self::WriteImm(imm) => SendOp::WriteImm(remote, imm),
            Self::Read => SendOp::Read(remote),
            Self::CmpSwap { compare, swap } => SendOp::CmpSwap { remote, compare, swap },
            Self::FetchAdd(add) => SendOp::FetchAdd { remote, add },
        }
    }
}

impl From<SendOp> for CommandOp {
    /// The operation without its place.
    fn from(op: SendOp) -> Self {
        match op {
            SendOp::Send => Self::Send,
            SendOp::SendImm(imm) => Self::SendImm(imm),
            SendOp::SendInv(_) => Self::SendInv,
            SendOp::Write(_) => Self::Write,
            SendOp::WriteImm(_, imm) => Self::WriteImm(imm),
            SendOp::Read(_) => Self::Read,
            SendOp::CmpSwap { compare, swap, .. } => Self::CmpSwap { compare, swap },
            SendOp::FetchAdd { add, .. } => Self::FetchAdd(add),
        }
    }
}

/// A work request without keys and addresses: the proxy knows them, and keeps it to the memory that
/// its writer has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// What to do.
    pub op: CommandOp,
    /// `FENCE` and `SOLICITED`; who signals is the proxy's affair.
    pub flags: SendFlags,
    /// Where the bytes lie, from the start of the writer's payload.
    pub offset: u64,
    /// Bytes; an ATOMIC has 8.
    pub bytes: u32,
    /// Where they go or come from, from the start of the peer's memory; of no meaning to a SEND.
    pub remote: u64,
}

impl Command {
    pub(super) fn encode(&self) -> [u8; WRITTEN_BYTES] {
        let (code, a, b) = self.op.encode();
        let mut out = [0; WRITTEN_BYTES];
        out[0] = code;
        // Both flags are below 2^8.
        out[1] = (self.flags & (SendFlags::FENCE | SendFlags::SOLICITED)).bits() as u8;
        out[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        for (at, word) in (8..).step_by(8).zip([self.offset, self.remote, a, b]) {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(from: &[u8; WRITTEN_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(from[at..at + 8].try_into().expect("8 bytes"));
        Some(Self {
            op: CommandOp::decode(from[0], word(24), word(32))?,
            flags: SendFlags::from_bits(from[1].into())?,
            offset: word(8),
            bytes: u32::from_le_bytes(from[4..8].try_into().expect("4 bytes")),
            remote: word(16),
        })
    }

    /// Where its bytes are here and there, or the status with which a device would refuse it.
    pub(super) fn resolve(
        &self,
        payload: &Mr,
        (remote, len): (Remote, u64),
    ) -> Result<(SendOp, Sge), WcStatus> {
        let sge = payload.sge(self.offset, self.bytes).ok_or(WcStatus::LocProtErr)?;
        let end = self.remote.checked_add(self.bytes.into());
        if self.op.names_remote() && end.is_none_or(|end| end > len) {
            return Err(WcStatus::RemAccessErr);
        }
        let addr = remote.addr.wrapping_add(self.remote);
        Ok((self.op.aimed(Remote { addr, ..remote }), sge))
    }

    /// The work request, with what [`resolve`](Self::resolve) gave.
    pub(super) fn wr<'a>(&self, wr_id: u64, op: SendOp, sge: &'a [Sge; 1]) -> SendWr<'a> {
        let data = Data::Sge(if self.bytes == 0 { &[] } else { sge });
        SendWr { wr_id, op, data, flags: self.flags, dest: None }
    }
}

/// Memory that is no command queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CommandQueueError {
    /// Not one slot.
    NoSlots,
    /// It does not begin at a cache line.
    Misaligned {
        /// Where it begins.
        addr: u64,
    },
    /// The region ends before it does.
    RegionTooShort {
        /// Bytes from the queue's begin on.
        needed: u64,
        /// Bytes there are.
        got: u64,
    },
}

impl fmt::Display for CommandQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("a command queue needs at least one slot"),
            Self::Misaligned { addr } => {
                write!(f, "a command queue at {addr:#x}: begin at a multiple of {COMMAND_BYTES} B")
            }
            Self::RegionTooShort { needed, got } => {
                write!(f, "a command queue of {needed} B in {got} B: take a longer region")
            }
        }
    }
}

impl core::error::Error for CommandQueueError {}

/// Where commands are: a bounded ring in memory that both sides see, best the host's, since a core
/// that looks all the time looks over PCIe otherwise. Zeroed memory is an empty one.
///
/// The writer stores how many commands are ready behind them, and the proxy how many are done. Each
/// number only grows, so a look that comes late sees all at once, and none is lost or seen twice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CommandQueue {
    mr: Mr,
    offset: u64,
    slots: u32,
}

/// How far a proxy says that it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// Commands that are done.
    pub count: u64,
    /// Why no more will be.
    pub failed: Option<WcStatus>,
}

impl CommandQueue {
    /// Bytes of a queue with so many slots.
    pub const fn bytes(slots: u32) -> u64 {
        FIRST + slots as u64 * COMMAND_BYTES
    }

    /// A queue of `slots` commands at `offset` of a region: most that are written and not done.
    /// Higher: the writer waits later, and the last command waits longer.
    ///
    /// # Errors
    /// See [`CommandQueueError`].
    pub fn new(mr: &Mr, offset: u64, slots: u32) -> Result<Self, CommandQueueError> {
        let addr = mr.addr.wrapping_add(offset);
        let (needed, got) = (Self::bytes(slots), mr.len.saturating_sub(offset));
        if slots == 0 {
            return Err(CommandQueueError::NoSlots);
        }
        if !addr.is_multiple_of(COMMAND_BYTES) || !offset.is_multiple_of(COMMAND_BYTES) {
            return Err(CommandQueueError::Misaligned { addr });
        }
        if needed > got {
            return Err(CommandQueueError::RegionTooShort { needed, got });
        }
        Ok(Self { mr: *mr, offset, slots })
    }

    /// Most commands that are written and not done.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// The word that changes when commands are ready: what the proxy watches.
    pub fn ready_word(&self) -> Range {
        self.word(READY)
    }

    /// The word that changes when commands are done: what the writer watches.
    pub fn done_word(&self) -> Range {
        self.word(DONE)
    }

    fn word(&self, at: u64) -> Range {
        self.mr.range(self.offset + at, 8).expect("checked when it was made")
    }

    fn slot(&self, n: u64) -> Range {
        let at = self.offset + FIRST + n % u64::from(self.slots) * COMMAND_BYTES;
        self.mr.range(at, WRITTEN_BYTES as u64).expect("checked when it was made")
    }

    pub(super) fn write(
        &self,
        t: &mut impl Transport,
        n: u64,
        command: &Command,
    ) -> Result<(), MemError> {
        t.copy_in(self.slot(n), &command.encode())
    }

    pub(super) fn read(&self, t: &mut impl Transport, n: u64) -> Result<Option<Command>, MemError> {
        let mut bytes = [0; WRITTEN_BYTES];
        t.copy_out(self.slot(n), &mut bytes)?;
        Ok(Command::decode(&bytes))
    }

    pub(super) fn say_ready(&self, t: &mut impl Transport, count: u64) -> Result<(), MemError> {
        t.store_u64(self.ready_word(), count)
    }

    pub(super) fn ready(&self, t: &mut impl Transport) -> Result<u64, MemError> {
        t.load_u64(self.ready_word())
    }

    pub(super) fn say_done(&self, t: &mut impl Transport, done: Done) -> Result<(), MemError> {
        let status = done.failed.map_or(0, |s| u64::from(s.value()) + 1);
        t.store_u64(self.done_word(), done.count | status << DONE_BITS)
    }

    pub(super) fn done(&self, t: &mut impl Transport) -> Result<Done, MemError> {
        let word = t.load_u64(self.done_word())?;
        let status = (word >> DONE_BITS) as u32;
        let known = |s: u32| WcStatus::try_from(s).unwrap_or(WcStatus::GeneralErr);
        let failed = status.checked_sub(1).map(known);
        Ok(Done { count: word & ((1 << DONE_BITS) - 1), failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noop::NoOp;
    use proptest::prelude::*;

    fn ops() -> impl Strategy<Value = CommandOp> {
        prop_oneof![
            Just(CommandOp::Send),
            any::<u32>().prop_map(CommandOp::SendImm),
            Just(CommandOp::SendInv),
            Just(CommandOp::Write),
            any::<u32>().prop_map(CommandOp::WriteImm),
            Just(CommandOp::Read),
            any::<(u64, u64)>().prop_map(|(compare, swap)| CommandOp::CmpSwap { compare, swap }),
            any::<u64>().prop_map(CommandOp::FetchAdd),
        ]
    }

    proptest! {
        #[test]
        fn commands_survive_memory(
            op in ops(), offset: u64, remote: u64, bytes: u32, flags in 0..4u8
        ) {
            let fence = [SendFlags::empty(), SendFlags::FENCE][usize::from(flags & 1)];
            let solicited = [SendFlags::empty(), SendFlags::SOLICITED][usize::from(flags >> 1)];
            let command = Command { op, flags: fence | solicited, offset, bytes, remote };
            prop_assert_eq!(Command::decode(&command.encode()), Some(command));
            let place = Remote { addr: 0x9000, rkey: crate::verbs::Rkey(3) };
            prop_assert_eq!(CommandOp::from(op.aimed(place)), op);
        }

        #[test]
        fn whatever_is_in_memory_is_a_command_or_none(
            bytes in prop::array::uniform32(any::<u8>())
        ) {
            let mut all = [0; WRITTEN_BYTES];
            all[..32].copy_from_slice(&bytes);
            if let Some(command) = Command::decode(&all) {
                prop_assert_eq!(Command::decode(&command.encode()).map(|c| c.op), Some(command.op));
            }
        }
    }

    #[test]
    fn both_sides_of_the_region() {
        let need = CommandQueue::bytes(3);
        assert_eq!(need, 128 + 3 * 64);
        let at = |addr, len, offset, slots| {
            CommandQueue::new(&NoOp::mr(addr, len), offset, slots).map(|q| q.slots())
        };
        assert_eq!(at(0x1000, need + 64, 64, 3), Ok(3));
        let short = CommandQueueError::RegionTooShort { needed: need, got: need - 1 };
        assert_eq!(at(0x1000, need + 63, 64, 3), Err(short));
        assert_eq!(at(0x1000, need, 0, 0), Err(CommandQueueError::NoSlots));
        let addr = 0x1008;
        assert_eq!(at(addr, need, 0, 3), Err(CommandQueueError::Misaligned { addr }));
        let past = CommandQueueError::RegionTooShort { needed: need, got: 0 };
        assert_eq!(at(0x1000, 64, 128, 3), Err(past));
    }

    #[test]
    fn a_command_keeps_to_the_memory_of_its_writer() {
        let (payload, remote) = (NoOp::mr(0x1000, 64), Remote::default());
        let write = |offset, bytes, at| {
            let (op, flags) = (CommandOp::Write, SendFlags::empty());
            let command = Command { op, flags, offset, bytes, remote: at };
            command.resolve(&payload, (remote, 128)).map(|(op, sge)| (op.remote(), sge.addr))
        };
        let there = Remote { addr: 96, ..remote };
        assert_eq!(write(32, 32, 96), Ok((Some(there), 0x1020)));
        assert_eq!(write(33, 32, 96), Err(WcStatus::LocProtErr));
        assert_eq!(write(32, 32, 97), Err(WcStatus::RemAccessErr));
        assert_eq!(write(32, 32, u64::MAX), Err(WcStatus::RemAccessErr));
        let (op, flags) = (CommandOp::Send, SendFlags::empty());
        let send = Command { op, flags, offset: 0, bytes: 64, remote: 1 << 40 };
        assert!(send.resolve(&payload, (remote, 0)).is_ok(), "it names no memory of the peer");
    }
}
