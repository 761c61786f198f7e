//! Faults: what goes wrong on purpose, how often, for how long, and how it is undone.

mod away;
mod kind;
mod strikes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_flash::{Fault as FlashFault, OpKind, PageId};
use timestone_seda::simulated::VirtualTime;

pub(crate) use self::away::Hardship;
pub use self::kind::{FaultKind, FaultPlan};
use self::strikes::{between_sides, forget_connection, kill};
use crate::network::{LinkQuality, ProcessId};
use crate::process::{Process, Role};
use crate::world::{World, WorldConfig};
use timestone_types::random::{Dice, Seed};

/// What undoes a fault.
#[derive(Clone, Copy, Debug)]
enum Undo {
    Heal(ProcessId, ProcessId),
    /// With whether it is cut off from the master as well.
    Rejoin(ProcessId, Side, bool),
    /// The two sides reach each other again: who was on which follows from the seed.
    Unite(ProcessId, Seed),
    Network,
    /// The master answers again.
    Master,
    Disk(ProcessId),
    Clock(ProcessId),
    /// The clock is set right while the server is down.
    ClockAndReboot(ProcessId),
    Reboot(ProcessId),
    Room(ProcessId),
    Memory(ProcessId),
    /// A server that was told to stop should have ended by now. It is that life's.
    StopBound(ProcessId, u64),
    /// The supervisor of a server that was told to stop waits no longer. It is that life's.
    StopTimeout(ProcessId, u64),
    /// It reads again.
    Reader(ProcessId),
    /// The client with the late clock dies, and its successor has the right time.
    LateClock(Late),
    /// Its disks no longer lie. With a seed, they lose power before that.
    Truth(ProcessId, Option<Seed>),
}

impl Undo {
    /// Whether what it undoes concerns everybody.
    const fn is_of_all(&self) -> bool {
        matches!(self, Self::Network | Self::Master)
    }
}

/// From whom a server is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Everybody,
    Servers,
    Clients,
    Nobody,
}

impl Side {
    /// Those of it, without this process.
    fn of(self, world: &World, id: ProcessId) -> Vec<ProcessId> {
        let is_meant = |other: &&Process| match self {
            Self::Everybody => true,
            Self::Servers => other.is_server(),
            Self::Clients => !other.is_server(),
            Self::Nobody => false,
        };
        let others = world.processes.iter().filter(|other| other.id != id);
        others.filter(is_meant).map(|other| other.id).collect()
    }
}

/// A client that lives with a late clock.
#[derive(Clone, Copy, Debug)]
struct Late {
    id: ProcessId,
    life: u64,
    since: VirtualTime,
    /// How often it had been told of a late clock before.
    told: u64,
}

/// Injects faults into a world.
#[derive(Debug)]
pub(crate) struct Injector {
    plans: Vec<(FaultKind, FaultPlan, Dice)>,
    seed: Seed,
    undos: Vec<Option<Undo>>,
    fired: BTreeMap<FaultKind, u64>,
    jump: Duration,
    /// Whether enough servers stay well for all shards to be served.
    keeps_enough: bool,
    /// A copy of what was acknowledged was taken, and not every replica has had everything since.
    lacks_a_copy: bool,
    strikes: u64,
    /// Servers that did not come to their end although nothing was in their way.
    pub(crate) slow_stops: Vec<String>,
    /// Clients that ever had a clock that is too late to be believed.
    late: BTreeSet<ProcessId>,
    /// Clients that nobody told that their clocks are late, although nothing was in the way.
    pub(crate) untold: Vec<String>,
}

/// A server that was told to stop is killed after this long (docs/operating.md).
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// A server ends within this time of being told to, whatever other processes do: what it waits for
/// at most, one after the other (answers 3 s, decisions 2 s, without a log 5 s; with several copies
/// 4 s for others to take over), and as much again for what takes time of its own.
const STOP_BOUND: Duration = Duration::from_secs(12);

/// The furthest that a glitch sets a server's clock.
const GLITCH: Duration = Duration::from_secs(300);
/// The same, forward, while the server is being restarted: it takes that for true, and what it
/// writes counts when true time is there.
const RESTART_GLITCH: Duration = Duration::from_secs(5);
/// The same where there are other servers. Those that are further apart than clocks may be refuse
/// each other's transactions until both have slewed.
const NEAR_GLITCH: Duration = Duration::from_millis(200);

