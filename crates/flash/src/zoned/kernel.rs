//! Zoned block devices of the kernel: transfers by the I/O engine with O_DIRECT, zone commands beside
//! them.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use timestone_io::{
    EngineChoice, EngineKind, IoCompletion, IoConfig, IoEngine, IoError, IoFile, IoOp, IoToken,
    Zone, ZoneLimits, open_zoned, report_zones, write_unit_bytes, zone_limits,
};

use crate::device::PAGE_BYTES;
use crate::error::FlashError;
use crate::limits::{MAX_QUEUE_DEPTH, ZONED_OPS_IN_FLIGHT};
use crate::zoned::medium::{ZoneOp, ZonedMedium};

/// A zoned block device, opened for this process alone.
#[derive(Debug)]
pub struct KernelZones {
    engine: IoEngine,
    file: IoFile,
    limits: ZoneLimits,
}

impl KernelZones {
    /// Opens a device, for up to `queue_depth` operations of the device's owner at once.
    ///
    /// # Errors
    /// When it is no zoned block device, in use, cannot be written in pages of 4 KiB, or the engine
    /// cannot be started.
    pub fn open(path: &Path, queue_depth: u32, engine: EngineChoice) -> Result<Self, FlashError> {
        let unusable = |reason: String| FlashError::Unusable { path: path.to_owned(), reason };
        if queue_depth == 0 || queue_depth > MAX_QUEUE_DEPTH {
            let (low, high) = (1, MAX_QUEUE_DEPTH.into());
            let what = "the flash device's queue depth";
            return Err(IoError::OutOfBounds { what, value: queue_depth.into(), low, high }.into());
        }
        let file = open_zoned(path)?;
        if !file.lock()? {
            return Err(unusable("another process is using it; stop that one".to_owned()));
        }
        let unit = write_unit_bytes(&file)?;
        if unit == 0 || !(PAGE_BYTES as u32).is_multiple_of(unit) {
            let reason = format!(
                "it is written in units of {unit} bytes, and pages of {PAGE_BYTES} are no multiple \
                 of that; use another device"
            );
            return Err(unusable(reason));
        }
        let limits = zone_limits(&file)?;
        let depth = queue_depth + ZONED_OPS_IN_FLIGHT as u32;
        let engine = IoEngine::new(IoConfig { depth, engine })?;
        Ok(Self { engine, file, limits })
    }

    /// Which I/O engine it runs on.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.engine.kind()
    }
}

impl ZonedMedium for KernelZones {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn limits(&self) -> ZoneLimits {
        self.limits
    }

    fn report(&mut self, offset: u64, most: usize) -> Result<Vec<Zone>, FlashError> {
        Ok(report_zones(&self.file, offset, most)?)
    }

    fn submit(&mut self, token: IoToken, op: ZoneOp) {
        let file = self.file.clone();
        let op = match op {
            ZoneOp::Read { offset, buffer, length } => IoOp::Read { file, offset, buffer, length },
            ZoneOp::Write { offset, buffers } => IoOp::WriteMany { file, offset, buffers },
            ZoneOp::Sync => IoOp::Sync { file },
            ZoneOp::Zone { action, offset, length } => IoOp::Zone { file, action, offset, length },
        };
        if let Err(refused) = self.engine.submit(token, op) {
            unreachable!("the engine refused an operation of the device: {:?}", refused.reason);
        }
    }

    fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        self.engine.poll(completions)
    }

    fn flush(&mut self) {
        self.engine.flush();
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    fn wait(&mut self, timeout: Duration) {
        self.engine.wait(timeout);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.engine.wake_fd())
    }
}
