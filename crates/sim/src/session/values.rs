//! What sessions write under a key, and what a value that was read tells.
//!
//! ```text
//!   integer:  7        with a filling:  7|aaaa…        large:  7|40000|hhhh…        list:  as the workload has it
//! ```
//! Whatever is read must be as it was written, to the last byte.

use timestone_workload::history::Seen;
use timestone_workload::{KeyIndex, ValueKind, integer_of, list_of, write_integer};

use crate::board::{Board, ClientWork};

/// Between the number of a filling and the filling.
const SEPARATOR: u8 = b'|';
/// What is said of a key that was loaded and is not there.
pub(crate) const VANISHED: &str = "has vanished";
/// The number of what was loaded: a history knows it as the version before all.
pub(super) const LOADED: i64 = 0;

/// Appends an integer; where the workload writes fillings, its filling after it.
pub(super) fn write_numbered(work: &ClientWork, key: KeyIndex, number: i64, out: &mut Vec<u8>) {
    write_integer(number, out);
    if work.is_numbered() {
        out.push(SEPARATOR);
        work.spec().write_value(key, out);
    }
}

/// Appends what a write of this number puts: of some writes, more than a block holds.
pub(super) fn write_value_of(board: &Board, key: KeyIndex, number: i64, out: &mut Vec<u8>) {
    write_numbered(&board.work, key, number, out);
    if let Some(bytes) = board.settings.large
        && number % 3 == 0
    {
        out.push(SEPARATOR);
        write_integer(i64::from(bytes), out);
        out.push(SEPARATOR);
        out.resize(out.len() + bytes as usize, letter(number));
    }
}

/// What the filling of a large value consists of.
fn letter(number: i64) -> u8 {
    b'a' + number.rem_euclid(26) as u8
}

/// The number of a value that may be large. It must be as it was written, to the last byte.
fn number_of_large(found: &[u8]) -> Result<i64, String> {
    let mut parts = found.splitn(3, |&byte| byte == SEPARATOR);
    let number = integer_of(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
    let Some(bytes) = parts.next() else { return Ok(number) };
    let (bytes, filling) =
        (integer_of(bytes).map_err(|error| error.to_string())?, parts.next().unwrap_or_default());
    if filling.len() as i64 != bytes || filling.iter().any(|&byte| byte != letter(number)) {
        return Err(format!(
            "a value of {} bytes is not what was written with number {number}",
            found.len()
        ));
    }
    Ok(number)
}

/// The number of a filling. The rest of it must be as it was written, to the last byte.
fn number_of(work: &ClientWork, key: KeyIndex, found: &[u8]) -> Result<Seen, String> {
    let nobody = || format!("key {} holds a value that nobody wrote", key.0);
    let end = found.iter().position(|&byte| byte == SEPARATOR).ok_or_else(nobody)?;
    let number = integer_of(&found[..end]).map_err(|_| nobody())?;
    let mut expected = Vec::new();
    work.spec().write_value(key, &mut expected);
    if found[end + 1..] != expected {
        return Err(nobody());
    }
    Ok(if number == LOADED { Seen::Nothing } else { Seen::Integer(number) })
}

pub(super) fn read_value(
    work: &ClientWork,
    key: KeyIndex,
    found: Option<&[u8]>,
) -> Result<Seen, String> {
    let spec = work.spec();
    match (spec.value_kind(), found) {
        (ValueKind::Opaque, Some(bytes)) => number_of(work, key, bytes),
        (ValueKind::Opaque, None) if key.0 < spec.loaded_keys() && !spec.removes_keys() => {
            Err(format!("key {} {VANISHED}", key.0))
        }
        (_, None) => Ok(Seen::Nothing),
        (ValueKind::List, Some(bytes)) => {
            let mut list = Vec::new();
            list_of(bytes, &mut list).map_err(|error| error.to_string())?;
            Ok(Seen::List(list))
        }
        (ValueKind::Integer, Some(bytes)) => Ok(Seen::Integer(number_of_large(bytes)?)),
    }
}
