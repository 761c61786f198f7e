//! Which run of its data directory a start begins, and whether the directory is the latest one
//! (rule P16 of docs/protocol/replication.md).
//!
//! ```text
//!   the master's number ─┬─ the directory follows it ──► the next run, durable in the directory ─► register ─► serve
//!                        ├─ it does not, not accepted ─► refuse; nothing has changed anywhere
//!                        └─ it does not, and accepted ─► its replicas are void; on with the next run
//! ```
//! An older copy is not emptied by itself. Somebody has put it there, perhaps on every server of the
//! cluster, and then it is the most that is left.

use std::sync::Arc;

use timestone_cluster::{ControlState, ReplicationFactor, Run};
use timestone_types::ShardId;

use super::cluster::master_address;
use crate::config::{AcceptedLoss, MasterPlace, ServerConfig};
use crate::environment::Environment;
use crate::error::ServerError;
use crate::manifest::Manifest;

/// See the module.
pub(super) struct RunNumber<'a> {
    config: &'a ServerConfig,
    environment: &'a dyn Environment,
    manifest: &'a Manifest,
}

impl<'a> RunNumber<'a> {
    pub(super) fn of(
        config: &'a ServerConfig,
        environment: &'a Arc<dyn Environment>,
        manifest: &'a Manifest,
    ) -> Self {
        Self { config, environment: &**environment, manifest }
    }

    /// The run that begins, durable in the directory. The master has told what it knows, and hears
    /// of the run next.
    ///
    /// # Errors
    /// The directory is an older copy of itself, or the master's state is, and nobody has accepted
    /// that; the manifest cannot be saved.
    pub(super) fn begin(&self, found: &ControlState) -> Result<Run, ServerError> {
        let (own, known) = (self.manifest.run(), found.last_run(self.environment.directory()));
        let next = own.next(known, self.environment.draw());
        let (accepted, follows) = (&self.config.accept_loss, self.manifest.follows(known));
        if own.is_ahead_of(known) {
            self.check_master(own, known)?;
        } else if follows && *accepted != AcceptedLoss::Nothing && !self.manifest.has_accepted() {
            tracing::warn!(
                "--accept-loss was given, and nothing is missing. Leave it out from now on: it \
                 would accept a later loss, too"
            );
        }
        if follows {
            self.manifest.raise_run(next)?;
            return Ok(next);
        }
        let is_replicated = found.replication != ReplicationFactor::ONE;
        let concerned = self.concerned(found, is_replicated);
        if *accepted == AcceptedLoss::Nothing
            || !concerned.iter().all(|&one| accepted.includes(one))
        {
            return Err(ServerError::OlderCopy {
                path: self.environment.root(),
                has: own,
                known,
                then: if is_replicated {
                    "what is in it is given up, and its copies are made anew from those of the \
                     other servers"
                } else {
                    "what was acknowledged in the runs that it lacks is lost"
                },
            });
        }
        tracing::error!(
            has = %own, %known,
            "the data directory is an older copy of itself, and it is used as --accept-loss says. \
             What was acknowledged since is not in it: where shards have several copies, those of \
             this server are made anew; where they have one, it is lost"
        );
        self.manifest.accept_older(next, is_replicated.then_some(&concerned))?;
        Ok(next)
    }

    /// A master that knows less of the directory than it has told it. On etcd that is no news: a
    /// restore raises every number there, once all servers have told what they have seen, but for
    /// those that were left out.
    fn check_master(&self, own: Run, known: Run) -> Result<(), ServerError> {
        let is_accepted = self.config.accept_loss != AcceptedLoss::Nothing;
        if is_accepted || matches!(self.config.master, MasterPlace::Etcd(_)) {
            tracing::warn!(has = %own, %known, "the master knows less of this data directory than it did");
            return Ok(());
        }
        Err(ServerError::OlderMaster {
            address: master_address(self.config),
            path: self.environment.root(),
            has: own,
            known,
        })
    }

