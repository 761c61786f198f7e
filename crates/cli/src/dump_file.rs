//! The file that `timestone dump` writes and `timestone load` reads: lines of JSON, in batches that
//! are checked before they are used (docs/formats/dump.md).
//!
//! ```text
//!   {"timestone_dump":1,"keyspace":…,"as_of_ns":…}        head
//!   {"key":…,"value":…,"expires_ns":…}                    an entry a line
//!   {"batch":1,"entries":1000,"crc32c":…}                 ends a batch: the checksum of all lines since the one before, the head among them
//!   {"end":true,"entries":N}                              nothing is missing
//! ```
//! Invariants: a reader hands out an entry only when the checksum of its batch was right; a file
//! without its last line is cut short and said to be. Memory, of both: one batch, which
//! [`BATCH_ENTRIES`] and [`BATCH_BYTES`] bound, and one entry more.

use std::io::{BufRead, Write};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{Expiry, Timestamp};

use crate::output::{from_base64, put_bytes};

/// The version of the format.
const VERSION: u64 = 1;
/// Most entries of a batch.
pub(crate) const BATCH_ENTRIES: usize = 1000;
/// Bytes of lines after which a batch ends; a reader takes no entry behind as many bytes of keys
/// and values.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// No line is longer: the largest key and the largest value with every byte escaped, as JSON
/// allows.
const MAX_LINE_BYTES: usize = 6 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) + 1024;

/// What a dump is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DumpHead {
    /// The keyspace that was dumped.
    pub(crate) keyspace: String,
    /// The point in time that it shows.
    pub(crate) as_of: Timestamp,
}

/// One key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) expires_at: Expiry,
}

/// Writes a dump.
pub(crate) struct DumpWriter<W> {
    out: W,
    batch: u64,
    in_batch: usize,
    lines: Vec<u8>,
    entries: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    pub(crate) fn begin(out: W, head: &DumpHead) -> std::io::Result<Self> {
        let mut writer = Self { out, batch: 0, in_batch: 0, lines: Vec::new(), entries: 0 };
        let line = json!({
            "timestone_dump": VERSION, "keyspace": head.keyspace, "as_of_ns": head.as_of.as_nanos().to_string(),
        });
        writeln!(writer.lines, "{line}")?;
        Ok(writer)
    }

    /// Adds an entry.
    pub(crate) fn entry(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at: Expiry,
    ) -> std::io::Result<()> {
        let mut object = Map::new();
        put_bytes(&mut object, "key", key);
        put_bytes(&mut object, "value", value);
        if expires_at != Expiry::NEVER {
            object.insert(
                "expires_ns".to_owned(),
                expires_at.timestamp().as_nanos().to_string().into(),
            );
        }
        writeln!(self.lines, "{}", Value::Object(object))?;
        self.in_batch += 1;
        self.entries += 1;
        if self.in_batch >= BATCH_ENTRIES || self.lines.len() >= BATCH_BYTES {
            self.end_batch()
        } else {
            Ok(())
        }
    }

    fn end_batch(&mut self) -> std::io::Result<()> {
        self.batch += 1;
        let line = json!({ "batch": self.batch, "entries": self.in_batch, "crc32c": crc32c::crc32c(&self.lines) });
        self.out.write_all(&self.lines)?;
        writeln!(self.out, "{line}")?;
        self.lines.clear();
        self.in_batch = 0;
        Ok(())
    }

    /// Ends the dump: the writer, with everything handed to it, and how many entries there are.
    pub(crate) fn finish(mut self) -> std::io::Result<(W, u64)> {
        // One batch at least: it covers the head.
        if self.in_batch > 0 || self.batch == 0 {
            self.end_batch()?;
        }
        writeln!(self.out, "{}", json!({ "end": true, "entries": self.entries }))?;
        self.out.flush()?;
        Ok((self.out, self.entries))
    }
}

/// A line as it may look.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    timestone_dump: Option<u64>,
    keyspace: Option<String>,
    as_of_ns: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    expires_ns: Option<String>,
    batch: Option<u64>,
    entries: Option<u64>,
    crc32c: Option<u32>,
    end: Option<bool>,
}

