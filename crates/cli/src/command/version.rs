//! `timestone version`.

use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};

/// Prints the version.
pub(crate) fn run(format: Format) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => write_json(&serde_json::json!({ "name": "timestone", "version": version })),
        Format::Text | Format::Table => write_line(&format!("timestone {version}")),
    }
}
