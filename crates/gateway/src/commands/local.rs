//! Commands that touch no key: greetings, the client's own state, and what clients ask about the
//! server.
//!
//! The gateway poses as Redis [`REDIS_VERSION`], because clients choose what they send by that;
//! INFO names Timestone as well.

use std::collections::BTreeSet;

use timestone_types::Timestamp;
use timestone_wire::resp::{Protocol, ReplyWriter};

use crate::commands::arguments::Args;
use crate::commands::glob::Glob;
use crate::commands::integer;
use crate::commands::table::{COMMANDS, Class, Cmd, Spec, find};
use crate::connection::client::{ClientState, is_name};
use crate::failure::{Failure, shown};
use crate::limits::{
    COMMAND_ENTRY_BYTES, ELEMENT_BYTES, MAX_NAME_BYTES, MAX_NAMED, MAX_PATTERN_BYTES,
    MAX_PATTERNS_BYTES, PATTERN_BYTE_COST,
};

/// The version of Redis whose behaviour is followed.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// What is told of the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerStatus {
    pub(crate) now: Timestamp,
    /// When the gateway began.
    pub(crate) started: Timestamp,
    /// Clients connected to this gateway.
    pub(crate) clients: usize,
    /// Clients that were ever connected to it.
    pub(crate) connections: u64,
    /// Commands that it has carried out.
    pub(crate) commands: u64,
    /// Shards of the cluster.
    pub(crate) shards: usize,
    /// Commands that the gateway carried out in the last second.
    pub(crate) per_second: u64,
    /// What this process uses of its memory, as far as it is counted.
    pub(crate) memory_bytes: u64,
    /// What the data of its shards takes of it: indexes and caches.
    pub(crate) dataset_bytes: u64,
    /// Keys of this server's shards, as last counted.
    pub(crate) keys: u64,
    /// CLIENT LIST's answer, filled only for that: see [`ClientFilter`].
    pub(crate) listing: Vec<u8>,
}

/// Which clients a command tells of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ClientFilter {
    Nobody,
    Everybody,
    /// Those of these numbers, as far as they are connected.
    Of(BTreeSet<i64>),
}

impl ClientFilter {
    /// Whom a command tells of: CLIENT LIST by its options, any other of nobody.
    ///
    /// # Errors
    /// What the command answers instead.
    pub(crate) fn wanted(cmd: Cmd, args: Args<'_>) -> Result<Self, Failure> {
        match args.len() {
            _ if cmd != Cmd::Client || !args.is(1, b"LIST") => Ok(Self::Nobody),
            2 => Ok(Self::Everybody),
            4 if args.is(2, b"TYPE") => match args.get(3) {
                of if of.eq_ignore_ascii_case(b"normal") => Ok(Self::Everybody),
                of if [&b"master"[..], b"replica", b"slave", b"pubsub"]
                    .iter()
                    .any(|no| of.eq_ignore_ascii_case(no)) =>
                {
                    Ok(Self::Nobody)
                }
                other => Err(Failure::quoting(
                    "ERR Unknown client type",
                    &shown(other).to_ascii_lowercase(),
                )),
            },
            count if count > 3 && args.is(2, b"ID") => {
                let ids = args.iter().skip(3).map(integer::parse);
                let invalid = || Failure::text("ERR Invalid client ID");
                Ok(Self::Of(ids.map(|id| id.ok_or_else(invalid)).collect::<Result<_, _>>()?))
            }
            _ => Err(Failure::SYNTAX),
        }
    }
}

/// Parameters that CONFIG GET knows, with values that tell clients (`redis-benchmark`, frameworks)
/// what they may rely on.
const PARAMETERS: &[(&str, &str)] = &[
    ("appendfsync", "always"),
    ("appendonly", "yes"),
    ("databases", "1"),
    ("maxclients", "16384"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("proto-max-bulk-len", "16777216"),
    ("save", ""),
    ("timeout", "0"),
];

/// What CONFIG HELP answers.
const CONFIG_HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "HELP",
    "    Print this help.",
];

/// What CLIENT HELP answers.
const CLIENT_HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return clients of the specified IDs only.",
    "NO-EVICT (ON|OFF)",
    "    Accepted, and without effect: no client is evicted.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted, and without effect: no key is evicted.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "HELP",
    "    Print this help.",
];

