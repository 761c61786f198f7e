//! The master as its drivers use it: crashes between steps, repeated commands, damaged bytes; and
//! the map's rules.

mod conformance;
mod controller;
mod embedded;
mod heartbeats;
mod replicas;
mod world;

use proptest::prelude::*;
use timestone_cluster::limits::{CLIENT_ID_BLOCK, MAX_CLIENT_IDS_PER_COMMAND, MAX_KEYSPACES};
use timestone_cluster::{
    Address, CacheMode, ClientIdBlock, ClusterError, ControlState, DirectoryId, IndexKind,
    Isolation, Keyspace, KeyspaceName, KeyspaceOptions, MapVersion, Master, MasterAnswer,
    MasterCommand, NormalConfiguration, ReplicationFactor, Run, ServerAddresses, ServerId,
    ServerInfo, ShardChange, ShardEntry, ShardMap, SlotRange, Term,
};
use timestone_types::{
    ClientId, ClusterId, Epoch, HashSeed, KeyspaceId, SLOT_COUNT, ShardId, Slot, slot_of,
};

const SEED: HashSeed = HashSeed(77);
const CLUSTER: ClusterId = ClusterId::new(0xc1);

fn bytes_of(master: &Master) -> Vec<u8> {
    let mut out = Vec::new();
    master.encode(&mut out);
    out
}

fn addresses(port: u16) -> ServerAddresses {
    let native = Address::new(&format!("127.0.0.1:{port}")).expect("an address");
    ServerAddresses { native: Some(native), resp: None, http: None }
}

fn register(directory: u64, port: u16, shards_wanted: u16) -> MasterCommand {
    MasterCommand::RegisterServer {
        cluster: ClusterId::ZERO,
        directory: DirectoryId(directory),
        run: Run { number: 1, tag: 1 },
        addresses: addresses(port),
        shards_wanted,
    }
}

fn name(text: &str) -> KeyspaceName {
    KeyspaceName::new(text).expect("a name")
}

fn create(text: &str) -> MasterCommand {
    MasterCommand::CreateKeyspace { name: name(text), options: KeyspaceOptions::DEFAULT }
}

fn server(id: u32) -> ServerInfo {
    ServerInfo {
        id: ServerId::new(id),
        directory: DirectoryId(u64::from(id)),
        addresses: addresses(7400),
    }
}

fn range(first: u16, last: u16) -> SlotRange {
    SlotRange::new(Slot::new(first).expect("a slot"), Slot::new(last).expect("a slot"))
        .expect("a range")
}

fn entry(id: u16, ranges: Vec<SlotRange>) -> ShardEntry {
    let one = ServerId::new(1);
    ShardEntry {
        id: ShardId::new(id),
        epoch: Epoch::new(1),
        primary: one,
        replicas: vec![one],
        ranges,
    }
}

fn map_of(shards: Vec<ShardEntry>) -> Result<ShardMap, ClusterError> {
    ShardMap::new(CLUSTER, MapVersion::new(1), vec![server(1)], shards)
}

fn registered(answer: MasterAnswer) -> (ServerId, Vec<u16>, ShardMap) {
    match answer {
        MasterAnswer::Server { server, shards, map, hash_seed: SEED } => {
            (server, shards.iter().map(|shard| shard.get()).collect(), map)
        }
        other => panic!("not a registration: {other:?}"),
    }
}

#[test]
fn every_slot_of_an_even_map_has_the_owner_whose_range_holds_it() {
    for shards in [1u16, 2, 3, 7, 4096] {
        let map = ShardMap::single(CLUSTER, server(1), shards).expect("a map");
        let mut sizes = vec![0u32; usize::from(shards)];
        for raw in 0..SLOT_COUNT {
            let slot = Slot::new(raw).expect("a slot");
            let owner = map.shard(map.shard_of(slot)).expect("the owner is in the map");
            assert!(owner.ranges.iter().any(|range| range.contains(slot)));
            sizes[usize::from(owner.id.get())] += 1;
        }
        let (least, most) =
            (sizes.iter().min().expect("shards"), sizes.iter().max().expect("shards"));
        assert!(most - least <= 1, "{shards} shards have {least} to {most} slots");
    }
    assert!(ShardMap::even(CLUSTER, 0).is_err());
    assert!(ShardMap::even(CLUSTER, 4097).is_err());
}

