//! Parts that every flash-backed store of a shard can share. Each owns its state.

pub(crate) mod blocks;
pub(crate) mod cache;
pub(crate) mod key_id;
pub(crate) mod port;
pub(crate) mod writer;
