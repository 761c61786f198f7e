//! What servers owe to clients that do not read: it is bounded, and does not stay for ever.
//!
//! ```text
//!   every look ─┬─► bytes of answers that are not written          not for long above what connections may be owed
//!               ├─► windows that are full, and since when          closed by the server after its limit for stalled peers
//!               └─► connections closed as stalled                  only where a client read nothing for as long
//! ```
//! The figures are those that servers publish; which windows are full, the network knows.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_seda::limits::{OUTPUT_BOUND, STALL_LIMIT};
use timestone_seda::simulated::VirtualTime;

use crate::network::{EndId, ProcessId};
use crate::process::ProcessLife;
use crate::world::World;

/// What a connection may be owed beyond the bound: two answers more than are expected, and buffers
/// that have grown by half again.
const BEYOND_BOUND: u64 = OUTPUT_BOUND as u64 / 4;
/// What others are owed, each: the answers of what is under way, while they or their links stand
/// still.
const OWED_TO_OTHERS: u64 = 512 * 1024;
/// Values that were asked for already count until their gateway has them, which drops those without
/// room and asks again, one at a time (docs/design/node.md, "Memory"). A flood asks for 200 × 48
/// KiB = 9.4 MiB at once when answers before were short: 5.4 MiB more than may be owed, for the 0.2
/// ms that they take from one thread to the other. What is owed for longer than this, while the
/// server runs, is owed.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// A peer that has read nothing is noticed so much later: its server may have stood still
/// meanwhile, several times.
const NOTICED: Duration = Duration::from_secs(10);

/// What is known of those who do not read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Windows that are full because their readers read nothing, and since when.
    full: BTreeMap<EndId, VirtualTime>,
    /// By server: its life, and how many connections that has closed as stalled.
    seen: BTreeMap<ProcessId, (u64, u64)>,
    /// Servers that count more than connections may be owed, and since when.
    above: BTreeMap<ProcessId, VirtualTime>,
    /// How many were closed as stalled.
    pub(crate) closed: u64,
    /// The longest that a window was full.
    longest: Duration,
}

impl Unread {
    /// Looks once. What is wrong: a property, and how that shows. `forgotten`: connections were
    /// forgotten on their way, which looks like a peer that does not read.
    pub(crate) fn look(
        &mut self,
        world: &World,
        forgotten: bool,
    ) -> Option<(&'static str, String)> {
        let now = world.now();
        let before = std::mem::take(&mut self.full);
        for end in world.network.full_windows() {
            let since = before.get(&end).copied().unwrap_or(now);
            self.full.insert(end, since);
            self.longest = self.longest.max(now.since(since));
        }
        if let Some(since) =
            self.full.values().min().filter(|since| now.since(**since) > STALL_LIMIT + NOTICED)
        {
            let words = format!(
                "a connection whose client has read nothing for {:?} is still open",
                now.since(*since)
            );
            return Some(("liveness", words));
        }
        let owed = world.board.redis.as_ref().map_or(0, |calls| calls.owed()) as u64;
        let (everybody, machine) = (&world.config.members, &world.config.machine);
        let redis = u64::from(everybody.redis_clients * everybody.redis_connections);
        let others =
            u64::from(everybody.clients + everybody.servers) * machine.threads as u64 + redis;
        let bound = owed * (OUTPUT_BOUND as u64 + BEYOND_BOUND) + others * OWED_TO_OTHERS;
        for process in &world.processes {
            let above = self.above.remove(&process.id);
            let ProcessLife::Serving(serving) = &process.life else { continue };
            let figures = (serving.connections)();
            let (life, closed) = self.seen.get(&process.id).copied().unwrap_or_default();
            let new = figures.stalled_total - if life == process.lives { closed } else { 0 };
            self.seen.insert(process.id, (process.lives, figures.stalled_total));
            self.closed += new;
            // One that ends waits for nobody for long.
            let waits = process.leaving.is_none() && !forgotten;
            if new > 0 && waits && self.longest + LOOKED < STALL_LIMIT {
                let words =
                    format!("{} closed a connection as stalled, and everybody read", process.name);
                return Some(("liveness", words));
            }
            if owed == 0 || figures.output_bytes <= bound || process.paused {
                continue;
            }
            let since = above.unwrap_or(now);
            self.above.insert(process.id, since);
            if now.since(since) > UNDER_WAY {
                let words = format!(
                    "{} owes {} bytes of answers; with {owed} connections that do not read it may \
                     owe {bound}",
                    process.name, figures.output_bytes
                );
                return Some(("bounds", words));
            }
        }
        None
    }
}

/// A window was full for so much longer than it was seen to be.
const LOOKED: Duration = Duration::from_secs(1);