#[test]
fn keys_with_one_hash_tag_live_in_one_shard() {
    let map = ShardMap::single(CLUSTER, server(1), 16).expect("a map");
    assert_eq!(map.shard_of_key(b"{user7}.name"), map.shard_of_key(b"{user7}.mail"));
    assert_eq!(map.shard_of_key(b"foo"), map.shard_of(slot_of(b"foo")));
    assert_eq!(map.primary(ShardId::new(3)).map(|server| server.id), Some(ServerId::new(1)));
    assert_eq!(map.epoch(ShardId::new(3)), Some(Epoch::new(1)));
    assert_eq!(map.primary(ShardId::new(16)), None);
}

#[test]
fn a_map_with_a_gap_an_overlap_or_a_stranger_is_refused_by_name() {
    let gap = map_of(vec![entry(0, vec![range(0, 99)]), entry(1, vec![range(101, 16_383)])]);
    assert_eq!(
        gap,
        Err(ClusterError::SlotOwners { slot: Slot::new(100).expect("a slot"), owners: 0 })
    );
    let end = map_of(vec![entry(0, vec![range(0, 16_382)])]);
    assert_eq!(
        end,
        Err(ClusterError::SlotOwners { slot: Slot::new(16_383).expect("a slot"), owners: 0 })
    );
    let overlap = map_of(vec![entry(0, vec![range(0, 100)]), entry(1, vec![range(100, 16_383)])]);
    assert_eq!(
        overlap,
        Err(ClusterError::SlotOwners { slot: Slot::new(100).expect("a slot"), owners: 2 })
    );
    let twice = map_of(vec![entry(0, vec![range(0, 100)]), entry(0, vec![range(101, 16_383)])]);
    assert_eq!(twice, Err(ClusterError::DuplicateShard(ShardId::ZERO)));
    let mut stranger = entry(0, vec![range(0, 16_383)]);
    stranger.replicas.push(ServerId::new(9));
    assert!(matches!(map_of(vec![stranger]), Err(ClusterError::Malformed { .. })));
    let mut outside = entry(0, vec![range(0, 16_383)]);
    outside.replicas.clear();
    assert!(matches!(map_of(vec![outside]), Err(ClusterError::Malformed { .. })));
    let twin = ShardMap::new(
        CLUSTER,
        MapVersion::new(1),
        vec![server(1), server(1)],
        vec![entry(0, vec![range(0, 16_383)])],
    );
    assert!(matches!(twin, Err(ClusterError::Malformed { .. })));
}

#[test]
fn interleaved_ranges_route_to_their_shards() {
    let map = map_of(vec![
        entry(5, vec![range(0, 9), range(20, 29)]),
        entry(2, vec![range(10, 19), range(30, 16_383)]),
    ])
    .expect("a map");
    for (slot, owner) in [(0, 5), (9, 5), (10, 2), (19, 2), (20, 5), (29, 5), (30, 2), (16_383, 2)]
    {
        assert_eq!(
            map.shard_of(Slot::new(slot).expect("a slot")),
            ShardId::new(owner),
            "slot {slot}"
        );
    }
    assert_eq!(map.shard(ShardId::new(5)).map(|shard| shard.ranges.len()), Some(2));
}

#[test]
fn the_layout_of_a_map_is_the_documented_one() {
    let info = ServerInfo {
        id: ServerId::new(1),
        directory: DirectoryId(2),
        addresses: ServerAddresses::IN_PROCESS,
    };
    let map = ShardMap::single(ClusterId::new(3), info, 1).expect("a map");
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    #[rustfmt::skip]
    let expected = [
        3, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,                  // cluster, version
        1, 0, 0, 0,  1, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,     // one server: id, directory,
        0, 0,  0, 0,  0, 0,                                   //   three empty addresses
        1, 0, 0, 0,  0, 0,  1, 0, 0, 0,  1, 0, 0, 0,          // one shard: id, epoch, primary,
        1, 0, 0, 0,  1, 0, 0, 0,                              //   one replica,
        1, 0, 0, 0,  0, 0,  0xff, 0x3f,                       //   one range
    ];
    assert_eq!(bytes, expected);
    assert_eq!(ShardMap::decode(&bytes), Ok(map));
}

