//! The versions of one key, out of its entry in the table and its nodes.
//!
//! ```text
//!   head ─► [dead count] ─► version ─► version …      passed over: the dead count
//! ```

use timestone_types::Version;

use super::Location;
use super::pool::{Link, Pool};

/// Walks the versions of a key, youngest first.
#[derive(Clone)]
pub(crate) struct Chain<'a> {
    pub(super) pool: &'a Pool,
    pub(super) first: Option<(Version, Location)>,
    pub(super) next: Link,
}

impl Iterator for Chain<'_> {
    type Item = (Version, Location);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while self.next != Link::NONE {
            let node = self.pool.get(self.next);
            debug_assert!(node.next != self.next, "a chain ends");
            self.next = node.next;
            if !node.is_dead_count() {
                return Some((node.version(), node.location()));
            }
        }
        None
    }
}
