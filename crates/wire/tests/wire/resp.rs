//! RESP: the parser against a naive reader at every split, Redis's error texts, and the encoder in
//! both dialects.

use proptest::prelude::*;
use timestone_wire::resp::{
    CommandParser, Parsed, Protocol, ProtocolError, ReplyWriter, RespLimits,
};

/// What a stream of commands means: the commands, and how it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Meaning {
    commands: Vec<Vec<Vec<u8>>>,
    error: Option<String>,
    /// Bytes at the end that are not a whole command; not compared after an error.
    left: usize,
}

fn limits() -> RespLimits {
    RespLimits { max_args: 8, max_bulk_bytes: 64, max_command_bytes: 256 }
}

/// Feeds `bytes` in pieces, as a connection does, dropping consumed bytes from the front.
fn parse_in_pieces(bytes: &[u8], pieces: &[usize]) -> Meaning {
    let mut parser = CommandParser::new(limits());
    let mut buffer = Vec::new();
    let mut meaning = Meaning { commands: vec![], error: None, left: 0 };
    let mut from = 0;
    for &to in pieces.iter().chain([&bytes.len()]) {
        buffer.extend_from_slice(&bytes[from..to]);
        from = to;
        loop {
            let drop = match parser.parse(&buffer) {
                Ok(Parsed::Command(command)) => {
                    assert_eq!(command.args().len(), command.len());
                    assert_eq!(command.arg(0), Some(command.name()));
                    meaning.commands.push(command.args().map(<[u8]>::to_vec).collect());
                    command.consumed()
                }
                Ok(Parsed::Incomplete { consumed, needed }) => {
                    assert!(needed > 0);
                    buffer.drain(..consumed);
                    break;
                }
                Err(error) => {
                    meaning.error = Some(error.to_string());
                    return meaning;
                }
            };
            assert!(drop > 0);
            buffer.drain(..drop);
        }
    }
    meaning.left = buffer.len();
    meaning
}

/// The same by a reader that always has the whole stream and starts every command afresh.
fn naive(bytes: &[u8]) -> Meaning {
    let mut meaning = Meaning { commands: vec![], error: None, left: 0 };
    let mut rest = bytes;
    while !rest.is_empty() {
        match naive_command(rest) {
            Ok(Some((args, used))) => {
                if !args.is_empty() {
                    meaning.commands.push(args);
                }
                rest = &rest[used..];
            }
            Ok(None) => break,
            Err(text) => {
                meaning.error = Some(format!("Protocol error: {text}"));
                return meaning;
            }
        }
    }
    meaning.left = rest.len();
    meaning
}

type NaiveCommand = Option<(Vec<Vec<u8>>, usize)>;

fn naive_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    (end + 1 < bytes.len()).then(|| (&bytes[..end], end + 2))
}

fn naive_number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

fn naive_command(bytes: &[u8]) -> Result<NaiveCommand, String> {
    if bytes[0] != b'*' {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        // The reference knows no quotes; the generator puts none on lines, and quotes have their
        // own test.
        let space = |byte: &u8| matches!(byte, b' ' | 9..=13);
        let words =
            bytes[..end].split(space).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        return Ok(Some((words, end + 1)));
    }
    let Some((line, mut at)) = naive_line(bytes) else { return Ok(None) };
    let count = naive_number(&line[1..]).ok_or("invalid multibulk length")?;
    if count > 8 {
        return Err("invalid multibulk length".into());
    }
    let mut args = vec![];
    for _ in 0..count.max(0) {
        let Some((line, used)) = naive_line(&bytes[at..]) else { return Ok(None) };
        let first = bytes[at];
        if first != b'$' {
            return Err(format!("expected '$', got '{}'", char::from(first)));
        }
        let length = naive_number(&line[1..])
            .filter(|length| (0..=64).contains(length))
            .ok_or("invalid bulk length")?;
        at += used;
        let end = at + length as usize;
        if end > 256 {
            return Err("too big request".into());
        }
        if end + 2 > bytes.len() {
            return Ok(None);
        }
        args.push(bytes[at..end].to_vec());
        at = end + 2;
    }
    Ok(Some((args, at)))
}