#[test]
fn client_ids_are_never_handed_out_twice_whatever_crashes() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let mut durable = bytes_of(&master);
    let mut last = 0;
    // Crash after every third answer, and often before a reservation became durable: such an answer
    // never left.
    for round in 0..5000u32 {
        let count = 1 + round % 7;
        let step = master.step(MasterCommand::RegisterClient { count }).expect("ids");
        if round % 2 == 0 && step.persist {
            master = Master::decode(&durable).expect("the old state");
            continue;
        }
        if step.persist {
            durable = bytes_of(&master);
        }
        let MasterAnswer::Clients(block) = step.answer else { panic!("not client ids") };
        assert_eq!(block.count, count);
        assert!(block.first.get() > last, "{block:?} after {last}");
        last = block.iter().last().expect("ids").get();
        if round % 3 == 2 {
            master = Master::decode(&durable).expect("the durable state");
        }
    }
}

#[test]
fn a_reservation_serves_many_clients_without_a_write() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let writes = (0..2 * CLIENT_ID_BLOCK)
        .filter(|_| master.step(MasterCommand::RegisterClient { count: 1 }).expect("an id").persist)
        .count();
    assert_eq!(writes, 2);
    for count in [0, MAX_CLIENT_IDS_PER_COMMAND + 1] {
        let refused = master.step(MasterCommand::RegisterClient { count });
        assert!(matches!(refused, Err(ClusterError::Limit { .. })), "{count} were given");
    }
}

#[test]
fn servers_share_the_free_shards_and_keep_theirs_over_restarts() {
    let mut master = Master::create(CLUSTER, 4, SEED).expect("a master");
    let first = master.step(register(10, 7400, 3)).expect("registered");
    assert!(first.persist);
    let (one, shards, map) = registered(first.answer);
    assert_eq!((one, shards), (ServerId::new(1), vec![0, 1, 2]));
    assert_eq!(
        (map.version(), map.epoch(ShardId::ZERO)),
        (MapVersion::new(2), Some(Epoch::new(1)))
    );
    assert_eq!(map.primary(ShardId::new(3)), None);

    let (two, shards, _) =
        registered(master.step(register(20, 7500, u16::MAX)).expect("registered").answer);
    assert_eq!((two, shards), (ServerId::new(2), vec![3]));
    let (_, shards, _) = registered(master.step(register(30, 7600, 2)).expect("registered").answer);
    assert_eq!(shards, Vec::<u16>::new());

    master = Master::decode(&bytes_of(&master)).expect("the state");
    let version = master.map().version();
    let again = master.step(register(10, 7400, 3)).expect("registered");
    assert!(!again.persist, "nothing changed");
    assert_eq!(registered(again.answer), (one, vec![0, 1, 2], master.map().clone()));
    assert_eq!(master.map().version(), version);

    let moved = master.step(register(10, 7999, 3)).expect("registered");
    assert!(moved.persist);
    let (_, _, map) = registered(moved.answer);
    assert_eq!(map.version(), version.next());
    assert_eq!(map.server(one).map(|server| server.addresses.clone()), Some(addresses(7999)));
    assert_eq!(map.epoch(ShardId::ZERO), Some(Epoch::new(1)), "same primary, same epoch");
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let before = master.clone();
    let command = MasterCommand::RegisterServer {
        cluster: ClusterId::new(0xbad),
        directory: DirectoryId(1),
        run: Run { number: 1, tag: 1 },
        addresses: ServerAddresses::IN_PROCESS,
        shards_wanted: 1,
    };
    assert_eq!(master.step(command), Err(ClusterError::WrongCluster { ours: 0xc1, theirs: 0xbad }));
    assert_eq!(master, before);
}

#[test]
fn keyspace_ids_are_not_used_again() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let MasterAnswer::Created(users) = master.step(create("users")).expect("created").answer else {
        panic!()
    };
    assert_eq!(users.id, KeyspaceId::new(1));
    assert_eq!(
        master.step(create("users")),
        Err(ClusterError::KeyspaceExists { name: "users".to_owned() })
    );
    let dropped =
        master.step(MasterCommand::DropKeyspace { name: name("users") }).expect("dropped");
    assert_eq!(dropped.answer, MasterAnswer::Dropped { id: users.id });
    master = Master::decode(&bytes_of(&master)).expect("the state");
    let MasterAnswer::Created(next) = master.step(create("users")).expect("created").answer else {
        panic!()
    };
    assert_eq!(next.id, KeyspaceId::new(2));
    assert_eq!(master.keyspace("users").map(|keyspace| keyspace.id), Some(next.id));
    let list = master.step(MasterCommand::ListKeyspaces).expect("listed").answer;
    assert_eq!(list, MasterAnswer::Keyspaces(vec![Keyspace::default_keyspace(), next]));
}

