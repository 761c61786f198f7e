//! The shards as an engine sees them: where a key goes, what waits to be sent there, and whether
//! its server can be reached.
//!
//! A shard keeps its index for the engine's lifetime, whatever maps come: requests under way name
//! indexes. Deliberately without addresses.

use timestone_clock::server_time::{Exchange, ServerNumber};
use timestone_cluster::MapVersion;
use timestone_types::{Epoch, ShardId, Timestamp, slot_of};
use timestone_wire::{
    self as wire, ClockIs, Frame, Frames, PLACES_PUTS, PROTOCOL, ProtocolVersion, READS_DOWNWARDS,
    READS_RANGES, WireError,
};

use super::backups::Backups;
use super::closed::Closed;
use super::frames::Route;
use super::offset::{ClockOffset, OffsetProbe};
use crate::{Routes, SessionError, limits};

/// A shard's index in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct ShardIndex(pub(crate) u16);

impl ShardIndex {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

const NOBODY: u16 = u16::MAX;

// Each shard has an index, unless it has the number of none.
const _: () = assert!(wire::SERVER_ITSELF.get() == NOBODY);

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    epoch: Epoch,
    /// Who serves it by the present map.
    server: Option<ServerNumber>,
    /// The connection to its server stands.
    pub(crate) is_up: bool,
    /// The version of the protocol that is spoken over that connection, or was over the last one.
    protocol: ProtocolVersion,
    /// Whether the present map has it.
    pub(crate) is_known: bool,
    /// Who serves it, where this host cannot reach that server: it is asked nothing, and told
    /// nothing.
    pub(crate) elsewhere: Option<Box<str>>,
    outbox: Vec<u8>,
    /// How much the outbox held when the host took it, lately.
    sent_bytes: usize,
    /// When the first request was sent since a frame came from there.
    asked: Option<Timestamp>,
    /// Its server does not serve it, as it says, or is silent: it may be another one's by now.
    is_doubtful: bool,
    /// The newest map has it in another epoch, or at another server, than the one before.
    pub(crate) has_moved: bool,
    /// What answers tell of the clock of its server.
    pub(crate) offset: OffsetProbe,
    is_dirty: bool,
}

impl Shard {
    /// Whether it is to be asked things, and nobody is known to serve it.
    const fn is_missed(&self) -> bool {
        self.is_known && self.elsewhere.is_none() && (!self.is_up || self.is_doubtful)
    }
}

/// All shards: the route from a key to its shard, an outbox for each, and what their connections
/// tell. A host reaches it with [`crate::Engine::shards`] and [`crate::Engine::shards_mut`].
#[derive(Debug)]
pub struct Shards {
    table: Vec<Shard>,
    slots: Box<[u16]>,
    indexes: Vec<u16>,
    dirty: Vec<ShardIndex>,
    routes: Routes,
    /// A server has told that the routes are outdated.
    are_outdated: bool,
    /// How many shards have no connection to a server that serves them.
    missed: usize,
    /// The servers of the present map, in ascending order.
    servers: Vec<ServerNumber>,
    /// The latest reading of the batch that is being taken, and whose it is.
    reading: Option<(ShardIndex, ClockIs)>,
    /// Who sent that batch, where the host can say it.
    peer: Option<ServerNumber>,
    /// An answer from there is to be told when it arrived.
    wants_arrival: Option<ShardIndex>,
    /// The only shards that this host can reach, when it cannot reach all.
    reached_only: Option<Box<[ShardId]>>,
    /// Servers that may be asked for snapshots of shards that they do not serve.
    pub(super) backups: Backups,
    /// How far they have come.
    pub(super) closed: Closed,
}

/// For hosts.
impl Shards {
    /// For a host that has a path to these shards only, at present: what concerns another one is
    /// refused at once ([`SessionError::Elsewhere`]), for a request that nobody can take would hold
    /// the watermark of all shards for as long as it is open. The others are not reported to
    /// either: a shard that is never asked anything keeps nothing for this client. Whoever calls it
    /// again changes which they are.
    pub fn reach_only(&mut self, only: &[ShardId]) {
        self.reached_only = Some(only.into());
        for raw in 0..self.table.len() {
            let elsewhere = self.unreached(self.table[raw].id);
            self.table[raw].elsewhere = elsewhere;
        }
        self.count_missed();
        self.assert_sound();
    }

