//! Loose versions while a store is recovered: which of them nothing but memory led to.
//!
//! ```text
//!   checkpoint, log in its order ─► by key: the youngest loose version ─► a translation
//!                                     └─ what led to it is lost, or no place for it ─► a beginning
//! ```
//!
//! A loose version is its key's youngest until a record leads to it: a younger one, loose or of the
//! chain, whose prior pointer names its page; or until it is written again in the chain. Where the
//! record that led there was lost, both are looked for: the older one becomes a beginning of its bucket.
//!
//! What must not happen: a version is forgotten to which the lost record led.

use std::collections::BTreeMap;

use timestone_types::{HashSeed, Version};

use super::contents::is_of;
use super::translations::{Name, Youngest};
use crate::layout::{LinkKind, Links, NO_PAGE, Record};

/// A loose version of a key, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LooseVersion {
    pub(super) name: Name,
    pub(super) version: Version,
    pub(super) page: u32,
}

impl LooseVersion {
    /// Whether it is a record of its page.
    pub(super) fn is(&self, record: &Record<'_>, seed: HashSeed) -> bool {
        record.version == self.version && is_of(record, self.name, seed)
    }
}

/// A loose version that is its key's youngest.
#[derive(Clone, Copy, Debug)]
struct FoundLoose {
    loose: LooseVersion,
    exact: bool,
}

impl FoundLoose {
    /// Whether a record takes its place, and nothing that it led to is forgotten.
    fn is_replaced_by(&self, version: Version, links: Links) -> bool {
        stands_for(self.loose.version, version, links) || leads_to(links, self.loose.page)
    }
}

/// All that recovery has found.
#[derive(Debug, Default)]
pub(super) struct LooseVersions {
    youngest: BTreeMap<Name, FoundLoose>,
    /// Those to which nothing leads any more.
    lost: Vec<LooseVersion>,
}

impl LooseVersions {
    /// A checkpoint knows of one.
    pub(super) fn restore(&mut self, loose: LooseVersion, exact: bool) {
        self.youngest.insert(loose.name, FoundLoose { loose, exact });
    }

    /// Whether none is its key's youngest.
    pub(super) fn is_empty(&self) -> bool {
        self.youngest.is_empty()
    }

    /// A loose record, in the order of the log.
    pub(super) fn found(&mut self, loose: LooseVersion, links: Links) {
        let Some(known) = self.youngest.get_mut(&loose.name) else {
            return self.restore(loose, true);
        };
        if loose.version < known.loose.version {
            return self.lost.push(loose);
        }
        if known.is_replaced_by(loose.version, links) {
            known.loose = loose;
        } else {
            self.lost.push(known.loose);
            *known = FoundLoose { loose, exact: false };
        }
    }

    /// A record of the chain of a key, in the order of the log.
    pub(super) fn found_in_chain(&mut self, name: Name, version: Version, links: Links) {
        let Some(known) = self.youngest.get_mut(&name) else { return };
        if version < known.loose.version {
            known.exact &= links.kind != LinkKind::Flagged;
            return;
        }
        if !known.is_replaced_by(version, links) {
            self.lost.push(known.loose);
        }
        self.youngest.remove(&name);
    }

    /// Gives each to its translation, if there is a place for it (`translate`); what is left are beginnings
    /// of their buckets, as are those that are lost.
    pub(super) fn settle(
        self,
        mut translate: impl FnMut(Name, Youngest) -> bool,
    ) -> Vec<LooseVersion> {
        let mut lost = self.lost;
        for FoundLoose { loose: found, exact } in self.youngest.into_values() {
            let LooseVersion { name, version, page } = found;
            let (tombstone, may_expire, loose) = (false, false, true);
            let youngest = Youngest { version, page, tombstone, may_expire, exact, loose };
            if !translate(name, youngest) {
                lost.push(found);
            }
        }
        lost
    }
}

/// Whether a copy stands for all of the run that it was the youngest of: nobody wants what is older. Where
/// somebody does, older ones were copied as well, and these copies may be lost.
fn stands_for(known: Version, copy: Version, links: Links) -> bool {
    copy == known && links.prior == NO_PAGE
}

fn leads_to(links: Links, page: u32) -> bool {
    links.loose_prior && links.prior == page
}
