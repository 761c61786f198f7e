//! Golden scripts: `tests/scripts/*.txt`, one scenario a file. Lines that begin with `>` are
//! commands, the lines below each are *all* that came of it. Times are milliseconds (`1010+1` = one
//! nanosecond later). `BLESS=1` writes what came instead.
//!
//! A script that names planted bugs (`# caught: skip_step_3`) must fail with each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use timestone_txn::coordinator::{self, CommitKind, Coordinator};
use timestone_txn::participant::{
    Config, DirectAnswer, FrozenState, Output, ReadAt, Token, TxnStatus, Vote, Wait, WriteKind,
};
use timestone_txn::{Refusal, ShardList};
use timestone_types::{
    AbortKind, AbortReason, ClientId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId,
    TxnOutcome, Version,
};

use crate::stage::{Event, Part, Range, Read, Request, Stage, Write};

struct World {
    now: Timestamp,
    stages: BTreeMap<u16, Stage>,
    coordinators: BTreeMap<u32, Coordinator>,
    cut: BTreeSet<u16>,
    askers: BTreeMap<Token, u16>,
    next_token: u64,
    text: String,
}

fn ms(text: &str) -> Timestamp {
    let (whole, nanos) = text.split_once('+').unwrap_or((text, "0"));
    Timestamp::from_nanos(whole.parse::<u64>().unwrap() * 1_000_000 + nanos.parse::<u64>().unwrap())
}

fn show_time(at: Timestamp) -> String {
    let (whole, nanos) = (at.as_nanos() / 1_000_000, at.as_nanos() % 1_000_000);
    if at == Timestamp::MAX {
        "never".into()
    } else if nanos == 0 {
        format!("{whole}")
    } else {
        format!("{whole}+{nanos}")
    }
}

fn show_version(version: Version) -> String {
    if version.is_zero() {
        "none".into()
    } else {
        format!("{}.{}", show_time(version.timestamp), version.client)
    }
}

fn parse_version(text: &str) -> Version {
    match text.split_once('.') {
        None => Version::ZERO,
        Some((at, client)) => Version::new(ms(at), ClientId::new(client.parse().unwrap())),
    }
}

fn key(text: &str) -> (KeyspaceId, String) {
    match text.split_once('/') {
        Some((keyspace, key)) => (KeyspaceId::new(keyspace.parse().unwrap()), key.into()),
        None => (KeyspaceId::DEFAULT, text.into()),
    }
}

/// `1/b..d`, perhaps with when the first of its values expires: `1/b..d<1050`.
fn range(text: &str) -> Range {
    let (text, expires_at) =
        text.split_once('<').map_or((text, Expiry::NEVER), |(a, b)| (a, Expiry::at(ms(b))));
    let (from, to) = text.split_once("..").unwrap();
    let (keyspace, from) = key(from);
    Range { keyspace, from, to: (!to.is_empty()).then(|| to.into()), expires_at }
}

fn show_outcome(outcome: TxnOutcome) -> String {
    match outcome {
        TxnOutcome::Committed(at) => format!("committed@{}", show_time(at)),
        TxnOutcome::Aborted => "aborted".into(),
    }
}

fn show_reason(reason: AbortReason) -> String {
    let mut text = reason.kind.name().to_owned();
    if let Some(item) = reason.item {
        let _ = write!(text, " item={item}");
    }
    if let Some(other) = reason.other {
        let _ = write!(text, " other={other}");
    }
    if reason.at > Timestamp::ZERO {
        let _ = write!(text, " at={}", show_time(reason.at));
    }
    text
}

