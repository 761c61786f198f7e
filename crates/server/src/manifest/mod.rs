//! The manifest: what a data directory must hold, so that a file that is gone is not taken for one
//! that never was.
//!
//! ```text
//!   start ─► Manifest::open ─ everything there ──────────────► go on
//!                           ├─ missing, and not accepted ────► refuse, and name it
//!                           └─ missing, and accepted ────────► forget it, and go on without it
//!   flash file created ─► flash_created      log file created ─► created (before its first block)
//!   log file about to go ─► removing         (the log stays, until its folder is gone)
//! ```
//! Invariants: whatever the manifest names exists; it is named after it was made durable, and is no
//! longer named before it goes. The manifest is replaced atomically, under one lock, by threads
//! that may block. Nothing on the path of a request waits for it. A run without a log is marked,
//! and so is an accepted loss, so that the next run knows that what its log tells of the past is
//! not all. A log file is made for 100 MB of log, so this happens seldom. What it deliberately does
//! not do: look into files. Whether their bytes are right is for the stores and the logs to say.

mod contents;
mod missing;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use timestone_cluster::Run;
use timestone_shard::{Past, Served};
use timestone_types::{ClientId, HashSeed, ShardId, Timestamp};
use timestone_wal::device::{FileName, FileRegistry};

use crate::config::AcceptedLoss;
use crate::datadir::ManifestView;
use crate::environment::{Environment, FlashPart};
use crate::error::ServerError;
use crate::limits::MAX_OWN_CLIENTS;
use contents::{Contents, LogContents};

/// A run that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// Whether it has a log.
    pub(crate) has_log: bool,
    /// What its clock shows.
    pub(crate) now: Timestamp,
    /// Nothing in the stores is younger.
    pub(crate) youngest: Timestamp,
    /// Where time stood at least when the last run ended, as the stores, the logs and
    /// [`Manifest::lived_until`] tell.
    pub(crate) lived_until: Timestamp,
    /// The latest read bound that is in the logs.
    pub(crate) bound: Timestamp,
}

/// The manifest of a data directory that is in use.
pub(crate) struct Manifest {
    environment: Arc<dyn Environment>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    contents: Contents,
    /// The last change could not be saved, at least not durably: the disk holds the contents with
    /// it or without it.
    is_unsure: bool,
    /// A loss was accepted at this start.
    has_accepted: bool,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest").field("state", &*self.lock()).finish_non_exhaustive()
    }
}

impl Manifest {
    /// The bytes of the manifest of a directory that holds nothing yet.
    ///
    /// # Errors
    /// Our own mistake.
    pub(crate) fn blank() -> Result<Vec<u8>, ServerError> {
        Contents::default().encode()
    }

    /// The files that are gone and whose loss was accepted, by the folder of their log; none when
    /// the bytes cannot be read, as a start would say.
    pub(crate) fn accepted_losses(bytes: &[u8]) -> BTreeMap<String, Vec<FileName>> {
        let Ok(contents) = Contents::decode(bytes) else { return BTreeMap::new() };
        let of_log =
            |log: &LogContents| log.lost.iter().filter_map(|name| FileName::parse(name)).collect();
        contents.logs.iter().map(|(name, log)| (name.clone(), of_log(log))).collect()
    }

