//! Pages of scans and ranges: how many are made at once, and whose is next.
//!
//! ```text
//!   may be read ─► being made: the store walks ─► answered, if the memory for answers has room
//!        │              └─ takes in: the same is asked again
//!        └─ many are ─► in line: a queue for each reply address, served in turn ─┘
//! ```
//! A page that is being made holds what it has found in the store, up to a megabyte, which counts in
//! no memory before it is an answer; and a request for one has 70 bytes. So few are made at once. The
//! others wait in line with their frames alone, and what finds the line full, or its queue, is refused
//! as busy: a page can be asked for again. Waiting takes nothing from a page's truth: no write commits
//! at or below its snapshot any more (docs/design/ranges.md, N1).
//!
//! Clients ask again after a second. A page that was made for each time would make a long line longer, so
//! that more is asked again: a repeat takes the place of what waits, and is dropped while the first is
//! being made. A shard does not hear that a connection is gone. So what has not been asked again for as long
//! as clients wait is not made any more.
//!
//! Invariants: a reply address has one queue at most, and none without pages; a request has one place in
//! line at most; what is counted is what the queues hold.

use std::collections::VecDeque;

use timestone_seda::ReplyAddress;
use timestone_store::AsOf;
use timestone_txn::participant::Token;
use timestone_types::{Timestamp, is_planted};
use timestone_wire::{Frame, RequestId};

use crate::limits::{
    MAX_PAGE_WAIT, MAX_PAGES_AT_ONCE, MAX_WAITING_PAGE_BYTES, MAX_WAITING_PAGE_BYTES_OF_ONE,
    MAX_WAITING_PAGES, MAX_WAITING_PAGES_OF_ONE,
};
use crate::requests::Requests;

/// A page in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPage {
    pub(super) token: Token,
    pub(super) request: RequestId,
    pub(super) as_of: AsOf,
    pub(super) frame_bytes: usize,
    /// When it was asked for last.
    pub(super) asked: Timestamp,
}

/// What a page may do that waits for others to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InLine {
    /// It is in line.
    Last,
    /// It has taken the place of this one, which is not made.
    Of(Token),
    /// There is none.
    None,
}

/// The first in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// It is being made from now on.
    Made(Token, AsOf),
    /// It has waited for so long that nobody wants it.
    TooLate(Token),
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
    made: Vec<Token>,
    /// The queue whose turn it is comes first.
    line: VecDeque<Queue>,
    line_pages: usize,
    line_bytes: usize,
}

impl Pages {
    /// Whether the very same is being made for a request: it answers this one, too.
    pub(super) fn is_made(&self, token: Token, frame: &Frame<'_>, requests: &mut Requests) -> bool {
        let Some(request) = requests.get_mut(token) else { return false };
        let (reply_to, id) = (request.reply_to, request.envelope.request);
        let is_same = |&made: &Token| {
            requests.get_mut(made).is_some_and(|made| {
                made.reply_to == reply_to
                    && made.envelope.request == id
                    // Whoever has given the first one up may ask for another under its number.
                    && made.frame == frame.bytes()
            })
        };
        self.made.iter().any(is_same) && !is_planted!(RepeatsPages)
    }

    /// Whether a page may be made now; it is from then on.
    pub(super) fn begin(&mut self, token: Token, requests: &mut Requests) -> bool {
        if !self.line.is_empty() || !self.has_place(requests) {
            return false;
        }
        self.made.push(token);
        true
    }

    /// Gives a page of a reply address a place in line, if there is one.
    pub(super) fn wait(&mut self, reply_to: ReplyAddress, page: WaitingPage) -> InLine {
        self.assert_counted();
        let Some(queue) = self.line.iter_mut().find(|queue| queue.reply_to == reply_to) else {
            let has_room = self.line_pages < MAX_WAITING_PAGES
                && self.line_bytes + page.frame_bytes <= MAX_WAITING_PAGE_BYTES;
            if !has_room {
                return InLine::None;
            }
            let (pages, bytes) = (VecDeque::from([page]), page.frame_bytes);
            self.line.push_back(Queue { reply_to, pages, bytes });
            self.line_pages += 1;
            self.line_bytes += bytes;
            return InLine::Last;
        };
        let is_full =
            queue.pages.len() >= MAX_WAITING_PAGES_OF_ONE || self.line_pages >= MAX_WAITING_PAGES;
        let before = queue.pages.iter_mut().find(|waiting| waiting.request == page.request);
        let before = before.filter(|_| !is_planted!(RepeatsPages));
        let left = before.as_ref().map_or(0, |before| before.frame_bytes);
        let has_bytes = queue.bytes - left + page.frame_bytes <= MAX_WAITING_PAGE_BYTES_OF_ONE
            && self.line_bytes - left + page.frame_bytes <= MAX_WAITING_PAGE_BYTES;
        let place = match before {
            // What is asked again as it was needs no more than it has.
            Some(before) if has_bytes || page.frame_bytes <= left => {
                InLine::Of(std::mem::replace(before, page).token)
            }
            None if has_bytes && !is_full => {
                queue.pages.push_back(page);
                self.line_pages += 1;
                InLine::Last
            }
            _ => return InLine::None,
        };
        queue.bytes = queue.bytes - left + page.frame_bytes;
        self.line_bytes = self.line_bytes - left + page.frame_bytes;
        place
    }

    /// The next one in line, if one may be made now.
    pub(super) fn next(&mut self, now: Timestamp, requests: &mut Requests) -> Option<Next> {
        self.assert_counted();
        if self.line.is_empty() || !self.has_place(requests) {
            return None;
        }
        let mut queue = self.line.pop_front()?;
        let page = queue.pages.pop_front()?;
        queue.bytes -= page.frame_bytes;
        self.line_pages -= 1;
        self.line_bytes -= page.frame_bytes;
        let is_late =
            page.asked.saturating_add(MAX_PAGE_WAIT) <= now && !is_planted!(MakesLatePages);
        if !queue.pages.is_empty() {
            // What is not made costs no turn.
            if is_late || is_planted!(PagesOfOneFirst) {
                self.line.push_front(queue);
            } else {
                self.line.push_back(queue);
            }
        }
        if is_late {
            return Some(Next::TooLate(page.token));
        }
        self.made.push(page.token);
        Some(Next::Made(page.token, page.as_of))
    }

    fn has_place(&mut self, requests: &mut Requests) -> bool {
        if self.made.len() >= MAX_PAGES_AT_ONCE {
            // However a request came to its end, its page is not made any more.
            self.made.retain(|&token| requests.get_mut(token).is_some());
        }
        self.made.len() < MAX_PAGES_AT_ONCE || is_planted!(PagesWithoutBound)
    }

    fn assert_counted(&self) {
        debug_assert!(
            self.line.iter().all(|queue| !queue.pages.is_empty()),
            "who waits has a queue"
        );
        debug_assert_eq!(
            (self.line_pages, self.line_bytes),
            self.line.iter().fold((0, 0), |(pages, bytes), queue| {
                (pages + queue.pages.len(), bytes + queue.bytes)
            }),
            "what the queues hold"
        );
    }
}
