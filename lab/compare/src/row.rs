//! One row of the comparison, as CSV and JSON.

use serde::{Deserialize, Serialize};

use crate::Fault;

macro_rules! row {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)+) => {
        /// What one mix of one case came to.
        #[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
        pub(crate) struct Row {
            $($(#[$doc])* pub(crate) $name: $kind,)+
        }

        impl Row {
            /// The names of the fields, as the first line of a CSV.
            pub(crate) const HEAD: &[&str] = &[$(stringify!($name)),+];

            /// The fields as a line of a CSV; none of them holds a comma.
            pub(crate) fn csv(&self) -> String {
                [$(field(&self.$name)),+].join(",")
            }

            /// Reads what [`Self::csv`] wrote.
            pub(crate) fn read(line: &str) -> Result<Self, Fault> {
                let mut fields = line.split(',');
                let row = Self { $($name: parsed(fields.next(), stringify!($name))?,)+ };
                match fields.next() {
                    None => Ok(row),
                    Some(_) => Err("a line has more fields than the head".into()),
                }
            }
        }
    };
}

row! {
    engine: String,
    column: String,
    threads: usize,
    /// Operations that each thread keeps under way.
    outstanding: usize,
    keys: u64,
    gets_percent: u64,
    seconds: f64,
    operations_per_second: f64,
    cpu_us_per_operation: f64,
    get_us_p50: f64,
    get_us_p99: f64,
    get_us_p999: f64,
    put_us_p50: f64,
    put_us_p99: f64,
    put_us_p999: f64,
    /// Bytes written for each byte put; -1 where too little was put to tell.
    write_amplification: f64,
    is_steady: bool,
    load_seconds: f64,
    load_amplification: f64,
    rss_mib: f64,
    /// The part of it that is pages of files.
    rss_file_mib: f64,
    disk_mib: f64,
    /// `group` where a control group limited memory, else `settings`.
    memory_limit: String,
}

fn field(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.trim_matches('"').replace(',', ";")
}

fn parsed<T: std::str::FromStr>(text: Option<&str>, name: &str) -> Result<T, Fault> {
    let text = text.ok_or_else(|| format!("a line of the CSV lacks {name}"))?;
    text.parse().map_err(|_| format!("{name} of the CSV is not one: {text}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_from_its_line() {
        let values = (1..=Row::HEAD.len()).map(|n| match n {
            1 | 2 | 23 => "name".to_owned(),
            17 => "true".to_owned(),
            other => other.to_string(),
        });
        let line = values.collect::<Vec<_>>().join(",");
        let row = Row::read(&line).unwrap();
        assert_eq!((row.threads, row.is_steady), (3, true));
        assert_eq!(Row::read(&row.csv()).unwrap(), row);
        assert!(Row::read("rocksdb,memory").is_err());
        assert!(Row::read(&format!("{line},1")).is_err());
    }
}
