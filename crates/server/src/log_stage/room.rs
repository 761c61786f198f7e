//! What shards may still let in while a log cannot make its next file, and when such a log is given
//! up at a shutdown.

use timestone_shard::LogShortage;
use timestone_types::Timestamp;
use timestone_wal::WalError;

use crate::limits::{BLOCKED_LOG_TIMEOUT, LOG_ROOM_STEP_BYTES};

/// What shards must be told.
pub(super) enum RoomChange {
    /// So much is left.
    Short(LogShortage),
    /// The log makes files again.
    Over,
}

/// See the module.
#[derive(Default)]
pub(super) struct Room {
    /// What the shards were told: how much there is, and why no more.
    told: Option<(u64, String)>,
    /// Since when nothing has become durable of what waits.
    stuck_since: Option<Timestamp>,
    give_up_at: Option<Timestamp>,
}

impl Room {
    /// Takes what the log lacks now, if anything: why, and the bytes that it still takes.
    pub(super) fn change(&mut self, now: Option<(&str, u64)>) -> Option<RoomChange> {
        let now =
            now.map(|(cause, room)| (room / LOG_ROOM_STEP_BYTES * LOG_ROOM_STEP_BYTES, cause));
        if now == self.told.as_ref().map(|(room, cause)| (*room, cause.as_str())) {
            return None;
        }
        self.told = now.map(|(room, cause)| (room, cause.to_owned()));
        let Some((room_bytes, cause)) = now else { return Some(RoomChange::Over) };
        let words = format!(
            "no room for writes: {cause}. Delete something or free space on the disk; writes go on \
             by themselves then"
        );
        Some(RoomChange::Short(LogShortage { room_bytes, words: words.into() }))
    }

    /// Something has become durable.
    pub(super) const fn moves(&mut self) {
        self.stuck_since = None;
    }

    /// Gives up a log at a shutdown that has no room for what waits, and gets none: it is in doubt,
    /// and nobody is told otherwise.
    pub(super) fn give_up(
        &mut self,
        now: Timestamp,
        waits: bool,
        is_shutting_down: bool,
    ) -> Option<WalError> {
        self.give_up_at = None;
        let Some((_, cause)) = self.told.as_ref().filter(|_| waits) else {
            self.stuck_since = None;
            return None;
        };
        let at = self.stuck_since.get_or_insert(now).saturating_add(BLOCKED_LOG_TIMEOUT);
        if !is_shutting_down {
            return None;
        }
        self.give_up_at = Some(at).filter(|&at| now < at);
        self.give_up_at.is_none().then(|| WalError::NoSpace { cause: cause.clone() })
    }

    /// When [`Room::give_up`] has something to do.
    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        self.give_up_at
    }
}
