//! Questions to a shard that concern no single key.

use std::cell::Cell;
use std::rc::Rc;

use timestone_session::{RequestOptions, TxnHandle};
use timestone_types::ShardId;

use crate::event_loop::Core;
use crate::local::{keep, to_frame};
use crate::operation::Operation;

/// On whose behalf a shard is asked.
#[derive(Clone, Copy)]
pub(crate) enum RequestScope {
    /// At the snapshot of a transaction, and until its deadline.
    Within(TxnHandle),
    With(RequestOptions),
}

/// Asks a shard something that concerns no single key: `encode` appends one frame with the request
/// number that it is given.
pub(crate) fn ask_shard(
    core: &Rc<Core>,
    scope: RequestScope,
    shard: ShardId,
    encode: impl FnOnce(u64, &mut Vec<u8>),
) -> Operation<Vec<u8>> {
    let ticket = Cell::new(None);
    let start = |op| {
        let (mut engine, now) = (core.engine.borrow_mut(), core.now());
        let step = match scope {
            RequestScope::Within(txn) => engine.ask_within(now, txn, shard, op, encode)?,
            RequestScope::With(options) => engine.ask(now, shard, options, op, encode)?,
        };
        keep(step, &ticket);
        Ok(None)
    };
    Operation::begin(core, to_frame, None, start, || ticket.take())
}
