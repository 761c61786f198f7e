//! The flags of `timestone demo`, and the plan that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use timestone::server::MasterPlace;
use timestone_cluster::ReplicationFactor;

use super::limits::{MAX_CLIENTS, MAX_SERVERS, MAX_SHARDS};
use crate::failure::Failure;
use crate::settings;

/// Flags of `timestone demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Every second a line tells how many transactions committed, were aborted (conflicts), were refused (nothing was done) and
ended unknown (the answer was lost), the longest time in which no transaction on some shard committed, whether the sum of
all accounts is right, who is the primary of each shard, and which processes live. With '-o json' that is one object a
second, with \"event\": \"second\".

Kill what you like, with the process ids that are printed: 'kill -9 PID'. Of 3 replicas one may be dead at a time, of 5
two, and transactions go on. Ctrl-C ends the demo: the sum of all accounts is checked once more, and every process is
stopped. A second Ctrl-C ends it at once.

Exit codes: 0 the bank was right to the end, 1 it was not, or a process failed by itself (the files are kept).")]
pub(crate) struct DemoArgs {
    /// Shards of the cluster.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) shards: u16,
    /// Copies of each shard, on different servers: 1, 3 or 5.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) replicas: u8,
    /// Server processes [default: as many as --replicas].
    #[arg(long, value_name = "N")]
    pub(super) servers: Option<u16>,
    /// Where the cluster's master is: etcd://HOST:PORT,… of an etcd that runs, or "embedded" in
    /// server 1: nobody takes over while that server is dead [default: an etcd that the demo starts
    /// if `etcd` is in PATH, else embedded].
    #[arg(long, value_name = "URL")]
    pub(super) master: Option<String>,
    /// Folder for the servers' data and logs, empty or missing; it is kept [default: a temporary
    /// one, removed at the end].
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Keep the temporary folder.
    #[arg(long)]
    pub(super) keep: bool,
    /// End by itself after so many seconds [default: at Ctrl-C].
    #[arg(long, value_name = "N")]
    pub(super) seconds: Option<u64>,
    /// Kill a random server (SIGKILL) that often, such as 5s; later where a server is not back yet.
    /// A server that hosts the master is spared.
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(super) kill_every: Option<Duration>,
    /// Start a process again so long after it has died, such as 5s, or "never".
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = restart_after)]
    pub(super) restart_after: RestartAfter,
    /// Sessions of the workload, each with one transaction at a time.
    #[arg(short, long, value_name = "N", default_value_t = 64)]
    pub(super) clients: u32,
    /// Transactions that all sessions together begin in a second.
    #[arg(short, long, value_name = "PER_SECOND", default_value_t = 300)]
    pub(super) rate: u32,
}

/// Whether a process that died is started again, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestartAfter {
    Never,
    Span(Duration),
}

fn restart_after(text: &str) -> Result<RestartAfter, String> {
    if text == "never" {
        return Ok(RestartAfter::Never);
    }
    let problem = |error| format!("it must be a span such as 5s, or never ({error})");
    humantime::parse_duration(text).map(RestartAfter::Span).map_err(problem)
}

/// Where the master is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlannedMaster {
    /// An etcd of the demo's own, if there is one to start; else the first server.
    Any,
    /// The first server.
    Embedded,
    /// An etcd that runs, as `--master` names it.
    Given(String),
}

/// What is to be run, checked.
#[derive(Clone, Debug)]
pub(super) struct DemoPlan {
    pub(super) shards: u16,
    pub(super) replicas: u8,
    pub(super) servers: u16,
    pub(super) master: PlannedMaster,
    pub(super) seconds: Option<Duration>,
    pub(super) kill_every: Option<Duration>,
    pub(super) restart_after: RestartAfter,
    pub(super) clients: u32,
    pub(super) rate: u32,
}

impl DemoPlan {
    /// How many shards a server is told to have when its data directory is made: all of them where
    /// the map says who keeps which, its part of them where nobody else keeps them.
    pub(super) fn shards_of(&self, index: u16) -> u16 {
        if self.replicas > 1 {
            return self.shards;
        }
        self.shards / self.servers + u16::from(index < self.shards % self.servers)
    }
}

