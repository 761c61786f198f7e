//! What a history says of itself, in its first line: which workload it is of, and what was promised
//! to it.
//!
//! ```text
//!   ; timestone history 1: {:workload :bank, :isolation :serializable, :external :none, :protocol :native, :promise :conflicts, :accounts 10, :total 10000}
//! ```
//! A comment, which readers of EDN pass over, Jepsen's and Elle's among them: to those the history
//! begins with its first event. A file without a head is read as before; whoever judges it must
//! know what it is.

use std::fmt::Write as _;

use super::edn::{Form, parse};
use crate::WorkloadKind;
use crate::check::Promise;

/// The line begins with this, and the number of the head's form.
const OPENING: &str = "; timestone history ";
/// The form that is written.
const FORM: u32 = 1;

/// How a history is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// By the order of appends.
    ListAppend,
    /// By writes of values that are written once.
    Register,
    /// As registers, and by an order of the requests to each key besides.
    SingleKeys,
    /// By the sum of all accounts.
    Bank {
        /// How many there are.
        accounts: u64,
        /// What they hold together.
        total: i64,
    },
}

impl Judged {
    /// The name of the workload, as in the head.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ListAppend => "list-append",
            Self::Register => "register",
            Self::SingleKeys => "single-keys",
            Self::Bank { .. } => "bank",
        }
    }

    /// How a workload's history is judged; `None` for a workload without values that tell anything.
    #[must_use]
    pub fn of(spec: &crate::WorkloadSpec) -> Option<Self> {
        match spec.kind {
            WorkloadKind::ListAppend => Some(Self::ListAppend),
            WorkloadKind::Register => Some(Self::Register),
            WorkloadKind::Bank => {
                Some(Self::Bank { accounts: spec.keys, total: spec.total_balance() })
            }
            _ => None,
        }
    }
}

/// The first line of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryHead {
    /// How it is judged.
    pub judged: Judged,
    /// The isolation of the keyspace, as its options spell it.
    pub isolation: String,
    /// Whether commits waited for the clocks: `none` or `wait`.
    pub external: String,
    /// What was spoken: `native`, `resp`, `simulated`.
    pub protocol: String,
    /// What must hold.
    pub promise: Promise,
    /// Why it proves nothing, where it does not: whoever judges it says so instead.
    pub void: Option<String>,
}

impl HistoryHead {
    /// The line, with its line feed.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { judged, isolation, external, protocol, promise, void } = self;
        let mut line = format!(
            "{OPENING}{FORM}: {{:workload :{}, :isolation :{isolation}, :external :{external}, \
             :protocol :{protocol}, :promise :{}",
            judged.name(),
            promise.name()
        );
        if let Judged::Bank { accounts, total } = judged {
            // Writing to a String cannot fail.
            let _ = write!(line, ", :accounts {accounts}, :total {total}");
        }
        if let Some(void) = void {
            let _ = write!(line, ", :void \"{}\"", void.replace(['\\', '"'], "'"));
        }
        line.push_str("}\n");
        line
    }

    /// Reads a line; `None` when it is no head.
    ///
    /// # Errors
    /// A head that says something else than this version knows, in words.
    pub(super) fn read(line: &str) -> Result<Option<Self>, String> {
        let Some(rest) = line.strip_prefix(OPENING) else { return Ok(None) };
        let Some((form, map)) =
            rest.split_once(": ").filter(|(form, _)| form.parse::<u32>().is_ok())
        else {
            return Ok(None);
        };
        if form.parse() != Ok(FORM) {
            return Err(format!(
                "has a head of form {form}, and this version reads form {FORM}; use a newer version"
            ));
        }
        let map = parse(map)?.ok_or("has a head without a map")?;
        let word = |name: &str| match map.get(name) {
            Some(Form::Keyword(word)) => Ok((*word).to_owned()),
            _ => Err(format!("has a head without a keyword as its :{name}")),
        };
        let number = |name: &str| match map.get(name) {
            Some(Form::Integer(number)) => Ok(*number),
            _ => Err(format!("has a head without a number as its :{name}")),
        };
        let judged = match word("workload")?.as_str() {
            "list-append" => Judged::ListAppend,
            "register" => Judged::Register,
            "single-keys" => Judged::SingleKeys,
            "bank" => {
                let accounts = u64::try_from(number("accounts")?)
                    .map_err(|_| "has a head with negative :accounts")?;
                Judged::Bank { accounts, total: number("total")? }
            }
            other => {
                return Err(format!("is of workload '{other}', which this version cannot judge"));
            }
        };
        let promise = word("promise")?;
        let promise = Promise::named(&promise)
            .ok_or_else(|| format!("has a head with the promise '{promise}'"))?;
        let void = match map.get("void") {
            Some(Form::Text(why)) => Some((*why).to_owned()),
            _ => None,
        };
        let (isolation, external, protocol) =
            (word("isolation")?, word("external")?, word("protocol")?);
        Ok(Some(Self { judged, isolation, external, protocol, promise, void }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn head(judged: Judged, void: Option<&str>) -> HistoryHead {
        HistoryHead {
            judged,
            isolation: "serializable".to_owned(),
            external: "none".to_owned(),
            protocol: "native".to_owned(),
            promise: Promise::Conflicts,
            void: void.map(str::to_owned),
        }
    }

    #[test]
    fn a_head_reads_back_as_written_and_is_a_comment() {
        for head in [
            head(Judged::Bank { accounts: 10, total: -5 }, None),
            head(
                Judged::ListAppend,
                Some("it proves nothing, for faults destroyed what had been acknowledged"),
            ),
            head(Judged::Register, None),
            head(Judged::SingleKeys, None),
        ] {
            let line = head.line();
            assert!(
                line.starts_with(';') && line.ends_with("}\n") && line.lines().count() == 1,
                "{line}"
            );
            assert_eq!(read(&line).unwrap().head, Some(head));
        }
        assert_eq!(
            head(Judged::Bank { accounts: 10, total: 10_000 }, None).line(),
            "; timestone history 1: \
             {:workload :bank, :isolation :serializable, :external :none, :protocol :native, \
             :promise :conflicts, :accounts 10, :total 10000}\n"
        );
    }

    #[test]
    fn files_without_a_head_are_read_and_heads_of_later_versions_refused() {
        assert_eq!(read("; a comment\n").unwrap().head, None);
        assert_eq!(read("; timestone history of last week: lost\n").unwrap().head, None);
        let good = head(Judged::Register, None).line();
        for (from, to, problem) in [
            ("history 1", "history 2", "form 2"),
            (":register", ":queue", "'queue'"),
            (":conflicts", ":magic", "'magic'"),
            (":isolation :serializable, ", "", ":isolation"),
            (":register", ":bank", ":accounts"),
        ] {
            let error = read(&good.replace(from, to)).unwrap_err().to_string();
            assert!(
                error.starts_with("line 1 of the history") && error.contains(problem),
                "{error}"
            );
        }
    }
}
