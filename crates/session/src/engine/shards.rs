//! The shards as an engine sees them: where a key goes, what waits to be sent there, and whether
//! the way is open.
//!
//! A shard keeps its place for the engine's lifetime, whatever maps come: requests under way name
//! places. Deliberately without addresses.

use timestone_types::{Epoch, ShardId, Timestamp, slot_of};

use crate::offset::OffsetProbe;
use crate::{Routes, SessionError, limits};

/// A shard's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Place(pub(crate) u16);

impl Place {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

const NOBODY: u16 = u16::MAX;

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) up: bool,
    /// Whether the present map has it.
    pub(crate) known: bool,
    /// Who serves it, where this host has no way there: it is asked nothing, and told nothing.
    pub(crate) elsewhere: Option<Box<str>>,
    pub(crate) outbox: Vec<u8>,
    /// When the first request was sent since a frame came from there.
    pub(crate) asked: Option<Timestamp>,
    /// What answers tell of the clock of its server.
    pub(crate) offset: OffsetProbe,
    dirty: bool,
}

/// All shards, and the way from a key to its shard.
#[derive(Debug)]
pub(crate) struct Shards {
    table: Vec<Shard>,
    slots: Box<[u16]>,
    places: Vec<u16>,
    dirty: Vec<Place>,
    map_version: u32,
    /// The only shards that this host has a way to, when it has not to all.
    reached_only: Option<Box<[ShardId]>>,
}

impl Shards {
    pub(crate) fn new(routes: &Routes) -> Self {
        let mut shards = Self {
            table: Vec::new(),
            slots: Box::default(),
            places: Vec::new(),
            dirty: Vec::new(),
            map_version: 0,
            reached_only: None,
        };
        shards.update(routes);
        shards
    }

    /// Follows another map. Shards that it does not have keep their place and are not used.
    pub(crate) fn update(&mut self, routes: &Routes) {
        for shard in &mut self.table {
            shard.known = false;
        }
        for &(id, epoch) in routes.shards() {
            let place = self.place_or_insert(id);
            let shard = &mut self.table[place.index()];
            shard.epoch = shard.epoch.max(epoch);
            shard.known = true;
        }
        self.slots = routes
            .slots()
            .map(|owner| owner.and_then(|id| self.place_of(id)).map_or(NOBODY, |place| place.0))
            .collect();
        self.map_version = routes.version();
    }

    /// There is a way to these shards only, of whatever map.
    pub(crate) fn reach_only(&mut self, only: &[ShardId]) {
        self.reached_only = Some(only.into());
        for raw in 0..self.table.len() {
            let elsewhere = self.unreached(self.table[raw].id);
            self.table[raw].elsewhere = elsewhere;
        }
    }

    /// What a shard without a way there is called until somebody names its server.
    fn unreached(&self, id: ShardId) -> Option<Box<str>> {
        let is_reached = self.reached_only.as_ref().is_none_or(|only| only.contains(&id));
        (!is_reached).then(|| "another server".into())
    }

    /// The server of a shard without a way there.
    pub(crate) fn name_server(&mut self, id: ShardId, name: &str) {
        if let Some(place) = self.place_of(id)
            && let Some(known) = &mut self.at_mut(place).elsewhere
            && **known != *name
        {
            *known = name.into();
        }
    }

    fn place_or_insert(&mut self, id: ShardId) -> Place {
        if let Some(place) = self.place_of(id) {
            return place;
        }
        let place = Place(u16::try_from(self.table.len()).unwrap_or(NOBODY));
        assert!(place.0 != NOBODY, "a cluster has fewer shards than 65 535");
        let elsewhere = self.unreached(id);
        self.table.push(Shard {
            id,
            epoch: Epoch::ZERO,
            up: true,
            known: true,
            elsewhere,
            outbox: Vec::new(),
            asked: None,
            offset: OffsetProbe::default(),
            dirty: false,
        });
        let raw = usize::from(id.get());
        if self.places.len() <= raw {
            self.places.resize(raw + 1, NOBODY);
        }
        self.places[raw] = place.0;
        place
    }

    /// The place of a shard.
    pub(crate) fn place_of(&self, id: ShardId) -> Option<Place> {
        self.places.get(usize::from(id.get())).copied().filter(|&place| place != NOBODY).map(Place)
    }

