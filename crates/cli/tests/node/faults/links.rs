//! Connections that a test can spoil: a proxy on loopback stands before each server, and before
//! etcd for each server.
//!
//! ```text
//!   client, other servers ─► proxy of a server (what the server advertises) ─► its port
//!   a server ─► its own proxy of etcd ─► etcd
//! ```
//! Bytes of a connection arrive whole and in order, or not at all: it is TCP. What a network that
//! loses, doubles and reorders messages makes of that is delays, silence, and connections that end
//! with what was under way. So that is what is done here, for each sender and receiver:
//! [`Links::stall`] (nothing arrives, and nobody hears of it), [`Links::cut`] (connections end, new
//! ones are refused), [`Links::disturb`] (delays at random, and connections end at random).

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::random::Random;
use crate::server::NodeSetup;

/// How often a stalled direction is looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// How often it is looked who has dialled.
const READINGS: u32 = 20;
/// How many bytes travel at once.
const CHUNK: usize = 16 << 10;

/// Who sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    Server(usize),
    /// Whoever is no server of the cluster.
    Client,
    Etcd,
}

/// What becomes of bytes on their way from one party to another.
#[derive(Clone, Copy, Default, Debug)]
struct Flow {
    is_stalled: bool,
    /// Connections between the two end, and new ones are refused.
    is_cut: bool,
    /// Each chunk takes up to so long.
    delay_ms: u64,
    /// Of a thousand chunks so many are lost, and the connection with them.
    lost: u64,
}

/// A connection of two parties, as both of its halves.
struct Connection {
    parties: [Party; 2],
    sockets: [TcpStream; 2],
}

struct LinkState {
    flows: Vec<((Party, Party), Flow)>,
    connections: Vec<Connection>,
    random: Random,
}

struct Shared {
    state: Mutex<LinkState>,
    is_over: AtomicBool,
    /// The data directory of each server, by which its process is known.
    directories: Vec<PathBuf>,
}

/// The proxies of a cluster. They end when this is dropped.
pub(crate) struct Links {
    shared: Arc<Shared>,
    listening: Vec<SocketAddr>,
}

