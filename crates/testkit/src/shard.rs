//! The reference shard: a naive participant in memory that speaks the frames of the native
//! protocol, with every version of every key in a map.
//!
//! It shows the rules in their simplest form, without recent-access table, log or index, so that
//! what goes wrong in a test is the doing of what is under test. Source:
//! docs/protocol/transactions.md.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_types::{
    AbortKind, AbortReason, ClientId, Direction, Epoch, Expiry, KeyspaceId, Sequence, ShardId,
    Timestamp, TxnId, Version, key_behind,
};
use timestone_wire as wire;
use wire::{
    Condition, Decide, DecideAck, ErrorCode, ErrorReply, Frame, Kind, Message, ReadAt, TxnState,
    Verdict, WriteAction, WriteKind,
};

/// A waiting request is answered around the prepared write after this long.
const DECISION_WAIT: Duration = Duration::from_millis(50);

/// What a test's conflicts are answered with.
const CONFLICT: AbortReason = AbortReason::of(AbortKind::WriteConflict);

type Key = (KeyspaceId, Vec<u8>);

#[derive(Clone, Default, Debug)]
struct History {
    /// Ascending; `None` is a tombstone.
    versions: Vec<(Version, Expiry, Option<Vec<u8>>)>,
    latest_read: Timestamp,
    prepared: Option<(TxnId, Timestamp)>,
}

impl History {
    fn latest(&self) -> Version {
        self.versions.last().map_or(Version::ZERO, |entry| entry.0)
    }

    fn at(&self, at: Timestamp) -> (Version, Expiry, Option<&[u8]>) {
        let found = self.versions.iter().rev().find(|entry| entry.0.timestamp <= at);
        found.map_or((Version::ZERO, Expiry::NEVER, None), |(version, expiry, value)| {
            (*version, *expiry, value.as_deref().filter(|_| !expiry.has_passed(at)))
        })
    }

    /// The latest version, with its value unless it has expired at `at`.
    fn latest_at(&self, at: Timestamp) -> (Version, Expiry, Option<&[u8]>) {
        let (version, expiry, value) =
            self.versions.last().map_or((Version::ZERO, Expiry::NEVER, None), |entry| {
                (entry.0, entry.1, entry.2.as_deref())
            });
        (version, expiry, value.filter(|_| !expiry.has_passed(at)))
    }

    fn raise(&mut self, at: Timestamp) {
        self.latest_read = self.latest_read.max(at);
    }
}

/// A write that is prepared: what, key, value, expiry. A fence has an empty key.
type PreparedWrites = Vec<(WriteKind, Key, Vec<u8>, Expiry)>;

#[derive(Clone, Debug)]
enum Outcome {
    Prepared { commit: Timestamp, writes: PreparedWrites },
    Committed(Timestamp),
    Aborted(AbortReason),
}

