//! How `ibv_rc_pingpong`, the public tool of libibverbs, exchanges addresses over TCP.
//!
//! | | client | server |
//! |---|---|---|
//! | 1 | connects and sends its [`Message`] | listens on port 18515 |
//! | 2 | | connects its QP to that address, then answers with its own message |
//! | 3 | sends `done` | from here on messages may come |
//! | 4 | connects its QP and sends first | answers |
//!
//! Every message has a fixed size, its NUL included, and the tool takes each with a single `read`;
//! so each leaves here with a single `write`. The tool waits for ever and believes whatever comes;
//! here garbage, a wrong size and silence are errors, and everything has a limit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use doorbell_core::verbs::{Mtu, Psn, Qpn};

/// TCP port of the tool.
pub const PORT: u16 = 18515;
/// Bytes of a ping or a pong, by default.
pub const SIZE: u32 = 4096;
/// Round trips, by default.
pub const ITERATIONS: u64 = 1000;
/// Path MTU, by default. Both sides must use the same.
pub const MTU: Mtu = Mtu::B1024;

/// Ends the exchange: four letters and a NUL.
const DONE: &[u8; 5] = b"done\0";
/// Bytes of the message before the tool knew GIDs: LID, QPN, PSN, NUL.
const OLD_BYTES: usize = 19;
/// How often a listener looks whether somebody came.
const LOOK: Duration = Duration::from_millis(5);

/// What each side tells the other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// QP number.
    pub qpn: Qpn,
    /// First PSN that it will send.
    pub psn: Psn,
    /// GID; all zero when the tool was started without `-g`.
    pub gid: [u8; 16],
}

impl Message {
    /// Bytes of the encoded form: LID, QPN and PSN in 4, 6 and 6 hexadecimal digits, the GID in
    /// 32, colons between them, a NUL behind.
    pub const BYTES: usize = 52;

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let gid = u128::from_be_bytes(self.gid);
        let (lid, qpn, psn) = (self.lid, self.qpn.value(), self.psn.value());
        let text = format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}\0");
        text.as_bytes().try_into().expect("the widths are fixed, and QPN and PSN have 24 bits")
    }

    /// Decodes; `None` for anything that the tool would not have sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES || !Self::may_start(bytes) {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let number = |at: usize, digits| u32::from_str_radix(&text[at..at + digits], 16).ok();
        let gid = u128::from_str_radix(&text[19..51], 16).ok()?;
        Some(Self {
            lid: u16::try_from(number(0, 4)?).ok()?,
            qpn: Qpn::new(number(5, 6)?),
            psn: Psn::new(number(12, 6)?),
            gid: gid.to_be_bytes(),
        })
    }

    /// Whether a message may start with these bytes.
    fn may_start(bytes: &[u8]) -> bool {
        let fits = |(at, byte): (usize, &u8)| match at {
            4 | 11 | 18 => *byte == b':',
            51 => *byte == 0,
            _ => byte.is_ascii_hexdigit(),
        };
        bytes.iter().enumerate().all(fits)
    }
}

/// Who connects.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Connects, tells its address first and sends the first message.
    Client,
    /// Listens, and answers.
    Server,
}

/// Why the exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nobody listens there.
    #[error(
        "cannot connect to {to}: {error}; start the server first (`ibv_rc_pingpong` without a \
         host), and check address, port and firewall"
    )]
    Connect {
        /// The address.
        to: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on {at}: {error}; end who uses the port, or choose another")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// No client within the limit.
    #[error("nobody connected to {at} within {limit:?}; start the client there, or wait longer")]
    NobodyCame {
        /// The address.
        at: SocketAddr,
        /// The limit.
        limit: Duration,
    },
    /// The peer said nothing, or too little, within the limit.
    #[error(
        "{got} of {need} bytes within {limit:?}; does the peer hang, or wait for something else?"
    )]
    Silent {
        /// Bytes that came.
        got: usize,
        /// Bytes of the message.
        need: usize,
        /// The limit.
        limit: Duration,
    },
    /// The peer closed the connection.
    #[error("the peer closed the connection after {got} of {need} bytes; its own output says why")]
    Closed {
        /// Bytes that came.
        got: usize,
        /// Bytes of the message.
        need: usize,
    },
    /// Something that the tool does not send.
    #[error("\"{start}\" is no message of ibv_rc_pingpong; is another program on that port?")]
    Garbage {
        /// Its first bytes, those that cannot be shown escaped.
        start: String,
    },
    /// The message of an `ibv_rc_pingpong` that knows no GIDs.
    #[error(
        "the peer is an ibv_rc_pingpong from before GIDs, whose messages are shorter; install a \
         libibverbs of this decade there"
    )]
    OtherVersion,
    /// Neither LID nor GID.
    #[error(
        "the peer has neither LID nor GID, so no packet can reach it; start it with `-g INDEX`, \
         the index of a RoCEv2 GID of its port (`doorbell hw info` there lists them)"
    )]
    NoAddress,
    /// The connection broke.
    #[error("the connection to the peer broke: {0}; see what the peer says")]
    Broken(io::Error),
}

/// Waits for one client. Only who asks for another address than loopback listens to the world.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    at: SocketAddr,
}