    /// Whether every shard can be reached.
    ///
    /// # Errors
    /// [`SessionError::Elsewhere`] with the first that cannot.
    pub fn reaches_all(&self) -> Result<(), SessionError> {
        self.known().try_for_each(|shard| self.reachable(shard).map(drop))
    }

    /// Whether the servers of all shards understand ranges of keys, as far as is known.
    ///
    /// # Errors
    /// [`SessionError::Outdated`] with the first that does not.
    pub fn all_read_ranges(&self) -> Result<(), SessionError> {
        self.known().try_for_each(|shard| self.reads_ranges(shard))
    }

    /// Whether the connection to a shard's server stands. Unknown shards have none.
    #[must_use]
    pub fn is_connected(&self, shard: ShardId) -> bool {
        self.index_of(shard).is_some_and(|shard| self.at(shard).is_up)
    }

    /// For a host whose connections greet: the version of the protocol that is spoken with the server of
    /// a shard from now on. Said before [`crate::Engine::connected`]; without it, the newest one.
    pub fn speaks(&mut self, shard: ShardId, protocol: ProtocolVersion) {
        if let Some(shard) = self.index_of(shard) {
            self.at_mut(shard).protocol = protocol;
        }
        self.assert_sound();
    }

    /// What a refusal calls the server of a shard that this host cannot reach.
    pub fn name_server(&mut self, id: ShardId, name: &str) {
        if let Some(shard) = self.index_of(id)
            && let Some(known) = &mut self.at_mut(shard).elsewhere
            && **known != *name
        {
            *known = name.into();
        }
        self.assert_sound();
    }

    /// Since when one of `shards` has owed an answer, with no frame from it meanwhile; `None` when
    /// none of them does. The host feeds it to the [`crate::IdleTimeout`] of the connection that
    /// leads to them.
    #[must_use]
    pub fn asked_since(&self, shards: &[ShardId]) -> Option<Timestamp> {
        let indexes = shards.iter().filter_map(|&shard| self.index_of(shard));
        indexes.filter_map(|shard| self.at(shard).asked).min()
    }

    /// The next shard with bytes to send, and its outbox: whole frames. The host takes them out
    /// (clearing or swapping the buffer) or leaves them, and then looks again with
    /// [`Shards::outbox`].
    pub fn next_dirty(&mut self) -> Option<(ShardId, &mut Vec<u8>)> {
        loop {
            let index = self.dirty.pop()?.index();
            assert!(self.table[index].is_dirty, "a shard was listed twice");
            self.table[index].is_dirty = false;
            if !self.table[index].outbox.is_empty() {
                self.assert_whole_frames(index);
                let shard = &mut self.table[index];
                shard.sent_bytes = shard.outbox.len().max(shard.sent_bytes / 2);
                return Some((shard.id, &mut shard.outbox));
            }
        }
    }

    /// A shard's outbox; `None` for a shard that was in no map.
    pub fn outbox(&mut self, shard: ShardId) -> Option<&mut Vec<u8>> {
        let shard = self.index_of(shard)?;
        Some(&mut self.at_mut(shard).outbox)
    }

    /// The routes in use.
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The newest shard map has this version: if the routes in use are of it, there is nothing to
    /// follow.
    pub fn routes_are_of(&mut self, version: MapVersion) -> bool {
        let current = version.get() <= self.routes.version();
        self.are_outdated &= !current;
        self.assert_sound();
        current
    }

    /// Tells that the routes leave a shard without a server: newer ones may name one.
    pub fn miss_route(&mut self) {
        self.assert_sound();
        self.are_outdated = true;
    }