fn show_refusal(refusal: Refusal) -> String {
    match refusal {
        Refusal::TooOld { watermark } => format!("too old, watermark {}", show_time(watermark)),
        Refusal::ClockAhead { lead } => format!("clock ahead by {lead:?}"),
        Refusal::ClockHeld { wait } => format!("clock held, wait {wait:?}"),
        Refusal::ClockBehind { left } => format!("clock behind, {left:?} left"),
        Refusal::Prepared { other } => format!("prepared by {other}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn show_state(state: FrozenState) -> String {
    match state {
        FrozenState::Prepared(at) => format!("prepared@{}", show_time(at)),
        FrozenState::Decided(outcome) => show_outcome(outcome),
        FrozenState::Finished => "finished".into(),
        FrozenState::Forgotten => "forgotten".into(),
    }
}

fn show_status(status: TxnStatus) -> String {
    match status {
        TxnStatus::Unknown => "unknown".into(),
        TxnStatus::Prepared(at) => format!("prepared@{}", show_time(at)),
        TxnStatus::Decided(outcome) => show_outcome(outcome),
    }
}

fn show_wait(wait: Wait) -> String {
    match wait {
        Wait::No => "without waiting".into(),
        Wait::Yes => "waiting".into(),
        Wait::Until(at) => format!("until {}", show_time(at)),
    }
}

fn show_vote(vote: Vote) -> String {
    match vote {
        Vote::Yes => "yes".into(),
        Vote::Later(at) => format!("later {}", show_time(at)),
        Vote::No(reason) => format!("no: {}", show_reason(reason)),
        Vote::Decided(outcome) => format!("decided {}", show_outcome(outcome)),
    }
}

fn show(event: &Event) -> String {
    use timestone_txn::participant::LogIntent;
    match event.0 {
        Output::ReadNow { at, prepared_before, .. } => {
            let value = event.1.as_ref().unwrap();
            let text = value.value.as_deref().unwrap_or("absent");
            let uncertain = if prepared_before { " (prepared before)" } else { "" };
            format!(
                "read {}@{} = {text} {}{uncertain}",
                value.key.1,
                show_time(at),
                show_version(value.version)
            )
        }
        Output::Again { token, wait } => format!("again #{} {}", token.0, show_wait(wait)),
        Output::Parked { token } => format!("parked #{}", token.0),
        Output::PutNow { txn, commit, .. } => format!("put now {txn}@{}", show_time(commit)),
        Output::Direct(answer) => match answer {
            DirectAnswer::Read { at, .. } => {
                let value = event.1.as_ref().unwrap();
                let text = value.value.as_deref().unwrap_or("absent");
                format!("direct read @{} = {text} {}", show_time(at), show_version(value.version))
            }
            DirectAnswer::Put => "direct put".into(),
            DirectAnswer::Later(at) => format!("direct later {}", show_time(at)),
            DirectAnswer::Indirect => "indirect".into(),
        },
        Output::Refuse { refusal, .. } => format!("refused: {}", show_refusal(refusal)),
        Output::Ignored { .. } => "ignored".into(),
        Output::Vote { txn, commit, vote, .. } => {
            format!("vote {txn}@{} {}", show_time(commit), show_vote(vote))
        }
        Output::Repeated { txn, commit, vote, at, present, .. } => {
            let found = if present { "present" } else { "absent" };
            format!(
                "repeat {txn}@{} {}, found {found}@{}",
                show_time(commit),
                show_vote(vote),
                show_time(at)
            )
        }
        Output::Log { intent, .. } => match intent {
            LogIntent::Prepare { txn, commit, single, .. } => {
                format!(
                    "log prepare {txn}@{}{}",
                    show_time(commit),
                    if single { " single" } else { "" }
                )
            }
            LogIntent::Decision { txn, outcome, decided_by, .. } => {
                format!("log {txn} {} by {decided_by:?}", show_outcome(outcome)).to_lowercase()
            }
            LogIntent::ReadBound { bound, watermark, .. } => {
                format!("log bound {} watermark {}", show_time(bound), show_time(watermark))
            }
        },
        Output::Apply { txn, commit } => format!("apply {txn}@{}", show_time(commit)),
        Output::AckDecision { txn, .. } => format!("ack {txn}"),
        Output::AskWriteSet { txn, .. } => format!("ask write set {txn}"),
        Output::ForgetPayload { txn } => format!("forget payload {txn}"),
        Output::StatusIs { txn, status, .. } => format!("status {txn} {}", show_status(status)),
        Output::ScanNow { at, prepared_before, .. } => {
            format!(
                "scan at {}{}",
                show_time(at),
                if prepared_before { " (prepared before)" } else { "" }
            )
        }
        Output::NewestIs { at, .. } => format!("newest {}", show_time(at)),
        Output::AskFreeze { to, txn, .. } => format!("ask s{to} freeze {txn}"),
        Output::FreezeAnswer { txn, state, .. } => format!("frozen {txn} {}", show_state(state)),
        Output::AskTerminate { to, txn, .. } => format!("ask s{to} terminate {txn}"),
        Output::TellDecision { to, txn, outcome } => {
            format!("tell s{to} {txn} {}", show_outcome(outcome))
        }
        Output::Began { watermark } => format!("began at watermark {}", show_time(watermark)),
        Output::Recognised { is_new, .. } => format!("is new: {is_new}"),
        Output::LookUp { .. } => "look up".into(),
        Output::NoRoom { .. } => "no room".into(),
        Output::Owed { decisions, aborts } => format!("owes decisions {decisions} aborts {aborts}"),
        Output::CopyForward(ref copy) => {
            format!("keep {} promises, {} outcomes", copy.promises.len(), copy.outcomes.len())
        }
        Output::AdvanceWatermark(at) => format!("watermark {}", show_time(at)),
        Output::Closed { at } => format!("closed {}", show_time(at)),
    }
}

fn show_coordinator(output: coordinator::Output) -> String {
    use coordinator::{CommitResult, Output};
    match output {
        Output::Prepare { to, commit, single } => {
            format!("prepare s{to} @{}{}", show_time(commit), if single { " single" } else { "" })
        }
        Output::Decide { to, outcome } => format!("decide s{to} {}", show_outcome(outcome)),
        Output::SendWriteSet { to, commit } => format!("write set s{to} @{}", show_time(commit)),
        Output::Terminate { to } => format!("terminate s{to}"),
        Output::Done => "done".into(),
        Output::Finished(CommitResult::Committed(at)) => {
            format!("told committed@{}", show_time(at))
        }
        Output::Finished(CommitResult::Unknown) => "told unknown".into(),
        Output::Finished(CommitResult::Aborted { reason, by }) => {
            format!(
                "told aborted: {}{}",
                show_reason(reason),
                by.map_or(String::new(), |by| format!(" by s{by}"))
            )
        }
        Output::Finished(CommitResult::Refused { refusal, by }) => {
            format!("told refused: {} by s{by}", show_refusal(refusal))
        }
    }
}

/// The arguments of a command: `name=value` and bare words.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
    fn time(&self, name: &str) -> Timestamp {
        self.value(name).map_or(Timestamp::ZERO, ms)
    }
    fn wait(&self) -> Wait {
        if self.has("nowait") { Wait::No } else { Wait::Yes }
    }
    fn shards(&self) -> Vec<ShardId> {
        self.value("in")
            .unwrap_or("1")
            .split(',')
            .map(|one| ShardId::new(one.parse().unwrap()))
            .collect()
    }
    fn outcome(&self) -> TxnOutcome {
        match self.value("commit").or(self.value("committed")) {
            Some(at) => TxnOutcome::Committed(ms(at)),
            None => TxnOutcome::Aborted,
        }
    }
    fn shard(&self, name: &str) -> ShardId {
        ShardId::new(self.value(name).unwrap().parse().unwrap())
    }
    fn part(&self, txn: TxnId) -> Part {
        let list = |name| {
            self.value(name).map(|list| list.split(',').collect::<Vec<_>>()).unwrap_or_default()
        };
        let read = |text: &&str| {
            let (text, expires) = text
                .split_once('<')
                .map_or((*text, Expiry::NEVER), |(a, b)| (a, Expiry::at(ms(b))));
            let (name, version) = text.split_once('@').unwrap();
            let absent = version.starts_with('-');
            let version = parse_version(version.trim_start_matches('-'));
            Read { key: key(name), version, absent, expires_at: expires }
        };
        let write = |text: &&str| {
            if let Some(keyspace) = text.strip_prefix('!') {
                let key = (KeyspaceId::new(keyspace.parse().unwrap()), String::new());
                return Write {
                    key,
                    kind: WriteKind::Fence,
                    value: String::new(),
                    expires_at: Expiry::NEVER,
                };
            }
            let (text, expires) = text
                .split_once('<')
                .map_or((*text, Expiry::NEVER), |(a, b)| (a, Expiry::at(ms(b))));
            let (name, value) = text.split_once('=').unwrap();
            let kind = if value == "-" { WriteKind::Delete } else { WriteKind::Put };
            Write { key: key(name), kind, value: value.into(), expires_at: expires }
        };
        Part {
            txn,
            begin: self.time("begin"),
            commit: self.time("commit"),
            placed_by: self.value("placed").map(ms).unwrap_or_default(),
            single: self.has("single"),
            wait: self.wait(),
            participants: self.shards(),
            reads: list("reads").iter().map(read).collect(),
            ranges: list("ranges").iter().map(|text| range(text)).collect(),
            writes: list("writes").iter().map(write).collect(),
            expect: self.value("expect").map(|text| (text != "-").then(|| text.into())),
            looked: self.value("looked").map(ms),
        }
    }
}

impl World {
    fn new() -> Self {
        Self {
            now: ms("1000"),
            stages: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            cut: BTreeSet::new(),
            askers: BTreeMap::new(),
            next_token: 0,
            text: String::new(),
        }
    }

    fn print(&mut self, who: &str, text: &str) {
        let _ = writeln!(self.text, "{who} {text}");
    }

    /// Prints what a shard put out, and carries its messages to its peers.
    fn absorb(&mut self, shard: u16, events: Vec<Event>) {
        for event in &events {
            self.print(&format!("s{shard}"), &show(event));
        }
        for (output, _) in events {
            let from = ShardId::new(shard);
            match output {
                Output::AskFreeze { to, txn, begin } => {
                    self.send(shard, to, Request::Freeze { txn, begin })
                }
                Output::AskTerminate { to, txn, begin, .. } => {
                    let participants = self.stages[&shard].participants_of(txn);
                    self.send(shard, to, Request::Terminate { txn, begin, participants });
                }
                Output::TellDecision { to, txn, outcome } => {
                    self.send(shard, to, Request::Decide { txn, outcome })
                }
                Output::FreezeAnswer { token, txn, state } => {
                    if let Some(&asker) = self.askers.get(&token) {
                        self.send(
                            shard,
                            ShardId::new(asker),
                            Request::FreezeAnswer { from, txn, state },
                        );
                    }
                }
                Output::StatusIs { token, txn, status: TxnStatus::Decided(outcome) } => {
                    if let Some(&asker) = self.askers.get(&token) {
                        let state = FrozenState::Decided(outcome);
                        self.send(
                            shard,
                            ShardId::new(asker),
                            Request::FreezeAnswer { from, txn, state },
                        );
                    }
                }
                Output::AckDecision { token, txn } => {
                    if let Some(&asker) = self.askers.get(&token) {
                        self.send(shard, ShardId::new(asker), Request::DecisionAcked { from, txn });
                    }
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, from: u16, to: ShardId, request: Request) {
        if self.cut.contains(&from)
            || self.cut.contains(&to.get())
            || !self.stages.contains_key(&to.get())
        {
            return self.print(&format!("s{from}"), &format!("to s{to}: lost"));
        }
        let token = self.token();
        self.askers.insert(token, from);
        let events = self.stages.get_mut(&to.get()).unwrap().request(self.now, token, request);
        self.absorb(to.get(), events);
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    fn command(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let who = words.next().unwrap();
        let rest: Vec<&str> = words.collect();
        match who {
            "at" => self.now = ms(rest[0]),
            "shards" => {
                for shard in 1..=rest[0].parse().unwrap() {
                    let has_replicas = rest.contains(&"replicated");
                    let mut config = Config { has_replicas, ..Config::default() };
                    if rest.contains(&"centiman") {
                        (config.notes_reads, config.watermark_lag) = (false, Duration::ZERO);
                    }
                    let mut stage: Stage = Stage::new(ShardId::new(shard), config);
                    let events = stage.recover(self.now);
                    self.stages.insert(shard, stage);
                    self.absorb(shard, events);
                }
            }
            "cut" => {
                self.cut =
                    rest.iter().map(|one| one.trim_start_matches('s').parse().unwrap()).collect();
            }
            "join" => self.cut.clear(),
            _ if who.starts_with('s') => {
                self.shard_command(who[1..].parse().unwrap(), rest[0], &Words(rest[1..].into()))
            }
            _ => self.client_command(who[1..].parse().unwrap(), rest[0], &Words(rest[1..].into())),
        }
    }

    fn shard_command(&mut self, shard: u16, command: &str, words: &Words<'_>) {
        let now = self.now;
        let txn = || {
            words.0.iter().find_map(|word| word.parse::<TxnId>().ok()).expect("a transaction id")
        };
        let stage = self.stages.get_mut(&shard).unwrap();
        let request = match command {
            "hold" => {
                (stage.hold_log, stage.hold_apply) =
                    (stage.hold_log | words.has("log"), stage.hold_apply | words.has("apply"));
                return;
            }
            "free" => {
                (stage.hold_log, stage.hold_apply) =
                    (stage.hold_log & !words.has("log"), stage.hold_apply & !words.has("apply"));
                let events = stage.sync(now);
                return self.absorb(shard, events);
            }
            "sync" => {
                let events = stage.sync(now);
                return self.absorb(shard, events);
            }
            "apply" => {
                let events = stage.apply(now);
                return self.absorb(shard, events);
            }
            "tick" => {
                let events = stage.tick(now);
                return self.absorb(shard, events);
            }
            "lose" => {
                let events = stage.lose_log(now);
                return self.absorb(shard, events);
            }
            "held" => {
                let events =
                    stage.hold_clock(now, Duration::from_millis(words.0[0].parse().unwrap()));
                return self.absorb(shard, events);
            }
            "error" => {
                let bound = Duration::from_millis(words.0[0].parse().unwrap());
                let events = stage.set_clock_error(now, bound);
                return self.absorb(shard, events);
            }
            "close" => {
                let events = stage.close_timestamp(now);
                return self.absorb(shard, events);
            }
            "may-answer" => {
                let verdict = stage.core.check_present(ms(words.0[0]), stage.clock_error);
                let text = verdict.map_or_else(show_refusal, |()| "may answer".into());
                return self.print(&format!("s{shard}"), &text);
            }
            "dark" => {
                stage.core =
                    timestone_txn::participant::Participant::new(stage.shard, stage.config);
                return;
            }
            "crash" => {
                (stage.hold_log, stage.hold_apply) = (words.has("hold"), false);
                let outage = words
                    .value("outage")
                    .map(|millis| Duration::from_millis(millis.parse().unwrap()));
                let left = words.value("left").map(|client| ClientId::new(client.parse().unwrap()));
                stage.raised = words.value("raised").map(ms);
                stage.tells_beginning = words.has("begin");
                let events = stage.recover_after(now, outage, left.as_slice());
                return self.absorb(shard, events);
            }
            "full" => {
                stage.full = true;
                return;
            }
            "asks" => {
                stage.waits_to_look = true;
                return;
            }
            "at-once" => {
                stage.at_once = true;
                return;
            }
            "trim" => {
                stage.trim(txn());
                return;
            }
            "collect" => {
                stage.collect(&key(words.0[0]));
                return;
            }
            "undecide" => {
                stage.undecide(txn());
                return;
            }
            "answerable" => {
                let verdict = stage.collected.check(ms(words.0[0].trim_start_matches('@')));
                let text = verdict.map_or_else(show_refusal, |()| "answerable".into());
                return self.print(&format!("s{shard}"), &text);
            }
            "judges" => {
                let judged = stage.core.view(now).expiry.as_of;
                return self.print(
                    &format!("s{shard}"),
                    &format!("judges expiry as of {}", show_time(judged)),
                );
            }
            "tells" => {
                let (at, is_present) =
                    (words.value("at").map_or(Timestamp::MAX, ms), words.has("present"));
                let verdict = stage.core.view(now).expiry.may_tell(
                    at,
                    is_present,
                    Expiry::at(words.time("until")),
                );
                let text = verdict.map_or_else(
                    |refusal| format!("refused: {}", show_refusal(refusal)),
                    |()| "told".into(),
                );
                return self.print(&format!("s{shard}"), &text);
            }
            "stats" => {
                let stats = stage.core.view(Timestamp::ZERO);
                let text = format!(
                    "in flight {} kept {} waiting {} resolving {} clients {} floor {}",
                    stats.in_flight,
                    stats.kept,
                    stats.waiting,
                    stats.resolving,
                    stats.clients,
                    show_time(stats.low_water)
                );
                return self.print(&format!("s{shard}"), &text);
            }
            "direct-read" => {
                let at = ms(words.0[1].trim_start_matches('@'));
                let events = stage.direct_read(now, &key(words.0[0]), at);
                return self.absorb(shard, events);
            }
            "direct-write" => {
                let events = stage.direct_write(now, &words.part(txn()));
                return self.absorb(shard, events);
            }
            "read" => {
                let at = words.0[1];
                let at = match at.strip_prefix("latest@") {
                    Some(at) => ReadAt::Latest(ms(at)),
                    None => ReadAt::Snapshot(ms(at.trim_start_matches('@'))),
                };
                Request::Read { key: key(words.0[0]), at, wait: words.wait() }
            }
            "prepare" => Request::Prepare(words.part(txn())),
            "writeset" => Request::WriteSet(words.part(txn())),
            "decide" => Request::Decide { txn: txn(), outcome: words.outcome() },
            "report" => Request::Report {
                client: ClientId::new(words.0[0].trim_start_matches('c').parse().unwrap()),
                watermark: words.time("watermark"),
                acked: Sequence::new(words.value("acked").unwrap_or("0").parse().unwrap()),
                clock: words.value("clock").map_or(self.now, ms),
                closing: words.0.contains(&"closing"),
            },
            "status" => Request::Status { txn: txn() },
            "terminate" => Request::Terminate {
                txn: txn(),
                begin: words.time("begin"),
                participants: words.shards(),
            },
            "freeze" => Request::Freeze { txn: txn(), begin: words.time("begin") },
            "answer" => {
                let state = match words.value("prepared") {
                    Some(at) => FrozenState::Prepared(ms(at)),
                    None if words.has("forgotten") => FrozenState::Forgotten,
                    None if words.has("finished") => FrozenState::Finished,
                    None => FrozenState::Decided(words.outcome()),
                };
                Request::FreezeAnswer { from: words.shard("from"), txn: txn(), state }
            }
            "answer-decision" => Request::DecisionAcked { from: words.shard("from"), txn: txn() },
            "scan" => {
                let at = ms(words.0[1].trim_start_matches('@'));
                Request::RaiseFloor {
                    keyspace: KeyspaceId::new(words.0[0].parse().unwrap()),
                    at,
                    wait: words.wait(),
                }
            }
            "range" => Request::Range {
                range: range(words.0[0]),
                at: ms(words.0[1].trim_start_matches('@')),
                wait: words.wait(),
            },
            "newest" => Request::Newest { keyspace: KeyspaceId::new(words.0[0].parse().unwrap()) },
            other => panic!("no such command: {other}"),
        };
        let token = self.token();
        let events = self.stages.get_mut(&shard).unwrap().request(now, token, request);
        self.absorb(shard, events);
    }

    fn client_command(&mut self, client: u32, command: &str, words: &Words<'_>) {
        let from = words
            .0
            .first()
            .and_then(|word| word.strip_prefix('s'))
            .and_then(|word| word.parse().ok());
        let from = from.map(ShardId::new).unwrap_or_default();
        let participants = ShardList::new(&words.shards());
        let bound = Duration::from_millis(words.value("external").unwrap_or("0").parse().unwrap());
        let input = match command {
            "commit" => coordinator::Input::Commit {
                txn: words.0[0].parse().unwrap(),
                begin: words.time("begin"),
                commit: words.time("commit"),
                participants: participants.as_slice(),
                kind: if words.has("strict") {
                    CommitKind::StrictReadOnly
                } else {
                    CommitKind::ReadWrite
                },
                external_wait: words.value("external").is_some(),
                error_bound: bound,
                deadline: words.value("deadline").map_or(Timestamp::MAX, ms),
            },
            "vote" => {
                let vote = match (words.value("later"), words.value("decided")) {
                    (Some(at), _) => Vote::Later(ms(at)),
                    (None, Some("aborted")) => Vote::Decided(TxnOutcome::Aborted),
                    (None, Some(at)) => Vote::Decided(TxnOutcome::Committed(ms(at))),
                    (None, None) if words.has("yes") => Vote::Yes,
                    (None, None) if words.has("old") => {
                        Vote::No(AbortReason::of(AbortKind::TooOld))
                    }
                    (None, None) => Vote::No(AbortReason::of(AbortKind::ReadConflict)),
                };
                let step =
                    Duration::from_nanos(words.value("step").unwrap_or("0").parse().unwrap());
                coordinator::Input::Vote { from, commit: words.time("commit"), vote, step }
            }
            "refused" => {
                let refusal = match words.0[1] {
                    "clock" => Refusal::ClockAhead { lead: Duration::from_secs(9) },
                    "busy" => Refusal::Busy,
                    _ => Refusal::Terminating,
                };
                coordinator::Input::Refused { from, refusal }
            }
            "acked" => coordinator::Input::Acked { from },
            "status" => coordinator::Input::StatusIs {
                from,
                status: match words.0[1] {
                    "unknown" => TxnStatus::Unknown,
                    "prepared" => TxnStatus::Prepared(Timestamp::ZERO),
                    _ => TxnStatus::Decided(words.outcome()),
                },
            },
            "wanted" => coordinator::Input::WriteSetWanted { from },
            "tick" => coordinator::Input::Tick { error_bound: bound },
            other => panic!("no such command: {other}"),
        };
        let mut out = Vec::new();
        let coordinator = self.coordinators.entry(client).or_default();
        coordinator.step(self.now, input, &mut out);
        for output in out {
            self.print(&format!("c{client}"), &show_coordinator(output));
        }
    }
}

/// Runs the commands of a script and puts what came below each.
fn play(script: &str) -> String {
    let mut world = World::new();
    for line in script.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            let _ = writeln!(world.text, "{line}");
            world.command(command);
        } else if line.starts_with('#') || line.is_empty() {
            let _ = writeln!(world.text, "{line}");
        }
    }
    world.text
}

fn scripts() -> Vec<(std::path::PathBuf, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 10, "the scripts are there");
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn scripts_give_exactly_what_they_say() {
    for (path, script) in scripts() {
        let came = play(&script);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &came).unwrap();
        } else if came != script {
            let line = came.lines().zip(script.lines()).position(|(a, b)| a != b).unwrap_or(0);
            panic!("{} differs near line {}; what came is:\n{came}", path.display(), line + 1);
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn every_planted_bug_is_caught_by_the_scripts_that_name_it() {
    let mut caught = BTreeSet::new();
    for (path, script) in scripts() {
        for name in script.lines().filter_map(|line| line.strip_prefix("# caught: ")) {
            let came = crate::check::with_bug(crate::check::bug(name), || play(&script));
            assert!(
                came.is_err() || came.unwrap() != script,
                "{} does not catch {name}",
                path.display()
            );
            caught.insert(name.to_owned());
        }
    }
    for bug in crate::check::ALL_BUGS {
        assert!(caught.contains(&format!("{bug:?}")), "no script catches {bug:?}");
    }
}
