//! The figures of the cost model, as a file holds them.
//!
//! `costs.toml` beside this crate's manifest comes with the binary;
//! `cargo run --release -p timestone-sim --example calibrate` writes such a file for the machine
//! that it runs on. All figures are nanoseconds of one core: of a call, an event, a frame, or a
//! byte.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timestone_wire::Kind;

use crate::CostError;

/// The figures of the machine that docs/benchmarks.md names.
const USUAL: &str = include_str!("../costs.toml");

/// The largest figure: nothing that is measured takes a quarter of an hour. Larger ones lose their
/// last digits when they are written.
const MOST_NANOS: f64 = 1e12;

/// What work costs, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostTable {
    /// What `bench` does for each transaction besides: looking at the clock twice, and writing down
    /// what came of it.
    pub bookkeeping: f64,
    /// Threads, turns and sleep.
    pub thread: ThreadCosts,
    /// System calls on sockets.
    pub socket: SocketCosts,
    /// What the operating system spends on devices.
    pub device: DeviceCosts,
    /// The stages' own work, by kind of stage.
    pub stages: BTreeMap<StageKind, StageCosts>,
}

/// `[thread]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadCosts {
    /// A turn: one look at the poller, and the loop around the stages.
    pub turn: f64,
    /// A thread that slept, until it runs.
    pub switch: f64,
    /// How long a core that has been idle for [`Self::LONG_IDLE`] or more takes to run a thread
    /// that is woken; no CPU time.
    pub wake_latency: Varying,
    /// The same for one that has been idle for [`Self::SHORT_IDLE`] or less: the host has not given
    /// it to others yet. Between the two, it is something between.
    pub wake_latency_soon: Varying,
    /// The same for one that has been idle for less than [`Self::HALTING`], and has not halted yet.
    pub wake_latency_at_once: Varying,
    /// What a thread spends to wake another one, which gets a core when one is free.
    pub wake_call: f64,
    /// The same where a core that has halted, for it has nothing to do, is called for it: on
    /// virtual machines, that goes through the host.
    pub wake_idle: f64,
    /// CPU time between two interruptions, by timers or by the host; none: there are no
    /// interruptions.
    pub interrupted_every: f64,
    /// How long one lasts.
    pub interruption: Varying,
    /// What work takes more, as a multiple of what arithmetic in registers takes more, while others
    /// on the same hardware have the other half of a core: they share its caches as well.
    pub neighbours: f64,
}

impl ThreadCosts {
    /// How long a core that has nothing to do takes until it halts: Linux puts its tick off first.
    /// As was seen in traces.
    pub const HALTING: Duration = Duration::from_micros(12);
    /// See [`Self::wake_latency_soon`].
    pub const SHORT_IDLE: Duration = Duration::from_micros(50);
    /// See [`Self::wake_latency`]. As between two batches of a loaded server.
    pub const LONG_IDLE: Duration = Duration::from_micros(200);

    /// How many times as long work takes where arithmetic takes so many times as long, for others
    /// have the other half of the core; see [`Self::neighbours`].
    #[must_use]
    pub fn beside(neighbours: f64, arithmetic: f64) -> f64 {
        1.0 + neighbours * (arithmetic - 1.0)
    }

    /// How long a core takes that has been idle for so long, by a fraction that was drawn.
    pub fn latency_at(&self, fraction: f64, idle: Duration) -> f64 {
        if idle < Self::HALTING {
            return self.wake_latency_at_once.at(fraction);
        }
        let (soon, late) = (self.wake_latency_soon.at(fraction), self.wake_latency.at(fraction));
        let beyond = idle.saturating_sub(Self::SHORT_IDLE).as_secs_f64();
        let part = (beyond / (Self::LONG_IDLE - Self::SHORT_IDLE).as_secs_f64()).min(1.0);
        soon + (late - soon) * part
    }
}

/// A time that varies from one measurement to the next: what it is at [`Varying::FRACTIONS`] of
/// them, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Varying([f64; Self::FRACTIONS.len()]);

impl Varying {
    /// The quantiles that are kept. Both tails matter: who wakes early finds a writer at work, and
    /// whoever is late is waited for. One time in a thousand is another tenant's, of milliseconds:
    /// what is between must not be taken for half of that.
    pub const FRACTIONS: [f64; 8] = [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.997, 0.999];

    /// The quantiles of measurements; without any, the time is none.
    #[must_use]
    pub fn of(mut measured: Vec<f64>) -> Self {
        measured.sort_unstable_by(f64::total_cmp);
        let at = |fraction: f64| measured.get((fraction * measured.len() as f64) as usize).copied();
        Self(Self::FRACTIONS.map(|fraction| at(fraction).unwrap_or(0.0)))
    }

    /// The same, each time less by so much, and none negative.
    #[must_use]
    pub fn less(self, by: f64) -> Self {
        Self(self.0.map(|time| (time - by).max(0.0)))
    }

