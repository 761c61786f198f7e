//! What a net stage counts, readable from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::bump;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The live counters of one net stage.
        #[derive(Debug, Default)]
        pub struct NetMetrics {
            $(pub(crate) $name: Counter,)+
        }

        /// What a net stage has done so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct NetSnapshot {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl NetMetrics {
            /// All values (each by itself; they are not read in one instant).
            #[must_use]
            pub fn snapshot(&self) -> NetSnapshot {
                NetSnapshot { $($name: self.$name.0.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Open connections, dials under way included.
    connections,
    /// Connections accepted, or taken over from another net stage.
    accepted_total,
    /// Dials begun.
    dialled_total,
    /// Connections refused because there were too many, or because of shutdown.
    refused_total,
    /// Connections closed because they broke the protocol.
    broken_total,
    /// Frames received and handed on.
    frames_received_total,
    /// Frames answered with `Busy`.
    frames_busy_total,
    /// Bytes received.
    bytes_received_total,
    /// Bytes written.
    bytes_sent_total,
    /// Calls of read.
    reads_total,
    /// Calls of write.
    writes_total,
    /// Connections given up because their peers neither read nor finished what they had begun.
    stalled_total,
    /// Batches of frames of answers of which some were replaced by `Busy`.
    shed_total,
    /// Bytes of answers that wait for their peers.
    queued_bytes,
    /// Batches of frames for connections that were gone.
    frame_batches_dropped_total,
}

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        bump(&self.0, by);
    }

    pub(crate) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }
}
