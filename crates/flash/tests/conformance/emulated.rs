//! The time of the emulated device, in virtual and in real time, and its faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use timestone_flash::{
    BlockId, EmulatedConfig, EmulatedMedium, Fault, FaultRates, FlashClock, FlashCompletion,
    FlashError, FlashOp, Generation, Misuse, OpKind, PageId, RejectedReason, Token,
};
use timestone_io::{Interest, PollEvents, PollToken, Poller};

use crate::driver::Driver;

const US: u64 = 1_000;

fn config(channels: u32) -> EmulatedConfig {
    EmulatedConfig {
        pages_per_block: 8,
        initial_blocks: 8,
        max_blocks: 8,
        channels,
        ..EmulatedConfig::default()
    }
}

/// A device whose clock the test moves, with every page of its blocks programmed; the clock stands
/// at a time at which every channel is free.
fn filled(config: EmulatedConfig) -> (EmulatedMedium, Driver) {
    let medium = EmulatedMedium::new(config, FlashClock::stopped());
    let mut driver = Driver::new(medium.open().unwrap());
    for block in 0..config.initial_blocks {
        driver.program(block, 0, &[block as u8; 8]);
    }
    (medium, driver)
}

/// When each operation was over, after `begin`, as the clock goes from one completion to the next.
fn times(medium: &EmulatedMedium, driver: &mut Driver, begin: u64) -> BTreeMap<Token, u64> {
    let mut times = BTreeMap::new();
    let mut done: Vec<FlashCompletion> = Vec::new();
    loop {
        driver.device.poll(&mut done);
        for done in done.drain(..) {
            done.result.unwrap();
            times.insert(done.token, medium.clock().now() - begin);
        }
        let Some(due) = medium.next_due() else { return times };
        assert!(due > medium.clock().now(), "what is due is released");
        medium.clock().advance_to(due);
    }
}

fn submit_read(driver: &mut Driver, block: u32, index: u32, pages: u32) -> Token {
    let op = driver.read_op(block, index, pages);
    driver.submit(op)
}

#[test]
fn channels_work_side_by_side_and_each_of_them_one_operation_after_the_other() {
    let (medium, mut driver) = filled(config(4));
    let begin = medium.clock().now();
    // Block 4 lies on the channel of block 0.
    let reads = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (4, 1)]
        .map(|(block, pages)| submit_read(&mut driver, block, 0, pages));
    let times = times(&medium, &mut driver, begin);
    assert_eq!(reads.map(|token| times[&token] / US), [50, 50, 50, 100, 100, 150]);
}

#[test]
fn an_operation_waits_for_an_erase_of_its_channel_only() {
    let (medium, mut driver) = filled(config(4));
    let begin = medium.clock().now();
    let token = driver.token();
    let erase = driver.submit(FlashOp::Erase { token, block: BlockId(0) });
    let behind = submit_read(&mut driver, 4, 0, 1);
    let beside = submit_read(&mut driver, 1, 0, 1);
    let times = times(&medium, &mut driver, begin);
    assert_eq!([erase, behind, beside].map(|token| times[&token] / US), [1000, 1050, 50]);
}

#[test]
fn a_busy_channel_takes_its_operations_in_turn_and_holds_up_nobody_else() {
    let (medium, mut driver) = filled(config(2));
    let begin = medium.clock().now();
    let busy: Vec<_> = (0..100).map(|at| submit_read(&mut driver, 0, at % 8, 1)).collect();
    let other: Vec<_> = (0..20).map(|at| submit_read(&mut driver, 1, at % 8, 1)).collect();
    let times = times(&medium, &mut driver, begin);
    for tokens in [busy, other] {
        for (token, place) in tokens.iter().zip(1..) {
            assert_eq!(times[token], place * 50 * US);
        }
    }
}