    /// What a manifest names.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn view(bytes: &[u8]) -> Result<ManifestView, String> {
        let contents = Contents::decode(bytes)?;
        let run = contents.last_run().number;
        let places = contents.kept_places().iter().map(|it| (it.keyspace, it.kept_as)).collect();
        let ids = |numbers: BTreeSet<u16>| numbers.into_iter().map(ShardId::new).collect();
        let logs = contents.logs.into_iter();
        Ok(ManifestView {
            shards: ids(contents.shards),
            frugal: ids(contents.frugal),
            void: ids(contents.void),
            log_files: logs.map(|(name, log)| (name, log.files.into_iter().collect())).collect(),
            run,
            unlogged: contents.unlogged,
            places,
        })
    }

    /// Whether the bytes name anything that must be there. Bytes that cannot be read may.
    pub(crate) fn names_anything(bytes: &[u8]) -> bool {
        // A run has a number before the directory belongs to a cluster.
        let names = |contents| Contents { run: Vec::new(), ..contents } != Contents::default();
        Contents::decode(bytes).map_or(true, names)
    }

    /// Reads the manifest, and does not look whether what it names is there.
    ///
    /// # Errors
    /// [`ServerError::BadFormatFile`] for a manifest that is damaged.
    pub(crate) fn read(environment: &Arc<dyn Environment>) -> Result<Arc<Self>, ServerError> {
        Ok(Self::of(environment, Contents::load(&**environment)?))
    }

    fn of(environment: &Arc<dyn Environment>, contents: Contents) -> Arc<Self> {
        let state = Mutex::new(State { contents, is_unsure: false, has_accepted: false });
        Arc::new(Self { environment: Arc::clone(environment), state })
    }

    /// Reads the manifest and looks whether everything that it names is there. Changes nothing
    /// unless a loss was accepted.
    ///
    /// # Errors
    /// [`ServerError::BadFormatFile`] for a manifest that is damaged, [`ServerError::Missing`] for
    /// what is gone.
    pub(crate) fn open(
        environment: &Arc<dyn Environment>,
        accepted: &AcceptedLoss,
    ) -> Result<Arc<Self>, ServerError> {
        let mut contents = Contents::load(&**environment)?;
        let missing = contents.missing(&**environment)?;
        let manifest = |contents| Self::of(environment, contents);
        if missing.is_empty() {
            contents.forget_old_losses(&**environment)?;
            return Ok(manifest(contents));
        }
        let refused: Vec<ShardId> = missing
            .concerned(&contents.shards)
            .into_iter()
            .filter(|&shard| !accepted.includes(shard))
            .collect();
        if !refused.is_empty() {
            return Err(missing.refuse(&**environment, &contents));
        }
        tracing::error!(
            missing = missing.names(),
            "going on without what is missing, as --accept-loss says. Acknowledged data that only \
             it held is lost: all keys of a shard \
             whose flash file is gone, up to what the logs still have; of a log that is gone, the \
             last writes of any shard"
        );
        // One that is being made anew has none, and what its log said may be gone.
        let all = &contents.shards | &contents.emptying;
        let concerned = missing.concerned(&all);
        contents.void.extend(concerned.iter().map(|shard| shard.get()));
        contents.forget(&missing);
        contents.forget_old_losses(&**environment)?;
        let manifest = manifest(contents);
        manifest.lock().has_accepted = true;
        manifest.environment.save_manifest(&manifest.lock().contents.encode()?)?;
        Ok(manifest)
    }

    /// Keeps the seed of key hashes that the cluster's master hands out. It never changes: what is
    /// on disk was hashed with it.
    ///
    /// # Errors
    /// The master hands out another one than before; the manifest cannot be saved.
    pub(crate) fn keep_seed(&self, seed: HashSeed, master: SocketAddr) -> Result<(), ServerError> {
        let known = self.lock().contents.hash_seed;
        match known {
            None => self.change(|contents| contents.hash_seed.replace(seed.0) != Some(seed.0)),
            Some(known) if known == seed.0 => Ok(()),
            Some(_) => Err(ServerError::Master {
                address: master,
                detail: format!(
                    "its seed of key hashes is not the one that {} has from an earlier start, so \
                     it is another cluster's master, or was \
                     set up anew; give the right --master, or another --data directory",
                    self.environment.manifest_place().display()
                ),
            }),
        }
    }

    /// The last run of the directory that began, or was about to.
    pub(crate) fn run(&self) -> Run {
        self.lock().contents.last_run()
    }

    /// Whether the directory has everything that was done in it, where the master knows that `known`
    /// has begun. That may have been a start of the same number which heard no answer.
    pub(crate) fn follows(&self, known: Run) -> bool {
        let state = self.lock();
        let is_own =
            |(number, tags): (&u64, &[u64])| *number == known.number && tags.contains(&known.tag);
        state.contents.last_run().follows(known)
            || state.contents.run.split_first().is_some_and(is_own)
    }

    /// The next run of the directory begins as soon as the master has heard of it.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn raise_run(&self, run: Run) -> Result<(), ServerError> {
        self.change(|contents| {
            contents.begin_run(run);
            true
        })
    }

    /// The same in a directory that is an older copy of itself, as somebody accepted: what its
    /// replicas of these shards have is void, and what it served since is not in its logs.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn accept_older(
        &self,
        run: Run,
        void: Option<&[ShardId]>,
    ) -> Result<(), ServerError> {
        self.change(|contents| {
            contents.begin_run(run);
            contents.void.extend(void.into_iter().flatten().map(|shard| shard.get()));
            contents.unlogged = true;
            true
        })
    }

    /// Whether something was missing at this start, and its loss was accepted.
    pub(crate) fn has_accepted(&self) -> bool {
        self.lock().has_accepted
    }

    /// The seed of the cluster's key hashes.
    ///
    /// # Errors
    /// Our own mistake: there is none before the cluster was joined.
    pub(crate) fn hash_seed(&self) -> Result<HashSeed, ServerError> {
        let seed = self.lock().contents.hash_seed.map(HashSeed);
        seed.ok_or_else(|| {
            ServerError::Internal("the seed of key hashes is not known yet".to_owned())
        })
    }

    /// A flash file of the shard is there, durably.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn flash_created(&self, shard: ShardId, part: FlashPart) -> Result<(), ServerError> {
        self.change(|contents| match part {
            FlashPart::Full => {
                let was_emptying = contents.emptying.remove(&shard.get());
                contents.shards.insert(shard.get()) || was_emptying
            }
            FlashPart::Frugal => contents.frugal.insert(shard.get()),
        })
    }

    /// The shard's flash files are about to go.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn removing_flash(&self, shard: ShardId) -> Result<(), ServerError> {
        self.change(|contents| {
            contents.emptying.insert(shard.get());
            contents.frugal.remove(&shard.get()) | contents.shards.remove(&shard.get())
        })
    }

    /// Whether something of a shard was lost, and no log says so yet.
    pub(crate) fn is_void(&self, shard: ShardId) -> bool {
        self.lock().contents.void.contains(&shard.get())
    }

    /// A replica's log says durably that everything here is void.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn loss_is_logged(&self, shard: ShardId) -> Result<(), ServerError> {
        self.change(|contents| contents.void.remove(&shard.get()))
    }

    /// A run begins. Called before anything is served.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn begin_run(&self, run: &Beginning) -> Result<Past, ServerError> {
        let mut past = Past::default();
        self.change(|contents| {
            let was_unlogged = std::mem::replace(&mut contents.unlogged, !run.has_log);
            past.outage = contents.outage(run).filter(|_| !was_unlogged);
            #[cfg(feature = "planted-bugs")]
            let was_unlogged = was_unlogged && !timestone_types::is_planted!(ForgottenUnloggedRun);
            if was_unlogged {
                // Durable from here on, so that a crash of this run before its first record needs
                // no further care.
                let served = contents.served().max(Served::by(run.now, run.youngest));
                contents.served_below = Some(served.as_timestamp().as_nanos());
            }
            past.served = contents.served();
            // This run's shards know the bound from the logs of earlier ones, and let those go. It
            // is the next run that would not know it.
            if !run.has_log
                && run.bound > Timestamp::ZERO
                && !timestone_types::is_planted!(ForgottenBound)
            {
                contents.served_below = contents.served_below.max(Some(run.bound.as_nanos()));
            }
            // Behind a clock that is left alone since it was set back too far, time did not stand
            // lower than it did: whatever told of that, it may have been a log, and this run's are
            // removed.
            let lived = run.now.max(run.lived_until);
            #[cfg(feature = "planted-bugs")]
            let lived = match timestone_types::is_planted!(ForgetsWhatLogsTold) {
                true => run.now.max(Timestamp::from_nanos(contents.lived.unwrap_or_default())),
                false => lived,
            };
            // A run with a log leaves it: it may be killed before its log tells of time.
            if !run.has_log {
                contents.lived = Some(lived.as_nanos());
            }
            true
        })?;
        Ok(past)
    }

    /// How far the clock of the last run without a log had come at least; zero if there was none.
    pub(crate) fn lived_until(&self) -> Timestamp {
        Timestamp::from_nanos(self.lock().contents.lived.unwrap_or_default())
    }

    /// The clock of this run has come so far. For runs without a log.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn lives(&self, now: Timestamp) -> Result<(), ServerError> {
        if timestone_types::is_planted!(ForgottenLife) {
            return Ok(());
        }
        let now = now.as_nanos();
        self.change(|contents| {
            contents.lived.replace(contents.lived.unwrap_or_default().max(now)) < Some(now)
        })
    }

    /// The clients that earlier runs of this server had of their own, as far as they are
    /// remembered: they are gone.
    pub(crate) fn own_clients(&self) -> BTreeSet<ClientId> {
        self.lock().contents.clients.iter().copied().map(ClientId::new).collect()
    }

    /// This run has these clients of its own. Called before they do anything.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn has_clients(&self, own: &[ClientId]) -> Result<(), ServerError> {
        self.change(|contents| {
            contents.clients.extend(own.iter().map(|client| client.get()));
            let old = contents.clients.len().saturating_sub(MAX_OWN_CLIENTS);
            contents.clients.drain(..old);
            !own.is_empty()
        })
    }

    /// Files of the log that are gone, which somebody accepted.
    pub(crate) fn lost_files(&self, log: &str) -> Vec<FileName> {
        let state = self.lock();
        let lost = state.contents.logs.get(log).into_iter().flat_map(|log| &log.lost);
        lost.filter_map(|name| FileName::parse(name)).collect()
    }

    /// Whether the log may have files, as far as the manifest knows.
    pub(crate) fn lists_log(&self, log: &str) -> bool {
        self.lock().contents.logs.contains_key(log)
    }

    /// Forgets the logs whose files are off the manifest and whose folders are gone; `present` are
    /// those that still have one. A file goes after it was taken off the manifest: until its folder
    /// is gone, too, a log may have files that the manifest does not name.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn forget_logs_but(&self, present: &[String]) -> Result<(), ServerError> {
        self.change(|contents| {
            let before = contents.logs.len();
            contents.logs.retain(|name, log| !log.files.is_empty() || present.contains(name));
            contents.logs.len() < before
        })
    }

    /// Who is to be told of the log's files.
    pub(crate) fn registry(self: &Arc<Self>, log: &str) -> Arc<dyn FileRegistry> {
        Arc::new(LogRegistry {
            manifest: Arc::clone(self),
            log: log.to_owned(),
            #[cfg(feature = "planted-bugs")]
            unlisted_with_last_file: timestone_types::is_planted!(UnlistedWithLastFile),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents and saves them, if `change` says that it did. A change that cannot be
    /// saved has not happened here; the disk may hold it, until something is saved again, which is
    /// made up for at the next call.
    fn change(&self, change: impl FnOnce(&mut Contents) -> bool) -> Result<(), ServerError> {
        let mut state = self.lock();
        let mut next = state.contents.clone();
        if change(&mut next) || state.is_unsure {
            state.is_unsure = true;
            self.environment.save_manifest(&next.encode()?)?;
            (state.contents, state.is_unsure) = (next, false);
        }
        Ok(())
    }
}

/// One log's part of the manifest.
#[derive(Debug)]
struct LogRegistry {
    manifest: Arc<Manifest>,
    log: String,
    /// A device has a thread of its own, where no bug is planted.
    #[cfg(feature = "planted-bugs")]
    unlisted_with_last_file: bool,
}

impl FileRegistry for LogRegistry {
    fn created(&self, file: FileName) -> io::Result<()> {
        let insert = |contents: &mut Contents| {
            contents.logs.entry(self.log.clone()).or_default().files.insert(file.to_string())
        };
        self.manifest.change(insert).map_err(io::Error::other)
    }

    fn removing(&self, file: FileName) -> io::Result<()> {
        if timestone_types::is_planted!(StaleManifest) {
            return Ok(());
        }
        let remove = |contents: &mut Contents| {
            let Some(log) = contents.logs.get_mut(&self.log) else { return false };
            let removed = log.files.remove(&file.to_string());
            if timestone_types::is_planted!(ForgetsLossEarly) {
                log.forget_old_losses(&log.files.clone());
            }
            #[cfg(feature = "planted-bugs")]
            if self.unlisted_with_last_file {
                contents.logs.retain(|_, log| !log.files.is_empty());
            }
            removed
        };
        self.manifest.change(remove).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::missing::Missing;
    use super::*;

    #[test]
    fn a_short_run_before_an_outage_of_less_than_a_minute_is_waited_for() {
        assert_eq!(outage_after_a_short_run(), Some(Duration::from_secs(58)));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_outage_that_counts_as_waiting_is_noticed() {
        assert_eq!(
            crate::planted::with(crate::planted::Bug::CountedOutage, outage_after_a_short_run),
            None
        );
    }

    const fn second(n: u64) -> Timestamp {
        Timestamp::from_nanos(n * 1_000_000_000)
    }

    /// A run that begins at `now`, where something tells that time had come to `lived_until`; both
    /// in seconds.
    fn beginning(has_log: bool, now: u64, lived_until: u64) -> Beginning {
        let lived_until = second(lived_until);
        Beginning {
            has_log,
            now: second(now),
            youngest: lived_until,
            lived_until,
            bound: Timestamp::ZERO,
        }
    }

    /// Begins one run after the other in a new directory: what each is told of earlier ones, and
    /// how far the last one is known to have lived.
    fn begun(runs: &[Beginning]) -> (Vec<Past>, Timestamp) {
        let folder = tempfile::tempdir().unwrap();
        let config = crate::ServerConfig::embedded(folder.path().join("data"));
        let environment: Arc<dyn Environment> =
            Arc::new(crate::environment::LocalEnvironment::open(&config).unwrap());
        let open = || Manifest::open(&environment, &AcceptedLoss::Nothing).unwrap();
        let told = runs.iter().map(|run| open().begin_run(run).unwrap()).collect();
        (told, open().lived_until())
    }

    /// A run of 5 s, and 58 s after its end another one.
    fn outage_after_a_short_run() -> Option<Duration> {
        let mut contents = Contents::default();
        let mut begin = |now, lived_until| contents.outage(&beginning(true, now, lived_until));
        begin(1000, 0);
        begin(1063, 1005)
    }

    #[test]
    fn sessions_are_waited_for_unless_the_outage_or_a_row_of_short_runs_lasts_too_long() {
        let mut contents = Contents::default();
        let mut begin = |now, lived_until| contents.outage(&beginning(true, now, lived_until));
        assert_eq!(begin(1000, 0), None, "the first run");
        assert_eq!(begin(1100, 1095), Some(Duration::from_secs(5)));
        assert_eq!(begin(1300, 1200), None, "nobody waited for so long");
        assert_eq!(begin(1400, 1399), Some(Duration::from_secs(1)));
        // Runs of five seconds each.
        for run in 1..=8 {
            assert_eq!(
                begin(1400 + run * 7, 1400 + run * 7 - 2),
                Some(Duration::from_secs(2)),
                "run {run}"
            );
        }
        assert_eq!(begin(1463, 1461), None, "a minute is over");
        assert_eq!(begin(1470, 1468), None);
        // One that lasted, and one by a clock that was set back.
        assert_eq!(begin(1500, 1499), Some(Duration::from_secs(1)));
        assert_eq!(begin(1400, 1510), Some(Duration::ZERO));
    }

    /// What is saved of how far time had come when a run without a log begins by a clock that shows
    /// less than the logs tell: the clock was set back by more than what is made up for, and this
    /// run's logs go.
    fn saved_of_what_logs_told() -> Timestamp {
        begun(&[beginning(true, 4000, 0), beginning(false, 1000, 5000)]).1
    }

    #[test]
    fn a_run_without_a_log_saves_how_far_the_logs_say_that_time_had_come() {
        assert_eq!(saved_of_what_logs_told(), Timestamp::from_nanos(5_000_000_000_000));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_log_that_told_in_vain_is_noticed() {
        let saved =
            crate::planted::with(crate::planted::Bug::ForgetsWhatLogsTold, saved_of_what_logs_told);
        assert_eq!(saved, Timestamp::from_nanos(1_000_000_000_000), "the planted bug is found");
    }

    /// A run without a log, and one with a log that is killed before its log tells of anything.
    #[test]
    fn how_far_a_run_without_a_log_has_lived_outlives_a_run_whose_log_tells_nothing() {
        let (_, lived_until) = begun(&[beginning(false, 4000, 0), beginning(true, 3990, 4000)]);
        assert_eq!(lived_until, second(4000));
    }

    /// The losses that are known after a crash between taking the file before a lost one off the
    /// manifest and removing it, and when that file is gone at last.
    fn losses_while_the_file_before_goes() -> [usize; 2] {
        let folder = tempfile::tempdir().unwrap();
        let config = crate::ServerConfig::embedded(folder.path().join("data"));
        let environment: Arc<dyn Environment> =
            Arc::new(crate::environment::LocalEnvironment::open(&config).unwrap());
        let log = config.data.join("wal/thread-0");
        std::fs::create_dir_all(&log).unwrap();
        let [oldest, lost, last] = [1, 2, 3].map(|n| FileName::new(Timestamp::from_nanos(n)));
        let open = |accepted| Manifest::open(&environment, &accepted).unwrap();
        let registry = open(AcceptedLoss::Nothing).registry("thread-0");
        for name in [oldest, lost, last] {
            std::fs::write(log.join(name.to_string()), b"").unwrap();
            registry.created(name).unwrap();
        }
        std::fs::remove_file(log.join(lost.to_string())).unwrap();
        let registry = open(AcceptedLoss::Everything).registry("thread-0");
        registry.removing(oldest).unwrap();
        let known = || open(AcceptedLoss::Nothing).lost_files("thread-0").len();
        let before = known();
        std::fs::remove_file(log.join(oldest.to_string())).unwrap();
        [before, known()]
    }

    #[test]
    fn an_accepted_loss_is_known_until_the_file_before_it_is_gone() {
        assert_eq!(losses_while_the_file_before_goes(), [1, 0]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_loss_that_is_forgotten_before_the_file_in_front_of_it_goes_is_noticed() {
        let known = crate::planted::with(
            crate::planted::Bug::ForgetsLossEarly,
            losses_while_the_file_before_goes,
        );
        assert_eq!(known, [0, 0], "the planted bug is found");
    }

    /// What is known to be served when a run with a log was followed by one without, whose clock
    /// was set back, and then by another one.
    fn served_after_a_log_has_gone() -> Timestamp {
        let without_a_log = Beginning { bound: second(5000), ..beginning(false, 1000, 0) };
        let (told, _) = begun(&[beginning(true, 4000, 0), without_a_log, beginning(true, 1001, 0)]);
        assert_eq!(told[1].served, Served::default(), "the logs tell this one");
        told[2].served.as_timestamp()
    }

    #[test]
    fn the_last_bound_of_a_log_outlives_it() {
        assert_eq!(served_after_a_log_has_gone(), second(5000));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_bound_that_goes_with_its_log_is_noticed() {
        let served =
            crate::planted::with(crate::planted::Bug::ForgottenBound, served_after_a_log_has_gone);
        assert!(served < Timestamp::from_nanos(2_000_000_000_000), "the planted bug is found");
    }

    #[test]
    fn a_missing_log_file_concerns_all_shards_and_a_missing_flash_file_its_own() {
        let all = BTreeSet::from([0, 1, 7]);
        let flash = Missing { shards: [ShardId::new(7)].into(), ..Missing::default() };
        assert_eq!(flash.concerned(&all), [ShardId::new(7)].into());
        assert_eq!(flash.names(), "shard-0007/flash");
        let files: BTreeSet<String> = (0..7).map(|n| format!("{n}.log")).collect();
        let log = Missing { files: [("thread-1".to_owned(), files)].into(), ..Missing::default() };
        assert_eq!(log.concerned(&all).len(), 3);
        assert!(log.names().ends_with("wal/thread-1/4.log and 2 more"), "{}", log.names());
    }
}
