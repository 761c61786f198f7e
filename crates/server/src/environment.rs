//! What a server stands on: its clock, its network, its devices and the small files beside them.
//!
//! ```text
//!   assembly ──► Environment ─┬─ LocalEnvironment: a data directory, the system's clock and TCP, the master over a blocking socket
//!                          └─ the simulator's: devices in memory, a skewed clock, a virtual network
//! ```
//! Everything that [`crate::Server`] takes from the operating system for its stages comes through
//! here, so that the very same stages can be built elsewhere. What it deliberately leaves out: HTTP
//! and threads, which are no business of stages.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use timestone_clock::{Clock, SystemClock};
use timestone_cluster::{DirectoryId, MasterService};
use timestone_etcd::{EtcdMaster, EtcdOptions, Founding};
use timestone_flash::FlashDevice;
use timestone_seda::{Network, Tcp};
use timestone_types::{ClusterId, ShardId, Span};
use timestone_wal::device::FileName;
use timestone_wal::{DeviceKind, Log, LogConfig, LogRecovery};

use crate::config::ServerConfig;
use crate::datadir::DataDir;
use crate::error::ServerError;
use crate::flash::FlashDevices;
use crate::limits;
use crate::node::{Joining, Registration, register};
use crate::seen;

/// One of the flash devices of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlashPart {
    /// That of the keyspaces whose index is in memory. Every shard has it.
    Full,
    /// That of the keyspaces whose index is on flash. It is made with the first write for it.
    Frugal,
}

impl FlashPart {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Full, Self::Frugal];

    /// The name of its file in the shard's folder.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Full => "flash",
            Self::Frugal => "frugal",
        }
    }
}

/// A server's surroundings. Opened and locked: nobody else uses them.
pub trait Environment: Send + Sync {
    /// The clock that stages live by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Where connections come from.
    fn network(&self) -> Arc<dyn Network>;

    /// How many shards are kept here.
    fn shards(&self) -> u16;

    /// The environment's identity towards the master.
    fn directory(&self) -> DirectoryId;

    /// How many threads a recovery may use. One where everything has to happen in one order.
    fn parallelism(&self) -> usize {
        1
    }

    /// A number that nobody can guess.
    fn draw(&self) -> u64;

    /// The bytes of the manifest as they were last saved; `None` before they ever were.
    ///
    /// # Errors
    /// They cannot be read, or are missing where there is data.
    fn load_manifest(&self) -> Result<Option<Vec<u8>>, ServerError>;

    /// Replaces the manifest atomically and durably. Called from threads that may block.
    ///
    /// # Errors
    /// It cannot be written; the old one is intact then.
    fn save_manifest(&self, bytes: &[u8]) -> Result<(), ServerError>;

    /// Whether a flash device of a shard is there.
    fn has_flash(&self, shard: ShardId, part: FlashPart) -> bool;

    /// The files of a log; none when there is no such log.
    ///
    /// # Errors
    /// They cannot be listed.
    fn log_files(&self, name: &str) -> Result<Vec<FileName>, ServerError>;

