//! When a newer shard map is asked for.
//!
//! ```text
//!   a shard's link is lost, it is silent, its server does not serve it ─┐
//!   a frame names a newer map ──────────────────────────────────────────┴─► asked at once ─ pause ─► again ─ pause ─► …
//!                                                 a newer map, or the shard answers: nothing is wanted any more ◄─┘
//! ```
//! Whom to ask is the host's business: it takes the servers in turn, for one of them may know no
//! more than this engine, or be the one that is gone.

use timestone_types::Timestamp;

use super::Engine;
use super::jitter::Jitter;
use crate::limits;
use crate::managers::Manager;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapPulls {
    /// Not before.
    next: Timestamp,
    /// In a row, since a map was wanted.
    attempts: u32,
    /// Ever.
    begun: u32,
}

impl MapPulls {
    /// Whether the map is to be asked for now, and how often it was before.
    fn begin(&mut self, now: Timestamp, is_wanted: bool, jitter: &mut Jitter) -> Option<u32> {
        if !is_wanted {
            self.attempts = 0;
            return None;
        }
        if now < self.next {
            return None;
        }
        self.attempts = self.attempts.saturating_add(1);
        let pause = jitter.pause(self.attempts, limits::MIN_PULL_PAUSE, limits::MAX_PULL_PAUSE);
        self.next = now.saturating_add(pause);
        assert!(self.next > now, "the map is not asked for twice at one time");
        let turn = self.begun;
        self.begun = self.begun.wrapping_add(1);
        Some(turn)
    }
}

impl<M: Manager> Engine<M> {
    /// Whether the host is to ask for the shard map now. If so, the number of times that it was asked
    /// before, for a host that takes servers in turn; and it is not to ask again before
    /// [`Engine::next_pull`].
    pub fn begin_pull(&mut self, now: Timestamp) -> Option<u32> {
        self.context.timing.advance(now);
        let context = &mut self.context;
        let is_wanted = context.shards.wants_routes();
        context.pulls.begin(context.timing.now(), is_wanted, &mut context.jitter)
    }

    /// When [`Engine::begin_pull`] wants to be called; `None` while no newer map is wanted.
    #[must_use]
    pub fn next_pull(&self) -> Option<Timestamp> {
        self.context.shards.wants_routes().then_some(self.context.pulls.next)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn the_map_is_asked_for_at_once_and_again_after_pauses_until_it_is_not_wanted() {
        let (mut pulls, mut jitter) = (MapPulls::default(), Jitter::new(5));
        let mut now = Timestamp::from_nanos(1_000_000_000);
        for turn in 0..20 {
            assert_eq!(pulls.begin(now, true, &mut jitter), Some(turn), "at once, and when due");
            let pause = pulls.next.since(now);
            let (least, most) = (limits::MIN_PULL_PAUSE / 2, limits::MAX_PULL_PAUSE);
            assert!((least..=most).contains(&pause), "{pause:?}");
            now = pulls.next.saturating_sub(Duration::from_nanos(1));
            assert_eq!(pulls.begin(now, true, &mut jitter), None);
            now = pulls.next;
        }
        assert_eq!(pulls.begin(now, false, &mut jitter), None);
        assert_eq!(pulls.begin(now, true, &mut jitter), Some(20));
        assert!(pulls.next.since(now) <= limits::MIN_PULL_PAUSE, "pauses are short again");
    }
}