    /// The shards of which the directory may have acknowledged something that is not in it. A
    /// replica of any shard may have been here since it was copied.
    fn concerned(&self, found: &ControlState, is_replicated: bool) -> Vec<ShardId> {
        let directory = self.environment.directory();
        let own = found.map.servers().iter().find(|server| server.directory == directory);
        let shards = found.map.shards().iter();
        let is_here = |primary| own.is_some_and(|own| own.id == primary);
        shards
            .filter(|shard| is_replicated || is_here(shard.primary))
            .map(|shard| shard.id)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use timestone_cluster::{Master, MasterCommand, ServerAddresses};
    use timestone_types::{ClusterId, HashSeed};

    use super::*;
    use crate::environment::LocalEnvironment;

    /// A data directory, and a master in another process.
    struct World {
        folder: tempfile::TempDir,
        master: Master,
        config: ServerConfig,
    }

    /// What one start of a server is about to do.
    struct Start {
        environment: Arc<dyn Environment>,
        manifest: Arc<Manifest>,
    }

    impl World {
        fn new(replication: u8) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let replication = ReplicationFactor::new(replication).unwrap();
            let master =
                Master::create_replicated(ClusterId::new(7), 2, replication, HashSeed(5)).unwrap();
            let config = ServerConfig {
                master: MasterPlace::Remote("127.0.0.1:7400".parse().unwrap()),
                ..ServerConfig::embedded(folder.path().join("data"))
            };
            Self { folder, master, config }
        }

        fn start(&self) -> Start {
            let environment: Arc<dyn Environment> =
                Arc::new(LocalEnvironment::open(&self.config).unwrap());
            let manifest = Manifest::open(&environment, &self.config.accept_loss).unwrap();
            Start { environment, manifest }
        }

        /// Up to the moment at which the master would hear of the run.
        fn begin(&self) -> Result<Run, ServerError> {
            let Start { environment, manifest } = self.start();
            RunNumber::of(&self.config, &environment, &manifest).begin(&self.master.control())
        }

        /// The master hears of a run.
        fn register(&mut self, run: Run) -> Result<(), ServerError> {
            let registering = MasterCommand::RegisterServer {
                cluster: ClusterId::ZERO,
                directory: self.start().environment.directory(),
                run,
                addresses: ServerAddresses::IN_PROCESS,
                shards_wanted: 1,
            };
            self.master.step(registering).map_err(ServerError::part)?;
            Ok(())
        }

        /// A whole start.
        fn serve(&mut self) -> Result<Run, ServerError> {
            let run = self.begin()?;
            self.register(run)?;
            Ok(run)
        }

        fn manifest(&self) -> std::path::PathBuf {
            self.folder.path().join("data/MANIFEST")
        }

        fn copy(&self) -> Vec<u8> {
            std::fs::read(self.manifest()).unwrap()
        }

        fn put_back(&self, copy: &[u8]) {
            std::fs::write(self.manifest(), copy).unwrap();
        }
    }

    fn words(outcome: Result<Run, ServerError>) -> String {
        outcome.expect_err("it is refused").to_string()
    }

    #[test]
    fn each_start_begins_the_next_run_and_one_that_fails_uses_up_none() {
        let mut world = World::new(3);
        assert_eq!(world.serve().unwrap().number, 1);
        assert_eq!(world.serve().unwrap().number, 2);
        let third = world.begin().unwrap();
        let again = world.begin().unwrap();
        assert_eq!((third.number, again.number), (3, 3), "the master has not heard of it");
        assert_ne!(third.tag, again.tag);
        assert_eq!(world.serve().unwrap().number, 3);
        assert_eq!(world.start().manifest.run().number, 3);
    }

    #[test]
    fn a_start_that_heard_no_answer_may_reach_the_master_after_the_next_one() {
        let mut world = World::new(3);
        world.serve().unwrap();
        let copy = world.copy();
        let late = world.begin().unwrap();
        let next = world.begin().unwrap();
        assert_eq!(late.number, next.number);
        world.register(late).unwrap();
        assert!(world.register(next).is_err(), "the master knows another one of this number");
        assert_eq!(world.serve().unwrap().number, 3, "which is this directory's as well");
        world.put_back(&copy);
        words(world.serve());
    }