/// What the shard is told to refuse everything with, for a test.
#[derive(Clone, Copy, Debug)]
pub struct Refuse {
    /// The code of the refusal.
    pub code: ErrorCode,
    /// Its detail.
    pub detail: u64,
    /// Its hint.
    pub retry_after: Duration,
    /// How many requests still.
    pub times: u32,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct ReferenceShard {
    /// Its id.
    pub id: ShardId,
    /// Frames of an older one are refused.
    pub epoch: Epoch,
    keys: BTreeMap<Key, History>,
    /// When each keyspace was deleted last.
    fences: BTreeMap<KeyspaceId, Timestamp>,
    outcomes: BTreeMap<TxnId, Outcome>,
    /// Frames that wait for a decision, and until when.
    parked: Vec<(Timestamp, Vec<u8>)>,
    /// Before this it is not primary yet: it refuses everything, in the epoch before its own.
    pub serves_from: Timestamp,
    /// Every key counts as read up to here: earlier primaries may have read it.
    floor: Timestamp,
    /// What it refuses with for now.
    pub refuse: Option<Refuse>,
    /// So many prepares and writes that are new, the next ones, are refused with a conflict, and
    /// nothing of them is kept.
    pub conflicts: u32,
    /// How far its clock is ahead; its answers carry a reading of it then.
    pub clock_ahead: Option<Duration>,
    /// Reads of the latest are answered around a prepared write, as a shard may whose writes are
    /// decided and not applied in time.
    pub reads_around: bool,
    /// At or above which timestamps what is latest was asked for, refused or not.
    pub latest_asked: Vec<Timestamp>,
    /// The watermark that it tells who asks with a report.
    pub watermark: Timestamp,
    /// The reports that came: when, of whom, watermark, acknowledged bound.
    pub reports: Vec<(Timestamp, ClientId, Timestamp, Sequence)>,
    /// How often each transaction's writes were carried out: once, if all is right.
    pub executed: BTreeMap<TxnId, u32>,
    /// How many frames of each kind came.
    pub frames_seen: BTreeMap<Kind, u32>,
}

impl ReferenceShard {
    /// An empty shard.
    #[must_use]
    pub fn new(id: ShardId) -> Self {
        Self {
            id,
            epoch: Epoch::new(1),
            keys: BTreeMap::new(),
            fences: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            parked: Vec::new(),
            serves_from: Timestamp::ZERO,
            floor: Timestamp::ZERO,
            refuse: None,
            conflicts: 0,
            clock_ahead: None,
            reads_around: false,
            latest_asked: Vec::new(),
            watermark: Timestamp::ZERO,
            reports: Vec::new(),
            executed: BTreeMap::new(),
            frames_seen: BTreeMap::new(),
        }
    }

    /// How many frames of this kind came.
    #[must_use]
    pub fn seen(&self, kind: Kind) -> u32 {
        self.frames_seen.get(&kind).copied().unwrap_or(0)
    }

    /// The latest value of a key of the default keyspace.
    #[must_use]
    pub fn latest(&self, key: &[u8]) -> Option<&[u8]> {
        let history = self.keys.get(&(KeyspaceId::DEFAULT, key.to_vec()))?;
        history.versions.last().and_then(|entry| entry.2.as_deref())
    }

    /// Its version.
    #[must_use]
    pub fn latest_version(&self, key: &[u8]) -> Version {
        self.keys.get(&(KeyspaceId::DEFAULT, key.to_vec())).map_or(Version::ZERO, History::latest)
    }

    /// When a keyspace was deleted last.
    #[must_use]
    pub fn fence(&self, keyspace: KeyspaceId) -> Option<Timestamp> {
        self.fences.get(&keyspace).copied()
    }

    /// Raises a key's access record as somebody else's read would.
    pub fn read_by_other(&mut self, key: &[u8], at: Timestamp) {
        let history = self.keys.entry((KeyspaceId::DEFAULT, key.to_vec())).or_default();
        history.latest_read = history.latest_read.max(at);
    }

    /// Writes a version as somebody else's transaction would.
    pub fn written_by_other(&mut self, key: &[u8], version: Version, value: &[u8]) {
        let history = self.keys.entry((KeyspaceId::DEFAULT, key.to_vec())).or_default();
        history.versions.push((version, Expiry::NEVER, Some(value.to_vec())));
    }

    /// Prepares a key as somebody else's transaction would; `None` takes it away.
    pub fn prepared_by_other(&mut self, key: &[u8], prepared: Option<(TxnId, Timestamp)>) {
        self.keys.entry((KeyspaceId::DEFAULT, key.to_vec())).or_default().prepared = prepared;
    }

    /// When a frame that waits has waited long enough.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.parked.iter().map(|entry| entry.0).min()
    }

    /// The shard at its next primary, which takes over at `now`: it has every record that counts, in
    /// the next epoch, and lets nothing in below what the last primary may have read.
    #[must_use]
    pub fn taken_over(&self, now: Timestamp) -> Self {
        let epoch = Epoch::new(self.epoch.get() + 1);
        let (parked, refuse) = (Vec::new(), None);
        Self { epoch, floor: self.floor.max(now), parked, refuse, ..self.clone() }
    }

    /// Answers a transaction or a write from now on as one that was refused.
    pub fn refused(&mut self, txn: TxnId, reason: AbortReason) {
        self.outcomes.insert(txn, Outcome::Aborted(reason));
    }

