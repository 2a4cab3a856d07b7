//! Whole runs on loopback: exchange, late ranks, deaths, refusals, ends.
//!
//! No test measures time: limits are generous where something must happen, and what must not
//! happen is asked after something that came later on the same connection.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use doorbell_core::transport::MAX_PUBLISHED_BYTES;

use super::wire::{MAGIC, VERSION, put_frame, put_greeting};
use super::*;

/// A deadline that only a failing test meets.
pub(super) fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Rank 0 of a run, with a port that the system chose.
pub(super) fn zero(size: u32) -> Tcp {
    Tcp::join(Config::new(0, size, "", 0)).expect("rank 0 joins")
}

/// How another rank joins the run of `zero`.
pub(super) fn config(zero: &Tcp, rank: u32) -> Config {
    let addr = zero.server_addr();
    let join = Duration::from_secs(30);
    Config { join, ..Config::new(rank, zero.size(), addr.ip().to_string(), addr.port()) }
}

pub(super) fn join(zero: &Tcp, rank: u32) -> Tcp {
    Tcp::join(config(zero, rank)).expect("the rank joins")
}

fn group(size: u32) -> Vec<Tcp> {
    let mut ranks = vec![zero(size)];
    for rank in 1..size {
        ranks.push(join(&ranks[0], rank));
    }
    ranks
}

/// Polls as a runner does, by the descriptor, until something holds.
pub(super) fn until(tcp: &mut Tcp, what: &str, mut holds: impl FnMut(&mut Tcp) -> bool) {
    let limit = far();
    loop {
        tcp.poll();
        if holds(tcp) {
            return;
        }
        assert!(Instant::now() < limit, "rank {}: {what}", tcp.rank());
        let fd = tcp.fd().expect("there is a descriptor");
        wait(fd, Some(limit)).unwrap();
    }
}

/// Waits for a value.
pub(super) fn value(tcp: &mut Tcp, peer: u32, key: u64) -> Vec<u8> {
    let mut out = vec![0; MAX_PUBLISHED_BYTES];
    let mut n = 0;
    until(tcp, "a value", |tcp| match tcp.lookup(peer, key, &mut out).expect("it is there") {
        Some(got) => {
            n = got;
            true
        }
        None => false,
    });
    out.truncate(n);
    out
}

fn gone(tcp: &mut Tcp, peer: u32, key: u64) {
    let expected = Err(LookupError::PeerGone { rank: peer });
    until(tcp, "the peer is gone", |tcp| tcp.lookup(peer, key, &mut []) == expected);
}

