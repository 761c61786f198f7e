//! `timestone status`: the cluster's servers and shards, as each server that can be reached tells
//! it.

mod replicas;
mod stores;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use timestone::ClockOffset;
use timestone_cluster::{ServerInfo, ShardEntry, ShardMap};
use timestone_types::Span;

use crate::failure::Failure;
use crate::link::Target;
use crate::output::{Format, or_unread, table, write_json, write_line};
use crate::probe::{self, Answer};

/// Flags of `timestone status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    target: Target,
}

/// One server of the map, and its answer or why there is none.
struct AskedServer {
    id: u32,
    address: String,
    answer: Result<Answer, Failure>,
}

/// Asks the first server that answers for the map, and then every server on it.
pub(crate) fn run(args: &StatusArgs, format: Format) -> Result<(), Failure> {
    let (address, first) = first_answer(&args.target.address)?;
    let map = first.map.clone();
    let mut first = Some(first);
    let servers: Vec<AskedServer> = map
        .servers()
        .iter()
        .map(|info| {
            let native = native_of(info, map.servers().len(), &address);
            // The server that gave the map has answered already.
            let answer = match native == address {
                true => first.take().map_or_else(|| probe::ask(&native), Ok),
                false => probe::ask(&native),
            };
            AskedServer { id: info.id.get(), address: native, answer }
        })
        .collect();
    or_unread(match format {
        Format::Json => write_json(&describe(&map, &servers)),
        Format::Table => print_tables(&map, &servers),
        Format::Text => print_text(&map, &servers),
    })?;
    let missing: Vec<_> =
        servers.iter().filter_map(|server| server.answer.as_ref().err()).collect();
    match missing[..] {
        [] => Ok(()),
        [first, ..] => Err(Failure::failed(format!(
            "{} of {} servers do not answer: {first}",
            missing.len(),
            servers.len()
        ))),
    }
}

/// The first server that answers, and what it says.
pub(super) fn first_answer(url: &str) -> Result<(String, Answer), Failure> {
    let mut problem = None;
    for address in probe::servers_of(url) {
        match probe::ask(&address) {
            Ok(answer) => return Ok((address, answer)),
            Err(failure) => problem = Some(failure),
        }
    }
    let problem =
        problem.map_or_else(|| "it names no server".to_owned(), |failure| failure.to_string());
    Err(Failure::failed(format!(
        "{problem} (start a server with `timestone serve`, or name one with --address)"
    )))
}

/// Where a server is reached. The only server of a cluster is the one that was asked, whatever it
/// calls itself.
pub(super) fn native_of(info: &ServerInfo, servers: usize, asked: &str) -> String {
    let own = info.addresses.native.as_ref().map(|address| address.as_str().to_owned());
    if servers == 1 { asked.to_owned() } else { own.unwrap_or_default() }
}

fn slots(shard: &ShardEntry) -> usize {
    shard.ranges.iter().map(|range| usize::from(range.last().get() - range.first().get()) + 1).sum()
}

/// How far a server's clock is ahead of this machine's (negative: behind), in microseconds: the
/// middle of what the answer allows.
fn offset_us(offset: ClockOffset) -> f64 {
    offset.middle_ns() as f64 / 1_000.0
}

/// How far that may be off, either way: half of what the answer took.
fn offset_error_us(offset: ClockOffset) -> f64 {
    offset.half_width().as_nanos() as f64 / 1_000.0
}

/// The same for people.
fn offset_in_words(offset: ClockOffset) -> String {
    let sign = if offset.middle_ns() < 0 { '-' } else { '+' };
    let middle = Span(Duration::from_nanos(offset.middle_ns().unsigned_abs()));
    format!("{sign}{middle} ±{}", Span(offset.half_width()))
}

/// How far a shard's watermark trails its server's clock, in milliseconds.
fn watermark_lag<'a>(shard: &ShardEntry, servers: &'a [AskedServer]) -> Option<&'a str> {
    let server = servers.iter().find(|server| server.id == shard.primary.get())?;
    server.answer.as_ref().ok()?.figure(&format!("shard_{}_watermark_lag_ms", shard.id))
}

/// What a server says of a figure that it does not know.
const UNKNOWN: &str = "-";

/// A figure as JSON: a number where it is one, null where it is not known.
fn value_of(text: &str) -> Value {
    if text == UNKNOWN {
        return Value::Null;
    }
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => number.into(),
        _ => text.into(),
    }
}

