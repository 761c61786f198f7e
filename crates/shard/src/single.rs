//! Single-key writes: the condition is looked up, evaluated and validated in one turn (SEMEL §3.3).
//!
//! ```text
//!   Write ─► needs the record? ─► store.get ─► previous ─► condition ─► one-key prepare, single = true ─► vote ─► Written
//!                                   └─ page read ─► ReadDone ─┘             └─ Again: look up afresh
//! ```
//! The core is told which version the condition was evaluated against, and asks again when a
//! younger one was committed meanwhile; so no race is left.
//!
//! A repeat looks for its own outcome before it looks up anything, and gets the first answer: the
//! previous value is read just below the write, and was visible then if it was visible to the first
//! copy. Where that cannot be read any more (a damaged page), the outcome of a write that asks for
//! it is *unknown*; it is never told that nothing took place.
//!
//! A put without conditions whose timestamp is too low takes place at a later one at once, if it
//! leaves that to the shard ([`WriteAction::PutFrom`]): on a key that many put it would come too
//! late again and again.
//!
//! Expiry is judged by this server's own time, which never goes back: not by the client's clock,
//! and not by the timestamp that the write gets. While it is in doubt, the write is refused before
//! anything took place.

use timestone_store::{Lookup, ReadOutcome};
use timestone_txn::participant::{
    self, ExpiryRule, Input, JudgedCondition, LatestInStore, Output, Prepare, Token, Wait,
    WriteItem, WriteKind,
};
use timestone_types::{
    Expiry, HashSeed, HashedKey, KeyHash, KeyRef, KeyspaceId, ShardId, Timestamp, Version,
};
use timestone_wire::{self as wire, Frame, Message, PrepareBody, Verdict, WriteAction, WriteEntry};

use crate::reads::expiry;
use crate::requests::pending::{Previous, Repeat, RequestPurpose, read_token};
use crate::shard::Parts;
use crate::shard::wait_of;
use crate::turn::Turn;
use crate::write_sets::put_at_once;

/// Whether the write must know what is there.
fn needs_record(write: &wire::Write<'_>) -> bool {
    write.return_previous
        || write.condition != wire::Condition::Always
        || matches!(write.action, WriteAction::PutKeepExpiry | WriteAction::Delete)
}

/// How a request is handed to the core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoesOn {
    /// What the core gave back with it, if it is not the first time.
    pub(crate) wait: Option<Wait>,
    /// There is room for what it writes.
    pub(crate) has_room: bool,
    /// Nothing that it writes has to become durable, or to wait, before it is put.
    pub(crate) at_once: bool,
}

/// What became of a write that was handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Validated {
    /// It goes on when its page has been read, or has failed.
    Later,
    /// What came of it is to be carried out.
    Stepped,
    /// It is put as well.
    Put,
}

/// What the prepare of a write says of what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    /// It does not matter.
    Nothing,
    /// It matters, and nobody has looked.
    Lookup,
    /// It matters, and is in the request.
    Previous,
}

fn holds(condition: &wire::Condition<'_>, previous: &Previous, value: &[u8]) -> bool {
    match *condition {
        wire::Condition::Always => true,
        wire::Condition::IfAbsent => !previous.present,
        wire::Condition::IfPresent => previous.present,
        wire::Condition::IfVersion(version) if version.is_zero() => !previous.present,
        wire::Condition::IfVersion(version) => previous.present && previous.version == version,
        wire::Condition::IfValue(expected) => previous.present && value == expected,
    }
}

/// The single-key writes of a shard.
pub(crate) struct SingleWrites {
    shard: ShardId,
    seed: HashSeed,
    written: SingleBody,
}

/// A write as the prepare of one key that it is.
pub(crate) struct SingleBody {
    /// For the log and for the write set.
    pub(crate) body: Vec<u8>,
    pub(crate) key: HashedKey,
}

