//! What a run does in each of its phases: what it waits for, for how long, and what comes next.

use std::sync::PoisonError;
use std::time::Duration;

use super::{CALM_TIMEOUT, CALM_WORK, RunPhase, ScenarioRun};
use crate::check::Finding;
use crate::quiescence;
use crate::redis::Mode;

/// The cluster must have come up by then.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
/// After the faults, all transactions must be over by then.
const FINISH_TIMEOUT: Duration = Duration::from_secs(90);
/// And everything must have been read.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Replicas must have become primaries by then.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

impl ScenarioRun {
    /// Finds what must not be, whatever the phase is.
    pub(super) fn look_for_findings(&mut self) {
        let restless = self.watchdog.restless_process(&self.world);
        self.findings.extend(restless);
        if let Some(calls) = &self.board.redis {
            calls.set_calm(
                self.phase != RunPhase::SettingUp
                    && self.injector.is_calm(&self.world)
                    && !self.clocks_lag(),
            );
        }
        if !matches!(self.phase, RunPhase::SettingUp | RunPhase::Auditing | RunPhase::Moving) {
            let unserved = self.failovers.look(&self.world, &self.injector);
            self.findings.extend(unserved);
            self.old_reads.look(&self.world, &self.injector);
            let mut since = self.board.old_reads.lock().unwrap_or_else(PoisonError::into_inner);
            *since = self.old_reads.since;
        }
        let unread = self.watch_unread();
        self.findings.extend(unread);
        if let Some(name) = self.injector.told_wrongly(&self.world) {
            let words = format!("{name} was told that its clock is too late, and it is not");
            self.findings.push(Finding::new("liveness", words));
        }
        for name in std::mem::take(&mut self.injector.untold) {
            let words = format!(
                "{name} began with a clock that is too late to be believed, and nobody told it so"
            );
            self.findings.push(Finding::new("liveness", words));
        }
        for name in std::mem::take(&mut self.injector.slow_stops) {
            let words = format!(
                "{name} was told to stop, nothing was in its way, and it did not come to its end"
            );
            self.findings.push(Finding::new("liveness", words));
        }
    }

    /// Whether a server never starts again. That it says why is all that can be asked for.
    pub(super) fn a_server_refuses(&mut self) -> bool {
        if let Some(refusal) = &self.world.incidents.refused {
            // A server names what a disk that lied has lost, and does not start: that is all that
            // can be asked for.
            if !refusal.is_clear {
                let words = format!(
                    "a server does not start, and does not say what is damaged: {}",
                    refusal.words
                );
                self.findings.push(Finding::new("refusals", words));
            }
            return true;
        }
        false
    }

    /// The cluster comes up.
    pub(super) fn set_up(&mut self) -> bool {
        if self.world.processes.iter().all(crate::process::Process::is_up)
            && self.world.is_complete()
        {
            self.begin_task(crate::session::load);
            self.enter(RunPhase::Loading);
        } else if self.waited() > SETUP_TIMEOUT {
            return self.stuck("the cluster does not come up", self.down());
        }
        false
    }

    /// Data is loaded.
    pub(super) fn loading(&mut self) -> bool {
        if self.board.live() == 0 {
            self.enter(RunPhase::Running);
            self.begin_sessions();
            self.board.set_redis_mode(Mode::Work);
            self.injector.begin(&mut self.world);
        } else if self.waited() > SETUP_TIMEOUT {
            return self.stuck("the data cannot be loaded", Vec::new());
        }
        false
    }

    /// Sessions work, and faults strike.
    pub(super) fn running(&mut self) -> bool {
        self.begin_sessions();
        let lagging = self.watchdog.trailing_watermark(&self.world);
        self.findings.extend(lagging);
        if self.pace.taken.is_none() && self.waited() >= self.pace.warmup {
            self.take_times(true);
            self.pace.taken = Some(self.done_so_far());
        }
        if self.waited() >= self.length {
            self.end_pace();
            self.board.finish();
            if self.is_damaged() {
                return true;
            }
            self.injector.end_all(&mut self.world);
            self.enter(RunPhase::Finishing);
        }
        false
    }

