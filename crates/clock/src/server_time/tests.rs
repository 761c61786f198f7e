//! The servers' time in made-up worlds: an oscillator that is off, servers that are wrong within
//! what they say, and some that lie.

use proptest::prelude::*;

use super::*;
use crate::limits::{POLL_INTERVAL, RECENT};

const EPOCH: u64 = 1_770_000_000_000_000_000;
const UPTIME: u64 = 7_000_000_000_000;
const MILLI: i64 = 1_000_000;
const TRIP: Duration = Duration::from_micros(100);

/// True time, and what a machine has of it.
#[derive(Debug)]
struct World {
    /// Nanoseconds of true time since the world began, and of the oscillator.
    true_ns: u64,
    boot_ns: u64,
    /// Millionths that the oscillator runs fast.
    ppm: i64,
    own_off_ns: i64,
    own_bound: ErrorBound,
    time: ServerTime,
    last: (u64, Timestamp),
}

const VOUCHED: ErrorBound = ErrorBound { bound: Duration::from_secs(1), synchronised: true };

impl World {
    fn new(own_off_ns: i64, own_bound: ErrorBound) -> Self {
        let first = OwnReading {
            boot: BootTime::from_nanos(UPTIME),
            now: Timestamp::from_nanos(EPOCH.saturating_add_signed(own_off_ns)),
            error_bound: own_bound,
        };
        let time = ServerTime::new(&first);
        let last = (UPTIME, first.now);
        Self { true_ns: 0, boot_ns: UPTIME, ppm: 0, own_off_ns, own_bound, time, last }
    }

    fn truth(&self) -> u64 {
        EPOCH + self.true_ns
    }

    fn own(&self) -> OwnReading {
        OwnReading {
            boot: BootTime::from_nanos(self.boot_ns),
            now: Timestamp::from_nanos(self.truth().saturating_add_signed(self.own_off_ns)),
            error_bound: self.own_bound,
        }
    }

    fn now(&self) -> Timestamp {
        self.time.course().at(BootTime::from_nanos(self.boot_ns))
    }

    /// How far time is ahead of the true one.
    fn wrong_ns(&self) -> i64 {
        self.now().as_nanos() as i64 - self.truth() as i64
    }

    /// Lets true time pass, with a look now and then.
    fn pass(&mut self, span: Duration) {
        let end = self.true_ns + span.as_nanos() as u64;
        while self.true_ns < end {
            let step = (end - self.true_ns).min(POLL_INTERVAL.as_nanos() as u64);
            self.true_ns += step;
            let drift = step as i64 * self.ppm / 1_000_000;
            self.boot_ns += step.saturating_add_signed(drift);
            self.check_rate();
            self.time.look(&self.own());
        }
    }

    /// Time rises, by nine to eleven tenths of what the oscillator tells.
    fn check_rate(&mut self) {
        let (boot, at) = self.last;
        let (now, passed) = (self.now(), self.boot_ns - boot);
        assert!(now > at || passed == 0, "{now} after {at}");
        let went = now.as_nanos() - at.as_nanos();
        let slack = 2 + passed / 10;
        assert!(went.abs_diff(passed) <= slack, "time went by {went} in {passed} ns");
        self.last = (self.boot_ns, now);
    }

    fn check_bound(&self) {
        let bound = self.time.error_bound(&self.own());
        let wrong = Duration::from_nanos(self.wrong_ns().unsigned_abs());
        assert!(bound.synchronised && wrong <= bound.bound, "wrong by {wrong:?}, {bound}");
    }

    /// An exchange with a server whose clock is off by so much, and says that it may be off by
    /// `error`; the servers of the map have the numbers from 1 up to `servers`.
    fn ask(&mut self, server: u32, servers: u32, off_ns: i64, error: Option<Duration>) {
        let map: Vec<u32> = (1..=servers).collect();
        self.ask_over(server, &map, off_ns, error, [TRIP; 2]);
    }

