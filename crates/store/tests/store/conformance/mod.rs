//! What every store does, in groups by capability. A new store passes it by adding one line to
//! [`every_store_behaves`]; its factory says which groups are for it.

mod fences;
mod lifecycle;
mod persistence;
pub(crate) mod ranges;
mod scans;
mod single;
mod snapshots;
mod versions;
mod volatile;

use std::panic::{AssertUnwindSafe, catch_unwind};

use timestone_store::prelude::*;
use timestone_store::{DramConfig, MftlConfig, MftlFactory, SftlFactory, VftlConfig, VftlFactory};
use timestone_types::{HashSeed, KeyspaceId};

use crate::driver::{Driver, SPACE, config, media};

/// A sentence about stores, and how it is tried.
type Behaviour<S> = (&'static str, fn(&mut Driver<S>));

/// The groups that a store with such capabilities is tried by.
fn behaviours<F: Factory>() -> Vec<Behaviour<F::Store>> {
    let mut all = versions::all();
    all.extend(snapshots::all());
    all.extend(fences::all());
    all.extend(scans::all());
    all.extend(lifecycle::all());
    if F::CAPABILITIES.keeps_versions {
        all.extend(versions::of_the_past());
        all.extend(fences::of_the_past());
        all.extend(scans::of_the_past());
    } else {
        all.extend(single::all());
    }
    if F::CAPABILITIES.survives_restart {
        all.extend(persistence::all());
    } else {
        all.extend(volatile::all());
    }
    if F::CAPABILITIES.reads_ranges {
        all.extend(ranges::all());
    } else {
        all.extend(ranges::without());
    }
    if F::CAPABILITIES.answers_at_once {
        all.push(("every look-up is answered at once", answers_at_once));
    }
    all
}

pub(crate) fn run<F: Factory>(make: impl Fn() -> F) {
    run_in(SPACE, make);
}

/// The same in a keyspace of a store that has several kinds of them.
pub(crate) fn run_in<F: Factory>(space: KeyspaceId, make: impl Fn() -> F) {
    for (name, behaviour) in behaviours::<F>() {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let Ok((store, _)) = make().open() else { panic!("it opens") };
            let mut driver = Driver::new(store);
            driver.space = space;
            behaviour(&mut driver);
        }));
        assert!(outcome.is_ok(), "not true of this store: {name}");
    }
}

#[test]
fn every_store_behaves() {
    let mftl = |config: MftlConfig| MftlFactory { device: Box::new(media(16, 512).open()), config };
    run(|| mftl(config()));
    run(|| mftl(MftlConfig { cache_bytes: 4 << 20, ..config() }));
    let over = |store: MftlConfig| VftlConfig { store, ..VftlConfig::default() };
    let device = || Box::new(media(16, 600).open());
    run(|| VftlFactory { device: device(), config: over(config()) });
    let cached = || over(MftlConfig { cache_bytes: 4 << 20, ..config() });
    run(|| VftlFactory { device: device(), config: cached() });
    run(|| SftlFactory { device: device(), config: over(config()) });
    run(|| SftlFactory { device: device(), config: cached() });
    run(dram);
}

pub(crate) fn dram() -> DramConfig {
    DramConfig { seed: HashSeed(7), memory_bytes: 64 << 20 }
}

/// Lets what is in memory only reach the device, if there is one, so that both are tried.
fn twice<S: Store>(driver: &mut Driver<S>, check: impl Fn(&mut Driver<S>)) {
    check(driver);
    driver.sync();
    driver.pumps(3);
    check(driver);
}

fn answers_at_once<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.pumps(100);
    let waited = driver.now;
    assert_eq!(driver.value(b"k", 10), Some(b"v".to_vec()));
    assert!(!driver.latest(b"k").absent);
    assert_eq!(driver.now, waited, "nothing was waited for");
}
