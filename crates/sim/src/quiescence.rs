//! What must be gone, and what must be small, once the faults have ended and everybody has come to
//! rest.
//!
//! ```text
//!   all sessions ended ─► every table is empty, every log short ─► each key is written once more ─► two versions a key
//!                         (the watermark has passed all that was committed)
//! ```
//! Each bound says why it is what it is. The figures are those that servers publish; what they may
//! be is judged by [`timestone_workload::check`]. What is deliberately absent: bytes of memory.
//! Tables are slabs that keep what they once needed; that their entries go is what bounds them.

use std::time::Duration;

use timestone_cluster::ShardEntry;
use timestone_server::{ServerConfig, ShardFigures};
use timestone_types::{Timestamp, limits as shared};
use timestone_workload::check::{CheckResult, Quantity, check_bounds, check_left_over};

use crate::clock::EPOCH;
use crate::process::Role;
use crate::world::World;

/// For this long everything must have been as it should before a world counts as settled: figures
/// are published now and then.
pub(crate) const CALM: Duration = Duration::from_millis(500);
/// Log files beyond those that may wait to be carried forward: the open one, the next one, and one
/// being reclaimed a shard.
const SPARE_LOG_FILES: u64 = 4;

/// Whose figures they are.
fn shards(world: &World) -> impl Iterator<Item = (String, &ServerConfig, ShardFigures)> + '_ {
    let named = |(id, figures): (crate::network::ProcessId, ShardFigures)| {
        let process = &world.processes[id];
        let Role::Server(server) = &process.role else { return None };
        Some((format!("shard {} of {}", figures.shard, process.name), &server.config, figures))
    };
    world.figures().into_iter().filter_map(named)
}

