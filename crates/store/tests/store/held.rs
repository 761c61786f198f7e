//! A device whose first erase takes as long as a test wants.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_flash::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashError, FlashOp, Generation, Geometry,
    Rejected, Token,
};

/// What became of the erase.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Erase {
    #[default]
    Awaited,
    Held(Token),
    Fails(Token),
    Failed,
}

/// The first erase of a device, which is not begun.
#[derive(Clone, Default)]
pub(crate) struct FirstErase(Arc<Mutex<Erase>>);

impl FirstErase {
    fn state(&self) -> std::sync::MutexGuard<'_, Erase> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_held(&self) -> bool {
        matches!(*self.state(), Erase::Held(_))
    }

    /// It is answered with an error.
    pub(crate) fn fail(&self) {
        let mut state = self.state();
        let Erase::Held(token) = *state else { panic!("{:?}: nobody waits for it", *state) };
        *state = Erase::Fails(token);
    }
}

/// A device that holds its first erase back.
pub(crate) struct HoldsErase {
    pub(crate) device: Box<dyn FlashDevice>,
    pub(crate) first: FirstErase,
}

impl FlashDevice for HoldsErase {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.device.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.device.programmed(block)
    }

    fn channel(&self, block: BlockId) -> Option<u32> {
        self.device.channel(block)
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
        if let FlashOp::Erase { token, .. } = op {
            let mut state = self.first.state();
            if *state == Erase::Awaited {
                *state = Erase::Held(token);
                return Ok(());
            }
        }
        self.device.submit(op)
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        let count = self.device.poll(completions);
        let mut state = self.first.state();
        let Erase::Fails(token) = *state else { return count };
        *state = Erase::Failed;
        let source = io::Error::other("held back, and failed");
        let result = Err(FlashError::Medium { operation: "erase", source });
        completions.push(FlashCompletion { token, result, buffer: None });
        count + 1
    }

    fn in_flight(&self) -> usize {
        let held = matches!(*self.first.state(), Erase::Held(_) | Erase::Fails(_));
        self.device.in_flight() + usize::from(held)
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
