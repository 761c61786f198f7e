//! What the gateway knows of one redis client: its id, its name, the dialect that it speaks.

use std::net::SocketAddr;

use timestone_types::Timestamp;
use timestone_wire::resp::Protocol;

/// A client's number in CLIENT ID and CLIENT LIST; never used twice while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientNumber(pub(crate) i64);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ClientState {
    pub(crate) number: ClientNumber,
    pub(crate) peer: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) connected: Timestamp,
    pub(crate) last_seen: Timestamp,
    pub(crate) last_command: &'static str,
    /// Commands queued by MULTI; `None` outside of it.
    pub(crate) queued: Option<usize>,
    /// Keys watched.
    pub(crate) watched: usize,
}

impl ClientState {
    pub(crate) const fn new(number: ClientNumber, peer: SocketAddr, now: Timestamp) -> Self {
        Self {
            number,
            peer,
            protocol: Protocol::Resp2,
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
            connected: now,
            last_seen: now,
            last_command: "NULL",
            queued: None,
            watched: 0,
        }
    }

    /// The memory that what it is called takes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.name.capacity() + self.library.capacity() + self.library_version.capacity()
    }

    /// As RESET leaves it.
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.queued.is_none() && self.watched == 0, "its transaction is over");
        self.protocol = Protocol::Resp2;
        self.name.clear();
        self.queued = None;
        self.watched = 0;
    }

    /// Appends its line of CLIENT LIST.
    pub(crate) fn describe(&self, now: Timestamp, out: &mut Vec<u8>) {
        let resp = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
        let head = format!("id={} addr={} name=", self.number.0, self.peer);
        let multi = self.queued.map_or_else(|| "-1".to_owned(), |queued| queued.to_string());
        let middle = format!(
            " age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 multi={multi} watch={} cmd={} \
             user=default redir=-1 resp={resp} lib-name=",
            now.since(self.connected).as_secs(),
            now.since(self.last_seen).as_secs(),
            if self.queued.is_some() { "x" } else { "N" },
            self.watched,
            self.last_command,
        );
        for part in [
            head.as_bytes(),
            &self.name,
            middle.as_bytes(),
            &self.library,
            b" lib-ver=",
            &self.library_version,
        ] {
            out.extend_from_slice(part);
        }
        out.push(b'\n');
    }
}

/// Whether a client may be called so: printable, without spaces.
pub(crate) fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_described_in_one_line() {
        let mut client =
            ClientState::new(ClientNumber(7), "127.0.0.1:9".parse().unwrap(), Timestamp::ZERO);
        client.name = b"worker".to_vec();
        let mut out = Vec::new();
        client.describe(Timestamp::from_nanos(3_000_000_000), &mut out);
        let line = String::from_utf8(out).unwrap();
        assert!(
            line.starts_with("id=7 addr=127.0.0.1:9 name=worker age=3 idle=3 flags=N db=0"),
            "{line}"
        );
        assert!(line.ends_with("resp=2 lib-name= lib-ver=\n"));
        assert!(is_name(b"a-b") && is_name(b"") && !is_name(b"a b") && !is_name(b"a\n"));
    }
}
