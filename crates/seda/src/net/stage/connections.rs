//! The table of a net stage's connections, and the lists of those to be read from and written to.
//!
//! Invariants: a slot's generation rises with every connection that leaves it; a connection is on a
//! list at most once, which its `listed_to_…` says.
//!
//! What it does not do: anything with sockets; that is its parent's.

use crate::net::connection::Connection;
use crate::net::retry_queue::Holder;
use crate::{ConnectionId, Generation, ReplyAddress};

#[derive(Debug)]
struct ConnectionSlot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
    to_read: Vec<u32>,
    to_write: Vec<u32>,
}

impl Connections {
    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots, used or not: the indexes of connections are below it.
    pub(super) const fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_deref())
    }

    /// The connection of a slot.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Connection> {
        self.slots.get_mut(index as usize)?.connection.as_deref_mut()
    }

    /// The connection of a slot, as one of its uses.
    #[inline]
    pub(super) fn held_at(&mut self, index: u32) -> Option<(Holder, &mut Connection)> {
        let slot = self.slots.get_mut(index as usize)?;
        Some(((index, slot.generation), slot.connection.as_deref_mut()?))
    }

    /// The connection that a reply address names, unless it is gone.
    #[inline]
    pub(super) fn named(&mut self, reply_to: ReplyAddress) -> Option<(u32, &mut Connection)> {
        let index = u32::try_from(reply_to.connection.index()).ok()?;
        Some((index, self.holder((index, reply_to.generation.number()))?))
    }

    /// The connection that was in a slot in one of its uses, unless it is gone.
    #[inline]
    pub(super) fn holder(&mut self, (index, generation): Holder) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation { slot.connection.as_deref_mut() } else { None }
    }

    /// The name that the next connection gets.
    pub(super) fn next(&self) -> (ConnectionId, Generation) {
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        (ConnectionId::new(index), Generation::new(generation))
    }

    /// Puts a connection where [`Connections::next`] said.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot { generation: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.connection.is_none(), "a free slot holds no connection");
        assert!(
            connection.view.reply_to.connection.index() == index as usize
                && connection.view.reply_to.generation.number() == slot.generation,
            "a connection is named after its slot"
        );
        slot.connection = Some(Box::new(connection));
        index
    }

    /// Takes a connection out: whatever still names it names nothing any more.
    pub(super) fn take(&mut self, index: u32) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(index as usize)?;
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }

    /// Puts a connection on the list of those to be read from, if it is not there and may be.
    /// Whether it is there.
    #[inline]
    pub(super) fn list_to_read(&mut self, index: u32) -> bool {
        let Self { slots, to_read, .. } = self;
        let Some(connection) = slots[index as usize].connection.as_deref_mut() else {
            return false;
        };
        if connection.readable && !connection.listed_to_read {
            connection.listed_to_read = true;
            to_read.push(index);
        }
        connection.listed_to_read
    }

    /// Puts a connection on the list of those that are written to, if it is not there.
    #[inline]
    pub(super) fn list_to_write(&mut self, index: u32) {
        let Self { slots, to_write, .. } = self;
        let Some(connection) = slots[index as usize].connection.as_deref_mut() else { return };
        if !connection.listed_to_write {
            connection.listed_to_write = true;
            to_write.push(index);
        }
    }

    /// How many connections are listed to be read from.
    pub(super) const fn listed_to_read(&self) -> usize {
        self.to_read.len()
    }

    /// The connection at a position of the list of those to be read from, which it leaves. None if
    /// it is gone.
    #[inline]
    pub(super) fn unlist_to_read(&mut self, position: usize) -> Option<u32> {
        let index = self.to_read[position];
        self.at(index)?.listed_to_read = false;
        Some(index)
    }

    /// Drops the first `count` entries of the list of those to be read from.
    pub(super) fn drop_to_read(&mut self, count: usize) {
        self.to_read.drain(..count);
    }

    /// The connection at a position of the list of those to be written to.
    #[inline]
    pub(super) fn to_write(&self, position: usize) -> Option<u32> {
        self.to_write.get(position).copied()
    }

    /// Empties the list of those to be written to.
    pub(super) fn clear_to_write(&mut self) {
        self.to_write.clear();
    }
}
