//! What the manifest says of keyspaces whose index is changed.
//!
//! ```text
//!   begin_move ─► what it gives is left over ─► … copied, durably … ─► moved ─► the earlier one is left over ─► … ended … ─► nothing_left
//! ```
//! Each of these is one replacement of the manifest. Whatever is left over is never read, and goes
//! with the next start of a server, or the next conversion, if this one does not come so far.

use std::sync::Arc;

use timestone_store::{KeyspacePlace, Places};
use timestone_types::{KeyspaceId, ShardId, is_planted};

use super::Manifest;
use crate::environment::Environment;
use crate::error::ServerError;

impl Manifest {
    /// Where keyspaces are kept.
    pub(crate) fn places(&self) -> Places {
        self.lock().contents.kept_places()
    }

    /// The shards whose flash file was created.
    pub(crate) fn shards(&self) -> Vec<ShardId> {
        self.lock().contents.shards.iter().copied().map(ShardId::new).collect()
    }

    /// Ids under which something is left that nobody reads.
    pub(crate) fn left_places(&self) -> Vec<KeyspaceId> {
        self.lock().contents.left_places.iter().copied().map(KeyspaceId::new).collect()
    }

    /// An id for a keyspace that is to be moved: nothing was ever kept under it. It counts as left
    /// over until the keyspace [was moved](Self::moved).
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn begin_move(&self, is_frugal: bool) -> Result<KeyspaceId, ServerError> {
        let mut given = KeyspaceId::DEFAULT;
        self.change(|contents| {
            if !is_planted!(MovesOntoLeftovers) || contents.places_given == 0 {
                contents.places_given += 1;
            }
            given = KeyspaceId::place(contents.places_given, is_frugal);
            contents.left_places.insert(given.get());
            true
        })?;
        Ok(given)
    }

    /// A keyspace is kept in another place from now on, where all of it is, durably. What is kept
    /// under the earlier one is left over.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn moved(&self, place: KeyspacePlace) -> Result<(), ServerError> {
        self.change(|contents| {
            let earlier = contents.kept_places().of(place.keyspace);
            contents.places.retain(|&(keyspace, _)| keyspace != place.keyspace.get());
            let KeyspacePlace { keyspace, kept_as } = place;
            contents.places.push((keyspace.get(), kept_as.get()));
            contents.left_places.remove(&kept_as.get());
            contents.left_places.insert(earlier.get());
            true
        })
    }

    /// Nothing is left any more of what was.
    ///
    /// # Errors
    /// The manifest cannot be saved.
    pub(crate) fn nothing_left(&self) -> Result<(), ServerError> {
        self.change(|contents| !std::mem::take(&mut contents.left_places).is_empty())
    }

    /// Reads the manifest for whoever changes what it names, without a server.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub(crate) fn open_whole(environment: &Arc<dyn Environment>) -> Result<Arc<Self>, ServerError> {
        Self::open(environment, &crate::config::AcceptedLoss::Nothing)
    }
}
