//! The devices of a server's life: flash of shards and disks of logs, who is called when something
//! of one completes, and what it costs.
//!
//! Those that are there when the server begins are known from then on, and so is the flash of a
//! shard that it gets later, as a replica or with the first frugal keyspace, or makes anew. Invariant: a device keeps its place in the list, for what
//! is planned names it by that.

use std::collections::BTreeMap;

use timestone_costmodel::{Counter, DeviceCosts};
use timestone_flash::MemoryMedia;
use timestone_seda::StageId;
use timestone_server::FlashPart;
use timestone_types::ShardId;
use timestone_wal::device::memory::MemoryDisk;

use crate::environment::SimEnvironment;

/// See the module.
pub(crate) struct Devices {
    all: Vec<Device>,
    /// Whose flash is among them, and where.
    flash: BTreeMap<(ShardId, FlashPart), usize>,
    /// The stages of all shards that the server may have.
    shards: Vec<(ShardId, StageId)>,
    /// How often devices had been made or taken away when they were looked for last.
    changes: u64,
}

impl Devices {
    /// Those that are there as a server begins.
    pub(crate) fn of(
        environment: &SimEnvironment,
        shards: Vec<(ShardId, StageId)>,
        logs: &[StageId],
    ) -> Self {
        let mut devices = Self { all: Vec::new(), flash: BTreeMap::new(), shards, changes: 0 };
        devices.find(environment);
        for (name, disk) in environment.disks() {
            let thread =
                name.strip_prefix("thread-").and_then(|number| number.parse::<usize>().ok());
            // Logs of threads that this life does not have are adopted by the first one.
            let stage = thread.and_then(|thread| logs.get(thread)).or(logs.first());
            if let Some(stage) = stage {
                devices.all.push(Device::new(DeviceKind::Log(disk), *stage));
            }
        }
        devices
    }

    /// Looks for flash that was made since the last look.
    pub(crate) fn find(&mut self, environment: &SimEnvironment) {
        let changes = environment.changes();
        if std::mem::replace(&mut self.changes, changes) == changes {
            return;
        }
        for ((shard, part), media) in environment.media() {
            let stage = self.shards.iter().find(|(id, _)| *id == shard);
            let Some((_, stage)) = stage else { continue };
            let place = *self.flash.entry((shard, part)).or_insert(self.all.len());
            let is_known = |device: &Device| matches!(&device.kind, DeviceKind::Flash(known) if known.is_same(&media));
            match self.all.get_mut(place) {
                Some(device) if is_known(device) => {}
                Some(device) => *device = Device::new(DeviceKind::Flash(media), *stage),
                None => self.all.push(Device::new(DeviceKind::Flash(media), *stage)),
            }
        }
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Device> {
        self.all.iter_mut()
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Device> {
        self.all.get_mut(place)
    }
}

/// A device, who is called when something of it completes, and when that is.
pub(crate) struct Device {
    pub(crate) kind: DeviceKind,
    pub(crate) stage: StageId,
    pub(crate) scheduled: Option<u64>,
    /// What it had been asked for when that was charged last.
    asked: (u64, u64),
}

impl Device {
    fn new(kind: DeviceKind, stage: StageId) -> Self {
        let asked = kind.asked();
        Self { kind, stage, scheduled: None, asked }
    }

    /// Charges what it was asked for since the last time. How often it interrupts a core until that
    /// is done.
    pub(crate) fn charge(&mut self, counter: &Counter) -> u64 {
        let (before, now) = (self.asked, self.kind.asked());
        let (operations, bytes) = (now.0 - before.0, now.1 - before.1);
        if operations == 0 {
            return 0;
        }
        self.asked = now;
        match self.kind {
            DeviceKind::Flash(_) => counter.flash(operations, bytes),
            DeviceKind::Log(_) => counter.log(operations, bytes),
        }
        bytes.div_ceil(DeviceCosts::INTERRUPTS)
    }
}

/// See [`Device`].
pub(crate) enum DeviceKind {
    Flash(MemoryMedia),
    Log(MemoryDisk),
}

impl DeviceKind {
    pub(crate) fn next_due(&self) -> Option<u64> {
        match self {
            Self::Flash(media) => media.next_due(),
            Self::Log(disk) => disk.next_due(),
        }
    }

    fn asked(&self) -> (u64, u64) {
        match self {
            Self::Flash(media) => media.asked(),
            Self::Log(disk) => disk.asked(),
        }
    }
}
