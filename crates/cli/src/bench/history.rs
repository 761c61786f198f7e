//! The history of a run: all sessions write to one file, in real-time order.
//!
//! The clock is read under the lock, so that the order of the lines is an order in which the events
//! happened: a transaction that completed before another was invoked stands before it. However the
//! run ends, every invocation gets its completion: sessions that do not end in time are unknown.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use timestone::Keyspace;
use timestone_cluster::ExternalMode;
use timestone_types::Timestamp;
use timestone_workload::WorkloadError;
use timestone_workload::check::Promise;
use timestone_workload::history::{
    Completion, HistoryHead, HistoryRecorder, Judged, MicroOp, SessionSlot,
};
use timestone_workload::redis::{CallRef, RedisRecorder, Reply, Request};

use super::Setup;
use super::limits::REDIS_CLOCK_SLACK;
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
    pub(super) fn create(path: &Path, slots: u32, head: &HistoryHead) -> Result<Self, Failure> {
        let mut recorder = HistoryRecorder::new(BufWriter::new(create(path)?), slots);
        recorder.begin(head).map_err(lost)?;
        Ok(Self { begin: Instant::now(), recorder: Mutex::new(Some(recorder)) })
    }

    /// The recorder, and the time of what is written next; nothing is written any more once the
    /// history is closed.
    fn write<T: Default>(
        &self,
        write: impl FnOnce(&mut HistoryRecorder<BufWriter<File>>, Timestamp) -> Result<T, WorkloadError>,
    ) -> Result<T, WorkloadError> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_mut().map_or_else(|| Ok(T::default()), |recorder| write(recorder, self.elapsed()))
    }

    fn elapsed(&self) -> Timestamp {
        since(self.begin)
    }

    /// A session's transaction is about to begin.
    pub(super) fn invoke(&self, slot: SessionSlot, ops: &[MicroOp]) -> Result<(), WorkloadError> {
        self.write(|recorder, now| recorder.invoke(slot, now, ops))
    }

    /// A session's transaction has ended.
    pub(super) fn complete(
        &self,
        slot: SessionSlot,
        fate: Completion<'_>,
    ) -> Result<(), WorkloadError> {
        self.write(|recorder, now| recorder.complete(slot, now, fate))
    }

    /// Closes the file: what is still under way is unknown, and says so. Sessions that come to an
    /// end later are not heard any more.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard
            .take()
            .map_or(Ok(()), |recorder| recorder.finish(self.elapsed()).map(drop).map_err(lost))
    }
}

/// A history of Redis clients being written.
#[derive(Debug)]
pub(super) struct RedisChronicle {
    begin: Instant,
    /// `None` once it is closed.
    recorder: Mutex<Option<RedisRecorder<BufWriter<File>>>>,
}

impl RedisChronicle {
    /// Opens the file, and says what is to follow.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let recorder =
            RedisRecorder::begin(BufWriter::new(create(path)?), REDIS_CLOCK_SLACK).map_err(lost)?;
        Ok(Self { begin: Instant::now(), recorder: Mutex::new(Some(recorder)) })
    }

    fn write<T: Default>(
        &self,
        write: impl FnOnce(&mut RedisRecorder<BufWriter<File>>, Timestamp) -> Result<T, WorkloadError>,
    ) -> Result<T, WorkloadError> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard
            .as_mut()
            .map_or_else(|| Ok(T::default()), |recorder| write(recorder, since(self.begin)))
    }

    /// The number of a new connection.
    pub(super) fn connect(&self) -> u64 {
        // Counting cannot fail.
        self.write(|recorder, _| Ok(recorder.connect())).unwrap_or_default()
    }

    /// A connection is about to send these requests.
    pub(super) fn invoke(
        &self,
        connection: u64,
        requests: &[Request],
    ) -> Result<Vec<CallRef>, WorkloadError> {
        self.write(|recorder, now| {
            requests.iter().map(|request| recorder.invoke(now, connection, request)).collect()
        })
    }

    /// A call was answered.
    pub(super) fn answer(&self, call: CallRef, reply: &Reply) -> Result<(), WorkloadError> {
        self.write(|recorder, now| recorder.answer(now, call, reply))
    }

    /// These calls will never be.
    pub(super) fn abandon(&self, calls: &[CallRef]) -> Result<(), WorkloadError> {
        self.write(|recorder, now| calls.iter().try_for_each(|call| recorder.abandon(now, *call)))
    }

    /// Closes the file: what is still under way is unknown, and says so.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let mut guard = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        guard
            .take()
            .map_or(Ok(()), |recorder| recorder.finish(since(self.begin)).map(drop).map_err(lost))
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        Failure::usage(format!("could not create the history file {}: {error}", path.display()))
    })
}

fn since(begin: Instant) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// What a run's history says of itself; `None` for a workload that has none.
pub(super) fn head_of(setup: &Setup, keyspace: &Keyspace) -> Option<HistoryHead> {
    let waits = keyspace.options.external == ExternalMode::Wait;
    Some(HistoryHead {
        judged: if setup.singles { Judged::SingleKeys } else { Judged::of(&setup.spec)? },
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
