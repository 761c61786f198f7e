//! As much of RESP2 as a client needs: commands out, answers in.

use super::{Reply, Request};

/// The longest line and the longest text of an answer that is read, and the most elements of an
/// array: what is longer is no answer to what histories hold.
const MAX_LENGTH: usize = 1 << 26;
/// Arrays within arrays: EXEC's answer has MGET's.
const MAX_DEPTH: usize = 4;

/// Appends a request as a client sends it.
pub fn encode(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::One(words) => command(words, out),
        Request::Transaction(commands) => {
            command(&["MULTI".to_owned()], out);
            commands.iter().for_each(|words| command(words, out));
            command(&["EXEC".to_owned()], out);
        }
    }
}

fn command(words: &[String], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// The answer at the beginning of some bytes, and how long it is; `None` when it is not all there
/// yet.
///
/// # Errors
/// The bytes are no answer of RESP2: what stands there instead.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let mut at = 0;
    Ok(reply(bytes, &mut at, 0)?.map(|reply| (reply, at)))
}

fn reply(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Option<Reply>, String> {
    let Some(line) = line(bytes, at)? else { return Ok(None) };
    let (kind, rest) = line.split_at_checked(1).ok_or("an empty line")?;
    let number = || rest.parse::<i64>().map_err(|_| format!("{line:?}"));
    Ok(Some(match kind {
        "+" => Reply::Status(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" | "*" if rest == "-1" => Reply::Nil,
        "$" => {
            let length = length(number()?, line)?;
            let Some(text) = bytes.get(*at..*at + length + 2) else { return Ok(None) };
            *at += length + 2;
            if !text.ends_with(b"\r\n") {
                return Err(format!("a text of {length} bytes that does not end there"));
            }
            Reply::Text(String::from_utf8_lossy(&text[..length]).into_owned())
        }
        "*" if depth < MAX_DEPTH => {
            let mut replies = Vec::new();
            for _ in 0..length(number()?, line)? {
                let Some(one) = reply(bytes, at, depth + 1)? else { return Ok(None) };
                replies.push(one);
            }
            Reply::Array(replies)
        }
        _ => return Err(format!("{line:?}")),
    }))
}

fn length(number: i64, line: &str) -> Result<usize, String> {
    usize::try_from(number)
        .ok()
        .filter(|length| *length <= MAX_LENGTH)
        .ok_or_else(|| format!("{line:?}"))
}

fn line<'b>(bytes: &'b [u8], at: &mut usize) -> Result<Option<&'b str>, String> {
    let rest = &bytes[*at..];
    let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
        return if rest.len() > MAX_LENGTH {
            Err("a line without an end".to_owned())
        } else {
            Ok(None)
        };
    };
    *at += end + 2;
    std::str::from_utf8(&rest[..end]).map(Some).map_err(|_| "a line that is no text".to_owned())
}

/// The words of a command that was sent, for tests of servers.
#[cfg(test)]
fn words(text: &str) -> super::Arguments {
    text.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sent_as_arrays_of_texts() {
        let mut out = Vec::new();
        encode(&Request::Transaction(vec![words("SET k v1")]), &mut out);
        let sent =
            "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nv1\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), sent);
    }

    #[test]
    fn every_answer_is_read_when_it_is_all_there_and_not_before() {
        let text = |text: &str| Reply::Text(text.to_owned());
        for (bytes, reply) in [
            ("+OK\r\n", Reply::Status("OK".to_owned())),
            ("-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            (":-7\r\n", Reply::Integer(-7)),
            ("$3\r\na\r\n\r\n", text("a\r\n")),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            (
                "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n",
                Reply::Array(vec![text("0"), Reply::Array(vec![text("k")])]),
            ),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes.as_bytes()[..cut]), Ok(None), "{:?}", &bytes[..cut]);
            }
            let more = format!("{bytes}+more");
            assert_eq!(parse(more.as_bytes()), Ok(Some((reply, bytes.len()))));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [
            "?\r\n",
            "\r\n",
            ":x\r\n",
            "$-2\r\n",
            "$1\r\nabc",
            "$99999999999\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ] {
            assert!(parse(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
