//! The begin of a server's time.

use timestone_clock::Clock;
use timestone_clock::limits::MAX_START_LEAD;
use timestone_types::{Span, Timestamp};

/// Begins the server's time with what the clock shows now, but not before the time by which stores
/// and logs were read: reading them may take minutes. Lets it go on from where it was when the last
/// life ended, should the clock have been set back meanwhile: what was served then stays in the
/// past. A clock that is further behind is left as it is: reads are served, and writes refused
/// until it has passed that.
pub(super) fn begin_time(clock: &dyn Clock, lived_until: Timestamp) {
    let read_at = clock.now();
    if !timestone_types::is_planted!(TimeOfStart) {
        clock.begin_anew();
        clock.go_on_from(read_at);
    }
    let behind = lived_until.since(clock.now());
    if behind <= MAX_START_LEAD {
        return clock.go_on_from(lived_until);
    }
    tracing::error!(
        behind = %Span(behind),
        "the system's clock is far behind what was served before the restart; nothing is written \
         until it has passed that: set the \
         clock right and restart the server, or wait"
    );
}
