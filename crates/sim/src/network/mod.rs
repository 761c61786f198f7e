//! The virtual network: byte streams between processes, as TCP shows them.
//!
//! ```text
//!   write ─► out ── the turn ends: flush ─► segment ── latency, bandwidth, loss ─► (world's queue) ─► inbound ─► read
//!              ▲                              └─ link cut: held back until it heals, or the connection times out
//!              └───── window: what is written and not yet read by the peer is bounded ◄──────────────────┘
//! ```
//!
//! The system under test speaks TCP, so what a network can do to it is what TCP lets through: bytes
//! of a stream are late, in order, or the stream breaks. Loss is therefore a delay (retransmission)
//! of everything behind it; duplicated and reordered packets are invisible. Duplicate, lost and
//! reordered *messages* do occur, and are provoked: through connections that break, dial anew and
//! repeat what was not answered, while the old connection's messages still arrive. A one-way cut
//! holds back one direction only. A connection that something on its way has forgotten carries
//! nothing any more, in silence: TCP goes on sending copies for a quarter of an hour before it
//! tells, which is longer than a run.
//!
//! What is late is sent again, and the copy may overtake: neither a loss nor a queue on a slow link
//! holds a stream up for much longer than it takes to send a copy and for that to arrive.
//!
//! # Invariants
//! - The bytes of one direction arrive in order, exactly once, up to a reset.
//! - A reset destroys what is under way in both directions.
//! - Nothing here is drawn except in [`SimNetwork::flush`] and [`SimNetwork::deliver`], in the order of
//!   virtual time.

mod dying;
mod end;
mod link;
mod sleepers;
mod stream;
mod transit;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_seda::simulated::VirtualTime;
use timestone_seda::{Readiness, StageSlot};

use end::{StreamEnd, StreamPhase};
pub use link::{LinkModel, LinkQuality};
pub(crate) use sleepers::Sleepers;
pub(crate) use stream::HostNetwork;

use timestone_costmodel::Counter;
use timestone_types::random::{Dice, Seed};

/// Bytes that may be written to one direction of a connection and not be read yet.
const WINDOW: usize = 512 * 1024;
/// Bytes that leave together, at most: as much as the operating system puts into one. Each call's
/// leave when it ends, if not before.
const SEGMENT: usize = 64 * 1024;
/// A connection whose bytes get nowhere for this long is given up by its sender.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The first retransmission of a lost segment comes after this long; each further one after twice
/// the time.
const RETRANSMIT: Duration = Duration::from_millis(200);

/// A process, by its number in the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u32);

/// The address of a process.
pub(crate) fn address_of(process: ProcessId, port: u16) -> SocketAddr {
    let [_, high, middle, low] = process.0.to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, high, middle, low)), port)
}

/// The process at an address.
fn process_at(address: SocketAddr) -> Option<ProcessId> {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [first, high, middle, low] = ip.octets();
            (first == 10).then(|| ProcessId(u32::from_be_bytes([0, high, middle, low])))
        }
        IpAddr::V6(_) => None,
    }
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct EndId(u32);

/// Something that arrives.
#[derive(Debug)]
pub(crate) enum Packet {
    /// A connection is asked for by `from`.
    Syn { from: EndId, address: SocketAddr },
    /// It stands.
    SynAck { to: EndId },
    /// Bytes; `last`: and nothing after them.
    Data { from: EndId, to: EndId, bytes: Vec<u8>, last: bool },
    /// The peer has read: there is room again.
    Credit { to: EndId },
    /// The stream is broken.
    Reset { to: EndId },
    /// Looks whether a held-back stream has timed out.
    Timeout { to: EndId, since: VirtualTime },
}

#[derive(Debug)]
struct Listening {
    process: ProcessId,
    backlog: VecDeque<(EndId, SocketAddr)>,
    slot: Option<StageSlot>,
}