fn multibulk(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let arg = prop::collection::vec(any::<u8>(), 0..12);
    prop_oneof![
        6 => prop::collection::vec(arg, 1..8).prop_map(|args| multibulk(&args)),
        2 => "[A-Za-z0-9 ]{0,20}\r?\n".prop_map(String::into_bytes),
        1 => prop::sample::select(vec!["\r\n", "*0\r\n", "*-1\r\n", "\n"]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::sample::select(vec![
            "*x\r\n", "*9\r\n", "*01\r\n", "*+1\r\n", "*1\r\n:1\r\n", "*1\r\n$65\r\n", "*1\r\n$-1\r\n", "*1\r\n$x\r\n", "*1\r\n\r\n",
            "*5\r\n$64\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_parser_agrees_with_a_naive_reader_at_every_split(
        pieces in prop::collection::vec(piece(), 0..5), unfinished in any::<prop::sample::Index>(),
    ) {
        // The stream ends in the middle of the last piece, or at its end.
        let mut bytes = pieces.concat();
        let last = pieces.last().map_or(0, Vec::len);
        bytes.truncate(bytes.len() - last + unfinished.index(last + 1));
        let expected = naive(&bytes);
        for split in 0..=bytes.len() {
            prop_assert_eq!(&parse_in_pieces(&bytes, &[split]), &expected, "split at {}", split);
        }
        let every_byte: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&parse_in_pieces(&bytes, &every_byte), &expected, "byte by byte");
    }

    #[test]
    fn noise_means_the_same_however_it_arrives(bytes in prop::collection::vec(prop::sample::select(b"*$\r\n0123456789 -aGET'\"\\x\0".to_vec()), 0..60)) {
        let whole = parse_in_pieces(&bytes, &[]);
        let every_byte: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(parse_in_pieces(&bytes, &every_byte), whole);
    }
}

fn error_of(bytes: &[u8]) -> String {
    let mut parser = CommandParser::new(RespLimits::default());
    match parser.parse(bytes) {
        Err(error) => {
            let mut written = Vec::new();
            error.write(&mut written);
            assert_eq!(String::from_utf8(written).unwrap(), error.to_string());
            error.to_string()
        }
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn protocol_errors_have_rediss_words() {
    assert_eq!(error_of(b"*abc\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1048577\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*99999999999999999999\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1\r\n:3\r\n"), "Protocol error: expected '$', got ':'");
    assert_eq!(error_of(b"*1\r\n$-5\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"*1\r\n$99999999999\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"SET \"a\n"), "Protocol error: unbalanced quotes in request");
    assert_eq!(error_of(b"SET \"a\"b\n"), "Protocol error: unbalanced quotes in request");
    assert_eq!(error_of(b"SET 'a\n"), "Protocol error: unbalanced quotes in request");
    let long = vec![b'1'; 64 * 1024 + 1];
    assert_eq!(error_of(&[b"a", &long[..]].concat()), "Protocol error: too big inline request");
    assert_eq!(error_of(&[b"*", &long[..]].concat()), "Protocol error: too big mbulk count string");
    assert_eq!(
        error_of(&[b"*1\r\n$", &long[..]].concat()),
        "Protocol error: too big bulk count string"
    );
    let mut written = Vec::new();
    ProtocolError::ExpectedDollar(0xff).write(&mut written);
    assert_eq!(written, b"Protocol error: expected '$', got '\xff'");
}

#[test]
fn inline_words_are_unquoted_as_redis_does() {
    let cases: [(&[u8], &[&[u8]]); 10] = [
        (b"SET k a\0b", &[b"SET", b"k", b"a\0b"]),
        (b"SET \0 \"\\\0\" '\0'", &[b"SET", b"\0", b"\0", b"\0"]),
        (b"  PING  \r\n", &[b"PING"]),
        (b"SET k \"a b\"\n", &[b"SET", b"k", b"a b"]),
        (br#"SET k "\x41\n\t\"\\\q""#, &[b"SET", b"k", b"A\n\t\"\\q"]),
        (br"SET k 'it\'s \n'", &[b"SET", b"k", br"it's \n"]),
        (b"SET k \"\"", &[b"SET", b"k", b""]),
        (b"a\"b c\" d", &[b"ab c", b"d"]),
        (b"a \"\\xzz\"", &[b"a", b"xzz"]),
        (b"\ta\x0bb", &[b"a", b"b"]),
    ];
    for (line, words) in cases {
        let line = if line.ends_with(b"\n") { line.to_vec() } else { [line, b"\r\n"].concat() };
        let mut parser = CommandParser::new(RespLimits::default());
        let Ok(Parsed::Command(command)) = parser.parse(&line) else {
            panic!("{:?}", line.escape_ascii().to_string())
        };
        assert_eq!(command.args().collect::<Vec<_>>(), words);
        assert_eq!(command.consumed(), line.len());
    }
}

#[test]
fn the_two_bytes_after_an_argument_are_skipped_whatever_they_are() {
    let mut parser = CommandParser::new(RespLimits::default());
    let Ok(Parsed::Command(command)) = parser.parse(b"*1\r\n$4\r\nPINGxxPING\r\n") else {
        panic!("not a command")
    };
    assert_eq!((command.name(), command.consumed()), (b"PING".as_slice(), 14));
}

#[test]
fn a_big_argument_says_how_many_bytes_are_missing() {
    let mut parser = CommandParser::new(RespLimits::default());
    let head = b"*1\r\n$1000\r\n";
    assert!(matches!(parser.parse(head), Ok(Parsed::Incomplete { consumed: 0, needed: 1002 })));
    let whole = [head, &[b'x'; 1002][..]].concat();
    assert!(matches!(
        parser.parse(&whole[..1000]),
        Ok(Parsed::Incomplete { consumed: 0, needed: 13 })
    ));
    let Ok(Parsed::Command(command)) = parser.parse(&whole) else { panic!("not a command") };
    assert_eq!((command.name().len(), command.consumed()), (1000, 1013));
}

#[test]
fn the_most_arguments_are_taken_and_one_more_is_not() {
    let mut bytes = b"*1048576\r\n".to_vec();
    bytes.extend(b"$0\r\n\r\n".repeat(1024 * 1024));
    let mut parser = CommandParser::new(RespLimits::default());
    let Ok(Parsed::Command(command)) = parser.parse(&bytes) else { panic!("not a command") };
    assert_eq!((command.len(), command.consumed()), (1024 * 1024, bytes.len()));
}

fn written(protocol: Protocol, write: impl Fn(&mut ReplyWriter<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut ReplyWriter::new(&mut out, protocol));
    String::from_utf8(out).unwrap()
}

#[test]
fn replies_have_their_form_in_both_dialects() {
    type Write = fn(&mut ReplyWriter<'_>);
    let cases: [(Write, &str, &str); 24] = [
        (|reply| reply.ok(), "+OK\r\n", "+OK\r\n"),
        (|reply| reply.simple("PO\r\nNG"), "+PO  NG\r\n", "+PO  NG\r\n"),
        (|reply| reply.error("ERR bad\nthing"), "-ERR bad thing\r\n", "-ERR bad thing\r\n"),
        (|reply| reply.integer(0), ":0\r\n", ":0\r\n"),
        (|reply| reply.integer(-7), ":-7\r\n", ":-7\r\n"),
        (|reply| reply.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
        (|reply| reply.integer(i64::MAX), ":9223372036854775807\r\n", ":9223372036854775807\r\n"),
        (|reply| reply.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
        (|reply| reply.bulk(b"0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"),
        (|reply| reply.bulk_integer(-12), "$3\r\n-12\r\n", "$3\r\n-12\r\n"),
        (|reply| reply.null(), "$-1\r\n", "_\r\n"),
        (|reply| reply.null_array(), "*-1\r\n", "_\r\n"),
        (|reply| reply.array(12), "*12\r\n", "*12\r\n"),
        (|reply| reply.map(2), "*4\r\n", "%2\r\n"),
        (|reply| reply.set(2), "*2\r\n", "~2\r\n"),
        (|reply| reply.push(3), "*3\r\n", ">3\r\n"),
        (|reply| reply.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (|reply| reply.double(3.0), "$1\r\n3\r\n", ",3\r\n"),
        (|reply| reply.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
        (|reply| reply.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n"),
        (|reply| reply.boolean(true), ":1\r\n", "#t\r\n"),
        (|reply| reply.boolean(false), ":0\r\n", "#f\r\n"),
        (|reply| reply.verbatim(*b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        (|reply| reply.verbatim(*b"mkd", b""), "$0\r\n\r\n", "=4\r\nmkd:\r\n"),
    ];
    for (write, old, new) in cases {
        assert_eq!(written(Protocol::Resp2, write), old);
        assert_eq!(written(Protocol::Resp3, write), new);
    }
}

proptest! {
    #[test]
    fn doubles_read_back_exactly(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let text = written(Protocol::Resp3, |reply| reply.double(value));
        let text = text.strip_prefix(',').and_then(|text| text.strip_suffix("\r\n")).unwrap();
        let read: f64 = text.parse().unwrap();
        prop_assert!(read == value || (read.is_nan() && value.is_nan()), "{text}");
    }

    #[test]
    fn integers_read_back_exactly(value in any::<i64>()) {
        prop_assert_eq!(written(Protocol::Resp2, |reply| reply.integer(value)), format!(":{value}\r\n"));
    }
}
