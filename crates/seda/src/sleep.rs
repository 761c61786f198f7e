//! The sleeping flag: producers wake a consumer only when it sleeps, and no wake-up is lost.
//!
//! ```text
//!   consumer                                     producer
//!   flag = SLEEPING                              push the event
//!   fence ──────────────────┐      ┌──────────── fence
//!   queues empty? ──no──► flag = AWAKE           flag == SLEEPING? ──no──► done
//!     │ yes                                        │ yes, and swapped to AWAKE by us
//!   block in poll ◄──────────── waker ─────────────┘
//!   flag = AWAKE
//! ```
//!
//! Invariant (Dekker's): of the consumer's look at the queues and the producer's look at the flag,
//! at least one comes after both fences and sees the other's write. So either the consumer finds
//! the event, or the producer finds it sleeping and wakes it. The swap lets one of several
//! producers pay for the system call. The module knows nothing of queues and pollers, so that it
//! can be modelled by itself. Every change of the flag is a swap, so that each follows the one that
//! it replaced, in one order for all: a late swap of a producer can never pass for a change after
//! the next announcement. Only those on their way to sleep pay for it.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether one consumer thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct SleepFlag {
    sleeping: AtomicBool,
}

impl SleepFlag {
    /// Consumer: announces sleep, and looks once more. `true`: block now, once, then call
    /// [`SleepFlag::awake`]; whatever ended the block has used the announcement up, so blocking
    /// again needs a new one. `false`: there is work.
    pub(crate) fn may_sleep(&self, idle: impl FnOnce() -> bool) -> bool {
        self.sleeping.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if idle() {
            return true;
        }
        self.sleeping.swap(false, Ordering::Relaxed);
        false
    }

    /// Consumer: is awake again, whatever woke it.
    pub(crate) fn awake(&self) {
        self.sleeping.swap(false, Ordering::Relaxed);
    }

    /// Anybody: whether the consumer is on its way to sleep, or asleep. Nothing may depend on it but
    /// guesses: it may have changed since.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Producer, after its pushes: whether the caller must wake the consumer.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::thread;

    #[test]
    fn one_of_several_producers_wakes_a_sleeper_and_none_an_awake_consumer() {
        let flag = SleepFlag::default();
        assert!(!flag.must_wake());
        assert!(!flag.may_sleep(|| false));
        assert!(!flag.must_wake());
        assert!(flag.may_sleep(|| true));
        assert_eq!((flag.must_wake(), flag.must_wake()), (true, false));
        assert!(flag.may_sleep(|| true));
        flag.awake();
        assert!(!flag.must_wake());
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        const ROUNDS: u64 = 100_000;
        const MEETINGS: u64 = 3;
        let flag = SleepFlag::default();
        let sent = AtomicU64::new(0);
        let seen = AtomicU64::new(0);
        thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let mut taken = 0;
                while taken < ROUNDS {
                    if flag.may_sleep(|| sent.load(Ordering::Relaxed) == taken) {
                        // Without a wake-up for a pending event this parks for ever, and the test
                        // hangs. A wake-up may be meant for an event that was already seen: then
                        // sleep must be announced anew.
                        thread::park();
                        flag.awake();
                    }
                    taken = sent.load(Ordering::Acquire);
                    seen.store(taken, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                sent.store(round, Ordering::Release);
                if flag.must_wake() {
                    consumer.thread().unpark();
                }
                while round.is_multiple_of(MEETINGS) && seen.load(Ordering::Acquire) < round {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(seen.load(Ordering::Relaxed), ROUNDS);
    }
}
