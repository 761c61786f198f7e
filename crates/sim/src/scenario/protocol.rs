//! `[protocol]`: what the published protocol does not have is left out of ours, for comparisons.

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
}
