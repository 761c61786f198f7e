//! Commands over the whole keyspace: SCAN, KEYS, DBSIZE, RANDOMKEY. All of them ask shards for
//! pages or counts at one snapshot.
//!
//! ```text
//!   newest?  ─► every shard that will be asked ─► the session has seen the highest answer ─► begin ─► pages or counts, until all are read
//! ```
//! Others may have acknowledged writes by clocks ahead of this one, and fences lie ahead of every
//! clock. A snapshot at or above what the shards know of holds whatever anybody was told before the
//! command came.
//!
//! ```text
//!   cursor of SCAN   63  62  61    60              47 46                        0
//!                   ┌───┬───┬───────┬──────────────────┬───────────────────────────┐
//!                   │ 0 │ 0 │ order │ shard, its place │ cursor within the shard   │  0: the beginning, and the end
//!                   └───┴───┴───────┴──────────────────┴───────────────────────────┘
//! ```
//! `order`: the keyspace's keys are in order. So a gateway that serves a keyspace of the other kind tells
//! that a cursor is none of its own. Cursors fit a signed number, because some clients read them so. SCAN's pages are taken at the
//! time of each call: a key that is present throughout is returned, at least once. KEYS and DBSIZE
//! are exact at one snapshot, which an open transaction protects.
//!
//! Where the keyspace's keys are in order, KEYS reads the range that its pattern can match, in order, and
//! so does SCAN when its pattern begins with something to go by ([`super::key_range`]).

use timestone_cluster::limits::MAX_SHARDS;
use timestone_session::SessionError;
use timestone_types::KeyspaceId;
use timestone_types::limits::ANY_POSITION;
use timestone_types::{AbortKind, AbortReason, Timestamp};
use timestone_wire::limits::MAX_SCAN_ENTRIES;
use timestone_wire::resp::ReplyWriter;
use timestone_wire::{
    Count, Counted, Frame, Kind, Message, Newest, NewestIs, Range, RangePage, Scan, ScanPage,
};

use crate::backend::Backend;
use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::glob::Glob;
use crate::commands::integer;
use crate::commands::table::Cmd;
use crate::failure::Failure;
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobId, JobKind, Operation};
use crate::jobs::key_range::{IN_ORDER, KeyRangeRead, RangeEnd, is_in_order};
use crate::limits::{
    KEYS_PAGE, MAX_KEYS_REPLY_BYTES, MAX_PATTERN_BYTES, SCAN_DEFAULT_COUNT, SCAN_ROUNDS,
};

const CURSOR_BITS: u32 = 47;
const CURSOR: u64 = (1 << CURSOR_BITS) - 1;
/// The cursor goes through all keys of a keyspace whose keys are in order.
const OF_ORDERED: u64 = IN_ORDER >> 1;
const _: () = assert!((MAX_SHARDS as u64) << CURSOR_BITS <= OF_ORDERED, "shards have other bits");
/// Room for what stands before the keys in an answer: two lengths of arrays and a cursor.
const HEAD_BYTES: usize = 64;
/// Where RANDOMKEY begins to look: anywhere below this. Behind the shard's last key it goes on at
/// the beginning.
const RANDOM_CURSOR: u64 = (1 << 42) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScanKind {
    Scan,
    Keys,
    Count,
    Random,
}

/// How far a shard was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ShardCursor {
    shard: usize,
    cursor: u64,
    done: bool,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyspaceScan {
    kind: ScanKind,
    shards: usize,
    places: Vec<ShardCursor>,
    /// The argument that holds the pattern.
    pattern: Option<u32>,
    /// Keys of a type are asked for that there is not.
    nothing: bool,
    limit: u32,
    /// The highest timestamp that a shard answered with, and whether all of them have.
    newest: Timestamp,
    knows_newest: bool,
    /// The keyspace's keys are in order.
    is_ordered: bool,
    at: Timestamp,
    /// RANDOMKEY: how many shards were looked through from their beginning.
    looked_through: usize,
    random: u64,
    /// The keys as they will be answered, behind room for the head: there may be many, so that they
    /// are not copied.
    found: Vec<u8>,
    keys: usize,
    counted: u64,
    /// What is read in the order of keys instead, and where that ended.
    range: Option<Box<KeyRangeRead>>,
    range_end: RangeEnd,
}

