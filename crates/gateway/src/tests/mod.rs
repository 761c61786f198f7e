//! Tests of the gateway: commands against tables, the whole stage against shards in memory, and
//! both against a real Redis.

mod calls;
mod commands;
mod failover;
mod flows;
mod followers;
mod host;
mod links;
mod memory;
mod ordered;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "beside a real redis-server, which takes its time, and says which seed it drew"
)]
mod redis;
mod remote;
mod shards;
mod told;
mod turns;
mod world;
