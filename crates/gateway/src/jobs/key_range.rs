//! Keys of a keyspace in their order: a range of them, out of pages of all shards.
//!
//! ```text
//!   pattern  user:7:*  ─► from user:7:  to user:7;       every shard has some of these keys
//!
//!   shard 1   b d │ next e ─┐
//!   shard 2   a f │ next g ─┼─► all below the lowest `next` is known: a b d      f waits
//!   shard 3   c   │ end    ─┘
//! ```
//! SCAN goes on at a *window*, which its cursor holds: what a key begins with behind the prefix, as far
//! as six bytes say. So nothing of a scan is kept anywhere, and any gateway takes it on. An answer
//! ends where a window does. A window with more keys than some pages hold is not read in order: the
//! scan goes through the whole keyspace then, as where keys have no order ([`RangeEnd::Dense`]).
//!
//! ```text
//!   cursor   63  62  61          48 47                              0
//!           ┌───┬───┬──────────────┬─────────────────────────────────┐
//!           │ 0 │ 1 │ check: which │ window at which the scan goes on │   window 0: through all keys,
//!           └───┴───┴─ prefix ─────┴─────────────────────────────────┘   from their beginning
//! ```
//! Invariants: keys are handed out in ascending order, each once; all keys of the range below the
//! lowest `next` are known.

use timestone_types::{HashSeed, KeyspaceId, hash_key};
use timestone_wire::RangePage;

use crate::commands::glob::{Glob, literal_prefix};
use crate::failure::Failure;

const WINDOW_BYTES: usize = 6;
const WINDOW_BITS: u32 = 8 * WINDOW_BYTES as u32;
const WINDOW: u64 = (1 << WINDOW_BITS) - 1;
const CHECK_BITS: u32 = 14;
const CHECK: u64 = (1 << CHECK_BITS) - 1;
/// The cursor is one of this kind.
pub(super) const IN_ORDER: u64 = 1 << (WINDOW_BITS + CHECK_BITS);
// Some clients read cursors as signed numbers.
const _: () = assert!(IN_ORDER << 1 == 1 << 63);

/// Whether a cursor was given out by a scan in order.
pub(crate) const fn is_in_order(cursor: u64) -> bool {
    cursor & IN_ORDER != 0
}

/// What keys begin with behind the prefix, as far as a window says it.
fn window_of(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = rest.len().min(WINDOW_BYTES);
    bytes[2..2 + length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(bytes)
}

/// Memory of a key that waits.
const fn kept_bytes(key: &[u8]) -> usize {
    key.len() + size_of::<Box<[u8]>>()
}

/// How far one shard was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct ShardPart {
    next: Vec<u8>,
    done: bool,
    /// Keys that were not handed out, ascending.
    keys: Vec<Box<[u8]>>,
}

/// Where a page of a scan ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeEnd {
    /// Everything was read.
    End,
    /// The next page begins with this window.
    Window(u64),
    /// More is to be read first.
    More,
    /// A window has more keys than fit some pages.
    Dense,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyRangeRead {
    prefix: Vec<u8>,
    check: u64,
    /// The window that the read begins with.
    window: u64,
    end: Option<Vec<u8>>,
    parts: Vec<ShardPart>,
    /// Memory of the keys that were not handed out.
    waiting_bytes: usize,
    /// How often pages were asked for.
    rounds: u32,
}

impl KeyRangeRead {
    /// The keys that a pattern can match; of all keys, if it begins with a wildcard.
    pub(crate) fn of_pattern(pattern: &[u8], keyspace: KeyspaceId) -> Self {
        debug_assert!(keyspace.is_ordered(), "{keyspace} has no order");
        let (prefix, is_key) = literal_prefix(pattern);
        let end = if is_key { Some([&prefix[..], b"\0"].concat()) } else { behind(&prefix) };
        let check = hash_key(HashSeed(0), keyspace, &prefix).0 & CHECK;
        let (parts, waiting_bytes, rounds) = (Vec::new(), 0, 0);
        Self { prefix, check, window: 0, end, parts, waiting_bytes, rounds }
    }

    /// Whether it is of all keys.
    pub(crate) fn is_everything(&self) -> bool {
        self.prefix.is_empty()
    }

