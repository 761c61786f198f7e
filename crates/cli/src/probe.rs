//! Asks one server how it is, over a connection of its own: no client id, no event loop, no
//! transaction.
//!
//! ```text
//!   Hello(tool) ─► Welcome with the shard map        NodeStatus ─► StatusList with names and values
//!                                                    Scrub of a shard ─► Scrubbed
//! ```
//! Used by `status`, which wants an answer from *this* server and from each of the others, and by
//! `bench`, for the server's processor time.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use timestone::{ClientId, ClockOffset};
use timestone_clock::{Clock, SystemClock};
use timestone_cluster::ShardMap;
use timestone_types::{ClusterId, Epoch, ShardId};
use timestone_wire::{
    ClockIs, Envelope, ErrorReply, Frame, Hello, Kind, Message, NodeStatus, Ping, RequestId, Role,
    Scrub, Scrubbed, StatusList, Welcome, frame_length,
};

use crate::failure::Failure;

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The port of the native protocol.
const PORT: u16 = 7400;
/// The figure that counts the server's processor time.
const CPU_SECONDS: &str = "cpu_seconds_total";
/// The figure that tells one process of the server from the next.
const STARTED: &str = "started_ns";

/// What a server says of itself.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The shard map that it has.
    pub(crate) map: ShardMap,
    /// Names and values.
    pub(crate) figures: Vec<(String, String)>,
    /// How long one question took.
    pub(crate) round_trip: Duration,
    /// How far the server's clock is from this machine's.
    pub(crate) offset: Option<ClockOffset>,
}

impl Answer {
    /// One figure.
    pub(crate) fn figure(&self, name: &str) -> Option<&str> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// When the server's process started, in its own words: another one is another process.
    pub(crate) fn started(&self) -> Option<&str> {
        self.figure(STARTED)
    }

    /// Processor time that the server has used since its start, when it tells.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let seconds: f64 = self.figure(CPU_SECONDS)?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// The servers that a URL names, each as `host:port`.
pub(crate) fn servers_of(url: &str) -> Vec<String> {
    let hosts = url.strip_prefix("timestone://").unwrap_or(url);
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{PORT}"),
    };
    hosts.trim_end_matches('/').split(',').map(str::trim).map(with_port).collect()
}

/// Asks the server at `address` (`host:port`).
pub(crate) fn ask(address: &str) -> Result<Answer, Failure> {
    exchange(address)
        .map_err(|problem| Failure::failed(format!("could not ask {address}: {problem}")))
}

/// Has a shard read its whole device and verify every checksum. Takes as long as that takes, as
/// long as the server lives.
pub(crate) fn scrub(address: &str, shard: ShardId, epoch: Epoch) -> Result<Scrubbed, Failure> {
    scrub_over(address, shard, epoch).map_err(|problem| {
        Failure::failed(format!("could not scrub shard {shard} at {address}: {problem}"))
    })
}

fn scrub_over(address: &str, shard: ShardId, epoch: Epoch) -> Result<Scrubbed, String> {
    let (mut stream, _) = greet(address, "timestone scrub")?;
    let to = Envelope { shard, epoch, ..envelope(2) };
    let (mut scrub, mut ping) = (Vec::new(), Vec::new());
    Scrub {}.encode(&to, &mut scrub);
    Ping {}.encode(&to, &mut ping);
    stream.write_all(&scrub).map_err(lost)?;
    // A shard that lives answers a ping while it scrubs.
    let mut is_asked = false;
    loop {
        match stream.peek(&mut [0]) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) && !is_asked => {
                is_asked = true;
                stream.write_all(&ping).map_err(lost)?;
                continue;
            }
            Err(error) => return Err(lost(error)),
        }
        is_asked = false;
        let bytes = receive(&mut stream)?;
        let frame = Frame::parse(&bytes).map_err(|error| error.to_string())?;
        if !matches!(frame.kind(), Kind::ClockIs | Kind::Done) {
            #[expect(clippy::redundant_closure, reason = "the function is of one lifetime only")]
            return expect(&bytes, Kind::Scrubbed, |frame| Scrubbed::decode(frame));
        }
    }
}

