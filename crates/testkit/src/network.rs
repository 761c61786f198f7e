//! A network that loses, doubles and reorders frames, all from one seed.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_types::Timestamp;
use timestone_types::random::{Dice, Seed};

/// How the network treats frames.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of 1000 frames, how many are lost.
    pub loss: u64,
    /// Of 1000 frames, how many arrive twice.
    pub doubled: u64,
    /// The shortest and the longest time that a frame takes.
    pub delay: (Duration, Duration),
}

impl Weather {
    /// Nothing is lost, and all frames take equally long.
    pub const FAIR: Self =
        Self { loss: 0, doubled: 0, delay: (Duration::from_micros(50), Duration::from_micros(50)) };
    /// Every tenth frame is lost, every tenth doubled, and they overtake each other.
    pub const FOUL: Self = Self {
        loss: 100,
        doubled: 100,
        delay: (Duration::from_micros(20), Duration::from_millis(5)),
    };
}

/// The frames in flight; `A` says to whom.
#[derive(Debug)]
pub struct Network<A> {
    /// How frames are treated that are sent from now on.
    pub weather: Weather,
    flying: BTreeMap<(Timestamp, u64), (A, Vec<u8>)>,
    flown: u64,
    dice: Dice,
}

impl<A: Copy> Network<A> {
    /// A fair one; `seed` decides what happens when it is not.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let dice = Seed(seed).derive("network", 0).dice();
        Self { weather: Weather::FAIR, flying: BTreeMap::new(), flown: 0, dice }
    }

    /// Sends a frame at `now`.
    pub fn send(&mut self, now: Timestamp, to: A, frame: &[u8]) {
        let copies = match self.dice.below(1000) {
            luck if luck < self.weather.loss => 0,
            luck if luck < self.weather.loss + self.weather.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let (least, most) = self.weather.delay;
            let spread = (most - least).as_nanos() as u64;
            let delay = least + Duration::from_nanos(self.dice.below(spread + 1));
            self.flown += 1;
            let at = (now.saturating_add(delay), self.flown);
            self.flying.insert(at, (to, frame.to_vec()));
        }
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Timestamp> {
        self.flying.keys().next().map(|key| key.0)
    }

    /// The next frame that has arrived at `now`.
    pub fn arrived(&mut self, now: Timestamp) -> Option<(A, Vec<u8>)> {
        let next = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(next.remove())
    }
}