    /// Opens a flash device of a shard, of up to `blocks` blocks, creating it when it is missing.
    /// Both devices of a shard signal the same descriptor, if any. The second one may be opened in the
    /// middle of a run, by another thread.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open_flash(
        &self,
        shard: ShardId,
        part: FlashPart,
        blocks: u32,
    ) -> Result<Box<dyn FlashDevice>, ServerError>;

    /// Removes the flash devices of a shard with all that is on them, durably. Nobody has one open.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove_flash(&self, shard: ShardId) -> Result<(), ServerError>;

    /// Bytes that all flash devices together may take when nothing else is said.
    ///
    /// # Errors
    /// It cannot be found out.
    fn capacity_bytes(&self) -> Result<u64, ServerError>;

    /// The names of all logs that exist, in order.
    ///
    /// # Errors
    /// They cannot be listed.
    fn logs(&self) -> Result<Vec<String>, ServerError>;

    /// Opens the log of this name, creating it when it is missing.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open_log(&self, name: &str, config: LogConfig) -> Result<LogRecovery, ServerError>;

    /// Removes what is left of a log whose files are gone. What is not the log's own stays there.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove_log(&self, name: &str) -> Result<(), ServerError>;

    /// The embedded master's state as it was last saved, if it ever was.
    ///
    /// # Errors
    /// It cannot be read.
    fn load_master(&self) -> Result<Option<Vec<u8>>, ServerError>;

    /// Replaces the embedded master's state atomically and durably.
    ///
    /// # Errors
    /// It cannot be written; the old state is intact then.
    fn save_master(&self, bytes: &[u8]) -> Result<(), ServerError>;

    /// The cluster that was joined, where the master is elsewhere; zero before.
    ///
    /// # Errors
    /// It cannot be read.
    fn load_cluster(&self) -> Result<ClusterId, ServerError>;

    /// Remembers the cluster that was joined.
    ///
    /// # Errors
    /// It cannot be written.
    fn save_cluster(&self, cluster: ClusterId) -> Result<(), ServerError>;

    /// The name of the cluster, if it was given one. An environment that keeps no names have none.
    ///
    /// # Errors
    /// It cannot be read.
    fn load_cluster_name(&self) -> Result<Option<String>, ServerError> {
        Ok(None)
    }

    /// Remembers the cluster's name.
    ///
    /// # Errors
    /// It cannot be written.
    fn save_cluster_name(&self, name: &str) -> Result<(), ServerError> {
        let _ = name;
        Ok(())
    }

    /// Registers with the master at `address`.
    ///
    /// # Errors
    /// It refused, or does not answer.
    fn register(&self, address: SocketAddr, joining: Joining) -> Result<Registration, ServerError>;

    /// Reaches the master whose state is on etcd, and founds its cluster if there is none.
    ///
    /// # Errors
    /// etcd does not answer, has no state although this server has seen one, or this environment
    /// knows no etcd.
    fn open_etcd(
        &self,
        members: &[SocketAddr],
        prefix: String,
        founding: Founding,
    ) -> Result<EtcdMaster, ServerError> {
        let _ = (members, prefix, founding);
        Err(ServerError::Internal("there is no etcd in this environment".to_owned()))
    }

    /// The master of the cluster, where this environment has one that is neither embedded nor
    /// reached over the wire; it is asked from the node's thread.
    ///
    /// # Errors
    /// It does not answer.
    fn open_master(&self) -> Result<Option<Box<dyn MasterService>>, ServerError> {
        Ok(None)
    }

    /// The place of the master's state as error messages name it.
    fn place(&self) -> PathBuf;

    /// All of it, as error messages name it.
    fn root(&self) -> PathBuf {
        self.place()
    }

    /// The place of the manifest, as error messages name it.
    fn manifest_place(&self) -> PathBuf {
        self.place()
    }

    /// What says which cluster was joined, or, when `named`, what the cluster is called, as error
    /// messages name it.
    fn cluster_place(&self, named: bool) -> PathBuf {
        let _ = named;
        self.place()
    }
}

/// A data directory of this machine.
pub(crate) struct LocalEnvironment {
    data: DataDir,
    clock: Arc<SystemClock>,
    flash: FlashDevices,
}

impl LocalEnvironment {
    /// Opens and locks the data directory.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, ServerError> {
        config.check_flash()?;
        let clock = Arc::new(SystemClock::set_wrong(config.clock_shift.clone()));
        if !config.clock_shift.is_none() {
            let most = Span(config.clock_shift.most());
            tracing::warn!(%most, "this server's clock is set wrong, as --clock-shift says");
        }
        let existing = crate::datadir::existing_shards(&config.data)?;
        let shards = if existing.is_none() { Some(config.new_shards()) } else { config.shards };
        if existing.is_none() {
            // Before anything is created.
            FlashDevices::check(&config.flash, config.new_shards())?;
        }
        let data = DataDir::open(&config.data, &config.flash, shards, || draw(&clock))?;
        let logs = match config.log {
            DeviceKind::None => limits::LAST_LOG_FILE_BYTES,
            DeviceKind::Ssd | DeviceKind::Pmem => {
                config.thread_count() as u64 * config.tuning().log.file_bytes
            }
        };
        let flash = FlashDevices::open(&config.flash, data.identity(), logs + limits::FREE_BYTES)?;
        Ok(Self { data, clock, flash })
    }
}

