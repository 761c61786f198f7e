//! What every master does, whichever it is: one list of behaviours, run against the embedded master
//! here and against the one on etcd by that crate's tests, which include this file.

use std::collections::BTreeSet;

use timestone_cluster::{
    Address, ClusterError, ControlState, DirectoryId, KeyspaceName, KeyspaceOptions, MapVersion,
    MasterAnswer, MasterCommand, MasterFailure, MasterService, Run, ServerAddresses, ServerId,
    ShardChange, ShardEntry, ShardMap, Term,
};
use timestone_types::{ClusterId, Epoch, ShardId, Timestamp};

/// A cluster's master as several processes see it.
pub(crate) trait Masters {
    /// One of two ways to the master: they may be the same.
    fn at(&mut self, index: usize) -> &mut dyn MasterService;
    /// The time of whoever asks.
    fn now(&self) -> Timestamp;
    /// A little time passes.
    fn pause(&mut self);
    /// Time passes until leases that are not renewed have ended.
    fn outlast_leases(&mut self);
    /// The process, or both of them, start anew.
    fn restart(&mut self);
}

/// Makes a new cluster of so many shards and replicas.
pub(crate) type Make<'a> = &'a mut dyn FnMut(u16, u8) -> Box<dyn Masters>;

/// A behaviour, by name.
pub(crate) type Case = (&'static str, fn(Make<'_>));

/// All behaviours.
pub(crate) const CASES: [Case; 12] = [
    ("client ids are never handed out twice", client_ids),
    ("servers keep their numbers and shards", registrations),
    ("a run of a directory begins once, and above the last one", runs),
    ("replica sets are completed as servers come", replica_sets),
    ("a shard changes in the expected epoch only", compare_and_swap),
    ("a configuration is normal when its primary serves", confirmations),
    ("ids of keyspaces are not used again", keyspaces),
    ("what is refused changes nothing", refusals),
    ("a new map is told to whoever watches", watches),
    ("a server is alive while its lease lasts", leases),
    ("there is one controller at a time, and its term rises", elections),
    ("after a restore nothing is served until every server has told what it has seen", restores),
];

