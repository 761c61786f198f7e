//! Counts looks at the records of a bucket, for tests that ask how work grows with them. Nothing is
//! counted outside of the crate's own tests.

#[cfg(test)]
thread_local! {
    static LOOKS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Somebody looks at a record of a gathered bucket, or at what was judged of it.
#[inline]
pub(super) fn look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

/// Looks on this thread while something runs.
#[cfg(test)]
pub(super) fn looks_of(run: impl FnOnce()) -> u64 {
    let before = LOOKS.get();
    run();
    LOOKS.get() - before
}
