//! The rendezvous: one thread of rank 0's process that never blocks but in `epoll_wait`.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::super::board::{Board, Standing};
use super::super::token::{Token, same_token};
use super::error::{JoinError, Refusal};
use super::os::{keep_alive, wait};
use super::wire::{
    Filled, Frame, Inbox, MAX_FRAME_BYTES, MAX_HELLO_BYTES, Outbox, VERSION, WireError, put_frame,
    put_greeting, put_news,
};

/// Most connections at a time that have not introduced themselves. More wait in the system's
/// backlog until one of these has, or its time is over: a crowd of strangers delays the ranks but
/// neither shuts them out nor takes memory.
pub const MAX_STRANGERS: usize = 64;

/// News that are encoded for a member at a time, in bytes; the last value may go beyond.
const BATCH_BYTES: usize = 64 << 10;

/// How long no connection is taken after the system has refused one, e.g. for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const LISTENER: u64 = 0;
const WAKE: u64 = 1;

/// Whom the rendezvous lets in.
#[derive(Debug)]
pub(super) struct Rules {
    /// Ranks of the run.
    pub(super) size: u32,
    /// What each must present.
    pub(super) token: Option<Token>,
    /// How long a connection may take to introduce itself.
    pub(super) hello: Duration,
}

/// The running rendezvous. Dropping it closes the port and every connection, and joins the thread.
#[derive(Debug)]
pub(super) struct Server {
    addr: SocketAddr,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// How the owner tells the thread to end.
#[derive(Debug)]
struct Stop {
    wake: OwnedFd,
    /// When to end at the latest; earlier once every rank is done or lost.
    at: Mutex<Option<Instant>>,
}

impl Server {
    /// Listens and starts the thread.
    pub(super) fn start(listen: SocketAddr, rules: Rules) -> Result<Self, JoinError> {
        let listener = TcpListener::bind(listen).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => JoinError::PortTaken { listen },
            _ => JoinError::Listen { listen, source },
        })?;
        let start = || {
            listener.set_nonblocking(true)?;
            let addr = listener.local_addr()?;
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let stop = Arc::new(Stop { wake, at: Mutex::new(None) });
            let rendezvous = Rendezvous::new(listener, rules, Arc::clone(&stop))?;
            let thread = thread::Builder::new()
                .name("rendezvous".to_owned())
                .spawn(move || rendezvous.run())?;
            Ok(Self { addr, stop, thread: Some(thread) })
        };
        start().map_err(JoinError::Resources)
    }

    /// Where it listens.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it once every rank is done or lost, or at the deadline.
    pub(super) fn finish(&mut self, deadline: Instant) {
        let Some(thread) = self.thread.take() else { return };
        *self.stop.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
        // The counter of an eventfd is full after 2^64 - 2 writes; this is the only one.
        let woken = rustix::io::write(&self.stop.wake, &1_u64.to_ne_bytes());
        debug_assert_eq!(woken, Ok(8));
        // If the thread has panicked, its connections are closed and every rank has learned that.
        let _ = thread.join();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish(Instant::now());
    }
}

/// What the thread knows.
struct Rendezvous {
    rules: Rules,
    stop: Arc<Stop>,
    epoll: OwnedFd,
    listener: TcpListener,
    /// Whether the thread wakes up for new connections.
    accepting: bool,
    /// Set after the system has refused a connection.
    accept_at: Option<Instant>,
    conns: BTreeMap<u64, Conn>,
    next_id: u64,
    board: Board,
}

struct Conn {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
    role: Role,
    /// Whether the connection took less than was written, and has not woken the thread since.
    blocked: bool,
    /// Whether the thread wakes up when the connection takes more.
    wakes_for_writing: bool,
}

#[derive(Copy, Clone)]
enum Role {
    /// It has not introduced itself.
    Stranger { until: Instant, greeted: bool },
    /// It was told why it may not join. What it still sends is thrown away: closing at once would
    /// reset the connection, and the reason might never be read.
    Refused { until: Instant },
    /// A rank, with its position on the board.
    Member { rank: u32, position: u64 },
}

/// The connection is to be closed.
struct Close;

impl From<WireError> for Close {
    fn from(_: WireError) -> Self {
        Self
    }
}

