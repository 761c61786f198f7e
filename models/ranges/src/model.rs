//! The steps of transactions with ranges, and what is asked of every state.

use stateright::{Model, Property};

use crate::mutation::Mutation;
use crate::world::{
    At, FIRST, Key, Mark, Phase, SHARDS, Shard, TXNS, Txn, VersionOf, Vote, World, shard_of,
};

/// What a transaction does: it reads a range, or none, and writes keys.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Both ends included.
    pub range: Option<(Key, Key)>,
    /// It stops after so many keys.
    pub limit: usize,
    /// The key, and whether it is deleted.
    pub writes: &'static [(Key, bool)],
    pub begins: &'static [At],
    pub commits: &'static [At],
}

impl Spec {
    fn writes_of(&self, shard: usize) -> impl Iterator<Item = (Key, bool)> {
        self.writes.iter().copied().filter(move |one| shard_of(one.0) == shard)
    }
}

/// A small world's bounds.
#[derive(Clone, Debug)]
pub struct Small {
    pub name: &'static str,
    pub about: &'static str,
    pub first: &'static [Key],
    pub specs: Vec<Spec>,
    pub restarts: u8,
    /// How many marks a shard remembers before the lowest one counts for the whole keyspace.
    pub marks: usize,
    pub mutation: Option<Mutation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Begin(usize, At),
    /// Nothing commits in the range at or below the snapshot any more.
    Marks(usize, usize),
    /// Pages are read from the store.
    Reads(usize, usize),
    /// The client commits by itself, or proposes a timestamp.
    Commits(usize, At),
    Validates(usize, usize),
    /// The coordinator has all votes.
    Decides(usize),
    Applies(usize, usize),
    Restarts(usize),
}

/// The highest timestamp that is tried.
const LAST: At = 9;
/// Rounds after which a transaction is given up.
const ROUNDS: u8 = 2;

impl Small {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What a transaction has read, and up to which key: as far as it was told of, at every shard.
    fn seen(&self, txn: &Txn, spec: &Spec) -> Option<((Key, Key), Vec<(Key, u8)>)> {
        let (from, to) = spec.range?;
        let mut keys: Vec<_> = txn.pages.iter().flatten().flatten().copied().collect();
        keys.sort_unstable();
        let is_cut = keys.len() >= spec.limit;
        keys.truncate(spec.limit);
        let to = keys.last().filter(|_| is_cut).map_or(to, |last| last.0);
        Some(((from, to), keys))
    }

    /// The range that a shard validates.
    fn extent(&self, txn: &Txn, spec: &Spec, shard: usize) -> Option<(Key, Key)> {
        let ((from, to), seen) = self.seen(txn, spec)?;
        if self.is(Mutation::EndsWithEachShard) {
            let last = seen.iter().filter(|one| shard_of(one.0) == shard).next_back();
            return Some((from, last?.0));
        }
        Some((from, to))
    }

    fn found_at(&self, txn: &Txn, spec: &Spec, shard: usize) -> Vec<Key> {
        let seen = self.seen(txn, spec).map(|one| one.1).unwrap_or_default();
        seen.iter().map(|one| one.0).filter(|&key| shard_of(key) == shard).collect()
    }

    fn takes_part(&self, txn: &Txn, spec: &Spec, shard: usize) -> bool {
        let reads = match self.is(Mutation::SkipsEmptyShards) {
            true => !self.found_at(txn, spec, shard).is_empty(),
            false => spec.range.is_some(),
        };
        reads || spec.writes_of(shard).next().is_some()
    }

    fn mark(&self, shard: &mut Shard, mark: Mark) {
        let is_covered = |of: &Mark| of.from <= mark.from && of.to >= mark.to && of.at >= mark.at;
        if shard.marks.iter().any(is_covered) || shard.floor >= mark.at {
            return;
        }
        if shard.marks.len() == self.marks && self.is(Mutation::ReplacesMarks) {
            shard.marks.pop();
        }
        shard.marks.push(mark);
        shard.marks.sort_unstable();
        if shard.marks.len() > self.marks {
            let lowest = shard.marks.remove(0);
            if !self.is(Mutation::DropsMarks) {
                shard.floor = shard.floor.max(lowest.at);
            }
        }
    }

    /// What others have prepared in a range, with timestamps.
    fn prepared_in(&self, shard: usize, world: &World, of: usize, range: (Key, Key)) -> Vec<At> {
        let others = world.shards[shard].prepared.iter().filter(|one| usize::from(one.0) != of);
        let inside = others.filter(|one| {
            let mut keys = self.specs[usize::from(one.0)].writes_of(shard);
            keys.any(|(key, _)| (range.0..=range.1).contains(&key))
        });
        inside.map(|one| one.1).collect()
    }