impl KeyspaceScan {
    /// Reads a command's arguments.
    ///
    /// # Errors
    /// What the command answers instead.
    pub(crate) fn parse(
        cmd: Cmd,
        args: Args<'_>,
        shards: usize,
        keyspace: KeyspaceId,
    ) -> Result<Self, Failure> {
        let all = (0..shards).map(|shard| ShardCursor { shard, cursor: 0, done: false });
        let mut scan = Self {
            kind: ScanKind::Count,
            shards,
            places: Vec::new(),
            pattern: None,
            nothing: false,
            limit: KEYS_PAGE,
            newest: Timestamp::ZERO,
            knows_newest: false,
            is_ordered: keyspace.is_ordered(),
            at: Timestamp::ZERO,
            looked_through: 0,
            random: 0,
            found: Vec::new(),
            keys: 0,
            counted: 0,
            range: None,
            range_end: RangeEnd::More,
        };
        match cmd {
            Cmd::Keys if args.get(1).len() > MAX_PATTERN_BYTES => {
                return Err(Failure::PATTERN_TOO_LONG);
            }
            Cmd::Dbsize => scan.places = all.collect(),
            Cmd::Keys => {
                scan.kind = ScanKind::Keys;
                scan.pattern = (args.get(1) != b"*").then_some(1);
                if keyspace.is_ordered() {
                    scan.range = Some(Box::new(KeyRangeRead::of_pattern(args.get(1), keyspace)));
                } else {
                    scan.places = all.collect();
                }
            }
            Cmd::Randomkey => {
                scan.kind = ScanKind::Random;
                scan.limit = 1;
            }
            _ => {
                scan.kind = ScanKind::Scan;
                scan.limit = SCAN_DEFAULT_COUNT;
                scan.scan_options(args, keyspace)?;
            }
        }
        Ok(scan)
    }

    /// No more places than shards are looked at.
    fn assert_sound(&self) {
        debug_assert!(self.places.len() <= self.shards.max(1), "{} places", self.places.len());
        debug_assert!(self.looked_through <= self.shards, "no shard is looked through twice");
    }

