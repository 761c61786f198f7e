//! One key at a time: is there an order of its visits that real time and every connection's
//! pipeline allow, and that explains all answers?
//!
//! ```text
//!   invocations and answers by time ─► at each answer: every way in which it, and what is under way before it, may have taken place
//!        configurations = what the key may hold now × which of those under way have taken place
//! ```
//! The search is that of Wing and Gong (1993) as Lowe (2017) runs it, forwards in time. What keeps
//! it small: values tell who wrote them; a look that fits what the key holds is taken at once; and
//! of what was never answered, a configuration that needed less is kept, for the rest may still
//! take place, or never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use timestone_types::Timestamp;

use super::visit::{KeyStep, Lifetime, Only, Visit, Visits};
use super::{name, told};
use crate::check::verdict::{AnomalyKind, CheckResult, Promise};
use crate::limits::MAX_LINEAR_STEPS;
use crate::redis::RedisHistory;

/// Steps that a visit takes where nothing is unclear, and a few more: a long history is judged as a
/// short one is.
const STEPS_OF_A_VISIT: usize = 4;
/// Calls that a story tells, before the one that nothing explains.
const TOLD: usize = 12;

/// What a key holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Cell {
    value: Rc<str>,
    /// When it expires, at the earliest and at the latest.
    expiry: Option<(Timestamp, Timestamp)>,
}

type KeyState = Option<Cell>;

/// One way in which things may have gone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Configuration {
    state: KeyState,
    /// Visits that are not over and have taken place, in order.
    taken: BTreeSet<usize>,
}

/// Checks every key.
pub(super) fn check(history: &RedisHistory, visits: &Visits, verdict: &mut CheckResult) {
    for (key, visits) in &visits.of {
        let mut search = VisitSearch::new(visits, history.clock_slack);
        match search.run() {
            Explanation::Explained => {}
            Explanation::Undecided => verdict.undecided += 1,
            Explanation::Unexplained { visit, before } => {
                verdict.report(AnomalyKind::NotLinearizable, Promise::Conflicts, || {
                    story(history, key, visits, visit, &before)
                });
            }
        }
    }
}

fn story(
    history: &RedisHistory,
    key: &str,
    visits: &[Visit],
    at: usize,
    before: &BTreeSet<KeyState>,
) -> String {
    let state = |state: &KeyState| {
        state.as_ref().map_or("nothing".to_owned(), |cell| format!("\"{}\"", cell.value))
    };
    let held: Vec<String> = before.iter().take(6).map(state).collect();
    let mut story = format!(
        "no order of the calls on key {key} explains the answer to {}; before it, the key held {}",
        name(history, visits[at].call),
        held.join(" or ")
    );
    let mut near: Vec<&Visit> =
        visits.iter().filter(|visit| visit.begin <= visits[at].end).collect();
    near.sort_by_key(|visit| if visit.is_known() { visit.end } else { visit.begin });
    for visit in near.iter().rev().take(TOLD).rev() {
        story.push_str("\n  ");
        story.push_str(&told(history, visit.call));
    }
    story
}

enum Explanation {
    Explained,
    Undecided,
    Unexplained { visit: usize, before: BTreeSet<KeyState> },
}

struct VisitSearch<'v> {
    visits: &'v [Visit],
    slack: Duration,
    /// The visit of the same connection that takes place before it.
    after: Vec<Option<usize>>,
    /// Visits that have begun and are not over.
    pending: BTreeSet<usize>,
    /// Visits that were answered by now.
    over: Vec<bool>,
    /// Of values that a key holds once only: the visits that certainly found it.
    readers: BTreeMap<&'v str, Vec<usize>>,
    /// By visit that was never answered: the first one that does the same, as far as anybody can
    /// tell.
    alike: Vec<usize>,
    steps: usize,
}

impl<'v> VisitSearch<'v> {
    fn new(visits: &'v [Visit], slack: Duration) -> Self {
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        let mut after = Vec::new();
        for (at, visit) in visits.iter().enumerate() {
            // What may never have been done holds nothing up.
            after.push(last.get(&visit.connection).copied());
            if visit.is_known() {
                last.insert(visit.connection, at);
            }
        }
        let over = vec![false; visits.len()];
        let (readers, alike) = (readers(visits), alike(visits));
        Self { visits, slack, after, pending: BTreeSet::new(), over, readers, alike, steps: 0 }
    }

