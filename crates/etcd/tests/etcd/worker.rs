//! The thread that asks etcd for a host: what it tells without being asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use timestone_cluster::{
    Address, ControlState, DirectoryId, MapVersion, MasterAnswer, MasterCommand, MasterService,
    Run, ServerAddresses, ServerId, Term,
};
use timestone_etcd::{EtcdMaster, EtcdWorker, MasterNews, ServedServer};
use timestone_types::{ClusterId, Epoch, ShardId};

use super::{Noted, open};
use crate::server::EtcdServer;

const TIMEOUT: Duration = Duration::from_secs(20);

/// What a worker has told last.
#[derive(Default)]
struct Heard {
    control: Option<ControlState>,
    term: Option<Option<Term>>,
    version: Option<MapVersion>,
}

impl Heard {
    /// Takes what there is to hear until something is so.
    fn until(&mut self, worker: &EtcdWorker, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what} was not told");
            match worker.take() {
                Some(MasterNews::Control(control)) => self.control = Some(*control),
                Some(MasterNews::Controller(term)) => self.term = Some(term),
                Some(MasterNews::Map(map)) => self.version = Some(map.version()),
                Some(MasterNews::Answered(number, answer)) => panic!("{number}: {answer:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn register(master: &mut EtcdMaster, server: u64) {
    let native = Some(Address::new("127.0.0.1:7400").unwrap());
    let command = MasterCommand::RegisterServer {
        cluster: ClusterId::ZERO,
        directory: DirectoryId(server),
        run: Run { number: 1, tag: 1 },
        addresses: ServerAddresses { native, resp: None, http: None },
        shards_wanted: 1,
    };
    assert!(matches!(master.execute(command), Ok(MasterAnswer::Server { .. })));
}

fn follower(server: u32, is_replicated: bool) -> ServedServer {
    ServedServer { server: ServerId::new(server), known: MapVersion::ZERO, is_replicated }
}

#[test]
fn a_worker_tells_configurations_and_who_is_the_controller() {
    let etcd = Arc::new(EtcdServer::start());
    let noted: Vec<Noted> = (0..3).map(|_| Noted::default()).collect();
    let mut masters: Vec<EtcdMaster> = (1..)
        .zip(&noted)
        .map(|(server, noted)| open(&etcd, "/timestone/worker", server, noted, (1, 3)))
        .collect();
    for (server, master) in (1..).zip(&mut masters) {
        register(master, server);
    }
    let mut own = masters.pop().unwrap();
    let mut workers = masters.into_iter().zip(1..).map(|(master, server)| {
        EtcdWorker::begin(master, follower(server, true)).expect("a thread")
    });
    let (one, mut heard) = (workers.next().unwrap(), Heard::default());
    heard.until(&one, "a term", |heard| heard.term.flatten().is_some());
    let (two, mut heard_two) = (workers.next().unwrap(), Heard::default());
    heard_two.until(&two, "another controller", |heard| heard.term == Some(None));
    let term = heard.term.flatten().unwrap();
    let (shard, epoch) = (ShardId::ZERO, Epoch::new(2));
    let before = MasterCommand::FetchControl;
    let MasterAnswer::Control(before) = own.execute(before).unwrap() else { panic!() };
    assert_ne!(before.normal[0].epoch, epoch);
    own.execute(MasterCommand::ConfirmShard { term, shard, epoch }).unwrap();
    for (worker, heard) in [(&one, &mut heard), (&two, &mut heard_two)] {
        heard.until(worker, "a confirmation, which changes no map", |heard| {
            heard.control.as_ref().is_some_and(|control| control.normal[0].epoch == epoch)
        });
        assert_eq!(heard.version, Some(before.map.version()));
    }
    // Whoever holds the lease is gone: the other one follows in the next term.
    drop(one);
    heard_two.until(&two, "the next term", |heard| heard.term == Some(Some(term.next())));
}

#[test]
fn who_is_no_candidate_any_more_resigns() {
    let etcd = Arc::new(EtcdServer::start());
    let noted: Vec<Noted> = (0..2).map(|_| Noted::default()).collect();
    let masters = (1..).zip(&noted).map(|(server, noted)| {
        let mut master = open(&etcd, "/timestone/resigns", server, noted, (1, 3));
        register(&mut master, server);
        master
    });
    let mut workers = masters.collect::<Vec<_>>().into_iter().zip(1..).map(|(master, server)| {
        EtcdWorker::begin(master, follower(server, true)).expect("a thread")
    });
    let (one, mut heard) = (workers.next().unwrap(), Heard::default());
    heard.until(&one, "a term", |heard| heard.term.flatten().is_some());
    let term = heard.term.flatten().unwrap();
    let (two, mut heard_two) = (workers.next().unwrap(), Heard::default());
    heard_two.until(&two, "another controller", |heard| heard.term == Some(None));
    one.set_candidate(false);
    heard.until(&one, "that it is the controller no more", |heard| heard.term == Some(None));
    heard_two.until(&two, "the next term", |heard| heard.term == Some(Some(term.next())));
    one.set_candidate(true);
    two.set_candidate(false);
    let next = Some(Some(term.next().next()));
    heard.until(&one, "the term after that", |heard| heard.term == next);
}

#[test]
fn a_worker_of_single_copies_does_not_campaign() {
    let etcd = Arc::new(EtcdServer::start());
    let mut master = open(&etcd, "/timestone/single", 1, &Noted::default(), (1, 1));
    register(&mut master, 1);
    let mut other = open(&etcd, "/timestone/single", 2, &Noted::default(), (1, 1));
    let worker = EtcdWorker::begin(master, follower(1, false)).expect("a thread");
    let mut heard = Heard::default();
    for server in 2..5 {
        let known = heard.version;
        register(&mut other, server);
        heard.until(&worker, "a newer map", |heard| heard.version > known);
    }
    assert!(heard.control.is_none() && heard.term.is_none());
    let MasterAnswer::Control(control) = other.execute(MasterCommand::FetchControl).unwrap() else {
        panic!()
    };
    assert_eq!(control.term, Term::ZERO);
}

/// Commands that come without a pause; each takes longer than it takes to ask the next one.
#[test]
fn a_worker_that_is_always_asked_tells_what_has_changed() {
    let etcd = Arc::new(EtcdServer::start());
    let mut master = open(&etcd, "/timestone/busy", 1, &Noted::default(), (1, 1));
    register(&mut master, 1);
    let mut other = open(&etcd, "/timestone/busy", 2, &Noted::default(), (1, 1));
    let worker = EtcdWorker::begin(master, follower(1, false)).expect("a thread");
    let (mut number, mut answered, mut version) = (0, 0, None);
    for server in 2..5 {
        let known = version;
        register(&mut other, server);
        let deadline = Instant::now() + TIMEOUT;
        while version <= known {
            assert!(Instant::now() < deadline, "a newer map was not told");
            while number < answered + 10 {
                number += 1;
                assert!(worker.ask(number, MasterCommand::FetchControl));
            }
            match worker.take() {
                Some(MasterNews::Map(map)) => version = Some(map.version()),
                Some(MasterNews::Answered(_, answer)) => {
                    answer.unwrap();
                    answered += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

#[test]
fn what_the_controller_asks_is_carried_out_first() {
    let etcd = Arc::new(EtcdServer::start());
    let mut master = open(&etcd, "/timestone/first", 1, &Noted::default(), (1, 1));
    register(&mut master, 1);
    let worker = EtcdWorker::begin(master, follower(1, false)).expect("a thread");
    const OTHERS: u64 = 500;
    for number in 1..=OTHERS {
        assert!(worker.ask(number, MasterCommand::FetchControl));
    }
    assert!(worker.ask_first(OTHERS + 1, MasterCommand::FetchControl));
    let deadline = Instant::now() + TIMEOUT;
    let mut order = Vec::new();
    while order.len() as u64 <= OTHERS {
        assert!(Instant::now() < deadline, "{} answers", order.len());
        match worker.take() {
            Some(MasterNews::Answered(number, answer)) => {
                answer.unwrap();
                order.push(number);
            }
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let place = order.iter().position(|number| *number == OTHERS + 1).unwrap();
    assert!(place < order.len() / 2, "it was answered as number {place}");
    order.remove(place);
    assert!(order.is_sorted(), "the others in their order");
    // One that waits for nothing is woken.
    std::thread::sleep(Duration::from_millis(100));
    assert!(worker.ask_first(OTHERS + 2, MasterCommand::FetchControl));
    let mut heard = None;
    while heard.is_none() {
        assert!(Instant::now() < deadline, "no answer");
        heard = worker.take().filter(|news| matches!(news, MasterNews::Answered(..)));
    }
}
