//! Reading a history back, ours or Jepsen's own.
//!
//! Keys of a line's map come in any order; lines of other functions than `:txn` and of the nemesis
//! (whose process is no number) are passed over. `:index` and `:time` may be missing, as older
//! histories lack them.

use timestone_types::Timestamp;

use super::edn::{Form, parse};
use super::{Event, EventKind, History, HistoryHead, MicroOp, Process, Seen};
use crate::{KeyIndex, WorkloadError};

/// Reads a history's text: a head if it has one, and one map a line.
///
/// # Errors
/// [`WorkloadError::History`] with the first line that is malformed.
pub fn read(text: &str) -> Result<History, WorkloadError> {
    let mut history = History::default();
    for (at, line) in text.lines().enumerate() {
        let malformed = |problem| WorkloadError::History { line: at + 1, problem };
        let next_index = history.events.len() as u64;
        if at == 0 {
            history.head = HistoryHead::read(line).map_err(malformed)?;
        }
        history.events.extend(event(line, next_index).map_err(malformed)?);
    }
    Ok(history)
}

fn event(line: &str, next_index: u64) -> Result<Option<Event>, String> {
    let Some(form) = parse(line)? else { return Ok(None) };
    if !matches!(form, Form::Map(_)) {
        return Err("is no map".to_owned());
    }
    let process = match form.get("process") {
        Some(Form::Integer(process)) => {
            Process(u64::try_from(*process).map_err(|_| "has a negative :process")?)
        }
        Some(Form::Keyword(_) | Form::Text(_)) => return Ok(None),
        _ => return Err("has no :process".to_owned()),
    };
    if form.get("f") != Some(&Form::Keyword("txn")) {
        return Ok(None);
    }
    let kind = match form.get("type") {
        Some(Form::Keyword("invoke")) => EventKind::Invoke,
        Some(Form::Keyword("ok")) => EventKind::Ok,
        Some(Form::Keyword("fail")) => EventKind::Fail,
        Some(Form::Keyword("info")) => EventKind::Info,
        _ => return Err("has a :type other than :invoke, :ok, :fail and :info".to_owned()),
    };
    let ops = match form.get("value") {
        Some(Form::Sequence(ops)) => ops.iter().map(micro_op).collect::<Result<_, _>>()?,
        // What failed or stayed unknown has nothing to tell; its invocation did.
        None | Some(Form::Nil) if matches!(kind, EventKind::Fail | EventKind::Info) => Vec::new(),
        _ => return Err("has no vector of operations as its :value".to_owned()),
    };
    let index = optional(&form, "index")?.unwrap_or(next_index);
    let time = Timestamp::from_nanos(optional(&form, "time")?.unwrap_or(0));
    Ok(Some(Event { kind, process, index, time, ops }))
}

fn optional(form: &Form<'_>, name: &str) -> Result<Option<u64>, String> {
    match form.get(name) {
        None | Some(Form::Nil) => Ok(None),
        Some(Form::Integer(number)) => match u64::try_from(*number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("has a negative :{name}")),
        },
        Some(_) => Err(format!("has a :{name} that is no integer")),
    }
}

