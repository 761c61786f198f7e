//! Parts that every flash-backed store of a shard can share. Each owns its state, and none knows
//! what a store's index looks like.
//!
//! ```text
//!   cache    records that were asked for lately
//!   staging  values larger than a page, until they are on flash
//!   room     is there room for a write?
//!      │
//!      ▼
//!   volume ─► writer: pages, groups ─► port ─► device
//!         │     └─► ledger: what is durable
//!         └─► blocks: what each block is for, how much of it is dead
//!
//!   page_reads  who waits for which page
//!   assembly    large values that are put together for a read
//!   scrub       reads everything once        bulk_read  the same for recovery, and faster
//!   buffers     bytes for answers       ordered    keys in the order of their bytes, in memory
//! ```
//!
//! Dependencies go downwards only: a part gets the parts that it needs as arguments, and keeps no
//! reference to any. [`Kit`] is those that belong to a shard, not to one of its stores.
//!
//! Hidden dependency that this cut made explicit: the cache and the staging area know keys by
//! [`key_id::KeyId`], which has the shape of MFTL's index (segment, tag, check).

pub(crate) mod assembly;
pub(crate) mod blocks;
pub(crate) mod buffers;
pub(crate) mod bulk_read;
pub(crate) mod cache;
pub(crate) mod invalid_pages;
pub(crate) mod key_id;
pub(crate) mod ledger;
pub(crate) mod life;
pub(crate) mod ordered;
pub(crate) mod page_reads;
pub(crate) mod port;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod staging;
pub(crate) mod volume;
pub(crate) mod watermarks;
pub(crate) mod writer;

use buffers::Buffers;
use cache::Cache;
use room::Room;
use staging::Staging;
use volume::Volume;

/// What holds records, and takes new ones. Reads in flight are beside it: who waits for them is the
/// store's own.
pub(crate) struct Kit {
    pub(crate) volume: Volume,
    pub(crate) room: Room,
    pub(crate) cache: Cache,
    pub(crate) staging: Staging,
    pub(crate) buffers: Buffers,
}
