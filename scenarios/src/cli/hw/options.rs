//! From the command line to devices, and to a place in the run.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::time::Duration;

use doorbell_hw::bootstrap::launch::{self, Launch, LaunchError};
use doorbell_hw::bootstrap::tcp;
use doorbell_hw::gid::GidChoice;
use doorbell_hw::verbs::WaitMode;
use doorbell_hw::verbs::device::OpenConfig;
use doorbell_hw::verbs::objects::Posting;

use super::trouble::Trouble;
use crate::cli::args::{DeviceArgs, GidArg, LaunchArgs, PostingArg, WaitArg};
use crate::input::InputError;

/// The words of a wait mode, for reports.
pub(super) fn wait_word(mode: WaitMode) -> String {
    match mode {
        WaitMode::Poll => WaitArg::Poll,
        WaitMode::Event => WaitArg::Event,
        WaitMode::SpinThenEvent(spin) => WaitArg::Spin(spin),
    }
    .to_string()
}

/// How to wait.
pub(super) fn wait_mode(arg: WaitArg) -> WaitMode {
    match arg {
        WaitArg::Poll => WaitMode::Poll,
        WaitArg::Event => WaitMode::Event,
        WaitArg::Spin(spin) => WaitMode::SpinThenEvent(spin),
    }
}

/// How to post.
pub(super) fn posting(arg: PostingArg) -> Posting {
    match arg {
        PostingArg::Classic => Posting::Classic,
        PostingArg::Extended => Posting::Extended,
    }
}

/// What programs of host `host` open.
pub(super) fn open_config(args: &DeviceArgs, host: u32) -> OpenConfig {
    let host = host as usize;
    let gid = args.gid.get(host % args.gid.len().max(1)).map_or(GidChoice::Auto, |g| match *g {
        GidArg::Address(ip) => GidChoice::Address(ip),
        GidArg::Index(index) => GidChoice::Index(index),
    });
    let device = args.device.get(host % args.device.len().max(1)).cloned();
    OpenConfig { device, port: args.port, gid, ..OpenConfig::default() }
}

/// Where a process is in its run.
#[derive(Debug)]
pub(super) enum Place {
    /// It is all of it.
    Local,
    /// It is one rank.
    Rank(Box<tcp::Config>),
}

/// The environment, for tests another one.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

const NO_LAUNCHER: &str = "add --local for all ranks in this process; or start each rank with \
                           --rank N --server HOST:PORT; or use srun or mpirun";

/// Finds out where this process is in a run of `size` ranks.
pub(super) fn place(
    args: &LaunchArgs,
    size: u32,
    limit: Duration,
    env: Env<'_>,
) -> Result<Place, Trouble> {
    if args.local {
        return Ok(Place::Local);
    }
    let launch = match (args.rank, &args.server, &args.hosts) {
        (Some(rank), Some(server), _) => by_server(rank, size, server)?,
        (Some(rank), None, Some(hosts)) => {
            let list = launch::parse_list(hosts)
                .map_err(|why| InputError::new(format!("--hosts {hosts}: {why}")))?;
            launch::from_hosts(&list, rank, env)?
        }
        (Some(rank), None, None) => {
            let error = InputError::new(format!("--rank {rank} without --server or --hosts"));
            return Err(error.help("--server HOST:PORT says where rank 0 runs").into());
        }
        (None, ..) => launch::from_env(env)?.ok_or_else(|| {
            InputError::new(format!("which of the {size} ranks is this process?")).help(NO_LAUNCHER)
        })?,
    };
    if launch.size != size {
        let error = InputError::new(format!(
            "the launcher starts {} ranks, and the scenario has {size}: one for each thread of a \
             program, and one for its peer",
            launch.size
        ));
        return Err(error.help(format!("start {size}, such as `srun -n {size}`")).into());
    }
    if launch.rank == 0 && size > 1 && args.listen.is_none() && !is_loopback(&launch.server) {
        let error = InputError::new(format!(
            "the other ranks look for rank 0 at {}, and it would listen on 127.0.0.1 only",
            launch.server
        ));
        return Err(error.help(OPEN).into());
    }
    let listen = args.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    Ok(Place::Rank(Box::new(joining(&launch, listen, limit, env)?)))
}

const OPEN: &str = "give rank 0 --listen 0.0.0.0, and all ranks the same DOORBELL_TOKEN (`openssl \
                    rand -hex 16` makes one)";

/// Whether who connects to `host` comes in on the loopback interface.
fn is_loopback(host: &str) -> bool {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return ip.is_loopback();
    }
    let Ok(mut all) = (host, 0).to_socket_addrs() else { return false };
    all.all(|at| at.ip().is_loopback())
}

fn by_server(rank: u32, size: u32, server: &str) -> Result<Launch, Trouble> {
    if rank >= size {
        let error = InputError::new(format!("--rank {rank}, and the scenario has {size} ranks"));
        return Err(error.help(format!("0 to {}", size - 1)).into());
    }
    // A list of one host, whose name does not matter beside the server's.
    let host = launch::Host { name: String::new(), slots: size };
    let only = |name: &str| (name == "DOORBELL_SERVER").then(|| server.to_owned());
    launch::from_hosts(&[host], rank, only).map_err(|error| match error {
        LaunchError::Server { value } => {
            let text = format!("--server {value}: host or host:port is needed");
            InputError::new(text).help("an IPv6 address stands in brackets").into()
        }
        other => other.into(),
    })
}