#[test]
fn throughput_is_bounded_by_the_channels_and_by_the_queue() {
    // Operations a second, with as many in flight as the queue takes.
    let rate = |channels, queue_depth| {
        let config = EmulatedConfig { queue_depth, ..config(channels) };
        let (medium, mut driver) = filled(config);
        let begin = medium.clock().now();
        let (mut asked, mut done) = (0, Vec::new());
        while medium.clock().now() < begin + 100_000 * US {
            let op = driver.read_op(asked % 8, 0, 1);
            match driver.try_submit(op) {
                Ok(_) => asked += 1,
                Err(RejectedReason::QueueFull) => {
                    assert_eq!(driver.device.in_flight(), queue_depth as usize);
                    driver.device.poll(&mut done);
                    medium.clock().advance_to(medium.next_due().unwrap());
                    driver.device.poll(&mut done);
                }
                Err(reason) => panic!("{reason:?}"),
            }
        }
        done.len() as u64 * 10
    };
    assert_eq!(rate(1, 128), 20_000, "one channel reads a page in 50 µs");
    assert_eq!(rate(4, 128), 80_000);
    assert_eq!(rate(4, 1), 20_000, "one at a time");
    assert_eq!(rate(8, 4), 80_000);
}

#[test]
fn what_is_not_due_is_not_released_and_the_same_calls_give_the_same_completions() {
    let run = || {
        let (medium, mut driver) = filled(config(3));
        let (mut done, mut seen) = (Vec::new(), Vec::new());
        for step in 0..200_u32 {
            for at in 0..3 {
                submit_read(&mut driver, (step * 7 + at * 3) % 8, (step + at) % 8, 1);
            }
            let now = medium.clock().now();
            driver.device.poll(&mut done);
            seen.extend(done.drain(..).map(|done| (now, done.token)));
            assert!(medium.next_due().is_none_or(|due| due > now));
            medium.clock().advance_to(now + 61 * US);
        }
        (seen, driver.device.stats())
    };
    let (seen, stats) = run();
    assert_eq!((seen, stats), run());
    assert!(stats.release_error.max_ns < 62 * US && stats.release_error.count > 500, "{stats:?}");
}

#[test]
fn pages_of_a_block_on_several_channels_are_programmed_side_by_side() {
    let medium = EmulatedMedium::new(
        EmulatedConfig { channels_per_block: 4, ..config(4) },
        FlashClock::stopped(),
    );
    let mut driver = Driver::new(medium.open().unwrap());
    driver.program(0, 0, &[1; 8]);
    assert_eq!(medium.clock().now(), 200 * US);
    driver.erase(0);
    assert_eq!(medium.clock().now(), 1_200 * US);
}

#[test]
fn in_real_time_a_sleeper_is_woken_for_each_completion() {
    let medium = EmulatedMedium::new(config(4), FlashClock::real());
    let mut driver = Driver::new(medium.open().unwrap());
    driver.program(0, 0, &[1; 8]);
    let mut poller = Poller::new().unwrap();
    let fd = driver.device.wake_fd().expect("in real time there is something to wait on");
    poller.register_fd(fd, PollToken(1), Interest::READABLE).unwrap();
    let (mut events, mut done) = (PollEvents::with_capacity(1), Vec::new());
    for round in 0..20 {
        let begin = Instant::now();
        for index in 0..4 {
            submit_read(&mut driver, 0, index, 1);
        }
        while driver.device.in_flight() > 0 {
            driver.device.poll(&mut done);
            if driver.device.in_flight() > 0 {
                poller.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
            }
        }
        let took = begin.elapsed();
        assert!(took >= Duration::from_micros(200), "four reads of one channel took {took:?}");
        assert!(took < Duration::from_secs(20), "round {round}: nobody was woken");
        assert_eq!(done.drain(..).filter(|done| done.result.is_ok()).count(), 4);
    }
    let error = driver.device.stats().release_error;
    assert_eq!(error.count, 81);
    assert!(error.p50_ns <= error.p99_ns && error.p99_ns <= error.max_ns, "{error:?}");
}

#[test]
fn a_device_in_virtual_time_has_nothing_to_wait_on() {
    let (medium, driver) = filled(config(1));
    assert!(driver.device.wake_fd().is_none());
    assert!(medium.clock().is_virtual());
}

