//! Numbered keys with values of many sizes, that rounds of puts overwrite.

use timestone::blocking::Db;

pub(crate) fn key(number: u32) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

pub(crate) fn value(number: u32, round: u32) -> Vec<u8> {
    // Some are large values, whose parts lie elsewhere.
    let bytes = if number.is_multiple_of(50) { 40_000 } else { number as usize % 300 };
    vec![(number + round) as u8; bytes]
}

/// Puts so many of them.
pub(crate) fn put_all(db: &Db, keys: u32, round: u32) {
    for number in 0..keys {
        db.put(&key(number), &value(number, round)).expect("a put");
    }
}
