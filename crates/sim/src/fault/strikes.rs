//! What each kind of fault does to the process that it strikes, and when that is undone.

use std::time::Duration;

use timestone_seda::AdmissionLimit;
use timestone_seda::simulated::VirtualTime;
use timestone_types::random::{Dice, Seed};

use super::{
    Injector, STOP_BOUND, STOP_TIMEOUT, Undo, set_full, set_lying, set_slowness, set_unreading,
};
use crate::network::{LinkQuality, ProcessId};
use crate::process::Process;
use crate::world::World;

/// Ends a process. Half of them end between two turns, half of them in the middle of one.
pub(super) fn kill(world: &mut World, id: ProcessId, silent: bool, seed: Seed, until: VirtualTime) {
    if seed.derive("within", 0).dice().chance(0.5) {
        world.kill_within_turn(id, silent, seed, until);
    } else {
        world.kill(id, silent, seed);
        world.start_at(id, until);
    }
}

/// Lets a connection be forgotten on its way. Whether there was one.
pub(super) fn forget_connection(world: &mut World, dice: &mut Dice) -> bool {
    let Some((from, to)) = world.network.forget_one(dice) else { return false };
    if let Some(calls) = &world.board.redis {
        calls.forget_one();
    }
    let words = format!("its connection to process {} is a black hole", to.0);
    world.trace.note(world.now(), from, &words);
    true
}

/// The links between a server with half of the clients and all others, in both directions.
pub(super) fn between_sides(
    world: &World,
    id: ProcessId,
    seed: Seed,
) -> Vec<(ProcessId, ProcessId)> {
    let is_with = |other: &Process| {
        other.id == id
            || !other.is_server() && seed.derive("side", u64::from(other.id.0)).dice().chance(0.5)
    };
    let (here, there): (Vec<&Process>, Vec<&Process>) =
        world.processes.iter().partition(|process| is_with(process));
    let both_ways = |one: &Process, other: &Process| [(one.id, other.id), (other.id, one.id)];
    here.iter().flat_map(|one| there.iter().flat_map(|other| both_ways(one, other))).collect()
}

/// A number between these, as often negative as not.
fn either_way(dice: &mut Dice, least: u64, most: u64) -> i64 {
    let by = dice.between(least, most) as i64;
    if dice.chance(0.5) { by } else { -by }
}

impl Injector {
    pub(super) fn stop(&mut self, world: &mut World, id: ProcessId, until: VirtualTime) -> bool {
        let life = world.processes[id].lives;
        self.undo_at(world, STOP_BOUND, Undo::StopBound(id, life));
        self.undo_at(world, STOP_TIMEOUT, Undo::StopTimeout(id, life));
        world.leave(id, until)
    }

    /// Disks lie about syncs; with `cut`, the power goes before they stop to.
    pub(super) fn lie(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        cut: Option<Seed>,
    ) {
        world.trace.note(world.now(), id, "has disks that lie about syncs");
        set_lying(world, id, true);
        self.undo_at(world, length, Undo::Truth(id, cut));
    }

    /// Cuts a process off from a server, in one direction or both. Whether there is another one.
    pub(super) fn cut(
        &mut self,
        world: &mut World,
        id: ProcessId,
        both_ways: bool,
        length: Duration,
        dice: &mut Dice,
    ) -> bool {
        let server = Self::target(world, dice, Process::is_server);
        let Some(server) = server.filter(|server| *server != id) else { return false };
        world.trace.note(world.now(), id, &format!("is cut off from process {}", server.0));
        let (from, to) = if dice.chance(0.5) { (id, server) } else { (server, id) };
        world.network.cut(from, to);
        self.undo_at(world, length, Undo::Heal(from, to));
        if both_ways {
            world.network.cut(to, from);
            self.undo_at(world, length, Undo::Heal(to, from));
        }
        true
    }

