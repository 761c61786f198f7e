//! What a client asks of a shard in the same process: calls, which are no bytes on a wire.
//!
//! ```text
//!   client ─ get, put ─► Calls ─► the shard's stage: one after the other ─► the same Calls, with an answer for each
//! ```
//! A batch goes to a stage of the same process and comes back from it, so nothing is lost on the way
//! and nothing comes twice: a put needs no name, and a call no frame. Each is carried out at once or not at all
//! (K6 of docs/protocol/transactions.md). What is not is asked in a frame.
//!
//! Invariants: an answer for each call, in their order, when a batch comes back.

use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, Timestamp, Version};

/// Of a batch that is kept to be used again, no more memory is kept than this, and room for so many calls.
const KEPT_BYTES: usize = 256 * 1024;
const KEPT_CALLS: usize = 1024;

/// What every call says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallAt {
    /// The keyspace of its key.
    pub keyspace: KeyspaceId,
    /// The epoch that the caller knows the shard by.
    pub epoch: Epoch,
    /// Where the clock of the caller's session stands.
    pub begin: Timestamp,
}

/// One call as a shard sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// When, and by which map.
    pub at: CallAt,
    /// The key.
    pub key: &'a [u8],
    /// The value that is put and when it expires; `None`: the latest version is read.
    pub put: Option<(&'a [u8], Expiry)>,
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallAnswer<'a> {
    /// A read has found this.
    Found {
        /// The version, of an absence as well.
        version: Version,
        /// When it expires.
        expires_at: Expiry,
        /// The value, if there is one.
        value: Option<&'a [u8]>,
    },
    /// A put took place at this timestamp.
    Put(Timestamp),
    /// Nothing was done: it is to be asked in a frame.
    NotNow,
}

#[derive(Clone, Copy, Debug)]
struct AskedCall {
    at: CallAt,
    /// Where its key begins, and its value; the value ends where the next key begins.
    key: usize,
    value: usize,
    end: usize,
    /// Of a put.
    expires_at: Option<Expiry>,
}

#[derive(Clone, Copy, Debug)]
enum ToldAnswer {
    Found { version: Version, expires_at: Expiry, is_present: bool, end: usize },
    Put(Timestamp),
    NotNow,
}

/// The calls of a batch.
#[derive(Debug, Default)]
pub struct AskedCalls {
    client: ClientId,
    calls: Vec<AskedCall>,
    bytes: Vec<u8>,
}

impl AskedCalls {
    /// Who asks.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Bytes of keys and values.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// A call by its place.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    #[inline]
    pub fn call(&self, place: usize) -> Call<'_> {
        let AskedCall { at, key, value, end, expires_at } = self.calls[place];
        let put = expires_at.map(|expires_at| (&self.bytes[value..end], expires_at));
        Call { at, key: &self.bytes[key..value], put }
    }

    #[inline]
    fn add(&mut self, at: CallAt, key: &[u8], put: Option<(&[u8], Expiry)>) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value = self.bytes.len();
        if let Some((bytes, _)) = put {
            self.bytes.extend_from_slice(bytes);
        }
        let expires_at = put.map(|(_, expires_at)| expires_at);
        self.calls.push(AskedCall { at, key: begin, value, end: self.bytes.len(), expires_at });
    }
}

/// The answers of a batch, in the order of its calls.
#[derive(Debug, Default)]
pub struct CallAnswers {
    told: Vec<ToldAnswer>,
    bytes: Vec<u8>,
}