    /// One such time, by a fraction that was drawn: between the quantiles beside it, nearer to the
    /// lower as tails are, and never beyond the outermost.
    pub fn at(&self, fraction: f64) -> f64 {
        let above = Self::FRACTIONS.partition_point(|known| *known < fraction);
        let (Some(before), true) = (above.checked_sub(1), above < self.0.len()) else {
            return self.0[above.min(self.0.len() - 1)];
        };
        let part = (fraction - Self::FRACTIONS[before])
            / (Self::FRACTIONS[above] - Self::FRACTIONS[before]);
        let (low, high) = (self.0[before], self.0[above]);
        if low > 0.0 { low * (high / low).powf(part) } else { high * part }
    }
}

/// `[socket]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SocketCosts {
    /// A read, whatever it finds.
    pub read: f64,
    /// Each byte read.
    pub read_byte: f64,
    /// Each byte read that was written on another core.
    pub far_read_byte: f64,
    /// A write: the way through the stack to the peer's socket is in it.
    pub write: f64,
    /// Each byte written.
    pub write_byte: f64,
    /// Each byte written that is read on another core.
    pub far_write_byte: f64,
    /// A connection made or accepted.
    pub open: f64,
}

/// `[device]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeviceCosts {
    /// An operation of a flash device.
    pub flash: f64,
    /// Each byte of it.
    pub flash_byte: f64,
    /// How long a read of a page takes; no CPU time.
    pub flash_read_latency: f64,
    /// How long a program of a block takes; no CPU time.
    pub flash_program_latency: f64,
    /// A write of a log with its sync.
    pub log: f64,
    /// Each byte of it.
    pub log_byte: f64,
    /// How long a small one takes; no CPU time.
    pub log_latency: f64,
    /// For how long a core is interrupted, whoever works there, when [`Self::INTERRUPTS`] bytes
    /// have been read or written, or less if less was asked for. Where a machine has one core, it
    /// is in the figures above.
    pub interruption: f64,
}

impl DeviceCosts {
    /// How many bytes a disk does at once, as was seen under a store's load: an interruption tells
    /// of so many.
    pub const INTERRUPTS: u64 = 64 * 1024;
}

/// The kinds of stages, by what their work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// A server's connections.
    Net,
    /// A shard.
    Shard,
    /// A log.
    Log,
    /// Whatever else a server has.
    Other,
    /// A client's connections.
    ClientNet,
    /// A client's event loop, its sessions included.
    Client,
}

impl StageKind {
    /// How many kinds there are.
    pub const COUNT: usize = 6;
    const ALL: [Self; Self::COUNT] =
        [Self::Net, Self::Shard, Self::Log, Self::Other, Self::ClientNet, Self::Client];

    /// The kind of a server's stage with this name.
    pub fn of_server(name: &str) -> Self {
        match name.split('-').next().unwrap_or_default() {
            "native" | "resp" => Self::Net,
            "shard" => Self::Shard,
            "log" => Self::Log,
            _ => Self::Other,
        }
    }

    /// The kind of a client's stage with this name.
    pub fn of_client(name: &str) -> Self {
        if name == "net" { Self::ClientNet } else { Self::Client }
    }

    /// Whether what it is given are frames that cost by their kinds; net stages pass batches of
    /// frames on as they are.
    pub const fn takes_frames(self) -> bool {
        matches!(self, Self::Shard | Self::Other | Self::Client)
    }
}

/// The own work of a kind of stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StageCosts {
    /// Being run in a turn, whatever there is to do.
    pub run: f64,
    /// An event, its frames aside.
    pub event: f64,
    /// Each byte of the events.
    pub byte: f64,
    /// Net stages: a read of a socket, the system call aside.
    pub read: f64,
    /// Net stages: each byte read.
    pub read_byte: f64,
    /// Net stages: a write of a socket, the system call aside.
    pub write: f64,
    /// Net stages: each byte written.
    pub write_byte: f64,
    /// Shards: each byte that their flash devices read or write, the operating system's part aside.
    /// What is read there is looked through.
    pub flash_byte: f64,
    /// A frame of a kind that is not named.
    pub frame: f64,
    /// A frame of each kind that was met often enough to know.
    pub frames: BTreeMap<String, f64>,
    /// What is added to all of it, as a share of it, where a process has its stages on several
    /// cores: what one has in its caches, another has to fetch.
    pub far: f64,
}

impl StageCosts {
    /// The same where stages are on several cores.
    fn on_several_cores(&self) -> Self {
        let more = |nanos: f64| nanos * (1.0 + self.far);
        Self {
            run: more(self.run),
            event: more(self.event),
            byte: more(self.byte),
            read: more(self.read),
            read_byte: more(self.read_byte),
            write: more(self.write),
            write_byte: more(self.write_byte),
            flash_byte: more(self.flash_byte),
            frame: more(self.frame),
            frames: self.frames.iter().map(|(name, nanos)| (name.clone(), more(*nanos))).collect(),
            far: self.far,
        }
    }
}

impl CostTable {
    /// The figures that come with the binary.
    ///
    /// # Errors
    /// They are broken, which a test rules out.
    pub fn usual() -> Result<Self, CostError> {
        Self::read("costs.toml", USUAL)
    }

