//! What calls did to single keys, and saw there: the steps that each call took on each key, at one
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use timestone_types::Timestamp;

use super::{misfit, words};
use crate::check::verdict::CheckResult;
use crate::redis::{Arguments, RedisHistory, Reply, Request};

/// What becomes of a key's time to live when it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lifetime {
    /// It never expires.
    Forever,
    /// It keeps the one that it has.
    Kept,
    /// It expires after this long.
    For(Duration),
}

/// When a key is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Only {
    Always,
    Absent,
    Present,
}

/// One step of a visit. Those that were answered say what was seen; `None` where nothing is known
/// of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum KeyStep {
    /// The value was read; `None`: there was none.
    Read(Option<Rc<str>>),
    /// It was there, or it was not.
    Present(bool),
    /// It was so long, or absent and zero.
    Length(usize),
    /// Its time to live was asked for, and it was there: how much was left, if it had one.
    TimeToLive(Option<Duration>),
    Put {
        value: Rc<str>,
        life: Lifetime,
        only: Only,
    },
    Remove,
    Add {
        by: i64,
        sum: Option<i64>,
    },
    Append {
        tail: Rc<str>,
        length: Option<usize>,
    },
    /// A time to live was set, if it was there.
    Expire(Duration),
    /// Its time to live was taken away, or there was none.
    Persist(Option<bool>),
}

impl KeyStep {
    /// Whether it changes nothing.
    pub(super) const fn is_look(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Present(_) | Self::Length(_) | Self::TimeToLive(_))
    }

    const fn expires(&self) -> bool {
        matches!(self, Self::Put { life: Lifetime::For(_), .. } | Self::Expire(_))
    }

    const fn creates(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Add { .. } | Self::Append { .. })
    }
}

/// A call at one key.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) call: usize,
    pub(super) connection: u64,
    pub(super) begin: Timestamp,
    /// [`Timestamp::MAX`] where it was never answered, or nobody knows.
    pub(super) end: Timestamp,
    pub(super) steps: Vec<KeyStep>,
}

/// How a visit certainly left its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// There, without a time to live.
    Present,
    Absent,
    Unclear,
}

impl Visit {
    /// Whether it certainly took place.
    pub(super) fn is_known(&self) -> bool {
        self.end < Timestamp::MAX
    }

    pub(super) fn is_look(&self) -> bool {
        self.steps.iter().all(KeyStep::is_look)
    }

    pub(super) fn may_create(&self) -> bool {
        self.steps.iter().any(KeyStep::creates)
    }

    /// Whether the key may be gone because of it, at once or later.
    pub(super) fn may_remove(&self) -> bool {
        self.steps.iter().any(|step| step.expires() || *step == KeyStep::Remove)
    }

    pub(super) fn sets_expiry(&self) -> bool {
        self.steps.iter().any(KeyStep::expires)
    }

    /// Whether it certainly wrote the key or took it away.
    pub(super) fn changed(&self) -> bool {
        let mut present = false;
        let mut changed = false;
        for step in &self.steps {
            match step {
                KeyStep::Read(seen) => present = seen.is_some(),
                KeyStep::Present(seen) => present = *seen,
                KeyStep::Put { .. }
                | KeyStep::Add { .. }
                | KeyStep::Append { .. }
                | KeyStep::Persist(Some(true)) => changed = true,
                KeyStep::Remove | KeyStep::Expire(_) => changed |= present,
                KeyStep::Length(_) | KeyStep::TimeToLive(_) | KeyStep::Persist(_) => {}
            }
        }
        changed && self.is_known()
    }

