//! Rows as Markdown tables: one for each column, sorted by mix and threads.

use std::fmt::Write as _;
use std::fs;

use crate::Fault;
use crate::options::Options;
use crate::row::Row;

const HEAD: &str = "\
| gets % | threads | engine | thousand ops/s | CPU µs/op | get µs p50 / p99 / p99.9 | put µs p50 / p99 / p99.9 | write amplification | RSS MiB | disk MiB |
|---:|---:|---|---:|---:|---|---|---:|---:|---:|
";

/// The command `table`.
pub(crate) fn print(options: &Options) -> Result<(), Fault> {
    let mut rows = read(&options.csv)?;
    rows.sort_by_key(|row| {
        (row.column.clone(), u64::MAX - row.gets_percent, row.threads, row.engine.clone())
    });
    for group in rows.chunk_by(|one, other| one.column == other.column) {
        println!("**{}**, {} keys\n", group[0].column, group[0].keys);
        println!("{}", markdown(group, true));
    }
    Ok(())
}

/// The rows of a CSV; none where there is no file.
pub(crate) fn read(file: &std::path::Path) -> Result<Vec<Row>, Fault> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut lines = text.lines();
    if lines.next() != Some(Row::HEAD.join(",").as_str()) {
        return Err(format!("{} has other fields than rows of today", file.display()).into());
    }
    lines.map(Row::read).collect()
}

/// Lines of a table, with its head or without.
pub(crate) fn markdown(rows: &[Row], with_head: bool) -> String {
    let mut text = if with_head { HEAD.to_owned() } else { String::new() };
    for row in rows {
        let amplification = match (row.write_amplification, row.is_steady) {
            (none, _) if none < 0.0 => "–".to_owned(),
            (factor, true) => format!("{factor:.2}"),
            (factor, false) => format!("{factor:.2}, not steady"),
        };
        let latencies = |of: [f64; 3]| match of[0] {
            0.0 => "–".to_owned(),
            _ => of.map(|us| format!("{us:.1}")).join(" / "),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.2} | {} | {} | {amplification} | {:.0} | {:.0} |",
            row.gets_percent,
            row.threads,
            row.engine,
            row.operations_per_second / 1000.0,
            row.cpu_us_per_operation,
            latencies([row.get_us_p50, row.get_us_p99, row.get_us_p999]),
            latencies([row.put_us_p50, row.put_us_p99, row.put_us_p999]),
            row.rss_mib,
            row.disk_mib,
        );
    }
    text
}
