//! Which workload, over which data: everything that decides what is generated, as one value that a
//! report repeats.

use serde::{Serialize, Serializer};

use crate::limits::{MAX_ACCOUNTS, MAX_KEYS, MAX_ZIPF};
use crate::values::{write_integer, write_opaque};
use crate::{KeyIndex, KeyShape, ValueKind, WorkloadError};

/// The kinds of workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadKind {
    /// MILANA Table 2: add user 5 %, follow 10 %, post 35 %, timeline 50 %.
    Retwis,
    /// The read-heavy mix of MILANA §5: 5, 10, 10 and 75 %.
    Retwis75,
    /// As TAPIR's prototype runs it.
    RetwisTapir,
    /// Half reads, half updates.
    YcsbA,
    /// 95 % reads, 5 % updates.
    YcsbB,
    /// Reads only.
    YcsbC,
    /// 95 % reads of what was inserted lately, 5 % inserts.
    YcsbD,
    /// 95 % scans of up to 100 keys in their order, 5 % inserts.
    YcsbE,
    /// Half reads, half read-modify-writes.
    YcsbF,
    /// Transactions of several keys, of which 90 % only read: SkimpyFTL §4.
    YcsbSocial,
    /// One get and one put of the same key: what other stores' benchmarks of transactions do.
    GetPut,
    /// Transfers between accounts, and readings of all of them, whose sum never changes.
    Bank,
    /// Appends to lists and readings of them, whose history tells the order of everything.
    ListAppend,
    /// Writes of unique integers after reading, and readings.
    Register,
}

/// Every kind with the name that the command line knows it by.
const KINDS: [(WorkloadKind, &str); 14] = [
    (WorkloadKind::Retwis, "retwis"),
    (WorkloadKind::Retwis75, "retwis-75"),
    (WorkloadKind::RetwisTapir, "retwis-tapir"),
    (WorkloadKind::YcsbA, "ycsb-a"),
    (WorkloadKind::YcsbB, "ycsb-b"),
    (WorkloadKind::YcsbC, "ycsb-c"),
    (WorkloadKind::YcsbD, "ycsb-d"),
    (WorkloadKind::YcsbE, "ycsb-e"),
    (WorkloadKind::YcsbF, "ycsb-f"),
    (WorkloadKind::YcsbSocial, "ycsb-social"),
    (WorkloadKind::GetPut, "get-put"),
    (WorkloadKind::Bank, "bank"),
    (WorkloadKind::ListAppend, "list-append"),
    (WorkloadKind::Register, "register"),
];

pub(crate) fn names() -> [&'static str; KINDS.len()] {
    KINDS.map(|(_, name)| name)
}

impl WorkloadKind {
    /// The name that the command line knows it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Whether keys may be deleted: not in Retwis, the transactional YCSB and YCSB E, which are run as they were
    /// published.
    #[must_use]
    pub const fn may_delete(self) -> bool {
        !matches!(
            self,
            Self::Retwis | Self::Retwis75 | Self::RetwisTapir | Self::YcsbSocial | Self::YcsbE
        )
    }

    /// Whether keys are scanned, so that their keyspace must have them in order.
    #[must_use]
    pub const fn scans(self) -> bool {
        matches!(self, Self::YcsbE)
    }

    /// Whether keys may expire: not where a history must tell what became of each value.
    #[must_use]
    pub const fn may_expire(self) -> bool {
        self.may_delete() && !matches!(self, Self::Bank | Self::ListAppend)
    }

    /// All names, for help and completion.
    #[must_use]
    pub fn names() -> [&'static str; KINDS.len()] {
        names()
    }
}

impl std::str::FromStr for WorkloadKind {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let found = KINDS.iter().find(|(_, name)| *name == text);
        found.map(|(kind, _)| *kind).ok_or_else(|| WorkloadError::UnknownWorkload(text.to_owned()))
    }
}

impl Serialize for WorkloadKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A workload with all its parameters. Begin with [`WorkloadSpec::named`] and change what should
/// differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkloadSpec {
    /// Which workload.
    pub kind: WorkloadKind,
    /// Keys that are loaded before the run; for list-append and register, keys in use at a time.
    pub keys: u64,
    /// Contention: the exponent of Zipf's distribution over the keys; 0 is uniform.
    pub zipf: f64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a key and its value together.
    pub tuple_bytes: usize,
    /// Most operations of a YCSB, list-append or register transaction.
    pub ops_per_txn: u32,
    /// Bank: what each account holds at first.
    pub initial_balance: i64,
    /// List-append: appends to a key, over all clients, before another takes its place.
    pub appends_per_key: u32,
    /// Register, YCSB: how many of a hundred writes are deletions. List-append: how many of a
    /// hundred appends delete the list instead, so that the next one begins it anew. Bank: how many
    /// of a hundred transfers move all that an account has and close it, so that the next one to it
    /// opens it again.
    pub delete_percent: u64,
    /// Register, YCSB: how many of a hundred writes expire soon.
    pub expire_percent: u64,
    /// Everything random derives from it.
    pub seed: u64,
}