impl Links {
    /// Puts a proxy before each server, and one before etcd for each of them. The places as they
    /// are to be started then, without what is said of a master.
    pub(crate) fn before(
        places: &[NodeSetup],
        etcd: SocketAddr,
        random: Random,
    ) -> (Self, Vec<NodeSetup>) {
        let state = LinkState { flows: Vec::new(), connections: Vec::new(), random };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            is_over: AtomicBool::new(false),
            directories: places.iter().map(|place| place.data.clone()).collect(),
        });
        let mut links = Self { shared, listening: Vec::new() };
        let places = places.iter().enumerate().map(|(index, place)| {
            let native = links.listen(None, Party::Server(index), place.native);
            let master = links.listen(Some(Party::Server(index)), Party::Etcd, etcd);
            place
                .with("--advertise", &native.to_string())
                .with("--master", &format!("etcd://{master}"))
        });
        let places = places.collect();
        (links, places)
    }

    /// A port whose connections go on to `to`, at `address`.
    fn listen(&mut self, from: Option<Party>, to: Party, address: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens");
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over() {
                    return;
                }
                if let Ok(stream) = stream {
                    // What cannot be connected is closed, as a server that is dead does.
                    let _ = shared.connect(stream, from, to, address);
                }
            }
        });
        self.listening.push(port);
        port
    }

    fn change(&self, from: Party, to: Party, change: impl FnOnce(&mut Flow)) {
        let mut state = self.shared.state();
        let at = state.flows.iter().position(|(parties, _)| *parties == (from, to));
        let at = at.unwrap_or_else(|| {
            state.flows.push(((from, to), Flow::default()));
            state.flows.len() - 1
        });
        change(&mut state.flows[at].1);
    }

    /// Nothing arrives from one at the other, until [`Links::heal`]; connections stay.
    pub(crate) fn stall(&self, from: Party, to: Party) {
        self.change(from, to, |flow| flow.is_stalled = true);
    }

    /// Connections of the two end, and new ones are refused, until [`Links::heal`].
    pub(crate) fn cut(&self, one: Party, other: Party) {
        for (from, to) in [(one, other), (other, one)] {
            self.change(from, to, |flow| flow.is_cut = true);
        }
        self.end(|parties| parties == [one, other] || parties == [other, one]);
    }

    /// Chunks between these take up to so long, and of a thousand so many end their connection.
    pub(crate) fn disturb(&self, parties: &[Party], delay: Duration, lost: u64) {
        for (&from, &to) in parties.iter().flat_map(|from| parties.iter().map(move |to| (from, to)))
        {
            self.change(from, to, |flow| {
                flow.delay_ms = u64::try_from(delay.as_millis()).expect("a short time");
                flow.lost = lost;
            });
        }
    }

    /// Everything arrives again. What was stalled arrives now, unless its connection ended.
    pub(crate) fn heal(&self) {
        self.shared.state().flows.clear();
    }

    /// Ends connections of these parties.
    fn end(&self, is_meant: impl Fn([Party; 2]) -> bool) {
        for connection in &self.shared.state().connections {
            if is_meant(connection.parties) {
                connection.end();
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.end(|_| true);
        for address in &self.listening {
            // The listener looks up.
            let _ = TcpStream::connect(address);
        }
    }
}

impl Connection {
    /// Both halves; whoever reads or writes hears of it.
    fn end(&self) {
        for socket in &self.sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl LinkState {
    fn flow(&self, from: Party, to: Party) -> Flow {
        let found = self.flows.iter().find(|(parties, _)| *parties == (from, to));
        found.map_or_else(Flow::default, |(_, flow)| *flow)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Somebody has connected, who wants to reach `to` at an address.
    fn connect(
        self: &Arc<Self>,
        dialled: TcpStream,
        from: Option<Party>,
        to: Party,
        address: SocketAddr,
    ) -> io::Result<()> {
        let from = match from {
            Some(from) => from,
            None => self.dialler(&dialled)?,
        };
        if self.state().flow(from, to).is_cut {
            return Ok(());
        }
        let reached = TcpStream::connect(address)?;
        for socket in [&dialled, &reached] {
            socket.set_nodelay(true)?;
        }
        let sockets = [dialled.try_clone()?, reached.try_clone()?];
        let ways =
            [(dialled.try_clone()?, reached.try_clone()?, from, to), (reached, dialled, to, from)];
        {
            let mut state = self.state();
            // Those that have ended have no peer any more.
            state.connections.retain(|known| known.sockets[0].peer_addr().is_ok());
            state.connections.push(Connection { parties: [from, to], sockets });
        }
        for (source, target, from, to) in ways {
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                let (mut source, mut target) = (source, target);
                let _ = shared.forward(&mut source, &mut target, from, to);
                // The end of one half is the end of both.
                let _ = source.shutdown(Shutdown::Both);
                let _ = target.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    /// Brings what one sends to the other, until the connection ends.
    fn forward(
        &self,
        source: &mut TcpStream,
        target: &mut TcpStream,
        from: Party,
        to: Party,
    ) -> io::Result<()> {
        let mut bytes = vec![0; CHUNK];
        loop {
            let read = source.read(&mut bytes);
            // Not even that it has ended arrives while nothing does.
            while self.state().flow(from, to).is_stalled && !self.is_over() {
                std::thread::sleep(LOOK);
            }
            let count = read?;
            if count == 0 || self.is_over() {
                return Ok(());
            }
            let (delay, is_lost) = {
                let mut state = self.state();
                let flow = state.flow(from, to);
                let delay = state.random.span(0, flow.delay_ms);
                (delay, flow.is_cut || state.random.below(1000) < flow.lost)
            };
            if is_lost {
                return Ok(());
            }
            if !delay.is_zero() {
                std::thread::sleep(delay);
            }
            target.write_all(&bytes[..count])?;
        }
    }

    /// The server whose process has the other end of a connection; else it is a client's.
    fn dialler(&self, dialled: &TcpStream) -> io::Result<Party> {
        let socket = socket_of(dialled.peer_addr()?)?;
        for entry in fs::read_dir("/proc")?.flatten() {
            // A process that is gone meanwhile, or another user's, is none of ours.
            let Ok(command) = fs::read(entry.path().join("cmdline")) else { continue };
            let index = self.directories.iter().position(|data| {
                let data = data.as_os_str().as_encoded_bytes();
                command.split(|&byte| byte == 0).any(|word| word == data)
            });
            if let Some(index) = index
                && has_open(&entry.path(), &socket)
            {
                return Ok(Party::Server(index));
            }
        }
        Ok(Party::Client)
    }
}

/// The socket with this address, as it stands among a process's open files. The system's table may
/// lack a row while other rows come and go, so it is read more than once.
///
/// # Errors
/// There is none: whoever has dialled is gone.
fn socket_of(address: SocketAddr) -> io::Result<String> {
    let SocketAddr::V4(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
    let ip = u32::from_le_bytes(address.ip().octets());
    let local = format!("{ip:08X}:{:04X}", address.port());
    for _ in 0..READINGS {
        let table = fs::read_to_string("/proc/net/tcp")?;
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // A socket that nobody has open any more has no number.
        let row = rows.find(|row| row.get(1) == Some(&local.as_str()) && row.get(9) != Some(&"0"));
        if let Some(inode) = row.and_then(|row| row.get(9).copied()) {
            return Ok(format!("socket:[{inode}]"));
        }
        std::thread::sleep(LOOK);
    }
    Err(io::ErrorKind::NotConnected.into())
}

fn has_open(process: &std::path::Path, socket: &str) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    files
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == socket))
}
