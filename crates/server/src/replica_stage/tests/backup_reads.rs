//! Snapshots that are read at backups.

use timestone_wire::{ClosedIs, GetAtBackup};

use super::*;

/// What a server answers to a read of a key at a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Value(Option<u64>),
    Refused,
}

impl World {
    /// Reads a key as of a timestamp at a server.
    fn read_at(&mut self, server: u32, key: u64, at: Timestamp) -> Told {
        self.read_in(server, KeyspaceId::DEFAULT, key, at)
    }

    fn read_in(&mut self, server: u32, keyspace: KeyspaceId, key: u64, at: Timestamp) -> Told {
        self.requests += 1;
        let (request, epoch) = (RequestId::new(self.requests), self.control.map.shards()[0].epoch);
        let map_version = self.control.map.version();
        let envelope = Envelope { request, shard: SHARD, epoch, map_version };
        let mut bytes = Vec::new();
        GetAtBackup { keyspace, at, key: &key.to_be_bytes() }.encode(&envelope, &mut bytes);
        self.send(server, Event::FrameBatch(FrameBatch::new(own_reply_address(ASKER), bytes)));
        self.turns();
        let answer = self.answers.remove(&self.requests).expect("it is answered");
        let frame = Frame::parse(&answer).unwrap();
        match Value::decode(&frame) {
            Ok(value) => {
                let number = || u64::from_be_bytes(value.value.try_into().unwrap());
                Told::Value(value.present.then(number))
            }
            Err(_) => Told::Refused,
        }
    }

    /// Writes a key; at which timestamp.
    fn put(&mut self, number: u64, key: u64) -> Timestamp {
        let (begin, mut commit) = (self.now, self.now.next());
        for _ in 0..10 {
            if self.write(number, key, begin, &mut commit) {
                return commit;
            }
            self.pass(20);
        }
        panic!("write {number} is not acknowledged: {:?}", self.state());
    }

    /// Somebody reads at a backup for so long.
    fn keep_reading(&mut self, server: u32, millis: u64) {
        for _ in 0..millis / 100 {
            self.read_at(server, 0, START);
            self.pass(100);
        }
    }
}

#[test]
fn a_backup_that_is_read_answers_snapshots_that_its_primary_has_closed() {
    let mut world = World::new();
    world.pass(200);
    let before = world.now;
    world.pass(20);
    let written = world.put(1, 7);
    world.pass(20);
    assert_eq!(world.read_at(2, 7, written), Told::Refused, "nothing is closed");
    assert_eq!(world.servers[&2].gauges.closed_lag(world.now), None);
    world.keep_reading(2, 400);
    assert_eq!(world.read_at(2, 7, written), Told::Value(Some(1)));
    assert_eq!(world.read_at(2, 7, written.previous()), Told::Value(None));
    assert_eq!(world.read_at(2, 7, before), Told::Value(None));
    let now = world.now;
    assert_eq!(world.read_at(2, 7, now), Told::Refused, "it is not closed yet");
    let lag = world.servers[&2].gauges.closed_lag(world.now).unwrap();
    assert!(lag < Duration::from_millis(300), "{lag:?}");
    assert_eq!(world.read_at(1, 7, written), Told::Refused, "the primary is no backup");
    assert_eq!(world.read_at(3, 7, written), Told::Refused, "nobody has read there");
    // Nobody reads any more: nothing is closed.
    world.pass(4_000);
    let lag = world.servers[&2].gauges.closed_lag(world.now).unwrap();
    assert!(lag > Duration::from_millis(1_500), "{lag:?}");
    let (answered, refused) = world.servers[&2].gauges.backup_reads();
    assert!(answered >= 3 && refused >= 2, "{answered} {refused}");
}