/// What COMMAND HELP answers.
const COMMAND_HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "    If no command names are given, documentation details for all commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "    If no command names are given, information about all commands is returned.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of the commands in this server: all, or those that fit.",
    "HELP",
    "    Print this help.",
];

/// Answers a command's HELP.
fn help(lines: &[&str], reply: &mut ReplyWriter<'_>) {
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}

/// How long the answer of a command of class `Local` may get, in bytes: beside the lines of clients,
/// and beside what is always short.
///
/// # Errors
/// It names more than a command may.
pub(crate) fn answer_bytes(cmd: Cmd, args: Args<'_>) -> Result<usize, Failure> {
    let named = match cmd {
        Cmd::Info => args.len() - 1,
        Cmd::Client if args.is(1, b"LIST") => args.len().saturating_sub(3),
        Cmd::Command if args.is(1, b"INFO") || args.is(1, b"DOCS") => args.len() - 2,
        _ => 0,
    };
    if named > MAX_NAMED && !crate::memory::ignores_local_answers() {
        return Err(Failure::TOO_MANY_NAMED);
    }
    Ok(match cmd {
        Cmd::Ping | Cmd::Echo => args.get(1).len(),
        Cmd::Command if args.is(1, b"GETKEYS") => {
            args.iter().map(|key| key.len() + ELEMENT_BYTES).sum()
        }
        Cmd::Command => named * COMMAND_ENTRY_BYTES,
        _ => 0,
    })
}

/// What a command of class `Local` costs beside its answer, as bytes of one: the patterns of CONFIG
/// GET and COMMAND LIST, which take more time than any of their answers.
pub(crate) fn cost_bytes(cmd: Cmd, args: Args<'_>) -> usize {
    let bytes = match cmd {
        _ if ignores_patterns() => 0,
        Cmd::Config if args.is(1, b"GET") => patterns_bytes(args, 2),
        Cmd::Command if is_list_by_pattern(args) => patterns_bytes(args, 4),
        _ => 0,
    };
    // More of them are refused.
    bytes.min(MAX_PATTERNS_BYTES) * PATTERN_BYTE_COST
}

/// The patterns from this place on in all; an empty one costs something, too.
fn patterns_bytes(args: Args<'_>, from: usize) -> usize {
    args.iter().skip(from).map(|pattern| pattern.len() + 1).sum()
}

/// Whether CONFIG GET takes as many patterns as there are, for nothing.
fn ignores_patterns() -> bool {
    timestone_types::is_planted!(BoundlessPatterns)
}

/// Carries out a command of class `Local`, whose subcommand was checked (see
/// [`crate::commands::subcommands`]).
///
/// # Errors
/// What the command answers instead.
pub(crate) fn execute(
    cmd: Cmd,
    args: Args<'_>,
    status: &ServerStatus,
    client: &mut ClientState,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(1);
    match cmd {
        Cmd::Ping | Cmd::Echo => greet(cmd, args, reply)?,
        Cmd::Select => match integer::parse(args.get(1)) {
            Some(0) => reply.ok(),
            Some(index) if i32::try_from(index).is_err() => return Err(Failure::NOT_32_BITS),
            Some(_) => return Err(Failure::DB_INDEX),
            None => return Err(Failure::NOT_AN_INTEGER),
        },
        Cmd::Time => {
            let micros = status.now.as_nanos() / 1_000;
            reply.array(2);
            reply.bulk((micros / 1_000_000).to_string().as_bytes());
            reply.bulk((micros % 1_000_000).to_string().as_bytes());
        }
        Cmd::Auth => auth(args, reply)?,
        Cmd::Client => client_command(args, status, client, reply)?,
        Cmd::Config => config(args, reply)?,
        Cmd::Info => reply.verbatim(*b"txt", info(args, status).as_bytes()),
        Cmd::Command => command(args, reply)?,
        _ => unreachable!("only local commands are carried out here, not {cmd:?}"),
    }
    Ok(())
}