    fn validate(&self, world: &World, of: usize, shard: usize, commit: At) -> Vote {
        let (txn, spec, at) = (&world.txns[of], &self.specs[of], &world.shards[shard]);
        if let Some(range) = self.extent(txn, spec, shard) {
            let found = self.found_at(txn, spec, shard);
            let counts = |key: Key| {
                (range.0..=range.1).contains(&key)
                    && (!self.is(Mutation::ValidatesFoundKeys) || found.contains(&key))
            };
            let is_prepared = (range.0..=range.1)
                .filter(|&key| counts(key))
                .any(|key| !self.prepared_in(shard, world, of, (key, key)).is_empty());
            if is_prepared && !self.is(Mutation::NoPreparedCheck) {
                return Vote::No;
            }
            let newer = at.versions.iter().any(|one| {
                let overlooked = one.deleted && self.is(Mutation::OverlooksDeletes);
                counts(one.key) && one.at > txn.begin && !overlooked
            });
            if newer && !self.is(Mutation::OverlooksNewer) {
                return Vote::No;
            }
        }
        let mut later = 0;
        for (key, _) in spec.writes_of(shard) {
            if !self.prepared_in(shard, world, of, (key, key)).is_empty() {
                return Vote::No;
            }
            let written = at.versions.iter().filter(|one| one.key == key).map(|one| one.at).max();
            later = later.max(at.read_at(key).max(written.unwrap_or(0)));
        }
        if later >= commit { Vote::Later(later + 1) } else { Vote::Yes }
    }

    /// Whether some order of what is committed shows everybody what he has seen.
    fn is_serializable(&self, world: &World) -> bool {
        let committed: Vec<usize> = (0..world.txns.len())
            .filter(|&of| matches!(world.txns[of].phase, Phase::Committed { .. }))
            .collect();
        let mut state = [0u8; 8];
        self.first.iter().for_each(|&key| state[usize::from(key)] = FIRST);
        self.fits(world, &committed, state)
    }