    /// How it left its key; `never`: no call sets a time to live there.
    pub(super) fn left(&self, never: bool) -> Left {
        if !self.is_known() {
            return Left::Unclear;
        }
        let there = if never { Left::Present } else { Left::Unclear };
        let mut left = Left::Unclear;
        for step in &self.steps {
            left = match step {
                KeyStep::Put { life: Lifetime::Forever, .. } => Left::Present,
                KeyStep::Put { .. } | KeyStep::Expire(_) => Left::Unclear,
                KeyStep::Add { .. }
                | KeyStep::Append { .. }
                | KeyStep::Read(Some(_))
                | KeyStep::Present(true) => there,
                KeyStep::Remove | KeyStep::Read(None) | KeyStep::Present(false) => Left::Absent,
                KeyStep::TimeToLive(None) | KeyStep::Persist(Some(true)) => Left::Present,
                KeyStep::Length(_) | KeyStep::TimeToLive(Some(_)) | KeyStep::Persist(_) => left,
            };
        }
        left
    }
}

/// All visits, by key, in the order in which their calls were sent.
#[derive(Debug, Default)]
pub(super) struct Visits {
    pub(super) of: BTreeMap<Rc<str>, Vec<Visit>>,
}

impl Visits {
    pub(super) fn of(history: &RedisHistory, verdict: &mut CheckResult) -> Self {
        let keys = all_keys(history);
        let mut visits = Self { of: keys.iter().map(|key| (Rc::clone(key), Vec::new())).collect() };
        let mut reading = WatchedReads::default();
        for (at, call) in history.calls.iter().enumerate() {
            let (end, reply) = match &call.answered {
                Some((_, reply)) if reply.is_refusal() => {
                    reading.ends(call.connection, &call.request);
                    continue;
                }
                Some((when, reply)) if !reply.is_unknown() => (*when, Some(reply)),
                _ => (Timestamp::MAX, None),
            };
            let steps = match &call.request {
                Request::One(words) => one(words, reply, &keys),
                Request::Transaction(commands) => match reply {
                    Some(Reply::Nil) => Some(Vec::new()),
                    Some(Reply::Array(replies)) if replies.len() == commands.len() => {
                        let each = commands
                            .iter()
                            .zip(replies)
                            .map(|(words, reply)| one(words, Some(reply), &keys));
                        let each: Option<Vec<_>> = each.collect();
                        let under = reading.under(call.connection);
                        each.map(|each| {
                            under.into_iter().chain(each.into_iter().flatten()).collect()
                        })
                    }
                    None => Some(
                        commands
                            .iter()
                            .filter_map(|words| one(words, None, &keys))
                            .flatten()
                            .collect(),
                    ),
                    Some(_) => None,
                },
            };
            let Some(steps) = steps else {
                misfit(history, at, verdict);
                continue;
            };
            reading.saw(call.connection, &call.request, reply);
            let mut by_key: BTreeMap<Rc<str>, Vec<KeyStep>> = BTreeMap::new();
            for (key, step) in steps {
                by_key.entry(key).or_default().push(step);
            }
            for (key, steps) in by_key {
                if reply.is_none() && steps.iter().all(KeyStep::is_look) {
                    continue;
                }
                let visit = Visit {
                    call: at,
                    connection: call.connection,
                    begin: call.invoked,
                    end,
                    steps,
                };
                visits.of.entry(key).or_default().push(visit);
            }
        }
        visits
    }

    /// Whether no call sets a time to live on the key.
    pub(super) fn is_lasting(visits: &[Visit]) -> bool {
        !visits.iter().any(Visit::sets_expiry)
    }
}

/// What each connection watches, and what it read of that since: a transaction that is carried out
/// found the same.
#[derive(Default)]
struct WatchedReads {
    of: BTreeMap<u64, BTreeMap<Rc<str>, Option<Value>>>,
}

impl WatchedReads {
    fn saw(&mut self, connection: u64, request: &Request, reply: Option<&Reply>) {
        let watched = self.of.entry(connection).or_default();
        match (words(request), reply) {
            ([name, keys @ ..], Some(_)) if name == "WATCH" => {
                for key in keys {
                    watched.entry(Rc::from(key.as_str())).or_insert(None);
                }
            }
            ([name, key], Some(reply)) if name == "GET" => {
                if let Some(seen) = watched.get_mut(key.as_str()) {
                    *seen = read(Some(reply));
                }
            }
            _ => self.ends(connection, request),
        }
    }

