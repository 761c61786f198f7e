//! The io_uring engine.
//!
//! ```text
//!   submit ─► slot (owns file + buffers) ─► SQE(user_data = slot) ──enter──► kernel
//!   poll   ◄─ slot freed, buffers given back ◄─ CQE ◄────────────────────────┘
//! ```
//!
//! Rings know no zone commands: those go to a few threads beside the ring, which are started with the
//! first of them and signal the same descriptor.
//!
//! Invariants: an SQE points only into memory that its slot owns; a slot is emptied only by its
//! CQE; at most `depth` slots are occupied, the submission ring has at least `depth` entries and
//! the completion ring twice as many, so neither overflows; a slot whose CQE can never be fetched
//! is leaked, never freed.

#![expect(
    unsafe_code,
    reason = "submission entries carry raw pointers; soundness is this file's only job"
)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};

use crate::ALIGNMENT;
use crate::error::IoError;
use crate::file::{at_unaligned_end, extend};
use crate::limits::ZONE_THREADS;
use crate::op::{IoCompletion, IoOp, IoToken};
use crate::threads::ThreadEngine;
use crate::wakeup::Wakeup;

/// `user_data` of the probe's no-op; slots are far below it.
const PROBE: u64 = u64::MAX;

/// Engine on one ring.
pub(crate) struct UringEngine {
    ring: IoUring,
    wakeup: Arc<Wakeup>,
    slots: Vec<RingOp>,
    free: Vec<u32>,
    /// Zone commands.
    beside: Option<ThreadEngine>,
    /// Zone commands for which no thread could be started.
    refused: Vec<IoCompletion>,
}

/// One operation in flight. Its vectors are kept for reuse.
struct RingOp {
    token: IoToken,
    op: Option<IoOp>,
    /// Bytes transferred so far, when the kernel stopped short.
    done: usize,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the raw pointers in `vectors` point into buffers that the same slot owns, so they move
// with the engine; the ring's mappings are not tied to a thread (it is set up without
// SINGLE_ISSUER).
unsafe impl Send for UringEngine {}

impl UringEngine {
    /// Sets a ring up that signals `wakeup`, and proves by a no-op that it works.
    pub(crate) fn new(depth: u32, wakeup: Arc<Wakeup>) -> Result<Self, IoError> {
        let unavailable = |reason: String| IoError::UringUnavailable { reason };
        // Completions run when we enter the kernel or sleep; the plain setup is for kernels before
        // 5.19.
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(depth)
            .or_else(|_| IoUring::builder().setup_clamp().build(depth))
            .map_err(|error| unavailable(format!("setting a ring up failed: {error}")))?;
        if ring.params().sq_entries() < depth {
            return Err(unavailable(format!(
                "the ring has {} entries, {depth} are needed",
                ring.params().sq_entries()
            )));
        }
        check_features(&ring).map_err(unavailable)?;
        let slots = (0..depth)
            .map(|_| RingOp { token: IoToken(0), op: None, done: 0, vectors: Vec::new() })
            .collect();
        let free = (0..depth).rev().collect();
        let mut engine = Self { ring, wakeup, slots, free, beside: None, refused: Vec::new() };
        engine.round_trip().map_err(|error| unavailable(format!("a no-op failed: {error}")))?;
        engine.ring.submitter().register_eventfd(engine.wakeup.as_fd().as_raw_fd()).map_err(
            |error| unavailable(format!("registering an event descriptor failed: {error}")),
        )?;
        Ok(engine)
    }

    /// Some sandboxes allow the setup and refuse the use.
    fn round_trip(&mut self) -> io::Result<()> {
        // SAFETY: a no-op refers to no memory.
        unsafe { self.ring.submission().push(&opcode::Nop::new().build().user_data(PROBE)) }
            .map_err(|_| io::Error::other("the submission ring is full"))?;
        while let Err(error) = self.ring.submit_and_wait(1) {
            if !is_transient(&error) {
                return Err(error);
            }
        }
        match self.ring.completion().next() {
            Some(entry) if entry.result() == 0 && entry.user_data() == PROBE => Ok(()),
            Some(entry) => Err(io::Error::from_raw_os_error(-entry.result())),
            None => Err(io::Error::other("it did not complete")),
        }
    }

