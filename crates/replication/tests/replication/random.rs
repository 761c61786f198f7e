//! Random runs: whoever is killed, whatever is lost, what counts stays, and when the faults stop all
//! replicas come to have the same.

use timestone_replication::limits::Retention;
use timestone_replication::{Input, ReplicaId};
use timestone_types::random::{Dice, Seed};

use crate::world::World;

fn pick<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[usize::try_from(dice.below(of.len() as u64)).expect("few")]
}

/// Which replicas the next epoch has: mostly the same.
fn configuration(dice: &mut Dice, world: &World, size: usize) -> Vec<ReplicaId> {
    let mut ids: Vec<_> = world.servers.keys().copied().collect();
    while ids.len() > size {
        let at =
            if dice.below(4) == 0 { dice.below(ids.len() as u64) } else { ids.len() as u64 - 1 };
        ids.remove(usize::try_from(at).expect("few"));
    }
    ids
}

/// One step of one world.
fn step(dice: &mut Dice, world: &mut World, size: usize) {
    let ids: Vec<_> = world.servers.keys().copied().collect();
    let id = pick(dice, &ids);
    match dice.below(100) {
        0..=39 => {
            if !world.flying.is_empty() {
                let last = world.flying.len() as u64;
                let index = if dice.below(3) == 0 { dice.below(last) } else { 0 };
                world.deliver(usize::try_from(index).expect("few"));
            }
        }
        40..=43 => {
            if !world.flying.is_empty() {
                let index = dice.below(world.flying.len() as u64);
                world.flying.swap_remove(usize::try_from(index).expect("few"));
            }
        }
        44..=46 => {
            if !world.flying.is_empty() {
                let index = dice.below(world.flying.len() as u64);
                let again = world.flying[usize::try_from(index).expect("few")].clone();
                world.flying.push(again);
            }
        }
        47..=66 => world.sync(id, usize::try_from(dice.below(4) + 1).expect("few")),
        67..=82 => world.write(id, dice.below(2) == 0),
        83..=88 => {
            world.pass(dice.below(150));
            world.input(id, Input::Tick);
        }
        89..=91 => {
            let replicas = configuration(dice, world, size);
            let leader = pick(dice, &replicas);
            if world.is_up(leader) {
                world.lead(leader, &replicas);
            }
        }
        92..=93 => world.kill(id, usize::try_from(dice.below(3)).expect("few")),
        94..=96 => {
            if !world.is_up(id) {
                world.start(id);
                world.follow_map(id);
            }
        }
        97 => {
            let from = pick(dice, &ids);
            match dice.below(3) {
                0 => world.copy_checkpoint(from, id),
                1 => world.begin_checkpoint(from, id),
                _ => world.end_checkpoint(id),
            }
        }
        98 if dice.below(3) == 0 => {
            // As many as are survived: another one when a table has been made without the last one.
            if world.retention == Retention::default() && size >= 3 && world.may_lose(id) {
                world.lose_disk(id);
            }
        }
        98 => world.checkpoint(id),
        _ => {
            let to = pick(dice, &ids);
            if to != id {
                world.input(id, Input::LinkUp { to });
            }
        }
    }
}

/// When the faults stop, one of the replicas serves, and all come to have what it has. Whether that
/// is so: not where of some configuration too few have what they had.
fn quiesce(dice: &mut Dice, world: &mut World, size: usize) -> bool {
    let ids: Vec<_> = world.servers.keys().copied().collect();
    ids.iter().for_each(|&id| world.start(id));
    world.settle();
    let replicas = configuration(dice, world, size);
    let mut tries = 0;
    loop {
        let leader = replicas[tries % replicas.len()];
        world.lead(leader, &replicas);
        world.settle();
        if world.is_serving(leader) {
            break;
        }
        // Whoever lacks what nobody keeps any more needs a checkpoint first.
        for &id in &replicas {
            world.rebuild(leader, id);
        }
        if world.is_serving(leader) {
            break;
        }
        let best = ids.iter().copied().max_by_key(|&id| world.applied(id).len()).expect("some");
        for &id in &replicas {
            world.copy_checkpoint(best, id);
        }
        if !world.may_serve() {
            return false;
        }
        tries += 1;
        assert!(tries < 20, "nobody can lead: {:?}", world.told());
    }
    let (primary, _) = world.primary().expect("somebody serves");
    for _ in 0..3 {
        world.write(primary, true);
    }
    world.settle();
    world.settle();
    let all = world.applied(primary).to_vec();
    assert_eq!(all.len(), world.laws.count(), "all that counts is there");
    for &id in &replicas {
        if id != primary && world.applied(id).len() < all.len() {
            world.copy_checkpoint(primary, id);
            world.rebuild(primary, id);
        }
        assert_eq!(world.applied(id), all, "{id} has not what the primary has");
    }
    true
}

/// One run.
pub(crate) fn run(seed: u64, steps: u64) -> usize {
    let mut dice = Seed(seed).derive("replicas", 0).dice();
    let (servers, size) =
        pick(&mut dice, &[(1, 1), (2, 2), (3, 3), (3, 3), (4, 3), (5, 5), (5, 3)]);
    let mut world = World::new(servers);
    world.batch_bytes = pick(&mut dice, &[100, 100, 100, 9 << 20]);
    // A replica that lacks what nobody keeps needs one that serves: where there are others that take
    // the place of those who have it, nobody may.
    if servers as usize == size && dice.below(2) == 0 {
        world.retention = Retention { bytes: 3 * world.batch_bytes, ..Retention::default() };
    }
    let replicas = configuration(&mut dice, &world, size);
    world.lead(replicas[0], &replicas);
    for _ in 0..steps {
        step(&mut dice, &mut world, size);
    }
    if quiesce(&mut dice, &mut world, size) { world.laws.count() } else { 0 }
}

#[test]
fn what_counts_stays_and_replicas_converge() {
    let seeds = if crate::is_full() { 300_000 } else { 3_000 };
    let counts: Vec<usize> = (0..seeds).map(|seed| run(seed, 600)).collect();
    let counted: usize = counts.iter().sum();
    assert!(counted > 20_000, "the worlds do something: {counted} batches");
    let nothing = counts.iter().filter(|&&count| count == 0).count();
    assert!(nothing * 20 < counts.len(), "{nothing} of {seeds} worlds end with nothing");
}
