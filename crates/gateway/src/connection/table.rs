//! All connections of a gateway, and which of them have something to do.
//!
//! ```text
//!   net stage's slot ─► index ─► Connection        listed     to be written to, counted or closed at the end of the turn
//!   client's number  ──┘                           ready      its waiting commands may go on in this turn
//!                                                  postponed  it has had its share of this turn
//! ```
//! Invariants: an index is used again only after its connection was removed; a connection stands in
//! `listed` and in `ready` once at most, and its flags say whether it does.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use timestone_seda::ReplyAddress;
use timestone_types::Timestamp;

use super::client::{ClientNumber, ClientState};
use super::{Connection, ConnectionIndex};
use crate::commands::local::ClientFilter;
use crate::limits::CLIENT_LINE_BYTES;
use crate::memory::MemoryBudget;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Vec<Option<Box<Connection>>>,
    free: Vec<ConnectionIndex>,
    /// The connections that are not gone, by their clients' numbers.
    clients: BTreeMap<ClientNumber, ConnectionIndex>,
    /// By the net stage's slot: the connection that has it.
    by_slot: Vec<Option<ConnectionIndex>>,
    /// Connections with something to send or to put away.
    listed: Vec<ConnectionIndex>,
    /// Connections whose waiting commands may go on.
    ready: VecDeque<ConnectionIndex>,
    /// Connections that go on in the next turn: they have had their share of this one.
    postponed: Vec<ConnectionIndex>,
    /// How many there ever were.
    accepted: u64,
    thread: usize,
}

impl Connections {
    /// Those of a thread, by which clients are numbered: none yet.
    pub(crate) const fn new(thread: usize) -> Self {
        Self {
            table: Vec::new(),
            free: Vec::new(),
            clients: BTreeMap::new(),
            by_slot: Vec::new(),
            listed: Vec::new(),
            ready: VecDeque::new(),
            postponed: Vec::new(),
            accepted: 0,
            thread,
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: ConnectionIndex) -> Option<&Connection> {
        self.table.get(index.0 as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: ConnectionIndex) -> Option<&mut Connection> {
        self.table.get_mut(index.0 as usize)?.as_deref_mut()
    }

    /// Every index that has, or had, a connection.
    pub(crate) fn indices(&self) -> impl Iterator<Item = ConnectionIndex> + use<> {
        (0..self.table.len() as u32).map(ConnectionIndex)
    }

    /// How many clients are connected.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How many clients were ever connected.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// A client has connected.
    pub(crate) fn connect(&mut self, now: Timestamp, reply_to: ReplyAddress, peer: SocketAddr) {
        self.accepted += 1;
        let number = ClientNumber((self.accepted as i64) << 8 | (self.thread as i64 & 0xff));
        let connection = Box::new(Connection::new(reply_to, ClientState::new(number, peer, now)));
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            ConnectionIndex(self.table.len() as u32 - 1)
        });
        let before = self.table[index.0 as usize].replace(connection);
        assert!(before.is_none(), "a free index has no connection");
        let slot = reply_to.connection.index();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(index);
        let before = self.clients.insert(number, index);
        assert!(before.is_none(), "a client's number is never used twice");
    }

    /// The connection of a reply address, unless it is gone.
    pub(crate) fn find(&self, reply_to: ReplyAddress) -> Option<ConnectionIndex> {
        let index = (*self.by_slot.get(reply_to.connection.index())?)?;
        let connection = self.get(index)?;
        (connection.reply_to == reply_to).then_some(index)
    }

    /// A client is gone. What it has asked and is under way is brought to an end; what it has
    /// queued is forgotten. Whoever calls tells that it may go on.
    pub(crate) fn disconnect(&mut self, reply_to: ReplyAddress) -> Option<ConnectionIndex> {
        let index = self.find(reply_to)?;
        self.by_slot[reply_to.connection.index()] = None;
        if let Some(connection) = self.get_mut(index) {
            connection.leave();
            let number = connection.client.number;
            let known = self.clients.remove(&number);
            assert_eq!(known, Some(index), "a client that leaves was there");
        }
        Some(index)
    }

    /// Removes a connection that is gone and owed nothing.
    pub(crate) fn remove(&mut self, index: ConnectionIndex) -> Option<Box<Connection>> {
        let connection = self.table.get_mut(index.0 as usize)?.take()?;
        assert!(
            connection.life.gone && connection.replies.is_empty(),
            "a connection is removed when its client has left and nothing of it is under way"
        );
        self.free.push(index);
        Some(connection)
    }

    /// Lists a connection to be looked after at the end of the turn.
    pub(crate) fn list(&mut self, index: ConnectionIndex) {
        let Some(connection) = self.get_mut(index) else { return };
        if !core::mem::replace(&mut connection.turn.listed, true) {
            self.listed.push(index);
        }
        debug_assert!(self.listed.len() <= self.table.len(), "each is listed once");
    }

