//! Scans and counts: from the raised low-water timestamp to the page or number that answers them.
//!
//! ```text
//!   Scan ─► ScanNow: nothing commits at or below the snapshot any more ─► store walks ─► still above the watermark? ─► answer
//! ```
//! The core keeps writes away from the snapshot, the store finds what was there. A walk takes many
//! turns: what it should have found may have been collected when it ends, so the watermark is
//! compared once more. A page is answered as a long value is: while the memory for answers has room
//! for it. Only so many are made at once, and others wait (`pages.rs`).

use timestone_store::{AsOf, KeyList, ScanCursor, ScanLimit};
use timestone_txn::participant::Token;
use timestone_types::{Expiry, Timestamp, Version, is_planted};
use timestone_wire::limits::{MAX_SCAN_ENTRIES, SCAN_ENTRY_OVERHEAD_BYTES, SCAN_PAGE_BYTES};
use timestone_wire::{
    self as wire, ErrorCode, ErrorReply, Frame, Kind, Message, ScanEntry, ScanPageWriter,
};

use super::pages::{Next, Placed};
use crate::requests::pending::{RequestPurpose, read_token};
use crate::shard::Parts;
use crate::turn::Turn;

impl Parts<'_> {
    /// Answers a scan with a page, unless what it should have found may have been collected
    /// meanwhile.
    pub(crate) fn scan_done(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        keys: &KeyList,
        next: Option<ScanCursor>,
    ) {
        let Some(request) = self.requests.get_mut(token) else { return };
        debug_assert_eq!(request.purpose, RequestPurpose::Scan, "a page answers a scan");
        if let Err(refusal) = self.driver.collected().check(request.read.at) {
            return self.requests.refuse(ctx, token, &refusal);
        }
        let (reply_to, envelope) = (request.reply_to, request.envelope);
        let bytes = page_bytes(keys.len(), keys.iter().map(<[u8]>::len).sum());
        if !self.may_tell_page(ctx, token, bytes) {
            return;
        }
        let mut page = ScanPageWriter::begin(&envelope, self.requests.reply(ctx, reply_to));
        let (version, expires_at) = (Version::ZERO, Expiry::NEVER);
        if keys.iter().all(|key| page.push(&ScanEntry { version, expires_at, key, value: &[] })) {
            page.finish(next.map_or(0, |cursor| cursor.0), next.is_none());
            return self.requests.close(token);
        }
        // The store keeps to the limit but for keys of one position, and with 42 bits of a secret
        // hash those are two or three.
        drop(page);
        tracing::error!(shard = %self.requests.shard(), keys = keys.len(), "a page of a scan has more keys at \
            one position than fit");
        let words = "more keys share one position of the scan than a page holds";
        self.requests.answer(ctx, token, |envelope, out| {
            ErrorReply::new(ErrorCode::Internal, words).encode(envelope, out)
        });
    }

    /// Whether there is memory for a page of so many bytes; it was refused if not, and may be asked
    /// for again.
    pub(super) fn may_tell_page(&mut self, ctx: &mut Turn<'_>, token: Token, bytes: usize) -> bool {
        let has_room =
            is_planted!(UncountedPages) || self.requests.has_reply_room(ctx, token, bytes);
        if !has_room {
            self.requests.refuse_unread(ctx, token);
        }
        has_room
    }

    /// Begins the pages that waited for others to be done.
    pub(crate) fn begin_pages(&mut self, ctx: &mut Turn<'_>) {
        while let Some(next) = self.pages.next(ctx.now(), self.requests) {
            let (token, as_of) = match next {
                Next::Begun(token, as_of) => (token, as_of),
                Next::TooLate(token) => {
                    self.refuse_page(ctx, token);
                    continue;
                }
            };
            let Some(request) = self.requests.get_mut(token) else { continue };
            let kept = std::mem::take(&mut request.frame);
            debug_assert!(!kept.is_empty(), "who waits has a frame");
            match Frame::parse(&kept) {
                Ok(frame) => self.walk(ctx, token, as_of, &frame),
                Err(_) => self.requests.close(token),
            }
            if let Some(request) = self.requests.get_mut(token) {
                // What is asked again is compared with it.
                request.frame = kept;
            }
        }
    }

    /// A page that has no place in line, or waited there for too long.
    fn refuse_page(&mut self, ctx: &mut Turn<'_>, token: Token) {
        let words = "too many pages of scans and ranges are asked for at once; try again";
        let error = ErrorReply::new(ErrorCode::Busy, words)
            .with_retry_after(crate::limits::UNREAD_RETRY_AFTER);
        self.requests.answer(ctx, token, |envelope, out| error.encode(envelope, out));
    }

    /// Answers a count, as [`Self::scan_done`].
    pub(crate) fn count_done(&mut self, ctx: &mut Turn<'_>, token: Token, keys: u64) {
        let Some(request) = self.requests.get_mut(token) else { return };
        debug_assert_eq!(request.purpose, RequestPurpose::Count, "a number answers a count");
        if let Err(refusal) = self.driver.collected().check(request.read.at) {
            return self.requests.refuse(ctx, token, &refusal);
        }
        self.requests
            .answer(ctx, token, |envelope, out| wire::Counted { keys }.encode(envelope, out));
    }

    /// A scan, a count or a range may read its snapshot now.
    pub(crate) fn scan_now(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        at: Timestamp,
        judged: Timestamp,
        prepared_before: bool,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        if prepared_before {
            let words = "a write below the snapshot is not decided yet; try again";
            return self.requests.answer(ctx, token, |envelope, out| {
                ErrorReply::new(ErrorCode::Busy, words).encode(envelope, out)
            });
        }
        let Some(request) = self.requests.get_mut(token) else { return };
        debug_assert!(
            matches!(
                request.purpose,
                RequestPurpose::Scan | RequestPurpose::Count | RequestPurpose::Range
            ),
            "only a scan, a count or a range walks"
        );
        request.read.at = at;
        let kept = std::mem::take(&mut request.frame);
        let frame = match current {
            Some((at_hand, frame)) if at_hand == token => Ok(*frame),
            _ => Frame::parse(&kept),
        };
        let Ok(frame) = frame else { return self.requests.close(token) };
        // A snapshot may lie ahead of this server's time, above what somebody with a leading clock
        // has written: what expires between the two is alive to every other reader.
        let as_of = AsOf { at, judged };
        // A count holds nothing.
        if frame.kind() == Kind::Count {
            self.walk(ctx, token, as_of, &frame);
        } else {
            self.page_now(ctx, token, as_of, &frame);
        }
    }

    /// Has a page made, now or when it is its turn.
    fn page_now(&mut self, ctx: &mut Turn<'_>, token: Token, as_of: AsOf, frame: &Frame<'_>) {
        if self.pages.has_same(token, frame, ctx.now(), self.requests) {
            return self.requests.close_repeat(token);
        }
        let Some(request) = self.requests.get_mut(token) else { return };
        let (reply_to, id) = (request.reply_to, request.envelope.request);
        if let Some(other) = self.pages.give_up(reply_to, id) {
            self.requests.close_repeat(other);
        }
        if self.pages.begin(token, self.requests) {
            self.requests.keep_frame(token, Some((token, frame)));
            return self.walk(ctx, token, as_of, frame);
        }
        let page = (token, as_of, frame.bytes().len());
        match self.pages.wait(reply_to, id, page, ctx.now()) {
            Placed::AtTheEnd => {}
            Placed::InsteadOf(other) => self.refuse_page(ctx, other),
            Placed::NoRoom => return self.refuse_page(ctx, token),
        }
        self.requests.keep_frame(token, Some((token, frame)));
    }

    /// Has the store walk for a request.
    fn walk(&mut self, ctx: &mut Turn<'_>, token: Token, as_of: AsOf, frame: &Frame<'_>) {
        if matches!(frame.kind(), Kind::Range | Kind::RangeDown) {
            return self.range_now(ctx, token, as_of, frame);
        }
        let started = if let Ok(scan) = wire::Scan::decode(frame) {
            if scan.with_values {
                let words = "this version scans keys only; read the values by get";
                return self.requests.answer(ctx, token, |envelope, out| {
                    ErrorReply::new(ErrorCode::Unsupported, words).encode(envelope, out);
                });
            }
            let limit = page_limit(scan.limit);
            self.store.scan_as_of(
                scan.keyspace,
                ScanCursor(scan.cursor),
                limit,
                as_of,
                read_token(token),
            )
        } else if let Ok(count) = wire::Count::decode(frame) {
            match self.store.count_as_of(count.keyspace, as_of, read_token(token)) {
                Ok(timestone_store::Count::Keys(keys)) => {
                    return self.requests.answer(ctx, token, |envelope, out| {
                        wire::Counted { keys }.encode(envelope, out)
                    });
                }
                Ok(timestone_store::Count::Pending) => Ok(()),
                Err(error) => Err(error),
            }
        } else {
            return self.requests.close(token);
        };
        if let Err(error) = started {
            self.requests.fail(ctx, token, &error);
        }
    }
}

