//! Rank, size and server of a program, from the launcher that started it.
//!
//! | Launcher | Variables |
//! |---|---|
//! | by hand | `DOORBELL_RANK`, `DOORBELL_SIZE`, `DOORBELL_SERVER` |
//! | `mpirun` (Open MPI) | `OMPI_COMM_WORLD_RANK`, `.._SIZE`, `.._LOCAL_SIZE`; `DOORBELL_SERVER` if on several machines |
//! | `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS`, `SLURM_STEP_NODELIST` or `SLURM_JOB_NODELIST`, `SLURM_JOB_ID`, `SLURM_STEP_ID` |
//!
//! The first in this list that is there counts: what the user says beats a launcher, and `mpirun`
//! inside an allocation inherits the variables of Slurm, which then describe something else.
//! `DOORBELL_SERVER=host` or `host:port` overrides the server in every case, and `DOORBELL_TOKEN`
//! is the token.
//!
//! The server is on the first host, where `srun` puts rank 0 unless `--distribution=arbitrary`
//! says otherwise.

use std::net::IpAddr;

use thiserror::Error;

use super::{MAX_RANKS, Token, TokenError};

mod hosts;

pub use hosts::{Host, HostListError, parse_file, parse_list};

/// Port when nothing says otherwise: below the ports that Linux gives out by itself (32768 and up).
pub const DEFAULT_PORT: u16 = 24_000;

/// Ports from [`DEFAULT_PORT`] on that runs under `srun` choose from by their job and step, so that
/// two runs that share a machine seldom meet.
pub const PORT_COUNT: u16 = 8_000;

/// Where a program runs within its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Host of rank 0.
    pub server: String,
    /// Port of the rendezvous there.
    pub port: u16,
    /// Who says so.
    pub launcher: Launcher,
}

/// Who started a program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// Somebody by hand, or a script: variables or a list of hosts.
    ByHand,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Slurm's `srun`.
    Slurm,
}

/// Why the place of a program in its run is not known.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LaunchError {
    /// A variable that others call for is missing.
    #[error("{found} is set and {missing} is not: {remedy}")]
    Missing {
        /// What is there.
        found: &'static str,
        /// What is not.
        missing: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A variable is no number of its range.
    #[error("{name}={value}: a whole number from {min} to {max} is needed")]
    Number {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The least that makes sense.
        min: u64,
        /// The most that makes sense.
        max: u64,
    },
    /// The rank is not below the size.
    #[error(
        "{rank_name}={rank} and {size_name}={size} contradict each other: ranks go from 0 to one \
         less than the size; unset the variables of a launcher that is not in use"
    )]
    Contradiction {
        /// The variable of the rank.
        rank_name: &'static str,
        /// Its value.
        rank: u32,
        /// The variable of the size.
        size_name: &'static str,
        /// Its value.
        size: u32,
    },
    /// The variable holds no list of hosts.
    #[error("{name}={value}: {why}; the name of the first host in DOORBELL_SERVER does as well")]
    Hosts {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        #[source]
        why: HostListError,
    },
    /// The variable names no server.
    #[error("DOORBELL_SERVER={value}: host or host:port is needed, an IPv6 address in brackets")]
    Server {
        /// Its value.
        value: String,
    },
    /// The variable holds no token. Its value is not shown: it is a secret.
    #[error("DOORBELL_TOKEN: {0}")]
    Token(#[from] TokenError),
    /// The rank is not in the list of hosts.
    #[error(
        "rank {rank}, and the list of hosts has room for {size} ranks, counted from 0: add hosts, \
         or ranks to a host as in host:4"
    )]
    NotInList {
        /// The rank.
        rank: u32,
        /// Ranks of the list.
        size: u32,
    },
}

/// The names of a launcher's variables.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    /// The first that is there counts.
    size: [&'static str; 2],
}

const BY_HAND: Names = Names {
    launcher: Launcher::ByHand,
    rank: "DOORBELL_RANK",
    size: ["DOORBELL_SIZE", "DOORBELL_SIZE"],
};
const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    size: ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"],
};
const SLURM: Names = Names {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    // `srun -n 2` inside a job of four tasks has both.
    size: ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
};

const ALL_VARIABLES: &str = "the launcher sets both; set both by hand, or neither";
const SERVER_REMEDY: &str = "set DOORBELL_SERVER to the host of rank 0, e.g. \
                             `mpirun -x DOORBELL_SERVER=host` or `srun --export=ALL,..`";

/// The place that the environment gives this program; `None` without any launcher's variables.
/// `get` looks a variable up: `|name| std::env::var(name).ok()`.
///
/// # Errors
/// See [`LaunchError`].
pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Option<Launch>, LaunchError> {
    for names in [BY_HAND, OPEN_MPI, SLURM] {
        let Some((rank, size)) = place(&get, &names)? else { continue };
        let (server, port) = match named_server(&get)? {
            Some((server, Some(port))) => (server, port),
            Some((server, None)) => (server, default_port(&get, names.launcher)?),
            None => (server_of(&get, &names, size)?, default_port(&get, names.launcher)?),
        };
        return Ok(Some(Launch { rank, size, server, port, launcher: names.launcher }));
    }
    Ok(None)
}

