//! A progress bar on a terminal's standard error, and nothing where there is none.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::limits::TICK;
use crate::output::errors_are_seen;

/// A bar of `length` steps; `unit` stands in its text.
pub(crate) fn bar(length: u64, template: &'static str) -> ProgressBar {
    let target =
        if errors_are_seen() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    // The templates are constants of this crate; the default style stands in for one that is wrong.
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

/// A count of keys that nobody knows the end of; `doing` stands in its text.
pub(crate) fn spinner(doing: &'static str) -> ProgressBar {
    let bar = bar(0, COUNTING).with_prefix(doing);
    bar.unset_length();
    bar
}

/// A whole device, block by block.
pub(crate) fn blocks(blocks: u32) -> ProgressBar {
    bar(u64::from(blocks), READING)
}

/// How long something takes that cannot be counted; `doing` stands in its text.
pub(super) fn waiting(doing: String) -> ProgressBar {
    let bar = bar(0, WAITING).with_message(doing);
    bar.enable_steady_tick(TICK);
    bar
}

/// Of waiting: what for, and for how long by now.
const WAITING: &str = "{spinner} {wide_msg} {elapsed}";
/// Of keys without an end that is known.
const COUNTING: &str = "{prefix} {spinner} {human_pos} keys, {per_sec}";
/// Of reading a device: blocks.
const READING: &str = "reading {wide_bar} {human_pos}/{human_len} blocks, {eta} left";
/// Of loading: keys.
pub(super) const LOADING: &str =
    "loading {wide_bar} {human_pos}/{human_len} keys, {per_sec}, {eta} left";
/// Of running: tenths of seconds, and what was committed.
pub(super) const RUNNING: &str = "{prefix} {wide_bar} {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [WAITING, COUNTING, READING, LOADING, RUNNING] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
