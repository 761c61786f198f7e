//! Direct reads and writes: of one key, by somebody on the host's own thread, who sees the answer
//! before anything else happens.
//!
//! ```text
//!   DirectRead ──▶ Read ─▶ looked up            DirectWrite ──▶ Put ─┬─ put ──▶ DirectPutDone
//!       └──────▶ Indirect                           ├─────▶ Later(t) └─ no room for it: as Indirect
//!                                                   └─────▶ Indirect ─▶ asked in the ordinary way
//! ```
//! Nothing is lost on the way to a call or back, and nothing comes twice. So a direct write needs no
//! name and no outcome that is kept, holds no key, and does not hold the watermark back. Whatever may
//! have to wait, and whatever is refused, leaves nothing here: it is asked in the ordinary way, and
//! is told there what stands in its way. At a shard with replicas a read is carried out where nobody else
//! can have become primary ([`super::present`]), and a write never: it waits for other logs.
//!
//! Invariants: what is read, and what is put, is noted exactly as after an ordinary request; nothing
//! is noted of a write before its put is done. Source: SEMEL §3.3 (single keys).

use timestone_types::{Sequence, Timestamp, TxnId, Version, is_planted};

use super::Participant;
use super::input::{DirectWrite, Lookup, Prepare, ReadAt, Token, Wait, WriteKind};
use super::output::DirectAnswer;
use super::table::Holder;
use crate::validation::{Case, KeyRead, ReadVerdict, Validation, Verdict};

impl<V: Validation> Participant<V> {
    #[inline]
    pub(super) fn direct_read(
        &mut self,
        now: Timestamp,
        key: &KeyRead,
        at: Timestamp,
    ) -> DirectAnswer {
        debug_assert!(key.latest, "a direct read wants what is latest");
        if self.horizon.bound.is_lost() || !self.may_tell_at_once(now) {
            return DirectAnswer::Indirect;
        }
        match self.judge_read(now, key, ReadAt::Latest(at)) {
            Ok((ReadVerdict::At(at), _)) => {
                DirectAnswer::Read { at, expiry: self.horizon.expiry_rule(now, at) }
            }
            Ok((ReadVerdict::Blocked(at, _), _)) if is_planted!(DirectUnderPromise) => {
                DirectAnswer::Read { at, expiry: self.horizon.expiry_rule(now, at) }
            }
            Ok((ReadVerdict::NotAdmitted, at)) if is_planted!(CallsAboveLease) => {
                DirectAnswer::Read { at, expiry: self.horizon.expiry_rule(now, at) }
            }
            Ok((ReadVerdict::NotAdmitted | ReadVerdict::Blocked(..), _)) | Err(_) => {
                DirectAnswer::Indirect
            }
        }
    }

    #[inline]
    pub(super) fn direct_write(&mut self, now: Timestamp, write: &DirectWrite) -> DirectAnswer {
        self.assert_serving();
        debug_assert!(write.item.kind != WriteKind::Fence, "a fence holds more than a key");
        let (items, horizon) = ([write.item], &self.horizon);
        let prepare = prepare_of(write, &items);
        let is_let_in = !horizon.bound.is_lost()
            && !horizon.present.has_replicas()
            && horizon.bound.admits(write.commit)
            && write.begin >= horizon.watermark.pledged()
            && self.may_prepare_at(now, &prepare).is_ok();
        if !is_let_in {
            return DirectAnswer::Indirect;
        }
        let low_water = self.life.validation.low_water();
        let others = self.life.txns.table.others();
        let case = Case { now, expires_by: write.commit, own: Holder::NONE, others };
        match self.life.validation.validate(&prepare, case) {
            Verdict::Promise => DirectAnswer::Put,
            Verdict::Later(at) if self.life.config.vote_later && low_water <= now => {
                DirectAnswer::Later(at)
            }
            Verdict::Wait(..) if is_planted!(DirectUnderPromise) => DirectAnswer::Put,
            Verdict::Later(_) | Verdict::Wait(..) | Verdict::Again(_) | Verdict::No(_) => {
                DirectAnswer::Indirect
            }
        }
    }

    /// A direct write can be read.
    pub(super) fn direct_put_done(&mut self, write: &DirectWrite) {
        self.assert_serving();
        let version = Version::new(write.commit, write.client);
        if !is_planted!(UnnotedDirectPut) {
            self.life.validation.commit_at_once(&prepare_of(write, &[write.item]), version);
        }
    }
}

/// A direct write as validations take it. It has no name.
fn prepare_of<'a>(write: &DirectWrite, items: &'a [super::WriteItem; 1]) -> Prepare<'a> {
    Prepare {
        token: Token::default(),
        txn: TxnId::new(write.client, Sequence::ZERO),
        begin: write.begin,
        commit: write.commit,
        placed_by: write.commit,
        single: true,
        wait: Wait::No,
        participants: &[],
        reads: &[],
        ranges: &[],
        writes: items,
        condition: Lookup::NotNeeded,
        has_room: true,
        at_once: true,
    }
}