    fn scan_options(&mut self, args: Args<'_>, keyspace: KeyspaceId) -> Result<(), Failure> {
        debug_assert!(self.places.is_empty(), "options are read once");
        let cursor = integer::parse_cursor(args.get(1)).ok_or(Failure::CURSOR)?;
        let mut at = 2;
        while at < args.len() {
            if at + 1 == args.len() {
                return Err(Failure::SYNTAX);
            }
            let value = args.get(at + 1);
            if args.is(at, b"COUNT") {
                let count = integer::parse(value).ok_or(Failure::NOT_AN_INTEGER)?;
                if count < 1 {
                    return Err(Failure::SYNTAX);
                }
                self.limit = u32::try_from(count).unwrap_or(u32::MAX).min(MAX_SCAN_ENTRIES);
            } else if args.is(at, b"MATCH") {
                if value.len() > MAX_PATTERN_BYTES {
                    return Err(Failure::PATTERN_TOO_LONG);
                }
                self.pattern = (value != b"*").then_some(at as u32 + 1);
            } else if args.is(at, b"TYPE") {
                self.nothing = !value.eq_ignore_ascii_case(b"string");
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 2;
        }
        let is_of_ordered = cursor & (IN_ORDER | OF_ORDERED) != 0;
        if cursor > 0 && is_of_ordered != self.is_ordered {
            return Err(Failure::CURSOR_OF_ANOTHER_KEYSPACE);
        }
        let cursor = if self.is_ordered { self.resume(cursor, args, keyspace) } else { cursor };
        if self.range.is_some() {
            return Ok(());
        }
        let shard = usize::try_from(cursor >> CURSOR_BITS).unwrap_or(usize::MAX);
        // A cursor that was never given out: like Redis, answer something harmless.
        let done = shard >= self.shards;
        self.places.push(ShardCursor {
            shard: shard.min(self.shards.saturating_sub(1)),
            cursor: cursor & CURSOR,
            done,
        });
        Ok(())
    }

    /// A scan of keys that are in order begins, or goes on: in order, if its pattern has something to
    /// go by. The cursor with which it goes on otherwise.
    fn resume(&mut self, cursor: u64, args: Args<'_>, keyspace: KeyspaceId) -> u64 {
        debug_assert!(self.kind == ScanKind::Scan && self.range.is_none());
        if cursor > 0 && !is_in_order(cursor) {
            return cursor & !OF_ORDERED;
        }
        let pattern = self.pattern.map_or(&b"*"[..], |at| args.get(at as usize));
        let mut range = KeyRangeRead::of_pattern(pattern, keyspace);
        if !range.is_everything() && range.resume(cursor) {
            self.range = Some(Box::new(range));
        }
        // What was given out for another pattern says nothing here: all keys are gone through.
        0
    }

    /// Whether a refusal says that the cursor cannot go on, and not that the snapshot was too old: a
    /// shard that does not know the cursor says that snapshots end right behind the one asked for.
    pub(crate) fn is_lost(&self, reason: &AbortReason) -> bool {
        let goes_on = self.places.first().is_some_and(|place| place.cursor > 0);
        let is_scan = self.kind == ScanKind::Scan && goes_on && self.knows_newest;
        is_scan && reason.kind == AbortKind::TooOld && reason.at == self.at.next()
    }

    /// Whether the snapshot may be chosen.
    pub(crate) const fn knows_newest(&self) -> bool {
        self.knows_newest
    }

    /// The places, among the shards, of those that will be asked.
    fn concerned(&self) -> core::ops::Range<usize> {
        match (self.kind, self.places.first()) {
            (ScanKind::Scan, Some(place)) if !place.done => place.shard..place.shard + 1,
            (ScanKind::Scan, _) if self.range.is_none() => 0..0,
            _ => 0..self.shards,
        }
    }

    /// An attempt begins, at a snapshot; `random` picks RANDOMKEY's first place.
    pub(crate) fn begin(&mut self, at: Timestamp, random: u64) {
        self.at = at;
        // Nothing of an earlier attempt is counted any more.
        self.forget();
        self.keys = 0;
        self.counted = 0;
        self.looked_through = 0;
        self.random = random;
        self.range_end = RangeEnd::More;
        if let Some(range) = &mut self.range {
            range.begin(self.shards);
        }
        match self.kind {
            ScanKind::Scan => {}
            ScanKind::Keys | ScanKind::Count => {
                for place in &mut self.places {
                    (place.cursor, place.done) = (0, false);
                }
            }
            ScanKind::Random => {
                let shard = (random >> 42) as usize % self.shards.max(1);
                self.places.clear();
                self.places.push(ShardCursor {
                    shard,
                    cursor: ANY_POSITION | random & RANDOM_CURSOR,
                    done: self.shards == 0,
                });
            }
        }
        self.assert_sound();
    }

    /// Takes a shard's answer.
    ///
    /// # Errors
    /// An answer that cannot be understood, or too many keys.
    pub(crate) fn take_page(
        &mut self,
        place: usize,
        bytes: &[u8],
        arguments: &ArgumentBuffer,
    ) -> Result<(), Failure> {
        self.assert_sound();
        debug_assert!(place < self.shards.max(1), "a shard that is there has answered");
        let frame = Frame::parse(bytes).map_err(|_| Failure::INTERNAL)?;
        if frame.kind() == Kind::NewestIs {
            self.newest =
                self.newest.max(NewestIs::decode(&frame).map_err(|_| Failure::INTERNAL)?.at);
            return Ok(());
        }
        if frame.kind() == Kind::RangePage {
            return self.take_range_page(place, &frame, arguments);
        }
        let Some(to) = self.places.get_mut(place) else { return Err(Failure::INTERNAL) };
        if frame.kind() == Kind::Counted {
            self.counted += Counted::decode(&frame).map_err(|_| Failure::INTERNAL)?.keys;
            to.done = true;
            return Ok(());
        }
        let page = ScanPage::decode(&frame).map_err(|_| Failure::INTERNAL)?;
        (to.cursor, to.done) = (page.next, page.done);
        if !page.done && (page.next == 0 || page.next > CURSOR) {
            return Err(Failure::INTERNAL);
        }
        let pattern = self.pattern.map(|at| Glob::new(arguments.argument(at)));
        if self.found.is_empty() {
            self.found.resize(HEAD_BYTES, 0);
        }
        let mut reply = ReplyWriter::new(&mut self.found, timestone_wire::resp::Protocol::Resp2);
        if self.kind == ScanKind::Random {
            let count = page.entries.len().max(1);
            if let Some(entry) = { page.entries }.nth(self.random as usize % count) {
                reply.bulk(entry.key);
                self.keys = 1;
            }
            return Ok(());
        }
        for entry in page.entries {
            if self.keys == 2 && timestone_types::is_planted!(LostScanKeys) {
                continue;
            }
            if !self.nothing && pattern.as_ref().is_none_or(|pattern| pattern.matches(entry.key)) {
                reply.bulk(entry.key);
                self.keys += 1;
            }
        }
        if self.found.len() > MAX_KEYS_REPLY_BYTES { Err(Failure::REPLY_TOO_LONG) } else { Ok(()) }
    }

    fn take_range_page(
        &mut self,
        shard: usize,
        frame: &Frame<'_>,
        arguments: &ArgumentBuffer,
    ) -> Result<(), Failure> {
        let page = RangePage::decode(frame).map_err(|_| Failure::INTERNAL)?;
        let pattern = self.pattern.map(|at| Glob::new(arguments.argument(at)));
        let Some(range) = &mut self.range else { return Err(Failure::INTERNAL) };
        range.take(shard, &page, pattern.as_ref())?;
        if self.found_bytes() > MAX_KEYS_REPLY_BYTES {
            return Err(Failure::REPLY_TOO_LONG);
        }
        Ok(())
    }

    /// Takes what is known of the range now; whether another round of questions is needed.
    fn range_goes_on(&mut self) -> bool {
        let Some(range) = &mut self.range else { return false };
        let (known, goes_on) = if self.kind == ScanKind::Keys {
            (range.take_known(), !range.is_done())
        } else {
            self.range_end = range.page_end(SCAN_ROUNDS);
            let known = match self.range_end {
                RangeEnd::Window(window) => range.take_before(window),
                // All of it lies in the window with which this page begins.
                RangeEnd::End | RangeEnd::More | RangeEnd::Dense => range.take_known(),
            };
            (known, self.range_end == RangeEnd::More)
        };
        if self.found.is_empty() {
            self.found.resize(HEAD_BYTES, 0);
        }
        let mut reply = ReplyWriter::new(&mut self.found, timestone_wire::resp::Protocol::Resp2);
        for key in known.iter().filter(|_| !self.nothing) {
            reply.bulk(key);
            self.keys += 1;
        }
        goes_on
    }

    /// Whether another round of questions is needed, after every shard asked has answered.
    fn goes_on(&mut self) -> bool {
        self.assert_sound();
        if self.range.is_some() {
            return self.range_goes_on();
        }
        match self.kind {
            ScanKind::Scan => false,
            ScanKind::Keys | ScanKind::Count => self.places.iter().any(|place| !place.done),
            ScanKind::Random => {
                let Some(place) = self.places.first_mut() else { return false };
                if self.keys > 0 {
                    return false;
                }
                if place.done {
                    if self.looked_through == self.shards {
                        return false;
                    }
                    // From the beginning: the rest of this shard first, then the shards behind it.
                    let shard =
                        (place.shard + usize::from(self.looked_through > 0)) % self.shards.max(1);
                    *place = ShardCursor { shard, cursor: 0, done: false };
                    self.looked_through += 1;
                }
                true
            }
        }
    }

    /// The cursor with which the next SCAN goes on.
    fn next_cursor(&self) -> u64 {
        if let Some(range) = &self.range {
            return match self.range_end {
                RangeEnd::Window(window) => range.cursor_at(window),
                RangeEnd::Dense => range.cursor_of_all(),
                RangeEnd::End | RangeEnd::More => 0,
            };
        }
        let (shard, cursor) = match self.places.first() {
            Some(place) if !place.done => (place.shard, place.cursor),
            Some(place) if place.shard + 1 < self.shards => (place.shard + 1, 0),
            _ => return 0,
        };
        let order = if self.is_ordered { OF_ORDERED } else { 0 };
        debug_assert!(cursor <= CURSOR && shard < usize::from(MAX_SHARDS), "each has its bits");
        order | (shard as u64) << CURSOR_BITS | cursor
    }

    /// Bytes of the keys that were found.
    pub(crate) fn found_bytes(&self) -> usize {
        self.found.len() + self.range.as_ref().map_or(0, |range| range.waiting_bytes())
    }

    /// Forgets the keys that were found.
    pub(crate) fn forget(&mut self) {
        self.found = Vec::new();
        if let Some(range) = &mut self.range {
            range.forget();
        }
        self.assert_sound();
    }

    /// The answer, and where in the buffer it begins.
    fn answer(&mut self, protocol: timestone_wire::resp::Protocol) -> (Vec<u8>, usize) {
        let mut head = Vec::new();
        let mut writer = ReplyWriter::new(&mut head, protocol);
        match self.kind {
            ScanKind::Count => writer.integer(i64::try_from(self.counted).unwrap_or(i64::MAX)),
            ScanKind::Random if self.keys == 0 => writer.null(),
            ScanKind::Random => {}
            ScanKind::Keys => writer.array(self.keys),
            ScanKind::Scan => {
                writer.array(2);
                writer.bulk(self.next_cursor().to_string().as_bytes());
                writer.array(self.keys);
            }
        }
        if self.found.len() <= HEAD_BYTES {
            return (head, 0);
        }
        debug_assert!(head.len() <= HEAD_BYTES, "there is room for the head");
        let start = HEAD_BYTES - head.len();
        self.found[start..HEAD_BYTES].copy_from_slice(&head);
        (core::mem::take(&mut self.found), start)
    }
}

/// Asks the shards that will be read how new they are.
///
/// # Errors
/// A shard could not be asked.
pub(crate) fn ask_newest(
    jobs: &mut Jobs,
    backend: &mut Backend,
    now: Timestamp,
    id: JobId,
    job: &mut Job,
) -> Result<(), SessionError> {
    let JobKind::Scan(scan) = &job.kind else { return Ok(()) };
    let (concerned, keyspace) = (scan.concerned(), backend.keyspace());
    jobs.table.number(job, concerned.len() as u64);
    for (index, place) in (0..).zip(concerned) {
        #[cfg(feature = "planted-bugs")]
        if backend.leaves_out(place) {
            continue;
        }
        let operation = Operation::Job(id, job.attempt.first_op + index);
        backend.ask_shard(now, place, operation, |envelope, out| {
            Newest { keyspace }.encode(envelope, out)
        })?;
        job.attempt.left += 1;
    }
    debug_assert!(job.attempt.left <= job.attempt.ops, "each question has a number");
    Ok(())
}

/// Asks every shard that is not read to its end.
///
/// # Errors
/// A shard could not be asked.
pub(crate) fn ask_shards(
    jobs: &mut Jobs,
    backend: &mut Backend,
    now: Timestamp,
    id: JobId,
    job: &mut Job,
) -> Result<(), SessionError> {
    #[cfg(feature = "planted-bugs")]
    if let JobKind::Scan(scan) = &mut job.kind {
        scan.places.iter_mut().for_each(|place| place.done |= backend.leaves_out(place.shard));
        if let Some(range) = &mut scan.range {
            range.leave_out(|shard| backend.leaves_out(shard));
        }
    }
    if matches!(&job.kind, JobKind::Scan(scan) if scan.range.is_some()) {
        return ask_range(jobs, backend, now, id, job);
    }
    let JobKind::Scan(scan) = &job.kind else { return Ok(()) };
    let places = scan.places.clone();
    let (kind, limit, at) = (scan.kind, scan.limit, scan.at);
    let (client, keyspace) = (backend.engine_ref().client(), backend.keyspace());
    jobs.table.number(job, places.len() as u64);
    for (index, place) in places.iter().enumerate().filter(|(_, place)| !place.done) {
        let operation = Operation::Job(id, job.attempt.first_op + index as u64);
        let cursor = place.cursor;
        backend.ask_shard(now, place.shard, operation, |envelope, out| {
            if kind == ScanKind::Count {
                Count { keyspace, at, client }.encode(envelope, out);
            } else {
                Scan { keyspace, cursor, limit, at, client, with_values: false }
                    .encode(envelope, out);
            }
        })?;
        job.attempt.left += 1;
    }
    debug_assert!(job.attempt.left <= job.attempt.ops, "each question has a number");
    Ok(())
}

/// Asks every shard of whose part of the range nothing is known that was not handed out.
///
/// # Errors
/// A shard could not be asked, or knows no ranges.
fn ask_range(
    jobs: &mut Jobs,
    backend: &mut Backend,
    now: Timestamp,
    id: JobId,
    job: &mut Job,
) -> Result<(), SessionError> {
    backend.engine_ref().shards().all_read_ranges()?;
    let (client, keyspace) = (backend.engine_ref().client(), backend.keyspace());
    let JobKind::Scan(scan) = &job.kind else { return Ok(()) };
    jobs.table.number(job, scan.shards as u64);
    let JobKind::Scan(scan) = &mut job.kind else { return Ok(()) };
    let Some(range) = &mut scan.range else { return Ok(()) };
    // Whatever the first pages of a scan have not told takes longer ones.
    let limit = if range.rounds() == 0 { scan.limit } else { scan.limit.max(KEYS_PAGE) };
    let (at, end) = (scan.at, range.end().map(<[u8]>::to_vec));
    let (has_end, to) = (end.is_some(), end.as_deref().unwrap_or_default());
    for (shard, from) in range.ask() {
        let operation = Operation::Job(id, job.attempt.first_op + shard as u64);
        backend.ask_shard(now, shard, operation, |envelope, out| {
            Range { keyspace, at, client, limit, has_end, from, to }.encode(envelope, out);
        })?;
        job.attempt.left += 1;
    }
    debug_assert!(job.attempt.left <= job.attempt.ops, "each question has a number");
    Ok(())
}

/// What follows when every shard that was asked has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ScanStep {
    /// The snapshot may be chosen: the attempt begins again.
    Restart,
    /// More was asked for.
    Waits,
    /// The answer is written.
    Done,
    /// The command fails.
    Failed(Failure),
}