/// A connection that has said what it is, and the shard map that it was given.
fn greet(address: &str, name: &str) -> Result<(TcpStream, ShardMap), String> {
    let mut stream = dial(address)?;
    let mut bytes = Vec::new();
    Hello::new(Role::Tool, ClusterId::ZERO, ClientId::ZERO, name).encode(&envelope(1), &mut bytes);
    let bytes = call(&mut stream, &bytes)?;
    let map = expect(&bytes, Kind::Welcome, |frame| {
        Welcome::decode(frame).map(|welcome| welcome.shard_map())
    })?
    .map_err(|error| error.to_string())?;
    Ok((stream, map))
}

fn exchange(address: &str) -> Result<Answer, String> {
    let (mut stream, map) = greet(address, "timestone status")?;
    let mut bytes = Vec::new();
    NodeStatus {}.encode(&envelope(2), &mut bytes);
    // The process's time, as a client of this machine has it.
    let clock = SystemClock::new();
    let (asked, sent) = (Instant::now(), clock.now());
    let first = call(&mut stream, &bytes)?;
    let (round_trip, received) = (asked.elapsed(), clock.now());
    let reading = Frame::parse(&first).ok().and_then(|frame| ClockIs::decode(&frame).ok());
    let (offset, bytes) = match reading {
        Some(reading) => (ClockOffset::of(sent, reading, received), receive(&mut stream)?),
        None => (None, first),
    };
    let figures = expect(&bytes, Kind::StatusList, |frame| {
        let list = StatusList::decode(frame)?;
        Ok(list.entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    })?;
    Ok(Answer { map, figures, round_trip, offset })
}

fn envelope(request: u64) -> Envelope {
    Envelope { request: RequestId::new(request), ..Envelope::default() }
}

fn dial(address: &str) -> Result<TcpStream, String> {
    let mut problem = "the name has no address".to_owned();
    for candidate in address.to_socket_addrs().map_err(|error| error.to_string())? {
        let connected = TcpStream::connect_timeout(&candidate, TIMEOUT).and_then(|stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                problem = "connection refused; is the server running?".to_owned();
            }
            Err(error) => problem = error.to_string(),
        }
    }
    Err(problem)
}

/// Sends a frame and reads the one that answers it.
fn call(stream: &mut TcpStream, request: &[u8]) -> Result<Vec<u8>, String> {
    stream.write_all(request).map_err(lost)?;
    receive(stream)
}

/// What became of a connection that failed.
fn lost(error: std::io::Error) -> String {
    if is_timeout(&error) {
        return "it does not answer".to_owned();
    }
    format!("the connection was lost: {error}")
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Reads one frame.
fn receive(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).map_err(lost)?;
    let length = frame_length(&bytes).map_err(|error| error.to_string())?.unwrap_or(0);
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[4..]).map_err(lost)?;
    Ok(bytes)
}

fn expect<T>(
    bytes: &[u8],
    kind: Kind,
    read: impl FnOnce(&Frame<'_>) -> Result<T, timestone_wire::WireError>,
) -> Result<T, String> {
    let frame = Frame::parse(bytes).map_err(|error| error.to_string())?;
    match frame.kind() {
        own if own == kind => read(&frame).map_err(|error| error.to_string()),
        Kind::ErrorReply => Err(ErrorReply::decode(&frame)
            .map_or_else(|error| error.to_string(), |reply| reply.to_string())),
        other => Err(format!("it answered with {}", other.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers_with_and_without_ports() {
        assert_eq!(servers_of("timestone://a,b:1/"), ["a:7400", "b:1"]);
        assert_eq!(servers_of("127.0.0.1:7500"), ["127.0.0.1:7500"]);
        assert_eq!(servers_of("timestone://[::1]"), ["[::1]:7400"]);
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap();
        let error = ask(&free.to_string()).unwrap_err().to_string();
        assert!(error.contains(&free.to_string()) && error.contains("refused"), "{error}");
    }
}