/// All of the network.
#[derive(Debug)]
pub(crate) struct NetworkState {
    ends: Vec<Option<Box<StreamEnd>>>,
    listeners: BTreeMap<SocketAddr, Listening>,
    /// Ends with something to send at the end of the turn.
    dirty: Vec<EndId>,
    credits: Vec<EndId>,
    ready: Vec<(ProcessId, StageSlot, Readiness)>,
    /// Processes that answer nothing, not even with a reset: their machine is off.
    silent: Vec<ProcessId>,
    cuts: Vec<(ProcessId, ProcessId)>,
    /// Processes that read nothing from their connections, although they run.
    unreading: Vec<ProcessId>,
    links: LinkModel,
    dice: Dice,
    pub(crate) sleepers: Sleepers,
    /// How many resets, cut segments and retransmissions there were.
    pub(crate) resets: u64,
    pub(crate) retransmissions: u64,
    pub(crate) bytes: u64,
}

impl NetworkState {
    fn end(&mut self, id: EndId) -> Option<&mut StreamEnd> {
        self.ends.get_mut(id.0 as usize)?.as_deref_mut()
    }

    fn add(&mut self, end: StreamEnd) -> EndId {
        let id = EndId(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.ends.push(Some(Box::new(end)));
        id
    }

    fn list(&mut self, id: EndId) {
        if let Some(end) = self.end(id)
            && !std::mem::replace(&mut end.listed, true)
        {
            self.dirty.push(id);
        }
    }

    fn tell(&mut self, id: EndId, readable: bool, writable: bool) {
        let Some(end) = self.ends.get(id.0 as usize).and_then(Option::as_deref) else { return };
        let Some(slot) = end.slot else { return };
        let broken = end.is_broken();
        let process = end.process;
        let readiness = Readiness {
            token: slot.token,
            readable: readable || broken,
            writable: writable || broken,
            read_closed: end.inbound.last || broken,
            write_closed: broken,
        };
        if !self.unreading.contains(&process) {
            self.ready.push((process, slot, readiness));
        } else if writable && !broken {
            // It learns of nothing that only a read would tell.
            self.ready.push((
                process,
                slot,
                Readiness { readable: false, read_closed: false, ..readiness },
            ));
        }
    }

    fn is_cut(&self, from: ProcessId, to: ProcessId) -> bool {
        !self.cuts.is_empty() && self.cuts.contains(&(from, to))
    }

    /// Breaks one end; its owner learns it.
    fn reset(&mut self, id: EndId) {
        let Some(end) = self.end(id) else { return };
        if end.closed {
            self.ends[id.0 as usize] = None;
            return;
        }
        if end.is_broken() {
            return;
        }
        end.break_off();
        self.resets += 1;
        self.tell(id, true, true);
    }
}

/// A handle on the network.
#[derive(Clone, Debug)]
pub(crate) struct SimNetwork {
    state: Arc<Mutex<NetworkState>>,
}

impl SimNetwork {
    pub(crate) fn new(links: LinkModel, seed: Seed) -> Self {
        let state = NetworkState {
            ends: Vec::new(),
            listeners: BTreeMap::new(),
            dirty: Vec::new(),
            credits: Vec::new(),
            ready: Vec::new(),
            silent: Vec::new(),
            cuts: Vec::new(),
            unreading: Vec::new(),
            links,
            dice: seed.dice(),
            sleepers: Sleepers::default(),
            resets: 0,
            retransmissions: 0,
            bytes: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what became ready.
    pub(crate) fn take_ready(&self, into: &mut Vec<(ProcessId, StageSlot, Readiness)>) {
        into.append(&mut self.lock().ready);
    }

    /// Sends off what was written during a turn from `begin` to `at`; `later` is told each packet
    /// and when it arrives.
    pub(crate) fn flush(
        &self,
        begin: VirtualTime,
        at: VirtualTime,
        mut later: impl FnMut(VirtualTime, Packet),
    ) {
        let mut state = self.lock();
        if state.dirty.is_empty() && state.credits.is_empty() {
            return;
        }
        for id in std::mem::take(&mut state.dirty) {
            state.send_off(id, begin, at, &mut later);
        }
        for id in std::mem::take(&mut state.credits) {
            let Some(end) = state.end(id) else { continue };
            end.owes_credit = false;
            let (from, to, peer) = (end.process, end.far, end.peer.filter(|_| !end.path.forgotten));
            if let Some(peer) = peer {
                let latency = state.latency(from, to);
                later(at.after(latency), Packet::Credit { to: peer });
            }
        }
    }

    /// A packet has arrived.
    pub(crate) fn deliver(
        &self,
        at: VirtualTime,
        packet: Packet,
        mut later: impl FnMut(VirtualTime, Packet),
    ) {
        let mut state = self.lock();
        match packet {
            Packet::Syn { from, address } => state.asked(from, address, at, &mut later),
            Packet::SynAck { to } => {
                if let Some(end) = state.end(to).filter(|end| end.phase == StreamPhase::Connecting)
                {
                    end.phase = StreamPhase::Open;
                    let readable = !end.inbound.is_empty();
                    state.tell(to, readable, true);
                }
            }
            Packet::Data { from, to, bytes, last } => {
                state.arrived(from, to, &bytes, last, at, &mut later)
            }
            Packet::Credit { to } => {
                if let Some(end) = state.end(to)
                    && end.outbound.has_room_again()
                {
                    end.outbound.blocked = false;
                    state.tell(to, false, true);
                }
            }
            Packet::Reset { to } => state.reset(to),
            Packet::Timeout { to, since } => {
                if let Some(end) = state.end(to).filter(|end| end.path.held_since == Some(since)) {
                    let peer = end.peer;
                    state.reset(to);
                    if let Some(peer) = peer {
                        // The other side hears nothing of it while the link is cut; afterwards its
                        // bytes meet no connection.
                        if let Some(end) = state.end(peer) {
                            end.peer = None;
                        }
                    }
                }
            }
        }
    }

    /// Cuts a link in one direction, once more if it is cut already: each cut is healed by itself.
    pub(crate) fn cut(&self, from: ProcessId, to: ProcessId) {
        self.lock().cuts.push((from, to));
    }

    /// Whether nothing cuts two processes off from each other.
    pub(crate) fn stands(&self, one: ProcessId, other: ProcessId) -> bool {
        let state = self.lock();
        !state.is_cut(one, other) && !state.is_cut(other, one)
    }

    /// Heals one cut of a link in one direction, or all of all links when none is named.
    pub(crate) fn heal(
        &self,
        link: Option<(ProcessId, ProcessId)>,
        at: VirtualTime,
        mut later: impl FnMut(VirtualTime, Packet),
    ) {
        let mut state = self.lock();
        match link {
            Some(link) => {
                let cut = state.cuts.iter().position(|&cut| cut == link);
                cut.map(|at| state.cuts.swap_remove(at));
            }
            None => state.cuts.clear(),
        }
        for index in 0..state.ends.len() {
            let id = EndId(index as u32);
            let Some(end) = state.end(id).filter(|end| end.path.held_since.is_some()) else {
                continue;
            };
            let (from, to, since) = (end.process, end.far, end.path.held_since);
            if state.is_cut(from, to) {
                continue;
            }
            // The next retransmission gets through; its pause has doubled meanwhile.
            let waited = since.map_or(Duration::ZERO, |since| at.since(since)).max(RETRANSMIT);
            let pause = Duration::from_nanos(state.dice.below(waited.as_nanos() as u64 / 2 + 1));
            let held = state.end(id).map(|end| end.path.release());
            for packet in held.into_iter().flatten() {
                let arrival = state.arrival(id, at.after(pause), 0);
                later(arrival, packet);
            }
        }
    }

    /// Breaks a connection drawn by `dice`, at both ends. Whether there was one.
    pub(crate) fn break_one(&self, dice: &mut Dice) -> bool {
        let mut state = self.lock();
        let Some((end, peer)) = state.pick_open(dice) else { return false };
        state.reset(end);
        state.reset(peer);
        true
    }

    /// Lets a connection drawn by `dice` be forgotten on its way: neither end is told, and nothing
    /// that they send arrives. The processes at its ends, if there was one.
    pub(crate) fn forget_one(&self, dice: &mut Dice) -> Option<(ProcessId, ProcessId)> {
        let mut state = self.lock();
        let (end, peer) = state.pick_open(dice)?;
        for id in [end, peer] {
            if let Some(end) = state.end(id) {
                end.path.forget();
            }
        }
        state.end(end).map(|end| (end.process, end.far))
    }

    /// A process has ended. Its peers get resets, unless its machine is gone as well (`silent`).
    pub(crate) fn end_process(
        &self,
        process: ProcessId,
        silent: bool,
        at: VirtualTime,
        mut later: impl FnMut(VirtualTime, Packet),
    ) {
        let mut state = self.lock();
        state.listeners.retain(|_, listening| listening.process != process);
        for index in 0..state.ends.len() {
            let owned = state.ends[index].as_deref().is_some_and(|end| end.process == process);
            if !owned {
                continue;
            }
            let Some(end) = state.ends[index].take() else { continue };
            let Some(peer) = end.peer else { continue };
            if let Some(far) = state.end(peer) {
                far.peer = None;
            }
            if !silent && !end.path.forgotten && !state.is_cut(process, end.far) {
                let latency = state.latency(process, end.far);
                later(at.after(latency), Packet::Reset { to: peer });
            }
        }
        state.ready.retain(|(owner, ..)| *owner != process);
        if silent {
            state.silent.push(process);
        }
    }

    /// A process has begun again.
    pub(crate) fn begin_process(&self, process: ProcessId) {
        let mut state = self.lock();
        state.silent.retain(|silent| *silent != process);
        state.unreading.retain(|unreading| *unreading != process);
    }

    /// Lets a process read nothing from its connections, or read on.
    pub(crate) fn set_unreading(&self, process: ProcessId, unreading: bool) {
        let mut state = self.lock();
        let was = state.unreading.contains(&process);
        state.unreading.retain(|known| *known != process);
        if unreading {
            state.unreading.push(process);
        } else if was {
            for index in 0..state.ends.len() {
                let id = EndId(index as u32);
                if state.end(id).is_some_and(|end| end.process == process) {
                    state.tell(id, true, true);
                }
            }
        }
    }

    /// Whether a process reads nothing at the moment.
    pub(crate) fn is_unreading(&self, process: ProcessId) -> bool {
        self.lock().unreading.contains(&process)
    }

    /// Connections of processes that read nothing, whose peers have more for them than there is
    /// room for.
    pub(crate) fn full_windows(&self) -> Vec<EndId> {
        let state = self.lock();
        if state.unreading.is_empty() {
            return Vec::new();
        }
        let is_full = |end: &StreamEnd| {
            let peer = end.peer.filter(|_| !end.path.forgotten && end.phase == StreamPhase::Open);
            let peer = peer.and_then(|peer| state.ends.get(peer.0 as usize)?.as_deref());
            peer.is_some_and(|peer| {
                peer.outbound.blocked && !peer.closed && peer.phase == StreamPhase::Open
            })
        };
        let owned =
            (0u32..).zip(&state.ends).filter_map(|(index, end)| Some((index, end.as_deref()?)));
        let full = owned.filter(|(_, end)| state.unreading.contains(&end.process) && is_full(end));
        full.map(|(index, _)| EndId(index)).collect()
    }

    /// Sets how good all links are.
    pub(crate) fn set_quality(&self, quality: LinkQuality) {
        self.lock().links.quality = quality;
    }

    pub(crate) fn host(&self, process: ProcessId, counter: Counter) -> HostNetwork {
        HostNetwork::new(self.clone(), process, counter)
    }
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use timestone_seda::{Listener, Network, Stream};

    use super::*;
    use timestone_costmodel::{CostTable, Costs, StageKind};

    const ONE: ProcessId = ProcessId(1);
    const TWO: ProcessId = ProcessId(2);
    const PORT: u16 = 7;

    /// Two processes and a connection between them; packets arrive when the test says so.
    struct Bench {
        network: SimNetwork,
        now: VirtualTime,
        flying: Vec<(VirtualTime, Packet)>,
    }

    impl Bench {
        fn new(links: LinkModel) -> Self {
            Self {
                network: SimNetwork::new(links, Seed(1)),
                now: VirtualTime::ZERO,
                flying: Vec::new(),
            }
        }

        /// Lets everything arrive that arrives within `span`.
        fn pass(&mut self, span: Duration) {
            let until = self.now.after(span);
            loop {
                let flying = &mut self.flying;
                self.network.flush(self.now, self.now, |at, packet| flying.push((at, packet)));
                let next = (0..flying.len()).min_by_key(|&index| (flying[index].0, index));
                let Some(next) = next.filter(|&next| flying[next].0 <= until) else { break };
                let (at, packet) = flying.remove(next);
                self.now = self.now.max(at);
                self.network.deliver(self.now, packet, |at, packet| flying.push((at, packet)));
            }
            self.now = until;
        }

        fn connected(&mut self) -> (Stream, Stream) {
            let costs = Costs::new(CostTable::usual().unwrap());
            let host =
                |process| self.network.host(process, Counter::new(&costs, StageKind::Net, Seed(1)));
            let mut listener = host(TWO).listen(address_of(TWO, PORT)).unwrap();
            let near = host(ONE).connect(address_of(TWO, PORT)).unwrap();
            self.pass(Duration::from_secs(1));
            let Listener::Given(listener) = &mut listener else { unreachable!("it listens here") };
            (near, listener.accept().unwrap().0)
        }
    }

    fn read(stream: &mut Stream) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 64];
        stream.read(&mut bytes).map(|length| bytes[..length].to_vec())
    }