/// Takes a scan on after every shard that was asked has answered.
pub(crate) fn proceed(
    jobs: &mut Jobs,
    backend: &mut Backend,
    now: Timestamp,
    id: JobId,
    job: &mut Job,
) -> ScanStep {
    assert_eq!(job.attempt.left, 0, "every shard that was asked has answered");
    let JobKind::Scan(scan) = &mut job.kind else { return ScanStep::Failed(Failure::INTERNAL) };
    if !scan.knows_newest {
        scan.knows_newest = true;
        backend.saw(scan.newest);
        job.retry.attempts -= 1;
        return ScanStep::Restart;
    }
    if scan.goes_on() {
        let asked = ask_shards(jobs, backend, now, id, job);
        job.attempt.failure = asked.err().map(Failure::from).or(job.attempt.failure.take());
        if job.attempt.left > 0 {
            return ScanStep::Waits;
        }
        return ScanStep::Failed(job.attempt.failure.take().unwrap_or(Failure::INTERNAL));
    }
    if let (JobKind::Scan(scan), Some(command)) = (&mut job.kind, job.commands.first_mut()) {
        let (reply, start) = scan.answer(command.requester.protocol);
        command.reply = start..reply.len();
        job.reply = reply;
    }
    ScanStep::Done
}

#[cfg(test)]
mod tests {
    use timestone_types::{Expiry, Version};
    use timestone_wire::{Envelope, ScanEntry, ScanPageWriter};