impl From<io::Error> for Close {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Rendezvous {
    fn new(listener: TcpListener, rules: Rules, stop: Arc<Stop>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &stop.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            board: Board::new(rules.size),
            rules,
            stop,
            epoll,
            listener,
            accepting: true,
            accept_at: None,
            conns: BTreeMap::new(),
            next_id: WAKE + 1,
        })
    }

    /// Ends when it is told to, or when the system fails it: then every rank loses its connection
    /// and learns that the rendezvous is gone.
    fn run(mut self) {
        let mut more = false;
        loop {
            let now = Instant::now();
            self.expire(now);
            let stop_at = *self.stop.at.lock().unwrap_or_else(PoisonError::into_inner);
            if stop_at.is_some_and(|at| now >= at || self.board.all_final()) {
                return;
            }
            let Ok(()) = self.watch_listener(now) else { return };
            let until = if more { Some(now) } else { self.next_deadline(stop_at) };
            let Ok(events) = wait(&self.epoll, until) else { return };
            for (id, flags) in events {
                match id {
                    LISTENER => self.accept(),
                    WAKE => self.drain_wake(),
                    _ => self.serve(id, flags),
                }
            }
            more = self.deliver();
        }
    }

    fn drain_wake(&self) {
        // Only an empty counter fails here, and then there is nothing to drain.
        let _ = rustix::io::read(&self.stop.wake, &mut [0_u8; 8]);
    }

    /// The next instant at which something must be done without an event.
    fn next_deadline(&self, stop_at: Option<Instant>) -> Option<Instant> {
        let roles = self.conns.values().filter_map(|conn| match conn.role {
            Role::Stranger { until, .. } | Role::Refused { until } => Some(until),
            Role::Member { .. } => None,
        });
        roles.chain(stop_at).chain(self.accept_at).min()
    }

    /// Closes the strangers whose time is over.
    fn expire(&mut self, now: Instant) {
        self.conns.retain(|_, conn| match conn.role {
            Role::Stranger { until, .. } | Role::Refused { until } => now < until,
            Role::Member { .. } => true,
        });
    }

    /// Takes new connections only while there is room for strangers.
    fn watch_listener(&mut self, now: Instant) -> io::Result<()> {
        self.accept_at = self.accept_at.filter(|&at| now < at);
        let accepting = self.accept_at.is_none() && self.has_room();
        if accepting != self.accepting {
            let flags = if accepting { EventFlags::IN } else { EventFlags::empty() };
            epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags)?;
            self.accepting = accepting;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let is_stranger = |conn: &&Conn| !matches!(conn.role, Role::Member { .. });
        self.conns.values().filter(is_stranger).count() < MAX_STRANGERS
    }

    fn accept(&mut self) {
        while self.has_room() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // It was gone before it was taken.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            let id = self.next_id;
            // A connection that cannot be set up is closed by its drop.
            let _ = self.admit(id, stream);
        }
    }

    fn admit(&mut self, id: u64, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        epoll::add(&self.epoll, &stream, EventData::new_u64(id), EventFlags::IN)?;
        let until = Instant::now() + self.rules.hello;
        let conn = Conn {
            stream,
            inbox: Inbox::new(MAX_HELLO_BYTES),
            outbox: Outbox::default(),
            role: Role::Stranger { until, greeted: false },
            blocked: false,
            wakes_for_writing: false,
        };
        self.conns.insert(id, conn);
        self.next_id += 1;
        Ok(())
    }

    /// Reads once from a connection and does what it says.
    fn serve(&mut self, id: u64, flags: EventFlags) {
        // Closed in this very round.
        let Some(mut conn) = self.conns.remove(&id) else { return };
        if flags.contains(EventFlags::OUT) {
            conn.blocked = false;
        }
        let result = match conn.inbox.fill(&mut conn.stream) {
            Filled::Some => self.converse(&mut conn),
            Filled::Nothing => Ok(()),
            Filled::End => Err(Close),
        };
        match result {
            Ok(()) => {
                self.conns.insert(id, conn);
            }
            Err(Close) => self.close(conn.role),
        }
    }

    /// Notes that the connection of somebody is closed, or about to be.
    fn close(&mut self, role: Role) {
        if let Role::Member { rank, .. } = role {
            // No news if the rank had said that it is done.
            self.board.advance(rank, Standing::Lost);
        }
    }

    /// Does what the bytes in the inbox say. The bytes of a refused one say nothing.
    fn converse(&mut self, conn: &mut Conn) -> Result<(), Close> {
        if let Role::Stranger { until, greeted: false } = conn.role {
            match conn.inbox.greeting()? {
                None => return Ok(()),
                Some(VERSION) => conn.role = Role::Stranger { until, greeted: true },
                Some(client) => {
                    refuse(conn, until, Refusal::Version { server: VERSION, client })?;
                }
            }
        }
        if let Role::Stranger { until, greeted: true } = conn.role {
            let Some(frame) = conn.inbox.frame()? else { return Ok(()) };
            let Frame::Hello { rank, size, token } = frame else { return Err(Close) };
            match self.judge(rank, size, token) {
                Ok(()) => self.welcome(conn, rank),
                Err(refusal) => refuse(conn, until, refusal)?,
            }
        }
        match conn.role {
            Role::Member { rank, .. } => self.take_in(conn, rank),
            Role::Refused { .. } => {
                conn.inbox.clear();
                Ok(())
            }
            Role::Stranger { .. } => Ok(()),
        }
    }

    /// Whether somebody may join. The token comes first: without it nobody learns about the run.
    fn judge(&self, rank: u32, size: u32, token: &[u8]) -> Result<(), Refusal> {
        let expected = self.rules.token.as_ref().map_or(&[][..], Token::bytes);
        if !same_token(expected, token) {
            return Err(Refusal::Token);
        }
        if size != self.rules.size {
            return Err(Refusal::Size { server: self.rules.size, client: size });
        }
        match self.board.standing(rank) {
            None => Err(Refusal::RankOutOfRange { rank, size }),
            Some(Standing::Absent) => Ok(()),
            // One that was lost may not come back: the others have been told.
            Some(_) => Err(Refusal::RankTaken { rank }),
        }
    }

    fn welcome(&mut self, conn: &mut Conn, rank: u32) {
        let news = self.board.advance(rank, Standing::Here);
        debug_assert!(news, "an absent rank was judged");
        conn.role = Role::Member { rank, position: 0 };
        conn.inbox.max_frame = MAX_FRAME_BYTES;
        put_greeting(&mut conn.outbox.buf, VERSION);
        put_frame(&mut conn.outbox.buf, &Frame::Welcome);
    }

    /// Takes what a member publishes. A member that breaks the protocol is closed, and so is one
    /// that is done: the end of its connection tells it that everything has arrived.
    fn take_in(&mut self, conn: &mut Conn, rank: u32) -> Result<(), Close> {
        while let Some(frame) = conn.inbox.frame()? {
            match frame {
                Frame::Value { rank: of, key, bytes } if of == rank => {
                    self.board.put(rank, key, bytes).map_err(|_| Close)?;
                }
                Frame::Standing { rank: of, now: Standing::Done } if of == rank => {
                    self.board.advance(rank, Standing::Done);
                    return Err(Close);
                }
                _ => return Err(Close),
            }
        }
        Ok(())
    }

    /// Sends each member what it has not seen. Whether there is more that could be sent now.
    fn deliver(&mut self) -> bool {
        let mut more = false;
        let mut gone = Vec::new();
        for (&id, conn) in &mut self.conns {
            match send_news(&self.epoll, id, conn, &self.board) {
                Ok(rest) => more |= rest,
                Err(Close) => gone.push(id),
            }
        }
        for id in gone {
            if let Some(conn) = self.conns.remove(&id) {
                self.close(conn.role);
                more = true;
            }
        }
        more
    }
}

