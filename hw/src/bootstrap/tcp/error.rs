//! Why a program did not join.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::super::MAX_RANKS;

/// Why the rendezvous did not let a program in.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// The two speak different versions of the protocol.
    #[error(
        "the server speaks version {server} of the rendezvous and this program version {client}: \
         start the same build of doorbell everywhere"
    )]
    Version {
        /// The server's.
        server: u16,
        /// The refused program's.
        client: u16,
    },
    /// The tokens differ, or only one side has one.
    #[error("the token is not the server's: give every rank the same DOORBELL_TOKEN")]
    Token,
    /// The two disagree about the size of the run.
    #[error(
        "the server expects {server} ranks and this program {client}: start all of them with the \
         same size; if it is another run that uses the port, choose another port"
    )]
    Size {
        /// The server's.
        server: u32,
        /// The refused program's.
        client: u32,
    },
    /// There is no such rank.
    #[error("rank {rank} of {size}: ranks go from 0 to one less than the size")]
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// The size of the run.
        size: u32,
    },
    /// A program with that rank has joined before.
    #[error(
        "rank {rank} has joined already: two programs were started with it, or one was restarted, \
         and then the whole run must be"
    )]
    RankTaken {
        /// The rank.
        rank: u32,
    },
}

/// A program that did not join. Nothing is left behind: no port, no thread, no connection.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The rank or the size makes no run.
    #[error("rank {rank} of {size}: a run has 1 to {MAX_RANKS} ranks, numbered from 0")]
    BadRank {
        /// The rank of the configuration.
        rank: u32,
        /// The size of the configuration.
        size: u32,
    },
    /// A rank other than 0 was given no port to connect to.
    #[error("port 0 lets rank 0 choose one; give the other ranks the port that it chose")]
    NoPort,
    /// Rank 0 was to listen where other machines can connect, and has no token.
    #[error(
        "listening on {listen} lets other machines connect, so the run needs a token: set \
         DOORBELL_TOKEN to the same value on every rank, made by `openssl rand -hex 16`"
    )]
    TokenNeeded {
        /// Where it was to listen.
        listen: SocketAddr,
    },
    /// Somebody else listens on the port of rank 0.
    #[error(
        "port {} of {} is taken by another program (`ss -ltnp` shows which): stop it, or give \
         every rank another port, by --server HOST:PORT, --port-number or \
         DOORBELL_SERVER=host:port",
        listen.port(), listen.ip()
    )]
    PortTaken {
        /// Where rank 0 was to listen.
        listen: SocketAddr,
    },
    /// Rank 0 could not listen.
    #[error(
        "cannot listen on {listen}: {source}; the address must be one of this machine and the \
         port above 1023"
    )]
    Listen {
        /// Where rank 0 was to listen.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answered at the server's address.
    #[error(
        "no rendezvous at {server} after {waited:?} (last attempt: {last}): see that rank 0 runs, \
         that the address is its own and not one of another network, that it listens on more than \
         loopback if the ranks are on several machines, and that no firewall closes the port"
    )]
    Unreachable {
        /// Whom the program tried to reach.
        server: String,
        /// How long.
        waited: Duration,
        /// What the last attempt met.
        last: io::Error,
    },
    /// The server took the connection and said nothing until the time was over.
    #[error(
        "{server} took the connection and did not answer within {waited:?}: another program \
         listens there, or rank 0 is stopped; choose another port or look at rank 0"
    )]
    Silent {
        /// Whom the program reached.
        server: String,
        /// How long it tried.
        waited: Duration,
    },
    /// Whoever listens at the server's address is no rendezvous.
    #[error(
        "what listens at {server} is no rendezvous of doorbell: give every rank another port, \
         e.g. by DOORBELL_SERVER=host:port"
    )]
    NotARendezvous {
        /// Whom the program reached.
        server: String,
    },
    /// The rendezvous answered, and does not want this program.
    #[error("{server} refuses this program: {reason}")]
    Refused {
        /// Who.
        server: String,
        /// Why.
        #[source]
        reason: Refusal,
    },
    /// Some ranks did not come.
    #[error(
        "{} of {size} ranks did not join within {waited:?}, the first of them rank {}: see \
         whether they were started, and what they printed", missing.len(), missing[0]
    )]
    Timeout {
        /// The ranks that are missing, in order; at least one.
        missing: Vec<u32>,
        /// The size of the run.
        size: u32,
        /// How long the program waited for them.
        waited: Duration,
    },
    /// A rank went away before all had joined.
    #[error("rank {rank} went away before all ranks had joined: see what it printed")]
    PeerLost {
        /// Which.
        rank: u32,
    },
    /// The rendezvous ended before all had joined.
    #[error("the rendezvous at rank 0 ended before all ranks had joined: see what it printed")]
    ServerGone,
    /// The system refused a thread or a descriptor.
    #[error("no resources for the rendezvous: {0}; see `ulimit -n` and `ulimit -u`")]
    Resources(#[source] io::Error),
}
