//! Random lives, some of which begin without pages that the device does not read then, or go on without them: a start that
//! reads everything finds all that was stable, and nothing that was deleted.

use timestone_flash::{BlockId, MemoryMedia, PageId};
use timestone_store::{Mftl, Skimpy};
use timestone_types::KeyspaceId;

use crate::collection::{Dice, seeds};
use crate::driver::{ORDERED, SPACE, Survives, media};
use crate::sweep::{Shard, small};
use crate::unruly_erases::{LifeOfErases, spoil_checkpoints};

const PAGES_PER_BLOCK: u32 = 8;
/// So few that blocks are collected all the time.
const BLOCKS: u32 = 20;
/// The same where values are large.
const BLOCKS_FOR_LARGE: u32 = 44;
/// Further blocks where some cannot be erased.
const BLOCKS_TO_SPARE: u32 = 8;

/// One to four pages in a row that hold something; of a whole block now and then.
fn some_pages(media: &MemoryMedia, dice: &mut Dice) -> Vec<PageId> {
    let is_written = |page: &PageId| media.page(*page).is_some();
    let pages = PAGES_PER_BLOCK * BLOCKS_FOR_LARGE;
    let written: Vec<PageId> = (0..pages).map(PageId).filter(is_written).collect();
    if written.is_empty() {
        return written;
    }
    let first = written[dice.below(written.len() as u64) as usize].0;
    let (first, count) = match dice.below(8) {
        0 => (first / PAGES_PER_BLOCK * PAGES_PER_BLOCK, PAGES_PER_BLOCK),
        _ => (first, 1 + dice.below(4) as u32),
    };
    (first..(first + count).min(pages)).map(PageId).collect()
}

/// The device holds erases back, and fails some. Where blocks stay, what is found by a checkpoint is found without
/// one as well: in the end, and before each life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ErasesOf {
    SoundBlocks,
    /// Always that of one block, too.
    BadBlocks,
}

/// What is stable is found, and nothing else, without checkpoints as with them.
fn check_without_checkpoints<S: Survives>(shard: &Shard<S>, media: &MemoryMedia, what: &str) {
    let copy = media.copy();
    spoil_checkpoints(&copy, PAGES_PER_BLOCK * (BLOCKS_FOR_LARGE + BLOCKS_TO_SPARE));
    let mut shard = shard.clone();
    shard.erases = None;
    let mut driver = shard.open(&copy, small(0)).expect("it opens");
    shard.check_stable(&mut driver, what);
}

/// One life. Whether some pages could not be read.
fn live<S: Survives>(
    shard: &mut Shard<S>,
    media: &MemoryMedia,
    dice: &mut Dice,
    what: &str,
) -> bool {
    let config = small(if dice.below(3) == 0 { 1 << 16 } else { 0 });
    let misses = dice.below(2) == 0;
    for _ in 0..if misses { 1 + dice.below(3) } else { 0 } {
        media.fail_reads_of(some_pages(media, dice));
    }
    shard.may_fill = misses || shard.erases.is_some();
    let mut driver = shard.open(media, config).expect("it opens");
    assert!(misses || driver.store.unread_pages() == 0, "{what}: all pages are read");
    if dice.below(2) == 0 {
        media.clear_faults();
    }
    if misses {
        shard.check_nothing_is_made_up(&mut driver, what);
    } else {
        shard.check_stable(&mut driver, what);
    }
    let is_repeated = shard.repeat(&mut driver, media);
    if !misses {
        shard.check(&mut driver, u64::MAX, what);
    }
    if is_repeated {
        let steps = 20 + dice.below(500);
        shard.live_in(&mut driver, media, steps, dice.below(u64::MAX));
    }
    if dice.below(3) == 0 {
        driver.shut_down();
    }
    driver.pumps(12);
    if is_repeated {
        shard.note_stable(&driver);
    }
    match dice.below(3) {
        0 => media.power_cut(dice.below(1 << 30)),
        1 => media.kill(dice.below(1 << 30)),
        _ => {}
    }
    media.clear_faults();
    misses
}

/// Some lives, and a start that reads everything. In how many of the others something could not be read.
fn lives<S: Survives>(seed: u64, space: KeyspaceId, erases: ErasesOf) -> usize {
    let mut dice = Dice(seed);
    let mut shard = Shard::<S>::within(space);
    shard.mostly_large = dice.below(4) == 0;
    let spare = if erases == ErasesOf::BadBlocks { BLOCKS_TO_SPARE } else { 0 };
    let blocks = if shard.mostly_large { BLOCKS_FOR_LARGE } else { BLOCKS };
    let media = media(PAGES_PER_BLOCK, blocks + spare);
    let bad = BlockId((seed % u64::from(blocks)) as u32);
    let mut missed = 0;
    for number in 1..3 + dice.below(6) {
        if erases == ErasesOf::BadBlocks {
            check_without_checkpoints(
                &shard,
                &media,
                &format!("seed {seed}, before life {number}"),
            );
            shard.erases =
                Some(LifeOfErases { seed: dice.below(u64::MAX), bad, failures: 1, polls: 60 });
        }
        let misses = live(&mut shard, &media, &mut dice, &format!("seed {seed}, life {number}"));
        missed += usize::from(misses);
    }
    shard.may_fill = false;
    shard.erases = None;
    if erases == ErasesOf::BadBlocks {
        check_without_checkpoints(&shard, &media, &format!("seed {seed}, without checkpoints"));
    }
    shard.replay_and_check(&media, small(0), &format!("seed {seed}, in the end"));
    missed
}

fn many_lives<S: Survives>(space: KeyspaceId, erases: ErasesOf) {
    let count = seeds(if erases == ErasesOf::BadBlocks { 30 } else { 60 });
    let missed: usize = (1..count).map(|seed| lives::<S>(seed, space, erases)).sum();
    assert!(missed as u64 > count, "{missed} lives");
}

#[test]
fn nothing_is_lost_beside_pages_that_some_lives_do_not_read() {
    many_lives::<Mftl>(SPACE, ErasesOf::SoundBlocks);
}

#[test]
fn nothing_is_lost_in_order_either() {
    many_lives::<Mftl>(ORDERED, ErasesOf::SoundBlocks);
}

#[test]
fn nothing_is_lost_with_an_index_on_flash() {
    many_lives::<Skimpy>(SPACE, ErasesOf::SoundBlocks);
}

#[test]
fn nothing_comes_back_with_an_index_on_flash_from_blocks_that_cannot_be_erased() {
    many_lives::<Skimpy>(SPACE, ErasesOf::BadBlocks);
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    /// Whether a seed shows a bug.
    fn shows<S: Survives>(bug: Bug, seed: u64) -> bool {
        let lives = || lives::<S>(seed, SPACE, ErasesOf::SoundBlocks);
        let ended = std::panic::catch_unwind(|| with(bug, lives));
        set(None);
        ended.is_err()
    }

    /// Each seed is the first one that does.
    #[test]
    fn bugs_beside_pages_that_are_not_read_are_found() {
        assert!(shows::<Mftl>(Bug::ForgetsUnread, 172));
        assert!(shows::<Mftl>(Bug::ErasesUnread, 172));
        assert!(shows::<Skimpy>(Bug::MovesBesideAside, 127));
        assert!(shows::<Skimpy>(Bug::VoidsUnread, 52));
    }
}