/// How far ahead a server's clock may be when it starts. It takes that for true, for it has nothing
/// to tell it by; what Redis clients let expire goes by as much earlier.
pub(crate) const fn most_ahead_at_start(world: &WorldConfig) -> Duration {
    let members = &world.members;
    if members.servers == 1 && members.redis_clients == 0 { RESTART_GLITCH } else { NEAR_GLITCH }
}

/// How far behind a client's clock is that is too late to be believed: from a bit more than is
/// allowed on.
const LATE: [Duration; 2] = [Duration::from_millis(10_500), Duration::from_secs(60)];
/// Together with what a server's clock may be ahead by, a clock that is set back by as much is
/// late.
const FAR_JUMP: Duration = Duration::from_secs(4);
/// A client that works with such a clock is told so within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// Tokens of looks that belong to the injector begin here; undoing begins at the other one.
pub(crate) const FAULT_TOKENS: u64 = 1 << 32;
const UNDO_TOKENS: u64 = 1 << 33;

impl Injector {
    pub(crate) fn new(plans: &BTreeMap<FaultKind, FaultPlan>, jump: Duration, seed: Seed) -> Self {
        let plans = plans
            .iter()
            .map(|(kind, plan)| (*kind, *plan, seed.derive(kind.name(), 0).dice()))
            .collect();
        Self {
            plans,
            seed,
            undos: Vec::new(),
            fired: BTreeMap::new(),
            jump,
            keeps_enough: false,
            lacks_a_copy: false,
            strikes: 0,
            slow_stops: Vec::new(),
            late: BTreeSet::new(),
            untold: Vec::new(),
        }
    }

    /// Whether enough servers stay well for all shards to be served.
    pub(crate) fn keeping_enough(self, keeps_enough: bool) -> Self {
        Self { keeps_enough, ..self }
    }

    pub(crate) const fn fired(&self) -> &BTreeMap<FaultKind, u64> {
        &self.fired
    }

    /// A client that was told that its clock is too late, and whose clock was never that late.
    pub(crate) fn told_wrongly(&self, world: &World) -> Option<String> {
        // Clocks that are set far enough by other faults look late as well.
        let may_be = self.jump >= FAR_JUMP;
        let others =
            world.processes.iter().filter(|process| !may_be && !self.late.contains(&process.id));
        others
            .map(|process| process.id)
            .find(|id| told_late(world, *id) > 0)
            .map(|id| world.processes[id].name.clone())
    }

    /// Whether no fault is under way.
    pub(crate) fn is_calm(&self, world: &World) -> bool {
        // Who does not read is in nobody's way.
        let is_left = |undo: &Undo| {
            !matches!(undo, Undo::StopTimeout(..) | Undo::StopBound(..) | Undo::Reader(_))
        };
        let is_well = |process: &Process| {
            process.is_gone || process.is_up() && !process.paused && process.planned_crash.is_none()
        };
        !self.undos.iter().flatten().any(is_left)
            && world.processes.iter().all(|process| is_well(process) && process.leaving.is_none())
    }

    /// Plans the first fault of each kind.
    pub(crate) fn begin(&mut self, world: &mut World) {
        for index in 0..self.plans.len() {
            self.plan_next(world, index);
        }
    }

    fn plan_next(&mut self, world: &mut World, index: usize) {
        let (_, plan, dice) = &mut self.plans[index];
        let every = plan.every.as_nanos() as u64;
        let at = world.now().after(Duration::from_nanos(every / 4 + dice.below(every * 3 / 2 + 1)));
        world.look_at(at, FAULT_TOKENS + index as u64);
    }

