//! The history of a run: all sessions write to one file, in real-time order.
//!
//! The clock is read under the lock, so that the order of the lines is an order in which the events happened: a transaction that
//! completed before another was invoked stands before it. However the run ends, every invocation gets its completion: sessions
//! that do not end in time are unknown.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use timestone::Keyspace;
use timestone_cluster::ExternalMode;
use timestone_types::Timestamp;
use timestone_workload::check::Promise;
use timestone_workload::history::{Fate, Head, HistoryRecorder, Judged, MicroOp, Slot};
use timestone_workload::{WorkloadError, WorkloadSpec};

use crate::failure::Failure;

/// A history being written.
#[derive(Debug)]
pub(super) struct Chronicle {
    begin: Instant,
    /// `None` once it is closed.
    recorder: Mutex<Option<HistoryRecorder<BufWriter<File>>>>,
}

impl Chronicle {
    /// Opens the file, for this many sessions, and says what is to follow.
    pub(super) fn create(path: &Path, slots: u32, head: &Head) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::usage(format!("could not create the history file {}: {error}", path.display()))
        })?;
        let mut recorder = HistoryRecorder::new(BufWriter::new(file), slots);
        recorder.begin(head).map_err(lost)?;
        Ok(Self { begin: Instant::now(), recorder: Mutex::new(Some(recorder)) })
    }

    /// The recorder, and the time of what is written next; nothing is written any more once the history is closed.
    fn write<T: Default>(
        &self,
        write: impl FnOnce(&mut HistoryRecorder<BufWriter<File>>, Timestamp) -> Result<T, WorkloadError>,
    ) -> Result<T, WorkloadError> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_mut().map_or_else(|| Ok(T::default()), |recorder| write(recorder, self.elapsed()))
    }

    fn elapsed(&self) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A session's transaction is about to begin.
    pub(super) fn invoke(&self, slot: Slot, ops: &[MicroOp]) -> Result<(), WorkloadError> {
        self.write(|recorder, now| recorder.invoke(slot, now, ops))
    }

    /// A session's transaction has ended.
    pub(super) fn complete(&self, slot: Slot, fate: Fate<'_>) -> Result<(), WorkloadError> {
        self.write(|recorder, now| recorder.complete(slot, now, fate))
    }

    /// Closes the file: what is still under way is unknown, and says so. Sessions that come to an end later are not heard any more.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard.take().map_or(Ok(()), |recorder| recorder.finish(self.elapsed()).map(drop).map_err(lost))
    }
}

/// What a run's history says of itself; `None` for a workload that has none.
pub(super) fn head_of(spec: &WorkloadSpec, keyspace: &Keyspace) -> Option<Head> {
    let waits = keyspace.options.external == ExternalMode::Wait;
    Some(Head {
        judged: Judged::of(spec)?,
        isolation: keyspace.options.isolation.to_string(),
        external: keyspace.options.external.to_string(),
        protocol: "native".to_owned(),
        promise: if waits { Promise::RealTime } else { Promise::Conflicts },
        void: None,
    })
}

fn lost(error: WorkloadError) -> Failure {
    Failure::failed(error.to_string())
}
