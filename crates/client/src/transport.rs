//! How frames leave an event loop and how replies enter it.

use timestone_clock::server_time::ServerNumber;
use timestone_cluster::{MasterAnswer, MasterCommand, ShardMap};
use timestone_seda::Context;
use timestone_session::{Engine, OpId, Routes};
use timestone_types::Timestamp;
use timestone_wire::{
    Envelope, Frame, Frames, Kind, MapIs, MapPull, MasterAsk, MasterReply, Message as _, RequestId,
    SERVER_ITSELF, WireError,
};

use crate::event::{ClientEvent, ClientInput};
use crate::event_loop::Core;
use crate::ops::Output;

/// Moves bytes between an engine and whoever serves its shards. Never blocks.
pub(crate) trait Transport<E: ClientEvent>: Send {
    /// The stage starts on its thread.
    fn start(&mut self, context: &mut Context<'_, E>, core: &Core);

    /// Something arrived.
    fn input(&mut self, context: &mut Context<'_, E>, core: &Core, input: ClientInput);

    /// Asks for the shard map, of whoever's turn it is: the answers come to
    /// [`Core::newer_map`].
    fn pull_map(&mut self, context: &mut Context<'_, E>, core: &Core, turn: u32);

    /// Follows a map that is newer than the engine's.
    fn follow(&mut self, core: &Core, map: ShardMap) {
        core.engine.borrow_mut().set_routes(core.now(), Routes::from(&map));
    }

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
        Some(MAP_ASKED) => take_map(core, engine, frame),
        Some(op) => core.finish(op, |_| Output::Frame(frame.bytes().to_vec())),
    }
}

/// What questions for the map are numbered, which no engine repeats and no operation waits for: the
/// names of operations stay below it.
pub(crate) const MAP_ASKED: OpId = OpId(1 << 61);

/// Writes the question for a server's map.
pub(crate) fn ask_for_map(out: &mut Vec<u8>) {
    MapPull {}.encode(&map_envelope(), out);
}

/// Writes the question for the master's map.
pub(crate) fn ask_master_for_map(out: &mut Vec<u8>) {
    let mut command = Vec::new();
    MasterCommand::FetchMap.encode(&mut command);
    MasterAsk { command: &command }.encode(&map_envelope(), out);
}

fn map_envelope() -> Envelope {
    Envelope { shard: SERVER_ITSELF, request: RequestId::new(MAP_ASKED.0), ..Envelope::default() }
}

/// A server's answer to the question for its map, or the master's.
#[cold]
fn take_map(core: &Core, engine: &mut Engine, frame: &Frame<'_>) {
    let map = match frame.kind() {
        Kind::MapIs => MapIs::decode(frame).ok().and_then(|is| is.shard_map().ok()),
        Kind::MasterReply => {
            let answer =
                MasterReply::decode(frame).ok().and_then(|reply| reply.master_answer().ok());
            match answer {
                Some(MasterAnswer::Map(map)) => Some(map),
                _ => None,
            }
        }
        // It is asked again, and others are.
        _ => None,
    };
    let newer = map.filter(|map| !engine.shards_mut().routes_are_of(map.version()));
    let mut slot = core.newer_map.borrow_mut();
    if let Some(map) = newer
        && slot.as_ref().is_none_or(|known| known.version() < map.version())
    {
        *slot = Some(map);
    }
}

/// The operation that asked a server; `None` for what the engine asked. The engine's numbers have
/// one of the two highest bits set.
pub(crate) fn asker(frame: &Frame<'_>) -> Option<OpId> {
    let request = frame.envelope().request.get();
    (request != 0 && request >> 62 == 0).then_some(OpId(request))
}
