//! The one hook for bugs on purpose: a test plants one of them for its thread, and the tests that
//! follow must notice. They exist only with the feature `planted-bugs`, which no release has.
//!
//! Code asks with [`crate::is_planted!`], which is the constant `false` where planted bugs are not
//! compiled, so that no signature and no field knows of them.

mod bug;

pub use bug::Bug;

std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
    static ANSWERS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    static DEFERS_PUTS: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
    static SCAN_PAGE_BYTES: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// For so many turns puts wait.
const TURNS: u32 = 256;

/// Makes a rare path common on this thread, no bug by itself: puts of decided transactions wait for
/// some turns of their shard, as they do when the store has no room for them at once.
pub fn defer_puts(wanted: bool) {
    DEFERS_PUTS.set(wanted.then_some(0));
}

/// Whether puts wait on this thread.
#[must_use]
pub fn defers_puts() -> bool {
    DEFERS_PUTS.get().is_some()
}

/// Whether puts that wait go on waiting in this turn.
#[must_use]
pub fn puts_still_wait() -> bool {
    let Some(turn) = DEFERS_PUTS.get() else { return false };
    DEFERS_PUTS.set(Some((turn + 1) % TURNS));
    turn != 0
}

/// Makes pages of scans small on this thread, no bug by itself: they hold as many bytes of keys, so
/// that small keyspaces have many pages; `None` ends that.
pub fn shorten_scan_pages(bytes: Option<usize>) {
    SCAN_PAGE_BYTES.set(bytes);
}

/// As many bytes of keys fit a page of a scan.
#[must_use]
pub fn scan_page_bytes() -> Option<usize> {
    SCAN_PAGE_BYTES.get()
}

/// Whether the answer that is due is lost: one in some hundred is.
#[must_use]
pub fn loses_answer() -> bool {
    ANSWERS.set(ANSWERS.get().wrapping_add(1));
    is_planted(Bug::LostAnswers) && ANSWERS.get().is_multiple_of(256)
}

/// Whether this one is planted on this thread.
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// What is told of a clock that shows `now`.
#[must_use]
pub fn read_clock(now: crate::Timestamp) -> crate::Timestamp {
    if is_planted(Bug::StaleReading) {
        now.saturating_sub(core::time::Duration::from_millis(5))
    } else {
        now
    }
}

/// What this comes to with the bug planted on this thread.
pub fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    set(Some(bug));
    let found = run();
    set(None);
    found
}

/// Plants a bug on this thread, instead of the one that is planted there; `None` ends that.
pub fn set(bug: Option<Bug>) {
    PLANTED.set(bug);
}