    /// Goes on at a cursor of a scan. False for one of another prefix, and where the scan is not to go
    /// on in order.
    pub(crate) fn resume(&mut self, cursor: u64) -> bool {
        debug_assert!(self.parts.is_empty(), "it has not begun");
        if cursor == 0 {
            return true;
        }
        let is_mine = is_in_order(cursor) && cursor >> WINDOW_BITS & CHECK == self.check;
        self.window = if is_mine { cursor & WINDOW } else { 0 };
        self.window > 0
    }

    /// The cursor with which a scan goes on at a window.
    pub(crate) const fn cursor_at(&self, window: u64) -> u64 {
        debug_assert!(window <= WINDOW, "a window has so many bits");
        IN_ORDER | self.check << WINDOW_BITS | window
    }

    /// The cursor with which a scan goes on through all keys.
    pub(crate) const fn cursor_of_all(&self) -> u64 {
        self.cursor_at(0)
    }

    /// An attempt begins, over so many shards.
    pub(crate) fn begin(&mut self, shards: usize) {
        let mut from = self.prefix.clone();
        from.extend_from_slice(&self.window.to_be_bytes()[8 - WINDOW_BYTES..]);
        // A key may end where the window has zeros.
        let meant = from.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        from.truncate(meant.max(self.prefix.len()));
        let part = ShardPart { next: from, done: false, keys: Vec::new() };
        self.parts = vec![part; shards];
        (self.waiting_bytes, self.rounds) = (0, 0);
    }

    /// The first key behind the range, if it has an end.
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// A round of questions begins: the shards to ask, and from where.
    pub(crate) fn ask(&mut self) -> impl Iterator<Item = (usize, &[u8])> {
        self.rounds += 1;
        let asked = |(_, part): &(usize, &ShardPart)| !part.done && part.keys.is_empty();
        self.parts.iter().enumerate().filter(asked).map(|(shard, part)| (shard, &part.next[..]))
    }

    /// How often pages were asked for.
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Planted: a shard counts as read to its end.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn leave_out(&mut self, leaves: impl Fn(usize) -> bool) {
        for (shard, part) in self.parts.iter_mut().enumerate() {
            part.done |= leaves(shard);
        }
    }

    /// Takes a shard's page; keys that the pattern does not match are passed over.
    ///
    /// # Errors
    /// It is none that could answer the question.
    pub(crate) fn take(
        &mut self,
        shard: usize,
        page: &RangePage<'_>,
        pattern: Option<&Glob>,
    ) -> Result<(), Failure> {
        let Some(part) = self.parts.get_mut(shard) else { return Err(Failure::INTERNAL) };
        debug_assert!(part.keys.is_empty() && !part.done, "it was asked for what comes next");
        let mut last: Option<&[u8]> = None;
        for entry in page.entries {
            let is_next = last.map_or(entry.key >= &part.next[..], |last| entry.key > last);
            let is_inside = self.end.as_ref().is_none_or(|end| entry.key < &end[..]);
            if !is_next || !is_inside || !page.done && entry.key >= page.next {
                return Err(Failure::INTERNAL);
            }
            last = Some(entry.key);
            if pattern.is_none_or(|pattern| pattern.matches(entry.key)) {
                self.waiting_bytes += kept_bytes(entry.key);
                part.keys.push(entry.key.into());
            }
        }
        if !page.done && page.next <= &part.next[..] {
            return Err(Failure::INTERNAL);
        }
        part.done = page.done;
        part.next.clear();
        part.next.extend_from_slice(page.next);
        if timestone_types::is_planted!(ForgetsRangeEnds) {
            part.done |= part.next > self.prefix;
        }
        Ok(())
    }

    /// The lowest key of which nobody knows whether it is there; none when all was read.
    fn known_below(&self) -> Option<&[u8]> {
        self.parts.iter().filter(|part| !part.done).map(|part| &part.next[..]).min()
    }

    /// Memory of the keys that were not handed out.
    pub(crate) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Forgets what it has found.
    pub(crate) fn forget(&mut self) {
        (self.parts, self.waiting_bytes) = (Vec::new(), 0);
    }

    /// Whether everything was read.
    pub(crate) fn is_done(&self) -> bool {
        self.parts.iter().all(|part| part.done)
    }

