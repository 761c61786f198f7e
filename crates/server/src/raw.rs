//! The Redis protocol at the door: every byte goes to the gateway, which cuts commands itself.

use timestone_seda::{Break, ConnectionView, Protocol, Split, StageId};

/// Passes bytes on to the gateway of the same thread.
pub(crate) struct RawProtocol {
    gateway: StageId,
}

impl RawProtocol {
    pub(crate) const fn new(gateway: StageId) -> Self {
        Self { gateway }
    }
}

impl Protocol for RawProtocol {
    fn split(&mut self, _connection: &ConnectionView, bytes: &[u8]) -> Split {
        Split::Frame { length: bytes.len(), to: self.gateway }
    }

    fn busy(&mut self, _connection: &ConnectionView, _frame: &[u8], _out: &mut Vec<u8>) -> bool {
        // A redis client has no word for "later": it is simply not read from until there is room.
        false
    }

    fn refuse(
        &mut self,
        _connection: &ConnectionView,
        reason: Break,
        _rest: &[u8],
        out: &mut Vec<u8>,
    ) {
        let words: &[u8] = match reason {
            Break::Malformed | Break::TooLong { .. } => b"-ERR Protocol error\r\n",
            Break::TooManyConnections { .. } => b"-ERR max number of clients reached\r\n",
            Break::NoMemory { .. } => b"-TRYAGAIN no memory for this command at the moment\r\n",
            Break::ShuttingDown => b"-ERR server is shutting down\r\n",
        };
        out.extend_from_slice(words);
    }
}
