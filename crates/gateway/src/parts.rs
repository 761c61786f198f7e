//! The parts of a gateway side by side, and what goes from one to the other: bytes of redis clients
//! in, bytes for them and operations for the backend out.
//!
//! ```text
//!   received ─► intake: parse ─┬─ fast       GET, SET, DEL … of one key: straight to the backend,
//!                              │             or to a shard of this thread: direct
//!                              └─ dispatch   everything else ─► answered at once, queued by MULTI, or a job
//!   results ─► answers of fast commands │ JobRunner: jobs go on ─► answers ─► connections that waited go on
//! ```
//! Each part owns its state and is reached by its methods; functions that need several borrow them
//! side by side.
//!
//! Deliberately absent: sockets, clocks, stages (see [`crate::gateway`]), what commands mean (see
//! [`crate::commands`]).

use std::sync::Arc;

use timestone_cluster::{KeyspaceName, ShardMap};
use timestone_seda::{Memory, ReplyAddress};
use timestone_session::{OpResult, Routes, SessionError};
use timestone_types::limits::MAX_VALUE_BYTES;
use timestone_types::{ClientId, Timestamp};
use timestone_wire::resp::ReplyWriter;

use crate::backend::Backend;
use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::local::{self, ClientFilter, ServerStatus};
use crate::commands::table::Cmd;
use crate::connection::key_access::{KeyState, ReadOrder};
use crate::connection::replies::{PendingReply, ReplyId, ReplyKind};
use crate::connection::table::Connections;
use crate::connection::{Connection, ConnectionIndex};
use crate::direct::Direct;
use crate::failure::Failure;
use crate::figures::{GatewayFigures, GatewayGauges};
use crate::jobs::Jobs;
use crate::jobs::job::{JobId, Operation};
use crate::jobs::run::JobRunner;
use crate::limits::{KEPT_BUFFER_BYTES, SHED_FROM_BYTES};
use crate::links::ServerLinks;
use crate::memory::MemoryBudget;

/// See the module.
pub(crate) struct Parts {
    pub(crate) backend: Backend,
    pub(crate) connections: Connections,
    pub(crate) jobs: Jobs,
    pub(crate) direct: Direct,
    pub(crate) memory: MemoryBudget,
    pub(crate) figures: GatewayFigures,
    /// Buffers that all commands share.
    pub(crate) arguments: ArgumentBuffer,
    pub(crate) scratch: Vec<u8>,
}

/// What must be done about a result once nothing of the backend is borrowed.
pub(crate) enum ResultAction {
    Nothing,
    Answered(ConnectionIndex),
    /// A fast command met a conflict: it goes on as a job.
    RunAsJob(ConnectionIndex, ReplyId),
    /// A job has all its answers.
    Proceed(JobId),
}

