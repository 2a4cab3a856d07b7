//! What the standard library does not offer of sockets, without unsafe code.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;

/// How long a connection is silent before the system asks whether the other machine is there.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// Time between two such questions.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Questions without an answer after which the connection is lost.
const PROBES: u32 = 3;

/// Lets the system notice that the other machine is gone: after 25 s if nothing is on its way to
/// it, else after its limit of retransmissions (Linux: about 15 minutes by default). A peer that is
/// only busy answers. `TCP_USER_TIMEOUT` would be quicker, but it also ends the connection of a
/// peer that does not read for a while.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// Events that one wait returns at most; the others come with the next one.
const EVENTS: usize = 64;

/// Waits for events of an epoll instance until an instant, or for ever. Returns the data and flags
/// of each; none when the time is over, or when a signal came.
pub(super) fn wait(epoll: impl AsFd, until: Option<Instant>) -> io::Result<Vec<(u64, EventFlags)>> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // A time that no clock can express is for ever.
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => events.clear(),
        Err(e) => return Err(e.into()),
    }
    Ok(events.iter().map(|event| (event.data.u64(), event.flags)).collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::event::epoll::EventData;

    use super::*;

    #[test]
    fn a_vanished_machine_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_alive(&stream).unwrap();
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(PROBE_AFTER));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(PROBE_EVERY));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(PROBES));
    }

    #[test]
    fn a_wait_ends_with_an_event_or_its_time() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let now = Instant::now();
        assert_eq!(wait(&epoll, Some(now)).unwrap(), []);
        assert_eq!(wait(&epoll, Some(now + Duration::from_millis(5))).unwrap(), []);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        epoll::add(&epoll, &listener, EventData::new_u64(7), EventFlags::IN).unwrap();
        let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(wait(&epoll, None).unwrap(), [(7, EventFlags::IN)]);
    }
}