    fn ends(&mut self, connection: u64, request: &Request) {
        if matches!(request.name(), "EXEC" | "DISCARD" | "UNWATCH") {
            self.of.remove(&connection);
        }
    }

    fn under(&self, connection: u64) -> Vec<(Rc<str>, KeyStep)> {
        let watched = self.of.get(&connection).into_iter().flatten();
        watched
            .filter_map(|(key, seen)| Some((Rc::clone(key), KeyStep::Read(seen.clone()?))))
            .collect()
    }
}

/// Every key that was named, asked for or answered.
fn all_keys(history: &RedisHistory) -> BTreeSet<Rc<str>> {
    let mut keys = BTreeSet::new();
    let mut add = |key: &str| {
        if !keys.contains(key) {
            keys.insert(Rc::from(key));
        }
    };
    for call in &history.calls {
        let commands = match &call.request {
            Request::One(words) => std::slice::from_ref(words),
            Request::Transaction(commands) => commands,
        };
        for words in commands {
            keys_of(words).iter().for_each(|key| add(key));
        }
        let listed = match (call.request.name(), &call.answered) {
            ("KEYS", Some((_, Reply::Array(listed)))) => listed.as_slice(),
            ("SCAN", Some((_, Reply::Array(parts)))) => match parts.get(1) {
                Some(Reply::Array(listed)) => listed.as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        for key in listed {
            if let Reply::Text(key) = key {
                add(key);
            }
        }
    }
    keys
}

/// The keys that a command names.
fn keys_of(words: &Arguments) -> Vec<&String> {
    let Some((name, rest)) = words.split_first() else { return Vec::new() };
    match name.as_str() {
        "KEYS" | "SCAN" | "DBSIZE" | "FLUSHDB" | "FLUSHALL" | "UNWATCH" | "PING" | "RANDOMKEY" => {
            Vec::new()
        }
        "MGET" | "DEL" | "UNLINK" | "EXISTS" | "WATCH" => rest.iter().collect(),
        "MSET" | "MSETNX" => rest.iter().step_by(2).collect(),
        _ => rest.iter().take(1).collect(),
    }
}

/// Whether a pattern of KEYS and SCAN fits: a beginning, and anything after it.
pub(super) fn fits(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => key.starts_with(beginning),
        None => pattern == key,
    }
}

type Steps = Vec<(Rc<str>, KeyStep)>;

/// What was read; `None`: there was nothing.
type Value = Option<Rc<str>>;

/// What was read, as a value or nothing; `None` where it is no such answer.
fn read(reply: Option<&Reply>) -> Option<Value> {
    match reply? {
        Reply::Text(text) => Some(Some(Rc::from(text.as_str()))),
        Reply::Nil => Some(None),
        _ => None,
    }
}

const fn integer(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Integer(number) => Some(*number),
        _ => None,
    }
}

fn millis(word: &str) -> Option<Duration> {
    word.parse().ok().map(Duration::from_millis)
}