    #[test]
    fn an_older_copy_is_refused_however_often_it_is_started_and_given_up_when_that_is_accepted() {
        let mut world = World::new(3);
        world.serve().unwrap();
        let copy = world.copy();
        world.serve().unwrap();
        world.put_back(&copy);
        let before = world.master.clone();
        for _ in 0..5 {
            let words = words(world.serve());
            assert!(
                words.contains("run was number 1, and the cluster's master knows of run 2"),
                "{words}"
            );
            assert!(words.contains("--accept-loss all: what is in it is given up"), "{words}");
            assert_eq!((world.copy(), &world.master), (copy.clone(), &before));
        }
        world.config.accept_loss = AcceptedLoss::Shards(vec![ShardId::new(0)]);
        words(world.serve());
        world.config.accept_loss = AcceptedLoss::Everything;
        assert_eq!(world.serve().unwrap().number, 3);
        world.config.accept_loss = AcceptedLoss::Nothing;
        assert_eq!(world.serve().unwrap().number, 4);
        let manifest = world.start().manifest;
        // Also of shards that it had no replica of yet when it was copied.
        assert!([0, 1].map(ShardId::new).into_iter().all(|shard| manifest.is_void(shard)));
    }

    #[test]
    fn where_there_is_one_copy_it_is_what_is_left() {
        let mut world = World::new(1);
        world.serve().unwrap();
        let copy = world.copy();
        world.serve().unwrap();
        world.put_back(&copy);
        let words = words(world.serve());
        assert!(
            words.contains("what was acknowledged in the runs that it lacks is lost"),
            "{words}"
        );
        world.config.accept_loss = AcceptedLoss::Everything;
        assert_eq!(world.serve().unwrap().number, 3);
        assert!(!world.start().manifest.is_void(ShardId::new(0)));
    }

    #[test]
    fn of_two_copies_that_begin_the_same_run_one_is_refused_and_stays_so() {
        let mut world = World::new(3);
        world.serve().unwrap();
        let begun = world.begin().unwrap();
        // The other process is faster.
        let first = Run { tag: begun.tag ^ 1, ..begun };
        let directory = world.start().environment.directory();
        let registering = |run| MasterCommand::RegisterServer {
            cluster: ClusterId::ZERO,
            directory,
            run,
            addresses: ServerAddresses::IN_PROCESS,
            shards_wanted: 1,
        };
        world.master.step(registering(first)).unwrap();
        assert!(world.master.step(registering(begun)).is_err());
        for _ in 0..3 {
            assert!(matches!(world.serve(), Err(ServerError::OlderCopy { .. })));
        }
    }

    #[test]
    fn a_master_that_knows_less_than_it_was_told_is_refused_but_for_one_that_was_restored_on_etcd()
    {
        let mut world = World::new(3);
        world.serve().unwrap();
        let older = world.master.clone();
        world.serve().unwrap();
        world.serve().unwrap();
        world.master = older;
        let refused = words(world.serve());
        assert!(refused.contains("knows of run 1 of data directory"), "{refused}");
        assert!(refused.contains("whose last run was number 3"), "{refused}");
        world.config.master = MasterPlace::Etcd(Vec::new());
        assert_eq!(world.serve().unwrap().number, 3, "above what either knows");
        assert_eq!(world.serve().unwrap().number, 4);
    }

    #[test]
    fn a_directory_has_nothing_to_lose_before_it_belongs_to_a_cluster() {
        let world = World::new(3);
        world.begin().unwrap();
        assert!(!Manifest::names_anything(&world.copy()));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_start_that_believes_an_older_copy_is_noticed() {
        use crate::planted::{Bug, with};
        let mut world = World::new(3);
        world.serve().unwrap();
        let copy = world.copy();
        world.serve().unwrap();
        world.put_back(&copy);
        assert!(with(Bug::BelievesOlderCopy, || world.serve()).is_ok(), "the planted bug is found");
    }
}
