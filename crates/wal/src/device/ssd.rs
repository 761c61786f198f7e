//! Log files on an SSD: preallocated and written before use, O_DIRECT and O_DSYNC, one write at a
//! time (docs/protocol/log.md, "Devices"; docs/lab/building-blocks.md has the figures).
//!
//! A group goes to the I/O engine as one vectored write. O_DSYNC makes its completion mean
//! durability, and lets the kernel use the device's forced unit access where a separate fdatasync
//! would flush its whole cache. Making, renaming and removing files happens on a thread of its own,
//! which hands over each new file already open: nothing on the append path waits for a directory.
//!
//! Invariants: a file appears under a log's name only when it is whole and synced; whoever may
//! append to a file holds its lock, which outlives a killed process until its last write is over,
//! so that recovery never reads what is still being written.

use core::time::Duration;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use timestone_io::{
    AlignedBuffer, IoCompletion, IoConfig, IoEngine, IoError, IoFile, IoOp, IoToken,
};

use super::fill::{Appending, fill};
use super::{DeviceEvent, FileInfo, FileName, FileRegistry, FileSource, LogDevice};
use crate::WalError;

/// Operations of the device's own engine: one write is ever in flight.
const ENGINE_DEPTH: u32 = 2;
/// What a file is called while it is made.
const UNFINISHED: &str = ".new";

struct Job {
    change: DirectoryChange,
    registry: Option<Arc<dyn FileRegistry>>,
}

enum DirectoryChange {
    Prepare(FileName, FileSource),
    Remove(FileName),
}

enum Done {
    Prepared(FileName, Result<IoFile, WalError>),
    Removed(FileName, Result<(), WalError>),
}

#[derive(Debug)]
struct Worker {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    appending: Arc<Appending>,
}

/// A directory of log files.
#[derive(Debug)]
pub struct SsdDevice {
    directory: PathBuf,
    writer: Option<Writer>,
    /// The file read last, open.
    reading: Option<(FileName, fs::File)>,
}

/// What only a device for appending has.
#[derive(Debug)]
struct Writer {
    engine: IoEngine,
    worker: Worker,
    /// Files that were made and not overtaken by a later one.
    open: Vec<(FileName, IoFile)>,
    completions: Vec<IoCompletion>,
    events: Vec<DeviceEvent>,
    registry: Option<Arc<dyn FileRegistry>>,
}

impl SsdDevice {
    /// Opens the directory for recovery and appending; makes it when it is missing, and removes
    /// what an interrupted preallocation left.
    ///
    /// # Errors
    /// When the directory cannot be made or read, or the I/O engine or its thread cannot start.
    pub fn open(directory: &Path) -> Result<Self, WalError> {
        if !directory.is_dir() {
            fs::create_dir_all(directory)
                .map_err(|cause| WalError::io("make the directory", directory, cause))?;
            sync_parent(directory)?;
        }
        for (path, name) in entries(directory)? {
            if name.strip_suffix(UNFINISHED).and_then(FileName::parse).is_some() {
                fs::remove_file(&path)
                    .map_err(|cause| WalError::io("remove the unfinished file", path, cause))?;
            } else if FileName::parse(&name).is_some() {
                wait_for_writers(&path)?;
            }
        }
        let engine = IoEngine::new(IoConfig { depth: ENGINE_DEPTH, ..IoConfig::default() })
            .map_err(|error| from_io(directory, error))?;
        let worker = Worker::start(directory)?;
        let writer = Writer {
            engine,
            worker,
            open: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            registry: None,
        };
        Ok(Self { directory: directory.to_owned(), writer: Some(writer), reading: None })
    }

    /// Opens the directory for reading; changes nothing in it, also when another process appends to
    /// it.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn open_read_only(directory: &Path) -> Result<Self, WalError> {
        entries(directory)?;
        Ok(Self { directory: directory.to_owned(), writer: None, reading: None })
    }
}

/// Path and name of everything in the directory whose name is text.
fn entries(directory: &Path) -> Result<Vec<(PathBuf, String)>, WalError> {
    let failed = |cause| WalError::io("read the directory", directory, cause);
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string() {
            entries.push((entry.path(), name));
        }
    }
    Ok(entries)
}

pub(super) fn from_io(path: &Path, error: IoError) -> WalError {
    match error {
        IoError::File { action, path, source } => WalError::io(action, path, source),
        IoError::NoSpace { path, .. } => {
            WalError::io("preallocate", path, io::ErrorKind::StorageFull.into())
        }
        other => WalError::io("start I/O for", path, io::Error::other(other)),
    }
}

fn sync_parent(path: &Path) -> Result<(), WalError> {
    timestone_io::sync_parent(path).map_err(|error| from_io(path, error))
}

