//! What happens to a segment between two ends: how long it takes, where it is held back, and whom it
//! meets when it arrives.

use std::net::SocketAddr;
use std::time::Duration;

use timestone_seda::Readiness;
use timestone_seda::simulated::VirtualTime;
use timestone_types::random::Dice;

use super::end::{StreamEnd, StreamPhase};
use super::{EndId, NetworkState, Packet, ProcessId, RETRANSMIT, STALL_TIMEOUT, address_of};

type Later<'a> = &'a mut dyn FnMut(VirtualTime, Packet);

impl NetworkState {
    pub(super) fn latency(&mut self, from: ProcessId, to: ProcessId) -> Duration {
        let Self { links, dice, .. } = self;
        links.latency(from, to, dice)
    }

    /// How long a segment takes, copies included: whichever of them arrives first.
    pub(super) fn passage(&mut self, from: ProcessId, to: ProcessId) -> Duration {
        let (mut first, mut sent, mut pause) = (None::<Duration>, Duration::ZERO, RETRANSMIT);
        loop {
            let arrives = sent + self.latency(from, to);
            if !(pause < STALL_TIMEOUT && self.dice.chance(self.links.quality.loss)) {
                first = Some(first.map_or(arrives, |first| first.min(arrives)));
            }
            // Another copy is sent while none has arrived; that the sender hears of it later is
            // left out.
            if let Some(first) =
                first.filter(|&first| first <= sent + pause || pause >= STALL_TIMEOUT)
            {
                return first;
            }
            sent += pause;
            pause *= 2;
            self.retransmissions += 1;
        }
    }

    /// A connection that is open at both ends.
    pub(super) fn pick_open(&mut self, dice: &mut Dice) -> Option<(EndId, EndId)> {
        let is_open = |end: &Option<Box<StreamEnd>>| {
            let open = |end: &&StreamEnd| {
                end.phase == StreamPhase::Open
                    && !end.closed
                    && !end.path.forgotten
                    && end.peer.is_some()
            };
            end.as_deref().filter(open).is_some()
        };
        let open: Vec<u32> = (0u32..)
            .zip(&self.ends)
            .filter(|(_, end)| is_open(end))
            .map(|(index, _)| index)
            .collect();
        let end = EndId(*dice.pick(&open)?);
        let peer = self.end(end)?.peer?;
        Some((end, peer))
    }

    /// When something of `bytes` bytes that leaves an end at `at` arrives: never before what left
    /// earlier.
    pub(super) fn arrival(&mut self, id: EndId, at: VirtualTime, bytes: usize) -> VirtualTime {
        let Some((from, to)) = self.end(id).map(|end| (end.process, end.far)) else { return at };
        let latency = self.passage(from, to);
        let sending = self.links.sending(bytes);
        let Some(end) = self.end(id) else { return at };
        end.path.arrival(at, sending, latency)
    }

    /// Sends, or holds back where the link is cut.
    fn transmit(
        &mut self,
        id: EndId,
        at: VirtualTime,
        bytes: usize,
        packet: Packet,
        later: Later<'_>,
    ) {
        let Some((from, to)) = self.end(id).map(|end| (end.process, end.far)) else { return };
        let cut = self.is_cut(from, to);
        let Some(end) = self.end(id).filter(|end| !end.path.forgotten) else { return };
        if cut || !end.path.held.is_empty() {
            if end.path.hold(packet, at) {
                later(at.after(STALL_TIMEOUT), Packet::Timeout { to: id, since: at });
            }
            return;
        }
        let arrival = self.arrival(id, at, bytes);
        later(arrival, packet);
    }

