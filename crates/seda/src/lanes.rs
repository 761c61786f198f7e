//! Lanes: one single-producer single-consumer ring from each thread to each other thread.
//!
//! ```text
//!   send ─► waiting (producer's own, unshared) ── in chunks ─► ring ── in chunks ─► inboxes of the consumer
//! ```
//!
//! Events are collected on the producer's side and pushed in chunks, so that the cost of the shared
//! cache lines is paid once per chunk (docs/lab/building-blocks.md: 0.9 ns a message in chunks of
//! 32). Invariant: what waits is younger than everything in the ring; both are bounded by
//! [`LANE_CAPACITY`]. Waking the consumer is the caller's business (`sleep`).

use std::collections::VecDeque;

use crate::StageId;
use crate::limits::{LANE_CAPACITY, LANE_CHUNK};
use crate::sync::{Consumer, Producer, RingBuffer};

/// The producing end of a lane.
#[derive(Debug)]
pub(crate) struct LaneSender<E> {
    waiting: VecDeque<(StageId, E)>,
    ring: Producer<(StageId, E)>,
}

impl<E> LaneSender<E> {
    /// Queues an event; gives it back when as much waits as the ring can hold.
    pub(crate) fn queue(&mut self, to: StageId, event: E) -> Result<(), E> {
        if self.waiting.len() >= LANE_CAPACITY {
            return Err(event);
        }
        self.waiting.push_back((to, event));
        Ok(())
    }

    /// Whether enough waits that it should be pushed before the turn ends.
    pub(crate) fn has_chunk(&self) -> bool {
        self.waiting.len() >= LANE_CHUNK
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many events [`LaneSender::push`] will move now.
    pub(crate) fn pushable(&self) -> usize {
        if self.waiting.is_empty() { 0 } else { self.waiting.len().min(self.ring.slots()) }
    }

    /// Moves `count` events, as told by [`LaneSender::pushable`], into the ring.
    pub(crate) fn push(&mut self, count: usize) {
        match self.ring.write_chunk_uninit(count) {
            Ok(chunk) => {
                let moved = chunk.fill_from_iter(self.waiting.drain(..count));
                debug_assert_eq!(moved, count, "a chunk takes as many events as it has slots");
            }
            Err(_) => unreachable!("only the producer takes slots, and pushable() counted them"),
        }
    }
}

/// The consuming end of a lane.
#[derive(Debug)]
pub(crate) struct LaneReceiver<E> {
    ring: Consumer<(StageId, E)>,
}

impl<E> LaneReceiver<E> {
    /// Takes up to `most` events, in order.
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(StageId, E)) -> usize {
        let count = self.ring.slots().min(most);
        if count == 0 {
            return 0;
        }
        match self.ring.read_chunk(count) {
            Ok(chunk) => chunk.into_iter().for_each(|(to, event)| each(to, event)),
            Err(_) => unreachable!("only the consumer frees slots, and slots() counted them"),
        }
        count
    }

    /// Whether nothing is in the ring.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

/// The lanes of one thread: its senders by target thread (none to itself), its receivers.
pub(crate) type ThreadLanes<E> = (Vec<Option<LaneSender<E>>>, Vec<LaneReceiver<E>>);

/// All lanes between `threads` threads.
pub(crate) fn mesh<E>(threads: usize) -> Vec<ThreadLanes<E>> {
    let mut lanes: Vec<ThreadLanes<E>> = (0..threads).map(|_| (Vec::new(), Vec::new())).collect();
    for from in 0..threads {
        for to in 0..threads {
            if from == to {
                lanes[from].0.push(None);
                continue;
            }
            let (producer, consumer) = RingBuffer::new(LANE_CAPACITY);
            lanes[from].0.push(Some(LaneSender { waiting: VecDeque::new(), ring: producer }));
            lanes[to].1.push(LaneReceiver { ring: consumer });
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_order_and_refuses_when_ring_and_waiting_are_full() {
        let mut lanes = mesh::<usize>(2);
        let (mut consumer, mut producer) = (lanes.pop().expect("two"), lanes.pop().expect("two"));
        let sender = producer.0[1].as_mut().expect("a lane to the other thread");
        let receiver = &mut consumer.1[0];
        let to = StageId::new(7);
        for number in 0..2 * LANE_CAPACITY {
            sender.queue(to, number).expect("room");
            if number < LANE_CAPACITY {
                sender.push(sender.pushable());
            }
        }
        assert_eq!((sender.pushable(), sender.queue(to, 0)), (0, Err(0)));
        let mut seen = Vec::new();
        while !receiver.is_empty() {
            receiver.take(100, |stage, number| {
                assert_eq!(stage, to);
                seen.push(number);
            });
            sender.push(sender.pushable());
        }
        assert!(sender.is_empty());
        assert_eq!(seen, (0..2 * LANE_CAPACITY).collect::<Vec<_>>());
    }
}
