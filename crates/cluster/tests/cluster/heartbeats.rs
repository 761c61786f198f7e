//! The bytes of heartbeats.

use timestone_cluster::{HandOver, Heartbeat, ReplicaClaim, ReplicaLoss, ReplicaStatus};

use super::*;

const CLAIMS: [ReplicaClaim; 8] = [
    ReplicaClaim::None,
    ReplicaClaim::Serves,
    ReplicaClaim::NeedsEpoch,
    ReplicaClaim::CannotLead,
    ReplicaClaim::Rebuilds,
    ReplicaClaim::HandsOver,
    ReplicaClaim::Leaves,
    ReplicaClaim::HearsNobody,
];

fn status(shard: u16, promised: u32, claim: ReplicaClaim) -> ReplicaStatus {
    ReplicaStatus {
        shard: ShardId::new(shard),
        promised: Epoch::new(promised),
        claim,
        installed: Epoch::new(promised / 2),
        loss: match promised % 4 {
            0 => ReplicaLoss::GivenUp,
            1 => ReplicaLoss::None,
            3 => ReplicaLoss::Unread,
            _ => ReplicaLoss::VoidSince(Epoch::new(promised - 1)),
        },
        lag_records: u64::from(promised) << 20,
    }
}

fn encoded(heartbeat: &Heartbeat) -> Vec<u8> {
    let mut bytes = Vec::new();
    heartbeat.encode(&mut bytes);
    bytes
}

#[test]
fn a_heartbeat_is_written_as_documented() {
    let replicas =
        vec![status(1, 4, ReplicaClaim::Serves), status(258, 6, ReplicaClaim::CannotLead)];
    let asked = Some(HandOver { shard: ShardId::new(3), epoch: Epoch::new(9) });
    let bytes = encoded(&Heartbeat { server: ServerId::new(7), replicas, asked });
    let golden = "07000000 02000000 \
        0100 04000000 01 02000000 01 00000000 0000400000000000 \
        0201 06000000 03 03000000 02 05000000 0000600000000000 \
        01 0300 09000000";
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, golden.replace(' ', ""));
}

#[test]
fn bytes_that_break_the_layout_are_refused() {
    let (one, two) = (status(1, 4, ReplicaClaim::None), status(2, 4, ReplicaClaim::None));
    let of = |replicas| encoded(&Heartbeat { server: ServerId::new(7), replicas, asked: None });
    let good = of(vec![one, two]);
    assert!(Heartbeat::decode(&good).is_ok());
    for length in 0..good.len() {
        assert!(Heartbeat::decode(&good[..length]).is_err(), "{length} bytes were taken");
    }
    let refused = [
        ("a byte too many", [good.as_slice(), &[0]].concat()),
        ("a shard twice", of(vec![one, one])),
        ("shards that descend", of(vec![two, one])),
        ("an unknown claim", {
            let mut bytes = good.clone();
            bytes[14] = 8;
            bytes
        }),
        ("two hand-overs", {
            let mut bytes = good.clone();
            *bytes.last_mut().expect("not empty") = 2;
            bytes
        }),
        ("a count beyond the bytes", {
            let mut bytes = good.clone();
            bytes[4] = 3;
            bytes
        }),
        ("a count beyond the bound", {
            let mut bytes = good;
            bytes[7] = 255;
            bytes
        }),
    ];
    for (what, bytes) in refused {
        assert!(Heartbeat::decode(&bytes).is_err(), "{what} was taken");
    }
}

proptest! {
    #[test]
    fn heartbeats_come_back_as_they_were(
        server in 1u32..100,
        told in prop::collection::btree_map(0u16..4096, (any::<u32>(), 0usize..8), 0..20),
        asked in prop::option::of((any::<u16>(), any::<u32>())),
    ) {
        let replicas = told
            .into_iter()
            .map(|(shard, (promised, claim))| status(shard, promised, CLAIMS[claim]))
            .collect();
        let asked = asked.map(|(shard, epoch)| HandOver {
            shard: ShardId::new(shard),
            epoch: Epoch::new(epoch),
        });
        let heartbeat = Heartbeat { server: ServerId::new(server), replicas, asked };
        prop_assert_eq!(Heartbeat::decode(&encoded(&heartbeat)), Ok(heartbeat));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(heartbeat) = Heartbeat::decode(&bytes) {
            prop_assert_eq!(encoded(&heartbeat), bytes);
        }
    }
}
