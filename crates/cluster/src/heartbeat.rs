//! What servers tell of themselves and their replicas, several times within a detection time.
//!
//! Its bytes travel inside `wire`'s heartbeat frames (docs/formats/cluster.md). Source:
//! docs/protocol/membership.md, "Heartbeats". What is deliberately absent: how often it is told,
//! and to whom.

use timestone_types::{Epoch, ShardId};

use crate::codec::{Cursor, put_count, put_u8, put_u16, put_u32, put_u64};
use crate::limits::MAX_SHARDS;
use crate::{ClusterError, ServerId};

/// What a replica says of the epoch that it has promised.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum ReplicaClaim {
    /// Nothing.
    #[default]
    None,
    /// It is the primary, and serves: it and f backups have installed the epoch's table.
    Serves,
    /// It is to be the primary, and had promised the epoch before, perhaps before a restart: it may
    /// lead another one only.
    NeedsEpoch,
    /// It is to be the primary, and nobody that answers has what it lacks.
    CannotLead,
    /// It takes a checkpoint of the primary, because it lacks what nobody keeps any more, and gets on.
    Rebuilds,
    /// It is the primary and serves, as [`Self::Serves`], and wants another replica to be it: its
    /// server is being stopped, or the controller has asked for that ([`Heartbeat::asked`]). Whoever
    /// follows waits for no long lease.
    HandsOver,
    /// Its server is being stopped: it is not to become the primary.
    Leaves,
    /// It is the primary, or is to be, something waits for other replicas, and none of them has said
    /// anything new for long: another one may reach more of them.
    HearsNobody,
}

impl ReplicaClaim {
    /// Whether it is the primary and serves.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Serves | Self::HandsOver)
    }

    const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Serves => 1,
            Self::NeedsEpoch => 2,
            Self::CannotLead => 3,
            Self::Rebuilds => 4,
            Self::HandsOver => 5,
            Self::Leaves => 6,
            Self::HearsNobody => 7,
        }
    }

    const fn numbered(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Serves),
            2 => Some(Self::NeedsEpoch),
            3 => Some(Self::CannotLead),
            4 => Some(Self::Rebuilds),
            5 => Some(Self::HandsOver),
            6 => Some(Self::Leaves),
            7 => Some(Self::HearsNobody),
            _ => None,
        }
    }
}

/// What a replica has lost, for whether a candidate may count on its answer (rules P16 and P22 of
/// docs/protocol/replication.md).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ReplicaLoss {
    /// It has what it had.
    #[default]
    None,
    /// It has given that up, and remembers what it was: its answer counts.
    GivenUp,
    /// It has nothing, and has acknowledged nothing since this epoch, or never
    /// ([`Epoch::ZERO`]): its answer counts for tables that rest on a later one.
    VoidSince(Epoch),
    /// It has what it acknowledged, but for what its device has not read, or what is damaged there:
    /// its answer counts, and it leads while no other one can.
    Unread,
}

/// What a server tells of one of its replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// The shard.
    pub shard: ShardId,
    /// The epoch below which it refuses everything.
    pub promised: Epoch,
    /// What it says of that epoch.
    pub claim: ReplicaClaim,
    /// The last epoch whose table it has installed durably; [`Epoch::ZERO`] if it has no state that
    /// counts.
    pub installed: Epoch,
    /// Whether it has what it had.
    pub loss: ReplicaLoss,
    /// How many of the shard's records it lacks, as far as it knows.
    pub lag_records: u64,
}

impl ReplicaStatus {
    /// The bytes of one.
    const BYTES: usize = 24;

    /// What it says of this epoch.
    #[must_use]
    pub fn claim_of(&self, epoch: Epoch) -> ReplicaClaim {
        if self.promised == epoch { self.claim } else { ReplicaClaim::None }
    }
}

/// A shard whose primary in this epoch is to hand it over to another replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOver {
    /// The shard.
    pub shard: ShardId,
    /// The epoch.
    pub epoch: Epoch,
}

/// A server is alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The server.
    pub server: ServerId,
    /// All its replicas, by ascending shard. One that can keep nothing any more, because its log or
    /// its device has failed, is left out.
    pub replicas: Vec<ReplicaStatus>,
    /// What the server asks for as the controller; the primary that is meant does it as long as it
    /// is asked.
    pub asked: Option<HandOver>,
}

impl Heartbeat {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.server.get());
        put_count(out, self.replicas.len());
        for status in &self.replicas {
            put_u16(out, status.shard.get());
            put_u32(out, status.promised.get());
            put_u8(out, status.claim.number());
            put_u32(out, status.installed.get());
            let (kind, since) = match status.loss {
                ReplicaLoss::None => (0, Epoch::ZERO),
                ReplicaLoss::GivenUp => (1, Epoch::ZERO),
                ReplicaLoss::VoidSince(epoch) => (2, epoch),
                ReplicaLoss::Unread => (3, Epoch::ZERO),
            };
            put_u8(out, kind);
            put_u32(out, since.get());
            put_u64(out, status.lag_records);
        }
        put_u8(out, u8::from(self.asked.is_some()));
        if let Some(HandOver { shard, epoch }) = self.asked {
            put_u16(out, shard.get());
            put_u32(out, epoch.get());
        }
    }

    /// Reads what [`Heartbeat::encode`] wrote.
    ///
    /// # Errors
    /// [`ClusterError::Malformed`] for bytes that do not follow the layout, and for shards that are
    /// not ascending.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let mut cursor = Cursor::new("a heartbeat", bytes);
        let server = ServerId::new(cursor.u32()?);
        let count = cursor.count(usize::from(MAX_SHARDS), ReplicaStatus::BYTES)?;
        let mut replicas: Vec<ReplicaStatus> = Vec::with_capacity(count);
        for _ in 0..count {
            let status = decode_status(&mut cursor)?;
            if replicas.last().is_some_and(|last| last.shard >= status.shard) {
                return Err(cursor.fail("its shards are not ascending"));
            }
            replicas.push(status);
        }
        let asked = match cursor.u8()? {
            0 => None,
            1 => Some(HandOver {
                shard: ShardId::new(cursor.u16()?),
                epoch: Epoch::new(cursor.u32()?),
            }),
            _ => return Err(cursor.fail("it asks for more than one hand-over")),
        };
        cursor.finish()?;
        Ok(Self { server, replicas, asked })
    }
}

fn decode_status(cursor: &mut Cursor<'_>) -> Result<ReplicaStatus, ClusterError> {
    let (shard, promised) = (ShardId::new(cursor.u16()?), Epoch::new(cursor.u32()?));
    let claim = cursor.u8()?;
    let claim = ReplicaClaim::numbered(claim).ok_or_else(|| cursor.fail("a claim is unknown"))?;
    let installed = Epoch::new(cursor.u32()?);
    let loss = match (cursor.u8()?, cursor.u32()?) {
        (0, 0) => ReplicaLoss::None,
        (1, 0) => ReplicaLoss::GivenUp,
        (2, epoch) => ReplicaLoss::VoidSince(Epoch::new(epoch)),
        (3, 0) => ReplicaLoss::Unread,
        _ => return Err(cursor.fail("a loss is unknown")),
    };
    let lag_records = cursor.u64()?;
    Ok(ReplicaStatus { shard, promised, claim, installed, loss, lag_records })
}
