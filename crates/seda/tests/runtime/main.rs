//! The runtime as its users see it: queues between threads, timers, shutdown, panics, and TCP over
//! loopback.

mod support;
mod tcp;
mod threads;