/// Waits until nobody can write to the file any more: a killed process's last write may still be
/// under way. What it left is synced, so that whatever recovery reads survives a cut of the power
/// as well: later blocks vouch for it.
fn wait_for_writers(path: &Path) -> Result<(), WalError> {
    let file = fs::File::open(path).map_err(|cause| WalError::io("open", path, cause))?;
    let file = IoFile::new(file, path, false);
    lock(&file)?;
    file.file().sync_data().map_err(|cause| WalError::io("sync", path, cause))
}

fn lock(file: &IoFile) -> Result<(), WalError> {
    match file.lock().map_err(|error| from_io(file.path(), error))? {
        true => Ok(()),
        false => {
            let words = "another process is using it; stop that one, or choose another folder";
            Err(WalError::io("lock", file.path(), io::Error::new(io::ErrorKind::WouldBlock, words)))
        }
    }
}

/// Opens a whole file for appending, and locks it: completed writes are durable.
fn open_synced(path: &Path) -> Result<IoFile, WalError> {
    let file = timestone_io::open_direct_synced(path).map_err(|error| from_io(path, error))?;
    lock(&file)?;
    Ok(file)
}

impl Worker {
    fn start(directory: &Path) -> Result<Self, WalError> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, done) = channel::<Done>();
        let at = directory.to_owned();
        let appending = Arc::new(Appending::default());
        let beside = Arc::clone(&appending);
        let run = move || {
            for Job { change, registry } in inbox {
                let files = LogFolder { path: &at, registry, beside: &beside };
                let finished = match change {
                    DirectoryChange::Prepare(name, source) => {
                        Done::Prepared(name, files.prepare(name, source))
                    }
                    DirectoryChange::Remove(name) => Done::Removed(name, files.remove(name)),
                };
                if outbox.send(finished).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("log-files".into())
            .spawn(run)
            .map_err(|cause| WalError::io("start the thread for", directory, cause))?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), appending })
    }

    fn send(&self, job: Job) {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        assert!(sent, "the thread for log files runs as long as the device");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        self.appending.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for log files ended in a panic");
        }
    }
}

/// The folder as the thread for log files sees it.
struct LogFolder<'a> {
    path: &'a Path,
    registry: Option<Arc<dyn FileRegistry>>,
    beside: &'a Appending,
}

impl LogFolder<'_> {
    fn prepare(&self, name: FileName, source: FileSource) -> Result<IoFile, WalError> {
        let path = self.path.join(name.to_string());
        match source {
            FileSource::Reused(old) => {
                self.removing(old)?;
                let old = self.path.join(old.to_string());
                fs::rename(&old, &path).map_err(|cause| WalError::io("rename", old, cause))?;
            }
            FileSource::Fresh { bytes } => {
                let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
                if let Err(error) = fill(&unfinished, bytes, self.beside) {
                    give_back(&unfinished);
                    return Err(error);
                }
                fs::rename(&unfinished, &path)
                    .map_err(|cause| WalError::io("rename", unfinished, cause))?;
            }
        }
        sync_parent(&path)?;
        let file = open_synced(&path)?;
        if let Err(error) = self.created(name) {
            // The next attempt makes another file. Whether this one was recorded is not certain,
            // and what is recorded must be there. Whoever asked for it removes what stays here: a
            // renamed file, and one that could not be taken off the record.
            if matches!(source, FileSource::Fresh { .. }) && self.removing(name).is_ok() {
                give_back(&path);
            }
            return Err(error);
        }
        Ok(file)
    }

    fn remove(&self, name: FileName) -> Result<(), WalError> {
        self.removing(name)?;
        let path = self.path.join(name.to_string());
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(WalError::io("remove", path, cause))
            }
            _ => sync_parent(&path),
        }
    }

    fn created(&self, name: FileName) -> Result<(), WalError> {
        let recorded = self.registry.as_ref().map_or(Ok(()), |registry| registry.created(name));
        recorded.map_err(|cause| {
            WalError::io("record the new file", self.path.join(name.to_string()), cause)
        })
    }

    fn removing(&self, name: FileName) -> Result<(), WalError> {
        let recorded = self.registry.as_ref().map_or(Ok(()), |registry| registry.removing(name));
        recorded.map_err(|cause| {
            WalError::io("record the end of", self.path.join(name.to_string()), cause)
        })
    }
}

/// Removes a file that could not be finished: room is what is short, most likely. Failing that, the
/// next start removes it.
fn give_back(path: &Path) {
    if let Err(cause) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %cause, "could not remove an unfinished log file");
    }
}

