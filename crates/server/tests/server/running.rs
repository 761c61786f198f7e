//! A server on a directory of its own, and its clients: native over TCP, native in process, and a
//! redis client that is a socket.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use timestone_client::{Attachment, EngineConfig, blocking};
use timestone_server::{ListenConfig, Server, ServerConfig, ServerError, SizeConfig, StageLayout};

/// A running server.
pub(crate) struct Running {
    pub(crate) server: Server,
    /// The client that lives in the same process, on the server's own threads.
    pub(crate) inside: blocking::Db,
}

/// How long anything may take: no test is about that, and the machine may have other things to do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Tests run with a thread for each stage when this variable is set.
const STAGED: &str = "TIMESTONE_TEST_STAGED";

/// Whether they do now.
pub(crate) fn staged() -> bool {
    std::env::var_os(STAGED).is_some()
}

/// All these tests once more, with a thread for each stage.
#[test]
fn every_test_holds_for_the_staged_layout_as_well() {
    if staged() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .env(STAGED, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A small server's configuration on a directory.
pub(crate) fn config(data: &std::path::Path) -> ServerConfig {
    let any = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
    ServerConfig {
        listen: ListenConfig { native: any, resp: any, http: any, ..ListenConfig::default() },
        shards: Some(2),
        threads: Some(1),
        layout: if staged() { StageLayout::Staged } else { StageLayout::Fused },
        sizes: SizeConfig {
            capacity_bytes: Some(256 << 20),
            cache_bytes: 16 << 20,
            ..SizeConfig::default()
        },
        ..ServerConfig::new(data.to_owned())
    }
}

impl Running {
    pub(crate) fn start(config: &ServerConfig) -> Self {
        Self::try_start(config).unwrap()
    }

    pub(crate) fn try_start(config: &ServerConfig) -> Result<Self, ServerError> {
        let attachment: Mutex<Option<Attachment>> = Mutex::new(None);
        let server = Server::start_with(config, |slots| {
            let stages = slots.iter().map(|slot| {
                let (stage, part) = slot.client(EngineConfig::default()).split();
                *attachment.lock().unwrap() = Some(part);
                stage
            });
            stages.collect()
        })?;
        let slot = server.embedded_clients().last().unwrap().stage;
        let db = attachment.into_inner().unwrap().unwrap().attach(server.injector(), slot, None);
        Ok(Self { server, inside: blocking::Db::from(db).with_deadline(TIMEOUT) })
    }

    /// A native client over TCP.
    pub(crate) fn native(&self) -> blocking::Db {
        let url = format!("timestone://{}", self.server.addresses().native.unwrap());
        blocking::connect(&url).unwrap().with_deadline(TIMEOUT)
    }

    /// Sends commands over the Redis port, one to a line, and gives as many bytes of answers.
    pub(crate) fn resp(&self, commands: &str, answer_bytes: usize) -> String {
        let mut stream = TcpStream::connect(self.server.addresses().resp.unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(commands.as_bytes()).unwrap();
        let mut answer = vec![0; answer_bytes];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// The status and the text of a page of the HTTP port.
    pub(crate) fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.server.addresses().http.unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

/// Waits for something that is about to become true.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