    /// Where a page of a scan ends that has read this much.
    pub(crate) fn page_end(&self, max_rounds: u32) -> RangeEnd {
        let Some(bound) = self.known_below() else { return RangeEnd::End };
        let window = bound.strip_prefix(&self.prefix[..]).map_or(0, window_of);
        match () {
            () if window > self.window => RangeEnd::Window(window),
            () if self.rounds < max_rounds => RangeEnd::More,
            () => RangeEnd::Dense,
        }
    }

    /// Hands out the keys that are known to be next, in their order.
    pub(crate) fn take_known(&mut self) -> Vec<Box<[u8]>> {
        let bound = self.known_below().map(<[u8]>::to_vec);
        self.take_below(|key| bound.as_ref().is_none_or(|bound| key < &bound[..]))
    }

    /// Hands out the keys of all windows before one.
    pub(crate) fn take_before(&mut self, window: u64) -> Vec<Box<[u8]>> {
        let length = self.prefix.len();
        self.take_below(|key| key.get(length..).is_some_and(|rest| window_of(rest) < window))
    }

    fn take_below(&mut self, is_below: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let mut taken = Vec::new();
        for part in &mut self.parts {
            let count = part.keys.partition_point(|key| is_below(key));
            taken.extend(part.keys.drain(..count));
        }
        self.waiting_bytes -= taken.iter().map(|key| kept_bytes(key)).sum::<usize>();
        // Shards have different keys.
        taken.sort_unstable();
        taken
    }
}