    /// Takes the list of connections to look after; give it back with [`Self::relist`].
    pub(crate) fn take_listed(&mut self) -> Vec<ConnectionIndex> {
        debug_assert!(self.listed.len() <= self.table.len(), "each is listed once");
        core::mem::take(&mut self.listed)
    }

    /// Gives the emptied list back. What was listed meanwhile stays listed; whether anything was.
    pub(crate) fn relist(&mut self, mut list: Vec<ConnectionIndex>) -> bool {
        assert!(list.is_empty(), "what was listed has been looked after");
        list.append(&mut self.listed);
        self.listed = list;
        !self.listed.is_empty()
    }

    /// Whether nobody is to be looked after.
    pub(crate) const fn is_nobody_listed(&self) -> bool {
        self.listed.is_empty()
    }

    /// A command of a connection was answered: what waited for it may go on.
    pub(crate) fn answered(&mut self, index: ConnectionIndex, memory: &mut MemoryBudget) {
        self.list(index);
        let Some(connection) = self.get_mut(index) else { return };
        let waits = connection.waits_for_answers();
        if connection.has_grown() {
            // What it counted for on its way here ends with its batch of frames: shards of other threads may
            // answer before this turn is over.
            memory.count(connection);
        }
        if waits
            && !connection.turn.postponed
            && !core::mem::replace(&mut connection.turn.ready, true)
        {
            self.ready.push_back(index);
        }
        debug_assert!(self.ready.len() <= self.table.len(), "each is ready once");
    }

    /// The next connection whose waiting commands may go on.
    pub(crate) fn next_ready(&mut self) -> Option<ConnectionIndex> {
        let index = self.ready.pop_front()?;
        if let Some(connection) = self.get_mut(index) {
            debug_assert!(connection.turn.ready, "its flag says that it is ready");
            connection.turn.ready = false;
        }
        Some(index)
    }

    /// Whether waiting commands of some connection may go on.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A connection has had its share of this turn.
    pub(crate) fn postpone(&mut self, index: ConnectionIndex) {
        if let Some(connection) = self.get_mut(index) {
            assert!(!connection.turn.postponed, "it is postponed once a turn");
            (connection.turn.postponed, connection.turn.blocked) = (true, true);
        }
        self.postponed.push(index);
    }

    /// Lets the connections go on that had their share of the last turn.
    pub(crate) fn resume_postponed(&mut self, memory: &mut MemoryBudget) {
        debug_assert!(self.postponed.len() <= self.table.len(), "each is postponed once");
        for index in core::mem::take(&mut self.postponed) {
            if let Some(connection) = self.get_mut(index) {
                connection.turn.postponed = false;
            }
            self.answered(index, memory);
        }
    }

    /// Whether connections wait for nothing but the next turn.
    pub(crate) const fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// The process ends: commands that wait for others, or for their clients to read, are not begun
    /// any more. Connections are closed behind the answers to what was begun.
    pub(crate) fn drop_waiting_commands(&mut self, memory: &mut MemoryBudget) {
        for index in self.indices() {
            let waiting = self.get_mut(index).filter(|connection| connection.turn.blocked);
            let Some(connection) = waiting.filter(|connection| !connection.life.closing) else {
                continue;
            };
            connection.turn.blocked = false;
            connection.close();
            connection.end_multi();
            self.answered(index, memory);
        }
        let waits = |one: &Connection| one.turn.blocked && !one.life.closing;
        debug_assert!(!self.table.iter().flatten().any(|one| waits(one)), "nothing more is begun");
    }

    /// Whether nothing that was received is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut all = self.table.iter().flatten();
        all.all(|connection| connection.life.gone || connection.is_idle())
    }

    /// How long the lines of CLIENT LIST get at most.
    pub(crate) fn listing_bytes(&self, filter: &ClientFilter) -> usize {
        let mut bytes = 0;
        self.visit(filter, |one| bytes += CLIENT_LINE_BYTES + one.client.memory_bytes());
        bytes
    }

    /// Lines of CLIENT LIST.
    pub(crate) fn describe(&self, filter: &ClientFilter, now: Timestamp) -> Vec<u8> {
        let bound = self.listing_bytes(filter);
        let mut lines = Vec::with_capacity(bound);
        self.visit(filter, |connection| connection.client.describe(now, &mut lines));
        debug_assert!(lines.len() <= bound, "{} bytes, {bound} were foreseen", lines.len());
        lines
    }

    /// Goes to the clients that a command tells of.
    fn visit(&self, filter: &ClientFilter, mut visit: impl FnMut(&Connection)) {
        match filter {
            ClientFilter::Nobody => {}
            ClientFilter::Everybody => self
                .table
                .iter()
                .flatten()
                .filter(|connection| !connection.life.gone)
                .for_each(|connection| visit(connection)),
            ClientFilter::Of(ids) => ids
                .iter()
                .filter_map(|&id| self.clients.get(&ClientNumber(id)))
                .filter_map(|&index| self.get(index))
                .for_each(visit),
        }
    }
}
