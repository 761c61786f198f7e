//! What all simulated Redis clients of a run share: what they shall do, and the history of their
//! calls.
//!
//! A call is written down when it is sent and when it is answered, by true time. A connection that
//! breaks leaves its calls without answers: whether they were carried out, nobody knows. Each
//! connection has a number of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_types::Timestamp;
use timestone_workload::redis::{Call, Mix, RedisHistory, Reply, Request};

use crate::board::TxnTally;
use crate::clock::{TrueTime, moment};

/// What connections do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// They begin nothing.
    Idle,
    /// They work.
    Work,
    /// They read each key, and write it once more.
    Touch,
    /// They read each key.
    Audit,
}

/// How often and how much they ask.
#[derive(Clone, Debug)]
pub(crate) struct RedisWork {
    pub(crate) mix: Mix,
    /// From one activity of a connection to its next, on average.
    pub(crate) interval: Duration,
    /// Connections of all processes together.
    pub(crate) connections: u64,
}

/// Names a call that was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CallId(usize);

#[derive(Debug)]
struct CallsState {
    mode: Mode,
    /// Counts changes of the mode.
    round: u64,
    calls: Vec<Call>,
    next_connection: u64,
    tally: TxnTally,
    /// By place: how many calls it has open, or that it has not ended its round.
    busy: BTreeMap<usize, usize>,
    wrong: Vec<String>,
    last_error: Option<String>,
    /// Numbers of the values that keys are written once more with.
    touched: u64,
    /// Since when nothing is in anybody's way.
    calm_since: Option<Timestamp>,
    /// When a connection was forgotten on its way last: nobody tells its ends.
    forgotten: Option<Timestamp>,
    /// Places that read nothing.
    unreading: BTreeSet<usize>,
    /// Places that ever read nothing: each may have been owed as much as a connection may be.
    owed: BTreeSet<usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Calls {
    truth: TrueTime,
    pub(crate) work: RedisWork,
    state: Mutex<CallsState>,
}

impl Calls {
    pub(crate) fn new(truth: TrueTime, work: RedisWork) -> Self {
        let state = CallsState {
            mode: Mode::Idle,
            round: 0,
            calls: Vec::new(),
            next_connection: 0,
            tally: TxnTally::default(),
            busy: BTreeMap::new(),
            wrong: Vec::new(),
            last_error: None,
            touched: 0,
            calm_since: None,
            forgotten: None,
            unreading: BTreeSet::new(),
            owed: BTreeSet::new(),
        };
        Self { truth, work, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, CallsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, by true time.
    pub(crate) fn now(&self) -> Timestamp {
        moment(self.truth.now())
    }

    /// Whether something is in somebody's way now.
    pub(crate) fn set_calm(&self, calm: bool) {
        let now = self.now();
        let mut state = self.lock();
        state.calm_since = calm.then(|| state.calm_since.unwrap_or(now));
    }

    /// Connections of these places read nothing from now on, or read on.
    pub(crate) fn set_unreading(&self, places: Range<usize>, unreading: bool) {
        let mut state = self.lock();
        for place in places {
            if unreading {
                state.unreading.insert(place);
                state.owed.insert(place);
            } else {
                state.unreading.remove(&place);
            }
        }
    }

    /// Whether a place reads nothing.
    pub(crate) fn is_unreading(&self, place: usize) -> bool {
        self.lock().unreading.contains(&place)
    }

    /// Whether a place ever read nothing: it has a key of its own then.
    pub(crate) fn has_flooded(&self, place: usize) -> bool {
        self.lock().owed.contains(&place)
    }

    /// How many places have ever read nothing.
    pub(crate) fn owed(&self) -> usize {
        self.lock().owed.len()
    }

    /// Something on its way has just forgotten a connection.
    pub(crate) fn forget_one(&self) {
        let now = self.now();
        self.lock().forgotten = Some(now);
    }

    /// Whether an answer should have come to what was asked at `asked` on a connection that was
    /// made at `made`: nothing has been in its way.
    pub(crate) fn is_owed(&self, made: Timestamp, asked: Timestamp) -> bool {
        let state = self.lock();
        let is_calm = state.calm_since.is_some_and(|since| since <= asked);
        is_calm && state.forgotten.is_none_or(|forgotten| forgotten < made)
    }

    /// What connections do from now on. Those that touch or audit are busy until they have ended
    /// their round.
    pub(crate) fn set_mode(&self, mode: Mode) {
        let mut state = self.lock();
        (state.mode, state.round) = (mode, state.round + 1);
        if matches!(mode, Mode::Touch | Mode::Audit) {
            state.busy = (0..self.work.connections as usize).map(|place| (place, 1)).collect();
        }
    }

    /// What connections do, and how often that has changed.
    pub(crate) fn mode(&self) -> (Mode, u64) {
        let state = self.lock();
        (state.mode, state.round)
    }

    /// A new connection's number.
    pub(crate) fn connect(&self) -> u64 {
        let mut state = self.lock();
        state.next_connection += 1;
        state.next_connection - 1
    }

    /// A value that nobody else writes.
    pub(crate) fn next_touch(&self) -> String {
        let mut state = self.lock();
        state.touched += 1;
        format!("t{}", state.touched)
    }

    /// How many keys were written once more.
    pub(crate) fn touched(&self) -> u64 {
        self.lock().touched
    }

    /// A request is sent.
    pub(crate) fn invoke(&self, connection: u64, request: Request) -> CallId {
        let invoked = self.now();
        let mut state = self.lock();
        state.tally.begun += 1;
        state.calls.push(Call { connection, request, invoked, answered: None });
        CallId(state.calls.len() - 1)
    }

    /// It is answered.
    pub(crate) fn answer(&self, call: CallId, reply: Reply) {
        let now = self.now();
        let mut state = self.lock();
        if reply.is_unknown() {
            state.tally.unknown += 1;
        } else if reply.is_refusal() {
            state.tally.aborted += 1;
            state.tally.errors += 1;
        } else {
            state.tally.committed += 1;
        }
        if let Reply::Error(text) = &reply {
            state.last_error = Some(text.clone());
        }
        state.calls[call.0].answered = Some((now, reply));
    }

    /// So many calls will never be answered.
    pub(crate) fn abandon(&self, calls: usize) {
        self.lock().tally.unknown += calls as u64;
    }

    /// How many calls a place waits for; nothing else keeps it busy.
    pub(crate) fn set_busy(&self, place: usize, calls: usize) {
        let mut state = self.lock();
        if calls == 0 {
            state.busy.remove(&place);
        } else {
            state.busy.insert(place, calls);
        }
    }

    /// Places that are busy.
    pub(crate) fn live(&self) -> usize {
        self.lock().busy.len()
    }

    /// What the busy ones wait for.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let state = self.lock();
        let open = state.busy.iter();
        open.map(|(place, calls)| format!("connection place {place} waits for {calls} answers"))
            .collect()
    }

    pub(crate) fn tally(&self) -> TxnTally {
        self.lock().tally
    }

    /// An answer that cannot be right, whatever was done.
    pub(crate) fn wrong(&self, what: String) {
        let now = self.truth.now();
        let mut state = self.lock();
        if state.wrong.len() < 20 {
            state.wrong.push(format!("at {now}: {what}"));
        }
    }

    pub(crate) fn all_wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Takes the history out, at the end.
    pub(crate) fn take_history(&self, clock_slack: Duration) -> RedisHistory {
        RedisHistory { clock_slack, calls: std::mem::take(&mut self.lock().calls) }
    }
}
