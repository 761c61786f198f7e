//! What fences leave behind in the `mftl` store.

use timestone_store::prelude::*;
use timestone_store::{Dram, DramConfig, Figure, Mftl};
use timestone_types::HashSeed;

use crate::driver::{Driver, Got, SPACE, at, config, media, open, version};

/// What a fence hides is told from what it found absent, until the watermark has passed it.
pub(crate) fn traces_of_a_fence() -> Vec<bool> {
    let media = media(16, 16);
    let (mut driver, _) = open(&media, config());
    driver.put(b"there", 10, b"1");
    driver.put(b"deleted", 10, b"1");
    driver.delete(b"deleted", 12);
    driver.store.fence(SPACE, version(20)).expect("fence");
    driver.put(b"later", 30, b"2");
    let beside = |driver: &Driver<Mftl>, fence: u64| -> Vec<bool> {
        let keys = [&b"there"[..], b"deleted", b"later", b"never"];
        keys.iter()
            .map(|key| driver.store.is_beside_fence(driver.key(SPACE, key), version(fence)))
            .collect()
    };
    let told = beside(&driver, 20);
    assert_eq!(beside(&driver, 12), [false; 4], "no fence has that version");
    assert_eq!(driver.get(b"never", 50), Got::Absent(version(20)));
    driver.store.advance_watermark(at(19));
    driver.pumps(300);
    assert_eq!(beside(&driver, 20), told);
    driver.store.advance_watermark(at(40));
    driver.pumps(300);
    assert_eq!(driver.figure(Figure::Keys), 1, "the index has forgotten what the fence hid");
    assert_eq!(beside(&driver, 20), [false; 4], "and so nobody is told that there was nothing");
    told
}

#[test]
fn a_fence_leaves_a_trace_where_it_has_hidden_something() {
    assert_eq!(traces_of_a_fence(), [false, false, false, true]);
}

/// The watermark passes a second fence while the index is swept for the first one: half of it after so many
/// pumps.
fn keys_left_by_two_fences<S: Store>(mut driver: Driver<S>, keys: u32, half: usize) {
    let keys: Vec<Vec<u8>> = (0..keys).map(|n| n.to_be_bytes().to_vec()).collect();
    driver.store.fence(SPACE, version(10)).expect("fence");
    keys.iter().for_each(|key| driver.put(key, 20, b"hidden by the second one"));
    driver.store.fence(SPACE, version(30)).expect("fence");
    driver.put(b"later", 40, b"stays");
    driver.store.advance_watermark(at(15));
    driver.pumps(half);
    driver.store.advance_watermark(at(35));
    driver.pumps(400);
    assert_eq!(driver.count(SPACE, 50), 1);
    assert_eq!(driver.figure(Figure::Keys), 1, "the index has forgotten what both fences hid");
}

#[test]
fn a_fence_that_the_watermark_passes_during_a_sweep_is_swept_for_as_well() {
    keys_left_by_two_fences(open(&media(16, 16), config()).0, 100, 64);
    // In memory a segment has a thousand keys, and one is swept in a pump.
    let dram = Dram::new(DramConfig { seed: HashSeed(7), memory_bytes: 64 << 20 });
    keys_left_by_two_fences(Driver::new(dram), 20_000, 8);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_fence_that_leaves_no_trace_anywhere_is_found() {
    use timestone_types::planted::{Bug, with};
    let told = with(Bug::TracelessFences, traces_of_a_fence);
    assert_eq!(told, [true; 4]);
}