impl Listener {
    /// Listens; port 0 means any free one.
    ///
    /// # Errors
    /// [`ExchangeError::Listen`], for a port that is taken, for example.
    pub fn bind(at: SocketAddr) -> Result<Self, ExchangeError> {
        let listen = || {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            let at = listener.local_addr()?;
            Ok(Self { listener, at })
        };
        listen().map_err(|error| ExchangeError::Listen { at, error })
    }

    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Waits at most `limit` for the client; the exchange that follows has the same limit. Nobody
    /// else can connect any more.
    ///
    /// # Errors
    /// [`ExchangeError::NobodyCame`], [`ExchangeError::Broken`].
    pub fn accept(self, limit: Duration) -> Result<Session, ExchangeError> {
        let until = Instant::now() + limit;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Session::new(stream, Role::Server, limit),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ExchangeError::Broken(error)),
            }
            if Instant::now() >= until {
                return Err(ExchangeError::NobodyCame { at: self.at, limit });
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The exchange with one peer. Only [`Session::connect`] blocks.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    role: Role,
    limit: Duration,
    until: Instant,
    /// What has come of the message that is expected next.
    inbox: Vec<u8>,
    peer: Option<Message>,
    /// Whether the peer said `done` (to a server).
    heard_done: bool,
}

impl Session {
    /// Connects as a client; connecting and the exchange may each take `limit`.
    ///
    /// # Errors
    /// [`ExchangeError::Connect`], [`ExchangeError::Broken`].
    pub fn connect(to: SocketAddr, limit: Duration) -> Result<Self, ExchangeError> {
        let stream = TcpStream::connect_timeout(&to, limit)
            .map_err(|error| ExchangeError::Connect { to, error })?;
        Self::new(stream, Role::Client, limit)
    }

    fn new(stream: TcpStream, role: Role, limit: Duration) -> Result<Self, ExchangeError> {
        let prepare = || {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)
        };
        prepare().map_err(ExchangeError::Broken)?;
        let until = Instant::now() + limit;
        Ok(Self { stream, role, limit, until, inbox: vec![], peer: None, heard_done: false })
    }

    /// Who this side is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Tells the own address: a client at once, a server when its QP can take messages.
    ///
    /// # Errors
    /// [`ExchangeError::Broken`].
    pub fn tell(&mut self, mine: &Message) -> Result<(), ExchangeError> {
        debug_assert!(self.role == Role::Client || self.peer.is_some(), "a server only answers");
        self.write(&mine.encode())
    }

    /// Ends the exchange, as a client: the server's address has come.
    ///
    /// # Errors
    /// [`ExchangeError::Broken`].
    pub fn done(&mut self) -> Result<(), ExchangeError> {
        debug_assert!(self.role == Role::Client && self.peer.is_some(), "nothing to end yet");
        self.write(DONE)
    }

    /// In one piece, since the tool reads each message with one call. There is always room: the
    /// socket's buffer is larger than all that is ever sent.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        match self.stream.write(bytes) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(ExchangeError::Broken(io::ErrorKind::WriteZero.into())),
            Err(error) => Err(ExchangeError::Broken(error)),
        }
    }

    /// The peer's address, when it has come.
    pub fn peer(&self) -> Option<&Message> {
        self.peer.as_ref()
    }

    /// Whether the peer takes messages: to a client it says so with its address, to a server by
    /// `done`.
    pub fn peer_is_ready(&self) -> bool {
        match self.role {
            Role::Client => self.peer.is_some(),
            Role::Server => self.heard_done,
        }
    }

    /// Becomes readable when [`Session::poll`] would find something; `None` when all has come.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.peer_is_ready()).then(|| self.stream.as_fd())
    }

    /// Takes in what has come; whether that completes a message.
    ///
    /// # Errors
    /// See [`ExchangeError`]. Nothing more is to be expected of the peer after one.
    pub fn poll(&mut self) -> Result<bool, ExchangeError> {
        if self.peer_is_ready() {
            return Ok(false);
        }
        let need = if self.peer.is_none() { Message::BYTES } else { DONE.len() };
        // One byte more than is expected would show that somebody else talks.
        let mut bytes = [0; Message::BYTES + 1];
        let room = need + 1 - self.inbox.len();
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => return Err(ExchangeError::Closed { got: self.inbox.len(), need }),
            Ok(n) => self.inbox.extend_from_slice(&bytes[..n]),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                if Instant::now() >= self.until {
                    let (got, limit) = (self.inbox.len(), self.limit);
                    return Err(ExchangeError::Silent { got, need, limit });
                }
            }
            Err(error) => return Err(ExchangeError::Broken(error)),
        }
        self.check()?;
        if self.inbox.len() < need {
            return Ok(false);
        }
        self.take()?;
        Ok(true)
    }

    /// Refuses what cannot become the message that is expected, before its end has come.
    fn check(&self) -> Result<(), ExchangeError> {
        let expected = match self.peer {
            Some(_) => DONE.starts_with(&self.inbox),
            None => self.inbox.len() <= Message::BYTES && Message::may_start(&self.inbox),
        };
        if expected {
            return Ok(());
        }
        if self.peer.is_none() && self.inbox.len() == OLD_BYTES && self.inbox.ends_with(b"\0") {
            return Err(ExchangeError::OtherVersion);
        }
        let start = self.inbox[..self.inbox.len().min(24)].escape_ascii().to_string();
        Err(ExchangeError::Garbage { start })
    }

    /// Reads the message that is complete.
    fn take(&mut self) -> Result<(), ExchangeError> {
        let bytes = std::mem::take(&mut self.inbox);
        if self.peer.is_some() {
            self.heard_done = true;
            return Ok(());
        }
        let message = Message::decode(&bytes).expect("checked byte by byte");
        if message.lid == 0 && message.gid == [0; 16] {
            return Err(ExchangeError::NoAddress);
        }
        self.peer = Some(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
