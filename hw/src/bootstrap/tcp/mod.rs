//! A rendezvous over TCP: rank 0 runs a server, every rank is its client.
//!
//! The server is a thread of rank 0's process. Whatever a rank publishes it sends to all others and
//! keeps for those that join later. It notices when the connection of a rank ends without a
//! "done" and tells the others; when it ends itself, all of them notice. A rank whose program is
//! busy delays nobody, and finds what it missed when it polls again.
//!
//! # Who may connect
//!
//! The server listens on loopback unless [`Config::listen`] says otherwise, and then it insists on
//! a [`Token`]. A connection must present the protocol's version, the token and a free rank within
//! [`Config::hello`], in a few hundred bytes, or it is closed; at most [`MAX_STRANGERS`]
//! connections at a time may be at that stage. The token is no encryption: who can read the
//! network can read it and what is published.
//!
//! # Limits
//!
//! Each rank takes one descriptor of rank 0's process, so large runs need `ulimit -n` above their
//! size. The work of the server grows with the square of the size.
//!
//! # Example
//!
//! ```
//! use std::time::{Duration, Instant};
//! use doorbell_hw::bootstrap::{Bootstrap, tcp};
//!
//! // Port 0: the system chooses. A real run gives every rank the same port.
//! let mut zero = tcp::Tcp::join(tcp::Config::new(0, 2, "127.0.0.1", 0)).unwrap();
//! let port = zero.server_addr().port();
//! let mut one = tcp::Tcp::join(tcp::Config::new(1, 2, "127.0.0.1", port)).unwrap();
//! let deadline = Instant::now() + Duration::from_secs(10);
//! zero.wait_for_all(deadline).unwrap();
//!
//! one.publish(7, b"hello");
//! one.finish(deadline);
//! let mut out = [0; 5];
//! while zero.lookup(1, 7, &mut out).unwrap().is_none() {
//!     zero.poll(); // a real program waits for `fd` instead of spinning
//! }
//! assert_eq!(&out, b"hello");
//! zero.finish(deadline);
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use doorbell_core::transport::LookupError;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::board::{Board, News, Standing};
use super::{Bootstrap, Token};

mod error;
mod join;
mod os;
mod server;
mod wire;

pub use error::{JoinError, Refusal};
pub use server::MAX_STRANGERS;

use os::wait;
use server::{Rules, Server};
use wire::{Filled, Frame, Inbox, MAX_FRAME_BYTES, Outbox, put_news};

/// Own news that are encoded at a time, in bytes; the last value may go beyond.
const BATCH_BYTES: usize = 64 << 10;

/// Reads of one poll, each of at most 16 KiB: a poll returns even when peers publish without end.
const READS_PER_POLL: u32 = 64;

/// Rounds of reads, of [`READS_PER_POLL`] each, when a connection has ended: more than any socket
/// buffer holds.
const LAST_ROUNDS: u32 = 64;

/// Longest [`Config::join`] and [`Config::hello`] that is honoured.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How a program joins.
#[derive(Clone, Debug)]
pub struct Config {
    /// This program's number, from 0.
    pub rank: u32,
    /// How many programs take part, this one included; at most
    /// [`MAX_RANKS`](super::MAX_RANKS).
    pub size: u32,
    /// Host name or address of rank 0's machine. Rank 0 itself does not use it. The system's
    /// resolver has limits of its own, which add to [`Config::join`].
    pub server: String,
    /// Port of the server. Rank 0 may say 0 to be given a free one.
    pub port: u16,
    /// Where rank 0 listens. The default, 127.0.0.1, serves ranks of the same machine; 0.0.0.0 all
    /// of them, and needs a token.
    pub listen: IpAddr,
    /// What every rank presents. `None`: none has one.
    pub token: Option<Token>,
    /// How long to try to reach the server and to be let in. The default, 60 s, is for launchers
    /// that start ranks one after the other. Longer: a wrong address is reported later. A day at
    /// most.
    pub join: Duration,
    /// How long the server lets a connection take to introduce itself: 2 s by default. Longer:
    /// strangers that say nothing hold their place longer; a day at most.
    pub hello: Duration,
}

impl Config {
    /// A configuration with the defaults of the other fields.
    pub fn new(rank: u32, size: u32, server: impl Into<String>, port: u16) -> Self {
        Self {
            rank,
            size,
            server: server.into(),
            port,
            listen: Ipv4Addr::LOCALHOST.into(),
            token: None,
            join: Duration::from_secs(60),
            hello: Duration::from_secs(2),
        }
    }
}

