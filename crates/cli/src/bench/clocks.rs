//! Clocks of a benchmark: some that are wrong on purpose, and what they are by; and why a run on a
//! keyspace with `external = wait`, where commits wait for clocks, may see none of them end.

use std::sync::Arc;
use std::time::Duration;

use timestone::{ClockFigures, Db, Keyspace};
use timestone_clock::{BootTime, Clock, ErrorBound, SkewModel, SkewedClock, SystemClock};
use timestone_cluster::ExternalMode;
use timestone_types::{ClientId, Timestamp};

/// A clock of this machine that is wrong as a model says, and does not say so.
#[derive(Debug)]
struct Skewed(SkewedClock<Arc<SystemClock>>, Arc<SystemClock>);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn error_bound(&self) -> ErrorBound {
        self.1.error_bound()
    }

    fn source(&self) -> &'static str {
        "skewed"
    }

    fn oscillator(&self) -> BootTime {
        self.0.oscillator()
    }
}

/// The clock of an event loop, if it is to be wrong.
pub(super) fn skewed(model: Option<SkewModel>, seed: u64, number: usize) -> Option<Arc<dyn Clock>> {
    let client = ClientId::new(u32::try_from(number).ok()?);
    let right = Arc::new(SystemClock::new());
    let clock = SkewedClock::new(Arc::clone(&right), model?, seed, client);
    Some(Arc::new(Skewed(clock, right)))
}

/// What the event loops go by: the one that may be the furthest from true time.
pub(super) fn worst_of(loops: &[Db]) -> Option<ClockFigures> {
    let figures = loops.iter().filter_map(|db| db.clock_figures().wait().ok());
    figures.max_by_key(|figures| figures.error_bound.bound)
}

/// How far the clock that a handle's client goes by may be from true time.
pub(super) fn bound_of(db: &Db) -> ErrorBound {
    let figures = db.clock_figures().wait();
    figures.map_or_else(|_| SystemClock::new().error_bound(), |figures| figures.error_bound)
}

/// Why no commit of a run of this length can be acknowledged; `None` where they can.
pub(super) fn why_nothing_commits(
    keyspace: &Keyspace,
    bound: ErrorBound,
    run: Duration,
) -> Option<String> {
    bound_of_waits(keyspace, bound)
        .filter(|bound| wait_of(*bound) >= run)
        .map(|bound| sentence(keyspace.name.as_str(), bound))
}

/// How long a commit in the keyspace waits for clocks; `None` where it does not.
pub(super) fn wait_of_commits(keyspace: &Keyspace, bound: ErrorBound) -> Option<Duration> {
    bound_of_waits(keyspace, bound).map(wait_of)
}

fn bound_of_waits(keyspace: &Keyspace, bound: ErrorBound) -> Option<ErrorBound> {
    (keyspace.options.external == ExternalMode::Wait).then_some(bound)
}

/// How long a commit waits: it is proposed as far ahead as the clock may be behind, and told when
/// the clock has passed it by as much.
const fn wait_of(bound: ErrorBound) -> Duration {
    bound.bound.saturating_mul(2)
}

fn sentence(keyspace: &str, bound: ErrorBound) -> String {
    let why = if bound.synchronised { "" } else { " because nothing disciplines it" };
    format!(
        "the keyspace '{keyspace}' has external = wait, where a commit is acknowledged once the \
         clocks' error bound has passed it; this client's clock has one of \
         {:?}{why}, so that every commit takes {:?}: synchronise the clock (chrony, ntpd, \
         phc2sys), or run for longer",
        bound.bound,
        wait_of(bound)
    )
}

#[cfg(test)]
mod tests {
    use timestone::KeyspaceOptions;

    use super::*;

    #[test]
    fn only_keyspaces_that_wait_are_warned_of_and_the_bound_is_named() {
        let plain = Keyspace::default_keyspace();
        let bound = ErrorBound { bound: Duration::from_secs(16), synchronised: false };
        assert_eq!(why_nothing_commits(&plain, bound, Duration::ZERO), None);
        let options = KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT };
        let waits = Keyspace { options, ..plain };
        assert!(why_nothing_commits(&waits, bound, Duration::ZERO).is_some());
        assert_eq!(why_nothing_commits(&waits, bound, Duration::from_secs(3_600)), None);
        let text = sentence("k", bound);
        assert!(
            text.contains("error bound")
                && text.contains("16s because nothing")
                && text.contains("takes 32s"),
            "{text}"
        );
    }
}