    #[test]
    fn neither_loss_nor_a_queue_on_a_slow_link_holds_a_segment_up_for_long() {
        let quality = LinkQuality { loss: 0.1, slowness: 100 };
        let links = LinkModel {
            jitter: 2.0,
            near: Duration::from_millis(40),
            quality,
            ..LinkModel::default()
        };
        let network = SimNetwork::new(links, Seed(1));
        let mut passages: Vec<Duration> =
            (0..10_000).map(|_| network.lock().passage(ONE, TWO)).collect();
        passages.sort();
        // Four seconds at best, twelve at worst, and one segment in a hundred meets a queue of up
        // to 160.
        assert!(
            passages[0] >= Duration::from_secs(4) && passages[5_000] < Duration::from_secs(8),
            "{passages:?}"
        );
        assert!(passages[9_999] < Duration::from_secs(20), "{:?}", passages[9_999]);
    }

    #[test]
    fn a_link_in_order_draws_one_passage_for_each_segment() {
        let network = SimNetwork::new(LinkModel::default(), Seed(1));
        assert!((0..1_000).all(|_| network.lock().passage(ONE, TWO) < RETRANSMIT));
        assert_eq!(network.lock().retransmissions, 0);
    }

    #[test]
    fn a_connection_that_is_forgotten_carries_nothing_and_tells_nobody() {
        let mut bench = Bench::new(LinkModel::default());
        let (mut near, mut far) = bench.connected();
        near.write_all(b"before").unwrap();
        bench.pass(Duration::from_secs(1));
        assert_eq!(read(&mut far).unwrap(), b"before");
        let forgotten = bench.network.forget_one(&mut Seed(2).dice());
        assert!(
            forgotten.is_some_and(|ends| ends == (ONE, TWO) || ends == (TWO, ONE)),
            "{forgotten:?}"
        );
        assert_eq!(
            bench.network.forget_one(&mut Seed(2).dice()),
            None,
            "there is no other connection"
        );
        for _ in 0..100 {
            near.write_all(b"lost").unwrap();
            far.write_all(b"lost").unwrap();
            bench.pass(Duration::from_secs(1));
        }
        for stream in [&mut near, &mut far] {
            assert_eq!(read(stream).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        }
        // Nor does the other end hear that one of them is closed, or that its process has ended.
        drop(near);
        bench.pass(Duration::from_secs(1));
        let (flying, now) = (&mut bench.flying, bench.now);
        bench.network.end_process(ONE, false, now, |at, packet| flying.push((at, packet)));
        bench.pass(Duration::from_secs(1));
        assert_eq!(read(&mut far).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    }
}
