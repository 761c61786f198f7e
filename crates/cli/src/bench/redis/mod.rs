//! `timestone bench --protocol resp`: Redis clients against a running server, through its gateway.
//!
//! ```text
//!   flags ─► RespPlan (mix, connections, pace …) ─► where the RESP port is ─► this run's keys are deleted ─► measure ─► Report
//!                                               every connection is a thread: draw, send a pipeline, await its answers
//! ```
//! The commands are those of [`timestone_workload::redis`], which the simulator's clients send as
//! well, and so is the history: what was sent and never answered has its line. Sessions of the
//! native protocol are tasks on event loops; a connection here waits for one pipeline at a time, as
//! most Redis clients do, and so a thread of its own is all that it needs.

mod connection;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::Value;
use timestone_types::Timestamp;
use timestone_workload::redis::{Generator, Mix, Reply, Request};
use timestone_workload::{Arrivals, Pace, Random, Recorder, Report};

use super::board::{Course, CoursePhase};
use super::cpu::{CpuReading, Used};
use super::history::RedisChronicle;
use super::limits::{MAX_CONNECTIONS, MAX_DEPTH, MAX_REDIS_KEYS};
use super::measure::pass;
use super::{BenchArgs, print};
use crate::failure::Failure;
use crate::output::{Format, or_unread};
use crate::probe;
use crate::signals::Interrupt;
use connection::{Lost, RespConnection, RespLink};

/// The name of the workload, as reports and histories have it.
pub(super) const NAME: &str = "redis";
/// Connections where nothing else is said: as `redis-benchmark` has them.
const CONNECTIONS: u32 = 50;
/// Keys of each kind where nothing else is said.
const KEYS: u64 = 100;
/// In front of every key.
const PREFIX: &str = "bench:";
/// Keys that are deleted by one command before the run.
const DELETED_AT_ONCE: usize = 100;

/// Commands over the whole keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Whole {
    /// None of them.
    None,
    /// SCAN and KEYS of the run's own keys.
    List,
    /// DBSIZE and FLUSHDB as well: everything in the default keyspace is deleted, before the run
    /// and now and then.
    All,
}

/// What is to be run, checked.
#[derive(Clone, Debug)]
struct RespPlan {
    mix: Mix,
    whole: Whole,
    connections: u32,
    /// Of a hundred pipelines, so many are cut off before they are answered.
    cut_percent: u64,
    pace: Pace,
    warmup: Duration,
    duration: Duration,
    seed: u64,
}

/// What all connections of a run share.
#[derive(Debug)]
struct RespRun {
    course: Course,
    chronicle: Option<RedisChronicle>,
    tally: Mutex<RespTally>,
}

/// What came of the calls, and of the connections.
#[derive(Debug, Default)]
struct RespTally {
    recorder: Recorder,
    /// Connections that were made anew.
    reconnects: u64,
    first_error: Option<String>,
    /// An answer that is none: what follows on that connection means nothing.
    nonsense: Option<String>,
}

