//! What other threads share with the event loop: the queue of calls, the list of woken tasks, and
//! the way to wake the loop.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;
use timestone_types::is_planted;

use crate::event_loop::Core;
use crate::executor::TaskId;
use crate::limits;

/// A call, carried out on the loop.
pub(crate) type Command = Box<dyn FnOnce(&Rc<Core>) + Send>;

type Notifier = Box<dyn Fn() + Send + Sync>;

/// Shared between the loop and everybody else.
pub(crate) struct LoopShared {
    commands: ArrayQueue<Command>,
    /// How many calls the loop has looked for.
    taken: AtomicU64,
    woken: Mutex<Vec<TaskId>>,
    /// Transactions that nobody owns any more, for which the queue of calls had no room; and how many calls
    /// have been taken when what was queued in front of them is carried out.
    forgotten: Mutex<Vec<(u64, u64)>>,
    /// The loop was told and has not looked since: nobody needs to tell it again.
    told: AtomicBool,
    closed: AtomicBool,
    notifier: OnceLock<Notifier>,
}

impl LoopShared {
    pub(crate) fn new() -> Self {
        Self {
            commands: ArrayQueue::new(limits::COMMAND_QUEUE),
            taken: AtomicU64::new(0),
            woken: Mutex::default(),
            forgotten: Mutex::default(),
            told: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Sets the way to wake the loop, once.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        if self.notifier.set(notifier).is_ok() {
            self.told.store(false, Ordering::SeqCst);
            self.tell();
        }
    }

    /// Wakes the loop unless it was told already.
    pub(crate) fn tell(&self) {
        if !self.told.swap(true, Ordering::SeqCst)
            && let Some(notifier) = self.notifier.get()
        {
            notifier();
        }
    }

    /// Queues a call; gives it back when the queue is full or the loop is gone.
    pub(crate) fn call(&self, command: Command) -> Result<(), Command> {
        if self.closed.load(Ordering::Acquire) {
            return Err(command);
        }
        self.commands.push(command)?;
        self.tell();
        if self.closed.load(Ordering::SeqCst) {
            // The loop ended meanwhile and nobody will look into the queue again.
            self.drop_commands();
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The loop ends: calls are refused from now on, those that wait are dropped, so their callers
    /// learn it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.drop_commands();
    }

    fn drop_commands(&self) {
        while let Some(command) = self.commands.pop() {
            drop(command);
        }
    }

    /// The loop looks: whoever comes from now on has to tell it again.
    pub(crate) fn looked(&self) {
        self.told.store(false, Ordering::SeqCst);
    }

    /// The next call. The loop alone asks.
    pub(crate) fn next(&self) -> Option<Command> {
        // Counted before it leaves the queue: whoever sees it gone sees it counted.
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.commands.pop()
    }

    pub(crate) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// A transaction is to be forgotten when what is queued now is carried out. A loop that ends forgets all.
    pub(crate) fn forget_later(&self, transaction: u64) {
        if self.is_closed() {
            return;
        }
        // In this order: calls that are taken in between make it later.
        let queued = self.commands.len() as u64;
        let after = self.taken.load(Ordering::Acquire) + queued;
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).push((transaction, after));
        self.tell();
    }

    /// Hands out the transactions that are to be forgotten now: those behind whose calls others wait, too.
    pub(crate) fn take_forgotten(&self) -> Vec<u64> {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.is_empty() {
            return Vec::new();
        }
        let taken = self.taken.load(Ordering::Relaxed);
        let is_idle = !self.has_commands();
        let is_due = |&mut (_, after): &mut (u64, u64)| {
            is_idle || after <= taken && !is_planted!(ForgetsWhenIdle)
        };
        forgotten.extract_if(.., is_due).map(|(transaction, _)| transaction).collect()
    }

    /// Lists a task as woken.
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        self.tell();
    }

    /// Hands out the woken tasks.
    pub(crate) fn drain_wakes(&self, mut wake: impl FnMut(TaskId)) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        for task in woken.drain(..) {
            wake(task);
        }
    }
}

impl fmt::Debug for LoopShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopShared").field("commands", &self.commands.len()).finish_non_exhaustive()
    }
}
