//! A device in memory whose erases take as long as a test wants, and fail where it wants.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timestone_flash::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashError, FlashOp, Generation, Geometry,
    MemoryMedia, PageId, Rejected, RejectedReason, Token,
};

use crate::collection::Dice;

/// What becomes of an erase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EraseFate {
    /// The device gets it when it was polled so often.
    Done(u32),
    /// It fails when the device was polled so often.
    Fails(u32),
}

impl EraseFate {
    /// It fails when a test says so.
    pub(crate) const HELD: Self = Self::Fails(u32::MAX);
}

/// An erase that the device does not have yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: Token,
    block: BlockId,
    fate: EraseFate,
}

/// Erases that are held back, for whoever lets them go.
#[derive(Clone, Default)]
pub(crate) struct HeldErases(Arc<Mutex<Vec<Waiting>>>);

impl HeldErases {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Waiting>) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics with it"))
    }

    pub(crate) fn blocks(&self) -> Vec<BlockId> {
        self.with(|all| all.iter().map(|waiting| waiting.block).collect())
    }

    /// All of them fail.
    pub(crate) fn fail(&self) {
        self.with(|all| all.iter_mut().for_each(|waiting| waiting.fate = EraseFate::Fails(0)));
    }
}

/// Erases of one life of a store: some take long, few fail, and those of one block always.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeOfErases {
    pub(crate) seed: u64,
    pub(crate) bad: BlockId,
    /// Others that fail, at most.
    pub(crate) failures: u32,
    /// So often the device is polled, at most, before an erase is done.
    pub(crate) polls: u64,
}

impl LifeOfErases {
    /// A device with such erases.
    pub(crate) fn open(self, media: &MemoryMedia) -> Box<dyn FlashDevice> {
        Box::new(UnrulyErases::open(media, self.fate()).0)
    }

    /// What becomes of each.
    pub(crate) fn fate(self) -> impl FnMut(BlockId) -> EraseFate + Send + 'static {
        let (mut dice, mut failures) = (Dice(self.seed), self.failures);
        move |block| {
            let polls = match dice.below(4) {
                0 => dice.below(self.polls),
                1 => dice.below(self.polls / 10),
                _ => 0,
            };
            let fails = failures > 0 && dice.below(u64::from(30 / self.failures)) == 0;
            failures -= u32::from(fails);
            match fails || block == self.bad {
                true => EraseFate::Fails(polls as u32),
                false => EraseFate::Done(polls as u32),
            }
        }
    }
}

/// Takes from a medium what checkpoints say: the next start scans everything.
pub(crate) fn spoil_checkpoints(media: &MemoryMedia, pages: u32) {
    for page in (0..pages).map(PageId) {
        // This byte of a page says what it is.
        if media.page(page).is_some_and(|bytes| bytes[6] == 4) {
            media.flip_bit(page, 8 * 2000);
        }
    }
}

/// See the module. `fate` says what becomes of the erase of a block.
pub(crate) struct UnrulyErases<F> {
    device: Box<dyn FlashDevice>,
    fate: F,
    waiting: HeldErases,
}

impl<F: FnMut(BlockId) -> EraseFate + Send> UnrulyErases<F> {
    pub(crate) fn open(media: &MemoryMedia, fate: F) -> (Self, HeldErases) {
        let waiting = HeldErases::default();
        let held = waiting.clone();
        (Self { device: Box::new(media.open()), fate, waiting }, held)
    }
}

impl<F: FnMut(BlockId) -> EraseFate + Send> FlashDevice for UnrulyErases<F> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.device.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.device.programmed(block)
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
        let FlashOp::Erase { token, block } = op else { return self.device.submit(op) };
        let fate = (self.fate)(block);
        if fate == EraseFate::Done(0) {
            return self.device.submit(op);
        }
        self.waiting.with(|all| all.push(Waiting { token, block, fate }));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        let (device, before) = (&mut self.device, completions.len());
        self.waiting.with(|all| {
            all.retain_mut(|Waiting { token, block, fate }| match fate {
                EraseFate::Fails(0) => {
                    let source = std::io::Error::other("a fault of a test");
                    let result = Err(FlashError::Medium { operation: "erase", source });
                    completions.push(FlashCompletion { token: *token, result, buffer: None });
                    false
                }
                EraseFate::Done(0) => {
                    match device.submit(FlashOp::Erase { token: *token, block: *block }) {
                        Ok(()) => false,
                        Err(Rejected { reason: RejectedReason::QueueFull, .. }) => true,
                        // The power went.
                        Err(_) => false,
                    }
                }
                EraseFate::Fails(u32::MAX) => true,
                EraseFate::Done(polls) | EraseFate::Fails(polls) => {
                    *polls -= 1;
                    true
                }
            });
        });
        device.poll(completions);
        completions.len() - before
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight() + self.waiting.with(|all| all.len())
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