/// The place of a rank in a list of hosts: the first host's ranks come first, and rank 0 is the
/// server. `get` is asked for `DOORBELL_SERVER`, which overrides it.
///
/// # Errors
/// See [`LaunchError`].
pub fn from_hosts(
    hosts: &[Host],
    rank: u32,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Launch, LaunchError> {
    let size = hosts.iter().map(|host| host.slots).fold(0, u32::saturating_add);
    if rank >= size {
        return Err(LaunchError::NotInList { rank, size });
    }
    let (server, port) = named_server(&get)?.unwrap_or_else(|| (one_or_first(hosts), None));
    let port = port.unwrap_or(DEFAULT_PORT);
    Ok(Launch { rank, size, server, port, launcher: Launcher::ByHand })
}

/// The token in `DOORBELL_TOKEN`; `None` without that variable, or when it is empty.
///
/// # Errors
/// [`LaunchError::Token`] when it is too short or too long.
pub fn token(get: impl Fn(&str) -> Option<String>) -> Result<Option<Token>, LaunchError> {
    let token = set(&get, "DOORBELL_TOKEN").map(|value| Token::new(value.trim()));
    token.transpose().map_err(LaunchError::Token)
}

/// A variable that is there and not empty.
fn set(get: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    get(name).filter(|value| !value.trim().is_empty())
}

/// A variable's number, if it is there.
fn number(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    min: u64,
    max: u64,
) -> Result<Option<u64>, LaunchError> {
    let Some(value) = set(get, name) else { return Ok(None) };
    match value.trim().parse() {
        Ok(n) if (min..=max).contains(&n) => Ok(Some(n)),
        _ => Err(LaunchError::Number { name, value, min, max }),
    }
}

/// Rank and size by a launcher's variables; `None` without any of them.
fn place(
    get: &impl Fn(&str) -> Option<String>,
    names: &Names,
) -> Result<Option<(u32, u32)>, LaunchError> {
    let Names { rank: rank_name, size: size_names, .. } = *names;
    let present = size_names.into_iter().find(|name| set(get, name).is_some());
    let rank = number(get, rank_name, 0, u64::from(MAX_RANKS) - 1)?.map(|n| n as u32);
    let missing = |found, missing| LaunchError::Missing { found, missing, remedy: ALL_VARIABLES };
    let (rank, size_name) = match (rank, present) {
        (None, None) => return Ok(None),
        // A shell of an allocation has the number of its tasks and is none of them.
        (None, Some(_)) if names.launcher == Launcher::Slurm => return Ok(None),
        (None, Some(found)) => return Err(missing(found, rank_name)),
        (Some(_), None) => return Err(missing(rank_name, size_names[1])),
        (Some(rank), Some(size_name)) => (rank, size_name),
    };
    let size = number(get, size_name, 1, MAX_RANKS.into())?.unwrap_or(0) as u32;
    if rank >= size {
        return Err(LaunchError::Contradiction { rank_name, rank, size_name, size });
    }
    Ok(Some((rank, size)))
}

/// Host and port of `DOORBELL_SERVER`.
fn named_server(
    get: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(String, Option<u16>)>, LaunchError> {
    let Some(value) = set(get, "DOORBELL_SERVER") else { return Ok(None) };
    let text = value.trim();
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, "")) => (v6, None),
        Some((v6, behind)) => (v6, Some(behind.strip_prefix(':').unwrap_or("none"))),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map(|port| port.parse().ok().filter(|&port| port != 0));
    let bracketed = text.starts_with('[');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let good_host = if bracketed {
        host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6())
    } else {
        !host.is_empty() && host.chars().all(is_name)
    };
    match port {
        None if good_host => Ok(Some((host.to_owned(), None))),
        Some(Some(port)) if good_host => Ok(Some((host.to_owned(), Some(port)))),
        _ => Err(LaunchError::Server { value }),
    }
}

/// The host of rank 0, from what the launcher tells of the machines.
fn server_of(
    get: &impl Fn(&str) -> Option<String>,
    names: &Names,
    size: u32,
) -> Result<String, LaunchError> {
    let found = names.rank;
    let missing = |missing| LaunchError::Missing { found, missing, remedy: SERVER_REMEDY };
    match names.launcher {
        Launcher::ByHand => Err(missing("DOORBELL_SERVER")),
        Launcher::OpenMpi => {
            // Open MPI tells no host of rank 0, but how many ranks share this machine.
            let local = number(get, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, MAX_RANKS.into())?;
            let all_here = local == Some(size.into());
            if all_here { Ok(LOOPBACK.to_owned()) } else { Err(missing("DOORBELL_SERVER")) }
        }
        Launcher::Slurm => {
            let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
            let name = lists.into_iter().find(|name| set(get, name).is_some());
            let name = name.ok_or_else(|| missing("SLURM_STEP_NODELIST"))?;
            let value = set(get, name).unwrap_or_default();
            match parse_list(&value) {
                Ok(hosts) => Ok(one_or_first(&hosts)),
                Err(why) => Err(LaunchError::Hosts { name, value, why }),
            }
        }
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// The first host; loopback if it is the only one, since the server listens there by default.
fn one_or_first(hosts: &[Host]) -> String {
    let first = &hosts[0].name;
    let alone = hosts.iter().all(|host| host.name == *first);
    if alone { LOOPBACK.to_owned() } else { first.clone() }
}

/// The port that all ranks of a run agree on without talking to each other.
fn default_port(
    get: &impl Fn(&str) -> Option<String>,
    launcher: Launcher,
) -> Result<u16, LaunchError> {
    if launcher != Launcher::Slurm {
        return Ok(DEFAULT_PORT);
    }
    let max = u64::from(u32::MAX);
    let job = number(get, "SLURM_JOB_ID", 0, max)?.unwrap_or(0);
    let step = number(get, "SLURM_STEP_ID", 0, max)?.unwrap_or(0);
    // Steps of a job follow each other; jobs that run at once have numbers that are near. A prime
    // that is larger than the usual number of steps keeps both apart.
    Ok(DEFAULT_PORT + ((job * 61 + step) % u64::from(PORT_COUNT)) as u16)
}

#[cfg(test)]
mod tests;