    use super::*;
    use crate::commands::table::find;

    fn parse(text: &str) -> (Result<KeyspaceScan, Failure>, ArgumentBuffer) {
        parse_in(KeyspaceId::DEFAULT, text)
    }

    fn parse_in(
        keyspace: KeyspaceId,
        text: &str,
    ) -> (Result<KeyspaceScan, Failure>, ArgumentBuffer) {
        let mut arguments = ArgumentBuffer::default();
        text.split(' ').for_each(|word| arguments.push(word.as_bytes()));
        let cmd = find(arguments.argument(0)).unwrap().cmd;
        (KeyspaceScan::parse(cmd, arguments.all(), 3, keyspace), arguments)
    }

    fn page(keys: &[&str], next: u64, done: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ScanPageWriter::begin(&Envelope::default(), &mut out);
        for key in keys {
            let entry = ScanEntry {
                version: Version::ZERO,
                expires_at: Expiry::NEVER,
                key: key.as_bytes(),
                value: b"",
            };
            assert!(writer.push(&entry));
        }
        writer.finish(next, done);
        out
    }

    fn answer(scan: &KeyspaceScan) -> String {
        let (reply, start) = scan.clone().answer(timestone_wire::resp::Protocol::Resp2);
        String::from_utf8(reply[start..].to_vec()).unwrap()
    }

