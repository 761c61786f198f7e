//! The table of a net stage's connections, the lists of those to be read from and written to, and
//! the queues of those that are looked at again at some time.
//!
//! Invariants: a slot's generation rises with every connection that leaves it; a connection is on a
//! list at most once, which its [`ListMembership`] says.
//!
//! What it does not do: anything with sockets; that is its parent's.
//!
//! [`ListMembership`]: crate::net::connection::ListMembership

use std::collections::VecDeque;
use std::time::Duration;

use timestone_types::Timestamp;

use crate::limits::{DIAL_TIMEOUT, HALF_CLOSE_LINGER, MEMORY_RETRY, MEMORY_TIMEOUT};
use crate::net::connection::{ConnectionPhase, NetConnection};
use crate::net::retry_queue::Holder;
use crate::{ConnectionId, Generation, ReplyAddress};

#[derive(Debug)]
struct ConnectionSlot {
    generation: u32,
    connection: Option<Box<NetConnection>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
    to_read: Vec<u32>,
    to_write: Vec<u32>,
    watches: Watches,
}

/// What is looked at again at some time, in the order of these times.
#[derive(Debug, Default)]
struct Watches {
    /// Dials under way.
    dials: VecDeque<(Timestamp, Holder)>,
    /// Connections that are ending.
    ending: VecDeque<(Timestamp, Holder)>,
    /// Connections whose peers may have stalled.
    slow: VecDeque<(Timestamp, Holder)>,
    /// Connections whose long frames wait for memory, and how long they may.
    starving: VecDeque<(Timestamp, Holder)>,
}

