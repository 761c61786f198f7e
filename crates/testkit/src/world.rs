//! What is under test, some reference shards, and a network between them, stepped under one clock.

use std::time::Duration;

use timestone_types::random::{Dice, Seed};
use timestone_types::{ShardId, Timestamp, slot_of};
use timestone_wire::{
    ClockIs, Envelope, Frame, Frames, Kind, Message, StatusIs, Terminate, TxnState,
};

use crate::deposed::OldPrimary;
use crate::{Deposed, Network, ReferenceShard, Weather};

/// When worlds begin.
pub const BEGIN: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

/// What is under test: whoever asks the shards.
pub trait Host {
    /// Takes out what waits to be sent: the next shard with something, and whole frames.
    fn next_outgoing(&mut self) -> Option<(ShardId, Vec<u8>)>;
    /// Takes a batch of whole frames that came from shards.
    fn deliver(&mut self, now: Timestamp, batch: &[u8]);
    /// When [`Host::tick`] has something to do next.
    fn next_deadline(&self) -> Option<Timestamp>;
    /// Does what is due, and whatever it does once a turn.
    fn tick(&mut self, now: Timestamp);
}

/// To whom a frame flies.
#[derive(Clone, Copy, Debug)]
enum To {
    Shard(usize),
    Host,
}

/// See the module's description. The shards have the ids from 0; slot `s` belongs to shard `s`
/// modulo their number.
#[derive(Debug)]
pub struct World<H> {
    /// What is under test.
    pub host: H,
    /// The shards, by their ids.
    pub shards: Vec<ReferenceShard>,
    /// The time.
    pub now: Timestamp,
    /// Nothing gets to or from these shards.
    pub cut: Vec<bool>,
    /// Frames of an epoch before a shard's own go to the primary that it had then.
    old: Vec<Option<OldPrimary>>,
    network: Network<To>,
    dice: Dice,
}

impl<H: Host> World<H> {
    /// A world of so many shards in fair weather.
    #[must_use]
    pub fn new(host: H, shards: u16, seed: u64) -> Self {
        Self {
            host,
            shards: (0..shards).map(|raw| ReferenceShard::new(ShardId::new(raw))).collect(),
            now: BEGIN,
            cut: vec![false; usize::from(shards)],
            old: (0..shards).map(|_| None).collect(),
            network: Network::new(seed),
            dice: Seed(seed).derive("test", 0).dice(),
        }
    }

    /// How frames are treated from now on.
    pub const fn weather(&mut self) -> &mut Weather {
        &mut self.network.weather
    }

