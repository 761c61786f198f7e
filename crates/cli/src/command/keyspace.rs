//! `timestone keyspace`: creates, lists and drops keyspaces.

use std::io::{IsTerminal, Write, stderr, stdin};

use clap::{Args, Subcommand};
use serde::Serialize;
use timestone::{ErrorCode, Keyspace, KeyspaceOptions};
use timestone_cluster::{IndexKind, StoreKind};

use crate::failure::Failure;
use crate::link::Target;
use crate::output::{Format, table, write_json, write_line};

/// Flags of `timestone keyspace`.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArgs {
    #[command(subcommand)]
    command: KeyspaceCommand,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand, Debug)]
enum KeyspaceCommand {
    /// Create a keyspace; its options are fixed from then on.
    Create(CreateArgs),
    /// List all keyspaces with their options.
    List,
    /// Drop a keyspace with all its keys. Asks, or takes --yes.
    Drop(DropArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    /// Its name: a-z, 0-9, '-', '_', '.', at most 64.
    name: String,
    /// Where versions are kept: mftl, on flash, or dram, in memory only. A keyspace in dram is empty
    /// after a restart, and asks for servers that run with --log none.
    #[arg(long, value_name = "STORE", default_value = KeyspaceOptions::DEFAULT.store.name())]
    store: String,
    /// How keys are found (`timestone data convert` changes it between full and frugal): full, by an index in memory; ordered, by one that keeps their order as
    /// well; frugal, by an index on flash, which takes some bytes of memory a key and more reads.
    #[arg(long, value_name = "KIND", default_value = KeyspaceOptions::DEFAULT.index.name())]
    index: String,
    /// What concurrent transactions may see of each other: serializable (nmsi is not served yet).
    #[arg(long, value_name = "LEVEL", default_value = KeyspaceOptions::DEFAULT.isolation.name())]
    isolation: String,
    /// Who coordinates commits: client (server is not served yet).
    #[arg(long, value_name = "WHO", default_value = KeyspaceOptions::DEFAULT.commit.name())]
    commit: String,
    /// What clients keep between transactions: none (naive, invalidation and lease are not served
    /// yet).
    #[arg(long, value_name = "MODE", default_value = KeyspaceOptions::DEFAULT.cache.name())]
    cache: String,
    /// Whether commits wait for the clock's error bound, which makes them strictly serializable:
    /// none or wait.
    #[arg(long, value_name = "MODE", default_value = KeyspaceOptions::DEFAULT.external.name())]
    external: String,
}

#[derive(Args, Debug)]
struct DropArgs {
    /// Its name.
    name: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Runs one of the three.
pub(crate) fn run(args: &KeyspaceArgs, format: Option<Format>) -> Result<(), Failure> {
    match &args.command {
        KeyspaceCommand::Create(create) => {
            run_create(&args.target, create, format.unwrap_or(Format::Text))
        }
        KeyspaceCommand::List => run_list(&args.target, format.unwrap_or(Format::Table)),
        KeyspaceCommand::Drop(drop) => run_drop(&args.target, drop, format.unwrap_or(Format::Text)),
    }
}

/// A keyspace as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    id: u32,
    name: &'a str,
    store: &'static str,
    survives_restart: bool,
    index: &'static str,
    isolation: &'static str,
    commit: &'static str,
    cache: &'static str,
    external: &'static str,
}

impl<'a> Listed<'a> {
    fn new(keyspace: &'a Keyspace) -> Self {
        let options = &keyspace.options;
        Self {
            id: keyspace.id.get(),
            name: keyspace.name.as_str(),
            store: store_of(options),
            survives_restart: options.store.survives_restart(),
            index: options.index.name(),
            isolation: options.isolation.name(),
            commit: options.commit.name(),
            cache: options.cache.name(),
            external: options.external.name(),
        }
    }
}

/// The store that keeps it, as the documentation calls it.
const fn store_of(options: &KeyspaceOptions) -> &'static str {
    match (options.store, options.index) {
        (StoreKind::Mftl, IndexKind::Frugal) => "skimpy",
        (store, _) => store.name(),
    }
}

fn run_create(target: &Target, args: &CreateArgs, format: Format) -> Result<(), Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let options = KeyspaceOptions {
        store: args.store.parse().map_err(|error| bad(&error))?,
        index: args.index.parse().map_err(|error| bad(&error))?,
        isolation: args.isolation.parse().map_err(|error| bad(&error))?,
        commit: args.commit.parse().map_err(|error| bad(&error))?,
        cache: args.cache.parse().map_err(|error| bad(&error))?,
        external: args.external.parse().map_err(|error| bad(&error))?,
    };
    options.check_served().map_err(|error| bad(&error))?;
    let keyspace = target.connect()?.create_keyspace(&args.name, options)?;
    print_all(&[keyspace], format, |keyspace| {
        let kept = match keyspace.options.store.survives_restart() {
            true => "",
            false => ": it is kept in memory only, and is empty after a restart",
        };
        format!("created keyspace {} with id {}{kept}", keyspace.name, keyspace.id)
    })
}

fn run_list(target: &Target, format: Format) -> Result<(), Failure> {
    let keyspaces = target.connect()?.keyspaces()?;
    if format == Format::Json {
        return write_json(&keyspaces.iter().map(Listed::new).collect::<Vec<_>>());
    }
    print_all(&keyspaces, format, |keyspace| keyspace.name.to_string())
}

fn print_all(
    keyspaces: &[Keyspace],
    format: Format,
    sentence: impl Fn(&Keyspace) -> String,
) -> Result<(), Failure> {
    match format {
        Format::Text => keyspaces.iter().try_for_each(|keyspace| write_line(&sentence(keyspace))),
        Format::Json => {
            keyspaces.iter().try_for_each(|keyspace| write_json(&Listed::new(keyspace)))
        }
        Format::Table => {
            let mut table = table(&[
                "id",
                "name",
                "store",
                "after restart",
                "index",
                "isolation",
                "commit",
                "cache",
                "external",
            ]);
            for one in keyspaces.iter().map(Listed::new) {
                let id = one.id.to_string();
                let after_restart = if one.survives_restart { "kept" } else { "empty" };
                table.add_row([
                    id.as_str(),
                    one.name,
                    one.store,
                    after_restart,
                    one.index,
                    one.isolation,
                    one.commit,
                    one.cache,
                    one.external,
                ]);
            }
            write_line(&table.to_string())
        }
    }
}

fn run_drop(target: &Target, args: &DropArgs, format: Format) -> Result<(), Failure> {
    if !args.yes {
        ask(&args.name)?;
    }
    target.connect()?.drop_keyspace(&args.name).map_err(|error| match error.code() {
        ErrorCode::KeyspaceUnknown => {
            Failure::not_found(format!("there is no keyspace '{}'", args.name))
        }
        _ => error.into(),
    })?;
    match format {
        Format::Json => write_json(&serde_json::json!({ "dropped": args.name })),
        Format::Text | Format::Table => write_line(&format!("dropped keyspace {}", args.name)),
    }
}

/// Asks whether to go on; without a person to ask, `--yes` is demanded.
fn ask(name: &str) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "dropping keyspace '{name}' deletes all its keys: say --yes"
        )));
    }
    let mut answer = String::new();
    write!(stderr(), "Drop keyspace '{name}' and all its keys? [y/N] ")
        .and_then(|()| stdin().read_line(&mut answer).map(drop))
        .map_err(|error| Failure::failed(format!("could not ask: {error}")))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::failed("nothing was dropped"))
    }
}
