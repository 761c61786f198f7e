//! The master on a real etcd: what every master does, and what becomes of it when etcd is slow,
//! gone, or restored from a backup.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by where it panics")]

#[path = "../../../cluster/tests/cluster/conformance.rs"]
mod conformance;
mod restored;
mod server;
mod silent;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_cluster::{DirectoryId, MasterService, ReplicationFactor};
use timestone_etcd::{EtcdClient, EtcdMaster, EtcdOptions, Founding, SeenState};
use timestone_types::{ClusterId, HashSeed, Timestamp};

use crate::conformance::{CASES, Masters};
use crate::server::EtcdServer;

/// What a server has seen: kept by the test, over its restarts.
#[derive(Clone, Default)]
pub(crate) struct Noted {
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    /// Its file system is full.
    pub(crate) fails: Arc<AtomicBool>,
}

impl SeenState for Noted {
    fn load(&mut self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    fn note(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.fails.load(Ordering::SeqCst) {
            return Err("there is no space left".to_owned());
        }
        *self.bytes.lock().unwrap() = bytes.to_vec();
        Ok(())
    }
}

/// A handle of the server with this directory.
pub(crate) fn open(
    etcd: &EtcdServer,
    prefix: &str,
    directory: u64,
    noted: &Noted,
    (shards, replicas): (u16, u8),
) -> EtcdMaster {
    let directory = DirectoryId(directory);
    let mut options = EtcdOptions::new(vec![etcd.endpoint.clone()], prefix.to_owned(), directory);
    options.time_to_live = Duration::from_secs(2);
    let founding = Founding {
        cluster: ClusterId::new(0xc1),
        shards,
        replication: ReplicationFactor::new(replicas).unwrap(),
        hash_seed: HashSeed(7),
    };
    EtcdMaster::open(options, founding, Box::new(noted.clone())).unwrap()
}

/// Two servers' handles on one etcd.
struct OnEtcd {
    etcd: Arc<EtcdServer>,
    prefix: String,
    shape: (u16, u8),
    noted: [Noted; 2],
    handles: Vec<EtcdMaster>,
}

impl OnEtcd {
    fn new(etcd: Arc<EtcdServer>, prefix: String, shape: (u16, u8)) -> Self {
        let mut masters =
            Self { etcd, prefix, shape, noted: Default::default(), handles: Vec::new() };
        masters.restart();
        masters
    }
}

impl Masters for OnEtcd {
    fn at(&mut self, index: usize) -> &mut dyn MasterService {
        &mut self.handles[index]
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1)
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(50));
    }

    /// Etcd's own clock ends leases: their keys are looked for until none is left.
    fn outlast_leases(&mut self) {
        let client =
            EtcdClient::new(vec![self.etcd.endpoint.clone()], Duration::from_secs(5)).unwrap();
        for _ in 0..600 {
            let left = client.list(&format!("{}/", self.prefix)).unwrap().found;
            if left.iter().all(|key| key.lease.0 == 0) {
                return;
            }
            self.pause();
        }
        panic!("leases do not end");
    }

    fn restart(&mut self) {
        self.handles = (0..2)
            .map(|index| {
                open(&self.etcd, &self.prefix, index as u64 + 1, &self.noted[index], self.shape)
            })
            .collect();
    }
}

#[test]
fn the_master_on_etcd_does_what_every_master_does() {
    let etcd = Arc::new(EtcdServer::start());
    for (number, (name, case)) in CASES.into_iter().enumerate() {
        eprintln!("{name}");
        let mut made = 0;
        case(&mut |shards, replicas| {
            made += 1;
            let prefix = format!("/timestone/{number}-{made}");
            Box::new(OnEtcd::new(Arc::clone(&etcd), prefix, (shards, replicas)))
        });
    }
}
