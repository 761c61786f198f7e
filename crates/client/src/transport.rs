//! How frames leave an event loop and how replies enter it.

use timestone_clock::server_time::ServerNumber;
use timestone_seda::Context;
use timestone_session::{Engine, OpId};
use timestone_types::Timestamp;
use timestone_wire::{Frame, Frames, WireError};

use crate::event::{ClientEvent, ClientInput};
use crate::event_loop::Core;
use crate::ops::Output;

/// Moves bytes between an engine and whoever serves its shards. Never blocks.
pub(crate) trait Transport<E: ClientEvent>: Send {
    /// The stage starts on its thread.
    fn start(&mut self, context: &mut Context<'_, E>, core: &Core);

    /// Something arrived.
    fn input(&mut self, context: &mut Context<'_, E>, core: &Core, input: ClientInput);

    /// Sends what waits, at the end of a turn; looks after connections.
    fn ship(&mut self, context: &mut Context<'_, E>, core: &Core);

    /// Everything is sent, and nothing more will be: lets go of connections so that the last words
    /// arrive. To close a socket with unread answers would reset it, and destroy them.
    fn leave(&mut self, _context: &mut Context<'_, E>) {}

    /// When `ship` wants to be called at the latest.
    fn next_deadline(&self) -> Option<Timestamp>;
}

/// Hands a run of reply frames to the operations that wait for them. `peer` has sent them, where
/// that is known.
///
/// # Errors
/// What could not be read: the peer cannot be trusted further.
pub(crate) fn take_frames(
    core: &Core,
    peer: Option<ServerNumber>,
    bytes: &[u8],
) -> Result<(), WireError> {
    let now = core.now();
    let mut engine = core.engine.borrow_mut();
    engine.shards_mut().begin_batch(peer);
    for frame in Frames::new(bytes) {
        take_frame(core, &mut engine, now, &frame?);
    }
    // Read now: the turn may have begun before these bytes arrived.
    if engine.shards().wants_arrival()
        && let Some(exchange) = engine.shards_mut().arrived(core.clock.now())
    {
        core.clock.heard(&exchange);
    }
    Ok(())
}

/// One reply: to the engine, or to an operation that asked a server.
#[inline]
fn take_frame(core: &Core, engine: &mut Engine, now: Timestamp, frame: &Frame<'_>) {
    match asker(frame) {
        None => engine.deliver_frame(now, frame.envelope().shard, frame),
        Some(op) => core.finish(op, |_| Output::Frame(frame.bytes().to_vec())),
    }
}

/// The operation that asked a server; `None` for what the engine asked. The engine's numbers have
/// one of the two highest bits set.
pub(crate) fn asker(frame: &Frame<'_>) -> Option<OpId> {
    let request = frame.envelope().request.get();
    (request != 0 && request >> 62 == 0).then_some(OpId(request))
}
