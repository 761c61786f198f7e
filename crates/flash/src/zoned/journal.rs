//! The block table of a zoned device, and the log that keeps it: nothing is written in place.
//!
//! ```text
//!   idle ──changes──► append a batch ─────────────────────► sync ──► (changes are recorded) idle
//!             │            │ failed                           ▲
//!             └─ no room ──┴─► clear the other zone ─► snapshot of the whole table there
//! ```
//!
//! Changes that become due while a batch is under way form the next one. The zone that was left keeps
//! what it holds until the log comes back to it, so that at every moment one zone holds a whole,
//! durable table. Nothing here does I/O: the device asks for the next step and reports it.
//!
//! Invariants: sequences rise by one with each table page written; a batch is written by one write;
//! once a snapshot has failed there are no more batches.

use std::io;

use timestone_io::AlignedBuffer;

use crate::device::{BlockId, Generation, PAGE_BYTES, Token};
use crate::zoned::layout::{self, COPIES, ENTRIES_PER_PAGE, Identity, Place};

/// Something that the table is to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableChange {
    /// A block's generation is to be this one.
    Erase { token: Token, block: BlockId, to: Generation },
    /// Blocks up to this number exist.
    Grow { token: Token, to: u32 },
}

/// A zone that holds the log, or held it before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogZone {
    /// Where it begins, and how long it is.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Pages of it that are used.
    pub(crate) pages: u32,
    /// Whether it must be reset before it is written from its beginning again.
    pub(crate) sequential: bool,
}

/// What the device has to do next for the log.
#[derive(Debug)]
pub(crate) enum LogStep {
    /// Nothing, or wait.
    Nothing,
    /// Reset this zone, and report it.
    Reset(LogZone),
    /// Write this at an offset of the device, and report it.
    Write(u64, AlignedBuffer),
    /// Sync the medium, and report it.
    Sync,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Append,
    Appending,
    Clear,
    Clearing,
    Snapshot,
    Snapshotting,
    Sync,
    Syncing,
    Failed,
}

/// Where a log goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    /// Which of the two zones.
    pub(crate) zone: usize,
    /// Pages of it that are written.
    pub(crate) used: u32,
    /// The last sequence.
    pub(crate) sequence: u64,
    /// Whether nothing stands in the way behind it.
    pub(crate) clean: bool,
}

/// The table and the batch under way.
#[derive(Debug)]
pub(crate) struct Journal {
    identity: Identity,
    zones: [LogZone; 2],
    /// Of all data zones; zero for blocks that do not exist yet.
    generations: Vec<Generation>,
    end: LogEnd,
    waiting: Vec<TableChange>,
    active: Vec<TableChange>,
    dirty: Vec<u32>,
    phase: Phase,
}

impl Journal {
    /// The log as it was found.
    pub(crate) fn new(
        identity: Identity,
        zones: [LogZone; 2],
        generations: Vec<Generation>,
        end: LogEnd,
    ) -> Self {
        assert_eq!(generations.len(), identity.data_zones as usize);
        Self {
            identity,
            zones,
            generations,
            end,
            waiting: Vec::new(),
            active: Vec::new(),
            dirty: Vec::new(),
            phase: Phase::Idle,
        }
    }

    /// What every table page says.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Asks for a change.
    pub(crate) fn request(&mut self, change: TableChange) {
        self.waiting.push(change);
    }

    /// Changes that were asked for and are not under way.
    pub(crate) fn waiting(&mut self) -> &mut Vec<TableChange> {
        &mut self.waiting
    }

    /// Whether the log takes nothing more.
    pub(crate) fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// A generation that recovery found on the medium's pages, ahead of the table; it is written
    /// with the next change nearby.
    pub(crate) fn adopt(&mut self, block: BlockId, generation: Generation) {
        self.generations[block.0 as usize] = generation;
    }

    /// Begins the next batch, of the changes that are due, unless one is under way.
    pub(crate) fn begin(&mut self, is_due: impl Fn(&TableChange) -> bool) {
        if self.phase != Phase::Idle || self.waiting.is_empty() {
            return;
        }
        assert!(self.active.is_empty(), "one batch at a time");
        self.active.extend(self.waiting.extract_if(.., |change| is_due(change)));
        if self.active.is_empty() {
            return;
        }
        self.dirty.clear();
        for change in &self.active {
            match *change {
                TableChange::Erase { block, to, .. } => {
                    self.generations[block.0 as usize] = to;
                    self.dirty.push(block.0 / ENTRIES_PER_PAGE);
                }
                TableChange::Grow { to, .. } => {
                    let new = self.generations[..to as usize].iter_mut().enumerate();
                    for (block, generation) in new.filter(|(_, generation)| generation.0 == 0) {
                        *generation = Generation::FIRST;
                        self.dirty.push(block as u32 / ENTRIES_PER_PAGE);
                    }
                }
            }
        }
        self.dirty.sort_unstable();
        self.dirty.dedup();
        let room = self.zones[self.end.zone].pages - self.end.used;
        let fits = self.dirty.len() as u32 * COPIES <= room;
        self.phase = if fits && self.end.clean { Phase::Append } else { Phase::Clear };
    }