/// The first key behind all that begin with a prefix, if there is one.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use timestone_types::{Expiry, Version};
    use timestone_wire::{Envelope, Frame, Message, RangePageWriter, ScanEntry};

    use super::*;

    const SPACE: KeyspaceId = KeyspaceId::numbered(3, false).ordered();

    fn page(read: &mut KeyRangeRead, shard: usize, keys: &[&str], next: Option<&str>) {
        let mut out = Vec::new();
        let next = next.map(str::as_bytes);
        let mut writer = RangePageWriter::begin(&Envelope::default(), next, &mut out);
        for key in keys {
            let (version, expires_at) = (Version::ZERO, Expiry::NEVER);
            let entry = ScanEntry { version, expires_at, key: key.as_bytes(), value: b"" };
            assert!(writer.push(&entry));
        }
        writer.finish();
        let frame = Frame::parse(&out).unwrap();
        read.take(shard, &RangePage::decode(&frame).unwrap(), None).unwrap();
    }

    fn texts(keys: Vec<Box<[u8]>>) -> Vec<String> {
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    fn asked(read: &mut KeyRangeRead) -> Vec<(usize, String)> {
        let texts = |(shard, from): (usize, &[u8])| (shard, String::from_utf8_lossy(from).into());
        read.ask().map(texts).collect()
    }

    #[test]
    fn keys_of_all_shards_come_in_one_order() {
        let mut read = KeyRangeRead::of_pattern(b"*", SPACE);
        assert!(read.is_everything() && read.end().is_none());
        read.begin(3);
        assert_eq!(asked(&mut read).len(), 3);
        page(&mut read, 0, &["b", "d"], Some("e"));
        page(&mut read, 1, &["a", "f"], Some("g"));
        page(&mut read, 2, &["c"], None);
        assert_eq!(read.waiting_bytes(), 5 * kept_bytes(b"a"));
        assert_eq!(texts(read.take_known()), ["a", "b", "c", "d"]);
        // The second one has a key that waits, so it is not asked.
        assert_eq!(asked(&mut read), [(0, "e".to_owned())]);
        page(&mut read, 0, &["e", "h"], None);
        assert_eq!(texts(read.take_known()), ["e", "f"]);
        assert_eq!(asked(&mut read), [(1, "g".to_owned())]);
        page(&mut read, 1, &[], None);
        assert!(read.is_done());
        assert_eq!((texts(read.take_known()), read.waiting_bytes()), (vec!["h".to_owned()], 0));
    }

    /// As of a shard many of whose keys have expired.
    #[test]
    fn an_empty_page_is_not_the_end_of_its_shard() {
        let mut read = KeyRangeRead::of_pattern(b"*", SPACE);
        read.begin(2);
        assert_eq!(asked(&mut read).len(), 2);
        page(&mut read, 0, &[], Some("m"));
        page(&mut read, 1, &["a", "z"], None);
        assert_eq!(texts(read.take_known()), ["a"]);
        assert!(!read.is_done());
        assert_eq!(asked(&mut read), [(0, "m".to_owned())]);
        page(&mut read, 0, &["n"], None);
        assert_eq!(texts(read.take_known()), ["n", "z"]);
        assert!(read.is_done());
    }

    #[test]
    fn a_pattern_tells_the_range_that_it_can_match() {
        for (pattern, from, end) in [
            (&b"user:7:*"[..], &b"user:7:"[..], Some(&b"user:7;"[..])),
            (b"a?c", b"a", Some(b"b")),
            (b"a\\*b*", b"a*b", Some(b"a*c")),
            (b"key", b"key", Some(b"key\0")),
            (b"a\xff[x]", b"a\xff", Some(b"b")),
            (b"\xff*", b"\xff", None),
            (b"[ab]*", b"", None),
        ] {
            let mut read = KeyRangeRead::of_pattern(pattern, SPACE);
            read.begin(1);
            assert_eq!(read.ask().collect::<Vec<_>>(), [(0, from)]);
            assert_eq!(read.end(), end);
        }
    }

    #[test]
    fn a_scan_goes_on_at_a_window_with_nothing_but_its_cursor() {
        let mut read = KeyRangeRead::of_pattern(b"u:*", SPACE);
        assert!(read.resume(0));
        read.begin(2);
        assert_eq!(asked(&mut read).len(), 2);
        page(&mut read, 0, &["u:abcdef1", "u:abcdef7"], Some("u:abcdef9"));
        page(&mut read, 1, &["u:a"], None);
        let RangeEnd::Window(window) = read.page_end(4) else { panic!("{read:?}") };
        // The rest of that window comes with the next page, whole.
        assert_eq!(texts(read.take_before(window)), ["u:a"]);
        let cursor = read.cursor_at(window);
        assert!(is_in_order(cursor) && i64::try_from(cursor).is_ok());
        let mut next = KeyRangeRead::of_pattern(b"u:*", SPACE);
        assert!(next.resume(cursor));
        next.begin(2);
        assert_eq!(asked(&mut next)[0], (0, "u:abcdef".to_owned()));
        page(&mut next, 0, &["u:abcdef1", "u:abcdef7"], Some("u:abcdef9"));
        page(&mut next, 1, &[], None);
        assert_eq!((next.page_end(2), next.page_end(1)), (RangeEnd::More, RangeEnd::Dense));
        assert_eq!(asked(&mut next).len(), 0, "what was found waits");
        assert_eq!(texts(next.take_known()), ["u:abcdef1", "u:abcdef7"]);
        assert_eq!(asked(&mut next), [(0, "u:abcdef9".to_owned())]);
        page(&mut next, 0, &["u:abcdef9"], None);
        assert_eq!(next.page_end(1), RangeEnd::End);
        assert_eq!(texts(next.take_known()), ["u:abcdef9"]);
    }

    #[test]
    fn a_cursor_of_another_prefix_or_of_all_keys_is_not_taken_on_in_order() {
        let read = KeyRangeRead::of_pattern(b"u:*", SPACE);
        let cursor = read.cursor_at(7);
        assert!(read.clone().resume(cursor));
        assert!(!read.clone().resume(read.cursor_of_all()));
        assert!(!read.clone().resume(77));
        assert!(!KeyRangeRead::of_pattern(b"v:*", SPACE).resume(cursor));
    }

    /// Keys may hold any bytes: no window is passed over, and none is read twice.
    #[test]
    fn windows_are_in_the_order_of_the_keys() {
        let rests: [&[u8]; 9] =
            [b"", b"\0", b"\0\0a", b"a", b"a\0", b"a\0\0\0\0\0\0z", b"abcdef", b"abcdefg", b"b"];
        for pair in rests.windows(2) {
            assert!(window_of(pair[0]) <= window_of(pair[1]), "{pair:?}");
        }
        for rest in rests {
            let mut read = KeyRangeRead::of_pattern(b"p*", SPACE);
            if !read.resume(read.cursor_at(window_of(rest))) {
                continue;
            }
            read.begin(1);
            let from = read.ask().map(|(_, from)| from.to_vec()).next().unwrap();
            assert!(from <= [b"p", rest].concat(), "{rest:?} begins before {from:?}");
            let before = rests.iter().filter(|other| window_of(other) < window_of(rest));
            assert!(before.map(|other| [b"p", *other].concat()).all(|key| key < from), "{rest:?}");
        }
    }
}
