//! A [`Course`] that threads read without a lock while one of them replaces it now and then.
//!
//! # Invariants
//! - Whoever reads gets all of a course or none of it: a sequence number tells when it was being
//!   replaced.
//! - One thread replaces it at a time; its owner has a lock for that.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::discipline::{COURSE_WORDS, Course};

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedCourse {
    /// Odd while the course is being replaced.
    sequence: AtomicU64,
    words: [AtomicU64; COURSE_WORDS],
}

impl SharedCourse {
    pub(crate) fn new(course: &Course) -> Self {
        Self { sequence: AtomicU64::new(0), words: course.to_words().map(AtomicU64::new) }
    }

    /// The course, whole.
    #[inline]
    pub(crate) fn get(&self) -> Course {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Course::from_words(words);
            }
            std::hint::spin_loop();
        }
    }

    /// Replaces the course. The caller holds its owner's lock.
    pub(crate) fn publish(&self, course: &Course) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence.is_multiple_of(2), "two threads replace the course");
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(course.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }
}
