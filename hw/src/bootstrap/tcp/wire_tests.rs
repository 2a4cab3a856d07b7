//! Frames there and back, and bytes that are none.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn inbox(bytes: &[u8], max_frame: usize) -> Inbox {
    let mut inbox = Inbox::new(max_frame);
    let mut from = bytes;
    while inbox.fill(&mut from) == Filled::Some {}
    inbox
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, frame);
    out
}

#[test]
fn every_frame_arrives_as_it_was_sent() {
    let token = [9; MAX_TOKEN_BYTES];
    let long = vec![3; MAX_PUBLISHED_BYTES];
    let mut frames = vec![
        Frame::Hello { rank: 1, size: 2, token: &[] },
        Frame::Hello { rank: u32::MAX, size: u32::MAX, token: &token },
        Frame::Welcome,
        Frame::Refused(Refusal::Version { server: 1, client: u16::MAX }),
        Frame::Refused(Refusal::Token),
        Frame::Refused(Refusal::Size { server: 3, client: 4 }),
        Frame::Refused(Refusal::RankOutOfRange { rank: 4, size: 4 }),
        Frame::Refused(Refusal::RankTaken { rank: 2 }),
        Frame::Value { rank: 1, key: u64::MAX, bytes: &[] },
        Frame::Value { rank: 1, key: 0, bytes: &long },
    ];
    for now in [Standing::Here, Standing::Done, Standing::Lost] {
        frames.push(Frame::Standing { rank: 5, now });
    }
    let mut all = Vec::new();
    for frame in &frames {
        put_frame(&mut all, frame);
    }
    let mut inbox = inbox(&all, MAX_FRAME_BYTES);
    for frame in &frames {
        assert_eq!(inbox.frame(), Ok(Some(frame.clone())));
    }
    assert_eq!(inbox.frame(), Ok(None));
}

#[test]
fn a_length_is_judged_before_the_rest_is_there() {
    for (length, max, good) in [
        (0, MAX_FRAME_BYTES, false),
        (1, MAX_FRAME_BYTES, true),
        (MAX_HELLO_BYTES, MAX_HELLO_BYTES, true),
        (MAX_HELLO_BYTES + 1, MAX_HELLO_BYTES, false),
        (MAX_FRAME_BYTES, MAX_FRAME_BYTES, true),
        (MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES, false),
        (u32::MAX as usize, MAX_FRAME_BYTES, false),
    ] {
        let mut inbox = inbox(&(length as u32).to_be_bytes(), max);
        let expected = if good { Ok(None) } else { Err(WireError::Length) };
        assert_eq!(inbox.frame(), expected, "{length} of {max}");
    }
}

