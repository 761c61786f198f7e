//! What a transaction is. Data only; buffers are reused.
//!
//! ```text
//!   Open ── commit ──► Committing ── Finished ──► Told ── Done ──► released
//!    │ └─ local commit, abort ────────────────────────────────────► released
//!    └── a read that ends it ──► Closed ── result handed out ─────► released
//! ```
//! A slot is released when the result was handed out *and* nothing is owed to any participant.

use core::time::Duration;

use timestone_txn::coordinator::Coordinator;
use timestone_types::{AbortReason, ShardId, Timestamp, TxnId};

use super::keys::{KeySet, ReadState};
use super::ranges::Ranges;
use crate::engine::slab::SlabKey;
use crate::{OpId, SessionError, TxnOptions, limits};

/// Where a transaction is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// Reads and writes are taken.
    #[default]
    Open,
    /// Over before it asked for a commit; only its result waits to be handed out.
    Closed,
    /// The coordinator works; the application waits.
    Committing,
    /// The application was told; participants may not have acknowledged yet.
    Told,
}

/// What the application is told in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxnResult {
    /// Committed at this timestamp.
    Committed(Timestamp),
    /// Aborted; the entry that met it, when one did.
    Aborted { reason: AbortReason, entry: Option<u32> },
    /// Never executed.
    Failed(Ending),
    /// Not known in time.
    Unknown,
}

/// Why a transaction was never executed: the errors that end one, without their words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The clock is too far ahead.
    ClockAhead { lead: Duration },
    /// The clock is too far behind.
    ClockBehind { lag: Duration },
    /// The server does not serve at the moment.
    Busy { retry_after: Duration },
    /// The client's session is over.
    SessionEnded,
}

impl From<Ending> for SessionError {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::ClockAhead { lead } => Self::ClockAhead { lead },
            Ending::ClockBehind { lag } => Self::ClockBehind { lag },
            Ending::Busy { retry_after } => Self::Busy { retry_after },
            Ending::SessionEnded => Self::SessionEnded,
        }
    }
}

/// What belongs to a transaction from the moment in which it asks for its commit.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// The default id while it has not asked.
    pub(crate) id: TxnId,
    pub(crate) participants: Vec<ShardId>,
    /// The highest commit timestamp that was tried.
    pub(crate) highest: Timestamp,
    /// What a participant refused with that no retry mends; told when the transaction turns out to
    /// be aborted.
    pub(crate) fault: Option<SessionError>,
    pub(crate) coordinator: Coordinator,
    /// When the coordinator wants a tick.
    pub(crate) due: Timestamp,
    /// Some participant is owed something.
    pub(crate) is_owing: bool,
}

impl Commit {
    fn reset(&mut self) {
        self.id = TxnId::default();
        self.participants.clear();
        self.highest = Timestamp::ZERO;
        self.fault = None;
        self.coordinator.reset();
        self.due = Timestamp::MAX;
        self.is_owing = false;
        debug_assert!(self.coordinator.next_deadline().is_none(), "a coordinator without a commit");
    }
}

/// One transaction.
#[derive(Debug, Default)]
pub(crate) struct Txn {
    pub(crate) phase: Phase,
    pub(crate) session: Option<SlabKey>,
    pub(crate) options: TxnOptions,
    pub(crate) begin: Timestamp,
    /// The watermark of all shards as it was known then; zero where nobody wants to know.
    pub(crate) watermark: Timestamp,
    pub(crate) opened: Timestamp,
    pub(crate) keys: KeySet,
    pub(crate) ranges: Ranges,
    /// Reads under way.
    pub(crate) asked: u32,
    /// Further operations that wait for a read that another one asked.
    pub(crate) waiters: Vec<(u32, OpId)>,
    /// Who waits for the end.
    pub(crate) op: Option<OpId>,
    pub(crate) commit: Commit,
    pub(crate) result: Option<TxnResult>,
}

impl Txn {
    /// Makes a reused slot fresh.
    pub(crate) fn open(
        &mut self,
        session: SlabKey,
        options: TxnOptions,
        begin: Timestamp,
        (now, watermark): (Timestamp, Timestamp),
    ) {
        assert!(
            !self.commit.is_owing,
            "a slot was released while a participant was owed something"
        );
        self.phase = Phase::Open;
        self.session = Some(session);
        self.options = options;
        self.begin = begin;
        self.watermark = watermark;
        self.opened = now;
        self.keys.clear();
        self.ranges.clear();
        self.asked = 0;
        self.waiters.clear();
        self.op = None;
        self.commit.reset();
        self.result = None;
        self.assert_sound();
    }

    /// What holds between any two calls while its slot is taken; walks nothing.
    #[inline]
    pub(crate) fn assert_sound(&self) {
        let Self { phase, result, op, .. } = self;
        let is_consistent = match phase {
            Phase::Open => result.is_none() && op.is_none() && !self.commit.is_owing,
            Phase::Closed => result.is_some() && op.is_some() && !self.commit.is_owing,
            Phase::Committing => result.is_none() && self.commit.is_owing,
            Phase::Told => result.is_some() && (op.is_some() || self.commit.is_owing),
        };
        debug_assert!(is_consistent, "{phase:?}, with {result:?} for {op:?}");
        debug_assert!(
            self.asked <= self.keys.len(),
            "more reads are under way than there are keys"
        );
        debug_assert!(self.is_open() || self.asked == 0, "a read is under way after the end");
        debug_assert!(self.asked > 0 || self.waiters.is_empty(), "somebody waits for no read");
        debug_assert!(self.begin > Timestamp::ZERO, "a transaction without a begin");
    }

    /// Reads under way agree with the keys, and so do those who wait for them. Walks the keys when
    /// they are few.
    pub(crate) fn assert_reads_sound(&self) {
        if self.keys.len() > limits::CHECKED_SLOTS {
            return;
        }
        self.keys.assert_sums();
        let is_asked = |at: u32| matches!(self.keys.entry(at).read, ReadState::Asked(_));
        let asked = (0..self.keys.len()).filter(|&at| is_asked(at)).count();
        assert_eq!(self.asked as usize, asked, "reads are counted that are not under way");
        let waiters = &self.waiters;
        assert!(waiters.iter().all(|&(at, _)| is_asked(at)), "somebody waits for no read");
    }

    /// When something is to be done about it.
    pub(crate) fn due(&self) -> Timestamp {
        match self.phase {
            Phase::Open => self.keys.due(),
            Phase::Committing | Phase::Told if self.commit.is_owing => self.commit.due,
            Phase::Committing | Phase::Told | Phase::Closed => Timestamp::MAX,
        }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether nobody needs its slot any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let is_told = matches!(self.phase, Phase::Told | Phase::Closed);
        is_told && self.op.is_none() && !self.commit.is_owing
    }

    /// Whether its snapshot lies where backups can answer it: as far in the past as that takes, and
    /// not below what its session has seen.
    #[inline]
    pub(crate) const fn follows_backups(&self) -> bool {
        self.options.reads_at_backups() && self.options.snapshot_at.is_none()
    }

    /// Whether writes are refused.
    #[inline]
    pub(crate) const fn is_read_only(&self) -> bool {
        let options = &self.options;
        options.read_only || options.snapshot_at.is_some() || options.max_staleness.is_some()
    }
}
