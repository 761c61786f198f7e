//! The demo's cluster: its processes, what becomes of them, and who is primary of which shard.
//!
//! ```text
//!   start: master ─► server 1 ─► server 2 …        look_after: ended? ─► start again    Watch: maps, answers
//!                                                              primaries moved?
//! ```
//! Servers are started one after the other, so that the cluster numbers them as the demo does.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use timestone_cluster::{ServerId, ShardMap};
use timestone_types::ShardId;
use timestone_workload::Random;

use super::events::{DemoEvent, Who};
use super::flags::DemoPlan;
use super::limits::{CACHE, END_TIMEOUT, MEMORY, READY_TIMEOUT, TICK};
use super::master::DemoMaster;
use super::member::{Change, DemoAddresses, Member};
use super::ports::free_addresses;
use super::process::DemoProcess;
use super::watch::Watch;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// A server of the demo.
#[derive(Debug)]
pub(super) struct DemoServer {
    pub(super) member: Member,
    pub(super) addresses: DemoAddresses,
}

/// How a server is, as the demo sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerState {
    /// Its process has been started again, and has not answered yet.
    Starting,
    Alive,
    /// Its process lives and does not answer.
    Silent,
    Dead,
}

impl ServerState {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Alive => "alive",
            Self::Silent => "silent",
            Self::Dead => "dead",
        }
    }
}

/// Where a shard is, by the newest map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ShardPlace {
    pub(super) shard: ShardId,
    pub(super) epoch: u32,
    /// The server's place, counted from nought.
    pub(super) primary: Option<usize>,
}

/// See the module. Its processes are killed when it is dropped.
pub(super) struct DemoCluster {
    plan: DemoPlan,
    pub(super) master: DemoMaster,
    pub(super) servers: Vec<DemoServer>,
    watch: Watch,
    places: Vec<ShardPlace>,
    /// How often a shard got another primary.
    pub(super) failovers: u64,
    /// How often a process ended, by whomever.
    pub(super) deaths: u64,
}

impl DemoCluster {
    /// Starts everything, and waits until every server answers.
    pub(super) fn start(
        plan: &DemoPlan,
        name: &str,
        folder: &Path,
        random: &mut Random,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let count = usize::from(plan.servers);
        let free = free_addresses(3 * count + 2, random)?;
        let (of_servers, of_etcd) = free.split_at(3 * count);
        let addresses: Vec<DemoAddresses> = of_servers
            .chunks_exact(3)
            .map(|three| DemoAddresses { native: three[0], resp: three[1], http: three[2] })
            .collect();
        let master = DemoMaster::start(&plan.master, folder, [of_etcd[0], of_etcd[1]], interrupt)?;
        let mut cluster = Self {
            plan: plan.clone(),
            master,
            servers: Vec::new(),
            watch: Watch::begin(addresses.iter().map(|one| one.native.to_string()))?,
            places: Vec::new(),
            failovers: 0,
            deaths: 0,
        };
        for addresses in addresses {
            cluster.start_server(name, folder, addresses, interrupt)?;
        }
        Ok(cluster)
    }

    fn start_server(
        &mut self,
        name: &str,
        folder: &Path,
        addresses: DemoAddresses,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let index = self.servers.len();
        let first = self.servers.first().map_or(addresses.native, |server| server.addresses.native);
        let master = match &self.master {
            DemoMaster::Given(url) | DemoMaster::Own { url, .. } => url.clone(),
            DemoMaster::InServer { .. } if index == 0 => "embedded".to_owned(),
            DemoMaster::InServer { .. } => format!("timestone://{first}"),
        };
        let process = server_process(&self.plan, index, name, folder, addresses, &master)?;
        let member = Member::start(process)?;
        self.servers.push(DemoServer { member, addresses });
        let begin = Instant::now();
        let member = &mut self.servers[index].member;
        while !self.watch.has_answered_since(index, begin) {
            member.still_starting(begin, &"nobody listens, or says nothing", interrupt)?;
            std::thread::sleep(TICK);
        }
        member.note_answer();
        Ok(())
    }

    /// What clients connect to.
    pub(super) fn url(&self) -> String {
        let natives: Vec<String> =
            self.servers.iter().map(|server| server.addresses.native.to_string()).collect();
        format!("timestone://{}", natives.join(","))
    }

