//! Replica sets: who gets them, how they change, and what a restored master does.

use timestone_types::{ClientId, KeyspaceId};

use super::*;

pub(crate) fn replicated(shards: u16, replicas: u8) -> Master {
    let factor = ReplicationFactor::new(replicas).expect("a factor");
    Master::create_replicated(CLUSTER, shards, factor, SEED).expect("a master")
}

fn sets(master: &Master) -> Vec<(u32, u32, Vec<u32>)> {
    let entry = |entry: &ShardEntry| {
        let replicas = entry.replicas.iter().map(|server| server.get()).collect();
        (entry.epoch.get(), entry.primary.get(), replicas)
    };
    master.map().shards().iter().map(entry).collect()
}

fn term(master: &mut Master, controller: u32) -> Term {
    let (expected, _) = master.controller();
    let command = MasterCommand::BeginTerm { controller: ServerId::new(controller), expected };
    match master.step(command).expect("a term").answer {
        MasterAnswer::Term { term, .. } => term,
        other => panic!("no term: {other:?}"),
    }
}

fn change(
    master: &mut Master,
    term: Term,
    (shard, expected): (u16, u32),
    primary: u32,
    replicas: &[u32],
) -> Result<MasterAnswer, ClusterError> {
    let change = ShardChange {
        shard: ShardId::new(shard),
        expected: Epoch::new(expected),
        primary: ServerId::new(primary),
        replicas: replicas.iter().copied().map(ServerId::new).collect(),
    };
    master.step(MasterCommand::ChangeShard { term, change }).map(|step| step.answer)
}

fn confirm(master: &mut Master, term: Term, shard: u16, epoch: u32) -> MasterAnswer {
    let (shard, epoch) = (ShardId::new(shard), Epoch::new(epoch));
    master.step(MasterCommand::ConfirmShard { term, shard, epoch }).expect("known").answer
}

/// A master of one shard at three of four servers, confirmed, in term 1.
fn of_three() -> (Master, Term) {
    let mut master = replicated(1, 3);
    for server in 1..=4 {
        master.step(register(server, 7400 + server as u16, 1)).expect("registered");
    }
    let term = term(&mut master, 1);
    assert_eq!(sets(&master), [(2, 1, vec![1, 2, 3])]);
    assert!(matches!(confirm(&mut master, term, 0, 2), MasterAnswer::Changed(_)));
    (master, term)
}

#[test]
fn shards_are_given_out_when_there_are_servers_enough_for_all_their_replicas() {
    let mut master = replicated(4, 3);
    master.step(register(1, 7401, 4)).expect("registered");
    master.step(register(2, 7402, 1)).expect("registered");
    let nobody = vec![(0, 0, vec![]); 4];
    assert_eq!(sets(&master), nobody, "nobody serves alone");
    master.step(register(3, 7403, 1)).expect("registered");
    let complete = [
        (2, 1, vec![1, 2, 3]),
        (2, 2, vec![2, 1, 3]),
        (2, 3, vec![3, 2, 1]),
        (2, 1, vec![1, 2, 3]),
    ];
    assert_eq!(sets(&master), complete);
    for server in [3, 4] {
        master.step(register(server, 7403, 1)).expect("registered");
        assert_eq!(sets(&master), complete, "complete sets stay as they are");
    }
}

#[test]
fn primaries_and_replicas_are_spread_evenly_over_distinct_servers() {
    for (replicas, shards) in [(3u8, 3u16), (3, 12), (3, 7), (5, 20), (5, 1)] {
        let mut master = replicated(shards, replicas);
        for server in 1..=u64::from(replicas) {
            master.step(register(server, 7400 + server as u16, 4)).expect("registered");
        }
        let mut primaries = vec![0u16; usize::from(replicas) + 1];
        for entry in master.map().shards() {
            let mut distinct = entry.replicas.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), usize::from(replicas), "{entry:?}");
            primaries[entry.primary.get() as usize] += 1;
        }
        let (least, most) = (primaries[1..].iter().min(), primaries[1..].iter().max());
        assert!(
            most.expect("servers") - least.expect("servers") <= 1,
            "{shards} shards at {replicas} servers: {primaries:?}"
        );
    }
}

#[test]
fn one_copy_stays_as_it_was() {
    let mut master = Master::create(CLUSTER, 2, SEED).expect("a master");
    for server in 1..=3 {
        master.step(register(server, 7400 + server as u16, 1)).expect("registered");
    }
    assert_eq!(sets(&master), [(1, 1, vec![1]), (1, 2, vec![2])]);
}

