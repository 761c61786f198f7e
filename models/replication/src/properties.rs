//! What must hold in every state.

use stateright::Property;

use crate::ends;
use crate::model::Small;
use crate::record::Record;
use crate::world::{Replica, SHARDS, TXNS, Told, World, committed_versions, version_bit};

pub fn all(model: &Small) -> Vec<Property<Small>> {
    let mut properties = vec![
        Property::always("a transaction has one outcome", |_, world: &World| {
            let has_one = |told: &Told| told.commits.count_ones() + u32::from(told.abort) <= 1;
            world.txns.iter().all(|txn| has_one(&txn.told)) && !world.is_contradicted
        }),
        Property::always("nothing acknowledged is lost or done twice", is_kept),
        Property::always("committed transactions are serializable", is_serializable),
        Property::always("single reads see what was there before them", |_, world: &World| {
            !world.is_stale
        }),
        Property::sometimes("a transaction commits", |_, world: &World| {
            world.txns.iter().any(|txn| txn.told.commits != 0)
        }),
    ];
    if model.checks_ends {
        properties.push(Property::always("everything ends when faults do", ends::does_end));
    }
    if model.has_truncation {
        properties.push(Property::sometimes("a replica drops a commit", |_, world: &World| {
            let has_dropped = |replica: &Replica| replica.store != 0;
            world.shards.iter().any(|of_shard| of_shard.replicas.iter().any(has_dropped))
        }));
    }
    if model.has_closed_timestamps {
        properties.push(Property::sometimes("a timestamp is closed", |_, world: &World| {
            world.shards[0].closed.iter().any(Option::is_some)
        }));
    }
    properties
}

/// A primary that serves in its shard's newest epoch has what was told, once.
fn is_kept(model: &Small, world: &World) -> bool {
    (0..SHARDS).all(|shard| {
        let Some(primary) = model.newest(world, shard) else { return true };
        // Whoever is in its epoch has nothing in the store that it does not have.
        let committed = primary.store | committed_versions(&primary.view, !0);
        let replicas = &world.shards[shard].replicas;
        let is_in = |replica: &&Replica| replica.normal == world.shards[shard].epoch;
        if replicas.iter().filter(is_in).any(|replica| replica.store & !committed != 0) {
            return false;
        }
        (0..TXNS).filter(|&txn| model.specs[txn].uses(shard)).all(|txn| {
            let is_there = |attempt| {
                primary.view[txn] == Record::Committed(attempt)
                    || primary.store & version_bit(txn, attempt) != 0
            };
            let told = world.txns[txn].told;
            match (told.commit(), is_there(0), is_there(1)) {
                (_, true, true) => false,
                (Some(attempt), has_first, has_second) if has_first || has_second => {
                    attempt == u8::from(has_second)
                }
                (Some(attempt), ..) => primary.view[txn].promised() == Some(attempt),
                (None, has_first, has_second) => !(told.abort && (has_first || has_second)),
            }
        })
    })
}

/// What every transaction and the snapshot have read is the newest below their timestamps.
fn is_serializable(model: &Small, world: &World) -> bool {
    let commit_of =
        |txn: usize| world.txns[txn].told.commit().map(|attempt| model.at(txn, attempt));
    let is_newest = |reader: Option<usize>, shard: usize, version: u8, at: u8| {
        (0..TXNS).filter(|&txn| Some(txn) != reader && model.specs[txn].writes[shard]).all(|txn| {
            let commits = model.specs[txn].commits;
            let read_from = version != 0 && commits.contains(&version);
            let is_aborted = world.txns[txn].told.abort;
            let missed = commit_of(txn).is_some_and(|commit| version < commit && commit <= at);
            !missed && !(read_from && is_aborted)
        })
    };
    let transactions = (0..TXNS).all(|txn| {
        let Some(commit) = commit_of(txn) else { return true };
        (0..SHARDS).all(|shard| {
            world.txns[txn].reads[shard]
                .is_none_or(|version| is_newest(Some(txn), shard, version, commit))
        })
    });
    let snapshot = model.snapshot.is_none_or(|at| {
        (0..SHARDS).all(|shard| {
            world.snapshot[shard].is_none_or(|version| is_newest(None, shard, version, at))
        })
    });
    transactions && snapshot
}
