//! What goes over a connection of the rendezvous.
//!
//! Each side begins with a greeting: [`MAGIC`] and its [`VERSION`]. Then come frames: the length of
//! the rest (4 bytes), the kind (1 byte), the fields. Integers are big-endian. These, and the frame
//! `Refused`, are the same in every version, so that any two versions can tell each other apart.

use std::io::{self, Read, Write};

use doorbell_core::transport::MAX_PUBLISHED_BYTES;

use super::super::MAX_TOKEN_BYTES;
use super::super::board::{News, Standing};
use super::error::Refusal;

/// The first bytes of every connection, from both sides. The last one is in no text protocol.
pub(super) const MAGIC: [u8; 8] = *b"DOORBEL\x9f";

/// What follows the magic; goes up with every change of a frame.
pub(super) const VERSION: u16 = 1;

/// Bytes of a greeting.
pub(super) const GREETING_BYTES: usize = MAGIC.len() + 2;

/// Longest frame of somebody who is not welcome yet.
pub(super) const MAX_HELLO_BYTES: usize = 1 + 4 + 4 + MAX_TOKEN_BYTES;

/// Longest frame of a member.
pub(super) const MAX_FRAME_BYTES: usize = 1 + 4 + 8 + MAX_PUBLISHED_BYTES;

/// Most that is read from a connection at a time, so that one cannot starve the others.
const READ_BYTES: usize = 16 << 10;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const VALUE: u8 = 4;
const STANDING: u8 = 5;

/// A frame as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    /// Client: let me in.
    Hello { rank: u32, size: u32, token: &'a [u8] },
    /// Server: you are in.
    Welcome,
    /// Server: you are not.
    Refused(Refusal),
    /// Both: a rank has published. A client speaks for itself only.
    Value { rank: u32, key: u64, bytes: &'a [u8] },
    /// Both: a rank has moved on. A client says only that it is done.
    Standing { rank: u32, now: Standing },
}

/// Bytes that are no conversation of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum WireError {
    /// They do not begin with the magic.
    NotOurs,
    /// A length that no frame has at this point.
    Length,
    /// A frame of an unknown kind, or one that is shorter or longer than its fields.
    Malformed,
}

/// Appends a greeting.
pub(super) fn put_greeting(out: &mut Vec<u8>, version: u16) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_be_bytes());
}

/// Appends a frame.
pub(super) fn put_frame(out: &mut Vec<u8>, frame: &Frame<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match *frame {
        Frame::Hello { rank, size, token } => {
            out.push(HELLO);
            out.extend_from_slice(&rank.to_be_bytes());
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(token);
        }
        Frame::Welcome => out.push(WELCOME),
        Frame::Refused(refusal) => {
            let (reason, a, b) = match refusal {
                Refusal::Version { server, client } => (0, server.into(), client.into()),
                Refusal::Token => (1, 0, 0),
                Refusal::Size { server, client } => (2, server, client),
                Refusal::RankOutOfRange { rank, size } => (3, rank, size),
                Refusal::RankTaken { rank } => (4, rank, 0),
            };
            out.extend_from_slice(&[REFUSED, reason]);
            out.extend_from_slice(&u32::to_be_bytes(a));
            out.extend_from_slice(&u32::to_be_bytes(b));
        }
        Frame::Value { rank, key, bytes } => {
            out.push(VALUE);
            out.extend_from_slice(&rank.to_be_bytes());
            out.extend_from_slice(&key.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        Frame::Standing { rank, now } => {
            out.push(STANDING);
            out.extend_from_slice(&rank.to_be_bytes());
            out.push(match now {
                Standing::Absent => 0,
                Standing::Here => 1,
                Standing::Done => 2,
                Standing::Lost => 3,
            });
        }
    }
    let length = out.len() - start - 4;
    debug_assert!((1..=MAX_FRAME_BYTES).contains(&length), "a frame of {length} B");
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
}

/// Appends the frame of one piece of news.
pub(super) fn put_news(out: &mut Vec<u8>, news: &News) {
    let frame = match *news {
        News::Value { rank, key, ref bytes } => Frame::Value { rank, key, bytes },
        News::Standing { rank, now } => Frame::Standing { rank, now },
    };
    put_frame(out, &frame);
}

/// Reads the fields of a frame in turn.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_be_bytes)
    }

    /// The rest, if the last field may be so long.
    fn rest(&mut self, max: usize) -> Result<&'a [u8], WireError> {
        let rest = std::mem::take(&mut self.0);
        if rest.len() > max { Err(WireError::Malformed) } else { Ok(rest) }
    }
}

