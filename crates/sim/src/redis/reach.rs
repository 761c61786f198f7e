//! Whether gateways serve every key: each is to reach the shards of all servers of the cluster.
//!
//! Until the server of a shard has joined the cluster, others say that there is none yet. Whoever
//! has served a key once does not say so again. In the end, when all have joined and nothing has
//! been in anybody's way for long, no command is refused for its shard's sake, and none that reads
//! for any reason.

use std::collections::BTreeSet;

use timestone_workload::redis::{Reply, Request};

use super::{Calls, Mode};

/// How a gateway begins its answer to a command on keys that it does not reach.
const UNREACHED: &str = "CLUSTERDOWN";
/// What it says of a shard whose server has not joined.
const NOBODY_YET: &str = "is served by no server yet";

/// What a process's connections have learned.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Servers, and keys that they have served.
    served: BTreeSet<(usize, String)>,
}

impl Reach {
    /// Judges an answer of the gateway of a server, one of so many.
    pub(super) fn judge(
        &mut self,
        calls: &Calls,
        servers: usize,
        server: usize,
        request: &Request,
        reply: &Reply,
    ) {
        let mode = calls.mode().0;
        let is_at_the_end = matches!(mode, Mode::Touch | Mode::Audit);
        if let Some(what) = self.is_wrong(servers, server, request, reply, is_at_the_end) {
            return calls.wrong(format!("server {server} {what}: {request} was answered {reply}"));
        }
        if mode == Mode::Audit && matches!(reply, Reply::Error(_)) {
            calls.wrong(format!(
                "at the end server {server} does not serve a key: {request} was answered {reply}"
            ));
        }
    }

    /// What is wrong with an answer, if something is.
    fn is_wrong(
        &mut self,
        servers: usize,
        server: usize,
        request: &Request,
        reply: &Reply,
        is_at_the_end: bool,
    ) -> Option<&'static str> {
        let refusal = match reply {
            Reply::Error(text) if text.starts_with(UNREACHED) => Some(text),
            Reply::Error(_) => return None,
            _ => None,
        };
        let key = key_of(request).map(|key| (server, key.to_owned()));
        let Some(text) = refusal else {
            self.served.extend(key);
            return None;
        };
        match () {
            () if servers == 1 => Some("is the only one, and does not reach itself"),
            () if is_at_the_end => Some("does not reach a server that has joined long ago"),
            () if !text.contains(NOBODY_YET) => Some("has no path to a server that has joined"),
            () if key.is_some_and(|key| self.served.contains(&key)) => {
                Some("has forgotten a server that it reached")
            }
            () => None,
        }
    }
}

/// The key of a command on one.
fn key_of(request: &Request) -> Option<&str> {
    let Request::One(words) = request else { return None };
    let [_, key, rest @ ..] = &words[..] else { return None };
    let is_of_one = match request.name() {
        "SCAN" | "KEYS" | "DBSIZE" | "FLUSHDB" => false,
        "MGET" | "DEL" => rest.is_empty(),
        "MSET" | "MSETNX" => rest.len() == 1,
        _ => true,
    };
    is_of_one.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(reach: &mut Reach, servers: usize, command: &str, reply: &Reply, end: bool) -> bool {
        reach.is_wrong(servers, 0, &Request::command(command), reply, end).is_none()
    }

    #[test]
    fn nobody_is_refused_for_long() {
        let mut reach = Reach::default();
        let nobody = Reply::Error(format!("{UNREACHED} shard 3 {NOBODY_YET}, nothing was done"));
        let other = Reply::Error(format!("{UNREACHED} shard 3 is served by server 2"));
        assert!(judge(&mut reach, 3, "GET a", &nobody, false));
        assert!(judge(&mut reach, 3, "DBSIZE", &nobody, false));
        assert!(!judge(&mut reach, 3, "GET a", &nobody, true));
        assert!(!judge(&mut reach, 3, "DBSIZE", &nobody, true));
        assert!(!judge(&mut reach, 1, "GET a", &nobody, false));
        assert!(!judge(&mut reach, 3, "GET a", &other, false));
        assert!(judge(&mut reach, 3, "GET a", &Reply::Status("OK".to_owned()), false));
        assert!(!judge(&mut reach, 3, "GET a", &nobody, false));
        assert!(judge(&mut reach, 3, "MGET a b", &nobody, false), "b may be another shard's");
    }
}