    #[test]
    fn scan_goes_from_shard_to_shard_and_ends_at_zero() {
        let (scan, arguments) = parse("SCAN 0 MATCH a* COUNT 5");
        let mut scan = scan.unwrap();
        assert_eq!(scan.limit, 5);
        scan.take_page(0, &page(&["a1", "b1"], 77, false), &arguments).unwrap();
        assert_eq!(answer(&scan), "*2\r\n$2\r\n77\r\n*1\r\n$2\r\na1\r\n");
        scan.begin(Timestamp::ZERO, 0);
        scan.take_page(0, &page(&[], 0, true), &arguments).unwrap();
        let second = 1u64 << CURSOR_BITS;
        assert_eq!(scan.next_cursor(), second);
        let (scan, arguments) = parse(&format!("SCAN {}", (2u64 << CURSOR_BITS) + 9));
        let mut scan = scan.unwrap();
        assert_eq!(scan.places, [ShardCursor { shard: 2, cursor: 9, done: false }]);
        scan.take_page(0, &page(&["z"], 0, true), &arguments).unwrap();
        assert_eq!(scan.next_cursor(), 0);
        let highest = OF_ORDERED | u64::from(MAX_SHARDS - 1) << CURSOR_BITS | CURSOR;
        assert!(highest < IN_ORDER && i64::try_from(IN_ORDER | highest).is_ok());
    }

