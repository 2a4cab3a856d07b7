//! Both roles over loopback against plain sockets that do what the tool does, or do not.

use super::*;

const LIMIT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(30);

fn message(n: u8) -> Message {
    Message { lid: 0, qpn: Qpn::new(0x12), psn: Psn::new(0xABCDEF), gid: [n; 16] }
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A session in `role` and the peer's end.
fn pair(role: Role, limit: Duration) -> (Session, TcpStream) {
    let (session, peer) = match role {
        Role::Server => {
            let listener = Listener::bind(loopback()).unwrap();
            let peer = TcpStream::connect(listener.at()).unwrap();
            (listener.accept(limit).unwrap(), peer)
        }
        Role::Client => {
            let tool = TcpListener::bind(loopback()).unwrap();
            let session = Session::connect(tool.local_addr().unwrap(), limit).unwrap();
            (session, tool.accept().unwrap().0)
        }
    };
    peer.set_read_timeout(Some(LIMIT)).unwrap();
    (session, peer)
}

/// Polls until something happens. The session's own limit ends it long before this one.
fn news(session: &mut Session) -> Result<(), ExchangeError> {
    let until = Instant::now() + LIMIT + LIMIT;
    while !session.poll()? {
        assert!(Instant::now() < until, "the session has no limit");
        std::thread::yield_now();
    }
    Ok(())
}

fn heard<const N: usize>(peer: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    peer.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_format_is_that_of_the_tool() {
    let gid = *b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55";
    let m = Message { lid: 0xA, qpn: Qpn::new(0x11), psn: Psn::new(0xFF_FFFF), gid };
    let text = b"000a:000011:ffffff:fe80000000000000021122fffe334455\0";
    assert_eq!(&m.encode(), text);
    assert_eq!(Message::decode(text), Some(m));
    assert_eq!(Message::decode(&text.to_ascii_uppercase()), Some(m));
    for (at, byte) in [(0, b'g'), (0, b'+'), (4, b'0'), (11, b' '), (51, b'0'), (20, 0xFF)] {
        let mut bad = *text;
        bad[at] = byte;
        assert_eq!(Message::decode(&bad), None, "{at}");
    }
    assert_eq!(Message::decode(&text[..51]), None);
    assert_eq!(Message::decode(b"000a:000011:ffffff\0"), None, "from before GIDs");
    assert_eq!(Message::decode(&[text.as_slice(), b"\0"].concat()), None);
    assert_eq!(Message::decode(&[]), None);
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn a_client_tells_first_and_says_done() {
    let (mut session, mut tool) = pair(Role::Client, LIMIT);
    session.tell(&message(1)).unwrap();
    assert_eq!(Message::decode(&heard::<52>(&mut tool)), Some(message(1)));
    assert!(!session.poll().unwrap() && !session.peer_is_ready());
    assert!(session.fd().is_some());
    tool.write_all(&message(2).encode()).unwrap();
    news(&mut session).unwrap();
    assert_eq!(session.peer(), Some(&message(2)));
    assert!(session.peer_is_ready() && session.fd().is_none());
    session.done().unwrap();
    assert_eq!(&heard::<5>(&mut tool), DONE);
    drop(tool);
    assert!(!session.poll().unwrap(), "the tool hangs up after that, which is no error");
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn a_server_answers_and_waits_for_done() {
    let (mut session, mut tool) = pair(Role::Server, LIMIT);
    // In pieces, as a slow network might bring it.
    let bytes = message(1).encode();
    tool.write_all(&bytes[..7]).unwrap();
    assert!(!session.poll().unwrap() || session.peer().is_none());
    tool.write_all(&bytes[7..]).unwrap();
    news(&mut session).unwrap();
    assert_eq!(session.peer(), Some(&message(1)));
    assert!(!session.peer_is_ready());
    session.tell(&message(2)).unwrap();
    assert_eq!(Message::decode(&heard::<52>(&mut tool)), Some(message(2)));
    tool.write_all(DONE).unwrap();
    news(&mut session).unwrap();
    assert!(session.peer_is_ready());
    drop(tool);
    assert!(!session.poll().unwrap());
}

/// What the session makes of a peer that sends this and then stays, or goes.
fn against(role: Role, sent: &[u8], goes: bool) -> ExchangeError {
    let (mut session, mut peer) = pair(role, SHORT);
    peer.write_all(sent).unwrap();
    let peer = (!goes).then_some(peer);
    let error = news(&mut session).and_then(|()| news(&mut session)).unwrap_err();
    drop(peer);
    error
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn garbage_silence_and_other_versions_are_errors() {
    use ExchangeError as E;
    let whole = message(1).encode();
    for role in [Role::Client, Role::Server] {
        assert!(matches!(against(role, b"", false), E::Silent { got: 0, need: 52, .. }));
        assert!(matches!(against(role, b"", true), E::Closed { got: 0, need: 52 }));
        assert!(matches!(against(role, &whole[..51], false), E::Silent { got: 51, .. }));
        assert!(matches!(against(role, &whole[..51], true), E::Closed { got: 51, .. }));
        assert!(matches!(against(role, b"0000:000011:ffffff\0", false), E::OtherVersion));
        let error = against(role, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false);
        let text = "\"GET / HTTP/1.1\\r\\nHost: x\\r\" is no message";
        assert!(error.to_string().starts_with(text), "{error}");
        let nowhere = Message { gid: [0; 16], ..message(0) }.encode();
        let error = against(role, &nowhere, false);
        assert!(matches!(error, E::NoAddress) && error.to_string().contains("-g INDEX"));
        let long = [&whole[..], b"0"].concat();
        assert!(matches!(against(role, &long, false), E::Garbage { .. }));
    }
    assert!(matches!(against(Role::Server, &whole, true), E::Closed { got: 0, need: 5 }));
    assert!(matches!(against(Role::Server, &whole, false), E::Silent { got: 0, need: 5, .. }));
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn a_lid_alone_is_an_address() {
    let (mut session, mut peer) = pair(Role::Server, LIMIT);
    let infiniband = Message { lid: 7, gid: [0; 16], ..message(0) };
    peer.write_all(&infiniband.encode()).unwrap();
    news(&mut session).unwrap();
    session.tell(&message(2)).unwrap();
    peer.write_all(b"gone\0").unwrap();
    let error = news(&mut session).unwrap_err();
    assert!(error.to_string().starts_with("\"gone\\x00\" is no message"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "sockets")]
fn nobody_there_and_port_taken() {
    let listener = Listener::bind(loopback()).unwrap();
    let at = listener.at();
    let error = Listener::bind(at).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {at}: ")), "{error}");
    let error = listener.accept(SHORT).unwrap_err();
    assert!(matches!(error, ExchangeError::NobodyCame { .. }), "{error}");
    // The listener is gone, so the same port refuses.
    let error = Session::connect(at, LIMIT).unwrap_err();
    assert!(error.to_string().contains("start the server first"), "{error}");
}
