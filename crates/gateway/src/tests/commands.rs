//! Commands as functions: a state, a command, its answer, and what the state is then.

use timestone_types::{Expiry, Timestamp};
use timestone_wire::resp::{Protocol, ReplyWriter};

use crate::commands::arguments::ArgumentBuffer;
use crate::commands::expiry::Millis;
use crate::commands::keys;
use crate::commands::table::find;
use crate::commands::view::MapView;

use super::world::shown;

/// Milliseconds since the epoch at which all of it happens.
const NOW: i64 = 1_000_000;

/// A state written as `key=value` or `key=value@milliseconds`, separated by spaces.
fn state(text: &str) -> MapView {
    let mut view = MapView::default();
    for entry in text.split_whitespace() {
        let (key, rest) = entry.split_once('=').unwrap();
        let (value, expiry) = match rest.split_once('@') {
            Some((value, at)) => (value, Millis(at.parse().unwrap()).expiry()),
            None => (rest, Expiry::NEVER),
        };
        view.keys.insert(key.as_bytes().to_vec(), (value.as_bytes().to_vec(), expiry));
    }
    view
}

fn run(view: &mut MapView, command: &str) -> String {
    let mut arguments = ArgumentBuffer::default();
    command
        .split(' ')
        .for_each(|word| arguments.push(if word == "''" { b"" } else { word.as_bytes() }));
    let spec = find(arguments.argument(0)).unwrap();
    assert!(spec.accepts(arguments.count() as usize), "{command}");
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    let now = Timestamp::from_nanos(NOW as u64 * 1_000_000 + 999_999);
    let mut reply = ReplyWriter::new(&mut out, Protocol::Resp2);
    if let Err(failure) =
        keys::execute(spec.cmd, arguments.all(), now, view, &mut scratch, &mut reply)
    {
        return String::from_utf8(failure.bytes().to_vec()).unwrap();
    }
    shown(&out)
}