#[test]
fn a_frame_must_fit_its_fields_exactly() {
    for frame in [
        Frame::Welcome,
        Frame::Refused(Refusal::Token),
        Frame::Standing { rank: 0, now: Standing::Done },
    ] {
        let good = bytes_of(&frame);
        let body = &good[4..];
        assert_eq!(decode(body).as_ref(), Ok(&frame));
        assert_eq!(decode(&body[..body.len() - 1]), Err(WireError::Malformed), "{frame:?}");
        assert_eq!(decode(&[body, &[0]].concat()), Err(WireError::Malformed), "{frame:?}");
    }
    for bad in [
        &[0][..],
        &[6],
        &[HELLO, 0, 0, 0, 1, 0, 0, 0],
        &[REFUSED, 5, 0, 0, 0, 0, 0, 0, 0, 0],
        &[REFUSED, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        &[STANDING, 0, 0, 0, 0, 0],
        &[STANDING, 0, 0, 0, 0, 4],
        &[VALUE, 0, 0, 0, 0],
    ] {
        assert_eq!(decode(bad), Err(WireError::Malformed), "{bad:?}");
    }
    let hello = [&[HELLO; 9][..], &[0; MAX_TOKEN_BYTES + 1]].concat();
    assert_eq!(decode(&hello), Err(WireError::Malformed), "a token too long");
}

#[test]
fn a_stranger_is_noticed_at_its_first_byte() {
    for (bytes, expected) in [
        (&b""[..], Ok(None)),
        (b"G", Err(WireError::NotOurs)),
        (b"D", Ok(None)),
        (b"DX", Err(WireError::NotOurs)),
        (b"DOORBEL\x9f\x01", Ok(None)),
        (b"DOORBEL\x9f\x01\x02", Ok(Some(0x0102))),
        (b"DOORBELL\x01\x02", Err(WireError::NotOurs)),
    ] {
        assert_eq!(inbox(bytes, MAX_HELLO_BYTES).greeting(), expected, "{bytes:?}");
    }
}

/// A writer that takes one byte, then is full.
struct Narrow(Vec<u8>, bool);

impl Write for Narrow {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if !self.1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.push(buf[0]);
        Ok(1)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_outbox_goes_on_where_it_stopped() {
    let mut out = Outbox::default();
    let mut to = Narrow(Vec::new(), false);
    out.buf.extend_from_slice(b"abc");
    for n in 1..=3 {
        assert!(!out.is_empty());
        out.flush(&mut to).unwrap();
        assert_eq!(to.0.len(), n);
    }
    out.flush(&mut to).unwrap();
    assert!(out.is_empty());
    assert_eq!(to.0, b"abc");
    out.buf.push(b'd');
    let closed: &mut [u8] = &mut [];
    assert_eq!(out.flush(&mut &mut *closed).unwrap_err().kind(), io::ErrorKind::WriteZero);
}

/// A reader that fails.
struct Failing(io::ErrorKind);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
}

#[test]
fn a_connection_that_waits_is_told_from_one_that_is_lost() {
    use io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
    for (kind, expected) in [
        (WouldBlock, Filled::Nothing),
        (Interrupted, Filled::Nothing),
        (TimedOut, Filled::End),
        (ConnectionReset, Filled::End),
    ] {
        let mut inbox = Inbox::new(MAX_HELLO_BYTES);
        assert_eq!(inbox.fill(&mut Failing(kind)), expected, "{kind}");
        assert_eq!(inbox.greeting(), Ok(None));
    }
}

/// A reader that breaks its bytes where it is told.
struct Broken<'a>(&'a [u8], usize);

impl Read for Broken<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(self.0.len()).min(buf.len());
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_frames(
        values in vec((any::<u32>(), any::<u64>(), vec(any::<u8>(), 0..40)), 0..8),
        piece in 1_usize..60,
    ) {
        let mut all = Vec::new();
        put_greeting(&mut all, VERSION);
        for (rank, key, bytes) in &values {
            put_frame(&mut all, &Frame::Value { rank: *rank, key: *key, bytes });
        }
        let mut from = Broken(&all, piece);
        let mut inbox = Inbox::new(MAX_FRAME_BYTES);
        let (mut greeted, mut seen) = (false, Vec::new());
        while inbox.fill(&mut from) == Filled::Some {
            greeted = greeted || inbox.greeting().unwrap() == Some(VERSION);
            while greeted && let Some(frame) = inbox.frame().unwrap() {
                let Frame::Value { rank, key, bytes } = frame else { panic!("{frame:?}") };
                seen.push((rank, key, bytes.to_vec()));
            }
        }
        prop_assert_eq!(seen, values);
    }

    #[test]
    fn garbage_is_an_error_or_incomplete_and_never_more(bytes in vec(any::<u8>(), 0..400)) {
        let mut inbox = inbox(&bytes, MAX_HELLO_BYTES);
        // Each frame takes at least five bytes, so this ends.
        for _ in 0..=bytes.len() / 5 {
            match inbox.frame() {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Ok(()),
            }
        }
        prop_assert!(false, "more frames than bytes");
    }

    #[test]
    fn a_decoded_frame_encodes_to_the_same_bytes(body in vec(any::<u8>(), 1..64), kind in 1_u8..6) {
        let mut body = body;
        body[0] = kind;
        if let Ok(frame) = decode(&body) {
            prop_assert_eq!(&bytes_of(&frame)[4..], &body[..]);
        }
    }
}