#[test]
fn what_was_programmed_is_there_when_the_device_is_opened_again() {
    let (medium, mut driver) = filled(config(4));
    let op = driver.read_op(0, 0, 1);
    driver.submit(op);
    let mut next = Driver::new(medium.open().unwrap());
    assert!(
        driver.drain().iter().all(|done| matches!(done.result, Err(FlashError::Failed { .. }))),
        "the device before is disconnected"
    );
    assert_eq!(next.programmed(3), None);
    assert_eq!(next.read(3, 0, 8), [3; 8]);
    next.device.observe(BlockId(3), Generation(1), 8).unwrap();
}

#[test]
fn ordered_faults_strike_once() {
    let (medium, mut driver) = filled(config(4));
    medium.inject(Fault::Fail { kind: OpKind::Read, nth: 2 });
    assert_eq!(driver.read(0, 0, 1), [0]);
    let op = driver.read_op(0, 0, 1);
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "read", .. })));
    assert_eq!((driver.read(0, 0, 1), medium.pending_faults()), (vec![0], 0));
    assert!(medium.flip_bit(PageId(8), 12));
    let op = driver.read_op(1, 0, 1);
    let page = driver.run(op).unwrap().unwrap();
    assert_eq!((page[0], page[1], page[2]), (1, 1 ^ 16, 1));
    driver.erase(2);
    medium.inject(Fault::Fail { kind: OpKind::Sync, nth: 1 });
    let op = FlashOp::Sync { token: driver.token() };
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "sync", .. })));
    let op = driver.program_op(2, 0, &[1]);
    assert!(matches!(
        driver.try_submit(op),
        Err(RejectedReason::Refused(FlashError::Failed { .. }))
    ));
    assert_eq!(driver.read(0, 0, 1), [0], "reads go on");
}

#[test]
fn torn_and_misdirected_programs_are_silent() {
    let (medium, mut driver) = filled(config(4));
    driver.erase(0);
    medium.inject(Fault::TornProgram { nth: 1, keep_bytes: 4096 + 512 });
    driver.program(0, 0, &[7, 8]);
    let op = driver.read_op(0, 0, 2);
    let pages = driver.run(op).unwrap().unwrap();
    assert_eq!((pages[4095], pages[4096 + 511], pages[4096 + 512]), (7, 8, 0));
    medium.inject(Fault::MisdirectedProgram { nth: 1, pages: 8 });
    driver.program(0, 2, &[9]);
    assert_eq!((driver.read(0, 2, 1), driver.read(1, 1, 3)), (vec![0], vec![1, 9, 1]));
}

#[test]
fn a_failed_program_closes_its_block() {
    let (medium, mut driver) = filled(config(4));
    driver.erase(0);
    driver.program(0, 0, &[1]);
    medium.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    let tokens = [1, 2].map(|index| {
        let op = driver.program_op(0, index, &[9]);
        driver.submit(op)
    });
    let done = driver.outcomes();
    assert!(matches!(
        done[&tokens[0]].result,
        Err(FlashError::Medium { operation: "program", .. })
    ));
    assert!(matches!(
        done[&tokens[1]].result,
        Err(FlashError::Medium { .. } | FlashError::Misuse(Misuse::BlockFailed { .. }))
    ));
    let op = driver.program_op(0, 3, &[9]);
    assert_eq!(driver.misuse(op), Misuse::BlockFailed { block: BlockId(0) });
    assert_eq!(driver.read(0, 0, 1), [1], "what was there still is");
}

#[test]
fn a_block_with_a_failed_program_or_erase_is_bad_for_good() {
    let (medium, mut driver) = filled(config(4));
    driver.erase(0);
    driver.program(0, 0, &[1]);
    medium.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    let op = driver.program_op(0, 1, &[2]);
    driver.run(op).unwrap_err();
    medium.inject(Fault::Fail { kind: OpKind::Erase, nth: 1 });
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    driver.run(op).unwrap_err();
    for _ in 0..2 {
        for block in 0..2 {
            let op = FlashOp::Erase { token: driver.token(), block: BlockId(block) };
            assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "erase", .. })));
            assert!(driver.device.is_bad(BlockId(block)));
        }
        assert_eq!((driver.read(0, 0, 1), driver.read(1, 0, 8)), (vec![1], vec![1; 8]));
        assert_eq!((driver.device.stats().bad_blocks, driver.generation(1)), (2, 1));
        assert!(!driver.device.is_bad(BlockId(2)) && !driver.device.is_bad(BlockId(99)));
        driver = Driver::new(medium.open().unwrap());
    }
    driver.device.observe(BlockId(0), Generation(2), 1).unwrap();
    let op = driver.program_op(0, 1, &[2]);
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "program", .. })));
}