impl CallAnswers {
    /// The next answer.
    #[inline]
    pub fn add(&mut self, answer: CallAnswer<'_>) {
        self.told.push(match answer {
            CallAnswer::Found { version, expires_at, value } => {
                self.bytes.extend_from_slice(value.unwrap_or_default());
                let (is_present, end) = (value.is_some(), self.bytes.len());
                ToldAnswer::Found { version, expires_at, is_present, end }
            }
            CallAnswer::Put(at) => ToldAnswer::Put(at),
            CallAnswer::NotNow => ToldAnswer::NotNow,
        });
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.told.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Bytes of values.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = CallAnswer<'_>> {
        let mut begin = 0;
        self.told.iter().map(move |told| match *told {
            ToldAnswer::Found { version, expires_at, is_present, end } => {
                let bytes = &self.bytes[begin..end];
                begin = end;
                CallAnswer::Found { version, expires_at, value: is_present.then_some(bytes) }
            }
            ToldAnswer::Put(at) => CallAnswer::Put(at),
            ToldAnswer::NotNow => CallAnswer::NotNow,
        })
    }
}

/// A batch of calls of one client for one shard. See the module.
#[derive(Debug, Default)]
pub struct Calls {
    /// By which the client knows it.
    pub number: u32,
    /// What is asked.
    pub asked: AskedCalls,
    /// What was answered.
    pub answers: CallAnswers,
}

impl Calls {
    /// Empties it, for calls of `client`.
    pub fn begin(&mut self, client: ClientId, number: u32) {
        self.clear();
        self.number = number;
        self.asked.client = client;
    }

    /// Empties it, and gives memory back that calls seldom need.
    pub fn clear(&mut self) {
        let Self { asked, answers, .. } = self;
        asked.calls.clear();
        asked.calls.shrink_to(KEPT_CALLS);
        answers.told.clear();
        answers.told.shrink_to(KEPT_CALLS);
        for bytes in [&mut asked.bytes, &mut answers.bytes] {
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// Asks for the latest version of a key.
    #[inline]
    pub fn get(&mut self, at: CallAt, key: &[u8]) {
        self.asked.add(at, key, None);
    }

    /// Asks that a value be put.
    #[inline]
    pub fn put(&mut self, at: CallAt, key: &[u8], value: &[u8], expires_at: Expiry) {
        self.asked.add(at, key, Some((value, expires_at)));
    }

    /// Answers what is left: not now.
    pub fn refuse(&mut self) {
        while self.answers.len() < self.asked.len() {
            self.answers.add(CallAnswer::NotNow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_answers_come_back_as_they_were_given() {
        let at = |nanos| CallAt {
            keyspace: KeyspaceId::DEFAULT,
            epoch: Epoch::new(3),
            begin: Timestamp::from_nanos(nanos),
        };
        let version = Version::new(Timestamp::from_nanos(5), ClientId::new(1));
        let mut calls = Calls::default();
        for round in 0..2 {
            calls.begin(ClientId::new(9), round);
            calls.get(at(1), b"a");
            calls.put(at(2), b"bc", b"", Expiry::NEVER);
            calls.put(at(3), b"d", b"value", Expiry::NEVER);
            assert_eq!((calls.asked.len(), calls.asked.client()), (3, ClientId::new(9)));
            assert_eq!(calls.asked.call(0), Call { at: at(1), key: b"a", put: None });
            let empty = Some((&b""[..], Expiry::NEVER));
            assert_eq!(calls.asked.call(1), Call { at: at(2), key: b"bc", put: empty });
            let put = Some((&b"value"[..], Expiry::NEVER));
            assert_eq!(calls.asked.call(2), Call { at: at(3), key: b"d", put });
            let found = |value| CallAnswer::Found { version, expires_at: Expiry::NEVER, value };
            let told = [found(Some(&b"one"[..])), found(None), found(Some(&b"two"[..]))];
            told.iter().for_each(|answer| calls.answers.add(*answer));
            assert!(calls.answers.iter().eq(told));
            calls.refuse();
            assert_eq!(calls.answers.len(), 3);
        }
        calls.begin(ClientId::new(9), 7);
        calls.get(at(1), b"a");
        calls.put(at(2), b"b", b"v", Expiry::NEVER);
        calls.answers.add(CallAnswer::Put(Timestamp::from_nanos(8)));
        calls.refuse();
        let told = [CallAnswer::Put(Timestamp::from_nanos(8)), CallAnswer::NotNow];
        assert!(calls.answers.iter().eq(told));
    }
}
