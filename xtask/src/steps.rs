//! Starting other programs, cargo above all, each under a heading with its duration.
//!
//! A step that fails does not stop the ones after it: one run shows everything that is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The workspace's folder: cargo tells a running binary where its package lies, and ours lies right
/// below the workspace.
pub fn workspace_root() -> Result<PathBuf, String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("start this through `cargo xtask` or `cargo lab`, not by hand")?;
    let package = PathBuf::from(package);
    package
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} has no parent folder", package.display()))
}

/// What was run and what came of it.
pub struct Steps {
    root: PathBuf,
    failed: Vec<String>,
}

impl Steps {
    /// No step was run yet; cargo will run in `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), failed: Vec::new() }
    }

    /// Runs one step that needs no other program.
    pub fn own(&mut self, name: &str, step: impl FnOnce() -> Result<(), String>) {
        println!("── {name}");
        let begun = Instant::now();
        let outcome = step();
        match outcome {
            Ok(()) => println!("   {name}: ok, {:.1} s", begun.elapsed().as_secs_f64()),
            Err(message) => {
                eprintln!("{message}");
                println!("   {name}: FAILED, {:.1} s", begun.elapsed().as_secs_f64());
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Runs cargo with these arguments and environment; its output goes where ours goes.
    pub fn cargo(&mut self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
        let mut command = cargo(&self.root);
        command.args(arguments).envs(environment.iter().copied());
        self.own(name, || status_of(command));
    }

    /// `Ok` when every step was.
    pub fn outcome(self) -> Result<(), String> {
        if self.failed.is_empty() {
            println!("── all steps passed");
            return Ok(());
        }
        Err(format!("── failed: {}", self.failed.join(", ")))
    }
}

/// Whether `cargo <subcommand>` is installed.
pub fn has_cargo_subcommand(root: &Path, subcommand: &str) -> bool {
    let mut command = cargo(root);
    command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command whose output goes where ours goes.
pub fn status_of(mut command: Command) -> Result<(), String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let spelled: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let spelled = spelled.join(" ");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{spelled}` ended with {status}")),
        Err(error) => Err(format!("`{spelled}` could not be started: {error}")),
    }
}

/// The standard output of `program`, or what went wrong.
pub fn output_of(root: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let spelled = format!("`{program} {}`", arguments.join(" "));
    let output = Command::new(program).args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("{spelled} could not be started: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!(
        "{spelled} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// The cargo that started us, so that a `+toolchain` choice holds for the steps as well.
pub fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// A cargo that runs in `root`, without arguments yet.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root);
    command
}
