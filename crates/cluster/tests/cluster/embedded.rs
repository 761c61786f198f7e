//! The embedded master does what every master does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_cluster::{EmbeddedMaster, MasterFailure, MasterService};
use timestone_types::Timestamp;

use super::conformance::{CASES, Masters};
use super::replicas::replicated;
use super::*;

const TIME_TO_LIVE: Duration = Duration::from_millis(500);

/// A master in this process: both ways to it are one.
struct InProcess {
    file: Arc<Mutex<Vec<u8>>>,
    master: EmbeddedMaster,
    now: Timestamp,
}

fn open(file: &Arc<Mutex<Vec<u8>>>) -> EmbeddedMaster {
    let master = Master::decode(&file.lock().expect("nobody panics with it")).expect("the state");
    let file = Arc::clone(file);
    EmbeddedMaster::new(master, TIME_TO_LIVE, move |bytes| {
        *file.lock().expect("nobody panics with it") = bytes.to_vec();
        Ok(())
    })
}

impl InProcess {
    fn new(shards: u16, replicas: u8) -> Self {
        let file = Arc::new(Mutex::new(bytes_of(&replicated(shards, replicas))));
        Self { master: open(&file), file, now: Timestamp::from_nanos(1_000_000_000) }
    }
}

impl Masters for InProcess {
    fn at(&mut self, _index: usize) -> &mut dyn MasterService {
        &mut self.master
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn pause(&mut self) {
        self.now = self.now.saturating_add(Duration::from_millis(1));
    }

    fn outlast_leases(&mut self) {
        self.now = self.now.saturating_add(TIME_TO_LIVE);
    }

    fn restart(&mut self) {
        self.master = open(&self.file);
    }
}

#[test]
fn the_embedded_master_does_what_every_master_does() {
    for (name, case) in CASES {
        show(name);
        case(&mut |shards, replicas| Box::new(InProcess::new(shards, replicas)));
    }
}

/// Which behaviour is looked at: shown when it fails.
fn show(name: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{name}");
}

#[test]
fn a_command_whose_state_cannot_be_saved_has_not_happened() {
    let mut master =
        EmbeddedMaster::new(replicated(2, 1), TIME_TO_LIVE, |_| Err("full".to_owned()));
    let before = master.master().clone();
    let failed = master.execute(create("users"));
    assert_eq!(failed, Err(MasterFailure::Unavailable { detail: "full".to_owned() }));
    assert_eq!(*master.master(), before);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn every_master_is_looked_at_for_a_compare_and_swap_that_compares() {
    use timestone_types::planted::{Bug, set};

    let found = std::panic::catch_unwind(|| {
        set(Some(Bug::SwapsWithoutComparing));
        for (_, case) in CASES {
            case(&mut |shards, replicas| Box::new(InProcess::new(shards, replicas)));
        }
    });
    set(None);
    assert!(found.is_err(), "the planted bug is found");
}