    /// Remembers a transaction as committed that has written nothing here.
    pub fn committed_by_other(&mut self, txn: TxnId, at: Timestamp) {
        self.outcomes.insert(txn, Outcome::Committed(at));
    }

    /// Whether nothing is promised here.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.keys.values().all(|history| history.prepared.is_none())
    }

    /// Takes one frame; appends what is answered, to it and to what waited for it.
    pub fn take(&mut self, now: Timestamp, bytes: &[u8], out: &mut Vec<u8>) {
        if self.answer(now, bytes, false, out) {
            self.turn(now, out);
        } else {
            self.parked.push((now.saturating_add(DECISION_WAIT), bytes.to_vec()));
        }
    }

    /// Serves what has waited long enough, or can be served now.
    pub fn turn(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        loop {
            let before = self.parked.len();
            for (until, bytes) in std::mem::take(&mut self.parked) {
                let frame = Frame::parse(&bytes).unwrap();
                if !self.serve(now, &frame, until <= now, out) {
                    self.parked.push((until, bytes));
                }
            }
            if self.parked.len() == before {
                return;
            }
        }
    }

    /// Appends the answer to one frame. `false`, and nothing appended, while it waits for a
    /// decision: for a host that keeps what waits. A frame that is `late` waits no longer.
    pub fn answer(&mut self, now: Timestamp, bytes: &[u8], late: bool, out: &mut Vec<u8>) -> bool {
        let frame = Frame::parse(bytes).unwrap();
        *self.frames_seen.entry(frame.kind()).or_default() += 1;
        if frame.kind() == Kind::Get
            && let ReadAt::Latest(at) = wire::Get::decode(&frame).unwrap().at
        {
            self.latest_asked.push(at);
        }
        if now < self.serves_from {
            if frame.kind() != Kind::Report {
                let before = Epoch::new(self.epoch.get() - 1);
                let map_version = frame.envelope().map_version;
                ErrorReply::new(ErrorCode::Unavailable, "not primary yet")
                    .encode(&frame.reply_envelope(before, map_version), out);
            }
            return true;
        }
        if frame.kind() != Kind::Report
            && let Some(refuse) = self.refuse.as_mut().filter(|refuse| refuse.times > 0)
        {
            refuse.times -= 1;
            let reply =
                ErrorReply::new(refuse.code, "refused by the test").with_detail(refuse.detail);
            reply.with_retry_after(refuse.retry_after).encode(&self.envelope(&frame), out);
            return true;
        }
        if frame.envelope().epoch < self.epoch && frame.kind() != Kind::Report {
            let reply = ErrorReply::new(ErrorCode::StaleEpoch, "an older epoch")
                .with_detail(u64::from(self.epoch.get()));
            reply.encode(&self.envelope(&frame), out);
            return true;
        }
        self.serve(now, &frame, late, out)
    }

    fn envelope(&self, frame: &Frame<'_>) -> wire::Envelope {
        wire::Envelope {
            shard: self.id,
            ..frame.reply_envelope(self.epoch, frame.envelope().map_version)
        }
    }

    /// Whether it was served; else it waits for a decision.
    fn serve(&mut self, now: Timestamp, frame: &Frame<'_>, late: bool, out: &mut Vec<u8>) -> bool {
        let envelope = self.envelope(frame);
        match frame.kind() {
            Kind::Get => return self.get(frame, late, out),
            Kind::Prepare => return self.prepare(frame, late, out),
            Kind::Write => return self.write(now, frame, late, out),
            Kind::Decide => {
                let decide = Decide::decode(frame).unwrap();
                match (decide.decision(), self.outcomes.contains_key(&decide.txn)) {
                    (Some(commit), false) => {
                        wire::FetchWriteSet { txn: decide.txn, commit }.encode(&envelope, out);
                        return true;
                    }
                    (decision, _) => self.decide(decide.txn, decision),
                }
                DecideAck { txn: decide.txn }.encode(&envelope, out);
            }
            Kind::WriteSet => {
                let set = wire::WriteSet::decode(frame).unwrap();
                let writes = writes_of(&set.body);
                self.outcomes
                    .entry(set.txn)
                    .or_insert(Outcome::Prepared { commit: set.commit, writes });
                self.decide(set.txn, Some(set.commit));
                DecideAck { txn: set.txn }.encode(&envelope, out);
            }
            Kind::Status => {
                let txn = wire::Status::decode(frame).unwrap().txn;
                wire::StatusIs { txn, state: self.state(txn) }.encode(&envelope, out);
            }
            // Whoever asks for the end of a transaction waits for it here.
            Kind::Terminate => return false,
            Kind::Report => {
                let report = wire::Report::decode(frame).unwrap();
                self.reports.push((now, report.client, report.watermark, report.acked));
                if frame.envelope().request.get() != 0 {
                    wire::WatermarkIs { at: self.watermark }.encode(&envelope, out);
                }
            }
            Kind::Ping => wire::Done {}.encode(&envelope, out),
            Kind::Newest => {
                let versions = self.keys.values().map(|history| history.latest().timestamp);
                let fences = self.fences.values().copied();
                let at = versions.chain(fences).max().unwrap_or_default().max(self.floor);
                wire::NewestIs { at }.encode(&envelope, out);
            }
            Kind::Count => {
                let wire::Count { keyspace, at, .. } = wire::Count::decode(frame).unwrap();
                let keys = self.keys_of(keyspace).filter(|(_, history)| history.at(at).2.is_some());
                wire::Counted { keys: keys.count() as u64 }.encode(&envelope, out);
            }
            Kind::Scan => self.scan(&wire::Scan::decode(frame).unwrap(), &envelope, out),
            Kind::Range | Kind::RangeDown => {
                let (range, direction) = wire::Range::decode_any(frame).unwrap();
                self.range(&range, direction, &envelope, out);
            }
            other => panic!("the engine never sends {}", other.name()),
        }
        true
    }

    fn keys_of(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (&[u8], &History)> {
        let is_of = move |((of, _), _): &(&Key, &History)| *of == keyspace;
        self.keys.iter().filter(is_of).map(|((_, key), history)| (&key[..], history))
    }

    /// A page of the keys, by their places in the order of keys.
    fn scan(&self, scan: &wire::Scan, envelope: &wire::Envelope, out: &mut Vec<u8>) {
        let mut page = wire::ScanPageWriter::begin(envelope, out);
        let mut end = scan.cursor;
        let mut keys = self.keys_of(scan.keyspace).zip(1..).skip(scan.cursor as usize).peekable();
        while page.count() < scan.limit
            && let Some(((key, history), place)) = keys.next()
        {
            end = place;
            if history.at(scan.at).2.is_some() {
                let (version, expires_at, value) = (Version::ZERO, Expiry::NEVER, &b""[..]);
                assert!(page.push(&wire::ScanEntry { version, expires_at, key, value }));
            }
        }
        page.finish(end, keys.peek().is_none());
    }

    /// A page of a range of keys, in their order.
    fn range(
        &self,
        range: &wire::Range<'_>,
        direction: Direction,
        envelope: &wire::Envelope,
        out: &mut Vec<u8>,
    ) {
        assert!(range.keyspace.is_ordered(), "only keys in order have ranges");
        let inside = |key: &[u8]| key >= range.from && range.end().is_none_or(|end| key < end);
        let mut keys: Vec<&[u8]> = self
            .keys_of(range.keyspace)
            .filter(|(key, history)| inside(key) && history.at(range.at).2.is_some())
            .map(|(key, _)| key)
            .collect();
        keys.sort_unstable_by(|one, other| direction.compare(one, other));
        let next = keys.get(range.limit as usize).map(|&key| match direction {
            Direction::Ascending => key.to_vec(),
            Direction::Descending => key_behind(key),
        });
        keys.truncate(range.limit as usize);
        let mut page = wire::RangePageWriter::begin(envelope, next.as_deref(), out);
        for key in keys {
            let (version, expires_at, value) = (Version::ZERO, Expiry::NEVER, &b""[..]);
            assert!(page.push(&wire::ScanEntry { version, expires_at, key, value }));
        }
        page.finish();
    }

    fn get(&mut self, frame: &Frame<'_>, late: bool, out: &mut Vec<u8>) -> bool {
        let get = wire::Get::decode(frame).unwrap();
        let history = self.keys.entry((get.keyspace, get.key.to_vec())).or_default();
        let (at, blocked) = match get.at {
            ReadAt::Snapshot(at) => (at, history.prepared.is_some_and(|(_, commit)| commit <= at)),
            ReadAt::Latest(at) => (at.max(history.latest().timestamp), history.prepared.is_some()),
        };
        if blocked && get.wait && !late {
            return false;
        }
        if blocked && matches!(get.at, ReadAt::Latest(_)) && !self.reads_around {
            let error = ErrorReply {
                other: history.prepared.map(|(txn, _)| txn),
                ..ErrorReply::new(ErrorCode::Prepared, "not decided in time")
            };
            error.encode(&self.envelope(frame), out);
            return true;
        }
        history.raise(at);
        let (version, expires_at, value) = history.at(at);
        let (present, value) = (value.is_some(), value.unwrap_or_default().to_vec());
        let reply =
            wire::Value { version, expires_at, prepared_before: blocked, present, value: &value };
        reply.encode(&self.envelope(frame), out);
        true
    }

    fn prepare(&mut self, frame: &Frame<'_>, late: bool, out: &mut Vec<u8>) -> bool {
        let prepare = &wire::Prepare::decode(frame).unwrap();
        let txn = prepare.txn;
        let verdict = match self.outcomes.get(&txn).cloned() {
            Some(Outcome::Prepared { commit, .. }) if prepare.commit <= commit => Verdict::Yes,
            Some(Outcome::Committed(_)) => Verdict::Yes,
            Some(Outcome::Aborted(reason)) => Verdict::No(reason),
            None if self.takes_conflict() => Verdict::No(CONFLICT),
            _ => {
                self.unprepare(txn);
                match self.validate(prepare) {
                    Err(AbortReason {
                        kind: AbortKind::Prepared | AbortKind::WriteConflict,
                        at: Timestamp::ZERO,
                        ..
                    }) if prepare.wait && !late => return false,
                    Err(reason) => {
                        self.outcomes.insert(txn, Outcome::Aborted(reason));
                        Verdict::No(reason)
                    }
                    Ok(Some(later)) => Verdict::Later(later),
                    Ok(None) => {
                        self.promise(prepare);
                        Verdict::Yes
                    }
                }
            }
        };
        wire::Vote { txn, commit: prepare.commit, verdict }.encode(&self.envelope(frame), out);
        true
    }

    /// Whether the test wants this one to be refused with a conflict.
    const fn takes_conflict(&mut self) -> bool {
        let is_wanted = self.conflicts > 0;
        self.conflicts = self.conflicts.saturating_sub(1);
        is_wanted
    }

    /// What a write of a key has to lie above.
    fn mark_of(&self, key: &Key) -> Timestamp {
        let fence = self.fences.get(&key.0).copied().unwrap_or_default().max(self.floor);
        self.keys
            .get(key)
            .map_or(fence, |history| fence.max(history.latest_read).max(history.latest().timestamp))
    }

    fn validate(&mut self, prepare: &wire::Prepare<'_>) -> Result<Option<Timestamp>, AbortReason> {
        let mut later = None;
        let reads = prepare.body.reads().len() as u32;
        for (item, read) in (0..).zip(prepare.body.reads()) {
            let history = self.keys.entry((read.keyspace, read.key.to_vec())).or_default();
            let reason = |kind, other, at| AbortReason { kind, item: Some(item), other, at };
            if let Some((other, _)) = history.prepared.filter(|(other, _)| *other != prepare.txn) {
                return Err(reason(AbortKind::Prepared, Some(other), Timestamp::ZERO));
            }
            if read.expires_at.has_passed(prepare.commit) && !read.absent {
                return Err(reason(AbortKind::Expired, None, read.expires_at.timestamp()));
            }
            let latest_absent = history.latest_at(prepare.commit).2.is_none();
            if history.latest() != read.version && !(read.absent && latest_absent) {
                return Err(reason(AbortKind::ReadConflict, None, history.latest().timestamp));
            }
        }
        for (item, write) in (reads..).zip(prepare.body.writes()) {
            if write.kind == WriteKind::Fence {
                let keys = self.keys.keys().filter(|key| key.0 == write.keyspace);
                let highest = keys.map(|key| self.mark_of(key)).max().unwrap_or(self.floor);
                if highest >= prepare.commit {
                    later = later.max(Some(highest.next()));
                }
                continue;
            }
            let key = (write.keyspace, write.key.to_vec());
            let history = self.keys.entry(key.clone()).or_default();
            if let Some((other, _)) = history.prepared.filter(|(other, _)| *other != prepare.txn) {
                let at = Timestamp::ZERO;
                return Err(AbortReason {
                    kind: AbortKind::WriteConflict,
                    item: Some(item),
                    other: Some(other),
                    at,
                });
            }
            let mark = self.mark_of(&key);
            if mark >= prepare.commit {
                later = later.max(Some(mark.next()));
            }
        }
        Ok(later)
    }

    fn promise(&mut self, prepare: &wire::Prepare<'_>) {
        for read in prepare.body.reads() {
            let history = self.keys.entry((read.keyspace, read.key.to_vec())).or_default();
            history.raise(prepare.commit);
        }
        let writes = writes_of(&prepare.body);
        for (_, key, ..) in writes.iter().filter(|write| write.0 != WriteKind::Fence) {
            self.keys.entry(key.clone()).or_default().prepared =
                Some((prepare.txn, prepare.commit));
        }
        if prepare.single && writes.is_empty() {
            return;
        }
        self.outcomes.insert(prepare.txn, Outcome::Prepared { commit: prepare.commit, writes });
        if prepare.single {
            self.decide(prepare.txn, Some(prepare.commit));
        }
    }

    fn unprepare(&mut self, txn: TxnId) {
        for history in self.keys.values_mut() {
            history.prepared = history.prepared.filter(|(own, _)| *own != txn);
        }
    }

    /// Decides a transaction here; a second time it must be the same.
    pub fn decide(&mut self, txn: TxnId, decision: Option<Timestamp>) {
        match (self.outcomes.get(&txn).cloned(), decision) {
            (Some(Outcome::Committed(at)), decision) => {
                assert_eq!(decision, Some(at), "{txn} was committed")
            }
            (Some(Outcome::Aborted(_)), decision) => {
                assert_eq!(decision, None, "{txn} was aborted")
            }
            (Some(Outcome::Prepared { writes, .. }), Some(commit)) => {
                self.unprepare(txn);
                let version = Version::new(commit, txn.client);
                for (kind, key, value, expiry) in writes {
                    self.apply(version, kind, key, value, expiry);
                }
                *self.executed.entry(txn).or_default() += 1;
                self.outcomes.insert(txn, Outcome::Committed(commit));
            }
            (_, Some(commit)) => panic!("{txn} commits at {commit} without its write set"),
            (_, None) => {
                self.unprepare(txn);
                self.outcomes.insert(txn, Outcome::Aborted(AbortReason::of(AbortKind::Terminated)));
            }
        }
    }

    fn apply(
        &mut self,
        version: Version,
        kind: WriteKind,
        key: Key,
        value: Vec<u8>,
        expiry: Expiry,
    ) {
        let insert = |history: &mut History, value| {
            let place = history.versions.partition_point(|entry| entry.0 < version);
            history.versions.insert(place, (version, expiry, value));
        };
        match kind {
            WriteKind::Put => insert(self.keys.entry(key).or_default(), Some(value)),
            WriteKind::Delete => insert(self.keys.entry(key).or_default(), None),
            WriteKind::Fence => {
                self.fences.insert(key.0, version.timestamp);
                let of_it = self.keys.iter_mut().filter(|((of, _), _)| *of == key.0);
                of_it.for_each(|(_, history)| insert(history, None));
            }
        }
    }

    /// Where a transaction stands, after which it stands still.
    pub fn freeze(&mut self, txn: TxnId) -> TxnState {
        let aborted = Outcome::Aborted(AbortReason::of(AbortKind::Terminated));
        self.outcomes.entry(txn).or_insert(aborted);
        self.state(txn)
    }

    /// Where a transaction stands.
    #[must_use]
    pub fn state(&self, txn: TxnId) -> TxnState {
        match self.outcomes.get(&txn) {
            None => TxnState::Unknown,
            Some(Outcome::Prepared { commit, .. }) => TxnState::Prepared(*commit),
            Some(Outcome::Committed(at)) => TxnState::Committed(*at),
            Some(Outcome::Aborted(_)) => TxnState::Aborted,
        }
    }

    fn write(&mut self, now: Timestamp, frame: &Frame<'_>, late: bool, out: &mut Vec<u8>) -> bool {
        let write = &wire::Write::decode(frame).unwrap();
        let txn = write.txn;
        let key = (write.keyspace, write.key.to_vec());
        let history = self.keys.entry(key.clone()).or_default();
        let (version, expiry, value) = history.latest_at(write.commit.max(now));
        let previous = (version, expiry, value.map(<[u8]>::to_vec));
        let is_prepared = history.prepared.is_some();
        let mark = self.mark_of(&key);
        let (verdict, commit) = match self.outcomes.get(&txn).cloned() {
            Some(Outcome::Committed(at)) => (Verdict::Yes, at),
            Some(Outcome::Aborted(reason)) => (Verdict::No(reason), write.commit),
            _ if is_prepared && write.wait && !late => return false,
            _ if is_prepared => {
                // For good, as a participant refuses.
                self.outcomes.insert(txn, Outcome::Aborted(CONFLICT));
                (Verdict::No(CONFLICT), write.commit)
            }
            _ if self.takes_conflict() => (Verdict::No(CONFLICT), write.commit),
            _ if mark >= write.placed_by() => (Verdict::Later(mark.next()), write.commit),
            _ => {
                let holds = match write.condition {
                    Condition::Always => true,
                    Condition::IfAbsent => previous.2.is_none(),
                    Condition::IfPresent => previous.2.is_some(),
                    Condition::IfVersion(version) => previous.0 == version,
                    Condition::IfValue(value) => previous.2.as_deref() == Some(value),
                };
                if holds {
                    let (kind, value, expires_at) = match write.action {
                        WriteAction::Delete => (WriteKind::Delete, &[][..], Expiry::NEVER),
                        WriteAction::Put | WriteAction::PutFrom => {
                            (WriteKind::Put, write.value, write.expires_at)
                        }
                        WriteAction::PutKeepExpiry if previous.2.is_some() => {
                            (WriteKind::Put, write.value, previous.1)
                        }
                        WriteAction::PutKeepExpiry => (WriteKind::Put, write.value, Expiry::NEVER),
                    };
                    let mut writes = vec![(kind, key, value.to_vec(), expires_at)];
                    // A deletion of nothing writes nothing.
                    writes.retain(|_| kind == WriteKind::Put || previous.2.is_some());
                    let commit = write.commit.max(mark.next());
                    self.outcomes.insert(txn, Outcome::Prepared { commit, writes });
                    self.decide(txn, Some(commit));
                    (Verdict::Yes, commit)
                } else {
                    // The condition has read the key.
                    self.keys.entry(key).or_default().raise(write.commit);
                    let reason = AbortReason::of(AbortKind::Condition);
                    self.outcomes.insert(txn, Outcome::Aborted(reason));
                    (Verdict::No(reason), write.commit)
                }
            }
        };
        let previous_value =
            previous.2.as_deref().filter(|_| write.return_previous).unwrap_or_default();
        let written = wire::Written {
            txn,
            commit,
            verdict,
            previous_present: previous.2.is_some(),
            previous_version: previous.0,
            previous_expires_at: previous.1,
            previous_value,
        };
        written.encode(&self.envelope(frame), out);
        true
    }
}

fn writes_of(body: &wire::PrepareBody<'_>) -> PreparedWrites {
    let write = |entry: wire::WriteEntry<'_>| {
        let key = (entry.keyspace, entry.key.to_vec());
        (entry.kind, key, entry.value.to_vec(), entry.expires_at)
    };
    body.writes().map(write).collect()
}