    fn run(&mut self) -> Explanation {
        // Invocations before answers of the same moment: those prove no order.
        let begins = self.visits.iter().enumerate().map(|(at, visit)| (visit.begin, false, at));
        let known = self.visits.iter().enumerate().filter(|(_, visit)| visit.is_known());
        let ends = known.map(|(at, visit)| (visit.end, true, at));
        let mut moments: Vec<(Timestamp, bool, usize)> = begins.chain(ends).collect();
        moments.sort_unstable();
        let mut ways = vec![Configuration { state: None, taken: BTreeSet::new() }];
        for (_, is_end, at) in moments {
            if !is_end {
                self.pending.insert(at);
                continue;
            }
            let before: BTreeSet<KeyState> = ways.iter().map(|way| way.state.clone()).collect();
            let Some(next) = self.end(ways, at) else { return Explanation::Undecided };
            if next.is_empty() {
                return Explanation::Unexplained { visit: at, before };
            }
            self.pending.remove(&at);
            self.over[at] = true;
            ways = next;
        }
        Explanation::Explained
    }

    /// All ways in which a visit has taken place by now; `None` where there are too many to look
    /// at.
    fn end(&mut self, ways: Vec<Configuration>, target: usize) -> Option<Vec<Configuration>> {
        let mut seen: BTreeMap<(KeyState, Vec<usize>), Vec<BTreeSet<usize>>> = BTreeMap::new();
        let mut queue: VecDeque<Configuration> = VecDeque::new();
        let mut done: Vec<Configuration> = Vec::new();
        for mut way in ways {
            self.look_around(&mut way);
            if self.is_news(&way, &mut seen) {
                queue.push_back(way);
            }
        }
        while let Some(mut way) = queue.pop_front() {
            if way.taken.remove(&target) {
                done.push(way);
                continue;
            }
            self.steps += 1;
            if self.steps > MAX_LINEAR_STEPS + STEPS_OF_A_VISIT * self.visits.len() {
                return None;
            }
            let mut tried: Vec<usize> = Vec::new();
            for &at in &self.pending {
                if way.taken.contains(&at) || !self.may_take(&way, at) {
                    continue;
                }
                let visit = &self.visits[at];
                if !visit.is_known() {
                    // Of calls that are alike and were never answered, the first one stands for
                    // all.
                    if tried.contains(&self.alike[at]) {
                        continue;
                    }
                    tried.push(self.alike[at]);
                }
                for state in self.take(&way.state, visit) {
                    if state.as_ref().map(|cell| &cell.value)
                        != way.state.as_ref().map(|cell| &cell.value)
                        && self.is_missed(&way, at)
                    {
                        continue;
                    }
                    let mut next = Configuration { state, taken: way.taken.clone() };
                    next.taken.insert(at);
                    self.look_around(&mut next);
                    if !self.is_news(&next, &mut seen) {
                        continue;
                    }
                    // What needs less of the unanswered is looked at first.
                    if visit.is_known() { queue.push_front(next) } else { queue.push_back(next) }
                }
            }
        }
        Some(done)
    }

    /// Whether nothing that was met leads everywhere that this leads.
    fn is_news(
        &self,
        way: &Configuration,
        seen: &mut BTreeMap<(KeyState, Vec<usize>), Vec<BTreeSet<usize>>>,
    ) -> bool {
        let (known, unknown): (Vec<usize>, Vec<usize>) =
            way.taken.iter().partition(|at| self.visits[**at].is_known());
        let unknown: BTreeSet<usize> = unknown.into_iter().collect();
        let met = seen.entry((way.state.clone(), known)).or_default();
        if met.iter().any(|less| less.is_subset(&unknown)) {
            return false;
        }
        met.retain(|more| !unknown.is_subset(more));
        met.push(unknown);
        true
    }

