//! Changes the index of a keyspace in a data directory that no server uses.
//!
//! ```text
//!   manifest   what is left over goes ─► a new id, left over ─┬─────────────────► moved: the new id ─┬───────────► nothing is left over
//!   stores                                                    └► copied, durably ┘  (the old one is left over)  └► ended, durably
//! ```
//! Each shard's stores are opened as a server would open them, and its logs are left alone. What is
//! in them and not in the stores is replayed by the next start, into the place that the manifest says
//! then: logs know a keyspace by its own id. So does everybody else, and nothing of other servers is
//! touched: how a server finds its keys is its own business.
//!
//! It may be broken off at any moment. Until the manifest says that the keyspace was moved, it is
//! where it was; from then on it is where it is to be. Whatever is left over is told by the manifest,
//! and goes when a server starts in the directory, or a conversion is begun again.

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{IndexKind, Master};
use timestone_shard::{KeyspaceCopy, KeyspaceEnd};
use timestone_store::{KeyspacePlace, Store, StoreEvent};
use timestone_types::{ClusterId, KeyspaceId, ShardId, Timestamp};
use timestone_wal::DeviceKind;

use crate::config::{FlashPlace, ServerConfig};
use crate::environment::{Environment, FlashPart, LocalEnvironment};
use crate::error::ServerError;
use crate::manifest::Manifest;
use crate::restart::StoreOpener;

/// How long a turn that has not come to its end waits for a device.
const DEVICE_WAIT: Duration = Duration::from_millis(1);
/// Turns that a store may take to close; it would recover what it has not saved.
const CLOSING_TURNS: u32 = 20_000;

/// How far a conversion has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConversionProgress {
    /// Shards that are copied.
    pub shards: usize,
    /// Of so many.
    pub of_shards: usize,
    /// Versions, deletions and fences that were copied.
    pub versions: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// What came of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversion {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// It has another index than before; otherwise it had this one already.
    pub is_changed: bool,
    /// What was copied.
    pub progress: ConversionProgress,
}

/// Whom a conversion tells how far it has come, once a turn. It answers with the time, or ends it.
pub type Turns<'a> = dyn FnMut(&ConversionProgress) -> Result<Timestamp, ServerError> + 'a;

/// Changes the index of a keyspace in the data directory that the configuration names. `keyspace` is
/// a name, where the directory has the state of an embedded master, or else the keyspace's number.
///
/// # Errors
/// A server uses the directory; there is no such keyspace; it cannot have this index; there is no room
/// for it; something cannot be read.
pub fn convert(
    config: &ServerConfig,
    keyspace: &str,
    index: IndexKind,
    tell: &mut dyn FnMut(&ConversionProgress),
) -> Result<Conversion, ServerError> {
    let refuse = |detail: &str| ServerError::Conversion {
        keyspace: keyspace.to_owned(),
        detail: detail.to_owned(),
    };
    if crate::datadir::existing_shards(&config.data)?.is_none() {
        let detail = format!("{} is no data directory", config.data.display());
        return Err(refuse(&detail));
    }
    let mut config = config.clone();
    config.flash = FlashPlace::Files;
    // What is copied is synced before anybody counts on it.
    config.log = DeviceKind::Ssd;
    config.sizes.memory_bytes =
        config.sizes.memory_bytes.or_else(|| Some(timestone_io::machine_memory()? / 2));
    let environment = LocalEnvironment::open(&config).map_err(|error| match error {
        ServerError::OtherDevice { existing, .. } => {
            let detail = format!(
                "its data directory was created with --device {existing}, and an index on flash \
                 needs a file"
            );
            refuse(&detail)
        }
        error => error,
    })?;
    let environment: Arc<dyn Environment> = Arc::new(environment);
    let master = load_master(&*environment)?;
    let named = master.as_ref().and_then(|master| master.keyspace(keyspace));
    let id = match (named, keyspace.parse()) {
        (Some(named), _) => named.id,
        (None, Ok(number)) => KeyspaceId::new(number),
        (None, Err(_)) if keyspace == "default" => KeyspaceId::DEFAULT,
        (None, Err(_)) => {
            let (path, keyspace) = (config.data, keyspace.to_owned());
            return Err(ServerError::NoKeyspace { path, keyspace });
        }
    };
    let clock = environment.clock();
    let mut turns = |progress: &ConversionProgress| {
        tell(progress);
        Ok(clock.now())
    };
    convert_on(&config, &environment, id, index, &mut turns).map_err(|error| match error {
        ServerError::Conversion { detail, .. } => refuse(&detail),
        error => error,
    })
}

