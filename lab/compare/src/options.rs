//! What the command line says.

use std::path::PathBuf;
use std::time::Duration;

use crate::Fault;
use crate::plan::{Case, Column, EngineKind};

const USAGE: &str = "\
compare run ENGINE [flags]     one engine, column and number of threads: all its mixes, one row each
compare all [flags]            every engine, column and number of threads, each in a process and a directory of its own;
                               rows are appended to the CSV as they come, and what it has already is not run again
compare table [--csv FILE]     the CSV as Markdown

ENGINE is rocksdb, fjall, lmdb, redb, timestone, timestone-blocking, timestone-store, or nothing (the harness alone).
After an @ stands how many operations each thread keeps under way, for timestone and timestone-store: timestone@32.

  --dir DIR          where data goes, on the disk to be measured (target/compare)
  --column C         memory, tenth or sync (run: memory); all: several, with commas (all three)
  --threads N        1 or 2 (run: 1); all: several, with commas (1,2); the column sync always has 16 writers
  --engines LIST     all: which, with commas (rocksdb,fjall,lmdb,redb,timestone@1,timestone@32,timestone-store@1,timestone-store@32)
  --mixes LIST       shares of gets, per cent, with commas (100,95,50; the column sync: 50)
  --keys N           instead of the column's: 2 M in memory, 5 M with a tenth, 1 M with a sync for each put
  --seconds S        least length of a measurement (60)
  --most-seconds S   most, where write amplification is not steady before (4 times --seconds)
  --warmup S         before each measurement (10)
  --capacity F       what timestone may use of the device, as a multiple of all tuples (2)
  --cgroup DIR       a control group of the memory controller, version 1 or 2, under which a group with the column's limit is made
                     for each run of the column tenth; without it only the stores' own settings limit memory
  --csv FILE         all, table: the rows (target/compare/rows.csv)
  -o json|text       run: how rows are printed (text)
  --keep             leave the data directory behind";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Run,
    All,
    Table,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) command: Command,
    pub(crate) dir: PathBuf,
    pub(crate) csv: PathBuf,
    pub(crate) engines: Vec<EngineKind>,
    pub(crate) columns: Vec<Column>,
    pub(crate) threads: Vec<usize>,
    pub(crate) mixes: Option<Vec<u64>>,
    pub(crate) keys: Option<u64>,
    pub(crate) seconds: Duration,
    pub(crate) most_seconds: Option<Duration>,
    pub(crate) warmup: Duration,
    pub(crate) capacity: f64,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) keep: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Fault> {
        let mut words = arguments.iter().map(String::as_str);
        let command = match words.next() {
            Some("run") => Command::Run,
            Some("all") => Command::All,
            Some("table") => Command::Table,
            _ => return Err(USAGE.into()),
        };
        let mut options = Self {
            command,
            dir: PathBuf::from("target/compare"),
            csv: PathBuf::from("target/compare/rows.csv"),
            engines: Vec::new(),
            columns: vec![Column::Memory, Column::Tenth, Column::Sync],
            threads: vec![1, 2],
            mixes: None,
            keys: None,
            seconds: Duration::from_secs(60),
            most_seconds: None,
            warmup: Duration::from_secs(10),
            capacity: 2.0,
            cgroup: None,
            json: false,
            keep: false,
        };
        if command == Command::Run {
            options.engines = list(words.next().ok_or(USAGE)?)?;
            (options.columns, options.threads) = (vec![Column::Memory], vec![1]);
        }
        while let Some(flag) = words.next() {
            if flag == "--keep" {
                options.keep = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
            match flag {
                "--dir" => options.dir = value.into(),
                "--csv" => options.csv = value.into(),
                "--column" => options.columns = list(value)?,
                "--threads" => options.threads = list(value)?,
                "--engines" => options.engines = list(value)?,
                "--mixes" => options.mixes = Some(list(value)?),
                "--keys" => options.keys = Some(value.parse()?),
                "--seconds" => options.seconds = Duration::try_from_secs_f64(value.parse()?)?,
                "--most-seconds" => {
                    options.most_seconds = Some(Duration::try_from_secs_f64(value.parse()?)?);
                }
                "--warmup" => options.warmup = Duration::try_from_secs_f64(value.parse()?)?,
                "--capacity" => options.capacity = value.parse()?,
                "--cgroup" => options.cgroup = Some(value.into()),
                "-o" => options.json = value == "json",
                _ => return Err(format!("there is no flag {flag}\n{USAGE}").into()),
            }
        }
        options.check()?;
        Ok(options)
    }

    fn check(&mut self) -> Result<(), Fault> {
        if self.engines.is_empty() {
            self.engines = EngineKind::usual();
        }
        if self.threads.iter().any(|&threads| threads == 0 || threads > 16) {
            return Err("--threads: 1 to 16".into());
        }
        if self.mixes.iter().flatten().any(|&gets| gets > 100) {
            return Err("--mixes: shares of gets from 0 to 100 per cent".into());
        }
        if self.keys.is_some_and(|keys| keys < 1000) {
            return Err("--keys: at least 1000".into());
        }
        if !(1.3..=100.0).contains(&self.capacity) {
            return Err("--capacity: from 1.3 to 100 times the tuples".into());
        }
        Ok(())
    }

    /// The one case that `run` measures.
    pub(crate) fn case(&self) -> Result<Case, Fault> {
        let ([engine], [column], [threads]) =
            (self.engines.as_slice(), self.columns.as_slice(), self.threads.as_slice())
        else {
            return Err("run measures one engine, column and number of threads".into());
        };
        Ok(self.case_of(*engine, *column, *threads))
    }

    pub(crate) fn case_of(&self, engine: EngineKind, column: Column, threads: usize) -> Case {
        Case {
            engine,
            column,
            threads: if column == Column::Sync { crate::plan::SYNC_THREADS } else { threads },
            keys: self.keys.unwrap_or(column.keys()),
            mixes: self.mixes.clone().unwrap_or_else(|| column.mixes()),
            capacity: self.capacity,
        }
    }

    pub(crate) fn longest(&self) -> Duration {
        self.most_seconds.unwrap_or(self.seconds * 4).max(self.seconds)
    }
}

fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, Fault>
where
    T::Err: Into<Fault>,
{
    text.split(',').map(|word| word.parse().map_err(Into::into)).collect()
}