/// A rank that has joined.
///
/// Dropping it closes its connection, which tells the others that it is lost unless it has
/// [finished](Bootstrap::finish); at rank 0 it ends the server too, and frees the port.
#[derive(Debug)]
pub struct Tcp {
    rank: u32,
    board: Board,
    /// `None` once the connection has ended.
    link: Option<Link>,
    /// Watches the link; stays quiet after its end, so that nobody is woken for nothing.
    epoll: OwnedFd,
    /// News that no poll has reported yet.
    news: bool,
    done: bool,
    server_addr: SocketAddr,
    server: Option<Server>,
}

/// The connection to the server.
#[derive(Debug)]
struct Link {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
    /// Position of the board up to which own news are in the outbox.
    position: u64,
    /// Whether `epoll` watches for room to write.
    wakes_for_writing: bool,
}

/// The connection is of no use any more.
struct Broken;

impl Tcp {
    /// Joins the run; rank 0 starts the server first. Returns as soon as the server has said
    /// welcome, whoever else has joined: see [`Tcp::wait_for_all`].
    ///
    /// Blocks up to [`Config::join`]. A server that does not answer yet is tried again and again.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(mut config: Config) -> Result<Self, JoinError> {
        join::check(&config)?;
        config.join = config.join.min(LONGEST);
        config.hello = config.hello.min(LONGEST);
        let mut server = None;
        if config.rank == 0 {
            let Config { size, hello, ref token, .. } = config;
            let rules = Rules { size, token: token.clone(), hello };
            let listen = SocketAddr::new(config.listen, config.port);
            server = Some(Server::start(listen, rules)?);
        }
        let own = server.as_ref().map(|server| join::own_address(server.addr()));
        let own_host = own.map(|own| own.ip().to_string());
        let host = own_host.as_deref().unwrap_or(&config.server);
        let port = own.map_or(config.port, |own| own.port());
        let (stream, peer, inbox) = join::connect(&config, (host, port))?;
        let server_addr = server.as_ref().map_or(peer, Server::addr);
        let link = Link::new(stream, inbox).map_err(JoinError::Resources)?;
        let mut board = Board::new(config.size);
        board.advance(config.rank, Standing::Here);
        let epoll = link.watch().map_err(JoinError::Resources)?;
        let (rank, link) = (config.rank, Some(link));
        let mut tcp =
            Self { rank, board, link, epoll, news: false, done: false, server_addr, server };
        // What came with the welcome is in the inbox already, and would wake nobody.
        tcp.exchange();
        Ok(tcp)
    }

    /// Where the server listens, as this rank sees it.
    pub fn server_addr(&self) -> SocketAddr {
        self.server_addr
    }

    /// Waits until every rank has joined.
    ///
    /// # Errors
    /// [`JoinError::Timeout`] names the ranks that did not; [`JoinError::PeerLost`] and
    /// [`JoinError::ServerGone`] say that waiting on is of no use.
    pub fn wait_for_all(&mut self, deadline: Instant) -> Result<(), JoinError> {
        let start = Instant::now();
        loop {
            self.exchange();
            let missing = self.board.absent();
            if missing.is_empty() {
                return Ok(());
            }
            match self.board.first_lost() {
                Some(0) => return Err(JoinError::ServerGone),
                Some(rank) => return Err(JoinError::PeerLost { rank }),
                None if self.board.is_cut() => return Err(JoinError::ServerGone),
                None => {}
            }
            let now = Instant::now();
            if now >= deadline {
                let (size, waited) = (self.board.size(), now - start);
                return Err(JoinError::Timeout { missing, size, waited });
            }
            wait(&self.epoll, Some(deadline)).map_err(JoinError::Resources)?;
        }
    }

    /// Sends and receives what can be without blocking.
    fn exchange(&mut self) {
        let Some(link) = &mut self.link else { return };
        let sent = link.send(&self.board, self.rank, &self.epoll);
        // A connection that takes nothing any more may still hold what the server had sent.
        let rounds = if sent.is_ok() { 1 } else { LAST_ROUNDS };
        for _ in 0..rounds {
            match link.receive(&mut self.board, self.rank) {
                Ok(news) => self.news |= news,
                Err(Broken) => return self.cut(),
            }
        }
        if sent.is_err() {
            self.cut();
        }
    }

    /// The connection has ended. That is what the server does with a rank that is done.
    fn cut(&mut self) {
        self.link = None;
        self.board.cut();
        self.news = true;
        if !self.done {
            self.board.advance(0, Standing::Lost);
        }
    }
}

