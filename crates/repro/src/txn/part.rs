//! `[transactions]`: the scenario, what differs between series, and the axis.

use serde::{Deserialize, Deserializer};
use timestone_sim::{ClusterPart, ProtocolPart, Scenario};

use crate::spec::one_of;

/// `[transactions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TransactionsPart {
    /// The horizontal axis.
    pub(crate) sweep: Sweep,
    /// Its places.
    pub(crate) over: Vec<f64>,
    /// What is compared.
    pub(crate) series: Vec<SeriesPart>,
    /// Everything that all series share: a scenario of the simulator.
    pub(crate) scenario: Scenario,
}

/// `[[transactions.series]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SeriesPart {
    /// As in figures.
    pub(crate) name: String,
    /// What the cluster is besides: its clocks.
    pub(crate) cluster: ClusterPart,
    /// What is left out of the protocol, or takes its place.
    #[serde(default)]
    pub(crate) protocol: ProtocolPart,
    /// Its own contention, where that is not the axis.
    pub(crate) zipf: Option<f64>,
}

/// What the horizontal axis is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// Zipf's exponent.
    Zipf,
    /// Sessions of all clients.
    Sessions,
}

impl Sweep {
    const NAMES: [&str; 2] = ["zipf", "sessions"];
    const ALL: [Self; 2] = [Self::Zipf, Self::Sessions];

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

/// Fewest keys of a scaled experiment.
const FEWEST_KEYS: u64 = 500;
/// The shortest that a scaled one lasts, by what it lasts in full.
const SHORTEST: f64 = 0.1;

impl TransactionsPart {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.series.is_empty() || self.over.is_empty() {
            return Err("[transactions] has at least one series and one place".to_owned());
        }
        let workload = &self.scenario.workload;
        if !workload.closed || workload.mix.keys.is_none() {
            return Err("[transactions.scenario.workload] is closed and says how many keys there \
                        are"
            .to_owned());
        }
        let clients = f64::from(self.scenario.cluster.clients.unwrap_or(1));
        let is_whole = |x: &f64| *x >= clients && (x / clients).fract() == 0.0;
        if self.sweep == Sweep::Sessions && !self.over.iter().all(is_whole) {
            return Err(format!(
                "[transactions] goes over sessions: multiples of the {clients} clients"
            ));
        }
        Ok(())
    }

    /// The same with so many times the keys, for a shorter time. The scale that this came to.
    pub(crate) fn scaled(&self, scale: f64) -> (Self, f64) {
        let mut part = self.clone();
        let keys = part.scenario.workload.mix.keys.unwrap_or(FEWEST_KEYS);
        let scale = scale.max(FEWEST_KEYS.min(keys) as f64 / keys as f64);
        part.scenario.workload.mix.keys = Some((keys as f64 * scale) as u64);
        let shorter = scale.sqrt().clamp(SHORTEST, 1.0);
        part.scenario.workload.seconds *= shorter;
        part.scenario.workload.warmup.0 = part.scenario.workload.warmup.0.mul_f64(shorter);
        for series in &mut part.series {
            // As many keys are written between two watermarks, of those that there are.
            let every = &mut series.protocol.watermark_every;
            *every = every.map(|every| ((f64::from(every) * scale) as u32).max(1));
        }
        (part, scale)
    }

    /// The scenario of a series at a place.
    pub(crate) fn scenario_of(&self, series: &SeriesPart, x: f64) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.cluster.clocks = series.cluster.clocks.or(scenario.cluster.clocks);
        scenario.cluster.client_clocks =
            series.cluster.client_clocks.or(scenario.cluster.client_clocks);
        scenario.protocol = series.protocol;
        scenario.workload.mix.zipf = series.zipf.or(scenario.workload.mix.zipf);
        match self.sweep {
            Sweep::Zipf => scenario.workload.mix.zipf = Some(x),
            Sweep::Sessions => {
                let clients = scenario.cluster.clients.unwrap_or(1);
                scenario.cluster.sessions = Some((x / f64::from(clients)) as u32);
            }
        }
        scenario
    }
}
