//! Scans: every key of a keyspace as of one point in time, a page after the other.
//!
//! ```text
//!   Db::scan ─► read-only transaction ─► page: Scan to one shard ─► keys ─► their values, read in the same snapshot ─► next page, next shard
//! ```
//! The transaction holds the versions of its snapshot in place while the scan lasts, for as long as a transaction may stay open
//! (5 min). The order is that of the keys' hashes, shard by shard: none that means anything.
//! What it deliberately does not do: scan inside a transaction that writes; what others add meanwhile would go unnoticed there.

use std::collections::VecDeque;

use timestone_cluster::MapVersion;
use timestone_session::SessionError;
use timestone_types::{KeyspaceId, Timestamp};
use timestone_wire::{Envelope, ErrorCode, ErrorReply, Frame, Message, RequestId, ScanPage};

use crate::limits::SCAN_PAGE_KEYS;
use crate::local::LocalTransaction;
use crate::{Db, Error, Result, Transaction, TransactionOptions, Value};

/// A key and its value.
pub type Entry = (Vec<u8>, Value);

/// Where a scan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    /// Among the shards of the map.
    shard: usize,
    cursor: u64,
}

/// What a scan is to find.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanOptions {
    /// Only keys that begin with these bytes. The others are passed over by the client.
    pub prefix: Vec<u8>,
    /// The state as of this point in time; `None`: as of now.
    pub at: Option<Timestamp>,
}

/// A scan under way. Made by [`Db::scan`].
#[derive(Debug)]
pub struct Scan {
    transaction: Transaction,
    prefix: Vec<u8>,
    place: Option<Place>,
    found: VecDeque<Entry>,
}

impl Db {
    /// Reads every key of the keyspace, as of one point in time.
    ///
    /// ```no_run
    /// # async fn example(db: timestone_client::Db) -> timestone_client::Result<()> {
    /// let mut scan = db.scan(&timestone_client::ScanOptions::default()).await?;
    /// while let Some((key, value)) = scan.next().await? {
    ///     println!("{} has {} bytes", key.escape_ascii(), value.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A point in time in the future, or too many transactions.
    pub async fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        let transaction = self.begin(&scanning(options)).await?;
        Ok(Scan::new(transaction, options))
    }
}

/// How the transaction of a scan begins.
pub(crate) fn scanning(options: &ScanOptions) -> TransactionOptions {
    TransactionOptions { read_only: true, snapshot_at: options.at, ..TransactionOptions::default() }
}

impl Scan {
    pub(crate) fn new(transaction: Transaction, options: &ScanOptions) -> Self {
        let (prefix, place) = (options.prefix.clone(), Some(Place::default()));
        Self { transaction, prefix, place, found: VecDeque::new() }
    }

    /// The point in time that it reads.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.transaction.begin_timestamp()
    }

    /// The next key, or `None` at the end.
    ///
    /// # Errors
    /// No answer before the deadline; the snapshot is too old.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        while self.found.is_empty() {
            let Some(place) = self.place else { return Ok(None) };
            let page = self.transaction.scan_page(place, &self.prefix).await?;
            self.took(page);
        }
        Ok(self.found.pop_front())
    }

    /// As [`Scan::next`], for a thread that may block.
    pub(crate) fn wait_next(&mut self) -> Result<Option<Entry>> {
        while self.found.is_empty() {
            let Some(place) = self.place else { return Ok(None) };
            let page = self.transaction.scan_page(place, &self.prefix).wait()?;
            self.took(page);
        }
        Ok(self.found.pop_front())
    }

    fn took(&mut self, (entries, next): (Vec<Entry>, Option<Place>)) {
        self.found.extend(entries);
        self.place = next;
    }
}

impl LocalTransaction {
    /// Some keys with their values, and where to go on.
    pub(crate) async fn scan_page(
        &self,
        keyspace: KeyspaceId,
        place: Place,
        prefix: &[u8],
    ) -> Result<(Vec<Entry>, Option<Place>)> {
        let at = self.begin_timestamp()?;
        let (shard, epoch, map_version, client, shards) = {
            let engine = self.core().engine.borrow();
            let routes = engine.routes();
            let &(shard, epoch) = routes.shards().get(place.shard).ok_or(SessionError::NoShard)?;
            (shard, epoch, MapVersion::new(routes.version()), engine.client(), routes.shards().len())
        };
        let answer = self.ask_shard(shard, |request, out| {
            let envelope = Envelope { shard, epoch, request: RequestId::new(request), map_version };
            let (cursor, limit) = (place.cursor, SCAN_PAGE_KEYS);
            timestone_wire::Scan { keyspace, cursor, limit, at, client, with_values: false }.encode(&envelope, out);
        });
        let answer = answer.await?;
        let (keys, next) = read_page(&answer, place, shards)?;
        // All reads are under way before the first is waited for.
        let wanted = keys.into_iter().filter(|key| key.starts_with(prefix));
        let reads: Vec<_> = wanted.map(|key| (self.get_in(keyspace, &key), key)).collect();
        let mut entries = Vec::with_capacity(reads.len());
        for (read, key) in reads {
            if let Some(value) = read.await? {
                entries.push((key, value));
            }
        }
        Ok((entries, next))
    }
}

fn read_page(answer: &[u8], place: Place, shards: usize) -> Result<(Vec<Vec<u8>>, Option<Place>)> {
    let unread = |_| Error::new(ErrorCode::Malformed, "the server's answer could not be read", "update the older side");
    let frame = Frame::parse(answer).map_err(unread)?;
    if let Ok(refused) = ErrorReply::decode(&frame) {
        return Err(Error::of_reply(&refused));
    }
    let page = ScanPage::decode(&frame).map_err(unread)?;
    let next =
        if page.done { Place { shard: place.shard + 1, cursor: 0 } } else { Place { cursor: page.next, ..place } };
    Ok((page.entries.map(|entry| entry.key.to_vec()).collect(), Some(next).filter(|next| next.shard < shards)))
}
