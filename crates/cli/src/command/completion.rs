//! `timestone completion`: the shell's completion of this command line, from the same definition
//! that parses it.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Arguments;
use crate::failure::Failure;
use crate::output::write_bytes;

/// Flags of `timestone completion`.
#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// The shell; source what is printed, as in: source <(timestone completion bash)
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "timestone", &mut script);
    write_bytes(&script)
}
