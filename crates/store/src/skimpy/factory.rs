//! Makes `skimpy` stores: on a device, by a configuration.

use timestone_flash::FlashDevice;

use super::{Skimpy, SkimpyConfig};
use crate::api::{Capabilities, Factory};
use crate::error::StoreError;
use crate::mftl::RecoveryReport;

/// A device, and how the store on it is to be.
pub struct SkimpyFactory {
    /// Where the store is, or is to be.
    pub device: Box<dyn FlashDevice>,
    /// How it runs.
    pub config: SkimpyConfig,
}

impl Factory for SkimpyFactory {
    type Store = Skimpy;
    type Report = RecoveryReport;

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: true,
        answers_at_once: false,
        keeps_versions: true,
        reads_ranges: false,
    };

    fn open(self) -> Result<(Skimpy, RecoveryReport), StoreError> {
        Skimpy::open(self.device, self.config)
    }
}