impl RespRun {
    fn tally<T>(&self, change: impl FnOnce(&mut RespTally) -> T) -> T {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RespPlan {
    fn of(args: &BenchArgs) -> Result<Self, Failure> {
        let first = |flags: &[(&'static str, bool)]| {
            flags.iter().find_map(|&(flag, is_given)| is_given.then_some(flag))
        };
        let refused = first(&[
            ("--in-process", args.store.in_process),
            ("--threads", args.threads.is_some()),
        ])
        .or_else(|| args.shape.given())
        .or_else(|| {
            first(&[
                ("--retry", args.retry),
                ("--no-load", args.no_load),
                ("--keyspace", args.keyspace.is_some()),
            ])
        });
        if let Some(flag) = refused {
            return Err(Failure::usage(format!("{flag} does not go with --protocol resp")));
        }
        let within = |flag: &str, given: u64, most: u64| {
            if (1..=most).contains(&given) {
                Ok(given)
            } else {
                Err(Failure::usage(format!(
                    "{flag} is {given}, but with --protocol resp it lies from 1 to {most}"
                )))
            }
        };
        let keys = within("--keys", args.shape.keys.unwrap_or(KEYS), MAX_REDIS_KEYS)?;
        let depth = within("--depth", args.resp.depth.unwrap_or(4), MAX_DEPTH)?;
        let connections = args.clients.unwrap_or(CONNECTIONS);
        within("--clients", u64::from(connections), u64::from(MAX_CONNECTIONS))?;
        let whole = args.resp.whole.unwrap_or(Whole::List);
        let (alone, lists) = (whole == Whole::All, whole != Whole::None);
        Ok(Self {
            mix: Mix { keys, depth, prefix: PREFIX.to_owned(), alone, lists },
            whole,
            connections,
            cut_percent: args.resp.cut.unwrap_or(0),
            pace: args.pace(),
            warmup: args.time.warmup,
            duration: args.time.measured_span()?,
            seed: args.seed,
        })
    }

    fn connection(
        &self,
        run: &Arc<RespRun>,
        addresses: &[SocketAddr],
        number: u32,
    ) -> Result<RespConnection, Failure> {
        let (place, of) = (u64::from(number), u64::from(self.connections));
        let arrivals = match self.pace {
            Pace::Closed => None,
            Pace::Open { per_second } => {
                let seed = self.seed.wrapping_add(place);
                let made = Arrivals::new(per_second / of as f64, seed, Timestamp::ZERO);
                Some(made.map_err(|error| Failure::usage(format!("--{error}")))?)
            }
        };
        let mut addresses = addresses.to_vec();
        let first = number as usize % addresses.len();
        addresses.rotate_left(first);
        Ok(RespConnection {
            run: Arc::clone(run),
            addresses,
            generator: Generator::new(self.mix.clone(), self.seed, place, of),
            random: Random::derived(self.seed, of + place),
            cut_percent: self.cut_percent,
            arrivals,
        })
    }
}

/// Where Redis clients go, and the servers that tell their processor time.
struct Door {
    addresses: Vec<SocketAddr>,
    servers: Vec<String>,
    notes: Vec<(&'static str, Value)>,
}

impl Door {
    /// `redis://HOST[:PORT],…` names the ports themselves; otherwise the server is asked where its is.
    fn find(address: &str) -> Result<Self, Failure> {
        let notes = vec![("address", Value::from(address))];
        if let Some(named) = address.strip_prefix("redis://") {
            let mut addresses = Vec::new();
            for host in named.trim_end_matches('/').split(',') {
                let host = if has_port(host) { host.to_owned() } else { format!("{host}:7401") };
                addresses.extend(resolve(&host)?);
            }
            return Ok(Self { addresses, servers: Vec::new(), notes });
        }
        let asked = probe::servers_of(address);
        let server = asked.first().cloned().unwrap_or_default();
        let answer = probe::ask(&server)?;
        let known = answer.map.servers();
        let is_it = |native: &str| known.len() == 1 || native == server;
        let found = known
            .iter()
            .find(|known| known.addresses.native.as_ref().is_some_and(|at| is_it(at.as_str())));
        let resp = found.and_then(|found| found.addresses.resp.as_ref()).ok_or_else(|| {
            Failure::failed(format!(
                "{server} tells of no port for Redis clients: name it, as in --address \
                 redis://127.0.0.1:7401"
            ))
        })?;
        Ok(Self { addresses: resolve(resp.as_str())?, servers: vec![server], notes })
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn resolve(host: &str) -> Result<Vec<SocketAddr>, Failure> {
    use std::net::ToSocketAddrs as _;
    let found: Vec<SocketAddr> = host
        .to_socket_addrs()
        .map_err(|error| Failure::usage(format!("could not resolve {host}: {error}")))?
        .collect();
    if found.is_empty() { Err(Failure::usage(format!("{host} has no address"))) } else { Ok(found) }
}

/// Runs the clients, and reports.
pub(super) fn run(args: &BenchArgs, format: Format) -> Result<(), Failure> {
    let plan = RespPlan::of(args)?;
    let interrupt = Interrupt::register()?;
    let door = Door::find(&args.target.address)?;
    begin_anew(&plan, &door.addresses)?;
    let chronicle = args.history.as_deref().map(RedisChronicle::create).transpose()?;
    let run = Arc::new(RespRun { course: Course::new(), chronicle, tally: Mutex::default() });
    let mut threads = Vec::new();
    for number in 0..plan.connections {
        let connection = plan.connection(&run, &door.addresses, number)?;
        let named = std::thread::Builder::new().name(format!("connection {number}"));
        let thread = named.spawn(move || connection.run());
        threads.push(
            thread
                .map_err(|error| Failure::failed(format!("could not start a thread: {error}")))?,
        );
    }
    let (used, duration) = measure(&run, &plan, &door, &interrupt);
    let ended = join(threads);
    // Also when a thread failed: what was written down so far is a history.
    run.chronicle.as_ref().map_or(Ok(()), RedisChronicle::close)?;
    ended?;
    run.tally(|tally| {
        or_unread(print(&report(&plan, &door, &used, duration, tally), format))?;
        verdict(tally)
    })
}

/// Deletes what an earlier run left, so that a history begins with nothing.
fn begin_anew(plan: &RespPlan, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let lost = |lost: Lost| {
        let (why, address) =
            (lost.to_string(), addresses.first().map(ToString::to_string).unwrap_or_default());
        Failure::failed(format!(
            "could not reach the RESP port at {address}: {why}; start a server with `timestone \
             serve`"
        ))
    };
    let mut link = RespLink::dial(addresses).map_err(lost)?;
    let mut requests = vec![Request::command("FLUSHDB")];
    if plan.whole != Whole::All {
        let keys = Generator::keys(&plan.mix);
        let delete = |keys: &[String]| {
            Request::One(std::iter::once("DEL".to_owned()).chain(keys.to_vec()).collect())
        };
        requests = keys.chunks(DELETED_AT_ONCE).map(delete).collect();
    }
    for request in requests {
        link.send(std::slice::from_ref(&request)).map_err(lost)?;
        if let Reply::Error(text) = link.reply().map_err(lost)? {
            return Err(Failure::failed(format!(
                "could not delete the keys of an earlier run: {text}"
            )));
        }
    }
    Ok(())
}

/// Lets the connections work; what was used while it was measured, and how long that was.
fn measure(run: &RespRun, plan: &RespPlan, door: &Door, interrupt: &Interrupt) -> (Used, Duration) {
    pass(&run.course, "warming up", plan.warmup, interrupt);
    let (before, begin) = (CpuReading::take(&door.servers), Instant::now());
    run.course.enter(CoursePhase::Measure);
    pass(&run.course, "measuring ", plan.duration, interrupt);
    run.course.enter(CoursePhase::Stop);
    let duration = begin.elapsed();
    (CpuReading::take(&door.servers).since(&before), duration)
}

fn join(threads: Vec<JoinHandle<Result<(), Failure>>>) -> Result<(), Failure> {
    let mut ended = Ok(());
    for thread in threads {
        let one = thread
            .join()
            .unwrap_or_else(|_| Err(Failure::failed("a connection's thread has panicked")));
        ended = ended.and(one);
    }
    ended
}

fn report(
    plan: &RespPlan,
    door: &Door,
    used: &Used,
    duration: Duration,
    tally: &RespTally,
) -> Report {
    let mut report = Report::of(NAME, plan.connections, duration, &tally.recorder, used.cpu);
    report.note("protocol", "resp");
    report.note("version", env!("CARGO_PKG_VERSION"));
    report.note("keys", plan.mix.keys);
    report.note("depth", plan.mix.depth);
    let whole = plan
        .whole
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    report.note("whole", whole);
    report.note("cut_percent", plan.cut_percent);
    report.note("seed", plan.seed);
    report.note("warmup_s", plan.warmup.as_secs_f64());
    report.note("reconnects", tally.reconnects);
    match plan.pace {
        Pace::Closed => report.note("pace", "closed"),
        Pace::Open { per_second } => {
            report.note("pace", "open");
            report.note("rate", per_second);
        }
    }
    for (name, value) in &door.notes {
        report.note(name, value.clone());
    }
    if used.restarted {
        report.note(
            "server_cpu",
            "a server restarted during the run, and its processor time began anew",
        );
    }
    report
}

/// Whether the run may stand.
fn verdict(tally: &RespTally) -> Result<(), Failure> {
    if let Some(what) = &tally.nonsense {
        return Err(Failure::failed(format!("the server's answers are none: {what}")));
    }
    if tally.recorder.committed_count() == 0 {
        let why = tally.first_error.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        return Err(Failure::failed(format!("not one command was carried out{why}")));
    }
    Ok(())
}

impl RespRun {
    /// So many calls were carried out, for the progress bar.
    fn publish(&self, calls: u64) {
        self.course.committed.fetch_add(calls, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    #[test]
    fn flags_become_the_plan() {
        let plan = RespPlan::of(&args(
            "--protocol resp --clients 3 --keys 7 --depth 9 --whole all --cut 5 --rate 30",
        ))
        .unwrap();
        assert_eq!(
            (plan.connections, plan.mix.keys, plan.mix.depth, plan.cut_percent),
            (3, 7, 9, 5)
        );
        assert!(plan.mix.alone && plan.mix.lists && plan.pace == Pace::Open { per_second: 30.0 });
        let plan = RespPlan::of(&args("redis --protocol resp")).unwrap();
        assert!(!plan.mix.alone && plan.mix.lists && plan.connections == CONNECTIONS);
        assert!(!RespPlan::of(&args("redis --whole none")).unwrap().mix.lists);
    }

    #[test]
    fn flags_of_the_native_protocol_are_refused_by_name() {
        for (text, expected) in [
            ("--protocol resp --in-process", "--in-process"),
            ("--protocol resp --zipf 1", "--zipf"),
            ("--protocol resp --keyspace k", "--keyspace"),
            ("--protocol resp --clients 0", "--clients"),
            ("--protocol resp --depth 100000", "--depth"),
            ("--protocol resp --keys 0", "--keys"),
            ("--protocol resp --duration 0s", "--duration"),
        ] {
            let failure = RespPlan::of(&args(text)).unwrap_err();
            assert!(
                failure.to_string().contains(expected) && failure.code == 2,
                "{text}: {failure}"
            );
        }
    }

    #[test]
    fn a_port_may_be_left_out() {
        for (host, port) in
            [("127.0.0.1:5", true), ("localhost", false), ("[::1]", false), ("[::1]:7", true)]
        {
            assert_eq!(has_port(host), port, "{host}");
        }
    }
}
