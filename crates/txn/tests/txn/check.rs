//! A small checker: is a history of committed transactions serializable, and do direct conflicts
//! follow real time? Also the planted bugs by name.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "planted-bugs")]
use timestone_types::planted::{self, Bug};
use timestone_types::{Timestamp, TxnId, Version};

use crate::stage::Key;

/// A committed transaction: what it read (which version of which key) and what it wrote.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    pub reads: Vec<(Key, Version)>,
    pub writes: Vec<Key>,
    /// Its writes are tombstones. All absences are equal: who read nothing comes before the next
    /// *put* only.
    pub deletes: bool,
    pub version: Version,
    /// When commit was called and when the application was told, in true time.
    pub called: Timestamp,
    pub told: Timestamp,
}

/// Finds a cycle in the dependency graph, or a direct conflict against real time; says which.
pub fn violation(history: &BTreeMap<TxnId, Committed>) -> Option<String> {
    let mut versions: BTreeMap<&Key, BTreeMap<Version, TxnId>> = BTreeMap::new();
    for (&txn, one) in history {
        for key in &one.writes {
            if let Some(other) = versions.entry(key).or_default().insert(one.version, txn) {
                return Some(format!("{txn} and {other} wrote the same version of {key:?}"));
            }
        }
    }
    let mut edges: BTreeMap<TxnId, BTreeSet<TxnId>> = BTreeMap::new();
    let mut add = |from: TxnId, to: TxnId| {
        if from != to {
            edges.entry(from).or_default().insert(to);
        }
    };
    for chain in versions.values() {
        for (before, after) in chain.values().zip(chain.values().skip(1)) {
            add(*before, *after);
        }
    }
    for (&txn, one) in history {
        for (key, version) in &one.reads {
            let Some(chain) = versions.get(key) else {
                if version.is_zero() {
                    continue;
                }
                return Some(format!("{txn} read {version} of {key:?}, which nobody wrote"));
            };
            match chain.get(version) {
                Some(&writer) => add(writer, txn),
                None if version.is_zero() => {}
                None => {
                    return Some(format!(
                        "{txn} read {version} of {key:?}, which no committed transaction wrote"
                    ));
                }
            }
            let next = (std::ops::Bound::Excluded(*version), std::ops::Bound::Unbounded);
            let read_nothing = chain.get(version).is_none_or(|writer| history[writer].deletes);
            let mut replaced = chain.range(next).map(|(_, &writer)| writer);
            if let Some(writer) = replaced.find(|writer| !read_nothing || !history[writer].deletes)
            {
                add(txn, writer);
            }
        }
    }
    for (from, tos) in &edges {
        for to in tos {
            let (one, two) = (&history[from], &history[to]);
            if !one.writes.is_empty() && !two.writes.is_empty() && two.told < one.called {
                return Some(format!(
                    "{from} comes before {to}, which was over before {from} committed"
                ));
            }
        }
    }
    cycle(&edges)
}

