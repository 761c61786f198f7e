//! What is to be written to one connection, and what waits for the peers of all of a stage.
//!
//! ```text
//!   queue ─► buffers ─► write ─┬─ all of it: the buffers go back to the pool
//!                              └─ blocked: what is short moves into buffers of its size
//! ```
//! A pooled buffer is as large as the largest answer that it once held. While its answer is on its way
//! that does not matter; of a peer that reads nothing there would be one for each turn.
//!
//! Invariants: `unwritten` is the sum of what is left in `buffers`, `memory` that of their
//! capacities: buffers stay whole until their last byte is written; an idle connection holds none.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use timestone_types::Timestamp;

use super::socket::SocketState;
use crate::limits::{FRAME_BATCH_BYTES, POOL_LARGEST, WRITE_SLICES, WRITTEN_REPORT_BYTES};
use crate::{FrameBatchPool, Tally};

/// What became of writing.
#[derive(Debug)]
pub(in crate::net) enum WriteResult {
    /// Everything.
    All,
    /// The socket takes no more at the moment.
    Blocked,
    /// The connection is lost.
    Failed(io::Error),
}

/// What waits for the peers of all connections of a stage.
#[derive(Debug)]
pub(in crate::net) struct QueuedOutput {
    /// Its memory, as far as it is counted.
    memory: Tally,
    /// Bytes that are not written.
    bytes: u64,
}

impl QueuedOutput {
    pub(in crate::net) const fn new(memory: Tally) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Bytes that are not written.
    pub(in crate::net) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::net) struct OutputQueue {
    buffers: VecDeque<Vec<u8>>,
    /// Bytes of the first buffer that are written.
    written: usize,
    /// Bytes in `buffers` that are not written.
    unwritten: usize,
    /// Memory of `buffers`, in bytes.
    memory: usize,
    /// How many of `buffers`, from the front, are not larger than they must be.
    fitted: usize,
    /// What is counted of it.
    counted: u64,
    /// Since when the peer has taken nothing of what is queued.
    pub(in crate::net) untaken_since: Timestamp,
    /// Written bytes of which the connection's owner was not told yet.
    unreported: usize,
}

/// Batches of frames up to this size are appended to the buffer before them, if that has room:
/// cheaper than a slice of their own.
const APPEND_BYTES: usize = 2048;

