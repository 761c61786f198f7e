//! One end of a connection: what has arrived, what is to leave, and the way to the other end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use timestone_seda::StageSlot;
use timestone_seda::simulated::VirtualTime;

use super::{EndId, Packet, ProcessId, SEGMENT, WINDOW};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamPhase {
    Connecting,
    Open,
    Refused,
    Reset,
}

/// See the module.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) process: ProcessId,
    pub(super) far: ProcessId,
    pub(super) peer: Option<EndId>,
    pub(super) slot: Option<StageSlot>,
    pub(super) phase: StreamPhase,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) path: Path,
    pub(super) closed: bool,
    pub(super) shut: bool,
    /// Asked for by this process: the address dialled, until the request has left.
    pub(super) dialling: Option<SocketAddr>,
    pub(super) listed: bool,
    pub(super) owes_credit: bool,
}

/// What has arrived and was not read yet.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    pub(super) bytes: VecDeque<u8>,
    /// Nothing comes after them.
    pub(super) last: bool,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// What leaves when the turn ends.
    pub(super) bytes: Vec<u8>,
    /// The segments of the bytes: where each ends, and how far the turn was when it left.
    segments: Vec<(usize, Duration)>,
    /// Bytes at the end that are in no segment yet.
    gathered: usize,
    /// The end of the stream has left.
    pub(super) last: bool,
    /// Written and not yet read by the peer.
    unread: usize,
    /// There was no room for all that was to be written.
    pub(super) blocked: bool,
}

/// The way to the other end.
#[derive(Debug)]
pub(super) struct Path {
    last_arrival: VirtualTime,
    link_free_at: VirtualTime,
    /// What does not get through.
    pub(super) held: Vec<Packet>,
    pub(super) held_since: Option<VirtualTime>,
    /// Something on the way has forgotten the connection: nothing that is sent here arrives.
    pub(super) forgotten: bool,
}

impl StreamEnd {
    pub(super) fn new(process: ProcessId, far: ProcessId) -> Self {
        Self {
            process,
            far,
            peer: None,
            slot: None,
            phase: StreamPhase::Connecting,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            path: Path {
                last_arrival: VirtualTime::ZERO,
                link_free_at: VirtualTime::ZERO,
                held: Vec::new(),
                held_since: None,
                forgotten: false,
            },
            closed: false,
            shut: false,
            dialling: None,
            listed: false,
            owes_credit: false,
        }
    }

    /// Whether the connection failed or broke.
    pub(super) const fn is_broken(&self) -> bool {
        matches!(self.phase, StreamPhase::Reset | StreamPhase::Refused)
    }

    /// Nothing of the stream is left.
    pub(super) fn break_off(&mut self) {
        debug_assert!(!self.is_broken(), "a stream breaks once");
        let is_refused = self.phase == StreamPhase::Connecting;
        self.phase = if is_refused { StreamPhase::Refused } else { StreamPhase::Reset };
        self.inbound.bytes.clear();
        self.outbound.bytes.clear();
        self.path.held.clear();
    }
}

impl Inbound {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Outbound {
    /// How many of so many bytes there is room for; they are taken.
    pub(super) fn reserve(&mut self, wanted: usize) -> usize {
        let room = WINDOW.saturating_sub(self.unread).min(wanted);
        self.blocked |= room < wanted;
        self.unread += room;
        debug_assert!(self.unread <= WINDOW, "no more is under way than a window holds");
        room
    }

    /// Takes as many bytes as the open segment has room for; how many.
    pub(super) fn gather(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(SEGMENT - self.gathered);
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.gathered += taken;
        debug_assert!(self.gathered <= SEGMENT, "a segment has a bound");
        taken
    }

    /// Whether the open segment is full.
    pub(super) const fn is_segment_full(&self) -> bool {
        self.gathered == SEGMENT
    }

    /// Whether something is in no segment yet.
    pub(super) const fn has_gathered(&self) -> bool {
        self.gathered > 0
    }

    /// What was written and has not left yet leaves, so far into the turn.
    pub(super) fn leave(&mut self, elapsed: Duration) {
        debug_assert!(
            self.segments.last().is_none_or(|(end, _)| *end <= self.bytes.len()),
            "segments lie one behind the other"
        );
        self.segments.push((self.bytes.len(), elapsed));
        self.gathered = 0;
    }

    /// Takes what leaves, with its segments.
    pub(super) fn take(&mut self) -> (Vec<u8>, Vec<(usize, Duration)>) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.segments))
    }

    /// The peer has read so many bytes.
    pub(super) const fn read(&mut self, bytes: usize) {
        self.unread = self.unread.saturating_sub(bytes);
    }

    /// Whether the peer has read so much that a writer who waits for room goes on.
    pub(super) const fn has_room_again(&self) -> bool {
        self.blocked && self.unread <= WINDOW / 2
    }
}

impl Path {
    /// When something arrives that leaves at `at`, occupies the link for `sending` and is on its
    /// way for `latency`: never before what left earlier.
    pub(super) fn arrival(
        &mut self,
        at: VirtualTime,
        sending: Duration,
        latency: Duration,
    ) -> VirtualTime {
        self.link_free_at = self.link_free_at.max(at).after(sending);
        self.last_arrival = self.link_free_at.after(latency).max(self.last_arrival);
        debug_assert!(self.last_arrival >= at, "nothing arrives before it leaves");
        self.last_arrival
    }

    /// Holds a packet back. Whether it is the first.
    pub(super) fn hold(&mut self, packet: Packet, at: VirtualTime) -> bool {
        self.held.push(packet);
        let is_first = self.held_since.is_none();
        self.held_since.get_or_insert(at);
        is_first
    }

    /// Takes what was held back: it gets through now.
    pub(super) fn release(&mut self) -> Vec<Packet> {
        self.held_since = None;
        std::mem::take(&mut self.held)
    }

    /// The connection is forgotten on its way, and what was held back with it.
    pub(super) fn forget(&mut self) {
        self.forgotten = true;
        self.release();
    }
}