    /// A random number below `bound`, for the test's own decisions.
    pub const fn random(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    /// The number of the shard that has a key.
    #[must_use]
    pub fn place_of(&self, key: &[u8]) -> usize {
        usize::from(slot_of(key).get()) % self.shards.len()
    }

    /// The shard that has a key.
    pub fn shard_of(&mut self, key: &[u8]) -> &mut ReferenceShard {
        let shard = self.place_of(key);
        &mut self.shards[shard]
    }

    /// A key that lives on that shard, the `n`-th of them.
    #[must_use]
    pub fn key_on(&self, shard: usize, n: usize) -> Vec<u8> {
        let names = (0..).map(|i| format!("key-{i}").into_bytes());
        names.filter(|key| self.place_of(key) == shard).nth(n).unwrap()
    }

    /// Another primary takes over a shard, with every record that counts, in the next epoch. Whoever
    /// asks in the last epoch asks the old primary, of which `old` tells what it does.
    pub fn fail_over(&mut self, shard: usize, old: Deposed) {
        let new = self.shards[shard].taken_over(self.now);
        let deposed = std::mem::replace(&mut self.shards[shard], new);
        self.old[shard] = Some(OldPrimary::new(deposed, old, self.now));
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Duration) {
        let until = self.now.saturating_add(span);
        self.drive(until, |_| None::<()>);
    }

    /// Steps until `is_over` finds what it looks for, which is looked at before every step; `None`
    /// when that has not come at `until`.
    pub fn drive<T>(
        &mut self,
        until: Timestamp,
        mut is_over: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        loop {
            let found = is_over(self);
            if found.is_some() || self.now >= until {
                return found;
            }
            self.step(until);
        }
    }

    /// Goes to the next thing that happens, at most to `until`.
    fn step(&mut self, until: Timestamp) {
        self.ship();
        let waiting = self.shards.iter().filter_map(ReferenceShard::next_deadline).min();
        let next = [self.network.next_arrival(), waiting, self.host.next_deadline()];
        let next = next.into_iter().flatten().min().unwrap_or(until);
        self.now = self.now.max(next.min(until));
        while let Some((to, frame)) = self.network.arrived(self.now) {
            match to {
                To::Host => self.host.deliver(self.now, &frame),
                To::Shard(shard) => self.serve(shard, &frame),
            }
        }
        for shard in 0..self.shards.len() {
            if self.shards[shard].next_deadline().is_some_and(|at| at <= self.now) {
                let mut out = Vec::new();
                self.shards[shard].turn(self.now, &mut out);
                self.reply(shard, &out);
            }
        }
        self.host.tick(self.now);
        self.ship();
    }

    fn ship(&mut self) {
        while let Some((shard, bytes)) = self.host.next_outgoing() {
            let shard = usize::from(shard.get());
            for frame in Frames::new(&bytes) {
                if !self.cut[shard] {
                    self.network.send(self.now, To::Shard(shard), frame.unwrap().bytes());
                }
            }
        }
    }

    fn serve(&mut self, shard: usize, frame: &[u8]) {
        let parsed = Frame::parse(frame).unwrap();
        let mut out = Vec::new();
        let is_old = |old: &&mut OldPrimary| parsed.envelope().epoch <= old.epoch();
        if let Some(old) = self.old[shard].as_mut().filter(is_old) {
            old.take(self.now, &parsed, &mut out);
        } else if parsed.kind() == Kind::Terminate {
            self.terminate(shard, &parsed, &mut out);
        } else {
            self.shards[shard].take(self.now, frame, &mut out);
        }
        self.reply(shard, &out);
    }

    /// Each answer travels alone, with a reading of the shard's clock in front of it, where it has
    /// one.
    fn reply(&mut self, shard: usize, bytes: &[u8]) {
        let ahead = self.shards[shard].clock_ahead;
        let reading = ahead.map(|ahead| ClockIs::new(self.now.saturating_add(ahead), None));
        for frame in Frames::new(bytes) {
            if !self.cut[shard] {
                let mut batch = Vec::new();
                let envelope = Envelope { shard: self.shards[shard].id, ..Envelope::default() };
                reading.iter().for_each(|reading| reading.encode(&envelope, &mut batch));
                batch.extend_from_slice(frame.unwrap().bytes());
                self.network.send(self.now, To::Host, &batch);
            }
        }
    }

    /// Termination among the shards, done at once: whoever is asked freezes all and decides.
    fn terminate(&mut self, asked: usize, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let terminate = Terminate::decode(frame).unwrap();
        let txn = terminate.txn;
        let members: Vec<usize> =
            terminate.participants.iter().map(|shard| usize::from(shard.get())).collect();
        if members.iter().any(|&member| self.now < self.shards[member].serves_from) {
            // One of them answers nobody yet.
            return;
        }
        let states: Vec<TxnState> =
            members.iter().map(|&member| self.shards[member].freeze(txn)).collect();
        let committed = states
            .iter()
            .find_map(|state| if let TxnState::Committed(at) = state { Some(*at) } else { None });
        let promised = match states[0] {
            TxnState::Prepared(at)
                if states.iter().all(|state| *state == TxnState::Prepared(at)) =>
            {
                Some(at)
            }
            _ => None,
        };
        let decision = committed.or(promised);
        for member in members {
            if !matches!(self.shards[member].state(txn), TxnState::Aborted) || decision.is_some() {
                self.shards[member].decide(txn, decision);
            }
        }
        let state = decision.map_or(TxnState::Aborted, TxnState::Committed);
        let epoch = self.shards[asked].epoch;
        let envelope = frame.reply_envelope(epoch, frame.envelope().map_version);
        StatusIs { txn, state }.encode(&envelope, out);
    }
}
