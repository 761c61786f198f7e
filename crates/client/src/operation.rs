//! An operation of a task on the event loop: begun when it is called, waited for by awaiting, given
//! up when it is dropped.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use timestone_session::{OpId, SessionError, SessionId, Ticket, ValueView};
use timestone_types::Timestamp;

use crate::event_loop::Core;
use crate::ops::{Output, Wake, unexpected};
use crate::retry::note_met;
use crate::{Error, Result};

/// An operation under way. Dropping it gives the operation up; a write under way may still take
/// place.
pub struct Operation<T> {
    core: Rc<Core>,
    state: OperationState<T>,
    convert: fn(Output) -> Result<T>,
    /// For a transaction's read: what to make of the value where it is.
    view: Option<fn(ValueView<'_>) -> T>,
    met: Option<Met>,
}

/// The first error of an operation of a transaction that a new attempt may not meet.
pub(crate) type Met = Rc<RefCell<Option<Error>>>;

enum OperationState<T> {
    Waiting(OpId, Option<Ticket>),
    /// Asked by a call; of a put whose session began it, and when.
    Called(OpId, Option<(SessionId, Timestamp)>),
    /// Something has to be found out first.
    Later(Pin<Box<dyn Future<Output = Result<T>>>>),
    Ready(Result<T>),
    Over,
}

impl<T> Unpin for Operation<T> {}

impl<T> Operation<T> {
    #[inline]
    pub(crate) fn begin(
        core: &Rc<Core>,
        convert: fn(Output) -> Result<T>,
        view: Option<fn(ValueView<'_>) -> T>,
        start: impl FnOnce(OpId) -> Result<Option<Result<T>>, SessionError>,
        ticket: impl FnOnce() -> Option<Ticket>,
    ) -> Self {
        let op = core.ops.borrow_mut().open_as(view.is_some());
        let state = match start(op) {
            Ok(None) => OperationState::Waiting(op, ticket()),
            Ok(Some(ready)) => {
                core.ops.borrow_mut().forget(op);
                OperationState::Ready(ready)
            }
            Err(error) => {
                core.ops.borrow_mut().forget(op);
                OperationState::Ready(Err(error.into()))
            }
        };
        Self { core: Rc::clone(core), state, convert, view, met: None }
    }

    pub(crate) fn waiting(core: &Rc<Core>, op: OpId, convert: fn(Output) -> Result<T>) -> Self {
        Self {
            core: Rc::clone(core),
            state: OperationState::Waiting(op, None),
            convert,
            view: None,
            met: None,
        }
    }

    /// One that is asked by a call.
    #[inline]
    pub(crate) fn called(
        core: &Rc<Core>,
        op: OpId,
        put: Option<(SessionId, Timestamp)>,
        convert: fn(Output) -> Result<T>,
    ) -> Self {
        let state = OperationState::Called(op, put);
        Self { core: Rc::clone(core), state, convert, view: None, met: None }
    }

    pub(crate) fn ready(core: &Rc<Core>, result: Result<T>) -> Self {
        Self {
            core: Rc::clone(core),
            state: OperationState::Ready(result),
            convert: unexpected,
            view: None,
            met: None,
        }
    }

    /// One that begins when it is first waited for.
    pub(crate) fn later(
        core: &Rc<Core>,
        future: impl Future<Output = Result<T>> + 'static,
    ) -> Self {
        let state = OperationState::Later(Box::pin(future));
        Self { core: Rc::clone(core), state, convert: unexpected, view: None, met: None }
    }

    /// Notes an error that a new attempt may not meet.
    pub(crate) fn noting(mut self, met: Option<&Met>) -> Self {
        self.met = met.cloned();
        self
    }

    /// The result of an operation from what came of it.
    fn finish(&self, output: Output, ticket: Option<Ticket>) -> Result<T> {
        match (output, self.view, ticket) {
            (Output::InPlace, Some(view), Some(ticket)) => {
                let engine = self.core.engine.borrow();
                match engine.read_result(ticket) {
                    Some(found) => Ok(view(found)),
                    None => Err(SessionError::NoTransaction.into()),
                }
            }
            (output, ..) => (self.convert)(output),
        }
    }
}

impl<T> Future for Operation<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let polled = self.advance(context);
        if let (Poll::Ready(Err(error)), Some(met)) = (&polled, &self.met) {
            note_met(&mut met.borrow_mut(), error);
        }
        polled
    }
}

impl<T> Operation<T> {
    #[inline]
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Nearly every one waits for an answer: its state stays where it is.
        let waiting = match self.state {
            OperationState::Waiting(op, ticket) => Some((op, ticket)),
            OperationState::Called(op, _) => Some((op, None)),
            _ => None,
        };
        if let Some((op, ticket)) = waiting {
            let wake = || match self.core.tasks.current(context.waker()) {
                Some(task) => Wake::Task(task),
                None => Wake::Waker(context.waker().clone()),
            };
            let taken = self.core.ops.borrow_mut().take(op, wake);
            let Some(output) = taken else { return Poll::Pending };
            self.state = OperationState::Over;
            return Poll::Ready(self.finish(output, ticket));
        }
        self.advance_without_answer(context)
    }

    fn advance_without_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        match core::mem::replace(&mut self.state, OperationState::Over) {
            OperationState::Ready(result) => Poll::Ready(result),
            OperationState::Later(mut future) => {
                let polled = future.as_mut().poll(context);
                if polled.is_pending() {
                    self.state = OperationState::Later(future);
                }
                polled
            }
            OperationState::Waiting(..) | OperationState::Called(..) | OperationState::Over => {
                Poll::Ready(Err(Error::closed()))
            }
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        match self.state {
            OperationState::Waiting(op, ticket) => self.core.give_up(op, ticket),
            OperationState::Called(op, put) => self.core.give_up_call(op, put),
            _ => {}
        }
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").finish_non_exhaustive()
    }
}