/// How a place joins: with the token of the environment.
fn joining(
    launch: &Launch,
    listen: IpAddr,
    limit: Duration,
    env: Env<'_>,
) -> Result<tcp::Config, Trouble> {
    let Launch { rank, size, ref server, port, .. } = *launch;
    let config = tcp::Config::new(rank, size, server.clone(), port);
    Ok(tcp::Config { listen, token: launch::token(env)?, join: limit, ..config })
}

/// How one of two joins, rank 0 being the server.
pub(super) fn pair(
    host: Option<&str>,
    port: u16,
    listen: Option<IpAddr>,
    limit: Duration,
    env: Env<'_>,
) -> Result<tcp::Config, Trouble> {
    let rank = u32::from(host.is_some());
    let listen = listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let config = tcp::Config::new(rank, 2, host.unwrap_or_default(), port);
    Ok(tcp::Config { listen, token: launch::token(env)?, join: limit, ..config })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> LaunchArgs {
        LaunchArgs { local: false, rank: None, server: None, hosts: None, listen: None }
    }

    fn placed(args: &LaunchArgs, size: u32, env: &[(&str, &str)]) -> Result<tcp::Config, String> {
        let get = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        match place(args, size, Duration::from_secs(1), &get) {
            Ok(Place::Rank(config)) => Ok(*config),
            Ok(Place::Local) => Err("local".to_owned()),
            Err(Trouble::Input(e)) => {
                Err(format!("{}; {}", e.message(), e.remedy().unwrap_or("no help")))
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_a_list_and_a_launcher_all_place_a_process() {
        let by_hand = LaunchArgs { rank: Some(1), server: Some("n1:7".into()), ..args() };
        let config = placed(&by_hand, 2, &[("DOORBELL_TOKEN", "0123456789abcdef")]).unwrap();
        assert_eq!((config.rank, config.size, &*config.server, config.port), (1, 2, "n1", 7));
        assert!(config.token.is_some() && config.listen.is_loopback());
        let list = LaunchArgs { rank: Some(2), hosts: Some("a,b:2".into()), ..args() };
        let config = placed(&list, 3, &[]).unwrap();
        assert_eq!((config.rank, config.size, &*config.server), (2, 3, "a"));
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(placed(&args(), 2, &mpi).unwrap().rank, 1);
        assert_eq!(placed(&LaunchArgs { local: true, ..args() }, 9, &[]).unwrap_err(), "local");
    }

    #[test]
    fn a_place_that_makes_no_sense_is_refused_with_the_remedy() {
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "3"), ("SLURM_JOB_NODELIST", "n1")];
        let server = |rank, text: &str| LaunchArgs {
            rank: Some(rank),
            server: Some(text.to_owned()),
            ..args()
        };
        let far = "the other ranks look for rank 0 at 10.1.2.3, and it would listen on 127.0.0.1 \
                   only; give rank 0 --listen 0.0.0.0";
        let open = LaunchArgs { listen: Some([0, 0, 0, 0].into()), ..server(0, "10.1.2.3:7") };
        assert!(placed(&open, 2, &[("DOORBELL_TOKEN", "0123456789abcdef")]).is_ok());
        assert!(placed(&server(1, "10.1.2.3:7"), 2, &[]).is_ok());
        assert!(placed(&server(0, "localhost:7"), 2, &[]).is_ok());
        let short = ("DOORBELL_TOKEN", "short");
        let cases = [
            (placed(&args(), 2, &[]), "which of the 2 ranks is this process?; add --local"),
            (placed(&args(), 2, &slurm), "starts 3 ranks, and the scenario has 2"),
            (placed(&server(2, "a:1"), 2, &[]), "--rank 2, and the scenario has 2 ranks; 0 to 1"),
            (placed(&server(0, "a:x"), 2, &[]), "--server a:x: host or host:port"),
            (placed(&server(0, "10.1.2.3:7"), 2, &[]), far),
            (placed(&server(0, "[::1]:1"), 2, &[short]), "DOORBELL_TOKEN: a token of 5 bytes"),
            (placed(&LaunchArgs { rank: Some(0), ..args() }, 2, &[]), "without --server or"),
            (
                placed(&LaunchArgs { rank: Some(0), hosts: Some("a[".into()), ..args() }, 2, &[]),
                "--hosts a[: `a[`",
            ),
            (
                placed(&LaunchArgs { rank: Some(0), hosts: Some("a".into()), ..args() }, 2, &[]),
                "starts 1 ranks, and the scenario has 2",
            ),
        ];
        for (got, part) in cases {
            let got = got.unwrap_err();
            assert!(got.contains(part), "{part:?} is not in {got}");
        }
    }

    #[test]
    fn devices_and_gids_are_taken_in_turn() {
        let device = ["a", "b"].map(str::to_owned).to_vec();
        let gid = vec![GidArg::Index(1), GidArg::Index(2), GidArg::Index(3)];
        let args = DeviceArgs { device, port: Some(2), gid };
        let open = |host| {
            let c = open_config(&args, host);
            (c.device.unwrap(), c.port, c.gid)
        };
        assert_eq!(open(0), ("a".to_owned(), Some(2), GidChoice::Index(1)));
        assert_eq!(open(3), ("b".to_owned(), Some(2), GidChoice::Index(1)));
        assert_eq!(open(4), ("a".to_owned(), Some(2), GidChoice::Index(2)));
        let none = DeviceArgs { device: vec![], port: None, gid: vec![] };
        let c = open_config(&none, 1);
        assert_eq!((c.device, c.gid), (None, GidChoice::Auto));
    }
}