/// PING and ECHO, which need to know nothing.
///
/// # Errors
/// Too many arguments.
pub(crate) fn greet(cmd: Cmd, args: Args<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), Failure> {
    args.assert_at_least(1);
    match args.len() {
        _ if cmd == Cmd::Echo => reply.bulk(args.get(1)),
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.get(1)),
        _ => return Err(Failure::arity("ping")),
    }
    Ok(())
}

/// Nobody has a password here: the default user may come in with any.
fn auth(args: Args<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), Failure> {
    args.assert_at_least(2);
    match args.len() {
        2 => Err(Failure::NO_PASSWORD),
        3 if args.get(1) == b"default" => {
            reply.ok();
            Ok(())
        }
        3 => Err(Failure::WRONG_PASSWORD),
        _ => Err(Failure::SYNTAX),
    }
}

/// HELLO, which may change the dialect of its own answer: so it gets the buffer, not a writer.
///
/// # Errors
/// What it answers instead; nothing has changed then.
pub(crate) fn hello(
    args: Args<'_>,
    client: &mut ClientState,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    args.assert_at_least(1);
    let mut protocol = client.protocol;
    let mut name = None;
    if args.len() > 1 {
        protocol = match integer::parse(args.get(1)).ok_or(Failure::PROTOCOL_NUMBER)? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Failure::NO_PROTOCOL),
        };
    }
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, b"AUTH") && left >= 2 {
            if args.get(at + 1) != b"default" {
                return Err(Failure::WRONG_PASSWORD);
            }
            at += 3;
        } else if args.is(at, b"SETNAME") && left >= 1 {
            check_name(args.get(at + 1))?;
            name = Some(args.get(at + 1));
            at += 2;
        } else {
            return Err(Failure::quoting("ERR Syntax error in HELLO option", args.get(at)));
        }
    }
    client.protocol = protocol;
    if let Some(name) = name {
        client.name = name.to_vec();
    }
    let reply = &mut ReplyWriter::new(out, protocol);
    reply.map(7);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("server", "redis");
    pair("version", REDIS_VERSION);
    reply.bulk(b"proto");
    reply.integer(if protocol == Protocol::Resp2 { 2 } else { 3 });
    reply.bulk(b"id");
    reply.integer(client.number.0);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Whether a client may be called so.
fn check_name(name: &[u8]) -> Result<(), Failure> {
    match name {
        _ if name.len() > MAX_NAME_BYTES => Err(Failure::NAME_TOO_LONG),
        _ if !is_name(name) => Err(Failure::CLIENT_NAME),
        _ => Ok(()),
    }
}

fn on_or_off(args: Args<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), Failure> {
    args.assert_at_least(3);
    if args.is(2, b"on") || args.is(2, b"off") {
        reply.ok();
        return Ok(());
    }
    Err(Failure::SYNTAX)
}

fn client_command(
    args: Args<'_>,
    status: &ServerStatus,
    client: &mut ClientState,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    match args.get(1).to_ascii_lowercase().as_slice() {
        b"id" => {
            reply.integer(client.number.0);
        }
        b"getname" => {
            if client.name.is_empty() {
                reply.null()
            } else {
                reply.bulk(&client.name)
            }
        }
        b"setname" => {
            check_name(args.get(2))?;
            client.name = args.get(2).to_vec();
            reply.ok();
        }
        b"setinfo" => {
            let (option, value) = (args.get(2), args.get(3));
            let to = match () {
                () if option.eq_ignore_ascii_case(b"lib-name") => &mut client.library,
                () if option.eq_ignore_ascii_case(b"lib-ver") => &mut client.library_version,
                () => return Err(Failure::quoting("ERR Unrecognized option", option)),
            };
            if !is_name(value) {
                let option = option.to_ascii_lowercase();
                return Err(Failure::text(
                    [
                        b"ERR ",
                        &option[..],
                        b" cannot contain spaces, newlines or special characters.",
                    ]
                    .concat(),
                ));
            }
            if value.len() > MAX_NAME_BYTES {
                return Err(Failure::NAME_TOO_LONG);
            }
            *to = value.to_vec();
            reply.ok();
        }
        b"info" => {
            let mut line = Vec::new();
            client.describe(status.now, &mut line);
            reply.verbatim(*b"txt", &line);
        }
        b"list" => reply.verbatim(*b"txt", &status.listing),
        b"help" => help(CLIENT_HELP, reply),
        b"no-evict" => on_or_off(args, reply)?,
        b"no-touch" => on_or_off(args, reply)?,
        _ => return Err(Failure::subcommand("CLIENT", args.get(1))),
    }
    Ok(())
}

