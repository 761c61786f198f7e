//! The experiments that there are, and how one is run.

use crate::error::ReproError;
use crate::measured::Measured;
use crate::progress::{Progress, ProgressPart};
use crate::spec::{Spec, nearest};
use crate::store;
use crate::txn;

/// The files of `scenarios/repro/`, in the order of papers and figures.
const KNOWN: [(&str, &str); 10] = [
    ("semel-t1", include_str!("../../../scenarios/repro/semel-t1.toml")),
    ("semel-t1-ssd", include_str!("../../../scenarios/repro/semel-t1-ssd.toml")),
    ("milana-f6", include_str!("../../../scenarios/repro/milana-f6.toml")),
    ("milana-f7", include_str!("../../../scenarios/repro/milana-f7.toml")),
    ("milana-f8", include_str!("../../../scenarios/repro/milana-f8.toml")),
    ("milana-f9", include_str!("../../../scenarios/repro/milana-f9.toml")),
    ("skimpy-f1", include_str!("../../../scenarios/repro/skimpy-f1.toml")),
    ("skimpy-f4", include_str!("../../../scenarios/repro/skimpy-f4.toml")),
    ("skimpy-f5", include_str!("../../../scenarios/repro/skimpy-f5.toml")),
    ("skimpy-f6", include_str!("../../../scenarios/repro/skimpy-f6.toml")),
];

/// A table or figure of a paper, and how it is reproduced.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub(crate) spec: Spec,
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// So many times the paper's keys, on so many times its device.
    pub scale: f64,
    /// Another seed than the file's.
    pub seed: Option<u64>,
    /// By the machine's clock, where the experiment can.
    pub in_real_time: bool,
}

impl Experiment {
    /// All of them, in the order of papers and figures.
    ///
    /// # Errors
    /// [`ReproError::Spec`] when a file that came with the binary is wrong.
    pub fn all() -> Result<Vec<Self>, ReproError> {
        KNOWN.iter().map(|(id, text)| Self::read(id, text)).collect()
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ReproError::Unknown`], which names the nearest known one.
    pub fn find(id: &str) -> Result<Self, ReproError> {
        let known = KNOWN.iter().find(|(known, _)| *known == id);
        let (id, text) = known.ok_or_else(|| ReproError::Unknown {
            name: id.to_owned(),
            nearest: nearest(id, KNOWN.iter().map(|(id, _)| *id)).to_owned(),
        })?;
        Self::read(id, text)
    }

    fn read(id: &str, text: &str) -> Result<Self, ReproError> {
        let name = format!("scenarios/repro/{id}.toml");
        let spec = Spec::read(&name, text)?;
        if spec.id != id {
            return Err(ReproError::Spec(format!("{name}: its id is {:?}", spec.id)));
        }
        Ok(Self { spec })
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.spec.id
    }

    /// The paper, and where in it.
    #[must_use]
    pub fn source(&self) -> String {
        format!("{}, {}", self.spec.paper, self.spec.section)
    }

    /// What is compared, in a line.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.spec.title
    }

    /// The seed of its file.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.spec.seed
    }

    /// Whether it can run by the machine's clock.
    #[must_use]
    pub fn runs_in_real_time(&self) -> bool {
        self.spec.store.as_ref().is_some_and(|store| store.real_time)
    }

    /// Runs it. The second result is the scale that it came to: below some size there is nothing to
    /// measure.
    ///
    /// # Errors
    /// A store that refuses what the experiment needs, and [`ReproError::Interrupted`].
    pub fn run(
        &self,
        options: RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<(Measured, f64), ReproError> {
        if options.in_real_time && !self.runs_in_real_time() {
            return Err(ReproError::VirtualOnly(self.spec.id.clone()));
        }
        let seed = options.seed.unwrap_or(self.spec.seed);
        let mut whole = ProgressPart::of(progress, 0, 1);
        if let Some(store) = &self.spec.store {
            let (part, scale) = store.scaled(options.scale);
            let measured = store::run(&part, seed, options.in_real_time, &mut whole)?;
            return Ok((measured, scale));
        }
        let Some(transactions) = &self.spec.transactions else {
            return Err(ReproError::Spec(format!("{} runs nothing", self.spec.id)));
        };
        let (part, scale) = transactions.scaled(options.scale);
        Ok((txn::run(&part, seed, &mut whole)?, scale))
    }
}
