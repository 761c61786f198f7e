//! The master on etcd as a data directory reaches it: what this server has seen of its state stands
//! in the file `etcd`, so that an etcd that is restored from a backup hands out nothing twice.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_cluster::MasterFailure;
use timestone_etcd::{EtcdMaster, EtcdOptions, Founding, SeenState};

use crate::datadir::{DataDir, replace_file};
use crate::error::ServerError;
use crate::limits::MASTER_TIMEOUT;

/// How long a server that starts waits before it asks a silent etcd again.
const PAUSE: Duration = Duration::from_millis(250);

struct SeenFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl SeenState for SeenFile {
    fn load(&mut self) -> Vec<u8> {
        self.bytes.clone()
    }

    fn note(&mut self, bytes: &[u8]) -> Result<(), String> {
        replace_file(&self.path, bytes).map_err(|error| error.to_string())?;
        self.bytes = bytes.to_vec();
        Ok(())
    }
}

/// Reaches the master; tries until etcd answers and serves, or the time is over.
///
/// # Errors
/// It does not, or refuses; the file cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "before any stage runs, the process waits for its master as any program does"
)]
pub(crate) fn open_etcd(
    options: EtcdOptions,
    founding: Founding,
    data: &DataDir,
) -> Result<EtcdMaster, ServerError> {
    let deadline = Instant::now() + MASTER_TIMEOUT;
    let mut told = String::new();
    loop {
        let (path, bytes) = data.load_seen()?;
        let opened =
            EtcdMaster::open(options.clone(), founding, Box::new(SeenFile { path, bytes }))
                .and_then(|mut master| master.is_serving().map(|()| master));
        let failure = match opened {
            Ok(master) => return Ok(master),
            Err(failure) => failure,
        };
        let may_pass = match &failure {
            MasterFailure::Unavailable { .. } => true,
            MasterFailure::Refused(error) => error.retryable(),
        };
        if !may_pass || Instant::now() >= deadline {
            return Err(ServerError::part(failure));
        }
        // The same failure is told once.
        let words = failure.to_string();
        if words != told {
            tracing::warn!(error = words, "the cluster's etcd does not serve yet; trying again");
            told = words;
        }
        std::thread::sleep(PAUSE);
    }
}
