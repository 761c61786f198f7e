//! A driver without threads, sockets or clock: stages are stepped by hand, under a time that the
//! caller sets.
//!
//! For tests of stages, and the proof that a [`Context`] can be made by another driver than the
//! threads of this crate: the simulator's follows the same pattern. Stages run in the order of
//! their ids, to completion; events for stages that do not exist here are collected, so that a
//! single stage can be tested by what it sends.

use std::collections::VecDeque;
use std::fmt;

use timestone_types::Timestamp;

use crate::{
    AdmissionLimit, Context, Driver, FrameBatchPool, Gauge, IoRegistry, Stage, StageId, turn,
};

/// See the module.
pub struct ManualDriver<E> {
    stages: Vec<Box<dyn Stage<E>>>,
    asked: Vec<bool>,
    queues: Queues<E>,
    pool: FrameBatchPool,
    now: Timestamp,
    shutting_down: bool,
}

struct Queues<E> {
    inboxes: Vec<VecDeque<E>>,
    gauges: Vec<Gauge>,
    elsewhere_gauge: Gauge,
    elsewhere: VecDeque<(StageId, E)>,
    capacity: usize,
}

impl<E> Driver<E> for Queues<E> {
    fn send(&mut self, _from: StageId, to: StageId, event: E) -> Result<(), E> {
        match self.inboxes.get_mut(to.index()) {
            None => self.elsewhere.push_back((to, event)),
            Some(inbox) if inbox.len() < self.capacity => inbox.push_back(event),
            Some(_) => return Err(event),
        }
        Ok(())
    }

    fn gauge(&self, stage: StageId) -> &Gauge {
        self.gauges.get(stage.index()).unwrap_or(&self.elsewhere_gauge)
    }

    fn io(&self, _stage: StageId) -> Option<IoRegistry<'_>> {
        None
    }

    fn note_local_peers(&mut self, _change: i64) {}
}

impl<E> ManualDriver<E> {
    /// Starts `stages` at `now`; each queue holds up to `capacity` events.
    pub fn new(stages: Vec<Box<dyn Stage<E>>>, now: Timestamp, capacity: usize) -> Self {
        let queues = Queues {
            inboxes: stages.iter().map(|_| VecDeque::new()).collect(),
            gauges: stages.iter().map(|_| Gauge::default()).collect(),
            elsewhere_gauge: Gauge::default(),
            elsewhere: VecDeque::new(),
            capacity,
        };
        let asked = vec![true; stages.len()];
        let mut driver =
            Self { stages, asked, queues, pool: FrameBatchPool::new(), now, shutting_down: false };
        for index in 0..driver.stages.len() {
            let id = StageId::new(index as u16);
            let mut ctx = Context::new(&mut driver.queues, &mut driver.pool, now, id, false);
            driver.stages[index].start(&mut ctx);
        }
        driver
    }

    /// Counts what is admitted to a stage of this driver, and refuses more at a limit; without this
    /// nothing is counted.
    ///
    /// # Panics
    /// When there is no such stage.
    #[must_use]
    pub fn with_admission(mut self, stage: StageId, limit: AdmissionLimit) -> Self {
        self.queues.gauges[stage.index()] = Gauge::new(limit);
        self
    }

    /// What is admitted to a stage.
    #[must_use]
    pub fn gauge(&self, stage: StageId) -> &Gauge {
        self.queues.gauge(stage)
    }

    /// Queues an event for a stage.
    ///
    /// # Errors
    /// The event itself when the queue is full.
    pub fn send(&mut self, to: StageId, event: E) -> Result<(), E> {
        self.queues.send(to, to, event)
    }

    /// Lets time pass.
    pub fn set_now(&mut self, now: Timestamp) {
        assert!(now >= self.now, "time does not go backwards: {now} is before {}", self.now);
        self.now = now;
    }

    /// Tells the stages to finish, in their next turn.
    pub fn begin_shutdown(&mut self) {
        self.shutting_down = true;
        self.asked.fill(true);
    }

