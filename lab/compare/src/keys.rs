//! Keys, values and what is drawn: the same for every engine.
//!
//! Key `i` is 16 bytes: a mixed `i`, and `i` itself. So ranks that are asked for most are spread over
//! the order of keys. Loading goes through all indexes by a stride, so that neither the order of keys
//! nor that of ranks is the order of loading. A value begins with its index, which every get checks;
//! the rest is a slice of random bytes that nothing compresses.

use timestone_workload::{Random, Zipf};

use crate::Fault;
use crate::plan::TUPLE_BYTES;

pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const VALUE_BYTES: usize = TUPLE_BYTES as usize - KEY_BYTES;
/// Of Zipf's distribution, as YCSB has it.
pub(crate) const EXPONENT: f64 = 0.99;
/// A prime above every number of keys: a stride that meets each index once.
const STRIDE: u64 = 2_654_435_761;
const POOL_BYTES: usize = 1 << 20;

/// A key by its index.
pub(crate) fn key(index: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mixed(index).to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The finaliser of `splitmix64`: a bijection.
pub(crate) const fn mixed(index: u64) -> u64 {
    let mut mixed = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The index that is loaded `turn`th.
pub(crate) const fn loaded(turn: u64, keys: u64) -> u64 {
    (turn as u128 * STRIDE as u128 % keys as u128) as u64
}

/// Fails unless a value is that of the index.
pub(crate) fn check(index: u64, value: Option<&[u8]>) -> Result<(), Fault> {
    let value = value.ok_or_else(|| format!("key {index} is missing"))?;
    if value.len() != VALUE_BYTES || value[..8] != index.to_be_bytes() {
        return Err(format!("key {index} has another value than was put").into());
    }
    Ok(())
}

/// Makes values.
pub(crate) struct Values {
    pool: Vec<u8>,
    random: Random,
    value: [u8; VALUE_BYTES],
}

impl Values {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let pool = (0..POOL_BYTES).map(|_| random.below(256) as u8).collect();
        Self { pool, random, value: [0; VALUE_BYTES] }
    }

    /// A new value for a key.
    pub(crate) fn of(&mut self, index: u64) -> &[u8; VALUE_BYTES] {
        let from = self.random.below((POOL_BYTES - VALUE_BYTES) as u64) as usize;
        self.value.copy_from_slice(&self.pool[from..from + VALUE_BYTES]);
        self.value[..8].copy_from_slice(&index.to_be_bytes());
        &self.value
    }
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Get(u64),
    Put(u64),
}

/// Draws operations.
pub(crate) struct Draws {
    zipf: Zipf,
    random: Random,
    gets_percent: u64,
}

impl Draws {
    pub(crate) fn new(keys: u64, gets_percent: u64, seed: u64) -> Self {
        Self { zipf: Zipf::new(keys, EXPONENT), random: Random::new(seed), gets_percent }
    }

    pub(crate) fn next(&mut self) -> Next {
        let index = self.zipf.draw(&mut self.random);
        if self.random.percent(self.gets_percent) { Next::Get(index) } else { Next::Put(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_meets_every_key_once() {
        for keys in [1000, 10_000, 65_537] {
            let mut met: Vec<u64> = (0..keys).map(|turn| loaded(turn, keys)).collect();
            met.sort_unstable();
            assert!(met.into_iter().eq(0..keys));
        }
    }

    #[test]
    fn a_value_of_another_key_is_noticed() {
        let mut values = Values::new(1);
        assert!(check(7, Some(values.of(7))).is_ok());
        assert!(check(7, Some(values.of(8))).is_err());
        assert!(check(7, None).is_err());
    }
}
