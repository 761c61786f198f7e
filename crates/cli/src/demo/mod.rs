//! `timestone demo`: a cluster of real processes on this machine, a workload on it, and a line of
//! figures a second, while whoever watches kills what they like.
//!
//! ```text
//!   flags ─► DemoPlan ─► folder ─► cluster: master, servers ─► bank: sessions ─► every second: screen
//!                                     ▲  look_after: start again                      │
//!                                     └───────────────────────────────────────────────┘ --kill-every
//!   end:  sessions stop ─► the sum of all accounts ─► SIGTERM, SIGKILL ─► folder removed, or kept
//! ```
//! No process is left behind: each ends with the demo, whatever ends that (`attached`).

pub(crate) mod attached;
mod bank;
mod cluster;
mod events;
mod flags;
mod folder;
mod limits;
mod master;
mod member;
mod ports;
mod process;
mod screen;
mod tally;
mod watch;

use std::time::{Duration, Instant};

use timestone::Clock;
use timestone_clock::SystemClock;
use timestone_workload::Random;

use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, say};
use crate::signals::Interrupt;

use bank::Bank;
use cluster::DemoCluster;
use events::DemoEvent;
pub(crate) use flags::DemoArgs;
use flags::{DemoPlan, PlannedMaster};
use folder::DemoFolder;
use limits::{END_TIMEOUT, LINE_PAUSE, TICK};
use screen::{Screen, counted};

/// Starts everything, watches, ends everything.
pub(crate) fn run(args: &DemoArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    let plan = args.plan()?;
    let interrupt = Interrupt::register()?;
    let folder = DemoFolder::create(args.data.as_deref())?;
    let seed = SystemClock::new().now().as_nanos();
    let mut demo = Demo {
        // A given etcd may know the clusters of other demos.
        name: format!("demo-{seed:x}"),
        plan,
        random: Random::new(seed),
        interrupt,
        screen: Screen::new(format),
    };
    let outcome = demo.run(&folder);
    let went_wrong = outcome.as_ref().is_err_and(Failure::is_a_finding);
    let removed = folder.end(args.keep || went_wrong);
    outcome.and(removed)
}

/// A run of the demo.
struct Demo {
    plan: DemoPlan,
    /// The cluster's.
    name: String,
    random: Random,
    interrupt: Interrupt,
    screen: Screen,
}

impl Demo {
    fn run(&mut self, folder: &DemoFolder) -> Result<(), Failure> {
        let path = folder.path();
        let servers = counted(self.plan.servers.into(), "server");
        self.screen.remark(&format!("starting {servers}, with files in {}", path.display()))?;
        let mut cluster =
            DemoCluster::start(&self.plan, &self.name, path, &mut self.random, &self.interrupt)?;
        let outcome = self.run_on(&mut cluster, &path.display().to_string());
        let stopped = self.stop(&mut cluster);
        outcome.and(stopped)
    }

    fn run_on(&mut self, cluster: &mut DemoCluster, folder: &str) -> Result<(), Failure> {
        let map = cluster.wait_for_map(&self.interrupt)?;
        let mut bank = Bank::open(&cluster.url(), &map, &self.interrupt)?;
        // So that the first thing that happens is no failover.
        cluster.look_after()?;
        self.screen = self.screen.begun();
        self.screen.head(&self.plan, cluster, &bank, folder)?;
        bank.run(self.plan.clients, self.plan.rate, self.random.bits());
        let watched = self.watch(cluster, &bank);
        let stopped = bank.stop();
        watched?;
        stopped?;
        self.screen.remark(
            "stopping: the sum of all accounts is checked, then every process ends; a second \
             Ctrl-C ends it at once",
        )?;
        for event in cluster.start_the_dead()? {
            self.screen.event(&event)?;
        }
        if bank.tally().wrong().is_none() {
            bank.check()?;
        }
        self.screen.end(&bank, cluster)?;
        self.verdict(&bank, cluster)
    }

    /// Until the time is over, a signal comes, or the bank is wrong.
    fn watch(&mut self, cluster: &mut DemoCluster, bank: &Bank) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut next_line = begin + LINE_PAUSE;
        let mut killing = self.plan.kill_every.map(|every| Killing::new(every, begin));
        while !self.interrupt.has_come()
            && self.plan.seconds.is_none_or(|span| begin.elapsed() < span)
            && bank.tally().wrong().is_none()
        {
            for event in cluster.look_after()? {
                self.screen.event(&event)?;
            }
            let killed = killing.as_mut().and_then(|one| one.step(cluster, &mut self.random));
            if let Some(event) = killed {
                self.screen.event(&event)?;
            }
            if Instant::now() >= next_line {
                let figures = bank.tally().take(Instant::now());
                self.screen.second(&figures, bank.total(), cluster)?;
                next_line = (next_line + LINE_PAUSE).max(Instant::now());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn verdict(&self, bank: &Bank, cluster: &DemoCluster) -> Result<(), Failure> {
        let tally = bank.tally();
        if let Some(what) = tally.wrong() {
            return Err(Failure::failed(format!("the bank is wrong: {what}")));
        }
        if let Some(what) = cluster.failed() {
            return Err(Failure::failed(what));
        }
        if tally.all().committed == 0 {
            let why = tally.last_refusal().map_or_else(String::new, |why| format!(": {why}"));
            return Err(Failure::failed(format!("not one transaction committed{why}")));
        }
        Ok(())
    }

    fn stop(&self, cluster: &mut DemoCluster) -> Result<(), Failure> {
        let killed = cluster.stop()?;
        if let PlannedMaster::Given(url) = &self.plan.master {
            let prefix = timestone::server::etcd_prefix(&self.name);
            self.screen.remark(&format!(
                "the cluster's state is still on {url}; etcdctl del --prefix {prefix}/ removes it"
            ))?;
        }
        if killed.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{} did not end within {END_TIMEOUT:?} after SIGTERM and got SIGKILL",
            killed.join(", ")
        )))
    }
}

/// Kills a server now and then.
struct Killing {
    every: Duration,
    next: Instant,
    /// Whether it was told that it waits.
    has_told: bool,
}

impl Killing {
    fn new(every: Duration, begin: Instant) -> Self {
        Self { every, next: begin + every, has_told: false }
    }

    fn step(&mut self, cluster: &DemoCluster, random: &mut Random) -> Option<DemoEvent> {
        if Instant::now() < self.next {
            return None;
        }
        if let Some(why) = cluster.is_recovering() {
            let is_new = !core::mem::replace(&mut self.has_told, true);
            return is_new.then_some(DemoEvent::Waits { why });
        }
        self.has_told = false;
        self.next = Instant::now() + self.every;
        cluster.kill_any(random)
    }
}

/// Where a folder lies that is kept.
fn tell_kept(path: &std::path::Path) {
    say(&format!("the data and the logs are kept in {}", path.display()));
}
