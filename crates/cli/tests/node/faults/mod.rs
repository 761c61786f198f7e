//! Clusters of three processes with three copies of each shard and a real etcd, under load, with
//! faults of every kind: what the table in docs/verification.md asks of real processes.
//!
//! ```text
//!   loads: journal (single keys, several, a bank, snapshots) ─┐          ┌─► server a ─┐
//!   bench --history: list-append, register, with deletions    ├─ links ──┼─► server b ─┼─ links ─► etcd
//!   and expiry, and single requests of keys                    ┘          └─► server c ─┘
//! ```
//! When the faults are over, everybody is served again, every acknowledged write is read back, what
//! was refused is not there, and `timestone check` judges the histories. How long anything takes is
//! not judged, but that it comes to an end.

mod clocks;
mod copies;
mod deaths;
mod links;
mod partitions;
mod together;

use std::sync::Arc;
use std::time::Instant;

use timestone::blocking::{self, Db};

use crate::etcd::EtcdServer;
use crate::journal::Journal;
use crate::load::{Loads, TOTAL, bank_total, open_bank};
use crate::random::Random;
use crate::replicated::{Replicated, TIMEOUT, shards};
use crate::replicated_load::Load;
use crate::server::{NodeSetup, eventually, test_folder};
use links::Links;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A cluster under load.
struct Trial {
    cluster: Replicated,
    links: Links,
    etcd: EtcdServer,
    journal: Arc<Journal>,
    loads: Loads,
    histories: Vec<Load>,
    db: Db,
    random: Random,
    name: String,
    begun: Instant,
}

impl Trial {
    fn start(name: &str) -> Self {
        Self::start_as(name, |_, place| place)
    }

    /// `adjust` may say more of each server.
    fn start_as(name: &str, adjust: impl Fn(usize, NodeSetup) -> NodeSetup) -> Self {
        let (mut random, begun) = (Random::for_test(name), Instant::now());
        let (folder, etcd) = (test_folder(), EtcdServer::start());
        let places: Vec<NodeSetup> = NAMES
            .map(|name| {
                NodeSetup::new(folder.path(), name)
                    .with("--capacity", "512MiB")
                    .with("--threads", "1")
                    .with("--http", "none")
                    .with("--resp", "none")
                    .with("--replication", "3")
                    .with("--cluster-shards", "3")
            })
            .into();
        let endpoint = etcd.endpoint.parse().expect("a literal address");
        let (links, places) = Links::before(&places, endpoint, random.fork());
        let places = places.into_iter().enumerate().map(|(index, place)| adjust(index, place));
        let cluster = Replicated::at(places.collect(), folder);
        cluster.wait_until_complete(0);
        let db = blocking::connect(&cluster.address()).expect("it serves");
        open_bank(&db);
        let mut trial = Self {
            cluster,
            links,
            etcd,
            journal: Arc::default(),
            loads: Loads::new(),
            histories: Vec::new(),
            db,
            random,
            name: name.to_owned(),
            begun,
        };
        trial.tell("loads begin");
        let (journal, random) = (Arc::clone(&trial.journal), &mut trial.random);
        trial.loads.bank("bank", trial.db.clone(), &journal, random);
        trial.loads.puts("puts", trial.db.clone(), &journal, random);
        trial.loads.several("several", trial.db.clone(), &journal, random);
        trial.loads.reader("reader", trial.db.clone(), &journal, random);
        for (judged, words) in [
            ("list-append", "list-append"),
            ("register", "register"),
            ("single-keys", "register --singles"),
        ] {
            trial.histories.push(trial.bench(judged, words));
        }
        trial
    }

    /// Another run of `bench`, in a keyspace of its own.
    fn bench(&self, judged: &'static str, words: &str) -> Load {
        let keyspace = self.next_keyspace();
        let words = format!("{words} --clients 4 --rate 120 --keyspace {keyspace} -o json");
        Load::start_as(&self.cluster, judged, &words)
    }

    /// The keyspace of the next run of `bench`.
    fn next_keyspace(&self) -> String {
        format!("bench-{}", self.histories.len())
    }

    /// Until every load was served again.
    fn is_served(&self, when: &str) {
        self.loads.wait_until_served(&self.journal, TIMEOUT);
        self.histories.iter().for_each(|load| load.wait_for_more(when));
        self.tell(&format!("served {when}"));
    }

    /// Kills a server, until others serve its shards, as the server `asked` sees it.
    fn loses(&mut self, lost: usize, asked: usize, when: &str) {
        self.cluster.kill(lost);
        self.cluster.wait_until_moved(lost, asked);
        self.is_served(when);
    }

    /// For whoever has to look at a failure, or at where the time goes.
    fn tell(&self, what: &str) {
        println!("{} after {:.1?}: {what}", self.name, self.begun.elapsed());
    }

    /// A server that is primary of a shard, as the server `asked` sees it.
    fn a_primary(&mut self, asked: usize) -> usize {
        let status = self.cluster.wait_until_complete(asked);
        let number = self.random.below(shards(&status).count() as u64) as usize;
        let shard = shards(&status).nth(number).expect("there are so many");
        self.cluster.place_of(&shard["primary"], &status)
    }

    /// The faults are over: judges all that was done.
    fn end(mut self) {
        self.links.heal();
        self.cluster.wait_until_complete(0);
        self.tell("complete at the end");
        self.is_served("at the end");
        self.loads.stop();
        println!("{}", self.journal.summary());
        assert_eq!(bank_total(&self.db), TOTAL, "money was lost or made");
        let checked =
            eventually("reads", TIMEOUT, || Ok::<_, String>(self.journal.check_all(&self.db)));
        println!("{checked} works are as they were reported");
        self.histories.drain(..).for_each(|load| drop(load.end()));
        (0..NAMES.len()).for_each(|index| self.cluster.stop(index));
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        std::thread::sleep(self.random.span(from_ms, to_ms));
    }
}

/// The server after this one, and the one after that.
fn others(index: usize) -> [usize; 2] {
    [(index + 1) % NAMES.len(), (index + 2) % NAMES.len()]
}
