//! The reference shard: a naive participant in memory that speaks the frames of the native
//! protocol, with every version of every key in a map.
//!
//! It shows the rules in their simplest form, without recent-access table, log or index, so that
//! what goes wrong in a test is the doing of what is under test. Source:
//! docs/protocol/transactions.md.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_types::{
    AbortKind, AbortReason, ClientId, Epoch, Expiry, KeyspaceId, Sequence, ShardId, Timestamp,
    TxnId, Version,
};
use timestone_wire as wire;
use wire::{
    Condition, Decide, DecideAck, ErrorCode, ErrorReply, Frame, Kind, Message, ReadAt, TxnState,
    Verdict, WriteAction,
};

/// A waiting request is answered around the prepared write after this long.
const DECISION_WAIT: Duration = Duration::from_millis(50);

type Key = (KeyspaceId, Vec<u8>);

#[derive(Default, Debug)]
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
}

type PreparedWrites = Vec<(Key, Option<Vec<u8>>, Expiry)>;

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
#[derive(Debug)]
pub struct ReferenceShard {
    /// Its id.
    pub id: ShardId,
    /// Frames of an older one are refused.
    pub epoch: Epoch,
    keys: BTreeMap<Key, History>,
    outcomes: BTreeMap<TxnId, Outcome>,
    /// Frames that wait for a decision, and until when.
    parked: Vec<(Timestamp, Vec<u8>)>,
    /// What it refuses with for now.
    pub refuse: Option<Refuse>,
    /// How far its clock is ahead; its answers carry a reading of it then.
    pub clock_ahead: Option<Duration>,
    /// Reads of the latest are answered around a prepared write, as a shard may whose writes are
    /// decided and not applied in time.
    pub reads_around: bool,
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
            outcomes: BTreeMap::new(),
            parked: Vec::new(),
            refuse: None,
            clock_ahead: None,
            reads_around: false,
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

    /// Answers a transaction or a write from now on as one that was refused.
    pub fn refused(&mut self, txn: TxnId, reason: AbortReason) {
        self.outcomes.insert(txn, Outcome::Aborted(reason));
    }

