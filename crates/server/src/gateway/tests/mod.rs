//! Tests of the gateway: commands against tables, the whole stage against shards in memory, and both against a real Redis.

mod commands;
mod flows;
mod redis;
mod shards;
mod world;
