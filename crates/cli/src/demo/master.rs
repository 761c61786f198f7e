//! Where the demo's cluster has its master: on an etcd of its own, on one that runs, or in server 1.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use timestone_etcd::EtcdClient;

use super::flags::PlannedMaster;
use super::limits::TICK;
use super::member::Member;
use super::process::{DemoProcess, find_in_path};
use crate::failure::Failure;
use crate::signals::Interrupt;

/// How long one question to etcd may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the master is.
#[derive(Debug)]
pub(super) enum DemoMaster {
    /// In server 1, and why not elsewhere.
    InServer { is_wanted: bool },
    /// On an etcd that runs.
    Given(String),
    /// On an etcd that the demo has started.
    Own { url: String, etcd: Box<Member> },
}

impl DemoMaster {
    /// Decides, and starts the etcd where there is to be one. It listens on `client`, and on `peer`
    /// for members that it does not have.
    pub(super) fn start(
        planned: &PlannedMaster,
        folder: &Path,
        [client, peer]: [SocketAddr; 2],
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        match planned {
            PlannedMaster::Embedded => Ok(Self::InServer { is_wanted: true }),
            PlannedMaster::Given(url) => Ok(Self::Given(url.clone())),
            PlannedMaster::Any => match find_in_path("etcd") {
                None => Ok(Self::InServer { is_wanted: false }),
                Some(program) => {
                    let process = etcd_process(&program, folder, client, peer);
                    let etcd = start_etcd(process, client, interrupt)?;
                    Ok(Self::Own { url: format!("etcd://{client}"), etcd: Box::new(etcd) })
                }
            },
        }
    }

    /// The etcd that the demo has started.
    pub(super) fn etcd(&self) -> Option<&Member> {
        match self {
            Self::Own { etcd, .. } => Some(etcd),
            Self::InServer { .. } | Self::Given(_) => None,
        }
    }

    /// The same, to be looked after.
    pub(super) fn etcd_mut(&mut self) -> Option<&mut Member> {
        match self {
            Self::Own { etcd, .. } => Some(etcd),
            Self::InServer { .. } | Self::Given(_) => None,
        }
    }

    /// Whether server 1 hosts it.
    pub(super) const fn is_in_server(&self) -> bool {
        matches!(self, Self::InServer { .. })
    }

    /// In words, and what that means for whoever kills processes.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::InServer { is_wanted } => {
                let hint = match is_wanted {
                    true => "leave --master out, with etcd installed,",
                    false => "install etcd",
                };
                format!(
                    "the master is in server 1: while that process is dead, nobody takes over its \
                     shards; {hint} to kill any process"
                )
            }
            Self::Given(url) => format!("the master is on {url}, which is not the demo's"),
            Self::Own { url, etcd } => {
                let pid = etcd.pid().unwrap_or_default();
                format!("the master is on {url}, started for this demo (pid {pid})")
            }
        }
    }
}

fn etcd_process(
    program: &Path,
    folder: &Path,
    client: SocketAddr,
    peer: SocketAddr,
) -> DemoProcess {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let data: PathBuf = folder.join("etcd");
    let mut arguments: Vec<OsString> = vec!["--data-dir".into(), data.into()];
    for (flag, value) in [
        ("--name", "demo"),
        ("--log-level", "warn"),
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("demo={peer}")),
    ] {
        arguments.extend([flag.into(), value.into()]);
    }
    DemoProcess::new("etcd".to_owned(), folder.join("etcd.log"), program, arguments)
}

/// Starts etcd, and waits until it answers.
fn start_etcd(
    process: DemoProcess,
    client: SocketAddr,
    interrupt: &Interrupt,
) -> Result<Member, Failure> {
    let mut etcd = Member::start(process)?;
    let asked = EtcdClient::new(vec![client.to_string()], ASK_TIMEOUT)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let begin = Instant::now();
    while let Err(error) = asked.get("ready") {
        etcd.still_starting(begin, &error, interrupt)?;
        std::thread::sleep(TICK);
    }
    etcd.note_answer();
    Ok(etcd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_in_a_server_is_told_plainly() {
        for (is_wanted, hint) in [(true, "leave --master out"), (false, "install etcd")] {
            let words = DemoMaster::InServer { is_wanted }.describe();
            assert!(words.starts_with("the master is in server 1: while that process is dead"));
            assert!(words.contains(hint) && words.ends_with("to kill any process"), "{words}");
        }
    }
}
