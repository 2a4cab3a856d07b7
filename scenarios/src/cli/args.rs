//! The command line: each flag is defined once, here.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

mod hw;

#[cfg(feature = "hw")]
pub use hw::{DeviceArgs, GidArg, LaunchArgs, PostingArg, WaitArg};
pub use hw::{HwPingpongArgs, HwRunArgs};

const EXIT_STATUS: &str = "\
Exit status:
  0  ok
  1  an expectation or an oracle was violated
  2  wrong command line or file
  3  no progress: nothing could go on, the reason is named
  4  a planned fault never happened
  5  the trace hash differs";

const HW_EXIT_STATUS: &str = "\
Exit status:
  0  ok
  1  data was wrong, or a work request completed in error
  2  wrong command line or file, no usable device, refused by the peer
  3  no progress: a limit was reached or a peer was lost; the phase is named";

/// Deterministic RDMA simulator: what will posting, batching and topology choices do?
#[derive(Parser, Debug)]
#[command(name = "doorbell", version, after_help = EXIT_STATUS)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a scenario and report what happened
    #[command(after_help = EXIT_STATUS)]
    Run(RunArgs),
    /// Run scenarios and judge them by what they expect
    #[command(after_help = EXIT_STATUS)]
    Check(CheckArgs),
    /// Search for the best values of some keys of a scenario
    #[command(after_help = EXIT_STATUS)]
    Tune(TuneArgs),
    /// List the built-in scenarios and profiles
    List(ListArgs),
    /// Print the JSON schema of scenario or profile files, or the keys as a page
    Schema(SchemaArgs),
    /// Print a scenario with all defaults, and the profile with the source of every value
    Explain(ExplainArgs),
    /// Run the published measurements and print the fidelity table (docs/fidelity.md)
    #[command(after_help = EXIT_STATUS)]
    Fidelity(FidelityArgs),
    /// Use the RDMA devices of this machine (builds with `--features hw`)
    #[command(after_help = EXIT_STATUS)]
    Hw(HwArgs),
}

/// A scenario with changes.
#[derive(ClapArgs, Debug, Clone)]
pub struct Target {
    /// Scenario file, or the name of a built-in scenario
    pub scenario: String,
    /// Change a value, such as program.0.size=64B or pcie.width=8; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Seed of all random streams
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

/// `doorbell run`
#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    /// The scenario.
    #[command(flatten)]
    pub target: Target,
    /// Run only this variant of the file
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only what is not as expected
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print long tables in full: metrics, resources, ports
    #[arg(long, conflicts_with = "quiet")]
    pub full: bool,
    /// Also write NAME.json and NAME.txt into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw the timeline of the first point (`record.timeline = true`) into this SVG file
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write what a capture on each port would show into this folder, one pcapng file per point
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
    /// Write the series of each point (`record.series = "10us"`) into this folder, as CSV, one file
    /// for each group of numbers
    #[arg(long, value_name = "DIR")]
    pub series: Option<PathBuf>,
    /// Write the report with plots of the series into this file, as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Fail with status 5 unless the trace hash is this one (scenarios with one point)
    #[arg(long, value_name = "HASH")]
    pub trace_hash: Option<String>,
}

/// `doorbell check`
#[derive(ClapArgs, Debug)]
pub struct CheckArgs {
    /// Scenario files, folders of them, or names of built-in scenarios; without any, all
    /// built-in ones
    pub scenarios: Vec<String>,
    /// Write the verdicts as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print only what is not as expected
    #[arg(long, short)]
    pub quiet: bool,
    /// Run every point twice and compare the trace hashes
    #[arg(long)]
    pub twice: bool,
}

/// `doorbell tune`
#[derive(ClapArgs, Debug)]
pub struct TuneArgs {
    /// The scenario.
    #[command(flatten)]
    pub target: Target,
    /// Tune this variant of the file [default: that of [tune]]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// A key and its values: KEY=a,b,c or KEY=lo..hi, which doubles (lo..hi*3/2: another factor,
    /// lo..hi+4: a step); may be repeated [default: those of the file's [tune], else of its sweep]
    #[arg(long, value_name = "KEY=VALUES")]
    pub vary: Vec<String>,
    /// What is sought, such as "max throughput" or "min latency.p99" [default: that of [tune]]
    #[arg(long, value_name = "max|min METRIC")]
    pub objective: Option<String>,
    /// What has to hold, such as "latency.p99 <= 20us", in place of what [tune] says; may be
    /// repeated
    #[arg(long, value_name = "METRIC <= VALUE")]
    pub keep: Vec<String>,
    /// Most runs, the file as it stands included [default: those of [tune], else a tenth of all
    /// combinations, at least 12]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub runs: Option<u32>,
    /// Run every combination instead of searching
    #[arg(long, conflicts_with = "runs")]
    pub grid: bool,
    /// Runs at a time; the result is the same
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Seed of the search's choices; --seed is that of the runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub search_seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only the variant to paste into the file
    #[arg(long, conflicts_with = "json")]
    pub toml: bool,
}

/// `doorbell list`
#[derive(ClapArgs, Debug)]
pub struct ListArgs {
    /// Print names only, one a line
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the claims and user cases with their verdicts as Markdown (docs/claims.md)
    #[arg(long, conflicts_with = "quiet")]
    pub claims: bool,
}

/// Kinds of file with a schema.
#[derive(ValueEnum, Copy, Clone, Debug)]
pub enum SchemaKind {
    /// Scenario files
    Scenario,
    /// Hardware profiles
    Profile,
    /// Keys of the network's tables as Markdown (docs/keys.md)
    Keys,
}

/// `doorbell schema`
#[derive(ClapArgs, Debug)]
pub struct SchemaArgs {
    /// Kind of file
    #[arg(value_enum, default_value = "scenario")]
    pub kind: SchemaKind,
}

/// `doorbell explain`
#[derive(ClapArgs, Debug)]
pub struct ExplainArgs {
    /// The scenario.
    #[command(flatten)]
    pub target: Target,
    /// Which point of a scenario with variants or a sweep, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub point: usize,
}

/// `doorbell fidelity`
#[derive(ClapArgs, Debug)]
pub struct FidelityArgs {
    /// Calibration files, or names of built-in ones; without any, all built-in ones
    pub calibrations: Vec<String>,
    /// Change a value of every run, such as nic.pu_wqe=80ns; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

/// `doorbell hw`
#[derive(ClapArgs, Debug)]
pub struct HwArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub command: HwCommand,
}

/// What to do with the devices of this machine.
#[derive(Subcommand, Debug)]
pub enum HwCommand {
    /// Show devices, limits, ports and GIDs, and warn of what costs speed or will fail
    #[command(after_help = EXIT_STATUS)]
    Info(HwInfoArgs),
    /// Run a scenario on hardware: each process runs the program of its rank
    #[command(after_help = HW_EXIT_STATUS)]
    Run(Box<HwRunArgs>),
    /// Measure half a round trip of a message and its answer; the server first, then the client
    #[command(after_help = HW_EXIT_STATUS)]
    Pingpong(HwPingpongArgs),
}

/// `doorbell hw info`
#[derive(ClapArgs, Debug)]
pub struct HwInfoArgs {
    /// Only this device, such as mlx5_0
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
