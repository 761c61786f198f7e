//! `timestone dump`: all keys of a keyspace, as of one point in time, into a file that
//! `timestone load` reads.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write, stderr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use timestone::ScanOptions;

use crate::bench::progress;
use crate::dump_file::{DumpHead, DumpWriter};
use crate::failure::Failure;
use crate::link::KeyspaceTarget;
use crate::moment::{self, Moment};
use crate::output::{Format, write_json, write_line};

/// What an unfinished file is called, behind the name that it is to get; the process's id follows,
/// and a number where that is taken.
const UNFINISHED: &str = ".unfinished";
/// Names of unfinished files that are tried: each that is taken was left behind by a process of the
/// same id that was killed.
const MAX_UNFINISHED: u32 = 100;

/// Flags of `timestone dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// The file to write; it gets its name when it is whole. "-" writes to standard output.
    file: PathBuf,
    /// Replace the file if it exists; of a link the file that it leads to. Pipes and devices are not
    /// replaced.
    #[arg(long)]
    force: bool,
    /// Dump the state as of this point in time, as `timestone get --at`.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    #[command(flatten)]
    place: KeyspaceTarget,
}

/// Writes the dump, and says how much it holds.
pub(crate) fn run(args: &DumpArgs, format: Format) -> Result<(), Failure> {
    if args.file == Path::new("-") {
        let (entries, head) = dump(args, io::stdout().lock()).map_err(|failure| failure.0)?;
        // Standard output is the dump's.
        let _ = writeln!(stderr(), "{}", words(&head, entries, "standard output"));
        return Ok(());
    }
    let place = args.file.display();
    let target = target_of(&args.file, args.force)?;
    let failed = |error: io::Error| Failure::usage(format!("could not write {place}: {error}"));
    let (unfinished, file) = create_unfinished(&target).map_err(failed)?;
    let done = dump(args, &file).and_then(|done| {
        put_in_place(&file, &unfinished, &target, args.force, sync_folder).map(|()| done)
    });
    let (entries, head) = done.map_err(|failure| {
        // Nobody can use it; what cannot be removed has a name that says so.
        let _ = fs::remove_file(&unfinished);
        failure.0
    })?;
    let place = place.to_string();
    match format {
        Format::Json => write_json(&json!({
            "file": place, "keyspace": head.keyspace, "as_of_ns": head.as_of.as_nanos().to_string(), "entries": entries,
        })),
        Format::Text | Format::Table => write_line(&words(&head, entries, &place)),
    }
}

/// The file that is to get the dump: `path`, or what it is a link to. What is there is replaced with
/// `force` only, and only by its like: in place of a pipe or a device nobody wants a file.
fn target_of(path: &Path, force: bool) -> Result<PathBuf, Failure> {
    let place = path.display();
    let failed = |error: io::Error| Failure::usage(format!("could not write {place}: {error}"));
    let is_link = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found.map_err(failed)?.is_symlink(),
    };
    match fs::metadata(path) {
        Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::usage(format!(
                "{place} is a link to something that is not there; give the name of a file"
            )));
        }
        Ok(found) if !found.is_file() => {
            return Err(Failure::usage(format!(
                "{place} is no regular file, and is not replaced by one; to write to it, use - and \
                 redirect: timestone dump - > {place}"
            )));
        }
        found => found.map_err(failed)?,
    };
    match (force, is_link) {
        (false, _) => Err(Failure::usage(format!(
            "{place} exists; give another name, or --force to replace it"
        ))),
        (true, true) => fs::canonicalize(path).map_err(failed),
        (true, false) => Ok(path.to_owned()),
    }
}

/// A file for a dump that is to be called `path`, under a name that no other dump uses.
fn create_unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut taken = None;
    for number in 0..MAX_UNFINISHED {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 {
            format!("{UNFINISHED}-{process}")
        } else {
            format!("{UNFINISHED}-{process}-{number}")
        });
        match File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            created => return created.map(|file| (name.into(), file)),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// Gives a dump that is whole its name, so that a power cut takes neither. Without `replace` no
