//! An etcd that is slow, or gone for a while; and many servers that ask it at once.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use timestone_cluster::{
    KeyspaceName, KeyspaceOptions, MasterAnswer, MasterCommand, MasterFailure, MasterService,
    ServerId,
};
use timestone_etcd::{EtcdClient, EtcdError, LeaseId};
use timestone_types::{ClientId, Timestamp};

use super::restored::register;
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

/// A proxy whose member is gone: it answers everything with 503.
struct Unavailable {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Unavailable {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.and_then(|mut stream| {
                    let _ = stream.read(&mut [0; 4096])?;
                    let head = "HTTP/1.1 503 Service Unavailable\r\n";
                    let rest = "content-length: 2\r\nconnection: close\r\n\r\nno";
                    stream.write_all(format!("{head}{rest}").as_bytes())
                });
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Unavailable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn an_endpoint_that_answers_for_nobody_is_left_for_another_one() {
    let (proxy, etcd) = (Unavailable::start(), EtcdServer::start());
    let client = || {
        let endpoints = vec![proxy.address.to_string(), etcd.endpoint.clone()];
        EtcdClient::new(endpoints, Duration::from_secs(5)).unwrap()
    };
    // What does no harm when it is done twice is asked elsewhere at once.
    assert!(client().get("x").unwrap().found.is_empty());
    // Of the rest it is not known whether it was done: whoever asks again is answered.
    let client = client();
    match client.put(&[], "x", b"1", LeaseId(0)) {
        Err(EtcdError::Silent { detail, .. }) => assert!(detail.contains("503"), "{detail}"),
        other => panic!("{other:?}"),
    }
    assert!(client.put(&[], "x", b"1", LeaseId(0)).unwrap());
    assert_eq!(client.get("x").unwrap().found[0].value, b"1");
}

#[test]
fn a_server_that_cannot_note_what_it_has_seen_is_no_controller() {
    let etcd = EtcdServer::start();
    let (full, other) = (Noted::default(), Noted::default());
    let prefix = "/timestone/full";
    let mut first = open(&etcd, prefix, 1, &full, (1, 1));
    let mut second = open(&etcd, prefix, 2, &other, (1, 1));
    let (now, ids) = (Timestamp::from_nanos(1), [1, 2].map(ServerId::new));
    first.execute(register(1)).unwrap();
    second.execute(register(2)).unwrap();
    let term = first.campaign(now, ids[0]).unwrap().unwrap();
    assert_eq!(second.campaign(now, ids[1]).unwrap(), None);
    full.fails.store(true, Ordering::SeqCst);
    assert_eq!(first.campaign(now, ids[0]).unwrap(), Some(term), "there is nothing new to note");
    second.execute(create("new")).unwrap();
    assert!(first.campaign(now, ids[0]).is_err(), "it could act on nothing");
    assert!(second.campaign(now, ids[1]).unwrap() > Some(term), "another one takes its place");
    full.fails.store(false, Ordering::SeqCst);
    assert_eq!(first.campaign(now, ids[0]).unwrap(), None);
}
