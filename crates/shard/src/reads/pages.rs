//! Pages of scans and ranges: how many are made at once, and whose is next.
//!
//! ```text
//!   may be read ─► being made: the store walks ─► answered, if the memory for answers has room
//!        │              ▲
//!        └─ many are ─► in line: a queue for each reply address, served in turn
//! ```
//! A page that is being made holds what it has found in the store, up to a megabyte, which counts in
//! no memory before it is an answer; and a request for one has 70 bytes. So few are made at once. The
//! others wait in line with their frames alone. Who finds the line full takes the last place of the
//! longest queue, if that stays the longer one, and is refused as busy otherwise: a page can be asked for
//! again. Waiting takes nothing from a page's truth: no write commits at or below its snapshot any more
//! (docs/design/ranges.md, N1).
//!
//! Clients ask again after a second. A page that was made for each time would make a long line longer, so
//! that more is asked again: what waits, or is being made, answers for its repeats. And in a line that is
//! longer than clients wait, each page would be made for nobody: what is too old when it is its turn is
//! refused, so that what is made is still wanted.
//!
//! Invariants: a reply address has one queue at most, and none without pages; a request has one place in
//! line at most; what is counted is what the queues hold.

use std::collections::VecDeque;

use timestone_seda::ReplyAddress;
use timestone_store::AsOf;
use timestone_txn::participant::Token;
use timestone_types::{Timestamp, is_planted};
use timestone_wire::{Frame, RequestId, is_same_request};

use crate::limits::{
    LEAST_WAITING_PAGE_BYTES, MAX_PAGE_SILENCE, MAX_PAGE_WAIT, MAX_PAGES_AT_ONCE,
    MAX_WAITING_PAGE_BYTES,
};
use crate::requests::Requests;

/// What has become of a page that asks for a place in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placed {
    /// It is the last of its queue.
    AtTheEnd,
    /// It is, and this one has lost its place, which is to be refused.
    InsteadOf(Token),
    /// There is none for it.
    NoRoom,
}

/// The first in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// It is being made from now on.
    Begun(Token, AsOf),
    /// It has waited for so long that nobody wants it.
    TooLate(Token),
}

/// A page in line.
#[derive(Clone, Copy, Debug)]
struct WaitingPage {
    token: Token,
    request: RequestId,
    as_of: AsOf,
    /// Of its frame, but [`LEAST_WAITING_PAGE_BYTES`] at least.
    bytes: usize,
    first_asked: Timestamp,
    last_asked: Timestamp,
}

impl WaitingPage {
    fn is_late(&self, now: Timestamp) -> bool {
        let is_old =
            self.first_asked.saturating_add(MAX_PAGE_WAIT) <= now && !is_planted!(MakesOldPages);
        let is_left =
            self.last_asked.saturating_add(MAX_PAGE_SILENCE) <= now && !is_planted!(MakesLeftPages);
        is_old || is_left
    }
}

/// The pages that one reply address waits for.
#[derive(Debug)]
struct Queue {
    reply_to: ReplyAddress,
    pages: VecDeque<WaitingPage>,
    bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Some of them may be answered already.
    being_made: Vec<Token>,
    /// The queue whose turn it is comes first.
    line: VecDeque<Queue>,
    line_bytes: usize,
}

impl Pages {
    /// Whether the very same page is being made, or waits: it answers this request, too.
    pub(super) fn has_same(
        &mut self,
        token: Token,
        frame: &Frame<'_>,
        now: Timestamp,
        requests: &mut Requests,
    ) -> bool {
        let Some(request) = requests.get_mut(token).filter(|_| !is_planted!(RepeatsPages)) else {
            return false;
        };
        let (reply_to, id) = (request.reply_to, request.envelope.request);
        // Whoever has given the first one up may ask for another under its number.
        let mut is_same = |other: Token| {
            other != token
                && requests.get_mut(other).is_some_and(|other| {
                    other.reply_to == reply_to && is_same_request(&other.frame, frame.bytes())
                })
        };
        if self.being_made.iter().any(|&made| is_same(made)) {
            return true;
        }
        let queue = self.line.iter_mut().find(|queue| queue.reply_to == reply_to);
        let waiting =
            queue.and_then(|queue| queue.pages.iter_mut().find(|page| page.request == id));
        let Some(waiting) = waiting.filter(|waiting| is_same(waiting.token)) else { return false };
        waiting.last_asked = now;
        true
    }

    /// Whether a page may be made now; it is from then on.
    pub(super) fn begin(&mut self, token: Token, requests: &mut Requests) -> bool {
        if !self.line.is_empty() || !self.has_place(requests) {
            return false;
        }
        self.being_made.push(token);
        true
    }

