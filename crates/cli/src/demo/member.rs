//! A process that the demo keeps alive: a server, or its etcd.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::flags::RestartAfter;
use super::limits::{MAX_FAILURES, READY_TIMEOUT};
use super::process::{DemoProcess, Ending};
use crate::failure::Failure;
use crate::signals::Interrupt;

/// Where a server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DemoAddresses {
    pub(super) native: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) http: SocketAddr,
}

/// What a process is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// Running since then; whether it has answered yet.
    Running { since: Instant, has_answered: bool },
    /// It has ended, and is started again then, if at all.
    Dead { start_at: Option<Instant> },
}

/// What came of looking after a process.
#[derive(Debug)]
pub(super) enum Change {
    /// It has ended; `lost` when it is not started any more because it failed again and again.
    Ended { pid: u32, ending: Ending, start_in: Option<Duration>, lost: bool },
    /// It was started again.
    Started { pid: u32 },
    /// It answers, so long after it was started again.
    Answers { after: Duration },
}

/// A process with its life.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: DemoProcess,
    life: Life,
    /// How often in a row it failed by itself.
    failures: u32,
    /// Whether it ever did.
    pub(super) has_failed: bool,
    pid: u32,
}

impl Member {
    /// Starts the process.
    pub(super) fn start(mut process: DemoProcess) -> Result<Self, Failure> {
        process.start()?;
        let pid = process.pid().unwrap_or_default();
        let life = Life::Running { since: Instant::now(), has_answered: false };
        Ok(Self { process, life, failures: 0, has_failed: false, pid })
    }

    /// Its process's number, while it lives.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Whether its process lives.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.life, Life::Running { .. })
    }

    /// Whether it lives, and has answered since it was started.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.life, Life::Running { has_answered: true, .. })
    }

    /// When it was started last, if it lives.
    pub(super) fn running_since(&self) -> Option<Instant> {
        match self.life {
            Life::Running { since, .. } => Some(since),
            Life::Dead { .. } => None,
        }
    }

    /// Nothing has come of waiting for its first answer yet: an error if nothing will.
    pub(super) fn still_starting(
        &mut self,
        begin: Instant,
        problem: &dyn Display,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        if interrupt.has_come() {
            return Err(Failure::interrupted("the demo was ended before it had begun"));
        }
        let ended = self.process.poll()?;
        let name = &self.process.name;
        let what = match ended {
            Some(ending) => format!("{name} did not start: it {ending}"),
            None if begin.elapsed() > READY_TIMEOUT => {
                format!("{name} does not answer {READY_TIMEOUT:?} after its start ({problem})")
            }
            None => return Ok(()),
        };
        let (log, lines) = (self.process.log.display(), self.process.last_log_lines());
        Err(Failure::failed(format!("{what}; the last lines of {log}:\n{lines}")))
    }

    /// It has answered.
    pub(super) fn note_answer(&mut self) -> Option<Change> {
        let Life::Running { since, has_answered: false } = self.life else { return None };
        self.failures = 0;
        self.life = Life::Running { since, has_answered: true };
        Some(Change::Answers { after: since.elapsed() })
    }

    /// Sees whether it has ended, and starts it again when its time has come.
    pub(super) fn look_after(&mut self, restart: RestartAfter) -> Result<Option<Change>, Failure> {
        match self.life {
            Life::Running { .. } => {
                let Some(ending) = self.process.poll()? else { return Ok(None) };
                Ok(Some(self.note_end(ending, restart)))
            }
            Life::Dead { start_at: Some(at) } if at <= Instant::now() => {
                self.start_again()?;
                Ok(Some(Change::Started { pid: self.pid }))
            }
            Life::Dead { .. } => Ok(None),
        }
    }

    fn note_end(&mut self, ending: Ending, restart: RestartAfter) -> Change {
        if !ending.is_of_others() {
            self.failures += 1;
            self.has_failed = true;
        }
        let lost = self.failures >= MAX_FAILURES;
        let start_in = match restart {
            RestartAfter::Span(span) if !lost => Some(span),
            RestartAfter::Span(_) | RestartAfter::Never => None,
        };
        self.life = Life::Dead { start_at: start_in.map(|span| Instant::now() + span) };
        Change::Ended { pid: self.pid, ending, start_in, lost }
    }

    fn start_again(&mut self) -> Result<(), Failure> {
        self.process.start()?;
        self.pid = self.process.pid().unwrap_or_default();
        self.life = Life::Running { since: Instant::now(), has_answered: false };
        Ok(())
    }

    /// If it is dead and is to be started again, its time has come.
    pub(super) fn hurry(&mut self) {
        if let Life::Dead { start_at: Some(at) } = &mut self.life {
            *at = Instant::now();
        }
    }
}
