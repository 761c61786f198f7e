//! Which connection a shard is asked over, and further connections to servers of several threads.
//!
//! A server reads each connection on one of its threads, and says in its welcome which shards run
//! there. What is asked of them over this connection crosses no thread; anything else is handed
//! over, which costs more than the request itself. So a client opens further connections to such a
//! server until it has one near every shard. Servers give connections to their threads in turn: a
//! few attempts find all of them. A connection that brings nothing new is closed again.
//!
//! When a better connection stands, what is asked from then on goes over it, and the answers to what
//! was asked before still come over the old one. When a connection is lost, everything that may have
//! been asked over it is asked again over those that stand.

use timestone_cluster::ServerId;
use timestone_seda::{Context, NetCommand, ReplyAddress};
use timestone_session::reconnect_pause;
use timestone_types::{ShardId, Timestamp};

use super::Tcp;
use super::server::{Server, Spread, State};
use crate::event::ClientStageEvent;
use crate::event_loop::Core;
use crate::limits;

/// Why shards may be asked over other connections from now on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// There is one more.
    More,
    /// One is lost, over which these may have been asked.
    Lost(&'a [ShardId]),
    /// The shard map is another one.
    Map,
}

impl Tcp {
    /// The connections that stand to a server.
    fn up(&self, id: ServerId) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.id == Some(id) && server.is_up())
    }

    /// Whether an entry is of a server that is primary of a shard.
    pub(super) fn is_primary(&self, server: &Server) -> bool {
        let map = self.map.as_ref().zip(server.id);
        map.is_some_and(|(map, id)| map.owned_by(id).next().is_some())
    }

    /// The entry over which a shard of the map is asked, up or not.
    fn best_for(&self, id: ServerId, shard: ShardId) -> Option<usize> {
        let of_server = |server: &Server| server.id == Some(id);
        let up = |server: &Server| of_server(server) && server.is_up();
        let near = |server: &Server| up(server) && server.near.contains(&shard);
        let own = |server: &Server| of_server(server) && !server.is_further;
        let find = |wanted: &dyn Fn(&Server) -> bool| self.servers.iter().position(wanted);
        find(&near).or_else(|| find(&up)).or_else(|| find(&own))
    }

    /// Gives every shard of the map its connection, and tells the engine what that means for what
    /// was asked.
    pub(super) fn divide(&mut self, core: &Core, why: Change<'_>) {
        let Some(map) = &self.map else { return };
        for server in &mut self.servers {
            server.shards.clear();
        }
        let now = core.now();
        let mut engine = core.engine.borrow_mut();
        for shard in map.shards() {
            let best = map.primary(shard.id).and_then(|server| self.best_for(server.id, shard.id));
            if let Some(best) = best {
                self.servers[best].shards.push(shard.id);
            }
            let path = best.and_then(|best| match self.servers[best].state {
                State::Up(reply_to) => {
                    engine.shards_mut().speaks(shard.id, self.servers[best].protocol);
                    Some(reply_to)
                }
                _ => None,
            });
            let before = match path {
                Some(reply_to) => self.paths.insert(shard.id, reply_to),
                None => self.paths.remove(&shard.id),
            };
            let is_lost = matches!(why, Change::Lost(shards) if shards.contains(&shard.id));
            let is_new = before.is_none();
            match path {
                None if before.is_some() || matches!(why, Change::Map) => {
                    engine.disconnected(now, shard.id);
                }
                None => {}
                Some(_) if is_lost => {
                    engine.disconnected(now, shard.id);
                    engine.connected(now, shard.id);
                }
                Some(_) if is_new => engine.connected(now, shard.id),
                Some(reply_to) => {
                    let left = before.filter(|&before| before != reply_to);
                    let old = left.and_then(|old| {
                        self.servers.iter_mut().find(|server| server.state == State::Up(old))
                    });
                    if let Some(old) = old {
                        old.moved.push(shard.id);
                    }
                }
            }
        }
        drop(engine);
        self.plan_spread();
    }

    /// Whether a connection is near some shard that no other one is near.
    fn brings_something(&self, index: usize) -> bool {
        let (one, Some(map)) = (&self.servers[index], &self.map) else { return true };
        let others = |shard: &ShardId| {
            let stands = |(at, server): (usize, &Server)| {
                at != index && server.id == one.id && server.is_up() && server.near.contains(shard)
            };
            self.servers.iter().enumerate().any(stands)
        };
        let is_its = |shard: &ShardId| map.primary(*shard).map(|server| server.id) == one.id;
        one.near.iter().any(|shard| is_its(shard) && !others(shard))
    }

    /// The entry that a server is dialled by again and again.
    fn main_of(&mut self, id: Option<ServerId>) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.id == id && !server.is_further)
    }

    /// A welcome has come over a connection. Whether it is kept.
    pub(super) fn keeps(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        now: Timestamp,
        (index, reply_to): (usize, ReplyAddress),
    ) -> bool {
        let (id, is_further) = (self.servers[index].id, self.servers[index].is_further);
        if !is_further {
            self.servers[index].spread =
                Spread { next_at: now.saturating_add(limits::SPREAD_AFTER), in_vain: 0 };
            return true;
        }
        let is_kept = self.brings_something(index);
        if !is_kept {
            if let Some(main) = self.main_of(id) {
                main.spread.in_vain += 1;
            }
            self.servers[index].state = State::Gone;
            self.command(context, NetCommand::Close(reply_to));
            self.plan_spread();
        }
        is_kept
    }

    /// A further connection is lost, or did not come about: another is tried after a pause.
    pub(super) fn lost_further(&mut self, now: Timestamp, index: usize) {
        self.servers[index].state = State::Gone;
        let (id, up_since) = (self.servers[index].id, self.servers[index].up_since);
        if let Some(main) = self.main_of(id) {
            if up_since.is_some_and(|since| now.since(since) >= limits::SETTLED) {
                main.spread.in_vain = 0;
            }
            let pause = reconnect_pause(main.spread.in_vain);
            main.spread.in_vain += 1;
            main.spread.next_at = now.saturating_add(pause);
        }
    }

    /// When another connection to the server of this entry is to be tried, if one is.
    fn spread_of(&self, main: &Server) -> Option<Timestamp> {
        let map = self.map.as_ref()?;
        let id = main.id.filter(|_| main.is_up() && !main.is_further)?;
        let is_its = |server: &&Server| server.id == Some(id) && server.state != State::Gone;
        let connections = self.servers.iter().filter(is_its).count();
        let under_way = self.servers.iter().filter(is_its).any(|server| !server.is_up());
        let is_far = |shard: ShardId| !self.up(id).any(|server| server.near.contains(&shard));
        let is_wanted = connections < limits::MAX_CONNECTIONS_TO_SERVER
            && main.spread.in_vain < limits::MAX_VAIN_CONNECTIONS
            && !under_way
            && map.owned_by(id).any(|shard| is_far(shard.id));
        is_wanted.then_some(main.spread.next_at)
    }

    /// A connection has come, gone or been begun: it is decided when the next one is tried.
    fn plan_spread(&mut self) {
        self.spread_at = self.servers.iter().filter_map(|main| self.spread_of(main)).min();
    }

    /// Drops entries that are over, and opens further connections that are due.
    pub(super) fn spread(&mut self, context: &mut Context<'_, ClientStageEvent>, core: &Core) {
        let now = core.now();
        self.servers.retain(|server| server.state != State::Gone);
        if self.spread_at.is_none_or(|at| now < at) {
            return;
        }
        for index in 0..self.servers.len() {
            if self.spread_of(&self.servers[index]).is_some_and(|at| at <= now) {
                let further = Server::further(&self.servers[index]);
                self.servers.push(further);
                self.dial(context, core, self.servers.len() - 1);
            }
        }
        self.plan_spread();
    }
}