impl DemoArgs {
    /// The plan, or what is wrong with the flags.
    pub(super) fn plan(&self) -> Result<DemoPlan, Failure> {
        let usage = |words: String| Err(Failure::usage(words));
        let replicas = self.replicas;
        if ReplicationFactor::new(replicas).is_err() {
            return usage(format!("--replicas is {replicas}: it must be 1, 3 or 5"));
        }
        let servers = self.servers.unwrap_or(u16::from(replicas));
        if servers < u16::from(replicas) || servers > MAX_SERVERS {
            return usage(format!(
                "--servers is {servers}: it lies from {replicas}, for each replica of a shard is on \
                 a server of its own, to {MAX_SERVERS}"
            ));
        }
        if self.shards == 0 || self.shards > MAX_SHARDS {
            return usage(format!("--shards is {}: it lies from 1 to {MAX_SHARDS}", self.shards));
        }
        if replicas == 1 && self.shards < servers {
            return usage(format!(
                "--shards is {}: with one replica each of the {servers} servers has a shard at \
                 least; give more shards or fewer --servers",
                self.shards
            ));
        }
        if self.clients == 0 || self.clients > MAX_CLIENTS {
            let clients = self.clients;
            return usage(format!("--clients is {clients}: it lies from 1 to {MAX_CLIENTS}"));
        }
        if self.rate == 0 {
            return usage("--rate is 0, but something must run".to_owned());
        }
        if self.kill_every.is_some_and(|span| span.is_zero()) {
            return usage("--kill-every is 0: give it a span, such as 5s".to_owned());
        }
        Ok(DemoPlan {
            shards: self.shards,
            replicas,
            servers,
            master: self.planned_master()?,
            seconds: self.seconds.map(Duration::from_secs),
            kill_every: self.kill_every,
            restart_after: self.restart_after,
            clients: self.clients,
            rate: self.rate,
        })
    }

    fn planned_master(&self) -> Result<PlannedMaster, Failure> {
        let Some(text) = &self.master else { return Ok(PlannedMaster::Any) };
        let place = settings::master(text)
            .map_err(|detail| Failure::usage(format!("--master is '{text}': {detail}")))?;
        match place {
            MasterPlace::Embedded => Ok(PlannedMaster::Embedded),
            MasterPlace::Etcd(_) => Ok(PlannedMaster::Given(text.clone())),
            MasterPlace::Remote(_) => Err(Failure::usage(format!(
                "--master is '{text}': the demo makes a cluster of its own; name an etcd \
                 (etcd://HOST:PORT), or say embedded"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::{Arguments, Command};

    fn plan(text: &str) -> Result<DemoPlan, Failure> {
        let words = ["timestone", "demo"].into_iter().chain(text.split_whitespace());
        let matches = Arguments::command().try_get_matches_from(words).unwrap();
        match Arguments::from_arg_matches(&matches).unwrap().command {
            Command::Demo(args) => args.plan(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_flags_three_servers_keep_three_copies_of_three_shards() {
        let plan = plan("").unwrap();
        assert_eq!((plan.shards, plan.replicas, plan.servers), (3, 3, 3));
        assert_eq!(plan.master, PlannedMaster::Any);
        assert_eq!(plan.restart_after, RestartAfter::Span(Duration::from_secs(5)));
    }

    #[test]
    fn shards_without_copies_are_dealt_out() {
        let plan = plan("--replicas 1 --servers 3 --shards 5 --restart-after never").unwrap();
        let dealt: Vec<u16> = (0..3).map(|index| plan.shards_of(index)).collect();
        assert_eq!(dealt, [2, 2, 1]);
        assert_eq!(plan.restart_after, RestartAfter::Never);
    }

    #[test]
    fn flags_that_make_no_sense_are_refused_by_name() {
        for (text, flag) in [
            ("--replicas 2", "--replicas"),
            ("--servers 2", "--servers"),
            ("--servers 99", "--servers"),
            ("--shards 0", "--shards"),
            ("--replicas 1 --servers 4", "--shards"),
            ("--clients 0", "--clients"),
            ("--rate 0", "--rate"),
            ("--kill-every 0s", "--kill-every"),
            ("--master timestone://127.0.0.1:7400", "--master"),
            ("--master etcd://nowhere", "--master"),
        ] {
            let failure = plan(text).unwrap_err();
            assert!(
                failure.to_string().starts_with(flag) && failure.code == 2,
                "{text}: {failure}"
            );
        }
    }
}
