//! What hosts and time bring: connections, maps, client ids, repeats, deadlines, reports.
//!
//! One due time for the whole engine, at or before the earliest thing that is due, and a look at
//! everything open when it comes. Most requests are answered long before, so the look is rare.

use core::time::Duration;

use timestone_types::{ClientId, ShardId, Timestamp};

use super::context::Again;
use super::reports::Reports;
use super::shards::{ShardIndex, Shards};
use super::{Engine, EngineStats};
use crate::managers::Manager;
use crate::{Routes, limits};

/// Transport.
impl<M: Manager> Engine<M> {
    /// The shards: routes, outboxes, connections, clocks.
    #[inline]
    #[must_use]
    pub const fn shards(&self) -> &Shards {
        &self.context.shards
    }

    /// The shards, for a host that moves bytes or tells of connections.
    #[inline]
    pub const fn shards_mut(&mut self) -> &mut Shards {
        &mut self.context.shards
    }

    /// The connection to `shard` is lost: what was asked is asked again after
    /// [`Engine::connected`]; nothing is reported failed.
    pub fn disconnected(&mut self, now: Timestamp, shard: ShardId) {
        self.context.timing.advance(now);
        if let Some(shard) = self.context.shards.index_of(shard) {
            self.context.shards.down(shard);
            #[cfg(feature = "planted-bugs")]
            if timestone_types::is_planted!(FailsWithTheLink) {
                self.singles.fail_all(&mut self.context, shard);
            }
        }
        self.assert_all_sound();
    }

    /// The connection to `shard` stands (again).
    pub fn connected(&mut self, now: Timestamp, shard: ShardId) {
        self.context.timing.advance(now);
        let Some(shard) = self.context.shards.index_of(shard) else { return };
        self.context.shards.up(shard);
        self.manager.ask_again(&mut self.context, Again::Of(shard));
        self.singles.ask_again(&mut self.context, Again::Of(shard));
        self.report(Some(shard), false);
        self.assert_all_sound();
    }

    /// A newer shard map: what was asked of shards that have another epoch or server in it is asked
    /// again there, under its own identity. An older one is ignored.
    pub fn set_routes(&mut self, now: Timestamp, routes: Routes) {
        self.context.timing.advance(now);
        if routes.version() < self.context.shards.routes().version() {
            return;
        }
        self.context.shards.update(routes);
        self.manager.follow_routes(&mut self.context);
        self.manager.ask_again(&mut self.context, Again::Moved);
        self.singles.ask_again(&mut self.context, Again::Moved);
        self.assert_all_sound();
    }

    /// Whether the server ended this client's session: the host asks for a new client id and calls
    /// [`Engine::renew_client`].
    #[must_use]
    pub const fn wants_client(&self) -> bool {
        self.context.identity.is_over()
    }

    /// Goes on under a new client id. Open transactions are over, because their snapshots are not
    /// held any more; commits and writes under way keep their ids and are resolved.
    pub fn renew_client(&mut self, now: Timestamp, client: ClientId) {
        self.context.timing.advance(now);
        self.manager.end_snapshots(&mut self.context);
        self.context.identity.renew(client);
        self.report(None, false);
        self.assert_all_sound();
    }

    /// The id that requests carry.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.context.identity.id()
    }

    /// How far the host's clock may be from true time at `now`, either way, for `external_wait`. A
    /// host says it anew before what waits is looked at; meanwhile the bound grows by a tenth of
    /// the time that passes, as much as time is slewed.
    pub fn set_clock_error(&mut self, now: Timestamp, bound: Duration) {
        self.context.timing.advance(now);
        self.context.assert_sound();
        self.context.timing.set_error_bound(bound);
    }

    /// How long to pause before attempt number `attempt` (from 1) of a whole transaction:
    /// exponential with jitter.
    pub fn backoff(&mut self, attempt: u32) -> Duration {
        let pause = self.context.jitter.pause(attempt, limits::MIN_BACKOFF, limits::MAX_BACKOFF);
        assert!(pause <= limits::MAX_BACKOFF, "a pause of {pause:?}");
        pause
    }

    /// How many transactions and writes are not finished at every participant yet; a host that
    /// shuts down waits for 0, bounded.
    #[must_use]
    pub fn unresolved(&self) -> usize {
        self.manager.unresolved() + self.singles.unresolved()
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> EngineStats {
        self.context.stats
    }
}

/// Time.
impl<M: Manager> Engine<M> {
    /// Does what is due: repeats, deadlines, terminations, reports.
    pub fn tick(&mut self, now: Timestamp) {
        self.context.timing.advance(now);
        let now = self.context.now();
        if now >= self.next_report || self.context.watermarks.is_due() {
            self.report(None, false);
        }
        if now >= self.context.timing.next_due() {
            self.context.timing.begin_sweep();
            self.manager.sweep(&mut self.context);
            self.singles.sweep(&mut self.context);
            self.context.timing.end_sweep();
            self.assert_all_sound();
        }
        self.context.assert_sound();
    }

    /// When [`Engine::tick`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.context.timing.next_due().min(self.next_report))
    }

    /// Tells every shard that the client's session is over: nothing of this client is open any
    /// more, so it holds the watermark back no longer, and will not ask again. What is still under
    /// way stays to be terminated by the participants.
    pub fn close(&mut self, now: Timestamp) {
        self.context.timing.advance(now);
        self.report(None, true);
        self.context.assert_sound();
    }

    /// Tells one shard, or all, what may still be used there, and what is over.
    fn report(&mut self, to: Option<ShardIndex>, is_closing: bool) {
        let now = self.context.now();
        if to.is_none() && !is_closing {
            self.context.trim_unknown();
            self.context.watermarks.asked();
            self.next_report = now.saturating_add(self.context.config.report_interval);
            assert!(self.next_report >= now, "reports that are never due again");
        }
        let context = &mut self.context;
        let mut reports = Reports::new(context.client(), now, context.shards.count());
        self.manager.report(context, &mut reports);
        self.singles.report(&mut reports);
        for unknown in context.unknown.iter() {
            let shards = unknown.at.iter().filter_map(|&shard| context.shards.index_of(shard));
            shards.for_each(|shard| reports.owe(shard, unknown.txn));
        }
        for (shard, mut report) in (0..=u16::MAX).map(ShardIndex).zip(reports.finish()) {
            if to.is_none_or(|to| to == shard) {
                if is_closing {
                    report.watermark = now;
                }
                context.append_report(shard, &report, is_closing);
                if !is_closing {
                    context.ask_clock(shard);
                    context.shards.suspect(now, shard);
                    context.ask_closed(shard);
                }
            }
        }
    }
}