fn micro_op(form: &Form<'_>) -> Result<MicroOp, String> {
    let Form::Sequence(parts) = form else {
        return Err("has an operation that is no vector".to_owned());
    };
    let (name, key, value, until) = match parts.as_slice() {
        [Form::Keyword(name), Form::Integer(key), value] => (name, key, value, None),
        [Form::Keyword(name), Form::Integer(key), value, Form::Integer(until)] => {
            (name, key, value, Some(*until))
        }
        _ => return Err("has an operation that is not of the form [:name key value]".to_owned()),
    };
    let key = KeyIndex(u64::try_from(*key).map_err(|_| "has an operation on a negative key")?);
    if let Some(until) = until {
        let ("w", Form::Integer(value)) = (*name, value) else {
            return Err(format!("has an operation [:{name} …] that expires and writes no integer"));
        };
        let until = u64::try_from(until).map_err(|_| "has a value that expires before the run")?;
        return Ok(MicroOp::WriteUntil { key, value: *value, until: Timestamp::from_nanos(until) });
    }
    match (*name, value) {
        ("append", Form::Integer(element)) => Ok(MicroOp::Append { key, element: *element }),
        ("w", Form::Integer(value)) => Ok(MicroOp::Write { key, value: Some(*value) }),
        ("w", Form::Nil) => Ok(MicroOp::Write { key, value: None }),
        ("r", Form::Nil) => Ok(MicroOp::Read { key, seen: Seen::Nothing }),
        ("r", Form::Integer(value)) => Ok(MicroOp::Read { key, seen: Seen::Integer(*value) }),
        ("r", Form::Sequence(list)) => {
            let element = |form: &Form<'_>| match form {
                Form::Integer(element) => Ok(*element),
                _ => Err("reads a list with something other than integers in it"),
            };
            Ok(MicroOp::Read {
                key,
                seen: Seen::List(list.iter().map(element).collect::<Result<_, _>>()?),
            })
        }
        _ => Err(format!(
            "has an operation [:{name} …] that is neither :r, :w nor :append of integers"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jepsens_own_form_is_read() {
        let text = "\
            ; a comment\n\
            {:index 0, :type :info, :process :nemesis, :f :kill, :value nil}\n\
            {:process 1, :value [[:append 9 1] [:r 9 (1)]] :f :txn, :type :ok, :index 7, :time 5}\n\
            {:process 2, :f :txn, :type :info, :error [:timeout \"x\"], :value [[:w 9 nil]]}\n\
            #jepsen.history.Op{:process 3, :f :txn, :type :fail, :value nil}\n";
        let history = read(text).unwrap();
        assert_eq!(history.events.len(), 3);
        assert_eq!(
            (history.events[2].kind, &history.events[2].ops),
            (EventKind::Fail, &Vec::new())
        );
        assert_eq!(
            (history.events[0].index, history.events[0].time),
            (7, Timestamp::from_nanos(5))
        );
        assert_eq!(
            history.events[0].ops,
            [
                MicroOp::Append { key: KeyIndex(9), element: 1 },
                MicroOp::Read { key: KeyIndex(9), seen: Seen::List(vec![1]) }
            ]
        );
        assert_eq!((history.events[1].index, history.events[1].kind), (1, EventKind::Info));
    }

    #[test]
    fn a_malformed_line_is_named() {
        let good = "{:type :ok, :process 0, :f :txn, :value []}\n";
        for (bad, problem) in [
            ("[]", "no map"),
            ("{:type :ok}", "no :process"),
            ("{:type :done, :process 0, :f :txn, :value []}", ":type"),
            ("{:type :ok, :process -1, :f :txn, :value []}", "negative :process"),
            ("{:type :ok, :process 0, :f :txn}", "no vector"),
            ("{:type :ok, :process 0, :f :txn, :value [[:r 1]]}", "[:name key value]"),
            ("{:type :ok, :process 0, :f :txn, :value [[:cas 1 2]]}", ":cas"),
            (
                "{:type :ok, :process 0, :f :txn, :value [[:r 1 2 3]]}",
                "expires and writes no integer",
            ),
            ("{:type :ok, :process 0, :f :txn, :value [[:w 1 2 -3]]}", "before the run"),
            ("{:type :ok, :process 0, :f :txn, :value [[:r 1 [:a]]]}", "other than integers"),
            ("{:type :ok, :process 0, :f :txn, :time :soon, :value []}", ":time"),
            ("{:type :ok, :process 0", "a form is expected"),
        ] {
            let error = read(&format!("{good}{bad}")).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2 of the history") && error.contains(problem),
                "{bad}: {error}"
            );
        }
    }
}