    /// A server goes on with half of the clients, and the others without them.
    pub(super) fn split(&mut self, world: &mut World, id: ProcessId, seed: Seed, length: Duration) {
        let links = between_sides(world, id, seed);
        let with = world.processes.iter().filter(|process| !links.contains(&(id, process.id)));
        let names: Vec<&str> = with.map(|process| process.name.as_str()).collect();
        let words = format!("is cut off from all others, together with {}", names.join(", "));
        world.trace.note(world.now(), id, &words);
        for (from, to) in links {
            world.network.cut(from, to);
        }
        world.cut_from_master(id, true);
        self.undo_at(world, length, Undo::Unite(id, seed));
    }

    /// The master outside answers nobody, and half of the time was asked something just before.
    /// Whether there is one, and it answered until now.
    pub(super) fn lose_master(
        &mut self,
        world: &mut World,
        length: Duration,
        dice: &mut Dice,
    ) -> bool {
        let asked = dice.chance(0.5);
        if world.master.as_ref().is_none_or(|master| master.is_gone()) {
            return false;
        }
        world.set_master_gone(Some(asked));
        self.undo_at(world, length, Undo::Master);
        true
    }

    pub(super) fn worsen_network(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        quality: LinkQuality,
    ) {
        world.trace.note(world.now(), id, &format!("the network is bad: {quality:?}"));
        world.network.set_quality(quality);
        self.undo_at(world, length, Undo::Network);
    }

    pub(super) fn slow_disks(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        slowness: u32,
    ) {
        world.trace.note(world.now(), id, "has slow disks");
        world.hinder(id, true);
        set_slowness(world, id, slowness);
        self.undo_at(world, length, Undo::Disk(id));
    }

    pub(super) fn fail_log(&mut self, world: &mut World, id: ProcessId, length: Duration) {
        world.trace.note(world.now(), id, "cannot write its log");
        world.hinder(id, true);
        world.processes.disks(id).iter().for_each(|disk| disk.fail_writes(true));
        self.undo_at(world, length, Undo::Reboot(id));
    }

    pub(super) fn fill_disks(&mut self, world: &mut World, id: ProcessId, length: Duration) {
        world.trace.note(world.now(), id, "has full disks");
        set_full(world, id, true);
        self.undo_at(world, length, Undo::Room(id));
    }

    pub(super) fn press_memory(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        dice: &mut Dice,
    ) {
        let cache_bytes = dice.below(2) * 16 * 1024;
        let admission = AdmissionLimit { requests: dice.below(5), bytes: 1 << dice.between(8, 16) };
        let words =
            format!("its memory is scarce: {cache_bytes} bytes for its caches, {admission:?}");
        world.trace.note(world.now(), id, &words);
        world.press_memory(id, Some((cache_bytes, admission)));
        self.undo_at(world, length, Undo::Memory(id));
    }

    /// Lets a client read nothing. Whether it read until now.
    pub(super) fn stall_reader(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
    ) -> bool {
        if world.network.is_unreading(id) {
            return false;
        }
        world.trace.note(world.now(), id, "reads nothing any more");
        set_unreading(world, id, true);
        self.undo_at(world, length, Undo::Reader(id));
        true
    }

    pub(super) fn jump_clock(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        dice: &mut Dice,
    ) {
        let most = self.jump.as_nanos() as u64;
        let by = either_way(dice, most / 10, most);
        world.trace.note(world.now(), id, &format!("its clock jumps by {by} ns"));
        world.processes[id].clock.jump(by);
        self.undo_at(world, length, Undo::Clock(id));
    }

    pub(super) fn drift_clock(
        &mut self,
        world: &mut World,
        id: ProcessId,
        length: Duration,
        dice: &mut Dice,
    ) {
        let ppm = either_way(dice, 100, 20_000);
        world.trace.note(world.now(), id, &format!("its clock drifts by {ppm} ppm"));
        world.processes[id].clock.drift(ppm);
        self.undo_at(world, length, Undo::Clock(id));
    }

    pub(super) fn stop_clock(&mut self, world: &mut World, id: ProcessId, length: Duration) {
        world.trace.note(world.now(), id, "its clock stops");
        world.processes[id].clock.stop();
        self.undo_at(world, length, Undo::Clock(id));
    }
}