#[test]
fn a_change_counts_in_the_expected_epoch_only() {
    let (mut master, term) = of_three();
    let Ok(MasterAnswer::Changed(entry)) = change(&mut master, term, (0, 2), 2, &[1, 2, 3]) else {
        panic!("refused")
    };
    assert_eq!((entry.epoch, entry.primary), (Epoch::new(3), ServerId::new(2)));
    let before = master.clone();
    for expected in [0, 2, 4] {
        let conflict = change(&mut master, term, (0, expected), 3, &[1, 2, 3]);
        assert_eq!(conflict, Ok(MasterAnswer::Conflict(entry.clone())));
    }
    assert_eq!(master, before, "a conflict changes nothing");
    assert_eq!(confirm(&mut master, term, 0, 2), MasterAnswer::Conflict(entry));
}

#[test]
fn a_configuration_that_would_lose_what_was_acknowledged_is_refused() {
    let (mut master, term) = of_three();
    let refused = |master: &mut Master, primary, replicas: &[u32], epoch| {
        let before = master.clone();
        let answer = change(master, term, (0, epoch), primary, replicas);
        assert_eq!(*master, before, "what is refused changes nothing");
        match answer {
            Err(ClusterError::BadChange { reason, .. }) => reason,
            other => panic!("{primary} of {replicas:?} was taken: {other:?}"),
        }
    };
    for (primary, replicas, words) in [
        (4, &[1, 2, 3][..], "not be one of its replicas"),
        (4, &[1, 2, 4], "outside the last configuration"),
        (1, &[1, 1, 2], "named twice"),
        (1, &[1, 2, 3, 4], "more replicas"),
        (1, &[1, 2, 9], "not a server"),
        (1, &[1], "too few replicas of the last"),
    ] {
        let reason = refused(&mut master, primary, replicas, 2);
        assert!(reason.contains(words), "{primary} of {replicas:?}: {reason}");
    }
    change(&mut master, term, (0, 2), 1, &[1, 2, 4]).expect("one is replaced");
    // {1, 2, 3} served last: 4 may have nothing, and a second step would leave one of the three.
    assert!(refused(&mut master, 4, &[1, 2, 4], 3).contains("outside"));
    assert!(refused(&mut master, 1, &[1, 4, 3], 3).contains("has not served yet"));
    change(&mut master, term, (0, 3), 2, &[1, 2, 4]).expect("the primary may move");
    confirm(&mut master, term, 0, 4);
    change(&mut master, term, (0, 4), 4, &[2, 4]).expect("4 has served");
    assert_eq!(sets(&master), [(5, 4, vec![2, 4])]);
}

#[test]
fn a_term_that_is_over_changes_nothing() {
    let (mut master, old) = of_three();
    let new = term(&mut master, 2);
    assert!(new > old);
    let before = master.clone();
    for asked in [old, Term::ZERO, new.next()] {
        let refused = change(&mut master, asked, (0, 2), 2, &[1, 2, 3]);
        assert_eq!(refused, Err(ClusterError::StaleTerm { asked, current: new }));
        let confirm =
            MasterCommand::ConfirmShard { term: asked, shard: ShardId::ZERO, epoch: Epoch::new(2) };
        assert!(master.step(confirm).is_err());
    }
    let late = MasterCommand::BeginTerm { controller: ServerId::new(3), expected: old };
    let answer = master.step(late).expect("answered").answer;
    assert_eq!(answer, MasterAnswer::Term { term: new, controller: ServerId::new(2) });
    let stranger = MasterCommand::BeginTerm { controller: ServerId::new(9), expected: new };
    assert_eq!(master.step(stranger), Err(ClusterError::ServerUnknown(ServerId::new(9))));
    assert_eq!(master, before);
}

#[test]
fn a_primary_may_ask_for_a_new_epoch_of_its_configuration() {
    let (mut master, _) = of_three();
    let answer = change(&mut master, Term::ZERO, (0, 2), 1, &[1, 2, 3]).expect("a new epoch");
    let MasterAnswer::Changed(entry) = answer else { panic!("{answer:?}") };
    assert_eq!(entry.epoch, Epoch::new(3));
}