impl WorkloadSpec {
    /// The workload of this name with its usual parameters.
    ///
    /// # Errors
    /// [`WorkloadError::UnknownWorkload`], which lists the names.
    pub fn named(name: &str) -> Result<Self, WorkloadError> {
        Ok(Self::of(name.parse()?))
    }

    /// A kind with its usual parameters: those of the papers where they give them.
    #[must_use]
    pub fn of(kind: WorkloadKind) -> Self {
        let usual = Self {
            kind,
            keys: 1_000_000,
            zipf: 0.75,
            key_bytes: 16,
            tuple_bytes: 512,
            ops_per_txn: 1,
            initial_balance: 1_000,
            appends_per_key: 256,
            delete_percent: 0,
            expire_percent: 0,
            seed: 42,
        };
        match kind {
            WorkloadKind::Retwis | WorkloadKind::Retwis75 => usual,
            // Values are the keys themselves, keys are drawn uniformly.
            WorkloadKind::RetwisTapir => {
                Self { key_bytes: 64, tuple_bytes: 128, zipf: 0.0, ..usual }
            }
            WorkloadKind::YcsbA
            | WorkloadKind::YcsbB
            | WorkloadKind::YcsbC
            | WorkloadKind::YcsbD
            | WorkloadKind::YcsbE
            | WorkloadKind::YcsbF
            | WorkloadKind::YcsbSocial => Self { zipf: 0.99, ..usual },
            WorkloadKind::GetPut => Self { zipf: 0.0, ..usual },
            WorkloadKind::Bank => Self { keys: 100, zipf: 0.0, delete_percent: 5, ..usual },
            WorkloadKind::ListAppend => {
                Self { keys: 16, zipf: 0.5, ops_per_txn: 4, delete_percent: 5, ..usual }
            }
            WorkloadKind::Register => Self {
                keys: 16,
                zipf: 0.5,
                ops_per_txn: 4,
                delete_percent: 10,
                expire_percent: 5,
                ..usual
            },
        }
    }

    /// Whether the parameters make sense together.
    ///
    /// # Errors
    /// [`WorkloadError::Parameter`] names the first that does not.
    pub fn validate(&self) -> Result<(), WorkloadError> {
        let demand = |holds: bool, name, given: String, demand| {
            if holds { Ok(()) } else { Err(WorkloadError::Parameter { name, given, demand }) }
        };
        let is_bank = self.kind == WorkloadKind::Bank;
        let spelled = KeyShape::new(self.key_bytes);
        demand(
            spelled.bytes() == self.key_bytes,
            "key-bytes",
            self.key_bytes.to_string(),
            "keys have at least 8 bytes",
        )?;
        demand(
            self.keys <= MAX_KEYS,
            "keys",
            self.keys.to_string(),
            "there are at most 100 000 000 000",
        )?;
        demand(
            self.keys <= spelled.capacity(),
            "keys",
            self.keys.to_string(),
            "their numbers must fit the keys' bytes",
        )?;
        demand(
            self.keys >= self.fewest_keys(),
            "keys",
            self.keys.to_string(),
            "one transaction needs more different ones",
        )?;
        demand(
            !is_bank || self.keys <= MAX_ACCOUNTS,
            "keys",
            self.keys.to_string(),
            "a bank has at most 10 000 accounts, for a reading reads all",
        )?;
        demand(
            (0.0..=MAX_ZIPF).contains(&self.zipf),
            "zipf",
            self.zipf.to_string(),
            "it lies between 0 and 5",
        )?;
        demand(
            self.tuple_bytes >= self.key_bytes,
            "tuple-bytes",
            self.tuple_bytes.to_string(),
            "a tuple is at least as long as its key",
        )?;
        demand(
            self.ops_per_txn >= 1,
            "ops-per-txn",
            self.ops_per_txn.to_string(),
            "a transaction has at least one",
        )?;
        demand(
            self.delete_percent <= 100,
            "delete-percent",
            self.delete_percent.to_string(),
            "it is a share of a hundred",
        )?;
        demand(
            self.delete_percent == 0 || self.kind.may_delete(),
            "delete-percent",
            self.delete_percent.to_string(),
            "nothing is deleted in this workload",
        )?;
        demand(
            self.expire_percent <= 100,
            "expire-percent",
            self.expire_percent.to_string(),
            "it is a share of a hundred",
        )?;
        demand(
            self.expire_percent == 0 || self.kind.may_expire(),
            "expire-percent",
            self.expire_percent.to_string(),
            "nothing expires in this workload",
        )?;
        demand(
            self.appends_per_key >= 1,
            "appends-per-key",
            self.appends_per_key.to_string(),
            "it is at least 1",
        )?;
        demand(
            (0..=i64::MAX / i64::try_from(self.keys).unwrap_or(i64::MAX).max(1))
                .contains(&self.initial_balance),
            "initial-balance",
            self.initial_balance.to_string(),
            "it is not negative, and the total must fit 63 bits",
        )
    }