    /// Whether a newer map is to be asked for, again and again: some server said that the routes are
    /// outdated, or a shard has no connection, or its server does not serve it or is silent. Ends
    /// with a newer map ([`crate::Engine::set_routes`]), or when the shards answer.
    #[inline]
    #[must_use]
    pub const fn wants_routes(&self) -> bool {
        self.are_outdated || self.missed > 0
    }

    /// Whether an answer was delivered whose arrival tells something of its server's clock: the
    /// host reads its own clock and says so with [`Shards::arrived`]. The time of its turn would
    /// not do, for the turn may have begun before the answer arrived.
    #[must_use]
    pub const fn wants_arrival(&self) -> bool {
        self.wants_arrival.is_some()
    }

    /// What was delivered had arrived at `at`, by a clock that was read afterwards. What it tells of
    /// a server's clock, for a host whose own clock follows those.
    pub fn arrived(&mut self, at: Timestamp) -> Option<Exchange<'_>> {
        let index = self.wants_arrival.take()?;
        let shard = self.at_mut(index);
        let (sent, reading) = shard.offset.arrived(at)?;
        let server = shard.server?;
        self.assert_sound();
        let servers = &self.servers;
        Some(Exchange { server, servers, sent, reading: reading.now, error: reading.error() })
    }

    /// Frames that are delivered from now on came in another batch, perhaps over another connection:
    /// no reading of an earlier one belongs to their answers. `peer` is who sent it, where the host
    /// knows that: what a server says in the name of another one's shard is no reading of that
    /// one's clock.
    #[inline]
    pub fn begin_batch(&mut self, peer: Option<ServerNumber>) {
        self.reading = None;
        self.peer = peer;
    }

    /// How far the clock of a shard's server is from this process's, as the latest exchange told;
    /// `None` before the first.
    #[must_use]
    pub fn clock_offset(&self, shard: ShardId) -> Option<ClockOffset> {
        self.at(self.index_of(shard)?).offset.latest()
    }

    /// The same for every shard of the map.
    pub fn clock_offsets(&self) -> impl Iterator<Item = (ShardId, ClockOffset)> + '_ {
        let known = self.known().map(|shard| self.at(shard));
        known.filter_map(|shard| Some((shard.id, shard.offset.latest()?)))
    }
}

/// For the engine.
impl Shards {
    pub(crate) fn new(routes: Routes) -> Self {
        let mut shards = Self {
            table: Vec::new(),
            slots: Box::default(),
            indexes: Vec::new(),
            dirty: Vec::new(),
            routes: Routes::new(0, Vec::new(), |_| None),
            are_outdated: false,
            missed: 0,
            servers: Vec::new(),
            reading: None,
            peer: None,
            wants_arrival: None,
            reached_only: None,
            backups: Backups::default(),
            closed: Closed::default(),
        };
        shards.update(routes);
        shards
    }

    /// Follows another map. Shards that it does not have keep their index and are not used.
    pub(crate) fn update(&mut self, routes: Routes) {
        assert!(routes.version() >= self.routes.version(), "an older map is never followed");
        for shard in &mut self.table {
            (shard.is_known, shard.has_moved) = (false, false);
        }
        let known = self.table.len();
        for &(id, epoch) in routes.shards() {
            // No frame comes from a shard of this number, and no index is left for it.
            if id == wire::SERVER_ITSELF {
                continue;
            }
            let index = self.index_or_insert(id).index();
            let (shard, server) = (&mut self.table[index], routes.server_of(id));
            shard.is_known = true;
            shard.has_moved = index >= known || epoch > shard.epoch || server != shard.server;
            if server != shard.server {
                // What is known is of another one's clock.
                shard.offset = OffsetProbe::default();
            }
            if shard.has_moved {
                shard.is_doubtful = false;
            }
            shard.epoch = shard.epoch.max(epoch);
            shard.server = server;
        }
        self.servers = routes.servers();
        let shards: Vec<_> = self.known().map(|index| (index, self.at(index).id)).collect();
        for &(index, id) in &shards {
            let (replicas, primary) = (routes.replicas_of(id), routes.server_of(id));
            self.closed.keep(index, |one| replicas.contains(&one) && primary != Some(one));
        }
        self.backups.update(&routes, shards.into_iter());
        self.slots = routes
            .slots()
            .map(|owner| owner.and_then(|id| self.index_of(id)).map_or(NOBODY, |shard| shard.0))
            .collect();
        self.routes = routes;
        self.are_outdated = false;
        self.count_missed();
        self.assert_sound();
    }