/// The steps of one command, by key; without an answer, what it would have done. `None` where the
/// answer does not fit.
fn one(words: &Arguments, reply: Option<&Reply>, keys: &BTreeSet<Rc<str>>) -> Option<Steps> {
    let (name, rest) = words.split_first()?;
    let key = || rest.first().map(|key| Rc::from(key.as_str()));
    let at_key = |steps: Vec<KeyStep>| {
        let key: Rc<str> = key()?;
        Some(steps.into_iter().map(|step| (Rc::clone(&key), step)).collect())
    };
    match name.as_str() {
        "GET" | "GETDEL" | "GETEX" => at_key(read_of(name, rest, reply)?),
        "SET" | "SETNX" | "GETSET" => at_key(set(name, rest, reply)?),
        "STRLEN" => at_key(match reply {
            Some(reply) => vec![KeyStep::Length(usize::try_from(integer(reply)?).ok()?)],
            None => Vec::new(),
        }),
        "INCR" | "DECR" | "INCRBY" | "DECRBY" => {
            let by = rest.get(1).map_or(Ok(1), |word| word.parse::<i64>()).ok()?;
            let by = if name.starts_with("DECR") { -by } else { by };
            let sum = reply.map(integer);
            if sum == Some(None) {
                return None;
            }
            at_key(vec![KeyStep::Add { by, sum: sum.flatten() }])
        }
        "APPEND" => {
            let length =
                reply.map(|reply| integer(reply).and_then(|length| usize::try_from(length).ok()));
            if length == Some(None) {
                return None;
            }
            at_key(vec![KeyStep::Append {
                tail: Rc::from(rest.get(1)?.as_str()),
                length: length.flatten(),
            }])
        }
        "PEXPIRE" => {
            let expire = KeyStep::Expire(millis(rest.get(1)?)?);
            at_key(match reply.map(integer) {
                None => vec![expire],
                Some(Some(1)) => vec![KeyStep::Present(true), expire],
                Some(Some(0)) => vec![KeyStep::Present(false)],
                Some(_) => return None,
            })
        }
        "PERSIST" => at_key(match reply.map(integer) {
            None => vec![KeyStep::Persist(None)],
            Some(Some(had @ (0 | 1))) => vec![KeyStep::Persist(Some(had == 1))],
            Some(_) => return None,
        }),
        "PTTL" => at_key(match reply.map(integer) {
            None => Vec::new(),
            Some(Some(-2)) => vec![KeyStep::Present(false)],
            Some(Some(-1)) => vec![KeyStep::TimeToLive(None)],
            Some(Some(left)) => {
                vec![KeyStep::TimeToLive(Some(Duration::from_millis(u64::try_from(left).ok()?)))]
            }
            Some(None) => return None,
        }),
        "MGET" | "MSET" | "MSETNX" | "DEL" | "UNLINK" | "EXISTS" => many(name, rest, reply),
        "KEYS" | "FLUSHDB" | "FLUSHALL" => of_all(name, rest, reply, keys),
        "DBSIZE" => reply.is_none_or(|reply| integer(reply).is_some()).then(Vec::new),
        "WATCH" | "UNWATCH" | "DISCARD" | "PING" => {
            reply.is_none_or(|reply| matches!(reply, Reply::Status(_))).then(Vec::new)
        }
        // Pages are judged as scans, not one by one; and what is not known here proves nothing.
        _ => Some(Vec::new()),
    }
}

fn read_of(name: &str, rest: &[String], reply: Option<&Reply>) -> Option<Vec<KeyStep>> {
    let effect = match (name, rest) {
        ("GETDEL", _) => Some(KeyStep::Remove),
        ("GETEX", [_, unit, span]) if unit == "PX" => Some(KeyStep::Expire(millis(span)?)),
        ("GETEX", [_, word]) if word == "PERSIST" => Some(KeyStep::Persist(None)),
        _ => None,
    };
    let Some(reply) = reply else { return Some(effect.into_iter().collect()) };
    let seen = read(Some(reply))?;
    let effect = effect.filter(|_| seen.is_some());
    Some(std::iter::once(KeyStep::Read(seen)).chain(effect).collect())
}

fn set(name: &str, rest: &[String], reply: Option<&Reply>) -> Option<Vec<KeyStep>> {
    let [_, value, options @ ..] = rest else { return None };
    let has = |option: &str| options.iter().any(|word| word == option);
    let span =
        options.iter().position(|word| word == "PX").and_then(|at| millis(options.get(at + 1)?));
    let life = match span {
        Some(span) => Lifetime::For(span),
        None if has("KEEPTTL") => Lifetime::Kept,
        None => Lifetime::Forever,
    };
    let only = match () {
        () if name == "SETNX" || has("NX") => Only::Absent,
        () if has("XX") => Only::Present,
        () => Only::Always,
    };
    let put = KeyStep::Put { value: Rc::from(value.as_str()), life, only };
    let Some(reply) = reply else { return Some(vec![put]) };
    if has("GET") || name == "GETSET" {
        let seen = read(Some(reply))?;
        let written = match only {
            Only::Always => true,
            Only::Absent => seen.is_none(),
            Only::Present => seen.is_some(),
        };
        return Some(std::iter::once(KeyStep::Read(seen)).chain(written.then_some(put)).collect());
    }
    let written = match reply {
        Reply::Status(text) if text == "OK" && name == "SET" => true,
        Reply::Nil if only != Only::Always && name == "SET" => false,
        Reply::Integer(written @ (0 | 1)) if name == "SETNX" => *written == 1,
        _ => return None,
    };
    Some(match (only, written) {
        (Only::Always, _) => vec![put],
        (Only::Absent, true) => vec![KeyStep::Present(false), put],
        (Only::Present, true) => vec![KeyStep::Present(true), put],
        (_, false) => vec![KeyStep::Present(only == Only::Absent)],
    })
}

