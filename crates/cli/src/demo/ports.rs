//! Ports that nobody uses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use timestone_workload::Random;

use super::limits::{FIRST_PORT, PORTS};
use crate::failure::Failure;

/// So many addresses on loopback, all different, whose ports nobody listens on now.
pub(super) fn free_addresses(
    count: usize,
    random: &mut Random,
) -> Result<Vec<SocketAddr>, Failure> {
    let start = random.below(u64::from(PORTS)) as u16;
    let mut taken = Vec::new();
    for offset in 0..PORTS {
        if taken.len() == count {
            break;
        }
        let port = FIRST_PORT + (start + offset) % PORTS;
        // Held until all are chosen.
        taken.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|one| (one, port)));
    }
    if taken.len() < count {
        return Err(Failure::failed(format!(
            "there are no {count} free ports from {FIRST_PORT} on; end what listens there"
        )));
    }
    Ok(taken.iter().map(|(_, port)| SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_ports_are_different_and_can_be_used() {
        let addresses = free_addresses(20, &mut Random::new(std::process::id().into())).unwrap();
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 20);
        assert!(addresses.iter().all(|address| address.port() >= FIRST_PORT));
    }
}
