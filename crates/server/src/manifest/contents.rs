//! What the manifest's file says, and its layout.
//!
//! Invariant: nothing of the file is believed whose checksum is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timestone_cluster::Run;
use timestone_shard::Served;
use timestone_store::{KeyspacePlace, Places};
use timestone_txn::limits::{MAX_RESTART_HOLD, SESSIONS_SETTLED};
use timestone_types::{KeyspaceId, ShardId, Timestamp};
use timestone_wal::device::FileName;

use super::Beginning;
use super::missing::Missing;
use crate::environment::{Environment, FlashPart};
use crate::error::ServerError;

/// Most starts under one number of which the manifest tells, beside the last one.
const MAX_EARLIER_TAGS: usize = 64;
/// Begins the last line: the CRC-32C of the lines before it.
const CHECKSUM_KEY: &str = "# checksum = ";

/// What the file says.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    /// The secret seed of the cluster's key hashes, once the directory belongs to a cluster.
    pub(super) hash_seed: Option<u64>,
    /// Shards whose flash file was created.
    #[serde(default)]
    pub(super) shards: BTreeSet<u16>,
    /// Shards whose second one was, for keyspaces with their index on flash.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) frugal: BTreeSet<u16>,
    /// No log tells up to which timestamp the last run served, nor its watermark: it had none, or
    /// the loss of a part was accepted. Until a run with a log has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unlogged: bool,
    /// Clients of this server's own, as gateways are: those of earlier runs and of this one, the
    /// latest last. A run that ended has taken its own with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) clients: Vec<u32>,
    /// When the last run began, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began: Option<u64>,
    /// When the first of the last runs began, none of which lasted until all sessions that it
    /// waited for can have come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unsettled_since: Option<u64>,
    /// All that unlogged runs served lies below this, in nanoseconds; see [`Served`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) served_below: Option<u64>,
    /// How far the clock of the last run without a log had come when that was saved last, in
    /// nanoseconds. No later run stands below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lived: Option<u64>,
    /// Shards of which something was lost, as somebody accepted, where no log says so yet: a replica
    /// of one has forgotten what it has promised and acknowledged. Where a shard has one copy,
    /// nobody asks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) void: BTreeSet<u16>,
    /// The last run of the directory: its number, and what was drawn for it, the latest first: a
    /// start that the master may or may not have heard of draws anew. See [`Run`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) run: Vec<u64>,
    /// Shards whose flash file is being made anew: there may be none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) emptying: BTreeSet<u16>,
    /// How many ids were given out for keyspaces whose index was changed here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) places_given: u32,
    /// Ids under which something is left: what a conversion has begun, or has moved.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) left_places: BTreeSet<u32>,
    /// Keyspaces whose index was changed here: the id of each, and the one under which it is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) places: Vec<(u32, u32)>,
    /// Logs by the name of their folder.
    #[serde(default)]
    pub(super) logs: BTreeMap<String, LogContents>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogContents {
    /// Files that must be there.
    pub(super) files: BTreeSet<String>,
    /// Files that are gone, which somebody accepted. Forgotten by a start that finds no file before
    /// them any more.
    #[serde(default)]
    pub(super) lost: BTreeSet<String>,
}

/// The names of a log's files that are there, on the manifest or not.
fn present_files(
    environment: &dyn Environment,
    log: &str,
) -> Result<BTreeSet<String>, ServerError> {
    Ok(environment.log_files(log)?.into_iter().map(|file| file.to_string()).collect())
}

impl Contents {
    pub(super) fn last_run(&self) -> Run {
        match self.run[..] {
            [number, tag, ..] => Run { number, tag },
            _ => Run::NONE,
        }
    }

    /// Another run begins, or the same number once more.
    pub(super) fn begin_run(&mut self, run: Run) {
        let again = self.run.first() == Some(&run.number);
        let earlier = if again { self.run.split_off(1) } else { Vec::new() };
        let earlier = earlier.into_iter().filter(|&tag| tag != run.tag);
        self.run =
            [run.number, run.tag].into_iter().chain(earlier.take(MAX_EARLIER_TAGS)).collect();
    }