impl Parts {
    /// The parts of a gateway of `client` on a thread, for one keyspace; the seed makes hashes and pauses
    /// unpredictable.
    ///
    /// # Errors
    /// None that is known: an engine without sessions has room for one.
    pub(crate) fn new(
        client: ClientId,
        routes: Routes,
        keyspace: KeyspaceName,
        thread: usize,
        seed: u64,
        memory: &Arc<Memory>,
        gauges: GatewayGauges,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            backend: Backend::new(client, routes, keyspace, seed)?,
            connections: Connections::new(thread),
            jobs: Jobs::new(seed),
            direct: Direct::default(),
            memory: MemoryBudget::new(memory),
            figures: GatewayFigures::new(gauges),
            arguments: ArgumentBuffer::default(),
            scratch: Vec::new(),
        })
    }

    /// Follows a map: where keys are, and how their shards are reached.
    pub(crate) fn follow(&mut self, now: Timestamp, links: &mut ServerLinks, map: &ShardMap) {
        // What is collected was collected for shards of the map that goes.
        self.run_direct(now);
        let engine = self.backend.engine();
        if map.version().get() < engine.shards().routes().version() {
            return;
        }
        let has_started = self.figures.started() > Timestamp::ZERO;
        if has_started && timestone_types::is_planted!(StaleLinks) {
            return engine.set_routes(now, Routes::from(map));
        }
        links.leave_moved(now, engine, map);
        engine.set_routes(now, Routes::from(map));
        links.follow(now, engine, map);
        self.backend.name_servers(map);
        debug_assert!(self.backend.shard_count() >= map.shards().len(), "no shard goes");
    }

    /// Memory that is kept for the next command.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.scratch.capacity() + self.arguments.kept_bytes()
    }

    /// A command of a connection was answered: what waited for it may go on.
    #[inline]
    pub(crate) fn answered(&mut self, index: ConnectionIndex) {
        debug_assert!(self.connections.get(index).is_some(), "who is answered is there");
        self.connections.answered(index, &mut self.memory);
    }

    /// A client is gone.
    pub(crate) fn disconnect(&mut self, reply_to: ReplyAddress) {
        if let Some(index) = self.connections.disconnect(reply_to) {
            self.answered(index);
        }
        debug_assert!(self.connections.find(reply_to).is_none(), "who has left is not found");
    }

    /// The net stage has written so much of what it was sent for a connection.
    pub(crate) fn written(&mut self, index: ConnectionIndex, bytes: usize) {
        debug_assert!(self.connections.get(index).is_some(), "what was sent was sent to somebody");
        if let Some(connection) = self.connections.get_mut(index) {
            connection.written(bytes);
            self.answered(index);
        }
    }

    /// Whom a local command tells of, and how long its answer may get, before any of it is made.
    ///
    /// # Errors
    /// What it answers instead.
    pub(crate) fn foresee_local(
        &self,
        cmd: Cmd,
        args: Args<'_>,
    ) -> Result<(ClientFilter, usize), Failure> {
        args.assert_at_least(1);
        let bytes = local::answer_bytes(cmd, args)?;
        let filter = ClientFilter::wanted(cmd, args)?;
        let listing_bytes = self.connections.listing_bytes(&filter);
        Ok((filter, bytes + listing_bytes))
    }

    /// What local commands are told of the server, with the lines of the clients that are wanted.
    pub(crate) fn server_status(&self, now: Timestamp, filter: &ClientFilter) -> ServerStatus {
        let gauges = self.figures.gauges();
        let dataset_bytes = gauges.dataset_bytes();
        ServerStatus {
            now,
            started: self.figures.started(),
            clients: self.connections.clients(),
            connections: self.connections.accepted(),
            commands: self.figures.commands(),
            shards: self.backend.shard_count(),
            per_second: self.figures.per_second(),
            dataset_bytes,
            // Data, pages on their way, and what connections cause.
            memory_bytes: dataset_bytes + gauges.buffer_bytes() + self.memory.used_by_connections(),
            keys: gauges.keys(),
            listing: self.connections.describe(filter, now),
        }
    }

    /// Does everything that can be done without new input.
    pub(crate) fn run(&mut self, now: Timestamp) {
        self.figures.look(now);
        loop {
            JobRunner { parts: self, now }.resume_waiting();
            while let Some(job) = self.jobs.next_start() {
                JobRunner { parts: self, now }.start(job);
            }
            let mut any = false;
            while self.take_result(now) {
                any = true;
            }
            while let Some(index) = self.connections.next_ready() {
                any = true;
                self.advance(now, index);
            }
            any |= self.run_direct(now);
            if !any && !self.jobs.has_starts() {
                debug_assert!(
                    !self.connections.has_ready() && self.direct.is_empty(),
                    "nothing is left to do"
                );
                return self.give_back();
            }
        }
    }

    /// Gives back what long commands took of the buffers that all share.
    fn give_back(&mut self) {
        self.arguments.give_back();
        if self.scratch.capacity() > KEPT_BUFFER_BYTES {
            self.scratch = Vec::new();
        }
        debug_assert!(self.scratch.capacity() <= KEPT_BUFFER_BYTES, "no more is kept");
    }

    /// Takes one result of the backend to whom it belongs.
    fn take_result(&mut self, now: Timestamp) -> bool {
        let Self { backend, connections, jobs, scratch, memory, figures, .. } = self;
        let Some(done) = backend.engine().next_done() else { return false };
        debug_assert_eq!(Operation::unpack(done.op.0).pack(), done.op.0, "an operation of here");
        let action = match Operation::unpack(done.op.0) {
            Operation::Fast(index, id) => match connections.get_mut(index) {
                Some(connection) => {
                    if let Some(hash) =
                        connection.replies.pending(id).and_then(|pending| pending.entered)
                    {
                        connection.replies.note_entered(id, None);
                        jobs.busy.leave(hash, 1);
                    }
                    let started = connection.replies.start_of(id);
                    let action =
                        take_fast_result(connection, index, id, &done.result, memory.process());
                    if matches!(action, ResultAction::Answered(_)) {
                        figures.answered(started, now);
                    }
                    action
                }
                None => ResultAction::Nothing,
            },
            Operation::Job(id, number) => match jobs.table.get_mut(id) {
                Some(job) => job
                    .take_result(now, id, number, &done.result, scratch, memory.process())
                    .map_or(ResultAction::Nothing, ResultAction::Proceed),
                None => ResultAction::Nothing,
            },
        };
        match action {
            ResultAction::Nothing => {}
            ResultAction::Answered(index) => self.answered(index),
            ResultAction::RunAsJob(index, id) => self.run_as_job(now, index, id),
            ResultAction::Proceed(job) => JobRunner { parts: self, now }.proceed(job),
        }
        true
    }

    /// Starts the jobs whose pause is over, and lets the engine do what is due.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let engine = self.backend.engine();
        if engine.next_deadline().is_some_and(|at| at <= now) {
            engine.tick(now);
            debug_assert!(engine.next_deadline().is_none_or(|at| at > now), "what is due is done");
        }
        self.connections.resume_postponed(&mut self.memory);
        for _ in 0..self.jobs.begin_turn() {
            let Some(id) = self.jobs.next_yielded() else { break };
            JobRunner { parts: self, now }.proceed(id);
        }
        self.jobs.resume_backed_off(now);
    }

    /// Whether something waits for nothing but the next turn.
    pub(crate) fn goes_on(&self) -> bool {
        self.jobs.has_yielded() || self.connections.has_postponed()
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let engine = self.backend.engine_ref().next_deadline();
        self.jobs.next_deadline().into_iter().chain(engine).min()
    }

    /// Whether nothing that was received is under way, and nothing at shards.
    pub(crate) fn is_done(&self) -> bool {
        let is_quiet = self.jobs.is_quiet() && self.connections.is_quiet();
        is_quiet && self.backend.engine_ref().unresolved() == 0
    }
}

