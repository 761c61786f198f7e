//! What the fuzz targets need of this crate, which is private otherwise: entries that read files as
//! people write them.
//!
//! Only with the feature `fuzz`. The readers say an error to what makes no sense; a panic, or
//! something that reads back as something else, is what these entries look for.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use timestone::Timestamp;

use crate::moment::Moment;
use crate::script::{self, Statement, Test};
use crate::settings::{ServeArgs, Settings, read_text};

/// Reads a configuration file's text. Its settings read back from the lines that `config show`
/// prints.
///
/// # Panics
/// When a reader breaks its word.
pub fn settings(text: &str) {
    let Some(settings) = settings_of(text) else { return };
    let _ = settings.log_format();
    // Names of hosts would be looked up in the network.
    let places = ["listen", "resp", "http", "advertise", "master"];
    let known = |value: &str| {
        ["", "none", "embedded"].contains(&value) || value.parse::<SocketAddr>().is_ok()
    };
    if settings.iter().all(|setting| !places.contains(&setting.name) || known(&setting.value)) {
        let _ = settings.server_config();
    }
    let lines: String = settings.iter().map(|setting| setting.line() + "\n").collect();
    let again = settings_of(&lines)
        .unwrap_or_else(|| panic!("what `config show` prints is refused:\n{lines}"));
    for (one, other) in settings.iter().zip(again.iter()) {
        assert_eq!(
            (one.name, &one.value),
            (other.name, &other.value),
            "a setting reads back as something else"
        );
    }
}

fn settings_of(text: &str) -> Option<Settings> {
    let table = read_text(Path::new("fuzz.toml"), text).ok()?;
    Some(Settings::with_table(&ServeArgs::default(), &table, |_| false))
}

/// Reads a transaction's script. Its statements read back from words in quotes.
///
/// # Panics
/// When a reader breaks its word.
pub fn script(text: &[u8]) {
    if let Ok(Ok(moment)) = std::str::from_utf8(text).map(str::parse::<Moment>) {
        let _ = moment.resolve(Timestamp::from_nanos(u64::MAX / 2));
    }
    let Ok(statements) = script::parse(text) else { return };
    for (_, statement) in &statements {
        let Some(line) = line_of(statement) else { continue };
        let again = script::parse_line(line.as_bytes());
        assert_eq!(again.as_ref(), Ok(&Some(statement.clone())), "{line} reads as something else");
    }
}

/// A line that says the same; `None` for what has a point in time, which has many forms.
fn line_of(statement: &Statement) -> Option<String> {
    let line = match statement {
        Statement::Get(key) => format!("get {}", quoted(key)),
        Statement::Scan(prefix) => format!("scan {}", quoted(prefix)),
        Statement::Put { key, value, end: None } => {
            format!("put {} {}", quoted(key), quoted(value))
        }
        Statement::Put { end: Some(end), .. } => {
            let _ = end.resolve(Timestamp::from_nanos(u64::MAX / 2));
            return None;
        }
        Statement::Delete(key) => format!("delete {}", quoted(key)),
        Statement::If(key, Test::Is(value)) => format!("if {} = {}", quoted(key), quoted(value)),
        Statement::If(key, Test::IsNot(value)) => {
            format!("if {} != {}", quoted(key), quoted(value))
        }
        Statement::If(key, Test::Exists) => format!("if {} exists", quoted(key)),
        Statement::If(key, Test::Absent) => format!("if {} absent", quoted(key)),
        Statement::Commit => "commit".to_owned(),
        Statement::Abort => "abort".to_owned(),
    };
    Some(line)
}

fn quoted(word: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in word {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
    out + "\""
}
