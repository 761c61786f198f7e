//! The history of a run: all sessions write to one file, in real-time order.
//!
//! The clock is read under the lock, so that the order of the lines is an order in which the events happened: a transaction that
//! completed before another was invoked stands before it.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use timestone_types::Timestamp;
use timestone_workload::WorkloadError;
use timestone_workload::history::{Fate, HistoryRecorder, MicroOp, Slot};

use crate::failure::Failure;

/// A history being written.
#[derive(Debug)]
pub(super) struct Chronicle {
    begin: Instant,
    recorder: Mutex<HistoryRecorder<BufWriter<File>>>,
}

impl Chronicle {
    /// Opens the file, for this many sessions.
    pub(super) fn create(path: &Path, slots: u32) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::usage(format!("could not create the history file {}: {error}", path.display()))
        })?;
        let recorder = Mutex::new(HistoryRecorder::new(BufWriter::new(file), slots));
        Ok(Self { begin: Instant::now(), recorder })
    }

    fn lock(&self) -> (MutexGuard<'_, HistoryRecorder<BufWriter<File>>>, Timestamp) {
        let guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (guard, Timestamp::from_nanos(nanos))
    }

    /// A session's transaction is about to begin.
    pub(super) fn invoke(&self, slot: Slot, ops: &[MicroOp]) -> Result<(), WorkloadError> {
        let (mut recorder, now) = self.lock();
        recorder.invoke(slot, now, ops)
    }

    /// A session's transaction has ended.
    pub(super) fn complete(&self, slot: Slot, fate: Fate<'_>) -> Result<(), WorkloadError> {
        let (mut recorder, now) = self.lock();
        recorder.complete(slot, now, fate)
    }

    /// Writes out what is buffered and closes the file.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let recorder = self.recorder.into_inner().unwrap_or_else(PoisonError::into_inner);
        recorder.finish().map(drop).map_err(|error| Failure::failed(error.to_string()))
    }
}
