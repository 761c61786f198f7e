//! Who waits for the store's device to be read and verified.

use timestone_seda::ReplyAddress;
use timestone_store::ScrubReport;
use timestone_wire::{Envelope, ErrorCode, ErrorReply, Frame, Message, Scrubbed};

use crate::limits::{BUSY_RETRY_AFTER, MAX_SCRUB_ASKERS};
use crate::requests::Requests;
use crate::shard::ShardStore;
use crate::turn::Turn;

/// Everybody who has asked since the walk that is under way began, or before.
#[derive(Debug, Default)]
pub(crate) struct ScrubAskers {
    waiting: Vec<(ReplyAddress, Envelope)>,
}

impl ScrubAskers {
    /// Somebody asks. Whether there is room for him.
    fn add(&mut self, reply_to: ReplyAddress, envelope: Envelope) -> bool {
        assert!(self.waiting.len() <= MAX_SCRUB_ASKERS, "askers are bounded");
        let has_room = self.waiting.len() < MAX_SCRUB_ASKERS;
        if has_room {
            self.waiting.push((reply_to, envelope));
        }
        has_room
    }

    /// Begins a walk over all records, or joins the one that is under way.
    pub(crate) fn scrub(
        &mut self,
        ctx: &mut Turn<'_>,
        (reply_to, frame): (ReplyAddress, &Frame<'_>),
        requests: &mut Requests,
        store: &mut ShardStore,
    ) {
        let envelope = requests.envelope_for(frame);
        let has_room = self.add(reply_to, envelope);
        assert!(!self.waiting.is_empty(), "a walk is for somebody");
        if has_room {
            return store.scrub();
        }
        let words = "many wait for a scrub of this shard already; wait for it, then try again";
        let error = ErrorReply::new(ErrorCode::Busy, words).with_retry_after(BUSY_RETRY_AFTER);
        requests.answer_error(ctx, reply_to, frame, &error);
    }

    /// The walk has ended.
    pub(crate) fn scrubbed(
        &mut self,
        ctx: &mut Turn<'_>,
        report: &ScrubReport,
        requests: &mut Requests,
    ) {
        let &ScrubReport { pages, records, corrupt_pages, corrupt_records } = report;
        tracing::info!(
            shard = %requests.shard(), pages, records, corrupt_pages, corrupt_records,
            "scrub finished"
        );
        for (reply_to, envelope) in std::mem::take(&mut self.waiting) {
            Scrubbed { pages, records, corrupt_pages, corrupt_records }
                .encode(&envelope, requests.reply(ctx, reply_to));
        }
        assert!(self.waiting.is_empty(), "everybody is told once");
    }
}

#[cfg(test)]
mod tests {
    use timestone_wire::{Kind, Scrub};

    use super::*;
    use crate::reads::expiry::tests::Bench;
    use crate::shard::LogPlace;

    #[test]
    fn a_scrub_counts_every_record_of_the_device() {
        let mut bench = Bench::new(0, LogPlace::Nowhere);
        let answered = bench.ask(
            |to, out| Scrub {}.encode(to, out),
            |frame| (frame.kind(), Scrubbed::decode(frame).expect("a report")),
        );
        let (kind, report) = answered.expect("an answer");
        assert_eq!(kind, Kind::Scrubbed);
        assert!(report.pages > 0 && report.records >= 2004, "{report:?}");
        assert_eq!((report.corrupt_pages, report.corrupt_records), (0, 0));
    }
}
