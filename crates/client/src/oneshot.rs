//! One result from the event loop to whoever asked: awaited in any executor, or waited for by a
//! blocked thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
enum State<T> {
    Waiting(Option<Waker>),
    Ready(T),
    Over,
}

#[derive(Debug)]
struct Channel<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nobody panics while holding it; a poisoned lock still holds a consistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, state: State<T>) {
        let before = core::mem::replace(&mut *self.lock(), state);
        self.ready.notify_one();
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// The end that gives the result; dropped without one, the receiver learns that none will come.
#[derive(Debug)]
pub(crate) struct Sender<T>(Option<Arc<Channel<T>>>);

/// The end that gets the result; `None` when the sender was dropped.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

/// A new pair.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared =
        Arc::new(Channel { state: Mutex::new(State::Waiting(None)), ready: Condvar::new() });
    (Sender(Some(Arc::clone(&shared))), Receiver(shared))
}

impl<T> Sender<T> {
    /// Gives the result.
    pub(crate) fn send(mut self, value: T) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Ready(value));
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Over);
        }
    }
}

impl<T> Receiver<T> {
    /// Blocks the thread until the result is there.
    pub(crate) fn wait(self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            match core::mem::replace(&mut *state, State::Over) {
                State::Ready(value) => return Some(value),
                State::Over => return None,
                waiting @ State::Waiting(_) => *state = waiting,
            }
            state = self.0.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match core::mem::replace(&mut *state, State::Over) {
            State::Ready(value) => Poll::Ready(Some(value)),
            State::Over => Poll::Ready(None),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_thread_gets_the_result_or_learns_that_none_comes() {
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || receiver.wait());
        std::thread::sleep(std::time::Duration::from_millis(5));
        sender.send(7);
        assert_eq!(thread.join().unwrap(), Some(7));
        let (sender, receiver) = channel::<u8>();
        drop(sender);
        assert_eq!(receiver.wait(), None);
    }

    #[test]
    fn a_waiting_future_is_woken() {
        let (sender, mut receiver) = channel();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut receiver).poll(&mut context), Poll::Pending);
        sender.send(1);
        assert_eq!(Pin::new(&mut receiver).poll(&mut context), Poll::Ready(Some(1)));
    }
}