    /// One turn: every stage that has something to do does it, over and over while events pass
    /// between them, up to [`crate::limits::MAX_ROUNDS`] times. Whether anything was done.
    pub fn turn(&mut self) -> bool {
        let mut due: Vec<bool> = self.asked.iter_mut().map(std::mem::take).collect();
        for (due, stage) in due.iter_mut().zip(&self.stages) {
            *due |= stage.next_deadline().is_some_and(|deadline| deadline <= self.now);
        }
        let mut worked = vec![false; self.stages.len()];
        let mut held = vec![false; self.stages.len()];
        for _ in 0..crate::limits::MAX_ROUNDS {
            let mut any = false;
            for index in 0..self.stages.len() {
                if std::mem::take(&mut due[index])
                    || (!held[index] && !self.queues.inboxes[index].is_empty())
                {
                    any = true;
                    worked[index] = true;
                    held[index] |= self.run_stage(index);
                }
            }
            if !any {
                break;
            }
        }
        for index in (0..self.stages.len()).filter(|&index| worked[index]) {
            let id = StageId::new(index as u16);
            let mut ctx =
                Context::new(&mut self.queues, &mut self.pool, self.now, id, self.shutting_down);
            self.stages[index].flush(&mut ctx);
            self.asked[index] |= ctx.wants_turn();
        }
        worked.contains(&true)
    }

    /// Whether the stage left events of its batch.
    fn run_stage(&mut self, index: usize) -> bool {
        let mut batch = std::mem::take(&mut self.queues.inboxes[index]);
        let id = StageId::new(index as u16);
        let mut ctx =
            Context::new(&mut self.queues, &mut self.pool, self.now, id, self.shutting_down);
        turn::run(&mut *self.stages[index], &mut ctx, &mut Vec::new(), &mut batch);
        self.asked[index] |= ctx.wants_turn();
        turn::put_back(&mut batch, &mut self.queues.inboxes[index]) > 0
    }

    /// The earliest deadline of any stage.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.stages.iter().filter_map(|stage| stage.next_deadline()).min()
    }

    /// The next event that a stage sent to one that does not exist here.
    pub fn take_sent(&mut self) -> Option<(StageId, E)> {
        self.queues.elsewhere.pop_front()
    }

    /// Whether every stage says that it is drained, and nothing is queued.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queues.inboxes.iter().all(VecDeque::is_empty)
            && self.stages.iter().all(|stage| stage.drained())
    }
}

impl<E> fmt::Debug for ManualDriver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualDriver")
            .field("now", &self.now)
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Answers each number one second later, at most one a turn.
    struct Delay {
        due: VecDeque<(Timestamp, u32)>,
    }

    impl Stage<u32> for Delay {
        fn name(&self) -> &str {
            "delay"
        }

        fn handle(&mut self, ctx: &mut Context<'_, u32>, events: &mut VecDeque<u32>) {
            if let Some(number) = events.pop_front() {
                self.due.push_back((ctx.now().saturating_add(Duration::from_secs(1)), number));
            }
        }

        fn turn(&mut self, ctx: &mut Context<'_, u32>) {
            while let Some((_, number)) = self.due.pop_front_if(|(at, _)| *at <= ctx.now()) {
                assert_eq!(ctx.send(StageId::new(9), number), Ok(()));
            }
        }

        fn next_deadline(&self) -> Option<Timestamp> {
            self.due.front().map(|&(at, _)| at)
        }

        fn drained(&self) -> bool {
            self.due.is_empty()
        }
    }

    #[test]
    fn stages_run_under_a_virtual_clock_and_keep_what_they_leave() {
        let start = Timestamp::from_nanos(5);
        let mut driver =
            ManualDriver::new(vec![Box::new(Delay { due: VecDeque::new() })], start, 2);
        let stage = StageId::new(0);
        assert_eq!(
            (driver.send(stage, 1), driver.send(stage, 2), driver.send(stage, 3)),
            (Ok(()), Ok(()), Err(3))
        );
        assert!(driver.turn() && driver.turn());
        assert!(!driver.turn(), "nothing is due before the deadline");
        let deadline = start.saturating_add(Duration::from_secs(1));
        assert_eq!((driver.next_deadline(), driver.is_drained()), (Some(deadline), false));
        driver.set_now(deadline);
        assert!(driver.turn());
        assert_eq!(
            (driver.take_sent(), driver.take_sent()),
            (Some((StageId::new(9), 1)), Some((StageId::new(9), 2)))
        );
        assert!(driver.is_drained());
    }
}