    /// Counts the shards anew that nobody serves, as far as is known here.
    fn count_missed(&mut self) {
        self.missed = self.table.iter().filter(|shard| shard.is_missed()).count();
    }

    /// What a shard that cannot be reached is called until somebody names its server.
    fn unreached(&self, id: ShardId) -> Option<Box<str>> {
        let is_reached = self.reached_only.as_ref().is_none_or(|only| only.contains(&id));
        (!is_reached).then(|| "another server".into())
    }

    fn index_or_insert(&mut self, id: ShardId) -> ShardIndex {
        if let Some(shard) = self.index_of(id) {
            return shard;
        }
        let index = ShardIndex(self.count());
        assert!(index.0 != NOBODY, "{id} has no index, and every number below it has one");
        let elsewhere = self.unreached(id);
        self.table.push(Shard {
            id,
            epoch: Epoch::ZERO,
            server: None,
            is_up: true,
            protocol: PROTOCOL.1,
            is_known: true,
            elsewhere,
            outbox: Vec::new(),
            sent_bytes: 0,
            asked: None,
            is_doubtful: false,
            has_moved: true,
            offset: OffsetProbe::default(),
            is_dirty: false,
        });
        let raw = usize::from(id.get());
        if self.indexes.len() <= raw {
            self.indexes.resize(raw + 1, NOBODY);
        }
        self.indexes[raw] = index.0;
        debug_assert!(self.table[index.index()].id == id, "{id} has the index of another shard");
        index
    }

    /// The index of a shard.
    #[inline]
    pub(crate) fn index_of(&self, id: ShardId) -> Option<ShardIndex> {
        let index = self.indexes.get(usize::from(id.get())).copied();
        index.filter(|&index| index != NOBODY).map(ShardIndex)
    }

    /// The shard that serves a key.
    #[inline]
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<ShardIndex> {
        let index = self.slots[usize::from(slot_of(key).get())];
        (index != NOBODY).then_some(ShardIndex(index))
    }

    /// The shard that serves a key, to ask it something.
    #[inline]
    pub(crate) fn reachable_of_key(&self, key: &[u8]) -> Result<ShardIndex, SessionError> {
        match self.of_key(key) {
            Some(shard) => self.reachable(shard),
            None => Err(SessionError::NoShard),
        }
    }

    /// A shard and its epoch, while its connection stands.
    #[inline]
    pub(crate) fn direct_route(&self, shard: ShardIndex) -> Option<(ShardId, Epoch)> {
        let shard = self.at(shard);
        shard.is_up.then_some((shard.id, shard.epoch))
    }

    /// The same shard, unless it cannot be reached.
    #[inline]
    pub(crate) fn reachable(&self, shard: ShardIndex) -> Result<ShardIndex, SessionError> {
        if self.at(shard).elsewhere.is_some() { Err(self.out_of_reach(shard)) } else { Ok(shard) }
    }

    /// Whether a shard's server understands ranges of keys, as far as is known.
    ///
    /// # Errors
    /// [`SessionError::Outdated`].
    pub(crate) fn reads_ranges(&self, shard: ShardIndex) -> Result<(), SessionError> {
        self.understands(shard, READS_RANGES)
    }

    /// The same of ranges that are read downwards.
    ///
    /// # Errors
    /// [`SessionError::Outdated`].
    pub(crate) fn reads_downwards(&self, shard: ShardIndex) -> Result<(), SessionError> {
        self.understands(shard, READS_DOWNWARDS)
    }