/// A state of format 2, by its documented layout: two shards, of which server 1 has the first.
fn state_of_one_copy() -> Vec<u8> {
    let mut first = entry(0, vec![range(0, 8191)]);
    first.epoch = Epoch::new(3);
    let mut second = entry(1, vec![range(8192, 16_383)]);
    (second.epoch, second.primary, second.replicas) = (Epoch::ZERO, ServerId::NONE, Vec::new());
    let (mut map, mut body, mut name) = (Vec::new(), Vec::new(), Vec::new());
    map_of(vec![first, second]).expect("a map").encode(&mut map);
    body.extend((map.len() as u32).to_le_bytes());
    body.extend(map);
    body.extend(SEED.0.to_le_bytes());
    for number in [2u32, 1025, 1, 1] {
        body.extend(number.to_le_bytes());
    }
    // The keyspace `default`: id, name, options.
    Keyspace::default_keyspace().name.to_string().bytes().for_each(|byte| name.push(byte));
    body.extend(KeyspaceId::DEFAULT.get().to_le_bytes());
    body.extend((name.len() as u16).to_le_bytes());
    body.extend(name);
    body.extend([1, 1, 1, 1, 1]);
    let mut bytes = b"TSMASTER".to_vec();
    bytes.extend(2u32.to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

#[test]
fn a_state_of_the_format_before_replica_sets_is_read() {
    let mut master = Master::decode(&state_of_one_copy()).expect("the old state");
    assert_eq!(sets(&master), [(3, 1, vec![1]), (0, 0, vec![])]);
    assert_eq!(master.reserved_clients(), (ClientId::new(1025), ClientId::new(1025)));
    let again = Master::decode(&bytes_of(&master)).expect("the state in the new format");
    assert_eq!(again, master);
    master.step(register(7, 7407, 1)).expect("registered");
    assert_eq!(sets(&master), [(3, 1, vec![1]), (1, 2, vec![2])]);
}

/// A backup of a cluster, and the state that a server has seen afterwards: with one more server,
/// one more keyspace, other client ids and a higher epoch.
fn backup_and_later() -> (Master, Master) {
    let (mut master, term) = of_three();
    let backup = master.clone();
    master.step(register(5, 7405, 0)).expect("registered");
    master.step(create("later")).expect("created");
    for _ in 0..5 {
        master.step(MasterCommand::RegisterClient { count: 1024 }).expect("ids");
    }
    change(&mut master, term, (0, 2), 3, &[1, 2, 3]).expect("changed");
    confirm(&mut master, term, 0, 3);
    change(&mut master, term, (0, 3), 3, &[2, 3]).expect("changed");
    (backup, master)
}

/// The backup after a restore, in which every server has told what it has seen.
fn restored(mut backup: Master, later: &Master) -> Master {
    assert!(backup.step(MasterCommand::BeginRestored).expect("begun").persist);
    assert!(!backup.step(MasterCommand::BeginRestored).expect("begun").persist);
    for (server, seen) in [(1, Vec::new()), (2, bytes_of(later)), (3, Vec::new()), (4, Vec::new())]
    {
        let refused = backup.step(MasterCommand::RegisterClient { count: 1 });
        assert!(matches!(refused, Err(ClusterError::Restored { .. })), "{refused:?}");
        assert!(backup.step(MasterCommand::FetchMap).is_err(), "an old map is not told");
        let server = ServerId::new(server);
        backup.step(MasterCommand::TellSeen { server, state: seen }).expect("told");
        backup = Master::decode(&bytes_of(&backup)).expect("the state");
    }
    // The server that only the later state knows.
    backup.step(MasterCommand::ForgetServer { server: ServerId::new(5) }).expect("forgotten");
    assert_eq!(backup.awaited(), []);
    backup
}

fn nothing_is_handed_out_twice(mut restored: Master, later: &Master) -> bool {
    let answer = restored.step(MasterCommand::RegisterClient { count: 1 }).expect("ids").answer;
    let MasterAnswer::Clients(block) = answer else { panic!("{answer:?}") };
    let epoch = |master: &Master| master.map().epoch(ShardId::ZERO).expect("a shard");
    block.first > later.reserved_clients().1
        && epoch(&restored) > epoch(later)
        && restored.map().version() > later.map().version()
        && restored.controller().0 > later.controller().0
}

#[test]
fn a_restored_master_goes_on_above_what_any_server_has_seen() {
    let (backup, later) = backup_and_later();
    let mut restored = restored(backup, &later);
    assert!(nothing_is_handed_out_twice(restored.clone(), &later));
    let entry = &restored.map().shards()[0];
    assert_eq!((entry.primary.get(), entry.replicas.len()), (3, 2), "the later configuration");
    assert!(restored.keyspace("later").is_some());
    let MasterAnswer::Created(keyspace) = restored.step(create("next")).expect("created").answer
    else {
        panic!()
    };
    assert!(keyspace.id.number() > 1024, "ids of keyspaces that nobody has told of are not used");
}

/// A backup that one change is missing from; the server that has seen it tells last.
fn one_change_is_kept() -> bool {
    let (mut backup, _) = of_three();
    let mut later = backup.clone();
    later.step(create("later")).expect("created");
    let told = [bytes_of(&backup), Vec::new(), bytes_of(&backup), bytes_of(&later)];
    backup.step(MasterCommand::BeginRestored).expect("begun");
    for (server, state) in (1..).zip(told) {
        let server = ServerId::new(server);
        backup.step(MasterCommand::TellSeen { server, state }).expect("told");
    }
    assert_eq!(backup.awaited(), []);
    assert!(backup.revision() > later.revision(), "what it does next is later");
    backup.keyspace("later").is_some()
}

#[test]
fn a_restored_master_has_the_last_change_that_any_server_has_seen() {
    assert!(one_change_is_kept());
}

#[test]
fn a_server_of_another_cluster_has_nothing_to_tell_a_restored_master() {
    let (mut backup, _) = backup_and_later();
    backup.step(MasterCommand::BeginRestored).expect("begun");
    let before = backup.clone();
    let other = Master::create(ClusterId::new(9), 1, SEED).expect("a master");
    let told = MasterCommand::TellSeen { server: ServerId::new(1), state: bytes_of(&other) };
    assert!(matches!(backup.step(told), Err(ClusterError::WrongCluster { .. })));
    let damaged = MasterCommand::TellSeen { server: ServerId::new(1), state: vec![1] };
    assert!(backup.step(damaged).is_err());
    assert_eq!(backup, before);
}

proptest! {
    /// Whatever is asked for: of every configuration that may have served, enough replicas stay,
    /// and the primary was in all of them.
    #[test]
    fn enough_of_every_configuration_that_may_have_served_stays(
        asked in prop::collection::vec((any::<u8>(), 1u32..6, any::<bool>(), any::<u8>()), 1..80),
    ) {
        let mut master = replicated(1, 3);
        for server in 1..=5 {
            master.step(register(server, 7400 + server as u16, 1)).expect("registered");
        }
        let term = term(&mut master, 1);
        let entry = |master: &Master| master.map().shards()[0].clone();
        let mut may_have_served = vec![entry(&master).replicas];
        for (members, primary, confirms, stale) in asked {
            let now = entry(&master);
            let expected = now.epoch.get() - u32::from(stale % 8 == 0);
            if confirms {
                if let MasterAnswer::Changed(entry) = confirm(&mut master, term, 0, expected) {
                    may_have_served = vec![entry.replicas];
                }
                continue;
            }
            let members: Vec<u32> = (1..6).filter(|one| members >> one & 1 == 1).collect();
            let answer = change(&mut master, term, (0, expected), primary, &members);
            let Ok(MasterAnswer::Changed(entry)) = answer else { continue };
            prop_assert_eq!(entry.epoch.get(), now.epoch.get() + 1);
            for served in &may_have_served {
                prop_assert!(served.contains(&entry.primary), "{:?} after {:?}", entry, served);
                let staying = entry.replicas.iter().filter(|one| served.contains(one)).count();
                prop_assert!(staying >= served.len().min(2), "{:?} after {:?}", entry, served);
            }
            may_have_served.push(entry.replicas);
        }
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, with};

    use super::*;

    #[test]
    fn a_restored_master_that_hands_out_old_epochs_is_noticed() {
        let (backup, later) = backup_and_later();
        let restored = with(Bug::ReissuesEpochs, || {
            let mut backup = backup;
            backup.step(MasterCommand::BeginRestored).expect("begun");
            for server in 1..=4 {
                let told = MasterCommand::TellSeen {
                    server: ServerId::new(server),
                    state: bytes_of(&later),
                };
                backup.step(told).expect("told");
            }
            backup
        });
        assert!(!nothing_is_handed_out_twice(restored, &later));
    }

    #[test]
    fn a_restore_whose_steps_count_as_changes_is_noticed() {
        assert!(!with(Bug::CountsWayBack, one_change_is_kept), "the planted bug is found");
    }

    #[test]
    fn a_compare_and_swap_that_does_not_compare_is_noticed() {
        let answer = with(Bug::SwapsWithoutComparing, || {
            let (mut master, term) = of_three();
            change(&mut master, term, (0, 2), 2, &[1, 2, 3]).expect("changed");
            change(&mut master, term, (0, 2), 3, &[1, 2, 3])
        });
        assert!(matches!(answer, Ok(MasterAnswer::Changed(_))), "the planted bug is found");
    }
}
