//! Operations under way: who waits for each, and its result until it is taken.

use std::task::Waker;

use timestone_session::{OpId, OpResult, Ticket, TxnStatus, ValueView};
use timestone_types::{AbortKind, Timestamp};

use crate::executor::TaskId;
use crate::{Error, Result, Value};

/// Who is to be woken.
#[derive(Debug)]
pub(crate) enum Wake {
    /// Nobody waits yet.
    Nobody,
    /// A task of this loop.
    Task(TaskId),
    /// Somebody with a waker.
    Waker(Waker),
}

/// What came of an operation, owned.
#[derive(Debug)]
pub(crate) enum Output {
    /// A read.
    Value(Option<Value>),
    /// A transaction's read; the value is still where the engine keeps it.
    InPlace,
    /// A commit's timestamp, or that of a timer.
    Committed(Timestamp),
    /// A single-key write: its timestamp, and the previous value.
    Written(Timestamp, Option<Value>),
    /// The condition of a single-key write did not hold; what the key has instead.
    ConditionFailed(Option<Value>),
    /// What became of a transaction.
    Status(TxnStatus),
    /// A reply frame.
    Frame(Vec<u8>),
    /// An error.
    Failed(Error),
}

impl From<&OpResult<'_>> for Output {
    fn from(result: &OpResult<'_>) -> Self {
        match *result {
            OpResult::Value(view) => Self::Value(owned(view)),
            OpResult::Committed(committed) => Self::Committed(committed.timestamp),
            OpResult::Written(written) => {
                Self::Written(written.timestamp, written.previous.and_then(owned))
            }
            OpResult::Aborted(ref abort) if abort.kind() == AbortKind::Condition => {
                Self::ConditionFailed(abort.found.and_then(owned))
            }
            OpResult::Aborted(ref abort) => Self::Failed(Error::of_abort(abort)),
            OpResult::Unknown(txn) => Self::Failed(Error::unknown(txn)),
            OpResult::Status(status) => Self::Status(status),
            OpResult::Frame(bytes) => Self::Frame(bytes.to_vec()),
            OpResult::Failed(ref error) => Self::Failed(error.clone().into()),
        }
    }
}

/// A copy of a view, when there is a value.
pub(crate) fn owned(view: ValueView<'_>) -> Option<Value> {
    view.value.map(|bytes| Value::new(bytes.to_vec(), view.version, view.expires_at))
}

enum State {
    Free,
    /// `ticket`: a call that was asked in a frame after all.
    Waiting {
        wake: Wake,
        in_place: bool,
        ticket: Option<Ticket>,
    },
    Ready(Output),
}

struct OpSlot {
    generation: u32,
    state: State,
}

/// All operations of one loop. Slots are reused; the generation tells an old operation from a new
/// one.
#[derive(Default)]
pub(crate) struct OpTable {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
}

/// Bits of an operation's name that hold its generation: together with 32 bits of slot they stay
/// below the engine's numbers, so that an operation's name can be the request number of a message
/// to a server.
const GENERATION_MASK: u32 = (1 << 29) - 1;

const fn name(index: u32, generation: u32) -> OpId {
    OpId((generation as u64) << 32 | index as u64)
}

impl OpTable {
    /// A new operation that nobody waits for yet. Its name is never 0.
    pub(crate) fn open(&mut self) -> OpId {
        self.open_as(false)
    }