/// Before, command, answer, after (`=` for no change).
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, &str)] = &[
    ("", "GET a", "$-1|", "="),
    ("a=1", "GET a", "$1|1|", "="),
    ("", "SET a 1", "+OK|", "a=1"),
    ("a=0@2000000", "SET a 1", "+OK|", "a=1"),
    ("a=0@2000000", "SET a 1 KEEPTTL", "+OK|", "a=1@2000000"),
    ("", "SET a 1 KEEPTTL", "+OK|", "a=1"),
    ("", "SET a 1 EX 5", "+OK|", "a=1@1005000"),
    ("", "SET a 1 px 5", "+OK|", "a=1@1000005"),
    ("", "SET a 1 EXAT 5000", "+OK|", "a=1@5000000"),
    ("", "SET a 1 PXAT 5000000", "+OK|", "a=1@5000000"),
    ("a=0", "SET a 1 NX", "$-1|", "="),
    ("", "SET a 1 NX", "+OK|", "a=1"),
    ("", "SET a 1 XX", "$-1|", "="),
    ("a=0", "SET a 1 xx", "+OK|", "a=1"),
    ("a=0", "SET a 1 GET", "$1|0|", "a=1"),
    ("", "SET a 1 GET", "$-1|", "a=1"),
    ("a=0", "SET a 1 NX GET", "$1|0|", "="),
    ("", "SET a 1 XX GET", "$-1|", "="),
    ("a=0", "SET a 1 NX XX", "ERR syntax error", "="),
    ("", "SET a 1 EX", "ERR syntax error", "="),
    ("", "SET a 1 EX 1 PX 1", "ERR syntax error", "="),
    ("", "SET a 1 EX 1 ex 5", "+OK|", "a=1@1005000"),
    ("", "SET a 1 PXAT x NX PXAT 5000000", "+OK|", "a=1@5000000"),
    ("", "SET a 1 EX 5 EX x", "ERR value is not an integer or out of range", "="),
    ("", "SET a 1 EX 5 EX", "ERR syntax error", "="),
    ("", "SET a 1 EX 5 EXAT 5 EX 5", "ERR syntax error", "="),
    ("", "SET a 1 KEEPTTL EX 5", "ERR syntax error", "="),
    ("", "SET a 1 EX 1 KEEPTTL", "ERR syntax error", "="),
    ("", "SET a 1 KEEPTTL EX 1", "ERR syntax error", "="),
    ("", "SET a 1 nope", "ERR syntax error", "="),
    ("", "SET a 1 EX 0", "ERR invalid expire time in 'set' command", "="),
    ("", "SET a 1 PX -1", "ERR invalid expire time in 'set' command", "="),
    ("", "SET a 1 EX 9223372036854775807", "ERR invalid expire time in 'set' command", "="),
    ("", "SET a 1 PX 9223372036854775807", "ERR invalid expire time in 'set' command", "="),
    ("", "SET a 1 EX x", "ERR value is not an integer or out of range", "="),
    ("", "SETEX a 5 1", "+OK|", "a=1@1005000"),
    ("", "SETEX a 0 1", "ERR invalid expire time in 'setex' command", "="),
    ("", "PSETEX a 5 1", "+OK|", "a=1@1000005"),
    ("", "PSETEX a 0 1", "ERR invalid expire time in 'psetex' command", "="),
    ("", "SETNX a 1", ":1|", "a=1"),
    ("a=0", "SETNX a 1", ":0|", "="),
    ("a=0@2000000", "GETSET a 1", "$1|0|", "a=1"),
    ("", "GETSET a 1", "$-1|", "a=1"),
    ("a=1", "GETDEL a", "$1|1|", ""),
    ("", "GETDEL a", "$-1|", "="),
    ("a=1@2000000", "GETEX a", "$1|1|", "="),
    ("a=1@2000000", "GETEX a PERSIST", "$1|1|", "a=1"),
    ("a=1", "GETEX a EX 5", "$1|1|", "a=1@1005000"),
    ("a=1", "GETEX a PXAT 5000000", "$1|1|", "a=1@5000000"),
    ("a=1", "GETEX a PXAT 5", "$1|1|", ""),
    ("a=1", "GETEX a EX 0", "ERR invalid expire time in 'getex' command", "="),
    ("", "GETEX a EX 0", "$-1|", "="),
    ("a=1", "GETEX a EX 5 PERSIST", "ERR syntax error", "="),
    ("a=1", "GETEX a NX", "ERR syntax error", "="),
    ("a=1", "GETEX a PX 5000 px 90000", "$1|1|", "a=1@1090000"),
    ("a=1", "GETEX a PX 5000 EX 90", "ERR syntax error", "="),
    ("a=1", "GETEX a PX 5000 PX", "ERR syntax error", "="),
    ("a=1", "GETEX a PERSIST PX 5000", "ERR syntax error", "="),
    ("a=1@2000000", "GETEX a PERSIST PERSIST", "$1|1|", "a=1"),
    ("a=1 c=3", "MGET a b c a", "*4|$1|1|$-1|$1|3|$1|1|", "="),
    ("a=0@2000000", "MSET a 1 b 2", "+OK|", "a=1 b=2"),
    ("", "MSET a 1 a 2", "+OK|", "a=2"),
    ("", "MSET a 1 b", "ERR wrong number of arguments for 'mset' command", "="),
    ("", "MSETNX a 1 b 2", ":1|", "a=1 b=2"),
    ("b=0", "MSETNX a 1 b 2", ":0|", "="),
    ("", "MSETNX a 1 b", "ERR wrong number of arguments for 'msetnx' command", "="),
    ("", "INCR a", ":1|", "a=1"),
    ("a=9@2000000", "INCR a", ":10|", "a=10@2000000"),
    ("a=x", "INCR a", "ERR value is not an integer or out of range", "="),
    ("a=9223372036854775807", "INCR a", "ERR increment or decrement would overflow", "="),
    ("a=-9223372036854775808", "DECR a", "ERR increment or decrement would overflow", "="),
    ("", "DECR a", ":-1|", "a=-1"),
    ("a=5", "INCRBY a -7", ":-2|", "a=-2"),
    ("a=5", "INCRBY a 1.5", "ERR value is not an integer or out of range", "="),
    ("a=5", "DECRBY a 7", ":-2|", "a=-2"),
    ("a=0", "DECRBY a -9223372036854775808", "ERR decrement would overflow", "="),
    ("a=-9223372036854775807", "DECRBY a 1", ":-9223372036854775808|", "a=-9223372036854775808"),
    ("a=10.50@2000000", "INCRBYFLOAT a 0.1", "$4|10.6|", "a=10.6@2000000"),
    ("", "INCRBYFLOAT a -3", "$2|-3|", "a=-3"),
    ("a=x", "INCRBYFLOAT a 1", "ERR value is not a valid float", "="),
    ("a=1", "INCRBYFLOAT a x", "ERR value is not a valid float", "="),
    ("a=1", "INCRBYFLOAT a inf", "ERR increment would produce NaN or Infinity", "="),
    ("", "APPEND a xy", ":2|", "a=xy"),
    ("a=x@2000000", "APPEND a yz", ":3|", "a=xyz@2000000"),
    ("", "APPEND a ''", ":0|", "a="),
    ("a=x", "APPEND a ''", ":1|", "="),
    ("a=hello", "STRLEN a", ":5|", "="),
    ("", "STRLEN a", ":0|", "="),
    ("a=hello", "GETRANGE a 1 3", "$3|ell|", "="),
    ("a=hello", "GETRANGE a -3 -1", "$3|llo|", "="),
    ("a=hello", "GETRANGE a 0 -1", "$5|hello|", "="),
    ("a=hello", "GETRANGE a -100 100", "$5|hello|", "="),
    ("a=hello", "GETRANGE a 3 1", "$0||", "="),
    ("a=hello", "GETRANGE a -1 -3", "$0||", "="),
    ("a=hello", "GETRANGE a 9 10", "$0||", "="),
    ("a=hello", "GETRANGE a 0 -100", "$1|h|", "="),
    ("", "GETRANGE a 0 -1", "$0||", "="),
    ("", "GETRANGE a x 1", "ERR value is not an integer or out of range", "="),
    ("a=hello", "SUBSTR a 0 0", "$1|h|", "="),
    ("a=hello@2000000", "SETRANGE a 1 EY", ":5|", "a=hEYlo@2000000"),
    ("a=hi", "SETRANGE a 1 xyz", ":4|", "a=hxyz"),
    ("", "SETRANGE a 0 ''", ":0|", "="),
    ("a=hi", "SETRANGE a 9 ''", ":2|", "="),
    ("", "SETRANGE a -1 x", "ERR offset is out of range", "="),
    ("", "SETRANGE a 16777216 x", "ERR string exceeds maximum allowed size (proto-max-bulk-len)", "="),
    ("a=1 b=2", "DEL a x b a", ":2|", ""),
    ("a=1", "UNLINK a b", ":1|", ""),
    ("a=1", "EXISTS a b a", ":2|", "="),
    ("a=1", "TOUCH a b", ":1|", "="),
    ("a=1", "TYPE a", "+string|", "="),
    ("", "TYPE a", "+none|", "="),
    ("a=1", "EXPIRE a 10", ":1|", "a=1@1010000"),
    ("", "EXPIRE a 10", ":0|", "="),
    ("a=1", "EXPIRE a -1", ":1|", ""),
    ("a=1", "PEXPIRE a 10", ":1|", "a=1@1000010"),
    ("a=1", "EXPIREAT a 2000", ":1|", "a=1@2000000"),
    ("a=1", "EXPIREAT a 1", ":1|", ""),
    ("a=1", "PEXPIREAT a 2000001", ":1|", "a=1@2000001"),
    ("a=1", "EXPIRE a x", "ERR value is not an integer or out of range", "="),
    ("a=1", "EXPIRE a 9223372036854775807", "ERR invalid expire time in 'expire' command", "="),
    ("a=1", "PEXPIRE a 9223372036854775807", "ERR invalid expire time in 'pexpire' command", "="),
    ("a=1", "EXPIRE a 10 NX", ":1|", "a=1@1010000"),
    ("a=1@2000000", "EXPIRE a 10 NX", ":0|", "="),
    ("a=1", "EXPIRE a 10 XX", ":0|", "="),
    ("a=1@2000000", "EXPIRE a 10 XX", ":1|", "a=1@1010000"),
    ("a=1", "EXPIRE a 10 GT", ":0|", "="),
    ("a=1@2000000", "EXPIRE a 10 GT", ":0|", "="),
    ("a=1@1000005", "EXPIRE a 10 GT", ":1|", "a=1@1010000"),
    ("a=1", "EXPIRE a 10 LT", ":1|", "a=1@1010000"),
    ("a=1@1000005", "EXPIRE a 10 LT", ":0|", "="),
    ("a=1@2000000", "EXPIRE a 10 lt xx", ":1|", "a=1@1010000"),
    ("a=1", "EXPIRE a 10 NX GT", "ERR NX and XX, GT or LT options at the same time are not \
        compatible", "="),
    ("a=1", "EXPIRE a 10 GT LT", "ERR GT and LT options at the same time are not compatible", "="),
    ("a=1", "EXPIRE a 10 nope", "ERR Unsupported option nope", "="),
    ("a=1", "PEXPIREAT a 253402300799000", ":1|", "a=1@18446744073709"),
    ("a=1@18446744073709", "PEXPIREAT a 253402300799000 GT", ":0|", "="),
    ("a=1@18446744073709", "PEXPIREAT a 253402300799000 LT", ":0|", "="),
    ("a=1@18446744073708", "EXPIREAT a 253402300799 GT", ":1|", "a=1@18446744073709"),
    ("a=1@18446744073709", "EXPIREAT a 18446744073 LT", ":1|", "a=1@18446744073000"),
    ("a=1@18446744073709", "EXPIRE a 9000000000000000 GT", ":0|", "="),
    ("", "SET a 1 PXAT 9223372036854775807", "+OK|", "a=1@18446744073709"),
    ("a=1@1010499", "TTL a", ":10|", "="),
    ("a=1@1010500", "TTL a", ":11|", "="),
    ("a=1@1010500", "PTTL a", ":10500|", "="),
    ("a=1", "TTL a", ":-1|", "="),
    ("", "PTTL a", ":-2|", "="),
    ("a=1@1010500", "EXPIRETIME a", ":1011|", "="),
    ("a=1@1010500", "PEXPIRETIME a", ":1010500|", "="),
    ("a=1@1010500", "PERSIST a", ":1|", "a=1"),
    ("a=1", "PERSIST a", ":0|", "="),
    ("", "PERSIST a", ":0|", "="),
];

#[test]
fn every_command_answers_and_changes_what_it_should() {
    for &(before, command, answer, after) in TABLE {
        let mut view = state(before);
        assert_eq!(run(&mut view, command), answer, "[{before}] {command}");
        let after = if after == "=" { before } else { after };
        assert_eq!(view, state(after), "[{before}] {command}");
    }
}

#[test]
fn every_command_over_keys_is_in_the_table() {
    use crate::commands::table::{COMMANDS, Class};
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.class, Class::Read | Class::Write)) {
        let tested = TABLE.iter().any(|(_, command, ..)| {
            command.split(' ').next().unwrap().eq_ignore_ascii_case(spec.name)
        });
        assert!(tested, "{} is not tested", spec.name);
    }
}
