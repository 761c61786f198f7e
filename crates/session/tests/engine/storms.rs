//! Many transactions at once on a network that loses, doubles and reorders: nothing is lost,
//! doubled or half done.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_session::{
    Condition, EngineConfig, Mutation, OpId, RequestOptions, SessionError, SessionId, Step,
    TxnHandle, TxnStatus,
};
use timestone_types::{Expiry, ShardId, TxnId};
use timestone_wire::ErrorCode;

use crate::Requests;
use crate::failover::{announce, status};
use crate::world::{Application, Outcome, SPACE, World, world_with};
use timestone_testkit::{Deposed, ReferenceShard, Weather};

const ACCOUNTS: usize = 12;
const START: u64 = 100;

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("TIMESTONE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    first.map_or(0..25, |seed| seed..seed + 1)
}

fn amount(value: Option<&[u8]>) -> u64 {
    value.map_or(START, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn account(n: usize) -> Vec<u8> {
    format!("account-{n}").into_bytes()
}

/// One clerk moves money between two accounts at a time.
struct Clerk {
    session: SessionId,
    txn: Option<TxnHandle>,
    from: usize,
    to: usize,
    read: Vec<u64>,
    waits_for: OpId,
    is_committing: bool,
}

impl Clerk {
    fn start(world: &mut World, session: SessionId) -> Self {
        let from = world.random(ACCOUNTS as u64) as usize;
        let to = (from + 1 + world.random(ACCOUNTS as u64 - 1) as usize) % ACCOUNTS;
        let txn = world.begin(session);
        let mut clerk = Self {
            session,
            txn: Some(txn),
            from,
            to,
            read: Vec::new(),
            waits_for: OpId(0),
            is_committing: false,
        };
        clerk.ask(world);
        clerk
    }

    fn ask(&mut self, world: &mut World) {
        let account = account(if self.read.is_empty() { self.from } else { self.to });
        self.waits_for = world.op();
        let step =
            world.host.engine.get(world.now, self.txn.unwrap(), SPACE, &account, self.waits_for);
        assert!(matches!(step, Ok(Step::Pending(_))), "{step:?}");
    }

    /// Goes on with a result; tells the end when the transfer is over.
    fn go_on(&mut self, world: &mut World, outcome: Outcome) -> Option<Outcome> {
        match outcome {
            Outcome::Value(value, _) if !self.is_committing => {
                self.read.push(amount(value.as_deref()));
                if self.read.len() < 2 {
                    self.ask(world);
                    return None;
                }
                let moved = self.read[0].min(3);
                let txn = self.txn.unwrap();
                world.put(txn, &account(self.from), &(self.read[0] - moved).to_le_bytes());
                world.put(txn, &account(self.to), &(self.read[1] + moved).to_le_bytes());
                self.waits_for = world.op();
                self.is_committing = true;
                let step = world.host.engine.commit(world.now, txn, self.waits_for);
                assert!(matches!(step, Ok(Step::Pending(_))), "{step:?}");
                None
            }
            over => {
                if let Some(txn) = self.txn.take() {
                    world.host.engine.abort(txn);
                }
                Some(over)
            }
        }
    }
}

/// What a storm does to one shard beside the weather.
type Blow = fn(&mut World, usize);

/// Its connection is cut, or stands again.
fn cut_or_mend(world: &mut World, shard: usize) {
    world.cut[shard] = !world.cut[shard];
}

/// Another primary takes over, and is announced some time later, perhaps before it serves; the old
/// one does what old ones do.
fn fail_over(world: &mut World, shard: usize) {
    announce(world);
    let id = ShardId::new(shard as u16);
    let old = match world.random(4) {
        0 => Deposed::Silent,
        1 => Deposed::Unaware,
        2 => Deposed::Refuses(ErrorCode::StaleEpoch),
        _ => Deposed::Refuses(ErrorCode::Unavailable),
    };
    if world.random(2) == 0 {
        world.host.engine.disconnected(world.now, id);
    }
    world.fail_over(shard, old);
    if world.random(2) == 0 {
        let pause = Duration::from_millis(world.random(1_500));
        world.shards[shard].serves_from = world.now.saturating_add(pause);
    }
    if world.random(3) == 0 {
        announce(world);
    }
}

#[test]
fn money_is_neither_made_nor_lost_in_foul_weather() {
    money_is_neither_made_nor_lost(cut_or_mend);
}

#[test]
fn money_is_neither_made_nor_lost_when_shards_fail_over() {
    money_is_neither_made_nor_lost(fail_over);
}

fn money_is_neither_made_nor_lost(blow: Blow) {
    let mut commits = 0;
    for seed in seeds() {
        let mut world = world_with(3, EngineConfig::default(), seed);
        *world.weather() = Weather::FOUL;
        let mut clerks: Vec<Clerk> = (0..6)
            .map(|_| {
                let session = world.session();
                Clerk::start(&mut world, session)
            })
            .collect();
        let mut ends: BTreeMap<TxnId, bool> = BTreeMap::new();
        let until = world.now.saturating_add(Duration::from_secs(20));
        while world.now < until {
            world.pass(Duration::from_millis(1));
            if world.random(400) == 0 {
                let shard = world.random(3) as usize;
                blow(&mut world, shard);
            }
            while let Some((op, outcome)) = world.host.done.pop_front() {
                let Some(at) = clerks.iter().position(|clerk| clerk.waits_for == op) else {
                    panic!("seed {seed}: {op:?} is nobody's")
                };
                if let Some(end) = clerks[at].go_on(&mut world, outcome) {
                    match end {
                        Outcome::Committed(_, Some(txn)) => {
                            assert_eq!(ends.insert(txn, true), None, "seed {seed}")
                        }
                        Outcome::Aborted { .. }
                        | Outcome::Unknown(_)
                        | Outcome::Failed(SessionError::DeadlineExceeded) => {}
                        other => panic!("seed {seed}: {other:?}"),
                    }
                    let session = clerks[at].session;
                    clerks[at] = Clerk::start(&mut world, session);
                }
            }
        }
        *world.weather() = Weather::FAIR;
        world.cut = vec![false; 3];
        announce(&mut world);
        world.pass(Duration::from_secs(40));
        assert_eq!(world.host.engine.unresolved(), 0, "seed {seed}");
        assert!(world.shards.iter().all(ReferenceShard::is_settled), "seed {seed}");
        let total: u64 = (0..ACCOUNTS)
            .map(|n| {
                let account = account(n);
                amount(world.shard_of(&account).latest(&account))
            })
            .sum();
        assert_eq!(total, ACCOUNTS as u64 * START, "seed {seed}");
        for txn in ends.keys() {
            let executed: Vec<_> =
                world.shards.iter().filter_map(|shard| shard.executed.get(txn)).collect();
            assert!(
                !executed.is_empty() && executed.iter().all(|times| **times == 1),
                "seed {seed}: {txn} was acknowledged"
            );
        }
        commits += ends.len();
    }
    assert!(commits > 20 * seeds().count(), "the storm let only {commits} transfers through");
}

#[test]
fn a_counter_raised_by_compare_and_set_counts_every_acknowledged_raise_once() {
    a_counter_counts_every_acknowledged_raise_once(0, fail_over);
}

#[test]
fn a_counter_counts_every_acknowledged_raise_once_when_its_shard_fails_over() {
    a_counter_counts_every_acknowledged_raise_once(3, fail_over);
}

/// Of so many raises, one is met by a blow, if any is.
fn a_counter_counts_every_acknowledged_raise_once(rarity: u64, blow: Blow) {
    for seed in seeds() {
        let mut world = world_with(2, EngineConfig::default(), seed);
        *world.weather() = Weather::FOUL;
        let session = world.session();
        let (mut value, mut raised, mut unknown) = (None::<Vec<u8>>, 0u64, 0u64);
        let mut unknown_ones = Vec::new();
        for _ in 0..30 {
            if rarity > 0 && world.random(rarity) == 0 {
                let shard = world.place_of(b"n");
                blow(&mut world, shard);
            }
            let next = (amount(value.as_deref()) + 1).to_le_bytes();
            let op = world.op();
            let mutation = Mutation::Put { value: &next, expires_at: Expiry::NEVER };
            let condition = value.as_deref().map_or(Condition::Absent, Condition::ValueIs);
            let deadline = world.now.saturating_add(Duration::from_millis(1500));
            let options = RequestOptions { deadline: Some(deadline), ..RequestOptions::default() };
            let step = world
                .host
                .engine
                .write_if(world.now, session, SPACE, b"n", mutation, condition, options, op);
            assert!(matches!(step, Ok(Step::Pending(_))));
            match world.wait(op) {
                Outcome::Written(..) => raised += 1,
                Outcome::Unknown(txn) => {
                    unknown += 1;
                    unknown_ones.push(txn);
                }
                Outcome::Aborted { .. }
                | Outcome::Failed(SessionError::DeadlineExceeded | SessionError::Busy { .. }) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
            value = loop {
                if let Outcome::Value(value, _) =
                    world.read_latest(session, b"n", RequestOptions::default())
                {
                    break value;
                }
                announce(&mut world);
            };
        }
        *world.weather() = Weather::FAIR;
        announce(&mut world);
        world.pass(Duration::from_secs(20));
        for txn in unknown_ones {
            let is_done = world.shards.iter().any(|shard| shard.executed.contains_key(&txn));
            let told = status(&mut world, txn);
            let is_told = matches!(told, TxnStatus::Committed(_));
            assert_eq!(is_told, is_done, "seed {seed}: {txn} is told as {told:?}");
        }
        let counted = amount(world.shard_of(b"n").latest(b"n")) - START;
        assert!(
            counted >= raised && counted <= raised + unknown,
            "seed {seed}: {raised} raised, {unknown} unknown, {counted} counted"
        );
        assert!(raised > 0, "seed {seed}");
    }
}
