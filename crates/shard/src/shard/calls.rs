//! Calls of clients in the same process: a batch at a time, each as a direct read or write.
//!
//! ```text
//!   Calls ─► a few: their memory is fetched ─► direct_get, direct_put ─► an answer for each
//! ```
//! They come as an event and their answers leave as one, so their callers run on any thread. What is
//! late is refused by its begin and its epoch, as a request would be.

use timestone_types::limits::PLACED_WITHIN;
use timestone_types::{ClientId, Expiry, HashedKey, Timestamp};
use timestone_wire::{Call, CallAnswer, Calls};

use super::Shard;
use super::direct::{DirectAnswer, DirectAt, DirectPut, Found};
use crate::limits::{BYTES_OF_ANSWERS, CALL_ROUNDS, CHARGED_VALUE_BYTES, LOOK_AHEAD};

impl Shard {
    /// Carries out a batch of calls at `now`, after [`Shard::begin_inputs`]; the host has it get a
    /// turn afterwards.
    pub fn call(&mut self, now: Timestamp, calls: &mut Calls) {
        let Calls { asked, answers, .. } = calls;
        debug_assert!(answers.is_empty(), "nothing is answered before it is asked");
        let mut ahead = std::mem::take(&mut self.ahead);
        let mut next = 0;
        while next < asked.len() {
            let group = next..(next + LOOK_AHEAD).min(asked.len());
            next = group.end;
            ahead.clear();
            for place in group.clone() {
                let Call { at, key, put } = asked.call(place);
                ahead.add(HashedKey::new(self.seed, at.keyspace, key), put.is_some());
            }
            ahead.fetch(self.driver.participant(), &*self.store);
            let (mut reads, mut puts) = ahead.reads_and_puts();
            for place in group {
                let call = asked.call(place);
                let key = if call.put.is_some() { puts.next() } else { reads.next() };
                let Some(&key) = key else { unreachable!("each call has its key") };
                match call.put {
                    None => {
                        let room = BYTES_OF_ANSWERS.saturating_sub(answers.byte_count());
                        answers.add(self.call_get(now, key, &call, room));
                    }
                    Some(put) => {
                        answers.add(self.call_put(now, (key, asked.client()), &call, put));
                    }
                }
            }
        }
        self.ahead = ahead;
        assert_eq!(answers.len(), asked.len(), "each call has its answer");
    }

    #[inline]
    fn call_get(
        &mut self,
        now: Timestamp,
        key: HashedKey,
        call: &Call<'_>,
        room: usize,
    ) -> CallAnswer<'_> {
        let asked = DirectAt { now, epoch: call.at.epoch, begin: call.at.begin };
        match self.direct_get(key.with(call.key), asked) {
            Some(Found { version, expires_at, value })
                if value.is_none_or(|value| value.len() < CHARGED_VALUE_BYTES.min(room)) =>
            {
                CallAnswer::Found { version, expires_at, value }
            }
            // Long values, and many, are charged for: frames do that.
            _ => CallAnswer::NotNow,
        }
    }

    /// Its timestamp is left to the shard, within the bound that holds for every put (K2a).
    #[inline]
    fn call_put(
        &mut self,
        now: Timestamp,
        (key, client): (HashedKey, ClientId),
        call: &Call<'_>,
        (value, expires_at): (&[u8], Expiry),
    ) -> CallAnswer<'static> {
        let asked = DirectAt { now, epoch: call.at.epoch, begin: call.at.begin };
        let key = key.with(call.key);
        let mut commit = asked.begin.next();
        let last = commit.saturating_add(PLACED_WITHIN);
        for _ in 0..CALL_ROUNDS {
            match self.direct_put(DirectPut { key, value, expires_at, client, commit }, asked) {
                DirectAnswer::Done => return CallAnswer::Put(commit),
                DirectAnswer::Later(at) if at.max(commit.next()) <= last => {
                    commit = at.max(commit.next());
                }
                DirectAnswer::Later(_) | DirectAnswer::Indirect => break,
            }
        }
        CallAnswer::NotNow
    }
}
