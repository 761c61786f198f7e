//! What a process's net stages hold of the network: listeners and streams that look like sockets.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use timestone_seda::{
    Listener, ListenerSocket, Network, Readiness, StageSlot, Stream, StreamSocket,
};

use super::{
    EndId, Listening, NetworkState, ProcessId, SimNetwork, StreamEnd, StreamPhase, process_at,
    would_block,
};
use timestone_costmodel::Counter;

/// The network as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct HostNetwork {
    network: SimNetwork,
    process: ProcessId,
    counter: Counter,
}

impl HostNetwork {
    pub(super) const fn new(network: SimNetwork, process: ProcessId, counter: Counter) -> Self {
        Self { network, process, counter }
    }
}

impl Network for HostNetwork {
    fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        let mut state = self.network.lock();
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let listening =
            Listening { process: self.process, backlog: Default::default(), slot: None };
        state.listeners.insert(address, listening);
        Ok(Listener::Given(Box::new(SimListener {
            network: self.network.clone(),
            process: self.process,
            address,
            counter: self.counter.clone(),
        })))
    }

    fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        self.counter.open();
        let far = process_at(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut state = self.network.lock();
        let end =
            state.add(StreamEnd { dialling: Some(address), ..StreamEnd::new(self.process, far) });
        state.list(end);
        drop(state);
        Ok(Stream::Given(Box::new(SimStream {
            network: self.network.clone(),
            end,
            counter: self.counter.clone(),
        })))
    }
}

#[derive(Debug)]
struct SimListener {
    network: SimNetwork,
    process: ProcessId,
    address: SocketAddr,
    counter: Counter,
}

impl ListenerSocket for SimListener {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn register(&mut self, slot: StageSlot) {
        let mut state = self.network.lock();
        let Some(listening) = state.listeners.get_mut(&self.address) else { return };
        listening.slot = Some(slot);
        if !listening.backlog.is_empty() {
            let readiness = Readiness {
                token: slot.token,
                readable: true,
                writable: false,
                read_closed: false,
                write_closed: false,
            };
            state.ready.push((self.process, slot, readiness));
        }
    }

    fn deregister(&mut self) {
        if let Some(listening) = self.network.lock().listeners.get_mut(&self.address) {
            listening.slot = None;
        }
    }

    fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        self.counter.open();
        let mut state = self.network.lock();
        let next = state
            .listeners
            .get_mut(&self.address)
            .and_then(|listening| listening.backlog.pop_front());
        drop(state);
        let (end, peer) = next.ok_or_else(would_block)?;
        let stream =
            SimStream { network: self.network.clone(), end, counter: self.counter.clone() };
        Ok((Stream::Given(Box::new(stream)), peer))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.network.lock();
        if state
            .listeners
            .get(&self.address)
            .is_some_and(|listening| listening.process == self.process)
        {
            state.listeners.remove(&self.address);
        }
    }
}

#[derive(Debug)]
struct SimStream {
    network: SimNetwork,
    end: EndId,
    counter: Counter,
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Read for SimStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.network.lock();
        let process = state.end(self.end).ok_or_else(reset)?.process;
        if state.unreading.contains(&process) {
            return Err(would_block());
        }
        let end = state.end(self.end).ok_or_else(reset)?;
        if end.phase == StreamPhase::Reset {
            return Err(reset());
        }
        let bytes = end.inbound.bytes.read(into)?;
        self.counter.read(bytes);
        if bytes == 0 && !into.is_empty() {
            return if end.inbound.last { Ok(0) } else { Err(would_block()) };
        }
        let (peer, owes) = (end.peer, std::mem::replace(&mut end.owes_credit, true));
        if let Some(peer) = peer {
            let was_full = state.end(peer).is_some_and(|peer| {
                peer.outbound.read(bytes);
                peer.outbound.blocked
            });
            if was_full && !owes {
                state.credits.push(self.end);
            } else if let Some(end) = state.end(self.end) {
                end.owes_credit = owes;
            }
        }
        Ok(bytes)
    }
}

impl SimStream {
    /// Takes what there is room for.
    fn put(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.network.lock();
        let mut end = state.end(self.end).ok_or_else(reset)?;
        if end.phase != StreamPhase::Open || end.shut {
            return Err(reset());
        }
        let room = end.outbound.reserve(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(would_block());
        }
        let mut rest = &bytes[..room];
        while !rest.is_empty() {
            let taken = end.outbound.gather(rest);
            let elapsed = self.counter.written(taken);
            if end.outbound.is_segment_full() {
                end.outbound.leave(elapsed);
                self.wake(&mut state, elapsed);
                end = state.end(self.end).ok_or_else(reset)?;
            }
            rest = &rest[taken..];
        }
        state.list(self.end);
        Ok(room)
    }

    /// A call has written what it could: the rest of it leaves.
    fn push(&self) {
        let mut state = self.network.lock();
        let Some(end) = state.end(self.end).filter(|end| end.outbound.has_gathered()) else {
            return;
        };
        let elapsed = self.counter.written(0);
        end.outbound.leave(elapsed);
        self.wake(&mut state, elapsed);
    }

    /// Whoever sleeps at the other end is woken by the first that leaves, before more is written.
    fn wake(&self, state: &mut NetworkState, elapsed: Duration) {
        if let Some(idle) = state.wakes(self.end, elapsed) {
            self.counter.wake(idle);
        }
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.counter.write();
        let written = self.put(bytes);
        self.push();
        written
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.counter.write();
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.put(slice) {
                Ok(bytes) => {
                    written += bytes;
                    if bytes < slice.len() {
                        break;
                    }
                }
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.push();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StreamSocket for SimStream {
    fn register(&mut self, slot: StageSlot) {
        let mut state = self.network.lock();
        let Some(end) = state.end(self.end) else { return };
        end.slot = Some(slot);
        let (decided, readable) =
            (end.phase != StreamPhase::Connecting, !end.inbound.is_empty() || end.inbound.last);
        if decided {
            state.tell(self.end, readable, true);
        }
    }

    fn deregister(&mut self) {
        if let Some(end) = self.network.lock().end(self.end) {
            end.slot = None;
        }
    }

    fn connected(&self) -> io::Result<()> {
        match self.network.lock().end(self.end).map(|end| end.phase) {
            Some(StreamPhase::Open) => Ok(()),
            Some(StreamPhase::Connecting) => Err(io::ErrorKind::NotConnected.into()),
            Some(StreamPhase::Refused) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(StreamPhase::Reset) | None => Err(reset()),
        }
    }

    fn shut_write(&mut self) -> io::Result<()> {
        let mut state = self.network.lock();
        let end = state.end(self.end).ok_or_else(reset)?;
        if end.phase != StreamPhase::Open {
            return Err(reset());
        }
        end.shut = true;
        state.list(self.end);
        Ok(())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.network.lock();
        let Some(end) = state.end(self.end) else { return };
        end.closed = true;
        end.shut = true;
        end.slot = None;
        if end.phase == StreamPhase::Open {
            state.list(self.end);
        } else {
            let peer = end.peer;
            state.ends[self.end.0 as usize] = None;
            if let Some(peer) = peer.and_then(|peer| state.end(peer)) {
                peer.peer = None;
            }
        }
    }
}
