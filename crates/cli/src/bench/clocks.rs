//! Commits that wait for clocks: why a run on a keyspace with `external = wait` may see none of
//! them end.

use std::time::Duration;

use timestone::Keyspace;
use timestone_clock::{Clock, ErrorBound, SystemClock};
use timestone_cluster::ExternalMode;

/// Why no commit of a run of this length can be acknowledged; `None` where they can.
pub(super) fn why_nothing_commits(keyspace: &Keyspace, run: Duration) -> Option<String> {
    bound_of_waits(keyspace)
        .filter(|bound| wait_of(*bound) >= run)
        .map(|bound| sentence(keyspace.name.as_str(), bound))
}

/// How long a commit in the keyspace waits for clocks; `None` where it does not.
pub(super) fn wait_of_commits(keyspace: &Keyspace) -> Option<Duration> {
    bound_of_waits(keyspace).map(wait_of)
}

fn bound_of_waits(keyspace: &Keyspace) -> Option<ErrorBound> {
    (keyspace.options.external == ExternalMode::Wait).then(|| SystemClock::new().error_bound())
}

/// How long a commit waits: until the clock of whoever looks has passed it, too, and that one may
/// be as wrong the other way.
const fn wait_of(bound: ErrorBound) -> Duration {
    bound.bound.saturating_mul(2)
}

fn sentence(keyspace: &str, bound: ErrorBound) -> String {
    let why = if bound.synchronised { "" } else { " because nothing disciplines it" };
    format!(
        "the keyspace '{keyspace}' has external = wait, where a commit is acknowledged once the \
         clocks' error bound has passed it; this machine's clock has one of \
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
        assert_eq!(why_nothing_commits(&plain, Duration::ZERO), None);
        let options = KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT };
        let waits = Keyspace { options, ..plain };
        assert!(why_nothing_commits(&waits, Duration::ZERO).is_some());
        assert_eq!(why_nothing_commits(&waits, Duration::from_secs(3_600)), None);
        let text =
            sentence("k", ErrorBound { bound: Duration::from_secs(16), synchronised: false });
        assert!(
            text.contains("error bound")
                && text.contains("16s because nothing")
                && text.contains("takes 32s"),
            "{text}"
        );
    }
}
