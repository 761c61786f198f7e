//! A file system that is full below `--capacity`: writes are refused at once and in words,
//! everything else goes on, and so do writes when there is room again. Nothing that was
//! acknowledged is lost.
//!
//! The file system is one in memory, of a few hundred megabytes, in a mount namespace that a
//! process of its own holds: it needs no root where the system lets users have namespaces, and is
//! gone with its last process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::reach::page;
use crate::resp::{Reply, Resp};
use crate::server::{Node, NodeSetup, eventually, test_folder};

/// Logs of 100 MB, two of them from the start, and flash files: little is left for values.
const MEBIBYTES: u32 = 420;
/// Everything is answered within this, however little room there is.
const PROMPT: Duration = Duration::from_secs(5);
const CLIENTS: usize = 8;
const PIPELINE: u64 = 32;

/// A small file system, and the process that holds it.
struct Small {
    holder: Child,
    folder: PathBuf,
    as_root: bool,
}

impl Small {
    /// One at `folder`, unless this system gives us none.
    fn mount(folder: &Path) -> Option<Self> {
        std::fs::create_dir_all(folder).expect("a folder");
        [true, false].into_iter().find_map(|as_root| {
            let size = format!("size={MEBIBYTES}m");
            let words = "mount -t tmpfs -o \"$0\" none \"$1\" && echo mounted && exec sleep 3600";
            let mut holder = Command::new("unshare")
                .args(if as_root { &["-m"][..] } else { &["-r", "-m"] })
                .args(["sh", "-c", words, &size])
                .arg(folder)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut line = String::new();
            let _ = BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut line);
            if line.trim() == "mounted" {
                return Some(Self { holder, folder: folder.to_owned(), as_root });
            }
            let _ = holder.kill();
            let _ = holder.wait();
            None
        })
    }

    /// A server whose data is in it.
    fn start(&self, place: &NodeSetup) -> Node {
        let server = place.command();
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id())).arg("--mount");
        if !self.as_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(server.get_program()).args(server.get_args());
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        place.spawn_as(command).ready()
    }

    /// The way to one of its files from outside.
    fn path(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.folder.strip_prefix("/").expect("an absolute path")).join(name)
    }

    /// Takes all of its room, as somebody else's file would.
    fn fill(&self) {
        let mut file = File::create(self.path("filler")).expect("a file");
        let zeros = vec![0; 64 * 1024];
        loop {
            match file.write(&zeros) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn clear(&self) {
        std::fs::remove_file(self.path("filler")).expect("it is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// What clients wrote, and what was refused.
#[derive(Default)]
struct Written {
    /// The number that the key holds for sure, by key.
    acknowledged: BTreeMap<u64, u64>,
    refused: Vec<String>,
    slowest: Duration,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(1024, b'v');
    bytes
}

/// Writes new keys, many at a time, until some are refused for want of room.
fn write_until_refused(place: &NodeSetup, client: u64) -> Written {
    let mut resp = Resp::connect(place.resp).expect("connects");
    let mut written = Written::default();
    for round in 0..4_000 {
        let begin = Instant::now();
        let keys: Vec<u64> =
            (0..PIPELINE).map(|n| (round * PIPELINE + n) * CLIENTS as u64 + client).collect();
        for &number in &keys {
            resp.queue(&[b"SET", &key(number), &value(number)]).expect("sent");
        }
        for &number in &keys {
            match resp.reply().expect("an answer") {
                Reply::Error(words) => written.refused.push(words),
                reply => {
                    assert!(reply.is_ok(), "{reply:?}");
                    written.acknowledged.insert(number, number);
                }
            }
        }
        written.slowest = written.slowest.max(begin.elapsed());
        if written.refused.iter().any(|words| words.starts_with("OOM")) {
            return written;
        }
    }
    panic!("the file system does not fill up");
}

fn write_from_all(place: &NodeSetup) -> Written {
    let all: Vec<Written> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|client| scope.spawn(move || write_until_refused(place, client)))
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let mut sum = Written::default();
    for mut written in all {
        sum.acknowledged.append(&mut written.acknowledged);
        sum.refused.append(&mut written.refused);
        sum.slowest = sum.slowest.max(written.slowest);
    }
    sum
}

fn promptly(resp: &mut Resp, words: &[&[u8]]) -> Reply {
    let begin = Instant::now();
    let reply = resp.call(words).expect("an answer");
    assert!(
        begin.elapsed() < PROMPT,
        "{:?} took {:?}: {reply:?}",
        String::from_utf8_lossy(words[0]),
        begin.elapsed()
    );
    reply
}

/// Every key that was acknowledged holds what was acknowledged, but for those that were deleted.
fn all_there(place: &NodeSetup, acknowledged: &BTreeMap<u64, u64>) {
    let mut resp = Resp::connect(place.resp).expect("connects");
    for (&number, &held) in acknowledged.iter().step_by(13) {
        let found = eventually("a read", PROMPT, || {
            match resp.call(&[b"GET", &key(number)]).expect("an answer") {
                Reply::Error(words) => Err(words),
                reply => Ok(reply),
            }
        });
        assert!(found == Reply::Bulk(value(held)), "key {number} was acknowledged");
    }
}

fn writes_go_on(resp: &mut Resp) {
    eventually("writes that go on by themselves", Duration::from_secs(20), || {
        match promptly(resp, &[b"SET", b"after", b"room"]) {
            Reply::Error(words) => Err(words),
            _ => Ok(()),
        }
    });
}

#[test]
fn a_file_system_that_fills_up_refuses_writes_in_words_and_goes_on_when_there_is_room() {
    let folder = test_folder();
    let Some(small) = Small::mount(&folder.path().join("small")) else {
        eprintln!(
            "skipped: this system lets us have no file system of our own, neither as root nor in a \
             user namespace"
        );
        return;
    };
    let place = NodeSetup::new(&small.folder, "node").with("--capacity", "2GiB");
    let node = small.start(&place);
    let mut resp = Resp::connect(place.resp).expect("connects");

    // Our own flash files take what there is: the log keeps its room.
    let written = write_from_all(&place);
    println!(
        "{} writes, {} refused, slowest {:?}",
        written.acknowledged.len(),
        written.refused.len(),
        written.slowest
    );
    let odd: Vec<_> = written
        .refused
        .iter()
        .filter(|words| !words.starts_with("OOM") && !words.starts_with("TRYAGAIN"))
        .collect();
    assert!(odd.is_empty(), "{:?}", odd.first());
    assert!(written.slowest < PROMPT, "{:?}", written.slowest);
    let words = written.refused.iter().find(|words| words.starts_with("OOM")).expect("refused");
    assert!(
        words.contains("file system") && words.contains("free") && words.contains("shard-"),
        "{words}"
    );
    let ready = eventually("a page that says why", PROMPT, || {
        let page = page(&place, "/readyz");
        if page.contains("not ready") { Ok(page) } else { Err(page) }
    });
    assert!(
        ready.contains("[-]room") && ready.contains("shard") && ready.contains("/flash"),
        "{ready}"
    );

    // Reads and deletes go on; what was acknowledged is there, also after a crash of that moment.
    all_there(&place, &written.acknowledged);
    let mut kept = written.acknowledged;
    let (gone, _) = kept.pop_first().expect("something was written");
    assert_eq!(promptly(&mut resp, &[b"DEL", &key(gone)]), Reply::Integer(1));
    node.kill();
    let node = small.start(&place);
    all_there(&place, &kept);
    let mut resp = Resp::connect(place.resp).expect("connects");
    assert_eq!(promptly(&mut resp, &[b"GET", &key(gone)]), Reply::Nil);

    // Somebody else's file takes the very last of it.
    small.fill();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        if let Reply::Error(words) = promptly(&mut resp, &[b"SET", b"more", &value(1)]) {
            assert!(words.starts_with("OOM") || words.starts_with("TRYAGAIN"), "{words}");
        }
    }
    assert!(promptly(&mut resp, &[b"FLUSHALL"]).is_ok());
    writes_go_on(&mut resp);
    let (status, text) = node.terminate();
    assert!(status.success(), "{status}\n{text}");
    assert!(begin.elapsed() < Duration::from_secs(40), "a shutdown takes its usual time");

    small.clear();
    let node = small.start(&place);
    let mut resp = Resp::connect(place.resp).expect("connects");
    writes_go_on(&mut resp);
    assert_eq!(
        promptly(&mut resp, &[b"GET", &key(*kept.keys().next().expect("a key"))]),
        Reply::Nil
    );
    node.stop();
}
