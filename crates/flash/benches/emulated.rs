//! What the emulated device costs its owner: `cargo bench -p timestone-flash --bench emulated`.
//!
//! Pages as kept and as compact ones (bytes of memory, time to program and to read one), and reads
//! in real time as fast as one thread asks for them: rate, and how exactly they are released.

#![expect(clippy::unwrap_used, reason = "a measurement stops where something is wrong")]

use std::time::{Duration, Instant};

use timestone_flash::{
    AlignedBuffer, BlockId, EmulatedConfig, EmulatedDevice, EmulatedMedium, FlashClock,
    FlashCompletion, FlashDevice, FlashOp, Latencies, PAGE_BYTES, PageId, Token,
};
use timestone_types::GeneratedRun;
use timestone_types::random::Seed;

/// A page of eight tuples of 512 bytes whose values a seed generates.
fn tuples(seed: u64) -> Vec<u8> {
    let mut page = vec![0xa5; 40];
    for tuple in 0..8 {
        page.extend([0x5a; 60]);
        GeneratedRun { seed: seed * 8 + tuple, length: 446 }.append(&mut page);
    }
    page.resize(PAGE_BYTES, 0);
    page
}

fn finish(device: &mut EmulatedDevice, done: &mut Vec<FlashCompletion>) -> AlignedBuffer {
    while device.poll(done) == 0 {
        device.wait(Duration::from_secs(1));
    }
    let done = done.pop().unwrap();
    done.result.unwrap();
    done.buffer.unwrap()
}

fn pages(compact: bool) {
    let config = EmulatedConfig {
        latencies: Latencies::ZERO,
        compact,
        initial_blocks: 64,
        ..EmulatedConfig::default()
    };
    let medium = EmulatedMedium::new(config, FlashClock::stopped());
    let (mut device, mut done) = (medium.open().unwrap(), Vec::new());
    let before = medium.memory_bytes();
    let pages = 64 * config.pages_per_block;
    let contents: Vec<Vec<u8>> = (0..u64::from(pages)).map(tuples).collect();
    let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES);
    let begin = Instant::now();
    for (page, bytes) in contents.iter().enumerate() {
        buffer.copy_from_slice(bytes);
        let token = Token(page as u64);
        device.submit(FlashOp::Program { token, page: PageId(page as u32), buffer }).unwrap();
        buffer = finish(&mut device, &mut done);
    }
    let programming = begin.elapsed() / pages;
    let begin = Instant::now();
    for (page, bytes) in contents.iter().enumerate() {
        let token = Token(page as u64);
        device
            .submit(FlashOp::Read { token, page: PageId(page as u32), pages: 1, buffer })
            .unwrap();
        buffer = finish(&mut device, &mut done);
        assert!(buffer[..] == bytes[..]);
    }
    let reading = begin.elapsed() / pages;
    println!(
        "pages of eight 512 B tuples, compact: {compact:5}: {:5} B and 16 B of table a page, \
         {programming:?} to program one, {reading:?} to read one",
        (medium.memory_bytes() - before) / u64::from(pages)
    );
}

fn reads_in_real_time(in_flight: usize, compact: bool, wakes: bool) {
    let config = EmulatedConfig { compact, wakes, ..EmulatedConfig::papers(1024) };
    let medium = EmulatedMedium::new(config, FlashClock::real());
    let (mut device, mut done) = (medium.open().unwrap(), Vec::new());
    for block in 0..config.initial_blocks {
        let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES * config.pages_per_block as usize);
        for (page, bytes) in buffer.chunks_exact_mut(PAGE_BYTES).enumerate() {
            bytes.copy_from_slice(&tuples(u64::from(block) << 16 | page as u64));
        }
        let page = device.geometry().page(BlockId(block), 0);
        device.submit(FlashOp::Program { token: Token(0), page, buffer }).unwrap();
        if block % 64 == 63 {
            while device.in_flight() > 0 {
                device.poll(&mut done);
            }
        }
    }
    done.clear();
    let before = device.stats();
    let mut buffers: Vec<_> = (0..in_flight).map(|_| AlignedBuffer::zeroed(PAGE_BYTES)).collect();
    let mut dice = Seed(1).dice();
    let pages = u64::from(config.initial_blocks * config.pages_per_block);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        while let Some(buffer) = buffers.pop() {
            let page = PageId(dice.below(pages) as u32);
            device.submit(FlashOp::Read { token: Token(0), page, pages: 1, buffer }).unwrap();
        }
        device.poll(&mut done);
        buffers.extend(done.drain(..).filter_map(|done| done.buffer));
    }
    let took = begin.elapsed();
    let stats = device.stats();
    let reads = stats.reads - before.reads;
    println!(
        "{in_flight:3} reads in flight, compact: {compact:5}, wakes: {wakes:5}: {:4} thousand a second, {:5.1} µs \
         each; released late by (ns) {:?}",
        reads as u128 / took.as_millis(),
        took.as_secs_f64() * 1e6 * in_flight as f64 / reads as f64,
        stats.release_error,
    );
}

fn main() {
    pages(false);
    pages(true);
    for in_flight in [1, 27, 128] {
        for (compact, wakes) in [(false, true), (false, false), (true, false)] {
            reads_in_real_time(in_flight, compact, wakes);
        }
    }
}