    /// Whether nothing is promised here.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.keys.values().all(|history| history.prepared.is_none())
    }

    /// Takes one frame; appends what is answered.
    pub fn take(&mut self, now: Timestamp, bytes: &[u8], out: &mut Vec<u8>) {
        let frame = Frame::parse(bytes).unwrap();
        *self.frames_seen.entry(frame.kind()).or_default() += 1;
        if frame.kind() != Kind::Report
            && let Some(refuse) = self.refuse.as_mut().filter(|refuse| refuse.times > 0)
        {
            refuse.times -= 1;
            let reply =
                ErrorReply::new(refuse.code, "refused by the test").with_detail(refuse.detail);
            return reply.with_retry_after(refuse.retry_after).encode(&self.envelope(&frame), out);
        }
        if frame.envelope().epoch < self.epoch && frame.kind() != Kind::Report {
            let reply = ErrorReply::new(ErrorCode::StaleEpoch, "an older epoch")
                .with_detail(u64::from(self.epoch.get()));
            return reply.encode(&self.envelope(&frame), out);
        }
        self.serve(now, &frame, false, out);
    }

    /// Serves what has waited long enough, or can be served now.
    pub fn turn(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        for (until, bytes) in std::mem::take(&mut self.parked) {
            let frame = Frame::parse(&bytes).unwrap();
            let parked = self.parked.len();
            self.serve(now, &frame, until <= now, out);
            if self.parked.len() > parked {
                self.parked.last_mut().unwrap().0 = until;
            }
        }
    }

    fn envelope(&self, frame: &Frame<'_>) -> wire::Envelope {
        wire::Envelope {
            shard: self.id,
            ..frame.reply_envelope(self.epoch, frame.envelope().map_version)
        }
    }

    fn park(&mut self, now: Timestamp, frame: &Frame<'_>) {
        self.parked.push((now.saturating_add(DECISION_WAIT), frame.bytes().to_vec()));
    }

    fn serve(&mut self, now: Timestamp, frame: &Frame<'_>, is_late: bool, out: &mut Vec<u8>) {
        let envelope = self.envelope(frame);
        match frame.kind() {
            Kind::Get => self.get(now, frame, &wire::Get::decode(frame).unwrap(), is_late, out),
            Kind::Prepare => {
                self.prepare(now, frame, &wire::Prepare::decode(frame).unwrap(), is_late, out)
            }
            Kind::Write => {
                self.write(now, frame, &wire::Write::decode(frame).unwrap(), is_late, out)
            }
            Kind::Decide => {
                let decide = Decide::decode(frame).unwrap();
                match (decide.decision(), self.outcomes.contains_key(&decide.txn)) {
                    (Some(commit), false) => {
                        return wire::FetchWriteSet { txn: decide.txn, commit }
                            .encode(&envelope, out);
                    }
                    (decision, _) => self.decide(decide.txn, decision),
                }
                DecideAck { txn: decide.txn }.encode(&envelope, out);
                self.turn(now, out);
            }
            Kind::WriteSet => {
                let set = wire::WriteSet::decode(frame).unwrap();
                let writes = writes_of(&set.body);
                self.outcomes
                    .entry(set.txn)
                    .or_insert(Outcome::Prepared { commit: set.commit, writes });
                self.decide(set.txn, Some(set.commit));
                DecideAck { txn: set.txn }.encode(&envelope, out);
                self.turn(now, out);
            }
            Kind::Status => {
                let txn = wire::Status::decode(frame).unwrap().txn;
                wire::StatusIs { txn, state: self.state(txn) }.encode(&envelope, out);
            }
            Kind::Report => {
                let report = wire::Report::decode(frame).unwrap();
                self.reports.push((now, report.client, report.watermark, report.acked));
            }
            Kind::Count => wire::Counted { keys: self.keys.len() as u64 }.encode(&envelope, out),
            other => panic!("the engine never sends {}", other.name()),
        }
    }

    fn get(
        &mut self,
        now: Timestamp,
        frame: &Frame<'_>,
        get: &wire::Get<'_>,
        is_late: bool,
        out: &mut Vec<u8>,
    ) {
        let history = self.keys.entry((get.keyspace, get.key.to_vec())).or_default();
        let (at, blocked) = match get.at {
            ReadAt::Snapshot(at) => (at, history.prepared.is_some_and(|(_, commit)| commit <= at)),
            ReadAt::Latest(at) => (at.max(history.latest().timestamp), history.prepared.is_some()),
        };
        if blocked && get.wait && !is_late {
            return self.park(now, frame);
        }
        if blocked && matches!(get.at, ReadAt::Latest(_)) && !self.reads_around {
            let error = ErrorReply {
                other: history.prepared.map(|(txn, _)| txn),
                ..ErrorReply::new(ErrorCode::Prepared, "not decided in time")
            };
            return error.encode(&self.envelope(frame), out);
        }
        history.latest_read = history.latest_read.max(at);
        let (version, expires_at, value) = history.at(at);
        let (present, value) = (value.is_some(), value.unwrap_or_default().to_vec());
        let reply =
            wire::Value { version, expires_at, prepared_before: blocked, present, value: &value };
        reply.encode(&self.envelope(frame), out);
    }

    fn prepare(
        &mut self,
        now: Timestamp,
        frame: &Frame<'_>,
        prepare: &wire::Prepare<'_>,
        is_late: bool,
        out: &mut Vec<u8>,
    ) {
        let txn = prepare.txn;
        let verdict = match self.outcomes.get(&txn) {
            Some(Outcome::Prepared { commit, .. }) if prepare.commit <= *commit => Verdict::Yes,
            Some(Outcome::Committed(_)) => Verdict::Yes,
            Some(Outcome::Aborted(reason)) => Verdict::No(*reason),
            _ => {
                self.unprepare(txn);
                match self.validate(prepare) {
                    Err(AbortReason {
                        kind: AbortKind::Prepared | AbortKind::WriteConflict,
                        at,
                        ..
                    }) if prepare.wait && !is_late && at == Timestamp::ZERO => {
                        return self.park(now, frame);
                    }
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
        self.turn(now, out);
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
            let latest_absent = history.versions.last().is_none_or(|entry| entry.2.is_none());
            if history.latest() != read.version && !(read.absent && latest_absent) {
                return Err(reason(AbortKind::ReadConflict, None, history.latest().timestamp));
            }
        }
        for (item, write) in (reads..).zip(prepare.body.writes()) {
            let history = self.keys.entry((write.keyspace, write.key.to_vec())).or_default();
            if let Some((other, _)) = history.prepared.filter(|(other, _)| *other != prepare.txn) {
                let at = Timestamp::ZERO;
                return Err(AbortReason {
                    kind: AbortKind::WriteConflict,
                    item: Some(item),
                    other: Some(other),
                    at,
                });
            }
            let mark = history.latest_read.max(history.latest().timestamp);
            if mark >= prepare.commit {
                later = later.max(Some(mark.next()));
            }
        }
        Ok(later)
    }

    fn promise(&mut self, prepare: &wire::Prepare<'_>) {
        for read in prepare.body.reads() {
            let history = self.keys.entry((read.keyspace, read.key.to_vec())).or_default();
            history.latest_read = history.latest_read.max(prepare.commit);
        }
        let writes = writes_of(&prepare.body);
        for (key, ..) in &writes {
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
                for (key, value, expiry) in writes {
                    let history = self.keys.entry(key).or_default();
                    let version = Version::new(commit, txn.client);
                    let place = history.versions.partition_point(|entry| entry.0 < version);
                    history.versions.insert(place, (version, expiry, value));
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

    fn write(
        &mut self,
        now: Timestamp,
        frame: &Frame<'_>,
        write: &wire::Write<'_>,
        is_late: bool,
        out: &mut Vec<u8>,
    ) {
        let txn = write.txn;
        let key = (write.keyspace, write.key.to_vec());
        let history = self.keys.entry(key.clone()).or_default();
        let (version, expiry, value) = history.at(Timestamp::MAX.previous());
        let previous = (version, expiry, value.map(<[u8]>::to_vec));
        let mark = history.latest_read.max(history.latest().timestamp);
        let (verdict, commit) = match self.outcomes.get(&txn) {
            Some(Outcome::Committed(at)) => (Verdict::Yes, *at),
            Some(Outcome::Aborted(reason)) => (Verdict::No(*reason), write.commit),
            _ if history.prepared.is_some() && write.wait && !is_late => {
                return self.park(now, frame);
            }
            _ if history.prepared.is_some() => {
                return ErrorReply::new(ErrorCode::Prepared, "not decided in time")
                    .encode(&self.envelope(frame), out);
            }
            _ if mark >= write.commit => (Verdict::Later(mark.next()), write.commit),
            _ => {
                let holds = match write.condition {
                    Condition::Always => true,
                    Condition::IfAbsent => previous.2.is_none(),
                    Condition::IfPresent => previous.2.is_some(),
                    Condition::IfVersion(version) => previous.0 == version,
                    Condition::IfValue(value) => previous.2.as_deref() == Some(value),
                };
                if holds {
                    let value = (write.action != WriteAction::Delete).then(|| write.value.to_vec());
                    let writes = vec![(key, value, write.expires_at)];
                    self.outcomes.insert(txn, Outcome::Prepared { commit: write.commit, writes });
                    self.decide(txn, Some(write.commit));
                    (Verdict::Yes, write.commit)
                } else {
                    let reason = AbortReason::of(AbortKind::Condition);
                    self.outcomes.insert(txn, Outcome::Aborted(reason));
                    (Verdict::No(reason), write.commit)
                }
            }
        };
        let shows = write.return_previous || matches!(verdict, Verdict::No(_));
        let previous_value =
            previous.2.as_deref().filter(|_| write.return_previous).unwrap_or_default();
        let written = wire::Written {
            txn,
            commit,
            verdict,
            previous_present: shows && previous.2.is_some(),
            previous_version: previous.0,
            previous_expires_at: previous.1,
            previous_value,
        };
        written.encode(&self.envelope(frame), out);
        self.turn(now, out);
    }
}

fn writes_of(body: &wire::PrepareBody<'_>) -> PreparedWrites {
    let write = |entry: wire::WriteEntry<'_>| {
        let value = (entry.kind == wire::WriteKind::Put).then(|| entry.value.to_vec());
        ((entry.keyspace, entry.key.to_vec()), value, entry.expires_at)
    };
    body.writes().map(write).collect()
}
