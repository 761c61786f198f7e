//! System calls on loopback TCP, one by one, by a thread that holds both ends, and by two on two
//! cores: nobody sleeps, so nobody is woken. Who has read works before it writes.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use timestone_sim::SocketCosts;

use crate::caches::CacheWork;
use crate::neighbours::Around;
use crate::threads::{pin, two_cores};
use crate::{ROUNDS, line, median};

/// Bytes of a small and of a large transfer: a request, and what a turn with many sessions writes.
const SMALL: usize = 64;
const LARGE: usize = 160 * 1024;
/// What is sent comes from so many bytes in turn, and is read into as many: buffers of a server lie
/// in no core's nearest cache.
const MEMORY: usize = 4 * 1024 * 1024;
/// Transfers of each size in a round.
const TRANSFERS: usize = 500;
/// Connections opened in a round.
const OPENED: usize = 50;

/// What was measured of reads and writes: by this thread alone and with the reader on another core,
/// small and large.
type Figures = [[Vec<f64>; 2]; 2];

/// All figures of sockets.
pub(crate) fn measure(around: &Around) -> Result<SocketCosts, Box<dyn Error>> {
    let (one, another) = two_cores()?;
    let (mut reads, mut writes, mut opens) = (Figures::default(), Figures::default(), vec![]);
    for _ in 0..ROUNDS {
        let (round, times) = around.measure(|| {
            let measuring = thread::spawn(move || {
                pin(one)?;
                round(another).map_err(io::Error::other)
            });
            Ok(measuring.join().map_err(|_| "the measuring thread panicked")??)
        })?;
        for (which, places) in round.transfers.into_iter().enumerate() {
            for (place, (read, written)) in places.into_iter().enumerate() {
                reads[which][place].push(read / times);
                writes[which][place].push(written / times);
            }
        }
        opens.extend(round.opens.into_iter().map(|open| open / times));
    }
    let fit = |[few, many]: [Vec<f64>; 2]| {
        line((SMALL as f64, median(few)), (LARGE as f64, median(many)))
    };
    let ([(read, read_byte), (_, far_read_byte)], [(write, write_byte), (_, far_write_byte)]) =
        (reads.map(fit), writes.map(fit));
    let open = median(opens);
    Ok(SocketCosts { read, read_byte, far_read_byte, write, write_byte, far_write_byte, open })
}

/// One round of all.
struct Round {
    opens: Vec<f64>,
    /// A read and a write: near and far, small and large.
    transfers: [[(f64, f64); 2]; 2],
}

fn round(another: usize) -> Result<Round, Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let mut opens = Vec::with_capacity(OPENED);
    for _ in 0..OPENED {
        let begin = Instant::now();
        let ends = pair(&listener)?;
        // Half of it is the one's who dials, half of it the other's.
        opens.push(begin.elapsed().as_nanos() as f64 / 2.0);
        drop(ends);
    }
    let mut ends = pair(&listener)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut ends.0, Token(0), Interest::READABLE | Interest::WRITABLE)?;
    poll.registry().register(&mut ends.1, Token(1), Interest::READABLE | Interest::WRITABLE)?;
    poll.poll(&mut Events::with_capacity(8), Some(std::time::Duration::ZERO))?;
    let mut transfers = [[(0.0, 0.0); 2]; 2];
    for (reader, of_reader) in [None, Some(another)].into_iter().zip(&mut transfers) {
        for (bytes, took) in [SMALL, LARGE].into_iter().zip(of_reader) {
            *took = transfer(&mut ends, bytes, reader)?;
        }
    }
    Ok(Round { opens, transfers })
}

/// Both ends of a connection.
pub(crate) fn pair(listener: &TcpListener) -> Result<(TcpStream, TcpStream), io::Error> {
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = loop {
        match listener.accept() {
            Ok((far, _)) => break far,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    };
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// What a read and a write of so many bytes take: the middle of many. The one who reads is this
/// thread, or one on another core.
fn transfer(
    (near, far): &mut (TcpStream, TcpStream),
    bytes: usize,
    reader: Option<usize>,
) -> Result<(f64, f64), Box<dyn Error + Send + Sync>> {
    let (sent, length, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut end = Reader { far, bytes, into: vec![0; MEMORY], took: Vec::with_capacity(TRANSFERS) };
    let writes = match reader {
        None => write_all(near, bytes, |number, written| end.read(number, written))?,
        Some(core) => thread::scope(|scope| {
            let reading = scope.spawn(|| -> io::Result<()> {
                pin(core)?;
                let mut work = CacheWork::new();
                (1..=TRANSFERS).try_for_each(|number| {
                    while sent.load(Ordering::Acquire) < number {
                        std::hint::spin_loop();
                    }
                    end.read(number, length.load(Ordering::Relaxed))?;
                    work.turn();
                    done.store(number, Ordering::Release);
                    Ok(())
                })
            });
            let writes = write_all(near, bytes, |number, written| {
                length.store(written, Ordering::Relaxed);
                sent.store(number, Ordering::Release);
                while done.load(Ordering::Acquire) < number && !reading.is_finished() {
                    std::hint::spin_loop();
                }
                Ok(())
            });
            // A writer that failed must not leave its reader waiting.
            if writes.is_err() {
                length.store(0, Ordering::Relaxed);
                sent.store(TRANSFERS, Ordering::Release);
            }
            reading.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")))?;
            writes
        })?,
    };
    if end.took.is_empty() || writes.is_empty() {
        return Err(format!(
            "loopback never took {bytes} bytes at once; its buffers are smaller than usual"
        )
        .into());
    }
    Ok((median(end.took), median(writes)))
}

/// Where in the memory a transfer begins.
const fn place(number: usize, bytes: usize) -> usize {
    number * bytes % (MEMORY - bytes)
}

/// Writes all transfers, each followed by `sent` with its number and length; how long those took
/// that one call did.
fn write_all(
    near: &mut TcpStream,
    bytes: usize,
    mut sent: impl FnMut(usize, usize) -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let (out, mut took, mut work) =
        (vec![7; MEMORY], Vec::with_capacity(TRANSFERS), CacheWork::new());
    for number in 1..=TRANSFERS {
        work.turn();
        let out = &out[place(number, bytes)..][..bytes];
        let begin = Instant::now();
        let written = near.write(out)?;
        if written == bytes {
            took.push(begin.elapsed().as_nanos() as f64);
        }
        sent(number, written)?;
    }
    Ok(took)
}

/// The end that is read, and how long those transfers took that one call read.
struct Reader<'a> {
    far: &'a mut TcpStream,
    bytes: usize,
    into: Vec<u8>,
    took: Vec<f64>,
}

impl Reader<'_> {
    fn read(&mut self, number: usize, written: usize) -> io::Result<()> {
        let took = receive(self.far, &mut self.into[place(number, self.bytes)..][..written])?;
        self.took.extend(took.filter(|_| written == self.bytes));
        Ok(())
    }
}

/// Fills `into`; how long that took, when one call did it.
fn receive(far: &mut TcpStream, into: &mut [u8]) -> io::Result<Option<f64>> {
    let (mut read, mut calls, mut took) = (0, 0, 0.0);
    while read < into.len() {
        let begin = Instant::now();
        match far.read(&mut into[read..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => {
                took += begin.elapsed().as_nanos() as f64;
                read += more;
                calls += 1;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok((calls == 1).then_some(took))
}
