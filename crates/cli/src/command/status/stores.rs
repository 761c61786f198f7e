//! The stores of each server in words: what their figures say together.

use bytesize::ByteSize;
use comfy_table::Table;

use super::AskedServer;
use crate::output::table;
use crate::probe::Answer;

/// What is said of a server's stores, in the order in which it is shown.
const ROWS: [(&str, fn(&Answer) -> Option<String>); 9] = [
    ("live on the device", |answer| {
        let share = percent(number(answer, "live_ratio")?);
        Some(format!("{}, {share} of what is written", bytes(answer, "live_bytes")?))
    }),
    ("dead on the device", |answer| bytes(answer, "dead_bytes")),
    ("collection owes", |answer| bytes(answer, "collection_debt_bytes")),
    ("versions", |answer| Some(format!("{:.2} per key", number(answer, "versions_per_key")?))),
    ("index", |answer| Some(format!("{:.1} B per key", number(answer, "index_bytes_per_key")?))),
    ("write amplification", |answer| {
        let factor = number(answer, "write_amplification")?;
        Some(format!("{factor:.2} bytes written for each byte put"))
    }),
    ("wear", |answer| {
        let (all, blocks) = (number(answer, "erases")?, number(answer, "blocks")?);
        let most = number(answer, "most_erases")?;
        let average = if blocks > 0.0 { all / blocks } else { 0.0 };
        let spread = number(answer, "wear_spread");
        let spread = spread.map_or_else(String::new, |spread| format!(" ({spread:.1} times)"));
        Some(format!("{average:.1} erases of a block, {most:.0} at most{spread}"))
    }),
    ("cache hits", |answer| {
        Some(format!("{} of reads", percent(number(answer, "cache_hit_ratio")?)))
    }),
    ("flash reads", |answer| {
        Some(format!("{:.2} pages for each read", number(answer, "flash_reads_per_get")?))
    }),
];

/// One column a server, one row a saying. `–`: there is nothing to relate to, or no answer.
pub(super) fn words(servers: &[AskedServer]) -> Table {
    let names = servers.iter().map(|server| format!("server {}", server.id));
    let header: Vec<String> = core::iter::once("stores".to_owned()).chain(names).collect();
    let mut rows = table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, say) in ROWS {
        let said = servers.iter().map(|server| {
            let answer = server.answer.as_ref().ok();
            answer.and_then(say).unwrap_or_else(|| "–".to_owned())
        });
        rows.add_row(core::iter::once(name.to_owned()).chain(said));
    }
    rows
}

fn number(answer: &Answer, name: &str) -> Option<f64> {
    answer.figure(name)?.parse().ok()
}

fn bytes(answer: &Answer, name: &str) -> Option<String> {
    let bytes: u64 = answer.figure(name)?.parse().ok()?;
    Some(ByteSize(bytes).display().iec().to_string())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
