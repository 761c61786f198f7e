//! What callgrind wrote of one run: instructions, lines that missed the last cache, and how often
//! some functions were called.

use std::collections::HashMap;

/// Of one run, or of the difference of two.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) instructions: f64,
    /// 64 B each; 0 where no caches were simulated.
    pub(crate) missed_lines: f64,
    /// Calls of `memcpy` and `memmove`.
    pub(crate) copies: f64,
    /// Calls of what hashes keys: for their slot, or for a table.
    pub(crate) hashes: f64,
}

impl Figures {
    /// For each of `operations`, of what `longer` did more than this.
    pub(crate) fn each(self, longer: Self, operations: f64) -> Self {
        let each = |shorter: f64, longer: f64| (longer - shorter) / operations;
        Self {
            instructions: each(self.instructions, longer.instructions),
            missed_lines: each(self.missed_lines, longer.missed_lines),
            copies: each(self.copies, longer.copies),
            hashes: each(self.hashes, longer.hashes),
        }
    }

    /// Reads the text of an output file (Valgrind's manual, "Callgrind Format Specification").
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut events, mut totals) = (Vec::new(), Vec::new());
        let mut called = "";
        let mut figures = Self::default();
        for line in text.lines() {
            if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (id, name) = function.split_once(' ').unwrap_or((function, ""));
                let name =
                    if name.is_empty() { names.get(id).copied().unwrap_or_default() } else { name };
                names.insert(id, name);
                called = name;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let count = calls.split(' ').next().and_then(|count| count.parse::<f64>().ok());
                let count = count.ok_or_else(|| format!("no number of calls in '{line}'"))?;
                figures.copies += if is_copy(called) { count } else { 0.0 };
                figures.hashes += if is_hash(called) { count } else { 0.0 };
            } else if let Some(list) = line.strip_prefix("events: ") {
                events = list.split_whitespace().collect();
            } else if let Some(list) = line.strip_prefix("totals: ") {
                totals = list.split_whitespace().filter_map(|of| of.parse::<f64>().ok()).collect();
            }
        }
        let total = |wanted: &[&str]| -> f64 {
            events
                .iter()
                .zip(&totals)
                .filter(|(event, _)| wanted.contains(event))
                .map(|of| of.1)
                .sum()
        };
        figures.instructions = total(&["Ir"]);
        figures.missed_lines = total(&["ILmr", "DLmr", "DLmw"]);
        if figures.instructions > 0.0 {
            Ok(figures)
        } else {
            Err("callgrind counted no instructions".to_owned())
        }
    }
}

fn is_copy(function: &str) -> bool {
    function.contains("memcpy") || function.contains("memmove")
}

/// Their names are kept by `--cfg count_costs`, which keeps them from being inlined.
fn is_hash(function: &str) -> bool {
    function.contains("key::hash_key") || function.contains("key::slot_of")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n\
                        fn=(1) main\n10 5 0 0\ncfn=(2) __memcpy_avx_unaligned_erms\ncalls=3 20\n10 9\n\
                        cfn=(3) timestone_types::key::hash_key\ncalls=2 7\n1 2\n\
                        fn=(3)\n7 2\nfn=(4) other\ncfn=(2)\ncalls=4 20\n10 9\n\
                        totals: 900 1 2 3 4 5 6 7 8\n";

    #[test]
    fn totals_and_calls_are_read_and_names_are_remembered() {
        let expected =
            Figures { instructions: 900.0, missed_lines: 21.0, copies: 7.0, hashes: 2.0 };
        assert_eq!(Figures::read(TEXT), Ok(expected));
        assert!(Figures::read("events: Ir\n").is_err());
    }

    #[test]
    fn two_runs_are_subtracted_and_divided() {
        let shorter = Figures { instructions: 100.0, missed_lines: 1.0, copies: 4.0, hashes: 2.0 };
        let longer = Figures { instructions: 300.0, missed_lines: 3.0, copies: 8.0, hashes: 8.0 };
        let expected = Figures { instructions: 50.0, missed_lines: 0.5, copies: 1.0, hashes: 1.5 };
        assert_eq!(shorter.each(longer, 4.0), expected);
    }
}
