//! Makes `mftl` stores: on a device, by a configuration.

use timestone_flash::FlashDevice;

use super::{Mftl, MftlConfig, RecoveryReport};
use crate::api::{Capabilities, Factory};
use crate::error::StoreError;

/// A device, and how the store on it is to be.
pub struct MftlFactory {
    /// Where the store is, or is to be.
    pub device: Box<dyn FlashDevice>,
    /// How it runs.
    pub config: MftlConfig,
}

impl Factory for MftlFactory {
    type Store = Mftl;
    type Report = RecoveryReport;

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: true,
        answers_at_once: false,
        keeps_versions: true,
        reads_ranges: true,
    };

    fn open(self) -> Result<(Mftl, RecoveryReport), StoreError> {
        Mftl::open(self.device, self.config)
    }
}