    /// Whose servers behind one address serve several keyspaces gets cursors of one at the other.
    #[test]
    fn a_cursor_of_a_keyspace_whose_keys_are_in_another_order_is_refused() {
        let spaces = [KeyspaceId::DEFAULT, KeyspaceId::numbered(4, false).ordered()];
        let cursors = |space| {
            let (scan, arguments) = parse_in(space, "SCAN 0");
            let mut scan = scan.unwrap();
            scan.take_page(0, &page(&["a"], 77, false), &arguments).unwrap();
            let within = scan.next_cursor();
            scan.take_page(0, &page(&["b"], 0, true), &arguments).unwrap();
            [within, scan.next_cursor()]
        };
        let range = KeyRangeRead::of_pattern(b"a*", spaces[1]);
        let in_order = [range.cursor_at(1), range.cursor_of_all()];
        let of_ordered = cursors(spaces[1]).into_iter().chain(in_order);
        let all = cursors(spaces[0]).map(|cursor| (cursor, spaces[0]));
        let all = all.into_iter().chain(of_ordered.map(|cursor| (cursor, spaces[1])));
        let mut count = 0;
        for (cursor, of) in all {
            for space in spaces {
                for options in ["", " MATCH a*", " COUNT 5"] {
                    match parse_in(space, &format!("SCAN {cursor}{options}")).0 {
                        Ok(scan) => assert!(space == of && !scan.concerned().is_empty()),
                        Err(failure) => {
                            assert_eq!(failure, Failure::CURSOR_OF_ANOTHER_KEYSPACE);
                            assert!(space != of, "{cursor} is one of its own");
                        }
                    }
                    count += 1;
                }
            }
        }
        assert_eq!(count, 6 * 2 * 3);
    }

