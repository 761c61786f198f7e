//! What one client can make the gateway keep: answers that it does not read, commands that it does
//! not finish, queues.

mod answers;
mod derived;
mod input;

use core::time::Duration;
use std::sync::Arc;

use timestone_seda::{Memory, MemoryUse};

use crate::tests::world::{Client, SHARDS, World, encode};

pub(super) const VALUE: usize = 1024 * 1024;

pub(super) fn begun(key: &str) -> Vec<u8> {
    let command = encode(&[&b"SET"[..], key.as_bytes(), &vec![b'x'; VALUE]]);
    command[..300_000].to_vec()
}

/// So many commands that make a long value each, with few bytes of their own.
pub(super) fn makers(count: usize, length: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|n| encode(&["SETRANGE", &format!("k{n}"), &(length - 1).to_string(), "x"]))
        .collect()
}

/// Memory for eight of the values that are made.
pub(super) const MADE: u64 = 8 * VALUE as u64;

/// Commands that make much more than there is memory for, while shards answer no commit. What is
/// counted in the end, how many commits the shards have, and the world.
pub(super) fn making(commands: &[u8]) -> (World, Client, u64, u32) {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = short_answers(&mut world);
    world.wishes.lock().unwrap().hold_prepares = true;
    world.post(client, commands);
    world.pass(Duration::from_millis(200));
    let prepares = world.wishes.lock().unwrap().seen.get("prepare").copied().unwrap_or_default();
    let used = world.memory.used(MemoryUse::Input);
    (world, client, used, prepares)
}

/// A connection whose pipeline is expected to have short answers.
pub(super) fn short_answers(world: &mut World) -> Client {
    let client = world.connect();
    world.post(client, &encode(&["GET", "nope"]).repeat(100));
    world.settle();
    assert_eq!(world.output(client), b"$-1\r\n".repeat(100));
    client
}
