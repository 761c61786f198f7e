//! What a data directory should hold and does not.

use std::collections::{BTreeMap, BTreeSet};

use timestone_types::ShardId;

use super::contents::Contents;
use crate::environment::{Environment, FlashPart};
use crate::error::ServerError;
use crate::limits::MAX_MISSING_NAMED;

/// What should be there and is not.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) shards: BTreeSet<ShardId>,
    /// Whose device for keyspaces with their index on flash is gone.
    pub(super) frugal: BTreeSet<ShardId>,
    /// By log.
    pub(super) files: BTreeMap<String, BTreeSet<String>>,
}

impl Missing {
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.frugal.is_empty() && self.files.is_empty()
    }

    /// The shards whose data may be gone. Every shard of the directory may have written to any of
    /// its logs: which shard runs on which thread changes from start to start.
    pub(super) fn concerned(&self, all: &BTreeSet<u16>) -> BTreeSet<ShardId> {
        let of_logs = all.iter().copied().map(ShardId::new).filter(|_| !self.files.is_empty());
        self.shards.iter().chain(&self.frugal).copied().chain(of_logs).collect()
    }

    /// The names of what is missing, as paths in the directory.
    pub(super) fn names(&self) -> String {
        let parts = [(&self.shards, FlashPart::Full), (&self.frugal, FlashPart::Frugal)];
        let flash = parts.into_iter().flat_map(|(shards, part)| {
            let name = part.file_name();
            shards.iter().map(move |shard| format!("shard-{:04}/{name}", shard.get()))
        });
        let logs = self
            .files
            .iter()
            .flat_map(|(log, files)| files.iter().map(move |file| format!("wal/{log}/{file}")));
        let all: Vec<String> = flash.chain(logs).collect();
        let more = all.len().saturating_sub(MAX_MISSING_NAMED);
        let mut named = all[..all.len() - more].join(", ");
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        named
    }

    /// A start without what is missing.
    pub(super) fn refuse(&self, environment: &dyn Environment, contents: &Contents) -> ServerError {
        let concerned = self.concerned(&contents.shards);
        let accept = match self.files.is_empty() {
            true => {
                concerned.iter().map(|shard| shard.get().to_string()).collect::<Vec<_>>().join(",")
            }
            false => "all".to_owned(),
        };
        ServerError::Missing { path: environment.root(), names: self.names(), accept }
    }
}
