//! The write sets that are put next, when the log has made many durable at once: the memory behind
//! all of their keys is on its way when the first is put.
//!
//! It was fetched when they were prepared, and others have used the cache since.

use timestone_store::KeysAhead;
use timestone_txn::participant::{Output, Participant};
use timestone_types::{HashedKey, TxnId};

use super::payload::Payloads;
use crate::limits::{LOOK_AHEAD, LOOK_AHEAD_KEYS};
use crate::reads::ahead::fetch;
use crate::shard::ShardStore;

/// See the module. Its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct PutsAhead {
    /// Whose write sets are put, in their order, from the next one on.
    txns: Vec<TxnId>,
    next: usize,
    keys: Vec<HashedKey>,
}

impl PutsAhead {
    /// Notes whose write sets these outputs put. For a few it is not worth it: what was prepared a
    /// moment ago is at hand.
    #[inline]
    pub(crate) fn note(&mut self, outputs: &[Output]) {
        self.txns.clear();
        self.next = 0;
        if outputs.len() >= LOOK_AHEAD {
            self.txns.extend(outputs.iter().filter_map(|output| match output {
                Output::Apply { txn, .. } => Some(*txn),
                _ => None,
            }));
        }
    }

    /// The next one is about to be put.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        payloads: &Payloads,
        participant: &Participant,
        store: &ShardStore,
    ) {
        if self.next < self.txns.len() && self.next.is_multiple_of(LOOK_AHEAD) {
            self.fetch(payloads, participant, store);
        }
        self.next += 1;
    }

    fn fetch(&mut self, payloads: &Payloads, participant: &Participant, store: &ShardStore) {
        let txns = self.txns.iter().skip(self.next).take(LOOK_AHEAD);
        for payload in txns.filter_map(|&txn| payloads.get(txn)) {
            let room = LOOK_AHEAD_KEYS - self.keys.len();
            self.keys.extend(payload.keys.iter().take(room));
        }
        let keys = KeysAhead { puts: &self.keys, ..KeysAhead::default() };
        fetch(keys, participant, store);
        self.keys.clear();
    }
}
