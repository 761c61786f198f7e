//! `[store]`: what is compared, over what, on which device.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::spec::{one_of, span};
use crate::store::processor::Processor;

/// `[store]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct StorePart {
    /// The stores.
    pub(crate) compare: Vec<StoreKind>,
    /// The horizontal axis.
    pub(crate) sweep: Sweep,
    /// Its places.
    pub(crate) over: Vec<f64>,
    /// Keys, all put before anything is measured.
    pub(crate) keys: u64,
    /// Bytes of a key.
    pub(crate) key_bytes: usize,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// Popularity: Zipf's exponent, 0 for none.
    pub(crate) zipf: f64,
    /// Requests under way at any time.
    pub(crate) in_flight: u32,
    /// Fewer of them at some places of the axis.
    #[serde(default)]
    pub(crate) in_flight_at: Vec<(f64, u32)>,
    /// Share of puts, per cent, where it is not the axis.
    pub(crate) put_share: f64,
    /// `skimpy`: keys of a bucket, where they are not the axis.
    pub(crate) keys_per_bucket: u32,
    /// `skimpy`: keys that the translation cache knows, in thousandths.
    pub(crate) translated_thousandths: u32,
    /// What [`StoreKind::SkimpySmall`] knows in memory.
    pub(crate) small: Option<SmallPart>,
    /// How long a page that is full waits for others.
    #[serde(deserialize_with = "span")]
    pub(crate) packing_delay: Duration,
    /// How long a page that is not full waits for company.
    #[serde(deserialize_with = "span")]
    pub(crate) partial_page_delay: Duration,
    /// `vftl`, `sftl`: one block in so many is spare in the lower layer. The upper one keeps back
    /// [`RESERVE_DIVISOR`](timestone_store::limits::RESERVE_DIVISOR), as every store.
    pub(crate) spare_divisor: u32,
    /// `vftl`: whether the lower layer keeps its map durable.
    pub(crate) journaled: bool,
    /// Whether a lower layer is told what the upper one has erased: of all stores but
    /// [`StoreKind::VftlUntold`].
    #[serde(skip, default = "is_told")]
    pub(crate) trims: bool,
    /// Whether it can run in real time.
    pub(crate) real_time: bool,
    /// The SSD.
    pub(crate) device: DevicePart,
    /// How long.
    pub(crate) run: RunPart,
    /// What work takes in virtual time.
    pub(crate) processor: Processor,
}

/// `[store.device]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct DevicePart {
    /// Its bytes.
    pub(crate) capacity_bytes: u64,
    /// Pages of 4 KiB in an erase block.
    pub(crate) pages_per_block: u32,
    /// Operations at once.
    pub(crate) queue_depth: u32,
    /// Channels.
    pub(crate) channels: u32,
    /// Channels that the pages of one block are spread over.
    pub(crate) channels_per_block: u32,
    /// Reading a page.
    #[serde(deserialize_with = "span")]
    pub(crate) read: Duration,
    /// Programming a page.
    #[serde(deserialize_with = "span")]
    pub(crate) program: Duration,
    /// Erasing a block.
    #[serde(deserialize_with = "span")]
    pub(crate) erase: Duration,
}

/// `[store.small]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SmallPart {
    /// Keys that the translation cache knows, in thousandths.
    pub(crate) translated_thousandths: u32,
}

/// `[store.run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RunPart {
    /// Puts before anything is measured, until so many times the device's bytes were programmed.
    pub(crate) precondition: f64,
    /// With each place's mix, before it is measured.
    #[serde(deserialize_with = "span")]
    pub(crate) settle: Duration,
    /// How long each place is measured.
    #[serde(deserialize_with = "span")]
    pub(crate) measure: Duration,
}

const fn is_told() -> bool {
    true
}

/// A store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreKind {
    /// SEMEL's: one index and one collector over flash.
    Mftl,
    /// The split design.
    Vftl,
    /// The same over a drive that is told nothing: what the store has erased stays alive there until it
    /// is written again.
    VftlUntold,
    /// One version of each key, over a translation layer.
    Sftl,
    /// SkimpyFTL's, with its index on flash.
    Skimpy,
    /// The same with fewer translations.
    SkimpySmall,
}

impl StoreKind {
    const NAMES: [&str; 6] = ["mftl", "vftl", "vftl-untold", "sftl", "skimpy", "skimpy-small"];
    const ALL: [Self; 6] =
        [Self::Mftl, Self::Vftl, Self::VftlUntold, Self::Sftl, Self::Skimpy, Self::SkimpySmall];

    /// As in files and figures.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl<'de> Deserialize<'de> for StoreKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(deserializer, "store", &Self::NAMES).map(|index| Self::ALL[index])
    }
}

