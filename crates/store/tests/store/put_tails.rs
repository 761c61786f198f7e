//! What puts wait for, in virtual time on an emulated device: no erase is in front of a program, and no pump
//! writes hundreds of buckets because their chains are long.
//!
//! Counts and the device's clock are asserted, never the machine's time.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_flash::{
    BlockId, DeviceStats, EmulatedConfig, EmulatedMedium, FlashClock, FlashCompletion, FlashDevice,
    FlashError, FlashOp, Generation, Geometry, Rejected, Token,
};
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig, Skimpy, SkimpyConfig};

use crate::collection::Dice;
use crate::driver::{Driver, at, config};
use crate::frugal::frugal;

/// Blocks on sixteen pairs of channels.
fn medium() -> EmulatedMedium {
    let config = EmulatedConfig {
        pages_per_block: 16,
        initial_blocks: 128,
        max_blocks: 128,
        channels: 32,
        channels_per_block: 2,
        ..EmulatedConfig::default()
    };
    EmulatedMedium::new(config, FlashClock::stopped())
}

/// What the device was asked for.
#[derive(Default)]
struct Asked {
    erasing: BTreeMap<Token, BlockId>,
    erases: u64,
    /// Programs on a channel on which something was being erased.
    behind_erases: u64,
}

/// A device whose requests are looked at.
struct Watched {
    device: Box<dyn FlashDevice>,
    asked: Arc<Mutex<Asked>>,
}

impl Watched {
    fn look_at(&self, op: &FlashOp) {
        let mut asked = self.asked.lock().expect("nobody panics with it");
        match op {
            FlashOp::Erase { token, block } => {
                asked.erases += 1;
                asked.erasing.insert(*token, *block);
            }
            FlashOp::Program { page, .. } => {
                let channel = self.device.channel(self.geometry().block_of(*page));
                assert!(channel.is_some(), "the device tells its channels");
                let is_erased = |block: &BlockId| self.device.channel(*block) == channel;
                asked.behind_erases += u64::from(asked.erasing.values().any(is_erased));
            }
            _ => {}
        }
    }
}

impl FlashDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.device.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.device.programmed(block)
    }

    fn channel(&self, block: BlockId) -> Option<u32> {
        self.device.channel(block)
    }

    fn observe(
        &mut self,
        block: BlockId,
        generation: Generation,
        programmed_pages: u32,
    ) -> Result<(), FlashError> {
        self.device.observe(block, generation, programmed_pages)
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        self.look_at(&op);
        self.device.submit(op)
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        let from = completions.len();
        let count = self.device.poll(completions);
        let mut asked = self.asked.lock().expect("nobody panics with it");
        for completion in &completions[from..] {
            asked.erasing.remove(&completion.token);
        }
        count
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }

    fn wait(&mut self, timeout: Duration) {
        self.device.wait(timeout);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.wake_fd()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

fn durable_by_pages() -> MftlConfig {
    MftlConfig {
        packing_delay: Duration::ZERO,
        partial_page_delay: Duration::from_millis(1),
        sync_interval: Duration::ZERO,
        without_log: true,
        ..config()
    }
}

/// What came of puts at a steady rate.
struct Served {
    erases: u64,
    behind_erases: u64,
    /// Buckets that one pump has written whole, at most.
    most_written: u64,
}

/// A put every 10 µs of `bytes` each, over so many keys, many more than the device has room for.
fn serve<S: Store>(
    (keys, bytes, puts): (u64, usize, u64),
    open: impl Fn(Box<dyn FlashDevice>) -> S,
    written_by: impl Fn(&S) -> u64,
) -> Served {
    let medium = medium();
    let asked = Arc::new(Mutex::new(Asked::default()));
    let device = Box::new(medium.open().expect("opens"));
    let mut driver = Driver::new(open(Box::new(Watched { device, asked: Arc::clone(&asked) })));
    let (mut dice, mut done, mut turn) = (Dice(7), 0, 0);
    let mut most_written = 0;
    let mut pump = |driver: &mut Driver<S>, turn: u64| {
        let before = written_by(&driver.store);
        driver.store.pump(at(turn * 10_000), &mut driver.events);
        most_written = most_written.max(written_by(&driver.store) - before);
        driver.events.clear();
        medium.clock().set(turn * 10_000);
    };
    while done < puts {
        turn += 1;
        assert!(turn < 4 * puts, "puts find room");
        driver.store.begin_batch(turn);
        let key = if done < keys { done } else { dice.below(keys) };
        let value = vec![done as u8; bytes];
        done += u64::from(driver.try_put(&key.to_be_bytes(), done + 1, &value).is_ok());
        driver.store.advance_watermark(at(done));
        driver.store.advance_replay_floor(at(done));
        pump(&mut driver, turn);
    }
    let asked = asked.lock().expect("nobody panics with it");
    Served { erases: asked.erases, behind_erases: asked.behind_erases, most_written }
}

fn of_mftl() -> Served {
    let open = |device| Mftl::open(device, durable_by_pages()).expect("opens").0;
    serve((6000, 440, 40_000), open, |_| 0)
}

fn of_skimpy(load: (u64, usize, u64), loose: bool) -> Served {
    let open = |device| {
        // So few that most of the log is not known to be dead before chains are long.
        let known = if loose { 100 } else { 400 };
        let config = SkimpyConfig {
            keys: load.0,
            translated_thousandths: known,
            loose,
            ..frugal(durable_by_pages())
        };
        Skimpy::open(device, config).expect("opens").0
    };
    serve(load, open, |store| store.stats().rewritten_buckets)
}

#[test]
fn nothing_is_erased_in_front_of_a_program() {
    for (store, served) in [("mftl", of_mftl()), ("skimpy", of_skimpy((6000, 440, 40_000), true))] {
        let Served { erases, behind_erases, .. } = served;
        assert!(erases > 100, "{store}: {erases} erases");
        assert_eq!(behind_erases, 0, "{store}: programs behind erases");
    }
}

/// Small values, put again and again before anything is collected: when enough is dead, most chains are long.
fn most_written_in_one_pump() -> u64 {
    let served = of_skimpy((4000, 60, 40_000), false);
    assert_eq!(served.erases, 0, "nothing is collected");
    served.most_written
}

#[test]
fn a_pump_writes_few_buckets_for_their_long_chains() {
    let most = most_written_in_one_pump();
    assert!((1..=16).contains(&most), "{most} buckets in one pump");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, with};

    use super::*;

    #[test]
    fn an_erase_in_front_of_programs_is_found() {
        assert!(with(Bug::ErasesInFrontOfPrograms, of_mftl).behind_erases > 0);
    }

    #[test]
    fn a_pump_that_writes_many_buckets_for_their_long_chains_is_found() {
        let most = with(Bug::ShortensManyAtOnce, most_written_in_one_pump);
        assert!(most > 16, "{most} buckets in one pump");
    }
}
