//! The replicas of shards, as their servers tell of them, and what the controller does.

use serde_json::{Map, Value, json};
use timestone_cluster::{ServerId, ShardEntry, ShardMap};

use super::{AskedServer, value_of};
use crate::failure::Failure;
use crate::output::{table, write_line};

/// What each server tells of its replica: the name after the shard's, and the one that is shown.
const FIGURES: [(&str, &str); 5] = [
    ("step", "step"),
    ("promised_epoch", "promised"),
    ("installed_epoch", "installed"),
    ("counted_batch", "counted"),
    ("lag_batches", "lag"),
];

/// A figure of one server.
fn figure<'a>(servers: &'a [AskedServer], server: ServerId, name: &str) -> Option<&'a str> {
    let server = servers.iter().find(|one| one.id == server.get())?;
    server.answer.as_ref().ok()?.figure(name)
}

/// A figure that any server tells.
fn any<'a>(servers: &'a [AskedServer], name: &str) -> Option<&'a str> {
    servers.iter().find_map(|server| server.answer.as_ref().ok()?.figure(name))
}

/// How many copies of each shard the cluster keeps.
pub(super) fn replication(servers: &[AskedServer]) -> u64 {
    any(servers, "replication").and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Who is the controller: the server of the latest term.
fn controller(servers: &[AskedServer]) -> Option<(ServerId, u64)> {
    let of_server = |server: &AskedServer| {
        let term = figure(servers, ServerId::new(server.id), "controller_term")?.parse().ok()?;
        Some((ServerId::new(server.id), term))
    };
    servers.iter().filter_map(of_server).max_by_key(|(_, term)| *term)
}

/// How a shard is, in one word or two.
fn state(shard: &ShardEntry, servers: &[AskedServer]) -> String {
    if shard.primary.is_none() {
        return "waits for servers".to_owned();
    }
    let step = figure(servers, shard.primary, &format!("shard_{}_step", shard.id));
    step.unwrap_or("unknown").to_owned()
}

/// The replicas of a shard as JSON.
pub(super) fn describe_shard(shard: &ShardEntry, servers: &[AskedServer]) -> Value {
    let of_replica = |&server: &ServerId| {
        let mut object = Map::new();
        object.insert("server".to_owned(), server.get().into());
        for (name, shown) in FIGURES {
            let found = figure(servers, server, &format!("shard_{}_{name}", shard.id));
            object.insert(shown.to_owned(), found.map(value_of).into());
        }
        Value::Object(object)
    };
    let confirmed = any(servers, &format!("shard_{}_confirmed_epoch", shard.id));
    json!({
        "state": state(shard, servers),
        "confirmed_epoch": confirmed.map(value_of),
        "replicas": shard.replicas.iter().map(of_replica).collect::<Vec<_>>(),
    })
}

/// The controller as JSON; nothing if no server that answers is it.
pub(super) fn describe_controller(servers: &[AskedServer]) -> Value {
    let Some((server, term)) = controller(servers) else { return Value::Null };
    json!({
        "server": server.get(),
        "term": term,
        "last": figure(servers, server, "controller_last"),
    })
}

/// How the cluster's copies are kept, in a line or two.
fn summary(servers: &[AskedServer]) -> Vec<String> {
    let mut lines = vec![format!("replication {}", replication(servers))];
    if let Some(missing) = any(servers, "servers_waited_for") {
        lines.push(format!("nothing is served until {missing} more servers have joined"));
    }
    lines.push(match controller(servers) {
        Some((server, term)) => {
            let last = figure(servers, server, "controller_last").unwrap_or("nothing yet");
            format!("controller {server} term {term} last {last}")
        }
        None => "controller unknown".to_owned(),
    });
    lines
}

/// The same for people and for scripts, a line each.
pub(super) fn print_text(map: &ShardMap, servers: &[AskedServer]) -> Result<(), Failure> {
    for line in summary(servers) {
        write_line(&line)?;
    }
    for shard in map.shards() {
        write_line(&format!("shard {} state {}", shard.id, state(shard, servers)))?;
        for &server in &shard.replicas {
            let figures: Vec<String> = FIGURES
                .iter()
                .map(|(name, shown)| {
                    let found = figure(servers, server, &format!("shard_{}_{name}", shard.id));
                    format!("{shown} {}", found.unwrap_or("unknown"))
                })
                .collect();
            write_line(&format!("shard {} replica {server} {}", shard.id, figures.join(" ")))?;
        }
    }
    Ok(())
}

/// A table with one row a replica.
pub(super) fn print_table(map: &ShardMap, servers: &[AskedServer]) -> Result<(), Failure> {
    for line in summary(servers) {
        write_line(&line)?;
    }
    let mut header = vec!["shard", "replica"];
    header.extend(FIGURES.iter().map(|(_, shown)| *shown));
    let mut replicas = table(&header);
    for shard in map.shards() {
        if shard.replicas.is_empty() {
            let empty = std::iter::repeat_n("–".to_owned(), FIGURES.len() - 1);
            let row = [shard.id.to_string(), "–".to_owned(), state(shard, servers)];
            replicas.add_row(row.into_iter().chain(empty));
        }
        for &server in &shard.replicas {
            let is_primary = server == shard.primary;
            let name = if is_primary { format!("{server} (primary)") } else { server.to_string() };
            let figures = FIGURES.iter().map(|(name, _)| {
                let found = figure(servers, server, &format!("shard_{}_{name}", shard.id));
                found.unwrap_or("–").to_owned()
            });
            replicas.add_row([shard.id.to_string(), name].into_iter().chain(figures));
        }
    }
    write_line(&replicas.to_string())
}