fn cycle(edges: &BTreeMap<TxnId, BTreeSet<TxnId>>) -> Option<String> {
    let mut finished = BTreeSet::new();
    for &start in edges.keys() {
        let mut path: Vec<(TxnId, Vec<TxnId>)> =
            vec![(start, edges[&start].iter().copied().collect())];
        while let Some((_, rest)) = path.last_mut() {
            match rest.pop() {
                None => {
                    finished.insert(path.pop().map(|one| one.0).unwrap_or(start));
                }
                Some(next) if path.iter().any(|one| one.0 == next) => {
                    let around: Vec<String> = path.iter().map(|one| one.0.to_string()).collect();
                    return Some(format!("cycle: {} and back to {next}", around.join(" -> ")));
                }
                Some(next) if !finished.contains(&next) => {
                    path.push((
                        next,
                        edges
                            .get(&next)
                            .map(|tos| tos.iter().copied().collect())
                            .unwrap_or_default(),
                    ));
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// What comes of a run with a bug planted on this thread.
#[cfg(feature = "planted-bugs")]
pub fn with_bug<T>(
    bug: Bug,
    run: impl FnOnce() -> T + std::panic::UnwindSafe,
) -> std::thread::Result<T> {
    planted::set(Some(bug));
    let came = std::panic::catch_unwind(run);
    planted::set(None);
    came
}

/// The bugs of participants and coordinators, each of which some script catches.
#[cfg(feature = "planted-bugs")]
pub const ALL_BUGS: &[Bug] = &[
    Bug::NoStep3,
    Bug::ReadBeyondLostLog,
    Bug::KnownKeysOnly,
    Bug::EmptyWriteSet,
    Bug::AppliedAtPrepared,
    Bug::UnrecordedAbsence,
    Bug::RangeAroundPromise,
    Bug::UnmarkedRange,
    Bug::UnraisedRange,
    Bug::PreparedInRange,
    Bug::NewerInRange,
    Bug::LateInRange,
    Bug::UnnotedPut,
    Bug::PlacesAtWill,
    Bug::DirectUnderPromise,
    Bug::CallsAboveLease,
    Bug::UnnotedDirectPut,
    Bug::LatePrepare,
    Bug::DroppedPromise,
    Bug::ServesInRecovery,
    Bug::RelaxedRule1,
    Bug::OwnTimestamp,
    Bug::NoFreeze,
    Bug::ForgottenReadBound,
    Bug::ReadBeforeFirstBound,
    Bug::CountedStrangers,
    Bug::LowerVote,
    Bug::UncheckedAnswer,
    Bug::ScanBelowAcknowledged,
    Bug::ScanBelowWatermark,
    Bug::ConditionOverFence,
    Bug::AbsencesApart,
    Bug::OverlookedPuts,
    Bug::IgnoredClose,
    Bug::EarlyVote,
    Bug::TrustedClocks,
    Bug::SentIntoFuture,
    Bug::AbortOnTimeout,
    Bug::LostPromise,
    Bug::WriteBelowWatermark,
    Bug::WriteBelowPledge,
    Bug::WaitsForFinished,
    Bug::OverlookedPut,
    Bug::TrustedWatermark,
    Bug::TrustedOldDecisions,
    Bug::UnrecordedAbort,
    Bug::ForgottenAborts,
    Bug::IgnoredEnds,
    Bug::PropagatesFirstOnly,
    Bug::LostParticipants,
    Bug::WatermarkOfOne,
    Bug::BelievedLateClocks,
    Bug::OutwaitedDeadlines,
    Bug::EqualIsEnough,
    Bug::EarlyRelease,
    Bug::FallingLowWater,
    Bug::RevalidatedDuplicate,
    Bug::DuplicateVote,
    Bug::ExpiryByClients,
    Bug::ForgottenFound,
    Bug::ForgottenExpiry,
    Bug::ForgottenToldExpiry,
    Bug::UnsettledExpiry,
    Bug::ForgottenSessions,
    Bug::ReadsAboveLease,
    Bug::ReadsUnderOldLease,
    Bug::MovesReadsBack,
    Bug::RecordsTheFuture,
    Bug::AbortsWhatItForgot,
    Bug::AbortsLeftovers,
    Bug::VotesUnderOldLease,
    Bug::TakesForgottenForAborted,
    Bug::SaysNothingOfForgotten,
    Bug::TooOldIsNo,
    Bug::WatermarkIsLocal,
    Bug::ClosesAboveLease,
    Bug::ClosesOverPrepared,
    Bug::UnnotedClose,
];

/// The bug of that name.
#[cfg(feature = "planted-bugs")]
pub fn bug(name: &str) -> Bug {
    let named = ALL_BUGS.iter().find(|bug| format!("{bug:?}") == name);
    *named.unwrap_or_else(|| panic!("no such bug: {name}"))
}

#[test]
fn the_checker_finds_write_skew_and_lets_a_serial_history_pass() {
    let txn = |n| TxnId::new(timestone_types::ClientId::new(n), timestone_types::Sequence::new(1));
    let version =
        |nanos, n| Version::new(Timestamp::from_nanos(nanos), timestone_types::ClientId::new(n));
    let key = |name: &str| (timestone_types::KeyspaceId::DEFAULT, name.to_owned());
    let one = |reads: &str, writes: &str, nanos, n| Committed {
        reads: vec![(key(reads), Version::ZERO)],
        writes: vec![key(writes)],
        deletes: false,
        version: version(nanos, n),
        called: Timestamp::ZERO,
        told: Timestamp::MAX,
    };
    let skew = BTreeMap::from([(txn(1), one("x", "y", 5, 1)), (txn(2), one("y", "x", 6, 2))]);
    assert!(violation(&skew).is_some_and(|text| text.starts_with("cycle")));
    let mut serial = skew;
    serial.get_mut(&txn(2)).unwrap().reads = vec![(key("y"), version(5, 1))];
    assert_eq!(violation(&serial), None);
}