fn load_master(environment: &dyn Environment) -> Result<Option<Master>, ServerError> {
    let decode = |bytes: Vec<u8>| {
        Master::decode(&bytes).map_err(|error| ServerError::BadMaster {
            path: environment.place(),
            detail: error.to_string(),
        })
    };
    let kept = match environment.load_master() {
        Ok(kept) => kept,
        // Where the master is elsewhere, the directory names the cluster that it joined.
        Err(missing) => match environment.load_cluster() {
            Ok(cluster) if cluster != ClusterId::ZERO => None,
            _ => return Err(missing),
        },
    };
    kept.map(decode).transpose()
}

/// The same on a given environment, for a keyspace by its id.
///
/// # Errors
/// As [`convert`], and whatever `turns` says.
pub fn convert_on(
    config: &ServerConfig,
    environment: &Arc<dyn Environment>,
    keyspace: KeyspaceId,
    index: IndexKind,
    turns: &mut Turns<'_>,
) -> Result<Conversion, ServerError> {
    let is_frugal = wanted(keyspace, index)?;
    let manifest = Manifest::open_whole(environment)?;
    let master = load_master(&**environment)?;
    let cluster = match &master {
        Some(master) => master.cluster(),
        None => environment.load_cluster()?,
    };
    if cluster == ClusterId::ZERO {
        let detail =
            "the directory belongs to no cluster yet: nothing was ever kept in it".to_owned();
        return Err(ServerError::Conversion { keyspace: keyspace.to_string(), detail });
    }
    let shards = manifest.shards();
    let opener = StoreOpener {
        config: config.clone(),
        environment: Arc::clone(environment),
        manifest: Arc::clone(&manifest),
        tuning: config.tuning(),
        cluster,
        shards: shards.len(),
    };
    let place = manifest.places().of(keyspace);
    let is_changed = place.is_frugal() != is_frugal;
    let mut progress = ConversionProgress { of_shards: shards.len(), ..Default::default() };
    if is_changed || !manifest.left_places().is_empty() {
        let mut directory = OpenShards::open(&opener, &shards)?;
        directory.end_left(&manifest, turns, &progress)?;
        if is_changed {
            let kept_as = manifest.begin_move(is_frugal)?;
            directory.copy((place, kept_as), turns, &mut progress)?;
            manifest.moved(KeyspacePlace { keyspace, kept_as })?;
            directory.end_left(&manifest, turns, &progress)?;
        }
        directory.close(turns, &progress)?;
    }
    // What `keyspace list` shows. It is made up for when this is done again.
    if let Some(mut master) = master
        && master.note_index(keyspace, index).map_err(ServerError::part)?
    {
        let mut bytes = Vec::new();
        master.encode(&mut bytes);
        environment.save_master(&bytes)?;
    }
    Ok(Conversion { keyspace, is_changed, progress })
}

/// What conversions have left over in the stores of a server goes, before it serves from them. Where
/// that cannot be done, it stays, and the log says so: nobody reads it, and the next start tries again.
pub(crate) fn end_left_over(opener: &StoreOpener) {
    let manifest = &opener.manifest;
    if manifest.left_places().is_empty() {
        return;
    }
    // A shard of which something was lost may have none. What has one copy stays such for ever, and goes on from there.
    let has_any = |&shard: &ShardId| {
        !manifest.is_void(shard) || opener.environment.has_flash(shard, FlashPart::Full)
    };
    let shards: Vec<_> = manifest.shards().into_iter().filter(has_any).collect();
    // The time goes on from turn to turn, also where nothing else lets it.
    let (clock, begun, mut turn) =
        (opener.environment.clock(), opener.environment.clock().now(), 0);
    let mut turns = |_: &ConversionProgress| {
        turn += 1;
        Ok(clock.now().max(begun.saturating_add(DEVICE_WAIT * turn)))
    };
    let progress = ConversionProgress::default();
    let ended = OpenShards::open(opener, &shards)
        .and_then(|mut directory| directory.end_left(manifest, &mut turns, &progress));
    if let Err(error) = ended {
        tracing::warn!(
            %error,
            "what a change of a keyspace's index has left over takes room until a later start"
        );
    }
}