/// What the horizontal axis is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// Share of gets, per cent.
    GetShare,
    /// Share of puts, per cent.
    PutShare,
    /// Keys of a bucket.
    KeysPerBucket,
    /// Sessions, each with a transaction at a time: those of [YCSB as a social
    /// network](timestone_workload::WorkloadKind::YcsbSocial).
    Sessions,
}

impl Sweep {
    const NAMES: [&str; 4] = ["get-share", "put-share", "keys-per-bucket", "sessions"];
    const ALL: [Self; 4] = [Self::GetShare, Self::PutShare, Self::KeysPerBucket, Self::Sessions];

    /// As in files.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl<'de> Deserialize<'de> for Sweep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(deserializer, "axis", &Self::NAMES).map(|index| Self::ALL[index])
    }
}

/// Fewest keys of a scaled experiment: below, its device is hardly larger than what stores keep
/// back.
const FEWEST_KEYS: u64 = 5_000;

impl StorePart {
    pub(crate) fn check(&self) -> Result<(), String> {
        let share = |of: f64| (0.0..=100.0).contains(&of);
        let is_wrong = match self.sweep {
            Sweep::GetShare | Sweep::PutShare => !self.over.iter().all(|x| share(*x)),
            Sweep::KeysPerBucket => !self.over.iter().all(|x| (1.0..=1e6).contains(x)),
            Sweep::Sessions => {
                let most = f64::from(self.in_flight);
                !self.over.iter().all(|x| (1.0..=most).contains(x) && x.fract() == 0.0)
            }
        };
        if is_wrong || self.over.is_empty() || self.compare.is_empty() || !share(self.put_share) {
            return Err(format!(
                "[store] compares at least one store over at least one place; shares are between 0 \
                 and 100, sessions as many as in-flight at most, and {:?} are none of {}",
                self.over,
                self.sweep.name()
            ));
        }
        let device = &self.device;
        if !(1..=device.channels).contains(&device.channels_per_block)
            || device.queue_depth == 0
            || device.pages_per_block < timestone_flash::limits::MIN_PAGES_PER_BLOCK
        {
            return Err("[store.device] has no such SSD: a block lies on channels that are \
                        there, has some pages, and operations are queued"
                .to_owned());
        }
        if !self.in_flight_at.iter().all(|(_, requests)| (1..=self.in_flight).contains(requests)) {
            return Err(format!(
                "[store] has between 1 and {} requests in flight at a place, as in-flight says",
                self.in_flight
            ));
        }
        if self.compare.contains(&StoreKind::SkimpySmall) && self.small.is_none() {
            return Err("[store.small] says what skimpy-small knows in memory".to_owned());
        }
        if self.in_flight == 0 || self.keys == 0 || self.key_bytes < 16 {
            return Err("[store] has at least one key of at least 16 bytes, and one request in \
                        flight"
                .to_owned());
        }
        Ok(())
    }

    /// The same with so many times the keys on so many times the device. The scale that this came
    /// to.
    pub(crate) fn scaled(&self, scale: f64) -> (Self, f64) {
        let fewest = FEWEST_KEYS.min(self.keys) as f64 / self.keys as f64;
        let scale = scale.max(fewest);
        let mut part = self.clone();
        part.keys = (self.keys as f64 * scale) as u64;
        part.device.capacity_bytes = (self.device.capacity_bytes as f64 * scale) as u64;
        // Less is there to be measured, and a quick look is to be quick.
        let shorter = scale.clamp(0.05, 1.0).sqrt();
        part.run.settle = self.run.settle.mul_f64(shorter);
        part.run.measure = self.run.measure.mul_f64(shorter);
        (part, scale)
    }

    /// Requests under way at a place of the axis.
    pub(crate) fn in_flight_at(&self, x: f64) -> u32 {
        let known = self.in_flight_at.iter().find(|(place, _)| *place == x);
        known.map_or(self.in_flight, |(_, requests)| *requests)
    }

    /// Share of puts at a place of the axis.
    pub(crate) fn put_share_at(&self, x: f64) -> f64 {
        match self.sweep {
            Sweep::GetShare => 100.0 - x,
            Sweep::PutShare => x,
            Sweep::KeysPerBucket | Sweep::Sessions => self.put_share,
        }
    }

    /// Blocks of the device.
    pub(crate) fn blocks(&self) -> u32 {
        let block_bytes =
            u64::from(self.device.pages_per_block) * timestone_flash::PAGE_BYTES as u64;
        u32::try_from(self.device.capacity_bytes.div_ceil(block_bytes)).unwrap_or(u32::MAX)
    }
}
