//! An etcd that goes on from a backup: nothing is handed out that any server has seen.

use timestone_cluster::{
    Address, ClusterError, DirectoryId, Master, MasterAnswer, MasterCommand, MasterFailure,
    MasterService, Run, ServerAddresses, ServerId, ShardChange, ShardMap, Term,
};
use timestone_etcd::{EtcdClient, EtcdMaster, EtcdOptions, Forgotten, LeaseId, forget_server};
use timestone_types::{ClientId, ClusterId, ShardId, Timestamp};

use super::server::EtcdServer;
use super::{Noted, open};

const PREFIX: &str = "/timestone/restored";

pub(crate) fn register(directory: u64) -> MasterCommand {
    let native = Address::new(&format!("127.0.0.1:{}", 7400 + directory)).unwrap();
    MasterCommand::RegisterServer {
        cluster: ClusterId::ZERO,
        directory: DirectoryId(directory),
        run: Run { number: 1, tag: 1 },
        addresses: ServerAddresses { native: Some(native), resp: None, http: None },
        shards_wanted: 1,
    }
}

fn client(master: &mut EtcdMaster) -> Result<ClientId, MasterFailure> {
    // More than is reserved at a time, so that the state must be asked.
    match master.execute(MasterCommand::RegisterClient { count: 1024 })? {
        MasterAnswer::Clients(block) => Ok(ClientId::new(block.first.get() + block.count - 1)),
        other => panic!("{other:?}"),
    }
}

fn map(master: &mut EtcdMaster) -> Result<ShardMap, MasterFailure> {
    match master.execute(MasterCommand::FetchMap)? {
        MasterAnswer::Map(map) => Ok(map),
        other => panic!("{other:?}"),
    }
}

/// A new epoch of the first shard.
fn next_epoch(master: &mut EtcdMaster) -> ShardMap {
    let now = Timestamp::from_nanos(1);
    let term = master.campaign(now, ServerId::new(1)).unwrap().unwrap_or(Term::ZERO);
    let entry = map(master).unwrap().shards()[0].clone();
    let change = ShardChange {
        shard: ShardId::ZERO,
        expected: entry.epoch,
        primary: entry.primary,
        replicas: entry.replicas,
    };
    let answer = master.execute(MasterCommand::ChangeShard { term, change }).unwrap();
    assert!(matches!(answer, MasterAnswer::Changed(_)), "{answer:?}");
    map(master).unwrap()
}

/// Two servers of a cluster; the second sees the last epoch and the last client id.
struct Two {
    etcd: EtcdServer,
    noted: [Noted; 2],
    last_map: ShardMap,
    last_client: ClientId,
}

fn two_with_a_backup_in_between() -> Two {
    let mut etcd = EtcdServer::start();
    let noted = [Noted::default(), Noted::default()];
    let mut masters = [1, 2].map(|one| open(&etcd, PREFIX, one as u64, &noted[one - 1], (2, 1)));
    masters[0].execute(register(1)).unwrap();
    masters[1].execute(register(2)).unwrap();
    client(&mut masters[0]).unwrap();
    etcd.back_up();
    for _ in 0..3 {
        next_epoch(&mut masters[1]);
        client(&mut masters[1]).unwrap();
    }
    let (last_client, last_map) = (client(&mut masters[1]).unwrap(), map(&mut masters[1]).unwrap());
    Two { etcd, noted, last_map, last_client }
}

fn is_waiting(failed: Result<ShardMap, MasterFailure>, server: u32) {
    match failed {
        Err(MasterFailure::Refused(ClusterError::Restored { server: first, more: 0 })) => {
            assert_eq!(first, ServerId::new(server));
        }
        other => panic!("{other:?}"),
    }
}

/// What is handed out after the restore lies above everything that was seen.
fn is_above(two: &Two, master: &mut EtcdMaster) -> bool {
    let (now, next) = (map(master).unwrap(), client(master).unwrap());
    let epoch = |map: &ShardMap| map.epoch(ShardId::ZERO).unwrap();
    next > two.last_client
        && epoch(&now) > epoch(&two.last_map)
        && now.version() > two.last_map.version()
}

/// The copy of a data directory has the same etcd cluster: whoever has seen more notices.
fn after_a_copied_directory() -> bool {
    let mut two = two_with_a_backup_in_between();
    two.etcd.restore();
    let mut second = open(&two.etcd, PREFIX, 2, &two.noted[1], (2, 1));
    is_waiting(map(&mut second), 1);
    let mut first = open(&two.etcd, PREFIX, 1, &two.noted[0], (2, 1));
    is_above(&two, &mut first) && is_above(&two, &mut second)
}

