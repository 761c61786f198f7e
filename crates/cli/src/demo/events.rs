//! What happens in the demo, in words and as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use timestone_types::ShardId;

use super::process::Ending;

/// Whose process it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// A server's, by its place, counted from nought.
    Server(usize),
    /// The demo's own etcd.
    Etcd,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(index) => write!(f, "server {}", index + 1),
            Self::Etcd => f.write_str("etcd"),
        }
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DemoEvent {
    /// The demo kills a server.
    Killed { server: usize, pid: u32 },
    /// A process has ended. `log`: the end of its log, where it failed by itself; `lost`: it has
    /// done so too often to be started again.
    Ended {
        who: Who,
        pid: u32,
        ending: Ending,
        start_in: Option<Duration>,
        lost: bool,
        log: Option<String>,
    },
    /// A process was started again.
    Started { who: Who, pid: u32 },
    /// A server that was started again answers.
    Answers { who: Who, after: Duration },
    /// A shard has another primary.
    Failover { shard: ShardId, from: usize, to: usize, epoch: u32 },
    /// Nothing is killed although its time has come.
    Waits { why: String },
}

impl DemoEvent {
    /// Whether a process has ended.
    pub(super) const fn is_death(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// As a JSON object.
    pub(super) fn describe(&self) -> Value {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Killed { server, pid } => {
                json!({ "event": "kill", "server": server + 1, "pid": pid })
            }
            Self::Ended { who, pid, ending, start_in, lost, log } => json!({
                "event": "ended",
                "process": who.to_string(),
                "pid": pid,
                "signal": ending.signal(),
                "exit_code": ending.code(),
                "start_in_ms": start_in.map(millis),
                "given_up": lost,
                "log": log,
            }),
            Self::Started { who, pid } => {
                json!({ "event": "started", "process": who.to_string(), "pid": pid })
            }
            Self::Answers { who, after } => json!({
                "event": "answers",
                "process": who.to_string(),
                "after_ms": millis(*after),
            }),
            Self::Failover { shard, from, to, epoch } => json!({
                "event": "failover",
                "shard": shard.get(),
                "from": from + 1,
                "to": to + 1,
                "epoch": epoch,
            }),
            Self::Waits { why } => json!({ "event": "waits", "why": why }),
        }
    }
}

impl fmt::Display for DemoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { server, pid } => {
                write!(f, "kill -9 {pid}: that is server {}", server + 1)
            }
            Self::Ended { who, pid, ending, start_in, lost, log } => {
                write!(f, "{who} (pid {pid}) {ending}")?;
                match start_in {
                    Some(span) => write!(f, "; it is started again in {span:?}")?,
                    None if *lost => f.write_str("; it has failed too often, and stays dead")?,
                    None => f.write_str("; it stays dead (--restart-after never)")?,
                }
                log.as_ref().map_or(Ok(()), |log| write!(f, "; the last lines of its log:\n{log}"))
            }
            Self::Started { who, pid } => write!(f, "{who} is started again: pid {pid}"),
            Self::Answers { who, after } => {
                write!(f, "{who} answers again, {} ms after its start", after.as_millis())
            }
            Self::Failover { shard, from, to, epoch } => write!(
                f,
                "shard {shard} has another primary: server {}, before it was server {} (epoch \
                 {epoch})",
                to + 1,
                from + 1
            ),
            Self::Waits { why } => write!(f, "nothing is killed now: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn an_end_tells_what_comes_of_it() {
        let ended = |start_in, lost| DemoEvent::Ended {
            who: Who::Server(1),
            pid: 7,
            ending: Ending::of(ExitStatus::from_raw(9)),
            start_in,
            lost,
            log: None,
        };
        for (event, words) in [
            (ended(Some(Duration::from_secs(5)), false), "; it is started again in 5s"),
            (ended(None, false), "; it stays dead (--restart-after never)"),
            (ended(None, true), "; it has failed too often, and stays dead"),
        ] {
            let expected = format!("server 2 (pid 7) was killed (SIGKILL){words}");
            assert_eq!(event.to_string(), expected);
            assert!(event.is_death());
            assert_eq!(event.describe()["signal"], 9);
        }
    }
}