    fn ask_over(
        &mut self,
        server: u32,
        map: &[u32],
        off_ns: i64,
        error: Option<Duration>,
        [there, back]: [Duration; 2],
    ) {
        let sent = self.now();
        self.pass(there);
        let reading = Timestamp::from_nanos(self.truth().saturating_add_signed(off_ns));
        self.pass(back);
        let server = ServerNumber(server);
        let servers: Vec<ServerNumber> = map.iter().copied().map(ServerNumber).collect();
        let received = BootTime::from_nanos(self.boot_ns);
        let exchange = Exchange { server, servers: &servers, sent, reading, error };
        self.time.hear(&exchange, received);
    }
}

const fn micros(micros: u64) -> Option<Duration> {
    Some(Duration::from_micros(micros))
}

#[test]
fn a_clock_that_is_far_off_is_left_smoothly_for_the_servers() {
    for off in [60 * MILLI, -60 * MILLI, 900 * MILLI] {
        let mut world = World::new(off, VOUCHED);
        assert_eq!(world.wrong_ns(), off);
        for _ in 0..2_000 {
            world.ask(1, 2, 20_000, micros(50));
            world.ask(2, 2, -20_000, micros(50));
            world.pass(Duration::from_millis(5));
            world.check_bound();
        }
        assert!(world.wrong_ns().unsigned_abs() < 60_000, "{}", world.wrong_ns());
        let bound = world.time.error_bound(&world.own()).bound;
        assert!(bound < Duration::from_micros(200), "{bound:?}");
        let figures = world.time.figures(&world.own(), "system");
        assert_eq!((figures.source, figures.servers), (SERVERS, 2));
        assert!((figures.offset_ns + off).abs() < 60_000, "{figures:?}");
    }
}

#[test]
fn silence_brings_the_own_clock_back_and_says_so() {
    let mut world = World::new(60 * MILLI, VOUCHED);
    for _ in 0..1_000 {
        world.ask(1, 1, 0, micros(1));
        world.pass(Duration::from_millis(5));
    }
    assert!(world.wrong_ns().abs() < MILLI);
    world.pass(RECENT - Duration::from_millis(20));
    // What is known has grown, and is still what the server said.
    assert!(world.wrong_ns().abs() < MILLI);
    assert_eq!(world.time.figures(&world.own(), "system").source, SERVERS);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.time.figures(&world.own(), "system").source, "system");
    world.check_bound();
    world.pass(Duration::from_secs(3));
    assert!((world.wrong_ns() - 60 * MILLI).abs() < MILLI, "{}", world.wrong_ns());
    world.check_bound();
}

#[test]
fn two_servers_that_contradict_each_other_are_not_believed() {
    let mut world = World::new(10 * MILLI, VOUCHED);
    for _ in 0..500 {
        world.ask(1, 2, 0, micros(10));
        world.ask(2, 2, 80 * MILLI, micros(10));
        world.pass(Duration::from_millis(5));
    }
    // The first of them was believed until the other one answered.
    assert!((world.wrong_ns() - 10 * MILLI).abs() < 10_000, "{}", world.wrong_ns());
    assert_eq!(world.time.figures(&world.own(), "system").servers, 0);
    world.check_bound();
}

#[test]
fn one_lying_server_is_outvoted_by_two_others_and_believed_by_nobody_alone() {
    let mut world = World::new(10 * MILLI, VOUCHED);
    // It is the first to answer: one of three is no majority.
    for _ in 0..200 {
        world.ask(3, 3, 80 * MILLI, micros(10));
        world.pass(Duration::from_millis(5));
        world.check_bound();
    }
    assert_eq!(world.wrong_ns(), 10 * MILLI);
    for _ in 0..1_000 {
        world.ask(3, 3, 80 * MILLI, micros(10));
        world.ask(1, 3, 30_000, micros(50));
        world.ask(2, 3, -30_000, micros(50));
        world.pass(Duration::from_millis(5));
        world.check_bound();
    }
    assert!(world.wrong_ns().abs() < 100_000, "{}", world.wrong_ns());
    assert_eq!(world.time.figures(&world.own(), "system").servers, 2);
}

