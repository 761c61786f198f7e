//! Starting, feeding, watching and stopping a set of stages.

use std::marker::PhantomData;
use std::time::Duration;

use crate::{AdmissionLimit, Layout, RuntimeSnapshot, SedaError, Spin, Stage, StageId, TimeSource};

/// How a runtime behaves.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Prefix of the threads' names.
    pub name: String,
    /// How threads wait.
    pub spin: Spin,
    /// Busy threads of this machine that are known beforehand and are not of this runtime (clients, say).
    pub other_threads: usize,
    /// Events that may wait for one stage.
    pub queue_capacity: usize,
    /// What may be admitted to stages; those not named have no limit.
    pub admission: Vec<(StageId, AdmissionLimit)>,
}

/// Starts stages.
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Starts one thread per entry of `layout`, which run `stages` until the handle stops them.
    ///
    /// # Errors
    /// An impossible layout, or what the operating system refuses.
    pub fn start<E: Send + 'static>(
        _stages: Vec<Box<dyn Stage<E>>>,
        _layout: Layout,
        _time: impl TimeSource,
        _config: RuntimeConfig,
    ) -> Result<Handle<E>, SedaError> {
        Err(SedaError::Size { stages: 0, threads: 0, limit: 0 })
    }
}

/// A running runtime; dropping it stops the threads without draining.
#[derive(Debug)]
pub struct Handle<E> {
    event: PhantomData<fn(E)>,
}

impl<E: Send + 'static> Handle<E> {
    /// For threads outside.
    #[must_use]
    pub fn injector(&self) -> Injector<E> {
        Injector { event: PhantomData }
    }

    /// What all stages and threads have done so far.
    #[must_use]
    pub fn metrics(&self) -> RuntimeSnapshot {
        RuntimeSnapshot { stages: Vec::new(), threads: Vec::new() }
    }

    /// Tells all stages to finish, waits until they are drained, stops and joins the threads.
    ///
    /// # Errors
    /// [`SedaError::NotDrained`] when that takes longer than `patience`; the threads are stopped nevertheless.
    pub fn shutdown(self, _patience: Duration) -> Result<(), SedaError> {
        Ok(())
    }
}

/// Sends events into a runtime from threads outside of it.
#[derive(Debug)]
pub struct Injector<E> {
    event: PhantomData<fn(E)>,
}

impl<E> Clone for Injector<E> {
    fn clone(&self) -> Self {
        Self { event: PhantomData }
    }
}

impl<E: Send + 'static> Injector<E> {
    /// Queues an event for a stage, and wakes its thread if that sleeps.
    ///
    /// # Errors
    /// The event itself when the queue is full, or when the runtime has stopped.
    pub fn send(&self, _to: StageId, event: E) -> Result<(), E> {
        Err(event)
    }
}
