//! Scans in the order of keys: pages of every shard, merged.
//!
//! ```text
//!   shard 0  ─► a c f │ next page      ┐
//!   shard 1  ─► b g   │ next page      ├─► merge ─► a b c f … with the transaction's own writes ─► values ─► entries
//!   shard 2  ─► e     │ nothing left   ┘      └─► read_range [from, up to the last entry]: validated at commit
//! ```
//! A key is handed out when every shard has shown a key behind it, or has none left. As far as keys are handed
//! out the range counts as read, and no further: a scan that stops early holds nobody up behind that.
//! Downwards all is the other way round: the highest key first, and what was read is the end of the range.
//! Values come by reads at the same snapshot, which are not part of what the transaction has read:
//! the range is. Source: docs/design/ranges.md.

use std::collections::VecDeque;

use timestone_session::SessionError;
use timestone_types::{
    Direction, Expiry, KeyRange, KeyspaceId, Version, is_planted, key_behind, prefix_end,
};
use timestone_wire::{Envelope, ErrorCode, Message, Range, RangeEntry, RangePage, RequestId};

use crate::limits::{FIRST_RANGE_KEYS, FIRST_SCAN_READS, SCAN_PAGE_KEYS, SCAN_READ_BYTES};
use crate::local::LocalTransaction;
use crate::questions::{RequestScope, ask_shard};
use crate::scan::{Entry, ScanOptions, envelope_for, read_answer};
use crate::{Error, Key, Result, Value};

/// A key that a shard has shown.
#[derive(Clone, Debug)]
struct Shown {
    key: Vec<u8>,
    expires_at: Expiry,
}

/// What one shard has shown and not handed out yet, in the scan's direction.
#[derive(Clone, Debug)]
struct ShardStream {
    shown: VecDeque<Shown>,
    /// Where its next page begins, or ends when it is read downwards; `None`: it has shown all.
    next: Option<PageStart>,
}

/// Where a page begins.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PageStart {
    /// With the scan's own range.
    Whole,
    /// Where the page before it said.
    At(Vec<u8>),
}

/// How far a scan in the order of keys has come.
#[derive(Clone, Debug)]
pub(crate) struct RangeProgress {
    keyspace: KeyspaceId,
    direction: Direction,
    /// What was not handed out yet lies from here on.
    from: Vec<u8>,
    /// And before this key.
    to: Option<Vec<u8>>,
    /// One for each shard, when the first pages have been asked for.
    streams: Vec<ShardStream>,
    page_keys: u32,
    at_a_time: usize,
    left: usize,
}

/// What follows in a scan, before the values are read.
struct ShownBatch {
    /// Keys that shards have shown, and when their values expire.
    shown: Vec<Shown>,
    /// Where the part ends of which all keys are known ([`RangeProgress::part`]); `None`: all keys of what is left.
    cut: Option<Vec<u8>>,
}

