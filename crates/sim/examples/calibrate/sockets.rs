//! System calls on loopback TCP, one by one, by a thread that holds both ends: nobody sleeps, so nobody is woken.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use timestone_sim::SocketCosts;

use crate::{ROUNDS, line, median};

/// Bytes of a small and of a large transfer: a request, and what a turn with many sessions writes.
const SMALL: usize = 64;
const LARGE: usize = 160 * 1024;
/// What is sent comes from so many bytes in turn, and is read into as many: buffers of a server lie in no core's nearest cache.
const MEMORY: usize = 4 * 1024 * 1024;
/// Transfers of each size in a round.
const TRANSFERS: usize = 2_000;
/// Connections opened in a round.
const OPENED: usize = 50;

/// All figures of sockets.
pub(crate) fn measure() -> Result<SocketCosts, Box<dyn Error>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let (mut reads, mut writes, mut opens) = ([vec![], vec![]], [vec![], vec![]], vec![]);
    for _ in 0..ROUNDS {
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
        for (place, bytes) in [SMALL, LARGE].into_iter().enumerate() {
            let (read, written) = transfer(&mut ends, bytes)?;
            reads[place].push(read);
            writes[place].push(written);
        }
    }
    let fit = |[few, many]: [Vec<f64>; 2]| line((SMALL as f64, median(few)), (LARGE as f64, median(many)));
    let ((read, read_byte), (write, write_byte)) = (fit(reads), fit(writes));
    Ok(SocketCosts { read, read_byte, write, write_byte, open: median(opens) })
}

fn pair(listener: &TcpListener) -> Result<(TcpStream, TcpStream), Box<dyn Error>> {
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = loop {
        match listener.accept() {
            Ok((far, _)) => break far,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    };
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// What a read and a write of so many bytes take: the middle of many.
fn transfer((near, far): &mut (TcpStream, TcpStream), bytes: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let (out, mut into) = (vec![7; MEMORY], vec![0; MEMORY]);
    let (mut reads, mut writes) = (Vec::with_capacity(TRANSFERS), Vec::with_capacity(TRANSFERS));
    for number in 0..TRANSFERS {
        let place = number * bytes % (MEMORY - bytes);
        let (out, into) = (&out[place..place + bytes], &mut into[place..place + bytes]);
        let begin = Instant::now();
        let sent = near.write(out)?;
        let between = Instant::now();
        let mut read = 0;
        let mut calls = 0;
        let mut took = 0.0;
        while read < sent {
            let begin = Instant::now();
            match far.read(&mut into[read..sent]) {
                Ok(0) => return Err("a loopback connection was closed by the other end".into()),
                Ok(more) => {
                    took += begin.elapsed().as_nanos() as f64;
                    read += more;
                    calls += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
        if sent == bytes && calls == 1 {
            writes.push((between - begin).as_nanos() as f64);
            reads.push(took);
        }
    }
    if reads.is_empty() {
        return Err(format!("loopback never took {bytes} bytes at once; its buffers are smaller than usual").into());
    }
    Ok((median(reads), median(writes)))
}
