//! The store with its index on flash under pressure: buckets are rewritten all the time, and the power
//! goes at any operation.

use timestone_flash::{PAGE_BYTES, Unsettled};
use timestone_store::{Figure, FigureValues, MftlConfig, Skimpy};

use crate::collection::{Churn, seeds};
use crate::driver::{config, media, unruly_media};
use crate::scores::sweep_is_full as full;
use crate::sweep::{Plan, Shard, every_cut, small};

fn churn(seed: u64, blocks: u32, keys: u64, sizes: Vec<usize>) -> Churn<Skimpy> {
    let config = MftlConfig { cache_bytes: if seed % 2 == 0 { 1 << 20 } else { 0 }, ..config() };
    Churn::of(false, unruly_media(8, blocks, seed), config, seed, keys, sizes)
}

#[test]
fn a_small_device_serves_for_ever() {
    for seed in 1..seeds(8) {
        let mut churn = churn(seed, 64, 240, vec![20, 300, 700]);
        churn.run(80, seed > 2);
        assert!(churn.collected > 50, "{} blocks were collected", churn.collected);
    }
}

#[test]
fn large_values_are_collected_too() {
    for seed in 1..seeds(4) {
        let mut churn = churn(seed, 190, 25, vec![100, 5000, 40_000]);
        churn.run(40, seed > 1);
        assert!(churn.collected > 50, "{} blocks were collected (seed {seed})", churn.collected);
    }
}

fn has_collected(figures: &FigureValues) -> bool {
    figures.get(Figure::CollectedBlocks) > 5
        && figures.get(Figure::MovedRecords) > 3
        && figures.get(Figure::DroppedTombstones) > 0
        && figures.get(Figure::Checkpoints) > 1
}

fn sweep(steps: u64, plan: &Plan) -> u64 {
    let (media, shard) = (media(8, 24), Shard::<Skimpy>::default());
    let figures = shard.clone().live(&media.copy(), small(0), steps, 7);
    assert!(has_collected(&figures), "everything happens: {figures:?}");
    every_cut(
        (&media, &shard),
        plan,
        |media, shard| _ = shard.live(media, small(0), steps, 7),
        |media, mut shard, cut| shard.replay_and_check(media, small(0), &format!("{cut:?}")),
    )
}

#[test]
fn sweep_a_power_cut_at_every_operation() {
    let fates: &[Unsettled] = &[Unsettled::Lost, Unsettled::Drawn(1)];
    let cuts = if full() {
        sweep(600, &Plan { sector: 512, fates, stride: 1 })
    } else {
        sweep(300, &Plan { sector: 5 * 512, fates, stride: 1 })
    };
    assert!(cuts > 300, "{cuts} cuts");
}

#[test]
fn sweep_a_second_power_cut_at_every_operation_of_the_recovery() {
    let (media, shard) = (media(8, 24), Shard::<Skimpy>::default());
    let first = Plan { sector: 3 * PAGE_BYTES + 512, fates: &[Unsettled::Lost], stride: 9 };
    let second = Plan { sector: 2 * PAGE_BYTES + 1536, fates: &[Unsettled::Drawn(4)], stride: 1 };
    let mut cuts = 0;
    every_cut(
        (&media, &shard),
        &first,
        |media, shard| _ = shard.live(media, small(0), 150, 11),
        |media, shard, first| {
            cuts += every_cut(
                (media, &shard),
                &second,
                |media, shard| shard.recover(media, small(0)),
                |media, mut shard, cut| {
                    shard.replay_and_check(media, small(0), &format!("{first:?}, then {cut:?}"))
                },
            );
        },
    );
    assert!(cuts > 300, "{cuts} cuts");
}
