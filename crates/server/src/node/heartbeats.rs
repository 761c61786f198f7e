//! What the servers of a cluster tell each other of themselves, several times a second: that they
//! are alive, and how their replicas are.
//!
//! Every server tells every other one, because each may be the controller. Source:
//! docs/protocol/membership.md, "Heartbeats".

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::limits::MIN_DETECTION;
use timestone_cluster::{Heartbeat, ReplicaClaim, ReplicaLoss, ReplicaStatus, ServerId};
use timestone_replication::Step;
use timestone_seda::{Context, ReplyAddress};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wire::{self as wire, Envelope, ErrorCode, ErrorReply, Frame, Message};

use super::{NodeStage, links};
use crate::event::Event;
use crate::replica_gauges::{ReplicaGauges, Wish};

/// How often a server tells at least. Five times within a detection time, if that is more often.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// What this server tells, and what others have told it.
pub(super) struct Heartbeats {
    replicas: Vec<Arc<ReplicaGauges>>,
    interval: Duration,
    next: Timestamp,
    /// What each other server has told last, and when.
    heard: BTreeMap<ServerId, (Timestamp, Vec<ReplicaStatus>)>,
    /// A server counts as silent after this long.
    silent_after: Duration,
}

impl Heartbeats {
    pub(super) fn new(mut replicas: Vec<Arc<ReplicaGauges>>, detection: Duration) -> Self {
        replicas.sort_by_key(|gauges| gauges.shard);
        let interval = HEARTBEAT_INTERVAL.min(detection.max(MIN_DETECTION) / 5);
        let silent_after = detection.max(MIN_DETECTION) * 2;
        Self { replicas, interval, next: Timestamp::ZERO, heard: BTreeMap::new(), silent_after }
    }

    /// The next one is due now.
    pub(super) const fn hurry(&mut self, now: Timestamp) {
        self.next = now;
    }

    /// Whether another server was heard lately.
    pub(super) fn hears(&self, now: Timestamp, server: ServerId) -> bool {
        let heard = self.heard.get(&server);
        heard.is_some_and(|(at, _)| now < at.saturating_add(self.silent_after))
    }

    /// Whether another server could lead a shard, by what it has told lately.
    pub(super) fn may_lead(&self, now: Timestamp, shard: ShardId, server: ServerId) -> bool {
        let Some((_, told)) = self.heard.get(&server).filter(|_| self.hears(now, server)) else {
            return false;
        };
        told.iter().any(|status| {
            status.shard == shard
                && status.installed > Epoch::ZERO
                && status.claim != ReplicaClaim::Leaves
                && status.loss != ReplicaLoss::Unread
        })
    }

    /// What this process's replicas tell.
    pub(super) fn replicas(&self) -> &[Arc<ReplicaGauges>] {
        &self.replicas
    }

    /// When the next one is due.
    pub(super) const fn next(&self) -> Timestamp {
        self.next
    }

    fn own(&self, leaves: bool) -> Vec<ReplicaStatus> {
        self.replicas.iter().filter_map(|gauges| status_of(gauges, leaves)).collect()
    }
}

/// What is told of a replica; nothing of one that can keep nothing. `leaves`: the server is being
/// stopped.
fn status_of(gauges: &ReplicaGauges, leaves: bool) -> Option<ReplicaStatus> {
    let standing = gauges.standing();
    let claim = match (standing.step?, standing.wish) {
        (_, Wish::MoreReached) => ReplicaClaim::HearsNobody,
        (Step::Serving, Wish::Successor) => ReplicaClaim::HandsOver,
        (Step::Serving, _) => ReplicaClaim::Serves,
        (_, Wish::NewEpoch) => ReplicaClaim::NeedsEpoch,
        (_, Wish::OtherPrimary) => ReplicaClaim::CannotLead,
        (_, Wish::TimeToRebuild) => ReplicaClaim::Rebuilds,
        (Step::Backup, _) if leaves => ReplicaClaim::Leaves,
        (_, Wish::Nothing | Wish::Successor) => ReplicaClaim::None,
    };
    Some(ReplicaStatus {
        shard: gauges.shard,
        promised: standing.promised,
        claim,
        installed: gauges.installed(),
        loss: gauges.loss(),
        lag_records: gauges.lag(),
    })
}

impl NodeStage {
    /// Tells the others, and itself, when that is due. Where shards have one copy nobody asks.
    pub(super) fn beat(&mut self, ctx: &mut Context<'_, Event>) {
        let now = ctx.now();
        if !self.maps.is_replicated() || now < self.heartbeats.next {
            return;
        }
        self.heartbeats.next = now.saturating_add(self.heartbeats.interval);
        if self.maps.map().server(self.server).is_none() {
            return;
        }
        let replicas = self.heartbeats.own(self.leaving.has_begun());
        let own = Heartbeat {
            server: self.server,
            replicas,
            asked: self.controlling.asked_to_hand_over(),
        };
        let mut beat = Vec::new();
        own.encode(&mut beat);
        for address in self.others() {
            // One that waits for its connection says enough: the next one is newer.
            if self.links.is_dialling(address) {
                continue;
            }
            let mut out = ctx.take_buffer();
            wire::Heartbeat { beat: &beat }.encode(&Envelope::default(), &mut out);
            self.send_to(ctx, address, out);
        }
        if let Some(asked) = own.asked {
            self.asked_to_hand_over(ctx, asked);
        }
        self.controller_hears(ctx, own);
    }

    /// Where the other servers of the cluster are.
    fn others(&self) -> Vec<SocketAddr> {
        let others = self.maps.map().servers().iter().filter(|server| server.id != self.server);
        let native = others.filter_map(|server| server.addresses.native.as_ref());
        native.filter_map(|address| links::resolve(address.as_str())).collect()
    }

    /// A heartbeat of another server.
    pub(super) fn heartbeat(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let read = wire::Heartbeat::decode(frame)
            .map_err(|error| error.to_string())
            .and_then(|it| Heartbeat::decode(it.beat).map_err(|error| error.to_string()));
        match read {
            Ok(heartbeat) => {
                self.answer(ctx, reply_to, frame, |envelope, out| {
                    wire::HeartbeatAck {}.encode(envelope, out);
                });
                let is_known = self.maps.map().server(heartbeat.server).is_some();
                if is_known && heartbeat.server != self.server {
                    let told = (ctx.now(), heartbeat.replicas.clone());
                    self.heartbeats.heard.insert(heartbeat.server, told);
                    if let Some(asked) = heartbeat.asked {
                        self.asked_to_hand_over(ctx, asked);
                    }
                    self.controller_hears(ctx, heartbeat);
                }
            }
            Err(words) => self.answer(ctx, reply_to, frame, |envelope, out| {
                ErrorReply::new(ErrorCode::Malformed, &words).encode(envelope, out);
            }),
        }
    }
}
