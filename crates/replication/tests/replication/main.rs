//! The replicas of one shard in a world that loses, doubles and reorders messages, and kills them.

mod explore;
mod laws;
mod lost_and_late;
mod malformed;
#[cfg(feature = "planted-bugs")]
mod planted;
mod random;
mod rebuilding;
mod scripts;
mod world;

/// Whether as much is tried as the machine can do in an hour or so.
pub(crate) fn is_full() -> bool {
    std::env::var_os("TIMESTONE_TEST_SWEEP").is_some_and(|sweep| sweep == "full")
}
