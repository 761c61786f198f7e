//! What the work of stages costs in virtual time.
//!
//! The figures are those of this code on one core of the machine that docs/benchmarks.md names, by event kind; a scenario may scale
//! them. System calls on sockets are charged by the network's streams, which know how many bytes pass.

use std::time::Duration;

use timestone_client::ClientStageEvent;
use timestone_seda::simulated::CostModel;
use timestone_seda::{NetCommand, NetEvent, StageId};
use timestone_server::Event;
use timestone_wire::HEADER_BYTES;

/// CPU costs, all multiplied by `scale`.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// How much slower than the measured machine the simulated one is.
    pub scale: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self { scale: 1.0 }
    }
}

const TURN: f64 = 250.0;
const STAGE: f64 = 120.0;
const WAKE: f64 = 4_000.0;
/// An event without frames in it.
const EVENT: f64 = 60.0;
/// A frame of an ordinary size.
const FRAME: f64 = 450.0;
const FRAME_BYTES: f64 = 96.0;
const PER_BYTE: f64 = 0.25;
const LOG_RECORD: f64 = 300.0;

impl Costs {
    fn nanos(self, nanos: f64) -> Duration {
        Duration::from_nanos((nanos * self.scale) as u64)
    }

    /// A parcel: frames are not counted on the way out, so their number is reckoned from the bytes.
    fn parcel(self, bytes: usize) -> Duration {
        let frames = (bytes as f64 / FRAME_BYTES).max(if bytes >= HEADER_BYTES { 1.0 } else { 0.0 });
        self.nanos(EVENT + FRAME * frames + PER_BYTE * bytes as f64)
    }
}

impl CostModel<Event> for Costs {
    fn turn(&self) -> Duration {
        self.nanos(TURN)
    }

    fn stage(&self, _stage: StageId) -> Duration {
        self.nanos(STAGE)
    }

    fn event(&self, _stage: StageId, event: &Event) -> Duration {
        match event {
            Event::Parcel(parcel) => self.parcel(parcel.bytes.len()),
            Event::LogAppend(append) => self.nanos(LOG_RECORD + PER_BYTE * append.bytes.len() as f64),
            _ => self.nanos(EVENT),
        }
    }

    fn wake(&self) -> Duration {
        self.nanos(WAKE)
    }
}

impl CostModel<ClientStageEvent> for Costs {
    fn turn(&self) -> Duration {
        self.nanos(TURN)
    }

    fn stage(&self, _stage: StageId) -> Duration {
        self.nanos(STAGE)
    }

    fn event(&self, _stage: StageId, event: &ClientStageEvent) -> Duration {
        match event {
            ClientStageEvent::Net(NetEvent::Parcel(parcel)) | ClientStageEvent::Command(NetCommand::Send(parcel)) => {
                self.parcel(parcel.bytes.len())
            }
            _ => self.nanos(EVENT),
        }
    }

    fn wake(&self) -> Duration {
        self.nanos(WAKE)
    }
}