/// Reads a dump.
pub(crate) struct DumpReader<R> {
    input: R,
    line: Vec<u8>,
    /// Of the lines since the last batch.
    checksum: u32,
    number: u64,
    batch: u64,
    entries: u64,
    done: bool,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// The input is no dump, or one of another version.
    pub(crate) fn begin(input: R) -> Result<(Self, DumpHead), String> {
        let mut reader = Self {
            input,
            line: Vec::new(),
            checksum: 0,
            number: 0,
            batch: 0,
            entries: 0,
            done: false,
        };
        let Some(line) = reader.next_line()? else {
            return Err("it is empty, and no dump".to_owned());
        };
        let version = line.timestone_dump.ok_or("its first line is not that of a dump")?;
        if version != VERSION {
            return Err(format!(
                "it is a dump of version {version}; this program reads version {VERSION}: use a \
                 matching one"
            ));
        }
        let keyspace = line.keyspace.ok_or("its first line names no keyspace")?;
        reader.checksum = crc32c::crc32c(&reader.line);
        let as_of = line
            .as_of_ns
            .as_deref()
            .and_then(nanos)
            .ok_or("its first line names no point in time")?;
        Ok((reader, DumpHead { keyspace, as_of }))
    }

    /// The next batch, checked; `None` after the last one.
    ///
    /// # Errors
    /// The file is damaged or cut short. Batches before were right.
    pub(crate) fn batch(&mut self) -> Result<Option<Vec<Entry>>, String> {
        if self.done {
            return Ok(None);
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            let Some(line) = self.next_line()? else {
                return Err(format!(
                    "it ends after line {}, and is cut short: its last line is missing",
                    self.number
                ));
            };
            if line.end == Some(true) {
                if self.batch == 0 || !entries.is_empty() || line.entries != Some(self.entries) {
                    return Err(self.damaged("its last line does not fit what is before it"));
                }
                self.done = true;
                return if self.is_at_end()? {
                    Ok(None)
                } else {
                    Err(self.damaged("something follows its last line"))
                };
            }
            if let Some(batch) = line.batch {
                self.batch += 1;
                let fits = batch == self.batch && line.entries == Some(entries.len() as u64);
                if !fits || line.crc32c != Some(self.checksum) {
                    return Err(
                        self.damaged(&format!("the checksum of batch {} is wrong", self.batch))
                    );
                }
                self.entries += entries.len() as u64;
                self.checksum = 0;
                return Ok(Some(entries));
            }
            self.checksum = crc32c::crc32c_append(self.checksum, &self.line);
            // A writer ends a batch at either bound, and lines are longer than what they hold:
            // whatever follows is not its.
            if entries.len() >= BATCH_ENTRIES || bytes >= BATCH_BYTES {
                return Err(self.damaged("its batch is longer than any that a dump has"));
            }
            let entry = entry_of(line).ok_or_else(|| self.damaged("this is no entry"))?;
            bytes += entry.key.len() + entry.value.len();
            entries.push(entry);
        }
    }

    fn damaged(&self, what: &str) -> String {
        format!("it is damaged at line {}: {what}", self.number)
    }

    fn is_at_end(&mut self) -> Result<bool, String> {
        self.input.fill_buf().map(<[u8]>::is_empty).map_err(|error| error.to_string())
    }

    /// The next line; its bytes, the line feed among them, are in `self.line`.
    fn next_line(&mut self) -> Result<Option<Line>, String> {
        use std::io::Read;
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64;
        let read = (&mut self.input)
            .take(limit)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| error.to_string())?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if !self.line.ends_with(b"\n") {
            return Err(format!("it ends within line {}, and is cut short", self.number));
        }
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|_| self.damaged("this is no line of a dump"))
    }
}

fn nanos(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_nanos)
}

