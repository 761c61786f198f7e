//! Commands that touch no key, and lines that are no command: what a client is told.

use super::world::World;

#[test]
fn numbers_out_of_range_are_told_as_redis_tells_them() {
    let mut world = World::new();
    let client = world.connect();
    let range =
        "-ERR value is out of range, value must between -2147483648 and 2147483647|".to_owned();
    assert_eq!(world.ask(client, "SELECT 99999999999; SELECT -2147483649"), range.repeat(2));
    let index = "-ERR DB index is out of range|";
    assert_eq!(world.ask(client, "SELECT 2147483647; SELECT -1"), index.repeat(2));
    let listed = world.ask(client, "CLIENT LIST ID 0; CLIENT LIST ID -1; CLIENT LIST ID x");
    assert_eq!(listed, "$0||$0||-ERR Invalid client ID|");
}

#[test]
fn a_scan_with_a_negative_or_an_empty_cursor_begins_anew() {
    let mut world = World::new();
    let client = world.connect();
    world.ask(client, "SET a 1");
    let from_the_beginning = world.ask(client, "SCAN 0 COUNT 1000");
    for cursor in ["-1", "+0", "''", "-18446744073709551615"] {
        let answer = world.ask(client, &format!("SCAN {cursor} COUNT 1000"));
        assert_eq!(answer, from_the_beginning, "{cursor}");
    }
}

#[test]
fn an_unknown_subcommand_spoils_the_transaction_at_once() {
    let mut world = World::new();
    let client = world.connect();
    for (line, told) in [
        ("CLIENT FOO", "unknown subcommand 'FOO'. Try CLIENT HELP."),
        ("COMMAND foo a", "unknown subcommand 'foo'. Try COMMAND HELP."),
        ("CONFIG GET", "wrong number of arguments for 'config|get' command"),
        ("CLIENT ID x", "wrong number of arguments for 'client|id' command"),
    ] {
        assert_eq!(world.ask(client, line), format!("-ERR {told}|"));
        let answer = world.ask(client, &format!("MULTI; SET a 1; {line}; EXEC; GET a"));
        let discarded = "-EXECABORT Transaction discarded because of previous errors.|";
        assert_eq!(answer, format!("+OK|+QUEUED|-ERR {told}|{discarded}$-1|"), "{line}");
    }
}

#[test]
fn commands_are_listed_by_pattern_and_category() {
    let mut world = World::new();
    let client = world.connect();
    let listed =
        |world: &mut World, by: &str| world.ask(client, &format!("COMMAND LIST FILTERBY {by}"));
    assert_eq!(listed(&mut world, "PATTERN GETR*"), "*1|$8|getrange|");
    assert_eq!(listed(&mut world, "pattern [dm]set*"), "*2|$4|mset|$6|msetnx|");
    assert_eq!(listed(&mut world, "MODULE x"), "*0|");
    let state = "*7|$7|discard|$4|exec|$5|multi|$4|quit|$5|reset|$7|unwatch|$5|watch|";
    assert_eq!(listed(&mut world, "ACLCAT Transaction"), state);
    assert_eq!(listed(&mut world, "ACLCAT @transaction"), "*0|");
    assert_eq!(listed(&mut world, "NOPE x"), "-ERR syntax error|");
    assert_eq!(listed(&mut world, "PATTERN a b"), "-ERR syntax error|");
    assert_eq!(world.ask(client, "COMMAND LIST x"), "-ERR syntax error|");
    let long = format!("PATTERN {}", "a".repeat(1025));
    assert_eq!(listed(&mut world, &long), "-ERR the pattern is longer than 1024 bytes|");
}

/// What is answered to these bytes, which come in two pieces where a cut is given, and whether the
/// connection is closed.
fn answer_to(bytes: &[u8], cut: usize) -> (String, bool) {
    let mut world = World::new();
    let client = world.connect();
    for piece in [&bytes[..cut], &bytes[cut..]] {
        if !piece.is_empty() {
            world.post(client, piece);
            world.settle();
        }
    }
    (world.wait(client), world.closed == [client])
}

#[test]
fn a_line_is_answered_alike_wherever_it_was_cut() {
    let unknown =
        |name, rest| format!("-ERR unknown command '{name}', with args beginning with: {rest}|");
    let lines: [(&[u8], Option<String>); 13] = [
        (b"foo! bar\r\n", Some(unknown("foo!", "'bar' "))),
        (b"foo\xffbar\r\n", Some(unknown("foo\u{fffd}bar", ""))),
        (b"SET a \x01\x02\r\n", Some("+OK|".to_owned())),
        (b"MSET a \x01\x02 b \0\r\n", Some("+OK|".to_owned())),
        (b"\r\n \x0bSET k \0\x01\r\n", Some("+OK|".to_owned())),
        (b"\"x\\x50\" \x01\r\n", Some(unknown("xP", "'\u{1}' "))),
        (b"SE\x01 a b\r\n", None),
        (b"SE\"\x01\r\n", None),
        (b"{\"a\": 1}\r\n", None),
        (b"(a) 1\r\n", None),
        (b"X-Header: 1\r\n", None),
        (b"\x0a\0\0\0\x01\0GET k\n", None),
        (b"A\0\0\0\x01\0\0\0GET k\r\n", None),
    ];
    for (line, expected) in lines {
        let uncut = answer_to(line, 0);
        match expected {
            Some(answer) => assert_eq!(uncut, (answer, false), "{}", line.escape_ascii()),
            None => assert!(uncut.1, "{}: {}", line.escape_ascii(), uncut.0),
        }
        for cut in 1..line.len() {
            assert_eq!(answer_to(line, cut), uncut, "{} cut at {cut}", line.escape_ascii());
        }
    }
}
