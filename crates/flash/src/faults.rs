//! Faults that are ordered: this operation of that kind goes wrong, once.

/// Kinds of operations that a fault can hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A read.
    Read,
    /// A program.
    Program,
    /// An erase.
    Erase,
    /// A sync.
    Sync,
    /// A growth.
    Grow,
}

impl OpKind {
    /// As error messages call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Program => "program",
            Self::Erase => "erase",
            Self::Sync => "sync",
            Self::Grow => "grow",
        }
    }
}

/// Something that is to go wrong once. `nth` counts operations of the kind from now on; 1 is the
/// next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The operation fails with an I/O error and leaves the medium as it was. On an emulated device
    /// a block whose program or erase failed is bad from then on.
    Fail {
        /// Which kind of operation.
        kind: OpKind,
        /// Which of them.
        nth: u32,
    },
    /// The program reports success, but only its first `keep_bytes` reached the medium: what a
    /// lying device leaves.
    TornProgram {
        /// Which program.
        nth: u32,
        /// Bytes that arrive.
        keep_bytes: usize,
    },
    /// The program reports success, but landed this many pages further on (round the end), over
    /// whatever was there.
    MisdirectedProgram {
        /// Which program.
        nth: u32,
        /// How far off.
        pages: u32,
    },
}

/// The faults that have been ordered and have not struck.
#[derive(Debug, Default)]
pub(crate) struct FaultOrders(Vec<Fault>);

impl FaultOrders {
    /// Orders one more.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Takes all back.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// How many have not struck.
    pub(crate) fn pending(&self) -> usize {
        self.0.len()
    }

    /// Counts one operation of a kind against the ordered faults; gives the one that strikes.
    pub(crate) fn strike(&mut self, kind: OpKind) -> Option<Fault> {
        let mut struck = None;
        self.0.retain_mut(|fault| {
            if fault.kind() != kind {
                return true;
            }
            let (Fault::Fail { nth, .. }
            | Fault::TornProgram { nth, .. }
            | Fault::MisdirectedProgram { nth, .. }) = fault;
            *nth = nth.saturating_sub(1);
            if *nth > 0 || struck.is_some() {
                return true;
            }
            struck = Some(*fault);
            false
        });
        struck
    }
}

impl Fault {
    fn kind(&self) -> OpKind {
        match self {
            Self::Fail { kind, .. } => *kind,
            Self::TornProgram { .. } | Self::MisdirectedProgram { .. } => OpKind::Program,
        }
    }
}