    /// What is to be done now; call again until it says `Nothing`.
    pub(crate) fn next(&mut self) -> LogStep {
        let other = self.zones[1 - self.end.zone];
        match self.phase {
            Phase::Append => {
                self.phase = Phase::Appending;
                let at = self.zones[self.end.zone].start + self.end.used as u64 * PAGE_BYTES as u64;
                LogStep::Write(at, self.batch(&self.dirty))
            }
            Phase::Clear if other.sequential => {
                self.phase = Phase::Clearing;
                LogStep::Reset(other)
            }
            Phase::Clear | Phase::Snapshot => {
                self.phase = Phase::Snapshotting;
                let all: Vec<u32> = (0..self.identity.table_pages()).collect();
                LogStep::Write(other.start, self.batch(&all))
            }
            Phase::Sync => {
                self.phase = Phase::Syncing;
                LogStep::Sync
            }
            Phase::Idle
            | Phase::Appending
            | Phase::Clearing
            | Phase::Snapshotting
            | Phase::Syncing
            | Phase::Failed => LogStep::Nothing,
        }
    }

    /// The reset or write under way has ended. Gives the error when the log has failed by it.
    pub(crate) fn ended(&mut self, result: io::Result<usize>) -> Result<(), io::Error> {
        match (self.phase, result) {
            (Phase::Appending, Ok(_)) => {
                self.wrote(self.dirty.len() as u32);
                self.phase = Phase::Sync;
            }
            (Phase::Appending, Err(error)) => {
                tracing::warn!(%error, "a batch of the block table could not be appended: the whole \
                    table goes to the other metadata zone");
                self.phase = Phase::Clear;
            }
            (Phase::Clearing, Ok(_)) => self.phase = Phase::Snapshot,
            (Phase::Snapshotting, Ok(_)) => {
                self.end = LogEnd { zone: 1 - self.end.zone, used: 0, clean: true, ..self.end };
                self.wrote(self.identity.table_pages());
                self.phase = Phase::Sync;
            }
            (Phase::Clearing | Phase::Snapshotting, Err(error)) => {
                self.phase = Phase::Failed;
                return Err(error);
            }
            (phase, _) => unreachable!("nothing of the log was under way in {phase:?}"),
        }
        Ok(())
    }

    /// The sync has ended. When it succeeded the batch is recorded.
    pub(crate) fn synced(&mut self, succeeded: bool) {
        assert_eq!(self.phase, Phase::Syncing);
        self.phase = if succeeded { Phase::Idle } else { Phase::Failed };
    }

    /// The changes of the batch, to be carried out or told; empty afterwards.
    pub(crate) fn active(&mut self) -> &mut Vec<TableChange> {
        &mut self.active
    }

    /// A snapshot that begins the first zone; for formatting.
    pub(crate) fn first_snapshot(&mut self) -> (u64, AlignedBuffer) {
        let all: Vec<u32> = (0..self.identity.table_pages()).collect();
        let bytes = self.batch(&all);
        self.wrote(self.identity.table_pages());
        (self.zones[self.end.zone].start, bytes)
    }

    /// The bytes of a batch of these table pages, numbered from the end of the log.
    fn batch(&self, indices: &[u32]) -> AlignedBuffer {
        let first = self.end.sequence + 1;
        let batch = (first, self.end.sequence + indices.len() as u64);
        let pair_bytes = COPIES as usize * PAGE_BYTES;
        let mut bytes = AlignedBuffer::zeroed(indices.len() * pair_bytes);
        let pairs = bytes.chunks_exact_mut(pair_bytes);
        for ((&index, sequence), pair) in indices.iter().zip(first..).zip(pairs) {
            let begin = (index * ENTRIES_PER_PAGE) as usize;
            let end = (begin + ENTRIES_PER_PAGE as usize).min(self.generations.len());
            let place = Place { index, sequence, batch };
            for copy in pair.chunks_exact_mut(PAGE_BYTES) {
                layout::encode(self.identity, place, &self.generations[begin..end], copy);
            }
        }
        bytes
    }