    /// Something of it is due. `on`: whether faults still strike.
    pub(crate) fn look(&mut self, world: &mut World, token: u64, on: bool) {
        if token >= UNDO_TOKENS {
            if let Some(undo) =
                self.undos.get_mut((token - UNDO_TOKENS) as usize).and_then(Option::take)
            {
                self.undo(world, undo);
            }
            return;
        }
        let index = (token - FAULT_TOKENS) as usize;
        if !on || index >= self.plans.len() {
            return;
        }
        self.lacks_a_copy = self.lacks_a_copy && !world.is_whole();
        let (kind, plan, mut dice) = self.plans[index].clone();
        let length = plan.lasting.as_nanos() as u64;
        let length = Duration::from_nanos(length / 2 + dice.below(length + 1));
        let struck = self.strike(world, kind, length, &mut dice);
        if struck {
            world.incidents.may_be_late |= kind.delays_messages();
            self.lacks_a_copy |= kind.takes_a_copy();
            *self.fired.entry(kind).or_default() += 1;
        }
        self.plans[index].2 = dice;
        self.plan_next(world, index);
    }

    /// Ends all faults at once.
    pub(crate) fn end_all(&mut self, world: &mut World) {
        for place in 0..self.undos.len() {
            // Who was told to stop may take as long as ever, and no longer: others may need it to
            // come to their own ends.
            let ended = self.undos[place]
                .take_if(|undo| !matches!(undo, Undo::StopTimeout(..) | Undo::StopBound(..)));
            ended.into_iter().for_each(|undo| self.undo(world, undo));
        }
        world.heal(None);
        world.network.set_quality(LinkQuality::default());
        for id in world.processes.ids() {
            world.processes[id].clock.repair();
            world.processes[id].planned_crash = None;
            world.processes.media(id).iter().for_each(|(_, medium)| medium.clear_faults());
            world.start_at(id, world.now());
        }
    }

    fn undo_at(&mut self, world: &mut World, length: Duration, undo: Undo) {
        self.undos.push(Some(undo));
        let at = world.now().after(length);
        world.look_at(at, UNDO_TOKENS + self.undos.len() as u64 - 1);
    }

    fn undo(&mut self, world: &mut World, undo: Undo) {
        match undo {
            Undo::Heal(from, to) => world.heal(Some((from, to))),
            Undo::Rejoin(id, side, from_master) => {
                if from_master {
                    world.cut_from_master(id, false);
                }
                for other in side.of(world, id) {
                    world.heal(Some((id, other)));
                    world.heal(Some((other, id)));
                }
            }
            Undo::Unite(id, seed) => {
                world.cut_from_master(id, false);
                for (from, to) in between_sides(world, id, seed) {
                    world.heal(Some((from, to)));
                }
            }
            Undo::Network => world.network.set_quality(LinkQuality::default()),
            Undo::Master => world.set_master_gone(None),
            Undo::Disk(id) => {
                set_slowness(world, id, 1);
                world.hinder(id, false);
            }
            Undo::Clock(id) => world.processes[id].clock.repair(),
            Undo::ClockAndReboot(id) => {
                world.processes[id].clock.repair();
                self.reboot(world, id);
            }
            Undo::Reboot(id) => {
                world.processes.disks(id).iter().for_each(|disk| disk.fail_writes(false));
                world.processes.media(id).iter().for_each(|(_, medium)| medium.clear_faults());
                world.hinder(id, false);
                self.reboot(world, id);
            }
            Undo::StopBound(id, life) => self.note_slow_stop(world, id, life),
            Undo::StopTimeout(id, life) => self.stop_by_force(world, id, life),
            Undo::Truth(id, cut) => {
                if let Some(seed) = cut {
                    world.kill(id, true, seed);
                    world.start_at(id, world.now().after(Duration::from_millis(10)));
                }
                set_lying(world, id, false);
            }
            Undo::Reader(id) => set_unreading(world, id, false),
            Undo::LateClock(late) => self.end_late(world, late),
            Undo::Room(id) => set_full(world, id, false),
            Undo::Memory(id) => world.press_memory(id, None),
        }
    }

    /// A server does not come to its end: its supervisor kills it.
    fn stop_by_force(&mut self, world: &mut World, id: ProcessId, life: u64) {
        let process = &world.processes[id];
        if process.lives == life && process.leaving.is_some() {
            self.reboot(world, id);
        }
    }

    /// A server has not come to its end in time.
    fn note_slow_stop(&mut self, world: &World, id: ProcessId, life: u64) {
        let process = &world.processes[id];
        let is_slow = process.lives == life && process.leaving.is_some();
        if is_slow && self.fired.keys().all(|kind| kind.holds_up_no_stop()) {
            self.slow_stops.push(process.name.clone());
        }
    }

