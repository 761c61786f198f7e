//! Log lines: for people on a terminal, one JSON object each otherwise; always on standard error.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::output::{errors_are_coloured, errors_are_seen};

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum LogFormat {
    /// For people on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err("it must be auto, human or json".to_owned()),
        }
    }
}

/// Reads which lines are let through.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::builder().parse(text).map_err(|error| {
        Failure::usage(format!("the log filter '{text}' is none: {error}; write it as in RUST_LOG"))
    })
}

/// Starts to write the lines that the filter lets through.
pub(crate) fn start(text: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = filter(text)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_json = match format {
        LogFormat::Auto => !errors_are_seen(),
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let started = match is_json {
        true => lines.json().flatten_event(true).try_init(),
        false => lines.with_ansi(errors_are_coloured()).with_target(false).try_init(),
    };
    started.map_err(|error| Failure::failed(format!("could not start to log: {error}")))
}

/// For commands that talk to a server: nothing, unless `RUST_LOG` asks for it; their errors say
/// what matters.
pub(crate) fn start_if_asked() -> Result<(), Failure> {
    match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => start(&filter, LogFormat::Auto),
        _ => Ok(()),
    }
}