    /// The map of the cluster, as soon as a server has told one with all servers on it.
    pub(super) fn wait_for_map(&self, interrupt: &Interrupt) -> Result<ShardMap, Failure> {
        let begin = Instant::now();
        loop {
            let map = self.watch.newest_map();
            if let Some(map) = map.filter(|map| map.servers().len() >= self.servers.len()) {
                return Ok(map);
            }
            if interrupt.has_come() {
                return Err(Failure::interrupted("the demo was ended before it had begun"));
            }
            if begin.elapsed() > READY_TIMEOUT {
                return Err(Failure::failed(format!(
                    "no server has told of all {} servers within {READY_TIMEOUT:?}; see their logs",
                    self.servers.len()
                )));
            }
            std::thread::sleep(TICK);
        }
    }

    /// How a server is.
    pub(super) fn state(&self, index: usize) -> ServerState {
        let member = &self.servers[index].member;
        match (member.is_alive(), member.is_up()) {
            (false, _) => ServerState::Dead,
            (true, false) => ServerState::Starting,
            (true, true) if self.watch.is_silent(index) => ServerState::Silent,
            (true, true) => ServerState::Alive,
        }
    }

    /// Where the shards are.
    pub(super) fn places(&self) -> &[ShardPlace] {
        &self.places
    }

    /// Sees what has become of all processes and shards, and starts again what is to be.
    pub(super) fn look_after(&mut self) -> Result<Vec<DemoEvent>, Failure> {
        let mut events = Vec::new();
        let restart = self.plan.restart_after;
        for (index, DemoServer { member, .. }) in self.servers.iter_mut().enumerate() {
            if member.running_since().is_some_and(|at| self.watch.has_answered_since(index, at)) {
                events.extend(
                    member.note_answer().map(|change| event_of(Who::Server(index), member, change)),
                );
            }
            if let Some(change) = member.look_after(restart)? {
                events.push(event_of(Who::Server(index), member, change));
            }
        }
        if let Some(etcd) = self.master.etcd_mut()
            && let Some(change) = etcd.look_after(restart)?
        {
            events.push(event_of(Who::Etcd, etcd, change));
        }
        let deaths = events.iter().filter(|event| event.is_death()).count();
        self.deaths += deaths as u64;
        self.note_map(&mut events);
        Ok(events)
    }

    fn note_map(&mut self, events: &mut Vec<DemoEvent>) {
        let Some(map) = self.watch.newest_map() else { return };
        let place_of = |server: ServerId| {
            let native = map.server(server)?.addresses.native.as_ref()?;
            self.watch.at(native.as_str())
        };
        let places: Vec<ShardPlace> = map
            .shards()
            .iter()
            .map(|entry| ShardPlace {
                shard: entry.id,
                epoch: entry.epoch.get(),
                primary: place_of(entry.primary),
            })
            .collect();
        for (before, now) in self.places.iter().zip(&places) {
            if let (Some(from), Some(to)) = (before.primary, now.primary)
                && from != to
            {
                self.failovers += 1;
                events.push(DemoEvent::Failover { shard: now.shard, from, to, epoch: now.epoch });
            }
        }
        self.places = places;
    }

    /// Why nothing should be killed now, if so: a server or a replica is not back yet.
    pub(super) fn is_recovering(&self) -> Option<String> {
        let not_alive = |&index: &usize| self.state(index) != ServerState::Alive;
        if let Some(index) = (0..self.servers.len()).find(not_alive) {
            return Some(format!("server {} is {}", index + 1, self.state(index).name()));
        }
        if self.plan.replicas == 1 {
            return None;
        }
        let map = self.watch.newest_map()?;
        map.shards().iter().find_map(|entry| {
            let shard = entry.id;
            let (has, wants) = (entry.replicas.len(), usize::from(self.plan.replicas));
            if has < wants {
                return Some(format!("shard {shard} has {has} of {wants} replicas"));
            }
            let lags = |&server: &ServerId| {
                let native = map.server(server)?.addresses.native.as_ref()?;
                let index = self.watch.at(native.as_str())?;
                (!self.watch.keeps_up(index, shard, entry.epoch.get())).then_some(index)
            };
            entry.replicas.iter().find_map(lags).map(|index| {
                format!("the replica of shard {shard} on server {} is not back", index + 1)
            })
        })
    }

