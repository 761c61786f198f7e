//! Drives any device one operation, or many, at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use timestone_flash::{
    AlignedBuffer, BlockId, FlashCompletion, FlashDevice, FlashError, FlashOp, Misuse, PAGE_BYTES,
    PageId, RejectedReason, Token,
};

const LONG: Duration = Duration::from_secs(30);

/// A device and the next token.
pub(crate) struct Driver {
    pub(crate) device: Box<dyn FlashDevice>,
    next: u64,
}

impl Driver {
    pub(crate) fn new(device: impl FlashDevice + 'static) -> Self {
        Self { device: Box::new(device), next: 0 }
    }

    pub(crate) fn page(&self, block: u32, index: u32) -> PageId {
        self.device.geometry().page(BlockId(block), index)
    }

    pub(crate) fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next)
    }

    /// Submits; the token, or why not.
    pub(crate) fn try_submit(&mut self, op: FlashOp) -> Result<Token, RejectedReason> {
        let token = op.token();
        self.device.submit(op).map(|()| token).map_err(|rejected| {
            assert_eq!(rejected.op.token(), token, "a rejected operation comes back whole");
            rejected.reason
        })
    }

    pub(crate) fn submit(&mut self, op: FlashOp) -> Token {
        self.try_submit(op).unwrap_or_else(|reason| panic!("{reason:?}"))
    }

    /// Submits what must be refused as misuse.
    pub(crate) fn misuse(&mut self, op: FlashOp) -> Misuse {
        match self.try_submit(op) {
            Err(RejectedReason::Refused(FlashError::Misuse(misuse))) => misuse,
            other => panic!("misuse was not reported: {other:?}"),
        }
    }

    /// Completions in the order of their coming, until nothing is in flight.
    pub(crate) fn drain(&mut self) -> Vec<FlashCompletion> {
        let mut completions = Vec::new();
        let deadline = Instant::now() + LONG;
        while self.device.in_flight() > 0 {
            assert!(Instant::now() < deadline, "operations never complete");
            let before = completions.len();
            let said = self.device.poll(&mut completions);
            assert_eq!(said, completions.len() - before);
            if said == 0 {
                self.device.wait(LONG);
            }
        }
        completions
    }

    /// As `drain`, by token.
    pub(crate) fn outcomes(&mut self) -> BTreeMap<Token, FlashCompletion> {
        let completions = self.drain();
        let count = completions.len();
        let by_token: BTreeMap<_, _> =
            completions.into_iter().map(|done| (done.token, done)).collect();
        assert_eq!(by_token.len(), count, "an operation completed twice");
        by_token
    }

    /// Submits one operation and sees it through.
    pub(crate) fn run(&mut self, op: FlashOp) -> Result<Option<AlignedBuffer>, FlashError> {
        let token = self.submit(op);
        let done = self.outcomes().remove(&token).unwrap();
        done.result.map(|()| done.buffer)
    }

    pub(crate) fn read_op(&mut self, block: u32, index: u32, pages: u32) -> FlashOp {
        let buffer = AlignedBuffer::zeroed(pages as usize * PAGE_BYTES);
        FlashOp::Read { token: self.token(), page: self.page(block, index), pages, buffer }
    }

    pub(crate) fn program_op(&mut self, block: u32, index: u32, bytes: &[u8]) -> FlashOp {
        let mut buffer = AlignedBuffer::zeroed(bytes.len() * PAGE_BYTES);
        for (page, &byte) in buffer.chunks_exact_mut(PAGE_BYTES).zip(bytes) {
            page.fill(byte);
        }
        FlashOp::Program { token: self.token(), page: self.page(block, index), buffer }
    }

    /// Programs pages, each filled with its byte, and waits.
    pub(crate) fn program(&mut self, block: u32, index: u32, bytes: &[u8]) {
        let op = self.program_op(block, index, bytes);
        self.run(op).unwrap();
    }

    /// The byte that each page is filled with.
    pub(crate) fn read(&mut self, block: u32, index: u32, pages: u32) -> Vec<u8> {
        let op = self.read_op(block, index, pages);
        let buffer = self.run(op).unwrap().unwrap();
        buffer
            .chunks_exact(PAGE_BYTES)
            .map(|page| uniform(page).expect("a page is filled with one byte"))
            .collect()
    }

    pub(crate) fn erase(&mut self, block: u32) {
        let token = self.token();
        self.run(FlashOp::Erase { token, block: BlockId(block) }).unwrap();
    }

    pub(crate) fn sync(&mut self) {
        let token = self.token();
        self.run(FlashOp::Sync { token }).unwrap();
    }

    pub(crate) fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        let token = self.token();
        self.run(FlashOp::Grow { token, blocks }).map(|_| ())
    }

    pub(crate) fn generation(&self, block: u32) -> u32 {
        self.device.generation(BlockId(block)).0
    }

    pub(crate) fn programmed(&self, block: u32) -> Option<u32> {
        self.device.programmed(BlockId(block))
    }
}

/// The byte that fills the whole slice.
pub(crate) fn uniform(bytes: &[u8]) -> Option<u8> {
    let first = *bytes.first()?;
    bytes.iter().all(|&byte| byte == first).then_some(first)
}
