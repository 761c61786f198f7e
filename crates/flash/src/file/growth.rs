//! Growing the file in the background: reserve, write zeros in pieces, sync, record in the table.
//!
//! ```text
//!   start ─► allocating ─► zeroing (a few pieces in flight) ─► syncing ─► recording ─► done
//!               └──────────────┴─ failed, once nothing is in flight
//! ```
//!
//! The zeros make later programs change no metadata of the file system, which is what makes their
//! syncs fast (docs/lab/building-blocks.md). A growth that a crash cuts short is simply begun
//! again: the table says what exists. One that fails gives back what it has taken already: others
//! may need the room more, the log above all, for which some is left free.

use std::io;

use timestone_io::limits::ZERO_FILL_BYTES;
use timestone_io::{AlignedBuffer, IoFile, IoOp};

use crate::device::Token;
use crate::error::FlashError;
use crate::file::layout::Layout;
use crate::limits::GROW_WRITES_IN_FLIGHT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GrowthPhase {
    Start,
    Allocating,
    Zeroing,
    Syncing,
    Synced,
    Recording,
}

/// What the device has to do next for a growth.
#[derive(Debug)]
pub(crate) enum GrowthStep {
    /// Start this operation and report it.
    Start(IoOp),
    /// Nothing until something is reported.
    Wait,
    /// Sync the medium and report it.
    Sync,
    /// Record in the table that this many blocks exist.
    Record(u32),
    /// It is over.
    Failed(FlashError),
}

/// One growth under way.
#[derive(Debug)]
pub(crate) struct Growth {
    token: Token,
    to: u32,
    /// Where the growth begins.
    start: u64,
    /// Next byte of the file to be zeroed, and where that ends.
    next: u64,
    end: u64,
    /// What is to stay free on the file system.
    keep_free: u64,
    phase: GrowthPhase,
    writes_in_flight: usize,
    zeros: Vec<AlignedBuffer>,
    error: Option<io::Error>,
}

impl Growth {
    /// Growth from `from` blocks to `to`, which leaves `keep_free` bytes of the file system free.
    pub(crate) fn new(token: Token, layout: Layout, from: u32, to: u32, keep_free: u64) -> Self {
        Self {
            token,
            to,
            keep_free,
            start: layout.block_offset(from),
            next: layout.block_offset(from),
            end: layout.block_offset(to),
            phase: GrowthPhase::Start,
            writes_in_flight: 0,
            zeros: Vec::new(),
            error: None,
        }
    }

    /// Under which token the caller waits for it.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// What is to be done now; call again until it says `Wait` or `Failed`.
    pub(crate) fn next(&mut self, file: &IoFile) -> GrowthStep {
        if self.writes_in_flight == 0
            && let Some(source) = self.error.take()
        {
            return self.give_back(file, explain(file, source));
        }
        match self.phase {
            GrowthPhase::Start => {
                if let Some(full) = self.lacks_room(file, self.end - self.start) {
                    return GrowthStep::Failed(full);
                }
                self.phase = GrowthPhase::Allocating;
                self.writes_in_flight = 1;
                GrowthStep::Start(IoOp::Allocate {
                    file: file.clone(),
                    offset: self.next,
                    length: self.end - self.next,
                })
            }
            // Others may have grown at the same time.
            GrowthPhase::Zeroing if self.next == self.start && self.error.is_none() => {
                match self.lacks_room(file, 0) {
                    Some(full) => self.give_back(file, full),
                    None => self.zero_piece(file),
                }
            }
            GrowthPhase::Zeroing if self.error.is_none() && self.next < self.end => {
                self.zero_piece(file)
            }
            GrowthPhase::Zeroing if self.error.is_none() && self.writes_in_flight == 0 => {
                self.phase = GrowthPhase::Syncing;
                GrowthStep::Sync
            }
            GrowthPhase::Synced => {
                self.phase = GrowthPhase::Recording;
                GrowthStep::Record(self.to)
            }
            GrowthPhase::Allocating
            | GrowthPhase::Zeroing
            | GrowthPhase::Syncing
            | GrowthPhase::Recording => GrowthStep::Wait,
        }
    }

    /// An operation that `next` started has ended.
    pub(crate) fn settle(&mut self, result: io::Result<usize>, buffer: Option<AlignedBuffer>) {
        self.writes_in_flight -= 1;
        self.zeros.extend(buffer);
        if self.phase == GrowthPhase::Allocating {
            self.phase = GrowthPhase::Zeroing;
        }
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// The sync that `next` asked for has succeeded.
    pub(crate) fn synced(&mut self) {
        assert_eq!(self.phase, GrowthPhase::Syncing);
        self.phase = GrowthPhase::Synced;
    }

    /// Why there would be too little room for others after taking `bytes` more, if so.
    fn lacks_room(&self, file: &IoFile, bytes: u64) -> Option<FlashError> {
        // A file system that does not tell is asked for the room itself.
        let free = timestone_io::free_bytes(file)
            .filter(|&free| free < self.keep_free.saturating_add(bytes))?;
        let (path, keep) = (file.path().display(), self.keep_free);
        let reason = format!(
            "the file system has no room for {path} to grow ({free} bytes are free, of which \
             {keep} are kept for the log)"
        );
        Some(FlashError::Full { reason })
    }

    /// Ends without success: the file is as long as it was.
    fn give_back(&self, file: &IoFile, why: FlashError) -> GrowthStep {
        if let Err(error) = file.file().set_len(self.start) {
            tracing::warn!(path = %file.path().display(), %error, "could not give back what a \
                growth has taken");
        }
        GrowthStep::Failed(why)
    }

    fn zero_piece(&mut self, file: &IoFile) -> GrowthStep {
        if self.writes_in_flight >= GROW_WRITES_IN_FLIGHT {
            return GrowthStep::Wait;
        }
        let buffer = self.zeros.pop().unwrap_or_else(|| AlignedBuffer::zeroed(ZERO_FILL_BYTES));
        let length =
            usize::try_from(self.end - self.next).unwrap_or(ZERO_FILL_BYTES).min(ZERO_FILL_BYTES);
        let offset = self.next;
        self.next += length as u64;
        self.writes_in_flight += 1;
        GrowthStep::Start(IoOp::Write { file: file.clone(), offset, buffer, length })
    }
}

/// A full disk is something the caller can act on; anything else is a failure of the medium.
fn explain(file: &IoFile, source: io::Error) -> FlashError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            let path = file.path().display();
            let free = timestone_io::free_bytes(file)
                .map_or_else(String::new, |free| format!(", {free} bytes are free"));
            FlashError::Full {
                reason: format!("the file system has no room for {path} to grow ({source}{free})"),
            }
        }
        _ => FlashError::Medium { operation: "grow", source },
    }
}
