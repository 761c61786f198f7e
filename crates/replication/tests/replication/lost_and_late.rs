//! Golden runs: messages that are lost or late, sources that die, checkpoints at the wrong moment.

use timestone_replication::{Input, Message};

use crate::scripts::{ALL, EVERYTHING, ONE, TWO, three};
use crate::world::World;

fn deliver_all(world: &mut World) {
    while !world.flying.is_empty() {
        world.deliver(0);
    }
}

fn sync_all(world: &mut World) {
    ALL.iter().for_each(|&id| world.sync(id, EVERYTHING));
}

#[test]
fn a_hole_at_both_backups_is_filled_while_batches_flow() {
    let mut world = three();
    for written in 0..300 {
        world.write(ONE, false);
        if written == 0 {
            world.flying.clear();
        }
        deliver_all(&mut world);
        sync_all(&mut world);
        deliver_all(&mut world);
        world.pass(10);
        world.input(ONE, Input::Tick);
    }
    assert!(world.laws.count() > 250, "{} count", world.laws.count());
}

#[test]
fn what_counts_is_said_again_when_the_word_of_it_is_lost() {
    let mut world = three();
    world.write(ONE, false);
    deliver_all(&mut world);
    sync_all(&mut world);
    deliver_all(&mut world);
    assert_eq!(world.laws.count(), 1);
    world.pass(200);
    world.input(ONE, Input::Tick);
    let is_probe = |message: &Message<_>| matches!(message, Message::Probe { .. });
    assert!(world.flying.iter().any(|(_, _, message)| is_probe(message)));
    world.flying.clear();
    world.settle();
    assert_eq!(world.applied(TWO).len(), 1, "it has carried out what counts");
}
