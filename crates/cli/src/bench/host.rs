//! Where a benchmark runs: on servers over TCP, or on a store in this process.

use std::collections::BTreeSet;

use serde_json::Value;
use tempfile::TempDir;
use timestone::blocking::Db as Blocking;
use timestone::server::DeviceKind;
use timestone::{Db, Embedded, OpenOptions, open_with};

use super::{BenchArgs, clocks};
use crate::failure::Failure;
use crate::probe;

/// The event loops to run on, and what is behind them.
pub(super) struct Host {
    loops: Vec<Db>,
    behind: Behind,
    notes: Vec<(&'static str, Value)>,
}

enum Behind {
    /// Servers, each as `host:port`.
    Servers(Vec<String>),
    /// A store in this process; its folder, when it is a temporary one, goes with it.
    Store(Box<Embedded>, Option<TempDir>),
}

impl Host {
    /// Connects, or opens the store.
    pub(super) fn open(args: &BenchArgs) -> Result<Self, Failure> {
        if args.store.in_process { Self::open_store(args) } else { Self::connect(args) }
    }

    fn connect(args: &BenchArgs) -> Result<Self, Failure> {
        let connect = |number| {
            let clock = clocks::skewed(args.clock_skew, args.seed, number);
            args.target.connect_by(clock).map(|db| Blocking::as_async(&db).clone())
        };
        let loops =
            (0..args.threads.unwrap_or(1).max(1)).map(connect).collect::<Result<Vec<_>, _>>()?;
        let asked = probe::servers_of(&args.target.address);
        let answer = asked.iter().find_map(|address| probe::ask(address).ok());
        let mut notes = vec![("address", args.target.address.as_str().into())];
        if let Some(skew) = args.clock_skew {
            notes.push(("clock_skew", skew.to_string().into()));
        }
        let mut servers = asked;
        if let Some(answer) = answer {
            notes.push(("shards", answer.map.shards().len().into()));
            if let Some(log) = answer.figure("log") {
                notes.push(("log", log.into()));
            }
            if answer.map.servers().len() > 1 {
                let natives = answer
                    .map
                    .servers()
                    .iter()
                    .filter_map(|server| server.addresses.native.as_ref());
                servers = natives
                    .map(|native| native.as_str().to_owned())
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect();
            } else {
                servers.truncate(1);
            }
        }
        Ok(Self { loops, behind: Behind::Servers(servers), notes })
    }

    fn open_store(args: &BenchArgs) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
        let (directory, temporary) = match &args.store.data {
            Some(directory) => (directory.clone(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("timestone-bench-").tempdir();
                let folder = folder.map_err(|error| {
                    Failure::failed(format!("could not make a temporary folder: {error}"))
                })?;
                (folder.path().join("data"), Some(folder))
            }
        };
        let log = match args.store.log.as_str() {
            "ssd" => DeviceKind::Ssd,
            "none" => DeviceKind::None,
            other => {
                return Err(Failure::usage(format!(
                    "--log is '{other}': the store in this process has ssd and none"
                )));
            }
        };
        let mut options = OpenOptions::new(&directory).log(log);
        options.server.shards = args.store.shards;
        options.server.threads = args.threads.or(options.server.threads);
        let store = open_with(&options).map_err(|error| failed(&error))?;
        let shards = store.server().shard_map().shards().len();
        let notes = vec![
            ("address", "in-process".into()),
            ("log", args.store.log.as_str().into()),
            ("shards", shards.into()),
            ("cpu", "client: the whole process".into()),
        ];
        Ok(Self {
            loops: store.loops().to_vec(),
            behind: Behind::Store(Box::new(store), temporary),
            notes,
        })
    }

    /// One handle for every event loop.
    pub(super) fn loops(&self) -> &[Db] {
        &self.loops
    }

    /// A handle for what is done once.
    pub(super) fn db(&self) -> &Db {
        // `connect` makes one at least, and a store has a thread at least.
        &self.loops[0]
    }

    /// The servers to be asked for their processor time; none in process.
    pub(super) fn servers(&self) -> &[String] {
        match &self.behind {
            Behind::Servers(servers) => servers,
            Behind::Store(..) => &[],
        }
    }

    /// What the report says of it.
    pub(super) fn notes(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.notes.iter().cloned()
    }

    /// Disconnects, or closes the store and removes its temporary folder.
    pub(super) fn close(self) -> Result<(), Failure> {
        drop(self.loops);
        if let Behind::Store(store, temporary) = self.behind {
            store.close().map_err(|error| {
                Failure::failed(format!("the store did not close cleanly: {error}"))
            })?;
            if let Some(folder) = temporary {
                folder.close().map_err(|error| {
                    Failure::failed(format!("could not remove the temporary folder: {error}"))
                })?;
            }
        }
        Ok(())
    }
}
