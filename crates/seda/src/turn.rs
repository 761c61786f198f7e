//! What every driver does with a stage that is due: the threads, the simulator and the driver by
//! hand run their stages by these.
//!
//! When a stage is due, and what its work costs, is each driver's own business.

use std::collections::VecDeque;

use crate::{Context, Readiness, Stage};

/// Runs a stage once: what became ready, then its batch, then its turn. What it leaves of the batch
/// stays there.
pub(crate) fn run<E>(
    stage: &mut dyn Stage<E>,
    ctx: &mut Context<'_, E>,
    ready: &mut Vec<Readiness>,
    batch: &mut VecDeque<E>,
) {
    if !ready.is_empty() {
        stage.ready(ctx, ready);
        ready.clear();
    }
    if !batch.is_empty() {
        stage.handle(ctx, batch);
    }
    stage.turn(ctx);
}

/// Puts what a stage left of its batch back into its queue, ahead of what came meanwhile. How many
/// events that were.
pub(crate) fn put_back<E>(batch: &mut VecDeque<E>, queue: &mut VecDeque<E>) -> usize {
    let left = batch.len();
    if left > 0 {
        batch.append(queue);
        std::mem::swap(queue, batch);
    }
    left
}