    /// Accepts an operation; the facade has checked the depth.
    pub(crate) fn submit(&mut self, token: IoToken, op: IoOp) {
        if matches!(op, IoOp::Zone { .. }) {
            return self.submit_beside(token, op);
        }
        let index = self.free.pop().expect("the facade keeps operations within the depth");
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.op.is_none());
        slot.token = token;
        slot.op = Some(op);
        slot.done = 0;
        self.push(index);
    }

    /// Hands an operation to the threads beside the ring.
    fn submit_beside(&mut self, token: IoToken, op: IoOp) {
        let beside = match self.beside.take() {
            Some(beside) => Ok(beside),
            None => ThreadEngine::beside(
                self.slots.len() as u32,
                ZONE_THREADS,
                Arc::clone(&self.wakeup),
            ),
        };
        match beside {
            Ok(mut beside) => {
                beside.submit(token, op);
                self.beside = Some(beside);
            }
            Err(error) => {
                self.refused.push(op.into_completion(token, Err(io::Error::other(error))));
                self.wakeup.signal();
            }
        }
    }

    /// Describes what is left of a slot's operation to the kernel.
    fn push(&mut self, index: u32) {
        let entry = self.slots[index as usize].entry().user_data(index.into());
        // SAFETY: the entry points into the file, buffers and vectors that the slot owns. They stay
        // put and untouched until the slot's completion is fetched (`reap`) or are leaked (`drop`):
        // heap memory does not move with its owner.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // The ring holds entries that the kernel did not take yet (it was short of memory).
            // There are as many entries as slots and each slot has at most one in the ring, so this
            // cannot be.
            unreachable!("the submission ring has an entry for every slot");
        }
    }

    /// Hands pushed entries to the kernel.
    pub(crate) fn flush(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.flush();
        }
        let (submitted, to_run) = {
            let queue = self.ring.submission();
            (queue.is_empty(), queue.taskrun())
        };
        if !submitted || to_run {
            // On a shortage of memory the entries stay in the ring, and the next turn tries again.
            // Entering also runs completions that wait for this thread to visit the kernel.
            let _ = self.ring.submit();
        }
    }

    /// Appends what has completed.
    pub(crate) fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        self.flush();
        if self.in_flight() == 0 {
            return 0;
        }
        let mut count = self.reap(completions) + self.refused.len();
        completions.append(&mut self.refused);
        if let Some(beside) = &mut self.beside {
            count += beside.poll(completions);
        }
        // Continued transfers start right away.
        self.flush();
        count
    }

    fn reap(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        let mut count = 0;
        loop {
            let next = self.ring.completion().next();
            let Some(entry) = next else { return count };
            let index = entry.user_data() as u32;
            match self.slots[index as usize].settle(entry.result()) {
                Settled::Continue => self.push(index),
                Settled::Done(result) => {
                    let slot = &mut self.slots[index as usize];
                    let op = slot.op.take().expect("a completion belongs to an occupied slot");
                    completions.push(op.into_completion(slot.token, result));
                    self.free.push(index);
                    count += 1;
                }
            }
        }
    }

    /// Blocks until a completion can be fetched.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.flush();
        if self.in_flight() == 0 || !self.ring.completion().is_empty() {
            return;
        }
        if self.in_ring() < self.in_flight() {
            return self.wait_for_both(timeout);
        }
        let timespec = Timespec::from(timeout);
        // A timeout or a signal ends the wait, and so may anything else: the caller polls.
        let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec));
    }

    /// The same while there are zone commands: the descriptor tells of them and of the ring.
    fn wait_for_both(&mut self, timeout: Duration) {
        // What was signalled before this is seen by looking; what is after it ends the wait.
        self.wakeup.clear();
        self.flush();
        let finished = self.beside.as_ref().is_some_and(ThreadEngine::has_finished);
        if !finished && self.refused.is_empty() && self.ring.completion().is_empty() {
            self.wakeup.wait(timeout);
        }
    }

    /// Operations accepted and not yet polled.
    pub(crate) fn in_flight(&self) -> usize {
        let beside = self.beside.as_ref().map_or(0, ThreadEngine::in_flight);
        self.in_ring() + beside + self.refused.len()
    }

    /// Those of them that are in the ring.
    fn in_ring(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The descriptor that is signalled for each completion.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Clears it.
    pub(crate) fn clear_wake(&self) {
        self.wakeup.clear();
    }

    /// Waits for everything in flight; says whether it succeeded.
    fn drain(&mut self) -> bool {
        let mut scratch = Vec::new();
        while self.in_ring() > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(_) => return false,
            }
            self.reap(&mut scratch);
            scratch.clear();
        }
        true
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        if !self.drain() {
            // The kernel may still write into these buffers: they must outlive everything.
            tracing::error!(
                operations = self.in_ring(),
                "io_uring could not be drained; leaking its buffers"
            );
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

impl core::fmt::Debug for UringEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UringEngine").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// What a completion means for its operation.
enum Settled {
    /// The kernel stopped short: go on from there.
    Continue,
    /// It is over.
    Done(io::Result<usize>),
}

impl RingOp {
    /// The submission entry for what is left of the operation.
    fn entry(&mut self) -> squeue::Entry {
        let done = self.done;
        let op = self.op.as_mut().expect("only occupied slots are pushed");
        match op {
            IoOp::Read { file, offset, buffer, length } => {
                debug_assert!(done <= *length && *length <= buffer.len());
                // In bounds: `done ≤ length ≤ buffer.len()`, checked when the operation was
                // accepted.
                let start = buffer.as_mut_pointer().wrapping_add(done);
                opcode::Read::new(descriptor(file), start, (*length - done) as u32)
                    .offset(*offset + done as u64)
                    .build()
            }
            IoOp::Write { file, offset, buffer, length } => {
                debug_assert!(done <= *length && *length <= buffer.len());
                let start = buffer.as_pointer().wrapping_add(done);
                opcode::Write::new(descriptor(file), start, (*length - done) as u32)
                    .offset(*offset + done as u64)
                    .build()
            }
            IoOp::WriteMany { file, offset, buffers } => {
                self.vectors.clear();
                let mut skip = done;
                for buffer in buffers {
                    let skipped = skip.min(buffer.len());
                    skip -= skipped;
                    if skipped < buffer.len() {
                        let start = buffer.as_mut_pointer().wrapping_add(skipped);
                        self.vectors.push(libc::iovec {
                            iov_base: start.cast(),
                            iov_len: buffer.len() - skipped,
                        });
                    }
                }
                opcode::Writev::new(
                    descriptor(file),
                    self.vectors.as_ptr(),
                    self.vectors.len() as u32,
                )
                .offset(*offset + done as u64)
                .build()
            }
            IoOp::Sync { file } => {
                opcode::Fsync::new(descriptor(file)).flags(FsyncFlags::DATASYNC).build()
            }
            IoOp::Allocate { file, offset, length } => {
                opcode::Fallocate::new(descriptor(file), *length).offset(*offset).build()
            }
            IoOp::Zone { .. } => unreachable!("zone commands do not go into the ring"),
        }
    }

    /// Interprets a completion's result.
    fn settle(&mut self, result: i32) -> Settled {
        let op = self.op.as_ref().expect("a completion belongs to an occupied slot");
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            if is_transient(&error) {
                return Settled::Continue;
            }
            if let IoOp::Allocate { file, offset, length } = op
                && error.raw_os_error() == Some(libc::EOPNOTSUPP)
            {
                return Settled::Done(extend(file, *offset, *length).map(|()| 0));
            }
            return Settled::Done(Err(error));
        }
        let moved = result as usize;
        self.done += moved;
        let wanted = op.transfer_bytes();
        debug_assert!(self.done <= wanted);
        if self.done >= wanted {
            return Settled::Done(Ok(self.done));
        }
        match op {
            IoOp::Read { file, .. } if moved == 0 || at_unaligned_end(file, self.done) => {
                Settled::Done(Ok(self.done))
            }
            IoOp::Read { .. } => Settled::Continue,
            _ if moved == 0 => Settled::Done(Err(io::ErrorKind::WriteZero.into())),
            _ => Settled::Continue,
        }
    }
}

fn descriptor(file: &crate::IoFile) -> Fd {
    Fd(file.as_fd().as_raw_fd())
}

/// Errors that say "again".
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// Everything this engine uses must be there.
fn check_features(ring: &IoUring) -> Result<(), String> {
    let params = ring.params();
    if !params.is_feature_ext_arg()
        || !params.is_feature_nodrop()
        || !params.is_feature_submit_stable()
    {
        return Err("the kernel is older than 5.11".to_owned());
    }
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| format!("probing failed: {error}"))?;
    let needed = [
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("writev", opcode::Writev::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("fallocate", opcode::Fallocate::CODE),
    ];
    match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        Some((name, _)) => Err(format!("the kernel has no {name} operation for it")),
        None => Ok(()),
    }
}

const _: () = assert!(ALIGNMENT.is_power_of_two());
