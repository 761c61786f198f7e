//! Answers to reads of one key: at once, or when the page has been read.

use timestone_store::{LatestLookup, Lookup, ReadOutcome};
use timestone_txn::Refusal;
use timestone_txn::participant::{ExpiryRule, LatestInStore, Token, Wait};
use timestone_types::{HashSeed, KeyRef, Timestamp, Version};
use timestone_wire::{self as wire, Frame, Kind, Message};

use super::expiry;
use super::lookups::{Item, in_store};
use crate::driver::ReadNow;
use crate::requests::pending::{RequestPurpose, read_token};
use crate::shard::Parts;
use crate::turn::Turn;

impl Parts<'_> {
    /// Answers a read from the store, or leaves it to a page read. `asked` is what the client
    /// wants, `at` where the core reads.
    #[inline]
    pub(crate) fn read_now(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        key: KeyRef<'_>,
        asked: wire::ReadAt,
        read: ReadNow,
    ) {
        let ReadNow { at, prepared_before, expiry } = read;
        let now = expiry.as_of;
        let judged = match asked {
            // A snapshot may lie ahead of this server's time: what expires between the two is alive
            // to every other reader.
            wire::ReadAt::Snapshot(_) if !expires_snapshots_ahead() => now.min(at),
            wire::ReadAt::Snapshot(_) => at,
            wire::ReadAt::Latest(_) => now,
        };
        let snapshot = if matches!(asked, wire::ReadAt::Snapshot(_)) { at } else { Timestamp::MAX };
        let Some(request) = self.requests.get_mut(token) else { return };
        debug_assert_eq!(request.purpose, RequestPurpose::Get, "only a get reads");
        let (reply_to, envelope) = (request.reply_to, request.envelope);
        let found = self.store.get_as_of(key, at, judged, read_token(token));
        let may_tell = match asked {
            wire::ReadAt::Snapshot(_) => Ok(()),
            wire::ReadAt::Latest(_) => self.driver.check_present(),
        };
        if let Err(refusal) = may_tell.and_then(|()| expiry::check(&expiry, snapshot, &found)) {
            return self.requests.refuse(ctx, token, &refusal);
        }
        match found {
            Ok(Lookup::Present { value, .. })
                if !self.requests.has_reply_room(ctx, token, value.len()) =>
            {
                self.requests.refuse_unread(ctx, token);
            }
            Ok(Lookup::Present { version, expires_at, value }) => {
                let out = self.requests.reply(ctx, reply_to);
                wire::Value { version, expires_at, prepared_before, present: true, value }
                    .encode(&envelope, out);
                self.requests.close(token);
            }
            Ok(Lookup::Absent { version, expires_at }) => {
                // A fence touches the keys that it has hidden; of any other, whoever compares
                // versions is told what was told before it. Validation takes every absence for the
                // same, so that this changes nothing for transactions. Whoever asks for the latest
                // state begins to compare there, and is told the fence: it stands at the key for
                // good when the watermark has passed it.
                let is_beside = matches!(asked, wire::ReadAt::Snapshot(_))
                    && !version.is_zero()
                    && self.store.is_beside_fence(key, version);
                let version = if is_beside { Version::ZERO } else { version };
                let out = self.requests.reply(ctx, reply_to);
                wire::Value { version, expires_at, prepared_before, present: false, value: &[] }
                    .encode(&envelope, out);
                self.requests.close(token);
            }
            Ok(Lookup::Pending) => {
                let Some(request) = self.requests.get_mut(token) else { return };
                (request.read.at, request.read.snapshot) = (at, snapshot);
                (request.read.prepared_before, request.read.expiry) = (prepared_before, expiry);
            }
            Err(error) => self.requests.fail(ctx, token, &error),
        }
    }

    /// A read that could not be answered in the same step.
    pub(crate) fn read_later(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        (seed, read): (HashSeed, ReadNow),
        current: Option<(Token, &Frame<'_>)>,
    ) {
        if let Some((at_hand, frame)) = current
            && at_hand == token
        {
            return self.read_frame(ctx, token, frame, (seed, read));
        }
        let Some(request) = self.requests.get_mut(token) else { return };
        let bytes = std::mem::take(&mut request.frame);
        debug_assert!(!bytes.is_empty(), "who waits has a frame");
        if let Ok(frame) = Frame::parse(&bytes) {
            self.read_frame(ctx, token, &frame, (seed, read));
        }
    }

    fn read_frame(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        frame: &Frame<'_>,
        (seed, read): (HashSeed, ReadNow),
    ) {
        debug_assert_eq!(frame.kind(), Kind::Get, "only a get reads");
        if let Ok(get) = wire::Get::decode(frame) {
            let key = KeyRef::new(seed, get.keyspace, get.key);
            self.read_now(ctx, token, key, get.at, read);
        }
    }

    /// Answers a read whose page was read, or has failed.
    pub(crate) fn read_done(&mut self, ctx: &mut Turn<'_>, token: Token, outcome: ReadOutcome) {
        let Some(request) = self.requests.get_mut(token) else {
            return bytes_of(outcome).into_iter().for_each(|value| self.store.recycle(value));
        };
        assert!(request.purpose != RequestPurpose::Write, "what a write finds is its own");
        let (at, snapshot, prepared_before) =
            (request.read.at, request.read.snapshot, request.read.prepared_before);
        let expiry = request.read.expiry;
        if let Err(refusal) = self.may_answer(at, snapshot, &expiry, &outcome) {
            bytes_of(outcome).into_iter().for_each(|value| self.store.recycle(value));
            return self.requests.refuse(ctx, token, &refusal);
        }
        match outcome {
            ReadOutcome::Present { value, .. }
                if !self.requests.has_reply_room(ctx, token, value.len()) =>
            {
                self.requests.refuse_unread(ctx, token);
                self.store.recycle(value);
            }
            ReadOutcome::Present { version, expires_at, value } => {
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::Value {
                        version,
                        expires_at,
                        prepared_before,
                        present: true,
                        value: &value,
                    }
                    .encode(envelope, out);
                });
                self.store.recycle(value);
            }
            ReadOutcome::Absent { version, expires_at } => {
                self.requests.answer(ctx, token, |envelope, out| {
                    wire::Value {
                        version,
                        expires_at,
                        prepared_before,
                        present: false,
                        value: &[],
                    }
                    .encode(envelope, out);
                })
            }
            ReadOutcome::Failed(error) => self.requests.fail(ctx, token, &error),
        }
    }

    /// Whether what was found as of `at` may be told: it may have been collected meanwhile, be in
    /// doubt whether it has expired, or not be the latest any more at another primary.
    fn may_answer(
        &self,
        at: Timestamp,
        snapshot: Timestamp,
        rule: &ExpiryRule,
        found: &ReadOutcome,
    ) -> Result<(), Refusal> {
        self.driver.collected().check(at)?;
        if snapshot == Timestamp::MAX {
            self.driver.check_present()?;
        }
        expiry::check_read(rule, snapshot, found)
    }

    /// The youngest version of a request's only key, as the core wants it. `None`: the store looks
    /// it up, and the request is handed in again with the answer.
    #[inline]
    pub(crate) fn latest(
        &mut self,
        token: Token,
        frame: &Frame<'_>,
        wait: Option<Wait>,
        key: KeyRef<'_>,
    ) -> Option<LatestInStore> {
        if let Some(items) = self.lookups.take(token) {
            debug_assert_eq!(items.len(), 1, "the request is about one key");
            return items.first().map(|item| item.latest);
        }
        match self.store.latest(key, self.lookups.token()) {
            LatestLookup::Known(latest) => Some(in_store(latest)),
            LatestLookup::Pending => {
                self.lookups.note_pending(0);
                let (keyspace, key) = (key.keyspace, key.hash);
                let item = Item { keyspace, key, latest: LatestInStore::NONE };
                self.lookups.begin(token, wait, std::iter::once(item));
                self.requests.keep_frame(token, Some((token, frame)));
                None
            }
        }
    }
}

/// The buffer of what was found.
fn bytes_of(outcome: ReadOutcome) -> Option<Vec<u8>> {
    match outcome {
        ReadOutcome::Present { value, .. } => Some(value),
        ReadOutcome::Absent { .. } | ReadOutcome::Failed(_) => None,
    }
}

/// Whether snapshots judge expiry as of their own time, wherever that lies.
fn expires_snapshots_ahead() -> bool {
    timestone_types::is_planted!(SnapshotsExpireAhead)
}
