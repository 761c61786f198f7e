//! Addresses as people write them, and their resolution off the event loop.

use std::net::{SocketAddr, ToSocketAddrs};

use timestone_wire::ErrorCode;

use crate::{Error, Result};

/// The port of the native protocol.
pub(crate) const PORT: u16 = 7400;

/// The servers named by a URL: `timestone://host[:port][,host[:port]]…`, each as `host:port`. The
/// scheme may be left out.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(url: &str) -> Result<Vec<String>> {
    let bad = |what: &str| {
        let message = format!("the address {url:?} {what}");
        Error::new(
            ErrorCode::BadArgument,
            message,
            "write it as timestone://host:7400, several hosts divided by commas",
        )
    };
    let hosts = url.strip_prefix("timestone://").unwrap_or(url);
    if hosts.contains("://") {
        return Err(bad("has another scheme than timestone://"));
    }
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    if hosts.contains(['/', '?', '#', '@']) {
        return Err(bad("has more than hosts and ports"));
    }
    let one = |host: &str| match host.trim() {
        "" => Err(bad("has no host")),
        host => with_port(host)
            .ok_or_else(|| bad(&format!("has {host:?} where a host and a port are expected"))),
    };
    hosts.split(',').map(one).collect()
}

fn with_port(host: &str) -> Option<String> {
    let rest = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.1,
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    let name = &host[..host.len() - rest.len()];
    if name.is_empty() || name == "[]" {
        return None;
    }
    match rest.strip_prefix(':') {
        Some(port) => port.parse::<u16>().ok().filter(|&port| port > 0).map(|_| host.to_owned()),
        None if rest.is_empty() => Some(format!("{host}:{PORT}")),
        None => None,
    }
}

/// An address that needs no name service.
pub(crate) fn literal(address: &str) -> Option<SocketAddr> {
    address.parse().ok()
}

/// Asks the name service; blocks.
///
/// # Errors
/// What it says.
pub(crate) fn resolve(address: &str) -> std::io::Result<SocketAddr> {
    let none = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    address.to_socket_addrs()?.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_hosts_with_and_without_ports() {
        assert_eq!(parse("timestone://a").unwrap(), ["a:7400"]);
        assert_eq!(
            parse("timestone://a:1,10.0.0.2 , [::1]:5,[::2]/").unwrap(),
            ["a:1", "10.0.0.2:7400", "[::1]:5", "[::2]:7400"]
        );
        assert_eq!(parse("a:7400").unwrap(), ["a:7400"], "the scheme may be left out");
        assert_eq!(parse("127.0.0.1,[::1]:7").unwrap(), ["127.0.0.1:7400", "[::1]:7"]);
        assert!(parse("timestone://").unwrap_err().to_string().contains("has no host"));
        for bad in [
            "http://a",
            "",
            "timestone://",
            "timestone://a:b",
            "timestone://a:0",
            "timestone://a/db",
            "timestone://,a",
            "timestone://[::1",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(
                error.contains("TS1042") && error.contains("timestone://host:7400"),
                "{bad}: {error}"
            );
        }
    }
}