    /// Whether what the key holds is still to be found by somebody else, and so cannot be replaced
    /// by a visit: it never comes back.
    fn is_missed(&self, way: &Configuration, at: usize) -> bool {
        let readers = way.state.as_ref().and_then(|cell| self.readers.get(&*cell.value));
        let misses =
            |reader: &usize| *reader != at && !self.over[*reader] && !way.taken.contains(reader);
        readers.is_some_and(|readers| readers.iter().any(misses))
    }

    fn may_take(&self, way: &Configuration, at: usize) -> bool {
        self.after[at]
            .is_none_or(|before| !self.pending.contains(&before) || way.taken.contains(&before))
    }

    /// Takes every look that fits: none of them stands in the way of anything.
    fn look_around(&self, way: &mut Configuration) {
        loop {
            let fitting: Vec<usize> = self
                .pending
                .iter()
                .copied()
                .filter(|at| {
                    self.visits[*at].is_look() && !way.taken.contains(at) && self.may_take(way, *at)
                })
                .filter(|at| {
                    let visit = &self.visits[*at];
                    self.is_there(&way.state, visit)
                        && self.steps_of(way.state.clone(), visit).is_some()
                })
                .collect();
            if fitting.is_empty() {
                return;
            }
            way.taken.extend(fitting);
        }
    }

    /// Whether what the key holds may not have expired yet when a visit comes.
    fn is_there(&self, state: &KeyState, visit: &Visit) -> bool {
        let latest = state
            .as_ref()
            .and_then(|cell| cell.expiry)
            .map_or(Timestamp::MAX, |(_, latest)| latest);
        visit.begin <= latest
    }

    /// What the key may hold after a visit that finds it so; nothing where its answers do not fit.
    fn take(&self, state: &KeyState, visit: &Visit) -> Vec<KeyState> {
        let mut after = Vec::new();
        if self.is_there(state, visit) {
            after.extend(self.steps_of(state.clone(), visit));
        }
        let may_be_gone = state
            .as_ref()
            .and_then(|cell| cell.expiry)
            .is_some_and(|(earliest, _)| visit.end >= earliest);
        if may_be_gone {
            after.extend(self.steps_of(None, visit));
        }
        after.dedup();
        after
    }

    fn steps_of(&self, mut state: KeyState, visit: &Visit) -> Option<KeyState> {
        for step in &visit.steps {
            state = self.step(state, step, visit)?;
        }
        Some(state)
    }

    /// When what is set by a visit to expire after a while does so.
    fn window(&self, visit: &Visit, span: Duration) -> (Timestamp, Timestamp) {
        // Times to live end with the millisecond before.
        let early = self.slack + Duration::from_millis(1);
        let earliest = visit.begin.saturating_add(span);
        let earliest =
            Timestamp::from_nanos(earliest.as_nanos().saturating_sub(early.as_nanos() as u64));
        (earliest, visit.end.saturating_add(span).saturating_add(self.slack))
    }

    /// One step; `None` where it does not fit what the key holds.
    fn step(&self, state: KeyState, step: &KeyStep, visit: &Visit) -> Option<KeyState> {
        let fits = match step {
            KeyStep::Read(seen) => state.as_ref().map(|cell| &cell.value) == seen.as_ref(),
            KeyStep::Present(seen) => state.is_some() == *seen,
            KeyStep::Length(length) => state.as_ref().map_or(0, |cell| cell.value.len()) == *length,
            KeyStep::TimeToLive(left) => match (&state, left) {
                (None, _) => false,
                (Some(cell), None) => cell.expiry.is_none(),
                (Some(cell), Some(left)) => cell.expiry.is_some_and(|(earliest, latest)| {
                    visit.begin.saturating_add(*left) <= latest
                        && visit.end.saturating_add(*left) >= earliest
                }),
            },
            _ => return self.change(state, step, visit),
        };
        fits.then_some(state)
    }

