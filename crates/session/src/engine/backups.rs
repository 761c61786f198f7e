//! Reads at backups: which replica of a shard is asked for a snapshot, and what waits to be sent to
//! it.
//!
//! ```text
//!   a read that may be answered by a backup ─► choose ─┬─ the primary: its shard's outbox
//!                                                      └─ a backup:    the outbox of its server
//!   refused, or silent ─► that backup is left alone for a while, and the primary is asked
//! ```
//! The nearest replica is asked, by the time that its last answers took; those that are about as near
//! take turns, the primary among them. One of which nothing is known, or not lately, is asked next, so
//! that the figures stay true. Nobody is dialled before somebody wants it. Source: MILANA §4.6;
//! docs/protocol/replication.md, rule P21.

use core::time::Duration;

use timestone_clock::server_time::ServerNumber;
use timestone_types::Timestamp;

use super::closed::Closed;
use super::shards::{ShardIndex, Shards};
use super::{frames, number};
use crate::{Routes, limits};

/// A server's index in the table of those that keep replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackupIndex(u16);

/// A server that keeps replicas.
#[derive(Debug)]
struct Keeper {
    server: ServerNumber,
    /// A connection stands, and the server answers reads at its backups.
    is_up: bool,
    outbox: Vec<u8>,
    is_dirty: bool,
    /// When the first question was sent since something came from there.
    asked: Option<Timestamp>,
    /// The read whose answer is waited for to see how long it takes, and when it was sent.
    watched: Option<(u64, Timestamp)>,
    /// How long answers take; `None` before the first.
    round_trip: Option<Duration>,
    /// When that was last looked at.
    looked_at: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    keepers: Vec<Keeper>,
    /// Those of each shard, the primary's included, by the shard's index.
    of_shard: Vec<Vec<u16>>,
    /// Backups that have refused or are silent, and until when they are left alone.
    paused: Vec<(ShardIndex, u16, Timestamp)>,
    /// Counts moments in which somebody chose, so that replicas which are about as near take turns.
    turn: usize,
    /// The last such moment: what is asked of a shard together leaves together.
    chosen_at: Timestamp,
    is_wanted: bool,
}

impl Backups {
    /// Follows another map; `shards` are the indexes of its shards.
    pub(super) fn update(
        &mut self,
        routes: &Routes,
        shards: impl Iterator<Item = (ShardIndex, timestone_types::ShardId)>,
    ) {
        self.of_shard.iter_mut().for_each(Vec::clear);
        for (index, id) in shards {
            if self.of_shard.len() <= index.index() {
                self.of_shard.resize_with(index.index() + 1, Vec::new);
            }
            for &server in routes.replicas_of(id) {
                let place = self.place_of(server);
                self.of_shard[index.index()].push(place);
            }
        }
    }

