//! The emulated SSD of an experiment, and a device that counts what is asked of it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use timestone_flash::{
    BlockId, DeviceStats, EmulatedConfig, EmulatedMedium, FlashClock, FlashCompletion, FlashDevice,
    FlashError, FlashOp, Generation, Geometry, Latencies, PAGE_BYTES, Rejected,
};

use crate::store::part::StorePart;

/// The medium that the part describes, by this clock; `compact`: what can be generated again is not
/// kept.
pub(super) fn medium_of(part: &StorePart, clock: FlashClock, compact: bool) -> EmulatedMedium {
    let device = &part.device;
    let blocks = part.blocks();
    let config = EmulatedConfig {
        pages_per_block: device.pages_per_block,
        initial_blocks: blocks,
        max_blocks: blocks,
        queue_depth: device.queue_depth,
        channels: device.channels,
        channels_per_block: device.channels_per_block,
        latencies: Latencies {
            read: device.read,
            program: device.program,
            erase: device.erase,
            sync: Duration::ZERO,
        },
        compact,
        wakes: false,
        endurance: None,
        ..EmulatedConfig::default()
    };
    EmulatedMedium::new(config, clock)
}

/// What a device was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedPage {
    pub(super) reads: u64,
    pub(super) programmed_pages: u64,
}

#[derive(Debug, Default)]
struct DeviceCounts {
    reads: AtomicU64,
    programmed_pages: AtomicU64,
}

/// Tells what an [`Observed`] device was asked for, when a store has it.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceMonitor(Arc<DeviceCounts>);

impl DeviceMonitor {
    pub(super) fn asked(&self) -> AskedPage {
        let counts = &*self.0;
        AskedPage {
            reads: counts.reads.load(Relaxed),
            programmed_pages: counts.programmed_pages.load(Relaxed),
        }
    }
}

/// A device that counts what it accepts.
pub(super) struct Observed<D> {
    device: D,
    monitor: DeviceMonitor,
}

impl<D: FlashDevice> Observed<D> {
    pub(super) fn new(device: D) -> (Self, DeviceMonitor) {
        let monitor = DeviceMonitor::default();
        (Self { device, monitor: monitor.clone() }, monitor)
    }
}

impl<D: FlashDevice> FlashDevice for Observed<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.device.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.device.programmed(block)
    }

    fn wears_out(&self) -> bool {
        self.device.wears_out()
    }

    fn channel(&self, block: BlockId) -> Option<u32> {
        self.device.channel(block)
    }

    fn is_bad(&self, block: BlockId) -> bool {
        self.device.is_bad(block)
    }

    fn seal(&mut self, block: BlockId) {
        self.device.seal(block);
    }

    fn observe(
        &mut self,
        block: BlockId,
        generation: Generation,
        programmed_pages: u32,
    ) -> Result<(), FlashError> {
        self.device.observe(block, generation, programmed_pages)
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        let counts = &self.monitor.0;
        let (counter, count) = match &op {
            FlashOp::Read { .. } => (Some(&counts.reads), 1),
            FlashOp::Program { buffer, .. } => {
                (Some(&counts.programmed_pages), (buffer.len() / PAGE_BYTES) as u64)
            }
            FlashOp::Erase { .. } | FlashOp::Sync { .. } | FlashOp::Grow { .. } => (None, 0),
        };
        self.device.submit(op)?;
        if let Some(counter) = counter {
            counter.fetch_add(count, Relaxed);
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        self.device.poll(completions)
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }

    fn wait(&mut self, timeout: Duration) {
        self.device.wait(timeout);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.wake_fd()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}
