//! Reads under way: asked at the key's shard, repeated, answered, failed.

use core::time::Duration;

use timestone_types::{Timestamp, is_planted};

use super::frames;
use super::keys::ReadState;
use super::record::Ending;
use super::table::Txns;
use crate::cache::Cache;
use crate::engine::backups::BackupIndex;
use crate::engine::context::{Again, Context};
use crate::engine::number::Asker;
use crate::engine::replies::{Fault, Reply};
use crate::engine::results::ResultAt;
use crate::engine::shards::ShardIndex;
use crate::engine::slab::SlabKey;
use crate::{KeyName, OpId, SessionError, limits};

impl Txns {
    /// The entry of a key that is to be read; a new one only if its shard can be asked.
    #[inline]
    pub(super) fn entry_to_read(
        &mut self,
        context: &Context,
        slot: SlabKey,
        (hash, key): (u64, KeyName<'_>),
    ) -> Result<u32, SessionError> {
        let txn = self.at_mut(slot.index);
        debug_assert!(txn.is_open(), "an ended transaction reads");
        if let Some(at) = txn.keys.find(hash, key.keyspace, key.key) {
            return Ok(at);
        }
        let shard = context.shard_of(key.key)?;
        context.check_room(shard)?;
        Ok(txn.keys.add(hash, key.keyspace, key.key, shard)?)
    }

    /// Lets the cache answer a read that nobody has asked yet, when it can.
    #[inline]
    pub(super) fn read_from_cache<C: Cache>(
        &mut self,
        cache: &mut C,
        slot: SlabKey,
        at: u32,
    ) -> Result<bool, SessionError> {
        if !C::IS_THERE {
            return Ok(false);
        }
        let txn = self.at_mut(slot.index);
        let is_strict = txn.options.strict || txn.options.external_wait;
        if is_strict || txn.keys.entry(at).read != ReadState::None {
            return Ok(false);
        }
        let Some(answer) = cache.look_up(txn.keys.key(at), txn.begin) else {
            return Ok(false);
        };
        txn.keys.learn(at, answer)?;
        debug_assert!(txn.keys.is_known(at), "the cache answered, and nothing is known");
        Ok(true)
    }

    /// Lets an operation wait for a key's read, which is asked if it is not under way.
    pub(super) fn read(&mut self, context: &mut Context, slot: SlabKey, at: u32, op: OpId) {
        let txn = self.at_mut(slot.index);
        let deadline = context.deadline(txn.options.deadline);
        let entry = txn.keys.entry_mut(at);
        assert!(entry.read != ReadState::Known, "what is known is not asked");
        match entry.read {
            ReadState::Asked(None) => {
                entry.read = ReadState::Asked(Some(op));
                entry.asked.deadline = deadline;
            }
            ReadState::Asked(Some(_)) => txn.waiters.push((at, op)),
            ReadState::None | ReadState::Known => {
                entry.read = ReadState::Asked(Some(op));
                entry.asked.deadline = deadline;
                entry.asked.attempts = 0;
                txn.asked += 1;
                let (shard, was_asked) = (entry.shard, entry.asked.before);
                entry.asked.before = true;
                self.send_read(context, slot, at);
                // After it was given up it is asked under the same number, and the answer to the
                // first copy may come yet. What a backup answers tells nothing of the primary's clock.
                let txn = self.at(slot.index);
                let is_at_primary = txn.is_open() && txn.keys.entry(at).asked.backup.is_none();
                if !was_asked && is_at_primary {
                    context.watch_clock(shard, Asker::Read, slot, at);
                }
            }
        }
        context.wake_at(deadline);
    }

    /// Appends one read's request to its shard's outbox, when there is a connection.
    fn send_read(&mut self, context: &mut Context, slot: SlabKey, at: u32) {
        let txn = self.at_mut(slot.index);
        let entry = txn.keys.entry(at);
        debug_assert!(matches!(entry.read, ReadState::Asked(_)), "nobody asked");
        let reads_at_backups = txn.options.reads_at_backups() && !entry.keyspace.is_in_memory();
        let (shard, begin) = (entry.shard, txn.begin);
        let is_served = context.serves(shard);
        if reads_at_backups
            && (!entry.asked.was_left || !is_served)
            && let Some(backup) = context.choose_backup(shard, begin)
        {
            let closed = context.closed_at(shard).filter(|_| is_planted!(ReadsEachAsClosed));
            let snapshot = closed.unwrap_or(begin);
            let (route, out) = context.request_at_backup((shard, backup), slot, at);
            frames::read_at_backup(route, snapshot, txn.keys.key(at), out);
            let due = context.now().saturating_add(limits::BACKUP_TIMEOUT);
            let asked = &mut txn.keys.entry_mut(at).asked;
            (asked.due, asked.backup) = (due, Some(backup));
            return context.wake_at(due);
        }
        if reads_at_backups {
            if !is_served && self.is_above_closed(context, slot.index, at) {
                context.stats().above_closed += 1;
                let ending = Ending::Busy { retry_after: Duration::ZERO };
                return self.close_with(context, slot.index, at, ending);
            }
            context.watch_primary(shard, slot, at);
        }
        let txn = self.at_mut(slot.index);
        let (client, wait) = (context.client(), context.config().wait);
        let Some((route, out)) = context.request(shard, Asker::Read, slot, at) else {
            // Backups are asked again: one of them may have come further, or be there again.
            let pause = context.now().saturating_add(limits::BACKUP_PAUSE);
            let due = if reads_at_backups { pause } else { Timestamp::MAX };
            let asked = &mut txn.keys.entry_mut(at).asked;
            (asked.due, asked.backup) = (due, None);
            return context.wake_at(due);
        };
        frames::snapshot_read(route, client, txn.begin, wait, txn.keys.key(at), out);
        let mut due = context.repeat_at();
        if reads_at_backups {
            due = due.min(context.now().saturating_add(limits::SILENT_PRIMARY));
        }
        let asked = &mut txn.keys.entry_mut(at).asked;
        (asked.due, asked.backup) = (due, None);
        context.wake_at(due);
    }

    /// Whether somebody waits for a read that no backup has come far enough for, at a shard whose
    /// primary is silent, and one of a transaction that begins now can be answered.
    fn is_above_closed(&self, context: &mut Context, index: u32, at: u32) -> bool {
        let txn = self.at(index);
        let (entry, session, begin) = (txn.keys.entry(at), txn.session, txn.begin);
        let (shard, is_waited_for) = (entry.shard, matches!(entry.read, ReadState::Asked(Some(_))));
        let most = txn.options.max_staleness.filter(|_| txn.follows_backups());
        let Some(most) = most.filter(|_| is_waited_for) else { return false };
        let closed = context.closed_at(shard);
        let next = context.old_snapshot(most);
        let clock = session.and_then(|session| context.session_clock(session));
        clock.is_some_and(|clock| closed.is_some_and(|at| at < begin && clock.peek(next) <= at))
    }

    /// Does what is due of a transaction's reads.
    pub(super) fn sweep_reads(&mut self, context: &mut Context, index: u32) {
        debug_assert!(self.at(index).is_open(), "a read is under way after the end");
        let mut at = 0;
        while self.at(index).asked > 0 && at < self.at(index).keys.len() {
            let entry = *self.at(index).keys.entry(at);
            if let ReadState::Asked(_) = entry.read {
                if entry.asked.deadline <= context.now() {
                    self.fail_read(context, index, at, SessionError::DeadlineExceeded);
                } else if entry.asked.due <= context.now() {
                    self.repeat_read(context, index, at);
                } else {
                    context.wake_at(entry.asked.due.min(entry.asked.deadline));
                }
            }
            at += 1;
        }
    }

    /// Asks again what shards were asked whose connection is new, or that have moved.
    pub(super) fn repeat_reads(&mut self, context: &mut Context, index: u32, again: Again) {
        debug_assert!(self.at(index).is_open(), "a read is under way after the end");
        if self.at(index).asked == 0 {
            return;
        }
        for at in 0..self.at(index).keys.len() {
            let entry = self.at(index).keys.entry(at);
            let is_concerned =
                entry.asked.backup.is_none() && context.is_asked_again(again, entry.shard);
            if matches!(entry.read, ReadState::Asked(_)) && is_concerned {
                self.repeat_read(context, index, at);
            }
        }
    }

    fn repeat_read(&mut self, context: &mut Context, index: u32, at: u32) {
        debug_assert!(self.at(index).asked > 0, "a read is repeated that nobody asked");
        if let Some(slot) = self.key(index) {
            context.stats().repeated += 1;
            let entry = self.at_mut(index).keys.entry_mut(at);
            if let Some(backup) = entry.asked.backup.take() {
                entry.asked.was_left = true;
                context.leave_backup(entry.shard, backup, limits::SILENT_BACKUP_PAUSE);
            }
            self.send_read(context, slot, at);
            context.wake_at(self.at(index).keys.entry(at).asked.deadline);
        }
    }

    /// An answer to a transaction's read.
    #[inline]
    pub(super) fn deliver_read<C: Cache>(
        &mut self,
        context: &mut Context,
        cache: &mut C,
        (from, slot): (ShardIndex, SlabKey),
        item: u32,
        reply: Reply<'_>,
    ) -> Option<()> {
        let txn = self.at_mut(slot.index);
        let is_asked = txn.is_open() && item < txn.keys.len();
        let entry = is_asked.then(|| txn.keys.entry(item))?;
        let ReadState::Asked(op) = entry.read else { return None };
        if entry.shard != from {
            return None;
        }
        let answer = match reply {
            Reply::Value(answer) => answer,
            Reply::Fault(fault) => {
                match entry.asked.backup {
                    Some(backup) if context.is_from(backup) => {
                        self.refused_by_backup(context, slot, item, backup);
                    }
                    // Somebody else was asked before, and is late.
                    Some(_) => return None,
                    None if entry.asked.was_left && context.is_of_another(from) => return None,
                    None => self.fault_of_read(context, slot.index, item, fault),
                }
                return Some(());
            }
            _ => return None,
        };
        if entry.asked.backup.is_some_and(|backup| context.is_from(backup)) {
            context.stats().answered_by_backups += 1;
        }
        assert!(txn.asked > 0, "a read is under way that was not counted");
        txn.asked -= 1;
        let learned = txn.keys.learn(item, answer);
        if let Err(limit) = &learned {
            txn.keys.entry_mut(item).read = ReadState::None;
            if let Some(op) = op {
                context.fail(op, (*limit).into());
            }
        } else {
            if C::IS_THERE {
                cache.fetched(txn.keys.key(item), txn.begin, &answer);
            }
            if let Some(op) = op {
                context.finish(op, ResultAt::Read(slot, item));
            }
        }
        if !txn.waiters.is_empty() {
            self.tell_waiters(context, slot, item, learned.err().map(SessionError::from));
        }
        Some(())
    }

    /// Tells the further operations that wait for one read what came of it.
    fn tell_waiters(
        &mut self,
        context: &mut Context,
        slot: SlabKey,
        item: u32,
        error: Option<SessionError>,
    ) {
        let waiters = &mut self.at_mut(slot.index).waiters;
        let mut at = 0;
        while let Some(&(entry, op)) = waiters.get(at) {
            if entry != item {
                at += 1;
                continue;
            }
            waiters.swap_remove(at);
            match &error {
                Some(error) => context.fail(op, error.clone()),
                None => context.finish(op, ResultAt::Read(slot, item)),
            }
        }
        debug_assert!(waiters.iter().all(|&(entry, _)| entry != item), "somebody was not told");
    }

    /// The primary is asked instead.
    fn refused_by_backup(
        &mut self,
        context: &mut Context,
        slot: SlabKey,
        item: u32,
        backup: BackupIndex,
    ) {
        let txn = self.at_mut(slot.index);
        let entry = txn.keys.entry_mut(item);
        (entry.asked.backup, entry.asked.was_left) = (None, true);
        context.refused_by_backup(entry.shard, backup, txn.begin);
        self.send_read(context, slot, item);
    }

    fn fault_of_read(&mut self, context: &mut Context, index: u32, item: u32, fault: Fault<'_>) {
        let entry = self.at_mut(index).keys.entry_mut(item);
        debug_assert!(matches!(entry.read, ReadState::Asked(_)), "nobody asked");
        let asked = &mut entry.asked;
        if let Some(pause) = context.pause_for(&fault, asked.attempts) {
            asked.attempts += 1;
            asked.due = context.now().saturating_add(pause);
            return context.wake_at(asked.due);
        }
        match fault {
            Fault::TooOld { watermark } => {
                self.close_as_too_old(context, index, Some(item), watermark);
            }
            Fault::ClockAhead { lead } => {
                self.close_with(context, index, item, Ending::ClockAhead { lead });
            }
            Fault::SessionEnded => {
                context.note(&fault);
                self.close_with(context, index, item, Ending::SessionEnded);
            }
            other => self.fail_read(context, index, item, other.into()),
        }
    }

    /// One read failed; the transaction lives on.
    fn fail_read(&mut self, context: &mut Context, index: u32, item: u32, error: SessionError) {
        let Some(slot) = self.key(index) else { return };
        let txn = self.at_mut(index);
        assert!(txn.asked > 0, "a read fails that is not under way");
        let op = txn.keys.take_waiter(item);
        txn.keys.entry_mut(item).read = ReadState::None;
        txn.asked -= 1;
        if let Some(op) = op {
            context.fail(op, error.clone());
        }
        self.tell_waiters(context, slot, item, Some(error));
    }

    /// Fails every read under way: the transaction is over for them.
    pub(super) fn fail_reads(&mut self, context: &mut Context, index: u32, error: &SessionError) {
        let txn = self.at_mut(index);
        if txn.asked == 0 {
            return;
        }
        for at in 0..txn.keys.len() {
            let entry = txn.keys.entry_mut(at);
            if let ReadState::Asked(op) = entry.read {
                entry.read = ReadState::None;
                txn.asked -= 1;
                if let Some(op) = op {
                    context.fail(op, error.clone());
                }
            }
        }
        assert!(txn.asked == 0, "{} reads under way were not found", txn.asked);
        for (_, op) in txn.waiters.drain(..) {
            context.fail(op, error.clone());
        }
    }
}
