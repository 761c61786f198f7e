//! The targets of what people write: settings, scripts, scenarios, tables of costs, histories. What
//! is no text is passed over.

use timestone_sim::{CostTable, Scenario};
use timestone_workload::check::{Promise, check_bank, check_list_append, check_register};
use timestone_workload::history;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A server's configuration file: what `config show` prints of it says the same.
pub fn settings(data: &[u8]) {
    if let Some(text) = text(data) {
        timestone_cli::fuzz::settings(text);
    }
}

/// A transaction's script, which may hold any byte: its statements read back from words in quotes.
pub fn script(data: &[u8]) {
    timestone_cli::fuzz::script(data);
}

/// A scenario: what is refused is refused by name.
pub fn scenario(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Err(error) = Scenario::read("fuzz.toml", text) {
        assert!(error.to_string().starts_with("fuzz.toml"), "{error} does not name the file");
    }
}

/// A table of costs: once its figures are as short as they are written, it reads back as it was.
pub fn costs(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let table = match CostTable::read("fuzz.toml", text) {
        Ok(table) => table,
        Err(error) => {
            return assert!(
                error.to_string().starts_with("fuzz.toml"),
                "{error} does not name the file"
            );
        }
    };
    let rounded = again(&table);
    assert_eq!(again(&rounded), rounded, "a table of costs reads back as another one");
}

fn again(table: &CostTable) -> CostTable {
    let text = table.write().expect("what was read can be written");
    CostTable::read("again.toml", &text)
        .unwrap_or_else(|error| panic!("what was written is refused: {error}\n{text}"))
}

/// A history: what was read is written and reads back the same, with a completion of unknown
/// outcome for what was open, and every checker ends with a verdict.
pub fn history(data: &[u8]) {
    let Some(history) = text(data).and_then(|text| history::read(text).ok()) else { return };
    let mut written = Vec::new();
    history::write(&history, &mut written).expect("a vector takes everything");
    let again = String::from_utf8(written).map(|text| history::read(&text));
    let mut again = again.ok().and_then(Result::ok).expect("what is written can be read");
    let completions = again.events.split_off(history.events.len().min(again.events.len()));
    assert_eq!(again, history, "a history reads back as another one");
    assert!(
        completions.iter().all(|event| event.kind == history::EventKind::Info),
        "only what was open is completed"
    );
    let verdicts = [
        check_list_append(&history, Promise::RealTime),
        check_register(&history, Promise::RealTime),
        check_bank(&history, 2, 10),
    ];
    for verdict in verdicts {
        assert!(!verdict.to_string().is_empty());
    }
}