    fn reboot(&mut self, world: &mut World, id: ProcessId) {
        self.strikes += 1;
        let seed = self.seed.derive("reboot", self.strikes);
        world.kill(id, false, seed);
        world.start_at(id, world.now().after(Duration::from_millis(10)));
    }

    /// Sets the clock of a server's machine wrong. Half of the time it is being restarted
    /// meanwhile, and half of those times again when the clock is set right.
    fn glitch(&mut self, world: &mut World, id: ProcessId, length: Duration, dice: &mut Dice) {
        let (forward, restarts, again) = (dice.chance(0.5), dice.chance(0.5), dice.chance(0.5));
        let most = if forward && restarts { most_ahead_at_start(&world.config) } else { GLITCH };
        // Of every size, from less than a step to minutes.
        let most = most.as_nanos() as u64 >> dice.below(12);
        let by = dice.between(most / 2, most) as i64;
        let by = if forward { by } else { -by };
        let words = if restarts {
            "its clock is set by {by} ns while it restarts"
        } else {
            "its clock is set by {by} ns"
        };
        world.trace.note(world.now(), id, &words.replace("{by}", &by.to_string()));
        world.processes[id].clock.jump(by);
        if restarts {
            self.reboot(world, id);
        }
        self.undo_at(
            world,
            length,
            if restarts && again { Undo::ClockAndReboot(id) } else { Undo::Clock(id) },
        );
    }

    /// A client's successor begins with a clock that is behind by more than anybody believes.
    fn begin_late(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        seed: Seed,
        dice: &mut Dice,
    ) {
        let [least, most] = LATE.map(|late| late.as_nanos() as u64);
        let by = dice.between(least, most);
        world.kill(id, false, seed);
        let process = &world.processes[id];
        process.clock.repair();
        process.clock.jump(-(by as i64));
        // It counts its lives when they end, and when they begin.
        let (life, told) = (process.lives + 1, told_late(world, id));
        self.late.insert(id);
        let since = world.now().after(Duration::from_millis(10));
        world.trace.note(
            world.now(),
            id,
            &format!("its next life begins with a clock that is {by} ns behind"),
        );
        world.start_at(id, since);
        self.undo_at(world, length, Undo::LateClock(Late { id, life, since, told }));
    }

    fn end_late(&mut self, world: &mut World, late: Late) {
        let process = &world.processes[late.id];
        let lived = process.lives == late.life && world.now().since(late.since) >= TOLD_WITHIN;
        let alone = self.fired.keys().all(|kind| *kind == FaultKind::LateClock);
        if lived && alone && told_late(world, late.id) == late.told {
            self.untold.push(process.name.clone());
        }
        process.clock.repair();
        self.reboot(world, late.id);
    }

    /// One of the processes that are up and pass the test.
    fn target(
        world: &World,
        dice: &mut Dice,
        wanted: impl Fn(&Process) -> bool,
    ) -> Option<ProcessId> {
        let up: Vec<ProcessId> = world
            .processes
            .iter()
            .filter(|process| process.is_up() && !process.paused && wanted(process))
            .map(|process| process.id)
            .collect();
        dice.pick(&up).copied()
    }

