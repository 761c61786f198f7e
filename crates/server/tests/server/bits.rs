//! A small data directory of a server, damaged in every way that one bit can be, and as crashes
//! leave it: the server refuses to start on it, in words that name the file, or serves what was
//! acknowledged.
//!
//! ```text
//!   a life that ends without a word ─► image ─┬─► one bit of one file flipped ─┐
//!   another one, shut down ──────────► image ─┼─► a `.new` of every length ────┼─► start ─► refused by name | every key read
//!                                             └─► a file missing ──────────────┘
//! ```
//! Stores and logs have sweeps of their own, which try every bit (`crates/store`, `crates/wal`);
//! here it is the small files that are tried whole, and the others in places: that a server passes
//! on what its parts find.
//!
//! `TIMESTONE_TEST_SWEEP=full cargo test -p timestone-server --release bits` tries every length,
//! and more places.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use timestone_client::{ErrorCode, blocking};
use timestone_server::{
    AcceptedLoss, ListenConfig, MasterPlace, ServerConfig, ServerError, SizeConfig, Tuning,
};
use timestone_wal::DeviceKind;

use crate::running::{Running, config, staged};
use crate::scores::{Score, keep, sweep_is_full as full};

const PAGE: usize = 4096;
/// Bytes of a page of the block table before its first entry (docs/formats/flash.md).
const TABLE_HEADER: usize = 32;
const NAME: &str = "blue";
/// What was acknowledged last: where it lies in the log looks like a write that a crash tore.
const LAST: &[u8] = b"last";
const KEYS: u32 = 12;

/// A server without ports on `data`, told nothing that the directory knows, but the cluster's name.
pub(crate) fn small(data: &Path) -> ServerConfig {
    let mut tuning = Tuning::of(DeviceKind::Ssd);
    tuning.log.file_bytes = 128 * 1024;
    tuning.log.block_bytes = 16 * 1024;
    ServerConfig {
        listen: ListenConfig::default(),
        shards: None,
        cluster: Some(NAME.to_owned()),
        sizes: SizeConfig { capacity_bytes: Some(64 << 20), ..SizeConfig::default() },
        tuning: Some(tuning),
        ..config(data)
    }
}

/// The files of a directory, by their path in it.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

pub(crate) fn image(data: &Path) -> Image {
    let named =
        |path: PathBuf| (path.strip_prefix(data).unwrap().to_owned(), fs::read(&path).unwrap());
    files(data).into_iter().map(named).collect()
}

/// Makes the directory what the image is. Only what differs is written: a device is mostly zeros.
pub(crate) fn restore(data: &Path, image: &Image) {
    for path in files(data) {
        if !image.contains_key(path.strip_prefix(data).unwrap()) {
            fs::remove_file(path).unwrap();
        }
    }
    for (name, content) in image {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let found = fs::read(&path).unwrap_or_default();
        if found.len() != content.len() {
            fs::write(&path, content).unwrap();
            continue;
        }
        let pages = found.chunks(PAGE).zip(content.chunks(PAGE)).enumerate();
        for (page, (_, content)) in pages.filter(|(_, (found, content))| found != content) {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(content, (page * PAGE) as u64).unwrap();
        }
    }
}

#[derive(Default, Debug)]
struct Outcomes {
    refused: u64,
    read_errors: u64,
    torn: u64,
    harmless: u64,
}

impl Outcomes {
    fn keep(&self, of: &str) {
        let scores = [
            ("of", Score::Name(of)),
            ("detected", Score::Count(self.refused + self.read_errors)),
            ("torn", Score::Count(self.torn)),
            ("harmless", Score::Count(self.harmless)),
            ("full", Score::Count(full().into())),
        ];
        keep("flipped bits", &scores);
    }
}