    fn understands(&self, shard: ShardIndex, needed: ProtocolVersion) -> Result<(), SessionError> {
        let &Shard { id, protocol, .. } = self.at(shard);
        if protocol >= needed {
            return Ok(());
        }
        Err(SessionError::Outdated { shard: id, protocol, needed })
    }

    /// Whether a shard's server chooses timestamps of puts, as far as is known.
    #[inline]
    pub(crate) fn places_puts(&self, shard: ShardIndex) -> bool {
        self.at(shard).protocol >= PLACES_PUTS
    }

    #[cold]
    fn out_of_reach(&self, shard: ShardIndex) -> SessionError {
        let shard = self.at(shard);
        SessionError::Elsewhere {
            shard: shard.id,
            server: shard.elsewhere.clone().unwrap_or_default(),
        }
    }

    #[inline]
    pub(crate) fn at(&self, shard: ShardIndex) -> &Shard {
        &self.table[shard.index()]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, shard: ShardIndex) -> &mut Shard {
        &mut self.table[shard.index()]
    }

    /// What a frame to a shard carries in its header.
    #[inline]
    pub(crate) fn route(&self, shard: ShardIndex, request: u64) -> Route {
        let shard = self.at(shard);
        Route { shard: shard.id, epoch: shard.epoch, map_version: self.routes.version(), request }
    }