/// Sends one batch to a member that takes it. Whether it would take more.
fn send_news(epoll: &OwnedFd, id: u64, conn: &mut Conn, board: &Board) -> Result<bool, Close> {
    let Role::Member { rank, mut position } = conn.role else { return Ok(false) };
    if conn.blocked {
        return Ok(false);
    }
    while conn.outbox.buf.len() < BATCH_BYTES
        && let Some((next, news)) = board.at(position)
    {
        position = next;
        if news.rank() != rank {
            put_news(&mut conn.outbox.buf, news);
        }
    }
    conn.role = Role::Member { rank, position };
    conn.outbox.flush(&mut conn.stream)?;
    let blocked = !conn.outbox.is_empty();
    conn.blocked = blocked;
    if conn.wakes_for_writing != blocked {
        conn.wakes_for_writing = blocked;
        let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(epoll, &conn.stream, EventData::new_u64(id), flags)
            .map_err(io::Error::from)?;
    }
    Ok(!blocked && position < board.end())
}

/// Tells a stranger why it may not join. The answer fits into any socket's buffer.
fn refuse(conn: &mut Conn, until: Instant, refusal: Refusal) -> Result<(), Close> {
    put_greeting(&mut conn.outbox.buf, VERSION);
    put_frame(&mut conn.outbox.buf, &Frame::Refused(refusal));
    conn.outbox.flush(&mut conn.stream)?;
    conn.stream.shutdown(Shutdown::Write)?;
    conn.role = Role::Refused { until };
    Ok(())
}
