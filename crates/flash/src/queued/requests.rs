//! What callers have asked for: how much of it is under way, how it ended, and the counts of it.

use timestone_io::AlignedBuffer;

use crate::device::{DeviceStats, FlashCompletion, FlashOp, Rejected, RejectedReason, Token};
use crate::error::{FlashError, Misuse};
use crate::ledger::Ledger;
use crate::pending::PendingOp;
use crate::queued::runs::Runs;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Most requests under way.
    depth: usize,
    in_flight: usize,
    /// Completions that came about in `wait`; the next poll delivers them.
    pub(crate) ready: Vec<FlashCompletion>,
    pub(crate) stats: DeviceStats,
}

impl Requests {
    pub(crate) fn new(depth: usize, stats: DeviceStats) -> Self {
        Self { depth, in_flight: 0, ready: Vec::new(), stats }
    }

    /// Requests that have not ended.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// One begins if there is room and the rules allow it, see [`PendingOp::admit`].
    pub(crate) fn begin(
        &mut self,
        op: FlashOp,
        failed: Option<&'static str>,
        ledger: &mut Ledger,
        growing: &mut bool,
    ) -> Result<(FlashOp, PendingOp), Rejected> {
        if self.in_flight >= self.depth {
            return Err(Rejected { reason: RejectedReason::QueueFull, op });
        }
        match PendingOp::admit(&op, failed, ledger, growing) {
            Ok(admitted) => {
                self.in_flight += 1;
                Ok((op, admitted))
            }
            Err(error) => {
                self.stats.misuses += u64::from(matches!(error, FlashError::Misuse(_)));
                Err(Rejected { reason: RejectedReason::Refused(error), op })
            }
        }
    }

    /// One has ended.
    pub(crate) fn complete(
        &mut self,
        token: Token,
        result: Result<(), FlashError>,
        buffer: Option<AlignedBuffer>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        debug_assert!(self.in_flight > 0, "a request ends that had not begun");
        self.in_flight -= 1;
        self.stats.errors += u64::from(result.is_err());
        completions.push(FlashCompletion { token, result, buffer });
    }

    /// The programs of all runs that are done end, in page order.
    pub(crate) fn end_programs(
        &mut self,
        runs: &mut Runs,
        ledger: &mut Ledger,
        completions: &mut Vec<FlashCompletion>,
    ) {
        runs.release(|program| {
            let readable = ledger.end_program(program.extent, program.result.is_ok());
            let result = match program.result {
                Ok(()) if readable => {
                    self.stats.programs += 1;
                    self.stats.programmed_bytes += program.buffer.len() as u64;
                    Ok(())
                }
                Ok(()) => Err(Misuse::BlockFailed { block: program.extent.block }.into()),
                Err(source) => Err(FlashError::Medium { operation: "program", source }),
            };
            self.complete(program.token, result, Some(program.buffer), completions);
        });
    }
}
