//! Server processes: started on ports of their own, listened to, killed, ended, started again in
//! the same place.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use timestone::blocking::{self, Db};

/// How long a server may take until it says that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a process may take to end after it was asked to.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The binary under test.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_timestone"));
    // What the developer's shell says about servers is not for these.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIMESTONE_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("RUST_LOG")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A folder for one test, removed at its end unless `TIMESTONE_TEST_KEEP` is set: for whoever has
/// to look at what is left.
pub(crate) fn test_folder() -> tempfile::TempDir {
    let keep = std::env::var_os("TIMESTONE_TEST_KEEP").is_some();
    tempfile::Builder::new().disable_cleanup(keep).tempdir().expect("a temporary folder")
}

/// A port that nobody uses, below the range from which the system gives ports to outgoing
/// connections: it stays free while the server is down.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 1000) as u16 * 9;
        let port = 20_000 + offset % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Where a server lives, and how it is started: the same at every start.
#[derive(Clone, Debug)]
pub(crate) struct NodeSetup {
    pub(crate) data: PathBuf,
    pub(crate) native: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    arguments: Vec<String>,
}

impl NodeSetup {
    /// A data directory `name` in `folder`, and free ports. The layout of the stages is the usual
    /// one, or what `TIMESTONE_LAYOUT` says: so the whole suite runs under either.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let free = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let arguments = ["--cache", "32MiB", "--capacity", "4GiB", "--log-format", "human"]
            .map(str::to_owned)
            .to_vec();
        let place =
            Self { data: folder.join(name), native: free(), resp: free(), http: free(), arguments };
        match std::env::var("TIMESTONE_LAYOUT") {
            Ok(layout) => place.with("--layout", &layout),
            Err(_) => place,
        }
    }

    /// The same place with a flag, which replaces an earlier value of it.
    pub(crate) fn with(&self, flag: &str, value: &str) -> Self {
        let mut place = self.clone();
        if let Some(at) = place.arguments.iter().position(|known| known == flag) {
            place.arguments[at + 1] = value.to_owned();
        } else {
            place.arguments.extend([flag.to_owned(), value.to_owned()]);
        }
        place
    }

    /// Where others reach its native protocol: what it advertises, else where it listens.
    pub(crate) fn reached_at(&self) -> SocketAddr {
        let at = self.arguments.iter().position(|known| known == "--advertise");
        at.map_or(self.native, |at| self.arguments[at + 1].parse().expect("a literal address"))
    }

    /// The same place with another data directory.
    pub(crate) fn at(&self, data: PathBuf) -> Self {
        Self { data, ..self.clone() }
    }

    /// The command that starts the server here.
    pub(crate) fn command(&self) -> Command {
        let mut command = binary();
        command.arg("serve").arg("--data").arg(&self.data);
        for (flag, address) in
            [("--listen", self.native), ("--resp", self.resp), ("--http", self.http)]
        {
            if !self.arguments.iter().any(|known| known == flag) {
                command.args([flag, &address.to_string()]);
            }
        }
        command.args(&self.arguments);
        command
    }

    /// Starts the process without waiting for anything.
    pub(crate) fn spawn(&self) -> Node {
        Node::watch(self.command(), self.native)
    }

    /// Starts it by another command.
    pub(crate) fn spawn_as(&self, mut command: Command) -> Node {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Node::watch(command, self.native)
    }

    /// Starts the server and waits until it is ready.
    pub(crate) fn start(&self) -> Node {
        self.spawn().ready()
    }

    /// Starts a server that must refuse to: its exit code, and everything that it wrote.
    pub(crate) fn refused(&self) -> (i32, String) {
        outcome(self.command())
    }

    pub(crate) fn url(&self) -> String {
        format!("timestone://{}", self.native)
    }

    /// A client of its own.
    pub(crate) fn connect(&self) -> Db {
        blocking::connect(&self.url())
            .unwrap_or_else(|error| panic!("could not connect to {}: {error}", self.url()))
    }
}

/// Runs a command that ends by itself: its exit code (or minus the signal), and everything that it
/// wrote.
pub(crate) fn outcome(command: Command) -> (i32, String) {
    Node::command(command).outcome()
}

/// A running server process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Node {
    child: Child,
    native: SocketAddr,
    text: Arc<Mutex<String>>,
    ready: Receiver<()>,
    readers: Vec<JoinHandle<()>>,
}

