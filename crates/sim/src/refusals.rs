//! Why servers do not start, and whether their words are of use to whoever has to do something
//! about it.

use timestone_server::{ServerError, ShardError};
use timestone_wal::WalError;

/// Whether a server can never start as it is set up: no fault, and nothing that the code under test
/// is to blame for.
pub(crate) fn is_of_configuration(error: &ServerError) -> bool {
    let ServerError::Part(part) = error else { return false };
    matches!(part.downcast_ref(), Some(WalError::Config { .. } | WalError::Unsupported { .. }))
}

/// Why a server does not start that a disk lied to.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Whether it names what is damaged: a file, or a shard.
    pub(crate) is_clear: bool,
    pub(crate) words: String,
}

/// Whether a refusal to start names the file or the shard that is damaged, so that its operator
/// knows what to restore.
pub(crate) fn names_damage(error: &ServerError) -> bool {
    match error {
        ServerError::Store { .. }
        | ServerError::Shard(ShardError::RecordOrder { .. })
        | ServerError::UnlistedLog { .. } => true,
        ServerError::Part(part) => match part.downcast_ref() {
            Some(WalError::Corrupt { .. } | WalError::Io { .. }) => {
                error.to_string().contains(".log")
            }
            _ => false,
        },
        _ => false,
    }
}