/// A connection that says what it is told.
pub(super) fn raw(zero: &Tcp, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(zero.server_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The greeting and hello of a rank.
pub(super) fn hello(rank: u32, size: u32, token: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_greeting(&mut bytes, VERSION);
    put_frame(&mut bytes, &Frame::Hello { rank, size, token });
    bytes
}

/// Finishes all ranks at once, as processes would.
fn finish(ranks: Vec<Tcp>) {
    thread::scope(|scope| {
        for mut tcp in ranks {
            scope.spawn(move || tcp.finish(far()));
        }
    });
}

// ---- exchange --------------------------------------------------------------------------------

#[test]
fn two_and_five_ranks_exchange() {
    for size in [1, 2, 5] {
        let mut ranks = group(size);
        for tcp in &mut ranks {
            let rank = tcp.rank();
            tcp.wait_for_all(far()).unwrap();
            tcp.publish(9, &rank.to_be_bytes());
            assert_eq!(tcp.lookup(rank, 9, &mut [0; 4]), Ok(Some(4)), "one's own, at once");
        }
        for tcp in &mut ranks {
            assert_eq!(tcp.size(), size);
            for peer in 0..size {
                assert_eq!(value(tcp, peer, 9), peer.to_be_bytes());
            }
            let no_such = LookupError::NoSuchRank { rank: size, size };
            assert_eq!(tcp.lookup(size, 9, &mut []), Err(no_such));
            assert_eq!(tcp.lost_peer(), None);
        }
        finish(ranks);
    }
}

#[test]
fn a_late_rank_finds_what_was_published_and_who_has_gone() {
    let mut zero = zero(4);
    let mut one = join(&zero, 1);
    let two = join(&zero, 2);
    one.publish(1, b"early");
    one.publish(2, b"old");
    one.publish(2, b"new");
    one.finish(far());
    drop(two);
    until(&mut zero, "rank 2 is lost", |tcp| tcp.lost_peer() == Some(2));
    let mut late = join(&zero, 3);
    assert_eq!(value(&mut late, 1, 1), b"early");
    assert_eq!(value(&mut late, 1, 2), b"new");
    gone(&mut late, 1, 3);
    gone(&mut late, 2, 1);
    assert_eq!(late.lost_peer(), Some(2));
}

#[test]
fn a_key_published_again_replaces_the_value() {
    let mut ranks = group(2);
    ranks[1].publish(5, b"a longer value");
    assert_eq!(value(&mut ranks[0], 1, 5), b"a longer value");
    ranks[1].publish(5, b"short");
    until(&mut ranks[0], "the new value", |tcp| tcp.lookup(1, 5, &mut [0; 20]) == Ok(Some(5)));
    assert_eq!(value(&mut ranks[0], 1, 5), b"short");
}

#[test]
fn a_rank_that_does_not_poll_stalls_nobody_and_catches_up() {
    let mut ranks = group(3);
    let (busy, others) = ranks.split_last_mut().unwrap();
    // Far more than any socket buffer holds, in both directions.
    let count = 150;
    let long = |rank: u32, key: u64| vec![(rank as u8) ^ (key as u8); MAX_PUBLISHED_BYTES];
    for key in 0..count {
        for tcp in others.iter_mut() {
            let rank = tcp.rank();
            tcp.publish(key, &long(rank, key));
        }
        busy.publish(key, &long(2, key));
    }
    thread::scope(|scope| {
        for tcp in others.iter_mut() {
            let peer = 1 - tcp.rank();
            scope.spawn(move || assert_eq!(value(tcp, peer, count - 1), long(peer, count - 1)));
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..count {
                assert_eq!(value(busy, 0, key), long(0, key), "key {key}");
                assert_eq!(value(busy, 1, key), long(1, key), "key {key}");
            }
            // So that what it has published itself gets out.
            busy.finish(far());
        });
        for tcp in others.iter_mut() {
            scope.spawn(move || assert_eq!(value(tcp, 2, count - 1), long(2, count - 1)));
        }
    });
}

#[test]
fn the_descriptor_tells_of_news_and_is_quiet_otherwise() {
    let mut ranks = group(2);
    let ready = |tcp: &Tcp, at| !wait(tcp.fd().unwrap(), Some(at)).unwrap().is_empty();
    ranks[0].wait_for_all(far()).unwrap();
    assert!(!ranks[0].poll(), "a rank that has joined is no news");
    assert!(!ready(&ranks[0], Instant::now()));
    ranks[1].publish(1, b"x");
    assert!(ready(&ranks[0], far()));
    assert!(ranks[0].poll());
    assert!(!ranks[0].poll(), "it is reported once");
    assert!(!ready(&ranks[0], Instant::now()));
    drop(ranks.pop());
    assert!(ready(&ranks[0], far()));
    assert!(ranks[0].poll());
    assert!(!ready(&ranks[0], Instant::now()));
}

// ---- deaths ----------------------------------------------------------------------------------

#[test]
fn death_before_the_hello_is_not_a_rank_and_is_missed_by_name() {
    let mut zero = zero(3);
    let _one = join(&zero, 1);
    drop(raw(&zero, b""));
    drop(raw(&zero, &hello(2, 3, b"")[..20]));
    let error = zero.wait_for_all(Instant::now()).unwrap_err();
    let JoinError::Timeout { missing, size: 3, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.last(), Some(&2));
    assert!(error.to_string().contains("of 3 ranks did not join"), "{error}");
    assert_eq!(zero.lost_peer(), None);
    let _two = join(&zero, 2);
    zero.wait_for_all(far()).unwrap();
}

#[test]
fn death_after_the_hello_is_told_to_all() {
    let mut ranks = group(3);
    drop(ranks.remove(1));
    for tcp in &mut ranks {
        gone(tcp, 1, 1);
        assert_eq!(tcp.lost_peer(), Some(1));
    }
}

#[test]
fn death_after_a_publish_leaves_the_value() {
    let mut ranks = group(3);
    let mut dying = ranks.remove(1);
    dying.publish(1, b"will");
    for tcp in &mut ranks {
        value(tcp, 1, 1);
    }
    drop(dying);
    for tcp in &mut ranks {
        gone(tcp, 1, 2);
        assert_eq!(tcp.lost_peer(), Some(1));
        assert_eq!(value(tcp, 1, 1), b"will");
    }
}

#[test]
fn death_after_done_is_no_loss() {
    let mut ranks = group(3);
    let mut done = ranks.remove(1);
    done.publish(1, b"all");
    done.finish(far());
    done.publish(2, b"too late");
    done.finish(far());
    assert!(!ranks[0].board.all_final());
    drop(done);
    for tcp in &mut ranks {
        gone(tcp, 1, 2);
        assert_eq!(tcp.lost_peer(), None);
        assert_eq!(value(tcp, 1, 1), b"all");
    }
}

#[test]
fn the_death_of_the_server_is_noticed_by_all() {
    let mut ranks = group(3);
    ranks[0].publish(1, b"last");
    for tcp in &mut ranks {
        value(tcp, 0, 1);
    }
    drop(ranks.remove(0));
    for tcp in &mut ranks {
        until(tcp, "rank 0 is lost", |tcp| tcp.lost_peer() == Some(0));
        let other = 3 - tcp.rank();
        gone(tcp, 0, 2);
        gone(tcp, other, 1);
        assert_eq!(value(tcp, 0, 1), b"last");
        assert!(wait(tcp.fd().unwrap(), Some(Instant::now())).unwrap().is_empty());
        // Harmless now.
        tcp.publish(1, b"x");
        assert!(!tcp.poll());
        tcp.finish(far());
    }
}

#[test]
fn a_member_that_breaks_the_protocol_is_lost_and_the_run_goes_on() {
    let mut breaches: Vec<Vec<u8>> = vec![
        (MAX_FRAME_BYTES as u32 + 1).to_be_bytes().to_vec(),
        vec![0; 4],
        vec![0, 0, 0, 1, 99],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for frame in [
        Frame::Welcome,
        Frame::Value { rank: 0, key: 1, bytes: b"in another's name" },
        Frame::Standing { rank: 0, now: Standing::Done },
        Frame::Standing { rank: 1, now: Standing::Lost },
        Frame::Hello { rank: 1, size: 2, token: b"" },
    ] {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, &frame);
        breaches.push(bytes);
    }
    for breach in breaches {
        let mut zero = zero(2);
        let _stream = raw(&zero, &[hello(1, 2, b""), breach.clone()].concat());
        until(&mut zero, "rank 1 is lost", |tcp| tcp.lost_peer() == Some(1));
        assert_eq!(zero.lookup(0, 1, &mut []), Ok(None), "{breach:?}");
        assert!(zero.link.is_some());
    }
}

// ---- refusals --------------------------------------------------------------------------------

fn refusal(config: Config) -> Refusal {
    let error = Tcp::join(config).expect_err("refused");
    let text = error.to_string();
    match error {
        JoinError::Refused { server, reason } => {
            assert_eq!(text, format!("{server} refuses this program: {reason}"));
            reason
        }
        other => panic!("{other}"),
    }
}

#[test]
fn ranks_and_sizes_that_do_not_fit_are_refused() {
    let mut zero = zero(3);
    let one = join(&zero, 1);
    let c = |rank, size| Config { size, ..config(&zero, rank) };
    assert_eq!(refusal(c(2, 4)), Refusal::Size { server: 3, client: 4 });
    assert_eq!(refusal(c(1, 3)), Refusal::RankTaken { rank: 1 });
    // A client of ours checks its own rank, so this one is made by hand.
    let mut answer = Vec::new();
    raw(&zero, &hello(3, 3, b"")).read_to_end(&mut answer).unwrap();
    let mut expected = Vec::new();
    put_greeting(&mut expected, VERSION);
    let out_of_range = Refusal::RankOutOfRange { rank: 3, size: 3 };
    put_frame(&mut expected, &Frame::Refused(out_of_range));
    assert_eq!(answer, expected);
    drop(one);
    until(&mut zero, "rank 1 is lost", |tcp| tcp.lost_peer() == Some(1));
    assert_eq!(refusal(config(&zero, 1)), Refusal::RankTaken { rank: 1 }, "restarted");
    let mut two = join(&zero, 2);
    two.publish(1, b"goes on");
    assert_eq!(value(&mut zero, 2, 1), b"goes on");
}

#[test]
fn tokens_must_be_equal_on_both_sides() {
    let token = |text: &str| Some(Token::new(text).unwrap());
    let good = token("0123456789abcdef");
    let with = Tcp::join(Config { token: good.clone(), ..Config::new(0, 2, "", 0) }).unwrap();
    for bad in [None, token("0123456789abcdeg"), token("0123456789abcdef0")] {
        let reason = refusal(Config { token: bad, ..config(&with, 1) });
        assert_eq!(reason, Refusal::Token);
        assert!(reason.to_string().contains("DOORBELL_TOKEN"));
    }
    // The size would be wrong too: without the token nobody learns that.
    let c = Config { size: 3, ..config(&with, 1) };
    assert_eq!(refusal(c), Refusal::Token);
    assert!(Tcp::join(Config { token: good.clone(), ..config(&with, 1) }).is_ok());
    let without = zero(2);
    assert_eq!(refusal(Config { token: good, ..config(&without, 1) }), Refusal::Token);
}

#[test]
fn another_version_is_told_so_from_either_side() {
    let zero = zero(2);
    for version in [0, VERSION + 1, u16::MAX] {
        let mut other = Vec::new();
        put_greeting(&mut other, version);
        // Whatever that version says in its hello.
        other.extend_from_slice(&vec![0xff; 200 << 10]);
        let mut answer = Vec::new();
        raw(&zero, &other).read_to_end(&mut answer).unwrap();
        let mut expected = Vec::new();
        put_greeting(&mut expected, VERSION);
        let reason = Refusal::Version { server: VERSION, client: version };
        put_frame(&mut expected, &Frame::Refused(reason));
        assert_eq!(answer, expected);

        let mut greeting = Vec::new();
        put_greeting(&mut greeting, version);
        let expected = Refusal::Version { server: version, client: VERSION };
        assert_eq!(refusal(impostor(greeting)), expected);
    }
}

/// How to join a server that answers the first connection with `answer`, whatever it hears.
fn impostor(answer: Vec<u8>) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&answer).unwrap();
        // Until the client has gone.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    Config { join: Duration::from_secs(30), ..Config::new(1, 2, "127.0.0.1", port) }
}

