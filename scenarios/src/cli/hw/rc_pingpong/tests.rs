//! Against a hand-made tool: plain sockets that block, one call for each message.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use doorbell_core::transport::Address;
use doorbell_core::verbs::{Psn, Qpn};
use doorbell_hw::rc_pingpong::Listener;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const TOOL: &[u8; 52] = b"0000:000017:00abcd:00000000000000000000ffff0a000002\0";
const OURS: &[u8; 52] = b"0000:000011:ffffff:00000000000000000000ffff0a000001\0";

fn gid(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last]
}

fn our_card() -> [u8; Card::ENCODED_BYTES] {
    let address = Address { gid: gid(1), ..Address::default() };
    let (qpn, psn) = (Qpn::new(0x11), Psn::new(0xFF_FFFF));
    let endpoint = Endpoint { address, qpn, psn, mtu: Mtu::B4096 };
    Card { endpoint, target: Target::default() }.encode()
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// One `read`, as the tool does: what comes in two pieces is an error there.
fn read_once(tool: &mut TcpStream, expected: &[u8]) {
    tool.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = [0; 64];
    let n = tool.read(&mut bytes).unwrap();
    assert_eq!(&bytes[..n], expected);
}

fn look(b: &mut ToolBootstrap, topic: Topic) -> Option<Vec<u8>> {
    let (peer, me) = (b.peer(), b.rank());
    let mut out = [0; Card::ENCODED_BYTES];
    b.lookup(peer, key(topic, me, 0), &mut out).unwrap().map(|n| out[..n].to_vec())
}

/// Most looks at a peer that should answer; a look is followed by 1 ms.
const LOOKS: u32 = 20_000;

/// Polls until `found` finds something.
fn until<T>(b: &mut ToolBootstrap, found: impl Fn(&mut ToolBootstrap) -> Option<T>) -> T {
    for _ in 0..LOOKS {
        b.poll();
        if let Some(it) = found(b) {
            return it;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    panic!("the peer never answered");
}

/// Polls until `topic` of the peer is there.
fn wait(b: &mut ToolBootstrap, topic: Topic) -> Vec<u8> {
    until(b, |b| {
        assert!(b.failure.get().is_none(), "{:?}", b.failure);
        look(b, topic)
    })
}

/// What the program does, in its order; the card that it got.
fn program(b: &mut ToolBootstrap) -> Card {
    let peer = b.peer();
    b.publish(key(Topic::Card, peer, 0), &our_card());
    let card = Card::decode(&wait(b, Topic::Card)).unwrap();
    b.publish(key(Topic::Ready, peer, 0), &[]);
    wait(b, Topic::Ready);
    b.publish(key(Topic::Done, peer, 0), &[1]);
    assert_eq!(look(b, Topic::Done), None);
    assert!(b.fd().is_none() && b.lost_peer().is_none(), "nothing more is to come");
    card
}

fn check(card: &Card) {
    let e = card.endpoint;
    assert_eq!((e.qpn, e.psn, e.mtu), (Qpn::new(0x17), Psn::new(0xABCD), Mtu::B1024));
    assert_eq!(e.address, Address { gid: gid(2), ..Address::default() });
}

#[test]
fn our_client_with_the_tool_as_server() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let at = listener.local_addr().unwrap();
    thread::scope(|s| {
        s.spawn(move || {
            let mut tool = listener.accept().unwrap().0;
            read_once(&mut tool, OURS);
            tool.write_all(TOOL).unwrap();
            read_once(&mut tool, b"done\0");
        });
        let mut b = ToolBootstrap::new(Session::connect(at, LIMIT).unwrap(), Mtu::B1024);
        assert_eq!((b.rank(), b.size(), b.peer()), (0, 2, 1));
        check(&program(&mut b));
    });
}

#[test]
fn our_server_with_the_tool_as_client() {
    let listener = Listener::bind(loopback()).unwrap();
    let at = listener.at();
    thread::scope(|s| {
        s.spawn(move || {
            let mut tool = TcpStream::connect(at).unwrap();
            tool.write_all(TOOL).unwrap();
            read_once(&mut tool, OURS);
            tool.write_all(b"done\0").unwrap();
        });
        let mut b = ToolBootstrap::new(listener.accept(LIMIT).unwrap(), Mtu::B1024);
        assert_eq!((b.rank(), b.size(), b.peer()), (1, 2, 0));
        check(&program(&mut b));
    });
}

#[test]
fn a_server_says_nothing_before_it_is_ready() {
    let listener = Listener::bind(loopback()).unwrap();
    let mut tool = TcpStream::connect(listener.at()).unwrap();
    let mut b = ToolBootstrap::new(listener.accept(LIMIT).unwrap(), Mtu::B1024);
    b.publish(key(Topic::Card, 0, 0), &our_card());
    tool.write_all(TOOL).unwrap();
    wait(&mut b, Topic::Card);
    assert_eq!(look(&mut b, Topic::Ready), None);
    tool.set_nonblocking(true).unwrap();
    let early = tool.read(&mut [0]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    tool.set_nonblocking(false).unwrap();
    b.publish(key(Topic::Ready, 0, 0), &[]);
    read_once(&mut tool, OURS);
}

#[test]
fn a_failed_exchange_is_a_lost_peer_with_a_reason() {
    let listener = Listener::bind(loopback()).unwrap();
    let mut tool = TcpStream::connect(listener.at()).unwrap();
    let mut b = ToolBootstrap::new(listener.accept(LIMIT).unwrap(), Mtu::B1024);
    let failure = b.failure();
    b.publish(key(Topic::Card, 0, 0), &our_card());
    tool.write_all(b"hello").unwrap();
    until(&mut b, |b| b.lost_peer());
    assert!(matches!(failure.get(), Some(ExchangeError::Garbage { .. })));
    assert_eq!(b.lost_peer(), Some(0));
    assert!(!b.poll() && b.fd().is_none(), "said once");
    let gone = b.lookup(0, key(Topic::Card, 1, 0), &mut []);
    assert_eq!(gone, Err(LookupError::PeerGone { rank: 0 }));
    b.publish(key(Topic::Ready, 0, 0), &[]);
    let nobody = b.lookup(2, key(Topic::Card, 1, 0), &mut []);
    assert_eq!(nobody, Err(LookupError::NoSuchRank { rank: 2, size: 2 }));
}