impl RangeProgress {
    pub(crate) fn new(keyspace: KeyspaceId, options: &ScanOptions) -> Self {
        let ScanOptions { prefix, from, to, limit, descending, .. } = options;
        let direction = if *descending { Direction::Descending } else { Direction::Ascending };
        let from = prefix.max(from).clone();
        let to = match (prefix_end(prefix), to.clone()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let left = limit.unwrap_or(usize::MAX);
        let (page_keys, at_a_time) = (FIRST_RANGE_KEYS, FIRST_SCAN_READS);
        let streams = Vec::new();
        Self { keyspace, direction, from, to, streams, page_keys, at_a_time, left }
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// The next keys, as far as it is sure that none is missing between them.
    fn batch(&self, count: usize) -> ShownBatch {
        let mut at = vec![0; self.streams.len()];
        let mut shown: Vec<Shown> = Vec::new();
        while shown.len() < count {
            let heads = self.streams.iter().zip(&at).map(|(stream, &at)| stream.shown.get(at));
            let mut first: Option<(usize, &Shown)> = None;
            for (place, head) in heads.enumerate() {
                match head {
                    Some(head)
                        if first.is_none_or(|(_, one)| self.precedes(&head.key, &one.key)) =>
                    {
                        first = Some((place, head));
                    }
                    Some(_) => {}
                    None if self.streams[place].next.is_none() => {}
                    // What it shows next may come before all others.
                    None => return self.cut(shown),
                }
            }
            let Some((place, head)) = first else {
                return ShownBatch { shown, cut: None };
            };
            shown.push(head.clone());
            at[place] += 1;
        }
        self.cut(shown)
    }

    /// Whether a key is handed out before another one.
    fn precedes(&self, key: &[u8], other: &[u8]) -> bool {
        self.direction.compare(key, other).is_lt()
    }

    /// A batch that ends with its last key.
    fn cut(&self, shown: Vec<Shown>) -> ShownBatch {
        debug_assert!(!shown.is_empty(), "every shard that is not through has shown a key");
        let cut = shown.last().map(|last| self.cut_after(&last.key));
        ShownBatch { shown, cut: Some(cut.unwrap_or_default()) }
    }

    /// Where the part ends of which a key is the last.
    fn cut_after(&self, key: &[u8]) -> Vec<u8> {
        match self.direction {
            Direction::Ascending => key_behind(key),
            Direction::Descending => key.to_vec(),
        }
    }

    /// The part of what is left that is handed out up to a cut: the first key of it, and the first one behind.
    fn part<'a>(&'a self, cut: Option<&'a [u8]>) -> (&'a [u8], Option<&'a [u8]>) {
        match self.direction {
            Direction::Ascending => (&self.from, cut.or(self.to.as_deref())),
            Direction::Descending => (cut.unwrap_or(&self.from), self.to.as_deref()),
        }
    }

    /// Everything up to a cut was handed out.
    fn advance(&mut self, cut: Option<&[u8]>) {
        let Some(cut) = cut else {
            // Nothing is left.
            self.left = 0;
            return;
        };
        for stream in &mut self.streams {
            let is_out = |key: &[u8]| match self.direction {
                Direction::Ascending => key < cut,
                Direction::Descending => key >= cut,
            };
            while stream.shown.front().is_some_and(|head| is_out(&head.key)) {
                stream.shown.pop_front();
            }
        }
        match self.direction {
            Direction::Ascending => self.from = cut.to_vec(),
            Direction::Descending => self.to = Some(cut.to_vec()),
        }
    }
}

impl LocalTransaction {
    /// The next entries in the order of keys; none at the end.
    pub(crate) async fn range_further(&self, progress: &mut RangeProgress) -> Result<Vec<Entry>> {
        while !progress.is_over() {
            self.fill(progress).await?;
            let count = progress.at_a_time.min(progress.left);
            match self.next_entries(progress, count).await {
                Ok((entries, bytes, cut)) => {
                    progress.advance(cut.as_deref());
                    progress.left -= entries.len().min(progress.left);
                    let each = (bytes / entries.len().max(1)).max(1);
                    progress.at_a_time = (SCAN_READ_BYTES / each).clamp(1, SCAN_PAGE_KEYS as usize);
                    if !entries.is_empty() {
                        return Ok(entries);
                    }
                }
                // These are larger than those before them.
                Err(error) if error.code() == ErrorCode::TxnTooLarge && count > 1 => {
                    progress.at_a_time = count / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Vec::new())
    }

    /// Some entries with their values, the bytes of them, and where the part of the range ends that they are of. It
    /// counts as read from then on.
    async fn next_entries(
        &self,
        progress: &RangeProgress,
        count: usize,
    ) -> Result<(Vec<Entry>, usize, Option<Vec<u8>>)> {
        let ShownBatch { mut shown, mut cut } = progress.batch(count);
        let (keyspace, direction) = (progress.keyspace, progress.direction);
        let (expires_at, (from, to)) = (Expiry::NEVER, progress.part(cut.as_deref()));
        let mut own = self.own_writes(&RangeEntry { keyspace, expires_at, from, to })?;
        shown.retain(|one| own.binary_search_by(|(key, _)| key.cmp(&one.key)).is_err());
        let mut keys: Vec<&[u8]> = shown.iter().map(|one| one.key.as_slice()).collect();
        keys.extend(own.iter().filter(|one| one.1.is_some()).map(|one| one.0.as_slice()));
        keys.sort_unstable_by(|one, other| direction.compare(one, other));
        if let Some(last) = count.checked_sub(1).and_then(|last| keys.get(last))
            && keys.len() > count
        {
            cut = Some(progress.cut_after(last));
        }
        let (from, to) = progress.part(cut.as_deref());
        let is_inside = |key: &[u8]| KeyRange { keyspace, from, to }.contains(key);
        shown.retain(|one| is_inside(&one.key));
        own.retain(|one| is_inside(&one.0));
        let first_expiry = shown.iter().map(|one| one.expires_at.timestamp()).min();
        let expires_at = first_expiry.map_or(Expiry::NEVER, Expiry::at);
        // Before anything of it is told.
        let is_other_end = is_planted!(ValidatesOtherEnd) && direction == Direction::Descending;
        let (from, to) = if is_other_end { (&b""[..], cut.as_deref()) } else { (from, to) };
        let read = RangeEntry { keyspace, expires_at, from, to };
        let now = self.core().now();
        self.core().engine.borrow_mut().read_range(now, self.handle(), &read)?;
        let asked: Vec<&[u8]> = shown.iter().map(|one| one.key.as_slice()).collect();
        let values = self.read_values(keyspace, &asked).await?;
        let found = shown.into_iter().map(|one| one.key).zip(values);
        let mut entries: Vec<(Vec<u8>, Value)> =
            found.chain(own).filter_map(|(key, value)| Some((key, value?))).collect();
        entries.sort_unstable_by(|one, other| direction.compare(&one.0, &other.0));
        let bytes = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        Ok((entries.into_iter().map(|(key, value)| (Key::new(key), value)).collect(), bytes, cut))
    }

    /// What the transaction is to write in a range, ascending.
    fn own_writes(&self, range: &RangeEntry<'_>) -> Result<Vec<(Vec<u8>, Option<Value>)>> {
        let engine = self.core().engine.borrow();
        let writes = engine.writes_in(self.handle(), range)?.into_iter();
        let owned = writes.map(|(key, view)| {
            let value = view.and_then(|view| {
                view.value.map(|bytes| Value::new(bytes.to_vec(), Version::ZERO, view.expires_at))
            });
            (key, value)
        });
        Ok(owned.collect())
    }

    /// Asks every shard for its next page that has shown nothing that is not handed out.
    async fn fill(&self, progress: &mut RangeProgress) -> Result<()> {
        if progress.streams.is_empty() {
            let shards = self.core().engine.borrow().shards().routes().shards().len();
            // Before the first map came, nobody is known who could be asked.
            if shards == 0 {
                return Err(SessionError::NoShard.into());
            }
            let next = Some(PageStart::Whole);
            progress.streams = vec![ShardStream { shown: VecDeque::new(), next }; shards];
        }
        let mut shows_little = false;
        loop {
            let is_due = |stream: &ShardStream| stream.shown.is_empty() && stream.next.is_some();
            let due: Vec<usize> =
                (0..progress.streams.len()).filter(|&at| is_due(&progress.streams[at])).collect();
            if due.is_empty() {
                return Ok(());
            }
            // All are asked before the first is waited for.
            let mut asked = Vec::with_capacity(due.len());
            for &place in &due {
                asked.push(self.ask_page(progress, place, shows_little)?);
            }
            for (place, answer) in due.into_iter().zip(asked) {
                let answer = answer.await?;
                progress.streams[place] = read_answer(&answer, |frame| {
                    let page = RangePage::decode(frame)?;
                    let shown = page
                        .entries
                        .map(|one| Shown { key: one.key.to_vec(), expires_at: one.expires_at });
                    let next = (!page.done).then(|| PageStart::At(page.next.to_vec()));
                    Ok(ShardStream { shown: shown.collect(), next })
                })?;
            }
            progress.page_keys = (progress.page_keys * 2).min(SCAN_PAGE_KEYS);
            // Who has nothing yet was shown pages in which most keys are gone.
            shows_little = true;
        }
    }

    fn ask_page(
        &self,
        progress: &RangeProgress,
        place: usize,
        shows_little: bool,
    ) -> Result<crate::operation::Operation<Vec<u8>>> {
        let at = self.begin_timestamp()?;
        let (shard, envelope) = envelope_for(self.core(), place)?;
        let client = self.core().engine.borrow().client();
        let (keyspace, direction) = (progress.keyspace, progress.direction);
        let (mut from, mut to) = progress.part(None);
        match (progress.streams[place].next.as_ref().ok_or_else(Error::closed)?, direction) {
            (PageStart::Whole, _) => {}
            (PageStart::At(next), Direction::Ascending) => from = next,
            (PageStart::At(next), Direction::Descending) => to = Some(next),
        }
        // Those who want few ask for few: but a shard looks at no more keys at once than are wanted, so
        // not where it has shown none of many.
        let wanted = if shows_little { usize::MAX } else { progress.left };
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let limit = progress.page_keys.min(wanted);
        let scope = RequestScope::Within(self.handle());
        Ok(ask_shard(self.core(), scope, shard, |request, out| {
            let envelope = Envelope { request: RequestId::new(request), ..envelope };
            let (has_end, to) = (to.is_some(), to.unwrap_or_default());
            let range = Range { keyspace, at, client, limit, has_end, from, to };
            range.encode_in(direction, &envelope, out);
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(keys: &[&str], next: Option<&str>) -> ShardStream {
        let shown = keys
            .iter()
            .map(|key| Shown { key: key.as_bytes().to_vec(), expires_at: Expiry::NEVER });
        let next = next.map(|key| PageStart::At(key.as_bytes().to_vec()));
        ShardStream { shown: shown.collect(), next }
    }

    fn progress(streams: Vec<ShardStream>) -> RangeProgress {
        let options = ScanOptions { to: Some(b"x".to_vec()), ..ScanOptions::default() };
        let keyspace = KeyspaceId::numbered(1, false).ordered();
        RangeProgress { streams, ..RangeProgress::new(keyspace, &options) }
    }

    fn shown(batch: &ShownBatch) -> (String, Option<String>) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let keys: Vec<String> = batch.shown.iter().map(|one| text(&one.key)).collect();
        (keys.join(" "), batch.cut.as_ref().map(|cut| text(cut)))
    }

    #[test]
    fn shards_are_merged_as_far_as_nothing_can_come_in_between() {
        let mut scan =
            progress(vec![stream(&["a", "c", "f"], Some("g")), stream(&["b", "e"], Some("h"))]);
        let end = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&scan.batch(2)), ("a b".to_owned(), end("b\\x00")));
        // The second shard may show an "ee".
        assert_eq!(shown(&scan.batch(9)), ("a b c e".to_owned(), end("e\\x00")));
        scan.advance(Some(b"e\0"));
        assert_eq!((scan.streams[0].shown.len(), scan.streams[1].shown.len()), (1, 0));
        scan.streams[1] = stream(&["k"], None);
        assert_eq!(shown(&scan.batch(9)), ("f".to_owned(), end("f\\x00")));
        scan.advance(Some(b"f\0"));
        scan.streams[0] = stream(&[], None);
        assert_eq!(shown(&scan.batch(9)), ("k".to_owned(), None));
        assert_eq!(scan.part(None), (&b"f\0"[..], Some(&b"x"[..])));
        scan.advance(None);
        assert!(scan.is_over());
    }

    #[test]
    fn downwards_the_highest_keys_come_first_and_the_end_of_the_range_is_what_was_read() {
        let mut scan =
            progress(vec![stream(&["p", "m", "c"], Some("c")), stream(&["o", "n"], Some("k"))]);
        scan.direction = Direction::Descending;
        let cut = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&scan.batch(2)), ("p o".to_owned(), cut("o")));
        assert_eq!(scan.part(Some(b"o")), (&b"o"[..], Some(&b"x"[..])));
        // The second shard may show an "mm".
        assert_eq!(shown(&scan.batch(9)), ("p o n".to_owned(), cut("n")));
        scan.advance(Some(b"n"));
        assert_eq!((scan.streams[0].shown.len(), scan.streams[1].shown.len()), (2, 0));
        assert_eq!(scan.part(None), (&b""[..], Some(&b"n"[..])));
        scan.streams[1] = stream(&["a"], None);
        assert_eq!(shown(&scan.batch(9)), ("m c".to_owned(), cut("c")));
        scan.advance(Some(b"c"));
        scan.streams[0] = stream(&[], None);
        assert_eq!(shown(&scan.batch(9)), ("a".to_owned(), None));
        scan.advance(None);
        assert!(scan.is_over());
    }

    #[test]
    fn a_prefix_and_bounds_are_one_range() {
        let keyspace = KeyspaceId::numbered(1, false).ordered();
        let ends = |prefix: &[u8], from: &[u8], to: Option<&[u8]>| {
            let (prefix, from, to) = (prefix.to_vec(), from.to_vec(), to.map(<[u8]>::to_vec));
            let options = ScanOptions { prefix, from, to, ..ScanOptions::default() };
            let progress = RangeProgress::new(keyspace, &options);
            (progress.from, progress.to)
        };
        assert_eq!(ends(b"", b"", None), (b"".to_vec(), None));
        assert_eq!(ends(b"ab", b"", None), (b"ab".to_vec(), Some(b"ac".to_vec())));
        assert_eq!(ends(b"ab", b"abx", Some(b"abz")), (b"abx".to_vec(), Some(b"abz".to_vec())));
        assert_eq!(ends(b"a\xff", b"a", Some(b"z")), (b"a\xff".to_vec(), Some(b"b".to_vec())));
        assert_eq!(ends(b"\xff", b"", None), (b"\xff".to_vec(), None));
    }
}