/// Bytes of a page, about.
pub(super) const fn page_bytes(keys: usize, key_bytes: usize) -> usize {
    keys * SCAN_ENTRY_OVERHEAD_BYTES + key_bytes
}

/// What fits one page of a scan that asked for so many keys.
pub(super) fn page_limit(keys: u32) -> ScanLimit {
    let keys = keys.clamp(1, MAX_SCAN_ENTRIES);
    let limit =
        ScanLimit { keys, bytes: SCAN_PAGE_BYTES - keys as usize * SCAN_ENTRY_OVERHEAD_BYTES };
    #[cfg(feature = "planted-bugs")]
    let limit = ScanLimit {
        bytes: timestone_types::planted::scan_page_bytes().unwrap_or(limit.bytes),
        ..limit
    };
    limit
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{FrameBatch, Memory, MemoryUse, Stage, StageId};
    use timestone_store::prelude::*;
    use timestone_store::{Mftl, MftlConfig};
    use timestone_types::{ClientId, KeyRef, KeyspaceId, Sequence, ShardId};
    use timestone_wire::{Count, Envelope, Frames, Kind, Range, Report, RequestId, Scan};

    use super::*;
    use crate::limits::{MAX_PAGE_SILENCE, MAX_PAGES_AT_ONCE, MAX_WAITING_PAGES};
    use crate::replay::{Recovering, Replay};
    use crate::shard::{LogPlace, own_reply_address};
    use crate::testing::Event;

    const SHARD: ShardId = ShardId::new(0);
    const STAGE: StageId = StageId::new(0);
    const CLIENT: ClientId = ClientId::new(3);
    const KEYS: u32 = 2000;
    const ORDERED: KeyspaceId = KeyspaceId::numbered(1, false).ordered();
    const LONG_KEYS: u32 = 16;
    const LONG_KEY_BYTES: usize = 60 << 10;
    const LOADED: Timestamp = Timestamp::from_nanos(50_000_000_000);
    const START: Timestamp = Timestamp::from_nanos(100_000_000_000);

    /// A shard whose keys are all on a device that completes one read a turn.
    fn shard() -> ManualDriver<Event> {
        shard_with(&Arc::default())
    }

    /// The same, with so much memory; and 16 keys of 60 KiB in order.
    fn shard_with(memory: &Arc<Memory>) -> ManualDriver<Event> {
        let config = MemoryConfig { completions_per_poll: 1, ..MemoryConfig::default() };
        let mftl = MftlConfig { cache_bytes: 0, checkpoint_bytes: 0, ..MftlConfig::default() };
        let (mut store, _) = Mftl::open(Box::new(MemoryMedia::new(config).open()), mftl).unwrap();
        // What may have expired is looked at by counts, too.
        let (version, expires_at) =
            (Version::new(LOADED, CLIENT), START.saturating_add(Duration::from_secs(3600)));
        for n in 0..KEYS {
            let name = n.to_be_bytes();
            let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, &name);
            store.put(key, version, &[7; 500], Expiry::at(expires_at)).unwrap();
        }
        for n in 0..LONG_KEYS {
            let name = [&n.to_be_bytes()[..], &[b'.'; LONG_KEY_BYTES - 4]].concat();
            let key = KeyRef::new(store.seed(), ORDERED, &name);
            store.put(key, version, b"", Expiry::NEVER).unwrap();
        }
        store.sync_soon();
        let (mut events, mut now) = (Vec::new(), LOADED);
        for _ in 0..1000 {
            now = now.saturating_add(Duration::from_millis(1));
            store.pump(now, &mut events);
        }
        let alone = Recovering::alone(SHARD, LogPlace::Nowhere, START);
        let memory = Arc::clone(memory);
        let stage = Replay::new(SHARD, Box::new(store)).finish(Recovering { memory, ..alone });
        ManualDriver::new(
            vec![Box::new(crate::testing::TestStage(stage)) as Box<dyn Stage<Event>>],
            START,
            1000,
        )
    }

    fn tell(driver: &mut ManualDriver<Event>, write: impl FnOnce(&Envelope, &mut Vec<u8>)) {
        let envelope = Envelope { request: RequestId::new(1), shard: SHARD, ..Envelope::default() };
        let mut bytes = Vec::new();
        write(&envelope, &mut bytes);
        driver
            .send(
                STAGE,
                Event::FrameBatch(FrameBatch::new(own_reply_address(StageId::new(7)), bytes)),
            )
            .unwrap();
        driver.turn();
    }

    fn answer(driver: &mut ManualDriver<Event>) -> Option<(Kind, Option<ErrorCode>)> {
        let Some((_, Event::FrameBatch(frame_batch))) = driver.take_sent() else { return None };
        let frame = Frames::new(wire::without_clock(&frame_batch.bytes)).next().unwrap().unwrap();
        Some((frame.kind(), ErrorReply::decode(&frame).ok().map(|error| error.code)))
    }

    /// What is asked for as of `at` when the watermark may pass it before the walk ends, or may
    /// not.
    fn answered(
        passes: bool,
        ask: impl Fn(Timestamp, &Envelope, &mut Vec<u8>),
    ) -> (Kind, Option<ErrorCode>) {
        let mut driver = shard();
        tell(&mut driver, |envelope, out| ask(START, envelope, out));
        assert_eq!(answer(&mut driver), None, "the walk takes many turns");
        let watermark = if passes { START.next() } else { START };
        driver.set_now(START.saturating_add(Duration::from_secs(5)));
        let report = Report {
            client: CLIENT,
            watermark,
            acked: Sequence::new(0),
            now: watermark,
            closing: false,
        };
        // Without a request number, as nobody waits for an answer.
        let unasked = |envelope: &Envelope| Envelope { request: RequestId::NONE, ..*envelope };
        tell(&mut driver, |envelope, out| report.encode(&unasked(envelope), out));
        driver.set_now(START.saturating_add(Duration::from_secs(6)));
        for _ in 0..10 * KEYS {
            // The device has no file descriptor that would wake the stage.
            tell(&mut driver, |_, _| {});
            if let Some(answer) = answer(&mut driver) {
                return answer;
            }
        }
        panic!("no answer");
    }

    #[test]
    fn a_walk_that_the_watermark_has_passed_is_not_answered_as_if_it_were_whole() {
        let (keyspace, client) = (KeyspaceId::DEFAULT, CLIENT);
        let scan = |at, envelope: &Envelope, out: &mut Vec<u8>| {
            Scan { keyspace, cursor: 0, limit: KEYS, at, client, with_values: false }
                .encode(envelope, out);
        };
        let count = |at, envelope: &Envelope, out: &mut Vec<u8>| {
            Count { keyspace, at, client }.encode(envelope, out)
        };
        let too_old = (Kind::ErrorReply, Some(ErrorCode::SnapshotTooOld));
        assert_eq!(answered(false, scan), (Kind::ScanPage, None));
        assert_eq!(answered(true, scan), too_old);
        assert_eq!(answered(false, count), (Kind::Counted, None));
        assert_eq!(answered(true, count), too_old);
    }

    const OUTPUT: u64 = 2 << 20;

    type Ask = fn(&Envelope, &mut Vec<u8>);

    /// A page of all long keys as it is answered, in so much memory for answers of which so many
    /// bytes are used; and what is in use while its batch of frames is on its way.
    fn long_page(used: u64, ask: Ask) -> (Kind, Option<ErrorCode>, u64) {
        let memory = Arc::new(Memory::new(1 << 30, 1 << 30, OUTPUT));
        let mut driver = shard_with(&memory);
        let used = memory.charge(MemoryUse::Output, used);
        tell(&mut driver, ask);
        for _ in 0..10 * KEYS {
            if let Some((_, Event::FrameBatch(batch))) = driver.take_sent() {
                let frame = Frames::new(wire::without_clock(&batch.bytes)).next();
                let frame = frame.unwrap().unwrap();
                let code = ErrorReply::decode(&frame).ok().map(|error| error.code);
                return (frame.kind(), code, memory.used(MemoryUse::Output) - used.bytes());
            }
            tell(&mut driver, |_, _| {});
        }
        panic!("no answer");
    }

    fn ask_range(envelope: &Envelope, out: &mut Vec<u8>) {
        let (at, client, limit) = (START, CLIENT, LONG_KEYS);
        let (from, to) = (&b""[..], &b""[..]);
        let range = Range { keyspace: ORDERED, at, client, limit, has_end: false, from, to };
        range.encode(envelope, out);
    }

    fn ask_scan(envelope: &Envelope, out: &mut Vec<u8>) {
        let (at, client, limit) = (START, CLIENT, LONG_KEYS);
        Scan { keyspace: ORDERED, cursor: 0, limit, at, client, with_values: false }
            .encode(envelope, out);
    }

    #[test]
    fn a_page_counts_in_the_memory_for_answers_and_is_refused_without_room() {
        let bytes = u64::from(LONG_KEYS) * LONG_KEY_BYTES as u64;
        let asks: [(Ask, Kind); 2] = [(ask_range, Kind::RangePage), (ask_scan, Kind::ScanPage)];
        for (ask, kind) in asks {
            let (told, code, counted) = long_page(OUTPUT / 4, ask);
            assert_eq!((told, code), (kind, None));
            assert!(counted >= bytes, "{counted} of {bytes} bytes count");
            let busy = (Kind::ErrorReply, Some(ErrorCode::Busy), 0);
            assert_eq!(long_page(OUTPUT, ask), busy, "{kind:?}");
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_page_that_counts_nowhere_is_found() {
        use timestone_types::planted::{Bug, with};
        let told = with(Bug::UncountedPages, || long_page(OUTPUT, ask_range));
        assert_eq!(told, (Kind::RangePage, None, 0));
    }

    /// Sends scans of so few keys under these numbers, in one batch of frames of a reply address.
    fn ask_pages(driver: &mut ManualDriver<Event>, reply_to: u16, ids: impl Iterator<Item = u64>) {
        let mut bytes = Vec::new();
        for id in ids {
            let request = RequestId::new(id);
            let envelope = Envelope { request, shard: SHARD, ..Envelope::default() };
            let (keyspace, at, client) = (KeyspaceId::DEFAULT, START, CLIENT);
            Scan { keyspace, cursor: 0, limit: 10, at, client, with_values: false }
                .encode(&envelope, &mut bytes);
        }
        let reply_to = own_reply_address(StageId::new(reply_to));
        driver.send(STAGE, Event::FrameBatch(FrameBatch::new(reply_to, bytes))).unwrap();
        driver.turn();
    }

    /// What has been answered: to whom, which number, and whether it is a page. What is none is busy.
    fn told_pages(driver: &mut ManualDriver<Event>) -> Vec<(u16, u64, bool)> {
        let mut told = Vec::new();
        while let Some((_, Event::FrameBatch(batch))) = driver.take_sent() {
            for frame in Frames::new(wire::without_clock(&batch.bytes)) {
                let frame = frame.unwrap();
                let error = ErrorReply::decode(&frame).ok().map(|error| error.code);
                assert!(error == Some(ErrorCode::Busy) || frame.kind() == Kind::ScanPage);
                let to = u16::try_from(batch.reply_to.stage.index()).unwrap();
                told.push((to, frame.envelope().request.get(), error.is_none()));
            }
        }
        told
    }

    /// What is answered until there is nothing more to do.
    fn all_pages(driver: &mut ManualDriver<Event>) -> Vec<(u16, u64, bool)> {
        let (mut told, mut quiet) = (Vec::new(), 0);
        while quiet < 4 * KEYS {
            let before = told.len();
            told.extend(told_pages(driver));
            quiet = if told.len() == before { quiet + 1 } else { 0 };
            tell(driver, |_, _| {});
        }
        told
    }

    fn count_pages(told: &[(u16, u64, bool)]) -> usize {
        told.iter().filter(|&&(.., is_page)| is_page).count()
    }

    /// So many reply addresses ask for so many pages each: how many are refused, and how many come to each.
    fn many_pages(addresses: u16, each: usize) -> (usize, Vec<usize>) {
        let mut driver = shard();
        for reply_to in 1..=addresses {
            ask_pages(&mut driver, reply_to, 1..=each as u64);
        }
        let told = all_pages(&mut driver);
        assert_eq!(told.len(), usize::from(addresses) * each, "each is answered");
        let of =
            |address| told.iter().filter(|&&(to, _, is_page)| to == address && is_page).count();
        let pages: Vec<usize> = (1..=addresses).map(of).collect();
        (told.len() - pages.iter().sum::<usize>(), pages)
    }

    const MOST_PAGES: usize = MAX_PAGES_AT_ONCE + MAX_WAITING_PAGES;

    #[test]
    fn few_pages_are_made_at_once_and_the_others_wait_in_line() {
        assert_eq!(many_pages(1, MOST_PAGES + 28), (28, vec![MOST_PAGES]));
        let (refused, pages) = many_pages(12, 172);
        // Pages that came meanwhile have left room for others.
        assert!((0..64).contains(&(12 * 172 - MOST_PAGES - refused)), "{refused} refused");
        assert!(pages.iter().all(|&pages| pages >= MAX_WAITING_PAGES / 12 - 1), "{pages:?}");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn pages_without_a_bound_are_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::PagesWithoutBound, || many_pages(1, MOST_PAGES + 28)).0, 0);
    }

    /// How many pages are made for a request that is asked 64 times, while it is being made, or behind
    /// so many others that it waits; and whether it is answered.
    fn repeated_pages(others: u64) -> (usize, bool) {
        let mut driver = shard();
        ask_pages(&mut driver, 7, 2..2 + others);
        // In one turn, so that no answer comes in between.
        ask_pages(&mut driver, 7, std::iter::repeat_n(1, 64));
        let told = all_pages(&mut driver);
        (count_pages(&told) - others as usize, told.contains(&(7, 1, true)))
    }

    #[test]
    fn what_is_asked_again_is_made_once() {
        assert_eq!(repeated_pages(0), (1, true));
        assert_eq!(repeated_pages(100), (1, true));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_page_that_is_made_again_is_found() {
        use timestone_types::planted::{Bug, with};
        assert!(with(Bug::RepeatsPages, || repeated_pages(0)).0 > 1);
        assert!(with(Bug::RepeatsPages, || repeated_pages(100)).0 > 1);
    }

    /// One reply address asks for more than fits, and again whenever it is answered: how many pages it
    /// gets before another one gets its own. None: that one is refused, or gets none before all of these.
    fn pages_of_the_other() -> Option<usize> {
        const MOST: usize = 400;
        let mut driver = shard();
        let mut id = (MAX_PAGES_AT_ONCE + MAX_WAITING_PAGES) as u64;
        ask_pages(&mut driver, 7, 1..=id);
        ask_pages(&mut driver, 8, std::iter::once(1));
        let mut pages = 0;
        while pages < MOST {
            for (to, _, is_page) in told_pages(&mut driver) {
                if to == 8 {
                    return is_page.then_some(pages);
                }
                if is_page {
                    pages += 1;
                    id += 1;
                    ask_pages(&mut driver, 7, std::iter::once(id));
                }
            }
            tell(&mut driver, |_, _| {});
        }
        None
    }

    #[test]
    fn nobody_waits_for_all_pages_of_another() {
        let pages = pages_of_the_other().expect("it is its turn");
        assert!(pages <= 2 * MAX_PAGES_AT_ONCE, "{pages} pages came before");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_line_that_serves_one_first_is_found() {
        use timestone_types::planted::{Bug, with};
        let pages = with(Bug::PagesOfOneFirst, pages_of_the_other);
        assert_eq!(pages, None);
    }

    /// How many pages are made of 100 that wait, when it is so long after. Ten are asked for again in between.
    fn left_pages(wait: Duration) -> usize {
        let mut driver = shard();
        let (made, asked) = (MAX_PAGES_AT_ONCE as u64, MAX_PAGES_AT_ONCE as u64 + 100);
        ask_pages(&mut driver, 7, 1..=asked);
        driver.set_now(START.saturating_add(wait / 2));
        ask_pages(&mut driver, 7, asked - 9..=asked);
        driver.set_now(START.saturating_add(wait));
        let told = all_pages(&mut driver);
        assert_eq!(told.len() as u64, asked, "each is answered");
        count_pages(&told) - made as usize
    }

    #[test]
    fn a_page_that_nobody_waits_for_any_more_is_not_made() {
        assert_eq!(left_pages(MAX_PAGE_SILENCE - Duration::from_secs(1)), 100);
        let pages = left_pages(MAX_PAGE_SILENCE);
        // Some were made before.
        assert!((10..20).contains(&pages), "{pages} pages");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_page_that_is_made_for_nobody_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::MakesLeftPages, || left_pages(MAX_PAGE_SILENCE)), 100);
    }

    /// Clients of four reply addresses want more pages than are made: they ask again each second until
    /// their deadline, and for another one then. How many pages are made in half a minute, and how many
    /// of them were still wanted.
    fn wanted_pages() -> (usize, usize) {
        const TURN: Duration = Duration::from_millis(150);
        const DEADLINE: Duration = Duration::from_secs(10);
        const EACH: usize = 300;
        #[derive(Clone, Copy)]
        struct Operation {
            id: u64,
            ends: Timestamp,
            asks: Timestamp,
        }
        let mut driver = shard();
        let (mut now, mut last_id) = (START, 0);
        let mut begin = |now: Timestamp| {
            last_id += 1;
            Operation { id: last_id, ends: now.saturating_add(DEADLINE), asks: now }
        };
        let mut clients: Vec<Vec<Operation>> =
            (0..4).map(|_| (0..EACH).map(|_| begin(now)).collect()).collect();
        let (mut pages, mut wanted) = (0, 0);
        while now < START.saturating_add(3 * DEADLINE) {
            now = now.saturating_add(TURN);
            driver.set_now(now);
            for (to, operations) in clients.iter_mut().enumerate() {
                let mut asked = Vec::new();
                for operation in operations {
                    if operation.ends <= now {
                        *operation = begin(now);
                    }
                    if operation.asks <= now {
                        operation.asks = now.saturating_add(Duration::from_secs(1));
                        asked.push(operation.id);
                    }
                }
                if !asked.is_empty() {
                    ask_pages(&mut driver, to as u16, asked.into_iter());
                }
            }
            tell(&mut driver, |_, _| {});
            for (to, id, is_page) in told_pages(&mut driver) {
                let operations = &mut clients[usize::from(to)];
                let operation = operations.iter_mut().find(|operation| operation.id == id);
                pages += usize::from(is_page);
                wanted += usize::from(is_page && operation.is_some());
                match operation {
                    Some(operation) if is_page => *operation = begin(now),
                    Some(operation) => {
                        operation.asks = now.saturating_add(Duration::from_millis(500));
                    }
                    None => {}
                }
            }
        }
        (pages, wanted)
    }

    #[test]
    fn what_is_made_under_too_much_load_is_wanted() {
        let (pages, wanted) = wanted_pages();
        assert!(pages > 500 && 4 * wanted > 3 * pages, "{wanted} of {pages} are wanted");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_line_of_pages_that_are_too_old_is_found() {
        use timestone_types::planted::{Bug, with};
        let (pages, wanted) = with(Bug::MakesOldPages, wanted_pages);
        assert!(2 * wanted < pages, "{wanted} of {pages} are wanted");
    }

    /// The same with the check left out: the page and the number come, and may lack what was
    /// collected.
    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_answer_without_the_check_is_found() {
        let (keyspace, client) = (KeyspaceId::DEFAULT, CLIENT);
        let count = |at, envelope: &Envelope, out: &mut Vec<u8>| {
            Count { keyspace, at, client }.encode(envelope, out)
        };
        let bug = timestone_types::planted::Bug::UncheckedAnswer;
        let told = timestone_types::planted::with(bug, || answered(true, count));
        assert_eq!(told, (Kind::Counted, None));
    }
}
