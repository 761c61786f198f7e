//! A redis client that is a socket: one command at a time, answers read by the rules of RESP2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::running::Running;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nothing,
    Array(Vec<Reply>),
}

/// A connection.
pub(crate) struct Redis {
    stream: BufReader<TcpStream>,
}

impl Redis {
    pub(crate) fn connect(running: &Running) -> Self {
        let stream = TcpStream::connect(running.server.addresses().resp.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::with_capacity(1 << 16, stream) }
    }

    /// Sends words of a command as an array, without waiting.
    pub(crate) fn send(&mut self, words: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Has a thread read `count` answers that are all the same, so that sending does not wait for reading.
    pub(crate) fn split(&mut self, count: usize, answer: &'static [u8]) -> std::thread::JoinHandle<()> {
        assert!(self.stream.buffer().is_empty(), "everything before was read");
        let mut stream = self.stream.get_ref().try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = vec![0; answer.len()];
            let mut stream = BufReader::with_capacity(1 << 16, &mut stream).take((count * answer.len()) as u64);
            for _ in 0..count {
                stream.read_exact(&mut bytes).unwrap();
                assert_eq!(bytes, answer);
            }
        })
    }

    /// Asks a command whose words have no spaces.
    pub(crate) fn ask(&mut self, command: &[u8]) -> Reply {
        let words: Vec<&[u8]> = command.split(|&byte| byte == b' ').collect();
        self.send(&words);
        self.reply()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.strip_suffix("\r\n").unwrap().to_owned()
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(rest.parse().unwrap()),
            "$" | "*" if rest == "-1" => Reply::Nothing,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" => Reply::Array((0..rest.parse().unwrap()).map(|_| self.reply()).collect()),
            _ => panic!("{line:?} is no answer"),
        }
    }
}