impl Node {
    /// A process that is no server.
    pub(crate) fn command(command: Command) -> Self {
        Self::watch(command, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// A process that writes a file, from when there is as much of it; what another left there goes
    /// first.
    pub(crate) fn writing(command: Command, path: &Path, bytes: u64) -> Self {
        let _ = std::fs::remove_file(path);
        let run = Self::command(command);
        eventually("the first lines", Duration::from_secs(30), || {
            let written = std::fs::metadata(path).map_or(0, |data| data.len());
            if written < bytes { Err("hardly anything was written") } else { Ok(()) }
        });
        run
    }

    /// Waits until it ends by itself: its exit code (or minus the signal), and everything that it
    /// wrote.
    pub(crate) fn outcome(mut self) -> (i32, String) {
        let status = self.ended(END_TIMEOUT);
        (status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)), self.text())
    }

    fn watch(mut command: Command, native: SocketAddr) -> Self {
        let mut child = command.spawn().expect("the binary under test can be started");
        let text = Arc::new(Mutex::new(String::new()));
        let (tell, ready) = channel();
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let collect = |source: Box<dyn std::io::Read + Send>,
                       tell: Option<std::sync::mpsc::Sender<()>>| {
            let text = Arc::clone(&text);
            std::thread::spawn(move || {
                for line in BufReader::new(source).lines().map_while(Result::ok) {
                    if line.contains("timestone ready:")
                        && let Some(tell) = &tell
                    {
                        let _ = tell.send(());
                    }
                    let _ = writeln!(text.lock().expect("nobody panics with it"), "{line}");
                }
            })
        };
        let readers = vec![collect(Box::new(out), Some(tell)), collect(Box::new(err), None)];
        Self { child, native, text, ready, readers }
    }

    /// Waits until it says that it is ready.
    pub(crate) fn ready(mut self) -> Self {
        match self.ready.recv_timeout(READY_TIMEOUT) {
            Ok(()) => self,
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.ended(END_TIMEOUT);
                panic!("the server on {} did not start ({status}):\n{}", self.native, self.text())
            }
            Err(RecvTimeoutError::Timeout) => {
                panic!(
                    "the server on {} was not ready in {READY_TIMEOUT:?}:\n{}\n{}",
                    self.native,
                    self.text(),
                    self.threads()
                )
            }
        }
    }

    /// Everything that it wrote so far.
    pub(crate) fn text(&self) -> String {
        self.text.lock().expect("nobody panics with it").clone()
    }

    /// Who it is, for the system.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The memory of a process that is in the machine's, in bytes; none once it is gone.
    pub(crate) fn resident_bytes(pid: Pid) -> Option<u64> {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }

    /// What each of its threads does, for whoever has to find out why it is late: its name, its
    /// state, and where in the kernel it waits.
    fn threads(&self) -> String {
        let folder = format!("/proc/{}/task", self.child.id());
        let mut text = String::new();
        for thread in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let read =
                |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let status = read("status");
            let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
            let _ = writeln!(text, "{}: {state} in {}", read("comm").trim(), read("wchan"));
        }
        text
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)
            .unwrap_or_else(|error| panic!("could not signal the server: {error}"));
    }

    /// SIGKILL, and wait until it is gone. It must not have ended before by itself.
    pub(crate) fn kill(mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!(
                "the server on {} had ended before it was killed ({status}):\n{}",
                self.native,
                self.text()
            );
        }
        self.signal(Signal::KILL);
        let status = self.ended(END_TIMEOUT);
        assert_eq!(status.signal(), Some(9), "{}", self.text());
    }

    /// SIGTERM, and wait: how it ended, and everything that it wrote.
    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        let status = self.ended(END_TIMEOUT);
        (status, self.text())
    }

    /// SIGTERM; it must end well.
    pub(crate) fn stop(self) {
        let (status, text) = self.terminate();
        assert!(status.success(), "the server ended with {status}:\n{text}");
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self, timeout: Duration) -> ExitStatus {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the process did not end in {timeout:?}:\n{}\n{}",
                self.text(),
                self.threads()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server on {} wrote:\n{}", self.native, self.text());
        }
    }
}

/// Tries until it works; panics with the last failure when it does not for `timeout`.
pub(crate) fn eventually<T, E: std::fmt::Display>(
    what: &str,
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(
                Instant::now() < deadline,
                "{what} did not come true in {timeout:?}: {error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
