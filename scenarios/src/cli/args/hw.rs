//! Flags of `doorbell hw run` and `doorbell hw pingpong`.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use doorbell_core::units::{Bytes, Span};

use super::Target;
use crate::quantity::Unit;

/// How the ranks of a run find each other.
#[derive(ClapArgs, Debug)]
#[group(id = "launch", multiple = true)]
pub struct LaunchArgs {
    /// All ranks in this process, each in its thread
    #[arg(long, conflicts_with_all = ["rank", "server", "hosts", "listen"])]
    pub local: bool,
    /// Number of this process, from 0; needs --server or --hosts. Without it, srun's, mpirun's or
    /// the environment's DOORBELL_RANK
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rank: Option<u32>,
    /// Where rank 0 runs
    #[arg(long, value_name = "HOST:PORT", requires = "rank", conflicts_with = "hosts")]
    pub server: Option<String>,
    /// Hosts of the ranks, in order, such as a,b:2,n[01-03]; rank 0 runs on the first
    #[arg(long, value_name = "LIST", requires = "rank")]
    pub hosts: Option<String>,
    /// Where rank 0 listens; other addresses than loopback need DOORBELL_TOKEN [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
}

/// Which device, port and GID.
#[derive(ClapArgs, Debug)]
pub struct DeviceArgs {
    /// RDMA device; several, such as mlx5_0,mlx5_1, are taken in turn by the number of the host
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Port of the device, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub port: Option<u8>,
    /// GID, by its address or as index:N; several are taken in turn, as devices are
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub gid: Vec<GidArg>,
}

/// A GID on the command line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GidArg {
    /// By address.
    Address(IpAddr),
    /// By its index in the table of the port.
    Index(u32),
}

impl std::str::FromStr for GidArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let gid = match text.strip_prefix("index:") {
            Some(index) => index.parse().ok().map(Self::Index),
            None => text.parse().ok().map(Self::Address),
        };
        gid.ok_or_else(|| {
            "an IPv4 or IPv6 address, or index:N (`doorbell hw info` lists them)".to_owned()
        })
    }
}

/// How a program waits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WaitArg {
    /// Polls.
    Poll,
    /// Sleeps until an event.
    Event,
    /// Polls for so long, then sleeps.
    Spin(Duration),
}

impl std::str::FromStr for WaitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "poll" => Ok(Self::Poll),
            "event" => Ok(Self::Event),
            _ => {
                let span = text.strip_prefix("spin:").ok_or("poll, event or spin:20us")?;
                duration(span).map(Self::Spin)
            }
        }
    }
}

impl std::fmt::Display for WaitArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Poll => f.write_str("poll"),
            Self::Event => f.write_str("event"),
            Self::Spin(d) => write!(f, "spin:{}ns", d.as_nanos()),
        }
    }
}

/// How work requests are posted.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum PostingArg {
    /// A chain for ibv_post_send
    Classic,
    /// ibv_wr_start to ibv_wr_complete, where the provider has it
    Extended,
}

impl PostingArg {
    /// The word of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Extended => "extended",
        }
    }
}

/// Longest `--limit`.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A positive time of at most a day, such as `60s`.
fn duration(text: &str) -> Result<Duration, String> {
    let span = Span::parse(text).map_err(|e| e.to_string())?;
    let duration = Duration::from_nanos(span.as_ps() / 1000);
    if duration.is_zero() || duration > LONGEST {
        return Err("from 1ns to 86400s".to_owned());
    }
    Ok(duration)
}

/// Largest `--size`: a message of verbs has at most 2 GiB, devices may take less.
const LARGEST: u64 = 1 << 30;

fn message(text: &str) -> Result<u32, String> {
    match Bytes::parse(text) {
        Ok(Bytes(n @ 1..=LARGEST)) => Ok(n as u32),
        Ok(_) => Err("from 1B to 1GiB".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// `doorbell hw run`
#[derive(ClapArgs, Debug)]
pub struct HwRunArgs {
    /// The scenario.
    #[command(flatten)]
    pub target: Target,
    /// Run this variant of the file
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The ranks.
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How to wait: poll, event, or spin:DURATION and then event [default: as each program's
    /// `poll` says]
    #[arg(long, value_name = "MODE")]
    pub wait: Option<WaitArg>,
    /// How to post
    #[arg(long, value_enum, default_value = "classic")]
    pub posting: PostingArg,
    /// Longest time that joining, and then the run, may take. Who sends and hears nothing for 30 s,
    /// or for three quarters of the limit if that is less, ends too
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub limit: Duration,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `doorbell hw pingpong`
#[derive(ClapArgs, Debug)]
pub struct HwPingpongArgs {
    /// Host of the server; without it, be the server
    pub host: Option<String>,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value = "4096B", value_parser = message)]
    pub size: u32,
    /// Round trips that are measured
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub iterations: u64,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// TCP port of the server
    #[arg(long, value_name = "N", default_value_t = 18515,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub port_number: u16,
    /// Where the server listens; other addresses than loopback need DOORBELL_TOKEN, but not with
    /// --interop [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "host")]
    pub listen: Option<IpAddr>,
    /// Sleep until completion events instead of polling
    #[arg(long)]
    pub events: bool,
    /// The peer is an ibv_rc_pingpong, with its defaults; on RoCE start it with `-g INDEX`, the
    /// index of its RoCEv2 GID
    #[arg(long)]
    pub interop: bool,
    /// Longest time that finding the peer, and then the run, may take. Silence of 30 s, or of three
    /// quarters of the limit if that is less, ends it too
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub limit: Duration,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused_with_what_is_needed() {
        assert_eq!("index:3".parse(), Ok(GidArg::Index(3)));
        assert_eq!("10.0.0.1".parse(), Ok(GidArg::Address([10, 0, 0, 1].into())));
        for bad in ["3", "index:", "index:-1", "rxe0", ""] {
            assert!(bad.parse::<GidArg>().unwrap_err().contains("index:N"), "{bad}");
        }
        assert_eq!("poll".parse(), Ok(WaitArg::Poll));
        assert_eq!("spin:20us".parse(), Ok(WaitArg::Spin(Duration::from_micros(20))));
        assert_eq!(WaitArg::Spin(Duration::from_micros(20)).to_string(), "spin:20000ns");
        for (bad, part) in [("spin", "spin:20us"), ("spin:", "a time"), ("spin:0s", "from 1ns")] {
            let error = bad.parse::<WaitArg>().unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
        assert_eq!(duration("86400s"), Ok(LONGEST));
        assert!(duration("86401s").is_err() && duration("500ps").is_err());
        assert_eq!((message("1B"), message("1GiB")), (Ok(1), Ok(1 << 30)));
        assert!(message("0B").is_err() && message("1073741825B").is_err());
        assert!(message("17").is_err(), "a number needs its unit");
    }
}
