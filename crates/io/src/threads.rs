//! The fallback engine: a few threads with blocking calls, behind the same interface as the ring.
//!
//! ```text
//!   submit ─► staged ──flush──► queue (Mutex + Condvar) ─► workers ─► finished (Mutex + Condvar) ──poll──► completions
//!                                                                        └─ signal the wake descriptor
//! ```
//!
//! Both queues are bounded by the engine's depth, which the facade enforces. A worker that panics
//! would lose an operation, so workers do nothing that can.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::IoError;
use crate::file::{allocate, read_fully};
use crate::limits::FALLBACK_THREADS;
use crate::op::{IoCompletion, IoOp, IoToken};
use crate::wakeup::Wakeup;
use crate::zones;

/// Engine on a pool of threads.
#[derive(Debug)]
pub(crate) struct ThreadEngine {
    shared: Arc<PoolShared>,
    staged: VecDeque<(IoToken, IoOp)>,
    workers: Vec<JoinHandle<()>>,
    in_flight: usize,
}

#[derive(Debug)]
struct PoolShared {
    jobs: Mutex<Jobs>,
    job_added: Condvar,
    finished: Mutex<Vec<IoCompletion>>,
    finish_added: Condvar,
    wakeup: Arc<Wakeup>,
}

#[derive(Debug, Default)]
struct Jobs {
    queue: VecDeque<(IoToken, IoOp)>,
    closing: bool,
}

impl ThreadEngine {
    /// Starts `depth` threads, but not more than [`FALLBACK_THREADS`].
    pub(crate) fn new(depth: u32, wakeup: Arc<Wakeup>) -> Result<Self, IoError> {
        Self::beside(depth, depth.min(FALLBACK_THREADS), wakeup)
    }

    /// Starts so many threads, whose completions signal a descriptor that may be another engine's.
    pub(crate) fn beside(depth: u32, threads: u32, wakeup: Arc<Wakeup>) -> Result<Self, IoError> {
        let shared = Arc::new(PoolShared {
            jobs: Mutex::new(Jobs::default()),
            job_added: Condvar::new(),
            finished: Mutex::new(Vec::with_capacity(depth as usize)),
            finish_added: Condvar::new(),
            wakeup,
        });
        let mut engine =
            Self { shared, staged: VecDeque::new(), workers: Vec::new(), in_flight: 0 };
        for index in 0..threads {
            let shared = Arc::clone(&engine.shared);
            let worker = std::thread::Builder::new()
                .name(format!("file-io-{index}"))
                .spawn(move || shared.work())
                .map_err(|source| IoError::System {
                    action: "start a thread for file I/O",
                    source,
                })?;
            engine.workers.push(worker);
        }
        Ok(engine)
    }

    /// Accepts an operation; the facade has checked the depth.
    pub(crate) fn submit(&mut self, token: IoToken, op: IoOp) {
        self.staged.push_back((token, op));
        self.in_flight += 1;
    }

    /// Hands the staged operations to the workers.
    pub(crate) fn flush(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let count = self.staged.len();
        lock(&self.shared.jobs).queue.append(&mut self.staged);
        if count == 1 {
            self.shared.job_added.notify_one();
        } else {
            self.shared.job_added.notify_all();
        }
    }

    /// Appends what has finished.
    pub(crate) fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        self.flush();
        if self.in_flight == 0 {
            return 0;
        }
        let mut finished = lock(&self.shared.finished);
        let count = finished.len();
        completions.append(&mut finished);
        self.in_flight -= count;
        count
    }

    /// Blocks until something has finished.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.flush();
        if self.in_flight == 0 {
            return;
        }
        let deadline = Instant::now() + timeout;
        let mut finished = lock(&self.shared.finished);
        while finished.is_empty() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            finished = self
                .shared
                .finish_added
                .wait_timeout(finished, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Whether a poll would find something.
    pub(crate) fn has_finished(&self) -> bool {
        !lock(&self.shared.finished).is_empty()
    }

    /// Operations accepted and not yet polled.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The descriptor that is signalled for each completion.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wakeup.as_fd()
    }

    /// Clears it.
    pub(crate) fn clear_wake(&self) {
        self.shared.wakeup.clear();
    }
}

impl Drop for ThreadEngine {
    /// Everything accepted is still done, then the threads end.
    fn drop(&mut self) {
        self.flush();
        lock(&self.shared.jobs).closing = true;
        self.shared.job_added.notify_all();
        for worker in self.workers.drain(..) {
            // A worker cannot have panicked with an operation of ours that could still be waited
            // for.
            let _ = worker.join();
        }
    }
}

impl PoolShared {
    /// One worker's life: take a job, do it, report it; end when closing and the queue is empty.
    fn work(&self) {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some((token, op)) = jobs.queue.pop_front() {
                drop(jobs);
                let completion = perform(token, op);
                lock(&self.finished).push(completion);
                self.finish_added.notify_one();
                self.wakeup.signal();
                jobs = lock(&self.jobs);
            } else if jobs.closing {
                return;
            } else {
                jobs = self.job_added.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Does one operation, blocking.
fn perform(token: IoToken, mut op: IoOp) -> IoCompletion {
    let result = match &mut op {
        IoOp::Read { file, offset, buffer, length } => read_fully(file, *offset, buffer, *length),
        IoOp::Write { file, offset, buffer, length } => {
            file.file().write_all_at(&buffer[..*length], *offset).map(|()| *length)
        }
        IoOp::WriteMany { file, offset, buffers } => write_many(file, *offset, buffers),
        IoOp::Sync { file } => file.file().sync_data().map(|()| 0),
        IoOp::Allocate { file, offset, length } => allocate(file, *offset, *length).map(|()| 0),
        IoOp::Zone { file, action, offset, length } => {
            zones::act(file, *action, *offset, *length).map(|()| 0)
        }
    };
    op.into_completion(token, result)
}

/// Writes whole buffers one after another, with as few calls as the kernel allows.
fn write_many(
    file: &crate::IoFile,
    offset: u64,
    buffers: &[crate::AlignedBuffer],
) -> io::Result<usize> {
    let slices: Vec<io::IoSlice<'_>> =
        buffers.iter().map(|buffer| io::IoSlice::new(buffer)).collect();
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut rest = slices;
    let mut rest = rest.as_mut_slice();
    let mut done = 0;
    while done < total {
        match rustix::io::pwritev(file.file(), rest, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => {
                done += bytes;
                io::IoSlice::advance_slices(&mut rest, bytes);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

/// A lock whose holders cannot leave it half-changed: poisoning says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