fn named(figures: &[(&'static str, u64)], name: &str) -> u64 {
    figures.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// What stirs although nobody asks for anything any more, and what is larger than it may be.
/// `ended`: when the last session did, by true time; `jump`: how far a clock may have been wrong.
pub(crate) fn unsettled(world: &World, ended: Timestamp, jump: Duration) -> CheckResult {
    let mut verdict = check_left_over(left_over(world, ended, jump));
    verdict.absorb(check_bounds(bounded(world)));
    verdict
}

/// No version lies further ahead of true time: participants refuse timestamps beyond the lead, and
/// a restart's floor lies below its read bound. The clocks that both were measured by may have been
/// set forward, by `jump` at most; those that differ by nature do so by less than the lead.
pub(crate) const fn ahead(jump: Duration) -> Duration {
    shared::MAX_CLOCK_LEAD
        .saturating_mul(2)
        .saturating_add(shared::READ_BOUND_AHEAD)
        .saturating_add(jump)
}

fn left_over(world: &World, ended: Timestamp, jump: Duration) -> Vec<Quantity> {
    let passed =
        Timestamp::from_nanos(EPOCH.as_nanos() + ended.as_nanos()).saturating_add(ahead(jump));
    let mut all = Vec::new();
    for (whose, _, figures) in shards(world) {
        let behind = u64::try_from(passed.since(figures.watermark).as_millis()).unwrap_or(u64::MAX);
        let tables = |name| named(&figures.tables, name);
        let counts = [
            ("requests that wait for their answers", figures.requests),
            ("transactions with writes that are kept", figures.prepared),
            ("transactions in flight", tables("in_flight_transactions")),
            ("inputs that wait for decisions", tables("waiting_requests")),
            ("transactions that it is bringing to their end", tables("resolving_transactions")),
            // Clients that are heard of report their clock's now when they are idle, and others
            // leave after the session's time to live.
            ("milliseconds until its watermark has passed everything", behind),
            // The watermark has passed the begin of every transaction: nobody may ask for an
            // outcome any more.
            ("outcomes that are kept for replays", tables("kept_outcomes")),
        ];
        all.extend(counts.map(|(what, held)| Quantity {
            whose: whose.clone(),
            what,
            held,
            bound: 0,
        }));
    }
    all.extend(lacking(world));
    all
}

/// Replicas that lack something, as far as there are servers for them.
fn lacking(world: &World) -> Vec<Quantity> {
    let members = &world.config.members;
    let living = world.processes.iter().filter(|process| process.is_server() && !process.is_gone);
    let wanted = living.count().min(members.replication.replicas());
    let shards = world.replicated_shards().into_iter();
    let of_shard = |(entry, _): (ShardEntry, bool)| Quantity {
        whose: format!("shard {}", entry.id),
        what: "replicas that lack something",
        held: wanted.saturating_sub(world.whole_replicas(&entry)) as u64,
        bound: 0,
    };
    shards.map(of_shard).collect()
}

fn bounded(world: &World) -> Vec<Quantity> {
    let config = &world.config;
    // One id for each client that lives; those of the dead leave after the session's time to live.
    // Servers have a client for each thread's gateway.
    let (members, threads) = (&config.members, config.machine.threads as u64);
    // A gateway on every thread, and an embedded client where there are any.
    let on_thread = 1 + u64::from(members.embedded_sessions > 0);
    let clients = u64::from(members.clients) + u64::from(members.servers) * threads * on_thread;
    let block = config.storage.tuning.block_bytes;
    // A server may be a replica of every shard.
    let shards_each = match members.are_replicated() {
        true => u64::from(members.shards()),
        false => u64::from(members.shards_per_server.max(1)),
    };
    let mut all = Vec::new();
    for (whose, server, figures) in shards(world) {
        let cache = server.sizes.cache_bytes / shards_each;
        let capacity =
            server.sizes.capacity_bytes.unwrap_or_default() / shards_each / block * block;
        let limits = [
            // The window has turned twice since a key was used last.
            ("marks of keys in use", named(&figures.tables, "marks"), 0),
            ("clients that it knows", named(&figures.tables, "known_clients"), clients),
            ("bytes of record cache", named(&figures.store, "cache_bytes"), cache),
            (
                "bytes of capacity that it may not grow to",
                capacity.saturating_sub(named(&figures.store, "limit_bytes")),
                // A translation layer keeps blocks back: a tenth, and on a small device more.
                if config.storage.tuning.single_version { capacity / 2 } else { 0 },
            ),
        ];
        all.extend(limits.map(|(what, held, bound)| Quantity {
            whose: whose.clone(),
            what,
            held,
            bound,
        }));
    }
    // Beyond the files that wait to be carried forward, each shard may hold up two: one by its
    // oldest put, one by its oldest outcome. A replica that nobody writes to holds up a third one,
    // by the last batch that it has, which tells the numbers and the lease.
    let held_up = if members.are_replicated() { 3 } else { 2 };
    let log = &config.storage.tuning.log;
    let files = log.copy_forward_after_files as u64 + SPARE_LOG_FILES + held_up * shards_each;
    let bound = files * log.file_bytes * threads;
    // What a replica lacks that is gone is kept for it, until it is given up.
    if world.processes.iter().any(|process| process.is_gone) {
        return all;
    }
    for server in world.processes.iter().filter(|process| process.is_server()) {
        let held = world.processes.log_bytes(server.id);
        all.push(Quantity { whose: server.name.clone(), what: "bytes of log", held, bound });
    }
    all
}

/// Versions, after each key was written `touched` times in all, when the watermark had passed
/// everything that was written before: of each key, what was written since and the youngest version
/// at or below the watermark may be kept, and nothing else.
pub(crate) fn versions(world: &World, touched: u64) -> CheckResult {
    let (mut keys, mut versions) = (0, 0);
    for (_, _, figures) in shards(world) {
        keys += named(&figures.store, "keys");
        versions += named(&figures.store, "versions");
    }
    check_bounds([Quantity {
        whose: "the cluster".to_owned(),
        what: "versions",
        held: versions,
        bound: keys + touched,
    }])
}
