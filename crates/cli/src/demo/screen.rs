//! What the demo prints: a head, a line a second, what happened, and what it came to.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bank::Bank;
use super::cluster::{DemoCluster, ServerState};
use super::events::DemoEvent;
use super::flags::{DemoPlan, RestartAfter};
use super::tally::{Figures, Tally};
use crate::failure::Failure;
use crate::output::{Format, quoted, write_json, write_line};

/// Where lines go, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    format: Format,
    begin: Instant,
}

impl Screen {
    /// One whose time begins now.
    pub(super) fn new(format: Format) -> Self {
        Self { format, begin: Instant::now() }
    }

    /// The same, with a time that begins now.
    pub(super) fn begun(self) -> Self {
        Self::new(self.format)
    }

    fn seconds(&self) -> u64 {
        self.begin.elapsed().as_secs()
    }

    fn print(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => write_json(&json()),
            Format::Text | Format::Table => write_line(&text()),
        }
    }

    /// What runs where, and what to try.
    pub(super) fn head(
        &self,
        plan: &DemoPlan,
        cluster: &DemoCluster,
        bank: &Bank,
        folder: &str,
    ) -> Result<(), Failure> {
        self.print(
            || head_in_words(plan, cluster, bank, folder),
            || head_as_json(plan, cluster, bank, folder),
        )
    }

    /// Something happened.
    pub(super) fn event(&self, event: &DemoEvent) -> Result<(), Failure> {
        self.print(
            || format!("{:>4} s  * {event}", self.seconds()),
            || {
                let mut object = event.describe();
                object["seconds"] = self.seconds().into();
                object
            },
        )
    }

    /// The figures of a second.
    pub(super) fn second(
        &self,
        figures: &Figures,
        total: i64,
        cluster: &DemoCluster,
    ) -> Result<(), Failure> {
        self.print(
            || format!("{:>4} s  {}", self.seconds(), second_in_words(figures, total, cluster)),
            || {
                let mut object = second_as_json(figures, total, cluster);
                object["seconds"] = self.seconds().into();
                object
            },
        )
    }

    /// What it came to.
    pub(super) fn end(&self, bank: &Bank, cluster: &DemoCluster) -> Result<(), Failure> {
        let tally = bank.tally();
        self.print(
            || end_in_words(&tally, bank, cluster),
            || {
                let all = tally.all();
                json!({
                    "event": "end",
                    "seconds": self.seconds(),
                    "committed": all.committed,
                    "aborted": all.aborted,
                    "aborts": tally.aborts(),
                    "refused": all.refused,
                    "unknown": all.unknown,
                    "longest_pause_ms": millis(tally.longest_pause_of_all().1),
                    "processes_ended": cluster.deaths,
                    "failovers": cluster.failovers,
                    "accounts": bank.accounts(),
                    "total": bank.total(),
                    "sums_checked": tally.checked_count(),
                    "bank_right": tally.wrong().is_none(),
                    "wrong": tally.wrong(),
                })
            },
        )
    }

    /// Something that people want to know and programs do not.
    pub(super) fn remark(&self, words: &str) -> Result<(), Failure> {
        match self.format {
            Format::Json => Ok(()),
            Format::Text | Format::Table => write_line(words),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// So many of something.
pub(super) fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn head_in_words(plan: &DemoPlan, cluster: &DemoCluster, bank: &Bank, folder: &str) -> String {
    let copies = match plan.replicas {
        1 => "without copies: a killed server takes its shards with it until it is back".to_owned(),
        copies => format!("{copies} copies of each"),
    };
    let shards = counted(plan.shards.into(), "shard");
    let servers = counted(plan.servers.into(), "server");
    let mut text = format!("{shards} on {servers}, {copies}; files in {folder}\n");
    let _ = writeln!(text, "{}", cluster.master.describe());
    for (index, server) in cluster.servers.iter().enumerate() {
        let (pid, addresses) = (server.member.pid().unwrap_or_default(), server.addresses);
        let _ = writeln!(
            text,
            "server {}: pid {pid}, timestone://{}, redis-cli -p {}, http://{}",
            index + 1,
            addresses.native,
            addresses.resp.port(),
            addresses.http
        );
    }
    let (accounts, total) = (bank.accounts(), bank.total());
    let _ = writeln!(
        text,
        "{} sessions move money among {accounts} accounts, which hold {total} together",
        plan.clients
    );
    let pid = cluster.servers.last().and_then(|server| server.member.pid()).unwrap_or_default();
    let again = match plan.restart_after {
        RestartAfter::Span(span) => format!("it is started again after {span:?}"),
        RestartAfter::Never => "it is not started again".to_owned(),
    };
    let _ = write!(
        text,
        "try: kill -9 {pid}    ({again})\n     timestone status --address {}\n     Ctrl-C ends it",
        quoted(&cluster.url())
    );
    text
}

fn head_as_json(plan: &DemoPlan, cluster: &DemoCluster, bank: &Bank, folder: &str) -> Value {
    let servers = cluster.servers.iter().enumerate().map(|(index, server)| {
        json!({
            "server": index + 1,
            "pid": server.member.pid(),
            "native": format!("timestone://{}", server.addresses.native),
            "resp": format!("redis://{}", server.addresses.resp),
            "http": format!("http://{}", server.addresses.http),
            "log": server.member.process.log.display().to_string(),
        })
    });
    json!({
        "event": "start",
        "shards": plan.shards,
        "replicas": plan.replicas,
        "folder": folder,
        "address": cluster.url(),
        "master": cluster.master.describe(),
        "etcd": cluster.master.etcd().map(|etcd| json!({ "pid": etcd.pid() })),
        "servers": servers.collect::<Vec<_>>(),
        "accounts": bank.accounts(),
        "total": bank.total(),
    })
}

fn second_in_words(figures: &Figures, total: i64, cluster: &DemoCluster) -> String {
    let rate = |count| figures.per_second(count);
    let endings = figures.endings;
    let mut text = format!(
        "{} committed, {} aborted, {} unknown",
        rate(endings.committed),
        rate(endings.aborted),
        rate(endings.unknown)
    );
    if endings.refused > 0 {
        let _ = write!(text, ", {} refused", rate(endings.refused));
    }
    let (place, pause) = figures.longest_pause();
    let _ = write!(text, " | pause {} ms", pause.as_millis());
    if let Some(shard) = cluster.places().get(place).filter(|_| !pause.is_zero()) {
        let _ = write!(text, " (shard {})", shard.shard);
    }
    let _ = write!(text, " | bank {total}, {} sums right | shards", figures.checked);
    for place in cluster.places() {
        match place.primary {
            None => _ = write!(text, " {}: nowhere", place.shard),
            Some(index) => {
                let pid = cluster.servers[index].member.pid();
                let pid = pid.map_or_else(|| "dead".to_owned(), |pid| format!("pid {pid}"));
                let _ = write!(text, " {}: server {} ({pid})", place.shard, index + 1);
            }
        }
    }
    text.push_str(" | servers");
    for index in 0..cluster.servers.len() {
        let _ = write!(text, " {} {}", index + 1, cluster.state(index).name());
    }
    if let Some(etcd) = cluster.master.etcd() {
        let _ = write!(text, ", etcd {}", etcd_state(etcd.is_alive()));
    }
    text
}

const fn etcd_state(is_alive: bool) -> &'static str {
    if is_alive { ServerState::Alive.name() } else { ServerState::Dead.name() }
}

fn second_as_json(figures: &Figures, total: i64, cluster: &DemoCluster) -> Value {
    let shards = cluster.places().iter().enumerate().map(|(place, shard)| {
        let primary = shard.primary.map(|index| &cluster.servers[index].member);
        json!({
            "shard": shard.shard.get(),
            "epoch": shard.epoch,
            "primary": shard.primary.map(|index| index + 1),
            "pid": primary.and_then(|member| member.pid()),
            "pause_ms": figures.pauses.get(place).copied().map(millis),
        })
    });
    let servers = cluster.servers.iter().enumerate().map(|(index, server)| {
        json!({
            "server": index + 1,
            "pid": server.member.pid(),
            "state": cluster.state(index).name(),
        })
    });
    let etcd = cluster
        .master
        .etcd()
        .map(|etcd| json!({ "pid": etcd.pid(), "state": etcd_state(etcd.is_alive()) }));
    json!({
        "event": "second",
        "committed": figures.endings.committed,
        "aborted": figures.endings.aborted,
        "refused": figures.endings.refused,
        "unknown": figures.endings.unknown,
        "span_ms": millis(figures.span),
        "longest_pause_ms": millis(figures.longest_pause().1),
        "total": total,
        "sums_checked": figures.checked,
        "shards": shards.collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "etcd": etcd,
    })
}

fn end_in_words(tally: &Tally, bank: &Bank, cluster: &DemoCluster) -> String {
    let all = tally.all();
    let (place, pause) = tally.longest_pause_of_all();
    let shard = cluster.places().get(place).map_or(0, |place| place.shard.get());
    let kinds: Vec<String> =
        tally.aborts().iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let mut text = format!(
        "{} transactions committed, {} aborted{kinds}, {} refused, {} unknown\n\
         {} ended, {}; longest pause {} ms (shard {shard})",
        all.committed,
        all.aborted,
        all.refused,
        all.unknown,
        match cluster.deaths {
            1 => "1 process".to_owned(),
            deaths => format!("{deaths} processes"),
        },
        counted(cluster.failovers as usize, "failover"),
        pause.as_millis(),
    );
    if let Some(why) = tally.last_refusal() {
        let _ = write!(text, "\nthe last refusal: {why}");
    }
    if tally.wrong().is_none() {
        let _ = write!(
            text,
            "\nthe bank is right: {} accounts hold {} together, as in {} sums on the way",
            bank.accounts(),
            bank.total(),
            tally.checked_count()
        );
    }
    text
}
