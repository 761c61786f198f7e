//! Bugs on purpose: the tests switch one on and must fail. They act only with the feature
//! `planted-bugs`; without it every question after one is a constant `false` and the compiler
//! removes it. The numbers are the classes of docs/verification.md, "Classes of bugs".
//!
//! One hook for the whole crate: [`bugs`] tells what is planted on this thread. So no type carries
//! bugs, no signature names them, and a test plants for whatever runs on its thread, be it one core
//! or whole stages that make their cores themselves ([`plant`]).

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(
    not(feature = "planted-bugs"),
    expect(unreachable_pub, reason = "exported with the feature only")
)]
pub struct PlantedBugs {
    /// 1: validated reads do not raise `latest_read` (MILANA's Algorithm 1 as printed).
    pub skip_step_3: bool,
    /// 1: `latest_read` is recorded only where a mark exists.
    pub mark_only_known_keys: bool,
    /// 2: a commit for an unseen transaction is acknowledged without its writes.
    pub apply_empty_write_set: bool,
    /// 3: a commit is applied at the first promised timestamp.
    pub apply_at_prepared: bool,
    /// 4: reads of absent keys leave no mark.
    pub forget_absent_marks: bool,
    /// 5: an outcome is forgotten at once, so a late prepare prepares for ever.
    pub forget_outcomes: bool,
    /// 6: preparing again at a later timestamp gives up the old promise before the new checks.
    pub drop_old_promise: bool,
    /// 7: requests are served before the log was read to its end.
    pub serve_while_recovering: bool,
    /// 8: rule 1 tolerates prepared writes above the commit timestamp.
    pub relax_rule_1: bool,
    /// 9: termination commits at its own timestamp without looking at the others'.
    pub terminate_at_own_timestamp: bool,
    /// 10: answering a backup coordinator does not freeze.
    pub answer_without_freezing: bool,
    /// 11: the read bound is forgotten at a restart.
    pub forget_read_bound: bool,
    /// After a restart, reads up to where the run began are served before a bound is durable that
    /// lets the next run know.
    pub read_before_first_bound: bool,
    /// Snapshots up to the own clock are served when the log has failed and the bound cannot rise.
    pub read_beyond_lost_log: bool,
    /// 13: votes count whoever sent them.
    pub count_strangers: bool,
    /// 13: votes for earlier timestamps count.
    pub count_stale_votes: bool,
    /// 14: an answer is not checked against the watermark again.
    pub skip_answer_check: bool,
    /// A scan is not told what was acknowledged above its clock.
    pub scan_below_acknowledged: bool,
    /// A scan is not told that a restart has put the watermark ahead of its clock.
    pub scan_below_watermark: bool,
    /// A condition that found something holds although a fence has removed it since.
    pub keep_conditions_over_fences: bool,
    /// What found nothing, a condition or a read, is outdated where a version is remembered which
    /// nothing is left of.
    pub tell_absences_apart: bool,
    /// A read that found nothing holds wherever nothing is now, whatever was put in between.
    pub overlook_puts: bool,
    /// 15: votes are sent before they are durable.
    pub vote_before_durable: bool,
    /// 16: timestamps far ahead of the clock are let in.
    pub trust_every_clock: bool,
    /// 17: a coordinator that hears nothing reports an abort.
    pub abort_on_timeout: bool,
    /// 19: recovery drops prepared transactions.
    pub recover_without_prepared: bool,
    /// 2: a write set that comes late is applied below the watermark.
    pub write_below_watermark: bool,
    /// 2: a write set that comes late is applied below a watermark that is on its way to the log.
    pub write_below_pledge: bool,
    /// 2: what lies below a watermark that a restart has raised counts as carried out, although
    /// promises may be lost.
    pub trust_raised_watermark: bool,
    /// 2: after a run without a log, the write set of a commit that is unknown here is asked for
    /// however old it is.
    pub trust_old_decisions: bool,
    /// 2: after a run without a log, a told abort is not remembered while the write set of its
    /// commit would be asked for.
    pub abort_without_record: bool,
    /// 2: the same, once nobody is asked for write sets any more.
    pub forget_told_aborts: bool,
    /// 9: who asked the lowest participant to end a transaction does not hear that it has ended.
    pub ignore_known_ends: bool,
    /// 9: a recovered promise waits for a decision although a peer says that everybody has
    /// acknowledged it.
    pub wait_for_finished: bool,
    /// 9: a recovered promise waits for a decision although the store has what it put.
    pub overlook_applied: bool,
    /// 20: the watermark spreads only what leads a client's list of kept outcomes.
    pub propagate_first_only: bool,
    /// 20: a recovered decision whose promise has left the log does not know whom to tell.
    pub recover_without_participants: bool,
    /// 21: the watermark looks at one session only.
    pub watermark_of_one: bool,
    /// 21: a client whose clock is far behind holds the watermark where its clock stands.
    pub believe_late_clocks: bool,
    /// 21: a commit may equal the mark of a read.
    pub equal_is_enough: bool,
    /// A key is free before its put can be read.
    pub free_before_applied: bool,
    /// The floor falls back whenever the window rotates.
    pub lower_low_water: bool,
    /// A duplicate of a prepare that was promised is validated as if it were new.
    pub revalidate_duplicates: bool,
    /// 13: a participant's vote counts as often as it comes.
    pub count_duplicates: bool,
    /// After a restart, expiry is judged by the clock alone, which may have been set back.
    pub forget_expiry: bool,
    /// After a restart, what the last run may have told expired since its last durable bound is
    /// told alive.
    pub forget_told_expiry: bool,
    /// Expiry is told although no bound is durable that lets the next run know.
    pub tell_expiry_at_once: bool,
    /// After a restart, the watermark does not wait for the sessions that were live.
    pub forget_sessions: bool,
    /// Outcomes are kept for ever.
    pub hoard_outcomes: bool,
    /// A restart forgets clients beyond the bound that holds while serving, but keeps their
    /// outcomes.
    pub forget_past_clients: bool,
    /// Clients that are gone are never forgotten.
    pub hoard_clients: bool,
    /// A client that says goodbye counts until it has been silent for long.
    pub deaf_to_farewells: bool,
    /// Whether a version has expired is judged by the timestamp of whoever reads it.
    pub judge_expiry_by_clients: bool,
    /// After a restart, nobody knows what single-key writes found, nor why one was refused.
    pub forget_found: bool,
    /// Who waits for the clocks waits beyond its deadline.
    pub outwait_deadlines: bool,
    /// A commit is acknowledged at once, although it should wait for the clocks.
    pub skip_external_wait: bool,
}

#[cfg(feature = "planted-bugs")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBugs>> = const { std::cell::Cell::new(None) };
}

/// Plants bugs in every core that runs on this thread; `None` ends that.
#[cfg(feature = "planted-bugs")]
pub fn plant(bugs: Option<PlantedBugs>) {
    PLANTED.set(bugs);
}

/// The bugs that are planted on this thread.
#[cfg(feature = "planted-bugs")]
#[inline]
pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get().unwrap_or_default()
}

/// None: every question after a bug is a constant, and the compiler removes what hangs on it.
#[cfg(not(feature = "planted-bugs"))]
#[inline]
pub(crate) fn bugs() -> PlantedBugs {
    PlantedBugs::default()
}