/// What is acknowledged, and the directory that holds it.
struct World {
    _folder: tempfile::TempDir,
    data: PathBuf,
    config: ServerConfig,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl World {
    fn new(master: MasterPlace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let config = ServerConfig { shards: Some(1), master, ..small(&data) };
        Self { _folder: folder, data, config, model: BTreeMap::new() }
    }

    /// A client: over TCP where other servers have shards as well.
    fn client(&self, running: &Running) -> blocking::Db {
        if self.config.listen.native.is_some() { running.native() } else { running.inside.clone() }
    }

    /// A life of the server that writes every key.
    fn live(&mut self, life: u32, graceful: bool) -> Image {
        let running = Running::start(&self.config);
        let client = self.client(&running);
        let keys = (0..KEYS).map(|key| format!("key {key}").into_bytes());
        for key in keys.chain([LAST.to_vec()]) {
            let value = [&key[..], format!(" in life {life}").repeat(60).as_bytes()].concat();
            client.put(&key, &value).unwrap();
            self.model.insert(key, value);
        }
        if graceful {
            running.server.shutdown().unwrap();
        } else {
            drop(running);
        }
        self.config.shards = None;
        image(&self.data)
    }

    /// Another test that starts a process holds our locks for a moment, until that process has
    /// begun.
    fn start(&self) -> Result<Running, ServerError> {
        let is_held = |error: &ServerError| {
            let words = error.to_string();
            words.contains("in use by process") || words.contains("another process is using it")
        };
        for _ in 0..100 {
            match Running::try_start(&self.config) {
                Err(error) if is_held(&error) => std::thread::sleep(Duration::from_millis(10)),
                started => return started,
            }
        }
        Running::try_start(&self.config)
    }

    /// Starts on the directory as it is; whether it did. A refusal contains one of `names`.
    fn probe(&self, names: &[&str], outcomes: &mut Outcomes, what: &str) -> bool {
        let running = match self.start() {
            Ok(running) => running,
            Err(error) => {
                let words = error.to_string();
                assert!(
                    names.iter().any(|name| words.contains(name)),
                    "{what}: {words:?} names none of {names:?}"
                );
                outcomes.refused += 1;
                return false;
            }
        };
        let client = self.client(&running);
        let (mut errors, mut torn) = (0, false);
        for (key, value) in &self.model {
            match client.get(key) {
                Ok(Some(found)) if found == value[..] => {}
                Ok(found) => {
                    let of_an_earlier_life = found.is_none_or(|found| found.starts_with(key));
                    assert!(
                        key == LAST && of_an_earlier_life,
                        "{what}: a wrong answer for {}",
                        key.escape_ascii()
                    );
                    torn = true;
                }
                Err(error) if error.code() == ErrorCode::Corrupt => errors += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        // Nothing of it may be under way when the directory is restored.
        drop(client);
        let _ = running.server.shutdown();
        match (torn, errors) {
            (true, _) => outcomes.torn += 1,
            (false, 0) => outcomes.harmless += 1,
            (false, _) => outcomes.read_errors += 1,
        }
        true
    }

    /// Flips bits of a file of the image in turn; `named` is what a refusal says, beside the file's
    /// name.
    fn flip(
        &self,
        image: &Image,
        file: &Path,
        bits: impl Iterator<Item = usize>,
        named: &str,
    ) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let path = self.data.join(file);
        let whole = path.display().to_string();
        restore(&self.data, image);
        for bit in bits {
            let sound = image[file][bit / 8];
            let write = |byte: u8| {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&[byte], bit as u64 / 8).unwrap();
            };
            write(sound ^ 1 << (bit % 8));
            let started = self.probe(
                &[&whole, named],
                &mut outcomes,
                &format!("bit {bit} of {}", file.display()),
            );
            // A server that started has changed other files as well.
            if started { restore(&self.data, image) } else { write(sound) }
        }
        outcomes
    }

    fn flip_all(&self, image: &Image, file: &str) -> Outcomes {
        // Where a flip is harmless the server starts, which takes time: the owner's pid is for
        // people, and a test beside the code that reads FORMAT flips every bit of it.
        let step = match file {
            "LOCK" if !full() => 7,
            "FORMAT" | "MANIFEST" if !full() => 3,
            _ => 1,
        };
        let file = Path::new(file);
        let path = self.data.join(file).display().to_string();
        self.flip(image, file, (0..image[file].len() * 8).step_by(step), &path)
    }

    /// What must be served whatever the directory looks like.
    fn must_serve(&self, what: &str) {
        let mut outcomes = Outcomes::default();
        self.probe(&[], &mut outcomes, what);
        assert_eq!(outcomes.harmless, 1, "{what}: {outcomes:?}");
    }

    /// The directory without a file.
    fn without(&self, image: &Image, file: &str) -> Image {
        let mut less = image.clone();
        less.remove(Path::new(file)).unwrap();
        restore(&self.data, &less);
        less
    }
}

#[test]
fn bits_of_the_small_files_of_a_server_with_a_master() {
    if staged() {
        return;
    }
    let mut world = World::new(MasterPlace::Embedded);
    world.live(1, false);
    let image = world.live(2, true);
    world.must_serve("undamaged");
    for file in ["FORMAT", "MANIFEST", "master", "cluster-name", "LOCK"] {
        let outcomes = world.flip_all(&image, file);
        let fine = if file == "LOCK" {
            outcomes.refused == 0
        } else {
            outcomes.refused > outcomes.harmless
        };
        assert!(fine && outcomes.read_errors + outcomes.torn == 0, "{file}: {outcomes:?}");
        outcomes.keep("`server`: small files of a data directory");
    }
    for (missing, refusal) in [
        ("FORMAT", "/FORMAT is damaged (it is missing"),
        ("MANIFEST", "/MANIFEST is damaged (it is missing"),
        ("master", "it is missing"),
    ] {
        world.without(&image, missing);
        let mut outcomes = Outcomes::default();
        world.probe(&[refusal], &mut outcomes, missing);
        assert_eq!(outcomes.refused, 1, "{missing} is missing: {outcomes:?}");
    }
    for missing in ["LOCK", "cluster-name"] {
        world.without(&image, missing);
        world.must_serve(missing);
    }
}

#[test]
fn bits_of_the_small_files_of_a_server_whose_master_is_elsewhere() {
    if staged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let any = config(folder.path()).listen.native;
    let first = ServerConfig {
        listen: ListenConfig { native: any, ..ListenConfig::default() },
        shards: Some(1),
        cluster_shards: Some(2),
        ..small(folder.path())
    };
    let master = Running::start(&first);
    let mut world = World::new(MasterPlace::Remote(master.server.addresses().native.unwrap()));
    // The master gives shards to servers that can be reached.
    world.config.listen.native = any;
    let image = world.live(1, true);
    // What is restored below is an older copy, of which the master has known a later run.
    world.config.accept_loss = AcceptedLoss::Everything;
    world.must_serve("undamaged");
    for file in ["cluster", "cluster-name"] {
        let outcomes = world.flip_all(&image, file);
        assert!(
            outcomes.refused > outcomes.harmless && outcomes.read_errors + outcomes.torn == 0,
            "{outcomes:?}"
        );
        outcomes.keep("`server`: small files of a data directory");
    }
    for file in ["cluster", "cluster-name"] {
        for length in lengths(&image[Path::new(file)]) {
            let mut crashed = image.clone();
            crashed.insert(format!("{file}.new").into(), image[Path::new(file)][..length].to_vec());
            restore(&world.data, &crashed);
            world.must_serve(&format!("{length} bytes of {file}.new"));
        }
    }
    world.without(&image, "cluster");
    let mut outcomes = Outcomes::default();
    world.probe(&["/cluster is damaged (it is missing"], &mut outcomes, "cluster");
    assert_eq!(outcomes.refused, 1, "{outcomes:?}");
}

/// Bits of a file that is mostly zeros: a few of every page that is not, and one of one that is.
fn places(content: &[u8], (head, rest): (usize, usize)) -> Vec<usize> {
    let (head, rest) = if full() { (8, 64) } else { (head, rest) };
    let mut bits = Vec::new();
    let mut blank = None;
    let mut empty = 0;
    for (page, bytes) in content.chunks(PAGE).enumerate() {
        let start = page * PAGE * 8;
        let Some(last) = bytes.iter().rposition(|&byte| byte != 0) else {
            blank.get_or_insert(start + 77);
            continue;
        };
        // Pages of the block table for blocks that do not exist yet are all alike: two of each copy
        // stand for hundreds.
        if last < TABLE_HEADER {
            empty += 1;
            if empty > 2 && empty != 250 && empty != 300 {
                continue;
            }
        }
        // Headers are where the beginning is; slots and records are anywhere up to the last byte.
        bits.extend((0..head).map(|part| start + (48 * 8 / head) * part + page % 8));
        bits.extend((0..rest).map(|part| start + (last * 8 / rest) * part + page % 8));
    }
    bits.sort_unstable();
    bits.dedup();
    bits.extend(blank);
    bits
}

#[test]
fn bits_of_the_device_and_of_the_log_of_a_server() {
    if staged() {
        return;
    }
    let mut world = World::new(MasterPlace::Embedded);
    let died = world.live(1, false);
    let flash = Path::new("shard-0000/flash");
    let of = "`server`: places in devices and logs of data directories";
    let log = died
        .keys()
        .find(|name| name.starts_with("wal") && died[*name].iter().any(|&byte| byte != 0))
        .unwrap();
    let stem = log.file_stem().unwrap().to_str().unwrap();
    let outcomes = world.flip(&died, log, places(&died[log], (2, 8)).into_iter(), stem);
    assert!(outcomes.refused > 0 && outcomes.read_errors == 0, "{outcomes:?}");
    outcomes.keep(of);
    let outcomes = world.flip(&died, flash, places(&died[flash], (1, 2)).into_iter(), "shard-0000");
    assert_eq!(outcomes.torn, 0, "{outcomes:?}");
    outcomes.keep(of);

    restore(&world.data, &died);
    let stopped = world.live(2, true);
    let outcomes =
        world.flip(&stopped, flash, places(&stopped[flash], (1, 4)).into_iter(), "shard-0000");
    assert!(outcomes.read_errors > 0 && outcomes.torn == 0, "{outcomes:?}");
    outcomes.keep(of);
}

/// The lengths that a file may have that is being written.
fn lengths(content: &[u8]) -> Vec<usize> {
    let step = if full() { 1 } else { content.len() / 4 + 1 };
    (0..content.len()).step_by(step).chain([content.len()]).collect()
}

#[test]
fn a_sweep_of_crashes_while_small_files_are_replaced_loses_nothing() {
    if staged() {
        return;
    }
    let mut world = World::new(MasterPlace::Embedded);
    let before = world.live(1, false);
    let model = world.model.clone();
    let after = world.live(2, true);
    world.model = model;
    for file in ["FORMAT", "MANIFEST", "master", "cluster-name"] {
        let content = &after[Path::new(file)];
        let mut crashed = before.clone();
        for length in lengths(content) {
            crashed.insert(format!("{file}.new").into(), content[..length].to_vec());
            restore(&world.data, &crashed);
            world.must_serve(&format!("{length} bytes of {file}.new"));
        }
        if file == "MANIFEST" {
            // What it names was there before it was renamed, and is not in this image.
            continue;
        }
        if file == "master" {
            // The manifest has the number of the run before the master hears of it.
            let manifest = with_run_of(&before, &after);
            crashed.insert("MANIFEST".into(), manifest);
        }
        // Renamed, and nothing that followed.
        crashed.remove(Path::new(&format!("{file}.new")));
        crashed.insert(file.into(), content.clone());
        restore(&world.data, &crashed);
        world.must_serve(&format!("{file} replaced"));
    }
}

/// The manifest of an image, with the run that another one has begun.
fn with_run_of(image: &Image, later: &Image) -> Vec<u8> {
    let text = |image: &Image| String::from_utf8(image[Path::new("MANIFEST")].clone()).unwrap();
    let run = |line: &&str| line.starts_with("run = ");
    let (text, later) = (text(image), text(later));
    let (own, other) = (text.lines().find(run).unwrap(), later.lines().find(run).unwrap());
    let covered = text.replace(own, other);
    signed(covered.rsplit_once("# checksum = ").unwrap().0)
}

#[test]
fn a_sweep_of_crashes_in_the_first_start_leaves_a_directory_that_starts() {
    if staged() {
        return;
    }
    let mut world = World::new(MasterPlace::Embedded);
    let after = world.live(1, true);
    let mut crashed = Image::from([("LOCK".into(), Vec::new())]);
    // In the order in which they are written.
    for file in ["MANIFEST", "FORMAT", "cluster-name", "master"] {
        let content = if file == "MANIFEST" { &blank_manifest() } else { &after[Path::new(file)] };
        for length in lengths(content) {
            crashed.insert(format!("{file}.new").into(), content[..length].to_vec());
            fs::remove_dir_all(&world.data).unwrap();
            restore_new(&world.data, &crashed);
            let running = Running::try_start(&world.config)
                .unwrap_or_else(|error| panic!("{length} bytes of {file}.new: {error}"));
            assert_eq!(running.inside.get(LAST).unwrap(), None);
            running.inside.put(LAST, b"first").unwrap();
            drop(running);
        }
        crashed.remove(Path::new(&format!("{file}.new")));
        crashed.insert(file.into(), content.clone());
    }
}

/// The first manifest of a directory (docs/formats/directory.md).
fn blank_manifest() -> Vec<u8> {
    signed("shards = []\n\n[logs]\n")
}

/// A manifest of these words.
fn signed(words: &str) -> Vec<u8> {
    format!("{words}# checksum = {}\n", crc32c::crc32c(words.as_bytes())).into_bytes()
}

fn restore_new(data: &Path, image: &Image) {
    fs::create_dir(data).unwrap();
    restore(data, image);
}
