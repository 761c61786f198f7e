//! What a shard publishes of itself, and what others wish of it by the same way.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use timestone_store::Figure;
use timestone_types::Timestamp;
use timestone_wire::{self as wire, Frame};

use crate::driver::Driver;
use crate::gauges::{AS_CONFIGURED, ShardGauges};
use crate::limits::PUBLISH_INTERVAL;
use crate::requests::Requests;
use crate::shard::ShardStore;
use crate::turn::Turn;

/// The gauges of a shard, and when they were set.
pub(crate) struct ShardFigures {
    gauges: Arc<ShardGauges>,
    next_publish: Timestamp,
    /// What was last wished for the size of the cache.
    cache_wish: u64,
}

impl ShardFigures {
    /// Nothing is published yet.
    pub(crate) const fn new(gauges: Arc<ShardGauges>) -> Self {
        Self { gauges, next_publish: Timestamp::ZERO, cache_wish: AS_CONFIGURED }
    }

    /// What counts single events.
    #[inline]
    pub(crate) fn gauges(&self) -> &ShardGauges {
        &self.gauges
    }

    /// Whether gateways or embedded clients of this process may still send something.
    pub(crate) fn has_writers(&self) -> bool {
        self.gauges.writers.load(Acquire) > 0
    }

    /// Whether it is time to publish; counts as done.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.next_publish;
        if is_due {
            self.next_publish = now.saturating_add(PUBLISH_INTERVAL);
            assert!(self.next_publish > now, "not again in the same turn");
        }
        is_due
    }

    /// Publishes everything.
    pub(crate) fn publish(
        &self,
        now: Timestamp,
        store: &ShardStore,
        driver: &Driver,
        sizes: (usize, usize),
    ) {
        self.publish_store(store, driver.collected().below(), sizes);
        self.gauges.publish_tables(&driver.view(now));
    }

    /// Publishes what there is without a participant: of one that serves nobody, and has `prepared`
    /// promises of its primary.
    pub(crate) fn publish_without(
        &self,
        store: &ShardStore,
        watermark: Timestamp,
        prepared: usize,
    ) {
        self.publish_store(store, watermark, (0, prepared));
    }

    fn publish_store(
        &self,
        store: &ShardStore,
        watermark: Timestamp,
        (requests, prepared): (usize, usize),
    ) {
        let (figures, full) = (store.figures(), store.is_full());
        if full != self.gauges.fullness.is_full.load(Relaxed) {
            let shard = self.gauges.shard;
            if full {
                tracing::warn!(
                    %shard, blocks = figures.get(Figure::Blocks), cause = store.growth_error().unwrap_or("its capacity is reached"),
                    "the shard has no room for writes: reads and deletes go on; delete something, \
                     free space on its disk or raise the capacity"
                );
            } else {
                tracing::info!(%shard, "the shard has room for writes again");
            }
        }
        self.gauges.fullness.cause.set(if full { store.growth_error() } else { None });
        self.gauges.publish(&figures, full, watermark, requests, prepared);
    }

    /// Follows a wish for another size of the record cache, and takes the memory of what the shard
    /// keeps of keys out of its share.
    pub(crate) fn size_cache(&mut self, store: &mut ShardStore) {
        let wish = self.gauges.cache_wish.load(Relaxed);
        if wish != self.cache_wish {
            assert!(wish != AS_CONFIGURED, "a wish is not taken back");
            self.cache_wish = wish;
            store.resize_cache(wish);
        }
        store.charge_cache(self.gauges.access_bytes.load(Relaxed));
    }

    /// Answers a question for the shard's figures.
    pub(crate) fn answer(
        ctx: &mut Turn<'_>,
        reply_to: timestone_seda::ReplyAddress,
        frame: &Frame<'_>,
        requests: &mut Requests,
        (store, driver, prepared): (&ShardStore, &Driver, usize),
    ) {
        let envelope = requests.envelope_for(frame);
        let figures = store.figures();
        let own = [
            ("watermark", driver.collected().below().as_nanos()),
            ("prepared", prepared as u64),
            ("requests", requests.len() as u64),
        ];
        let mut list = wire::StatusListWriter::begin(&envelope, requests.reply(ctx, reply_to));
        for (name, value) in figures.iter().map(|(figure, value)| (figure.name(), value)).chain(own)
        {
            assert!(list.push(name, &value.to_string()), "a shard's figures fit a frame by far");
        }
        list.finish();
    }
}