/// A number that nobody can guess, for seeds and ids; the operating system's entropy by way of the
/// standard library's hasher.
fn draw(clock: &SystemClock) -> u64 {
    use std::hash::BuildHasher;
    std::collections::hash_map::RandomState::new()
        .hash_one((clock.now().as_nanos(), std::process::id()))
}

impl Environment for LocalEnvironment {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn network(&self) -> Arc<dyn Network> {
        Arc::new(Tcp)
    }

    fn shards(&self) -> u16 {
        self.data.identity().shards
    }

    fn directory(&self) -> DirectoryId {
        DirectoryId(self.data.identity().directory)
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, core::num::NonZero::get)
    }

    fn draw(&self) -> u64 {
        draw(&self.clock)
    }

    fn load_manifest(&self) -> Result<Option<Vec<u8>>, ServerError> {
        self.data.load_manifest().map(Some)
    }

    fn save_manifest(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.data.save_manifest(bytes)
    }

    fn has_flash(&self, shard: ShardId, part: FlashPart) -> bool {
        self.flash.has(&self.data, shard, part)
    }

    fn log_files(&self, name: &str) -> Result<Vec<FileName>, ServerError> {
        self.data.log_files(name)
    }

    fn open_flash(
        &self,
        shard: ShardId,
        part: FlashPart,
        blocks: u32,
    ) -> Result<Box<dyn FlashDevice>, ServerError> {
        self.flash.open_shard(&self.data, shard, part, blocks)
    }

    fn remove_flash(&self, shard: ShardId) -> Result<(), ServerError> {
        self.flash.remove(&self.data, shard)
    }

    fn capacity_bytes(&self) -> Result<u64, ServerError> {
        self.flash.capacity_bytes(&self.data)
    }

    fn logs(&self) -> Result<Vec<String>, ServerError> {
        let folders = self.data.existing_log_folders()?;
        let names =
            folders.iter().filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
        Ok(names.collect())
    }

    fn open_log(&self, name: &str, config: LogConfig) -> Result<LogRecovery, ServerError> {
        Log::open(&self.data.log_folder(name)?, config).map_err(ServerError::part)
    }

    fn remove_log(&self, name: &str) -> Result<(), ServerError> {
        if !self.data.remove_log_folder(name)? {
            tracing::warn!(
                log = name,
                "the folder of a log that holds nothing any more has other files in it, and stays"
            );
        }
        Ok(())
    }

    fn load_master(&self) -> Result<Option<Vec<u8>>, ServerError> {
        self.data.load_master()
    }

    fn save_master(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.data.save_master(bytes)
    }

    fn load_cluster(&self) -> Result<ClusterId, ServerError> {
        self.data.load_cluster()
    }

    fn save_cluster(&self, cluster: ClusterId) -> Result<(), ServerError> {
        self.data.save_cluster(cluster)
    }

    fn load_cluster_name(&self) -> Result<Option<String>, ServerError> {
        self.data.load_cluster_name()
    }

    fn save_cluster_name(&self, name: &str) -> Result<(), ServerError> {
        self.data.save_cluster_name(name)
    }

    fn register(&self, address: SocketAddr, joining: Joining) -> Result<Registration, ServerError> {
        register(address, &joining, limits::MASTER_TIMEOUT)
    }

    fn open_etcd(
        &self,
        members: &[SocketAddr],
        prefix: String,
        founding: Founding,
    ) -> Result<EtcdMaster, ServerError> {
        let endpoints = members.iter().map(ToString::to_string).collect();
        let options = EtcdOptions {
            time_to_live: limits::SERVER_LEASE,
            ..EtcdOptions::new(endpoints, prefix, self.directory())
        };
        seen::open_etcd(options, founding, &self.data)
    }

    fn place(&self) -> PathBuf {
        self.data.master_path()
    }

    fn root(&self) -> PathBuf {
        self.data.path().to_owned()
    }

    fn manifest_place(&self) -> PathBuf {
        self.data.manifest_path()
    }

    fn cluster_place(&self, named: bool) -> PathBuf {
        if named { self.data.cluster_name_path() } else { self.data.cluster_path() }
    }
}

#[cfg(test)]
mod tests;