#[test]
fn one_that_claims_much_moves_nobody_while_another_one_is_silent() {
    let nobody = ErrorBound { bound: Duration::from_secs(16), synchronised: false };
    for claimed in [Duration::from_secs(10), Duration::from_nanos(u64::MAX)] {
        let mut world = World::new(0, nobody);
        for _ in 0..500 {
            world.ask(1, 3, 0, micros(50));
            // What it claims is true of its own clock, and far to one side.
            world.ask(3, 3, 9_000 * MILLI, Some(claimed));
            world.pass(Duration::from_millis(5));
            world.check_bound();
        }
        assert!(world.wrong_ns().abs() < 200_000, "{}", world.wrong_ns());
        assert!(world.time.error_bound(&world.own()).bound >= claimed / 4);
    }
}

#[test]
fn an_answer_counts_for_ten_seconds_however_few_follow_it() {
    let mut world = World::new(0, VOUCHED);
    // The first one is precise and wrong; the others are seldom, and too wide to contradict it.
    world.ask(1, 1, 5 * MILLI, micros(1));
    for _ in 0..3 {
        world.pass(Duration::from_millis(4_900));
        world.ask(1, 1, 0, micros(40_000));
    }
    let truth = world.truth() as i64 - world.boot_ns as i64;
    let agreed = world.time.estimate.agreed(BootTime::from_nanos(world.boot_ns)).unwrap();
    assert!(agreed.interval.contains(truth - 35 * MILLI), "{agreed:?}, {truth}");
}

#[test]
fn servers_that_have_left_the_map_have_no_vote() {
    let mut world = World::new(0, VOUCHED);
    for server in 1..=5 {
        world.ask(server, 5, if server < 3 { 80 * MILLI } else { 0 }, micros(50));
    }
    // Two servers are left, and the others would outvote one of them.
    for server in [4, 5] {
        world.ask_over(server, &[4, 5], 0, micros(50), [TRIP; 2]);
    }
    assert_eq!(world.time.figures(&world.own(), "system").servers, 2);
    world.ask_over(6, &[5, 6], 80 * MILLI, micros(50), [TRIP; 2]);
    assert_eq!(world.time.figures(&world.own(), "system").servers, 0);
}

#[test]
fn a_server_of_the_map_that_is_silent_keeps_its_vote_when_another_one_leaves() {
    let mut world = World::new(0, VOUCHED);
    for (server, off) in [(2, 0), (1, 80 * MILLI), (3, 0)] {
        world.ask(server, 3, off, micros(50));
    }
    // The one that left was heard of later than the one that stays.
    world.ask_over(3, &[2, 3], 0, micros(50), [TRIP; 2]);
    assert_eq!(world.time.figures(&world.own(), "system").servers, 2);
}

#[test]
fn a_good_clock_is_kept_and_one_that_only_claims_to_be_is_not() {
    let exact = ErrorBound { bound: Duration::from_micros(1), synchronised: true };
    let mut world = World::new(500, exact);
    for _ in 0..1_000 {
        // The way there takes three times as long as the way back.
        world.ask_over(1, &[1], 30_000, micros(50), [TRIP * 3, TRIP]);
        world.check_bound();
    }
    assert!(world.wrong_ns().abs() <= 3_000, "{}", world.wrong_ns());
    assert!(world.time.error_bound(&world.own()).bound <= Duration::from_micros(4));
    world.own_off_ns = 60 * MILLI;
    world.pass(Duration::from_secs(2));
    for _ in 0..3_000 {
        world.ask(1, 1, 0, micros(50));
    }
    assert!(world.wrong_ns().abs() < 200_000, "{}", world.wrong_ns());
}