/// file of that name is replaced, one that came meanwhile included.
fn put_in_place(
    file: &File,
    unfinished: &Path,
    path: &Path,
    replace: bool,
    sync_folder: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), DumpFailure> {
    let place = path.display();
    let failed =
        |error: io::Error| DumpFailure(Failure::usage(format!("could not write {place}: {error}")));
    file.sync_all().map_err(failed)?;
    if !replace && fs::symlink_metadata(path).is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    fs::rename(unfinished, path).map_err(failed)?;
    // A bare file name has an empty parent: the folder is the current one.
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(folder).map_err(|error| {
        DumpFailure(Failure::failed(format!(
            "{place} is whole, but its folder could not be synced, so that a power cut may take \
             its name away: {error}"
        )))
    })
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn words(head: &DumpHead, entries: u64, place: &str) -> String {
    format!(
        "{entries} keys of keyspace {} as of {} are in {place}",
        head.keyspace,
        moment::shown(head.as_of)
    )
}

/// Why a dump was not finished.
struct DumpFailure(Failure);

impl From<timestone::Error> for DumpFailure {
    fn from(error: timestone::Error) -> Self {
        Self(error.into())
    }
}

impl From<io::Error> for DumpFailure {
    fn from(error: io::Error) -> Self {
        Self(match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Failure::failed("whoever read the dump has gone: it is cut short")
            }
            _ => Failure::failed(format!("could not write the dump: {error}")),
        })
    }
}

fn dump(args: &DumpArgs, out: impl Write) -> Result<(u64, DumpHead), DumpFailure> {
    let db = args.place.connect().map_err(DumpFailure)?;
    let at = match args.at {
        Some(at) => Some(at.resolve(moment::now(&db)?)),
        None => None,
    };
    let scan = db.scan(&ScanOptions { at, ..ScanOptions::default() })?;
    let head = DumpHead { keyspace: args.place.keyspace.clone(), as_of: scan.timestamp() };
    let bar = progress::spinner("dumping");
    let mut writer = DumpWriter::begin(BufWriter::with_capacity(1 << 20, out), &head)?;
    for entry in scan {
        let (key, value) = entry?;
        writer.entry(&key, &value, value.expires_at())?;
        bar.inc(1);
    }
    let (_, entries) = writer.finish()?;
    bar.finish_and_clear();
    Ok((entries, head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dumps_to_one_name_write_files_of_their_own_and_the_first_keeps_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.dump");
        let (first, second) =
            (create_unfinished(&path).unwrap(), create_unfinished(&path).unwrap());
        assert_ne!(first.0, second.0);
        (&first.1).write_all(b"first").unwrap();
        (&second.1).write_all(b"second").unwrap();
        assert!(put_in_place(&first.1, &first.0, &path, false, sync_folder).is_ok());
        let failure = put_in_place(&second.1, &second.0, &path, false, sync_folder).unwrap_err().0;
        assert!(failure.to_string().contains("could not write"), "{failure}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert!(put_in_place(&second.1, &second.0, &path, true, sync_folder).is_ok());
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn only_files_are_replaced_and_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        fs::write(at("file"), b"old").unwrap();
        fs::create_dir(at("folder")).unwrap();
        link(&at("file"), "link");
        link(&at("nothing"), "dangling");
        link(Path::new("/dev/null"), "device");
        let told = |path: &Path, force| target_of(path, force).map_err(|failure| failure.code);
        assert_eq!(told(&at("fresh"), false), Ok(at("fresh")));
        assert_eq!(told(&at("file"), true), Ok(at("file")));
        assert_eq!(told(&at("link"), true), Ok(fs::canonicalize(at("file")).unwrap()));
        for name in ["file", "link", "dangling", "device", "folder"] {
            assert_eq!(told(&at(name), false), Err(2), "{name}");
        }
        for name in ["dangling", "device", "folder"] {
            assert_eq!(told(&at(name), true), Err(2), "{name}");
        }
        let words = target_of(Path::new("/dev/null"), true).unwrap_err().to_string();
        assert!(words.contains("use - and redirect"), "{words}");
    }

    #[test]
    fn the_folder_is_synced_once_the_dump_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.dump");
        let (unfinished, file) = create_unfinished(&path).unwrap();
        let mut synced = None;
        let done = put_in_place(&file, &unfinished, &path, false, |at| {
            assert!(path.exists());
            synced = Some(at.to_owned());
            Err(io::Error::other("the disk is gone"))
        });
        assert_eq!(synced.as_deref(), Some(folder.path()));
        let failure = done.unwrap_err().0;
        assert!(
            failure.code == 1 && failure.to_string().contains("a power cut may take its name away"),
            "{failure}"
        );
    }
}