    pub(super) fn send_off(
        &mut self,
        id: EndId,
        begin: VirtualTime,
        at: VirtualTime,
        later: Later<'_>,
    ) {
        let Some(end) = self.end(id) else { return };
        end.listed = false;
        if let Some(address) = end.dialling.take() {
            self.transmit(id, at, 0, Packet::Syn { from: id, address }, later);
            return;
        }
        let Some(end) = self.end(id) else { return };
        let (peer, closed) = (end.peer, end.closed);
        let (bytes, segments) = end.outbound.take();
        let last = end.shut && !std::mem::replace(&mut end.outbound.last, end.shut);
        let unread = !end.inbound.is_empty();
        self.bytes += bytes.len() as u64;
        let Some(peer) = peer else {
            // Nobody is there any more: the bytes come back as a reset.
            let (from, to) =
                self.end(id).map_or((ProcessId(0), ProcessId(0)), |end| (end.process, end.far));
            if closed {
                self.ends[id.0 as usize] = None;
            } else if !bytes.is_empty() && !self.silent.contains(&to) && !self.is_cut(to, from) {
                let back = self.latency(from, to) + self.latency(to, from);
                later(at.after(back), Packet::Reset { to: id });
            }
            return;
        };
        if self.end(id).is_some_and(|end| end.path.forgotten && closed) {
            self.ends[id.0 as usize] = None;
        } else if closed && unread {
            // As the operating system does: closing a socket with unread input resets the stream.
            self.transmit(id, at, 0, Packet::Reset { to: peer }, later);
            self.ends[id.0 as usize] = None;
        } else if !bytes.is_empty() || last {
            // What a turn writes leaves when it is written, segment by segment; its end is the
            // turn's.
            let mut start = 0;
            for (end, elapsed) in segments {
                // A process that dies within a turn may have cut off the end.
                let end = end.min(bytes.len());
                if end == start {
                    continue;
                }
                let (bytes, last) = (bytes[start..end].to_vec(), last && end == bytes.len());
                let (length, left) =
                    (bytes.len(), if last { at } else { begin.after(elapsed).min(at) });
                self.transmit(
                    id,
                    left,
                    length,
                    Packet::Data { from: id, to: peer, bytes, last },
                    later,
                );
                start = end;
            }
            if bytes.is_empty() {
                self.transmit(id, at, 0, Packet::Data { from: id, to: peer, bytes, last }, later);
            }
        }
    }

    /// A connection is asked for.
    pub(super) fn asked(
        &mut self,
        from: EndId,
        address: SocketAddr,
        at: VirtualTime,
        later: Later<'_>,
    ) {
        let Some(dialler) = self.end(from) else { return };
        let (process, far) = (dialler.process, dialler.far);
        if self.silent.contains(&far) || self.is_cut(far, process) {
            return;
        }
        let back = self.latency(far, process);
        let Some(listening) =
            self.listeners.get(&address).map(|listening| (listening.process, listening.slot))
        else {
            later(at.after(back), Packet::Reset { to: from });
            return;
        };
        let (owner, slot) = listening;
        let end = self.add(StreamEnd {
            process: owner,
            far: process,
            peer: Some(from),
            phase: StreamPhase::Open,
            ..StreamEnd::new(owner, process)
        });
        if let Some(dialler) = self.end(from) {
            dialler.peer = Some(end);
        }
        let peer_address = address_of(process, 40_000);
        if let Some(listening) = self.listeners.get_mut(&address) {
            listening.backlog.push_back((end, peer_address));
        }
        if let Some(slot) = slot {
            let readiness = Readiness {
                token: slot.token,
                readable: true,
                writable: false,
                read_closed: false,
                write_closed: false,
            };
            self.ready.push((owner, slot, readiness));
        }
        self.transmit(end, at, 0, Packet::SynAck { to: from }, later);
    }

    pub(super) fn arrived(
        &mut self,
        from: EndId,
        to: EndId,
        bytes: &[u8],
        last: bool,
        at: VirtualTime,
        later: Later<'_>,
    ) {
        if let Some(end) = self.end(to).filter(|end| !end.closed && end.phase != StreamPhase::Reset)
        {
            end.inbound.bytes.extend(bytes);
            end.inbound.last |= last;
            self.tell(to, true, false);
            return;
        }
        // Nobody reads here any more: the sender is told so, unless nobody is left who could tell.
        let Some((process, far)) = self.end(from).map(|sender| (sender.process, sender.far)) else {
            return;
        };
        if !bytes.is_empty() && !self.silent.contains(&far) && !self.is_cut(far, process) {
            let back = self.latency(far, process);
            later(at.after(back), Packet::Reset { to: from });
        }
        if last && self.end(to).is_some_and(|end| end.closed) {
            self.ends[to.0 as usize] = None;
        }
    }
}