#[test]
fn what_nothing_vouches_for_is_followed_and_vouches_for_nothing() {
    let nobody = ErrorBound { bound: Duration::from_secs(16), synchronised: false };
    let mut world = World::new(60 * MILLI, nobody);
    for _ in 0..1_000 {
        world.ask(1, 1, 0, None);
        world.pass(Duration::from_millis(5));
    }
    assert!(world.wrong_ns().abs() < 200_000, "{}", world.wrong_ns());
    let bound = world.time.error_bound(&world.own());
    assert!(!bound.synchronised && bound.bound >= Duration::from_secs(16));
    // The own clock is vouched for, and is how far time is known.
    world.own_bound = VOUCHED;
    let bound = world.time.error_bound(&world.own());
    assert!(bound.synchronised && bound.bound >= Duration::from_secs(1));
}

#[test]
fn an_answer_of_another_age_and_times_that_no_exchange_has_are_ignored() {
    let mut world = World::new(0, VOUCHED);
    let server = ServerNumber(1);
    let received = BootTime::from_nanos(world.boot_ns);
    let later = world.now().saturating_add(Duration::from_secs(1));
    let reading = world.now();
    for (sent, reading) in [(later, reading), (Timestamp::ZERO, Timestamp::MAX)] {
        let exchange = Exchange { server, servers: &[server], sent, reading, error: None };
        world.time.hear(&exchange, received);
        world.pass(Duration::from_secs(1));
    }
    assert!(world.wrong_ns().abs() < 10, "{}", world.wrong_ns());
}

#[test]
fn a_server_whose_clock_moves_is_believed_anew() {
    let mut world = World::new(0, VOUCHED);
    for off in [0, 30 * MILLI, -30 * MILLI] {
        for _ in 0..1_000 {
            world.ask(1, 1, off, None);
            world.pass(Duration::from_millis(2));
        }
        assert!((world.wrong_ns() - off).abs() < 200_000, "{off}: {}", world.wrong_ns());
    }
}

#[test]
fn what_a_server_takes_back_is_forgotten() {
    let mut world = World::new(0, VOUCHED);
    // It does not know yet that its clock has been set.
    world.ask(1, 1, 8 * MILLI, micros(50));
    world.ask(1, 1, 8 * MILLI, micros(16_000));
    world.check_bound();
    // From then on it knows better all the time, and each answer counts.
    for off in [8 * MILLI, 4 * MILLI, 2 * MILLI, MILLI, 0] {
        world.ask(1, 1, off, micros(50 + 2 * off.unsigned_abs() / 1_000));
        world.check_bound();
    }
    let bound = world.time.error_bound(&world.own()).bound;
    assert!(bound < Duration::from_millis(1), "{bound:?}");
}

#[test]
fn what_an_oscillator_that_ran_wild_has_done_is_over_when_its_answers_are_old() {
    let mut world = World::new(0, VOUCHED);
    // As wide as this, no answer contradicts another one.
    let ask = |world: &mut World, seconds: u32| {
        for _ in 0..seconds * 20 {
            world.ask(1, 1, 0, micros(40_000));
            world.pass(Duration::from_millis(50));
        }
    };
    ask(&mut world, 5);
    world.ppm = 20_000;
    ask(&mut world, 1);
    world.ppm = 0;
    ask(&mut world, RECENT.as_secs() as u32 + 1);
    let truth = world.truth() as i64 - world.boot_ns as i64;
    let agreed = world.time.estimate.agreed(BootTime::from_nanos(world.boot_ns)).unwrap();
    assert!(agreed.interval.contains(truth - 39 * MILLI), "{agreed:?}, {truth}");
    assert!(agreed.interval.contains(truth + 39 * MILLI), "{agreed:?}, {truth}");
}

#[test]
fn more_servers_than_are_compared_leave_the_table_as_large_as_it_was() {
    let mut estimate = Estimate::new();
    let mut boot = BootTime::from_nanos(UPTIME);
    let servers: Vec<ServerNumber> = (0..100).map(ServerNumber).collect();
    for &server in &servers {
        boot = boot.after(Duration::from_millis(1));
        let exchange = Exchange {
            server,
            servers: &servers,
            sent: boot,
            reading: Timestamp::from_nanos(EPOCH + boot.as_nanos()),
            error: None,
        };
        estimate.hear(&exchange, boot);
    }
    let agreed = estimate.agreed(boot).unwrap();
    assert_eq!(agreed.servers, crate::limits::MAX_SERVERS);
    assert!(agreed.interval.contains(EPOCH as i64));
}