    /// Kills a server, any but one that hosts the master.
    pub(super) fn kill_any(&self, random: &mut Random) -> Option<DemoEvent> {
        let first = usize::from(self.master.is_in_server());
        let candidates = self.servers.len().checked_sub(first).filter(|count| *count > 0)?;
        let index = first + random.below(candidates as u64) as usize;
        let member = &self.servers[index].member;
        member.process.kill();
        member.pid().map(|pid| DemoEvent::Killed { server: index, pid })
    }

    /// Starts what is dead, unless it is to stay so.
    pub(super) fn start_the_dead(&mut self) -> Result<Vec<DemoEvent>, Failure> {
        self.look_after()?;
        for server in &mut self.servers {
            server.member.hurry();
        }
        if let Some(etcd) = self.master.etcd_mut() {
            etcd.hurry();
        }
        self.look_after()
    }

    /// What failed by itself, and where it says why.
    pub(super) fn failed(&self) -> Option<String> {
        let mut members =
            self.servers.iter().map(|server| &server.member).chain(self.master.etcd());
        let process = &members.find(|member| member.has_failed)?.process;
        Some(format!("{} failed by itself, see {}", process.name, process.log.display()))
    }

    /// Ends all processes in order, etcd last; the names of those that had to be killed.
    pub(super) fn stop(&mut self) -> Result<Vec<String>, Failure> {
        let mut servers: Vec<&mut Member> =
            self.servers.iter_mut().map(|server| &mut server.member).collect();
        let mut killed = end_all(&mut servers)?;
        if let Some(etcd) = self.master.etcd_mut() {
            killed.extend(end_all(&mut [etcd])?);
        }
        Ok(killed)
    }
}

fn end_all(members: &mut [&mut Member]) -> Result<Vec<String>, Failure> {
    for member in members.iter() {
        member.process.ask_to_end();
    }
    let begin = Instant::now();
    let mut killed = Vec::new();
    loop {
        let mut left = 0;
        for member in members.iter_mut() {
            member.process.poll()?;
            left += usize::from(member.pid().is_some());
        }
        if left == 0 {
            return Ok(killed);
        }
        if begin.elapsed() > END_TIMEOUT && killed.is_empty() {
            for member in members.iter().filter(|member| member.pid().is_some()) {
                member.process.kill();
                killed.push(member.process.name.clone());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn event_of(who: Who, member: &Member, change: Change) -> DemoEvent {
    match change {
        Change::Ended { pid, ending, start_in, lost } => DemoEvent::Ended {
            who,
            pid,
            ending,
            start_in,
            lost,
            log: (!ending.is_of_others()).then(|| member.process.last_log_lines()),
        },
        Change::Started { pid } => DemoEvent::Started { who, pid },
        Change::Answers { after } => DemoEvent::Answers { who, after },
    }
}

/// The process of one server.
fn server_process(
    plan: &DemoPlan,
    index: usize,
    cluster: &str,
    folder: &Path,
    addresses: DemoAddresses,
    master: &str,
) -> Result<DemoProcess, Failure> {
    let number = index + 1;
    let program = std::env::current_exe().map_err(|error| {
        Failure::failed(format!("could not find this program to start servers of it: {error}"))
    })?;
    let shards = plan.shards_of(index as u16);
    let text = |address: SocketAddr| address.to_string();
    // Files grow up to it.
    let capacity_mib = (64 * u64::from(shards)).max(2048);
    let mut arguments: Vec<OsString> = ["serve", "--data"].map(OsString::from).to_vec();
    arguments.push(folder.join(format!("server-{number}")).into());
    for (flag, value) in [
        ("--listen", text(addresses.native)),
        ("--resp", text(addresses.resp)),
        ("--http", text(addresses.http)),
        ("--cluster", cluster.to_owned()),
        ("--master", master.to_owned()),
        ("--replication", plan.replicas.to_string()),
        ("--cluster-shards", plan.shards.to_string()),
        ("--shards", shards.to_string()),
        ("--threads", "1".to_owned()),
        ("--cache", CACHE.to_owned()),
        ("--memory", MEMORY.to_owned()),
        ("--capacity", format!("{capacity_mib}MiB")),
        ("--log-format", "human".to_owned()),
    ] {
        arguments.extend([flag.into(), value.into()]);
    }
    let log = folder.join(format!("server-{number}.log"));
    Ok(DemoProcess::new(format!("server {number}"), log, &program, arguments))
}