    #[test]
    fn what_an_earlier_attempt_has_found_is_given_back() {
        let (scan, arguments) = parse("KEYS *");
        let mut scan = scan.unwrap();
        scan.begin(Timestamp::ZERO, 0);
        scan.take_page(0, &page(&["a"; 1000], 0, true), &arguments).unwrap();
        assert!(scan.found.capacity() > 1000);
        scan.begin(Timestamp::ZERO, 0);
        assert_eq!((scan.found_bytes(), scan.found.capacity()), (0, 0));
    }

    #[test]
    fn scan_refuses_what_redis_refuses() {
        for (text, failure) in [
            ("SCAN x", Failure::CURSOR),
            ("SCAN 0 COUNT 0", Failure::SYNTAX),
            ("SCAN 0 COUNT x", Failure::NOT_AN_INTEGER),
            ("SCAN 0 MATCH", Failure::SYNTAX),
            ("SCAN 0 NOPE 1", Failure::SYNTAX),
        ] {
            assert_eq!(parse(text).0, Err(failure), "{text}");
        }
        let (scan, arguments) = parse("SCAN 0 TYPE list");
        let mut scan = scan.unwrap();
        scan.take_page(0, &page(&["a"], 5, false), &arguments).unwrap();
        assert_eq!(answer(&scan), "*2\r\n$1\r\n5\r\n*0\r\n");
        // A cursor of a shard that is not there is at its end.
        let far = parse(&format!("SCAN {}", 9u64 << CURSOR_BITS)).0.unwrap();
        assert!(far.places[0].done);
        assert_eq!(far.next_cursor(), 0);
    }

    #[test]
    fn only_a_cursor_is_lost_and_only_when_the_shard_means_it() {
        let now = Timestamp::from_nanos(50);
        let reason = |at| AbortReason { at, ..AbortReason::of(AbortKind::TooOld) };
        for (text, lost) in [("SCAN 77", true), ("SCAN 0", false), ("DBSIZE", false)] {
            let mut scan = parse(text).0.unwrap();
            scan.begin(now, 0);
            assert!(!scan.is_lost(&reason(now.next())), "{text}: of which snapshot?");
            scan.knows_newest = true;
            assert_eq!(scan.is_lost(&reason(now.next())), lost, "{text}");
            // The snapshot is too old indeed: another one follows.
            assert!(!scan.is_lost(&reason(now.next().next())), "{text}");
            let other = AbortReason { at: now.next(), ..AbortReason::of(AbortKind::Prepared) };
            assert!(!scan.is_lost(&other), "{text}");
        }
    }

    #[test]
    fn randomkey_looks_everywhere_before_it_gives_up() {
        let (scan, arguments) = parse("RANDOMKEY");
        let mut scan = scan.unwrap();
        scan.begin(Timestamp::ZERO, (1 << 42) | 5);
        let mut looked = Vec::new();
        loop {
            let place = scan.places[0];
            looked.push((place.shard, place.cursor));
            scan.take_page(0, &page(&[], 0, true), &arguments).unwrap();
            if !scan.goes_on() {
                break;
            }
        }
        assert_eq!(looked, [(1, ANY_POSITION | 5), (1, 0), (2, 0), (0, 0)]);
        assert_eq!(answer(&scan), "$-1\r\n");
        scan.begin(Timestamp::ZERO, 5);
        scan.take_page(0, &page(&["k"], 3, false), &arguments).unwrap();
        assert!(!scan.goes_on());
        assert_eq!(answer(&scan), "$1\r\nk\r\n");
    }
}