impl SingleWrites {
    /// Of this shard.
    pub(crate) const fn new(shard: ShardId, seed: HashSeed) -> Self {
        let none = HashedKey { keyspace: KeyspaceId::DEFAULT, check: 0, hash: KeyHash(0) };
        Self { shard, seed, written: SingleBody { body: Vec::new(), key: none } }
    }

    /// What the last write was laid out as.
    pub(crate) const fn written(&mut self) -> &mut SingleBody {
        &mut self.written
    }

    /// Hands a write to the participant, as far as what is there is known.
    pub(crate) fn validate(
        &mut self,
        ctx: &mut Turn<'_>,
        (token, frame): (Token, &Frame<'_>),
        write: &wire::Write<'_>,
        (key, latest): (KeyRef<'_>, LatestInStore),
        goes_on: GoesOn,
        parts: &mut Parts<'_>,
    ) -> Validated {
        debug_assert!(!parts.driver.has_outputs(), "what came before is carried out");
        if let Some(request) = parts.requests.get_mut(token) {
            request.write.unconditional = write.condition == wire::Condition::Always;
            request.write.returns_previous = write.return_previous;
            // When the core asks again, what was found before may be outdated.
            request.write.previous.known &= goes_on.wait.is_none();
            if !timestone_types::is_planted!(WaitsAnew) {
                request.write.wait = goes_on.wait.or(request.write.wait);
            }
        }
        let with = (token, (key, latest), goes_on);
        let mut validated = Validated::Stepped;
        if needs_record(write) && !timestone_types::is_planted!(RepeatLooksAfresh) {
            // A repeat is answered as its first copy was, before anything is looked up.
            validated = self.step_write(ctx, write, with, Needs::Lookup, parts);
        } else if needs_record(write) {
            let expiry = parts.driver.view(ctx.now()).expiry;
            parts.driver.push(Output::LookUp { token, expiry });
        } else {
            validated = self.step_write(ctx, write, with, Needs::Nothing, parts);
        }
        if let [Output::LookUp { token: asked, expiry }] = *parts.driver.outputs()
            && asked == token
        {
            parts.driver.clear();
            if !self.find_previous(ctx, (token, frame), write, (key, latest), &expiry, parts) {
                return Validated::Later;
            }
            validated = self.step_write(ctx, write, with, Needs::Previous, parts);
        }
        validated
    }

    /// Looks the key's latest record up, unless a page read has just found it; whether it is known
    /// now. If not, the request goes on when its page has been read, or has failed.
    fn find_previous(
        &mut self,
        ctx: &mut Turn<'_>,
        (token, frame): (Token, &Frame<'_>),
        write: &wire::Write<'_>,
        (key, latest): (KeyRef<'_>, LatestInStore),
        expiry: &ExpiryRule,
        parts: &mut Parts<'_>,
    ) -> bool {
        let Some(request) = parts.requests.get_mut(token) else { return false };
        debug_assert_eq!(
            request.purpose,
            RequestPurpose::Write,
            "only a write asks what was there"
        );
        if let Some(error) = request.write.failed.take() {
            // Nothing takes place: no other copy was carried out meanwhile.
            parts.requests.fail(ctx, token, &error);
            return false;
        }
        if request.write.previous.known {
            return self.judge_found(ctx, token, expiry, parts);
        }
        let at = write.commit.max(latest.version.timestamp);
        let found = parts.store.get_as_of(key, at, expiry.as_of, read_token(token));
        if let Err(refusal) = expiry::check(expiry, Timestamp::MAX, &found) {
            parts.requests.refuse(ctx, token, &refusal);
            return false;
        }
        match found {
            Ok(Lookup::Present { version, expires_at, value }) => {
                let kept = parts.requests.keep_found(token, (version, expires_at), value);
                if !kept {
                    parts.requests.refuse_unread(ctx, token);
                }
                kept
            }
            Ok(Lookup::Absent { version, expires_at }) => {
                request.write.previous =
                    Previous { known: true, present: false, version, expires_at };
                request.write.value.clear();
                true
            }
            Ok(Lookup::Pending) => {
                if request.frame.is_empty() {
                    request.frame.extend_from_slice(frame.bytes());
                }
                false
            }
            Err(error) => {
                parts.requests.fail(ctx, token, &error);
                false
            }
        }
    }

    /// Goes on with a write whose record was read from its page: whether it is to be handed in again.
    pub(crate) fn write_found(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        outcome: ReadOutcome,
        parts: &mut Parts<'_>,
    ) -> bool {
        if let Some(repeat) = parts.requests.get_mut(token).and_then(|request| request.write.repeat)
        {
            self.repeat_found(ctx, token, &repeat, outcome, parts);
            return false;
        }
        let Some(request) = parts.requests.get_mut(token) else { return false };
        debug_assert_eq!(
            request.purpose,
            RequestPurpose::Write,
            "only a write asks what was there"
        );
        match outcome {
            ReadOutcome::Present { version, expires_at, value } => {
                let kept = parts.requests.keep_found(token, (version, expires_at), &value);
                parts.store.recycle(value);
                if !kept {
                    parts.requests.refuse_unread(ctx, token);
                    return false;
                }
            }
            ReadOutcome::Absent { version, expires_at } => {
                request.write.previous =
                    Previous { known: true, present: false, version, expires_at };
                request.write.value.clear();
            }
            // Nothing takes place, unless another copy was carried out while this one waited for
            // the page: the core is asked again.
            ReadOutcome::Failed(error) => request.write.failed = Some(error),
        }
        true
    }

    /// Judges what a page read has found as of now: while the page was read, others may have been
    /// told that it has expired, and the write takes place after that. Whether it may be told.
    fn judge_found(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        expiry: &ExpiryRule,
        parts: &mut Parts<'_>,
    ) -> bool {
        let Some(request) = parts.requests.get_mut(token) else { return false };
        let found = &mut request.write.previous;
        debug_assert!(found.known, "only what was found is judged");
        let has_expired = found.present && found.expires_at.has_passed(expiry.as_of);
        if has_expired && !timestone_types::is_planted!(JudgesBeforeThePage) {
            found.present = false;
            request.write.value.clear();
        }
        let Previous { present, expires_at, .. } = request.write.previous;
        match expiry.may_tell(Timestamp::MAX, present, expires_at) {
            Ok(()) => true,
            Err(refusal) => {
                parts.requests.refuse(ctx, token, &refusal);
                false
            }
        }
    }

    /// The outcome of a write that was decided before. Its answer is the first one: with what was
    /// there before, where that was told.
    pub(crate) fn answer_repeat(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        repeat: Repeat,
        current: Option<(Token, &Frame<'_>)>,
        parts: &mut Parts<'_>,
    ) {
        let Some(request) = parts.requests.get_mut(token) else { return };
        debug_assert_eq!(
            request.purpose,
            RequestPurpose::Write,
            "only a write asks what was there"
        );
        request.write.repeat = Some(repeat);
        request.write.previous =
            Previous { known: true, present: repeat.present, ..Previous::default() };
        request.write.value.clear();
        if repeat.verdict == Verdict::Yes && !request.write.returns_previous {
            return parts.requests.answer_written(
                ctx,
                token,
                repeat.txn,
                repeat.commit,
                repeat.verdict,
            );
        }
        let kept = std::mem::take(&mut request.frame);
        let frame = match current {
            Some((at_hand, frame)) if at_hand == token => Ok(*frame),
            _ => Frame::parse(&kept),
        };
        let Some(write) = frame.ok().and_then(|frame| wire::Write::decode(&frame).ok()) else {
            return parts.requests.answer_unknown(ctx, token);
        };
        let key = KeyRef::new(self.seed, write.keyspace, write.key);
        // Whether it had expired was judged by the first copy.
        let judged = if repeat.present { Timestamp::ZERO } else { Timestamp::MAX };
        let found = match parts.store.get_as_of(key, repeat.at, judged, read_token(token)) {
            Ok(Lookup::Pending) => return,
            Ok(Lookup::Present { version, expires_at, value }) => {
                parts.requests.keep_told(token, value);
                Some((version, expires_at, true))
            }
            Ok(Lookup::Absent { version, expires_at }) => Some((version, expires_at, false)),
            Err(_) => None,
        };
        self.finish_repeat(ctx, token, &repeat, found, parts);
    }

    fn repeat_found(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        repeat: &Repeat,
        outcome: ReadOutcome,
        parts: &mut Parts<'_>,
    ) {
        debug_assert!(
            parts.requests.get_mut(token).is_none_or(|request| request.write.previous.known),
            "a repeat is known before its page is read"
        );
        let found = match outcome {
            ReadOutcome::Present { version, expires_at, value } => {
                parts.requests.keep_told(token, &value);
                parts.store.recycle(value);
                Some((version, expires_at, true))
            }
            ReadOutcome::Absent { version, expires_at } => Some((version, expires_at, false)),
            ReadOutcome::Failed(error) => {
                tracing::warn!(shard = %self.shard, %error, "the previous value of a repeated \
                    write cannot be read");
                None
            }
        };
        self.finish_repeat(ctx, token, repeat, found, parts);
    }

    /// Answers a repeat with the version, the expiry and the presence that were found; `None` when
    /// they could not be read.
    fn finish_repeat(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        repeat: &Repeat,
        found: Option<(Version, Expiry, bool)>,
        parts: &mut Parts<'_>,
    ) {
        let is_kept = parts.driver.collected().check(repeat.at).is_ok();
        let Some(request) = parts.requests.get_mut(token) else { return };
        debug_assert_eq!(
            request.write.repeat.as_ref(),
            Some(repeat),
            "a request repeats one write"
        );
        match found {
            // What was visible to the first copy can be collected only when nobody may ask any
            // more.
            Some((version, expires_at, present)) if is_kept && present == repeat.present => {
                request.write.previous = Previous { known: true, present, version, expires_at };
            }
            _ if request.write.returns_previous => {
                return parts.requests.answer_unknown(ctx, token);
            }
            _ => request.write.value.clear(),
        }
        parts.requests.answer_written(ctx, token, repeat.txn, repeat.commit, repeat.verdict);
    }

    /// Steps the core with the one-key prepare that a write is. If it need not be promised, it is
    /// put.
    fn step_write(
        &mut self,
        ctx: &mut Turn<'_>,
        write: &wire::Write<'_>,
        (token, (key, latest), goes_on): (Token, (KeyRef<'_>, LatestInStore), GoesOn),
        needs: Needs,
        parts: &mut Parts<'_>,
    ) -> Validated {
        let Some(request) = parts.requests.get_mut(token) else { return Validated::Stepped };
        let previous = request.write.previous;
        debug_assert!(previous.known || needs != Needs::Previous, "what matters was looked up");
        let condition = match needs {
            Needs::Nothing => participant::Lookup::NotNeeded,
            Needs::Lookup => participant::Lookup::Needed,
            Needs::Previous => participant::Lookup::Found(JudgedCondition {
                version: previous.version,
                // A delete of what is absent stores nothing: the core records a "no", and the
                // answer says that it is done.
                holds: holds(&write.condition, &previous, &request.write.value)
                    && (write.action != WriteAction::Delete || previous.present),
                present: previous.present,
                expired_at: (!previous.present && !previous.expires_at.is_never())
                    .then_some(previous.expires_at.timestamp()),
            }),
        };
        let kind =
            if write.action == WriteAction::Delete { WriteKind::Delete } else { WriteKind::Put };
        let expires_at = match write.action {
            WriteAction::PutKeepExpiry if previous.present => previous.expires_at,
            WriteAction::PutKeepExpiry => Expiry::NEVER,
            WriteAction::Put | WriteAction::PutFrom | WriteAction::Delete => write.expires_at,
        };
        let entry = entry_of(write, expires_at);
        // Nothing is promised before what is there is known, and what is put at once needs no
        // payload.
        if condition != participant::Lookup::Needed && !goes_on.at_once {
            self.lay_out(key, &entry);
        }
        let participants = [self.shard];
        let range_read = parts.driver.range_read_at(key, write.commit);
        let writes =
            [WriteItem { keyspace: write.keyspace, key: key.hash, kind, latest, range_read }];
        let mut prepare = Prepare {
            token,
            txn: write.txn,
            begin: write.begin,
            commit: write.commit,
            placed_by: write.placed_by(),
            single: true,
            wait: goes_on.wait.or(request.write.wait).unwrap_or(wait_of(write.wait)),
            participants: &participants,
            reads: &[],
            ranges: &[],
            writes: &writes,
            condition,
            has_room: goes_on.has_room,
            at_once: goes_on.at_once,
        };
        parts.driver.step(ctx.now(), Input::Prepare(prepare));
        let Some(commit) = parts.driver.puts_at() else { return Validated::Stepped };
        parts.driver.clear();
        prepare.commit = commit;
        let version = Version::new(commit, write.txn.client);
        let writes = [(key, entry)].into_iter();
        let put = put_at_once(writes, version, &mut *parts.store, parts.lookups);
        if put.is_err() && !timestone_types::is_planted!(PutWithoutRoom) {
            self.lay_out(key, &entry);
            prepare.at_once = false;
            parts.driver.step(ctx.now(), Input::Prepare(prepare));
            return Validated::Stepped;
        }
        parts.driver.step(ctx.now(), Input::PutDone { prepare });
        Validated::Put
    }

    /// Lays a write out as the body of a prepare, for the log and for the payload.
    fn lay_out(&mut self, key: KeyRef<'_>, entry: &WriteEntry<'_>) {
        self.written.key = key.hashed();
        self.written.body.clear();
        PrepareBody::of_one_write(entry, &mut self.written.body);
    }
}

/// What a single write writes.
fn entry_of<'a>(write: &wire::Write<'a>, expires_at: Expiry) -> WriteEntry<'a> {
    let (kind, expires_at, value): (_, _, &[u8]) = match write.action {
        WriteAction::Delete => (wire::WriteKind::Delete, Expiry::NEVER, &[]),
        WriteAction::Put | WriteAction::PutFrom | WriteAction::PutKeepExpiry => {
            (wire::WriteKind::Put, expires_at, write.value)
        }
    };
    WriteEntry { keyspace: write.keyspace, kind, expires_at, key: write.key, value }
}

#[cfg(test)]
mod tests {
    use timestone_types::AbortKind;
    use timestone_wire::{Condition, Kind, PrepareHead, PrepareWriter};

    use super::*;
    use crate::reads::expiry::tests::{Bench, SHARD, START, after_start, put_if};
    use crate::shard::LogPlace;

    #[test]
    fn what_a_prepare_under_a_writes_id_is_told_is_not_found_by_the_next_write() {
        let mut bench = Bench::new(16 << 20, LogPlace::Nowhere);
        bench.driver.set_now(after_start(1000));
        let [first, second, third] = [1001, 1002, 1003].map(after_start);
        assert_eq!(bench.write(&put_if(Condition::Always, 1, b"there", first)), Ok(Verdict::Yes));
        let used = put_if(Condition::IfPresent, 2, b"there", second);
        assert_eq!(bench.write(&used), Ok(Verdict::Yes));
        // No client of ours does so: one id for a write and for a transaction.
        let (txn, participants) = (used.txn, [SHARD]);
        let head = PrepareHead {
            txn,
            begin: START,
            commit: second,
            single: true,
            wait: false,
            participants: &participants,
        };
        let answered = bench
            .ask(|to, out| PrepareWriter::begin(to, &head, out).finish(), |frame| frame.kind());
        // The next request has the place of that one.
        let verdict = bench.write(&put_if(Condition::IfPresent, 3, b"never written", third));
        assert!(
            matches!(verdict, Ok(Verdict::No(reason)) if reason.kind == AbortKind::Condition),
            "the condition does not hold: {verdict:?}"
        );
        assert!(matches!(answered, Ok(Kind::Vote | Kind::StatusIs)), "{answered:?}");
    }
}
