//! Reaching the rendezvous, and being let in.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::super::{MAX_RANKS, Token};
use super::Config;
use super::error::{JoinError, Refusal};
use super::os::keep_alive;
use super::wire::{
    Filled, Frame, Inbox, MAX_HELLO_BYTES, VERSION, WireError, put_frame, put_greeting,
};

/// Pause after the first attempt that failed; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause between two attempts. Longer: a late server is found later.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Longest time that one address of the server gets; a name may have several.
const CONNECT: Duration = Duration::from_secs(2);

/// Checks what can be checked without the network.
pub(super) fn check(config: &Config) -> Result<(), JoinError> {
    let Config { rank, size, port, .. } = *config;
    if !(1..=MAX_RANKS).contains(&size) || rank >= size {
        return Err(JoinError::BadRank { rank, size });
    }
    if rank != 0 && port == 0 {
        return Err(JoinError::NoPort);
    }
    let listen = SocketAddr::new(config.listen, port);
    if rank == 0 && !config.listen.is_loopback() && config.token.is_none() {
        return Err(JoinError::TokenNeeded { listen });
    }
    Ok(())
}

/// Where rank 0 reaches its own server.
pub(super) fn own_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// What one attempt met.
enum Failed {
    /// The server may not run yet.
    Again(io::Error),
    /// Another attempt would meet the same.
    ForGood(JoinError),
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Self {
        Self::Again(e)
    }
}

/// A connection whose other side has said welcome, with what it has sent behind that.
pub(super) fn connect(
    config: &Config,
    (host, port): (&str, u16),
) -> Result<(TcpStream, SocketAddr, Inbox), JoinError> {
    let start = Instant::now();
    let deadline = start + config.join;
    let mut hello = Vec::new();
    put_greeting(&mut hello, VERSION);
    let token = config.token.as_ref().map_or(&[][..], Token::bytes);
    put_frame(&mut hello, &Frame::Hello { rank: config.rank, size: config.size, token });
    let attempt = Attempt { host, port, hello: &hello, start, deadline };
    let mut pause = FIRST_PAUSE;
    loop {
        let last = match attempt.run() {
            Ok(joined) => return Ok(joined),
            Err(Failed::ForGood(e)) => return Err(e),
            Err(Failed::Again(e)) => e,
        };
        if Instant::now() + pause >= deadline {
            let server = attempt.server();
            return Err(JoinError::Unreachable { server, waited: config.join, last });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Attempt<'a> {
    host: &'a str,
    port: u16,
    hello: &'a [u8],
    start: Instant,
    deadline: Instant,
}

impl Attempt<'_> {
    fn server(&self) -> String {
        // An IPv6 address has colons of its own.
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The time that is left; a socket takes no limit of zero.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    fn run(&self) -> Result<(TcpStream, SocketAddr, Inbox), Failed> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host, self.port).to_socket_addrs()? {
            let stream = match TcpStream::connect_timeout(&address, self.left().min(CONNECT)) {
                Ok(stream) => stream,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            // Without a listener, a port that the system gives out may be connected to itself.
            if stream.local_addr()? == address {
                last = io::ErrorKind::ConnectionRefused.into();
                continue;
            }
            let inbox = self.introduce(&stream)?;
            return Ok((stream, address, inbox));
        }
        Err(Failed::Again(last))
    }

    /// Says hello and reads up to the welcome.
    fn introduce(&self, stream: &TcpStream) -> Result<Inbox, Failed> {
        stream.set_nodelay(true)?;
        keep_alive(stream)?;
        stream.set_write_timeout(Some(self.left()))?;
        (&*stream).write_all(self.hello)?;
        let mut inbox = Inbox::new(MAX_HELLO_BYTES);
        let mut greeted = false;
        loop {
            stream.set_read_timeout(Some(self.left()))?;
            let filled = inbox.fill(&mut &*stream);
            if filled == Filled::Some && self.listen(&mut inbox, &mut greeted)? {
                return Ok(inbox);
            }
            if filled == Filled::End {
                let text = "the connection was closed without an answer";
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, text).into());
            }
            if Instant::now() >= self.deadline {
                let waited = self.deadline - self.start;
                let silent = JoinError::Silent { server: self.server(), waited };
                return Err(Failed::ForGood(silent));
            }
        }
    }

    /// Whether the answer is complete, and a welcome.
    fn listen(&self, inbox: &mut Inbox, greeted: &mut bool) -> Result<bool, Failed> {
        let stranger = |_: WireError| Failed::ForGood(self.stranger());
        if !*greeted {
            match inbox.greeting().map_err(stranger)? {
                None => return Ok(false),
                Some(VERSION) => *greeted = true,
                Some(server) => {
                    return Err(self.refused(Refusal::Version { server, client: VERSION }));
                }
            }
        }
        match inbox.frame().map_err(stranger)? {
            None => Ok(false),
            Some(Frame::Welcome) => Ok(true),
            Some(Frame::Refused(reason)) => Err(self.refused(reason)),
            Some(_) => Err(Failed::ForGood(self.stranger())),
        }
    }

    fn stranger(&self) -> JoinError {
        JoinError::NotARendezvous { server: self.server() }
    }

    fn refused(&self, reason: Refusal) -> Failed {
        Failed::ForGood(JoinError::Refused { server: self.server(), reason })
    }
}