impl Bootstrap for Tcp {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board.size()
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        self.board.publish(self.rank, key, bytes);
        // At once, since a busy program may not poll for long. If this meets the connection's end,
        // the next poll does too and reports it.
        if let Some(link) = &mut self.link {
            let _ = link.send(&self.board, self.rank, &self.epoll);
        }
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        self.board.lookup(peer, key, out)
    }

    fn poll(&mut self) -> bool {
        self.exchange();
        std::mem::take(&mut self.news)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn lost_peer(&self) -> Option<u32> {
        self.board.first_lost()
    }

    /// The server of rank 0 stays until every rank has said that it is done or is lost, ranks that
    /// have not joined yet included, or until the deadline.
    fn finish(&mut self, deadline: Instant) {
        self.board.advance(self.rank, Standing::Done);
        self.done = true;
        // The server closes the connection when it has read everything. Leaving earlier could reset
        // the connection and lose what is on its way.
        loop {
            self.exchange();
            if self.link.is_none() || Instant::now() >= deadline {
                break;
            }
            if wait(&self.epoll, Some(deadline)).is_err() {
                break;
            }
        }
        self.link = None;
        self.board.cut();
        if let Some(server) = &mut self.server {
            server.finish(deadline);
        }
    }
}

impl Link {
    fn new(stream: TcpStream, mut inbox: Inbox) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        inbox.max_frame = MAX_FRAME_BYTES;
        let outbox = Outbox::default();
        Ok(Self { stream, inbox, outbox, position: 0, wakes_for_writing: false })
    }

    /// An epoll instance that watches the connection.
    fn watch(&self) -> io::Result<OwnedFd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &self.stream, EventData::new_u64(0), EventFlags::IN)?;
        Ok(epoll)
    }

    /// Sends the own news that the connection takes; `epoll` tells when it takes more.
    fn send(&mut self, board: &Board, rank: u32, epoll: &OwnedFd) -> Result<(), Broken> {
        loop {
            while self.outbox.buf.len() < BATCH_BYTES
                && let Some((next, news)) = board.at(self.position)
            {
                self.position = next;
                let speaks = match news {
                    News::Standing { now, .. } => *now == Standing::Done,
                    News::Value { .. } => true,
                };
                if speaks && news.rank() == rank {
                    put_news(&mut self.outbox.buf, news);
                }
            }
            if self.outbox.is_empty() {
                break;
            }
            self.outbox.flush(&mut self.stream).map_err(|_| Broken)?;
            if !self.outbox.is_empty() {
                break;
            }
        }
        let blocked = !self.outbox.is_empty();
        if blocked != self.wakes_for_writing {
            self.wakes_for_writing = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(epoll, &self.stream, EventData::new_u64(0), flags).map_err(|_| Broken)?;
        }
        Ok(())
    }

    /// Takes in what has arrived. Whether that is news to the program.
    fn receive(&mut self, board: &mut Board, rank: u32) -> Result<bool, Broken> {
        // What came with the welcome.
        let mut news = self.take_in(board, rank)?;
        for _ in 0..READS_PER_POLL {
            match self.inbox.fill(&mut self.stream) {
                Filled::Some => news |= self.take_in(board, rank)?,
                Filled::Nothing => break,
                Filled::End => return Err(Broken),
            }
        }
        Ok(news)
    }

    /// Takes in the frames that are complete.
    fn take_in(&mut self, board: &mut Board, rank: u32) -> Result<bool, Broken> {
        let mut news = false;
        while let Some(frame) = self.inbox.frame().map_err(|_| Broken)? {
            match frame {
                Frame::Value { rank: of, key, bytes } if of != rank => {
                    board.put(of, key, bytes).map_err(|_| Broken)?;
                    news = true;
                }
                Frame::Standing { rank: of, now } if of != rank => {
                    news |= board.advance(of, now) && now.is_final();
                }
                _ => return Err(Broken),
            }
        }
        Ok(news)
    }
}

#[cfg(test)]
mod stranger_tests;
#[cfg(test)]
mod tests;
