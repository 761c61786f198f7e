//! `timestone attached`: becomes another program that ends with the process that started it.
//!
//! The demo starts its servers and its etcd this way, so that none of them is left behind, whatever
//! ends the demo: SIGKILL included, when it can do nothing any more. Hidden, for it is of use to
//! nobody else.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;

/// Flags of `timestone attached`.
#[derive(Args, Debug)]
pub(crate) struct AttachedArgs {
    /// The process with which the program ends: the one that starts it.
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What stands before a program and its arguments so that it ends with this process.
pub(super) fn words() -> [OsString; 3] {
    ["attached".into(), "--parent".into(), std::process::id().to_string().into()]
}

/// Becomes the program; comes back only if that is not possible.
pub(crate) fn run(args: &AttachedArgs) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::failed(format!("could not ask for the end of process {}: {error}", args.parent))
    })?;
    // It may have ended before it was asked for that.
    if getppid().map(Pid::as_raw_pid) != Some(args.parent) {
        return Err(Failure::failed(format!("process {} has ended", args.parent)));
    }
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::usage("there is no program to start"));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::failed(format!("could not start {}: {error}", program.display())))
}