fn many(name: &str, rest: &[String], reply: Option<&Reply>) -> Option<Steps> {
    let key = |word: &String| -> Rc<str> { Rc::from(word.as_str()) };
    let put = |pair: &[String], only| {
        let value = Rc::from(pair.get(1)?.as_str());
        Some((key(&pair[0]), KeyStep::Put { value, life: Lifetime::Forever, only }))
    };
    match (name, reply) {
        ("MGET", Some(Reply::Array(replies))) if replies.len() == rest.len() => {
            let seen = |(word, reply)| Some((key(word), KeyStep::Read(read(Some(reply))?)));
            rest.iter().zip(replies).map(seen).collect()
        }
        ("MGET" | "EXISTS", None) => Some(Vec::new()),
        ("MSET", None) => rest.chunks(2).map(|pair| put(pair, Only::Always)).collect(),
        ("MSET", Some(Reply::Status(_))) => {
            rest.chunks(2).map(|pair| put(pair, Only::Always)).collect()
        }
        ("MSETNX", None) => rest.chunks(2).map(|pair| put(pair, Only::Absent)).collect(),
        ("MSETNX", Some(Reply::Integer(1))) => {
            let absent = rest.chunks(2).map(|pair| Some((key(&pair[0]), KeyStep::Present(false))));
            absent.chain(rest.chunks(2).map(|pair| put(pair, Only::Absent))).collect()
        }
        // One of several was there.
        ("MSETNX", Some(Reply::Integer(0))) if rest.len() > 2 => Some(Vec::new()),
        ("MSETNX", Some(Reply::Integer(0))) => {
            Some(vec![(key(rest.first()?), KeyStep::Present(true))])
        }
        ("DEL" | "UNLINK", None) => {
            Some(rest.iter().map(|word| (key(word), KeyStep::Remove)).collect())
        }
        ("DEL" | "UNLINK" | "EXISTS", Some(Reply::Integer(count))) => {
            let count = usize::try_from(*count).ok().filter(|count| *count <= rest.len())?;
            let mut steps = Vec::new();
            for word in rest {
                if count == 0 || count == rest.len() {
                    steps.push((key(word), KeyStep::Present(count > 0)));
                }
                if count > 0 && name != "EXISTS" {
                    steps.push((key(word), KeyStep::Remove));
                }
            }
            Some(steps)
        }
        _ => None,
    }
}

fn of_all(
    name: &str,
    rest: &[String],
    reply: Option<&Reply>,
    keys: &BTreeSet<Rc<str>>,
) -> Option<Steps> {
    if name != "KEYS" {
        let is_right = reply.is_none_or(|reply| matches!(reply, Reply::Status(_)));
        return is_right
            .then(|| keys.iter().map(|key| (Rc::clone(key), KeyStep::Remove)).collect());
    }
    let Some(reply) = reply else { return Some(Vec::new()) };
    let Reply::Array(listed) = reply else { return None };
    let text = |reply: &Reply| match reply {
        Reply::Text(text) => Some(text.clone()),
        _ => None,
    };
    let listed: BTreeSet<String> = listed.iter().map(text).collect::<Option<_>>()?;
    let pattern = rest.first()?;
    let fitting = keys.iter().filter(|key| fits(pattern, key));
    Some(fitting.map(|key| (Rc::clone(key), KeyStep::Present(listed.contains(&**key)))).collect())
}