    /// Takes what a request waits for out of line: it asks for something else under its number.
    pub(super) fn give_up(&mut self, reply_to: ReplyAddress, request: RequestId) -> Option<Token> {
        if is_planted!(RepeatsPages) {
            return None;
        }
        let queue = self.line.iter().position(|queue| queue.reply_to == reply_to)?;
        let at = self.line[queue].pages.iter().position(|page| page.request == request)?;
        Some(self.take(queue, at).token)
    }

    /// Gives a page a place in line, if there is one.
    pub(super) fn wait(
        &mut self,
        reply_to: ReplyAddress,
        request: RequestId,
        (token, as_of, frame_bytes): (Token, AsOf, usize),
        now: Timestamp,
    ) -> Placed {
        let bytes = frame_bytes.max(LEAST_WAITING_PAGE_BYTES);
        let mut instead_of = None;
        if self.line_bytes + bytes > MAX_WAITING_PAGE_BYTES {
            let Some((queue, at)) = self.least_wanted(reply_to, bytes, now) else {
                return Placed::NoRoom;
            };
            instead_of = Some(self.take(queue, at).token);
        }
        let (first_asked, last_asked) = (now, now);
        let page = WaitingPage { token, request, as_of, bytes, first_asked, last_asked };
        if let Some(queue) = self.line.iter_mut().find(|queue| queue.reply_to == reply_to) {
            queue.pages.push_back(page);
            queue.bytes += bytes;
        } else {
            self.line.push_back(Queue { reply_to, pages: VecDeque::from([page]), bytes });
        }
        self.line_bytes += bytes;
        self.assert_counted();
        instead_of.map_or(Placed::AtTheEnd, Placed::InsteadOf)
    }

    /// The next one in line, if one may be made now.
    pub(super) fn next(&mut self, now: Timestamp, requests: &mut Requests) -> Option<Next> {
        if self.line.is_empty() || !self.has_place(requests) {
            return None;
        }
        let queues = self.line.len();
        let page = self.take(0, 0);
        // What is not made costs no turn.
        if page.is_late(now) {
            return Some(Next::TooLate(page.token));
        }
        let has_more = self.line.len() == queues;
        if has_more && !is_planted!(PagesOfOneFirst) {
            self.line.rotate_left(1);
        }
        self.being_made.push(page.token);
        Some(Next::Begun(page.token, page.as_of))
    }

    /// Which page leaves the full line for one of so many bytes, by its queue and its place there: one
    /// that nobody wants any more, else the last of the longest queue, if that stays the longer one.
    fn least_wanted(
        &self,
        reply_to: ReplyAddress,
        bytes: usize,
        now: Timestamp,
    ) -> Option<(usize, usize)> {
        let most = MAX_WAITING_PAGE_BYTES - bytes;
        let makes_room = |page: &WaitingPage| self.line_bytes - page.bytes <= most;
        let is_late = |page: &WaitingPage| page.is_late(now) && makes_room(page);
        let mut fronts = self.line.iter().map(|queue| &queue.pages[0]);
        if let Some(queue) = fronts.position(is_late) {
            return Some((queue, 0));
        }
        let own = self.line.iter().find(|queue| queue.reply_to == reply_to);
        let own_bytes = own.map_or(0, |queue| queue.bytes) + bytes;
        let (at, longest) = self.line.iter().enumerate().max_by_key(|(_, queue)| queue.bytes)?;
        let last = longest.pages.back()?;
        let leaves = own_bytes + last.bytes <= longest.bytes && makes_room(last);
        (leaves && !is_planted!(PagesOfOneFirst)).then(|| (at, longest.pages.len() - 1))
    }

    /// Takes a page out of line; a queue without pages is none.
    fn take(&mut self, queue: usize, at: usize) -> WaitingPage {
        let Queue { pages, bytes, .. } = &mut self.line[queue];
        let page = pages.remove(at).expect("a page that was found is there");
        *bytes -= page.bytes;
        self.line_bytes -= page.bytes;
        if pages.is_empty() {
            self.line.remove(queue);
        }
        self.assert_counted();
        page
    }

    fn has_place(&mut self, requests: &mut Requests) -> bool {
        if self.being_made.len() >= MAX_PAGES_AT_ONCE {
            // However a request came to its end, its page is not made any more.
            self.being_made.retain(|&token| requests.get_mut(token).is_some());
        }
        self.being_made.len() < MAX_PAGES_AT_ONCE || is_planted!(PagesWithoutBound)
    }

    fn assert_counted(&self) {
        debug_assert!(
            self.line.iter().all(|queue| !queue.pages.is_empty()),
            "who waits has a queue"
        );
        debug_assert_eq!(
            self.line_bytes,
            self.line.iter().map(|queue| queue.bytes).sum::<usize>(),
            "what the queues hold"
        );
        debug_assert!(self.line_bytes <= MAX_WAITING_PAGE_BYTES, "the line has an end");
    }
}
