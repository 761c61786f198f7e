//! How the process is told to end: signals, and its own panics.
//!
//! The first SIGTERM or SIGINT asks for a graceful end, the second one ends the process at once. A
//! panic on any thread is a bug that leaves a shard without its owner, so it ends the whole
//! process; the log brings everything acknowledged back at the next start.

use std::io::{Read, Write, stderr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::failure::Failure;

/// Exit code after a second signal, as shells report a process that SIGINT ended.
const IMPATIENT: i32 = 130;
/// Exit code after a panic: the one that Rust programs have.
const PANICKED: i32 = 101;

/// Takes over SIGTERM and SIGINT: `first` is called at the first of them, and the second ends the
/// process. Handlers run on any thread, two of them at one moment: each writes a byte, and one
/// thread counts them.
fn take_over(first: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::failed(format!("could not take over signals: {error}"));
    let (mut told, teller) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGTERM, SIGINT] {
        low_level::pipe::register(signal, teller.try_clone().map_err(failed)?).map_err(failed)?;
    }
    let count = move || {
        // A read that a signal interrupts is repeated by `read_exact`.
        let mut has_come = || told.read_exact(&mut [0]).is_ok();
        if has_come() {
            first();
            if has_come() {
                low_level::exit(IMPATIENT);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(count).map_err(failed)?;
    Ok(())
}

/// Waits for the first signal.
#[derive(Debug)]
pub(crate) struct Stop(Receiver<()>);

impl Stop {
    /// Takes over SIGTERM and SIGINT.
    pub(crate) fn register() -> Result<Self, Failure> {
        let (teller, told) = mpsc::channel();
        take_over(move || {
            let _ = teller.send(());
        })?;
        Ok(Self(told))
    }

    /// Blocks until the first signal.
    pub(crate) fn wait(self) {
        // Without its thread there is no signal to wait for.
        let _ = self.0.recv();
    }
}

/// From now on a panic on any thread says what happened and ends the process.
pub(crate) fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("something that is no text");
        let trace = std::backtrace::Backtrace::capture();
        let _ = writeln!(
            stderr(),
            "timestone: internal error on thread {name} at {place}: {what}\nThis is a bug; please \
             report it, with these lines. \
             Nothing that was acknowledged is lost: it is recovered at the next start."
        );
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            let _ = writeln!(stderr(), "{trace}");
        }
        low_level::exit(PANICKED);
    }));
}

/// For commands that run for a while: the first signal asks them to come to an end, the second ends
/// the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over SIGTERM and SIGINT.
    pub(crate) fn register() -> Result<Self, Failure> {
        let has_come = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_come);
        take_over(move || flag.store(true, Ordering::Relaxed))?;
        Ok(Self(has_come))
    }

    /// Whether a signal has come.
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
