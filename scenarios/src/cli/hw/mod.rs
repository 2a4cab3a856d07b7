//! `doorbell hw`

#[cfg(feature = "hw")]
mod agreed;
#[cfg(feature = "hw")]
mod info;
#[cfg(feature = "hw")]
mod options;
#[cfg(feature = "hw")]
mod pingpong;
#[cfg(feature = "hw")]
mod rank;
#[cfg(feature = "hw")]
mod rc_pingpong;
#[cfg(feature = "hw")]
mod report;
#[cfg(feature = "hw")]
mod run;
#[cfg(feature = "hw")]
mod settings;
#[cfg(feature = "hw")]
mod trouble;

use super::ExitStatus;
use super::args::HwArgs;
#[cfg(feature = "hw")]
use super::args::HwCommand;

/// Does what `doorbell hw` says.
#[cfg(feature = "hw")]
pub(super) fn hw(args: &HwArgs) -> ExitStatus {
    match &args.command {
        HwCommand::Info(args) => info::info(args),
        HwCommand::Run(args) => run::run(args),
        HwCommand::Pingpong(args) => pingpong::pingpong(args),
    }
}

/// Says that this build cannot.
#[cfg(not(feature = "hw"))]
pub(super) fn hw(_: &HwArgs) -> ExitStatus {
    let error = crate::input::InputError::new("this build has no hardware back end")
        .help("build with `--features hw`; that needs libibverbs, librdmacm and libclang");
    super::common::complain(&error)
}