/// What a backup tells of a key whose younger version its device has not read when it started, which
/// its log does not have any more; and how the replica is.
fn read_beside_unread_pages() -> (Told, ReplicaLoss) {
    let mut world = World::new();
    world.pass(200);
    let (first, second) = (0x1122_3344_5566, 0x2233_4455_6677);
    world.put(first, 7);
    world.pass_until_stored(first);
    let written = world.put(second, 7);
    world.pass_until_stored(second);
    world.kill(2, 1);
    let device = world.servers[&2].device.clone();
    device.fail_reads_of(device.pages_with(second));
    world.start(2);
    device.fail_reads_of(Vec::new());
    world.keep_reading(2, 600);
    assert_eq!(world.servers[&2].gauges.step(), Some(Step::Backup), "it acknowledges");
    let told = world.read_at(2, 7, written);
    world.keep_reading(3, 600);
    assert_eq!(world.read_at(3, 7, written), Told::Value(Some(second)), "of 3 everything was read");
    (told, world.servers[&2].gauges.loss())
}

#[test]
fn a_backup_whose_device_has_not_read_everything_answers_nothing() {
    assert_eq!(read_beside_unread_pages(), (Told::Refused, ReplicaLoss::Unread));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_backup_that_answers_beside_unread_pages_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let (told, _) = with(Bug::ReadsBesideUnreadPages, read_beside_unread_pages);
    assert_eq!(told, Told::Value(Some(0x1122_3344_5566)), "an older version");
}

/// A backup is cut off from its primary while a key is written; what it tells of it at a snapshot that
/// the primary has closed with that write.
fn a_backup_is_cut_off() -> [Told; 2] {
    let mut world = World::new();
    world.pass(200);
    world.put(1, 7);
    world.keep_reading(2, 400);
    world.cut = Some((1, 2));
    let second = world.put(2, 7);
    world.keep_reading(2, 600);
    let cut_off = world.read_at(2, 7, second);
    world.cut = None;
    world.keep_reading(2, 1_500);
    [cut_off, world.read_at(2, 7, second)]
}

#[test]
fn a_backup_that_lacks_batches_answers_no_snapshot_that_they_belong_to() {
    assert_eq!(a_backup_is_cut_off(), [Told::Refused, Told::Value(Some(2))]);
}

/// What a write is told that comes with a timestamp at which a backup has answered already, and what
/// the backup says then.
fn a_write_comes_late() -> (bool, Told) {
    let mut world = World::new();
    world.pass(200);
    world.put(1, 7);
    world.keep_reading(2, 600);
    let at = world.now.saturating_sub(Duration::from_millis(400));
    assert_eq!(world.read_at(2, 7, at), Told::Value(Some(1)));
    let mut commit = at;
    let is_written = world.write(2, 7, at.previous(), &mut commit);
    world.pass(200);
    (is_written, world.read_at(2, 7, at))
}

#[test]
fn a_write_does_not_commit_where_a_backup_has_answered() {
    assert_eq!(a_write_comes_late(), (false, Told::Value(Some(1))));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_backup_that_answers_too_much_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let told = with(Bug::UnnotedClose, a_write_comes_late);
    assert_eq!(told, (true, Told::Value(Some(2))), "a snapshot changes");
}

#[test]
fn what_was_closed_in_an_epoch_is_true_in_the_next_and_a_restart_forgets_it() {
    let mut world = World::new();
    world.pass(200);
    let written = world.put(1, 7);
    world.keep_reading(3, 400);
    assert_eq!(world.read_at(3, 7, written), Told::Value(Some(1)));
    world.kill(1, 1);
    world.make_primary(2);
    assert_eq!(world.read_at(3, 7, written), Told::Value(Some(1)), "while nobody serves");
    world.pass(3_000);
    assert_eq!(world.serving(), Some(2), "{:?}", world.state());
    let second = world.put(2, 7);
    world.keep_reading(3, 400);
    assert_eq!(world.read_at(3, 7, second), Told::Value(Some(2)));
    assert_eq!(world.read_at(3, 7, written), Told::Value(Some(1)));
    assert_eq!(world.read_at(2, 7, written), Told::Refused, "it is primary now");
    world.kill(3, 1);
    world.start(3);
    assert_eq!(world.read_at(3, 7, second), Told::Refused, "what is closed it does not know");
    world.keep_reading(3, 400);
    assert_eq!(world.read_at(3, 7, second), Told::Value(Some(2)));
}

