//! What the node tells of replicas: those of its own process, and the controller if that is here.

use timestone_cluster::ReplicaLoss;
use timestone_replication::Step;
use timestone_types::{Span, Timestamp};

use super::NodeStage;
use crate::replica_gauges::ReplicaGauges;

const fn name_of(step: Option<Step>) -> &'static str {
    match step {
        None => "none",
        Some(Step::Backup) => "backup",
        Some(Step::Rebuilding) => "rebuilding",
        Some(Step::Joining) => "joining",
        Some(Step::Fetching) => "fetching",
        Some(Step::Installing) => "installing",
        Some(Step::Serving) => "serving",
    }
}

impl NodeStage {
    /// How the cluster's shards stand, as this server knows it; `timestone status` puts together
    /// what all servers tell.
    pub(super) fn replication_figures(&self, now: Timestamp, figures: &mut Vec<(String, String)>) {
        let control = self.maps.control();
        let mut push = |name: &str, value: String| figures.push((name.to_owned(), value));
        push("replication", control.replication.to_string());
        let missing = control.replication.replicas().saturating_sub(control.map.servers().len());
        if missing > 0 {
            push("servers_waited_for", missing.to_string());
        }
        if let Some(term) = self.controlling.term() {
            push("controller_term", term.to_string());
            push("controller_last", self.controlling.last().unwrap_or("nothing yet").to_owned());
        }
        for (entry, normal) in control.map.shards().iter().zip(&control.normal) {
            push(&format!("shard_{}_confirmed_epoch", entry.id), normal.epoch.to_string());
            let own = self.heartbeats.replicas().iter().find(|own| own.shard == entry.id);
            if let Some(own) = own.filter(|_| entry.replicas.contains(&self.server)) {
                replica_figures(now, own, &mut push);
            }
        }
    }
}

fn replica_figures(now: Timestamp, own: &ReplicaGauges, push: &mut impl FnMut(&str, String)) {
    let (shard, standing) = (own.shard, own.standing());
    push(&format!("shard_{shard}_step"), name_of(standing.step).to_owned());
    push(&format!("shard_{shard}_promised_epoch"), standing.promised.to_string());
    push(&format!("shard_{shard}_installed_epoch"), own.installed().to_string());
    push(&format!("shard_{shard}_counted_batch"), own.counted().to_string());
    push(&format!("shard_{shard}_lag_batches"), own.lag().to_string());
    let closed = own.closed_lag(now).map_or_else(|| "none".to_owned(), |lag| Span(lag).to_string());
    push(&format!("shard_{shard}_closed_lag"), closed);
    if own.loss() == ReplicaLoss::Unread {
        push(&format!("shard_{shard}_loss"), "unread".to_owned());
    }
}