    /// The shards that the present map has, in the order of their indexes.
    pub(crate) fn known(&self) -> impl Iterator<Item = ShardIndex> + '_ {
        let all = (0..=u16::MAX).map(ShardIndex).zip(&self.table);
        all.filter(|(_, shard)| shard.is_known).map(|(index, _)| index)
    }

    /// How many indexes there are.
    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.table.len()).unwrap_or(NOBODY)
    }

    /// The outbox of a shard, for appending; the shard is listed as dirty.
    #[inline]
    pub(crate) fn append_to(&mut self, shard: ShardIndex) -> &mut Vec<u8> {
        let entry = &mut self.table[shard.index()];
        if !entry.is_dirty {
            entry.is_dirty = true;
            self.dirty.push(shard);
            // The host swaps in any buffer. One that grew with each frame would copy all of them.
            let expected = entry.sent_bytes.min(limits::RESERVED_OUTBOX_BYTES);
            entry.outbox.reserve(expected.saturating_sub(entry.outbox.len()));
        }
        &mut entry.outbox
    }

    /// The outbox of a shard, for a request: the shard owes an answer from now on.
    #[inline]
    pub(crate) fn ask(&mut self, now: Timestamp, shard: ShardIndex) -> &mut Vec<u8> {
        let entry = &mut self.table[shard.index()];
        debug_assert!(entry.is_up, "{} is asked without a connection", entry.id);
        entry.asked.get_or_insert(now);
        self.append_to(shard)
    }

    /// A frame came from a shard. Its connection need not stand: a shard may have moved to a server
    /// that is not dialled yet, and the old one still answers.
    #[inline]
    pub(crate) fn heard(&mut self, shard: ShardIndex) {
        let shard = &mut self.table[shard.index()];
        debug_assert!(shard.is_up || shard.asked.is_none(), "{} is asked over nothing", shard.id);
        shard.asked = None;
    }

    /// A frame's header named this version of the map.
    #[inline]
    pub(crate) fn saw_map(&mut self, version: MapVersion) {
        let is_newer = version.get() > self.routes.version();
        self.are_outdated |= is_newer;
        debug_assert!(self.are_outdated || !is_newer, "routes that are outdated are asked for");
    }

    /// Whether an answer was given in an older epoch than the one that the map names for its shard.
    /// Not every refusal names an epoch.
    #[inline]
    pub(crate) fn is_of_older_epoch(&self, shard: ShardIndex, epoch: Epoch) -> bool {
        epoch < self.at(shard).epoch && epoch != Epoch::ZERO
    }

    /// A shard's server does not serve it, as it says: whether, or not yet, the newest map tells.
    pub(crate) fn doubt(&mut self, shard: ShardIndex) {
        self.at_mut(shard).is_doubtful = true;
        self.count_missed();
        debug_assert!(self.wants_routes() || !self.at(shard).is_known || !self.reaches(shard));
    }

    /// A shard's server has served a request.
    #[inline]
    pub(crate) fn trust(&mut self, shard: ShardIndex) {
        self.closed.serves(shard);
        if self.at(shard).is_doubtful {
            self.at_mut(shard).is_doubtful = false;
            self.count_missed();
        }
    }

    /// Doubts a shard that owes an answer and is silent.
    pub(crate) fn suspect(&mut self, now: Timestamp, shard: ShardIndex) {
        let asked = self.at(shard).asked;
        if asked.is_some_and(|asked| now.since(asked) >= limits::SUSPECT_AFTER) {
            self.doubt(shard);
        }
    }

    fn reaches(&self, shard: ShardIndex) -> bool {
        self.at(shard).elsewhere.is_none()
    }

    /// A shard's connection stands.
    pub(crate) fn up(&mut self, shard: ShardIndex) {
        self.at_mut(shard).is_up = true;
        self.count_missed();
        self.assert_sound();
    }

    /// A batch of answers begins. What was read for an earlier one does not belong to it.
    #[inline]
    pub(crate) fn forget_reading(&mut self) {
        self.reading = None;
    }

    /// A batch of answers brings a reading of its server's clock.
    #[inline]
    pub(crate) fn read(&mut self, shard: ShardIndex, reading: ClockIs) {
        debug_assert!(shard.index() < self.table.len(), "a reading of nobody's clock");
        let is_its_own = self.peer.is_none() || self.peer == self.at(shard).server;
        self.reading = Some((shard, reading)).filter(|_| is_its_own);
    }

    /// A request was refused, perhaps by a part of its server that reads no clock: that is no
    /// exchange.
    #[inline]
    pub(crate) fn refused(&mut self, shard: ShardIndex, request: u64) {
        self.at_mut(shard).offset.refused(request);
    }

    /// An answer came. When it is the one that tells of its server's clock, the host is to say when
    /// it arrived.
    #[inline]
    pub(crate) fn answered(&mut self, shard: ShardIndex, request: u64) {
        if let Some((read, reading)) = self.reading
            && read == shard
            && self.at_mut(shard).offset.answered(request, reading)
        {
            self.wants_arrival = Some(shard);
        }
        debug_assert!(self.wants_arrival.is_none_or(|one| one.index() < self.table.len()));
    }

    /// Who serves a shard by the present map.
    pub(super) fn server_of(&self, shard: ShardIndex) -> Option<ServerNumber> {
        self.at(shard).server
    }

    /// Whether a shard of the map has no server that is known to serve it.
    pub(super) const fn misses_any(&self) -> bool {
        self.missed > 0
    }

    /// Whether a shard's server can be asked, and serves it as far as is known.
    pub(crate) fn serves(&self, shard: ShardIndex) -> bool {
        let shard = self.at(shard);
        shard.is_up && !shard.is_doubtful
    }

    /// Who has sent the frames that are taken, if that is known.
    pub(super) const fn peer(&self) -> Option<ServerNumber> {
        self.peer
    }

    /// Whether the frames that are taken came from another server than the one that serves the
    /// shard: a backup's, or one that has served it before. They say nothing of the shard's server.
    pub(super) fn is_of_another(&self, shard: ShardIndex) -> bool {
        self.backups.are_wanted() && self.peer.is_some() && self.peer != self.at(shard).server
    }

    /// Whether a shard's outbox is full.
    #[inline]
    pub(crate) fn is_full(&self, shard: ShardIndex) -> bool {
        self.at(shard).outbox.len() >= limits::MAX_OUTBOX_BYTES
    }

    /// The connection is gone, and with it whatever waited for it.
    pub(crate) fn down(&mut self, shard: ShardIndex) {
        let shard = self.at_mut(shard);
        shard.is_up = false;
        shard.outbox.clear();
        shard.asked = None;
        shard.offset.lost();
        self.count_missed();
        self.assert_sound();
    }

    /// Called where the engine is entered: walks the shards, in debug builds only and when they are
    /// few.
    #[inline]
    pub(crate) fn assert_sound(&self) {
        if !cfg!(debug_assertions) || self.table.len() > limits::CHECKED_SHARDS {
            return;
        }
        let dirty = self.table.iter().filter(|shard| shard.is_dirty).count();
        assert_eq!(dirty, self.dirty.len(), "a shard is dirty and not listed, or listed twice");
        let missed = self.table.iter().filter(|shard| shard.is_missed()).count();
        assert_eq!(missed, self.missed, "a shard that nobody serves is not counted");
        for (index, shard) in (0..=u16::MAX).map(ShardIndex).zip(&self.table) {
            assert_eq!(self.index_of(shard.id), Some(index), "{} has another index", shard.id);
            let is_idle = shard.outbox.is_empty() && shard.asked.is_none();
            assert!(shard.is_up || is_idle, "{} has no connection, and frames wait", shard.id);
        }
    }

    /// An outbox has whole frames, all for its own shard.
    #[inline]
    fn assert_whole_frames(&self, index: usize) {
        if !cfg!(debug_assertions) {
            return;
        }
        let shard = &self.table[index];
        let mut frames = Frames::new(&shard.outbox);
        let is_for_it = |frame: Result<Frame<'_>, WireError>| {
            frame.is_ok_and(|frame| frame.envelope().shard == shard.id)
        };
        assert!(frames.by_ref().all(is_for_it), "{} would get another's frame", shard.id);
        assert!(frames.rest().is_empty(), "{} would get a part of a frame", shard.id);
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Sequence, Slot, TxnId};

    use super::super::frames;
    use super::*;

    fn routes(version: u32, shards: &[u16]) -> Routes {
        let list = shards.iter().map(|&raw| (ShardId::new(raw), Epoch::new(version))).collect();
        let owner = shards[0];
        Routes::new(version, list, |_: Slot| Some(ShardId::new(owner)))
    }

    #[test]
    fn indexes_survive_a_change_of_the_map() {
        let mut shards = Shards::new(routes(1, &[4, 9]));
        let nine = shards.index_of(ShardId::new(9)).unwrap();
        let txn = TxnId::new(ClientId::new(1), Sequence::new(1));
        frames::status(shards.route(nine, 7), txn, shards.append_to(nine));
        let length = shards.at(nine).outbox.len();
        shards.update(routes(2, &[2, 4]));
        assert_eq!(shards.index_of(ShardId::new(9)), Some(nine));
        assert_eq!(shards.known().count(), 2);
        assert_eq!(shards.at(shards.of_key(b"k").unwrap()).id, ShardId::new(2));
        assert_eq!(
            shards.next_dirty().map(|(id, bytes)| (id, bytes.len())),
            Some((ShardId::new(9), length))
        );
        assert_eq!(shards.next_dirty(), None);
    }

    /// Hosts take the buffer and leave another one, mostly a small one.
    #[test]
    fn an_outbox_reserves_what_it_held_lately_and_no_more_than_the_bound() {
        let mut shards = Shards::new(routes(1, &[4]));
        let four = shards.index_of(ShardId::new(4)).unwrap();
        let txn = TxnId::new(ClientId::new(1), Sequence::new(1));
        let mut turn = |count: usize| {
            for _ in 0..count {
                frames::status(shards.route(four, 7), txn, shards.append_to(four));
            }
            let (_, outbox) = shards.next_dirty().unwrap();
            let taken = core::mem::take(outbox);
            (taken.len(), taken.capacity())
        };
        let (length, _) = turn(1000);
        assert!(length > 10_000);
        assert!(turn(1).1 >= length, "the next turn is expected to be as long");
        assert!(turn(1).1 < length, "and is forgotten in time");
        turn(20_000);
        assert!(
            (limits::RESERVED_OUTBOX_BYTES..2 * limits::RESERVED_OUTBOX_BYTES).contains(&turn(1).1)
        );
    }
}
