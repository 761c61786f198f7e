//! `timestone log check`: explains a server's log without changing it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use timestone::server::{CheckReport, FileName, accepted_losses, check_log};

use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};

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
    if format == Format::Json {
        write_json(
            &reports.iter().map(|(folder, report)| describe(folder, report)).collect::<Vec<_>>(),
        )?;
    } else {
        for (folder, report) in &reports {
            write_line(&format!("{}:\n{report}", folder.display()))?;
        }
    }
    if reports.iter().all(|(_, report)| report.files.is_empty()) {
        return Err(Failure::failed(format!(
            "there is no log file in {}, so nothing was checked; give a data directory, or the \
             folder of one log in it (wal/thread-N)",
            directory.display()
        )));
    }
    let damaged = reports.iter().filter(|(_, report)| !report.is_sound()).count();
    if damaged == 0 {
        Ok(())
    } else {
        Err(Failure::failed(format!("{damaged} of {} logs are damaged", reports.len())))
    }
}

/// The files of a log whose loss was accepted: the data directory that it lies in says so.
fn accepted(folder: &Path) -> Vec<FileName> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let data = folder.parent().and_then(Path::parent);
    data.and_then(|data| accepted_losses(data).remove(name)).unwrap_or_default()
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

fn describe(folder: &Path, report: &CheckReport) -> serde_json::Value {
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
        "sound": report.is_sound(),
        "accepted_losses": report.accepted.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "incomplete_batches": report.incomplete_batches,
        "files": files.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}