    /// A new operation; `in_place`: a value that it yields is not copied, whoever waits looks at it
    /// in the engine.
    #[inline]
    pub(crate) fn open_as(&mut self, in_place: bool) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(OpSlot { generation: 0, state: State::Free });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.generation += u32::from(slot.generation == 0);
        slot.state = State::Waiting { wake: Wake::Nobody, in_place, ticket: None };
        name(index, slot.generation)
    }

    fn slot(&mut self, op: OpId) -> Option<&mut OpSlot> {
        let slot = self.slots.get_mut(op.0 as u32 as usize)?;
        (u64::from(slot.generation) == op.0 >> 32 && !matches!(slot.state, State::Free))
            .then_some(slot)
    }

    /// Finishes an operation; tells who is to be woken. An operation that was given up is left
    /// alone. `output` is told whether a value may stay where it is.
    #[inline]
    pub(crate) fn finish(&mut self, op: OpId, output: impl FnOnce(bool) -> Output) -> Wake {
        let Some(slot) = self.slot(op) else { return Wake::Nobody };
        let State::Waiting { wake, in_place, .. } = &mut slot.state else { return Wake::Nobody };
        let (wake, in_place) = (core::mem::replace(wake, Wake::Nobody), *in_place);
        slot.state = State::Ready(output(in_place));
        wake
    }

    /// Takes the result, when it is there; the operation is over then. Otherwise `wake` is woken
    /// when it comes.
    #[inline]
    pub(crate) fn take(&mut self, op: OpId, wake: impl FnOnce() -> Wake) -> Option<Output> {
        let Some(slot) = self.slot(op) else { return Some(Output::Failed(Error::closed())) };
        if let State::Waiting { wake: waiting, .. } = &mut slot.state {
            *waiting = wake();
            return None;
        }
        let State::Ready(output) = core::mem::replace(&mut slot.state, State::Free) else {
            unreachable!("a slot that is found and waits for nobody has its result")
        };
        self.free.push(op.0 as u32);
        Some(output)
    }

    /// Whether an operation is under way and wanted.
    #[inline]
    pub(crate) fn is_waiting(&mut self, op: OpId) -> bool {
        self.slot(op).is_some_and(|slot| matches!(slot.state, State::Waiting { .. }))
    }

    /// A call is asked in a frame.
    pub(crate) fn is_asked_in_frame(&mut self, op: OpId, asked: Ticket) {
        if let Some(OpSlot { state: State::Waiting { ticket, .. }, .. }) = self.slot(op) {
            *ticket = Some(asked);
        }
    }

    /// The ticket of a call that was asked in a frame.
    pub(crate) fn ticket_of_call(&mut self, op: OpId) -> Option<Ticket> {
        match self.slot(op) {
            Some(OpSlot { state: State::Waiting { ticket, .. }, .. }) => *ticket,
            _ => None,
        }
    }

    /// Gives an operation up.
    pub(crate) fn forget(&mut self, op: OpId) {
        if let Some(slot) = self.slot(op) {
            slot.state = State::Free;
            self.free.push(op.0 as u32);
        }
    }
}

/// What an operation's future yields, made from its output.
pub(crate) fn unexpected<T>(output: Output) -> Result<T> {
    match output {
        Output::Failed(error) => Err(error),
        _ => Err(Error::new(
            timestone_wire::ErrorCode::Internal,
            "an operation was answered with the result of another one",
            "report this as a bug",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_result_does_not_reach_the_next_user_of_the_slot() {
        let mut ops = OpTable::default();
        let old = ops.open();
        ops.forget(old);
        let new = ops.open();
        assert_ne!(old, new);
        assert!(matches!(ops.finish(old, |_| Output::Value(None)), Wake::Nobody));
        assert!(ops.take(new, || Wake::Nobody).is_none());
        ops.finish(new, |_| Output::Value(None));
        assert!(matches!(ops.take(new, || Wake::Nobody), Some(Output::Value(None))));
        assert!(matches!(ops.take(new, || Wake::Nobody), Some(Output::Failed(_))), "taken once");
    }

    #[test]
    fn names_stay_below_the_engines_numbers() {
        let mut ops = OpTable::default();
        for _ in 0..1000 {
            let op = ops.open();
            assert!(op.0 > 0 && op.0 >> 62 == 0);
            ops.forget(op);
        }
        assert!(name(u32::MAX, GENERATION_MASK).0 >> 62 == 0);
    }
}
