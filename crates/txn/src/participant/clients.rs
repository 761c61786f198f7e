//! What a participant knows of each client incarnation: its report, its acked bound, and the
//! outcomes that are kept for it.
//!
//! Outcomes hang in one list per client, in the order in which they were finished (which need not
//! be that of their begins), threaded through the transaction table, so that an acked bound frees
//! them one by one without a search, and a silent client holds back nobody else's. A client is
//! forgotten when it has closed or been silent for [`shared::SESSION_TTL`], nothing is kept
//! for it, and the watermark has passed everything that it began: from then on the watermark
//! refuses its replays.
//!
//! It computes no watermark; `housekeeping.rs` does.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use timestone_types::{ClientId, Sequence, Timestamp, limits as shared};

use crate::limits::MAX_CLIENTS;

/// One client incarnation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) id: ClientId,
    /// The lowest timestamp that it may still use; `None` before its first report.
    pub(super) reported: Option<Timestamp>,
    /// It has reported itself, in this run: what it has acknowledged is known.
    pub(super) has_reported: bool,
    pub(super) heard_at: Timestamp,
    /// Its clock is further behind than [`shared::MAX_CLOCK_LAG`].
    pub(super) lags: bool,
    /// It has closed. Reports that it sent before and that come later change nothing about
    /// that.
    pub(super) left: bool,
    /// Every transaction below is finished and acknowledged.
    pub(super) acked: Sequence,
    /// The youngest begin among its transactions here.
    pub(super) newest_begin: Timestamp,
    /// At or below the begin of everything that is kept for it.
    pub(super) oldest_kept: Timestamp,
    pub(super) first_kept: u32,
    pub(super) last_kept: u32,
}

impl Client {
    /// Whether it still counts for the watermark.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        !self.left && now < self.heard_at.saturating_add(shared::SESSION_TTL)
    }

    /// Down to where it holds the watermark back. A clock that is far behind would hold it back by
    /// as much for as long as its client lives; an old snapshot under a right clock may.
    pub(super) fn holds(&self, now: Timestamp) -> Option<Timestamp> {
        let least =
            if self.lags { now.saturating_sub(shared::MAX_CLOCK_LAG) } else { Timestamp::ZERO };
        self.reported.map(|reported| reported.max(least))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Clients {
    by_id: HashTable<(ClientId, u32)>,
    all: Vec<Client>,
}

fn hash_client(id: ClientId) -> u64 {
    u64::from(id.get()).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Clients {
    pub(super) fn new() -> Self {
        Self { by_id: HashTable::new(), all: Vec::new() }
    }

    pub(super) fn find(&self, id: ClientId) -> Option<&Client> {
        let &(_, index) = self.by_id.find(hash_client(id), |one| one.0 == id)?;
        Some(&self.all[index as usize])
    }

    /// The client, made when it is new; `None` when there are too many.
    pub(super) fn entry(&mut self, id: ClientId, now: Timestamp) -> Option<&mut Client> {
        self.entry_up_to(MAX_CLIENTS, id, now)
    }

    /// The same for a client that the log names. There is one for each of its outcomes there, which
    /// could not be forgotten otherwise: the log's length bounds them, and they go with the
    /// watermark.
    pub(super) fn entry_of_log(&mut self, id: ClientId, now: Timestamp) {
        let made = self.entry_up_to(usize::MAX, id, now).is_some();
        assert!(made, "a client of the log always has room");
    }

    fn entry_up_to(&mut self, most: usize, id: ClientId, now: Timestamp) -> Option<&mut Client> {
        match self.by_id.entry(hash_client(id), |one| one.0 == id, |one| hash_client(one.0)) {
            Entry::Occupied(found) => Some(&mut self.all[found.get().1 as usize]),
            Entry::Vacant(free) => {
                if self.all.len() >= most {
                    return None;
                }
                free.insert((id, self.all.len() as u32));
                self.all.push(Client {
                    id,
                    reported: None,
                    has_reported: false,
                    heard_at: now,
                    lags: false,
                    left: false,
                    acked: Sequence::ZERO,
                    newest_begin: Timestamp::ZERO,
                    oldest_kept: Timestamp::MAX,
                    first_kept: u32::MAX,
                    last_kept: u32::MAX,
                });
                self.all.last_mut()
            }
        }
    }

    pub(super) fn all(&self) -> &[Client] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [Client] {
        &mut self.all
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Client {
        &mut self.all[index]
    }

    /// Drops every client for which `gone` says so.
    pub(super) fn drop_if(&mut self, gone: impl Fn(&Client) -> bool) {
        let mut index = 0;
        while index < self.all.len() {
            if !gone(&self.all[index]) {
                index += 1;
                continue;
            }
            let id = self.all.swap_remove(index).id;
            if let Ok(found) = self.by_id.find_entry(hash_client(id), |one| one.0 == id) {
                found.remove();
            }
            if let Some(moved) = self.all.get(index) {
                let moved_id = moved.id;
                if let Some(place) =
                    self.by_id.find_mut(hash_client(moved_id), |one| one.0 == moved_id)
                {
                    place.1 = index as u32;
                }
            }
        }
        assert!(self.by_id.len() == self.all.len(), "each client is found by its id");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_some_clients_leaves_the_others_where_they_are_found() {
        let mut clients = Clients::new();
        for id in 0..10 {
            clients.entry(ClientId::new(id), Timestamp::ZERO).unwrap().acked =
                Sequence::new(u64::from(id));
        }
        clients.drop_if(|one| one.id.get().is_multiple_of(2));
        assert_eq!(clients.all().len(), 5);
        for id in 0..10 {
            let found = clients.find(ClientId::new(id)).map(|one| one.acked.get());
            assert_eq!(found, (id % 2 == 1).then_some(u64::from(id)));
        }
    }
}