/// Whether the index that is asked for is on flash.
///
/// # Errors
/// The keyspace cannot have it.
fn wanted(keyspace: KeyspaceId, index: IndexKind) -> Result<bool, ServerError> {
    let detail = if keyspace.is_place() {
        "there is no keyspace of this number"
    } else if keyspace.is_in_memory() {
        "it is kept in memory only, where no index is on flash"
    } else if keyspace.is_ordered() {
        "its keys are in order, and clients count on that; create another keyspace, then `timestone \
         dump` this one and `timestone load` the other"
    } else {
        match index {
            IndexKind::Full => return Ok(false),
            IndexKind::Frugal => return Ok(true),
            IndexKind::Ordered => {
                "--index is full or frugal here; for keys in order create another keyspace, then \
                 `timestone dump` this one and `timestone load` the other"
            }
        }
    };
    Err(ServerError::Conversion { keyspace: keyspace.to_string(), detail: detail.to_owned() })
}

/// The stores of all shards of a directory.
struct OpenShards {
    shards: Vec<(ShardId, Box<dyn Store + Send>)>,
    /// What is put next is counted to this batch of each.
    batch: u64,
}

impl OpenShards {
    fn open(opener: &StoreOpener, shards: &[ShardId]) -> Result<Self, ServerError> {
        let open = |&shard: &ShardId| Ok((shard, opener.open_as_kept(shard)?));
        let shards = shards.iter().map(open).collect::<Result<_, ServerError>>()?;
        Ok(Self { shards, batch: 1 })
    }

    /// The next batch, and one behind it.
    const fn next_batch(&mut self) -> u64 {
        self.batch += 2;
        self.batch - 2
    }

    fn copy(
        &mut self,
        (from, to): (KeyspaceId, KeyspaceId),
        turns: &mut Turns<'_>,
        progress: &mut ConversionProgress,
    ) -> Result<(), ServerError> {
        let batch = self.next_batch();
        for (shard, store) in &mut self.shards {
            let mut copy = KeyspaceCopy::new(from, to, batch);
            let before = (progress.versions, progress.bytes);
            loop {
                let now = turns(progress)?;
                let step = copy.turn(now, &mut **store);
                let is_over = step.map_err(|source| refused(*shard, to, &source, AS_IT_WAS))?;
                let (versions, bytes) = copy.copied();
                (progress.versions, progress.bytes) = (before.0 + versions, before.1 + bytes);
                if is_over {
                    break;
                }
                store.wait(DEVICE_WAIT);
            }
            progress.shards += 1;
        }
        Ok(())
    }

    /// What is left over goes.
    fn end_left(
        &mut self,
        manifest: &Manifest,
        turns: &mut Turns<'_>,
        progress: &ConversionProgress,
    ) -> Result<(), ServerError> {
        for keyspace in manifest.left_places() {
            let batch = self.next_batch();
            for (shard, store) in &mut self.shards {
                let mut end = KeyspaceEnd::new(keyspace, batch);
                while !end
                    .turn(turns(progress)?, &mut **store)
                    .map_err(|source| refused(*shard, keyspace, &source, LEFT))?
                {
                    store.wait(DEVICE_WAIT);
                }
            }
        }
        manifest.nothing_left()
    }

    /// Writes checkpoints, so that the next start is quick.
    fn close(
        mut self,
        turns: &mut Turns<'_>,
        progress: &ConversionProgress,
    ) -> Result<(), ServerError> {
        for (_, store) in &mut self.shards {
            let mut events = Vec::new();
            store.shutdown();
            for _ in 0..CLOSING_TURNS {
                store.pump(turns(progress)?, &mut events);
                if events.drain(..).any(|event| matches!(event, StoreEvent::ShutDown)) {
                    break;
                }
                store.wait(DEVICE_WAIT);
            }
        }
        Ok(())
    }
}

/// What is so when something cannot be copied.
const AS_IT_WAS: &str = "The keyspace is as it was";
/// What is so when something cannot be ended.
const LEFT: &str = "What is left of an earlier place of a keyspace takes room until it can go";

/// What a store has refused, with what to do about it.
fn refused(
    shard: ShardId,
    to: KeyspaceId,
    source: &timestone_shard::ShardError,
    so_far: &str,
) -> ServerError {
    let setting = if to.is_frugal() { "--frugal-capacity" } else { "--capacity" };
    let file = if to.is_frugal() { "frugal" } else { "flash" };
    ServerError::Conversion {
        keyspace: to.to_string(),
        detail: format!(
            "shard-{:04}/{file}: {source}. {so_far}. Where there is no room, give more with {setting}, \
             or free some of the disk, and run this again",
            shard.get()
        ),
    }
}
