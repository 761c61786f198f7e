//! `[protocol]`: what the published protocol does not have is left out of ours, or others' take its place,
//! for comparisons.

use serde::Deserialize;

/// `[protocol]`. What is left out is as served, or drawn.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProtocolPart {
    /// Whether a shard asks for a later timestamp where only the timestamp is too low. `false`: it
    /// refuses, as MILANA's algorithm 1 does.
    pub later: Option<bool>,
    /// Whether reads and prepares that meet a prepared write wait for its decision. `false`: they
    /// go on, and their transactions abort.
    pub wait: Option<bool>,
    /// Whether transactions that only read commit in the client (MILANA §4.3). `false`: their
    /// shards validate them.
    pub local_validation: Option<bool>,
    /// With `local-validation = false`: whether they validate them as those that write, with records at
    /// shards and backups and a decision, as MILANA does without local validation.
    pub recorded_reads: Option<bool>,
    /// Transactions that only read commit in the client where everything that they read lies below
    /// the watermark, which each client spreads after so many transactions: Centiman's validation.
    /// Shards remember no reads. The order of sessions is not promised.
    pub watermark_every: Option<u32>,
    /// Whether stores keep the newest version of a key and no other. An older snapshot is refused.
    pub single_version: Option<bool>,
}
