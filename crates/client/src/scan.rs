//! Scans: every key of a keyspace as of one point in time, a page after the other.
//!
//! ```text
//!   Db::scan ─► newest? of every shard ─► read-only transaction, above all of them, which holds the snapshot in place
//!     ├─► page: Scan to one shard ─► keys ─► their values, some at a time ─► next page, next shard
//! ```
//! A scan begins above everything that was acknowledged before, by whomever and whatever clock. It
//! lasts for as long as a transaction may stay open (5 min). The order is that of the keys' hashes,
//! shard by shard: none that means anything; but in keyspaces whose keys are in order it is that of the keys
//! (`ranges.rs`), also within transactions that write. Values are read by further transactions of the same
//! snapshot, which end with them: a scan may find more keys and bytes than one transaction may
//! hold. What it deliberately does not do: scan a keyspace without an order inside a transaction that writes; what
//! others add meanwhile would go unnoticed there.

use std::collections::VecDeque;
use std::rc::Rc;

use timestone_cluster::MapVersion;
use timestone_session::SessionError;
use timestone_types::{Epoch, KeyspaceId, ShardId, Timestamp};
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Message, Newest, NewestIs, RequestId, ScanPage,
};

use crate::event_loop::Core;
use crate::limits::{FIRST_SCAN_READS, SCAN_PAGE_KEYS, SCAN_READ_BYTES};
use crate::local::{LocalDb, LocalTransaction};
use crate::questions::{RequestScope, ask_shard};
use crate::ranges::RangeProgress;
use crate::{Db, Error, Key, Result, Transaction, TransactionOptions, Value};

/// A key and its value.
pub type Entry = (Key, Value);

/// Where a page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ScanPlace {
    /// Among the shards of the map.
    shard: usize,
    cursor: u64,
}

/// How far a scan has come.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    keyspace: KeyspaceId,
    prefix: Vec<u8>,
    place: Option<ScanPlace>,
    /// Keys whose values are not read yet.
    keys: VecDeque<Vec<u8>>,
    /// How many values are read together.
    at_a_time: usize,
    /// Entries that are still wanted.
    left: usize,
    /// Of a keyspace whose keys are in order.
    pub(crate) ranges: Option<RangeProgress>,
}

impl Progress {
    fn new(keyspace: KeyspaceId, options: &ScanOptions) -> Result<Self> {
        let ranges = keyspace.is_ordered().then(|| RangeProgress::new(keyspace, options));
        if ranges.is_none()
            && (!options.from.is_empty() || options.to.is_some() || options.descending)
        {
            return Err(Error::not_ordered());
        }
        let (prefix, place) = (options.prefix.clone(), Some(ScanPlace::default()));
        let (keys, at_a_time) = (VecDeque::new(), FIRST_SCAN_READS);
        let left = options.limit.unwrap_or(usize::MAX);
        Ok(Self { keyspace, prefix, place, keys, at_a_time, left, ranges })
    }

    /// Entries were found that are handed out.
    fn hand_out(&mut self, mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.truncate(self.left);
        self.left -= entries.len();
        entries
    }
}

/// What a scan is to find.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanOptions {
    /// Only keys that begin with these bytes. In a keyspace whose keys are in order the others are not looked
    /// at; elsewhere the client passes over them.
    pub prefix: Vec<u8>,
    /// Only keys from this one on. For keyspaces whose keys are in order.
    pub from: Vec<u8>,
    /// Only keys before this one. For keyspaces whose keys are in order.
    pub to: Option<Vec<u8>>,
    /// No more entries than this: in the order of keys the first ones, elsewhere any.
    pub limit: Option<usize>,
    /// The last keys first. For keyspaces whose keys are in order.
    pub descending: bool,
    /// The state as of this point in time; `None`: as of now.
    pub at: Option<Timestamp>,
}

/// A scan under way. Made by [`Db::scan`].
#[derive(Debug)]
pub struct Scan {
    transaction: Transaction,
    progress: Progress,
    found: VecDeque<Entry>,
}

impl Db {
    /// Reads every key of the keyspace, as of one point in time: above everything that was
    /// acknowledged before the call, unless the options name another. It is a transaction of its
    /// own, which only reads.
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
    /// A point in time in the future, too many transactions, or no answer from a shard before the
    /// deadline.
    pub async fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        if options.at.is_none() {
            self.catch_up().await?;
        }
        let transaction = self.begin(&scanning(options)).await?;
        Scan::new(transaction, options)
    }
}

/// How the transaction of a scan begins.
pub(crate) fn scanning(options: &ScanOptions) -> TransactionOptions {
    TransactionOptions { read_only: true, snapshot_at: options.at, ..TransactionOptions::default() }
}

impl Scan {
    pub(crate) fn new(transaction: Transaction, options: &ScanOptions) -> Result<Self> {
        let progress = Progress::new(transaction.keyspace(), options)?;
        Ok(Self { transaction, progress, found: VecDeque::new() })
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
        if self.found.is_empty() {
            // A copy travels: when this is given up in between, the scan stays where it is.
            let further = self.transaction.scan_further(self.progress.clone()).await?;
            self.took(further);
        }
        Ok(self.found.pop_front())
    }