    /// The faults are over, and what is under way ends.
    pub(super) fn finishing(&mut self) -> bool {
        // Who is still coming to its end serves nobody.
        let leaving = self.world.processes.iter().any(|process| process.leaving.is_some());
        if self.board.live() == 0 && self.down().is_empty() && !leaving && !self.clocks_lag() {
            if self.board.settings.closed {
                return true;
            }
            self.calm.since = Some(self.moment());
            self.calm.committed_before = self.board.tally_of_sessions().committed;
            self.board.resume();
            self.board.set_redis_mode(Mode::Work);
            self.clients_lives.fill(0);
            self.begin_sessions();
            self.enter(RunPhase::Working);
        } else if self.waited() > FINISH_TIMEOUT {
            let mut open = self.down();
            open.extend(self.board.unfinished());
            return self.stuck("after the faults, transactions do not finish", open);
        }
        false
    }

    /// Sessions work in calm.
    pub(super) fn working(&mut self) -> bool {
        // A slow world may have asked for one only by then, one may lose against another's
        // promise or a read, and a client that dialled a machine without power dials again
        // only when it gives that up.
        let some = self.board.tally_of_sessions().committed > self.calm.committed_before;
        if self.waited() >= CALM_WORK && (some || self.waited() >= CALM_TIMEOUT) {
            self.board.finish();
            self.enter(RunPhase::Resting);
        }
        false
    }

    /// They end.
    pub(super) fn resting(&mut self) -> bool {
        if self.board.live() == 0 && self.was_lied_to() {
            // Somebody may wait for ever for a decision that is gone: what can be read is
            // what is left to judge.
            self.begin_audit();
            self.enter(RunPhase::Auditing);
        } else if self.board.live() == 0 {
            self.calm.ended = self.moment();
            self.enter(RunPhase::Settling);
        } else if self.waited() > CALM_TIMEOUT {
            let open = self.board.unfinished();
            return self
                .stuck("although nothing is in their way, transactions do not finish", open);
        }
        false
    }

    /// Nothing is left over.
    pub(super) fn settling(&mut self) -> bool {
        let verdict = quiescence::unsettled(&self.world, self.calm.ended, self.most_ahead());
        if self.is_calm(&verdict) {
            self.begin_touching();
            self.enter(RunPhase::Touching);
        }
        false
    }

    /// Every key is written once more.
    pub(super) fn touching(&mut self) -> bool {
        if self.board.live() == 0 {
            self.enter(RunPhase::Shrinking);
        } else if self.waited() > AUDIT_TIMEOUT {
            return self.stuck("after the faults, the data cannot be written", Vec::new());
        }
        false
    }

    /// Only what is needed is kept.
    pub(super) fn shrinking(&mut self) -> bool {
        let verdict = quiescence::versions(&self.world, self.board.touched());
        if self.is_calm(&verdict) {
            self.begin_audit();
            self.enter(RunPhase::Auditing);
        }
        false
    }

    /// Everything is read.
    pub(super) fn auditing(&mut self) -> bool {
        if self.board.live() == 0 {
            return self.read_all();
        }
        if self.waited() > AUDIT_TIMEOUT {
            return self.stuck("after the faults, the data cannot be read", Vec::new());
        }
        false
    }

    /// Everything was read. Whether that is the end.
    fn read_all(&mut self) -> bool {
        if let Some(differs) = self.board.data.difference() {
            self.findings.push(Finding::new("copies", differs));
        }
        if !self.copies.next_round(&self.world) {
            return true;
        }
        self.enter(RunPhase::Moving);
        false
    }

    /// Other replicas become primaries.
    pub(super) fn moving(&mut self) -> bool {
        let open = self.copies.move_on(&self.world);
        if open.is_empty() {
            // What expires may have done so since.
            let expires =
                self.board.work.spec().expire_percent > 0 || self.board.settings.expires.is_some();
            self.board.data.read_again(!expires);
            let keys = self.board.recorder.written_keys();
            self.begin_task(move |db, board| crate::session::audit(db, board, keys));
            self.enter(RunPhase::Auditing);
        } else if self.waited() > MOVE_TIMEOUT {
            return self.stuck("in calm, replicas do not become primaries", open);
        }
        false
    }
}
