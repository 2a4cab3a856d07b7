//! Connections that are no ranks: each is closed, and the run goes on.

use std::io::{Read, Write};
use std::thread;

use super::tests::{config, far, hello, join, raw, until, value, zero};
use super::wire::{MAX_HELLO_BYTES, VERSION, put_frame, put_greeting};
use super::*;

/// Whether the server has closed a connection, with or without a word. Waits for it.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// The run still lets rank 1 in and carries its values.
fn goes_on(mut zero: Tcp) {
    let mut one = join(&zero, 1);
    one.publish(1, b"after all that");
    assert_eq!(value(&mut zero, 1, 1), b"after all that");
    assert_eq!(zero.lost_peer(), None);
}

/// A run whose strangers have a limit that no test reaches, or one that each reaches at once.
fn run(hello: Duration) -> Tcp {
    Tcp::join(Config { hello, ..Config::new(0, 2, "", 0) }).expect("rank 0 joins")
}

const PATIENT: Duration = Duration::from_secs(3600);
const HASTY: Duration = Duration::from_millis(40);

#[test]
fn what_is_no_hello_is_closed_at_once() {
    let zero = run(PATIENT);
    let mut greeting = Vec::new();
    put_greeting(&mut greeting, VERSION);
    let after = |bytes: &[u8]| [&greeting[..], bytes].concat();
    let mut value = greeting.clone();
    put_frame(&mut value, &Frame::Value { rank: 1, key: 1, bytes: b"too early" });
    let mut welcome = greeting.clone();
    put_frame(&mut welcome, &Frame::Welcome);
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00".to_vec(),
        b"SSH-2.0-x\r\n".to_vec(),
        b"DOORBELL".to_vec(),
        vec![0],
        after(&[0; 4]),
        after(&(MAX_HELLO_BYTES as u32 + 1).to_be_bytes()),
        after(&u32::MAX.to_be_bytes()),
        after(&[0, 0, 0, 1, 77]),
        value,
        welcome,
    ] {
        assert!(is_closed(&mut raw(&zero, &bytes)), "{bytes:?}");
    }
    // The longest hello that is one: refused with a reason, not cut off.
    let mut answer = Vec::new();
    raw(&zero, &hello(1, 2, &[7; 256])).read_to_end(&mut answer).unwrap();
    assert!(answer.len() > greeting.len(), "{answer:?}");
    goes_on(zero);
}

#[test]
fn silence_and_half_a_hello_are_closed_when_their_time_is_over() {
    let zero = run(HASTY);
    let whole = hello(1, 2, b"");
    for n in [0, 1, 9, 10, 13, whole.len() - 1] {
        assert!(is_closed(&mut raw(&zero, &whole[..n])), "{n} bytes");
    }
    goes_on(zero);
}

#[test]
fn half_a_hello_and_a_close_leave_nothing() {
    let zero = run(PATIENT);
    let whole = hello(1, 2, b"");
    for n in 0..whole.len() {
        drop(raw(&zero, &whole[..n]));
    }
    goes_on(zero);
}

#[test]
fn one_byte_at_a_time_gets_no_more_time() {
    let zero = run(HASTY);
    // Without its last byte, so that it can never be a rank.
    let mut bytes = hello(1, 2, &[b'x'; 200]);
    bytes.pop();
    let mut stream = raw(&zero, b"");
    for byte in bytes {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(is_closed(&mut stream));
    goes_on(zero);
}

#[test]
fn one_byte_at_a_time_in_time_is_welcome() {
    let mut zero = run(PATIENT);
    let mut stream = raw(&zero, b"");
    for byte in hello(1, 2, b"") {
        stream.write_all(&[byte]).unwrap();
    }
    zero.wait_for_all(far()).unwrap();
}

#[test]
fn a_refused_one_that_talks_on_is_closed_when_its_time_is_over() {
    let zero = run(HASTY);
    let mut stream = raw(&zero, &hello(5, 2, b""));
    // It may write until the server closes; its bytes are thrown away.
    let limit = far();
    while stream.write_all(&[0; 512]).is_ok() {
        assert!(Instant::now() < limit, "the server reads for ever");
    }
    goes_on(zero);
}

#[test]
fn a_crowd_of_strangers_waits_outside_and_ranks_still_get_in() {
    let zero = run(PATIENT);
    let mut crowd: Vec<_> = (0..MAX_STRANGERS - 1).map(|_| raw(&zero, b"")).collect();
    // The last place: garbage is read and closed.
    assert!(is_closed(&mut raw(&zero, b"G")));
    crowd.push(raw(&zero, b""));
    // One too many: nobody reads what it says until another leaves.
    let mut outside = raw(&zero, b"G");
    outside.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let error = outside.read(&mut [0]).expect_err("nobody closes it");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    outside.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    drop(crowd.pop());
    assert!(is_closed(&mut outside));
    goes_on(zero);
    drop(crowd);

    let zero = run(HASTY);
    let _crowd: Vec<_> = (0..3 * MAX_STRANGERS).map(|_| raw(&zero, b"")).collect();
    goes_on(zero);
}

/// Random numbers that are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        (0..self.next() % max).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn random_bytes_never_end_the_run() {
    for seed in 1..=3 {
        let mut random = Random(seed);
        let zero = run(HASTY);
        for _ in 0..100 {
            // A third is noise; a third begins well; a third is a hello with one byte changed, of a
            // rank that the run does not have, so that no change makes it rank 1.
            let bytes = match random.next() % 3 {
                0 => random.bytes(600),
                1 => [&hello(1, 2, b"")[..10], &random.bytes(600)].concat(),
                _ => {
                    let mut bytes = hello(u32::MAX, 2, b"");
                    let at = random.next() as usize % bytes.len();
                    bytes[at] ^= random.next() as u8;
                    bytes
                }
            };
            let mut stream = TcpStream::connect(zero.server_addr()).unwrap();
            // The server may close in the middle of it.
            let _ = stream.write_all(&bytes);
        }
        goes_on(zero);
    }
}

#[test]
fn random_bytes_of_a_member_lose_that_member_alone() {
    for seed in 1..=20 {
        let mut random = Random(seed);
        let mut zero = zero(3);
        let mut stream = raw(&zero, &hello(2, 3, b""));
        let _ = stream.write_all(&random.bytes(200));
        drop(stream);
        until(&mut zero, "rank 2 is lost", |tcp| tcp.lost_peer() == Some(2));
        let mut one = Tcp::join(config(&zero, 1)).unwrap();
        one.publish(1, b"x");
        assert_eq!(value(&mut zero, 1, 1), b"x", "seed {seed}");
    }
}
