//! Names of things inside an engine. Slots are reused; a generation tells an old name from a new
//! one.

/// One session of an engine: a sequence of transactions that see each other's effects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One open transaction of an engine. Worth nothing once the transaction has finished: the engine
/// then answers [`crate::SessionError::NoTransaction`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TxnHandle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The host's name for one operation, returned in its [`crate::Done`]. The engine does not
/// interpret it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OpId(pub u64);

/// The engine's name for an operation that is under way, for [`crate::Engine::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    pub(crate) kind: TicketKind,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) item: u32,
    pub(crate) op: OpId,
}

/// What a ticket names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TicketKind {
    /// One read of a transaction.
    Read,
    /// A transaction's commit.
    Commit,
    /// A request outside a transaction.
    Single,
}
