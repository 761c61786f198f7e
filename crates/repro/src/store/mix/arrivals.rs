//! Requests that come when they come, and not when others are over: an open loop. What a request waits
//! before the store takes it is a part of what it took.
//!
//! Gaps between requests are drawn from an exponential distribution. Gets do not wait for puts that
//! are refused.

use std::collections::VecDeque;
use std::time::Duration;

use timestone_types::Timestamp;

use super::{OperationTally, StoreMix};
use crate::error::ReproError;
use crate::store::subject::Subject;

/// What comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// Per cent of the requests.
    pub(crate) put_share: f64,
    /// Requests of a second.
    pub(crate) rate: f64,
    /// Until so many puts have come.
    pub(crate) puts: u64,
}

/// Requests that the store has not taken yet, with when they came.
#[derive(Default)]
struct Queues {
    puts: VecDeque<(u64, Timestamp)>,
    gets: VecDeque<Timestamp>,
}

impl<S: Subject> StoreMix<S> {
    /// Asks for what comes, until all of it is answered, and tells what came of it.
    pub(crate) fn serve(&mut self, arrivals: Arrivals) -> Result<OperationTally, ReproError> {
        self.tally = OperationTally::default();
        let (began, before) = (self.now(), self.counted());
        let (mut queues, mut left) = (Queues::default(), arrivals.puts);
        let mut next = self.gap_after(began.as_nanos() as f64, arrivals.rate);
        while left > 0 || self.under_way > 0 || !queues.puts.is_empty() || !queues.gets.is_empty() {
            while left > 0 && next <= self.now().as_nanos() as f64 {
                let came = Timestamp::from_nanos(next as u64);
                if self.random.unit() * 100.0 < arrivals.put_share {
                    queues.puts.push_back((self.popular(), came));
                    left -= 1;
                } else {
                    queues.gets.push_back(came);
                }
                next = self.gap_after(next, arrivals.rate);
            }
            let (done, waiting) = (self.done, queues.puts.len() + queues.gets.len());
            self.begin_turn();
            self.ask_queued(&mut queues)?;
            self.end_turn()?;
            if (done, waiting) == (self.done, queues.puts.len() + queues.gets.len()) {
                let moment = (left > 0).then_some((next as u64).saturating_sub(super::EPOCH));
                self.rest_until(moment);
            }
        }
        let mut tally = std::mem::take(&mut self.tally);
        tally.span = Duration::from_nanos(self.now().as_nanos() - began.as_nanos());
        tally.work = self.counted().since(&before);
        Ok(tally)
    }

    fn gap_after(&mut self, nanos: f64, rate: f64) -> f64 {
        // 1 is never drawn.
        nanos - (1.0 - self.random.unit()).ln() / rate * 1e9
    }

    fn ask_queued(&mut self, queues: &mut Queues) -> Result<(), ReproError> {
        while let Some(&(key, came)) = queues.puts.front() {
            if !self.ask(Some(key), came).map_err(|error| self.refused(error))? {
                break;
            }
            queues.puts.pop_front();
        }
        while let Some(&came) = queues.gets.front() {
            if !self.ask(None, came).map_err(|error| self.refused(error))? {
                break;
            }
            queues.gets.pop_front();
        }
        Ok(())
    }
}