    /// Notes that a run begins; see [`Past::outage`].
    pub(super) fn outage(&mut self, run: &Beginning) -> Option<Duration> {
        let outage = run.now.since(run.lived_until);
        let now = run.now.as_nanos();
        let lasted = self.began.map(|began| run.lived_until.since(Timestamp::from_nanos(began)));
        let since = match self.unsettled_since {
            Some(since) if lasted.is_some_and(|lasted| lasted < SESSIONS_SETTLED) => since,
            _ => now,
        };
        (self.began, self.unsettled_since) = (Some(now), Some(since));
        // The last outage is no time for which anybody was waited for.
        let waited = run.lived_until.since(Timestamp::from_nanos(since));
        #[cfg(feature = "planted-bugs")]
        let waited = match timestone_types::is_planted!(CountedOutage) {
            true => run.now.since(Timestamp::from_nanos(since)),
            false => waited,
        };
        (outage <= MAX_RESTART_HOLD && waited <= MAX_RESTART_HOLD).then_some(outage)
    }

    pub(super) fn load(environment: &dyn Environment) -> Result<Self, ServerError> {
        let Some(bytes) = environment.load_manifest()? else { return Ok(Self::default()) };
        Self::decode(&bytes).map_err(|detail| ServerError::BadFormatFile {
            path: environment.manifest_place(),
            detail,
        })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, ServerError> {
        let mut text =
            toml::to_string(self).map_err(|error| ServerError::Internal(error.to_string()))?;
        let checksum = crc32c::crc32c(text.as_bytes());
        text.push_str(&format!("{CHECKSUM_KEY}{checksum}\n"));
        Ok(text.into_bytes())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let (covered, checksum) =
            text.rsplit_once(CHECKSUM_KEY).ok_or("its last line is not its checksum")?;
        let told = checksum
            .strip_suffix('\n')
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        if told.and_then(|digits| digits.parse().ok()) != Some(crc32c::crc32c(covered.as_bytes())) {
            return Err("its checksum is wrong".to_owned());
        }
        let contents: Self = toml::from_str(covered).map_err(|error| error.message().to_owned())?;
        if !contents.places_are_sound() {
            return Err("where it keeps keyspaces makes no sense".to_owned());
        }
        let mut names = contents.logs.values().flat_map(|log| log.files.iter().chain(&log.lost));
        match names.find(|name| FileName::parse(name).is_none()) {
            Some(name) => Err(format!("'{name}' is no name of a log file")),
            None => Ok(contents),
        }
    }

    fn all_places(&self) -> impl Iterator<Item = KeyspacePlace> {
        self.places.iter().map(|&(keyspace, kept_as)| KeyspacePlace {
            keyspace: KeyspaceId::new(keyspace),
            kept_as: KeyspaceId::new(kept_as),
        })
    }

    /// What [`Places`] asks for, and what was given out.
    fn places_are_sound(&self) -> bool {
        let is_given = |id: KeyspaceId| (1..=self.places_given).contains(&id.number());
        let mut seen = BTreeSet::new();
        let places = self.all_places().all(|place| {
            let is_place = place.kept_as.is_place() && is_given(place.kept_as);
            let is_left = self.left_places.contains(&place.kept_as.get());
            is_place && !is_left && !place.keyspace.is_place() && seen.insert(place.keyspace)
        });
        let left = self.left_places.iter().map(|&id| KeyspaceId::new(id));
        places && left.into_iter().all(|id| !id.is_place() || is_given(id))
    }

    /// Where keyspaces are kept.
    pub(super) fn kept_places(&self) -> Places {
        Places::new(self.all_places())
    }

    /// What earlier runs served, as far as the logs may not tell it.
    pub(super) fn served(&self) -> Served {
        Served::below(Timestamp::from_nanos(self.served_below.unwrap_or_default()))
    }

    /// What is named and not there.
    pub(super) fn missing(&self, environment: &dyn Environment) -> Result<Missing, ServerError> {
        let gone = |shards: &BTreeSet<u16>, part| -> BTreeSet<ShardId> {
            let shards = shards.iter().copied().map(ShardId::new);
            shards.filter(|&shard| !environment.has_flash(shard, part)).collect()
        };
        let shards = gone(&self.shards, FlashPart::Full);
        let frugal = gone(&self.frugal, FlashPart::Frugal);
        let mut files = BTreeMap::new();
        for (log, contents) in &self.logs {
            let present = present_files(environment, log)?;
            let gone: BTreeSet<String> = contents.files.difference(&present).cloned().collect();
            if !gone.is_empty() {
                files.insert(log.clone(), gone);
            }
        }
        Ok(Missing { shards, frugal, files })
    }

    /// Forgets accepted losses that matter no more. Only what is there says so: a file leaves the
    /// manifest before it goes.
    pub(super) fn forget_old_losses(
        &mut self,
        environment: &dyn Environment,
    ) -> Result<(), ServerError> {
        for (name, log) in self.logs.iter_mut().filter(|(_, log)| !log.lost.is_empty()) {
            log.forget_old_losses(&present_files(environment, name)?);
        }
        Ok(())
    }

    /// Goes on without what is missing.
    pub(super) fn forget(&mut self, missing: &Missing) {
        self.shards.retain(|&shard| !missing.shards.contains(&ShardId::new(shard)));
        self.frugal.retain(|&shard| !missing.frugal.contains(&ShardId::new(shard)));
        for (log, gone) in &missing.files {
            if let Some(log) = self.logs.get_mut(log) {
                log.files.retain(|file| !gone.contains(file));
                log.lost.extend(gone.iter().cloned());
            }
        }
        // The last read bound may have been in what is gone.
        self.unlogged |= !missing.files.is_empty();
    }
}

impl LogContents {
    /// A loss matters while there is a file before it: behind that one, blocks are missing.
    pub(super) fn forget_old_losses(&mut self, present: &BTreeSet<String>) {
        let oldest = present.first();
        self.lost.retain(|lost| oldest.is_some_and(|oldest| oldest < lost));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Manifest;
    use super::*;

    fn contents() -> Contents {
        let file =
            |nanos: u64| FileName::new(timestone_types::Timestamp::from_nanos(nanos)).to_string();
        let log = LogContents { files: [file(1), file(3)].into(), lost: [file(2)].into() };
        Contents {
            hash_seed: Some(u64::MAX - 1),
            shards: [0, 3].into(),
            frugal: [3].into(),
            unlogged: true,
            clients: vec![4, 9],
            began: Some(6),
            unsettled_since: Some(5),
            served_below: Some(7),
            lived: Some(8),
            void: BTreeSet::new(),
            run: vec![9, u64::MAX, 7],
            emptying: BTreeSet::new(),
            places_given: 3,
            left_places: [5].into(),
            places: vec![(5, KeyspaceId::place(3, true).get())],
            logs: [("thread-0".to_owned(), log)].into(),
        }
    }

    #[test]
    fn it_is_read_back_as_written_and_every_flipped_bit_is_noticed() {
        let sealed = contents().encode().unwrap();
        let words = "hash_seed = 18446744073709551614\nshards = [0, 3]\nfrugal = [3]\nunlogged = true\nclients = \
            [4, 9]\nbegan = 6\nunsettled_since = 5\nserved_below = 7\nlived = \
            8\nrun = [9, 18446744073709551615, 7]\nplaces_given = 3\nleft_places = [5]\nplaces = [[5, 805306371]]\n\n[logs.thread-0]\nfiles = \
            [\"00000000000000000001.log\", \"00000000000000000003.log\"]\n\
                     lost = [\"00000000000000000002.log\"]\n# checksum = ";
        assert!(
            String::from_utf8(sealed.clone()).unwrap().starts_with(words),
            "{}",
            String::from_utf8_lossy(&sealed)
        );
        assert_eq!(Contents::decode(&sealed).unwrap(), contents());
        assert!(
            Manifest::names_anything(&sealed)
                && !Manifest::names_anything(&Manifest::blank().unwrap())
        );
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Contents::decode(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(Contents::decode(&sealed[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn places_that_make_no_sense_are_refused() {
        let place = |number| KeyspaceId::place(number, true).get();
        let refused = [
            Contents { places: vec![(5, 6)], ..contents() },
            Contents { places: vec![(5, place(4))], ..contents() },
            Contents { places: vec![(place(1), place(2))], ..contents() },
            Contents { places: vec![(5, place(1)), (5, place(2))], ..contents() },
            Contents { left_places: [place(3)].into(), ..contents() },
            Contents { left_places: [place(4)].into(), ..contents() },
        ];
        for contents in refused {
            let refused = Contents::decode(&contents.encode().unwrap()).unwrap_err();
            assert!(refused.contains("where it keeps keyspaces"), "{refused}");
        }
    }

    #[test]
    fn a_loss_is_remembered_while_there_are_files_before_it() {
        let mut contents = contents();
        let log = contents.logs.get_mut("thread-0").unwrap();
        let mut present = log.files.clone();
        log.forget_old_losses(&present);
        assert_eq!(log.lost.len(), 1);
        present.pop_first();
        log.forget_old_losses(&present);
        assert!(log.lost.is_empty());
    }
}
