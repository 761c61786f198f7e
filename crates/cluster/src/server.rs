//! Servers: their ids, their data directories, and where they are reached.

use core::fmt;
use core::net::SocketAddr;

use crate::ClusterError;
use crate::codec::{Cursor, put_text, put_u32, put_u64};
use crate::limits::MAX_ADDRESS_BYTES;

/// One server of a cluster, numbered by the master from 1; 0 means "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(u32);

impl ServerId {
    /// No server.
    pub const NONE: Self = Self(0);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw number, for layouts and displays.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether this names no server.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Names one data directory for ever: drawn at random and stored there before the server first
/// registers, so that a repeated registration finds the same server instead of making a second one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DirectoryId(pub u64);

/// `host:port`, checked for its form only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address(String);

impl Address {
    /// Takes an address as people write it.
    ///
    /// # Errors
    /// [`ClusterError::BadAddress`] when it has no host, no port, an IPv6 host without brackets, or
    /// odd characters.
    pub fn new(text: &str) -> Result<Self, ClusterError> {
        let bad = || ClusterError::BadAddress { address: text.chars().take(80).collect() };
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port_ok = digits && port.parse::<u16>().is_ok_and(|port| port > 0);
        let host_ok = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(v6) => v6.parse::<core::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty()
                    && host.bytes().all(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
                    })
            }
        };
        if !port_ok || !host_ok || text.len() > MAX_ADDRESS_BYTES {
            return Err(bad());
        }
        Ok(Self(text.to_owned()))
    }

    /// The address, if no name service is needed for it; servers register no others.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }

    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::str::FromStr for Address {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

/// Where a server is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerAddresses {
    /// Native protocol; `None` for a store that lives inside its application's process and is
    /// reached through memory only.
    pub native: Option<Address>,
    /// Redis protocol, when the server is a gateway.
    pub resp: Option<Address>,
    /// Console, metrics and health, when they are served.
    pub http: Option<Address>,
}

impl ServerAddresses {
    /// Reachable inside the process only.
    pub const IN_PROCESS: Self = Self { native: None, resp: None, http: None };

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for address in [&self.native, &self.resp, &self.http] {
            put_text(out, address.as_ref().map_or("", Address::as_str));
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        let mut next = || match cursor.text(MAX_ADDRESS_BYTES)? {
            "" => Ok(None),
            text => Address::new(text).map(Some),
        };
        Ok(Self { native: next()?, resp: next()?, http: next()? })
    }
}

/// A registered server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its id.
    pub id: ServerId,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Where it is reached.
    pub addresses: ServerAddresses,
}

impl ServerInfo {
    /// The fewest bytes that one entry takes: ids and three empty addresses.
    pub(crate) const MIN_BYTES: usize = 4 + 8 + 3 * 2;

    /// The server and where its gateway is, in words for a person with a Redis client.
    #[must_use]
    pub fn for_redis_clients(&self) -> String {
        match &self.addresses.resp {
            Some(resp) => format!("server {} (redis://{resp})", self.id),
            None => format!("server {}, which has no port for Redis clients", self.id),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.id.get());
        put_u64(out, self.directory.0);
        self.addresses.encode(out);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, ClusterError> {
        let id = ServerId::new(cursor.u32()?);
        let directory = DirectoryId(cursor.u64()?);
        Ok(Self { id, directory, addresses: ServerAddresses::decode(cursor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_for_their_form() {
        for good in ["127.0.0.1:7400", "[::1]:7400", "db-1.example.org:1", "localhost:65535"] {
            assert_eq!(Address::new(good).map(|address| address.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            ":7400",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "::1:7400",
            "[::1:7400",
            "[x]:1",
            "a b:1",
            "h:1\n",
        ] {
            assert!(Address::new(bad).is_err(), "{bad:?} was taken");
        }
        assert!(Address::new(&format!("{}:1", "a".repeat(300))).is_err());
    }
}
