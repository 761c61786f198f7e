//! Primaries that lack what their device has not read.

use super::*;

/// What comes of a primary that lacks what its device has not read, and of one that dies while a
/// backup lacks that, which would be the next one otherwise.
fn beside_unread_pages() -> [Vec<ControllerOutput>; 2] {
    let mut leads = Watch::new();
    leads.loses = vec![(1, ReplicaLoss::Unread)];
    let mut follows = Watch::new();
    follows.loses = vec![(2, ReplicaLoss::Unread)];
    follows.silence(1);
    [leads.pass(100), follows.pass(100)]
}

#[test]
fn a_replica_whose_device_has_not_read_everything_leads_only_if_nobody_else_can() {
    assert_eq!(beside_unread_pages(), [[to(2, 2, &[1, 2, 3])], [to(2, 3, &[1, 2, 3])]]);
    let mut watch = Watch::new();
    watch.loses = vec![(1, ReplicaLoss::Unread), (2, ReplicaLoss::Unread)];
    assert_eq!(watch.pass(100), [to(2, 3, &[1, 2, 3])], "2 is no better");
    let mut watch = Watch::new();
    watch.loses = [1, 2, 3].map(|one| (one, ReplicaLoss::Unread)).to_vec();
    assert_eq!(watch.pass(500), [], "nobody is better");
    let mut watch = Watch::new();
    watch.loses = vec![(2, ReplicaLoss::Unread)];
    watch.silence(1);
    watch.silence(3);
    watch.heard.push((3, 1, 0));
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])], "3 does not follow");
    let mut watch = Watch::new();
    watch.loses = vec![(2, ReplicaLoss::Unread)];
    watch.claim = ReplicaClaim::HandsOver;
    assert_eq!(watch.pass(10), [to(2, 3, &[1, 2, 3])], "it is not handed over to 2");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_looks_at_no_unread_pages_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let found = with(Bug::LeadsBesideUnreadPages, beside_unread_pages);
    assert_eq!(found, [vec![], vec![to(2, 2, &[1, 2, 3])]]);
}

/// Server 1 leads, and lacks what its device has not read, as 3 does; 2 has everything. Who leads,
/// one after the other, when 2 says this in each of its epochs, and 1 serves in each of its own for
/// so long.
fn beside_one_that_fails(claim: ReplicaClaim, epochs: u32, serves_for: u64) -> Vec<u32> {
    let mut watch = with_unread_pages_at_1_and_3();
    let mut led = vec![];
    for epoch in 3..3 + epochs {
        let serves = led.last().is_none_or(|last| *last == 1);
        let wanted = watch.pass(if serves { serves_for } else { 200 });
        let [ControllerOutput::Change(change)] = wanted.as_slice() else { break };
        let primary = change.primary.get();
        assert_eq!(wanted, [to(epoch - 1, primary, &[1, 2, 3])]);
        led.push(primary);
        lead(&mut watch, epoch, primary, if primary == 1 { ReplicaClaim::Serves } else { claim });
    }
    led
}

fn with_unread_pages_at_1_and_3() -> Watch {
    let mut watch = Watch::new();
    watch.loses = vec![(1, ReplicaLoss::Unread), (3, ReplicaLoss::Unread)];
    watch.heard[2].2 = 9;
    watch
}

#[test]
fn one_that_starts_again_and_again_leads_only_if_one_with_unread_pages_cannot() {
    let led = beside_one_that_fails(ReplicaClaim::NeedsEpoch, 4, 9_000);
    assert_eq!(led, [2, 2, 1], "the first time may be a restart");
}

#[test]
fn one_that_could_not_lead_is_tried_again_after_a_pause_that_grows() {
    for claim in [ReplicaClaim::CannotLead, ReplicaClaim::HearsNobody] {
        assert_eq!(beside_one_that_fails(claim, 8, 9_000), [2, 1], "{claim:?}");
        assert_eq!(beside_one_that_fails(claim, 8, 19_000), [2, 1, 2, 1], "{claim:?}");
        assert_eq!(beside_one_that_fails(claim, 8, 39_000), [2, 1, 2, 1, 2, 1], "{claim:?}");
    }
    let led = beside_one_that_fails(ReplicaClaim::NeedsEpoch, 8, 19_000);
    assert_eq!(led, [2, 2, 1, 2, 2, 1]);
}

#[test]
fn one_that_dies_whenever_it_leads_is_tried_again_after_a_pause_that_grows() {
    let mut watch = with_unread_pages_at_1_and_3();
    let mut waits = Vec::new();
    for epoch in [3, 5, 7, 9] {
        let since = watch.now;
        assert_eq!(watch.pass(60_000), [to(epoch - 1, 2, &[1, 2, 3])]);
        waits.push((watch.now - since) / 1000);
        lead(&mut watch, epoch, 2, ReplicaClaim::None);
        let dead = watch.heard.remove(1);
        assert_eq!(watch.pass(300), [to(epoch, 1, &[1, 2, 3])], "it is lost");
        watch.heard.insert(1, dead);
        lead(&mut watch, epoch + 1, 1, ReplicaClaim::Serves);
    }
    assert_eq!(waits, [0, 9, 19, 39]);
}

#[test]
fn one_that_has_led_for_a_while_is_not_waited_for() {
    let mut watch = with_unread_pages_at_1_and_3();
    for epoch in [3, 5, 7] {
        assert_eq!(watch.pass(100), [to(epoch - 1, 2, &[1, 2, 3])]);
        lead(&mut watch, epoch, 2, ReplicaClaim::Serves);
        assert_eq!(watch.pass(11_000), []);
        // 2 was away for a moment.
        lead(&mut watch, epoch + 1, 1, ReplicaClaim::Serves);
    }
}

#[test]
fn a_try_that_the_master_refused_is_none() {
    let mut watch = Watch::new();
    watch.loses = vec![(1, ReplicaLoss::Unread)];
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])]);
    assert_eq!(watch.step_answered(ControllerInput::Refused(ShardId::ZERO)), []);
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])]);
}

/// The master has given a shard this primary in this epoch, which all have installed; and if the
/// primary serves, that is confirmed.
fn lead(watch: &mut Watch, epoch: u32, primary: u32, claim: ReplicaClaim) {
    let mut entry = watch.control.map.shards()[0].clone();
    (entry.epoch, entry.primary) = (Epoch::new(epoch), ServerId::new(primary));
    watch.claim = ReplicaClaim::None;
    assert_eq!(watch.changed(&entry, false), []);
    watch.heard.iter_mut().take(3).for_each(|(_, installed, _)| *installed = epoch);
    watch.claim = claim;
    if claim.serves() {
        let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: entry.epoch };
        assert_eq!(watch.pass(200), [confirm]);
        assert_eq!(watch.changed(&entry, true), []);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_tries_one_that_fails_again_at_once_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let run = || beside_one_that_fails(ReplicaClaim::CannotLead, 8, 9_000);
    assert_eq!(with(Bug::TriesAgainAtOnce, run), [2, 1, 2, 1, 2, 1, 2, 1]);
}