impl OutputQueue {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            buffers: VecDeque::new(),
            written: 0,
            unwritten: 0,
            memory: 0,
            fitted: 0,
            counted: 0,
            untaken_since: now,
            unreported: 0,
        }
    }

    /// Bytes that are not written.
    #[inline]
    pub(in crate::net) const fn bytes(&self) -> usize {
        self.unwritten
    }

    /// Queues output. It counts with its bytes at first, since most of it is written in the same
    /// turn: what stays counts with its buffers from then on, as long ones do at once.
    pub(in crate::net) fn queue(
        &mut self,
        bytes: Vec<u8>,
        pool: &mut FrameBatchPool,
        all: &mut QueuedOutput,
    ) {
        let (length, capacity) = (bytes.len(), bytes.capacity());
        self.unwritten += length;
        all.bytes += length as u64;
        let counted = if length > 0 && capacity > POOL_LARGEST { capacity } else { length };
        self.count(self.counted + counted as u64, all);
        if bytes.len() <= APPEND_BYTES
            && let Some(last) = self.buffers.back_mut()
            && last.capacity() - last.len() >= bytes.len()
        {
            last.extend_from_slice(&bytes);
            pool.give(bytes);
            return;
        }
        if bytes.is_empty() {
            pool.give(bytes);
        } else {
            self.memory += bytes.capacity();
            self.buffers.push_back(bytes);
        }
    }

    /// Counts `bytes` of memory for what is queued.
    fn count(&mut self, bytes: u64, all: &mut QueuedOutput) {
        all.memory.change(std::mem::replace(&mut self.counted, bytes), bytes);
    }

    /// Writes what is queued. See [`OutputQueue::write_queued`].
    pub(super) fn write(
        &mut self,
        socket: &mut SocketState,
        pool: &mut FrameBatchPool,
        writes: &mut u64,
        all: &mut QueuedOutput,
    ) -> WriteResult {
        let before = self.unwritten;
        let written = if socket.writable || before == 0 {
            self.write_queued(socket, pool, writes)
        } else {
            WriteResult::Blocked
        };
        all.bytes -= (before - self.unwritten) as u64;
        if matches!(written, WriteResult::Blocked) {
            self.fit(pool);
        }
        let left = if counts_bytes_only() { self.unwritten } else { self.memory };
        self.count(left as u64, all);
        written
    }

    /// Writes what is queued, with one call unless there are very many buffers. Counts calls in
    /// `writes`.
    fn write_queued(
        &mut self,
        socket: &mut SocketState,
        pool: &mut FrameBatchPool,
        writes: &mut u64,
    ) -> WriteResult {
        while self.unwritten > 0 {
            let offered: usize;
            *writes += 1;
            let result = if self.buffers.len() == 1 {
                offered = self.unwritten;
                socket.stream.write(&self.buffers[0][self.written..])
            } else {
                let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
                let mut count = 0;
                let mut bytes = 0;
                for (slice, buffer) in slices.iter_mut().zip(&self.buffers) {
                    let rest = if count == 0 { &buffer[self.written..] } else { &buffer[..] };
                    bytes += rest.len();
                    *slice = IoSlice::new(rest);
                    count += 1;
                }
                offered = bytes;
                socket.stream.write_vectored(&slices[..count])
            };
            match result {
                Ok(0) => return WriteResult::Failed(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.took(bytes, pool);
                    if bytes < offered {
                        // The rest would block: the poller tells when there is room again.
                        socket.writable = false;
                        return WriteResult::Blocked;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.writable = false;
                    return WriteResult::Blocked;
                }
                Err(error) => return WriteResult::Failed(error),
            }
        }
        WriteResult::All
    }

    /// What waits for its peer moves out of pooled buffers that are much larger than it. Room for a
    /// fresh batch is left: what is short is appended there.
    fn fit(&mut self, pool: &mut FrameBatchPool) {
        for buffer in self.buffers.iter_mut().skip(self.fitted) {
            let (capacity, wanted) = (buffer.capacity(), buffer.len().max(FRAME_BATCH_BYTES));
            if capacity <= POOL_LARGEST && capacity > 2 * wanted && !keeps_pooled_buffers() {
                let mut fitting = Vec::with_capacity(wanted);
                fitting.extend_from_slice(buffer);
                self.memory = self.memory - capacity + fitting.capacity();
                pool.give(std::mem::replace(buffer, fitting));
            }
        }
        self.fitted = self.buffers.len();
        debug_assert_eq!(self.memory, self.buffers.iter().map(Vec::capacity).sum::<usize>());
    }

    /// Drops `bytes` written bytes from the queue.
    fn took(&mut self, bytes: usize, pool: &mut FrameBatchPool) {
        self.unwritten -= bytes;
        self.written += bytes;
        while let Some(first) = self.buffers.front() {
            if self.written < first.len() {
                break;
            }
            self.written -= first.len();
            if let Some(buffer) = self.buffers.pop_front() {
                self.memory -= buffer.capacity();
                self.fitted = self.fitted.saturating_sub(1);
                pool.give(buffer);
            }
        }
        debug_assert!(
            self.unwritten > 0
                || (self.buffers.is_empty() && self.written == 0 && self.memory == 0),
            "nothing is left of written buffers"
        );
    }

    /// How many written bytes the connection's owner is to be told of, now that `sent` more are: a
    /// large sum now and then.
    #[inline]
    pub(in crate::net) fn report(&mut self, sent: usize) -> Option<usize> {
        self.unreported += sent;
        (self.unreported >= WRITTEN_REPORT_BYTES).then(|| std::mem::take(&mut self.unreported))
    }

    /// Gives all buffers back.
    pub(super) fn release(&mut self, pool: &mut FrameBatchPool, all: &mut QueuedOutput) {
        all.bytes -= self.unwritten as u64;
        self.count(0, all);
        self.buffers.drain(..).for_each(|buffer| pool.give(buffer));
        self.unwritten = 0;
        self.memory = 0;
        self.fitted = 0;
        self.written = 0;
    }
}

/// Whether what waits stays in the buffers that it came in.
fn keeps_pooled_buffers() -> bool {
    timestone_types::is_planted!(KeepsPooledBuffers)
}

