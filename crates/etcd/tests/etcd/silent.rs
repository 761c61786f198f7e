//! An etcd that is slow, or gone for a while; and many servers that ask it at once.

use std::collections::BTreeSet;

use timestone_cluster::{
    KeyspaceName, KeyspaceOptions, MasterAnswer, MasterCommand, MasterFailure, MasterService,
    ServerId,
};
use timestone_types::{ClientId, Timestamp};

use super::server::EtcdServer;
use super::{Noted, open};

fn clients(master: &mut dyn MasterService, count: u32) -> Vec<ClientId> {
    match master.execute(MasterCommand::RegisterClient { count }).unwrap() {
        MasterAnswer::Clients(block) => block.iter().collect(),
        other => panic!("{other:?}"),
    }
}

fn create(name: &str) -> MasterCommand {
    MasterCommand::CreateKeyspace {
        name: KeyspaceName::new(name).unwrap(),
        options: KeyspaceOptions::DEFAULT,
    }
}

#[test]
fn servers_that_change_the_state_at_once_take_turns() {
    let etcd = EtcdServer::start();
    // The cluster is founded by several at once, too.
    let each = |directory: u64| {
        let mut master = open(&etcd, "/timestone/many", directory, &Noted::default(), (1, 1));
        let mut ids = Vec::new();
        for round in 0..5 {
            ids.extend(clients(&mut master, 1000));
            master.execute(create(&format!("k{directory}-{round}"))).unwrap();
        }
        ids
    };
    let given: Vec<ClientId> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4).map(|one| scope.spawn(move || each(one))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(given.len(), 4 * 5 * 1000);
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len(), "handed out twice");
    let mut master = open(&etcd, "/timestone/many", 9, &Noted::default(), (1, 1));
    let MasterAnswer::Keyspaces(list) = master.execute(MasterCommand::ListKeyspaces).unwrap()
    else {
        panic!()
    };
    assert_eq!(list.len(), 1 + 4 * 5);
}

#[test]
fn an_etcd_that_is_silent_or_gone_is_an_error_that_passes() {
    let mut etcd = EtcdServer::start();
    let mut master = open(&etcd, "/timestone/silent", 1, &Noted::default(), (1, 1));
    let mut ids: BTreeSet<ClientId> = clients(&mut master, 1).into_iter().collect();
    let now = Timestamp::from_nanos(1);
    let is_silent = |failed: Result<(), MasterFailure>| match failed {
        Err(MasterFailure::Unavailable { detail }) => assert!(detail.contains("does not answer")),
        other => panic!("{other:?}"),
    };
    etcd.freeze();
    is_silent(master.execute(create("x")).map(drop));
    is_silent(master.renew(now, ServerId::new(1)));
    is_silent(master.campaign(now, ServerId::new(1)).map(drop));
    // What is reserved is handed out all the same.
    let reserved = clients(&mut master, 1000);
    assert!(reserved.into_iter().all(|client| ids.insert(client)));
    assert!(master.execute(MasterCommand::RegisterClient { count: 1000 }).is_err());
    etcd.wake();
    // What was asked when it slept may have been done: that is what the error says.
    let listed = master.execute(MasterCommand::ListKeyspaces).unwrap();
    assert!(matches!(listed, MasterAnswer::Keyspaces(list) if list.len() <= 2));
    assert!(clients(&mut master, 1000).into_iter().all(|client| ids.insert(client)));
    etcd.stop();
    is_silent(master.execute(MasterCommand::FetchMap).map(drop));
    etcd.restart();
    master.execute(create("y")).unwrap();
    assert!(clients(&mut master, 1000).into_iter().all(|client| ids.insert(client)));
}
