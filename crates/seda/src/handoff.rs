//! Handing events to another thread: counted, pushed, and only then is its flag looked at.
//!
//! The order is what [`drain`](crate::drain) and [`sleep`](crate::sleep) rest on: an event that is
//! pushed is counted already, and a consumer that sleeps is looked for only when it can see the
//! event.

use crate::StageId;
use crate::drain::Counts;
use crate::lanes::LaneSender;
use crate::sleep::SleepFlag;
use crate::sync::ArrayQueue;

/// Pushes what fits into a lane. Whether the caller must wake the thread at its end.
pub(crate) fn push_lane<E>(lane: &mut LaneSender<E>, own: &Counts, target: &SleepFlag) -> bool {
    let count = lane.pushable();
    if count == 0 {
        return false;
    }
    own.will_send(count as u64);
    lane.push(count);
    target.must_wake()
}

/// Pushes an event from outside. Whether the caller must wake the thread; the event itself when the
/// queue is full.
pub(crate) fn inject<E>(
    queue: &ArrayQueue<(StageId, E)>,
    to: StageId,
    event: E,
    target: (&Counts, &SleepFlag),
) -> Result<bool, E> {
    let (counts, flag) = target;
    counts.will_inject();
    if let Err((_, event)) = queue.push((to, event)) {
        counts.did_not_inject();
        return Err(event);
    }
    Ok(flag.must_wake())
}