fn entry_of(line: Line) -> Option<Entry> {
    let bytes = |text: Option<String>, coded: Option<String>| match (text, coded) {
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(coded)) => from_base64(&coded),
        _ => None,
    };
    let expires_at = match line.expires_ns {
        Some(text) => Expiry::at(nanos(&text)?),
        None => Expiry::NEVER,
    };
    let (key, value) = (bytes(line.key, line.key_base64)?, bytes(line.value, line.value_base64)?);
    Some(Entry { key, value, expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u32) -> Vec<Entry> {
        let entry = |n: u32| Entry {
            key: format!("key {n}").into_bytes(),
            value: vec![n as u8; n as usize % 50],
            expires_at: if n.is_multiple_of(3) {
                Expiry::at(Timestamp::from_nanos(u64::from(n) + 7))
            } else {
                Expiry::NEVER
            },
        };
        (0..count).map(entry).collect()
    }

    fn dump(entries: &[Entry]) -> Vec<u8> {
        let head = DumpHead { keyspace: "default".to_owned(), as_of: Timestamp::from_nanos(5) };
        let mut writer = DumpWriter::begin(Vec::new(), &head).unwrap();
        entries
            .iter()
            .for_each(|entry| writer.entry(&entry.key, &entry.value, entry.expires_at).unwrap());
        let (bytes, count) = writer.finish().unwrap();
        assert_eq!(count, entries.len() as u64);
        bytes
    }

    /// What a reader hands out, and how it ended.
    fn read(bytes: &[u8]) -> (Vec<Entry>, Result<(), String>) {
        let mut found = Vec::new();
        let outcome = DumpReader::begin(bytes).and_then(|(mut reader, _)| {
            while let Some(batch) = reader.batch()? {
                found.extend(batch);
            }
            Ok(())
        });
        (found, outcome)
    }

    #[test]
    fn what_was_written_is_read_back_batch_by_batch() {
        for count in [0, 1, 999, 1000, 1001, 2500] {
            let entries = entries(count);
            let (found, outcome) = read(&dump(&entries));
            assert_eq!(outcome, Ok(()));
            assert!(found == entries, "{count} entries");
        }
        let text = String::from_utf8(dump(&entries(1))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], r#"{"as_of_ns":"5","keyspace":"default","timestone_dump":1}"#);
        assert_eq!(lines[1], r#"{"expires_ns":"7","key":"key 0","value":""}"#);
        assert!(lines[2].starts_with(r#"{"batch":1,"crc32c":"#), "{}", lines[2]);
        assert_eq!(lines[3], r#"{"end":true,"entries":1}"#);
    }

    #[test]
    fn a_batch_of_more_bytes_than_any_that_is_written_is_refused() {
        let entry = |length: usize| Entry {
            key: b"key".to_vec(),
            value: vec![b'v'; length],
            expires_at: Expiry::NEVER,
        };
        // What is written is read, however its lengths fall.
        for length in [1, BATCH_BYTES / 3, BATCH_BYTES - 40, BATCH_BYTES, MAX_VALUE_BYTES] {
            let entries = vec![entry(length); 5];
            assert_eq!(read(&dump(&entries)).0.len(), 5, "{length}");
        }
        // The lines of several batches under one checksum.
        let mut lines = Vec::new();
        for line in
            dump(&vec![entry(MAX_VALUE_BYTES / 4); 4]).split_inclusive(|&byte| byte == b'\n')
        {
            if !line.starts_with(b"{\"batch\"") && !line.starts_with(b"{\"end\"") {
                lines.extend_from_slice(line);
            }
        }
        let end = format!(
            "{{\"batch\":1,\"entries\":4,\"crc32c\":{}}}\n{{\"end\":true,\"entries\":4}}\n",
            crc32c::crc32c(&lines)
        );
        lines.extend_from_slice(end.as_bytes());
        let (found, outcome) = read(&lines);
        assert!(found.is_empty() && outcome.unwrap_err().contains("longer than any"));
    }

    #[test]
    fn no_flipped_bit_and_no_missing_byte_passes_for_a_whole_dump() {
        let entries = entries(40);
        let sound = dump(&entries);
        for bit in 0..sound.len() * 8 {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (found, outcome) = read(&damaged);
            assert!(outcome.is_err(), "bit {bit}");
            assert!(
                found.is_empty() || found == entries,
                "bit {bit}: what is handed out was written"
            );
        }
        for length in 0..sound.len() {
            assert!(read(&sound[..length]).1.is_err(), "{length} of {} bytes", sound.len());
        }
        let mut longer = sound;
        longer.extend_from_slice(b"{}\n");
        assert!(read(&longer).1.is_err());
    }
}
