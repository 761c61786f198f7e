//! The futures that run on the event loop itself.
//!
//! ```text
//!   spawn ─► task ─ poll ─► waits for an operation ─► the loop finishes it ─► run queue ─► poll …       (no waker, no lock)
//!                    └────► waits for anything else ─► its waker, from any thread ─► wake list ─► run queue
//! ```
//! Single-threaded: tasks need not be `Send`. Invariant: a task is in the run queue at most once,
//! and is never polled while it is being polled.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use timestone_io::prefetch_lines;

use crate::shared::LoopShared;

/// So many tasks stand between the one that is polled and the one that is fetched.
const TASKS_AHEAD: usize = 2;
/// Cache lines of a task's state that are fetched.
const LINES_AHEAD: usize = 24;

/// A task's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    index: u32,
    generation: u32,
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

struct TaskSlot {
    generation: u32,
    queued: bool,
    waker: Option<Waker>,
    /// Taken out while it is polled.
    future: Option<LocalFuture>,
}

/// All tasks of one event loop.
pub(crate) struct Executor {
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
    queue: RefCell<VecDeque<TaskId>>,
    current: RefCell<Option<(TaskId, Waker)>>,
    live: Cell<usize>,
    shared: Arc<LoopShared>,
}

/// Wakes a task from anywhere.
struct TaskWaker {
    task: TaskId,
    shared: Arc<LoopShared>,
}

impl Wake for TaskWaker {
    #[inline]
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.wake_task(self.task);
    }
}

impl Executor {
    pub(crate) fn new(shared: Arc<LoopShared>) -> Self {
        Self {
            slots: RefCell::default(),
            free: RefCell::default(),
            queue: RefCell::default(),
            current: RefCell::new(None),
            live: Cell::new(0),
            shared,
        }
    }

    /// Adds a task, to be polled soon.
    pub(crate) fn spawn(&self, future: LocalFuture) {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(TaskSlot { generation: 0, queued: false, waker: None, future: None });
            slots.len() as u32 - 1
        });
        let slot = &mut slots[index as usize];
        let task = TaskId { index, generation: slot.generation };
        slot.waker =
            Some(Waker::from(Arc::new(TaskWaker { task, shared: Arc::clone(&self.shared) })));
        slot.future = Some(future);
        slot.queued = true;
        self.live.set(self.live.get() + 1);
        self.queue.borrow_mut().push_back(task);
    }

    /// Queues a task, unless it is queued or over.
    #[inline]
    pub(crate) fn wake(&self, task: TaskId) {
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(task.index as usize)
            && slot.generation == task.generation
            && !slot.queued
        {
            slot.queued = true;
            self.queue.borrow_mut().push_back(task);
        }
    }

    /// The task being polled, when `waker` is its own: it can then be woken without the waker.
    pub(crate) fn current(&self, waker: &Waker) -> Option<TaskId> {
        let current = self.current.borrow();
        current.as_ref().filter(|(_, own)| own.will_wake(waker)).map(|&(task, _)| task)
    }

    /// Polls queued tasks, at most `budget` times. Tells how much of the budget is left.
    pub(crate) fn run(&self, mut budget: usize) -> usize {
        while budget > 0 {
            let Some(task) = self.queue.borrow_mut().pop_front() else { break };
            budget -= 1;
            self.fetch_ahead();
            let taken = {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[task.index as usize];
                if slot.generation != task.generation {
                    continue;
                }
                slot.queued = false;
                slot.future.take().zip(slot.waker.take())
            };
            if let Some((future, waker)) = taken {
                self.poll(task, future, waker);
            }
        }
        budget
    }

    /// Has the processor fetch a task that is polled soon: there are thousands, and one that has
    /// waited for an answer is in no cache any more.
    #[inline]
    fn fetch_ahead(&self) {
        let Some(task) = self.queue.borrow().get(TASKS_AHEAD).copied() else { return };
        let slots = self.slots.borrow();
        if let Some(future) = &slots[task.index as usize].future {
            prefetch_lines(&**future, LINES_AHEAD);
        }
    }

    fn poll(&self, task: TaskId, mut future: LocalFuture, waker: Waker) {
        *self.current.borrow_mut() = Some((task, waker));
        // The waker stays in `current` while the future runs; a clone of it would cost two atomic
        // operations.
        let ready = {
            let own = self.current.borrow();
            own.as_ref().is_some_and(|(_, waker)| {
                future.as_mut().poll(&mut Context::from_waker(waker)).is_ready()
            })
        };
        let waker = self.current.borrow_mut().take().map(|(_, waker)| waker);
        if ready {
            // Dropped before the slot is free: dropping may call back.
            drop(future);
            self.release(task);
        } else {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[task.index as usize];
            slot.future = Some(future);
            slot.waker = waker;
        }
    }

    fn release(&self, task: TaskId) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[task.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.queued = false;
        slot.waker = None;
        self.live.set(self.live.get() - 1);
        self.free.borrow_mut().push(task.index);
    }

    /// Whether some task waits to be polled.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Drops every task: the loop is shutting down.
    pub(crate) fn clear(&self) {
        let slots = self.slots.borrow().len();
        for index in 0..slots {
            let (task, future) = {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[index];
                (TaskId { index: index as u32, generation: slot.generation }, slot.future.take())
            };
            if let Some(future) = future {
                drop(future);
                self.release(task);
            }
        }
        self.queue.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::oneshot;

    #[test]
    fn tasks_run_wait_for_foreign_wakers_and_end() {
        let shared = Arc::new(LoopShared::new());
        let executor = Rc::new(Executor::new(Arc::clone(&shared)));
        let (sender, receiver) = oneshot::channel();
        let seen = Rc::new(Cell::new(0));
        let inside = Rc::clone(&seen);
        executor.spawn(Box::pin(async move { inside.set(receiver.await.unwrap_or(0)) }));
        assert_eq!(executor.run(10), 9);
        assert_eq!(seen.get(), 0);
        std::thread::spawn(move || sender.send(5)).join().unwrap();
        shared.drain_wakes(|task| executor.wake(task));
        executor.run(10);
        assert_eq!((seen.get(), executor.live.get()), (5, 0));
    }

    #[test]
    fn a_task_that_wakes_itself_does_not_starve_the_loop() {
        let shared = Arc::new(LoopShared::new());
        let executor = Rc::new(Executor::new(Arc::clone(&shared)));
        let forever = core::future::poll_fn(|context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            core::task::Poll::<()>::Pending
        });
        executor.spawn(Box::pin(forever));
        for _ in 0..3 {
            assert_eq!(executor.run(5), 4, "polled once, then woken for the next turn");
            shared.drain_wakes(|task| executor.wake(task));
        }
        executor.clear();
        assert_eq!(executor.live.get(), 0);
        assert!(!executor.has_work());
    }
}
