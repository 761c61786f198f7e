//! How the process is told to end: signals, and its own panics.
//!
//! The first SIGTERM or SIGINT asks for a graceful end, the second one ends the process at once. A
//! panic on any thread is a bug that leaves a shard without its owner, so it ends the whole
//! process; the log brings everything acknowledged back at the next start.

use std::io::{Read, Write, stderr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

/// Exit code after a second signal, as shells report a process that SIGINT ended.
const IMPATIENT: i32 = 130;
/// Exit code after a panic: the one that Rust programs have.
const PANICKED: i32 = 101;

/// Waits for the first signal.
#[derive(Debug)]
pub(crate) struct Stop(UnixStream);

impl Stop {
    /// Takes over SIGTERM and SIGINT.
    pub(crate) fn register() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("could not take over signals: {error}"))
        };
        let (told, teller) = UnixStream::pair().map_err(failed)?;
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down and raises it, the second finds
            // it up.
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&armed))
                .map_err(failed)?;
            flag::register(signal, Arc::clone(&armed)).map_err(failed)?;
            low_level::pipe::register(signal, teller.try_clone().map_err(failed)?)
                .map_err(failed)?;
        }
        Ok(Self(told))
    }

    /// Blocks until the first signal. From then on the second one ends the process.
    pub(crate) fn wait(mut self) {
        self.next();
        // Two signals at one moment run on two threads, and each may find the flag down. Each has
        // written its byte, though.
        let watch = move || {
            if self.next() {
                low_level::exit(IMPATIENT);
            }
        };
        let spawned = std::thread::Builder::new().name("second-signal".to_owned()).spawn(watch);
        if let Err(error) = spawned {
            tracing::warn!(%error, "two signals that come at once are taken for one");
        }
    }

    /// Blocks until a signal; whether one came.
    fn next(&mut self) -> bool {
        let mut byte = [0];
        loop {
            match self.0.read_exact(&mut byte) {
                Ok(()) => return true,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
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
        let failed = |error: std::io::Error| {
            Failure::failed(format!("could not take over signals: {error}"))
        };
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&armed))
                .map_err(failed)?;
            flag::register(signal, Arc::clone(&armed)).map_err(failed)?;
        }
        Ok(Self(armed))
    }

    /// Whether a signal has come.
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