    fn change(&self, state: KeyState, step: &KeyStep, visit: &Visit) -> Option<KeyState> {
        let kept = state.as_ref().and_then(|cell| cell.expiry);
        Some(match step {
            KeyStep::Put { value, life, only } => {
                let is_written = match only {
                    Only::Always => true,
                    Only::Absent => state.is_none(),
                    Only::Present => state.is_some(),
                };
                if !is_written {
                    return if visit.is_known() { None } else { Some(state) };
                }
                let expiry = match life {
                    Lifetime::Forever => None,
                    Lifetime::Kept => kept,
                    Lifetime::For(span) => Some(self.window(visit, *span)),
                };
                Some(Cell { value: Rc::clone(value), expiry })
            }
            KeyStep::Remove => None,
            KeyStep::Add { by, sum } => {
                let held = state.as_ref().map_or(Ok(0), |cell| cell.value.parse::<i64>());
                let Ok(held) = held else {
                    return if visit.is_known() { None } else { Some(state) };
                };
                let made = held.checked_add(*by)?;
                if sum.is_some_and(|sum| sum != made) {
                    return None;
                }
                Some(Cell { value: Rc::from(made.to_string()), expiry: kept })
            }
            KeyStep::Append { tail, length } => {
                let held = state.as_ref().map_or("", |cell| &cell.value);
                if length.is_some_and(|length| length != held.len() + tail.len()) {
                    return None;
                }
                Some(Cell { value: Rc::from(format!("{held}{tail}")), expiry: kept })
            }
            KeyStep::Expire(span) => {
                state.map(|cell| Cell { expiry: Some(self.window(visit, *span)), ..cell })
            }
            KeyStep::Persist(had) => {
                if had.is_some_and(|had| had != kept.is_some()) {
                    return None;
                }
                state.map(|cell| Cell { expiry: None, ..cell })
            }
            KeyStep::Read(_)
            | KeyStep::Present(_)
            | KeyStep::Length(_)
            | KeyStep::TimeToLive(_) => state,
        })
    }
}

/// Who certainly found which value, of values that a key holds once only: texts that one visit
/// writes, or that end with what one visit appends. Numbers come back.
fn readers(visits: &[Visit]) -> BTreeMap<&str, Vec<usize>> {
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    for step in visits.iter().flat_map(|visit| &visit.steps) {
        if let KeyStep::Put { value: text, .. } | KeyStep::Append { tail: text, .. } = step {
            *written.entry(text).or_default() += 1;
        }
    }
    let mut readers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    if written.values().any(|times| *times > 1) {
        return readers;
    }
    for (at, visit) in visits.iter().enumerate().filter(|(_, visit)| visit.is_known()) {
        if let Some(KeyStep::Read(Some(value))) = visit.steps.first()
            && value.parse::<i64>().is_err()
        {
            readers.entry(value).or_default().push(at);
        }
    }
    readers
}

/// For each visit that was never answered the first one that does the same, as far as anybody can
/// tell: texts that nobody found differ by their lengths only.
fn alike(visits: &[Visit]) -> Vec<usize> {
    let found: Vec<&str> = visits
        .iter()
        .flat_map(|visit| &visit.steps)
        .filter_map(
            |step| if let KeyStep::Read(Some(value)) = step { Some(&**value) } else { None },
        )
        .collect();
    let plain = |text: &Rc<str>| -> Rc<str> {
        let is_found = found.iter().any(|value| value.contains(&**text));
        if is_found { Rc::clone(text) } else { Rc::from("?".repeat(text.len())) }
    };
    let mut seen: Vec<(usize, Vec<KeyStep>)> = Vec::new();
    let mut first = Vec::new();
    for (at, visit) in visits.iter().enumerate() {
        // Most are answered, and nobody asks about those: a long history would be compared with
        // itself.
        if visit.is_known() {
            first.push(at);
            continue;
        }
        let mut steps = visit.steps.clone();
        for step in &mut steps {
            if let KeyStep::Put { value: text, .. } | KeyStep::Append { tail: text, .. } = step {
                *text = plain(text);
            }
        }
        let same = seen.iter().find(|(_, others)| *others == steps).map(|(same, _)| *same);
        if same.is_none() {
            seen.push((at, steps));
        }
        first.push(same.unwrap_or(at));
    }
    first
}