#[test]
fn who_is_no_rendezvous_is_named() {
    let mut welcome_twice = Vec::new();
    put_greeting(&mut welcome_twice, VERSION);
    let mut done_first = welcome_twice.clone();
    put_frame(&mut done_first, &Frame::Standing { rank: 0, now: Standing::Done });
    welcome_twice.extend_from_slice(&[0; 4]);
    for answer in [b"HTTP/1.1 400 Bad Request".to_vec(), b"S".to_vec(), done_first, welcome_twice] {
        let error = Tcp::join(impostor(answer)).expect_err("no rendezvous");
        assert!(matches!(error, JoinError::NotARendezvous { .. }), "{error}");
        assert!(error.to_string().contains("another port"), "{error}");
    }
}

#[test]
fn a_server_that_says_nothing_or_half_is_silent() {
    for answer in [&b""[..], &MAGIC] {
        let config = Config { join: Duration::from_millis(50), ..impostor(answer.to_vec()) };
        let error = Tcp::join(config).expect_err("silent");
        assert!(matches!(error, JoinError::Silent { .. }), "{error}");
    }
}

#[test]
fn nobody_there_is_unreachable_after_the_time() {
    let free = TcpListener::bind("127.77.1.1:0").unwrap().local_addr().unwrap();
    let join = Duration::from_millis(40);
    let error =
        Tcp::join(Config { join, ..Config::new(1, 2, "127.77.1.1", free.port()) }).unwrap_err();
    let JoinError::Unreachable { server, waited, last } = &error else { panic!("{error}") };
    assert_eq!((server, *waited), (&free.to_string(), join));
    assert_eq!(last.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_server_may_start_later() {
    let ip: IpAddr = "127.77.1.2".parse().unwrap();
    let free = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap();
    let early = thread::spawn(move || {
        Tcp::join(Config::new(1, 2, ip.to_string(), free.port())).map(|tcp| tcp.server_addr())
    });
    // Whichever comes first: both orders are legal, and this makes the early one likely.
    thread::sleep(Duration::from_millis(30));
    let zero = Tcp::join(Config { listen: ip, ..Config::new(0, 2, "", free.port()) }).unwrap();
    assert_eq!(zero.server_addr(), free);
    assert_eq!(early.join().unwrap().unwrap(), free);
}

#[test]
fn a_bad_configuration_is_refused_before_anything_runs() {
    let error = |config| Tcp::join(config).expect_err("a bad configuration");
    for (rank, size) in [(0, 0), (1, 1), (0, super::super::MAX_RANKS + 1)] {
        let e = error(Config::new(rank, size, "x", 1));
        assert!(matches!(e, JoinError::BadRank { .. }), "{e}");
    }
    assert!(join::check(&Config::new(65535, super::super::MAX_RANKS, "x", 1)).is_ok());
    assert!(matches!(error(Config::new(1, 2, "x", 0)), JoinError::NoPort));
    let listen: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let open = Config { listen, ..Config::new(0, 2, "", 0) };
    let e = error(open.clone());
    assert!(matches!(e, JoinError::TokenNeeded { .. }), "{e}");
    assert!(e.to_string().contains("openssl rand -hex 16"), "{e}");
    let token = Some(Token::new([7; 16]).unwrap());
    assert!(join::check(&Config { token, ..open.clone() }).is_ok());
    assert!(join::check(&Config { rank: 1, port: 1, ..open }).is_ok(), "it listens nowhere");
    // An address of documentation (RFC 5737): no machine has it.
    let elsewhere = "203.0.113.1".parse().unwrap();
    let token = Some(Token::new([7; 16]).unwrap());
    let e = error(Config { listen: elsewhere, token, ..Config::new(0, 2, "", 0) });
    assert!(matches!(e, JoinError::Listen { .. }), "{e}");
}

#[test]
fn rank_0_reaches_a_server_that_listens_everywhere() {
    for (listen, own) in [
        ("0.0.0.0:5", "127.0.0.1:5"),
        ("[::]:5", "[::1]:5"),
        ("127.0.0.2:5", "127.0.0.2:5"),
        ("[::1]:5", "[::1]:5"),
    ] {
        assert_eq!(join::own_address(listen.parse().unwrap()), own.parse().unwrap());
    }
}

#[test]
fn a_taken_port_is_named_and_a_dropped_one_is_free() {
    let first = zero(2);
    let addr = first.server_addr();
    let _one = join(&first, 1);
    let again = || Tcp::join(Config::new(0, 2, "", addr.port()));
    let error = again().expect_err("the port is taken");
    assert!(matches!(error, JoinError::PortTaken { listen } if listen == addr), "{error}");
    let port = format!("port {}", addr.port());
    assert!(error.to_string().starts_with(&port), "{error}");
    // The listener belongs to the thread, so a free port shows that the thread has ended.
    drop(first);
    let second = again().expect("the port is free");
    assert_eq!(second.server_addr(), addr);
}

// ---- the end ---------------------------------------------------------------------------------

#[test]
fn the_server_stays_until_every_rank_is_done() {
    let mut ranks = group(3);
    let two = ranks.pop().unwrap();
    let mut one = ranks.pop().unwrap();
    let mut zero = ranks.pop().unwrap();
    zero.publish(1, b"from 0");
    let addr = zero.server_addr();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        // Later than the test would wait.
        zero.finish(Instant::now() + Duration::from_secs(3600));
        ended.send(()).unwrap();
    });
    gone(&mut one, 0, 2);
    assert_eq!(value(&mut one, 0, 1), b"from 0");
    // Rank 0 is done, and its server still carries news. The pause lets a wrong end happen first.
    thread::sleep(Duration::from_millis(20));
    one.publish(1, b"from 1");
    let mut two = two;
    assert_eq!(value(&mut two, 1, 1), b"from 1");
    one.finish(far());
    gone(&mut two, 1, 2);
    assert_eq!((one.lost_peer(), two.lost_peer()), (None, None));
    drop(two);
    end.recv_timeout(Duration::from_secs(30)).expect("it ends when all have");
    assert!(TcpListener::bind(addr).is_ok(), "the port is free");
}