    /// As [`Scan::next`], for a thread that may block.
    pub(crate) fn wait_next(&mut self) -> Result<Option<Entry>> {
        if self.found.is_empty() {
            let further = self.transaction.scan_further(self.progress.clone()).wait()?;
            self.took(further);
        }
        Ok(self.found.pop_front())
    }

    fn took(&mut self, (progress, entries): (Progress, Vec<Entry>)) {
        self.progress = progress;
        self.found.extend(entries);
    }
}

/// As [`Scan`], for tasks on the event loop. Made by [`LocalDb::scan`].
#[derive(Debug)]
pub struct LocalScan {
    transaction: Rc<LocalTransaction>,
    progress: Progress,
    found: VecDeque<Entry>,
}

impl LocalDb {
    /// As [`Db::scan`].
    ///
    /// # Errors
    /// As [`Db::scan`].
    pub async fn scan(&self, options: &ScanOptions) -> Result<LocalScan> {
        if options.at.is_none() {
            self.catch_up().await?;
        }
        let transaction = Rc::new(self.begin(&scanning(options))?);
        let progress = Progress::new(self.keyspace_of_handle(), options)?;
        Ok(LocalScan { transaction, progress, found: VecDeque::new() })
    }

    /// Has the session see everything of the keyspace that was acknowledged by now, by whomever:
    /// what it begins lies above that.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let keyspace = self.keyspace_of_handle();
        let shards = self.core().engine.borrow().shards().routes().shards().len();
        // Before the first map came, nobody is known who could be asked.
        if shards == 0 {
            return Err(SessionError::NoShard.into());
        }
        let scope = RequestScope::With(self.request_options());
        // All are asked before the first is waited for.
        let answers: Vec<_> = (0..shards)
            .map(|place| {
                let (shard, envelope) = envelope_for(self.core(), place)?;
                Ok(ask_shard(self.core(), scope, shard, |request, out| {
                    let envelope = Envelope { request: RequestId::new(request), ..envelope };
                    Newest { keyspace }.encode(&envelope, out);
                }))
            })
            .collect::<Result<_>>()?;
        let mut newest = Timestamp::ZERO;
        for answer in answers {
            newest = newest
                .max(read_answer(&answer.await?, |frame| NewestIs::decode(frame).map(|is| is.at))?);
        }
        self.saw(newest)
    }
}

impl LocalScan {
    /// The point in time that it reads.
    ///
    /// # Errors
    /// The transaction is over.
    pub fn timestamp(&self) -> Result<Timestamp> {
        self.transaction.begin_timestamp()
    }

    /// The next key, or `None` at the end.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        if self.found.is_empty() {
            self.found.extend(self.transaction.scan_further(&mut self.progress).await?);
        }
        Ok(self.found.pop_front())
    }
}

impl Transaction {
    /// Reads keys of the transaction's keyspace in their order, at its snapshot, with what it has written itself.
    /// Keys come in batches: what it writes behind the key that was handed out last may be missing from the batch
    /// that is at hand, and is seen from the next one on. Whoever changes keys further on collects them first.
    /// What was read is validated at commit: no transaction that others commit adds a key to it, takes one
    /// away or changes one, as far as it was read. For keyspaces that were created with `--index ordered`.
    ///
    /// ```no_run
    /// # async fn example(db: timestone_client::Db) -> timestone_client::Result<()> {
    /// use timestone_client::{ScanOptions, Transaction};
    /// let orders = ScanOptions { prefix: b"order:".to_vec(), ..ScanOptions::default() };
    /// let count = db.transact(async |tx: Transaction| {
    ///     let (mut scan, mut count) = (tx.scan(&orders)?, 0_u64);
    ///     while scan.next().await?.is_some() {
    ///         count += 1;
    ///     }
    ///     tx.put(b"orders", &count.to_be_bytes()).await?;
    ///     Ok(count)
    /// });
    /// println!("{} orders", count.await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A keyspace without an order, or options with a time of their own.
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        check_inside(self.keyspace(), options)?;
        Scan::new(self.clone(), options)
    }
}

/// Whether a transaction may scan so.
fn check_inside(keyspace: KeyspaceId, options: &ScanOptions) -> Result<()> {
    if !keyspace.is_ordered() {
        return Err(Error::not_ordered());
    }
    match options.at {
        None => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::BadArgument,
            "a transaction reads its own snapshot and no other",
            "leave `at` out, or scan outside the transaction",
        )),
    }
}

impl LocalTransaction {
    /// As [`Transaction::scan`].
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub fn scan(self: &Rc<Self>, options: &ScanOptions) -> Result<LocalScan> {
        check_inside(self.keyspace(), options)?;
        let progress = Progress::new(self.keyspace(), options)?;
        Ok(LocalScan { transaction: Rc::clone(self), progress, found: VecDeque::new() })
    }