impl Writer {
    fn take_done(&mut self, done: Done) {
        self.events.push(match done {
            Done::Removed(name, result) => DeviceEvent::Removed { name, result },
            Done::Prepared(name, Err(error)) => DeviceEvent::Prepared { name, result: Err(error) },
            Done::Prepared(name, Ok(file)) => {
                self.open.push((name, file));
                DeviceEvent::Prepared { name, result: Ok(()) }
            }
        });
    }

    fn write(
        &mut self,
        name: FileName,
        offset: u64,
        buffers: Vec<AlignedBuffer>,
    ) -> Result<(), (Vec<AlignedBuffer>, &'static str)> {
        self.open.retain(|(open, _)| *open >= name);
        let Some((_, file)) = self.open.iter().find(|(open, _)| *open == name) else {
            return Err((buffers, "it was not made by this device"));
        };
        let bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        self.worker.appending.use_up_to(offset + bytes);
        let op = IoOp::WriteMany { file: file.clone(), offset, buffers };
        self.engine.submit(IoToken(name.created().as_nanos()), op).map_err(
            |refused| match refused.op {
                IoOp::WriteMany { buffers, .. } => (buffers, "the I/O engine refused the write"),
                _ => (Vec::new(), "the I/O engine refused the write"),
            },
        )?;
        self.engine.flush();
        Ok(())
    }
}

impl LogDevice for SsdDevice {
    fn list(&mut self) -> Result<Vec<FileInfo>, WalError> {
        let mut files = Vec::new();
        for (path, name) in entries(&self.directory)? {
            if let Some(name) = FileName::parse(&name) {
                let bytes = fs::metadata(&path)
                    .map_err(|cause| WalError::io("read the size of", path, cause))?
                    .len();
                files.push(FileInfo { name, bytes });
            }
        }
        files.sort_by_key(|file| file.name);
        Ok(files)
    }

    fn read(&mut self, name: FileName, offset: u64, into: &mut [u8]) -> Result<usize, WalError> {
        let path = self.directory.join(name.to_string());
        let file = match &mut self.reading {
            Some((open, file)) if *open == name => file,
            reading => {
                let file =
                    fs::File::open(&path).map_err(|cause| WalError::io("open", &path, cause))?;
                &mut reading.insert((name, file)).1
            }
        };
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(WalError::io("read", path, cause)),
            }
        }
        Ok(done)
    }

    fn register(&mut self, registry: Arc<dyn FileRegistry>) {
        if let Some(writer) = &mut self.writer {
            writer.registry = Some(registry);
        }
    }

    fn prepare(&mut self, name: FileName, source: FileSource) {
        let writer =
            self.writer.as_ref().expect("only a device for appending is asked to make files");
        let registry = writer.registry.clone();
        writer.worker.send(Job { change: DirectoryChange::Prepare(name, source), registry });
    }

    fn remove(&mut self, file: FileName) {
        let writer =
            self.writer.as_ref().expect("only a device for appending is asked to remove files");
        let registry = writer.registry.clone();
        writer.worker.send(Job { change: DirectoryChange::Remove(file), registry });
    }

    fn write(&mut self, file: FileName, offset: u64, buffers: Vec<AlignedBuffer>) {
        let writer = self.writer.as_mut().expect("only a device for appending is asked to write");
        if let Err((buffers, detail)) = writer.write(file, offset, buffers) {
            let path = self.directory.join(file.to_string());
            let result = Err(WalError::io("write", path, io::Error::other(detail)));
            writer.events.push(DeviceEvent::Written { buffers, result });
        }
    }

    fn poll(&mut self, events: &mut Vec<DeviceEvent>) {
        let Some(writer) = &mut self.writer else { return };
        while let Ok(done) = writer.worker.done.try_recv() {
            writer.take_done(done);
        }
        if writer.engine.in_flight() > 0 {
            writer.engine.poll(&mut writer.completions);
            for completion in writer.completions.drain(..) {
                let name =
                    FileName::new(timestone_types::Timestamp::from_nanos(completion.token.0));
                let result = match completion.result {
                    Ok(_) => Ok(()),
                    Err(cause) => {
                        Err(WalError::io("write", self.directory.join(name.to_string()), cause))
                    }
                };
                writer.events.push(DeviceEvent::Written { buffers: completion.buffers, result });
            }
        }
        events.append(&mut writer.events);
    }

    fn wait(&mut self, timeout: Duration) {
        let Some(writer) = &mut self.writer else { return };
        if !writer.events.is_empty() {
        } else if writer.engine.in_flight() > 0 {
            writer.engine.wait(timeout);
        } else {
            match writer.worker.done.recv_timeout(timeout) {
                Ok(done) => writer.take_done(done),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        use std::os::fd::AsFd;
        self.writer.as_ref().map(|writer| writer.engine.wake_fd().as_fd().as_raw_fd())
    }
}