#[test]
fn the_index_of_a_keyspace_may_change_between_full_and_frugal_and_its_id_stays() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let options = KeyspaceOptions { index: IndexKind::Ordered, ..KeyspaceOptions::DEFAULT };
    let command = MasterCommand::CreateKeyspace { name: name("ordered"), options };
    let MasterAnswer::Created(ordered) = master.step(command).expect("created").answer else {
        panic!()
    };
    let begun = master.revision();
    for (number, index) in [(1, IndexKind::Frugal), (2, IndexKind::Full)] {
        assert_eq!(master.note_index(KeyspaceId::DEFAULT, index), Ok(true));
        assert_eq!(master.note_index(KeyspaceId::DEFAULT, index), Ok(false), "it is noted");
        assert_eq!(master.revision(), begun + number);
        let read = Master::decode(&bytes_of(&master)).expect("the state");
        let default = read.keyspace("default").expect("it always exists");
        assert_eq!((default.id, default.options.index), (KeyspaceId::DEFAULT, index));
    }
    let before = master.clone();
    for (id, index) in [
        (KeyspaceId::DEFAULT, IndexKind::Ordered),
        (ordered.id, IndexKind::Frugal),
        (KeyspaceId::new(9), IndexKind::Frugal),
    ] {
        assert!(master.note_index(id, index).is_err(), "{id} {index}");
    }
    assert_eq!(master, before);
}

#[test]
fn refused_keyspace_commands_say_why_and_change_nothing() {
    let mut master = Master::create(CLUSTER, 1, SEED).expect("a master");
    let before = master.clone();
    let options = KeyspaceOptions {
        isolation: Isolation::Nmsi,
        cache: CacheMode::Lease,
        ..KeyspaceOptions::DEFAULT
    };
    let refused = master
        .step(MasterCommand::CreateKeyspace { name: name("x"), options })
        .expect_err("not served");
    assert_eq!(
        refused.to_string(),
        "keyspace option isolation = nmsi is not served by this version; it serves serializable"
    );
    let drop_default = MasterCommand::DropKeyspace { name: name("default") };
    assert_eq!(master.step(drop_default), Err(ClusterError::KeyspacePermanent));
    let drop_unknown = MasterCommand::DropKeyspace { name: name("nobody") };
    assert_eq!(
        master.step(drop_unknown),
        Err(ClusterError::KeyspaceUnknown { name: "nobody".to_owned() })
    );
    assert_eq!(master, before);
    for index in 1..MAX_KEYSPACES {
        master.step(create(&format!("k{index}"))).expect("below the limit");
    }
    assert!(matches!(master.step(create("one-more")), Err(ClusterError::Limit { .. })));
}

#[test]
fn every_flipped_bit_and_every_lost_byte_of_the_state_is_noticed() {
    let mut master = Master::create(CLUSTER, 2, SEED).expect("a master");
    master.step(register(1, 7400, 2)).expect("registered");
    master.step(create("users")).expect("created");
    let bytes = bytes_of(&master);
    assert_eq!(bytes_of(&Master::decode(&bytes).expect("the state")), bytes);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Master::decode(&damaged).is_err(), "bit {bit} went unnoticed");
    }
    for length in 0..bytes.len() {
        assert!(Master::decode(&bytes[..length]).is_err(), "a state of {length} bytes was taken");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Master::decode(&longer).is_err());
    let mut newer = bytes;
    newer[8] = 5;
    assert_eq!(Master::decode(&newer), Err(ClusterError::Format { found: 5, supported: 4 }));
}

/// Found by fuzzing: a state whose checksum is right and whose revision was made up, so that the next
/// change had none to follow.
#[test]
fn a_state_that_counts_higher_than_any_master_has_come_is_refused() {
    let bytes = bytes_of(&Master::create(CLUSTER, 2, SEED).expect("a master"));
    let revision = 1u64.to_le_bytes();
    // One copy of each shard, no term and no controller yet follow it.
    let after = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let place = bytes
        .windows(revision.len() + after.len())
        .position(|part| part.starts_with(&revision) && part.ends_with(&after))
        .expect("the first revision");
    for (place, what) in [(place, "revision"), (place + revision.len() + 1, "term")] {
        for (number, is_taken) in [(u64::MAX, false), (u64::MAX / 2, true)] {
            let mut changed = bytes.clone();
            changed[place..place + 8].copy_from_slice(&number.to_le_bytes());
            let body = changed.len() - 4;
            let checksum = crc32c::crc32c(&changed[..body]);
            changed[body..].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(Master::decode(&changed).is_ok(), is_taken, "{what} {number}");
        }
    }
}

