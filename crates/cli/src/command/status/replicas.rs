//! The replicas of shards, as their servers tell of them, and what the controller does.

use serde_json::{Map, Value, json};
use timestone_cluster::{ServerId, ShardEntry, ShardMap};
use timestone_types::ShardId;

use super::{AskedServer, value_of};
use crate::failure::Failure;
use crate::output::{table, write_line};

/// What each server tells of its replica: the name after the shard's, and the one that is shown.
const FIGURES: [(&str, &str); 6] = [
    ("step", "step"),
    ("promised_epoch", "promised"),
    ("installed_epoch", "installed"),
    (COUNTED, "counted"),
    // How old what clients may read at it as a backup is; only while they do.
    ("closed_lag", "closed_lag"),
    // What it lacks of what it had; only where its device has not read all of that.
    ("loss", "loss"),
];

/// The last batch of which a replica knows that it counts.
const COUNTED: &str = "counted_batch";
/// How many batches below that one it does not have.
const LACKS: &str = "lag_batches";

/// A figure of one server.
fn figure<'a>(servers: &'a [AskedServer], server: ServerId, name: &str) -> Option<&'a str> {
    let server = servers.iter().find(|one| one.id == server.get())?;
    server.answer.as_ref().ok()?.figure(name)
}

/// What a server tells of its replica of a shard.
fn of_replica<'a>(
    servers: &'a [AskedServer],
    shard: ShardId,
    server: ServerId,
    name: &str,
) -> Option<&'a str> {
    figure(servers, server, &format!("shard_{shard}_{name}"))
}

/// How many batches a replica lacks of those that count. One that is just back knows little of what
/// counts by now: so this goes by what all of them know. Servers are asked one after the other, so
/// that of a shard which is written all the time some seem to be lacking.
fn lag(servers: &[AskedServer], shard: &ShardEntry, server: ServerId) -> Option<u64> {
    let number = |server: ServerId, name: &str| -> Option<u64> {
        of_replica(servers, shard.id, server, name)?.parse().ok()
    };
    let has = number(server, COUNTED)?.saturating_sub(number(server, LACKS)?);
    let counted = shard.replicas.iter().filter_map(|&each| number(each, COUNTED)).max()?;
    Some(counted.saturating_sub(has))
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
    let step = of_replica(servers, shard.id, shard.primary, "step");
    step.unwrap_or("unknown").to_owned()
}

/// The last epoch of a shard that was confirmed: a server that is cut off from the others may know an
/// older one.
fn confirmed(shard: &ShardEntry, servers: &[AskedServer]) -> Option<u64> {
    let name = format!("shard_{}_confirmed_epoch", shard.id);
    let told = |server: &AskedServer| server.answer.as_ref().ok()?.figure(&name)?.parse().ok();
    servers.iter().filter_map(told).max()
}

/// The replicas of a shard as JSON.
pub(super) fn describe_shard(shard: &ShardEntry, servers: &[AskedServer]) -> Value {
    let described = |&server: &ServerId| {
        let mut object = Map::new();
        object.insert("server".to_owned(), server.get().into());
        for (name, shown) in FIGURES {
            let found = of_replica(servers, shard.id, server, name);
            object.insert(shown.to_owned(), found.map(value_of).into());
        }
        object.insert("lag".to_owned(), lag(servers, shard, server).into());
        Value::Object(object)
    };
    json!({
        "state": state(shard, servers),
        "confirmed_epoch": confirmed(shard, servers),
        "replicas": shard.replicas.iter().map(described).collect::<Vec<_>>(),
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
                    let found = of_replica(servers, shard.id, server, name);
                    format!("{shown} {}", found.unwrap_or("unknown"))
                })
                .collect();
            let lag = lag(servers, shard, server);
            let lag = lag.map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
            let figures = figures.join(" ");
            write_line(&format!("shard {} replica {server} {figures} lag {lag}", shard.id))?;
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
    header.push("lag");
    let mut replicas = table(&header);
    for shard in map.shards() {
        if shard.replicas.is_empty() {
            let empty = std::iter::repeat_n("–".to_owned(), FIGURES.len());
            let row = [shard.id.to_string(), "–".to_owned(), state(shard, servers)];
            replicas.add_row(row.into_iter().chain(empty));
        }
        for &server in &shard.replicas {
            let is_primary = server == shard.primary;
            let name = if is_primary { format!("{server} (primary)") } else { server.to_string() };
            let figures = FIGURES.iter().map(|(name, _)| {
                let found = of_replica(servers, shard.id, server, name);
                found.unwrap_or("–").to_owned()
            });
            let lag = lag(servers, shard, server);
            let lag = lag.map_or_else(|| "–".to_owned(), |lag| lag.to_string());
            let row = [shard.id.to_string(), name].into_iter().chain(figures).chain([lag]);
            replicas.add_row(row);
        }
    }
    write_line(&replicas.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use timestone_types::{ClusterId, Epoch};

    use super::*;
    use crate::probe::Answer;

    /// Servers of the shard's replicas: the last batch that each knows to count, and how many it
    /// lacks up to there.
    fn servers(told: &[Option<(u64, u64)>]) -> (ShardEntry, Vec<AskedServer>) {
        let map = ShardMap::even(ClusterId::new(1), 1).expect("one shard");
        let answer = |(counted, lacks): (u64, u64)| Answer {
            map: map.clone(),
            figures: vec![
                (format!("shard_0_{COUNTED}"), counted.to_string()),
                (format!("shard_0_{LACKS}"), lacks.to_string()),
            ],
            round_trip: Duration::ZERO,
            offset: None,
        };
        let ids = || (1..).zip(told);
        let asked = ids().map(|(id, told)| AskedServer {
            id,
            address: String::new(),
            answer: told.map(answer).ok_or_else(|| Failure::failed("it is down".to_owned())),
        });
        let shard = ShardEntry {
            id: ShardId::new(0),
            epoch: Epoch::new(2),
            primary: ServerId::new(1),
            replicas: ids().map(|(id, _)| ServerId::new(id)).collect(),
            ranges: Vec::new(),
        };
        (shard, asked.collect())
    }

    #[test]
    fn a_server_that_is_cut_off_does_not_hide_what_was_confirmed_since() {
        let (shard, mut servers) = servers(&[Some((1, 0)), Some((1, 0)), None]);
        for (server, epoch) in servers.iter_mut().zip([2, 3]) {
            let answer = server.answer.as_mut().expect("it answers");
            answer.figures.push(("shard_0_confirmed_epoch".to_owned(), epoch.to_string()));
        }
        assert_eq!(describe_shard(&shard, &servers)["confirmed_epoch"], 3);
    }

    #[test]
    fn a_replica_that_is_just_back_lacks_what_others_know_to_count() {
        let (shard, servers) = servers(&[Some((6141, 0)), Some((6140, 3)), Some((2498, 0)), None]);
        let lags: Vec<_> = (1..=4).map(|id| lag(&servers, &shard, ServerId::new(id))).collect();
        assert_eq!(lags, [Some(0), Some(4), Some(3643), None]);
        let described = describe_shard(&shard, &servers);
        assert_eq!(described["replicas"][2]["lag"], 3643);
        assert_eq!(described["replicas"][3]["lag"], Value::Null);
    }
}
