//! Pages of scans and ranges: how many are made at once.
//!
//! ```text
//!   may be read ─► being made: the store walks ─► answered, if the memory for answers has room
//!        └─ many are ─► in line ─┘
//! ```
//! A page that is being made holds what it has found in the store, up to a megabyte, which counts in
//! no memory before it is an answer; and a request for one has 70 bytes. So few are made at once. The
//! others wait in line with their frames alone, and what finds the line full is refused as busy: a page
//! can be asked for again. Waiting takes nothing from a page's truth: no write commits at or below its
//! snapshot any more (docs/design/ranges.md, N1).
//!
//! Invariant: what is in line came later than all that is being made.

use std::collections::VecDeque;

use timestone_store::AsOf;
use timestone_txn::participant::Token;
use timestone_types::is_planted;

use crate::limits::{MAX_PAGES_AT_ONCE, MAX_WAITING_PAGE_BYTES, MAX_WAITING_PAGES};
use crate::requests::Requests;

/// A page in line.
#[derive(Clone, Copy, Debug)]
struct WaitingPage {
    token: Token,
    as_of: AsOf,
    frame_bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Some of them may be answered already.
    made: Vec<Token>,
    line: VecDeque<WaitingPage>,
    line_bytes: usize,
}

impl Pages {
    /// Whether a page may be made now; it is from then on.
    pub(super) fn begin(&mut self, token: Token, requests: &mut Requests) -> bool {
        if !self.line.is_empty() || !self.has_place(requests) {
            return false;
        }
        self.made.push(token);
        true
    }

    /// Whether a page may wait in line, whose frame has so many bytes; it does from then on.
    pub(super) fn wait(&mut self, token: Token, as_of: AsOf, frame_bytes: usize) -> bool {
        let has_room = self.line.len() < MAX_WAITING_PAGES
            && self.line_bytes + frame_bytes <= MAX_WAITING_PAGE_BYTES;
        if has_room {
            self.line.push_back(WaitingPage { token, as_of, frame_bytes });
            self.line_bytes += frame_bytes;
        }
        has_room
    }

    /// The next one in line that may be made now; it is from then on.
    pub(super) fn next(&mut self, requests: &mut Requests) -> Option<(Token, AsOf)> {
        if self.line.is_empty() || !self.has_place(requests) {
            return None;
        }
        let WaitingPage { token, as_of, frame_bytes } = self.line.pop_front()?;
        self.line_bytes -= frame_bytes;
        debug_assert!(!self.line.is_empty() || self.line_bytes == 0, "nobody has no bytes");
        self.made.push(token);
        Some((token, as_of))
    }

    fn has_place(&mut self, requests: &mut Requests) -> bool {
        if self.made.len() >= MAX_PAGES_AT_ONCE {
            // However a request came to its end, its page is not made any more.
            self.made.retain(|&token| requests.get_mut(token).is_some());
        }
        self.made.len() < MAX_PAGES_AT_ONCE || is_planted!(PagesWithoutBound)
    }
}