/// Whether what waits counts with the bytes that are not written, and not with the buffers that
/// hold them.
fn counts_bytes_only() -> bool {
    timestone_types::is_planted!(CountsBytesOnly)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::net::connection::{ConnectionPhase, NetConnection};
    use crate::net::{ConnectionView, StageSlot, Stream, StreamSocket};
    use crate::{ConnectionId, Generation, Memory, MemoryUse, ReplyAddress, StageId};

    /// A peer that takes so many bytes, and no more.
    #[derive(Debug)]
    struct Takes(usize);

    impl io::Read for Takes {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Takes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            self.write(&vec![0; offered])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl StreamSocket for Takes {
        fn register(&mut self, _: StageSlot) {}

        fn deregister(&mut self) {}

        fn connected(&self) -> io::Result<()> {
            Ok(())
        }

        fn shut_write(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn connected(peer: Takes) -> NetConnection {
        let (connection, generation) = (ConnectionId::new(0), Generation::new(0));
        let reply_to = ReplyAddress { stage: StageId::new(0), connection, generation };
        let view =
            ConnectionView { reply_to, peer: ([127, 0, 0, 1], 1).into(), dial: None, owner: None };
        NetConnection::new(
            Stream::Given(Box::new(peer)),
            view,
            ConnectionPhase::Open,
            Timestamp::ZERO,
        )
    }

    const LONG: usize = 1024 * 1024;
    const LEFT: usize = 2 * crate::limits::TALLY_STEP as usize;

    /// What is counted for three long buffers of which [`LEFT`] bytes of the last one are not
    /// written; then the connection is over.
    fn counted_for_a_rest() -> u64 {
        let memory = Arc::new(Memory::default());
        let mut all = QueuedOutput::new(Tally::new(&memory, MemoryUse::Output));
        let mut pool = FrameBatchPool::new();
        let mut connection = connected(Takes(3 * LONG - LEFT));
        for _ in 0..3 {
            connection.output.queue(vec![b'x'; LONG], &mut pool, &mut all);
        }
        assert_eq!(
            (all.bytes(), memory.used(MemoryUse::Output)),
            (3 * LONG as u64, 3 * LONG as u64)
        );
        assert!(matches!(connection.write(&mut pool, &mut 0, &mut all), WriteResult::Blocked));
        assert_eq!((all.bytes(), connection.output.bytes()), (LEFT as u64, LEFT));
        let counted = memory.used(MemoryUse::Output);
        // Another one behind it counts as well, and is appended to nothing.
        connection.output.queue(vec![b'x'; LONG], &mut pool, &mut all);
        assert_eq!(memory.used(MemoryUse::Output), counted + LONG as u64);
        connection.release(&mut pool, &mut all);
        assert_eq!((all.bytes(), memory.used(MemoryUse::Output)), (0, 0));
        counted
    }

    #[test]
    fn a_buffer_counts_whole_until_its_last_byte_is_written() {
        assert_eq!(counted_for_a_rest(), LONG as u64);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_stage_that_counts_only_what_is_not_written_is_found_out() {
        let bug = timestone_types::planted::Bug::CountsBytesOnly;
        let counted = timestone_types::planted::with(bug, counted_for_a_rest);
        assert!(counted < LONG as u64, "{counted} bytes are counted");
    }

    /// Bytes of memory of the answers that a peer does not read: one of `bytes` bytes in each turn, in a
    /// pooled buffer.
    fn held_for(bytes: usize, turns: usize) -> usize {
        let mut all = QueuedOutput::new(Tally::new(&Arc::default(), MemoryUse::Output));
        let mut pool = FrameBatchPool::new();
        let mut connection = connected(Takes(10));
        for turn in 0..turns {
            let mut short = Vec::with_capacity(POOL_LARGEST);
            short.resize(bytes, turn as u8);
            connection.output.queue(short, &mut pool, &mut all);
            assert!(matches!(connection.write(&mut pool, &mut 0, &mut all), WriteResult::Blocked));
        }
        assert_eq!(connection.output.bytes(), bytes * turns - 10);
        // What was copied is what was queued.
        let mut queued = Vec::new();
        connection.output.buffers.iter().for_each(|buffer| queued.extend_from_slice(buffer));
        let turn_of = |at: usize| (at / bytes) as u8;
        assert!(queued.iter().enumerate().all(|(at, &byte)| byte == turn_of(at)));
        connection.output.memory
    }

    #[test]
    fn short_answers_to_a_peer_that_does_not_read_hold_buffers_of_their_size() {
        assert!(held_for(3000, 200) <= 200 * FRAME_BATCH_BYTES);
        assert!(held_for(100_000, 20) <= 20 * 100_000);
        // Short ones share a buffer.
        assert!(held_for(500, 80) <= 10 * 2 * FRAME_BATCH_BYTES);
        // A buffer that is half full is not worth a copy.
        assert_eq!(held_for(POOL_LARGEST / 2, 1), POOL_LARGEST);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn pooled_buffers_that_are_kept_for_a_peer_that_does_not_read_are_noticed() {
        let bug = timestone_types::planted::Bug::KeepsPooledBuffers;
        let held = timestone_types::planted::with(bug, || held_for(3000, 200));
        assert!(held > 200 * FRAME_BATCH_BYTES, "{held} bytes");
    }

    #[test]
    fn answers_that_stay_count_with_their_buffers() {
        let memory = Arc::new(Memory::default());
        let mut all = QueuedOutput::new(Tally::new(&memory, MemoryUse::Output));
        let mut pool = FrameBatchPool::new();
        let mut connection = connected(Takes(10));
        let mut half = Vec::with_capacity(POOL_LARGEST);
        let bytes = POOL_LARGEST as u64 / 2;
        half.resize(POOL_LARGEST / 2, b'x');
        connection.output.queue(half, &mut pool, &mut all);
        assert_eq!(
            memory.used(MemoryUse::Output),
            bytes,
            "what may be written in this turn counts with its bytes"
        );
        assert!(matches!(connection.write(&mut pool, &mut 0, &mut all), WriteResult::Blocked));
        assert_eq!(
            (all.bytes(), memory.used(MemoryUse::Output)),
            (bytes - 10, POOL_LARGEST as u64)
        );
        // It is appended: the buffer has room.
        connection.output.queue(b"more".to_vec(), &mut pool, &mut all);
        connection.write(&mut pool, &mut 0, &mut all);
        assert_eq!((all.bytes(), memory.used(MemoryUse::Output)), (bytes - 6, POOL_LARGEST as u64));
        connection.release(&mut pool, &mut all);
        assert_eq!((all.bytes(), memory.used(MemoryUse::Output)), (0, 0));
    }
}