/// The frame in `body`, which is what stands behind its length.
fn decode(body: &[u8]) -> Result<Frame<'_>, WireError> {
    let mut f = Fields(body);
    let frame = match f.u8()? {
        HELLO => Frame::Hello { rank: f.u32()?, size: f.u32()?, token: f.rest(MAX_TOKEN_BYTES)? },
        WELCOME => Frame::Welcome,
        REFUSED => {
            let (reason, a, b) = (f.u8()?, f.u32()?, f.u32()?);
            let short = |n: u32| u16::try_from(n).map_err(|_| WireError::Malformed);
            Frame::Refused(match reason {
                0 => Refusal::Version { server: short(a)?, client: short(b)? },
                1 if (a, b) == (0, 0) => Refusal::Token,
                2 => Refusal::Size { server: a, client: b },
                3 => Refusal::RankOutOfRange { rank: a, size: b },
                4 if b == 0 => Refusal::RankTaken { rank: a },
                _ => return Err(WireError::Malformed),
            })
        }
        VALUE => {
            Frame::Value { rank: f.u32()?, key: f.u64()?, bytes: f.rest(MAX_PUBLISHED_BYTES)? }
        }
        STANDING => {
            let rank = f.u32()?;
            let now = match f.u8()? {
                1 => Standing::Here,
                2 => Standing::Done,
                3 => Standing::Lost,
                _ => return Err(WireError::Malformed),
            };
            Frame::Standing { rank, now }
        }
        _ => return Err(WireError::Malformed),
    };
    f.rest(0)?;
    Ok(frame)
}

/// What a read brought.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// Something.
    Some,
    /// Nothing for now.
    Nothing,
    /// The other side has closed, or the connection is broken.
    End,
}

/// Bytes that have arrived and are not understood yet. It holds at most one unfinished frame and
/// one read, whatever is sent to it.
#[derive(Debug)]
pub(super) struct Inbox {
    buf: Vec<u8>,
    /// Bytes of `buf` that are used up.
    used: usize,
    /// Longest frame that is accepted.
    pub(super) max_frame: usize,
}

impl Inbox {
    /// For a connection whose frames are not longer than `max_frame`.
    pub(super) fn new(max_frame: usize) -> Self {
        Self { buf: Vec::new(), used: 0, max_frame }
    }

    /// Reads once.
    pub(super) fn fill(&mut self, from: &mut impl Read) -> Filled {
        self.buf.drain(..self.used);
        self.used = 0;
        let had = self.buf.len();
        self.buf.resize(had + READ_BYTES, 0);
        let got = from.read(&mut self.buf[had..]);
        self.buf.truncate(had + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Filled::End,
            Ok(_) => Filled::Some,
            Err(e) if is_not_yet(&e) => Filled::Nothing,
            Err(_) => Filled::End,
        }
    }

    /// Forgets what has arrived.
    pub(super) fn clear(&mut self) {
        self.used = self.buf.len();
    }

    /// The version of the other side's greeting, once it is complete. A wrong beginning is noticed
    /// at its first byte.
    pub(super) fn greeting(&mut self) -> Result<Option<u16>, WireError> {
        let bytes = &self.buf[self.used..];
        let n = bytes.len().min(MAGIC.len());
        if bytes[..n] != MAGIC[..n] {
            return Err(WireError::NotOurs);
        }
        if bytes.len() < GREETING_BYTES {
            return Ok(None);
        }
        let version = u16::from_be_bytes([bytes[MAGIC.len()], bytes[MAGIC.len() + 1]]);
        self.used += GREETING_BYTES;
        Ok(Some(version))
    }

    /// The next frame, once it is complete. Its length is judged as soon as it is there.
    pub(super) fn frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let Some((length, rest)) = self.buf[self.used..].split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > self.max_frame {
            return Err(WireError::Length);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.used + 4;
        self.used = start + length;
        decode(&self.buf[start..start + length]).map(Some)
    }
}

/// Bytes that are on their way out.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// What is to be sent; append to it.
    pub(super) buf: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// Whether everything is sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.buf.len()
    }

    /// Writes what the connection takes now. An error means that it is broken.
    pub(super) fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match to.write(&self.buf[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_not_yet(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        self.buf.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Whether a read or write should simply be tried again. On Linux, a read with a time limit says
/// `WouldBlock` too; `TimedOut` means that the other machine answers no more.
fn is_not_yet(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