#[test]
fn after_a_restore_nothing_is_handed_out_twice() {
    assert!(after_a_copied_directory());
}

#[test]
fn an_etcd_that_is_another_one_serves_when_every_server_has_told() {
    let two = two_with_a_backup_in_between();
    // A snapshot that is restored elsewhere: another etcd, with the value of the backup.
    let elsewhere = EtcdServer::start();
    let client = |etcd: &EtcdServer| {
        EtcdClient::new(vec![etcd.endpoint.clone()], std::time::Duration::from_secs(5)).unwrap()
    };
    let key = format!("{PREFIX}/state");
    let mut value = client(&two.etcd).get(&key).unwrap().found[0].value.clone();
    // The backup is older than what the first server has noted.
    let noted = two.noted[0].bytes.lock().unwrap().clone();
    value.truncate(8);
    value.extend(noted);
    assert!(client(&elsewhere).put(&[], &key, &value, LeaseId(0)).unwrap());
    // The first server has seen nothing that is newer; it waits all the same.
    let mut first = open(&elsewhere, PREFIX, 1, &two.noted[0], (2, 1));
    is_waiting(map(&mut first), 2);
    let mut second = open(&elsewhere, PREFIX, 2, &two.noted[1], (2, 1));
    assert!(is_above(&two, &mut second));
    assert!(is_above(&two, &mut first));
    let told = first.map_above(two.last_map.version()).unwrap().expect("a map");
    assert!(told.version() > two.last_map.version());
}

#[test]
fn a_server_that_is_lost_for_ever_is_not_waited_for() {
    let mut two = two_with_a_backup_in_between();
    let options =
        EtcdOptions::new(vec![two.etcd.endpoint.clone()], PREFIX.to_owned(), DirectoryId(0));
    let forget = |server| forget_server(&options, ServerId::new(server)).unwrap();
    let nobody = Forgotten { was_awaited: false, awaited: Vec::new() };
    assert_eq!(forget(1), nobody, "nothing was restored");
    two.etcd.restore();
    let mut second = open(&two.etcd, PREFIX, 2, &two.noted[1], (2, 1));
    is_waiting(map(&mut second), 1);
    assert_eq!(forget(9), Forgotten { was_awaited: false, awaited: vec![ServerId::new(1)] });
    is_waiting(map(&mut second), 1);
    assert_eq!(forget(1), Forgotten { was_awaited: true, awaited: Vec::new() });
    assert!(is_above(&two, &mut second));
    let elsewhere = EtcdOptions { prefix: "/timestone/none".to_owned(), ..options };
    assert!(forget_server(&elsewhere, ServerId::new(1)).is_err(), "there is no cluster");
}

#[test]
fn a_state_that_is_gone_is_not_founded_anew() {
    let two = two_with_a_backup_in_between();
    let empty = EtcdServer::start();
    let options = EtcdOptions::new(vec![empty.endpoint.clone()], PREFIX.to_owned(), DirectoryId(1));
    let founding = timestone_etcd::Founding {
        cluster: ClusterId::new(5),
        shards: 1,
        replication: timestone_cluster::ReplicationFactor::ONE,
        hash_seed: timestone_types::HashSeed(1),
    };
    let failed = EtcdMaster::open(options, founding, Box::new(two.noted[0].clone()));
    let words = failed.expect_err("it has seen a cluster there").to_string();
    assert!(words.contains("restore etcd from a backup"), "{words}");
}

#[test]
fn what_is_no_state_of_a_master_is_refused() {
    let etcd = EtcdServer::start();
    let client =
        EtcdClient::new(vec![etcd.endpoint.clone()], std::time::Duration::from_secs(5)).unwrap();
    let key = format!("{PREFIX}/state");
    let mut master = open(&etcd, PREFIX, 1, &Noted::default(), (1, 1));
    let good = client.get(&key).unwrap().found[0].value.clone();
    assert!(Master::decode(&good[8..]).is_ok());
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for bad in [&b""[..], b"1234567", b"12345678", &damaged] {
        assert!(client.put(&[], &key, bad, LeaseId(0)).unwrap());
        assert!(map(&mut master).is_err(), "{} bytes were taken", bad.len());
        assert_eq!(client.get(&key).unwrap().found[0].value, bad, "it was written over");
    }
    assert!(client.put(&[], &key, &good, LeaseId(0)).unwrap());
    assert!(map(&mut master).is_ok());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_restored_etcd_that_hands_out_old_epochs_is_noticed() {
    use timestone_types::planted::{Bug, with};

    assert!(!with(Bug::ReissuesEpochs, after_a_copied_directory), "the planted bug is found");
}
