//! Where a cache between transactions stands: between a manager's read and the outbox of a shard.
//!
//! ```text
//!   get ──► own writes ──► own reads ──► look_up ── nothing ──► request to the key's shard
//!                                           └── an answer ──► read set, validated as any other
//!   the shard's answer ──► read set, fetched          the end of a commit ──► ended, for each key
//! ```
//! What a cache answers is part of the read set as if the shard had answered, so the commit keeps
//! it right. Single requests and strict transactions do not ask it. There is none yet: [`NoCache`]
//! compiles away. Source: Kairos; `Kairos §3`.

use core::fmt;

use timestone_types::{Timestamp, TxnOutcome};

use crate::KeyName;
use crate::engine::replies::ReadAnswer;

/// See the module's description.
pub(crate) trait Cache: Default + fmt::Debug {
    /// Whether there is one at all.
    const IS_THERE: bool;

    /// What the key had at `at`. An answer of which the cache does not know that it still holds
    /// there says `prepared_before`: then it is validated, in transactions without writes too.
    fn look_up(&mut self, key: KeyName<'_>, at: Timestamp) -> Option<ReadAnswer<'_>>;

    /// What the key's shard answered to a read at `at`.
    fn fetched(&mut self, key: KeyName<'_>, at: Timestamp, answer: &ReadAnswer<'_>);

    /// A transaction that read or wrote the key has ended; `None`: as nobody knows. A fence writes
    /// the empty key, and with it the keyspace.
    fn ended(&mut self, key: KeyName<'_>, is_write: bool, outcome: Option<TxnOutcome>);
}

/// No cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoCache;

impl Cache for NoCache {
    const IS_THERE: bool = false;

    #[inline]
    fn look_up(&mut self, _: KeyName<'_>, _: Timestamp) -> Option<ReadAnswer<'_>> {
        None
    }

    #[inline]
    fn fetched(&mut self, _: KeyName<'_>, _: Timestamp, _: &ReadAnswer<'_>) {}

    #[inline]
    fn ended(&mut self, _: KeyName<'_>, _: bool, _: Option<TxnOutcome>) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, ShardId, Version};
    use timestone_wire::{Envelope, Frame, Message as _, Value};

    use super::*;
    use crate::managers::Timestamps;
    use crate::{Engine, EngineConfig, OpId, OpResult, Routes, Step, TxnOptions};

    const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    /// Keeps what was fetched for ever, and drops what is written.
    #[derive(Debug, Default)]
    struct Hoard(BTreeMap<Vec<u8>, (Version, Vec<u8>)>);

    impl Cache for Hoard {
        const IS_THERE: bool = true;

        fn look_up(&mut self, key: KeyName<'_>, _: Timestamp) -> Option<ReadAnswer<'_>> {
            let (version, value) = self.0.get(key.key)?;
            let (version, value) = (*version, Some(value.as_slice()));
            Some(ReadAnswer { version, expires_at: Expiry::NEVER, prepared_before: true, value })
        }

        fn fetched(&mut self, key: KeyName<'_>, _: Timestamp, answer: &ReadAnswer<'_>) {
            let value = answer.value.unwrap_or_default().to_vec();
            self.0.insert(key.key.to_vec(), (answer.version, value));
        }

        fn ended(&mut self, key: KeyName<'_>, is_write: bool, _: Option<TxnOutcome>) {
            if is_write {
                self.0.remove(key.key);
            }
        }
    }

    type Cached = Engine<Timestamps<Hoard>>;

    /// The frame that waits for the only shard.
    fn sent(engine: &mut Cached) -> Option<Vec<u8>> {
        engine.shards_mut().next_dirty().map(|(_, bytes)| core::mem::take(bytes))
    }

    #[test]
    fn what_one_transaction_fetched_answers_the_next_and_is_validated() {
        let shard = ShardId::new(0);
        let routes = Routes::new(1, vec![(shard, Epoch::new(1))], |_| Some(shard));
        let mut engine = Cached::new(EngineConfig::default(), ClientId::new(3), routes, 7);
        let session = engine.open_session().unwrap();
        let txn = engine.begin(NOW, session, TxnOptions::default()).unwrap();
        let step = engine.get(NOW, txn, SPACE, b"k", OpId(1)).unwrap();
        assert!(matches!(step, Step::Pending(_)), "nothing is known yet");
        let asked = sent(&mut engine).unwrap();
        let mut answer = Vec::new();
        let envelope = Envelope { shard, ..*Frame::parse(&asked).unwrap().envelope() };
        let version = Version::new(Timestamp::from_nanos(5), ClientId::new(1));
        let value = Value {
            version,
            expires_at: Expiry::NEVER,
            prepared_before: false,
            present: true,
            value: b"v",
        };
        value.encode(&envelope, &mut answer);
        engine.deliver_batch(NOW, &answer).unwrap();
        assert!(matches!(engine.next_done().unwrap().result, OpResult::Value(_)));

        let next = engine.begin(NOW, session, TxnOptions::default()).unwrap();
        let step = engine.get(NOW, next, SPACE, b"k", OpId(2)).unwrap();
        let Step::Value(view) = step else { panic!("{step:?}") };
        assert_eq!((view.value, view.version), (Some(&b"v"[..]), version));
        assert_eq!(sent(&mut engine), None, "no shard is asked");
        let step = engine.commit(NOW, next, OpId(3)).unwrap();
        assert!(matches!(step, Step::Pending(_)), "what the cache told is validated");
        assert!(sent(&mut engine).is_some());

        let strict = TxnOptions { strict: true, ..TxnOptions::default() };
        let strict = engine.begin(NOW, session, strict).unwrap();
        let step = engine.get(NOW, strict, SPACE, b"k", OpId(4)).unwrap();
        assert!(matches!(step, Step::Pending(_)), "strict transactions ask the shard");
    }
}