impl Connections {
    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &NetConnection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_deref())
    }

    /// The connection of a slot.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> Option<&mut NetConnection> {
        self.slots.get_mut(index as usize)?.connection.as_deref_mut()
    }

    /// The connection of a slot, as one of its uses.
    #[inline]
    pub(super) fn held_at(&mut self, index: u32) -> Option<(Holder, &mut NetConnection)> {
        let slot = self.slots.get_mut(index as usize)?;
        Some(((index, slot.generation), slot.connection.as_deref_mut()?))
    }

    /// The connection that a reply address names, unless it is gone.
    #[inline]
    pub(super) fn named(&mut self, reply_to: ReplyAddress) -> Option<(u32, &mut NetConnection)> {
        let index = u32::try_from(reply_to.connection.index()).ok()?;
        Some((index, self.holder((index, reply_to.generation.number()))?))
    }

    /// The connection that was in a slot in one of its uses, unless it is gone.
    #[inline]
    pub(super) fn holder(&mut self, (index, generation): Holder) -> Option<&mut NetConnection> {
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
    pub(super) fn insert(&mut self, connection: NetConnection) -> u32 {
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
    pub(super) fn take(&mut self, index: u32) -> Option<Box<NetConnection>> {
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
        if connection.socket.readable && !connection.lists.to_read {
            connection.lists.to_read = true;
            to_read.push(index);
        }
        connection.lists.to_read
    }

    /// Puts a connection on the list of those that are written to, if it is not there.
    #[inline]
    pub(super) fn list_to_write(&mut self, index: u32) {
        let Self { slots, to_write, .. } = self;
        let Some(connection) = slots[index as usize].connection.as_deref_mut() else { return };
        if !connection.lists.to_write {
            connection.lists.to_write = true;
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
        self.at(index)?.lists.to_read = false;
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

    /// Reads nothing more from a connection until [`Connections::resume`].
    pub(super) fn pause(&mut self, reply_to: ReplyAddress) {
        if let Some((_, connection)) = self.named(reply_to) {
            connection.holds.paused = true;
        }
    }

    /// Reads on from a connection.
    pub(super) fn resume(&mut self, reply_to: ReplyAddress) {
        let Some((index, connection)) = self.named(reply_to) else { return };
        connection.holds.paused = false;
        self.list_to_read(index);
    }

    // ---- those that are looked at again ----

    /// Has a dial looked at again when it should be answered.
    pub(super) fn watch_dial(&mut self, index: u32, now: Timestamp) {
        let Some((holder, _)) = self.held_at(index) else { return };
        self.watches.dials.push_back((now.saturating_add(DIAL_TIMEOUT), holder));
    }

    /// Has an ending connection looked at again after a while.
    pub(super) fn watch_ending(&mut self, index: u32, now: Timestamp) {
        let Some((holder, connection)) = self.held_at(index) else { return };
        if !std::mem::replace(&mut connection.lists.ending, true) {
            self.watches.ending.push_back((now.saturating_add(HALF_CLOSE_LINGER), holder));
        }
    }

    /// Has a connection looked at after a while, whose peer may have stalled.
    pub(super) fn watch_for_stall(&mut self, index: u32, now: Timestamp, after: Duration) {
        let Some((holder, connection)) = self.held_at(index) else { return };
        if !std::mem::replace(&mut connection.lists.slow, true) {
            self.watches.slow.push_back((now.saturating_add(after), holder));
        }
    }

    /// All those that may stall are looked at after this time, and not when they would have been.
    pub(super) fn watch_all_for_stall(&mut self, now: Timestamp, after: Duration) {
        self.watches.slow.clear();
        for index in 0..self.slots.len() as u32 {
            let Some(connection) = self.at(index) else { continue };
            connection.lists.slow = false;
            if connection.may_stall() {
                self.watch_for_stall(index, now, after);
            }
        }
    }

    /// Has a connection wait for memory, if it does not yet.
    pub(super) fn wait_for_memory(&mut self, index: u32, now: Timestamp) {
        let Some((holder, connection)) = self.held_at(index) else { return };
        if !std::mem::replace(&mut connection.holds.starving, true) {
            self.watches.starving.push_back((now.saturating_add(MEMORY_TIMEOUT), holder));
        }
    }

    /// A dial that is not answered although it is time.
    #[inline]
    pub(super) fn next_late_dial(&mut self, now: Timestamp) -> Option<u32> {
        while let Some((_, holder)) = self.watches.dials.pop_front_if(|(at, _)| *at <= now) {
            if self
                .holder(holder)
                .is_some_and(|connection| matches!(connection.phase, ConnectionPhase::Dialling))
            {
                return Some(holder.0);
            }
        }
        None
    }

    /// A connection that is ending and is to be looked at; it is watched no more.
    #[inline]
    pub(super) fn next_ending(&mut self, now: Timestamp) -> Option<(u32, &mut NetConnection)> {
        while let Some((_, holder)) = self.watches.ending.pop_front_if(|(at, _)| *at <= now) {
            if let Some(connection) = self.holder(holder) {
                connection.lists.ending = false;
                return self.at(holder.0).map(|connection| (holder.0, connection));
            }
        }
        None
    }

    /// A connection whose peer may have stalled and which is to be looked at; it is watched no
    /// more.
    #[inline]
    pub(super) fn next_slow(&mut self, now: Timestamp) -> Option<(u32, &mut NetConnection)> {
        while let Some((_, holder)) = self.watches.slow.pop_front_if(|(at, _)| *at <= now) {
            if let Some(connection) = self.holder(holder) {
                connection.lists.slow = false;
                return self.at(holder.0).map(|connection| (holder.0, connection));
            }
        }
        None
    }

    /// The connection that has waited for memory for longest, and until when it may.
    #[inline]
    pub(super) fn first_starving(&mut self) -> Option<(Timestamp, u32, &mut NetConnection)> {
        while let Some(&(until, holder)) = self.watches.starving.front() {
            if self.holder(holder).is_some_and(|connection| connection.holds.starving) {
                return self.at(holder.0).map(|connection| (until, holder.0, connection));
            }
            self.watches.starving.pop_front();
        }
        None
    }

    /// Takes the one that [`Connections::first_starving`] named from the queue.
    pub(super) fn drop_first_starving(&mut self) {
        let first = self.watches.starving.pop_front();
        debug_assert!(first.is_some(), "a connection left a queue that nobody was in");
    }

    /// When something is due; connections that wait for memory are tried all the time.
    #[inline]
    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let Watches { dials, ending, slow, starving } = &self.watches;
        let fronts = [dials.front(), ending.front(), slow.front()];
        let fronts = fronts.into_iter().flatten().map(|&(at, _)| at);
        let starving = (!starving.is_empty()).then(|| now.saturating_add(MEMORY_RETRY));
        fronts.chain(starving).min()
    }
}