    fn wrote(&mut self, table_pages: u32) {
        self.end.sequence += u64::from(table_pages);
        self.end.used += table_pages * COPIES;
        assert!(self.end.used <= self.zones[self.end.zone].pages, "a batch fits its zone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::layout::DeviceId;
    use crate::zoned::replay::{Replayed, replay};

    const IDENTITY: Identity = Identity {
        device_id: DeviceId(9),
        owner: 0,
        zone_bytes: 1 << 20,
        pages_per_block: 16,
        first_data_zone: 2,
        data_zones: 1500,
    };
    const ZONE_PAGES: u32 = 10;

    /// A log whose zones are in memory.
    struct Log {
        journal: Journal,
        bytes: [Vec<u8>; 2],
    }

    impl Log {
        fn new() -> Self {
            let zone =
                |start| LogZone { start, length: 1 << 20, pages: ZONE_PAGES, sequential: true };
            let end = LogEnd { zone: 0, used: 0, sequence: 0, clean: true };
            let generations = vec![Generation::FIRST; 1500];
            let mut journal = Journal::new(IDENTITY, [zone(0), zone(1 << 20)], generations, end);
            let (_, bytes) = journal.first_snapshot();
            Self { journal, bytes: [bytes.to_vec(), Vec::new()] }
        }

        /// Erases a block; fails the steps whose number `fails` names.
        fn erase(&mut self, block: u32, to: u32, fails: &[usize]) -> Result<(), io::Error> {
            let (token, block) = (Token(0), BlockId(block));
            self.journal.request(TableChange::Erase { token, block, to: Generation(to) });
            self.journal.begin(|_| true);
            for step in 0.. {
                let failed = fails.contains(&step);
                match self.journal.next() {
                    LogStep::Reset(zone) => {
                        self.bytes[(zone.start >> 20) as usize].clear();
                    }
                    LogStep::Write(at, bytes) if !failed => {
                        let zone = &mut self.bytes[(at >> 20) as usize];
                        assert_eq!(zone.len() as u64, at & ((1 << 20) - 1), "written in order");
                        zone.extend_from_slice(&bytes);
                    }
                    LogStep::Write(..) => {}
                    LogStep::Sync => {
                        self.journal.synced(true);
                        self.journal.active().clear();
                        return Ok(());
                    }
                    LogStep::Nothing => unreachable!("a batch goes on"),
                }
                if !matches!(self.journal.phase, Phase::Syncing) {
                    let result = if failed { Err(io::ErrorKind::Other.into()) } else { Ok(0) };
                    self.journal.ended(result)?;
                }
            }
            Ok(())
        }

        fn replayed(&self) -> Replayed {
            replay([&self.bytes[0], &self.bytes[1]]).unwrap().unwrap()
        }
    }

    #[test]
    fn a_log_replays_to_its_table_through_many_changes_of_zone() {
        let mut log = Log::new();
        let mut zones = Vec::new();
        for to in 2..30 {
            log.erase(if to % 2 == 0 { 3 } else { 1200 }, to, &[]).unwrap();
            let found = log.replayed();
            assert_eq!(found.generations, log.journal.generations, "to {to}");
            assert_eq!(found.end, log.journal.end);
            zones.push(found.end.zone);
        }
        zones.dedup();
        assert!(zones.len() > 6, "{zones:?}");
    }

    #[test]
    fn a_failed_append_goes_to_the_other_zone_and_a_failed_snapshot_ends_it() {
        let mut log = Log::new();
        log.erase(7, 2, &[0]).unwrap();
        assert_eq!((log.replayed().end.zone, log.replayed().generations[7]), (1, Generation(2)));
        assert!(log.erase(7, 3, &[0, 1]).is_err(), "the reset fails as well");
        assert!(log.journal.has_failed());
    }

    #[test]
    fn whatever_of_a_batch_is_torn_the_table_before_it_is_there() {
        let mut log = Log::new();
        for to in 2..12 {
            let before = log.journal.generations.clone();
            let old = log.bytes.clone();
            log.erase(3, to, &[]).unwrap();
            let zone = log.journal.end.zone;
            let kept = if log.bytes[zone].starts_with(&old[zone]) { old[zone].len() } else { 0 };
            for cut in (kept..log.bytes[zone].len()).step_by(512) {
                let mut torn = log.bytes.clone();
                torn[zone].truncate(cut);
                let found = replay([&torn[0], &torn[1]]).unwrap().unwrap();
                // One of two copies is enough.
                let whole = log.journal.generations == found.generations;
                assert!(whole || found.generations == before, "to {to}, cut at {cut}");
                assert!(!whole || cut >= log.bytes[zone].len() - PAGE_BYTES);
                assert!(found.end.zone != zone || cut == kept || !found.end.clean);
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_repaired_by_the_second_copy_or_refused() {
        let mut log = Log::new();
        log.erase(3, 2, &[]).unwrap();
        log.erase(3, 3, &[]).unwrap();
        let whole = log.replayed();
        for page in 0..log.bytes[0].len() / PAGE_BYTES {
            let mut hurt = log.bytes.clone();
            hurt[0][page * PAGE_BYTES + 200] ^= 1;
            let found = replay([&hurt[0], &hurt[1]]).unwrap().unwrap();
            assert_eq!(found.generations, whole.generations, "page {page}");
            hurt[0][(page ^ 1) * PAGE_BYTES + 200] ^= 1;
            let last = page / 2 == log.bytes[0].len() / PAGE_BYTES / 2 - 1;
            let found = replay([&hurt[0], &hurt[1]]);
            // The last batch looks as if a power cut had torn it.
            assert_eq!(found.is_err(), !last, "page {page} and its copy");
        }
    }
}