    /// Whether there was something to strike.
    fn strike(
        &mut self,
        world: &mut World,
        kind: FaultKind,
        length: Duration,
        dice: &mut Dice,
    ) -> bool {
        self.strikes += 1;
        let seed = self.seed.derive("strike", self.strikes);
        let until = world.now().after(length);
        let is_client = |process: &Process| !process.is_server();
        let is_primary = |process: &Process| world.is_primary(process);
        let wanted: &dyn Fn(&Process) -> bool = match kind {
            FaultKind::ClientKill | FaultKind::ClientPause => &is_client,
            FaultKind::ClientLeave | FaultKind::LateClock => &Process::is_native,
            FaultKind::StalledReader => &Process::is_redis,
            FaultKind::CutFromServers | FaultKind::CutFromClients | FaultKind::Split => &is_primary,
            FaultKind::Cut
            | FaultKind::CutOneWay
            | FaultKind::ClockJump
            | FaultKind::ClockDrift
            | FaultKind::ClockStop => &|_| true,
            _ => &Process::is_server,
        };
        let Some(id) = Self::target(world, dice, wanted) else { return false };
        if !self.may_strike(world, kind, id) {
            return false;
        }
        match kind {
            FaultKind::Kill | FaultKind::ClientKill => kill(world, id, false, seed, until),
            FaultKind::PowerCut => kill(world, id, true, seed, until),
            FaultKind::ClientLeave => return world.leave(id, until),
            FaultKind::Stop => return self.stop(world, id, until),
            FaultKind::LyingSync => {
                let cut = dice.chance(0.5).then(|| seed.derive("lie", 0));
                self.lie(world, id, length, cut);
            }
            FaultKind::RegionLoss => return self.lose_region(world, until, seed, dice),
            FaultKind::Pause | FaultKind::ClientPause => world.pause(id, until),
            FaultKind::Cut => return self.cut(world, id, true, length, dice),
            FaultKind::CutOneWay => return self.cut(world, id, false, length, dice),
            FaultKind::Isolate => self.isolate(world, id, (Side::Everybody, true), length),
            FaultKind::MasterCut if world.master.is_some() => {
                self.isolate(world, id, (Side::Nobody, true), length);
            }
            FaultKind::MasterCut => {
                self.isolate(world, ProcessId(0), (Side::Everybody, true), length);
            }
            FaultKind::CutFromServers => {
                // A master may be on either side.
                let from_master = seed.derive("master", 0).dice().chance(0.5);
                self.isolate(world, id, (Side::Servers, from_master), length);
            }
            FaultKind::CutFromClients => {
                self.isolate(world, id, (Side::Clients, false), length);
            }
            FaultKind::Split => self.split(world, id, seed, length),
            FaultKind::MasterGone => return self.lose_master(world, length, dice),
            FaultKind::Death => world.end_for_good(id, seed),
            FaultKind::LostDirectory => world.lose_disks(id, true, seed, until),
            FaultKind::LostDevices => world.lose_disks(id, false, seed, until),
            FaultKind::OlderCopy => return world.copy_or_put_back(id, seed, until),
            FaultKind::Break => return world.break_connection(dice),
            FaultKind::BlackHole => return forget_connection(world, dice),
            FaultKind::Loss => {
                let loss = 0.02 + 0.1 * (dice.below(100) as f64 / 100.0);
                self.worsen_network(world, id, length, LinkQuality { loss, slowness: 1 });
            }
            FaultKind::SlowNetwork => {
                let slowness = dice.between(5, 100) as u32;
                self.worsen_network(world, id, length, LinkQuality { loss: 0.0, slowness });
            }
            FaultKind::SlowDisk => self.slow_disks(world, id, length, dice.between(5, 200) as u32),
            FaultKind::LogFailure => self.fail_log(world, id, length),
            FaultKind::FlashFailure | FaultKind::ReadFailure => {
                return self.fail_flash(world, id, kind, length, dice);
            }
            FaultKind::Rot
            | FaultKind::Misdirected
            | FaultKind::TornWrite
            | FaultKind::LostWrite => {
                return damage(world, id, kind, dice);
            }
            FaultKind::Full => self.fill_disks(world, id, length),
            FaultKind::MemoryPressure => self.press_memory(world, id, length, dice),
            FaultKind::StalledReader => return self.stall_reader(world, id, length),
            FaultKind::LateClock => self.begin_late(world, id, length, seed, dice),
            FaultKind::ClockGlitch => self.glitch(world, id, length, dice),
            FaultKind::ClockJump => self.jump_clock(world, id, length, dice),
            FaultKind::ClockDrift => self.drift_clock(world, id, length, dice),
            FaultKind::ClockStop => self.stop_clock(world, id, length),
        }
        true
    }

    fn isolate(
        &mut self,
        world: &mut World,
        id: ProcessId,
        (side, from_master): (Side, bool),
        length: Duration,
    ) {
        let words = match side {
            Side::Everybody => "is cut off from everybody",
            Side::Servers => "is cut off from all servers",
            Side::Clients => "is cut off from all clients",
            Side::Nobody => "is cut off from the master",
        };
        world.trace.note(world.now(), id, words);
        for other in side.of(world, id) {
            world.network.cut(id, other);
            world.network.cut(other, id);
        }
        if from_master {
            world.cut_from_master(id, true);
        }
        self.undo_at(world, length, Undo::Rejoin(id, side, from_master));
    }

