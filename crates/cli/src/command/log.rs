//! `timestone log check`: explains a server's log without changing it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use timestone::server::inspect::{MissingFile, missing_files};
use timestone::server::{CheckReport, FileName, accepted_losses, check_log};

use super::data::missing;
use crate::failure::Failure;
use crate::output::{Format, or_unread, write_json, write_line};

/// Flags of `timestone log`.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Subcommand, Debug)]
enum LogCommand {
    /// Read every block and record, and say what is there and what is damaged. Changes nothing.
    Check {
        /// A data directory, or one log's folder in it.
        directory: PathBuf,
    },
}

/// Checks every log that is there; damage is a failure.
pub(crate) fn run(args: &LogArgs, format: Format) -> Result<(), Failure> {
    let LogCommand::Check { directory } = &args.command;
    let mut reports: Vec<(PathBuf, CheckReport)> = Vec::new();
    for folder in log_folders(directory)? {
        let report = check_log(&folder, &accepted(&folder)).map_err(|error| {
            Failure::failed(format!("could not check the log in {}: {error}", folder.display()))
        })?;
        reports.push((folder, report));
    }
    let absent = absent_of(directory);
    or_unread(print(directory, &reports, &absent, format))?;
    if reports.iter().all(|(_, report)| report.files.is_empty()) && absent.is_empty() {
        return Err(Failure::failed(format!(
            "there is no log file in {}, so nothing was checked; give a data directory, or the \
             folder of one log in it (wal/thread-N)",
            directory.display()
        )));
    }
    let damaged = reports.iter().filter(|(_, report)| !report.is_sound()).count();
    let damaged = match damaged {
        0 => None,
        _ => Some(format!("{damaged} of {} logs are damaged", reports.len())),
    };
    let absent = (!absent.is_empty()).then(|| missing::count(&absent));
    let problems: Vec<String> = damaged.into_iter().chain(absent).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::failed(problems.join("; "))) }
}

/// The files that are missing: of a data directory all that its manifest names, of one log's folder
/// those of the log.
fn absent_of(directory: &Path) -> Vec<MissingFile> {
    let named = missing_files(directory);
    if !named.is_empty() || directory.join("wal").is_dir() {
        return named;
    }
    let Some((data, name)) = place_of(directory) else { return Vec::new() };
    let of_log = |file: &MissingFile| matches!(file, MissingFile::Log { log, .. } if *log == name);
    missing_files(&data).into_iter().filter(of_log).collect()
}

/// The data directory in which a log's folder lies, and the name of the log.
fn place_of(folder: &Path) -> Option<(PathBuf, String)> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = folder.file_name()?.to_str()?.to_owned();
    Some((folder.parent()?.parent()?.to_owned(), name))
}

fn print(
    directory: &Path,
    reports: &[(PathBuf, CheckReport)],
    absent: &[MissingFile],
    format: Format,
) -> Result<(), Failure> {
    if format == Format::Json {
        let logs = reports.iter().map(|(folder, report)| describe(folder, report, &[]));
        // Not of one of the logs above: it may have no folder any more.
        let rest =
            (!absent.is_empty()).then(|| describe(directory, &CheckReport::default(), absent));
        return write_json(&logs.chain(rest).collect::<Vec<_>>());
    }
    for (folder, report) in reports {
        write_line(&format!("{}:\n{report}", folder.display()))?;
    }
    absent.iter().try_for_each(|file| write_line(&missing::line(file)))
}

/// The files of a log whose loss was accepted: the data directory that it lies in says so.
fn accepted(folder: &Path) -> Vec<FileName> {
    place_of(folder)
        .and_then(|(data, name)| accepted_losses(&data).remove(&name))
        .unwrap_or_default()
}

/// The folders of a data directory's logs (`wal/thread-N`), or the directory itself when it is one.
fn log_folders(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let parent = directory.join("wal");
    if !parent.is_dir() {
        if directory.is_dir() {
            return Ok(vec![directory.to_owned()]);
        }
        let place = directory.display();
        return Err(Failure::failed(format!(
            "there is no directory {place}, so nothing was checked"
        )));
    }
    let unreadable =
        |error| Failure::failed(format!("could not read {}: {error}", parent.display()));
    let mut folders = Vec::new();
    for entry in fs::read_dir(&parent).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn describe(folder: &Path, report: &CheckReport, absent: &[MissingFile]) -> serde_json::Value {
    let files = report.files.iter().map(|file| {
        json!({
            "file": file.file.name.to_string(),
            "size_bytes": file.file.bytes,
            "used_bytes": file.bytes,
            "blocks": file.blocks,
            "batches": file.batches,
            "records": file.records,
        })
    });
    let findings = report
        .findings
        .iter()
        .map(|finding| json!({ "file": finding.file.to_string(), "offset": finding.offset, "detail": finding.detail }));
    json!({
        "directory": folder.display().to_string(),
        "sound": report.is_sound() && absent.is_empty(),
        "missing": missing::paths(absent),
        "accepted_losses": report.accepted.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "incomplete_batches": report.incomplete_batches,
        "files": files.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}
