//! Metrics and health over HTTP, on a thread of its own that shares nothing with the data path but
//! atomics.
//!
//! `/metrics` (Prometheus text), `/livez` (the process runs), `/readyz` (it serves; `?verbose` says
//! why).

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use timestone_clock::{Clock, ClockHealth, ClockState};
use timestone_seda::Injector;
use timestone_types::{AbortKind, Span};
use tokio::sync::oneshot;

use crate::assembly::Observed;
use crate::error::ServerError;
use crate::event::Event;
use crate::http_listener::BoundedListener;
use crate::replica_gauges::ReplicaGauges;
use timestone_shard::gauges::ShardGauges;

/// The HTTP server: bound first, so that a port in use is noticed before anything runs.
pub(crate) struct HttpServer {
    address: SocketAddr,
    listener: Option<TcpListener>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct HttpState {
    observed: Arc<Observed>,
    injector: Injector<Event>,
}

impl HttpServer {
    /// Takes the port.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Listen { address, purpose: "HTTP", source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { address, listener: Some(listener), stop: None, thread: None })
    }

    /// Serves until it is stopped.
    pub(crate) fn serve(
        mut self,
        observed: Arc<Observed>,
        injector: Injector<Event>,
    ) -> Result<Self, ServerError> {
        let Some(listener) = self.listener.take() else { return Ok(self) };
        let (stop, stopped) = oneshot::channel();
        let address = self.address;
        let failed = move |source| ServerError::Listen { address, purpose: "HTTP", source };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(HttpState { observed, injector });
        let run = move || {
            runtime.block_on(async move {
                let served = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let quit = async move {
                            // A dropped sender means the same as a message.
                            let _ = stopped.await;
                        };
                        axum::serve(BoundedListener::new(listener), router)
                            .with_graceful_shutdown(quit)
                            .await
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = served {
                    tracing::error!(%error, "the HTTP port is no longer served");
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("timestone-http".to_owned())
            .spawn(run)
            .map_err(failed)?;
        self.stop = Some(stop);
        self.thread = Some(thread);
        Ok(self)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops serving.
    pub(crate) fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

async fn ready(State(shared): State<HttpState>, RawQuery(query): RawQuery) -> impl IntoResponse {
    let verbose = query
        .as_deref()
        .is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let (ok, text) = readiness(&checks(&shared.observed), &notes(&shared.observed), verbose);
    (if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

/// What must hold of a server that is sent requests, by name; and why it does not.
type Check = (&'static str, Result<(), String>);

fn checks(observed: &Observed) -> [Check; 6] {
    let unowned = observed.map().shards().iter().filter(|shard| shard.primary.is_none()).count();
    let holds = |holds: bool, reason: &str| if holds { Ok(()) } else { Err(reason.to_owned()) };
    let failure = observed.logs.iter().find_map(|log| log.failure());
    let shortage = observed.logs.iter().find_map(|log| log.shortage.get());
    [
        (
            "recovered",
            holds(observed.ready.load(Relaxed), "the data directory is still being recovered"),
        ),
        ("not-stopping", holds(!observed.stopping.load(Relaxed), "the server is shutting down")),
        ("shards-owned", holds(unowned == 0, "some shards of the cluster have no server yet")),
        ("room", room(&observed.shards, &observed.directory)),
        ("log", log_works(failure, shortage.as_deref())),
        ("clock", writes_wait(observed.clock_behind(observed.clock.now()))),
    ]
}

/// Whether every shard has room for writes; which have none, where, and why.
fn room(shards: &[Arc<ShardGauges>], directory: &Path) -> Result<(), String> {
    let full: Vec<String> = shards
        .iter()
        .filter(|shard| shard.fullness.is_full.load(Relaxed))
        .map(|shard| match shard.fullness.cause.get() {
            Some(cause) => format!("{} ({cause})", shard.shard),
            None => shard.shard.to_string(),
        })
        .collect();
    if full.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no room for writes in {}, shard {}: reads and deletes go on; delete something, free space \
         on the disk or raise the capacity",
        directory.display(),
        full.join(", ")
    ))
}

/// Whether all logs take what is written.
fn log_works(failure: Option<&str>, shortage: Option<&str>) -> Result<(), String> {
    if let Some(cause) = failure {
        return Err(format!(
            "the log failed ({cause}): what is latest can be read, writes and later snapshots are \
             refused; remove the cause, then \
             restart the server"
        ));
    }
    shortage.map_or(Ok(()), |words| {
        Err(format!("writes are refused, reads and deletes go on: {words}"))
    })
}

/// A clock that stands far behind what was served before the restart keeps writes out.
fn writes_wait(behind: Option<Duration>) -> Result<(), String> {
    behind.map_or(Ok(()), |left| {
        Err(format!(
            "the system's clock is far behind what was served before the restart: reads go on, \
             writes are refused for another {}; \
             set the clock right and restart the server, or wait",
            Span(left)
        ))
    })
}

/// A step of the clock that is held, or being followed, harms nobody and should be looked at.
fn clock_note(health: &ClockHealth) -> Option<(&'static str, String)> {
    (health.state != ClockState::Following).then(|| ("clock", health.to_string()))
}

/// What people should know of a server that is ready all the same.
fn notes(observed: &Observed) -> Vec<(&'static str, String)> {
    unreached_note(unreached(observed))
        .filter(|_| observed.nets.iter().any(|(name, _)| *name == "resp"))
        .into_iter()
        .chain(clock_note(&observed.clock.health()))
        .collect()
}

/// How many shards of the cluster some gateway does not reach.
fn unreached(observed: &Observed) -> u64 {
    observed.unreached.iter().map(|shards| shards.load(Relaxed)).max().unwrap_or_default()
}

/// So many shards are not reached by the Redis port.
fn unreached_note(shards: u64) -> Option<(&'static str, String)> {
    (shards > 0).then(|| {
        let words = format!(
            "{shards} shards of the cluster are not reached from here at present; commands of Redis \
             clients on their keys wait, and are refused in the end"
        );
        ("redis-keys", words)
    })
}

/// The page: what fails and what is noted is always told, what holds only when it is asked for.
fn readiness(checks: &[Check], notes: &[(&'static str, String)], verbose: bool) -> (bool, String) {
    let ok = checks.iter().all(|(_, held)| held.is_ok());
    let mut text = String::new();
    for (name, held) in checks {
        let _ = match held {
            Ok(()) if verbose => writeln!(text, "[+]{name} ok"),
            Ok(()) => Ok(()),
            Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
    }
    for (name, words) in notes {
        let _ = writeln!(text, "[!]{name}: {words}");
    }
    text.push_str(if ok { "ready\n" } else { "not ready\n" });
    (ok, text)
}

async fn metrics(State(shared): State<HttpState>) -> impl IntoResponse {
    let mut text = Page::default();
    shards(&mut text, &shared.observed);
    logs(&mut text, &shared.observed);
    stages(&mut text, &shared.injector);
    page_of_gateways(&mut text, &shared.observed);
    clock(&mut text, &shared.observed);
    memory(&mut text, &shared.observed);
    nets(&mut text, &shared.observed);
    crate::exposition::add(&mut text, &shared.observed);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.0)
}

/// Prometheus's text format.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    pub(crate) fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

fn shards(page: &mut Page, observed: &Observed) {
    let label = |shard: &ShardGauges| format!("{{shard=\"{}\"}}", shard.shard);
    let requests = observed.shards.iter().flat_map(|shard| {
        let of = |kind: &str, value: u64| {
            (format!("{{shard=\"{}\",kind=\"{kind}\"}}", shard.shard), value as f64)
        };
        [
            of("get", shard.counts.gets.load(Relaxed)),
            of("prepare", shard.counts.prepares.load(Relaxed)),
            of("write", shard.counts.writes.load(Relaxed)),
            of("decide", shard.counts.decisions.load(Relaxed)),
        ]
    });
    page.family(
        "timestone_requests_total",
        "counter",
        "Requests that shards took, by kind.",
        requests,
    );
    let votes = observed.shards.iter().flat_map(|shard| {
        let of = |vote: &str, value: u64| {
            (format!("{{shard=\"{}\",vote=\"{vote}\"}}", shard.shard), value as f64)
        };
        let no = AbortKind::ALL
            .iter()
            .zip(&shard.votes.no)
            .map(move |(kind, count)| (kind.name(), count.load(Relaxed)));
        [("yes", shard.votes.yes.load(Relaxed)), ("later", shard.votes.later.load(Relaxed))]
            .into_iter()
            .chain(no)
            .map(move |(name, value)| of(name, value))
    });
    page.family(
        "timestone_votes_total",
        "counter",
        "Votes of shards: yes, later, or the reason of a no.",
        votes,
    );
    let now = observed.clock.now();
    let lag = observed
        .shards
        .iter()
        .filter_map(|shard| Some((label(shard), shard.watermark_lag(now)?.as_secs_f64())));
    page.family(
        "timestone_watermark_lag_seconds",
        "gauge",
        "How far the watermark trails the clock.",
        lag,
    );
    let of_replica = |replica: &ReplicaGauges| format!("{{shard=\"{}\"}}", replica.shard);
    let reads = observed.replicas.iter().flat_map(|replica| {
        let (answered, refused) = replica.backup_reads();
        let of = |result: &str, value: u64| {
            (format!("{{shard=\"{}\",result=\"{result}\"}}", replica.shard), value as f64)
        };
        [of("answered", answered), of("refused", refused)]
    });
    page.family(
        "timestone_backup_reads_total",
        "counter",
        "Reads of snapshots that clients asked of this server's backups; what is refused they ask the \
         primary.",
        reads,
    );
    let closed = observed.replicas.iter();
    let closed =
        closed.filter_map(|one| Some((of_replica(one), one.closed_lag(now)?.as_secs_f64())));
    page.family(
        "timestone_closed_lag_seconds",
        "gauge",
        "How old the latest snapshot is that clients may read at this server's backup of a shard.",
        closed,
    );
    let waiting =
        observed.shards.iter().map(|shard| (label(shard), shard.requests.load(Relaxed) as f64));
    page.family(
        "timestone_requests_under_way",
        "gauge",
        "Requests that wait for a decision, the log or the device.",
        waiting,
    );
    let prepared =
        observed.shards.iter().map(|shard| (label(shard), shard.prepared.load(Relaxed) as f64));
    page.family(
        "timestone_prepared_transactions",
        "gauge",
        "Transactions promised and not yet applied.",
        prepared,
    );
    for (name, help) in timestone_shard::gauges::TABLE_FIGURES {
        let samples = observed.shards.iter().map(|shard| {
            let value =
                shard.tables().find(|(known, _)| *known == name).map_or(0, |(_, value)| value);
            (label(shard), value as f64)
        });
        page.family(&format!("timestone_shard_{name}"), "gauge", help, samples);
    }
    for figure in timestone_store::Figure::ALL {
        let (name, help) = (figure.name(), figure.help());
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        // What is not known is not told.
        let samples = observed
            .shards
            .iter()
            .filter_map(|shard| Some((label(shard), shard.store_figures().known(figure)? as f64)));
        page.family(&format!("timestone_store_{name}"), kind, help, samples);
    }
    for ratio in timestone_store::Ratio::ALL {
        let value = |shard: &ShardGauges| ratio.of(&shard.store_figures()).unwrap_or(0.0);
        let samples = observed.shards.iter().map(|shard| (label(shard), value(shard)));
        page.family(&format!("timestone_store_{}", ratio.name()), "gauge", ratio.help(), samples);
    }
}

fn logs(page: &mut Page, observed: &Observed) {
    let label = |index: usize| format!("{{log=\"{index}\"}}");
    let mut family = |name: &str,
                      kind: &str,
                      help: &str,
                      read: fn(&crate::gauges::LogGauges) -> u64| {
        let samples =
            observed.logs.iter().enumerate().map(|(index, log)| (label(index), read(log) as f64));
        page.family(name, kind, help, samples);
    };
    family("timestone_log_batches_total", "counter", "Batches appended.", |log| {
        log.batches.load(Relaxed)
    });
    family(
        "timestone_log_written_bytes_total",
        "counter",
        "Bytes written, headers and padding included.",
        |log| log.written_bytes.load(Relaxed),
    );
    family(
        "timestone_log_groups_total",
        "counter",
        "Groups made durable, each by one wait for the device.",
        |log| log.groups.load(Relaxed),
    );
    family("timestone_log_files", "gauge", "Files that hold batches.", |log| {
        log.files.load(Relaxed)
    });
    family("timestone_log_space_bytes", "gauge", "Bytes of the log's files.", |log| {
        log.space_bytes.load(Relaxed)
    });
    family("timestone_log_queued_bytes", "gauge", "Bytes accepted and not durable yet.", |log| {
        log.queued_bytes.load(Relaxed)
    });
}

fn stages(page: &mut Page, injector: &Injector<Event>) {
    let snapshot = injector.metrics();
    let label = |name: &str| format!("{{stage=\"{name}\"}}");
    let mut family =
        |name: &str, kind: &str, help: &str, read: fn(&timestone_seda::StageSnapshot) -> f64| {
            let samples = snapshot
                .stages
                .iter()
                .filter(|stage| stage.turns_total > 0)
                .map(|stage| (label(&stage.name), read(stage)));
            page.family(name, kind, help, samples);
        };
    family("timestone_stage_events_total", "counter", "Events handled.", |stage| {
        stage.events_total as f64
    });
    family("timestone_stage_batches_total", "counter", "Batches they came in.", |stage| {
        stage.batches_total as f64
    });
    family("timestone_stage_queue_length", "gauge", "Events waiting.", |stage| {
        stage.queue_length as f64
    });
    family(
        "timestone_stage_refused_total",
        "counter",
        "Events refused because the queue was full.",
        |stage| stage.refused_total as f64,
    );
    family(
        "timestone_stage_admitted_requests",
        "gauge",
        "Requests let in and not finished.",
        |stage| stage.admitted_requests as f64,
    );
    family("timestone_stage_admitted_bytes", "gauge", "Their bytes.", |stage| {
        stage.admitted_bytes as f64
    });
    family(
        "timestone_stage_service_seconds",
        "gauge",
        "Mean time for each event, sampled.",
        |stage| stage.service_per_event().as_secs_f64(),
    );
    family(
        "timestone_stage_wait_seconds",
        "gauge",
        "Mean wait of a batch in the queue, sampled.",
        |stage| stage.wait_mean().as_secs_f64(),
    );
}

fn page_of_gateways(page: &mut Page, observed: &Observed) {
    page.family(
        "timestone_gateway_unreached_shards",
        "gauge",
        "Shards of the cluster that the Redis port does not reach: their server is down, or has not \
         joined.",
        [(String::new(), unreached(observed) as f64)],
    );
}

fn clock(page: &mut Page, observed: &Observed) {
    let bound = observed.clock.error_bound();
    let one = |value: f64| [(String::new(), value)];
    page.family(
        "timestone_clock_error_bound_seconds",
        "gauge",
        "How far the clock may be off.",
        one(bound.bound.as_secs_f64()),
    );
    let health = observed.clock.health();
    page.family(
        "timestone_clock_offset_seconds",
        "gauge",
        "How far the process's time is ahead of the system's clock; negative when it is behind.",
        one(health.offset_ns as f64 / 1e9),
    );
    page.family(
        "timestone_clock_held_steps_total",
        "counter",
        "Steps of the system's clock that were held.",
        one(health.held_steps as f64),
    );
    let states = [ClockState::Following, ClockState::Held, ClockState::Slewing].map(|state| {
        (format!("{{state=\"{state}\"}}"), f64::from(u8::from(state == health.state)))
    });
    page.family(
        "timestone_clock_state",
        "gauge",
        "What the process makes of the system's clock: 1 for what it is.",
        states,
    );
    let now = observed.clock.now();
    let left = observed.clock_behind(now).unwrap_or_default().as_secs_f64();
    page.family(
        "timestone_clock_behind_seconds",
        "gauge",
        "For how long writes are refused because the clock is far behind what was served before \
         the restart.",
        one(left),
    );
    let ahead = observed.shards.iter().flat_map(|shard| {
        let of = |why: &str, count: &AtomicU64| {
            (format!("{{shard=\"{}\",because=\"{why}\"}}", shard.shard), count.load(Relaxed) as f64)
        };
        [of("client", &shard.counts.clock_ahead), of("held", &shard.counts.clock_held)]
    });
    page.family(
        "timestone_clock_ahead_total",
        "counter",
        "Requests whose timestamps led too far: refused because of the client's clock, or told to \
         wait because the server's is held.",
        ahead,
    );
    let synchronised = f64::from(u8::from(bound.synchronised));
    page.family(
        "timestone_clock_synchronised",
        "gauge",
        "Whether anything disciplines the clock.",
        one(synchronised),
    );
    let uptime = observed.clock.now().since(observed.started).as_secs_f64();
    page.family("timestone_uptime_seconds", "gauge", "Time since the server started.", one(uptime));
}

fn memory(page: &mut Page, observed: &Observed) {
    const HELP: [(&str, &str); 18] = [
        ("memory_limit_bytes", "Memory that the process may use."),
        ("memory_resident_bytes", "Memory of the process that is in the machine's."),
        ("memory_cache_limit_bytes", "Memory that the record caches may use."),
        (
            "memory_cache_left_bytes",
            "Memory that the record caches may use now: less what exceeds the share beside them.",
        ),
        ("memory_cache_bytes", "Memory of the record caches."),
        (
            "memory_beside_limit_bytes",
            "Memory of indexes, page buffers and access records before record caches give way.",
        ),
        ("memory_index_bytes", "Memory of the indexes; it grows with the number of keys."),
        (
            "memory_page_buffer_bytes",
            "Pages and large values on their way to devices and from them.",
        ),
        (
            "memory_access_record_bytes",
            "Memory of what shards remember of keys that were read or written lately.",
        ),
        ("memory_input_limit_bytes", "What clients may have sent that is not carried out yet."),
        ("memory_input_bytes", "What clients have sent that is not carried out yet."),
        (
            "memory_input_refused_total",
            "Requests that waited for, or were refused, memory for input.",
        ),
        (
            "memory_writes_limit_bytes",
            "Write sets that may be promised and not readable from the store yet.",
        ),
        (
            "memory_writes_bytes",
            "Write sets that are promised and not readable from the store yet.",
        ),
        ("memory_writes_refused_total", "Writes that were told to come again for want of memory."),
        ("memory_output_limit_bytes", "Answers that may wait to be read by clients."),
        ("memory_output_bytes", "Answers that wait to be read by clients."),
        ("memory_output_refused_total", "Answers that were put off because others were not read."),
    ];
    for (name, value) in crate::running::memory(observed) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let help = HELP.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help);
        page.family(&format!("timestone_{name}"), kind, help, [(String::new(), value as f64)]);
    }
}

fn nets(page: &mut Page, observed: &Observed) {
    type Read = fn(&timestone_seda::NetSnapshot) -> u64;
    let snapshots: Vec<_> = observed
        .nets
        .iter()
        .enumerate()
        .map(|(index, (kind, net))| {
            (format!("{{protocol=\"{kind}\",net=\"{index}\"}}"), net.snapshot())
        })
        .collect();
    let families: [(&str, &str, &str, Read); 10] = [
        ("timestone_net_connections", "gauge", "Open connections.", |net| net.connections),
        ("timestone_net_accepted_total", "counter", "Connections accepted.", |net| {
            net.accepted_total
        }),
        (
            "timestone_net_broken_total",
            "counter",
            "Connections closed because they broke the protocol.",
            |net| net.broken_total,
        ),
        ("timestone_net_busy_total", "counter", "Frames answered with busy.", |net| {
            net.frames_busy_total
        }),
        ("timestone_net_received_bytes_total", "counter", "Bytes received.", |net| {
            net.bytes_received_total
        }),
        ("timestone_net_sent_bytes_total", "counter", "Bytes sent.", |net| net.bytes_sent_total),
        (
            "timestone_net_queued_bytes",
            "gauge",
            "Bytes of answers that wait for their peers.",
            |net| net.queued_bytes,
        ),
        (
            "timestone_net_refused_total",
            "counter",
            "Connections refused: too many, or shutting down.",
            |net| net.refused_total,
        ),
        (
            "timestone_net_stalled_total",
            "counter",
            "Connections closed because their peers neither read nor went on.",
            |net| net.stalled_total,
        ),
        (
            "timestone_net_shed_total",
            "counter",
            "Batches of answers of which some became busy, as none were read.",
            |net| net.shed_total,
        ),
    ];
    for (name, kind, help, read) in families {
        page.family(
            name,
            kind,
            help,
            snapshots.iter().map(|(labels, net)| (labels.clone(), read(net) as f64)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_tells_what_fails_and_why() {
        let fine: [Check; 2] = [("recovered", Ok(())), ("log", Ok(()))];
        assert_eq!(readiness(&fine, &[], false), (true, "ready\n".to_owned()));
        assert_eq!(
            readiness(&fine, &[], true),
            (true, "[+]recovered ok\n[+]log ok\nready\n".to_owned())
        );
        let failed: [Check; 2] =
            [("recovered", Ok(())), ("log", Err("the device is gone".to_owned()))];
        assert_eq!(
            readiness(&failed, &[], false),
            (false, "[-]log failed: the device is gone\nnot ready\n".to_owned())
        );
        // What people should know does not make a server unready.
        assert_eq!(unreached_note(0), None);
        let notes: Vec<_> = unreached_note(2).into_iter().collect();
        let (is_ready, page) = readiness(&fine, &notes, false);
        assert!(is_ready && page.starts_with("[!]redis-keys: 2 shards of the cluster"), "{page}");
        assert!(page.ends_with("\nready\n"), "{page}");
    }

    #[test]
    fn a_held_step_is_told_and_a_clock_far_behind_is_not_ready() {
        let health = |state| ClockHealth { state, offset_ns: 5_000_000_000, held_steps: 1 };
        assert_eq!(clock_note(&health(ClockState::Following)), None);
        let (_, words) = clock_note(&health(ClockState::Held)).expect("a note");
        assert!(
            words.starts_with("the system's clock has stepped") && words.contains("5 s ahead"),
            "{words}"
        );
        assert_eq!(writes_wait(None), Ok(()));
        let words = writes_wait(Some(Duration::from_secs(3_000))).expect_err("not ready");
        assert!(words.contains("writes are refused for another 50 min"), "{words}");
    }
}