    /// The place of the shard that serves a key.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Place> {
        let place = self.slots[usize::from(slot_of(key).get())];
        (place != NOBODY).then_some(Place(place))
    }

    /// The place of the shard that serves a key, to ask it something.
    #[inline]
    pub(crate) fn way_to_key(&self, key: &[u8]) -> Result<Place, SessionError> {
        match self.of_key(key) {
            Some(place) => self.way_to(place),
            None => Err(SessionError::NoShard),
        }
    }

    /// The same place, unless there is no way there.
    #[inline]
    pub(crate) fn way_to(&self, place: Place) -> Result<Place, SessionError> {
        if self.at(place).elsewhere.is_some() { Err(self.no_way_to(place)) } else { Ok(place) }
    }

    #[cold]
    fn no_way_to(&self, place: Place) -> SessionError {
        let shard = self.at(place);
        SessionError::Elsewhere {
            shard: shard.id,
            server: shard.elsewhere.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn at(&self, place: Place) -> &Shard {
        &self.table[place.index()]
    }

    pub(crate) fn at_mut(&mut self, place: Place) -> &mut Shard {
        &mut self.table[place.index()]
    }

    pub(crate) const fn map_version(&self) -> u32 {
        self.map_version
    }

    /// The places of the shards that the present map has, in the order of their places.
    pub(crate) fn known(&self) -> impl Iterator<Item = Place> + '_ {
        (0u16..)
            .map(Place)
            .zip(&self.table)
            .filter(|(_, shard)| shard.known)
            .map(|(place, _)| place)
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> u16 {
        u16::try_from(self.table.len()).unwrap_or(NOBODY)
    }

    /// The outbox of a shard, for appending; the shard is listed as dirty.
    pub(crate) fn outbox(&mut self, place: Place) -> &mut Vec<u8> {
        let shard = &mut self.table[place.index()];
        if !shard.dirty {
            shard.dirty = true;
            self.dirty.push(place);
        }
        &mut shard.outbox
    }

    /// The outbox of a shard, for a request: the shard owes an answer from now on.
    pub(crate) fn ask(&mut self, now: Timestamp, place: Place) -> &mut Vec<u8> {
        self.table[place.index()].asked.get_or_insert(now);
        self.outbox(place)
    }

    /// A frame came from a shard.
    pub(crate) fn heard(&mut self, place: Place) {
        self.table[place.index()].asked = None;
    }

    /// Whether a shard's outbox is full.
    pub(crate) fn is_full(&self, place: Place) -> bool {
        self.at(place).outbox.len() >= limits::MAX_OUTBOX_BYTES
    }

    /// The next shard with something to send.
    pub(crate) fn next_dirty(&mut self) -> Option<(ShardId, &mut Vec<u8>)> {
        loop {
            let place = self.dirty.pop()?;
            self.table[place.index()].dirty = false;
            if !self.table[place.index()].outbox.is_empty() {
                let shard = &mut self.table[place.index()];
                return Some((shard.id, &mut shard.outbox));
            }
        }
    }

    /// The connection is gone, and with it whatever waited for it.
    pub(crate) fn down(&mut self, place: Place) {
        let shard = self.at_mut(place);
        shard.up = false;
        shard.outbox.clear();
        shard.asked = None;
        shard.offset.lost();
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::Slot;

    use super::*;

    fn routes(version: u32, shards: &[u16]) -> Routes {
        let list = shards.iter().map(|&raw| (ShardId::new(raw), Epoch::new(version))).collect();
        let owner = shards[0];
        Routes::new(version, list, |_: Slot| Some(ShardId::new(owner)))
    }

    #[test]
    fn places_survive_a_change_of_the_map() {
        let mut shards = Shards::new(&routes(1, &[4, 9]));
        let nine = shards.place_of(ShardId::new(9)).unwrap();
        shards.outbox(nine).extend_from_slice(b"frame");
        shards.update(&routes(2, &[2, 4]));
        assert_eq!(shards.place_of(ShardId::new(9)), Some(nine));
        assert_eq!(shards.known().count(), 2);
        assert_eq!(shards.at(shards.of_key(b"k").unwrap()).id, ShardId::new(2));
        assert_eq!(
            shards.next_dirty().map(|(id, bytes)| (id, bytes.len())),
            Some((ShardId::new(9), 5))
        );
        assert_eq!(shards.next_dirty(), None);
    }
}