    /// The next keys with their values; none at the end.
    pub(crate) async fn scan_further(&self, progress: &mut Progress) -> Result<Vec<Entry>> {
        if progress.left == 0 {
            return Ok(Vec::new());
        }
        if let Some(ranges) = &mut progress.ranges {
            let found = self.range_further(ranges).await;
            return found.inspect_err(|error| self.note_met(error));
        }
        loop {
            while progress.keys.is_empty() {
                let Some(place) = progress.place else { return Ok(Vec::new()) };
                let (keys, next) = self.scan_page(progress.keyspace, place).await?;
                progress
                    .keys
                    .extend(keys.into_iter().filter(|key| key.starts_with(&progress.prefix)));
                progress.place = next;
            }
            let count = progress.at_a_time.min(progress.keys.len());
            match self.read_some(progress, count).await {
                Ok((entries, bytes)) => {
                    progress.keys.drain(..count);
                    progress.at_a_time = (SCAN_READ_BYTES / (bytes / count).max(1))
                        .clamp(1, SCAN_PAGE_KEYS as usize);
                    if !entries.is_empty() {
                        return Ok(progress.hand_out(entries));
                    }
                }
                // These are larger than those before them.
                Err(error) if error.code() == ErrorCode::TxnTooLarge && count > 1 => {
                    progress.at_a_time = count / 2
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The values of the first `count` keys that were found, and their bytes. A key is gone when it
    /// expires at this very moment.
    async fn read_some(&self, progress: &Progress, count: usize) -> Result<(Vec<Entry>, usize)> {
        let keyspace = progress.keyspace;
        let keys: Vec<&[u8]> = progress.keys.iter().take(count).map(Vec::as_slice).collect();
        let (mut entries, mut bytes) = (Vec::with_capacity(count), 0);
        for (key, value) in keys.iter().zip(self.read_values(keyspace, &keys).await?) {
            if let Some(value) = value {
                bytes += key.len() + value.len();
                entries.push((Key::new(key.to_vec()), value));
            }
        }
        Ok((entries, bytes))
    }

    /// The values of some keys in the transaction's snapshot, which do not become part of what it has read. They
    /// are read by a transaction of its own, whose commit says whether one was read around a promise: a page may
    /// have shown a version that its shard, after a restart or at another server, holds as promised again.
    pub(crate) async fn read_values(
        &self,
        keyspace: KeyspaceId,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Value>>> {
        let reader = self.reader()?;
        // All reads are under way before the first is waited for.
        let reads: Vec<_> = keys.iter().map(|key| reader.get_in(keyspace, key)).collect();
        let mut values = Vec::with_capacity(keys.len());
        for read in reads {
            values.push(read.await?);
        }
        reader.commit().await?;
        Ok(values)
    }

    /// Some keys, and where to go on.
    async fn scan_page(
        &self,
        keyspace: KeyspaceId,
        place: ScanPlace,
    ) -> Result<(Vec<Vec<u8>>, Option<ScanPlace>)> {
        let at = self.begin_timestamp()?;
        let (shard, envelope) = envelope_for(self.core(), place.shard)?;
        let (client, shards) = {
            let engine = self.core().engine.borrow();
            (engine.client(), engine.shards().routes().shards().len())
        };
        let scope = RequestScope::Within(self.handle());
        let answer = ask_shard(self.core(), scope, shard, |request, out| {
            let envelope = Envelope { request: RequestId::new(request), ..envelope };
            let (cursor, limit) = (place.cursor, SCAN_PAGE_KEYS);
            timestone_wire::Scan { keyspace, cursor, limit, at, client, with_values: false }
                .encode(&envelope, out);
        });
        let answer = answer.await?;
        read_answer(&answer, |frame| {
            let page = ScanPage::decode(frame)?;
            let next = if page.done {
                ScanPlace { shard: place.shard + 1, cursor: 0 }
            } else {
                ScanPlace { cursor: page.next, ..place }
            };
            let keys = page.entries.map(|entry| entry.key.to_vec()).collect();
            Ok((keys, Some(next).filter(|next| next.shard < shards)))
        })
    }
}

/// The shard in a place of the map, and the envelope of a request to it but for the number.
pub(crate) fn envelope_for(core: &Rc<Core>, place: usize) -> Result<(ShardId, Envelope)> {
    let engine = core.engine.borrow();
    let routes = engine.shards().routes();
    let found: Option<&(ShardId, Epoch)> = routes.shards().get(place);
    let &(shard, epoch) = found.ok_or(SessionError::NoShard)?;
    let map_version = MapVersion::new(routes.version());
    Ok((shard, Envelope { shard, epoch, request: RequestId::new(0), map_version }))
}

/// Reads an answer, or the refusal that came instead.
pub(crate) fn read_answer<T>(
    answer: &[u8],
    read: impl FnOnce(&Frame<'_>) -> Result<T, timestone_wire::WireError>,
) -> Result<T> {
    let unread = |_| {
        Error::new(
            ErrorCode::Malformed,
            "the server's answer could not be read",
            "update the older side",
        )
    };
    let frame = Frame::parse(answer).map_err(unread)?;
    if let Ok(refused) = ErrorReply::decode(&frame) {
        return Err(Error::of_reply(&refused));
    }
    read(&frame).map_err(unread)
}