fn describe(map: &ShardMap, servers: &[AskedServer]) -> Value {
    let of_server = |server: &AskedServer| {
        let mut object = Map::new();
        object.insert("id".to_owned(), server.id.into());
        object.insert("address".to_owned(), server.address.clone().into());
        object.insert("reachable".to_owned(), server.answer.is_ok().into());
        match &server.answer {
            Ok(answer) => {
                object.insert(
                    "round_trip_us".to_owned(),
                    (answer.round_trip.as_nanos() as f64 / 1_000.0).into(),
                );
                object.insert("clock_offset_us".to_owned(), answer.offset.map(offset_us).into());
                object.insert(
                    "clock_offset_error_us".to_owned(),
                    answer.offset.map(offset_error_us).into(),
                );
                let figures =
                    answer.figures.iter().map(|(name, value)| (name.clone(), value_of(value)));
                object.insert("figures".to_owned(), figures.collect::<Map<_, _>>().into());
            }
            Err(failure) => {
                object.insert("problem".to_owned(), failure.to_string().into());
            }
        }
        Value::Object(object)
    };
    let replication = replicas::replication(servers);
    let of_shard = |shard: &ShardEntry| {
        let mut described = json!({
            "id": shard.id.get(),
            "epoch": shard.epoch.get(),
            "primary": shard.primary.get(),
            "slots": slots(shard),
            "watermark_lag_ms": watermark_lag(shard, servers).map(value_of),
        });
        if replication > 1 {
            described["replication"] = replicas::describe_shard(shard, servers);
        }
        described
    };
    let mut described = json!({
        "cluster": format!("{:016x}", map.cluster().get()),
        "map_version": map.version().get(),
        "replication": replication,
        "servers": servers.iter().map(of_server).collect::<Vec<_>>(),
        "shards": map.shards().iter().map(of_shard).collect::<Vec<_>>(),
    });
    if replication > 1 {
        described["controller"] = replicas::describe_controller(servers);
    }
    described
}

fn print_text(map: &ShardMap, servers: &[AskedServer]) -> Result<(), Failure> {
    write_line(&format!("cluster {:016x}", map.cluster().get()))?;
    write_line(&format!("map_version {}", map.version()))?;
    for server in servers {
        write_line(&format!("server {} {}", server.id, server.address))?;
        match &server.answer {
            Ok(answer) => {
                for (name, value) in &answer.figures {
                    write_line(&format!("server {} {name} {value}", server.id))?;
                }
                if let Some(offset) = answer.offset {
                    write_line(&format!(
                        "server {} clock_offset_us {}",
                        server.id,
                        offset_us(offset)
                    ))?;
                    write_line(&format!(
                        "server {} clock_offset_error_us {}",
                        server.id,
                        offset_error_us(offset)
                    ))?;
                }
            }
            Err(failure) => write_line(&format!("server {} unreachable {failure}", server.id))?,
        }
    }
    for shard in map.shards() {
        let lag = watermark_lag(shard, servers).unwrap_or("unknown");
        write_line(&format!(
            "shard {} epoch {} primary {} slots {} watermark_lag_ms {lag}",
            shard.id,
            shard.epoch,
            shard.primary,
            slots(shard)
        ))?;
    }
    match replicas::replication(servers) {
        1 => Ok(()),
        _ => replicas::print_text(map, servers),
    }
}

fn print_tables(map: &ShardMap, servers: &[AskedServer]) -> Result<(), Failure> {
    let (cluster, version) = (map.cluster().get(), map.version());
    write_line(&format!("cluster {cluster:016x}, shard map version {version}"))?;
    let mut shards = table(&["shard", "primary", "epoch", "slots", "watermark lag"]);
    for shard in map.shards() {
        let lag =
            watermark_lag(shard, servers).map_or_else(|| "–".to_owned(), |lag| format!("{lag} ms"));
        let numbers = [
            shard.id.to_string(),
            shard.primary.to_string(),
            shard.epoch.to_string(),
            slots(shard).to_string(),
            lag,
        ];
        shards.add_row(numbers);
    }
    // One column a server, one row a figure; what is told of single shards stands in the other
    // table.
    let mut header = vec!["figure".to_owned()];
    let mut rows: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    for (place, server) in servers.iter().enumerate() {
        header.push(format!("server {} at {}", server.id, server.address));
        match &server.answer {
            Err(_) => header[place + 1].push_str(" (does not answer)"),
            Ok(answer) => {
                for (name, value) in
                    answer.figures.iter().filter(|(name, _)| !name.starts_with("shard_"))
                {
                    let row = names.iter().position(|known| known == name).unwrap_or_else(|| {
                        names.push(name);
                        names.len() - 1
                    });
                    let cells =
                        rows.entry(row).or_insert_with(|| vec!["–".to_owned(); servers.len()]);
                    if value != UNKNOWN {
                        cells[place].clone_from(value);
                    }
                }
            }
        }
    }
    let offsets: Vec<String> = servers
        .iter()
        .map(|server| server.answer.as_ref().ok().and_then(|answer| answer.offset))
        .map(|offset| offset.map_or_else(|| "–".to_owned(), offset_in_words))
        .collect();
    rows.insert(names.len(), offsets);
    names.push("clock offset to this machine");
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut figures = table(&header);
    for (row, cells) in rows {
        figures.add_row(std::iter::once(names[row].to_owned()).chain(cells));
    }
    write_line(&figures.to_string())?;
    write_line(&stores::words(servers).to_string())?;
    write_line(&shards.to_string())?;
    match replicas::replication(servers) {
        1 => Ok(()),
        _ => replicas::print_table(map, servers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_numbers_where_they_can_be() {
        assert_eq!(value_of("12"), json!(12));
        assert_eq!(value_of("0.5"), json!(0.5));
        assert_eq!(value_of("ssd"), json!("ssd"));
        assert_eq!(value_of("NaN"), json!("NaN"));
        assert_eq!(value_of(UNKNOWN), Value::Null);
    }
}
