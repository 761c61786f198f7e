//! Runs that last go on under the next number, in the directory and at the master.

use timestone_wire::MasterAsk;

use super::replicated::{Shared, master_of_three};
use super::*;

/// A minute.
const MINUTE: u64 = 60_000_000_000;
const MILLI: u64 = 1_000_000;

/// A node whose run is the first, and its manifest.
fn node(
    link: MasterLink,
    map: &ShardMap,
    interval: u64,
) -> (ManualDriver<Event>, Arc<Manifest>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let manifest = directory(folder.path()).1;
    manifest.raise_run(Run { number: 1, tag: 1 }).unwrap();
    let parts = NodeParts {
        net: Some(StageId::new(9)),
        run_interval: std::time::Duration::from_nanos(interval),
        ..parts(Arc::new(map.clone()), link, Arc::clone(&manifest))
    };
    let stages = vec![Box::new(NodeStage::new(parts)) as Box<dyn Stage<Event>>];
    (ManualDriver::new(stages, Timestamp::from_nanos(1), 100), manifest, folder)
}

fn turn_at(driver: &mut ManualDriver<Event>, nanos: u64) {
    driver.set_now(Timestamp::from_nanos(nanos));
    driver.turn();
}

#[test]
fn a_run_that_lasts_goes_on_under_the_next_number_until_another_process_has_begun_one() {
    let mut master = Shared::new(master_of_three());
    let map = master.control().map;
    let (mut driver, manifest, _folder) =
        node(MasterLink::shared(Box::new(master.clone())), &map, MINUTE);
    let known = |master: &Shared| master.control().last_run(DirectoryId(1));
    turn_at(&mut driver, 1);
    turn_at(&mut driver, MINUTE);
    assert_eq!((manifest.run().number, known(&master).number), (1, 1));
    for number in 2..4 {
        turn_at(&mut driver, (number - 1) * MINUTE + 1);
        let run = Run { number, tag: 1 };
        assert_eq!((manifest.run(), known(&master)), (run, run));
    }
    let other = Run { number: 4, tag: 9 };
    let mut command = super::replicated::registering(1);
    if let MasterCommand::RegisterServer { run, .. } = &mut command {
        *run = other;
    }
    timestone_cluster::MasterService::execute(&mut master, command).unwrap();
    for late in 3..9 {
        turn_at(&mut driver, late * MINUTE + 1);
        assert_eq!(known(&master), other);
        assert!(!manifest.run().follows(other), "the next start is refused");
    }
}

#[test]
fn a_master_in_another_process_is_told_the_same_number_until_it_answers() {
    let map = master_of_three().map().clone();
    let block = ClientIdBlock { first: ClientId::new(1), count: 10 };
    let (mut driver, manifest, _folder) = node(MasterLink::remote(far(), block), &map, 100 * MILLI);
    let link = dialled(&mut driver);
    let told = |driver: &mut ManualDriver<Event>| {
        let mut told = None;
        while let Some((_, event)) = driver.take_sent() {
            let Event::FrameBatch(batch) = event else { continue };
            for frame in Frames::new(&batch.bytes).map(Result::unwrap) {
                let Ok(ask) = MasterAsk::decode(&frame) else { continue };
                if let Ok(MasterCommand::RaiseRun { run, .. }) = ask.master_command() {
                    told = Some((frame.envelope().request, run));
                }
            }
        }
        told
    };
    let second = Run { number: 2, tag: 1 };
    turn_at(&mut driver, 100 * MILLI + 1);
    assert_eq!(told(&mut driver).expect("it is due").1, second);
    assert_eq!(manifest.run(), second);
    turn_at(&mut driver, 200 * MILLI + 1);
    let (request, run) = told(&mut driver).expect("it was not answered");
    assert_eq!(run, second);
    let (mut answer, mut bytes) = (Vec::new(), Vec::new());
    MasterAnswer::Raised.encode(&mut answer);
    MasterReply { answer: &answer }
        .encode(&Envelope { request, ..Envelope::default() }, &mut bytes);
    driver.send(StageId::new(0), Event::FrameBatch(FrameBatch::new(link, bytes))).unwrap();
    turn_at(&mut driver, 250 * MILLI);
    turn_at(&mut driver, 349 * MILLI);
    assert_eq!((told(&mut driver), manifest.run()), (None, second), "it has heard of it");
    turn_at(&mut driver, 351 * MILLI);
    assert_eq!(told(&mut driver).expect("it is due").1.number, 3);
}