    fn place_of(&mut self, server: ServerNumber) -> u16 {
        let known = self.keepers.iter().position(|keeper| keeper.server == server);
        let place = known.unwrap_or_else(|| {
            self.keepers.push(Keeper {
                server,
                is_up: false,
                outbox: Vec::new(),
                is_dirty: false,
                asked: None,
                watched: None,
                round_trip: None,
                looked_at: Timestamp::ZERO,
            });
            self.keepers.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    fn keeper(&mut self, server: ServerNumber) -> Option<&mut Keeper> {
        self.keepers.iter_mut().find(|keeper| keeper.server == server)
    }

    /// Whether a connection stands to a server that answers reads at its backups.
    pub(super) fn is_up(&self, server: ServerNumber) -> bool {
        self.keepers.iter().any(|keeper| keeper.server == server && keeper.is_up)
    }

    pub(super) const fn are_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Reads may be answered by backups from now on.
    pub(super) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whom to ask for a snapshot of a shard at `at`; `None`: the primary, which is `primary` and can
    /// be asked if that is said.
    fn choose(
        &mut self,
        (now, at): (Timestamp, Timestamp),
        shard: ShardIndex,
        (primary, asks_primary): (Option<ServerNumber>, bool),
        closed: &Closed,
    ) -> Option<BackupIndex> {
        self.paused.retain(|(_, _, until)| *until > now);
        if self.chosen_at != now {
            (self.chosen_at, self.turn) = (now, self.turn.wrapping_add(1));
        }
        let Self { keepers, of_shard, paused, turn, .. } = self;
        let all = of_shard.get(shard.index()).map_or(&[][..], Vec::as_slice);
        let is_open = |place: u16| {
            let keeper = &keepers[usize::from(place)];
            let is_paused = paused.iter().any(|&(of, one, _)| (of, one) == (shard, place));
            let has_room = keeper.outbox.len() < limits::MAX_OUTBOX_BYTES;
            if primary == Some(keeper.server) {
                asks_primary
            } else {
                let lacks = || closed.lacks(now, shard, (keeper.server, at));
                keeper.is_up && !is_paused && has_room && !lacks()
            }
        };
        let open = || all.iter().copied().filter(|&place| is_open(place));
        let of = |place: u16| &keepers[usize::from(place)];
        let is_due = |keeper: &Keeper| {
            keeper.round_trip.is_none() || now.since(keeper.looked_at) >= limits::ROUND_TRIP_LASTS
        };
        let unknown = open().find(|&place| {
            is_due(of(place)) && now.since(of(place).looked_at) >= limits::LOOK_AGAIN
        });
        let chosen = unknown.or_else(|| {
            let nearest = open().filter_map(|place| of(place).round_trip).min()?;
            let most = nearest.saturating_mul(2).saturating_add(limits::ABOUT_AS_NEAR);
            let near =
                || open().filter(|&place| of(place).round_trip.is_some_and(|one| one <= most));
            near().nth(*turn % near().count().max(1))
        })?;
        let keeper = &mut keepers[usize::from(chosen)];
        if unknown.is_some() {
            // What was known is of another time.
            (keeper.looked_at, keeper.round_trip, keeper.watched) = (now, None, None);
        }
        (primary != Some(keeper.server)).then_some(BackupIndex(chosen))
    }

    /// A read is sent to a server, under this number.
    fn sent(&mut self, now: Timestamp, place: u16, request: u64) {
        let keeper = &mut self.keepers[usize::from(place)];
        if keeper.watched.is_none_or(|(_, at)| now.since(at) >= limits::BACKUP_TIMEOUT) {
            keeper.watched = Some((request, now));
        }
    }

    /// A read is asked at a primary: how long that takes is looked at, too.
    pub(super) fn sent_to_primary(&mut self, now: Timestamp, server: ServerNumber, request: u64) {
        let place = self.keepers.iter().position(|keeper| keeper.server == server);
        if let Some(place) = place.and_then(|place| u16::try_from(place).ok()) {
            self.sent(now, place, request);
        }
    }

    /// Something came from a server, an answer to `request` if that is said.
    pub(super) fn heard(&mut self, now: Timestamp, server: ServerNumber, request: u64) {
        let Some(keeper) = self.keeper(server) else { return };
        keeper.asked = None;
        if let Some((_, sent)) = keeper.watched.take_if(|(watched, _)| *watched == request) {
            let took = now.since(sent);
            // As TCP does: an eighth of what is new.
            let mean = keeper.round_trip.map_or(took, |mean| (mean * 7 + took) / 8);
            (keeper.round_trip, keeper.looked_at) = (Some(mean), now);
        }
    }

    /// A backup of a shard is not asked for a while.
    fn pause(&mut self, shard: ShardIndex, backup: BackupIndex, until: Timestamp) {
        self.paused.retain(|&(of, one, _)| (of, one) != (shard, backup.0));
        self.paused.push((shard, backup.0, until));
    }
}

/// For the engine.
impl Shards {
    /// Whom to ask for a snapshot of a shard at `at`; `None`: the primary.
    pub(crate) fn choose_backup(
        &mut self,
        now: Timestamp,
        of: ShardIndex,
        at: Timestamp,
    ) -> Option<BackupIndex> {
        let primary = (self.server_of(of), self.serves(of));
        self.backups.want();
        self.backups.choose((now, at), of, primary, &self.closed)
    }

    /// The outbox of a backup's server, for a read under this number.
    pub(crate) fn ask_backup(
        &mut self,
        now: Timestamp,
        backup: BackupIndex,
        request: u64,
    ) -> &mut Vec<u8> {
        self.backups.sent(now, backup.0, request);
        let keeper = &mut self.backups.keepers[usize::from(backup.0)];
        keeper.asked.get_or_insert(now);
        keeper.is_dirty = true;
        &mut keeper.outbox
    }

    /// Asks the backups of a shard up to where they answer, where that is wanted and not known. Each
    /// question has a number, so that a server which is no backup yet answers as well: one that says
    /// nothing hangs. `pings` are those that were sent.
    pub(super) fn ask_closed(&mut self, now: Timestamp, of: ShardIndex, pings: &mut u32) {
        let primary = self.server_of(of);
        let next = number::ping(pings.wrapping_add(1));
        let route = self.route(of, next);
        let Self { backups: Backups { keepers, of_shard, .. }, closed, .. } = self;
        for &place in of_shard.get(of.index()).map_or(&[][..], Vec::as_slice) {
            let keeper = &mut keepers[usize::from(place)];
            let has_room = keeper.outbox.len() < limits::MAX_OUTBOX_BYTES;
            let is_asked = keeper.is_up && has_room && primary != Some(keeper.server);
            if is_asked && closed.is_due(now, of, keeper.server) {
                frames::ping(route, &mut keeper.outbox);
                *pings = pings.wrapping_add(1);
                keeper.asked.get_or_insert(now);
                keeper.is_dirty = true;
            }
        }
    }

    /// Whether the frames that are taken came from this backup's server.
    pub(crate) fn is_from(&self, backup: BackupIndex) -> bool {
        self.peer() == Some(self.backups.keepers[usize::from(backup.0)].server)
    }

    /// A backup of a shard has refused a snapshot at `at`. One that has told that it lacks this goes on
    /// to be asked for older ones.
    pub(crate) fn refused_by_backup(
        &mut self,
        now: Timestamp,
        of: ShardIndex,
        (backup, at): (BackupIndex, Timestamp),
    ) {
        let server = self.backups.keepers[usize::from(backup.0)].server;
        if !self.closed.lacks(now, of, (server, at)) {
            self.leave_backup(now, of, backup, limits::BACKUP_PAUSE);
        }
    }

    /// A backup of a shard is silent: it is not asked for `pause`.
    pub(crate) fn leave_backup(
        &mut self,
        now: Timestamp,
        of: ShardIndex,
        backup: BackupIndex,
        pause: Duration,
    ) {
        self.backups.pause(of, backup, now.saturating_add(pause));
    }
}

/// For hosts that ask backups.
impl Shards {
    /// Whether reads may be answered by backups: connections to all servers that keep replicas are
    /// worth while.
    #[must_use]
    pub const fn wants_backups(&self) -> bool {
        self.backups.are_wanted()
    }

    /// A connection to a server stands that answers reads at its backups.
    pub fn backup_up(&mut self, server: ServerNumber) {
        if let Some(keeper) = self.backups.keeper(server) {
            keeper.is_up = true;
        }
    }

    /// There is none any more. What was asked there is asked of primaries in time.
    pub fn backup_down(&mut self, server: ServerNumber) {
        if let Some(keeper) = self.backups.keeper(server) {
            keeper.is_up = false;
            keeper.outbox.clear();
            (keeper.asked, keeper.watched) = (None, None);
        }
    }

    /// The next server with reads at backups to send, and its outbox: whole frames of any shards.
    pub fn next_dirty_backup(&mut self) -> Option<(ServerNumber, &mut Vec<u8>)> {
        if !self.backups.is_wanted {
            return None;
        }
        let keeper = self.backups.keepers.iter_mut().find(|keeper| keeper.is_dirty)?;
        keeper.is_dirty = false;
        Some((keeper.server, &mut keeper.outbox))
    }

    /// Since when a server has owed an answer to a read at a backup, or to how far one has come, with
    /// nothing from it meanwhile.
    #[must_use]
    pub fn backup_asked_since(&self, server: ServerNumber) -> Option<Timestamp> {
        let keeper = self.backups.keepers.iter().find(|keeper| keeper.server == server)?;
        keeper.asked
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{Epoch, ShardId, Slot};

    use super::*;

    const SHARD: ShardIndex = ShardIndex(0);
    const FIRST: ShardId = ShardId::new(0);

    const fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    const fn server(number: u32) -> ServerNumber {
        ServerNumber(number)
    }

    /// Three replicas, of which the first is primary; all connections stand.
    fn shards() -> Shards {
        let routes = Routes::new(1, vec![(FIRST, Epoch::new(1))], |_: Slot| Some(FIRST))
            .with_servers(|_| Some(server(1)))
            .with_replicas(|_| vec![server(1), server(2), server(3)]);
        let mut shards = Shards::new(routes);
        [2, 3].into_iter().for_each(|number| shards.backup_up(server(number)));
        shards
    }

    /// One read: who is asked. It takes as many milliseconds as `takes` says of its server.
    fn read(shards: &mut Shards, now: &mut Timestamp, takes: [u64; 3]) -> u32 {
        *now = now.saturating_add(Duration::from_millis(1));
        let asked = match shards.choose_backup(*now, SHARD, ms(0)) {
            None => {
                shards.backups.sent_to_primary(*now, server(1), 7);
                1
            }
            Some(backup) => {
                shards.ask_backup(*now, backup, 7).push(0);
                let (asked, outbox) = shards.next_dirty_backup().unwrap();
                outbox.clear();
                asked.0
            }
        };
        *now = now.saturating_add(Duration::from_millis(takes[asked as usize - 1]));
        shards.backups.heard(*now, server(asked), 7);
        asked
    }

    fn reads(shards: &mut Shards, now: &mut Timestamp, takes: [u64; 3]) -> [usize; 3] {
        let mut count = [0; 3];
        for _ in 0..30 {
            count[read(shards, now, takes) as usize - 1] += 1;
        }
        count
    }

    #[test]
    fn replicas_that_are_about_as_near_take_turns() {
        let (mut shards, mut now) = (shards(), ms(0));
        let counts = reads(&mut shards, &mut now, [1, 1, 1]);
        assert!(counts.iter().all(|count| (8..=12).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_nearest_is_asked_and_the_others_now_and_then() {
        let (mut shards, mut now) = (shards(), ms(0));
        assert_eq!(reads(&mut shards, &mut now, [40, 1, 40]), [1, 28, 1]);
        now = now.saturating_add(limits::ROUND_TRIP_LASTS);
        // It has moved away, and another one nearer.
        let counts = reads(&mut shards, &mut now, [40, 40, 1]);
        assert!(counts[2] > 10 && counts[0] <= 2, "{counts:?}");
    }

    #[test]
    fn who_has_refused_or_is_gone_is_left_alone_for_a_while() {
        let (mut shards, mut now) = (shards(), ms(0));
        reads(&mut shards, &mut now, [40, 1, 1]);
        let first = shards.choose_backup(now, SHARD, ms(0)).unwrap();
        shards.leave_backup(now, SHARD, first, limits::BACKUP_PAUSE);
        let other = shards.choose_backup(now, SHARD, ms(0)).unwrap();
        assert_ne!(first, other);
        shards.backup_down(shards.backups.keepers[usize::from(other.0)].server);
        assert_eq!(shards.choose_backup(now, SHARD, ms(0)), None, "the primary is left");
        now = now.saturating_add(limits::BACKUP_PAUSE);
        assert_eq!(shards.choose_backup(now, SHARD, ms(0)), Some(first));
    }
}
