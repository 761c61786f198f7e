//! Whether everything comes to an end when faults do.
//!
//! A checker of liveness would need to know which schedules are fair. So another thing is asked, of
//! every state: that *one* schedule without faults leads to an end. It takes over where nobody
//! serves, lets every message arrive, and leaves all to the shards: the clients are gone. After it
//! every shard serves, nothing is prepared, and no record is left that is kept for nobody.

use crate::model::Small;
use crate::record::Record;
use crate::step::Step;
use crate::world::{EPOCHS, Role, SHARDS, Shard, World, each};

/// Whether that holds in a state.
pub fn does_end(model: &Small, world: &World) -> bool {
    let calm = Small {
        epochs: [EPOCHS as u8; SHARDS],
        candidates: &[0, 1, 2, 3, 4],
        restarts: 0,
        losses: 0,
        gives_up: 0,
        leases: 0,
        snapshot: None,
        ..model.clone()
    };
    // Where more than f have lost their state since the newest table that anybody has, something that
    // was acknowledged may be nowhere.
    let is_lost = |of_shard: &Shard| {
        let members = each(model.members(of_shard.epoch)).map(|one| &of_shard.replicas[one]);
        let newest = of_shard.replicas.iter().map(|one| one.normal).max();
        members.filter(|one| one.lost_in >= newest).count() > model.f
    };
    if world.shards.iter().any(is_lost) {
        return true;
    }
    let mut world = world.clone();
    world.now = 2;
    for txn in &mut world.txns {
        txn.is_client_up = false;
    }
    for shard in (0..SHARDS).filter(|&shard| model.is_used(shard)) {
        if !calm.is_served(&mut world, shard) {
            return false;
        }
    }
    while calm.pass_of_progress(&mut world) {}
    let is_left = |record: &Record| {
        *record != Record::Unseen && (model.has_truncation || !record.is_outcome())
    };
    (0..SHARDS).filter(|&shard| model.is_used(shard)).all(|shard| {
        model.newest(&world, shard).is_some_and(|primary| !primary.view.iter().any(is_left))
    })
}

impl Small {
    /// Lets a shard have a primary that serves, if it can.
    fn is_served(&self, world: &mut World, shard: usize) -> bool {
        self.install_everywhere(world, shard);
        if self.newest(world, shard).is_some() {
            return true;
        }
        let mut steps = Vec::new();
        self.take_overs(world, shard, &mut steps);
        for step in steps {
            let mut next = world.clone();
            if self.take(&mut next, step) {
                self.install_everywhere(&mut next, shard);
                if self.newest(&next, shard).is_some() {
                    *world = next;
                    return true;
                }
            }
        }
        false
    }

    fn install_everywhere(&self, world: &mut World, shard: usize) {
        let of_shard = &world.shards[shard];
        let role = of_shard.replicas[usize::from(of_shard.primary)].role;
        for replica in 0..self.replicas {
            // Who has lost its state needs a checkpoint of somebody who leads.
            if role != Role::Idle || world.shards[shard].replicas[replica].lost_in.is_none() {
                self.install(world, shard, replica);
            }
        }
    }

    /// Takes every step that leads on, once; false if there is none.
    fn pass_of_progress(&self, world: &mut World) -> bool {
        let mut steps = Vec::new();
        self.steps(world, &mut steps);
        let before = world.clone();
        for step in steps {
            let leads_on = match step {
                Step::TakeOver { .. }
                | Step::AckOnly { .. }
                | Step::Read { .. }
                | Step::Prepare { .. }
                | Step::TryLater { .. }
                | Step::ClientCrash { .. }
                | Step::Restart { .. }
                | Step::Lose { .. }
                | Step::Empty { .. }
                | Step::TimePasses => false,
                // Deposed primaries learn that they are.
                Step::Pass { shard, primary, .. }
                | Step::Vote { shard, primary, .. }
                | Step::Hear { shard, primary, .. }
                | Step::Freeze { shard, primary, .. }
                | Step::Answer { shard, primary, .. }
                | Step::GiveUp { shard, primary, .. }
                | Step::AcknowledgeDecision { shard, primary, .. }
                | Step::Settle { shard, primary, .. } => {
                    usize::from(world.shards[shard].primary) == primary
                }
                _ => true,
            };
            if leads_on {
                self.take(world, step);
            }
        }
        *world != before
    }
}
