//! Single-key writes: the condition is looked up, evaluated and validated in one turn (SEMEL §3.3).
//!
//! ```text
//!   Write ─► needs the record? ─► store.get ─► previous ─► condition ─► one-key prepare, single = true ─► vote ─► Written
//!                                   └─ page read ─► ReadDone ─┘             └─ Again: look up afresh
//! ```
//! The core is told which version the condition was evaluated against, and asks again when a younger one was committed
//! meanwhile; so no race is left. A replay gets the recorded answer by its transaction id.

use timestone_seda::Context;
use timestone_store::{Lookup, ReadOutcome};
use timestone_txn::participant::{Condition, Input, Prepare, Token, Wait, WriteItem, WriteKind};
use timestone_types::{AbortKind, Expiry, KeyRef};
use timestone_wire::{
    self as wire, Envelope, Frame, Message, PrepareHead, PrepareWriter, Verdict, WriteAction, WriteEntry,
};

use super::ShardStage;
use super::pending::{Previous, read_token};
use super::request::wait_of;
use crate::event::Event;

/// Whether the write must know what is there.
fn needs_record(write: &wire::Write<'_>) -> bool {
    write.return_previous
        || write.condition != wire::Condition::Always
        || matches!(write.action, WriteAction::PutKeepExpiry | WriteAction::Delete)
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

impl ShardStage {
    pub(super) fn submit_write(
        &mut self,
        ctx: &mut Context<'_, Event>,
        token: Token,
        frame: &Frame<'_>,
        wait: Option<Wait>,
    ) -> Result<(), wire::WireError> {
        let write = wire::Write::decode(frame)?;
        // A repeated request that was promised or done is answered as it was.
        if write.action != WriteAction::Delete
            && self.participant.is_new(write.txn, write.begin)
            && let Some(error) = self.refusal(&mut std::iter::once(write.key.len() + write.value.len()))
        {
            self.fail(ctx, token, &error);
            return Ok(());
        }
        let key = KeyRef::new(self.seed, write.keyspace, write.key);
        if let Some(request) = self.requests.get_mut(token) {
            request.unconditional = write.condition == wire::Condition::Always;
            request.returns_previous = write.return_previous;
            // When the core asks again, what was found before may be outdated.
            request.previous.known &= wait.is_none();
        }
        if needs_record(&write) && !self.find_previous(ctx, token, frame, &write, key) {
            return Ok(());
        }
        self.validate_write(ctx, token, frame, &write, key, wait);
        Ok(())
    }

    /// Looks the key's latest record up; whether it is known now. If not, the request goes on when its page has been read, or
    /// has failed.
    fn find_previous(
        &mut self,
        ctx: &mut Context<'_, Event>,
        token: Token,
        frame: &Frame<'_>,
        write: &wire::Write<'_>,
        key: KeyRef<'_>,
    ) -> bool {
        let Some(request) = self.requests.get_mut(token) else { return false };
        if request.previous.known {
            return true;
        }
        let at = write.commit.max(self.store.latest(key).version.timestamp);
        match self.store.get(key, at, read_token(token)) {
            Ok(Lookup::Present { version, expires_at, value }) => {
                request.previous = Previous { known: true, present: true, version, expires_at };
                request.value.clear();
                request.value.extend_from_slice(value);
                true
            }
            Ok(Lookup::Absent { version, expires_at }) => {
                request.previous = Previous { known: true, present: false, version, expires_at };
                request.value.clear();
                true
            }
            Ok(Lookup::Pending) => {
                if request.frame.is_empty() {
                    request.frame.extend_from_slice(frame.bytes());
                }
                false
            }
            Err(error) => {
                self.fail(ctx, token, &error);
                false
            }
        }
    }

    /// Goes on with a write whose record was read from its page.
    pub(super) fn write_found(&mut self, ctx: &mut Context<'_, Event>, token: Token, outcome: ReadOutcome) {
        let Some(request) = self.requests.get_mut(token) else { return };
        match outcome {
            ReadOutcome::Present { version, expires_at, value } => {
                request.previous = Previous { known: true, present: true, version, expires_at };
                request.value.clear();
                request.value.extend_from_slice(&value);
                self.store.recycle(value);
            }
            ReadOutcome::Absent { version, expires_at } => {
                request.previous = Previous { known: true, present: false, version, expires_at };
                request.value.clear();
            }
            ReadOutcome::Failed(error) => return self.fail(ctx, token, &error),
        }
        self.resubmit(ctx, token, None);
    }

    fn validate_write(
        &mut self,
        ctx: &mut Context<'_, Event>,
        token: Token,
        frame: &Frame<'_>,
        write: &wire::Write<'_>,
        key: KeyRef<'_>,
        wait: Option<Wait>,
    ) {
        let latest = self.latest(key);
        let Some(request) = self.requests.get_mut(token) else { return };
        let previous = request.previous;
        let condition = previous.known.then(|| Condition {
            version: previous.version,
            // A delete of what is absent stores nothing: the core records a "no", and the answer says that it is done.
            holds: holds(&write.condition, &previous, &request.value)
                && (write.action != WriteAction::Delete || previous.present),
        });
        let kind = if write.action == WriteAction::Delete { WriteKind::Delete } else { WriteKind::Put };
        let expires_at = match write.action {
            WriteAction::PutKeepExpiry if previous.present => previous.expires_at,
            WriteAction::PutKeepExpiry => Expiry::NEVER,
            _ => write.expires_at,
        };
        write_body(&mut self.body, write, self.shard, expires_at);
        let participants = [self.shard];
        let writes = [WriteItem { keyspace: write.keyspace, key: key.hash, kind, latest }];
        let input = Input::Prepare(Prepare {
            token,
            txn: write.txn,
            begin: write.begin,
            commit: write.commit,
            single: true,
            wait: wait.unwrap_or(wait_of(write.wait)),
            participants: &participants,
            reads: &[],
            writes: &writes,
            condition,
        });
        self.participant.step(ctx.now(), input, &mut self.outputs);
        self.carry_out(ctx, Some((token, frame)));
    }

    /// The answer to a single-key write.
    pub(super) fn answer_written(
        &mut self,
        ctx: &mut Context<'_, Event>,
        token: Token,
        txn: timestone_types::TxnId,
        commit: timestone_types::Timestamp,
        verdict: Verdict,
    ) {
        let Some(request) = self.requests.get_mut(token) else { return };
        let (origin, envelope, previous) = (request.origin, request.envelope, request.previous);
        // Only a delete without a condition can be refused although it has none: there was nothing to delete.
        let verdict = match verdict {
            Verdict::No(reason) if reason.kind == AbortKind::Condition && request.unconditional => Verdict::Yes,
            other => other,
        };
        let out = self.replies.buffer(ctx, origin);
        wire::Written {
            txn,
            commit,
            verdict,
            previous_present: previous.present,
            previous_version: previous.version,
            previous_expires_at: previous.expires_at,
            previous_value: if request.returns_previous { &request.value } else { &[] },
        }
        .encode(&envelope, out);
        self.requests.close(token);
    }
}

/// Lays a single write out as the body of a prepare, for the log and for the payload.
fn write_body(out: &mut Vec<u8>, write: &wire::Write<'_>, shard: timestone_types::ShardId, expires_at: Expiry) {
    out.clear();
    let participants = [shard];
    let head = PrepareHead {
        txn: write.txn,
        begin: write.begin,
        commit: write.commit,
        single: true,
        wait: write.wait,
        participants: &participants,
    };
    let mut writer = PrepareWriter::begin(&Envelope::default(), &head, out);
    let (kind, expires_at, value): (_, _, &[u8]) = match write.action {
        WriteAction::Delete => (wire::WriteKind::Delete, Expiry::NEVER, &[]),
        WriteAction::Put | WriteAction::PutKeepExpiry => (wire::WriteKind::Put, expires_at, write.value),
    };
    writer.write(&WriteEntry { keyspace: write.keyspace, kind, expires_at, key: write.key, value });
    writer.finish();
}