/// One thing that happens in a random world.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Passes { millis: u64 },
    Drifts { ppm: i64 },
    Answers { server: u32, off_permille: i64, there_us: u64, back_us: u64 },
    OwnClockMoves { off_permille: i64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => (1..400u64).prop_map(|millis| Happening::Passes { millis }),
        1 => (-200..=200i64).prop_map(|ppm| Happening::Drifts { ppm }),
        12 => (0..3u32, -1000..=1000i64, 1..3_000u64, 1..3_000u64).prop_map(
            |(server, off_permille, there_us, back_us)| Happening::Answers {
                server, off_permille, there_us, back_us
            }
        ),
        1 => (-1000..=1000i64).prop_map(|off_permille| Happening::OwnClockMoves { off_permille }),
    ]
}

/// What one of three servers claims, and whether one of the others says nothing at all.
#[derive(Clone, Copy, Debug)]
struct Liar {
    off_ns: i64,
    claimed: Duration,
    is_other_silent: bool,
}

fn liar() -> impl Strategy<Value = Liar> {
    let claimed = prop_oneof![0..1_000_000u64, 0..200_000_000u64, Just(u64::MAX)];
    (-100 * MILLI..=100 * MILLI, claimed, any::<bool>()).prop_map(
        |(off_ns, claimed, is_other_silent)| Liar {
            off_ns,
            claimed: Duration::from_nanos(claimed),
            is_other_silent,
        },
    )
}

/// Whatever honest servers, an honest own clock and an oscillator within its bound do, and one of
/// three servers claims, time is within what is said of it, rises, and is slewed.
fn time_is_honest(happenings: &[Happening], liar: Option<Liar>) {
    let own_bound = ErrorBound { bound: Duration::from_millis(90), synchronised: true };
    let error = Duration::from_micros(400);
    let mut world = World::new(0, own_bound);
    for happening in happenings {
        match *happening {
            Happening::Passes { millis } => world.pass(Duration::from_millis(millis)),
            Happening::Drifts { ppm } => world.ppm = ppm,
            Happening::OwnClockMoves { off_permille } => {
                world.own_off_ns = 90 * MILLI * off_permille / 1000;
            }
            Happening::Answers { server, off_permille, there_us, back_us } => {
                let honest = error.as_nanos() as i64 * off_permille / 1000;
                let lie = liar.filter(|_| server == 2);
                let (off, claimed) = lie.map_or((honest, error), |lie| (lie.off_ns, lie.claimed));
                let ways = [there_us, back_us].map(Duration::from_micros);
                if !(liar.is_some_and(|liar| liar.is_other_silent) && server == 1) {
                    world.ask_over(server, &[0, 1, 2], off, Some(claimed), ways);
                }
            }
        }
        world.check_bound();
        if let Some(agreed) = world.time.estimate.agreed(BootTime::from_nanos(world.boot_ns)) {
            let truth = world.truth() as i64 - world.boot_ns as i64;
            assert!(agreed.interval.contains(truth), "{agreed:?} without {truth}");
            // Most have each point between, so one of them is honest: 400 µs, up to 6 ms for an
            // exchange, and what has drifted since.
            let most = 20 * MILLI as u64;
            let apart = agreed.followed.furthest_from_ns(truth);
            assert!(apart <= most, "{agreed:?} is {apart} from {truth}");
        }
    }
}

proptest! {
    #[test]
    fn time_is_within_its_bound_rises_and_is_slewed(
        happenings in prop::collection::vec(happening(), 1..120)
    ) {
        time_is_honest(&happenings, None);
    }

    #[test]
    fn one_of_three_servers_may_claim_what_it_likes(
        happenings in prop::collection::vec(happening(), 1..120),
        liar in liar(),
    ) {
        time_is_honest(&happenings, Some(liar));
    }
}