#[test]
fn a_backup_that_takes_a_checkpoint_answers_nothing_before_it_is_whole() {
    let mut world = World::keeping(Retention { bytes: 600, ..Retention::default() });
    world.pass(200);
    world.kill(3, 1);
    let mut last = Timestamp::ZERO;
    for number in 1..=40 {
        last = world.put(number, number % 7);
        world.pass(20);
    }
    world.start(3);
    let told = world.read_at(3, 5, last);
    assert_eq!(told, Told::Refused);
    world.keep_reading(3, 4_000);
    assert_eq!(world.servers[&3].rebuilt, 1, "{:?}", world.state());
    assert_eq!(world.read_at(3, 5, last), Told::Value(Some(40)));
}

impl World {
    /// Puts a key that expires, or deletes it.
    fn change(&mut self, number: u64, key: u64, action: WriteAction, expires_at: Expiry) {
        let (txn, begin) = (TxnId::new(CLIENT, Sequence::new(number)), self.now);
        let (key, value) = (key.to_be_bytes(), number.to_be_bytes());
        let value = if action == WriteAction::Put { &value[..] } else { &[] };
        let write = Write {
            txn,
            begin,
            commit: begin.next(),
            keyspace: KeyspaceId::DEFAULT,
            action,
            wait: false,
            return_previous: false,
            expires_at,
            condition: Condition::Always,
            key: &key,
            value,
        };
        let answer = self.ask(|envelope, out| write.encode(envelope, out)).expect("an answer");
        let written = Written::decode(&Frame::parse(&answer).unwrap()).unwrap();
        assert_eq!(written.verdict, Verdict::Yes);
    }
}

/// Snapshots that are closed are answered for as long as the primary is gone, and whoever asks is told
/// where they end.
#[test]
fn a_backup_without_a_primary_answers_what_is_closed() {
    let mut world = World::new();
    world.pass(200);
    let written = world.put(1, 7);
    world.pass(20);
    world.keep_reading(2, 600);
    world.cut = Some((1, 2));
    world.pass(8_000);
    assert_eq!(world.read_at(2, 7, written), Told::Value(Some(1)));
    let told = world.answers.remove(&0).expect("how far it has come is told");
    let told = ClosedIs::decode(&Frame::parse(&told).unwrap()).unwrap();
    assert!(told.at > written && world.now.since(told.at) > Duration::from_secs(7), "{told:?}");
    assert_eq!(world.read_at(2, 7, told.at), Told::Value(Some(1)));
    assert_eq!(world.read_at(2, 7, told.at.next()), Told::Refused);
}

#[test]
fn what_is_deleted_or_has_expired_by_a_snapshot_is_absent_in_it() {
    let mut world = World::new();
    world.pass(1_000);
    let expires_at = world.now.saturating_add(Duration::from_millis(200));
    world.change(1, 7, WriteAction::Put, Expiry::at(expires_at));
    world.put(2, 8);
    world.pass(100);
    let before = world.now;
    world.pass(20);
    world.change(3, 8, WriteAction::Delete, Expiry::NEVER);
    world.keep_reading(2, 600);
    assert_eq!(world.read_at(2, 8, before), Told::Value(Some(2)));
    assert_eq!(world.read_at(2, 8, expires_at), Told::Value(None));
    assert_eq!(world.read_at(2, 7, expires_at.previous()), Told::Value(Some(1)));
    assert_eq!(world.read_at(2, 7, expires_at), Told::Value(None));
}

#[test]
fn keyspaces_in_memory_are_not_read_at_backups() {
    let mut world = World::new();
    world.pass(200);
    world.put(1, 7);
    world.keep_reading(2, 400);
    let mut keyspace = KeyspaceId::new(1);
    while !keyspace.is_in_memory() {
        keyspace = KeyspaceId::new(keyspace.get() << 1);
    }
    assert_eq!(world.read_in(2, keyspace, 7, START), Told::Refused);
    assert_eq!(world.read_in(2, KeyspaceId::DEFAULT, 7, START), Told::Value(None));
}