#[test]
fn a_block_endures_so_many_erases() {
    let (medium, mut driver) = filled(EmulatedConfig { endurance: Some(3), ..config(4) });
    for _ in 0..3 {
        driver.erase(5);
    }
    driver.program(5, 0, &[1]);
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(5) };
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "erase", .. })));
    assert_eq!((medium.erases(BlockId(5)), medium.erases(BlockId(4))), (3, 0));
    assert_eq!((driver.device.is_bad(BlockId(5)), driver.read(5, 0, 1)), (true, vec![1]));
    let stats = driver.device.stats();
    assert_eq!((stats.wear_min, stats.wear_max, stats.bad_blocks), (1, 4, 1));
}

#[test]
fn faults_come_at_their_rates_and_the_same_seed_gives_the_same() {
    let run = |seed| {
        let (medium, mut driver) =
            filled(EmulatedConfig { initial_blocks: 200, max_blocks: 200, ..config(8) });
        medium.set_faults(FaultRates {
            seed,
            failed_reads: 100_000,
            failed_programs: 50_000,
            failed_erases: 200_000,
            ..FaultRates::default()
        });
        let mut failed = Vec::new();
        for block in 0..200 {
            let op = driver.read_op(block, 0, 1);
            let read = driver.run(op).is_err();
            let op = FlashOp::Erase { token: driver.token(), block: BlockId(block) };
            let erase = driver.run(op).is_err();
            let op = driver.program_op(block, 0, &[1]);
            let program = !erase && driver.run(op).is_err();
            failed.push((read, erase, program));
        }
        assert_eq!(
            driver.device.stats().bad_blocks as usize,
            failed.iter().filter(|one| one.1 || one.2).count()
        );
        failed
    };
    let failed = run(1);
    assert_eq!(failed, run(1));
    assert_ne!(failed, run(2));
    let count =
        |what: fn(&(bool, bool, bool)) -> bool| failed.iter().filter(|one| what(one)).count();
    assert!((8..35).contains(&count(|one| one.0)), "of 200 reads a tenth");
    assert!((20..65).contains(&count(|one| one.1)), "of 200 erases a fifth");
    assert!((2..20).contains(&count(|one| one.2)), "of 160 programs a twentieth");
}

#[test]
fn bits_flip_with_time() {
    let (medium, mut driver) = filled(config(8));
    let rot_every = Duration::from_millis(10);
    medium.set_faults(FaultRates { seed: 3, rot_every, ..FaultRates::default() });
    let mut wrong = |medium: &EmulatedMedium| {
        let mut bits = 0;
        for block in 0..8 {
            let op = driver.read_op(block, 0, 8);
            let pages = driver.run(op).unwrap().unwrap();
            bits += pages.iter().map(|&byte| (byte ^ block as u8).count_ones()).sum::<u32>();
        }
        let now = medium.clock().now();
        (bits, now)
    };
    assert!(wrong(&medium).0 <= 1);
    medium.clock().advance_to(medium.clock().now() + 1_000_000 * US);
    let (bits, _) = wrong(&medium);
    assert!((60..150).contains(&bits), "{bits} of some hundred");
    medium.set_faults(FaultRates::default());
    medium.clock().advance_to(medium.clock().now() + 1_000_000 * US);
    assert_eq!(wrong(&medium).0, bits);
}

#[test]
fn a_full_medium_refuses_to_grow_until_there_is_room() {
    let config = EmulatedConfig { max_blocks: 16, ..config(4) };
    let (medium, mut driver) = filled(config);
    medium.set_full(true);
    assert!(matches!(driver.grow(1).unwrap_err(), FlashError::Full { .. }));
    medium.set_full(false);
    driver.grow(8).unwrap();
    driver.program(15, 0, &[15; 8]);
    assert_eq!(driver.read(15, 0, 8), [15; 8]);
}
