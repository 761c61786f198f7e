//! Which map is followed, and whom a client turns to for a newer one.
//!
//! ```text
//!   a shard is missed ─┬─► servers that are up are asked for their map, in turn, again and again
//!                      └─ for a while ─► every server of the map is dialled; its welcome brings its map
//!   a newer map ─► entries of its servers ─► what its new primaries serve is asked there
//! ```
//! A server knows a newer map sooner or later than another one, or is the one that is gone. So a
//! client that was given one address learns those of all servers from the map, and goes to any of
//! them when it must.

use timestone_cluster::{ServerInfo, ShardMap};
use timestone_seda::{Context, NetCommand};
use timestone_session::Routes;
use timestone_types::Timestamp;

use super::Tcp;
use super::paths::Change;
use super::server::{Server, State};
use crate::event::ClientStageEvent;
use crate::event_loop::Core;
use crate::limits;
use crate::transport::{ask_for_map, ask_master_for_map};

/// Whose map a server is asked for.
#[derive(Clone, Copy, Debug)]
enum Question {
    Own,
    Master,
}

impl Tcp {
    /// Follows a map, if it is newer: who serves what, and where. `from` is an entry that is up, or
    /// was when it brought the map.
    pub(super) fn follow_from(&mut self, core: &Core, from: usize, map: ShardMap) {
        if self.map.as_ref().is_some_and(|known| known.version() >= map.version()) {
            return;
        }
        self.note_servers(from, &map);
        let now = core.now();
        self.leave_moved(core, &map);
        core.engine.borrow_mut().set_routes(now, Routes::from(&map));
        // Servers that join later are announced to nobody.
        let is_whole = map.shards().iter().all(|shard| map.primary(shard.id).is_some());
        self.ask_map_at = (!is_whole).then(|| now.saturating_add(limits::UNOWNED_INTERVAL));
        self.map = Some(map);
        self.divide(core, Change::Map);
        for index in 0..self.servers.len() {
            self.tell_of_backups(core, index);
        }
    }

    /// Gives every server of a map its entry.
    fn note_servers(&mut self, from: usize, map: &ShardMap) {
        let servers = map.servers();
        // One server only: it is the one we talk to, whatever it calls itself. Where shards have
        // backups, the one we talk to may be one of those.
        let is_serving = |server: &&ServerInfo| map.owned_by(server.id).next().is_some();
        let has_backups = map.shards().iter().any(|shard| shard.replicas.len() > 1);
        let candidates =
            if has_backups { servers.len() } else { servers.iter().filter(is_serving).count() };
        for info in servers {
            let native = info.addresses.native.as_ref().map(timestone_cluster::Address::as_str);
            let is_main = |entry: &Server| entry.id == Some(info.id) && !entry.is_further;
            let known = self.servers.iter().position(is_main);
            let seed = || {
                let is_it =
                    |entry: &Server| entry.id.is_none() && Some(entry.address.as_str()) == native;
                let is_only =
                    candidates == 1 && is_serving(&info) && self.servers[from].id.is_none();
                self.servers.iter().position(is_it).or(is_only.then_some(from))
            };
            let entry = match (known.or_else(seed), native) {
                (Some(entry), _) => entry,
                (None, Some(native)) => {
                    self.servers.push(Server::of_map(native.to_owned()));
                    self.servers.len() - 1
                }
                (None, None) => continue,
            };
            let server = &mut self.servers[entry];
            server.id = Some(info.id);
            if let Some(native) = native.filter(|_| server.is_of_map) {
                server.moves_to(native);
            }
            let becomes_primary = map.owned_by(info.id).next().is_some()
                && self.map.as_ref().is_some_and(|old| old.owned_by(info.id).next().is_none());
            if let State::Idle { retry_at } = &mut self.servers[entry].state
                && becomes_primary
            {
                // Whatever was tried before, it is wanted now.
                *retry_at = Timestamp::ZERO;
            }
        }
    }

    /// What was asked of shards that a map has at other servers is not waited for any more.
    fn leave_moved(&mut self, core: &Core, map: &ShardMap) {
        let Some(old) = &self.map else { return };
        for shard in old.shards() {
            let server = |map: &ShardMap| map.primary(shard.id).map(|server| server.id);
            if server(old) != server(map) && self.paths.remove(&shard.id).is_some() {
                core.engine.borrow_mut().disconnected(core.now(), shard.id);
            }
        }
    }

    /// Notes whether some shard is missed, and for how long.
    pub(super) fn look_around(&mut self, core: &Core) {
        let (now, misses) = (core.now(), core.engine.borrow().shards().wants_routes());
        self.missed_since = misses.then(|| self.missed_since.unwrap_or(now));
        let is_long = |since| now.since(since) >= limits::LOOK_AROUND_AFTER;
        self.looks_around = self.missed_since.is_some_and(is_long);
    }

    /// Whether servers are dialled whatever they serve: nobody is known yet, or nobody answers, or a
    /// shard is missed.
    pub(super) fn dials_all(&self) -> bool {
        let has_map = self.servers.iter().any(|server| server.id.is_some());
        self.looks_around || !has_map || !self.servers.iter().any(Server::is_up)
    }

    /// Asks one server for its map, and another one for the master's: they take turns, for any of
    /// them may be silent, or know nothing new.
    pub(super) fn ask_for_map(&mut self, context: &mut Context<'_, ClientStageEvent>, turn: u32) {
        let asked: Vec<_> = self
            .servers
            .iter()
            .filter(|server| server.is_up() && !server.is_further)
            .filter_map(Server::reply_to)
            .collect();
        let place = |turn: u32| asked.get(turn as usize % asked.len().max(1)).copied();
        for (turn, question) in [(turn, Question::Own), (turn.wrapping_add(1), Question::Master)] {
            let Some(reply_to) = place(turn) else { return };
            let mut frame_batch = context.take_frame_batch(reply_to);
            match question {
                Question::Own => ask_for_map(&mut frame_batch.bytes),
                Question::Master => ask_master_for_map(&mut frame_batch.bytes),
            }
            self.command(context, NetCommand::Send(frame_batch));
        }
    }
}
