//! `timestone man`: the manual pages, from the same definition that parses the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::Arguments;
use crate::failure::Failure;
use crate::output::{write_bytes, write_line};

/// Flags of `timestone man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this folder, instead of printing the first one.
    directory: Option<PathBuf>,
}

/// Prints the first page, or writes all of them.
pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    let command = Arguments::command();
    let failed = |error: std::io::Error| {
        Failure::failed(format!("could not write the manual pages: {error}"))
    };
    match &args.directory {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
            write_bytes(&page)
        }
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(command, directory))
                .map_err(failed)?;
            write_line(&format!("manual pages written to {}", directory.display()))
        }
    }
}
