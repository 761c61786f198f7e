//! Which of several servers has a key, as their gateways tell: each answers for keys of its own
//! shards, and refuses others by name.
//!
//! A key has one server for the whole run. What is refused names the server that has the key, and
//! no server has what it refuses itself. Until the server of a shard has joined the cluster, others
//! say that there is none yet; whoever has named it once does not say so again, and nobody does at
//! the end, when all have joined and been asked for long.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use timestone_workload::redis::{Reply, Request};

use super::{Calls, Mode};

/// How a gateway begins its answer to a command on keys of another server.
const ELSEWHERE: &str = "CLUSTERDOWN";
/// What it says of a shard whose server has not joined.
const NOBODY_YET: &str = "is served by no server yet";

/// What a process's connections have learned.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By key: the server that has it.
    known: BTreeMap<String, usize>,
    /// Servers that know who has a key.
    told: BTreeSet<(usize, String)>,
}

impl Owners {
    /// Judges an answer of the gateway of a server.
    pub(super) fn judge(
        &mut self,
        calls: &Calls,
        servers: &[SocketAddr],
        server: usize,
        request: &Request,
        reply: &Reply,
    ) {
        let refusal = match reply {
            Reply::Error(text) if text.starts_with(ELSEWHERE) => Some(text),
            Reply::Error(_) => return,
            _ => None,
        };
        if servers.len() == 1 {
            if let Some(text) = refusal {
                calls.wrong(format!(
                    "the only server refused {request} for another one's sake: {text}"
                ));
            }
            return;
        }
        let Request::One(words) = request else { return };
        if matches!(request.name(), "SCAN" | "KEYS" | "DBSIZE" | "FLUSHDB") {
            if refusal.is_none() {
                calls.wrong(format!(
                    "{request} was answered {reply} by one of several servers, which knows its own \
                     keys"
                ));
            }
            return;
        }
        let [_, key, ..] = &words[..] else { return };
        let of_one = if request.name().starts_with("MSET") { 3 } else { 2 };
        if matches!(request.name(), "MGET" | "MSET" | "MSETNX" | "DEL") && words.len() > of_one {
            // Keys of several servers are refused as well: which one is named says nothing about
            // the others.
            return;
        }
        let at_the_end = matches!(calls.mode().0, Mode::Touch | Mode::Audit);
        let may_not_know = !at_the_end && !self.told.contains(&(server, key.clone()));
        if may_not_know && refusal.is_some_and(|text| text.contains(NOBODY_YET)) {
            return;
        }
        let owner = match refusal {
            None => Some(server),
            Some(text) => servers.iter().position(|address| names(text, *address)),
        };
        let Some(owner) = owner else {
            return calls.wrong(format!(
                "{request} was refused, and no server was named that has its key: {reply}"
            ));
        };
        if refusal.is_some() && owner == server {
            calls.wrong(format!("server {server} refused {request} for its own sake: {reply}"));
        }
        self.told.insert((server, key.clone()));
        let known = *self.known.entry(key.clone()).or_insert(owner);
        if known != owner {
            calls.wrong(format!(
                "{request} was answered {reply} by server {server}; server {known} has its key"
            ));
        }
    }
}

/// Whether a refusal names the server whose gateway has this address. It may name another door of
/// that server.
fn names(text: &str, address: SocketAddr) -> bool {
    let host = format!("{}:", address.ip());
    text.match_indices(&host).any(|(at, _)| {
        !text[..at].ends_with(|before: char| before.is_ascii_digit() || before == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_a_server_by_any_of_its_doors() {
        let address = "10.0.0.1:7401".parse().unwrap();
        assert!(names("shard 3 is at 10.0.0.1:7400", address));
        for other in
            ["shard 3 is at 10.0.0.11:7400", "shard 3 is at 110.0.0.1:7400", "10.0.0.1 is no place"]
        {
            assert!(!names(other, address), "{other}");
        }
    }
}
