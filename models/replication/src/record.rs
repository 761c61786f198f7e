//! What a replica holds of a transaction.

/// Which of its commit timestamps a transaction tries: the first, or the one after `Later`.
pub type Attempt = u8;

/// Attempts of a transaction, at most.
pub const ATTEMPTS: u8 = 2;

/// An answer to termination beside the records: nothing is known, and nothing ever will be, because
/// the transaction began below the watermark.
pub const FORGOTTEN: u8 = 1 << 7;

/// A shard's record of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Record {
    #[default]
    Unseen,
    Prepared(Attempt),
    /// Prepared, and told to an asker of termination: it refuses any other timestamp from then on.
    Frozen(Attempt),
    Committed(Attempt),
    Aborted,
}

impl Record {
    /// Its bit in sets of records; `Unseen` is never sent.
    pub fn bit(self) -> u8 {
        1 << match self {
            Self::Unseen => unreachable!("nobody sends that there is nothing"),
            Self::Prepared(attempt) => attempt,
            Self::Frozen(attempt) => ATTEMPTS + attempt,
            Self::Committed(attempt) => 2 * ATTEMPTS + attempt,
            Self::Aborted => 3 * ATTEMPTS,
        }
    }

    /// The records of a set.
    pub fn of(set: u8) -> impl Iterator<Item = Self> {
        let all = (0..ATTEMPTS)
            .flat_map(|attempt| {
                [Self::Prepared(attempt), Self::Frozen(attempt), Self::Committed(attempt)]
            })
            .chain([Self::Aborted]);
        all.filter(move |record| set & record.bit() != 0)
    }

    /// Which of two records of one transaction is newer: records come in any order.
    fn rank(self) -> u8 {
        match self {
            Self::Unseen => 0,
            Self::Prepared(attempt) => 1 + attempt,
            Self::Frozen(attempt) => 1 + ATTEMPTS + attempt,
            Self::Committed(_) | Self::Aborted => u8::MAX,
        }
    }

    /// What is kept when another record of the same epoch arrives.
    pub fn with(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    pub fn is_outcome(self) -> bool {
        matches!(self, Self::Committed(_) | Self::Aborted)
    }

    /// The timestamp that a promise stands for, if it is one.
    pub fn promised(self) -> Option<Attempt> {
        match self {
            Self::Prepared(attempt) | Self::Frozen(attempt) => Some(attempt),
            _ => None,
        }
    }
}

const _: () = assert!(3 * ATTEMPTS < 7);