fn all_commands() -> Vec<MasterCommand> {
    vec![
        MasterCommand::RegisterClient { count: 3 },
        register(7, 7400, 2),
        MasterCommand::FetchMap,
        create("a.b-c_d"),
        MasterCommand::ListKeyspaces,
        MasterCommand::DropKeyspace { name: name("gone") },
        MasterCommand::ChangeShard {
            term: Term::new(5),
            change: ShardChange {
                shard: ShardId::new(1),
                expected: Epoch::new(4),
                primary: ServerId::new(2),
                replicas: vec![ServerId::new(1), ServerId::new(2)],
            },
        },
        MasterCommand::ConfirmShard {
            term: Term::new(5),
            shard: ShardId::new(1),
            epoch: Epoch::new(4),
        },
        MasterCommand::FetchControl,
        MasterCommand::BeginTerm { controller: ServerId::new(2), expected: Term::new(5) },
        MasterCommand::BeginRestored,
        MasterCommand::TellSeen { server: ServerId::new(3), state: vec![1, 2, 3] },
        MasterCommand::ForgetServer { server: ServerId::new(3) },
        MasterCommand::RaiseRun { server: ServerId::new(3), run: Run { number: 4, tag: 5 } },
    ]
}

fn all_answers() -> Vec<MasterAnswer> {
    let map = ShardMap::single(CLUSTER, server(1), 3).expect("a map");
    vec![
        MasterAnswer::Clients(ClientIdBlock { first: ClientId::new(9), count: 2 }),
        MasterAnswer::Server {
            server: ServerId::new(1),
            hash_seed: SEED,
            shards: vec![ShardId::ZERO],
            map: map.clone(),
        },
        MasterAnswer::Map(map.clone()),
        MasterAnswer::Created(Keyspace::default_keyspace()),
        MasterAnswer::Keyspaces(vec![Keyspace::default_keyspace()]),
        MasterAnswer::Dropped { id: KeyspaceId::new(4) },
        MasterAnswer::Changed(map.shards()[1].clone()),
        MasterAnswer::Conflict(map.shards()[2].clone()),
        MasterAnswer::Control(ControlState {
            replication: ReplicationFactor::new(3).expect("a factor"),
            term: Term::new(7),
            normal: vec![
                NormalConfiguration {
                    epoch: Epoch::new(1),
                    replicas: vec![ServerId::new(1)]
                };
                3
            ],
            runs: vec![Run { number: 3, tag: u64::MAX }],
            map,
        }),
        MasterAnswer::Term { term: Term::new(7), controller: ServerId::new(1) },
        MasterAnswer::Awaited(vec![ServerId::new(1), ServerId::new(3)]),
        MasterAnswer::Raised,
    ]
}

#[test]
fn commands_and_answers_read_back_and_their_beginnings_do_not() {
    for command in all_commands() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        for length in 0..bytes.len() {
            assert!(
                MasterCommand::decode(&bytes[..length]).is_err(),
                "{command:?} cut to {length}"
            );
        }
        assert_eq!(MasterCommand::decode(&bytes), Ok(command));
        bytes.push(0);
        assert!(MasterCommand::decode(&bytes).is_err());
    }
    for answer in all_answers() {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        for length in 0..bytes.len() {
            assert!(MasterAnswer::decode(&bytes[..length]).is_err(), "{answer:?} cut to {length}");
        }
        assert_eq!(MasterAnswer::decode(&bytes), Ok(answer));
        bytes.push(0);
        assert!(MasterAnswer::decode(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn damaged_metadata_never_panics_and_what_reads_back_is_consistent(
        which in 0usize..24, at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        let commands = all_commands();
        if let Some(command) = commands.get(which) {
            command.encode(&mut bytes);
        } else {
            all_answers()[which - commands.len()].encode(&mut bytes);
        }
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut again = Vec::new();
        if which < commands.len() {
            if let Ok(command) = MasterCommand::decode(&bytes) {
                command.encode(&mut again);
                prop_assert_eq!(MasterCommand::decode(&again), Ok(command));
            }
        } else if let Ok(answer) = MasterAnswer::decode(&bytes) {
            answer.encode(&mut again);
            prop_assert_eq!(MasterAnswer::decode(&again), Ok(answer));
        }
    }
}
