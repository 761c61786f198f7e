//! How commands reach a cluster: the flags that say which, and the connection.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use timestone::blocking::{self, Db};
use timestone::{Clock, ConnectOptions, ErrorCode};
use timestone_types::limits::MAX_VALUE_BYTES;

use crate::failure::Failure;

/// The keyspace that always exists.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// Where the cluster is.
#[derive(Args, Debug, Clone)]
pub(crate) struct Target {
    /// Servers of the cluster: timestone://HOST[:PORT][,HOST[:PORT]]…
    #[arg(
        long,
        global = true,
        env = "TIMESTONE_ADDRESS",
        value_name = "URL",
        default_value = "timestone://127.0.0.1:7400"
    )]
    pub(crate) address: String,
    /// Go by the servers' time, as their answers tell it, instead of by this machine's clock.
    #[arg(
        long,
        global = true,
        env = "TIMESTONE_SERVER_TIME",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set
    )]
    pub(crate) server_time: bool,
}

/// Where the keys are.
#[derive(Args, Debug, Clone)]
pub(crate) struct KeyspaceTarget {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The keyspace.
    #[arg(long, global = true, env = "TIMESTONE_KEYSPACE", value_name = "NAME", default_value = DEFAULT_KEYSPACE)]
    pub(crate) keyspace: String,
}

impl Target {
    /// Connects.
    pub(crate) fn connect(&self) -> Result<Db, Failure> {
        self.connect_by(None)
    }

    /// Connects with a clock that is not the system's.
    pub(crate) fn connect_by(&self, clock: Option<Arc<dyn Clock>>) -> Result<Db, Failure> {
        let options = ConnectOptions {
            name: "timestone".to_owned(),
            refused_timeout: Duration::ZERO,
            server_time: self.server_time,
            clock,
            ..ConnectOptions::default()
        };
        blocking::connect_with(&self.address, &options).map_err(|error| self.explain(error))
    }

    /// What to do when nobody answers.
    pub(crate) fn explain(&self, error: timestone::Error) -> Failure {
        if error.code() == ErrorCode::Unavailable {
            Failure::failed(format!(
                "could not reach {}: {error} (start a server with `timestone serve`, or name one \
                 with --address)",
                self.address
            ))
        } else {
            error.into()
        }
    }
}

impl KeyspaceTarget {
    /// Connects, to the keyspace.
    pub(crate) fn connect(&self) -> Result<Db, Failure> {
        let db = self.target.connect()?;
        if self.keyspace == DEFAULT_KEYSPACE { Ok(db) } else { Ok(db.keyspace(&self.keyspace)?) }
    }
}

/// A key of the command line: its bytes as they are.
pub(crate) fn key_bytes(key: &OsStr) -> Vec<u8> {
    key.as_bytes().to_vec()
}

/// A value of the command line; `-` reads standard input to its end.
pub(crate) fn value_bytes(value: &OsStr) -> Result<Vec<u8>, Failure> {
    if value != "-" {
        return Ok(value.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that the refusal is the client's and endless input ends.
    std::io::stdin().lock().take(MAX_VALUE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(
        |error| Failure::failed(format!("could not read the value from standard input: {error}")),
    )?;
    Ok(bytes)
}