/// Takes the result of a fast command: answers it, or has it asked for again.
#[inline]
pub(crate) fn take_fast_result(
    connection: &mut Connection,
    index: ConnectionIndex,
    id: ReplyId,
    result: &OpResult<'_>,
    memory: &Memory,
) -> ResultAction {
    let Some(&expected) = connection.replies.pending(id) else { return ResultAction::Nothing };
    debug_assert!(expected.entered.is_none(), "its key is free for others");
    if let OpResult::Value(view) = result
        && let Some(length) =
            view.value.map(<[u8]>::len).filter(|&length| length >= SHED_FROM_BYTES)
        && !connection.owed().has_room(
            connection.replies.is_first(id),
            length,
            crate::memory::output_bound(memory),
        )
        && !crate::memory::ignores_bound()
    {
        connection.replies.shed(id, length);
        return ResultAction::Answered(index);
    }
    if let OpResult::Value(view) = result {
        let found = KeyState { version: view.version, present: view.value.is_some() };
        let may_wait = expected.reply_kind == ReplyKind::Value && !connection.replies.is_first(id);
        match connection.accesses.judge(id, found, may_wait) {
            ReadOrder::InOrder => {}
            ReadOrder::Overtakes => {
                // It is asked for again when the earlier one is answered.
                connection.replies.drop_answer(id);
                return ResultAction::Nothing;
            }
            ReadOrder::Outdated => {
                connection.replies.drop_answer(id);
                return ResultAction::Answered(index);
            }
        }
    }
    let again = match result {
        OpResult::Failed(error) => {
            error.retryable()
                && !matches!(error, SessionError::DeadlineExceeded | SessionError::Busy { .. })
        }
        OpResult::Aborted(abort) => abort.retryable(),
        _ => false,
    };
    if again {
        return ResultAction::RunAsJob(index, id);
    }
    connection.answer(id, |out| write_fast_answer(out, &expected, result));
    ResultAction::Answered(index)
}

/// Writes the answer of a fast command.
#[inline]
fn write_fast_answer(out: &mut Vec<u8>, expected: &PendingReply, result: &OpResult<'_>) {
    let reply = &mut ReplyWriter::new(out, expected.protocol);
    match (expected.reply_kind, result) {
        (_, OpResult::Value(view)) => bulk_or_null(reply, view.value),
        (ReplyKind::Ok, OpResult::Written(_)) => reply.ok(),
        (ReplyKind::Count, OpResult::Written(_)) => reply.integer(1),
        (_, OpResult::Written(written)) => {
            bulk_or_null(reply, written.previous.and_then(|view| view.value))
        }
        (kind, OpResult::Aborted(abort))
            if abort.kind() == timestone_types::AbortKind::Condition =>
        {
            match kind {
                ReplyKind::Count => reply.integer(0),
                ReplyKind::Ok => reply.null(),
                _ => bulk_or_null(reply, abort.found.and_then(|view| view.value)),
            }
        }
        (_, OpResult::Aborted(abort)) => reply.error_bytes(Failure::aborted(abort).bytes()),
        (_, OpResult::Unknown(txn)) => reply.error_bytes(Failure::unknown(*txn).bytes()),
        (_, OpResult::Failed(error)) => reply.error_bytes(Failure::from(error).bytes()),
        _ => reply.error_bytes(Failure::INTERNAL.bytes()),
    }
}

#[inline]
fn bulk_or_null(reply: &mut ReplyWriter<'_>, value: Option<&[u8]>) {
    debug_assert!(value.is_none_or(|value| value.len() <= MAX_VALUE_BYTES), "a value is bounded");
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}
