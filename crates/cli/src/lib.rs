//! The `timestone` binary but for its `main`: a server, a client for the terminal, and a benchmark.
//! A library, so that the fuzz targets reach what reads files.
//!
//! ```text
//!   arguments ─► command/… ─┬─► settings ─► timestone::server           serve
//!                           ├─► link ─────► timestone            get put delete scan dump load txn keyspace
//!                           ├─► probe ────► wire                        status
//!                           ├─► bench/… ──► client + workload           bench
//!                           ├─► command/check ─► workload               check
//!                           ├─► sim/… ───► sim                          sim
//!                           ├─► repro ───► repro                        repro
//!                           └─► demo/… ──► serve (processes) + timestone   demo
//! ```
//! Everything that decides lives below; this crate parses, prints, and says what went wrong in
//! sentences. Exit codes: `failure`.

mod bench;
mod command;
mod demo;
mod dump_file;
mod failure;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod link;
mod logging;
mod moment;
mod output;
mod probe;
mod repro;
mod script;
mod settings;
mod signals;
mod sim;

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::output::Format;

/// A distributed, multi-version, transactional key-value store that runs on precise time.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict (nothing was written), 5
/// outcome unknown, 130 interrupted.
#[derive(Parser, Debug)]
#[command(name = "timestone", version, propagate_version = false, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Form of the output [default: what suits the command]
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    output: Option<Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a server: without flags one node with embedded master, data in ./timestone-data
    Serve(Box<settings::ServeArgs>),
    /// Read a key
    Get(command::get::GetArgs),
    /// Write a key
    Put(command::put::PutArgs),
    /// Delete a key
    Delete(command::delete::DeleteArgs),
    /// Read all keys, or those with a prefix
    Scan(command::scan::ScanArgs),
    /// Write all keys of a keyspace, as of one point in time, into a file
    Dump(command::dump::DumpArgs),
    /// Write the keys of such a file into a keyspace
    Load(command::load::LoadArgs),
    /// Run a transaction from a script or typed line by line: all or nothing
    Txn(command::txn::TxnArgs),
    /// Create, list and drop keyspaces
    Keyspace(command::keyspace::KeyspaceArgs),
    /// Show the cluster's servers and shards
    Status(command::status::StatusArgs),
    /// Read every record of every shard and verify its checksum
    Scrub(command::scrub::ScrubArgs),
    /// Measure throughput, aborts and latency under a workload
    Bench(Box<bench::BenchArgs>),
    /// Run a cluster of processes on this machine under a workload: kill any, and see it go on
    Demo(demo::DemoArgs),
    /// Become a program that ends with the process that started it
    #[command(hide = true)]
    Attached(demo::attached::AttachedArgs),
    /// Judge a history: which anomalies it has, and the transactions that prove them
    Check(command::check::CheckArgs),
    /// Run whole clusters under one virtual clock and one seed, with faults on purpose
    Sim(sim::SimArgs),
    /// Reproduce the tables and figures of the papers that the store is built after
    Repro(repro::ReproArgs),
    /// Look at a server's log
    Log(command::log::LogArgs),
    /// Look at a data directory without a server
    Data(command::data::DataArgs),
    /// Help a master on etcd that was restored from a backup
    Master(command::master::MasterArgs),
    /// Show the server's settings
    Config(command::config::ConfigArgs),
    /// Print a shell's completion script
    Completion(command::completion::CompletionArgs),
    /// Print the manual pages
    Man(command::man::ManArgs),
    /// Print the version
    Version,
}

impl Arguments {
    fn run(&self, matches: &ArgMatches) -> Result<(), Failure> {
        let matches = |name| matches.subcommand_matches(name);
        let (given, text) = (self.output, self.output.unwrap_or(Format::Text));
        match &self.command {
            Command::Serve(args) => command::serve::run(args, matches("serve"), text),
            Command::Get(args) => command::get::run(args, text),
            Command::Put(args) => command::put::run(args, text),
            Command::Delete(args) => command::delete::run(args, text),
            Command::Scan(args) => command::scan::run(args, text),
            Command::Dump(args) => command::dump::run(args, text),
            Command::Load(args) => command::load::run(args, text),
            Command::Txn(args) => command::txn::run(args, text),
            Command::Keyspace(args) => command::keyspace::run(args, given),
            Command::Status(args) => command::status::run(args, given.unwrap_or(Format::Table)),
            Command::Scrub(args) => command::scrub::run(args, given.unwrap_or(Format::Table)),
            Command::Bench(args) => bench::run(args, given.unwrap_or(Format::Table)),
            Command::Demo(args) => demo::run(args, text),
            Command::Attached(args) => demo::attached::run(args),
            Command::Check(args) => command::check::run(args, text),
            Command::Sim(args) => sim::run(args, given.unwrap_or(Format::Table)),
            Command::Repro(args) => repro::run(args, given.unwrap_or(Format::Table)),
            Command::Log(args) => command::log::run(args, text),
            Command::Data(args) => command::data::run(args, text),
            Command::Master(args) => command::master::run(args, text),
            Command::Config(args) => command::config::run(args, matches("config"), text),
            Command::Completion(args) => command::completion::run(args),
            Command::Man(args) => command::man::run(args),
            Command::Version => command::version::run(text),
        }
    }
}

/// Does what the command line says, and tells what came of it as an exit code.
#[must_use]
pub fn run() -> ExitCode {
    signals::end_on_panic();
    let matches = Arguments::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                // When nobody reads standard error either, the exit code still tells.
                let _ = writeln!(stderr(), "timestone: {failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}