    /// Reads a file's text; `file` is how errors call it.
    ///
    /// # Errors
    /// [`CostError`], which names the file and what is wrong in it.
    pub fn read(file: &str, text: &str) -> Result<Self, CostError> {
        let wrong = |what: String| CostError(format!("{file}: {what}"));
        let table: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let values = toml::Value::try_from(&table).map_err(|error| wrong(error.to_string()))?;
        if let Some((name, figure)) = senseless(&values) {
            return Err(wrong(format!(
                "{name} is {figure}; costs are nanoseconds, from 0 to {MOST_NANOS:e}"
            )));
        }
        if let Some(kind) = StageKind::ALL.iter().find(|kind| !table.stages.contains_key(kind)) {
            return Err(wrong(format!(
                "there are no costs of the stage {kind:?}; calibrate again to have them"
            )));
        }
        let names = table.stages.values().flat_map(|stage| stage.frames.keys());
        if let Some(name) = names.into_iter().find(|name| kind_of(name).is_none()) {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            return Err(wrong(format!(
                "there are no frames called {name:?}; the kinds are {}",
                known.join(", ")
            )));
        }
        Ok(table)
    }

    /// As the text of a file, with figures as exact as they are: a few digits.
    ///
    /// # Errors
    /// A figure cannot be written as TOML.
    pub fn write(&self) -> Result<String, CostError> {
        let table = toml::Value::try_from(self).map(rounded);
        let text = table.and_then(|table| toml::to_string(&table));
        text.map_err(|error| CostError(format!("costs cannot be written: {error}")))
    }
}

/// The first figure that no work costs, with its key.
fn senseless(value: &toml::Value) -> Option<(String, f64)> {
    match value {
        toml::Value::Float(figure) => {
            (!(0.0..=MOST_NANOS).contains(figure)).then(|| (String::new(), *figure))
        }
        toml::Value::Array(values) => values.iter().find_map(senseless),
        toml::Value::Table(table) => table.iter().find_map(|(name, value)| {
            let (inner, figure) = senseless(value)?;
            let name = if inner.is_empty() { name.clone() } else { format!("{name}.{inner}") };
            Some((name, figure))
        }),
        _ => None,
    }
}

fn rounded(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Float(figure) => toml::Value::Float((figure * 1e4).round() / 1e4),
        toml::Value::Array(values) => toml::Value::Array(values.into_iter().map(rounded).collect()),
        toml::Value::Table(table) => toml::Value::Table(
            table.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        ),
        other => other,
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|kind| kind.name() == name)
}

/// A stage's costs, frames by their number.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) own: StageCosts,
    pub(crate) frames: [f64; 256],
}

impl Compiled {
    /// The costs of all kinds of stages, in the order of [`StageKind`], where stages are on one
    /// core or on several.
    pub(crate) fn all(table: &CostTable, several_cores: bool) -> Vec<Self> {
        let of = |kind| {
            let own = table.stages.get(kind).cloned().unwrap_or_default();
            Self::of(if several_cores { own.on_several_cores() } else { own })
        };
        StageKind::ALL.iter().map(of).collect()
    }

    fn of(own: StageCosts) -> Self {
        let mut frames = [own.frame; 256];
        for (name, cost) in &own.frames {
            if let Some(kind) = kind_of(name) {
                frames[kind as usize] = *cost;
            }
        }
        Self { own, frames }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_that_come_along_are_whole_and_survive_a_round_trip() {
        let table = CostTable::usual().unwrap();
        assert_eq!(CostTable::read("again", &table.write().unwrap()).unwrap(), table);
        assert!(table.stages[&StageKind::Shard].frames.contains_key("Get"));
        assert!(table.thread.turn > 0.0 && table.socket.write > 0.0 && table.device.log > 0.0);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let table = CostTable::usual().unwrap();
        let mut odd = table.clone();
        odd.stages.get_mut(&StageKind::Shard).unwrap().frames.insert("Gett".to_owned(), 1.0);
        let said = CostTable::read("my.toml", &odd.write().unwrap()).unwrap_err().to_string();
        assert!(
            said.contains("my.toml") && said.contains("\"Gett\"") && said.contains("Prepare"),
            "{said}"
        );
        let text = table.write().unwrap();
        let turn = format!("turn = {:?}", table.thread.turn);
        assert!(text.contains(&turn), "{text}");
        for bad in ["nan", "inf", "-1.0", "1e300"] {
            let said = CostTable::read("my.toml", &text.replace(&turn, &format!("turn = {bad}")))
                .unwrap_err()
                .to_string();
            assert!(
                said.contains("my.toml: thread.turn is ") && said.contains("from 0 to 1e12"),
                "{said}"
            );
        }
        let mut less = table;
        less.stages.remove(&StageKind::Log);
        let said = CostTable::read("my.toml", &less.write().unwrap()).unwrap_err().to_string();
        assert!(said.contains("Log"), "{said}");
    }
}
