//! One process of the demo: its command, its log, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::attached;
use super::limits::{SHOWN_LOG_BYTES, SHOWN_LOG_LINES};
use crate::failure::Failure;

/// Exit code of a server that two signals ended.
const SIGNALLED_TWICE: i32 = 130;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending(ExitStatus);

impl Ending {
    /// As the system tells it.
    pub(super) const fn of(status: ExitStatus) -> Self {
        Self(status)
    }

    /// Whether somebody ended it, and not a mistake of its own.
    pub(super) fn is_of_others(self) -> bool {
        self.0.signal().is_some() || matches!(self.0.code(), Some(0 | SIGNALLED_TWICE))
    }

    /// The signal that ended it.
    pub(super) fn signal(self) -> Option<i32> {
        self.0.signal()
    }

    /// Its exit code, if no signal ended it.
    pub(super) fn code(self) -> Option<i32> {
        self.0.code()
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.signal(), self.0.code()) {
            (Some(9), _) => f.write_str("was killed (SIGKILL)"),
            (Some(signal), _) => write!(f, "was ended by signal {signal}"),
            (None, Some(0)) => f.write_str("has ended"),
            (None, code) => write!(f, "ended with exit code {}", code.unwrap_or(-1)),
        }
    }
}

/// A process that can be started again and again, always by the same command. Killed when it is
/// dropped.
#[derive(Debug)]
pub(super) struct DemoProcess {
    /// What it is called in sentences.
    pub(super) name: String,
    /// Where all that it writes goes.
    pub(super) log: PathBuf,
    program: OsString,
    arguments: Vec<OsString>,
    child: Option<Child>,
}

impl DemoProcess {
    /// One that does not run yet.
    pub(super) fn new(
        name: String,
        log: PathBuf,
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Self {
        let arguments = arguments.into_iter().collect();
        Self { name, log, program: program.as_os_str().to_owned(), arguments, child: None }
    }

    /// Starts it. The calling thread must live as long as the process shall.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let failed =
            |error: io::Error| Failure::failed(format!("could not start {}: {error}", self.name));
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(failed)?;
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        for (name, _) in std::env::vars_os() {
            // What the shell says about servers is not for these.
            if name.to_string_lossy().starts_with("TIMESTONE_") {
                command.env_remove(name);
            }
        }
        command
            .args(attached::words())
            .arg(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            // A terminal's Ctrl-C is for the demo alone, which ends its processes in order.
            .process_group(0);
        self.child = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    /// Its number for the system, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, if it has since it was asked last.
    pub(super) fn poll(&mut self) -> Result<Option<Ending>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait().map_err(|error| {
            Failure::failed(format!("could not look after {}: {error}", self.name))
        })?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status.map(Ending::of))
    }

    /// Asks it to end in order, also when somebody had stopped it.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // One that has ended is still ours, so that the number is nobody else's.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// The end of its log.
    pub(super) fn last_log_lines(&self) -> String {
        let text = tail_of(&self.log).unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..];
        shown.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for DemoProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tail_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where a program of this name is, among the folders of `PATH`.
pub(super) fn find_in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let folders = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_did_is_no_failure_of_the_process() {
        // As wait(2) puts it: a signal in the low bits, an exit code above them.
        let ending = |raw| Ending::of(ExitStatus::from_raw(raw));
        for (raw, is_of_others, words) in [
            (9, true, "was killed (SIGKILL)"),
            (15, true, "was ended by signal 15"),
            (0, true, "has ended"),
            (130 << 8, true, "ended with exit code 130"),
            (1 << 8, false, "ended with exit code 1"),
            (101 << 8, false, "ended with exit code 101"),
        ] {
            let ending = ending(raw);
            assert_eq!((ending.is_of_others(), ending.to_string().as_str()), (is_of_others, words));
        }
    }

    #[test]
    fn programs_are_found_by_their_names() {
        assert!(find_in_path("sh").is_some());
        assert!(find_in_path("no-such-program-anywhere").is_none());
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        std::fs::write(&log, text).unwrap();
        let process = DemoProcess::new("x".to_owned(), log, Path::new("x"), []);
        let shown = process.last_log_lines();
        assert_eq!(shown.lines().count(), SHOWN_LOG_LINES);
        assert!(shown.ends_with("line 99"), "{shown}");
    }
}
