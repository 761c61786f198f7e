//! `[workload]`: what clients do, and what a run of it is held to.

use std::fmt;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, de};
use timestone_workload::WorkloadKind;

use super::TimeSpan;
use super::grouped::read_grouped;

/// `[workload]`.
#[derive(Clone, Debug)]
pub struct WorkloadPart {
    /// `cycle`, or one of the workloads of `timestone bench`.
    pub kind: WorkloadChoice,
    /// Transactions begun a second, over all sessions.
    pub rate: f64,
    /// Each session begins its next transaction when the last one has ended, whatever the rate, and
    /// nothing is checked: for predictions of throughput.
    pub closed: bool,
    /// With `closed`: what aborts is tried again at once, with the same keys, until it commits.
    pub retries: bool,
    /// What transactions are drawn from.
    pub mix: MixPart,
    /// What sessions of registers do beside transactions on values of some bytes.
    pub registers: RegistersPart,
    /// What a run is held to.
    pub demands: DemandsPart,
    /// List-append: every tenth append is acknowledged and never made, so that the run fails. What
    /// finds nothing here finds nothing.
    pub canary: bool,
    /// For how long transactions are begun and faults strike.
    pub seconds: f64,
    /// What the run says of its pace begins after this much of it.
    pub warmup: TimeSpan,
}

/// Of `[workload]`: what transactions are drawn from.
#[derive(Clone, Debug, Default)]
pub struct MixPart {
    /// Keys; the workload's usual number when left out.
    pub keys: Option<u64>,
    /// Contention.
    pub zipf: Option<f64>,
    /// Most operations of a transaction.
    pub ops: Option<u32>,
    /// List-append: appends to a key before another takes its place.
    pub appends_per_key: Option<u32>,
    /// How many of a hundred writes are deletions, or appends that delete the list, or transfers
    /// that close an account; none when it is left out.
    pub deletes: Option<u64>,
    /// Register and YCSB: how many of a hundred writes expire soon, in transactions; none when it
    /// is left out.
    pub expiring: Option<u64>,
    /// For shards with several replicas: transactions that only read may read so far in the past, and
    /// at backups. A run in which no backup answers has not tried what it is for.
    pub max_staleness: Option<TimeSpan>,
    /// With `max-staleness`: so many sessions of each client only read, what others do, until they are
    /// answered.
    pub readers: u64,
    /// List-append and register: how many of a hundred transactions read a range of keys as well, from the first to
    /// the last or up to some key of it. Such keyspaces keep their keys in order.
    pub ranges: u64,
}

/// Of `[workload]`: what sessions of registers do beside transactions on values of some bytes.
#[derive(Clone, Debug, Default)]
pub struct RegistersPart {
    /// What one operation on one key can do is no transaction but a get, a put, a delete, a take, or
    /// a put that depends on what is there or returns it; each key is then held to an order of what
    /// was done to it.
    pub singles: bool,
    /// With `singles`: how many of a hundred operations are given up at once or a moment later, until the
    /// faults are over; their sessions go on with the same key.
    pub give_ups: u64,
    /// With `singles`: for about how long values are there that expire, as every third does; none
    /// does when it is left out.
    pub expires: Option<TimeSpan>,
    /// Bytes of every third value, to be larger than a page or a block, or to fill memory.
    pub large: Option<u32>,
    /// How many of a hundred transactions are scans of all keys, each at one point in time, which
    /// must hold everything that was acknowledged before it was asked for. Their pages hold a few
    /// keys only.
    pub scans: Option<u64>,
}

/// Of `[workload]`: what a run is held to.
#[derive(Clone, Debug, Default)]
pub struct DemandsPart {
    /// Whether commits wait for their clocks. List-append and register histories are then held to
    /// real time, as long as no fault of a clock strikes. A swarm draws it when it is left out.
    pub external: Option<ExternalWait>,
    /// How long an application waits for one operation; the client's usual time when left out. What
    /// takes longer has an unknown outcome.
    pub deadline: Option<TimeSpan>,
    /// Whether an outcome may be unknown only when its operation has taken as long as an
    /// application waits. That holds where servers are gone for a minute at most, with logs, and no
    /// client is: sessions outlive restarts.
    pub outcomes_known: bool,
    /// How far the watermark of a shard may trail while faults strike at other servers than its
    /// own; unbounded when left out. Prepared transactions may wait for a server that is gone, so
    /// it is for those of one shard.
    pub watermark_lag: Option<TimeSpan>,
    /// For shards with several replicas: how long one may be without a primary that serves, as long
    /// as no more servers are in a bad way than there are to spare. Faults then leave as many well.
    pub failover_within: Option<TimeSpan>,
    /// With `readers`: how long one of them may wait for a snapshot, as long as no more servers are in
    /// a bad way than there are to spare, and every shard was served not longer ago than a snapshot
    /// may be old.
    pub old_reads_within: Option<TimeSpan>,
    /// How many times at least another server must become primary of a shard: a run in which fewer
    /// do has not tried what it is for.
    pub failovers: u64,
}

impl Default for WorkloadPart {
    fn default() -> Self {
        Self {
            kind: WorkloadChoice::Plans(WorkloadKind::ListAppend),
            rate: 200.0,
            closed: false,
            retries: false,
            mix: MixPart::default(),
            registers: RegistersPart::default(),
            demands: DemandsPart::default(),
            canary: false,
            seconds: 10.0,
            warmup: TimeSpan(Duration::ZERO),
        }
    }
}

read_grouped!(WorkloadPart, WorkloadKey {
    Kind => kind,
    Rate => rate,
    Closed => closed,
    Retries => retries,
    Keys => mix.keys,
    Zipf => mix.zipf,
    Ops => mix.ops,
    AppendsPerKey => mix.appends_per_key,
    Deletes => mix.deletes,
    Expiring => mix.expiring,
    MaxStaleness => mix.max_staleness,
    Readers => mix.readers,
    Ranges => mix.ranges,
    External => demands.external,
    Deadline => demands.deadline,
    OutcomesKnown => demands.outcomes_known,
    WatermarkLag => demands.watermark_lag,
    FailoverWithin => demands.failover_within,
    OldReadsWithin => demands.old_reads_within,
    Failovers => demands.failovers,
    Singles => registers.singles,
    GiveUps => registers.give_ups,
    Expires => registers.expires,
    Large => registers.large,
    Scans => registers.scans,
    Canary => canary,
    Seconds => seconds,
    Warmup => warmup,
});

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadChoice {
    /// One of the workloads that `bench` knows.
    Plans(WorkloadKind),
    /// A ring of keys.
    Cycle,
    /// Nothing: Redis clients are alone, as `[redis]` says.
    Redis,
}

impl<'de> Deserialize<'de> for WorkloadChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "cycle" {
            return Ok(Self::Cycle);
        }
        if text == "redis" {
            return Ok(Self::Redis);
        }
        text.parse().map(Self::Plans).map_err(|_| {
            let names = WorkloadKind::names().join(", ");
            de::Error::custom(format!(
                "there is no workload {text:?}; the workloads are cycle, redis, {names}"
            ))
        })
    }
}

/// Whether commits are acknowledged only when the clock's error bound has passed: `none` or `wait`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalWait(pub bool);

impl<'de> Deserialize<'de> for ExternalWait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "none" => Ok(Self(false)),
            "wait" => Ok(Self(true)),
            other => Err(de::Error::custom(format!(
                "there is no mode {other:?}; external is none or wait"
            ))),
        }
    }
}