    fn fits(&self, world: &World, left: &[usize], state: [u8; 8]) -> bool {
        left.is_empty()
            || left.iter().any(|&next| {
                let (txn, spec) = (&world.txns[next], &self.specs[next]);
                if let Some(((from, to), seen)) = self.seen(txn, spec) {
                    let there = (from..=to).map(|key| (key, state[usize::from(key)]));
                    if !there.filter(|one| one.1 != 0).eq(seen) {
                        return false;
                    }
                }
                let mut after = state;
                for &(key, deleted) in spec.writes {
                    after[usize::from(key)] = if deleted { 0 } else { next as u8 + 1 };
                }
                let rest: Vec<_> = left.iter().copied().filter(|&one| one != next).collect();
                self.fits(world, &rest, after)
            })
    }
}

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        assert!(self.specs.len() <= TXNS);
        let mut shards = [Shard::default(), Shard::default()];
        for &key in self.first {
            shards[shard_of(key)].put(VersionOf { key, at: 0, by: FIRST, deleted: false });
        }
        let txns = vec![Txn::new(); self.specs.len()];
        vec![World { shards, txns, restarts: self.restarts }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (of, txn) in world.txns.iter().enumerate() {
            let spec = &self.specs[of];
            match txn.phase {
                Phase::Idle => {
                    steps.extend(spec.begins.iter().map(|&at| Step::Begin(of, at)));
                }
                Phase::Reading => {
                    let reads = spec.range.is_some();
                    for shard in (0..SHARDS).filter(|_| reads) {
                        if !txn.marked[shard] {
                            steps.push(Step::Marks(of, shard));
                        }
                        let may_read = txn.marked[shard] || self.is(Mutation::ReadsBeforeMark);
                        if may_read && txn.pages[shard].is_none() {
                            steps.push(Step::Reads(of, shard));
                        }
                    }
                    let is_through = !reads
                        || (txn.marked == [true; SHARDS] && txn.pages.iter().all(Option::is_some));
                    if is_through {
                        let commits = spec.commits.iter().filter(|&&at| at > txn.begin);
                        steps.extend(commits.map(|&at| Step::Commits(of, at)));
                    }
                }
                Phase::Preparing { .. } => {
                    let mut all = true;
                    for shard in 0..SHARDS {
                        if self.takes_part(txn, spec, shard) && txn.votes[shard].is_none() {
                            steps.push(Step::Validates(of, shard));
                            all = false;
                        }
                    }
                    if all {
                        steps.push(Step::Decides(of));
                    }
                }
                Phase::Committed { .. } => {
                    for shard in 0..SHARDS {
                        let writes = spec.writes_of(shard).next().is_some();
                        if writes && !txn.applied[shard] {
                            steps.push(Step::Applies(of, shard));
                        }
                    }
                }
                Phase::Aborted => {}
            }
        }
        if world.restarts > 0 {
            steps.extend((0..SHARDS).map(Step::Restarts));
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        match step {
            Step::Begin(of, at) => {
                (world.txns[of].begin, world.txns[of].phase) = (at, Phase::Reading);
            }
            Step::Marks(of, shard) => {
                let (begin, range) = (last.txns[of].begin, self.specs[of].range?);
                let blocked = self.prepared_in(shard, last, of, range);
                if blocked.iter().any(|&at| at <= begin) && !self.is(Mutation::ReadsAround) {
                    return None;
                }
                world.txns[of].marked[shard] = true;
                let at = &mut world.shards[shard];
                if self.is(Mutation::MarksFoundKeys) {
                    for (key, _) in at.snapshot(range, begin) {
                        self.mark(at, Mark { at: begin, from: key, to: key });
                    }
                } else if !self.is(Mutation::NoMark) {
                    self.mark(at, Mark { at: begin, from: range.0, to: range.1 });
                }
            }
            Step::Reads(of, shard) => {
                let range = self.specs[of].range?;
                let page = last.shards[shard].snapshot(range, last.txns[of].begin);
                world.txns[of].pages[shard] = Some(page);
            }
            Step::Commits(of, commit) => {
                let txn = &mut world.txns[of];
                txn.phase = if self.specs[of].writes.is_empty() {
                    Phase::Committed { at: txn.begin }
                } else {
                    Phase::Preparing { commit }
                };
            }
            Step::Validates(of, shard) => {
                let Phase::Preparing { commit } = last.txns[of].phase else { return None };
                let vote = self.validate(last, of, shard, commit);
                world.txns[of].votes[shard] = Some(vote);
                if vote == Vote::Yes {
                    let (spec, at) = (&self.specs[of], &mut world.shards[shard]);
                    if spec.writes_of(shard).next().is_some() {
                        at.prepared.retain(|one| usize::from(one.0) != of);
                        at.prepared.push((of as u8, commit));
                        at.prepared.sort_unstable();
                    }
                    let extent = self.extent(&last.txns[of], spec, shard);
                    if let Some((from, to)) = extent.filter(|_| !self.is(Mutation::NoRaise)) {
                        self.mark(at, Mark { at: commit, from, to });
                    }
                }
            }
            Step::Decides(of) => {
                let txn = &mut world.txns[of];
                let Phase::Preparing { commit } = txn.phase else { return None };
                let votes: Vec<Vote> = txn.votes.iter().flatten().copied().collect();
                let later = votes.iter().filter_map(|vote| match vote {
                    Vote::Later(at) => Some(*at),
                    Vote::Yes | Vote::No => None,
                });
                txn.phase = match later.max() {
                    _ if votes.contains(&Vote::No) => Phase::Aborted,
                    None => Phase::Committed { at: commit },
                    Some(at) if at <= LAST && txn.rounds < ROUNDS => {
                        (txn.votes, txn.rounds) = ([None; SHARDS], txn.rounds + 1);
                        Phase::Preparing { commit: at }
                    }
                    Some(_) => Phase::Aborted,
                };
                if txn.phase == Phase::Aborted {
                    for shard in &mut world.shards {
                        shard.prepared.retain(|one| usize::from(one.0) != of);
                    }
                }
            }
            Step::Applies(of, shard) => {
                let Phase::Committed { at } = last.txns[of].phase else { return None };
                let on = &mut world.shards[shard];
                for (key, deleted) in self.specs[of].writes_of(shard) {
                    on.put(VersionOf { key, at, by: of as u8 + 1, deleted });
                }
                on.prepared.retain(|one| usize::from(one.0) != of);
                world.txns[of].applied[shard] = true;
            }
            Step::Restarts(shard) => {
                world.restarts -= 1;
                let on = &mut world.shards[shard];
                let served = on.marks.iter().map(|mark| mark.at).max().unwrap_or(0);
                on.marks.clear();
                if !self.is(Mutation::NoFloor) {
                    on.floor = on.floor.max(served);
                }
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is committed is serializable", |model: &Self, world: &World| {
                model.is_serializable(world)
            }),
            Property::sometimes("all commit", |_, world: &World| {
                world.txns.iter().all(|txn| matches!(txn.phase, Phase::Committed { .. }))
            }),
            Property::sometimes("somebody is refused", |_, world: &World| {
                world.txns.iter().any(|txn| txn.phase == Phase::Aborted)
            }),
        ]
    }
}