    /// Different keys that the largest transaction touches.
    fn fewest_keys(&self) -> u64 {
        match self.kind {
            WorkloadKind::Retwis | WorkloadKind::Retwis75 | WorkloadKind::YcsbSocial => 10,
            WorkloadKind::Bank => 2,
            WorkloadKind::YcsbA
            | WorkloadKind::YcsbB
            | WorkloadKind::YcsbC
            | WorkloadKind::YcsbD
            | WorkloadKind::YcsbF
            | WorkloadKind::GetPut => u64::from(self.ops_per_txn),
            WorkloadKind::RetwisTapir
            | WorkloadKind::YcsbE
            | WorkloadKind::ListAppend
            | WorkloadKind::Register => 1,
        }
    }

    /// How keys look.
    #[must_use]
    pub fn key_shape(&self) -> KeyShape {
        let shape = KeyShape::new(self.key_bytes);
        if self.kind.scans() { shape.strewn() } else { shape }
    }

    /// What values are.
    #[must_use]
    pub const fn value_kind(&self) -> ValueKind {
        match self.kind {
            WorkloadKind::Bank | WorkloadKind::Register => ValueKind::Integer,
            WorkloadKind::ListAppend => ValueKind::List,
            _ => ValueKind::Opaque,
        }
    }

    /// Whether a history of it can be recorded and checked.
    #[must_use]
    pub fn has_history(&self) -> bool {
        self.value_kind() != ValueKind::Opaque
    }

    /// Whether a loaded key may be absent later.
    #[must_use]
    pub const fn removes_keys(&self) -> bool {
        self.delete_percent > 0 || self.expire_percent > 0
    }

    /// How many keys are to be loaded before the run, numbered from 0.
    #[must_use]
    pub const fn loaded_keys(&self) -> u64 {
        match self.kind {
            WorkloadKind::ListAppend | WorkloadKind::Register => 0,
            _ => self.keys,
        }
    }

    /// Appends the value that a loaded key has at first, which is also what
    /// [`Op::Put`](crate::Op::Put) writes.
    pub fn write_value(&self, key: KeyIndex, out: &mut Vec<u8>) {
        match self.kind {
            WorkloadKind::Bank => write_integer(self.initial_balance, out),
            WorkloadKind::RetwisTapir => self.key_shape().write(key, out),
            _ => write_opaque(key, self.tuple_bytes - self.key_bytes, out),
        }
    }

    /// Bank: what all accounts hold together.
    #[must_use]
    pub fn total_balance(&self) -> i64 {
        self.initial_balance.saturating_mul(i64::try_from(self.keys).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_its_usual_parameters_are_valid() {
        for (kind, name) in KINDS {
            assert_eq!(name.parse::<WorkloadKind>().unwrap(), kind);
            assert_eq!(kind.name(), name);
            WorkloadSpec::of(kind).validate().unwrap();
        }
        let message = WorkloadSpec::named("tpc-e").unwrap_err().to_string();
        assert!(message.contains("'tpc-e'") && message.contains("retwis-tapir"), "{message}");
    }

    #[test]
    fn senseless_parameters_are_named() {
        let base = WorkloadSpec::of(WorkloadKind::Retwis);
        let bank = WorkloadSpec::of(WorkloadKind::Bank);
        for (spec, name) in [
            (WorkloadSpec { keys: 9, ..base.clone() }, "keys"),
            (WorkloadSpec { keys: 10_000_001, key_bytes: 8, ..base.clone() }, "keys"),
            (WorkloadSpec { key_bytes: 4, ..base.clone() }, "key-bytes"),
            (WorkloadSpec { tuple_bytes: 15, ..base.clone() }, "tuple-bytes"),
            (WorkloadSpec { zipf: -0.1, ..base.clone() }, "zipf"),
            (WorkloadSpec { zipf: f64::NAN, ..base.clone() }, "zipf"),
            (WorkloadSpec { ops_per_txn: 0, ..base.clone() }, "ops-per-txn"),
            (WorkloadSpec { appends_per_key: 0, ..base.clone() }, "appends-per-key"),
            (WorkloadSpec { delete_percent: 1, ..base.clone() }, "delete-percent"),
            (WorkloadSpec { expire_percent: 1, ..base }, "expire-percent"),
            (WorkloadSpec { delete_percent: 101, ..bank.clone() }, "delete-percent"),
            (WorkloadSpec { expire_percent: 1, ..bank.clone() }, "expire-percent"),
            (WorkloadSpec { keys: 10_001, ..bank.clone() }, "keys"),
            (WorkloadSpec { initial_balance: i64::MAX, ..bank }, "initial-balance"),
        ] {
            let error = spec.validate().unwrap_err();
            assert!(
                matches!(error, WorkloadError::Parameter { name: found, .. } if found == name),
                "{error}"
            );
        }
    }

    #[test]
    fn a_tuple_has_the_specified_size() {
        let spec = WorkloadSpec::of(WorkloadKind::Retwis);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        spec.key_shape().write(KeyIndex(5), &mut key);
        spec.write_value(KeyIndex(5), &mut value);
        assert_eq!(key.len() + value.len(), 512);
    }
}
