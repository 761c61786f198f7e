//! What the lock-free parts are built from, in one place: the models (`models/`) compile the same
//! files against loom's.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use rtrb::{Consumer, Producer, RingBuffer};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