fn config(args: Args<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), Failure> {
    args.assert_at_least(2);
    if args.is(1, b"RESETSTAT") {
        reply.ok();
        return Ok(());
    }
    if args.is(1, b"HELP") {
        help(CONFIG_HELP, reply);
        return Ok(());
    }
    if !args.is(1, b"GET") {
        return Err(Failure::subcommand("CONFIG", args.get(1)));
    }
    if args.iter().skip(2).any(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
        return Err(Failure::PATTERN_TOO_LONG);
    }
    if patterns_bytes(args, 2) > MAX_PATTERNS_BYTES && !ignores_patterns() {
        return Err(Failure::TOO_MANY_PATTERNS);
    }
    let mut found = [false; PARAMETERS.len()];
    // One compiled pattern at a time: it takes more memory than its text.
    for glob in args.iter().skip(2).map(Glob::any_case) {
        for (found, (name, _)) in found.iter_mut().zip(PARAMETERS) {
            *found |= glob.matches(name.as_bytes());
        }
    }
    reply.map(found.iter().filter(|&&found| found).count());
    for (_, (name, value)) in found.iter().zip(PARAMETERS).filter(|(found, _)| **found) {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

#[allow(
    clippy::disallowed_methods,
    reason = "INFO names the process for whoever administers it; nothing is decided by it"
)]
fn info(args: Args<'_>, status: &ServerStatus) -> String {
    use core::fmt::Write as _;
    let everything = args.len() == 1;
    let asked = |section: &str| {
        let names = [section.as_bytes(), b"all", b"everything", b"default"];
        everything
            || args
                .iter()
                .skip(1)
                .any(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name)))
    };
    let uptime = status.now.since(status.started).as_secs();
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if !asked(name) {
            return;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let (first, rest) = name.split_at(1);
        let _ = write!(text, "# {}{rest}\r\n", first.to_uppercase());
        for (name, value) in lines {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    };
    section(
        "server",
        &[
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("server_name", "timestone".to_owned()),
            ("timestone_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("timestone_shards", status.shards.to_string()),
            ("os", std::env::consts::OS.to_owned()),
            ("arch_bits", usize::BITS.to_string()),
            ("process_id", std::process::id().to_string()),
            ("server_time_usec", (status.now.as_nanos() / 1_000).to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
    );
    section(
        "clients",
        &[("connected_clients", status.clients.to_string()), ("blocked_clients", "0".to_owned())],
    );
    section(
        "memory",
        &[
            ("used_memory", status.memory_bytes.to_string()),
            ("used_memory_dataset", status.dataset_bytes.to_string()),
            ("maxmemory", "0".to_owned()),
            ("maxmemory_policy", "noeviction".to_owned()),
        ],
    );
    section("persistence", &[("loading", "0".to_owned()), ("aof_enabled", "1".to_owned())]);
    section(
        "stats",
        &[
            ("total_connections_received", status.connections.to_string()),
            ("total_commands_processed", status.commands.to_string()),
            ("instantaneous_ops_per_sec", status.per_second.to_string()),
        ],
    );
    section("replication", &[("role", "master".to_owned()), ("connected_slaves", "0".to_owned())]);
    section("cluster", &[("cluster_enabled", "0".to_owned())]);
    if status.keys > 0 || !asked("keyspace") {
        section("keyspace", &[("db0", format!("keys={},expires=0,avg_ttl=0", status.keys))]);
    } else {
        section("keyspace", &[]);
    }
    text
}

fn command(args: Args<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), Failure> {
    args.assert_at_least(1);
    if args.len() == 1 {
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| describe(spec, reply));
        return Ok(());
    }
    match args.get(1).to_ascii_lowercase().as_slice() {
        b"count" => {
            reply.integer(COMMANDS.len() as i64);
        }
        b"info" if args.len() == 2 => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| describe(spec, reply));
        }
        b"info" => {
            reply.array(args.len() - 2);
            for name in args.iter().skip(2) {
                match find(name) {
                    Some(spec) => describe(spec, reply),
                    None => reply.null(),
                }
            }
        }
        b"docs" => {
            let all = args.len() == 2;
            let named = args.iter().skip(2).filter_map(find);
            let specs: Vec<&Spec> = if all { COMMANDS.iter().collect() } else { named.collect() };
            reply.map(specs.len());
            specs.iter().for_each(|spec| document(spec, reply));
        }
        b"help" => help(COMMAND_HELP, reply),
        b"list" => {
            let listed = listed(args)?;
            reply.array(listed.len());
            listed.iter().for_each(|spec| reply.bulk(spec.name.as_bytes()));
        }
        b"getkeys" => {
            let target = args.from(2);
            let invalid = || Failure::text("ERR Invalid command specified");
            let spec = find(target.get(0)).ok_or_else(invalid)?;
            if !spec.accepts(target.len()) {
                return Err(Failure::text("ERR Invalid number of arguments specified for command"));
            }
            let keys = spec.keys(target);
            if keys.clone().next().is_none() {
                return Err(Failure::text("ERR The command has no key arguments"));
            }
            reply.array(keys.clone().count());
            keys.for_each(|key| reply.bulk(key));
        }
        _ => return Err(Failure::subcommand("COMMAND", args.get(1))),
    }
    Ok(())
}