#[test]
fn the_server_ends_at_the_deadline_whoever_is_left() {
    let mut ranks = group(2);
    ranks[0].publish(1, b"x");
    value(&mut ranks[1], 0, 1);
    ranks[0].finish(Instant::now() + Duration::from_millis(30));
    gone(&mut ranks[1], 0, 2);
    until(&mut ranks[1], "the end", |tcp| tcp.link.is_none());
    // Rank 0 said that it was done; if that got through, it is not lost.
    assert_eq!(value(&mut ranks[1], 0, 1), b"x");
    ranks[1].finish(far());
}

#[test]
fn finish_sends_what_is_queued() {
    let mut ranks = group(2);
    let mut one = ranks.pop().unwrap();
    let long = vec![1; MAX_PUBLISHED_BYTES];
    for key in 0..100 {
        one.publish(key, &long);
    }
    one.finish(far());
    drop(one);
    for key in 0..100 {
        assert_eq!(value(&mut ranks[0], 1, key).len(), MAX_PUBLISHED_BYTES);
    }
    assert_eq!(ranks[0].lost_peer(), None);
}

/// A rank 1 of 2 that was let in by a server made by hand, whose side of the connection is given
/// too. `behind` is what it sent in one piece with the welcome.
fn by_hand(behind: &[Frame<'_>]) -> (Tcp, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = thread::spawn(move || Tcp::join(Config::new(1, 2, "127.0.0.1", port)).unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.read_exact(&mut vec![0; hello(1, 2, b"").len()]).unwrap();
    let mut answer = Vec::new();
    put_greeting(&mut answer, VERSION);
    for frame in [&[Frame::Welcome], behind].concat() {
        put_frame(&mut answer, &frame);
    }
    stream.write_all(&answer).unwrap();
    (client.join().unwrap(), stream)
}

#[test]
fn what_came_with_the_welcome_is_there_at_once() {
    let value = Frame::Value { rank: 0, key: 1, bytes: b"x" };
    let (mut tcp, _stream) = by_hand(&[value]);
    // No descriptor would tell of it: it has been read.
    assert_eq!(tcp.lookup(0, 1, &mut []), Ok(Some(1)));
    assert!(tcp.poll());
}

#[test]
fn finish_waits_for_the_server_to_have_read_everything() {
    let (mut tcp, mut stream) = by_hand(&[]);
    let mut done = Vec::new();
    put_frame(&mut done, &Frame::Standing { rank: 1, now: Standing::Done });
    thread::scope(|scope| {
        scope.spawn(|| tcp.finish(far()));
        let mut got = vec![0; done.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, done);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let error = stream.read(&mut [0]).expect_err("the rank has not left");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(stream);
    });
    assert_eq!(tcp.lost_peer(), None);
}

#[test]
fn finish_leaves_at_the_deadline_whatever_the_server_does() {
    let (mut tcp, mut stream) = by_hand(&[]);
    tcp.finish(Instant::now());
    stream.read_to_end(&mut Vec::new()).expect("the rank has left");
    assert_eq!(tcp.lookup(0, 1, &mut []), Err(LookupError::PeerGone { rank: 0 }));
}

#[test]
fn a_server_that_breaks_the_protocol_is_lost() {
    let own = Frame::Value { rank: 1, key: 1, bytes: b"not mine" };
    let nobody = Frame::Value { rank: 2, key: 1, bytes: b"" };
    for frame in [own, nobody, Frame::Welcome, Frame::Hello { rank: 0, size: 2, token: b"" }] {
        let (mut tcp, _stream) = by_hand(std::slice::from_ref(&frame));
        until(&mut tcp, "rank 0 is lost", |tcp| tcp.lost_peer() == Some(0));
        assert_eq!(tcp.lookup(1, 1, &mut []), Err(LookupError::PeerGone { rank: 1 }), "{frame:?}");
    }
}

#[test]
fn the_descriptor_tells_when_more_can_be_sent() {
    let (mut tcp, mut stream) = by_hand(&[]);
    let long = vec![7; MAX_PUBLISHED_BYTES];
    let count = 200;
    for key in 0..count {
        tcp.publish(key, &long);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            // A frame has 17 bytes beside the value.
            let mut all = vec![0; count as usize * (MAX_PUBLISHED_BYTES + 17)];
            stream.read_exact(&mut all).unwrap();
            let mut answer = Vec::new();
            put_frame(&mut answer, &Frame::Value { rank: 0, key: 1, bytes: b"thanks" });
            stream.write_all(&answer).unwrap();
        });
        assert_eq!(value(&mut tcp, 0, 1), b"thanks");
    });
}

#[test]
fn waiting_for_all_ends_when_it_is_of_no_use() {
    let mut zero = zero(3);
    let mut one = join(&zero, 1);
    drop(raw(&zero, &hello(2, 3, b"")));
    until(&mut zero, "rank 2 is lost", |tcp| tcp.lost_peer() == Some(2));
    zero.wait_for_all(far()).expect("all have joined, whatever became of them");
    drop(zero);
    until(&mut one, "the end", |tcp| tcp.link.is_none());

    let mut zero = self::zero(4);
    let mut one = join(&zero, 1);
    drop(join(&zero, 2));
    let error = zero.wait_for_all(far()).unwrap_err();
    assert!(matches!(error, JoinError::PeerLost { rank: 2 }), "{error}");
    drop(zero);
    until(&mut one, "the end", |tcp| tcp.link.is_none());
    let error = one.wait_for_all(far()).unwrap_err();
    assert!(matches!(error, JoinError::PeerLost { rank: 2 } | JoinError::ServerGone), "{error}");

    let zero = self::zero(3);
    let mut one = join(&zero, 1);
    drop(zero);
    let error = one.wait_for_all(far()).unwrap_err();
    assert!(matches!(error, JoinError::ServerGone), "{error}");
}
