//! A Redis client of a hundred lines: what tests of servers need, with every byte under control.
//!
//! Tests of several crates include this file by its path, so that no crate has to exist for it.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long anything may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    pub(crate) fn is_ok(&self) -> bool {
        *self == Self::Simple("OK".to_owned())
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream: BufReader::with_capacity(1 << 16, stream) })
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends one command.
    pub(crate) fn queue(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes)
    }

    /// Sends one command and waits for its answer.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.queue(words)?;
        self.reply()
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, text) = line.split_at_checked(1).ok_or_else(|| bad("an empty line"))?;
        let number = || text.parse::<i64>().map_err(|_| bad("a number that is none"));
        Ok(match kind {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()?),
            "_" => Reply::Nil,
            "$" => match number()? {
                -1 => Reply::Nil,
                length => Reply::Bulk(self.bulk(length as usize)?),
            },
            "*" => match number()? {
                -1 => Reply::Nil,
                length => {
                    Reply::Array((0..length).map(|_| self.reply()).collect::<io::Result<_>>()?)
                }
            },
            _ => return Err(bad("a reply of an unknown type")),
        })
    }

    /// Has a thread read `count` answers that are all the same, so that sending does not wait for
    /// reading.
    pub(crate) fn split(
        &mut self,
        count: usize,
        answer: &'static [u8],
    ) -> std::thread::JoinHandle<()> {
        assert!(self.stream.buffer().is_empty(), "everything before was read");
        let stream = self.stream.get_ref().try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let mut bytes = vec![0; answer.len()];
            let mut stream =
                BufReader::with_capacity(1 << 16, stream).take((count * answer.len()) as u64);
            for _ in 0..count {
                stream.read_exact(&mut bytes).expect("an answer");
                assert_eq!(bytes, answer);
            }
        })
    }

    /// Whether the server closes the connection, whatever it says before.
    pub(crate) fn closes(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).map(|_| rest)
    }

    fn bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        io::BufRead::read_until(&mut self.stream, b'\n', &mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        bytes.truncate(bytes.len() - 2);
        String::from_utf8(bytes).map_err(|_| bad("a line that is no text"))
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