fn ask(masters: &mut dyn Masters, index: usize, command: MasterCommand) -> MasterAnswer {
    let words = format!("{command:?}");
    masters.at(index).execute(command).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn refused(masters: &mut dyn Masters, index: usize, command: MasterCommand) -> ClusterError {
    match masters.at(index).execute(command.clone()) {
        Err(MasterFailure::Refused(error)) => error,
        other => panic!("{command:?} was not refused: {other:?}"),
    }
}

fn register(directory: u64, port: u16, shards_wanted: u16) -> MasterCommand {
    let native = Address::new(&format!("127.0.0.1:{port}")).expect("an address");
    MasterCommand::RegisterServer {
        cluster: ClusterId::ZERO,
        directory: DirectoryId(directory),
        run: Run { number: 1, tag: 1 },
        addresses: ServerAddresses { native: Some(native), resp: None, http: None },
        shards_wanted,
    }
}

fn register_run(directory: u64, begun: Run) -> MasterCommand {
    let mut command = register(directory, 7401, 1);
    if let MasterCommand::RegisterServer { run, .. } = &mut command {
        *run = begun;
    }
    command
}

fn registered(answer: MasterAnswer) -> (u32, Vec<u16>, ShardMap) {
    let MasterAnswer::Server { server, shards, map, .. } = answer else { panic!("{answer:?}") };
    (server.get(), shards.iter().map(|shard| shard.get()).collect(), map)
}

fn name(text: &str) -> KeyspaceName {
    KeyspaceName::new(text).expect("a name")
}

fn create(text: &str) -> MasterCommand {
    MasterCommand::CreateKeyspace { name: name(text), options: KeyspaceOptions::DEFAULT }
}

fn control(masters: &mut dyn Masters, index: usize) -> ControlState {
    match ask(masters, index, MasterCommand::FetchControl) {
        MasterAnswer::Control(control) => control,
        other => panic!("{other:?}"),
    }
}

fn change(term: Term, expected: u32, primary: u32, replicas: &[u32]) -> MasterCommand {
    let change = ShardChange {
        shard: ShardId::ZERO,
        expected: Epoch::new(expected),
        primary: ServerId::new(primary),
        replicas: replicas.iter().copied().map(ServerId::new).collect(),
    };
    MasterCommand::ChangeShard { term, change }
}

/// Three servers with one shard each, at all three of them, and a controller's term.
fn three_servers(make: Make<'_>) -> (Box<dyn Masters>, Term) {
    let mut masters = make(3, 3);
    for server in 1..=3u16 {
        ask(&mut *masters, usize::from(server) % 2, register(server.into(), 7400 + server, 1));
    }
    let now = masters.now();
    let term = masters.at(0).campaign(now, ServerId::new(1)).expect("asked").expect("elected");
    (masters, term)
}

fn first_shard(masters: &mut dyn Masters, index: usize) -> ShardEntry {
    control(masters, index).map.shards()[0].clone()
}

fn client_ids(make: Make<'_>) {
    let mut masters = make(1, 1);
    let mut given = BTreeSet::new();
    for round in 0..400u32 {
        let count = 1 + round % 7 * 40;
        let command = MasterCommand::RegisterClient { count };
        let answer = ask(&mut *masters, (round % 3 % 2) as usize, command);
        let MasterAnswer::Clients(block) = answer else { panic!("{answer:?}") };
        assert_eq!(block.count, count);
        for client in block.iter() {
            assert!(client.get() > 0 && given.insert(client), "{client} was handed out before");
        }
        if round % 50 == 49 {
            masters.restart();
        }
    }
    for count in [0, 1025] {
        let refused = refused(&mut *masters, 0, MasterCommand::RegisterClient { count });
        assert!(matches!(refused, ClusterError::Limit { .. }), "{refused}");
    }
}

fn registrations(make: Make<'_>) {
    let mut masters = make(4, 1);
    let (one, shards, map) = registered(ask(&mut *masters, 0, register(10, 7401, 3)));
    assert_eq!((one, shards), (1, vec![0, 1, 2]));
    let (two, shards, later) = registered(ask(&mut *masters, 1, register(20, 7402, u16::MAX)));
    assert_eq!((two, shards), (2, vec![3]));
    assert!(later.version() > map.version());
    masters.restart();
    let (again, shards, same) = registered(ask(&mut *masters, 1, register(10, 7401, 3)));
    assert_eq!((again, shards), (1, vec![0, 1, 2]));
    assert_eq!(same, later, "a registration that changes nothing makes no new map");
    let (_, _, moved) = registered(ask(&mut *masters, 0, register(10, 7999, 3)));
    assert_eq!(moved.version(), later.version().next());
    assert_eq!(moved.shards(), later.shards());
    let mut stranger = register(30, 7403, 1);
    if let MasterCommand::RegisterServer { cluster, .. } = &mut stranger {
        *cluster = ClusterId::new(0xbad);
    }
    let refused = refused(&mut *masters, 0, stranger);
    assert!(matches!(refused, ClusterError::WrongCluster { .. }), "{refused}");
    assert_eq!(ask(&mut *masters, 1, MasterCommand::FetchMap), MasterAnswer::Map(moved));
}

fn runs(make: Make<'_>) {
    let mut masters = make(1, 1);
    let directory = DirectoryId(10);
    assert_eq!(control(&mut *masters, 0).last_run(directory), Run::NONE, "nobody was there");
    let first = Run::NONE.next(Run::NONE, 7);
    ask(&mut *masters, 0, register_run(10, first));
    assert_eq!(control(&mut *masters, 1).last_run(directory), first);
    ask(&mut *masters, 1, register_run(10, first));
    masters.restart();
    let known = control(&mut *masters, 0).last_run(directory);
    assert!(first.follows(known), "a restart forgets no run");
    let second = first.next(known, 8);
    ask(&mut *masters, 0, register_run(10, second));
    // A copy of the directory that has begun the same run, and one from before it.
    for late in [Run { tag: 9, ..second }, first, Run::NONE] {
        assert!(!late.follows(second));
        let before = control(&mut *masters, 1);
        let refused = refused(&mut *masters, 1, register_run(10, late));
        assert_eq!(refused, ClusterError::StaleRun { asked: late, known: second });
        assert_eq!(control(&mut *masters, 0), before);
    }
    // It goes on under the next number.
    let raise = |run| MasterCommand::RaiseRun { server: ServerId::new(1), run };
    let third = Run { number: 3, ..second };
    for run in [second, third, third] {
        assert_eq!(ask(&mut *masters, 1, raise(run)), MasterAnswer::Raised);
    }
    assert!(!second.follows(control(&mut *masters, 0).last_run(directory)), "a copy from before");
    for late in [second, Run { tag: 9, ..third }] {
        let refused = refused(&mut *masters, 0, raise(late));
        assert_eq!(refused, ClusterError::StaleRun { asked: late, known: third });
    }
    let nobody = MasterCommand::RaiseRun { server: ServerId::new(9), run: third };
    let refused = refused(&mut *masters, 0, nobody);
    assert_eq!(refused, ClusterError::ServerUnknown(ServerId::new(9)));
    // Its loss is accepted; and one that is ahead, as of a master that was restored.
    let accepted = first.next(third, 9);
    ask(&mut *masters, 1, register_run(10, accepted));
    let ahead = Run { number: accepted.number + 5, tag: 1 };
    assert!(ahead.follows(accepted) && ahead.is_ahead_of(accepted));
    ask(&mut *masters, 0, register_run(10, ahead));
    ask(&mut *masters, 0, register(20, 7402, 0));
    masters.restart();
    let control = control(&mut *masters, 0);
    assert_eq!((control.last_run(directory), control.runs.len()), (ahead, 2));
}

fn replica_sets(make: Make<'_>) {
    let (mut masters, _) = three_servers(make);
    let control = control(&mut *masters, 1);
    for (entry, primary) in control.map.shards().iter().zip(1..) {
        assert_eq!(entry.primary, ServerId::new(primary));
        let replicas: BTreeSet<u32> = entry.replicas.iter().map(|server| server.get()).collect();
        assert_eq!(replicas, BTreeSet::from([1, 2, 3]));
        assert_eq!(entry.replicas.len(), 3);
    }
}

fn compare_and_swap(make: Make<'_>) {
    let (mut masters, term) = three_servers(make);
    let before = first_shard(&mut *masters, 0);
    let epoch = before.epoch.get();
    let answer = ask(&mut *masters, 0, change(term, epoch, 1, &[1, 3, 2]));
    let MasterAnswer::Changed(entry) = answer else { panic!("{answer:?}") };
    assert_eq!(entry.epoch.get(), epoch + 1);
    for expected in [epoch - 1, epoch, epoch + 2] {
        let answer = ask(&mut *masters, 1, change(term, expected, 1, &[1, 2, 3]));
        assert_eq!(answer, MasterAnswer::Conflict(entry.clone()), "in epoch {expected}");
    }
    assert_eq!(first_shard(&mut *masters, 1), entry);
    masters.restart();
    assert_eq!(first_shard(&mut *masters, 0), entry);
}

fn confirmations(make: Make<'_>) {
    let (mut masters, term) = three_servers(make);
    let epoch = first_shard(&mut *masters, 0).epoch;
    let confirm = |epoch| MasterCommand::ConfirmShard { term, shard: ShardId::ZERO, epoch };
    // What the primary acknowledges before its set is normal may lie with any of them.
    let early = refused(&mut *masters, 0, change(term, epoch.get(), 1, &[1, 2]));
    assert!(matches!(early, ClusterError::BadChange { .. }), "{early}");
    assert!(matches!(
        ask(&mut *masters, 1, confirm(Epoch::new(epoch.get() + 1))),
        MasterAnswer::Conflict(_)
    ));
    let version = control(&mut *masters, 0).map.version();
    assert!(matches!(ask(&mut *masters, 1, confirm(epoch)), MasterAnswer::Changed(_)));
    let control = control(&mut *masters, 0);
    assert_eq!((control.normal[0].epoch, control.map.version()), (epoch, version));
    let answer = ask(&mut *masters, 0, change(term, epoch.get(), 1, &[1, 2]));
    assert!(matches!(answer, MasterAnswer::Changed(_)), "{answer:?}");
}

fn keyspaces(make: Make<'_>) {
    let mut masters = make(1, 1);
    let mut ids = BTreeSet::new();
    for round in 0..3 {
        let MasterAnswer::Created(made) = ask(&mut *masters, round % 2, create("users")) else {
            panic!()
        };
        assert!(ids.insert(made.id), "{} was used before", made.id);
        let exists = refused(&mut *masters, (round + 1) % 2, create("users"));
        assert_eq!(exists, ClusterError::KeyspaceExists { name: "users".to_owned() });
        let MasterAnswer::Keyspaces(list) = ask(&mut *masters, 1, MasterCommand::ListKeyspaces)
        else {
            panic!()
        };
        assert_eq!(list.last(), Some(&made));
        let drop = MasterCommand::DropKeyspace { name: name("users") };
        let dropped = ask(&mut *masters, (round + 1) % 2, drop);
        assert_eq!(dropped, MasterAnswer::Dropped { id: made.id });
        masters.restart();
    }
}

fn refusals(make: Make<'_>) {
    let (mut masters, term) = three_servers(make);
    let shard = ShardId::new(99);
    let before = control(&mut *masters, 0);
    let epoch = before.map.shards()[0].epoch.get();
    let commands = [
        MasterCommand::RegisterClient { count: 0 },
        MasterCommand::DropKeyspace { name: name("default") },
        MasterCommand::DropKeyspace { name: name("nobody") },
        MasterCommand::ConfirmShard { term, shard, epoch: Epoch::ZERO },
        MasterCommand::BeginTerm { controller: ServerId::new(9), expected: term },
        change(term.next(), epoch, 1, &[1, 2, 3]),
        change(Term::ZERO, epoch, 2, &[1, 2, 3]),
        change(term, epoch, 1, &[2, 3]),
        change(term, epoch, 1, &[1]),
        change(term, epoch, 1, &[1, 2, 9]),
    ];
    for command in commands {
        refused(&mut *masters, 1, command);
        assert_eq!(control(&mut *masters, 0), before);
    }
    masters.restart();
    assert_eq!(control(&mut *masters, 0), before);
}

fn watches(make: Make<'_>) {
    let mut masters = make(4, 1);
    let mut seen = MapVersion::ZERO;
    for server in 1..=4u16 {
        let from = usize::from(server) % 2;
        let (_, _, map) = registered(ask(&mut *masters, from, register(server.into(), 7400, 1)));
        assert!(map.version() > seen, "versions rise");
        seen = map.version();
        for index in [0, 1] {
            let told = told_above(&mut *masters, index, MapVersion::new(seen.get() - 1));
            assert_eq!(told, map, "way {index}");
            let more = masters.at(index).map_above(seen).expect("asked");
            assert_eq!(more, None, "way {index}");
        }
    }
}

/// Waits, for as long as a hundred pauses at most, until a map is told.
fn told_above(masters: &mut dyn Masters, index: usize, seen: MapVersion) -> ShardMap {
    for _ in 0..200 {
        if let Some(map) = masters.at(index).map_above(seen).expect("asked") {
            return map;
        }
        masters.pause();
    }
    panic!("no map above {seen} was told over way {index}");
}

fn leases(make: Make<'_>) {
    let (mut masters, _) = three_servers(make);
    let (one, two) = (ServerId::new(1), ServerId::new(2));
    for (index, server) in [(0, one), (1, two)] {
        let now = masters.now();
        masters.at(index).renew(now, server).expect("renewed");
    }
    let alive = |masters: &mut dyn Masters, index| {
        let now = masters.now();
        masters.at(index).alive(now).expect("asked")
    };
    assert_eq!(
        [alive(&mut *masters, 0), alive(&mut *masters, 1)],
        [vec![one, two], vec![one, two]]
    );
    masters.outlast_leases();
    assert_eq!(alive(&mut *masters, 1), []);
    let now = masters.now();
    masters.at(1).renew(now, two).expect("renewed");
    assert_eq!(alive(&mut *masters, 0), [two]);
}

fn elections(make: Make<'_>) {
    let (mut masters, first) = three_servers(make);
    let (one, two) = (ServerId::new(1), ServerId::new(2));
    let campaign = |masters: &mut dyn Masters, index: usize, server| {
        let now = masters.now();
        masters.at(index).campaign(now, server).expect("asked")
    };
    assert!(first > Term::ZERO);
    assert_eq!(campaign(&mut *masters, 1, two), None, "another one's lease lasts");
    assert_eq!(campaign(&mut *masters, 0, one), Some(first), "who is it stays it");
    masters.restart();
    assert_eq!(campaign(&mut *masters, 1, two), None, "a restart ends no lease");
    assert_eq!(campaign(&mut *masters, 0, one), Some(first));
    masters.outlast_leases();
    let second = campaign(&mut *masters, 1, two).expect("nobody's lease lasts");
    assert!(second > first);
    assert_eq!(campaign(&mut *masters, 0, one), None);
    let epoch = first_shard(&mut *masters, 0).epoch.get();
    let late = refused(&mut *masters, 0, change(first, epoch, 1, &[1, 2, 3]));
    assert_eq!(late, ClusterError::StaleTerm { asked: first, current: second });
    let answer = ask(&mut *masters, 1, change(second, epoch, 1, &[1, 2, 3]));
    assert!(matches!(answer, MasterAnswer::Changed(_)), "{answer:?}");
    masters.at(0).resign(one).expect("asked");
    assert_eq!(campaign(&mut *masters, 0, one), None, "only the controller can resign");
    masters.at(1).resign(two).expect("asked");
    let third = campaign(&mut *masters, 0, one).expect("nobody is the controller");
    assert!(third > second);
    let nobody = ServerId::new(9);
    masters.at(0).resign(one).expect("asked");
    let now = masters.now();
    assert!(masters.at(0).campaign(now, nobody).is_err(), "a server that is not known");
    assert!(campaign(&mut *masters, 1, two).is_some(), "its attempt is in nobody's way");
}

fn restores(make: Make<'_>) {
    let (mut masters, term) = three_servers(make);
    let before = control(&mut *masters, 0);
    let awaited = ask(&mut *masters, 0, MasterCommand::BeginRestored);
    assert_eq!(awaited, MasterAnswer::Awaited([1, 2, 3].map(ServerId::new).to_vec()));
    for server in [1, 2, 3].map(ServerId::new) {
        for command in [
            MasterCommand::FetchMap,
            MasterCommand::FetchControl,
            create("x"),
            register(4, 7404, 0),
        ] {
            let refused = refused(&mut *masters, 1, command);
            assert!(matches!(refused, ClusterError::Restored { .. }), "{refused}");
            assert!(refused.retryable());
        }
        masters.restart();
        ask(&mut *masters, 1, MasterCommand::TellSeen { server, state: Vec::new() });
    }
    let after = control(&mut *masters, 0);
    assert!(after.map.version() > before.map.version() && after.term > term);
    for (entry, old) in after.map.shards().iter().zip(before.map.shards()) {
        assert!(entry.epoch > old.epoch && entry.primary == old.primary);
    }
    let late = refused(&mut *masters, 0, change(term, 2, 1, &[1, 2, 3]));
    assert!(matches!(late, ClusterError::StaleTerm { .. }), "{late}");
}
