//! Timestone: a distributed, multi-version, transactional key-value store that runs on precise
//! time.
//!
//! This is the library that applications depend on. [`connect`] speaks to a server; [`open`] runs
//! the whole store inside the application's process, without a server and without sockets. Both
//! give a [`Db`] with the same methods.
//!
//! ```no_run
//! # async fn example() -> timestone::Result<()> {
//! let db = timestone::connect("timestone://127.0.0.1:7400").await?;
//! db.put(b"n", b"41").await?;
//! let n = db
//!     .transact(async |tx| {
//!         let n = tx.get(b"n").await?.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap_or(0)) + 1;
//!         tx.put(b"n", n.to_string().as_bytes()).await?;
//!         Ok(n)
//!     })
//!     .await?;
//! assert_eq!(n, 42);
//! # Ok(())
//! # }
//! ```
//!
//! [`blocking`] has the same without `async`. [`server`] is what the `timestone` binary runs.

mod embedded;

pub use embedded::{Embedded, OpenOptions, open, open_with};
pub use timestone_client::*;

/// Running a server, as the `timestone` binary does.
pub mod server {
    pub use timestone_server::{
        AcceptedLoss, Addresses, DeviceKind, FlashPlace, InForce, ListenConfig, MasterPlace,
        Server, ServerConfig, ServerError, SizeConfig, StageLayout, UNNAMED_CLUSTER,
        accepted_losses, etcd_prefix, limits,
    };
    pub use timestone_wal::device::FileName;
    pub use timestone_wal::{CheckReport, WalError, check as check_log};

    /// Changing the index of a keyspace without a server; see `timestone data convert`.
    pub mod conversion {
        pub use timestone_server::{Conversion, ConversionProgress, convert};
    }

    /// Looking at a data directory without a server; see `timestone data inspect`.
    pub mod inspect {
        pub use timestone_flash::{
            BlockId, FileImage, FlashError, Geometry, GivenUp, PageId, UnreadablePages,
        };
        pub use timestone_server::{
            DirectoryIdentity, DirectoryView, FlashPart, ManifestView, MissingFile, missing_files,
        };
        pub use timestone_store::inspect::*;
    }
}