    fn lose_region(
        &mut self,
        world: &mut World,
        until: VirtualTime,
        seed: Seed,
        dice: &mut Dice,
    ) -> bool {
        let regions = world.config.members.regions.max(1);
        let region = dice.below(u64::from(regions)) as u32;
        let lost: Vec<ProcessId> = world
            .processes
            .iter()
            .filter(|process| {
                process.is_server() && process.is_up() && process.id.0 % regions == region
            })
            .map(|process| process.id)
            .collect();
        for (index, &id) in (0u64..).zip(&lost) {
            world.kill(id, true, seed.derive("region", index));
            world.start_at(id, until);
        }
        !lost.is_empty()
    }

    fn fail_flash(
        &mut self,
        world: &mut World,
        id: ProcessId,
        kind: FaultKind,
        length: Duration,
        dice: &mut Dice,
    ) -> bool {
        let media = world.processes.media(id);
        let Some((_, medium)) = dice.pick(&media) else { return false };
        if kind == FaultKind::ReadFailure {
            world.trace.note(world.now(), id, "will fail to read a page");
            medium.inject(FlashFault::Fail { kind: OpKind::Read, nth: dice.between(1, 5) as u32 });
            return true;
        }
        let failing = [OpKind::Sync, OpKind::Program, OpKind::Erase];
        let Some(&failing) = dice.pick(&failing) else { return false };
        world.trace.note(world.now(), id, &format!("will fail a flash operation: {failing:?}"));
        world.hinder(id, true);
        medium.inject(FlashFault::Fail { kind: failing, nth: 1 });
        self.undo_at(world, length, Undo::Reboot(id));
        true
    }
}

/// Destroys something on a flash device. Whether there was something.
fn damage(world: &mut World, id: ProcessId, kind: FaultKind, dice: &mut Dice) -> bool {
    let media = world.processes.media(id);
    let Some((_, medium)) = dice.pick(&media) else { return false };
    world.trace.note(world.now(), id, &format!("its flash is damaged: {kind}"));
    match kind {
        FaultKind::Rot => {
            let pages = u64::from(world.config.storage.flash.pages_per_block) * 16;
            // Most pages hold nothing yet: a few tries find one that does.
            (0..64).any(|_| {
                medium.flip_bit(PageId(dice.below(pages) as u32), dice.below(32_768) as usize)
            })
        }
        FaultKind::Misdirected => {
            medium.inject(FlashFault::MisdirectedProgram {
                nth: 1,
                pages: dice.between(1, 64) as u32,
            });
            true
        }
        _ => {
            let keep_bytes =
                if kind == FaultKind::LostWrite { 0 } else { dice.between(1, 4_095) as usize };
            medium.inject(FlashFault::TornProgram { nth: 1, keep_bytes });
            true
        }
    }
}

fn set_slowness(world: &World, id: ProcessId, times: u32) {
    if let Role::Server(server) = &world.processes[id].role {
        server.environment.set_slowness(times);
    }
}

/// How often a client was told that its clock is too late.
fn told_late(world: &World, id: ProcessId) -> u64 {
    match &world.processes[id].role {
        Role::Client(client) => world.board.complaints.told_late(client.slots.clone()),
        Role::Server(_) | Role::Redis(_) => 0,
    }
}

/// Lets a process of Redis clients read nothing, and ask for much, or read on.
fn set_unreading(world: &World, id: ProcessId, unreading: bool) {
    world.network.set_unreading(id, unreading);
    if let (Role::Redis(redis), Some(calls)) = (&world.processes[id].role, &world.board.redis) {
        calls.set_unreading(redis.places.clone(), unreading);
    }
}

fn set_lying(world: &World, id: ProcessId, lying: bool) {
    if let Role::Server(server) = &world.processes[id].role {
        server.environment.set_lying(lying);
    }
}

fn set_full(world: &mut World, id: ProcessId, full: bool) {
    world.hinder(id, full);
    for (_, medium) in world.processes.media(id) {
        medium.set_full(full);
    }
    for disk in world.processes.disks(id) {
        disk.limit_space(full.then_some(0));
    }
}