/// The commands that COMMAND LIST tells of.
fn listed(args: Args<'_>) -> Result<Vec<&'static Spec>, Failure> {
    args.assert_at_least(2);
    let filter = args.get(4);
    match args.len() {
        2 => Ok(COMMANDS.iter().collect()),
        5 if is_list_by_pattern(args) => {
            if filter.len() > MAX_PATTERN_BYTES {
                return Err(Failure::PATTERN_TOO_LONG);
            }
            let glob = Glob::any_case(filter);
            Ok(COMMANDS.iter().filter(|spec| glob.matches(spec.name.as_bytes())).collect())
        }
        5 if args.is(2, b"FILTERBY") && args.is(3, b"ACLCAT") => {
            let is_of = |spec: &&Spec| category(spec).as_bytes()[1..].eq_ignore_ascii_case(filter);
            Ok(COMMANDS.iter().filter(is_of).collect())
        }
        // There are no modules.
        5 if args.is(2, b"FILTERBY") && args.is(3, b"MODULE") => Ok(Vec::new()),
        _ => Err(Failure::SYNTAX),
    }
}

/// Whether a COMMAND has a pattern, behind LIST FILTERBY PATTERN.
fn is_list_by_pattern(args: Args<'_>) -> bool {
    let expected = [&b"LIST"[..], b"FILTERBY", b"PATTERN"];
    args.len() == 5 && expected.iter().zip(1..).all(|(word, at)| args.is(at, word))
}

/// The category of access control that a command is in.
const fn category(spec: &Spec) -> &'static str {
    match spec.class {
        Class::Read => "@read",
        Class::Write => "@write",
        Class::Keyspace => "@keyspace",
        Class::State => "@transaction",
        Class::Local => "@connection",
    }
}

/// One command as COMMAND INFO gives it.
fn describe(spec: &Spec, reply: &mut ReplyWriter<'_>) {
    debug_assert!(find(spec.name.as_bytes()).is_some(), "it is found by its name");
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(i64::from(spec.arity));
    reply.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| reply.simple(flag));
    reply.integer(i64::from(spec.keys.first));
    reply.integer(i64::from(spec.keys.last));
    reply.integer(i64::from(spec.keys.step));
    reply.set(1);
    reply.simple(category(spec));
    // Tips, key specifications and subcommands.
    (0..3).for_each(|_| reply.array(0));
}

/// One command as COMMAND DOCS gives it.
fn document(spec: &Spec, reply: &mut ReplyWriter<'_>) {
    debug_assert!(find(spec.name.as_bytes()).is_some(), "it is found by its name");
    let group = match spec.class {
        Class::Read | Class::Write => "string",
        Class::Keyspace => "generic",
        Class::State => "transactions",
        Class::Local => "connection",
    };
    reply.bulk(spec.name.as_bytes());
    reply.map(3);
    for (name, value) in [("summary", spec.summary), ("since", spec.since), ("group", group)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
