//! Many transactions at once on a network that loses, doubles and reorders: nothing is lost,
//! doubled or half done.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_session::{
    Condition, EngineConfig, Mutation, OpId, RequestOptions, SessionError, SessionId, Step,
    TxnHandle,
};
use timestone_types::{Expiry, TxnId};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, world_with};
use timestone_testkit::{ReferenceShard, Weather};

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

#[test]
fn money_is_neither_made_nor_lost_in_foul_weather() {
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
                world.cut[shard] = !world.cut[shard];
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
    for seed in seeds() {
        let mut world = world_with(2, EngineConfig::default(), seed);
        *world.weather() = Weather::FOUL;
        let session = world.session();
        let (mut value, mut raised, mut unknown) = (None::<Vec<u8>>, 0u64, 0u64);
        for _ in 0..30 {
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
                Outcome::Unknown(_) => unknown += 1,
                Outcome::Aborted { .. } => {}
                other => panic!("seed {seed}: {other:?}"),
            }
            value = loop {
                if let Outcome::Value(value, _) =
                    world.read_latest(session, b"n", RequestOptions::default())
                {
                    break value;
                }
            };
        }
        *world.weather() = Weather::FAIR;
        world.pass(Duration::from_secs(20));
        let counted = amount(world.shard_of(b"n").latest(b"n")) - START;
        assert!(
            counted >= raised && counted <= raised + unknown,
            "seed {seed}: {raised} raised, {unknown} unknown, {counted} counted"
        );
        assert!(raised > 0, "seed {seed}");
    }
}
