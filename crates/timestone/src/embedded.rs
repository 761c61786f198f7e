//! Client and server in one process: `open`.
//!
//! ```text
//!   application ─ Db ─► client stage i ─ batches of frames ─► shard stages of the same runtime
//!                       (one on every reactor thread)
//! ```
//! The path is the one that a connection takes, less the sockets: the same engine, the same frames,
//! the same stages. Single keys are asked by calls instead of frames (`timestone_wire::Calls`).

use std::path::Path;
use std::sync::Mutex;

use timestone_client::{Attachment, Db, EngineConfig};
use timestone_server::{DeviceKind, Server, ServerConfig, ServerError};

/// How an embedded store is set up.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The server's part. [`ServerConfig::embedded`] has no ports; give it some to look at the
    /// store from outside.
    pub server: ServerConfig,
    /// The client's part.
    pub engine: EngineConfig,
}

impl OpenOptions {
    /// The defaults for a directory: durable log, every core a reactor thread.
    #[must_use]
    pub fn new(directory: impl AsRef<Path>) -> Self {
        let mut server = ServerConfig::embedded(directory.as_ref().to_owned());
        server.threads = std::thread::available_parallelism().ok().map(core::num::NonZero::get);
        Self { server, engine: EngineConfig::default() }
    }

    /// Bounds the memory of the store, in bytes, all in: index, buffers, records of accesses, and
    /// the record cache, which gets what the others leave of it. At least
    /// [`MIN_MEMORY_BYTES`](timestone_server::limits::MIN_MEMORY_BYTES). The index is never refused
    /// memory, 32 bytes for each key, and an eighth of the cache stays: with more keys than the rest
    /// has room for, the store takes more, and says so in the log. Keyspaces in dram, and what the
    /// application keeps of answers, come beside it.
    ///
    /// Without this the cache has up to 1 GiB, and everything up to half of the machine's memory.
    #[must_use]
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.server.sizes.memory_bytes = Some(bytes);
        self.server.sizes.cache_bytes = bytes;
        self
    }

    /// Chooses the log's device.
    #[must_use]
    pub const fn log(mut self, device: DeviceKind) -> Self {
        self.server.log = device;
        self
    }
}

/// An open store. Close it with [`Embedded::close`]: merely dropping it is like pulling the plug,
/// safe but slower to open again.
#[derive(Debug)]
pub struct Embedded {
    server: Server,
    loops: Vec<Db>,
}

/// Opens the store in `directory`, creating it when it does not exist.
///
/// Its clients ask the shards of this process alone. One that is part of a cluster whose shards have
/// several copies gets no answer from a shard whose primary is another server: connect to the
/// cluster with [`crate::connect`] instead.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path().join("data");
/// let store = timestone::open(&directory)?;
/// let db = timestone::blocking::Db::from(store.db());
/// db.put(b"greeting", b"hello")?;
/// assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
/// drop(db);
/// store.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The directory is in use, of another format, or damaged.
pub fn open(directory: impl AsRef<Path>) -> Result<Embedded, ServerError> {
    open_with(&OpenOptions::new(directory))
}

/// As [`open`], with options.
///
/// # Errors
/// As [`open`].
pub fn open_with(options: &OpenOptions) -> Result<Embedded, ServerError> {
    let attachments: Mutex<Vec<Attachment>> = Mutex::new(Vec::new());
    let server = Server::start_with(&options.server, |slots| {
        let clients = slots.iter().map(|slot| {
            let (stage, attachment) = slot.client(options.engine).split();
            if let Ok(mut attachments) = attachments.lock() {
                attachments.push(attachment);
            }
            stage
        });
        clients.collect()
    })?;
    let attachments = attachments.into_inner().unwrap_or_default();
    let slots = server.embedded_clients().iter();
    let loops = slots
        .zip(attachments)
        .map(|(slot, part)| part.attach(server.injector(), slot.stage, None))
        .collect();
    Ok(Embedded { server, loops })
}

impl Embedded {
    /// A handle on the store.
    ///
    /// # Panics
    /// Never: a runtime has at least one thread.
    #[must_use]
    pub fn db(&self) -> Db {
        self.loops.first().expect("a runtime has at least one thread").clone()
    }

    /// One handle for the event loop of every reactor thread, for applications that spread their
    /// work themselves.
    #[must_use]
    pub fn loops(&self) -> &[Db] {
        &self.loops
    }

    /// The server inside, for its addresses.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Finishes what was begun, makes everything durable, writes checkpoints and stops.
    ///
    /// # Errors
    /// Something could not be finished in time; it is recovered from the log when the store is
    /// opened again.
    pub fn close(self) -> Result<(), ServerError> {
        drop(self.loops);
        self.server.shutdown()
    }
}
