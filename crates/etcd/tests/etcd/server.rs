//! An etcd of a test's own: on free ports, in a folder that goes with it.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use timestone_etcd::EtcdClient;

/// How long an etcd may take until it answers, on a loaded machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running etcd, ended when it is dropped.
pub(crate) struct EtcdServer {
    /// `HOST:PORT` for clients.
    pub(crate) endpoint: String,
    peer: String,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

/// A port that nobody uses, below those that the system gives to outgoing connections.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 500) as u16 * 19;
        let port = 20_000 + offset % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

impl EtcdServer {
    pub(crate) fn start() -> Self {
        let mut server = Self {
            endpoint: format!("127.0.0.1:{}", free_port()),
            peer: format!("http://127.0.0.1:{}", free_port()),
            folder: tempfile::tempdir().unwrap(),
            process: None,
        };
        server.restart();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// Ends it, if it runs, and starts it in the same folder.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let client = format!("http://{}", self.endpoint);
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.data())
            .args(["--name", "test", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &self.peer, "--initial-advertise-peer-urls", &self.peer])
            .args(["--initial-cluster", &format!("test={}", self.peer)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "these tests need a real etcd on PATH, and it cannot be started ({error}): \
                     install Debian's package etcd-server, as .ci/run does"
                )
            });
        self.process = Some(process);
        let client = EtcdClient::new(vec![self.endpoint.clone()], Duration::from_secs(1)).unwrap();
        let deadline = Instant::now() + READY_TIMEOUT;
        while let Err(error) = client.get("ready") {
            assert!(Instant::now() < deadline, "etcd is not ready: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // A stopped process hears of it when it goes on.
            let _ = process.kill();
            process.wait().unwrap();
        }
    }

    /// It answers nothing until [`EtcdServer::wake`].
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on.
    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// Copies its data, as a backup of the machine would.
    pub(crate) fn back_up(&mut self) {
        self.stop();
        copy(&self.data(), &self.backup());
        self.restart();
    }

    /// Goes on from the copy.
    pub(crate) fn restore(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.data()).unwrap();
        copy(&self.backup(), &self.data());
        self.restart();
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
    // etcd refuses a folder that others may read.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.stop();
    }
}
